"""Octets in, octets out: one AMQP connection without a socket, a thread or a clock.

Three layers, each of which may want to write: the stream (TCP or WebSocket), SASL, and proton. Whoever drives this puts
in what was read, hands proton's events on, and takes what is to be written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

from proton import Collector, Connection, Transport, symbol

from brokers.amqp.events import happenings
from brokers.amqp.sasl import AMQP_HEADER, SaslClient
from brokers.amqp.stream import Stream, stream_for
from brokers.amqp.url import AmqpLogin as ClientLogin
from brokers.amqp.url import Mechanism
from brokers.amqp.wrong_port import HEAD_OCTETS, check
from brokers.errors import ConnectionFailedError

RELAY: Final = "ANONYMOUS-RELAY"
"""The capability of who takes messages to any destination over one link. Spec: anonymous terminus 2.3."""

MAX_FRAME_OCTETS: Final = 65_536
"""Octets of a frame; over WebSocket some peers take no larger messages."""

BEGINNING: Final = AMQP_HEADER[:5]
"""What every header of AMQP itself begins with, of whatever version."""

log = logging.getLogger(__name__)


def _trace(transport: Transport, message: str) -> None:
    log.debug("%s", message)


Handlers = Mapping[Any, Callable[[Any], None]]
"""What to do at each of proton's events; others are passed over."""


class SaslLogin(Protocol):
    """SASL, of either side."""

    @property
    def is_done(self) -> bool:
        """Whether AMQP may begin."""

    @property
    def rest(self) -> bytes:
        """What came after the last frame."""

    def begin(self) -> bytes:
        """Return what to write first."""

    def receive(self, octets: bytes) -> Iterator[bytes]:
        """Take what was read, and yield what to write."""


class FrameInspector(Protocol):
    """Looks at frames, of AMQP only."""

    def take(self, octets: bytes) -> Iterator[bytes]:
        """Take what was read, and yield what proton is to take, piece by piece."""

    def wrote(self, octets: bytes) -> None:
        """Take note of what proton writes."""


