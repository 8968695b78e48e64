"""What is between AMQP's octets and the socket: nothing over TCP, messages over WebSocket."""

from __future__ import annotations

from typing import Protocol

from brokers.amqp.url import AmqpLogin


class Stream(Protocol):
    """Carries AMQP's octets, without I/O."""

    def begin(self) -> None:
        """Have written what comes before AMQP."""

    @property
    def is_open(self) -> bool:
        """Whether AMQP may begin."""

    @property
    def has_leave(self) -> bool:
        """Whether there is a leave to take of it."""

    @property
    def is_over(self) -> bool:
        """Whether the peer took leave of it."""

    def receive(self, octets: bytes) -> bytes:
        """Take what was read, and return what of it is AMQP's; nothing read is the end.

        Raises:
            ConnectionFailedError: the peer does not speak what it should.
        """

    def send(self, octets: bytes) -> None:
        """Take AMQP's octets, to be written."""

    @property
    def waiting(self) -> int:
        """How many octets are to be written."""

    def take(self) -> bytes:
        """Return what is to be written."""

    def end(self) -> None:
        """Take leave, after AMQP did."""


class PlainStream:
    """TCP, with or without TLS: what is written is AMQP."""

    is_open = True
    is_over = False
    has_leave = False

    def __init__(self) -> None:
        self._out = bytearray()

    def begin(self) -> None:
        """Nothing comes before AMQP."""

    def receive(self, octets: bytes) -> bytes:
        """All of it is AMQP's."""
        return octets

    def send(self, octets: bytes) -> None:
        """Take AMQP's octets."""
        self._out += octets

    @property
    def waiting(self) -> int:
        """How many octets are to be written."""
        return len(self._out)

    def take(self) -> bytes:
        """Return what is to be written."""
        out, self._out = bytes(self._out), bytearray()
        return out

    def end(self) -> None:
        """TCP has no leave of its own."""


def stream_for(login: AmqpLogin) -> Stream:
    """Make the stream that a login asks for."""
    if login.binding is None:
        return PlainStream()
    from brokers.amqp.websocket import WebSocketClient  # a library that TCP does without

    return WebSocketClient(login)
