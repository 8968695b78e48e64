"""What the tests of the AMQP adapter share: a peer that does as it is told, on proton's own server side."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Any, Self

import proton
from proton import Collector, Condition, Connection, Data, Delivery, Event, Receiver, Terminus, Transport, symbol
from waiting import eventually as wait_until  # noqa: F401 - tests have it by this name

from brokers import (
    Destination,
    Message,
    MessageType,
    queue,
)

PATIENCE = 60.0
"""Seconds after which something that should happen counts as not happening."""

RELAY = "ANONYMOUS-RELAY"

DECLARE = 0x31
DECLARED = 0x33


def text(destination: Destination | None = None, body: str = "x", **more: Any) -> Message:
    """Make a TextMessage."""
    return Message(message_type=MessageType.TEXT, body=body, destination=destination or queue("q"), **more)


@dataclass
class Attached:
    """A link that a client attached, as it described it."""

    name: str
    is_sender: bool
    address: str | None
    target_type: int
    dynamic: bool
    outcomes: list[str]
    capabilities: list[str]


def symbols(data: Data) -> list[str]:
    """Read a field that is a symbol or an array of symbols."""
    data.rewind()
    if not data.next():
        return []
    value: Any = data.get_object()
    return [str(each) for each in getattr(value, "elements", [value])]


class Carrier:
    """What is between the peer's proton and its socket; here nothing."""

    is_open = True
    is_over = False

    def receive(self, octets: bytes) -> bytes:
        """Return what of the octets read is AMQP's."""
        return octets

    def send(self, octets: bytes, *, is_last: bool) -> bytes:
        """Return what is to be written for AMQP's octets."""
        self.is_over = is_last
        return octets


