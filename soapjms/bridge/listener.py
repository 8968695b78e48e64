"""An HTTP listener: uvicorn on its own thread, for a program whose main thread waits for signals.

It adds what uvicorn lacks: limits for connections, in all and for each address; timeouts for heads, unread answers and
TLS handshakes; and refusal of heads that a proxy might read differently.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from struct import pack
from types import TracebackType
from typing import Any, Final, Self
from weakref import ref

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as _error:
    raise ImportError(f"soapjms.bridge.listener needs uvicorn ({_error}): pip install 'soapjms[bridge]'") from _error

import h11

from brokers.arguments import at_least_one, finite, not_negative
from brokers.listeners.descriptors import bounded
from brokers.listeners.handshakes import Handshakes
from brokers.listeners.reach import check_reach
from brokers.listeners.room import ClientShare, Room
from brokers.threads.thread import Thread
from brokers.tls import TlsFileError, server_context
from soapjms import events
from soapjms.bridge.limits import MAX_CONNECTIONS
from soapjms.bridge.pace import END, PIECE_OCTETS, PIECE_TIMEOUT
from soapjms.bridge.strict_http import MAX_HEAD_OCTETS, StrictConnection
from soapjms.protocol.errors import UsageError
from soapjms.protocol.text import reason_of, with_article
from soapjms.validation import host_and_port

ACCEPT_BACKLOG: Final = 128
"""Maximum number of connections that wait to be accepted."""

OPEN: Final = "or any address with --open (is_open=True), as behind a proxy that asks for a login"

JOIN_TIMEOUT: Final = 5.0

_AT_ONCE: Final = pack("ii", 1, 0)
"""Value of SO_LINGER with which the system drops unsent octets at once."""


READ_OCTETS: Final = 8 * 1024
"""Octets of one client that are read before others have their turn: many small chunks take long."""

UNREAD: Final = (h11.SEND_BODY, h11.ERROR)
"""States of a client that may still send octets that have not been read."""

MAX_PROBLEM_CHARACTERS: Final = 500
"""Maximum length of the reason for refusing a malformed request, in characters."""

_BYTEARRAY: Final = re.compile(r"bytearray\((b(['\"]).*?\2)\)", re.DOTALL)


class LingeringTransport:
    """A transport that lingers: if the client still sends, it is closed only after the client has read the answer.

    If it were closed at once, with octets of the client unread, the system would reset the connection, and the client
    would lose the answer. So the transport sends EOF, and drops what it receives until the client closes its side or a
    timeout ends the connection.

    Args:
        transport: the transport to wrap.
        is_unread: returns whether the client still sends.

    Attributes:
        is_lingering: whether it is closed except for the lingering.
    """

    def __init__(self, transport: asyncio.Transport, is_unread: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_unread = is_unread
        self._is_held = self._is_paused = False
        self.is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again, unless what came before is still held."""
        self._is_paused = False
        if not self._is_held:
            self._transport.resume_reading()

    def hold(self, is_held: bool) -> None:
        """Receive nothing more as long as octets that came before are held."""
        self._is_held = is_held
        if is_held:
            self._transport.pause_reading()
        elif not self._is_paused:
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        """Say whether nothing more may be written."""
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close, now or once the client has closed; a second call closes now."""
        if self._transport.is_closing():  # a TLS transport that is closed twice cannot be aborted any more
            return
        if self.is_lingering or not self._is_unread():
            self._transport.close()
            return
        self.is_lingering = True
        if self._transport.can_write_eof():  # not with TLS; there the client knows the length of the answer
            self._transport.write_eof()
        self._transport.resume_reading()


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that ends a connection whose client keeps it waiting too long; uvicorn itself waits forever.

    The application waits for the body of a request, and answers if the body does not arrive.
    """

    def __init__(self, *, room: Room, timeout: float, **given: Any) -> None:
        super().__init__(**given)
        self.conn: StrictConnection = StrictConnection(h11.SERVER, MAX_HEAD_OCTETS)
        self.app_state = {**self.app_state, END: partial(_end, ref(self))}
        self._room, self._timeout = room, timeout
        self._held: ClientShare | None = None
        self._look_later: asyncio.TimerHandle | None = None
        self._received = 0
        self._unsent = 0
        self._unread = b""

    # The life of a connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; another connection may be ended to make room."""
        self._closing = LingeringTransport(transport, lambda: self.conn.their_state in UNREAD)
        super().connection_made(self._closing)  # type: ignore[arg-type] # it has all attributes of a transport
        self._look_later = self.loop.call_later(self._timeout, self._look)
        self._held = self._room.enter(self.client[0] if self.client else "", 1, self.end)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unread = b""
        if self._look_later is not None:
            self._look_later.cancel()
        if self._held is not None:
            self._room.leave(self._held)
        super().connection_lost(exc)

    def end(self) -> None:
        """End the connection at once; unsent octets are dropped."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # so that uvicorn does not complain about an incomplete answer
        if self.transport.get_write_buffer_size():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    # Waiting for the client

    def data_received(self, data: bytes) -> None:
        """Read; octets after a refused request are dropped."""
        is_reading, self._unread = bool(self._unread), self._unread + data
        if not is_reading:
            self._read_on()

    def _read_on(self) -> None:
        """Read some of the octets that have come, and the rest once the loop has served others."""
        if not self._closing.is_closing():
            octets, self._unread = self._unread[:READ_OCTETS], self._unread[READ_OCTETS:]
            self._received += len(octets)
            if self._received >= PIECE_OCTETS and not self.flow.write_paused:
                self._begin()
            super().data_received(octets)
            self._note()
        if self._closing.is_closing():
            self._unread = b""
        if self._unread:
            self.loop.call_soon(self._read_on)
        self._closing.hold(bool(self._unread))

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._begin()
        super().on_response_complete()
        self._note()

    def pause_writing(self) -> None:
        """Wait until the client takes what was written."""
        super().pause_writing()
        self._begin()
        self._note()

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        self._begin()
        self._note()

    def _begin(self) -> None:
        """Reset the client's time, which starts again when it next keeps the connection waiting."""
        self._received = 0
        if self._held is not None:
            self._room.works(self._held)

    def _note(self) -> None:
        assert self._held is not None
        cycle = self.cycle
        if not (cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused):
            self._room.works(self._held)
        elif self._held.since is None:
            self._room.waits(self._held)
            self._unsent = self.transport.get_write_buffer_size()

    def _look(self) -> None:
        """End the connection if the client has kept it waiting for too long."""
        assert self._held is not None
        now = self.loop.time()
        if self.flow.write_paused:
            unsent = self.transport.get_write_buffer_size()
            if unsent <= self._unsent - PIECE_OCTETS:
                self._unsent = unsent
                self._room.waits(self._held)
        cycle = self.cycle
        is_uploading = cycle is not None and cycle.more_body and not cycle.response_complete
        is_uploading = is_uploading and not self._closing.is_lingering
        since = now if self._held.since is None or is_uploading else self._held.since
        if since + self._timeout <= now:
            self.end()
            return
        self._look_later = self.loop.call_later(since + self._timeout - now, self._look)

    # Malformed requests

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request, and say why.

        Spec: RFC 9112 6.3: the connection is closed then.
        """
        problem = self.conn.problem
        text = _BYTEARRAY.sub(r"\1", f"{problem or msg}")[:MAX_PROBLEM_CHARACTERS]
        events.BRIDGE_REQUEST_MALFORMED.log(text)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = HTTPStatus(problem.error_status_hint if problem is not None else HTTPStatus.BAD_REQUEST)
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=status.phrase),
                h11.Data(data=f"{text}\n".encode("ascii", "backslashreplace")),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def _end(protocol: ref[PatientProtocol]) -> None:
    """End a connection if it still exists; this function's reference does not keep it alive."""
    found = protocol()
    if found is not None:
        found.end()


