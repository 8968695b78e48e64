"""One client of a listener: its connection, its sessions and its links.

When a client attaches a link, this module chooses its destination and its terms. `receive.py`, `send.py` and
`transactions.py` handle the messages on the links.

Spec: AMQP 1.0 part 2, section 2.6.3; part 3, section 3.5; anonymous terminus 2.2.1 and 2.3 (AT-04, AT-15, AT-24).
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

from proton import (
    Condition,
    Connection,
    Data,
    Described,
    Endpoint,
    Event,
    Receiver,
    Sender,
    Terminus,
    Transport,
    symbol,
    uint,
    ulong,
)

from brokers.amqp.dialect import CAPABILITIES, DELETE_ON_CLOSE, LIFETIME, PRODUCT
from brokers.amqp.driver import Driver
from brokers.amqp.engine import discard
from brokers.amqp.events import TRANSFER, LookedAtDelivery, key_of
from brokers.amqp.listener.inspection import AmqpChannel, FrameInspection, FrameViolation, LinkHandle, close_of, flow_of
from brokers.amqp.listener.login import SaslServer
from brokers.amqp.listener.messages import MessageCarrier
from brokers.amqp.listener.options import (
    INVALID,
    NOT_FOUND,
    Action,
    AmqpNodes,
    Options,
    RefusalError,
    kind_of,
    refusal_of,
)
from brokers.amqp.listener.receive import CREDIT_MESSAGES, IncomingLink, OpenTransfers, Posts, Sink
from brokers.amqp.listener.send import Desk, OutgoingLink, OutputBurst
from brokers.amqp.listener.sources import (
    SHARED_SUBSCRIPTIONS,
    Filters,
    Label,
    NamedSubscription,
    kept_names,
    subscription_of,
    tell,
    terms_of,
)
from brokers.amqp.listener.transactions import ClientTransactions, CoordinatorLink
from brokers.amqp.machine import MEBIBYTE, RELAY, AmqpMachine, Handlers
from brokers.amqp.outcomes import LIMIT, NOT_ALLOWED
from brokers.amqp.send import OUTCOMES, put_symbols
from brokers.amqp.stack import start
from brokers.amqp.stream import PlainStream, Stream
from brokers.amqp.transfers import Transfer
from brokers.connection import OnDelivery
from brokers.embedded import Broker
from brokers.embedded.connection import EmbeddedConsumer, Submit
from brokers.embedded.queues import SubscribeTerms
from brokers.errors import BrokerError, ConnectionFailedError, ConnectionLostError
from brokers.listeners.guesses import Guesses
from brokers.listeners.room import ClientShare
from brokers.message import Destination, DestinationKind
from brokers.threads.thread import Thread

log = logging.getLogger(__name__)

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


class ClientContext(Protocol):
    """The context that all clients share."""

    broker: Broker
    options: Options


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

    def __init__(self, client: LinkOwner, shared: ClientContext) -> None:
        self._client = client
        self._broker = shared.broker
        self._options = shared.options
        self._claims = shared.broker.claims
        self._selecting: dict[Any, int] = {}  # by durable subscription, or by name and role of the link
        self._dynamic: dict[tuple[str, bool], DynamicNode] = {}
        self._unfinished = OpenTransfers(max(shared.options.max_unfinished, shared.options.max_message))

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
            incoming.take = Posts(incoming, self._client, destination, frozenset(known)).take
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
                log.info("the subscription %s is kept: %s", named.name, error)
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


SOLE_CONNECTION: Final = "sole-connection-for-container"
"""The capability that requests an exclusive connection: a JMS client id must not be used twice at once."""

OFFERED: Final = (RELAY, SHARED_SUBSCRIPTIONS, SOLE_CONNECTION)

NOT_ESTABLISHED: Final = "amqp:connection-establishment-failed"
"""The property of an `open` that is followed by a `close` at once."""

STOLEN: Final = RefusalError("amqp:link:stolen", "another link of its name was attached")

MAX_CHANNEL: Final = 63
"""The highest channel number of a session."""

DRAIN_POLL_SECONDS: Final = 0.01
"""Poll interval for whether a drained queue is empty, in seconds."""

LEAVE_SECONDS: Final = 2.0
"""Time that a client's consumers have to end, in seconds."""

MAX_DEBT: Final = 4 * MEBIBYTE
"""Number of octets that a client may write without reading the answers before nothing more is read from it."""

