"""The links of a listener's client: their destinations and terms, chosen when the client attaches them.

`receive.py`, `send.py` and `transactions.py` handle the messages on the links.

Spec: AMQP 1.0 part 3, section 3.5; anonymous terminus 2.2.1 (AT-04, AT-15, AT-24).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from proton import Data, Described, Receiver, Terminus, symbol, ulong

from brokers import events
from brokers.amqp.dialect import CAPABILITIES, DELETE_ON_CLOSE, LIFETIME
from brokers.amqp.listener.options import Action, Options, RefusalError, kind_of, refusal_of
from brokers.amqp.listener.receive import CREDIT_MESSAGES, IncomingLink, OpenTransfers, Posts, Sink
from brokers.amqp.listener.send import Desk, OutgoingLink
from brokers.amqp.listener.sources import (
    Filters,
    Label,
    NamedSubscription,
    kept_names,
    subscription_of,
    tell,
    terms_of,
)
from brokers.amqp.listener.transactions import CoordinatorLink
from brokers.amqp.outcomes import INVALID, LIMIT, NOT_FOUND
from brokers.amqp.send import OUTCOMES, put_symbols
from brokers.connection import OnDelivery
from brokers.embedded import Broker
from brokers.embedded.connection import EmbeddedConsumer, Submit
from brokers.embedded.queues import SubscribeTerms
from brokers.errors import BrokerError
from brokers.message import Destination, DestinationKind

LOCAL_TRANSACTIONS: Final = "amqp:local-transactions"
REJECTED: Final = "amqp:rejected:list"

MAX_SELECTOR_CHARACTERS: Final = 65_536
"""Maximum number of characters of the selectors of a client's links and durable subscriptions together."""


class LinkOwner(Desk, Sink, Protocol):
    """The part of a client that its links use."""

    @property
    def container(self) -> str:
        """The container name of the client."""

    def lose(self, outgoing: OutgoingLink) -> None:
        """End a link that another one of the same name replaces; on any thread."""


class DynamicNode(NamedTuple):
    """A node created for a link: its destination, the link's session, and its expiry policy."""

    destination: Destination
    session: Any
    expiry: int


def _key(link: Any) -> tuple[str, bool]:
    return link.name, bool(link.is_receiver)


def _weighed(link: Any, named: NamedSubscription | None) -> Any:
    """Return the key that the selector of a link counts for: a durable subscription outlives its links."""
    return named.name if named is not None and named.is_durable else _key(link)


