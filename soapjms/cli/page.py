"""A page over HTTP for whatever watches a service: health and metrics.

Small on purpose: GET and HEAD of a few paths, so many at a time, so long each. It belongs in a network that is trusted;
clients that say little, or take nothing, keep the others from nothing all the same.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, Self, TypeAlias

from brokers.descriptors import OUT_OF_FILES, bounded
from brokers.room import Held, Room
from brokers.threads import Thread
from soapjms.arguments import host_and_port
from soapjms.protocol.errors import UsageError

log = logging.getLogger("soapjms.serve")

LOOK: Final = 0.1
"""Seconds between two looks at whether to end."""

PAUSE: Final = 0.05
"""Seconds to wait where nobody could be taken, for want of files."""

AT_A_TIME: Final = 32
"""Connections, half of them from one address; when there are more the one ends that has kept us waiting longest."""

REQUEST_TIMEOUT: Final = 2.0
"""Seconds for the whole of a request, and for the whole of its answer to be taken."""


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
    request_queue_size = 128  # with the few of the library whoever comes in a crowd waits for seconds

    def __init__(self, host: str, port: int, answers: Mapping[str, Answer]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answers = answers
        self.room = Room(bounded(AT_A_TIME, 1, "connections to the page"), "connections to the page")
        self.held: dict[socket.socket, Held] = {}
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread; where too many are at it, somebody has to go."""
        self.held[request] = self.room.enter(client_address[0], 1, lambda: _end(request))
        Thread(target=self.process_request_thread, args=(request, client_address), daemon=True).start()

    def shutdown_request(self, request: Any) -> None:
        """Hold it no longer; that goes for those that were answered, and for those there was no thread for."""
        held = self.held.pop(request, None)
        if held is not None:
            self.room.leave(held)
        super().shutdown_request(request)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take who connects; where there are no more files for that, somebody has to go, and the rest a moment's rest.

        Raises:
            OSError: nobody could be taken; the library goes on.
        """
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self.room.shed()
                sleep(PAUSE)
            raise

    def service_actions(self) -> None:
        """End those whose clients have kept us waiting for too long; the library calls it at every look."""
        late = monotonic() - REQUEST_TIMEOUT
        for request, held in list(self.held.items()):
            since = held.since
            if since is not None and since <= late:
                _end(request)

    def server_close(self) -> None:
        """Listen no more, and end those that are there."""
        super().server_close()
        for request in list(self.held):
            _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a peer that went away, without more."""
        log.debug("a request over HTTP failed", exc_info=True)


def _end(request: socket.socket) -> None:
    """End a connection: the thread that waits at it goes on, and finds it closed."""
    with suppress(OSError):  # it has ended meanwhile
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server_version = "soapjms"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"there are {' and '.join(self.server.answers)}")
            return
        held = self.server.held[self.connection]
        self.server.room.works(held)
        try:
            told = answer()
        except Exception:
            log.exception("what %s tells could not be found out", self.path)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        finally:
            self.server.room.waits(held)
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
