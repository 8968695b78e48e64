"""A client of AMQP for tests, on proton's engine: it sends what a test wants, and shows exactly what comes back."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from select import POLLIN, poll
from types import TracebackType
from typing import Any, Self

from proton import (
    Collector,
    Condition,
    Connection,
    Data,
    Delivery,
    Described,
    Event,
    Link,
    Message,
    Receiver,
    Terminus,
    Transport,
    symbol,
    uint,
    ulong,
)

from brokers.amqp.sasl import SASL_HEADER, Frames, Performative, pack

PATIENCE = 20.0

MOMENT = 20
"""Milliseconds."""

ALL = ("accepted", "rejected", "released", "modified")


def put(data: Data, names: tuple[str, ...]) -> None:
    """Put an array of symbols."""
    data.put_array(False, Data.SYMBOL)
    data.enter()
    for name in names:
        data.put_symbol(symbol(name))
    data.exit()


@dataclass
class Outcome:
    """What became of a delivery, or of a link."""

    state: int | str
    condition: str | None = None
    description: str | None = None
    info: dict[str, Any] = field(default_factory=dict)
    transaction: bytes | None = None

    @classmethod
    def of(cls, state: int | str, condition: Condition | None, transaction: bytes | None = None) -> Outcome:
        """Copy a condition out of proton's memory."""
        if condition is None:
            return cls(state, transaction=transaction)
        info = {str(key): own(value) for key, value in dict(condition.info or {}).items()}  # type: ignore[call-overload]
        return cls(state, condition.name, condition.description, info, transaction)


def own(value: Any) -> Any:
    """Copy octets out of proton's memory."""
    return bytes(value) if isinstance(value, memoryview) else value