class LinkFactory:
    """Creates our ends of a client's links. Called with the lock held."""

    def __init__(self, client: LinkOwner, broker: Broker, options: Options) -> None:
        self._client, self._broker, self._options = client, broker, options
        self._claims = broker.claims
        self._selecting: dict[Any, int] = {}  # by durable subscription, or by name and role of the link
        self._dynamic: dict[tuple[str, bool], DynamicNode] = {}
        self._unfinished = OpenTransfers(max(options.max_unfinished, options.max_message))

    def attach(self, link: Any) -> IncomingLink | OutgoingLink:
        """Attach our end of a link.

        Raises:
            RefusalError: the link cannot be attached to a destination.
        """
        return self._attach_incoming(link) if isinstance(link, Receiver) else self._attach_outgoing(link)

    def _attach_incoming(self, link: Any) -> IncomingLink:
        target = link.remote_target
        outcomes = symbols(link.remote_source.outcomes)
        understands = REJECTED in outcomes if outcomes else self._options.assume_rejected
        works = self._client.works
        incoming = IncomingLink(
            link, self._options.max_message, self._unfinished, works, understands_rejected=understands
        )
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
            incoming.take = Posts(incoming, self._client, destination, known).take
            self._agree(link, link.target, known)
            if destination is None:
                link.target.address = None
            elif target.dynamic:
                self._tell_dynamic(link, link.target, destination)
        link.max_message_size = self._options.max_message
        link.open()
        link.flow(CREDIT_MESSAGES)
        return incoming

    def _target(self, link: Any, target: Any, capabilities: list[str]) -> Destination | None:
        """Return the destination of a link; None for the anonymous terminus."""
        if target.dynamic:
            return self._dynamic_node(link, target, capabilities)
        if not target.address:  # an empty address counts as none
            return None
        kind = kind_of(capabilities)
        return self._client.nodes.resolve(target.address, kind, self._client.user, Action.SEND)

    def _attach_outgoing(self, link: Any) -> OutgoingLink:
        source = link.remote_source
        if source.type == Terminus.UNSPECIFIED:
            return self._attach_again(link)
        if source.type != Terminus.SOURCE:
            raise RefusalError(INVALID, "the link has no source to receive from")
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
        if source.dynamic:  # other addresses are repeated as the client wrote them, which some clients require
            self._tell_dynamic(link, link.source, destination)
        applied = {CAPABILITIES[destination.kind], *([] if named is None else named.capabilities)}
        tell(link.source, destination, terms, filters, [each for each in wanted if each in applied])
        if source.dynamic:
            link.source.expiry_policy = self._dynamic[_key(link)].expiry
        self._open_outgoing(link)
        return outgoing

    def _attach_again(self, link: Any) -> OutgoingLink:
        """Attach a link to an existing durable subscription, which clients do to query it or to end it.

        Raises:
            RefusalError: there is no such subscription.
        """
        user, container = self._client.user, self._client.container
        kept = next(filter(None, map(self._broker.durable, kept_names(user, container, link.name))), None)
        if kept is None:
            raise RefusalError(NOT_FOUND, f"there is no durable subscription {link.name!r} of {container!r}")
        destination, terms = kept
        label = terms.label
        assert isinstance(label, Label)
        self._client.nodes.check(destination, user, Action.RECEIVE)
        named = NamedSubscription(
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
        self,
        link: Any,
        destination: Destination,
        terms: SubscribeTerms,
        named: NamedSubscription | None,
        filters: Filters,
    ) -> OutgoingLink:
        """Subscribe for a link, replacing another link of the same name.

        Spec: AMQP 1.0 part 2, 2.6.1 (a link is stolen).

        Raises:
            RefusalError: the broker refused, or the selectors of the client are too long together.
        """
        key, size = _weighed(link, named), len(filters.text or "")
        self._weigh(key, size)

        def subscribe(on_delivery: OnDelivery, submit: Submit) -> EmbeddedConsumer:
            return self._client.connection.subscribe(destination, on_delivery, terms, submit, submit)

        forget = partial(self._forget, key=key, destination=destination, named=named)

        def make() -> OutgoingLink:
            if named is not None and named.is_durable:
                self._make_way(named, destination)
            return OutgoingLink(link, self._client, subscribe, forget)

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
        """Check that a client's selectors, which are evaluated for each message, are not too long with a new one.

        Raises:
            RefusalError: they are too long.
        """
        others = sum(self._selecting.values()) - self._selecting.get(key, 0)
        if size and size + others > MAX_SELECTOR_CHARACTERS:
            raise RefusalError(
                LIMIT, f"the selectors of a client have {MAX_SELECTOR_CHARACTERS} characters together at most"
            )

    def _open_outgoing(self, link: Any) -> None:
        known = [each for each in symbols(link.remote_source.outcomes) if each in OUTCOMES]
        if known:
            put_symbols(link.source.outcomes, *known)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.open()

    def _make_way(self, named: NamedSubscription, destination: Destination) -> None:
        """End the durable subscription of this name if it is to another topic.

        Spec: JMS 2.0, 8.3.3 (another topic is another subscription).
        """
        kept = self._broker.durable(named.name)
        if kept is not None and kept[0] != destination:
            self._broker.forget_durable(kept[0], named.name)

    def _forget(
        self,
        outgoing: OutgoingLink,
        *,
        key: Any,
        destination: Destination,
        named: NamedSubscription | None,
        for_good: bool,
    ) -> None:
        """Forget a link; end its durable subscription if the link was closed for good."""
        if named is None or not named.is_durable:
            self._selecting.pop(key, None)
        if named is not None:
            self._claims.let_go(named.name, outgoing)
        if named is not None and named.is_durable and for_good:
            try:
                self._broker.forget_durable(destination, named.name)
            except BrokerError as error:  # another consumer of the same user is still attached
                events.AMQP_LISTENER_SUBSCRIPTION_KEPT.log(named.name, error)
            else:
                self._selecting.pop(key, None)

    # Dynamic nodes, which exist as long as the link that created them. Spec: AMQP 1.0 part 3, 3.5.10

    def _dynamic_node(self, link: Any, terminus: Any, capabilities: list[str]) -> Destination:
        """Create a node for a link, or return that of a detached link of the same name."""
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
        self._dynamic[_key(link)] = DynamicNode(destination, link.session, expiry)
        return destination

    def _tell_dynamic(self, link: Any, answer: Any, destination: Destination) -> None:
        answer.address = self._client.nodes.address_of(destination)
        answer.expiry_policy = self._dynamic[_key(link)].expiry
        answer.properties.put_object({symbol(LIFETIME): Described(ulong(DELETE_ON_CLOSE), [])})

    def detached(self, link: Any, *, for_good: bool) -> None:
        """End the node of a link that was closed, or whose terminus expires when it is detached."""
        known = self._dynamic.get(_key(link))
        if known is not None and (for_good or known.expiry == Terminus.EXPIRE_WITH_LINK):
            self._end_dynamic(_key(link))

    def ended(self, session: Any) -> None:
        """End the nodes of links that expire with their session."""
        for key, known in list(self._dynamic.items()):
            if known.session == session and known.expiry != Terminus.EXPIRE_WITH_CONNECTION:
                self._end_dynamic(key)

    def end(self) -> None:
        """Forget the nodes of a client that has left; they end with its connection to the broker."""
        self._dynamic.clear()

    def _end_dynamic(self, key: tuple[str, bool]) -> None:
        self._client.connection.end_temporary(self._dynamic.pop(key).destination)

    @staticmethod
    def _agree(link: Any, terminus: Any, capabilities: list[str]) -> None:
        """Answer a link with the client's termini and the supported capabilities."""
        repeat(link.remote_source, link.source)
        link.source.type = Terminus.SOURCE  # optional for the client, but required in the answer
        repeat(link.remote_target, link.target)
        outcomes = symbols(link.remote_source.outcomes)
        if outcomes:
            put_symbols(link.source.outcomes, *outcomes)
        if capabilities:
            put_symbols(terminus.capabilities, *capabilities)


def repeat(said: Any, answer: Any) -> None:
    """Answer a terminus with the client's values, and with its lifetime here: that of its link.

    The fields are copied one by one: proton's own copy includes malformed values, and writing them ends the process
    (seen with 0.40).
    """
    answer.type = said.type
    answer.address = said.address
    answer.dynamic = said.dynamic
    answer.durability = Terminus.NONDURABLE
    answer.expiry_policy = Terminus.EXPIRE_WITH_LINK


def refuse(link: Any, refusal: RefusalError) -> None:
    """Answer without the requested terminus, and detach with the reason. Spec: core 2.6.3 (AT-24)."""
    terminus = link.target if isinstance(link, Receiver) else link.source
    terminus.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = refusal.told()
    link.close()


def symbols(data: Data) -> list[str]:
    """Return the values of a field that is a symbol or an array of symbols."""
    data.rewind()
    if not data.next():
        return []
    value: Any = data.get_object()
    if value is None:
        return []
    return [str(each) for each in getattr(value, "elements", [value])]


def is_same_link(one: Any, other: Any) -> bool:
    """Return whether two ends have the name and direction of one link. Spec: AMQP 1.0 part 2, 2.6.1."""
    return one is not other and (one.name, one.is_sender) == (other.name, other.is_sender)
