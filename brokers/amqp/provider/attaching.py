"""Answering a client that attaches a link: what it leads to, and what is agreed.

Spec: AMQP 1.0 part 2, section 2.6.3; part 3, section 3.5; anonymous terminus 2.2.1 and 2.3 (AT-04, AT-15, AT-24).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from proton import Data, Described, Receiver, Terminus, symbol, ulong

from brokers.amqp.dialect import CAPABILITIES
from brokers.amqp.outcomes import LIMIT
from brokers.amqp.provider.incoming import CREDIT, Incoming, Posts, Sink, Unfinished
from brokers.amqp.provider.nodes import INVALID, NOT_FOUND, RefusalError, kind_of, refusal_of
from brokers.amqp.provider.options import Action, Options
from brokers.amqp.provider.outgoing import Desk, Outgoing
from brokers.amqp.provider.sources import Filters, Label, Subscription, kept_names, subscription_of, tell, terms_of
from brokers.amqp.provider.transactions import CoordinatorLink
from brokers.amqp.sending import OUTCOMES, put_symbols
from brokers.embedded import Broker
from brokers.embedded.model import Terms
from brokers.errors import BrokerError
from brokers.message import Destination, DestinationKind

log = logging.getLogger(__name__)

LOCAL_TRANSACTIONS: Final = "amqp:local-transactions"
REJECTED: Final = "amqp:rejected:list"

MAX_SELECTORS: Final = 65_536
"""Characters of the selectors of a client's links, and of the durable subscriptions that it leaves."""

LIFETIME: Final = "lifetime-policy"
DELETE_ON_CLOSE: Final = 0x2B


class Client(Desk, Sink, Protocol):
    """What a link's far end is told of its client."""

    @property
    def container(self) -> str:
        """What it calls itself."""

    def lose(self, outgoing: Outgoing) -> None:
        """Have a link ended that another one of its name takes the place of; by any thread."""


class Shared(Protocol):
    """What all clients share."""

    broker: Broker
    options: Options


class Dynamic(NamedTuple):
    """A node that a client had made by a link: which it is, the link's session, and when the link's end is its own."""

    destination: Destination
    session: Any
    expiry: int


def _key(link: Any) -> tuple[str, bool]:
    return link.name, bool(link.is_receiver)


def _weighed(link: Any, named: Subscription | None) -> Any:
    """Return what the selector of a link is counted for: a durable subscription outlives its links."""
    return named.name if named is not None and named.is_durable else _key(link)