@dataclass
class Peer:
    """A broker of the test's own. What clients do is in its lists; what it answers, the test says.

    Attributes:
        offers: capabilities of its `open`.
        product, version: what it is, in its `open`.
        on_transfer: what becomes of a message: called with the delivery and its octets.
        refuses: addresses of links that it refuses, and with which condition.
        credit: what a sending link gets.
        idle: seconds after which it gives up a silent client; 0 for never.
        notices_silence: False if it asks for signs of life, and goes on without them.
        closes_with: the condition that it closes every connection with, once open.
        sasl: what proton's server side lets in.
        sessions: how many each client may have at a time.
        max_message: what a message may have, in octets, by the word of its sending links; 0 if they do not say.
    """

    offers: tuple[str, ...] = (RELAY,)
    product: str | None = None
    version: str = "4.0.5"
    on_transfer: Callable[[Any, bytes], None] = lambda delivery, octets: settle(delivery, Delivery.ACCEPTED)
    refuses: dict[str | None, Condition] = field(default_factory=dict)
    credit: int = 100
    idle: float = 0.0
    notices_silence: bool = True
    closes_with: Condition | None = None
    sasl: str = "ANONYMOUS"
    sessions: int = 1000
    max_message: int = 0
    desired: list[list[str]] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    attached: list[Attached] = field(default_factory=list)
    links: dict[str, Any] = field(default_factory=dict)
    arrived: SimpleQueue[str] = field(default_factory=SimpleQueue)
    carrier: Callable[[], Carrier] | None = None
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._stopped = Flag()
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._sockets: list[socket.socket] = []
        self._threads = [Thread(target=self._accept, name="peer", daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE)

    @property
    def url(self) -> str:
        """For `brokers.connect`."""
        return f"amqp://127.0.0.1:{self.port}"

    def do(self, order: Callable[[], None]) -> None:
        """Have something done on the thread that uses proton."""
        done = Flag()
        self._orders.put(lambda: (order(), done.set())[0])  # type: ignore[func-returns-value]
        assert done.wait(PATIENCE)

    def cut(self) -> None:
        """End all connections at once, without a word."""
        for each in self._sockets:
            with suppress(OSError):  # it has ended
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connected)
            thread = Thread(target=self._serve, args=(connected,), name="peer connection", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connected: socket.socket) -> None:
        transport, connection, collector = Transport(Transport.SERVER), Connection(), Collector()
        transport.sasl().allowed_mechs(self.sasl)
        transport.idle_timeout = self.idle
        transport.channel_max = self.sessions - 1
        connection.collect(collector)
        transport.bind(connection)
        if self.tls is not None:
            try:
                connected = self.tls.wrap_socket(connected, server_side=True)
            except OSError:  # the client did not like us
                connected.close()
                return
        carrier = self.carrier() if self.carrier else Carrier()
        with connected:
            while not self._stopped.is_set() and not carrier.is_over:
                with suppress(Empty):  # another connection's thread may be quicker
                    while True:
                        self._orders.get_nowait()()
                connected.settimeout(0.005)
                try:
                    octets = connected.recv(65536)
                    if not octets:
                        return
                    octets = carrier.receive(octets)
                    while octets and (room := transport.capacity()) > 0:
                        transport.push(octets[:room])
                        octets = octets[room:]
                except TimeoutError:
                    pass
                except OSError:
                    return
                if self.notices_silence:
                    transport.tick(time.monotonic())
                while (event := collector.peek()) is not None:
                    self._handle(event, connection)
                    collector.pop()
                out = b""
                while (pending := transport.pending()) > 0 and carrier.is_open:
                    piece: Any = transport.peek(pending)
                    out += bytes(piece)
                    transport.pop(len(piece))
                connected.settimeout(PATIENCE)  # the client may be slow to read
                try:
                    connected.sendall(carrier.send(out, is_last=transport.pending() < 0))
                except OSError:
                    return

    def _handle(self, event: Any, connection: Connection) -> None:
        if event.type is Event.CONNECTION_REMOTE_OPEN:
            self.desired.append([str(each) for each in connection.remote_desired_capabilities or ()])
            self.containers.append(str(connection.remote_container))
            self.hosts.append(str(connection.remote_hostname))
            connection.offered_capabilities = [symbol(each) for each in self.offers] or None
            connection.container = "peer"
            if self.product is not None:
                connection.properties = {symbol("product"): self.product, symbol("version"): self.version}
            connection.open()
            if self.closes_with is not None:
                connection.condition = self.closes_with
                connection.close()
        elif event.type is Event.SESSION_REMOTE_OPEN:
            if self.closes_with is None:
                event.session.open()
        elif event.type is Event.SESSION_REMOTE_CLOSE:
            event.session.close()
        elif event.type is Event.CONNECTION_REMOTE_CLOSE:
            connection.close()
        elif event.type is Event.LINK_REMOTE_OPEN:
            self._attach(event.link)
        elif event.type in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            event.link.close()
        elif event.type is Event.DELIVERY and isinstance(event.link, Receiver):
            self._transfer(event.link, event.delivery)

    def _attach(self, link: Any) -> None:
        terminus = link.remote_target if isinstance(link, Receiver) else link.remote_source
        self.attached.append(
            Attached(
                name=link.name,
                is_sender=isinstance(link, Receiver),
                address=terminus.address,
                target_type=link.remote_target.type,
                dynamic=terminus.dynamic,
                outcomes=symbols(link.remote_source.outcomes),
                capabilities=symbols(terminus.capabilities),
            )
        )
        self.links[link.name] = link
        if terminus.address in self.refuses:
            link.open()
            link.condition = self.refuses[terminus.address]
            link.close()
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if terminus.dynamic:
            link.target.address = f"node-{len(self.links)}"
            link.target.dynamic = False
        if isinstance(link, Receiver):
            link.max_message_size = self.max_message
        link.open()
        if isinstance(link, Receiver) and link.remote_target.type != Terminus.UNSPECIFIED:
            link.flow(self.credit)

    def _transfer(self, link: Receiver, delivery: Any) -> None:
        if not delivery.readable or delivery.partial:
            return
        octets = bytes(link.recv(delivery.pending) or b"")
        link.advance()
        self.on_transfer(delivery, octets)
        self.arrived.put(delivery.tag)


def settle(delivery: Any, state: int, condition: Condition | None = None, **fields: bool) -> None:
    """Give a delivery its outcome."""
    delivery.local.condition = condition
    for name, value in fields.items():
        setattr(delivery.local, name, value)
    delivery.update(state)
    delivery.settle()


def discharged(delivery: Any, octets: bytes, name: bytes = b"t") -> tuple[bytes, bool] | None:
    """Declare a transaction if a coordinator was asked to; else return which is to be discharged, and if it failed.

    Who gets that answers it. Spec: AMQP 1.0 part 4, 4.5.
    """
    command = proton.Message()  # held, or what its body views is gone
    command.decode(octets)
    body: Any = command.body
    if body.descriptor != DECLARE:
        return bytes(body.value[0]), body.value[1]
    delivery.local.data = [name]
    delivery.update(DECLARED)
    delivery.settle()
    return None


def detach(delivery: Any, condition: Condition, *, names_it: bool = True) -> None:
    """Detach the link of a delivery because of it. Spec: anonymous terminus 2.2.2 (AT-12 to AT-14)."""
    if names_it:
        condition.info = {symbol("delivery-tag"): delivery.tag.encode()}
    delivery.link.condition = condition
    delivery.link.close()
