"""AMQP in WebSocket messages, for either side: one frame per message, and closing; without I/O.

Output suits every edition: each header and each frame is a separate binary message. Input is read as a stream of
octets, because real brokers join and split frames freely; only the draft of 2014 (`csprd01`) forbids that, which is
enforced if that edition was requested.

Spec: AMQP WebSocket Binding 1.0; RFC 6455. The requirements WS-01 to WS-41 are in `docs/conformance-amqp.md`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Final, NoReturn

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, State

from brokers.amqp.outcomes import first_line
from brokers.amqp.sasl import HEADER_OCTETS
from brokers.amqp.url import WebSocketBinding
from brokers.errors import ConnectionFailedError

MAX_MESSAGE_OCTETS: Final = 1 << 20
"""Maximum size of a WebSocket message, in octets; AMQP frames are smaller, but some brokers put several into one."""

FRAGMENT_OCTETS: Final = 1 << 15
"""Maximum size of a sent WebSocket frame, in octets: Artemis ends the connection at one above 64 KiB."""

SILENT: Final = logging.Logger("websockets", logging.CRITICAL + 1)
"""The logger of the library, which logs nothing: our own log has the same events, and its lines hold logins."""

SIGN: Final = b"AMQP"
SIZE_OCTETS: Final = 4
MIN_FRAME_OCTETS: Final = 8


def units(octets: bytes) -> Iterator[bytes]:
    """Split AMQP's octets into headers and frames; an incomplete rest comes last, unchanged."""
    view = memoryview(octets)
    while view:
        head = bytes(view[:SIZE_OCTETS])
        size = HEADER_OCTETS if head == SIGN else int.from_bytes(head, "big")
        if len(view) < SIZE_OCTETS or len(view) < size or size < MIN_FRAME_OCTETS:
            yield bytes(view)
            return
        yield bytes(view[:size])
        view = view[size:]


def is_unit(octets: bytes) -> bool:
    """Return whether octets are one header or one frame. Spec: csprd01 2.2 to 2.4 (WS-14, WS-15, WS-18, WS-21)."""
    if octets[:SIZE_OCTETS] == SIGN:
        return len(octets) == HEADER_OCTETS
    return len(octets) >= MIN_FRAME_OCTETS and int.from_bytes(octets[:SIZE_OCTETS], "big") == len(octets)


class WebSocketStream(ABC):
    """One end of a WebSocket.

    Args:
        name: name of the other end, for errors.
        binding: the edition to enforce for input.
    """

    has_leave: ClassVar = True
    _socket: Protocol

    def __init__(self, name: str, binding: WebSocketBinding | None) -> None:
        self.is_open = False
        self.is_over = False
        self._name = name
        self._binding = binding
        self._message = bytearray()
        self._rest = b""
        self._out = bytearray()

    @abstractmethod
    def begin(self) -> None:
        """Queue the first octets of the handshake."""

    @abstractmethod
    def _check_handshake(self, event: object) -> bool:
        """Handle an event of the handshake; return False for other events."""

    @abstractmethod
    def _handshake_failed(self, error: Exception) -> NoReturn:
        """Raise the error that says why the handshake failed."""

    @property
    def farewell(self) -> str:
        """The code and reason of the peer's Close frame; empty if none came, or one without them, or with code 1000."""
        said = self._socket.close_rcvd
        has_reason = said is not None and said.code not in (CloseCode.NORMAL_CLOSURE, CloseCode.NO_STATUS_RCVD)
        return first_line(f"the WebSocket was closed with {said}") if has_reason else ""

    def receive(self, octets: bytes) -> bytes:
        """Process octets that were read, and return those of AMQP.

        Raises:
            ConnectionFailedError: the peer opened no WebSocket, or not with the requested sub-protocol, or sent
                something that AMQP does not allow.
            DetourError: the server asks for another way to connect.
        """
        if not octets:
            self._socket.receive_eof()
        elif not self._socket.eof_sent:
            self._socket.receive_data(octets)
        events = self._socket.events_received()
        self._collect()  # answers to pings, too
        if self._socket.handshake_exc is not None:
            self._handshake_failed(self._socket.handshake_exc)
        amqp = b"".join(self._take(event) for event in events)
        if self._socket.close_rcvd is None and self._socket.parser_exc is not None:
            raise ConnectionFailedError(f"{self._name}: {self._socket.parser_exc}")
        return amqp

    def send(self, octets: bytes) -> None:
        """Write each header and each frame as a separate message. Spec: 2.2 to 2.4 (WS-13 to WS-21)."""
        self._rest += octets
        if not self.is_open:
            return
        for unit in units(self._rest):
            if not is_unit(unit):
                self._rest = unit
                return
            if self._socket.state is State.OPEN:
                self._send_message(unit)
                self._collect()
        self._rest = b""

    @property
    def waiting(self) -> int:
        """Number of octets to write."""
        return len(self._out)

    def take(self) -> bytes:
        """Return the octets to write."""
        self._collect()
        out, self._out = bytes(self._out), bytearray()
        return out

    def end(self) -> None:
        """Close the WebSocket, after AMQP was closed. Spec: 4 (WS-28, WS-29)."""
        if self._socket.state is State.OPEN:
            self._socket.send_close(CloseCode.NORMAL_CLOSURE)

    def _collect(self) -> None:
        for octets in self._socket.data_to_send():
            self._out += octets

    def _send_message(self, unit: bytes) -> None:
        """Write one message, in as many WebSocket frames as needed. Spec: 2.4 (WS-22)."""
        self._socket.send_binary(unit[:FRAGMENT_OCTETS], fin=len(unit) <= FRAGMENT_OCTETS)
        for begin in range(FRAGMENT_OCTETS, len(unit), FRAGMENT_OCTETS):
            self._socket.send_continuation(
                unit[begin : begin + FRAGMENT_OCTETS], fin=begin + FRAGMENT_OCTETS >= len(unit)
            )

    def _take(self, event: object) -> bytes:
        if self._check_handshake(event):
            return b""
        if not isinstance(event, Frame) or event.opcode in (Opcode.PING, Opcode.PONG):
            return b""
        if event.opcode is Opcode.CLOSE:
            self.is_over = True
            return b""
        if event.opcode is Opcode.TEXT:
            self._fail(CloseCode.UNSUPPORTED_DATA, "a text message, but AMQP is binary")
        if self._binding is not WebSocketBinding.CSPRD01:
            return bytes(event.data)
        self._message += event.data
        if not event.fin:
            return b""
        message, self._message = bytes(self._message), bytearray()
        if not is_unit(message):
            self._fail(CloseCode.PROTOCOL_ERROR, f"a message of {len(message)} octets that is not one AMQP frame")
        return message

    def _fail(self, code: CloseCode, why: str) -> NoReturn:
        self._socket.fail(code, why)
        raise ConnectionFailedError(f"{self._name} sent {why}")
