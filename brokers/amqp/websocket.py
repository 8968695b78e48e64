"""The client's end of AMQP over WebSocket: the handshake, the choice of edition, and redirects.

Spec: AMQP WebSocket Binding 1.0; RFC 6455. The requirements WS-01 to WS-41 are in `docs/conformance-amqp.md`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn
from urllib.parse import urljoin, urlsplit

from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.frames import CloseCode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from brokers.adapter.wrong_port import perhaps
from brokers.amqp.endpoints import SECURE, DetourError
from brokers.amqp.url import AmqpLogin, SubprotocolToken, WebSocketBinding, is_plain
from brokers.amqp.websocket_stream import MAX_MESSAGE_OCTETS, SILENT, WebSocketStream
from brokers.errors import ConnectionFailedError, LoginRefusedError
from brokers.network_schemes import NETWORK_SCHEMES, WEB_SCHEMES
from brokers.redaction import shown
from brokers.url import bracketed

MOVED: Final = frozenset({301, 302, 303, 307, 308})
UNAUTHORIZED: Final = 401

OTHER_TOKEN: Final[Mapping[SubprotocolToken, SubprotocolToken]] = {SubprotocolToken.CS01: SubprotocolToken.CSPRD01}
"""The sub-protocol to request next if a server does not agree to the first. They are requested one at a time, because
ActiveMQ sees only the last of several."""


class AnyTokenProtocol(ClientProtocol):
    """The library's client, but it opens the WebSocket whatever the sub-protocol, which `WebSocketClient` then checks.

    The library would treat another sub-protocol as no WebSocket at all, so that no Close frame could be sent.
    """

    def process_subprotocol(self, headers: Headers) -> None:
        """Accept every answer."""


class WebSocketClient(WebSocketStream):
    """The client's end of one WebSocket."""

    def __init__(self, login: AmqpLogin) -> None:
        super().__init__(f"{login}", login.binding)
        self._login = login
        path, _, query = login.path.partition("?")
        self._socket = self._client = AnyTokenProtocol(
            # The default port of the scheme is left out of the header, as HTTP requires.
            WebSocketURI(login.tls is not None, login.host_name, login.port, path, query),
            subprotocols=[Subprotocol(login.token)],
            max_size=login.max_message + MAX_MESSAGE_OCTETS,  # Qpid puts all frames of a message into one
            logger=SILENT,
        )

    def begin(self) -> None:
        """Request the WebSocket. Spec: 2.1 (WS-01 to WS-04, WS-09)."""
        request = self._client.connect()
        if self._login.authorizes:
            who = self._login.credentials()
            secret = b64encode(f"{who.user}:{who.password}".encode()).decode("ascii")
            request.headers["Authorization"] = f"Basic {secret}"
        self._client.send_request(request)

    def _check_handshake(self, event: object) -> bool:
        """Continue if the server agreed to exactly the requested sub-protocol. Spec: 2.1 (WS-07)."""
        if not isinstance(event, Response):
            return False
        tokens = event.headers.get_all("Sec-WebSocket-Protocol")
        if tokens != [self._login.token]:
            self._socket.fail(CloseCode.PROTOCOL_ERROR, "not the requested sub-protocol")
            said = " and ".join(map(repr, tokens)) or None
            self._try_other_token(f"answered with the sub-protocol {said}, not {self._login.token}")
        self.is_open = True
        self.send(b"")
        return True

    def _handshake_failed(self, error: Exception) -> NoReturn:
        response = getattr(error, "response", None)
        if not isinstance(response, Response):
            self._try_other_token(f"opened no WebSocket: {error}{perhaps(self._login)}")
        status = response.status_code
        location = response.headers.get("Location")
        if status in MOVED and location:
            raise DetourError(f"{self._login} moved to {shown(location)}", self._moved(location))
        if status == UNAUTHORIZED:
            self._authorize()
        self._try_other_token(f"answered HTTP {status} {response.reason_phrase}, and opened no WebSocket")

    def _try_other_token(self, why: str) -> NoReturn:
        other = OTHER_TOKEN.get(self._login.token) if self._login.binding is WebSocketBinding.LENIENT else None
        if other is None:
            raise ConnectionFailedError(f"{self._login} {why}")
        raise DetourError(f"{self._login} {why}", replace(self._login, token=other))

    def _authorize(self) -> NoReturn:
        """Connect again with user and password over HTTP, which may be those of SASL. Spec: 2.1 (WS-09, WS-10)."""
        if self._login.authorizes or self._login.credentials().user is None:
            raise LoginRefusedError(f"{self._login} refused the login over HTTP")
        raise DetourError(f"{self._login} asks for a login over HTTP", replace(self._login, authorizes=True))

    def _moved(self, location: str) -> AmqpLogin:
        """Return the login for the target of an HTTP redirect, never out of TLS. Spec: 2.1 (WS-08)."""
        host = bracketed(self._login.host_name)
        base = f"{'wss' if self._login.tls else 'ws'}://{host}:{self._login.port}{self._login.path}"
        try:
            parts = urlsplit(urljoin(base, location))
            port = parts.port or NETWORK_SCHEMES[WEB_SCHEMES[parts.scheme]].port
            if not is_plain(location):
                raise ValueError(location)
        except (ValueError, KeyError):
            raise ConnectionFailedError(
                f"{self._login} moved to {shown(location)}, which is not a valid target"
            ) from None
        if (parts.scheme in SECURE) is not (self._login.tls is not None):
            raise ConnectionFailedError(
                f"{self._login} moved to {shown(location)}: a redirect must neither leave nor begin TLS"
            )
        if not self._login.may_go_to(parts.hostname or ""):
            raise ConnectionFailedError(f"{self._login} moved to {shown(location)}, which is not in `redirect_hosts`")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return replace(self._login, host=parts.hostname or "", hostname=None, port=port, path=path)
