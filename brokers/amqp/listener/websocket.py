"""The server's end of AMQP over WebSocket.

Spec: AMQP WebSocket Binding 1.0; RFC 6455. The requirements WS-01 to WS-41 are in `docs/conformance-amqp.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, NoReturn
from urllib.parse import SplitResult, urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from brokers.amqp.listener.options import Options
from brokers.amqp.url import SubprotocolToken, WebSocketBinding
from brokers.amqp.websocket_stream import MAX_MESSAGE_OCTETS, SILENT, WebSocketStream
from brokers.errors import ConnectionFailedError

GET: Final = b"GET "
"""The beginning of every WebSocket request. Spec: RFC 6455, 4.1."""

WRONG_PORT: Final = "here AMQP over WebSocket is spoken, at a URL that begins with amqp+ws:// or amqp+wss://\n"

VERSION, RFC_6455 = "Sec-WebSocket-Version", "13"
"""The header that answers a request for another version. Spec: RFC 6455, 4.2.2 and 4.4."""

PORTS: Final = {"http": 80, "https": 443}

LOOPBACK: Final = "localhost"

TOKENS: Final[Mapping[WebSocketBinding, tuple[SubprotocolToken, ...]]] = {
    WebSocketBinding.CSPRD01: (SubprotocolToken.CSPRD01,),
    WebSocketBinding.CS01: (SubprotocolToken.CS01,),
    WebSocketBinding.LENIENT: (SubprotocolToken.CS01, SubprotocolToken.CSPRD01),
}
"""The sub-protocols that a listener agrees to. Spec: 2.1 (WS-05)."""


class WebSocketServer(WebSocketStream):
    """The server's end of one WebSocket."""

    def __init__(self, name: str, binding: WebSocketBinding, options: Options) -> None:
        super().__init__(name, binding)
        origins = None if options.origins is None else [None, *(Origin(each) for each in options.origins)]
        self._begin = b""
        self._paths = options.paths
        self._hosts = options.hosts
        self._max_message = options.max_message
        self._socket = self._server = ServerProtocol(
            subprotocols=[Subprotocol(each) for each in TOKENS[binding]],
            origins=origins,
            max_size=MAX_MESSAGE_OCTETS,
            logger=SILENT,
        )

    def begin(self) -> None:
        """Do nothing: the client begins."""

    def receive(self, octets: bytes) -> bytes:
        """Process octets that were read; a client that does not begin HTTP gets an explanation at once.

        Raises:
            ConnectionFailedError: the client did not begin HTTP; or as for `WebSocketStream`.
        """
        if len(self._begin) < len(GET):
            self._begin += octets[: len(GET) - len(self._begin)]
            if not GET.startswith(self._begin):
                self._server.send_response(self._server.reject(HTTPStatus.BAD_REQUEST, WRONG_PORT))
                raise ConnectionFailedError(f"{self._name} made no WebSocket: it began with {octets[:40]!r}")
        return super().receive(octets)

    def widen(self) -> None:
        """Accept WebSocket messages as large as an AMQP message, because some clients join its frames; after login."""
        self._server.max_message_size = self._max_message + MAX_MESSAGE_OCTETS

    def _check_handshake(self, event: object) -> bool:
        """Accept the request, or answer with the error. Spec: 2.1 (WS-01, WS-02, WS-05)."""
        if not isinstance(event, Request):
            return False
        path = event.path.partition("?")[0]
        if self._paths is not None and path not in self._paths:
            response = self._server.reject(HTTPStatus.NOT_FOUND, "nothing is spoken at this path\n")
        elif len(event.headers.get_all("Host")) != 1:  # Spec: RFC 6455, 4.2.1; RFC 9112, 3.2
            response = self._server.reject(HTTPStatus.BAD_REQUEST, "a request names one host\n")
        else:
            if self._server.origins is not None and (own := own_origin(event.headers, self._hosts)) is not None:
                self._server.origins = [*self._server.origins, Origin(own)]
            response = self._server.accept(event)
            if response.status_code == HTTPStatus.BAD_REQUEST and event.headers.get_all(VERSION) != [RFC_6455]:
                response.headers[VERSION] = RFC_6455
        self._server.send_response(response)
        if self._server.state is not State.OPEN:
            raise ConnectionFailedError(f"{self._name} made no WebSocket: HTTP {response.status_code}")
        self.is_open = True
        return True

    def _handshake_failed(self, error: Exception) -> NoReturn:
        raise ConnectionFailedError(f"{self._name} made no WebSocket: {error}") from error


def own_origin(headers: Headers, hosts: Collection[str]) -> str | None:
    """Return the origin of a request if it is the requested host, as sent by Java clients; otherwise None.

    An unknown host name is not accepted: an attacker could point it here (DNS rebinding). An address is accepted: a
    page from there would be one of our own.
    """
    origins, asked = headers.get_all("Origin"), headers.get_all("Host")
    if len(origins) != 1 or len(asked) != 1:
        return None
    try:
        place, host = urlsplit(origins[0]), urlsplit(f"//{asked[0]}")
        is_same = (
            place.scheme in PORTS and place.hostname == host.hostname and _port(place) == _port(host, place.scheme)
        )
    except ValueError:  # an invalid port or bracket
        return None
    return origins[0] if is_same and _is_known(host.hostname or "", hosts) else None


def _port(place: SplitResult, scheme: str = "") -> int:
    return place.port or PORTS[place.scheme or scheme]


def _is_known(name: str, hosts: Collection[str]) -> bool:
    if name == LOOPBACK or name.endswith(f".{LOOPBACK}") or name in {each.lower() for each in hosts}:
        return True
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
