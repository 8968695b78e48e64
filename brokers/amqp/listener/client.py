"""One client of a listener: its connection, its sessions, and the links that proton's events are for.

`links.py` attaches the links, and `bursts.py` knows what was sent on them and is not written yet.

Spec: AMQP 1.0 part 2, section 2.6.3; anonymous terminus 2.3.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Any, Final, Protocol

from proton import Condition, Connection, Endpoint, Event, Transport, symbol, uint

from brokers import events
from brokers.amqp.dialect import PRODUCT
from brokers.amqp.driver import Driver
from brokers.amqp.engine import discard
from brokers.amqp.events import TRANSFER, LookedAtDelivery, key_of
from brokers.amqp.listener.bursts import OutputBursts
from brokers.amqp.listener.inspection import AmqpChannel, FrameInspection, FrameViolation, LinkHandle, close_of, flow_of
from brokers.amqp.listener.links import LinkFactory, is_same_link, refuse
from brokers.amqp.listener.login import SaslServer
from brokers.amqp.listener.messages import MessageCarrier
from brokers.amqp.listener.options import AmqpNodes, Options, RefusalError
from brokers.amqp.listener.receive import IncomingLink
from brokers.amqp.listener.send import OutgoingLink
from brokers.amqp.listener.sources import SHARED_SUBSCRIPTIONS
from brokers.amqp.listener.transactions import ClientTransactions
from brokers.amqp.machine import MEBIBYTE, RELAY, AmqpMachine, Handlers
from brokers.amqp.outcomes import INVALID, LIMIT, LINK_STOLEN, NOT_ALLOWED
from brokers.amqp.stack import start
from brokers.amqp.stream import PlainStream, Stream
from brokers.amqp.transfers import Transfer
from brokers.embedded import Broker
from brokers.errors import BrokerError, ConnectionFailedError, ConnectionLostError
from brokers.listeners.guesses import Guesses
from brokers.listeners.room import ClientShare
from brokers.threads.thread import Thread

SOLE_CONNECTION: Final = "sole-connection-for-container"
"""The capability that requests an exclusive connection: a JMS client id must not be used twice at once."""

OFFERED: Final = (RELAY, SHARED_SUBSCRIPTIONS, SOLE_CONNECTION)

NOT_ESTABLISHED: Final = "amqp:connection-establishment-failed"
"""The property of an `open` that is followed by a `close` at once."""

STOLEN: Final = RefusalError(LINK_STOLEN, "another link of its name was attached")

MAX_CHANNEL: Final = 63
"""The highest channel number of a session."""

DRAIN_POLL_SECONDS: Final = 0.01
"""Poll interval for whether a drained queue is empty, in seconds."""

LEAVE_SECONDS: Final = 2.0
"""Time that a client's consumers have to end, in seconds."""

MAX_DEBT: Final = 4 * MEBIBYTE
"""Number of octets that a client may write without reading the answers before nothing more is read from it."""

MAX_ROUNDS: Final = 8
"""Maximum number of times that each link gets its turn to send before the output is written and the socket read."""

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
        bursts: the messages for the client that are not written yet.
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
        self._unanswered: set[Any] = set()  # refused and stolen links, until the client has confirmed the end
        self.bursts = OutputBursts(self)
        self._attaching = LinkFactory(self, house.broker, house.options)
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

    @property
    def passed(self) -> int:
        """Octets of the output that were written."""
        return self._passed

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
        """Do the tasks that wait, some rounds of them: the others wait for the next time, after the socket was read."""
        for _ in range(MAX_ROUNDS):
            for _ in range(len(self._tasks)):
                self._tasks.popleft()()
            if not self._tasks:
                break
        self.bursts.end()

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
                self._unanswered.add(link)

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
            events.AMQP_LISTENER_NO_TLS.log(self, error)
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
        events.AMQP_LISTENER_CLIENT_LEFT.log(self, error)
        with self.lock:
            links, self._links = list(self._links.values()), {}
            self._by_key.clear()
            for link in links:
                end_of(link)(for_good=False)
        self.connection.close(LEAVE_SECONDS)
        self._house.gone(self)

    def _hang_up(self) -> None:
        with self.lock:  # proton's links and sessions must be freed before their connection: see `without_frames`
            self._unanswered.clear()
            self.bursts.sessions.clear()
            self._inspection.end()
            self._attaching.end()
        super()._hang_up()

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
                    handle = channel.handle_of_sender(link.name)
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
        self.bursts.sessions.add(event.session)
        self._inspection.began(event.session)

    def _on_session_close(self, event: Any) -> None:
        self._leave_session(event.session)
        self._unanswered = {each for each in self._unanswered if each.session != event.session}
        self.bursts.forget(event.session)
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
            refuse(link, refusal)
            self._unanswered.add(link)
        self._require_answers()

    def _require_answers(self) -> None:
        """Check that the client confirms the end of links, which take memory until then.

        Raises:
            ConnectionFailedError: it has left too many unconfirmed.
        """
        if len(self._unanswered) > self._house.options.max_links:
            why = f"the end of {len(self._unanswered)} refused links, or stolen ones, is not answered"
            self.break_off(LIMIT, why)

    def _on_flow(self, event: Any) -> None:
        link = self._by_key.get(event.link_key)
        if isinstance(link, OutgoingLink):
            link.flowed()

    def _on_link_close(self, event: Any, *, for_good: bool) -> None:
        link = self._forget(event.link)
        self._unanswered.discard(event.link)
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