class Raw:
    """One connection, driven by its calls."""

    def __init__(
        self,
        port: int,
        *,
        desires: tuple[str, ...] = ("ANONYMOUS-RELAY",),
        container: str = "raw",
        user: str | None = None,
        idle: float = 0.0,
        receive_buffer: int | None = None,
    ) -> None:
        self.transport, self.connection, self._collector = Transport(), Connection(), Collector()
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(("127.0.0.1", port))
        self._arriving = poll()  # `select` knows no more than 1,024 files
        self._arriving.register(self._socket, POLLIN)
        early = b"" if user is None else log_in(self._socket, user, user)
        self.transport.idle_timeout = idle
        self.connection.container = container
        self.connection.desired_capabilities = [symbol(each) for each in desires] or None
        self.connection.collect(self._collector)
        self.transport.bind(self.connection)
        if early:
            self.transport.push(early)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self.outcomes: dict[str, Outcome] = {}
        self.detached: dict[str, Outcome] = {}
        self.received: list[tuple[str, bytes]] = []
        self.deliveries: list[Any] = []
        self.closed: Outcome | None = None
        self._numbers = 0
        try:
            self.until(lambda: self.connection.remote_container)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def offered(self) -> list[str]:
        """What the other side's `open` offers."""
        return [str(each) for each in self.connection.remote_offered_capabilities or ()]

    def attach(
        self,
        address: str | None,
        *,
        outcomes: tuple[str, ...] | None = ALL,
        capabilities: tuple[str, ...] = (),
        kind: int = Terminus.TARGET,
        settled: bool = False,
        dynamic: bool = False,
    ) -> Any:
        """Attach a sending link, and wait for the answer: credit, or the end."""
        link: Any = self.session.sender(self._name())
        if outcomes is not None:
            put(link.source.outcomes, tuple(f"amqp:{each}:list" for each in outcomes))
        link.target.type = kind
        link.target.address = address
        link.target.dynamic = dynamic
        if capabilities:
            put(link.target.capabilities, capabilities)
        if settled:
            link.snd_settle_mode = Link.SND_SETTLED
        link.open()
        self.until(lambda: link.credit > 0 or link.name in self.detached)
        return link

    def receive(self, address: str | None, credit: int = 100, **more: Any) -> Any:
        """Attach a receiving link, and wait for the answer."""
        link: Any = self.session.receiver(more.get("name") or self._name())
        link.source.address = address
        link.source.dynamic = more.get("dynamic", False)
        link.source.durability = more.get("durability", Terminus.NONDURABLE)
        if more.get("capabilities"):
            put(link.source.capabilities, more["capabilities"])
        if more.get("settled"):
            link.snd_settle_mode = Link.SND_SETTLED
        link.open()
        if credit:
            link.flow(credit)
        self.until(lambda: link.remote_source.type != Terminus.UNSPECIFIED or link.name in self.detached)
        return link

    def send(
        self,
        link: Any,
        octets: bytes | Message,
        *,
        settled: bool = False,
        transaction: bytes | None = None,
        tag: str | None = None,
        now: bool = True,
    ) -> str:
        """Send on a link; return the tag. Unless `now`, it is written together with what comes next."""
        self._numbers += 1
        tag = tag or f"t{self._numbers}"
        delivery = link.delivery(tag)
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(0x34)
        link.stream(octets if isinstance(octets, bytes) else bytes(octets.encode()))
        link.advance()
        if settled:
            delivery.settle()
        if now:
            self.pump()
        return tag

    def write(self, octets: bytes) -> None:
        """Write what proton would not."""
        self._socket.sendall(octets)

    def outcome(self, tag: str) -> Outcome:
        """Wait for what became of a delivery."""
        self.until(lambda: tag in self.outcomes)
        return self.outcomes[tag]

    def end_of(self, link: Any) -> Outcome:
        """Wait for a link to be detached."""
        self.until(lambda: link.name in self.detached)
        return self.detached[link.name]

    def declare(self, control: Any) -> bytes:
        """Begin a transaction."""
        tag = self.send(control, Message(body=Described(ulong(0x31), [None])))
        transaction = self.outcome(tag).transaction
        assert transaction is not None
        return transaction

    def discharge(self, control: Any, transaction: bytes, *, fail: bool) -> Outcome:
        """End a transaction."""
        return self.outcome(self.send(control, Message(body=Described(ulong(0x32), [transaction, fail]))))

    def control(self) -> Any:
        """Attach to the coordinator."""
        return self.attach(None, kind=Terminus.COORDINATOR)

    def settle(self, delivery: Any, state: int, *, transaction: bytes | None = None) -> None:
        """Decide about what was received."""
        if transaction is None:
            delivery.update(state)
        else:
            delivery.local.data = [transaction, Described(ulong(state), [])]
            delivery.update(0x34)
        delivery.settle()
        self.pump()

    def take(self, count: int) -> list[str]:
        """Wait for so many messages, and return their bodies in order."""
        self.until(lambda: len(self.received) >= count)
        taken, self.received = self.received[:count], self.received[count:]
        bodies = []
        for _, octets in taken:
            message = Message()
            message.decode(octets)
            bodies.append(str(message.body))
        return bodies

    def until(self, condition: Callable[[], object]) -> None:
        """Go on until something is so."""
        deadline = time.monotonic() + PATIENCE
        self.pump()
        while not condition():
            assert time.monotonic() < deadline, "did not happen in time"
            self._read()
            self.pump()

    def settle_down(self) -> None:
        """Read until nothing has come for a moment; for what must not come."""
        quiet = 0
        while quiet < 5:
            quiet = 0 if self._read() else quiet + 1
            self.pump()

    def read_to_the_end(self) -> None:
        """Say no more, and read until the other side has nothing more to say either."""
        self._socket.shutdown(socket.SHUT_WR)
        self._socket.settimeout(PATIENCE)
        while octets := self._socket.recv(65536):
            self._take(octets)
            while (event := self._collector.peek()) is not None:
                self._handle(event)
                self._collector.pop()

    def pump(self) -> None:
        """Write what proton wants written, and look at what happened."""
        while (pending := self.transport.pending()) > 0:
            out: Any = self.transport.peek(pending)
            self._socket.sendall(bytes(out))
            self.transport.pop(len(out))
        while (event := self._collector.peek()) is not None:
            self._handle(event)
            self._collector.pop()

    def heard(self, octets: bytes) -> None:
        """Note what came."""

    def _read(self) -> bool:
        if not self._arriving.poll(MOMENT):
            return False
        octets = self._socket.recv(65536)
        assert octets or self.closed, "the connection was closed"
        self.heard(octets)
        self._take(octets)
        return True

    def _take(self, octets: bytes) -> None:
        while octets and (room := self.transport.capacity()) > 0:
            self.transport.push(octets[:room])
            octets = octets[room:]

    def _handle(self, event: Any) -> None:
        if event.type in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            state = "closed" if event.type is Event.LINK_REMOTE_CLOSE else "detached"
            self.detached[event.link.name] = Outcome.of(state, event.link.remote_condition)
            event.link.close()
        elif event.type is Event.CONNECTION_REMOTE_CLOSE:
            self.closed = Outcome.of("closed", self.connection.remote_condition)
        elif event.type is Event.DELIVERY and isinstance(event.link, Receiver):
            self._arrived(event.link, event.delivery)
        elif event.type is Event.DELIVERY and event.delivery.updated:
            self._decided(event.delivery)

    def _arrived(self, link: Receiver, delivery: Any) -> None:
        if delivery.readable and not delivery.partial:
            octets = bytes(link.recv(delivery.pending) or b"")
            link.advance()
            self.received.append((link.name, octets))
            self.deliveries.append(delivery)

    def _decided(self, delivery: Any) -> None:
        state, remote = int(delivery.remote_state), delivery.remote
        transaction = None
        condition = remote.condition
        if state in (0x33, 0x34):
            data = list(remote.data or ())
            transaction = own(data[0])
            if state == 0x34 and len(data) > 1:
                state = int(data[1].descriptor)
                fields = data[1].value[0].value if data[1].value else None
                condition = None if fields is None else Condition(str(fields[0]), fields[1], fields[2])
        if state or delivery.settled:
            self.outcomes[delivery.tag] = Outcome.of(state, condition, transaction)

    def _name(self) -> str:
        self._numbers += 1
        return f"link-{self._numbers}"


