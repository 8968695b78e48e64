"""An HTTP page for monitoring a service: liveness, readiness and metrics.

`/live` and `/ready` answer with JSON, `/metrics` is for Prometheus. Small on purpose: GET and HEAD of a few paths, with
limits on connections and time. It belongs in a trusted network; even so, clients that send or read slowly do not block
others. The metrics are those of what `soapjms serve` serves, in one process or several. `live_report.py` uses the same
server.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from email.message import Message as HeaderFields
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from tempfile import TemporaryDirectory
from threading import Event, Lock
from time import monotonic, sleep
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from brokers.listeners.descriptors import OUT_OF_FILES, bounded
from brokers.listeners.room import ClientShare, Room
from brokers.threads.thread import Thread
from soapjms import events
from soapjms.observing import Health
from soapjms.protocol.content import accepts_gzip
from soapjms.protocol.errors import UsageError
from soapjms.protocol.text import reason_of
from soapjms.validation import host_and_port

STOP_POLL_SECONDS: Final = 0.1
"""Poll interval, in seconds, of the check whether to stop."""

ACCEPT_PAUSE_SECONDS: Final = 0.05
"""Seconds to wait when no connection can be accepted for lack of file descriptors."""

MAX_PAGE_CONNECTIONS: Final = 32
"""Maximum number of connections, half of them from one address; beyond it, the client that idled longest is closed."""

REQUEST_TIMEOUT: Final = 2.0
"""Seconds for a client to send the whole request, and to read each piece of the answer."""

PIECE_OCTETS: Final = 1 << 16
"""Size of the pieces of an answer."""


class StatusResponse(NamedTuple):
    """The answer of a status page at a path.

    Attributes:
        content_type: media type of the body.
        body: the octets of the body, or a generator of pieces, each sent at once, until it ends or the client leaves.
        status: HTTP status, 200 by default.
        headers: further header fields.
        gzipped: the body in gzip, for clients that accept it; None if it is only sent as it is.
    """

    content_type: str
    body: bytes | Generator[bytes]
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = MappingProxyType({})
    gzipped: bytes | None = None

    def encoded(self, accepted: str) -> StatusResponse:
        """Return the answer to a request that has this Accept-Encoding."""
        if self.gzipped is None:
            return self
        headers = {**self.headers, "Vary": "Accept-Encoding"}
        if not accepts_gzip(accepted):
            return self._replace(headers=headers)
        return self._replace(body=self.gzipped, headers={**headers, "Content-Encoding": "gzip"})


Answer: TypeAlias = Callable[[], StatusResponse]


class Refusal(NamedTuple):
    """Why a request is refused: an HTTP status, and a reason of one line."""

    status: HTTPStatus
    reason: str


Guard: TypeAlias = Callable[[str, "HeaderFields[str, str]"], Refusal | None]
"""Takes the query and the header fields of a request, and returns why it is refused, or None."""


def _no_refusal(query: str, headers: HeaderFields[str, str]) -> Refusal | None:
    return None


class StatusPage:
    """Serves answers over HTTP. Usable in a `with` statement.

    Args:
        address: HOST:PORT; port 0 for any free one, an IPv6 address in `[...]`.
        answers: functions that return the answer, by path.
        guard: refuses requests; by default none.

    Raises:
        UsageError: the address is not HOST:PORT, or it is not possible to listen there.
    """

    def __init__(self, address: str, answers: Mapping[str, Answer], guard: Guard = _no_refusal) -> None:
        host, port = host_and_port(address)
        try:
            self._server = _Server(host, port, answers, guard)
        except OSError as error:
            raise UsageError(f"cannot listen at {address}: {reason_of(error)}") from error
        self._thread = Thread(
            target=self._server.serve_forever, args=[STOP_POLL_SECONDS], name="soapjms-page", daemon=True
        )
        self._thread.start()

    @property
    def host(self) -> str:
        """The IP address that it listens at."""
        return str(self._server.server_address[0])

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the library's 5, clients in a crowd would wait for seconds

    def __init__(self, host: str, port: int, answers: Mapping[str, Answer], guard: Guard) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answers = answers
        self.guard = guard
        self.room = Room(bounded(MAX_PAGE_CONNECTIONS, 1, "connections to the page"), "connections to the page")
        self.held: dict[socket.socket, ClientShare] = {}
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread; if there are too many connections, one is closed."""
        self.held[request] = self.room.enter(client_address[0], 1, lambda: _end(request))
        Thread(target=self.process_request_thread, args=(request, client_address), daemon=True).start()

    def shutdown_request(self, request: Any) -> None:
        """Release a connection, whether it was answered or no thread could be started for it."""
        held = self.held.pop(request, None)
        if held is not None:
            self.room.leave(held)
        super().shutdown_request(request)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; without file descriptors, close another one and pause for a moment.

        Raises:
            OSError: no connection could be accepted; the library goes on.
        """
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self.room.shed()
                sleep(ACCEPT_PAUSE_SECONDS)
            raise

    def service_actions(self) -> None:
        """Close connections whose clients have idled for too long; the library calls this at every poll."""
        late = monotonic() - REQUEST_TIMEOUT
        for request, held in list(self.held.items()):
            since = held.since
            if since is not None and since <= late:
                _end(request)

    def server_close(self) -> None:
        """Stop listening, and close all connections."""
        super().server_close()
        for request in list(self.held):
            _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a client that went away, at DEBUG."""
        events.PAGE_REQUEST_FAILED.log()


