"""The broker proper: destinations, their subscriptions, and transactions, all under one lock.

A destination has *outlets*: a queue has one, for all its consumers; a topic has one for each subscriber or durable
name. An outlet is a store of messages with the subscriptions that compete for them (see `queues.py`). Consumers pull:
a subscription is woken when its outlet has a message and it holds less than its prefetch, and then takes messages until
that is over. This module starts no threads; with the lock held it calls no user code except the clock and selectors.

Destinations are kept by name, with the connection that created each, and their number is limited. A queue or topic
that is empty and unused is forgotten at once and does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from secrets import token_hex
from threading import get_ident
from typing import Final, TypeAlias

from brokers import events
from brokers.adapter.redelivery import carried_reason
from brokers.connection import RefusedSend
from brokers.embedded.lock import OwnThread, WakeUp, WakingLock
from brokers.embedded.queues import (
    EXPIRED,
    MESSAGE_OVERHEAD_OCTETS,
    Batch,
    BrokerLimits,
    ConnectionPlace,
    Deed,
    DestinationNode,
    EntryLine,
    EntryStore,
    Handover,
    Key,
    MessageRoute,
    MessageShare,
    Outlet,
    OutletSubscription,
    QueueEntry,
    SubscribeTerms,
    Total,
    dead_letter,
    is_dead_letter_queue,
    is_expired,
    key_of,
    received,
    redelivered,
)
from brokers.errors import (
    BrokerError,
    ClosedError,
    DestinationGoneError,
    SendFailedError,
    StaleDestinationError,
    UsageError,
)
from brokers.message import Destination, DestinationKind, Message, check_message, field_problem
from brokers.threads.timer import left


class DestinationNodes:
    """Destinations and durable subscriptions, each of which counts as one towards `max_destinations`.

    Args:
        limits: limits of messages, for each queue or topic's subscriber and in total, and of destinations in total.
    """

    def __init__(self, limits: BrokerLimits) -> None:
        self._limits: Final = limits
        self._made = 0
        self._total: Final = Total()
        self._nodes: dict[Key, DestinationNode] = {}
        self._durable: dict[str, list[Outlet]] = {}

    def find(self, destination: Destination) -> DestinationNode | None:
        """Return the node of a destination, or None if it has none."""
        return self._nodes.get(key_of(destination))

    def in_use(self) -> list[Destination]:
        """Return the destinations with messages, consumers, a durable subscription or an owner."""
        return [node.destination for node in self._nodes.values() if not node.is_unused]

    def add(
        self, destination: Destination, maker: ConnectionPlace, owner: ConnectionPlace | None = None
    ) -> DestinationNode:
        """Create the node of a destination that has none.

        Raises:
            BrokerError: there are too many destinations.
        """
        self._count(maker, destination)
        node = DestinationNode(destination, maker, owner, is_topic=destination.kind.is_topic)
        if not node.is_topic:
            node.outlets.append(Outlet(destination, self._new_store()))
        self._nodes[key_of(destination)] = node
        return node

    def outlet(self, node: DestinationNode, terms: SubscribeTerms, maker: ConnectionPlace) -> Outlet:
        """Return the outlet that a new subscription joins; an unused one with other terms is replaced.

        Raises:
            BrokerError: there are too many durable subscriptions, or the one of that name is in use on other terms.
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
        """Return the outlet of a durable subscription of this name to any topic, or None."""
        return next(iter(self._durable.get(name, ())), None)

    @staticmethod
    def named(node: DestinationNode, name: str) -> Outlet | None:
        """Return the outlet of a named subscription to a topic, or None."""
        return next((outlet for outlet in node.outlets if outlet.name == name), None)

    def end(self, node: DestinationNode, outlet: Outlet) -> None:
        """Remove one outlet of a topic, with its messages. Idempotent: a topic may end before its subscriptions."""
        if outlet not in node.outlets:
            return
        node.outlets.remove(outlet)
        outlet.store.end()
        if outlet.name is not None and outlet.maker is not None:
            self._uncount(outlet.maker)
            if outlet.is_durable:
                self._durable[outlet.name].remove(outlet)
                if not self._durable[outlet.name]:
                    del self._durable[outlet.name]

    def remove(self, node: DestinationNode) -> None:
        """Remove a node, with its messages. Idempotent."""
        if self._nodes.get(key_of(node.destination)) is not node:
            return
        for outlet in list(node.outlets):
            outlet.store.end()
            if outlet.name is not None:
                self.end(node, outlet)
        del self._nodes[key_of(node.destination)]
        self._uncount(node.maker)

    def remove_if_unused(self, node: DestinationNode) -> None:
        """Remove a node if that loses nothing."""
        if node.is_unused:
            self.remove(node)

    def route(self, message: Message, sender: ConnectionPlace) -> MessageRoute:
        """Return the route of a stamped message, and create its queue if it does not exist.

        Raises:
            DestinationGoneError: its temporary destination has ended.
            SendFailedError: there are too many destinations.
        """
        destination = message.destination
        assert destination is not None  # checked by `stamp`
        node = self._nodes.get((destination.kind, destination.name or ""))
        if node is None:
            outlets = self._new_outlets(destination, sender)
        elif node.is_topic:
            outlets = [outlet for outlet in node.outlets if outlet.takes(message, sender)]
        else:
            outlets = node.outlets
        octets = message.octets
        return MessageRoute(message, outlets, octets, octets + MESSAGE_OVERHEAD_OCTETS if outlets else 0)

    def _new_outlets(self, destination: Destination, sender: ConnectionPlace) -> list[Outlet]:
        if destination.kind.is_temporary:
            raise DestinationGoneError(f"{destination} is gone: its owner removed it, or closed the connection")
        if destination.kind.is_topic:
            return []
        try:
            return self.add(destination, sender).outlets
        except BrokerError as error:
            raise SendFailedError(str(error)) from error

    def put(self, route: MessageRoute, numbers: Iterator[int]) -> None:
        """Put a message into the outlets of its route."""
        share = MessageShare(self._total, route.total_octets)
        for outlet in route.outlets:
            outlet.put(QueueEntry(route.message, next(numbers), route.octets, share=share))

    def require_room(self, more: int) -> None:
        """Check that so many octets fit the limit of all destinations together.

        Raises:
            SendFailedError: they do not.
        """
        if self._total.octets + more > self._limits.max_total_octets:
            raise SendFailedError(
                f"the broker is full: max_total_octets is {self._limits.max_total_octets},"
                f" it has {self._total.octets}, and {more} more were to be added"
            )

    def _new_store(self) -> EntryStore:
        return EntryStore(self._limits.max_messages, self._limits.max_octets)

    def _count(self, maker: ConnectionPlace, wanted: Destination) -> None:
        if maker.limit is not None and maker.made >= maker.limit:
            raise BrokerError(
                f"{wanted} cannot be created: this client has {maker.limit} destinations and durable subscriptions"
                " in use, which is the maximum for one client"
            )
        limit = self._limits.max_destinations
        if self._made >= limit:
            raise BrokerError(
                f"{wanted} cannot be created: {limit} destinations and durable subscriptions are in use,"
                " which is the maximum (max_destinations)"
            )
        maker.made += 1
        self._made += 1

    def _uncount(self, maker: ConnectionPlace) -> None:
        maker.made -= 1
        self._made -= 1


