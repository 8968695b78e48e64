"""HTTP clients of the page for health and metrics that say anything at all, say half of it, or hang up."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from random import Random
from typing import Final, NamedTuple

from calling_kit import PATIENCE

from fuzz.row import Case, Row
from soapjms.observing import Health
from soapjms.serving.status_page import REQUEST_TIMEOUT, STOP_POLL_SECONDS, Board, StatusPage, health_answers, measuring

BOUND: Final = REQUEST_TIMEOUT + STOP_POLL_SECONDS + 3.0
"""Seconds after which an honest request has its answer, and one that is not whole its end, on a busy machine."""

RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER so that `close` resets the connection."""

HEADERS: Final = {"server", "date", "connection", "content-type", "content-length", "cache-control"}
KNOWN: Final = ("/live", "/ready", "/metrics", "//live", "/live?a=b", "/ready?")
UNKNOWN: Final = (
    "/",
    "/live/",
    "/LIVE",
    "/../live",
    "/%6cive",
    "*",
    "http://x/live",
    "/<script>",
    "/x" * 500,
)
METHODS: Final = ("POST", "PUT", "OPTIONS", "CONNECT", "get", "__init__", "<script>", "X" * 300)
VERSIONS: Final = ("HTTP/1.x", "HTTP/2.0", "HTTP/", "HTTP/1.1.1", "HTTP/-1.0", "HTTP/1." + "9" * 30, "http/1.1", "\xb9")
PIECES: Final = [
    *(b"", b"\0", b"\r\n", b"\n", b"\r", b" ", b"\t", b"\r\n\r\n", b"\xff", b":", b"<script>", b"\x1b[31m", b"%0d%0a"),
    *(b"Expect: 100-continue\r\n", b"Content-Length: 999999999\r\n", b"Connection: keep-alive\r\n", b"X: y\r\n z\r\n"),
    *(b"x: y\r\n" * 300, b"X: " + b"y" * 70_000, b"z" * 70_000, b"GET /live HTTP/1.1\r\n\r\n" * 50),
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
]  # fmt: skip


class Asked(NamedTuple):
    """A request as it goes over the line, and the statuses that are right for it; None where anything may be."""

    octets: bytes
    statuses: frozenset[int] | None


def honest(chance: Random) -> Asked:
    """Make a request that is as HTTP has it."""
    method, path, version, statuses = chance.choice(("GET", "HEAD")), chance.choice(KNOWN), "HTTP/1.1", {200, 503}
    match chance.randrange(5):
        case 0:
            path, statuses = chance.choice(UNKNOWN), {404}
        case 1:
            method, statuses = chance.choice(METHODS), {501}
        case 2:
            version, statuses = chance.choice(VERSIONS), {400, 505}
    lines = [f"{method} {path} {version}", "Host: x", *("X: y" for _ in range(chance.choice((0, 0, 1, 80))))]
    return Asked("\r\n".join([*lines, "", ""]).encode("latin-1"), frozenset(statuses))


def changed(octets: bytes, chance: Random) -> bytes:
    """Change something anywhere."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(octets) + 1)
        octets = octets[:at] + chance.choice(PIECES) + octets[at + chance.choice((0, 0, 1, 10, 1 << 20)) :]
    return octets


def read_answer(octets: bytes, *, is_whole: bool) -> int | None:
    """Take an answer apart and return its status, None where there is none or its head did not come to its end.

    Nothing of the request is in it that a browser or another reader would act on.
    """
    head, found, body = octets.partition(b"\r\n\r\n")
    assert b"<script" not in body, octets
    if not octets or not (found or is_whole):
        return None
    assert octets.startswith(b"HTTP/1.0 "), octets
    line, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    assert line.isprintable(), line
    assert set(fields) <= HEADERS, fields
    assert body in (b"", body[: int(fields["content-length"])]), octets
    assert not is_whole or len(body) in (0, int(fields["content-length"])), octets
    return HTTPStatus(int(line.split(" ")[1])).value


class Hostile:
    """The page, and connections on which a request was begun and not ended, with the time of that."""

    def __init__(self, page: StatusPage, board: Board) -> None:
        self._page = page
        self._board = board
        self._begun: list[tuple[float, socket.socket]] = []

    def make(self, chance: Random) -> Case:
        """Choose what is said, and how that ends."""
        asked = honest(chance)
        if chance.random() < 0.6:
            asked = Asked(changed(asked.octets, chance), None)
        end = chance.choice(("reads",) * 6 + ("hangs up", "resets", "stays"))
        cut = chance.choice((1 << 20, 1 << 20, 1000, 7))
        return Case(len(asked.octets), lambda: self._tell(asked, end, max(cut, len(asked.octets) // 50)))

    def _tell(self, asked: Asked, end: str, cut: int) -> str:
        """Say it; whoever reads to the end gets one answer, which is right."""
        line = socket.create_connection(("127.0.0.1", self._page.port), PATIENCE)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        octets = asked.octets[: len(asked.octets) // 2] if end == "stays" else asked.octets
        is_cut_off = True
        with suppress(ConnectionError):
            for at in range(0, len(octets), cut):
                line.sendall(octets[at : at + cut])
            is_cut_off = False
        if end == "stays":
            self._begun.append((time.monotonic(), line))
            return end
        with line:
            if end == "resets":
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if end != "reads":
                return end
            with suppress(OSError):
                line.shutdown(socket.SHUT_WR)
            answer, is_reset = read_all(line)
        status = read_answer(answer, is_whole=not (is_reset or is_cut_off))
        if asked.statuses is not None and not (is_reset or is_cut_off):
            assert status in asked.statuses, f"{answer!r} for {asked.octets!r}"
        return f"{status}"

    def look(self) -> None:
        """See that an honest client is answered in time, and who stays for long is not."""
        self._board.note(1, Health(live=True, ready=True, problem="", under_way=0, round_trip=0.1))
        for path in ("/live", "/ready", "/metrics"):
            began = time.monotonic()
            client = http.client.HTTPConnection("127.0.0.1", self._page.port, timeout=PATIENCE)
            try:
                client.request("GET", path)
                response = client.getresponse()
                status, told = response.status, response.read()
            finally:
                client.close()
            took = time.monotonic() - began
            assert status == 200, told
            assert took < BOUND, f"an honest client waited for {took:.1f} s"
            assert path == "/metrics" or json.loads(told)["ready"] is True, told
        late = time.monotonic() - BOUND
        for since, line in self._begun:
            if since < late:
                line.settimeout(0.5)  # it has ended: nothing is waited for
                with line:
                    read_all(line)
        self._begun = [each for each in self._begun if each[0] >= late]

    def close(self) -> None:
        """Let go of who stays."""
        for _, line in self._begun:
            line.close()


def read_all(line: socket.socket) -> tuple[bytes, bool]:
    """Read to the end, and say whether that was a reset."""
    found = b""
    try:
        while octets := line.recv(65536):
            found += octets
    except ConnectionError:
        return found, True
    return found, False


@contextmanager
def telling() -> Iterator[Hostile]:
    """Have a page of health and metrics listen."""
    board = Board()
    with (
        measuring(1) as measures,
        StatusPage("127.0.0.1:0", {**health_answers(board), "/metrics": measures.tell}) as page,
    ):
        hostile = Hostile(page, board)
        try:
            yield hostile
        finally:
            hostile.close()


ROW: Final = Row(
    name="page",
    holds="each request has one answer or none, that is well formed, and honest clients have theirs in time",
    opens=telling,
    cases=20_000,
    gate=200,
)
