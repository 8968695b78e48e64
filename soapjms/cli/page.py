"""A page over HTTP for whatever watches a service: health and metrics.

Small on purpose: GET and HEAD of a few paths, so many at a time, so long each. It belongs in a network that is trusted.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any, Final, NamedTuple, Self, TypeAlias

from soapjms.arguments import host_and_port
from soapjms.protocol.errors import UsageError

log = logging.getLogger("soapjms.serve")

LOOK: Final = 0.1
"""Seconds between two looks at whether to end."""

AT_A_TIME: Final = 8
REQUEST_TIMEOUT: Final = 2.0


class Told(NamedTuple):
    """What is told at a path."""

    content_type: str
    body: bytes
    status: HTTPStatus = HTTPStatus.OK


Answer: TypeAlias = Callable[[], Told]


class Page:
    """Listens for HTTP. Usable in a `with` statement.

    Args:
        address: HOST:PORT; port 0 for any that is free, and in `[...]` an IPv6 address.
        answers: what to tell, by path.

    Raises:
        UsageError: the address is none, or cannot be listened at.
    """

    def __init__(self, address: str, answers: Mapping[str, Answer]) -> None:
        host, port = host_and_port(address)
        try:
            self._server = _Server(host, port, answers)
        except OSError as error:
            raise UsageError(f"cannot listen at {address}: {error}") from error
        self._thread = Thread(target=self._server.serve_forever, args=[LOOK], name="soapjms-page", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, answers: Mapping[str, Answer]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answers = answers
        self._free = BoundedSemaphore(AT_A_TIME)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread, if not too many are at it."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a peer that went away, without more."""
        log.debug("a request over HTTP failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT
    server_version = "soapjms"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"there are {' and '.join(self.server.answers)}")
            return
        try:
            told = answer()
        except Exception:
            log.exception("what %s tells could not be found out", self.path)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self.send_response(told.status)
        self.send_header("Content-Type", told.content_type)
        self.send_header("Content-Length", str(len(told.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(told.body)

    do_HEAD = do_GET  # noqa: N815 - the name is the library's

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - likewise
        """Log for who wants to know."""
        log.debug("page: " + format, *args)
