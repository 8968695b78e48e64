"""AMQP in WebSocket messages, as a client: opening, one frame a message, closing; without I/O.

What is written suits every edition: each header and each frame is a binary message of its own. What is read is a stream
of octets, because real brokers join and cut as they like; only the draft of 2014 (`csprd01`) forbids that, and is held
to it when asked for.

Spec: AMQP WebSocket Binding 1.0; RFC 6455. The requirements WS-01 to WS-41 are in `docs/conformance-amqp.md`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NoReturn
from urllib.parse import urljoin, urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from brokers.amqp.detours import DetourError
from brokers.amqp.login import Binding, Login, Token
from brokers.amqp.sasl import HEADER_SIZE
from brokers.errors import ConnectionFailedError, LoginRefusedError

MAX_MESSAGE: Final = 1 << 20
"""Octets of a WebSocket message; AMQP frames are smaller, but some brokers put several into one."""

FRAGMENT: Final = 1 << 15
"""Octets of a WebSocket frame that we send: Artemis ends the connection at one of more than 64 KiB."""

SIGN: Final = b"AMQP"
SIZE: Final = 4
SMALLEST_FRAME: Final = 8

MOVED: Final = frozenset({301, 302, 303, 307, 308})
UNAUTHORIZED: Final = 401

PORTS: Final[Mapping[str, int]] = {"ws": 80, "wss": 443, "http": 80, "https": 443}
SECURE: Final = frozenset({"wss", "https"})

OTHER_TOKEN: Final[Mapping[Token, Token]] = {Token.CS01: Token.CSPRD01}
"""What to ask for next where a server does not answer with what was asked for. One at a time: of several ActiveMQ sees
only the last."""


def units(octets: bytes) -> Iterator[bytes]:
    """Cut AMQP's octets into headers and frames; what is incomplete comes last, as it is."""
    view = memoryview(octets)
    while view:
        head = bytes(view[:SIZE])
        size = HEADER_SIZE if head == SIGN else int.from_bytes(head, "big")
        if len(view) < SIZE or len(view) < size or size < SMALLEST_FRAME:
            yield bytes(view)
            return
        yield bytes(view[:size])
        view = view[size:]


def is_unit(octets: bytes) -> bool:
    """Say whether octets are one header or one frame. Spec: csprd01 2.2 to 2.4 (WS-14, WS-15, WS-18, WS-21)."""
    if octets[:SIZE] == SIGN:
        return len(octets) == HEADER_SIZE
    return len(octets) >= SMALLEST_FRAME and int.from_bytes(octets[:SIZE], "big") == len(octets)


