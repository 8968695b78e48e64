"""The layer between AMQP's octets and the socket: none over TCP, messages over WebSocket."""

from __future__ import annotations

from typing import Protocol

from brokers.amqp.url import AmqpLogin


class Stream(Protocol):
    """Carries AMQP's octets, without I/O."""

    def begin(self) -> None:
        """Queue the octets that precede AMQP."""

    @property
    def is_open(self) -> bool:
        """Whether AMQP may begin."""

    @property
    def has_leave(self) -> bool:
        """Whether the stream has a closing handshake."""

    @property
    def is_over(self) -> bool:
        """Whether the peer has closed the stream."""

    @property
    def farewell(self) -> str:
        """Why the peer has closed the stream, if it said so and that is not the ordinary end; otherwise empty."""

    def receive(self, octets: bytes) -> bytes:
        """Process octets that were read, and return those of AMQP; no octets mean the end.

        Raises:
            ConnectionFailedError: the peer violates the protocol of the stream.
        """

    def send(self, octets: bytes) -> None:
        """Queue AMQP's octets for writing."""

    @property
    def waiting(self) -> int:
        """Number of octets to write."""

    def take(self) -> bytes:
        """Return the octets to write."""

    def end(self) -> None:
        """Close the stream, after AMQP was closed."""


class PlainStream:
    """TCP, with or without TLS: it carries AMQP directly."""

    is_open = True
    is_over = False
    has_leave = False
    farewell = ""

    def __init__(self) -> None:
        self._out = bytearray()

    def begin(self) -> None:
        """Do nothing: no octets precede AMQP."""

    def receive(self, octets: bytes) -> bytes:
        """Return all octets: they are AMQP's."""
        return octets

    def send(self, octets: bytes) -> None:
        """Queue AMQP's octets for writing."""
        self._out += octets

    @property
    def waiting(self) -> int:
        """Number of octets to write."""
        return len(self._out)

    def take(self) -> bytes:
        """Return the octets to write."""
        out, self._out = bytes(self._out), bytearray()
        return out

    def end(self) -> None:
        """Do nothing: TCP needs no closing handshake here."""


def stream_for(login: AmqpLogin) -> Stream:
    """Return the stream that a login requires."""
    if login.binding is None:
        return PlainStream()
    from brokers.amqp.websocket import WebSocketClient  # needs a library that TCP does not

    return WebSocketClient(login)