def _end(request: socket.socket) -> None:
    """Shut a connection down: a thread that waits on it wakes up and finds it closed."""
    with suppress(OSError):  # already closed
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server_version = "soapjms"
    sys_version = ""
    default_request_version = "HTTP/1.0"  # else a request without a valid version is answered without a status
    server: _Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        held = self.server.held[self.connection]
        self.server.room.works(held)
        try:
            told = self._told(path, query)
        except Exception:
            events.PAGE_FAILED.log(path)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        finally:
            self.server.room.waits(held)
        if isinstance(told, Refusal):
            self.send_error(*told)
            return
        self.send_response(told.status)
        self.send_header("Content-Type", told.content_type)
        if isinstance(told.body, bytes):
            self.send_header("Content-Length", str(len(told.body)))
        self.send_header("Cache-Control", "no-store")
        for each in told.headers.items():
            self.send_header(*each)
        self.end_headers()
        if self.command != "HEAD":
            self._send(told.body, held)

    def _told(self, path: str, query: str) -> StatusResponse | Refusal:
        """Return the answer at a path, or why there is none."""
        refusal = self.server.guard(query, self.headers)
        if refusal is not None:
            return refusal
        answer = self.server.answers.get(path)
        if answer is None:
            return Refusal(HTTPStatus.NOT_FOUND, f"the paths here are {' and '.join(self.server.answers)}")
        return answer().encoded(self.headers.get("Accept-Encoding", ""))

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _send(self, body: bytes | Generator[bytes], held: ClientShare) -> None:
        """Send the pieces of a body; the client keeps the server waiting only while it does not read one."""
        with closing(_pieces(body) if isinstance(body, bytes) else body) as pieces:
            for piece in pieces:
                self.server.room.waits(held)
                self.wfile.write(piece)
                self.server.room.works(held)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - likewise
        """Log at DEBUG, without the query, which may have a token."""
        events.PAGE_REQUEST.log(QUERY.sub("?…", format % args))


QUERY: Final = re.compile(r"\?\S*")


def _pieces(body: bytes) -> Generator[bytes]:
    for start in range(0, len(body), PIECE_OCTETS):
        yield body[start : start + PIECE_OCTETS]


DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that tells prometheus-client, on import, to keep its values in files that all processes share."""


class MeasurementSource(NamedTuple):
    """The measurements of all processes.

    Attributes:
        tell: returns the answer for Prometheus.
        forget: to be called with the id of a process that has ended.
    """

    tell: Answer
    forget: Callable[[int], None]


@contextmanager
def measuring(processes: int, hung: Callable[[], Collection[int]] = tuple) -> Iterator[MeasurementSource]:
    """Let processes that are started in the `with` statement measure, or this one if there is only one.

    Args:
        processes: the number of processes.
        hung: returns the ids of processes that hang, whose gauges are left out.

    Raises:
        UsageError: the library is not installed.
    """
    if processes == 1:
        prometheus = library("soapjms.prometheus")
        yield MeasurementSource(lambda: StatusResponse(*prometheus.exposition()), lambda pid: None)
        return
    with TemporaryDirectory(prefix="soapjms-metrics-") as directory:
        before = os.environ.get(DIRECTORY)
        os.environ[DIRECTORY] = directory
        try:
            prometheus = library("soapjms.prometheus")
            yield MeasurementSource(
                lambda: StatusResponse(*prometheus.exposition_of(directory, hung())),
                lambda pid: prometheus.forget(pid, directory),
            )
        finally:
            if before is None:
                del os.environ[DIRECTORY]
            else:
                os.environ[DIRECTORY] = before


def library(module: str) -> ModuleType:
    """Import a module of ours that needs an extra. Prometheus's reads PROMETHEUS_MULTIPROC_DIR at that time.

    Raises:
        UsageError: the extra is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(str(error)) from None