class Attaching:
    """Makes our ends of a client's links. With the lock held."""

    def __init__(self, client: Client, shared: Shared) -> None:
        self._client = client
        self._broker = shared.broker
        self._options = shared.options
        self._claims = shared.broker.claims
        self._selecting: dict[Any, int] = {}  # by durable subscription, else by link: its name and role
        self._dynamic: dict[tuple[str, bool], Dynamic] = {}
        self._unfinished = Unfinished(max(shared.options.max_unfinished, shared.options.max_message))

    def attach(self, link: Any) -> Incoming | Outgoing:
        """Attach our end.

        Raises:
            RefusalError: there is nothing that it could lead to.
        """
        return self._attach_incoming(link) if isinstance(link, Receiver) else self._attach_outgoing(link)

    def _attach_incoming(self, link: Any) -> Incoming:
        target = link.remote_target
        outcomes = symbols(link.remote_source.outcomes)
        understands = REJECTED in outcomes if outcomes else self._options.assume_rejected
        works = self._client.works
        incoming = Incoming(link, self._options.max_message, self._unfinished, works, understands_rejected=understands)
        if target.type == Terminus.COORDINATOR:
            coordinator = CoordinatorLink(works, incoming)
            incoming.take, incoming.end = coordinator.take, coordinator.end
            self._agree(link, link.target, [LOCAL_TRANSACTIONS])
        elif target.type != Terminus.TARGET:
            raise RefusalError(INVALID, "the link has no target")
        else:
            wanted = symbols(target.capabilities)
            destination = self._target(link, target, wanted)
            known = [each for each in wanted if each in CAPABILITIES.values()]
            if destination is not None:
                known = [each for each in known if each == CAPABILITIES[destination.kind]]
            incoming.take = Posts(incoming, self._client, destination, frozenset(known)).take
            self._agree(link, link.target, known)
            if destination is None:
                link.target.address = None
            elif target.dynamic:
                self._tell_dynamic(link, link.target, destination)
        link.max_message_size = self._options.max_message
        link.open()
        link.flow(CREDIT)
        return incoming

    def _target(self, link: Any, target: Any, capabilities: list[str]) -> Destination | None:
        """Return where a link leads; None for the anonymous terminus."""
        if target.dynamic:
            return self._dynamic_node(link, target, capabilities)
        if not target.address:  # an empty one is no address either
            return None
        kind = kind_of(capabilities)
        return self._client.nodes.resolve(target.address, kind, self._client.user, Action.SEND)

    def _attach_outgoing(self, link: Any) -> Outgoing:
        source = link.remote_source
        if source.type == Terminus.UNSPECIFIED:
            return self._attach_again(link)
        if source.type != Terminus.SOURCE:
            raise RefusalError(INVALID, "a client receives from a source, which the link has none of")
        wanted = symbols(source.capabilities)
        if source.dynamic:
            destination = self._dynamic_node(link, source, wanted)
        else:
            user = self._client.user
            destination = self._client.nodes.resolve(source.address, kind_of(wanted), user, Action.RECEIVE)
        filters = Filters.read(source.filter, destination.kind)
        is_topic = destination.kind.is_topic
        named = subscription_of(self._client.user, self._client.container, link, wanted) if is_topic else None
        is_browsing = not is_topic and source.distribution_mode == Terminus.DIST_MODE_COPY
        terms = terms_of(filters, named, is_browsing=is_browsing)
        outgoing = self._subscribe(link, destination, terms, named, filters)
        repeat(source, link.source)
        repeat(link.remote_target, link.target)
        if source.dynamic:  # others are called as the client calls them, which some insist on
            self._tell_dynamic(link, link.source, destination)
        applied = {CAPABILITIES[destination.kind], *([] if named is None else named.capabilities)}
        tell(link.source, destination, terms, filters, [each for each in wanted if each in applied])
        if source.dynamic:
            link.source.expiry_policy = self._dynamic[_key(link)].expiry
        self._open_outgoing(link)
        return outgoing

    def _attach_again(self, link: Any) -> Outgoing:
        """Attach a link to the durable subscription of its name, as clients do that want to know of it, or end it.

        Raises:
            RefusalError: there is none.
        """
        user, container = self._client.user, self._client.container
        kept = next(filter(None, map(self._broker.durable, kept_names(user, container, link.name))), None)
        if kept is None:
            raise RefusalError(NOT_FOUND, f"there is no durable subscription {link.name!r} of {container!r}")
        destination, terms = kept
        label = terms.label
        assert isinstance(label, Label)
        self._client.nodes.check(destination, user, Action.RECEIVE)
        named = Subscription(
            name=terms.name or "", is_durable=True, is_shared=label.is_shared, is_global=label.is_global
        )
        outgoing = self._subscribe(link, destination, terms, named, label.filters)
        link.source.type = Terminus.SOURCE
        link.source.address = self._client.nodes.address_of(destination)
        repeat(link.remote_target, link.target)
        tell(link.source, destination, terms, label.filters, [CAPABILITIES[destination.kind], *named.capabilities])
        self._open_outgoing(link)
        return outgoing

    def _subscribe(
        self, link: Any, destination: Destination, terms: Terms, named: Subscription | None, filters: Filters
    ) -> Outgoing:
        """Subscribe for a link, in the place of who stands in the way.

        Spec: AMQP 1.0 part 2, 2.6.1 (a link is stolen).

        Raises:
            RefusalError: the broker refuses, or the selectors of the client are too many.
        """
        key, size = _weighed(link, named), len(filters.text or "")
        self._weigh(key, size)
        subscribe = partial(self._client.connection.subscribe, destination, terms=terms)
        forget = partial(self._forget, key=key, destination=destination, named=named)

        def make() -> Outgoing:
            if named is not None and named.is_durable:
                self._make_way(named, destination)
            return Outgoing(link, self._client, subscribe, forget)

        is_sole = named is not None and not named.is_shared
        try:
            outgoing = self._claims.succeed(named.name, make, self._client.lose) if named and is_sole else make()
        except BrokerError as error:
            raise refusal_of(error) from error
        self._selecting.pop(key, None)
        if size:
            self._selecting[key] = size
        return outgoing

    def _weigh(self, key: Any, size: int) -> None:
        """See that a client's selectors, which are asked about each message, are not too many with one in its place.

        Raises:
            RefusalError: they are.
        """
        others = sum(self._selecting.values()) - self._selecting.get(key, 0)
        if size and size + others > MAX_SELECTORS:
            raise RefusalError(LIMIT, f"the selectors of a client have {MAX_SELECTORS} characters together at most")

    def _open_outgoing(self, link: Any) -> None:
        known = [each for each in symbols(link.remote_source.outcomes) if each in OUTCOMES]
        if known:
            put_symbols(link.source.outcomes, *known)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.open()

    def _make_way(self, named: Subscription, destination: Destination) -> None:
        """End the durable subscription of a name if it is to another topic.

        Spec: JMS 2.0, 8.3.3 (another topic is another subscription).
        """
        kept = self._broker.durable(named.name)
        if kept is not None and kept[0] != destination:
            self._broker.forget_durable(kept[0], named.name)

    def _forget(
        self, outgoing: Outgoing, *, key: Any, destination: Destination, named: Subscription | None, for_good: bool
    ) -> None:
        """End a durable subscription, if its link ends for good."""
        if named is None or not named.is_durable:
            self._selecting.pop(key, None)
        if named is not None:
            self._claims.let_go(named.name, outgoing)
        if named is not None and named.is_durable and for_good:
            try:
                self._broker.forget_durable(destination, named.name)
            except BrokerError as error:  # somebody of the same user consumes from it still
                log.info("%s stays: %s", named.name, error)
            else:
                self._selecting.pop(key, None)

    # Dynamic nodes, which are there as long as the link that made them. Spec: AMQP 1.0 part 3, 3.5.10

    def _dynamic_node(self, link: Any, terminus: Any, capabilities: list[str]) -> Destination:
        """Make a node for a link, or return that of the link of its name that was detached, and not closed."""
        known = self._dynamic.get(_key(link))
        if known is not None:
            return known.destination
        kind = kind_of(capabilities)
        is_topic = kind is not None and kind.is_topic
        made = DestinationKind.TEMPORARY_TOPIC if is_topic else DestinationKind.TEMPORARY_QUEUE
        try:
            destination = self._client.connection.temporary(made)
        except BrokerError as error:
            raise refusal_of(error) from error
        never = terminus.expiry_policy == Terminus.EXPIRE_NEVER
        expiry = Terminus.EXPIRE_WITH_CONNECTION if never else terminus.expiry_policy
        self._dynamic[_key(link)] = Dynamic(destination, link.session, expiry)
        return destination

    def _tell_dynamic(self, link: Any, answer: Any, destination: Destination) -> None:
        answer.address = self._client.nodes.address_of(destination)
        answer.expiry_policy = self._dynamic[_key(link)].expiry
        answer.properties.put_object({symbol(LIFETIME): Described(ulong(DELETE_ON_CLOSE), [])})

    def detached(self, link: Any, *, for_good: bool) -> None:
        """End the node of a link that was closed, or whose terminus expires as it is detached."""
        known = self._dynamic.get(_key(link))
        if known is not None and (for_good or known.expiry == Terminus.EXPIRE_WITH_LINK):
            self._end_dynamic(_key(link))

    def ended(self, session: Any) -> None:
        """End the nodes of links that expire with their session."""
        for key, known in list(self._dynamic.items()):
            if known.session == session and known.expiry != Terminus.EXPIRE_WITH_CONNECTION:
                self._end_dynamic(key)

    def _end_dynamic(self, key: tuple[str, bool]) -> None:
        self._client.connection.end_temporary(self._dynamic.pop(key).destination)

    @staticmethod
    def _agree(link: Any, terminus: Any, capabilities: list[str]) -> None:
        """Repeat what the client said of the link, with the capabilities that there are."""
        repeat(link.remote_source, link.source)
        link.source.type = Terminus.SOURCE  # which may be left out by the client, and not by who answers
        repeat(link.remote_target, link.target)
        outcomes = symbols(link.remote_source.outcomes)
        if outcomes:
            put_symbols(link.source.outcomes, *outcomes)
        if capabilities:
            put_symbols(terminus.capabilities, *capabilities)


def repeat(said: Any, answer: Any) -> None:
    """Answer a terminus with what was said of it, and with how long it lasts here: as long as its link.

    Field by field: proton's own copy takes malformed values along, and writing them ends the process (seen with 0.40).
    """
    answer.type = said.type
    answer.address = said.address
    answer.dynamic = said.dynamic
    answer.durability = Terminus.NONDURABLE
    answer.expiry_policy = Terminus.EXPIRE_WITH_LINK


def refuse(link: Any, refusal: RefusalError) -> None:
    """Answer without the terminus that was asked for, and detach with the reason. Spec: core 2.6.3 (AT-24)."""
    terminus = link.target if isinstance(link, Receiver) else link.source
    terminus.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = refusal.told()
    link.close()


def symbols(data: Data) -> list[str]:
    """Read a field that is a symbol or an array of symbols."""
    data.rewind()
    if not data.next():
        return []
    value: Any = data.get_object()
    if value is None:
        return []
    return [str(each) for each in getattr(value, "elements", [value])]
