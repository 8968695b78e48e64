"""One client of a listener: its connection, sessions and links."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from threading import Thread
from time import monotonic
from typing import Any, Final, Protocol

from proton import Connection, Endpoint, Event, Sender, Transport, symbol

from brokers.amqp.dialect import PRODUCT
from brokers.amqp.driver import Driver
from brokers.amqp.links import discard
from brokers.amqp.machine import RELAY, Handlers, Machine
from brokers.amqp.outcomes import LIMIT, NOT_ALLOWED
from brokers.amqp.provider.attaching import Attaching, refuse
from brokers.amqp.provider.incoming import Incoming
from brokers.amqp.provider.login import SaslServer
from brokers.amqp.provider.nodes import Nodes, RefusalError
from brokers.amqp.provider.options import Options
from brokers.amqp.provider.outgoing import Outgoing
from brokers.amqp.provider.transactions import Works
from brokers.amqp.streams import Plain, Stream
from brokers.embedded import Broker
from brokers.errors import BrokerError, ConnectionFailedError

log = logging.getLogger(__name__)

MAX_CHANNEL: Final = 63
"""The highest number of a session."""

LOOK: Final = 0.01
"""Seconds between two looks at whether a drained queue is empty."""

LEAVE: Final = 2.0
"""Seconds that a client's consumers get to end."""

MEBIBYTE: Final = 1 << 20

MAX_DEBT: Final = 4 * MEBIBYTE
"""Octets that a client may write without reading the answers before nothing more is read from it."""

MAX_UNWRITTEN: Final = MEBIBYTE
"""Octets that wait for a client to read, or for the window of a session, before no more messages are taken out of their
queues for it."""

MAX_UNWRITTEN_IN_ALL: Final = 64 * MEBIBYTE
"""Likewise of all sessions together, whose windows are the client's to open."""

SHORTEST_IDLE: Final = 0.1
"""Seconds of silence after which a client may give us up; else signs of life are all that we do."""


class House(Protocol):
    """What all clients of a listener share."""

    broker: Broker
    options: Options
    nodes: Nodes
    name: str

    def now(self) -> int:
        """Milliseconds since 1970."""

    def gone(self, guest: Guest) -> None:
        """Note that a client has left."""