def _protocols(tls: ssl.SSLContext | None, room: Room, timeout: float) -> Callable[..., asyncio.Protocol]:
    """Return the factory with which uvicorn makes the protocol of each connection."""
    handshakes = Handshakes(room, timeout)

    def protocol(**given: Any) -> asyncio.Protocol:
        http = PatientProtocol(room=room, timeout=timeout, **given)
        return http if tls is None else handshakes.before(http, tls)

    return protocol


class Listener:
    """Serves an ASGI application over HTTP/1.1. A `with` statement starts and stops it.

    If there are too many connections, the one whose client has kept the listener waiting longest ends.

    Args:
        app: the application.
        address: HOST:PORT; 0 for any free port, `[HOST]:PORT` for an IPv6 address.
        grace: seconds for requests under way to end in when the listener stops.
        certificate: a PEM file for TLS, with the chain; None for plain HTTP.
        key: the file of its private key, if that is not in `certificate`.
        is_open: whether to accept addresses that other machines reach. The listener never asks for a login: that is
            left to the application, or to a proxy in front of it.
        max_connections: maximum number of concurrent connections; one address may have half of them.
        client_timeout: seconds that a client has for a TLS handshake, for the head of a request, and to take each
            64 KiB of an answer; after them its connection ends.

    Raises:
        UsageError: an argument is invalid, the address cannot be listened at, or other machines reach it without
            `is_open`, or a file for TLS cannot be used.
    """

    def __init__(
        self,
        app: Any,
        address: str,
        *,
        grace: float = 30.0,
        certificate: str | None = None,
        key: str | None = None,
        is_open: bool = False,
        max_connections: int = MAX_CONNECTIONS,
        client_timeout: float = PIECE_TIMEOUT,
    ) -> None:
        if key is not None and certificate is None:
            raise UsageError(f"key must come with its certificate, got the key {key} alone")
        room = Room(bounded(at_least_one(max_connections, "max_connections"), 1, "connections"), "connections")
        tls = None if certificate is None else _tls(certificate, key)
        if not callable(app):
            raise UsageError(f"app must be an ASGI application, such as an HttpBridge, got {with_article(type(app))}")
        protocol: Any = _protocols(tls, room, finite(client_timeout, "client_timeout"))
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",  # `soapjms.bridge` logs the faults of clients itself, as INFO
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPT_BACKLOG,
            timeout_graceful_shutdown=max(1, round(not_negative(grace, "grace"))),
        )
        config.load()
        self._scheme = "http" if tls is None else "https"
        self._socket = _bound(address, is_open=is_open)
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._run, name="soapjms-http", daemon=True)
        self._grace = grace

    @property
    def port(self) -> int:
        """The port at which it listens."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its URL on this machine, without a slash at its end."""
        host, port = self._socket.getsockname()[:2]
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def is_running(self) -> bool:
        """Whether it serves, or is about to."""
        return self._thread.is_alive()

    def start(self) -> Self:
        """Begin to serve; clients that connect before it is ready wait a moment.

        Raises:
            UsageError: the listener was started before.
        """
        if self._thread.ident is not None:
            raise UsageError("a listener must be started only once; make a new one")
        self._thread.start()
        return self

    def stop(self) -> bool:
        """Stop taking requests, and wait for those under way; return whether all ended in time."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(self._grace + JOIN_TIMEOUT)
        self._socket.close()
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._server.run([self._socket])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _tls(certificate: str, key: str | None) -> ssl.SSLContext:
    try:
        return server_context(certificate, key)
    except TlsFileError as error:
        raise UsageError(f"TLS cannot be set up: {error}") from error


def _bound(address: str, *, is_open: bool) -> socket.socket:
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=ACCEPT_BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot listen at {address}: {reason_of(error)}") from error
    try:
        if not is_open:
            check_reach(made, OPEN)
    except ValueError as error:
        raise UsageError(f"cannot listen at {address}: {reason_of(error)}") from error
    return made
