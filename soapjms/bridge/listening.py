"""Listening for HTTP: uvicorn on a thread of its own, for a program whose main thread waits for signals."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as _error:
    raise ImportError(f"soapjms.bridge.listening needs uvicorn ({_error}): pip install 'soapjms[bridge]'") from _error

from brokers.files import check_files
from soapjms.arguments import host_and_port
from soapjms.protocol.errors import UsageError

MAX_CONNECTIONS: Final = 1000
"""Connections at a time; a request on one more gets 503."""

HEAD_TIMEOUT: Final = 30.0
"""Seconds in which the head of a request has to be there. The body has a time of its own."""

JOIN_TIMEOUT: Final = 5.0


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that ends a connection on which no request comes together; uvicorn itself waits for ever."""

    _seen: Any = None
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look."""
        super().connection_made(transport)
        self._look = self.loop.call_later(HEAD_TIMEOUT, self._is_patient)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _is_patient(self) -> None:
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.cycle is self._seen:
            self.transport.close()
            return
        self._seen = self.cycle
        self._look = self.loop.call_later(HEAD_TIMEOUT, self._is_patient)


class Listener:
    """Serves an ASGI application over HTTP/1.1. A `with` statement starts and stops it.

    Args:
        app: the application.
        address: HOST:PORT; port 0 for any that is free, and in `[...]` an IPv6 address.
        grace: seconds that requests under way have to end in when it is stopped.
        certificate: a PEM file for TLS, with the chain; None for HTTP in the clear.
        key: its private key, if that is another file.

    Raises:
        UsageError: the address is none, or cannot be listened at; a file for TLS cannot be used.
    """

    def __init__(
        self, app: Any, address: str, *, grace: float = 30.0, certificate: str | None = None, key: str | None = None
    ) -> None:
        if key is not None and certificate is None:
            raise UsageError(f"TLS cannot be set up with the key {key} alone; give its certificate too")
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=max(1, round(grace)),
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        try:
            check_files(certificate, key)
            config.load()
        except OSError as error:  # what ssl raises is one
            raise UsageError(f"TLS cannot be set up with {certificate}: {error}") from error
        self._scheme = "http" if certificate is None else "https"
        self._socket = _bound(address)
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._run, name="soapjms-http", daemon=True)
        self._grace = grace

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """How it is reached from this machine, without a slash at its end."""
        host, port = self._socket.getsockname()[:2]
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def is_running(self) -> bool:
        """It serves, or is about to."""
        return self._thread.is_alive()

    def start(self) -> Self:
        """Begin to serve; who connects at once waits a moment."""
        self._thread.start()
        return self

    def stop(self) -> bool:
        """Take no more requests, and wait for those under way; return whether all ended in time."""
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


def _bound(address: str) -> socket.socket:
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(f"cannot listen at {address}: {error}") from error
