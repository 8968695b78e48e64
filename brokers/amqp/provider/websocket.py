"""The server's end of AMQP over WebSocket.

Spec: AMQP WebSocket Binding 1.0; RFC 6455. The requirements WS-01 to WS-41 are in `docs/conformance-amqp.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NoReturn

from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from brokers.amqp.login import Binding, Token
from brokers.amqp.provider.options import Options
from brokers.amqp.websocketstream import MAX_MESSAGE, WebSocketStream
from brokers.errors import ConnectionFailedError

GET: Final = b"GET "
"""What every request for a WebSocket begins with. Spec: RFC 6455, 4.1."""

WRONG_PORT: Final = "here AMQP over WebSocket is spoken, at a URL that begins with amqp+ws:// or amqp+wss://\n"

TOKENS: Final[Mapping[Binding, tuple[Token, ...]]] = {
    Binding.CSPRD01: (Token.CSPRD01,),
    Binding.CS01: (Token.CS01,),
    Binding.LENIENT: (Token.CS01, Token.CSPRD01),
}
"""The sub-protocols that a listener agrees to. Spec: 2.1 (WS-05)."""


class WebSocketServer(WebSocketStream):
    """The server's end of one WebSocket."""

    def __init__(self, name: str, binding: Binding, options: Options) -> None:
        super().__init__(name, binding)
        origins = None if options.origins is None else [None, *(Origin(each) for each in options.origins)]
        self._begin = b""
        self._paths = options.paths
        self._max_message = options.max_message
        self._socket = self._server = ServerProtocol(
            subprotocols=[Subprotocol(each) for each in TOKENS[binding]], origins=origins, max_size=MAX_MESSAGE
        )

    def begin(self) -> None:
        """The client begins."""

    def receive(self, octets: bytes) -> bytes:
        """Take what was read; who begins with something else than HTTP is told at once what is spoken here.

        Raises:
            ConnectionFailedError: that, or as in `WebSocketStream`.
        """
        if len(self._begin) < len(GET):
            self._begin += octets[: len(GET) - len(self._begin)]
            if not GET.startswith(self._begin):
                self._server.send_response(self._server.reject(HTTPStatus.BAD_REQUEST, WRONG_PORT))
                raise ConnectionFailedError(f"{self._name} made no WebSocket: it began with {octets[:40]!r}")
        return super().receive(octets)

    def widen(self) -> None:
        """Take WebSocket messages that hold a whole AMQP message, as some join its frames; for who is let in."""
        self._server.max_message_size = self._max_message + MAX_MESSAGE

    def _check_handshake(self, event: object) -> bool:
        """Agree, or answer with what is wrong. Spec: 2.1 (WS-01, WS-02, WS-05)."""
        if not isinstance(event, Request):
            return False
        path = event.path.partition("?")[0]
        if self._paths is not None and path not in self._paths:
            response = self._server.reject(HTTPStatus.NOT_FOUND, "nothing is spoken at this path\n")
        else:
            response = self._server.accept(event)
        self._server.send_response(response)
        if self._server.state is not State.OPEN:
            raise ConnectionFailedError(f"{self._name} made no WebSocket: HTTP {response.status_code}")
        self.is_open = True
        return True

    def _handshake_failed(self, error: Exception) -> NoReturn:
        raise ConnectionFailedError(f"{self._name} made no WebSocket: {error}") from error