STALE_SECONDS: Final = 15.0
"""Seconds without a report after which a running process counts as hung."""

START_TIMEOUT: Final = 120.0
"""Seconds that a process has for its first report: before it, it imports the module, connects and subscribes."""

NOTHING_KNOWN: Final = Health(live=False, ready=False, problem="", under_way=0, round_trip=None)

ENDING: Final = "it is ending: what is under way is finished, and nothing else is taken"
HUNG: Final = "the process has not reported for {:.0f} s: it hangs"


class Board:
    """The latest health reports of the processes. Thread-safe.

    Args:
        start_timeout: seconds after which a started process that has neither reported nor ended counts as hung.
        stop: set when serving is to end. From then on nothing is ready, and nothing counts as hung, as a process that
            finishes its requests does not report any more. None if that is not known.
    """

    def __init__(self, start_timeout: float = START_TIMEOUT, stop: Event | None = None) -> None:
        self._start_timeout = start_timeout
        self._stop = stop or Event()
        self._lock = Lock()
        self._reports: dict[int, tuple[float, Health]] = {}
        self._starting: dict[int, float] = {}
        self._problem = ""

    def started(self, pid: int) -> None:
        """Note that a process was started, which should report."""
        with self._lock:
            self._starting[pid] = time.monotonic()

    def note(self, pid: int, health: Health) -> None:
        """Note a report."""
        with self._lock:
            self._reports[pid] = time.monotonic(), health
            self._starting.pop(pid, None)

    def forget(self, pid: int, problem: str = "") -> None:
        """Forget a process that has ended; `problem` says why, and is shown while there is no other process."""
        with self._lock:
            self._problem = problem
            self._reports.pop(pid, None)
            self._starting.pop(pid, None)

    def hung(self) -> dict[int, str]:
        """Return the problem of each process that hangs, by process id."""
        return {each.pid: each.health.problem for each in self._seen() if each.hangs}

    def members(self) -> dict[str, Any]:
        """Return the JSON form.

        The service is ready if one process is. It is live if one process is, or there is none, as one is started then;
        but not if any process hangs, since that process does no work and is not replaced as long as it does not end.
        """
        seen = self._seen()
        return {
            "live": not any(each.hangs for each in seen) and (not seen or any(each.health.live for each in seen)),
            "ready": any(each.health.ready for each in seen),
            "problem": "" if seen else self._problem,
            "processes": [{"pid": each.pid, **asdict(each.health), "age": round(each.age, 3)} for each in seen],
        }

    def _seen(self) -> list[_Seen]:
        """List the processes that reported, and those that should have."""
        now = time.monotonic()
        with self._lock:
            reports = [(pid, now - at, health) for pid, (at, health) in self._reports.items()]
            silent = [(pid, now - at) for pid, at in self._starting.items() if now - at >= self._start_timeout]
        if self._stop.is_set():
            return [
                _Seen(pid, age, replace(known, ready=False, problem=known.problem or ENDING), False)
                for pid, age, known in reports
            ]
        known = [
            _Seen(pid, age, health if age < STALE_SECONDS else _hung(age, health), age >= STALE_SECONDS)
            for pid, age, health in reports
        ]
        return known + [_Seen(pid, age, _hung(age, NOTHING_KNOWN), True) for pid, age in silent]


class _Seen(NamedTuple):
    """The health of a process, and the seconds since it reported, or was started."""

    pid: int
    age: float
    health: Health
    hangs: bool


def _hung(age: float, known: Health) -> Health:
    """Return the health of a process that has hung for `age` seconds."""
    return replace(known, live=False, ready=False, problem=HUNG.format(age))


def health_answers(board: Board) -> Mapping[str, Answer]:
    """Return the answers about health by path."""
    return {f"/{what}": partial(_tell, board, what) for what in ("live", "ready")}


def _tell(board: Board, what: str) -> StatusResponse:
    members = board.members()
    status = HTTPStatus.OK if members[what] else HTTPStatus.SERVICE_UNAVAILABLE
    return StatusResponse("application/json", json.dumps(members).encode(), status)
