"""Octets in, octets out: one AMQP connection without a socket, a thread or a clock.

Three layers, each of which may want to write: the stream (TCP or WebSocket), SASL, and proton. Whoever drives this puts
in what was read, hands proton's events on, and takes what is to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from proton import Collector, Connection, Transport, symbol

from brokers.amqp.login import Login, Mechanism
from brokers.amqp.sasl import SaslClient
from brokers.amqp.streams import Stream, stream_for

RELAY: Final = "ANONYMOUS-RELAY"
"""The capability of who takes messages to any destination over one link. Spec: anonymous terminus 2.3."""

MAX_FRAME: Final = 65_536
"""Octets of a frame; over WebSocket some peers take no larger messages."""

Handlers = Mapping[Any, Callable[[Any], None]]
"""What to do at each of proton's events; others are passed over."""


class Machine:
    """The layers of one connection, as a client has them.

    Attributes:
        connection: proton's.
    """

    def __init__(self, login: Login) -> None:
        """Ask for user and password.

        Raises:
            ConnectionFailedError: they cannot be had.
        """
        self.connection = Connection()
        self._sasl = None if login.mechanism is Mechanism.NONE else SaslClient(login)
        self._stream: Stream = stream_for(login)
        self._is_plain = login.binding is None
        self._transport = Transport()
        self._collector = Collector()
        self._transport.max_frame_size = MAX_FRAME
        self._transport.idle_timeout = login.idle
        self.connection.container = login.container
        self.connection.hostname = login.virtual_host
        if login.relay:
            self.connection.desired_capabilities = [symbol(RELAY)]
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
        """Whether the peer has nothing more to say."""
        return self._is_plain or self._stream.is_over

    @property
    def error(self) -> Any:
        """Return the condition of what went wrong on the wire, or None."""
        return self._transport.condition

    @property
    def offers_relay(self) -> bool:
        """Whether the peer has the anonymous terminus."""
        return RELAY in (self.connection.remote_offered_capabilities or ())

    def feed(self, octets: bytes, handlers: Handlers) -> None:
        """Take what was read; nothing is the end.

        Raises:
            ConnectionFailedError: the peer does not let us in, or speaks something else.
        """
        octets = self._stream.receive(octets)
        if self._is_logging_in:
            octets = self._log_in(octets)
        view = memoryview(octets)
        while view:
            room = self._transport.capacity()
            if room <= 0:  # proton has seen enough
                break
            self._transport.push(bytes(view[:room]))
            view = view[room:]
            self.dispatch(handlers)
        self.dispatch(handlers)

    def dispatch(self, handlers: Handlers) -> None:
        """Hand on what happened."""
        while (event := self._collector.peek()) is not None:
            handle = handlers.get(event.type)
            if handle is not None:
                handle(event)
            self._collector.pop()

    def take(self) -> bytes:
        """Return what is to be written, from all layers."""
        while not self._is_logging_in and self._stream.is_open and (pending := self._transport.pending()) != 0:
            if pending < 0:
                self._stream.end()
                break
            octets = self._transport.peek(pending) or b""
            self._transport.pop(len(octets))
            self._stream.send(bytes(octets))
        return self._stream.take()

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