def frame(code: int, *fields: Any, channel: int = 0) -> bytes:
    """Write one frame of AMQP."""
    data = Data()
    data.put_object(Described(ulong(code), list(fields)))
    body = bytes(data.encode())
    return (len(body) + 8).to_bytes(4, "big") + b"\2\0" + channel.to_bytes(2, "big") + body


def transfer(handle: int, number: int, payload: bytes, *, more: bool) -> bytes:
    """Write the frame of a settled transfer on the first session; its tag is its number."""
    data = Data()
    tag = number.to_bytes(4, "big")
    data.put_object(Described(ulong(0x14), [uint(handle), uint(number), tag, uint(0), True, more]))
    body = bytes(data.encode()) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\2\0\0\0" + body


def log_in(connected: socket.socket, user: str, password: str) -> bytes:
    """Go through SASL, by PLAIN; return what came after it."""
    frames, header = Frames(), None
    connected.sendall(SASL_HEADER)
    while header is None:
        header = frames.header(connected.recv(4096))
    assert header == SASL_HEADER
    performative = None
    while performative is not Performative.OUTCOME:
        while (frame := frames.next()) is None:
            octets = connected.recv(4096)
            assert octets, "the connection was closed"
            frames.rest += octets
        performative, fields = frame
        if performative is Performative.MECHANISMS:
            said = f"\0{user}\0{password}".encode()
            connected.sendall(pack(Performative.INIT, symbol("PLAIN"), said, "localhost"))
    assert fields[0] == 0, "the login was refused"
    return bytes(frames.rest)


ACCEPTED, REJECTED, RELEASED, MODIFIED = (
    int(each) for each in (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)
)