class Guest(Driver):
    """One client, from being accepted until it has left."""

    def __init__(self, house: House, accepted: socket.socket, place: str) -> None:
        super().__init__(place, MAX_DEBT)
        self.nodes = house.nodes
        self.now = house.now
        self.connection = house.broker.connect(max_destinations=house.options.max_client_destinations)
        self.works = Works(self.connection, house.options.transaction_idle, house.options.max_transactions)
        self._house = house
        self._accepted = accepted
        self._sasl: SaslServer | None = None
        self._is_open = False
        self._widen: Callable[[], None] = lambda: None
        self._open_by = monotonic() + house.options.patience
        self._links: dict[Any, Incoming | Outgoing] = {}
        self._refused: set[Any] = set()
        self._sessions: set[Any] = set()
        self._attaching = Attaching(self, house)
        self._at: Handlers = {
            Event.CONNECTION_REMOTE_OPEN: self._on_connection_open,
            Event.CONNECTION_REMOTE_CLOSE: self._on_connection_close,
            Event.SESSION_REMOTE_OPEN: self._on_session_open,
            Event.SESSION_REMOTE_CLOSE: self._on_session_close,
            Event.LINK_REMOTE_OPEN: self._on_link_open,
            Event.LINK_FLOW: self._on_flow,
            Event.LINK_REMOTE_CLOSE: partial(self._on_link_close, for_good=True),
            Event.LINK_REMOTE_DETACH: partial(self._on_link_close, for_good=False),
            Event.DELIVERY: self._on_delivery,
            Event.TRANSPORT_ERROR: self._on_transport_error,
        }

    @property
    def user(self) -> str | None:
        """Who this is; None for nobody in particular."""
        return None if self._sasl is None else self._sasl.user

    @property
    def container(self) -> str:
        """What the client calls itself."""
        return "" if self._machine is None else str(self._machine.connection.remote_container or "")

    @property
    def _handlers(self) -> Handlers:
        return self._at

    def is_behind(self, link: Sender) -> bool:
        """Say whether so much waits for the client to read that nothing more is to be sent on a link."""
        of_one, of_all = link.session.outgoing_bytes, sum(each.outgoing_bytes for each in self._sessions)
        return max(self.unwritten, of_one) > MAX_UNWRITTEN or self.unwritten + of_all > MAX_UNWRITTEN_IN_ALL

    def start(self) -> None:
        """Begin to serve.

        Raises:
            RuntimeError: there is no thread to be had; the client is gone.
        """
        self._thread = Thread(target=self._serve, name=f"{self} guest", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            self._turn_away()
            raise

    def _turn_away(self) -> None:
        self._accepted.close()
        self.drop()
        self._hang_up()

    def _serve(self) -> None:
        try:
            connected, certified = self._secure()
        except OSError as error:
            log.info("%s: no TLS: %s", self, error)
            self._turn_away()
            return
        connected.setblocking(False)
        machine = self._make_machine(certified)
        with self.lock:
            self._machine, self._socket = machine, connected
        self._run(machine, connected)

    def _secure(self) -> tuple[socket.socket, str | None]:
        """Shake hands, if it is TLS, and return who the client's certificate says it is."""
        self._accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self._house.options.tls
        if context is None:
            return self._accepted, None
        self._accepted.settimeout(self._house.options.patience)
        secured = context.wrap_socket(self._accepted, server_side=True, do_handshake_on_connect=False)
        try:
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        return secured, common_name(secured)

    def _make_machine(self, certified: str | None) -> Machine:
        options = self._house.options
        connection, transport = Connection(), Transport(Transport.SERVER)
        transport.idle_timeout = options.idle
        transport.channel_max = MAX_CHANNEL
        connection.container = self._house.name
        connection.offered_capabilities = [symbol(RELAY)]
        connection.properties = {symbol("product"): PRODUCT, symbol("version"): "1"}
        self._sasl = SaslServer(options, certified)
        return Machine(connection, transport, self._sasl, self._make_stream())

    def _make_stream(self) -> Stream:
        binding = self._house.options.binding
        if binding is None:
            return Plain()
        from brokers.amqp.provider.websocket import WebSocketServer  # a library that TCP does without

        stream = WebSocketServer(f"{self}", binding, self._house.options)
        self._widen = stream.widen
        return stream

    def _ended(self, error: BrokerError) -> None:
        log.debug("%s has left: %s", self, error)
        with self.lock:
            links, self._links = list(self._links.values()), {}
            for link in links:
                end_of(link)(for_good=False)
        self.connection.close(LEAVE)
        self._house.gone(self)

    def _tick(self, machine: Machine) -> float | None:
        wait = super()._tick(machine)
        if not self._is_open:
            left = self._open_by - monotonic()
            if left <= 0:
                raise ConnectionFailedError(f"{self} took too long to log in")
            wait = left if wait is None else min(wait, left)
        expiry = self.works.expire()
        if expiry is not None:
            wait = expiry if wait is None else min(wait, expiry)
        draining = [link for link in self._links.values() if isinstance(link, Outgoing) and link.is_draining]
        if [link for link in draining if not link.drain()]:
            wait = LOOK if wait is None else min(wait, LOOK)
        if draining:
            self._flush()
        return wait

    # What proton tells

    def _on_connection_open(self, event: Any) -> None:
        self._is_open = True
        self._widen()
        event.connection.open()
        if 0 < event.transport.remote_idle_timeout < SHORTEST_IDLE:
            self.break_off(NOT_ALLOWED, f"an idle-time-out is at least {SHORTEST_IDLE * 1000:.0f} ms here")

    def _on_connection_close(self, event: Any) -> None:
        event.connection.close()
        self._flush()

    def _on_transport_error(self, event: Any) -> None:
        condition = event.transport.condition
        self._flush()
        raise ConnectionFailedError(f"{self}: {'no reason given' if condition is None else condition.description}")

    def _on_session_open(self, event: Any) -> None:
        # Without a window of its own: what arrives is taken at once, and when one is used up by what follows the end of
        # a link, proton opens it again in the name of that link, which ends the connection (seen with 0.40).
        if len(self._sessions) > MAX_CHANNEL:  # begun on channels that have one: proton would go on, without channels
            why = f"{len(self._sessions)} sessions have begun already"
            self.break_off(NOT_ALLOWED, why)
        event.session.open()
        self._sessions.add(event.session)

    def _on_session_close(self, event: Any) -> None:
        for link in [each for each in self._links if each.session == event.session]:
            end_of(self._links.pop(link))(for_good=False)
        self._refused = {each for each in self._refused if each.session != event.session}
        self._sessions.discard(event.session)
        event.session.close()
        event.session.free()
        if self._machine is not None:  # only now is its channel free, and without one for the next proton goes silent
            self._machine.gather()

    def _on_link_open(self, event: Any) -> None:
        link = event.link
        try:
            if len(self._links) >= self._house.options.max_links:
                raise RefusalError(LIMIT, f"{len(self._links)} links are attached already")
            self._links[link] = self._attaching.attach(link)
        except RefusalError as refusal:
            self._refuse(link, refusal)

    def _refuse(self, link: Any, refusal: RefusalError) -> None:
        """Refuse a link, which takes memory until the client has answered that.

        Raises:
            ConnectionFailedError: there are too many that it has not answered.
        """
        refuse(link, refusal)
        self._refused.add(link)
        if len(self._refused) > self._house.options.max_links:
            why = f"the end of {len(self._refused)} refused links is not answered"
            self.break_off(LIMIT, why)

    def _on_flow(self, event: Any) -> None:
        link = self._links.get(event.link)
        if isinstance(link, Outgoing):
            link.flowed()

    def _on_link_close(self, event: Any, *, for_good: bool) -> None:
        link = self._links.pop(event.link, None)
        self._refused.discard(event.link)
        if for_good:
            event.link.close()
        else:
            event.link.detach()
        if link is not None:
            end_of(link)(for_good=for_good)
        event.link.free()

    def _on_delivery(self, event: Any) -> None:
        link = self._links.get(event.link)
        if link is None:
            if event.link.is_receiver:
                discard(event.delivery)
            return
        try:
            link.delivered(event.delivery)
        except RefusalError as refusal:
            if event.link.state & Endpoint.LOCAL_ACTIVE:  # else it is told of the first one already
                event.link.condition = refusal.told()
                event.link.close()


def end_of(link: Incoming | Outgoing) -> Callable[..., None]:
    """Return what ends a link, told whether that is for good."""
    return link.end if isinstance(link, Outgoing) else lambda *, for_good: link.ended()


def common_name(secured: ssl.SSLSocket) -> str | None:
    """Return the common name of the client's certificate, if it showed one that was checked."""
    certificate = secured.getpeercert() or {}
    subject: Any = certificate.get("subject", ())
    return next((str(value) for part in subject for name, value in part if name == "commonName"), None)