class WebSocketClient:
    """The client's end of one WebSocket."""

    def __init__(self, login: Login) -> None:
        self.is_open = False
        self.is_over = False
        self._login = login
        is_secure = login.tls is not None
        default = PORTS["wss" if is_secure else "ws"]
        path, _, query = login.path.partition("?")
        self._socket = ClientProtocol(
            # Without a port where it is the scheme's own, as HTTP wants it.
            WebSocketURI(is_secure, login.virtual_host, login.port or default, path, query),
            subprotocols=[Subprotocol(login.token)],
            max_size=MAX_MESSAGE,
        )
        self._message = bytearray()
        self._rest = b""

    def begin(self) -> None:
        """Ask for the WebSocket. Spec: 2.1 (WS-01 to WS-04, WS-09)."""
        request = self._socket.connect()
        if self._login.authorizes:
            who = self._login.credentials()
            secret = b64encode(f"{who.user}:{who.password}".encode()).decode("ascii")
            request.headers["Authorization"] = f"Basic {secret}"
        self._socket.send_request(request)

    def receive(self, octets: bytes) -> bytes:
        """Take what was read, and return what of it is AMQP's.

        Raises:
            ConnectionFailedError: no WebSocket, not the sub-protocol asked for, or something that AMQP never sends.
            DetourError: the server wants us to come in another way.
        """
        if not octets:
            self._socket.receive_eof()
        elif not self._socket.eof_sent:
            self._socket.receive_data(octets)
        events = self._socket.events_received()
        if self._socket.handshake_exc is not None:
            self._refuse_handshake(self._socket.handshake_exc)
        amqp = b"".join(self._take(event) for event in events)
        if self._socket.close_rcvd is None and self._socket.parser_exc is not None:
            raise ConnectionFailedError(f"{self._login}: {self._socket.parser_exc}")
        return amqp

    def send(self, octets: bytes) -> None:
        """Write each header and each frame as a message of its own. Spec: 2.2 to 2.4 (WS-13 to WS-21)."""
        self._rest += octets
        if not self.is_open:
            return
        for unit in units(self._rest):
            if not is_unit(unit):
                self._rest = unit
                return
            if self._socket.state is State.OPEN:
                self._send_message(unit)
        self._rest = b""

    def take(self) -> bytes:
        """Return what is to be written."""
        return b"".join(self._socket.data_to_send())

    def end(self) -> None:
        """Close the WebSocket, after AMQP was closed. Spec: 4 (WS-28, WS-29)."""
        if self._socket.state is State.OPEN:
            self._socket.send_close(CloseCode.NORMAL_CLOSURE)

    def _send_message(self, unit: bytes) -> None:
        """Write one message, in as many WebSocket frames as it takes. Spec: 2.4 (WS-22)."""
        self._socket.send_binary(unit[:FRAGMENT], fin=len(unit) <= FRAGMENT)
        for begin in range(FRAGMENT, len(unit), FRAGMENT):
            self._socket.send_continuation(unit[begin : begin + FRAGMENT], fin=begin + FRAGMENT >= len(unit))

    def _take(self, event: object) -> bytes:
        if isinstance(event, Response):
            self._check(event)
            return b""
        if not isinstance(event, Frame) or event.opcode in (Opcode.PING, Opcode.PONG):
            return b""
        if event.opcode is Opcode.CLOSE:
            self.is_over = True
            return b""
        if event.opcode is Opcode.TEXT:
            self._fail(CloseCode.UNSUPPORTED_DATA, "a text message, and AMQP is binary")
        if self._login.binding is not Binding.CSPRD01:
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
        raise ConnectionFailedError(f"{self._login} sent {why}")

    def _check(self, response: Response) -> None:
        """Go on if the server agreed to exactly what was asked for. Spec: 2.1 (WS-07)."""
        token = response.headers.get("Sec-WebSocket-Protocol")
        if token == self._login.token:
            self.is_open = True
            self.send(b"")
            return
        self._socket.fail(CloseCode.PROTOCOL_ERROR, "not the sub-protocol asked for")
        self._try_other_token(f"answered with the sub-protocol {token!r}, not {self._login.token}")

    def _refuse_handshake(self, error: Exception) -> NoReturn:
        response = getattr(error, "response", None)
        if not isinstance(response, Response):
            self._try_other_token(f"made no WebSocket: {error}" if isinstance(error, InvalidHandshake) else f"{error}")
        status = response.status_code
        location = response.headers.get("Location")
        if status in MOVED and location:
            raise DetourError(f"{self._login} moved to {location}", self._moved(location))
        if status == UNAUTHORIZED:
            self._authorize()
        self._try_other_token(f"answered HTTP {status} {response.reason_phrase}, and made no WebSocket")

    def _try_other_token(self, why: str) -> NoReturn:
        other = OTHER_TOKEN.get(self._login.token) if self._login.binding is Binding.LENIENT else None
        if other is None:
            raise ConnectionFailedError(f"{self._login} {why}")
        raise DetourError(f"{self._login} {why}", replace(self._login, token=other))

    def _authorize(self) -> NoReturn:
        """Come again with user and password for HTTP, which may be those of SASL. Spec: 2.1 (WS-09, WS-10)."""
        if self._login.authorizes or self._login.credentials().user is None:
            raise LoginRefusedError(f"{self._login} refused the login over HTTP")
        raise DetourError(f"{self._login} asks for a login over HTTP", replace(self._login, authorizes=True))

    def _moved(self, location: str) -> Login:
        """Return where an HTTP redirect leads, never out of TLS. Spec: 2.1 (WS-08)."""
        base = f"{'wss' if self._login.tls else 'ws'}://{self._login.virtual_host}:{self._login.port}{self._login.path}"
        try:
            parts = urlsplit(urljoin(base, location))
            port = parts.port or PORTS[parts.scheme]
        except (ValueError, KeyError):
            raise ConnectionFailedError(f"{self._login} moved to {location!r}, which is no place to go to") from None
        if (parts.scheme in SECURE) is not (self._login.tls is not None):
            raise ConnectionFailedError(f"{self._login} moved to {location}: TLS is neither left nor begun on the way")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return replace(self._login, host=parts.hostname or "", hostname=None, port=port, path=path)
