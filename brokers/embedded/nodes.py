"""The destinations that there are, by name; which connection made each, and how many there may be.

Only memory is counted: a queue or topic is forgotten as soon as it is empty and unused. Under the lock of `core.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from brokers.embedded.model import Key, Limits, Node, Outlet, Place, Route, Terms, key_of
from brokers.embedded.store import OVERHEAD, Entry, Share, Store, Total
from brokers.errors import BrokerError, DestinationGoneError, SendFailedError
from brokers.message import Destination, Message


class Nodes:
    """Destinations and durable subscriptions, each of which counts as one.

    Args:
        limits: of messages for each queue and each topic's subscriber and of all together, of destinations for all
            connections together.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self._made = 0
        self._total: Final = Total()
        self._nodes: dict[Key, Node] = {}
        self._durable: dict[str, list[Outlet]] = {}

    def find(self, destination: Destination) -> Node | None:
        """Return a destination's node, if it has one."""
        return self._nodes.get(key_of(destination))

    def in_use(self) -> list[Destination]:
        """List the destinations with messages, consumers, a durable subscription or an owner."""
        return [node.destination for node in self._nodes.values() if not node.is_unused]

    def add(self, destination: Destination, maker: Place, owner: Place | None = None) -> Node:
        """Make a node that is not there yet.

        Raises:
            BrokerError: there are too many.
        """
        self._count(maker, destination)
        node = Node(destination, maker, owner)
        if not destination.kind.is_topic:
            node.outlets.append(Outlet(destination, self._new_store()))
        self._nodes[key_of(destination)] = node
        return node

    def outlet(self, node: Node, terms: Terms, maker: Place) -> Outlet:
        """Find or make the outlet that a new subscription joins; one of other terms that nobody uses is made anew.

        Raises:
            BrokerError: it would be one durable subscription too many, or one of that name has other terms.
        """
        if not node.destination.kind.is_topic:
            return node.outlets[0]
        named = None if terms.name is None else self.named(node, terms.name)
        if named is not None and (named.terms.label, named.is_durable) == (terms.label, terms.is_durable):
            return named
        if named is not None and named.subscriptions:
            raise BrokerError(f"the subscription {terms.name!r} to {node.destination} has a consumer with other terms")
        if named is not None:
            self.end(node, named)
        if terms.name is not None:
            self._count(maker, node.destination)
        outlet = Outlet(node.destination, self._new_store(), terms, maker)
        node.outlets.append(outlet)
        if terms.name is not None and outlet.is_durable:
            self._durable.setdefault(terms.name, []).append(outlet)
        return outlet

    def durable(self, name: str) -> Outlet | None:
        """Return the outlet of a durable subscription of this name to any topic, if there is one."""
        return next(iter(self._durable.get(name, ())), None)

    @staticmethod
    def named(node: Node, name: str) -> Outlet | None:
        """Return the outlet of a named subscription to a topic, if there is one."""
        return next((outlet for outlet in node.outlets if outlet.name == name), None)

    def end(self, node: Node, outlet: Outlet) -> None:
        """Forget one outlet of a topic, with what is in it."""
        node.outlets.remove(outlet)
        outlet.store.end()
        if outlet.name is not None and outlet.maker is not None:
            self._uncount(outlet.maker)
            if outlet.is_durable:
                self._durable[outlet.name].remove(outlet)
                if not self._durable[outlet.name]:
                    del self._durable[outlet.name]

    def remove(self, node: Node) -> None:
        """Forget a node, with what is in it. Idempotent."""
        if self._nodes.get(key_of(node.destination)) is not node:
            return
        for outlet in list(node.outlets):
            outlet.store.end()
            if outlet.name is not None:
                self.end(node, outlet)
        del self._nodes[key_of(node.destination)]
        self._uncount(node.maker)

    def remove_if_unused(self, node: Node) -> None:
        """Forget a node where that loses nothing."""
        if node.is_unused:
            self.remove(node)

    def route(self, message: Message, sender: Place) -> Route:
        """Find where a stamped message is to go, and make a queue that is not there yet.

        Raises:
            DestinationGoneError: its temporary destination ended.
            SendFailedError: there are too many destinations.
        """
        return Route(message, message.octets, self._outlets(message, sender))

    def _outlets(self, message: Message, sender: Place) -> list[Outlet]:
        assert message.destination is not None  # the stamp saw to it
        node = self.find(message.destination)
        if node is None and message.destination.kind.is_temporary:
            raise DestinationGoneError(f"{message.destination} is gone: the connection that it belonged to was closed")
        if node is None and message.destination.kind.is_topic:
            return []
        if node is not None and message.destination.kind.is_topic:
            return [outlet for outlet in node.outlets if outlet.takes(message, sender)]
        try:
            return (node or self.add(message.destination, sender)).outlets
        except BrokerError as error:
            raise SendFailedError(str(error)) from error

    def put(self, route: Route, numbers: Iterator[int]) -> None:
        """Put a message where it is to go."""
        share = Share(self._total, route.octets + OVERHEAD)
        for outlet in route.outlets:
            outlet.put(Entry(route.message, next(numbers), route.octets, share=share))

    def require_room(self, routes: Iterable[Route]) -> None:
        """See that so much more is not too much for all destinations together.

        Raises:
            SendFailedError: it is.
        """
        more = sum(route.octets + OVERHEAD for route in routes if route.outlets)
        if self._total.octets + more > self._limits.max_total_octets:
            raise SendFailedError(
                f"the broker is full: max_total_octets is {self._limits.max_total_octets},"
                f" there are {self._total.octets} and {more} more were to come"
            )

    def _new_store(self) -> Store:
        return Store(self._limits.max_messages, self._limits.max_octets)

    def _count(self, maker: Place, wanted: Destination) -> None:
        if maker.limit is not None and maker.made >= maker.limit:
            raise BrokerError(
                f"{wanted} is not made: this client made {maker.limit} destinations and durable subscriptions that"
                " are still in use, which is as many as one may"
            )
        limit = self._limits.max_destinations
        if self._made >= limit:
            raise BrokerError(
                f"{wanted} is not made: {limit} destinations and durable subscriptions are in use,"
                " which is as many as there may be (max_destinations)"
            )
        maker.made += 1
        self._made += 1

    def _uncount(self, maker: Place) -> None:
        maker.made -= 1
        self._made -= 1