MAX_UNWRITTEN: Final = MEBIBYTE
"""Number of octets waiting for a client to read, or for the window of a session, beyond which no more messages are
taken from queues for it."""

MAX_UNWRITTEN_IN_ALL: Final = 64 * MEBIBYTE
"""The same for all sessions of a client together, whose windows the client controls."""

BURST_OCTETS: Final = 16_384
"""Number of octets of sent messages after which a burst ends, and it is checked how much the client has to read."""

MIN_IDLE_SECONDS: Final = 0.1
"""Shortest idle time-out that a client may set, in seconds; otherwise keep-alive frames would be all that we send."""


class ListenerContext(Protocol):
    """The part of a listener that its clients use."""

    broker: Broker
    options: Options
    nodes: AmqpNodes
    name: str
    guesses: Guesses

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""

    def settle(self, guest: AmqpClient) -> bool:
        """Protect a logged-in client from making room for others; False if its user has the maximum of connections."""

    def admit(self, guest: AmqpClient) -> bool:
        """Admit a client; return False if it has another connection, and one of the two must be its only one."""

    def let_go(self, guest: AmqpClient) -> None:
        """Forget a client, so that it may connect again."""

    def gone(self, guest: AmqpClient) -> None:
        """Record that a client has left."""


class AmqpClient(Driver):
    """One client, from `accept` until it has left.

    Attributes:
        client: user and container name, which identify the client's connections.
        is_sole: whether this must be the client's only connection.
        address: address of the client.
        seat: its share of the listener's room.
    """

    def __init__(
        self, house: ListenerContext, accepted: socket.socket, place: str, address: str, seat: ClientShare
    ) -> None:
        super().__init__(place, MAX_DEBT)
        self.address = address
        self.seat = seat
        self.nodes = house.nodes
        self.now = house.now
        self.connection = house.broker.connect(max_destinations=house.options.max_client_destinations)
        self.works = ClientTransactions(self.connection, house.options.transaction_idle, house.options.max_transactions)
        self._house = house
        self._accepted = accepted
        self._sasl: SaslServer | None = None
        self.client: tuple[str | None, str] = (None, "")
        self.is_sole = False
        self._is_open = False
        self._widen: Callable[[], None] = lambda: None
        self._open_by = monotonic() + house.options.patience
        self.carrier = MessageCarrier()
        self._links: dict[Any, IncomingLink | OutgoingLink] = {}
        self._by_key: dict[Any, IncomingLink | OutgoingLink] = {}  # the same, as `key_of` names the links
        self._tasks: deque[Callable[[], None]] = deque()
        self._paused: list[OutgoingLink] = []
        self._burst = OutputBurst()
        self._payload: dict[int, int] = {}  # octets of the messages sent, by the hash of the session
        self._unmarked = 0
        self._refused: set[Any] = set()
        self._sessions: set[Any] = set()
        self._attaching = LinkFactory(self, house)
        self._inspection = FrameInspection(self)
        self._at: Handlers = {
            Event.CONNECTION_REMOTE_OPEN: self._on_connection_open,
            Event.CONNECTION_REMOTE_CLOSE: self._on_connection_close,
            Event.SESSION_REMOTE_OPEN: self._on_session_open,
            Event.SESSION_REMOTE_CLOSE: self._on_session_close,
            Event.LINK_REMOTE_OPEN: self._on_link_open,
            Event.LINK_FLOW: self._on_flow,
            Event.LINK_REMOTE_CLOSE: partial(self._on_link_close, for_good=True),
            Event.LINK_REMOTE_DETACH: partial(self._on_link_close, for_good=False),
            TRANSFER: self._on_transfer,
            Event.TRANSPORT_ERROR: self._on_transport_error,
        }

    @property
    def user(self) -> str | None:
        """Name of the user; None for an anonymous client."""
        return None if self._sasl is None else self._sasl.user

    @property
    def container(self) -> str:
        """Container name of the client."""
        return "" if self._machine is None else str(self._machine.connection.remote_container or "")

    @property
    def _handlers(self) -> Handlers:
        return self._at

    def make_room(self) -> None:
        """End the thread of the client, whatever it waits for, to make room for another one. Never waits."""
        with suppress(OSError):  # the socket is closed
            socket.socket.shutdown(self._accepted, socket.SHUT_RDWR)

    def is_behind(self, link: Sender) -> bool:
        """Return whether so much waits for the client to read that nothing more is sent on a link."""
        of_one, of_all = link.session.outgoing_bytes, sum(each.outgoing_bytes for each in self._sessions)
        return max(self.unwritten, of_one) > MAX_UNWRITTEN or self.unwritten + of_all > MAX_UNWRITTEN_IN_ALL

    @property
    def burst(self) -> OutputBurst:
        """The present burst."""
        return self._burst

    @property
    def passed(self) -> int:
        """Octets of the output that were written."""
        return self._passed

    def note_sent(self, session: int, octets: int) -> int:
        """Record that a message was sent, and return the octets of its session; a burst ends after `BURST_OCTETS`."""
        self._payload[session] = end = self._payload.get(session, 0) + octets
        self._unmarked += octets
        if self._unmarked >= BURST_OCTETS:
            self._end_burst()
        return end

    def _end_burst(self) -> None:
        """Record to which position of the output the present burst reaches, and begin another one."""
        burst, end, last = self._burst, self.mark(), 0
        for session in self._sessions:
            held_back = session.outgoing_bytes
            burst.encoded[hash(session)] = self._payload.get(hash(session), 0) - held_back
            last += held_back
        burst.end, burst.last = end, end + last
        self._burst, self._unmarked = OutputBurst(), 0

    def soon(self, task: Callable[[], None]) -> None:
        """Run a task on the thread of the connection, with the lock held; raise RuntimeError after its end."""
        if not self.is_up:
            raise RuntimeError(f"{self} has ended")
        self._tasks.append(task)
        if get_ident() != self._leader:
            self._waker.wake()

    def pause(self, link: OutgoingLink) -> None:
        """Let a link go on once the client has read more."""
        self._paused.append(link)

    def _do_tasks(self) -> None:
        """Do the tasks that wait now; those that they add wait for the next time, after the socket was read."""
        for _ in range(len(self._tasks)):
            self._tasks.popleft()()
        if self._unmarked:
            self._end_burst()

    def lose(self, outgoing: OutgoingLink) -> None:
        """End a link that another one of the same name replaces. Spec: AMQP 1.0 part 2, 2.6.1.

        Its consumer ends at once; the thread of the connection informs the client.
        """
        outgoing.give_up()
        self.later(partial(self._detach_lost, outgoing))
        self._waker.wake()

    def _detach_lost(self, outgoing: OutgoingLink) -> None:
        with self.lock:
            for link in [link for link, each in self._links.items() if each is outgoing]:
                self._detach(link, STOLEN)

    def _detach(self, link: Any, refusal: RefusalError) -> None:
        """End a link, if it is still attached."""
        with suppress(ConnectionLostError), self.held():
            attached = self._forget(link)
            if attached is not None:
                end_of(attached)(for_good=False)
                link.condition = refusal.told()
                link.close()

    def start(self) -> None:
        """Begin to serve.

        Raises:
            RuntimeError: no thread could be started; the client was disconnected.
        """
        self._thread = Thread(target=self._serve, name=f"{self} guest", daemon=True)
        try:
            start(self._thread)
        except RuntimeError:
            self._thread = None
            self.turn_away()
            raise

    def turn_away(self) -> None:
        """Disconnect the client before it is served."""
        self._accepted.close()
        self.drop()
        self._hang_up()

    def _serve(self) -> None:
        try:
            connected, certified = self._secure()
        except OSError as error:
            log.info("%s: no TLS: %s", self, error)
            self.turn_away()
            return
        connected.setblocking(False)
        machine = self._make_machine(certified)
        with self.lock:
            self._machine, self._socket = machine, connected
        self._run(machine, connected)

    def _secure(self) -> tuple[socket.socket, str | None]:
        """Do the TLS handshake, if TLS is used, and return the socket and the user of the client's certificate."""
        self._accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self._house.options.tls
        if context is None:
            return self._accepted, None
        self._accepted.settimeout(self._house.options.patience)
        secured = context.wrap_socket(self._accepted, server_side=True, do_handshake_on_connect=False)
        self._accepted = secured
        try:
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        return secured, common_name(secured)

    def _make_machine(self, certified: str | None) -> AmqpMachine:
        options = self._house.options
        connection, transport = Connection(), Transport(Transport.SERVER)
        transport.idle_timeout = options.idle
        transport.channel_max = MAX_CHANNEL
        connection.container = self._house.name
        connection.offered_capabilities = [symbol(each) for each in OFFERED]
        connection.properties = {symbol("product"): PRODUCT, symbol("version"): "1"}
        self._sasl = SaslServer(options, self._house.guesses, self.address, certified)
        return AmqpMachine(connection, transport, self._sasl, self._make_stream(), inspection=self._inspection)

    def _make_stream(self) -> Stream:
        binding = self._house.options.binding
        if binding is None:
            return PlainStream()
        from brokers.amqp.listener.websocket import WebSocketServer  # needs a library that TCP does not

        stream = WebSocketServer(f"{self}", binding, self._house.options)
        self._widen = stream.widen
        return stream

    def _ended(self, error: BrokerError) -> None:
        log.debug("%s has left: %s", self, error)
        with self.lock:
            links, self._links = list(self._links.values()), {}
            self._by_key.clear()
            for link in links:
                end_of(link)(for_good=False)
        self.connection.close(LEAVE_SECONDS)
        self._house.gone(self)

    def _tick(self, machine: AmqpMachine) -> float | None:
        self._do_tasks()
        wait = super()._tick(machine)
        paused, self._paused = self._paused, []
        for outgoing in paused:
            outgoing.go_on()
        if not self._is_open:
            left = self._open_by - monotonic()
            if left <= 0:
                raise ConnectionFailedError(f"{self} took too long to log in")
            wait = left if wait is None else min(wait, left)
        expiry = self.works.expire()
        if expiry is not None:
            wait = expiry if wait is None else min(wait, expiry)
        draining = [link for link in self._links.values() if isinstance(link, OutgoingLink) and link.is_draining]
        if [link for link in draining if not link.drain()]:
            wait = DRAIN_POLL_SECONDS if wait is None else min(wait, DRAIN_POLL_SECONDS)
        if draining:
            self._flush()
        return 0.0 if self._tasks else wait

    # Called by the inspection

    def violated(self, violation: FrameViolation, channel: AmqpChannel | None) -> None:
        """End a session, or the connection, because of a violation by the client."""
        if channel is not None and channel.session is not None:
            channel.session.condition = Condition(*violation)
            channel.session.close()
            self._leave_session(channel.session)
            return
        assert self._machine is not None
        if not self._is_open:  # our open must come first, and proton writes no close before the client's open
            self._machine.connection.open()
            self._machine.write(close_of(violation))
        self.break_off(*violation)

    def stolen(self, channel: AmqpChannel, attached: LinkHandle) -> None:
        """End our end of a link whose name is attached again in the same session."""
        for link in [each for each in self._links if each.session == channel.session]:
            if link.name == attached.name and link.is_sender == attached.is_receiver:
                self._detach(link, STOLEN)
        if self._machine is not None:
            self._machine.gather()

    def echoed(self, channel: AmqpChannel, attached: LinkHandle | None) -> None:
        """Report the state of a link, or of the session, on the client's request. Spec: 2.7.4."""
        assert self._machine is not None
        self._machine.gather()  # pending output may contain it
        if attached is None:
            self._machine.write(flow_of(channel))
            return
        for link, known in self._links.items():
            if link.session == channel.session and link.name == attached.name:
                if isinstance(known, IncomingLink) and not attached.is_receiver:
                    known.echo()
                elif isinstance(known, OutgoingLink) and attached.is_receiver:
                    handle = channel.handles_of_ours.get((link.name, False))
                    is_known = handle is not None and not link.session.outgoing_bytes
                    self._machine.write(
                        flow_of(channel, uint(handle or 0), *known.state) if is_known else flow_of(channel)
                    )

    # Handlers of proton's events

    def _on_connection_open(self, event: Any) -> None:
        self._is_open = True
        self.client = self.connection.place.client = (self.user, self.container)
        self._widen()
        self.is_sole = SOLE_CONNECTION in (event.connection.remote_desired_capabilities or ())
        if not self._house.settle(self):
            event.connection.properties = {**event.connection.properties, symbol(NOT_ESTABLISHED): True}
            event.connection.open()
            self.break_off(LIMIT, "there are as many connections of this user as may be")
        if not self._house.admit(self):
            event.connection.properties = {**event.connection.properties, symbol(NOT_ESTABLISHED): True}
            event.connection.open()
            info = {symbol("invalid-field"): symbol("container-id")}
            self.break_off(INVALID, f"a connection of {self.container!r} is open, which is to be the only one", info)
        event.connection.open()
        if self._machine is not None:
            self._machine.gather()  # now, because for an error in the next frame proton would write its own open
        if 0 < event.transport.remote_idle_timeout < MIN_IDLE_SECONDS:
            self.break_off(NOT_ALLOWED, f"idle-time-out must be at least {MIN_IDLE_SECONDS * 1000:.0f} ms")

    def _on_connection_close(self, event: Any) -> None:
        self._house.let_go(self)  # before the client learns that it may connect again
        event.connection.close()
        self._flush()

    def _on_transport_error(self, event: Any) -> None:
        condition = event.transport.condition
        self._flush()
        raise ConnectionFailedError(f"{self}: {'no reason given' if condition is None else condition.description}")

    def _on_session_open(self, event: Any) -> None:
        # The session gets no window: arriving data is handled at once, and if data after the end of a link used up a
        # window, proton would reopen it in the name of that link, which ends the connection (seen with 0.40).
        event.session.open()
        self._sessions.add(event.session)
        self._inspection.began(event.session)

    def _on_session_close(self, event: Any) -> None:
        self._leave_session(event.session)
        self._refused = {each for each in self._refused if each.session != event.session}
        self._sessions.discard(event.session)
        self._payload.pop(hash(event.session), None)
        event.session.close()
        event.session.free()
        if self._machine is not None:  # this frees the channel; without a free one proton answers no further begin
            self._machine.gather()

    def _leave_session(self, session: Any) -> None:
        for link in [each for each in self._links if each.session == session]:
            attached = self._forget(link)
            if attached is not None:
                end_of(attached)(for_good=False)
        self._attaching.ended(session)

    def _forget(self, link: Any) -> IncomingLink | OutgoingLink | None:
        self._by_key.pop(key_of(link), None)
        return self._links.pop(link, None)

    def _on_link_open(self, event: Any) -> None:
        link = event.link
        try:
            for other in [each for each in self._links if is_same_link(each, link)]:
                self._detach(other, STOLEN)
            if len(self._links) >= self._house.options.max_links:
                raise RefusalError(LIMIT, f"{len(self._links)} links are attached already")
            self._links[link] = self._by_key[key_of(link)] = self._attaching.attach(link)
        except RefusalError as refusal:
            self._refuse(link, refusal)

    def _refuse(self, link: Any, refusal: RefusalError) -> None:
        """Refuse a link, which takes memory until the client has confirmed the end.

        Raises:
            ConnectionFailedError: the client has left too many refused links unconfirmed.
        """
        refuse(link, refusal)
        self._refused.add(link)
        if len(self._refused) > self._house.options.max_links:
            why = f"the end of {len(self._refused)} refused links is not answered"
            self.break_off(LIMIT, why)

    def _on_flow(self, event: Any) -> None:
        link = self._by_key.get(event.link_key)
        if isinstance(link, OutgoingLink):
            link.flowed()

    def _on_link_close(self, event: Any, *, for_good: bool) -> None:
        link = self._forget(event.link)
        self._refused.discard(event.link)
        if for_good:
            event.link.close()
        else:
            event.link.detach()
        if link is not None:
            end_of(link)(for_good=for_good)
        self._attaching.detached(event.link, for_good=for_good)
        event.link.free()

    def _on_transfer(self, link_key: Any, transfer: Transfer) -> None:
        link = self._by_key.get(link_key)
        if link is None:
            delivery = LookedAtDelivery(transfer)
            if delivery.link.is_receiver:
                discard(delivery)
            return
        try:
            link.delivered(transfer)
        except RefusalError as refusal:
            attached = LookedAtDelivery(transfer).link
            if attached.state & Endpoint.LOCAL_ACTIVE:  # otherwise the first refusal has closed it already
                attached.condition = refusal.told()
                attached.close()


def end_of(link: IncomingLink | OutgoingLink) -> Callable[..., None]:
    """Return the function that ends a link; its argument tells whether for good."""
    return link.end if isinstance(link, OutgoingLink) else lambda *, for_good: link.ended()


def common_name(secured: ssl.SSLSocket) -> str | None:
    """Return the common name of the client's certificate, or None if there is no verified one."""
    certificate = secured.getpeercert() or {}
    subject: Any = certificate.get("subject", ())
    return next((str(value) for part in subject for name, value in part if name == "commonName"), None)


def is_same_link(one: Any, other: Any) -> bool:
    """Return whether two ends have the name and direction of one link. Spec: AMQP 1.0 part 2, 2.6.1."""
    return one is not other and (one.name, one.is_sender) == (other.name, other.is_sender)