Clock: TypeAlias = Callable[[], int]
NAME_OCTETS: Final = 16
"""Number of random octets in the name of a temporary destination."""


class EmbeddedCore:
    """Destinations, subscriptions and transactions of one broker. Thread-safe.

    Attributes:
        own_thread: runs what a sender may deliver itself.
    """

    def __init__(self, name: str, clock: Clock, max_deliveries: int, limits: BrokerLimits) -> None:
        self.id: Final = "-".join(["ID:embedded", *([name] if name else []), token_hex(8)])
        self.clock: Final = clock
        self.max_deliveries: Final = max_deliveries
        self.own_thread: Final = OwnThread()
        self._lock: Final = WakingLock()
        self._numbers = count(1)
        self._nodes = DestinationNodes(limits)
        self._reserved = 0  # octets for the sends of a transaction, while what it decided is carried out
        self._places: set[ConnectionPlace] = set()

    # --- connections and their temporary destinations

    @property
    def has_connections(self) -> bool:
        """True while a connection is attached."""
        return bool(self._places)

    def attach(self, limit: int | None) -> ConnectionPlace:
        """Register a connection that may create `limit` destinations; None for as many as the broker has room for."""
        with self._lock:
            place = ConnectionPlace(limit)
            self._places.add(place)
            return place

    def detach(self, place: ConnectionPlace) -> None:
        """Forget a connection without subscriptions, and its temporary destinations with their messages."""
        with self._lock:
            self._places.discard(place)
            for node in place.temporaries:
                self._nodes.remove(node)
            place.temporaries.clear()

    def temporary(self, kind: DestinationKind, owner: ConnectionPlace) -> Destination:
        """Create a temporary destination of a connection. Its name cannot be guessed; whoever knows it may send.

        Raises:
            BrokerError: there are too many destinations.
        """
        with self._lock:
            destination = Destination(kind, f"{self.id}-temporary-{token_hex(NAME_OCTETS)}")
            owner.temporaries[self._nodes.add(destination, owner, owner)] = None
            return destination

    def end_temporary(self, destination: Destination, owner: ConnectionPlace) -> None:
        """Remove a temporary destination with its messages, if it is still the owner's."""
        with self._lock:
            node = self._nodes.find(destination)
            if node is not None and node in owner.temporaries:
                del owner.temporaries[node]
                self._nodes.remove(node)

    # --- sending

    def stamp(self, message: Message) -> Message:
        """Return the message as the broker will store it.

        Raises:
            UsageError: the message has no destination, or a field or a body that does not fit its type.
        """
        destination = getattr(message, "destination", None)  # of a caller who may give something else
        if not isinstance(destination, Destination):
            check_message(message)
            raise UsageError(field_problem(message) or "the message has no destination")
        if not destination.name:
            key_of(destination)  # raises
        return received(message, self.new_message_id(), self.clock())

    def new_message_id(self) -> str:
        """Return the id of a new message."""
        return f"{self.id}-{next(self._numbers)}"

    def send(self, stamped: Message, sender: ConnectionPlace) -> None:
        """Route one stamped message.

        Raises:
            DestinationGoneError: its temporary destination has ended.
            SendFailedError: a limit is reached; the message was not stored.
        """
        with self._lock:
            route = self._nodes.route(stamped, sender)
            try:
                for outlet in route.outlets:
                    if outlet.store.excess(1, route.octets):
                        self._require_place(outlet, 1, route.octets)
                self._nodes.require_room(route.total_octets)  # last: dead letters of expired messages take some
            except SendFailedError:
                self._forget_unused(Batch(sender, [stamped]))
                raise
            self._nodes.put(route, self._numbers)

    def send_all(self, stamped: Iterable[Message], sender: ConnectionPlace) -> list[Exception | None]:
        """Route several messages like `send`, and return the error of each or None."""
        errors = list[Exception | None]()
        with self._lock:
            for message in stamped:
                try:
                    self.send(message, sender)
                except (SendFailedError, MemoryError) as error:
                    errors.append(error)
                else:
                    errors.append(None)
        return errors

    def depth(self, destination: Destination) -> int:
        """Return the number of unsettled messages of a destination, waiting or handed over, over all its outlets."""
        with self._lock:
            node = self._nodes.find(destination)
            return sum(len(outlet.store) for outlet in node.outlets) if node else 0

    def has(self, destination: Destination) -> bool:
        """Return whether a destination exists; a queue or topic that is not temporary exists once it is used."""
        with self._lock:
            return self._nodes.find(destination) is not None

    def consumers(self, destination: Destination) -> int:
        """Return the number of consumers of a destination."""
        with self._lock:
            node = self._nodes.find(destination)
            return sum(len(outlet.subscriptions) for outlet in node.outlets) if node else 0

    def destinations(self) -> list[Destination]:
        """Return the destinations in use: with messages, consumers, a durable subscription or an owner."""
        with self._lock:
            return self._nodes.in_use()

    # --- subscriptions

    def subscribe(
        self,
        destination: Destination,
        owner: ConnectionPlace,
        terms: SubscribeTerms,
        wake_up: WakeUp,
        *,
        accepts: bool = False,
    ) -> OutletSubscription:
        """Add a subscription, which is at work; several of one name compete like the consumers of a queue.

        Args:
            destination: the queue or topic.
            owner: the connection.
            terms: the terms.
            wake_up: called without the lock when the subscription is at work again; then `begin` must be called, and
                `take` until it returns None.
            accepts: whether deliveries are accepted at once.

        Raises:
            StaleDestinationError: the temporary destination is not, or no longer, the owner's.
            BrokerError: there are too many destinations or durable subscriptions, or one of that name has other terms.
        """
        with self._lock:
            node = self._nodes.find(destination)
            if destination.kind.is_temporary and (node is None or node.owner is not owner):
                raise StaleDestinationError(f"{destination} is not a temporary destination of this connection")
            node = node or self._nodes.add(destination, owner)
            try:
                outlet = self._nodes.outlet(node, terms, owner)
            except BrokerError:
                self._nodes.remove_if_unused(node)
                raise
            subscription = OutletSubscription(
                node, outlet, owner, terms.prefetch, self._lock, wake_up, accepts, is_on_credit=terms.prefetch == 0
            )
            if not destination.kind.is_topic and (terms.is_browsing or terms.wants is not None):
                subscription.line = EntryLine(terms.wants, is_for_looking=terms.is_browsing)
                outlet.store.add(subscription.line)
            outlet.subscriptions.add(subscription)
            return subscription

    def begin(self, subscription: OutletSubscription) -> Handover | None:
        """Return the delivery that a subscription was woken with, or else the next one, as `take` does."""
        if subscription.in_hand:
            subscription.thread = get_ident()  # first, so that `stop` sees that it has begun
            try:
                holding = subscription.in_hand.pop()
            except IndexError:  # another thread removed it
                return self.take(subscription)
            if not holding.message.expiration or not is_expired(holding.message, self.clock()):
                return holding
            with self._lock:
                subscription.hand_back(holding)
        return self.take(subscription)

    def take(self, subscription: OutletSubscription) -> Handover | None:
        """Return the next delivery of a subscription at work; None if there is none now, and it is no longer at work.

        A subscription takes deliveries on one thread at a time.
        """
        with self._lock:
            holding = None
            if subscription.is_open and not subscription.is_full:  # `_let_go` and `allow` wake one that was full
                if subscription.outlet.store.waiting:
                    holding = self._next(subscription)
                if holding is None:
                    subscription.outlet.idle[subscription] = None
            if holding is None:
                subscription.is_at_work, subscription.thread = False, None
            else:
                subscription.thread = get_ident()
            if not subscription.is_open:
                self._lock.rested.notify_all()
            return holding

    def put_off(self, subscription: OutletSubscription) -> None:
        """Record that a subscription at work got no thread: the next message, or `allow`, wakes it again."""
        with self._lock:
            self._empty_hand(subscription)
            subscription.is_at_work, subscription.thread = False, None
            if subscription.is_open:
                subscription.outlet.idle[subscription] = None

    def _empty_hand(self, subscription: OutletSubscription) -> None:
        with suppress(IndexError):  # there is none, or another thread removed it
            subscription.hand_back(subscription.in_hand.pop())

    def pause(self, subscription: OutletSubscription) -> None:
        """Record that a subscription at work has let go of its thread, and waits for another one."""
        with self._lock:
            subscription.thread = None
            if not subscription.is_open:
                self._lock.rested.notify_all()

    def await_rest(self, subscription: OutletSubscription, until: float) -> None:
        """Wait until a stopped subscription has no thread, or the monotonic clock shows `until`."""
        with self._lock.rested:
            if subscription.thread != get_ident():
                self._lock.rested.wait_for(lambda: subscription.thread is None, left(until))

    def allow(self, subscription: OutletSubscription, prefetch: int) -> None:
        """Set the number of deliveries that a subscription may hold, or on credit how many more it gets."""
        with self._lock:
            self._empty_hand(subscription)  # so that the message counts towards the new number, or stays
            was_full, subscription.prefetch = subscription.is_full, prefetch
            if was_full and not subscription.is_full:
                subscription.rouse()

    def is_idle(self, subscription: OutletSubscription) -> bool:
        """Return whether a subscription found no message to take, or may take none."""
        with self._lock:
            return not subscription.in_hand and (subscription in subscription.outlet.idle or subscription.is_full)

    def stop(self, subscription: OutletSubscription) -> bool:
        """Hand over no more messages; held deliveries may still be settled. Return whether a thread is at work."""
        with self._lock:
            subscription.is_open = False
            subscription.outlet.idle.pop(subscription, None)
            self._empty_hand(subscription)
            subscription.outlet.hand_on()  # it may have been woken for a message that it will no longer take
            return subscription.thread is not None

    def leave(self, subscription: OutletSubscription, seen: Container[Handover] | None = None) -> None:
        """End a stopped subscription: its deliveries go back, except those in an open transaction. Idempotent.

        Only the deliveries in `seen` count as delivered; None for all.
        """
        with self._lock:
            outlet, node = subscription.outlet, subscription.node
            if subscription not in outlet.subscriptions:
                return
            outlet.subscriptions.remove(subscription)
            if subscription.line is not None:
                outlet.store.drop(subscription.line)
            for holding in sorted(subscription.held, key=lambda held: held.entry.sequence):
                if holding.batch is None:
                    self._give_back(holding, counts=seen is None or holding in seen)
            if outlet.is_ephemeral and not outlet.subscriptions:
                self._nodes.end(node, outlet)
            self._nodes.remove_if_unused(node)

    def durable(self, name: str) -> tuple[Destination, SubscribeTerms] | None:
        """Return the topic and the terms of a durable subscription of this name, or None if there is none."""
        with self._lock:
            outlet = self._nodes.durable(name)
            return None if outlet is None else (outlet.source, outlet.terms)

    def forget_durable(self, topic: Destination, durable_name: str) -> None:
        """Delete a durable subscription with its messages, if it exists.

        Raises:
            BrokerError: the subscription has a consumer.
        """
        with self._lock:
            node = self._nodes.find(topic)
            if node is None:
                return
            outlet = self._nodes.named(node, durable_name)
            if outlet is not None:
                if outlet.subscriptions:
                    raise BrokerError(f"the durable subscription {durable_name!r} to {topic} has a consumer")
                self._nodes.end(node, outlet)
            self._nodes.remove_if_unused(node)

    # --- settling

    def accept(self, holding: Handover, batch: Batch | None = None) -> None:
        """Forget the message: at once, or at the commit of `batch`.

        Does nothing if the hand-over was settled, went back, or is in a transaction already.

        Raises:
            ClosedError: the transaction was committed or aborted before.
        """
        with self._lock:
            if batch is not None:
                self._decide(holding, self._settle, batch)
            elif holding.is_free:
                self._settle(holding)

    def release(self, holding: Handover, batch: Batch | None = None, *, counts: bool = True) -> None:
        """Put the message back, or into the dead letters if it was delivered too often. Otherwise like `accept`."""
        with self._lock:
            self._decide(holding, partial(self._give_back, counts=counts), batch)

    def reject(self, holding: Handover, reason: str, batch: Batch | None = None) -> None:
        """Put the message into the dead letters, with at most 1,000 characters of the reason; else like `accept`."""
        with self._lock:
            self._decide(holding, partial(self._discard, reason=carried_reason(reason)), batch)

    # --- transactions

    def add(self, batch: Batch, stamped: Message) -> None:
        """Keep a stamped message until the commit."""
        with self._lock:
            _require_open(batch)
            batch.sends.append(stamped)

    def commit(self, batch: Batch) -> tuple[RefusedSend, ...]:
        """Carry out a transaction, and return the sends to temporary destinations that have ended.

        Raises:
            ClosedError: the transaction was committed or aborted before.
            SendFailedError: a limit is reached; the transaction is aborted.
        """
        with self._lock:
            _require_open(batch)
            try:
                routes, refused = self._route_all(batch)
                self._require_places(routes)
                octets = sum([route.total_octets for route in routes])
                self._nodes.require_room(octets)
            except SendFailedError:
                self.abort(batch)
                raise
            batch.is_open = False
            self._reserved = octets  # from the dead letters of rejected messages
            try:
                for holding, deed in batch.decided.items():
                    holding.batch = None
                    deed(holding)
            finally:
                self._reserved = 0
            for route in routes:
                self._nodes.put(route, self._numbers)
            self._forget_unused(batch)
            return refused

    def abort(self, batch: Batch) -> None:
        """Drop the sends and free the deliveries; those whose consumer has ended go back. Idempotent."""
        with self._lock:
            if not batch.is_open:
                return
            batch.is_open = False
            for holding in batch.decided:
                holding.batch = None
                if holding.subscription not in holding.subscription.outlet.subscriptions:
                    self._give_back(holding)
            self._forget_unused(batch)

    # --- called with the lock held

    @staticmethod
    def _decide(holding: Handover, deed: Deed, batch: Batch | None) -> None:
        if batch is not None:
            _require_open(batch)
        if not holding.is_free:
            return
        if batch is None:
            deed(holding)
        else:
            batch.decided[holding] = deed
            holding.batch = batch

    def _forget_unused(self, batch: Batch) -> None:
        """Remove destinations that are unused after the end of a transaction."""
        found = {holding.subscription.node for holding in batch.decided}
        for message in batch.sends:
            if message.destination is not None and (node := self._nodes.find(message.destination)) is not None:
                found.add(node)
        for node in found:
            self._nodes.remove_if_unused(node)

    def _route_all(self, batch: Batch) -> tuple[list[MessageRoute], tuple[RefusedSend, ...]]:
        routes, refused = [], []
        for position, message in enumerate(batch.sends):
            try:
                routes.append(self._nodes.route(message, batch.owner))
            except DestinationGoneError as gone:
                refused.append(RefusedSend(position, message, gone))
        return routes, tuple(refused)

    def _require_places(self, routes: Sequence[MessageRoute]) -> None:
        if len(routes) == 1:
            for outlet in routes[0].outlets:
                self._require_place(outlet, 1, routes[0].octets)
            return
        amounts: Counter[Outlet] = Counter()
        sizes: Counter[Outlet] = Counter()
        for route in routes:
            for outlet in route.outlets:
                amounts[outlet] += 1
                sizes[outlet] += route.octets
        for outlet, amount in amounts.items():
            self._require_place(outlet, amount, sizes[outlet])

    def _require_place(self, outlet: Outlet, amount: int, octets: int) -> None:
        if outlet.store.excess(amount, octets):
            self._bury_all(outlet, outlet.store.expire(self.clock()))
            excess = outlet.store.excess(amount, octets)
            if excess:
                raise SendFailedError(f"{outlet.source} is full: {excess}")

    def _next(self, subscription: OutletSubscription) -> Handover | None:
        outlet = subscription.outlet
        entry = self._browsed(subscription) if subscription.is_browsing else self._taken(subscription)
        if entry is None:
            return None
        message = entry.message if entry.deliveries == 1 else redelivered(entry.message)
        holding = Handover(entry, subscription, message, entry.deliveries)
        if subscription.accepts:
            outlet.store.settle(entry)
        else:
            subscription.held.add(holding)
        if subscription.is_on_credit:
            subscription.prefetch -= 1
        return holding

    def _taken(self, subscription: OutletSubscription) -> QueueEntry | None:
        entry, expired = subscription.outlet.store.take(self.clock(), subscription.line)
        if expired:
            self._bury_all(subscription.outlet, expired)
        return entry

    def _browsed(self, subscription: OutletSubscription) -> QueueEntry | None:
        """Return a copy of the next entry for a browser, so that settling it does not change the queue."""
        assert subscription.line is not None
        entry = subscription.outlet.store.look(self.clock(), subscription.line)
        return None if entry is None else QueueEntry(entry.message, entry.sequence, deliveries=entry.deliveries + 1)

    def _settle(self, holding: Handover) -> None:
        self._let_go(holding)
        subscription = holding.subscription
        if subscription.line is None or not subscription.is_browsing:
            subscription.outlet.store.settle(holding.entry)

    def _discard(self, holding: Handover, reason: str) -> None:
        self._settle(holding)
        if not holding.subscription.is_browsing:
            self._bury(holding.subscription.outlet.source, holding.entry, reason)

    def _give_back(self, holding: Handover, *, counts: bool = True) -> None:
        if holding.subscription.is_browsing:
            self._let_go(holding)
            return
        outlet, entry = holding.subscription.outlet, holding.entry
        entry.deliveries -= 0 if counts else 1
        if entry.deliveries >= self.max_deliveries and not is_dead_letter_queue(outlet.source):
            self._discard(holding, f"delivered {entry.deliveries} times and not accepted")
            return
        self._let_go(holding)
        outlet.give_back(entry)

    def _let_go(self, holding: Handover) -> None:
        subscription = holding.subscription
        was_full = not subscription.is_at_work and subscription.is_full  # one at work looks for itself
        subscription.held.discard(holding)
        if was_full and not subscription.is_full:
            if subscription.outlet.store.waiting or not subscription.is_open:
                subscription.rouse()
            else:
                subscription.outlet.idle[subscription] = None

    def _bury_all(self, outlet: Outlet, expired: Iterable[QueueEntry]) -> None:
        for entry in expired:
            self._bury(outlet.source, entry, EXPIRED)

    def _bury(self, source: Destination, entry: QueueEntry, reason: str) -> None:
        """Put a message into the dead letters, or drop and log it if that is not possible.

        The entry has left its store. Reason and source of a letter are part of the overhead that each message counts in
        the total, so that usual ones add nothing: a full broker loses no message for a word of explanation.
        """
        if is_dead_letter_queue(source):
            events.EMBEDDED_MESSAGE_DROPPED.log(entry.message.message_id, source, reason)
            return
        letter = dead_letter(entry.message, source, reason)
        maker, letters = self._maker_of(source), letter.destination
        is_new = letters is not None and self._nodes.find(letters) is None
        try:
            route = self._nodes.route(letter, maker)
            route = route._replace(total_octets=max(route.octets, entry.share.octets))
            self._require_places((route,))
            # A topic's message becomes one letter for each subscriber.
            self._nodes.require_room(route.total_octets + self._reserved)
        except SendFailedError as error:
            if is_new:  # otherwise a transaction may be about to send to the same queue
                self._forget_unused(Batch(maker, [letter]))
            events.EMBEDDED_DEAD_LETTER_DROPPED.log(letter.message_id, error)
            return
        self._nodes.put(route, self._numbers)

    def _maker_of(self, source: Destination) -> ConnectionPlace:
        """Return the connection that the dead letters of a destination count for: its maker, unless it has ended."""
        node = self._nodes.find(source)
        return ConnectionPlace() if node is None else node.maker


def _require_open(batch: Batch) -> None:
    if not batch.is_open:
        raise ClosedError("the transaction was committed or aborted before, or its connection closed")
