"""Octets in, octets out: one AMQP connection without a socket, a thread or a clock.

Three layers may produce output: the stream (TCP or WebSocket), SASL, and proton. The driver feeds the octets that were
read, dispatches proton's events, and takes the octets to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from cproton_ffi import ffi, lib
from proton import Collector, Connection, ProtonException, Transport, symbol

from brokers import events
from brokers.adapter.wrong_port import HEAD_OCTETS, check
from brokers.amqp.events import Handlers as Handlers
from brokers.amqp.events import dispatch
from brokers.amqp.sasl import AMQP_HEADER, SASL_HEADER, SaslClient
from brokers.amqp.stream import Stream, stream_for
from brokers.amqp.url import AmqpLogin as ClientLogin
from brokers.amqp.url import Mechanism
from brokers.errors import ConnectionFailedError

RELAY: Final = "ANONYMOUS-RELAY"
"""The capability of a peer that accepts messages to any destination over one link. Spec: anonymous terminus 2.3."""

MEBIBYTE: Final = 1 << 20

MAX_FRAME_OCTETS: Final = 65_536
"""Maximum size of a frame, in octets; over WebSocket some peers accept no larger messages."""

HTTP: Final = b"HTTP/"
"""The beginning of every answer over HTTP."""

BEGINNING: Final = AMQP_HEADER[:5]
"""The beginning of every header of AMQP itself, of any version."""


def _trace(transport: Transport, message: str) -> None:
    events.AMQP_FRAME.log(message)


class SaslLogin(Protocol):
    """The SASL login of either side."""

    @property
    def is_done(self) -> bool:
        """Whether AMQP may begin."""

    @property
    def rest(self) -> bytes:
        """The octets after the last SASL frame."""

    def begin(self) -> bytes:
        """Return the first octets to write."""

    def receive(self, octets: bytes) -> Iterator[bytes]:
        """Process octets that were read, and yield octets to write."""


class FrameInspector(Protocol):
    """Inspects AMQP frames, after SASL."""

    def take(self, octets: bytes) -> Iterator[bytes]:
        """Process octets that were read, and yield pieces for proton."""

    def wrote(self, octets: bytes) -> None:
        """Observe octets that proton writes."""


class AmqpMachine:
    """The layers of one connection.

    Args:
        connection: proton's connection, configured for one side.
        transport: proton's transport of that side.
        login: the SASL login; None for no SASL.
        stream: carries AMQP's octets.
        check: called with the first octets read, each time that more arrive; raises if the peer is not an AMQP peer.
        inspection: inspects frames before proton gets them; None for no inspection.

    Attributes:
        connection: proton's connection.
        handlers: functions for proton's events.
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
        self.handlers: Handlers = {}
        self.heard = b""
        self._check = check
        self._inspection = inspection
        self._sasl = login  # until it is done
        self._stream = stream
        self._early: bytes | None = b""  # the first octets of AMQP, while they are too few to be recognised
        self._transport = transport
        self._pointer: Any = transport._impl  # each call of the object itself takes two more
        self._collector = Collector()
        self._transport.max_frame_size = MAX_FRAME_OCTETS
        self._transport.tracer = _trace  # otherwise proton writes errors of peers to standard error
        self.connection.collect(self._collector)
        self._transport.bind(self.connection)
        self._stream.begin()
        if self._sasl is not None:
            self._stream.send(self._sasl.begin())

    @property
    def is_over(self) -> bool:
        """Whether AMQP, or the stream below it, has ended."""
        return bool(lib.pn_transport_closed(self._pointer)) or self._stream.is_over

    @property
    def is_let_in(self) -> bool:
        """Whether the peer has accepted the login, and begun AMQP."""
        return self._sasl is None and self._early is None

    @property
    def may_hang_up(self) -> bool:
        """Whether the peer has closed all layers."""
        return self._transport.closed and (self._stream.is_over or not self._stream.has_leave)

    @property
    def farewell(self) -> str:
        """Why the peer has closed the stream below AMQP, if it said so and that is not the ordinary end."""
        return self._stream.farewell

    def leave(self) -> None:
        """Close the stream below AMQP."""
        self._stream.end()

    @property
    def max_sessions(self) -> int:
        """Number of sessions that the peer allows at a time. Known once it has opened the connection."""
        return int(self._transport.remote_channel_max) + 1

    def feed(self, octets: bytes) -> None:
        """Process octets that were read; none means the end.

        Raises:
            ConnectionFailedError: the peer refused the login, or does not speak AMQP.
        """
        if len(self.heard) < HEAD_OCTETS:
            self.heard += octets[: HEAD_OCTETS - len(self.heard)]
            self._check(self.heard)
        octets = self._stream.receive(octets)
        if self._sasl is not None:
            octets = self._log_in(octets, self._sasl)
        if self._early is not None:
            octets = self._begin(self._early + octets)
        if self._inspection is None:
            self._push(octets)
        elif octets:
            for frame in self._inspection.take(octets):
                self._push(frame)

    def _begin(self, octets: bytes) -> bytes:
        """Keep octets until they are recognised as AMQP, and return them then.

        proton would accept SASL or TLS a second time, and its SASL server dereferences a null pointer if a client names
        no mechanism.

        Raises:
            ConnectionFailedError: the octets begin something else.

        Spec: AMQP 1.0 part 2, section 2.2.
        """
        if not octets.startswith(BEGINNING[: len(octets)]):
            self._stream.send(AMQP_HEADER)
            raise ConnectionFailedError(f"the peer must begin AMQP 1.0 now, got {octets[:8]!r}")
        is_known = len(octets) >= len(BEGINNING)
        self._early = None if is_known else octets
        return octets if is_known else b""

    def _push(self, octets: bytes) -> None:
        while octets:
            room = lib.pn_transport_capacity(self._pointer)
            if room <= 0:  # proton accepts no more
                break
            now, octets = bytes(octets[:room]), octets[room:]
            if lib.pn_transport_push(self._pointer, now, len(now)) < 0:
                raise ProtonException("proton did not take what arrived")
            dispatch(self._collector, self.handlers)

    def dispatch(self) -> None:
        """Call the handlers for all pending events."""
        dispatch(self._collector, self.handlers)

    @property
    def waiting(self) -> int:
        """Number of octets to write, without those that proton has not encoded yet."""
        return self._stream.waiting

    def take(self) -> bytes:
        """Return the octets to write, from all layers."""
        self.gather()
        return self._stream.take()

    def gather(self) -> None:
        """Have proton encode its output, for `take`. Only then does it free objects that have ended."""
        while self._sasl is None and self._stream.is_open and (pending := lib.pn_transport_pending(self._pointer)) != 0:
            if pending < 0:
                self._stream.end()
                break
            place = ffi.new("char[]", pending)
            octets = ffi.unpack(place, lib.pn_transport_peek(self._pointer, place, pending))
            lib.pn_transport_pop(self._pointer, len(octets))
            if self._inspection is not None:
                self._inspection.wrote(octets)
            self._stream.send(octets)

    def write(self, frame: bytes) -> None:
        """Write a frame that is not proton's, after proton's output."""
        self.gather()
        self._stream.send(frame)

    def tick(self, now: float) -> float | None:
        """Run proton's timers, and return the time when the next one is due; None for never."""
        return lib.pn_transport_tick(self._pointer, int(now * 1000)) / 1000 or None

    def end(self) -> None:
        """Release proton's objects."""
        self._transport.unbind()

    def _log_in(self, octets: bytes, login: SaslLogin) -> bytes:
        """Continue SASL, and return the octets after it."""
        for answer in login.receive(octets):
            self._stream.send(answer)
        if not login.is_done:
            return b""
        self._sasl = None
        return login.rest


def client_machine(login: ClientLogin) -> AmqpMachine:
    """Return the machine of a client; asks for user and password.

    Raises:
        ConnectionFailedError: user and password are not available.
    """
    connection, transport = Connection(), Transport()
    transport.idle_timeout = login.idle
    connection.container = login.container
    connection.hostname = login.virtual_host or login.host_name
    if login.relay:
        connection.desired_capabilities = [symbol(RELAY)]
    sasl = None if login.mechanism is Mechanism.NONE else SaslClient(login)
    expected = HTTP if login.binding is not None else AMQP_HEADER if sasl is None else SASL_HEADER
    return AmqpMachine(connection, transport, sasl, stream_for(login), partial(check, login, expected=(expected,)))