class AmqpMachine:
    """The layers of one connection.

    Args:
        connection: proton's, as one side describes itself.
        transport: of that side.
        login: SASL; None for none.
        stream: what carries AMQP.
        check: told the first octets that were read, as often as there are more of them; raises if they are of no peer.
        inspection: what looks at frames before proton takes them; None for nothing.

    Attributes:
        connection: likewise.
        heard: the first octets that were read.
    """

    def __init__(
        self,
        connection: Connection,
        transport: Transport,
        login: SaslLogin | None,
        stream: Stream,
        check: Callable[[bytes], None] = lambda heard: None,
        inspection: FrameInspector | None = None,
    ) -> None:
        self.connection = connection
        self.heard = b""
        self._check = check
        self._inspection = inspection
        self._sasl = login
        self._stream = stream
        self._early: bytes | None = b""  # of AMQP, while that is too little to be known as such
        self._transport = transport
        self._collector = Collector()
        self._transport.max_frame_size = MAX_FRAME_OCTETS
        self._transport.tracer = _trace  # else proton writes to standard error what peers do wrong
        self.connection.collect(self._collector)
        self._transport.bind(self.connection)
        self._stream.begin()
        if self._sasl is not None:
            self._stream.send(self._sasl.begin())

    @property
    def is_over(self) -> bool:
        """Whether AMQP has ended, or what is below it."""
        return self._transport.closed or self._stream.is_over

    @property
    def may_hang_up(self) -> bool:
        """Whether the peer took its leave of all layers."""
        return self._transport.closed and (self._stream.is_over or not self._stream.has_leave)

    def leave(self) -> None:
        """Take leave of what is below AMQP."""
        self._stream.end()

    @property
    def error(self) -> Any:
        """Return the condition of what went wrong on the wire, or None."""
        return self._transport.condition

    def feed(self, octets: bytes, handlers: Handlers) -> None:
        """Take what was read; nothing is the end.

        Raises:
            ConnectionFailedError: the peer does not let us in, or speaks something else.
        """
        if len(self.heard) < HEAD_OCTETS:
            self.heard += octets[: HEAD_OCTETS - len(self.heard)]
            self._check(self.heard)
        octets = self._stream.receive(octets)
        if self._is_logging_in:
            octets = self._log_in(octets)
        if self._early is not None:
            octets = self._begin(self._early + octets)
        if self._inspection is None:
            self._push(octets, handlers)
        elif octets:
            for frame in self._inspection.take(octets):
                self._push(frame, handlers)
        self.dispatch(handlers)

    def _begin(self, octets: bytes) -> bytes:
        """Keep octets until they are known for AMQP, and return them then.

        proton would take up SASL or TLS once more, and its SASL, as a server, reads through a null pointer where a
        client names no mechanism.

        Raises:
            ConnectionFailedError: they begin something else.

        Spec: AMQP 1.0 part 2, section 2.2.
        """
        if not octets.startswith(BEGINNING[: len(octets)]):
            self._stream.send(AMQP_HEADER)
            raise ConnectionFailedError(f"the peer went on with {octets[:8]!r}; what follows now is AMQP 1.0")
        is_known = len(octets) >= len(BEGINNING)
        self._early = None if is_known else octets
        return octets if is_known else b""

    def _push(self, octets: bytes, handlers: Handlers) -> None:
        view = memoryview(octets)
        while view:
            room = self._transport.capacity()
            if room <= 0:  # proton has seen enough
                break
            self._transport.push(bytes(view[:room]))
            view = view[room:]
            self.dispatch(handlers)

    def dispatch(self, handlers: Handlers) -> None:
        """Hand on what happened."""
        for kind, happening in happenings(self._collector):
            handle = handlers.get(kind)
            if handle is not None:
                handle(happening)

    @property
    def waiting(self) -> int:
        """How many octets are to be written, but for what proton has not encoded yet."""
        return self._stream.waiting

    def take(self) -> bytes:
        """Return what is to be written, from all layers."""
        self.gather()
        return self._stream.take()

    def gather(self) -> None:
        """Have proton encode what it has to say, for `take`. Until then it forgets nothing that has ended."""
        while not self._is_logging_in and self._stream.is_open and (pending := self._transport.pending()) != 0:
            if pending < 0:
                self._stream.end()
                break
            octets = self._transport.peek(pending) or b""
            self._transport.pop(len(octets))
            if self._inspection is not None:
                self._inspection.wrote(octets)
            self._stream.send(bytes(octets))

    def write(self, frame: bytes) -> None:
        """Have a frame written that is not proton's, after what proton has to say."""
        self.gather()
        self._stream.send(frame)

    def tick(self, now: float) -> float | None:
        """Let proton look at its clock, and return when it wants to do so again; None for never."""
        return self._transport.tick(now) or None

    def end(self) -> None:
        """Let proton's objects go."""
        self._transport.unbind()

    @property
    def _is_logging_in(self) -> bool:
        return self._sasl is not None and not self._sasl.is_done

    def _log_in(self, octets: bytes) -> bytes:
        """Go on with SASL, and return what comes after it."""
        assert self._sasl is not None
        for answer in self._sasl.receive(octets):
            self._stream.send(answer)
        return self._sasl.rest if self._sasl.is_done else b""


def client_machine(login: ClientLogin) -> AmqpMachine:
    """Make the layers of a client; asks for user and password.

    Raises:
        ConnectionFailedError: they cannot be had.
    """
    connection, transport = Connection(), Transport()
    transport.idle_timeout = login.idle
    connection.container = login.container
    connection.hostname = login.virtual_host
    if login.relay:
        connection.desired_capabilities = [symbol(RELAY)]
    sasl = None if login.mechanism is Mechanism.NONE else SaslClient(login)
    return AmqpMachine(connection, transport, sasl, stream_for(login), partial(check, login))
