"""Liveness and readiness over HTTP, for whatever watches a service: `/live` and `/ready`, each with JSON.

Small on purpose: GET and HEAD of two paths, so many at a time, so long each. It belongs in a network that is trusted.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, Final, Self

from soapjms.health import Health
from soapjms.protocol.errors import UsageError

log = logging.getLogger("soapjms.serve")

STALE: Final = 15.0
"""Seconds after which a report says nothing any more."""

LOOK: Final = 0.1
"""Seconds between two looks at whether to end."""

AT_A_TIME: Final = 8
REQUEST_TIMEOUT: Final = 2.0


class Board:
    """How the processes are, as they reported last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reports: dict[int, tuple[float, Health]] = {}
        self._changed = time.monotonic()

    def note(self, pid: int, health: Health) -> None:
        """Take a report."""
        with self._lock:
            self._changed = time.monotonic()
            self._reports[pid] = self._changed, health

    def forget(self, pid: int) -> None:
        """Forget a process that has ended."""
        with self._lock:
            self._reports.pop(pid, None)

    def members(self) -> dict[str, Any]:
        """Return the JSON form.

        Ready is who has a process that is. Live is who has a process that is, or may be starting one: after some
        seconds without any report it is not.
        """
        now = time.monotonic()
        with self._lock:
            fresh = {pid: each for pid, each in self._reports.items() if now - each[0] < STALE}
            may_start = not fresh and now - self._changed < STALE
        processes = [{"pid": pid, **asdict(health), "age": round(now - at, 3)} for pid, (at, health) in fresh.items()]
        return {
            "live": may_start or any(each["live"] for each in processes),
            "ready": any(each["ready"] for each in processes),
            "processes": processes,
        }


class HealthPage:
    """Listens for HTTP. Usable in a `with` statement.

    Args:
        address: HOST:PORT; port 0 for any that is free, and in `[...]` an IPv6 address.
        board: what to tell.

    Raises:
        UsageError: the address is none, or cannot be listened at.
    """

    def __init__(self, address: str, board: Board) -> None:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise UsageError(f"{address!r} is not HOST:PORT, such as 127.0.0.1:8080")
        try:
            self._server = _Server(host.strip("[]"), int(port), board)
        except OSError as error:
            raise UsageError(f"cannot listen at {address}: {error}") from error
        self._thread = Thread(target=self._server.serve_forever, args=[LOOK], name="soapjms-health", daemon=True)
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

    def __init__(self, host: str, port: int, board: Board) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.board = board
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
        log.debug("a request for health failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT
    server_version = "soapjms"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        members = self.server.board.members()
        found = {"/live": "live", "/ready": "ready"}.get(self.path.partition("?")[0])
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND, "there are /live and /ready")
            return
        body = json.dumps(members).encode()
        self.send_response(HTTPStatus.OK if members[found] else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name is the library's

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - likewise
        """Log for who wants to know."""
        log.debug("health: " + format, *args)
