"""The HTTP bridge, and the page for health and metrics, under attack by whoever reaches their ports."""

from __future__ import annotations

import gc
import re
import select
import socket
import ssl
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import trustme
from bridge_kit import ask, listening
from calling_kit import NS, PATIENCE, element, envelope, eventually, greeter
from lxml import etree

import soapjms
from brokers import Connection
from brokers.embedded import Broker
from soapjms import Dispatcher
from soapjms.bridge.pace import PIECE_OCTETS
from soapjms.bridge.strict_http import MAX_HEAD_OCTETS
from soapjms.serving import StatusPage, StatusResponse
from soapjms.serving.status_page import MAX_PAGE_CONNECTIONS

URI: Final = "jms:queue:greeter"
MIB: Final = 1 << 20
HEAD: Final = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/xml\r\n"
HALF: Final = HEAD + b"Content-Length: 100000\r\n\r\n<"
POST: Final = HEAD + b"Content-Length: %d\r\n\r\n" % len(envelope()) + envelope()
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(envelope()), envelope())


@pytest.fixture
def connection() -> Iterator[Connection]:
    """A connection to a broker of the test's own."""
    with Broker().connect() as made:
        yield made


@pytest.fixture
def served(connection: Connection) -> Iterator[Dispatcher]:
    """The greeter, which also says something very long."""
    service = greeter()

    @service.operation(f"{{{NS}}}much")
    def much(request: soapjms.Request) -> etree._Element:
        return element("muchResponse", "x" * int(request.element.text or ""))

    with Dispatcher(connection, URI, service, workers=4) as dispatcher:
        yield dispatcher


def line_to(port: int, receiving: int = 0) -> socket.socket:
    """Connect, to say whatever one likes; with a small buffer to receive in, if one is given."""
    line = socket.socket()
    line.settimeout(PATIENCE)
    if receiving:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receiving)
    line.connect(("127.0.0.1", port))
    return line


def until_end(line: socket.socket) -> bytes:
    """Read until the peer ends."""
    came = bytearray()
    try:
        while octets := line.recv(1 << 16):
            came += octets
    except ConnectionResetError:
        pass
    return bytes(came)


def post_for(octets: int) -> bytes:
    """Write the post that is answered with so many octets."""
    asked = envelope(f"{octets}", operation="much")
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(asked) + asked


# M4: who does not read


@pytest.mark.usefixtures("served")
def test_who_does_not_read_an_answer_is_ended(connection: Connection) -> None:
    """After a while, and what was held for it is given back; until then it counts as under way."""
    with listening(connection, URI, write_timeout=4.0, client_timeout=4.0) as (bridge, listener), ExitStack() as stack:
        lines = [stack.enter_context(line_to(listener.port, 4096)) for _ in range(3)]
        tracemalloc.start()
        gc.disable()  # it may be long in coming
        try:
            for line in lines:
                line.sendall(post_for(15 * MIB))
            eventually(lambda: bridge._pace.answers.count == 3, "all are written to")
            assert tracemalloc.get_traced_memory()[0] > 45 * MIB
            assert bridge.under_way >= 3
            eventually(lambda: bridge.under_way == 0, "all are given up")
            assert ask(listener, envelope()).status == 200  # of the last message the broker in memory lets go only now
            eventually(lambda: tracemalloc.get_traced_memory()[0] < 5 * MIB, "memory is given back")
        finally:
            gc.enable()
            tracemalloc.stop()
        assert all(len(until_end(line)) < 15 * MIB for line in lines)


@pytest.mark.usefixtures("served")
def test_who_reads_slowly_but_does_read_gets_all(connection: Connection) -> None:
    """The time is for each 64 KiB, not for the whole."""
    options = {"write_timeout": 1.0, "client_timeout": 1.0}
    with listening(connection, URI, **options) as (_, listener), line_to(listener.port, 4096) as line:
        line.sendall(post_for(12 * MIB))
        came, started = 0, time.monotonic()
        while came < 12 * MIB:
            octets = line.recv(1 << 16)
            assert octets
            came += len(octets)
            time.sleep(max(0.0, came / (4 * MIB) - (time.monotonic() - started)))  # all of it within three seconds
        assert time.monotonic() - started > 2


@pytest.mark.usefixtures("served")
def test_answers_that_nobody_takes_have_a_limit(connection: Connection) -> None:
    """Beyond it those go that were waited for longest, not the next one; and it takes no more memory than that."""
    with listening(connection, URI, max_held=8 * MIB) as (bridge, listener), ExitStack() as stack:
        lines = [stack.enter_context(line_to(listener.port, 4096)) for _ in range(12)]
        for line in lines:
            line.sendall(post_for(2 * MIB))
        eventually(lambda: bridge._calls == 0 and bridge.under_way <= 4, "all were answered, few are held")
        assert ask(listener, envelope(f"{2 * MIB}", operation="much")).status == 200


@pytest.mark.usefixtures("served")
def test_answers_that_nobody_takes_are_no_calls(connection: Connection) -> None:
    """They use up none of the calls that may be under way."""
    with listening(connection, URI, max_calls=1) as (bridge, listener), ExitStack() as stack:
        for number in range(3):
            stack.enter_context(line_to(listener.port, 4096)).sendall(post_for(8 * MIB))
            eventually(lambda number=number: bridge._pace.answers.count == number + 1, "it is written to")
        assert ask(listener, envelope()).status == 200
        eventually(lambda: bridge.under_way == 3, "they are still held")


@pytest.mark.usefixtures("served")
def test_requests_in_advance_keep_nobody_alive(connection: Connection) -> None:
    """Who takes no answer is ended, whatever more it sends meanwhile."""
    with listening(connection, URI, client_timeout=1.0) as (bridge, listener), line_to(listener.port, 4096) as line:
        line.settimeout(0.1)
        line.sendall(post_for(15 * MIB))
        eventually(lambda: bridge.under_way == 1, "it is written to")

        def send_on() -> bool:
            try:
                line.send(POST * 100)
            except TimeoutError:
                pass
            except OSError:
                return True
            return False

        eventually(send_on, "it is ended")


# M5: who does not finish a request


@pytest.mark.usefixtures("served")
def test_unfinished_uploads_are_no_calls(connection: Connection) -> None:
    """More half posts than calls may be under way; others are answered as ever."""
    with listening(connection, URI, max_calls=2) as (bridge, listener), ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(line_to(listener.port)).sendall(HALF)
        eventually(lambda: bridge._pace.requests.count == 64, "all wait for the rest")
        assert bridge.under_way == 0
        assert [ask(listener, envelope()).status for _ in range(10)] == [200] * 10


@pytest.mark.parametrize("said", [b"", b"POST / HT", HEAD, HALF], ids=["nothing", "a word", "a head", "half a body"])
@pytest.mark.usefixtures("served")
def test_those_who_say_little_make_room(connection: Connection, said: bytes) -> None:
    """There may be more of them than connections: the first end, and everybody else gets in."""
    with listening(connection, URI, max_connections=20) as (_, listener), ExitStack() as stack:
        lines = [stack.enter_context(line_to(listener.port)) for _ in range(60)]
        for line in lines:
            with suppress(OSError):  # it is one of those that ended
                line.sendall(said)
        assert [ask(listener, envelope()).status for _ in range(10)] == [200] * 10
        assert all(not until_end(line) for line in lines[:40])


@pytest.mark.usefixtures("served")
def test_one_address_has_half_of_the_room(connection: Connection) -> None:
    """Those of other addresses stay, once the first of a crowd had a second to say something."""
    with listening(connection, URI, max_connections=20) as (_, listener), ExitStack() as stack:
        other = stack.enter_context(socket.create_connection(("127.0.0.1", listener.port), PATIENCE, ("127.0.0.2", 0)))
        other.sendall(HALF)
        first = stack.enter_context(line_to(listener.port))
        for _ in range(9):
            stack.enter_context(line_to(listener.port))
        time.sleep(1.2)  # the grace
        stack.enter_context(line_to(listener.port))
        assert until_end(first) == b""
        for _ in range(40):
            stack.enter_context(line_to(listener.port))
        other.settimeout(0.2)
        with pytest.raises(TimeoutError):
            other.recv(1)


@pytest.mark.usefixtures("served")
def test_who_drips_is_ended(connection: Connection) -> None:
    """A head, a body: the time is for the whole head, and for every 64 KiB of a body, not for each octet."""
    with (
        listening(connection, URI, client_timeout=1.0, read_timeout=1.0) as (_, listener),
        line_to(listener.port) as head,
        line_to(listener.port) as body,
    ):
        body.sendall(HALF)
        started = time.monotonic()
        answer = b""
        ended = {head: False, body: False}

        def drip() -> bool:
            nonlocal answer
            for line in (each for each, is_over in ended.items() if not is_over):
                try:
                    line.send(b"P")
                    line.settimeout(0.05)
                    octets = line.recv(1000)
                    answer += octets
                    ended[line] = not octets
                except TimeoutError:
                    pass
                except OSError:
                    ended[line] = True
            return all(ended.values())

        eventually(drip, "both are ended")
        assert time.monotonic() - started < 20
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"nor the rest of it came within 1 s" in answer


@pytest.mark.usefixtures("served")
def test_who_uploads_slowly_gets_through(connection: Connection) -> None:
    """A body may take longer than the time for each 64 KiB of it."""
    with (
        listening(connection, URI, client_timeout=1.0, read_timeout=1.0) as (_, listener),
        line_to(listener.port) as line,
    ):
        asked = envelope("x" * (4 * PIECE_OCTETS))
        line.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(asked))
        for start in range(0, len(asked), PIECE_OCTETS):
            line.sendall(asked[start : start + PIECE_OCTETS])
            time.sleep(0.4)
        assert line.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("served")
def test_unfinished_uploads_have_a_limit(connection: Connection) -> None:
    """Octets of all of them together: who was waited for longest is told that there is no room."""
    with listening(connection, URI, max_held=4 * MIB) as (bridge, listener), ExitStack() as stack:
        lines = [stack.enter_context(line_to(listener.port)) for _ in range(8)]
        for line in lines:
            with suppress(ConnectionError):  # one may be told before all of it is sent
                line.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (2 * MIB) + b"x" * MIB)
        told, _, _ = select.select(lines, [], [], PATIENCE)
        answer = until_end(told[0])
        assert answer == b"" or answer.startswith(b"HTTP/1.1 503 ")  # a reset, for what was not read, may overtake it
        assert answer == b"" or b"incomplete requests take up all 4194304 octets" in answer
        eventually(lambda: bridge._pace.requests.count <= 4, "few are held")

        def is_served() -> bool:
            with suppress(ConnectionError):
                return ask(listener, envelope("x" * MIB)).status == 200
            return False

        eventually(is_served, "others are served")  # at first it may be them who are told to try again


def test_tls_handshakes_count(connection: Connection, served: Dispatcher, tmp_path: Path) -> None:
    """Who never begins TLS, or never goes on, is one of the connections, has the same time, and makes room."""
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "leaf.pem")
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())

    def ask_over_tls(port: int) -> bytes:
        with line_to(port) as plain, context.wrap_socket(plain, server_hostname="localhost") as line:
            line.sendall(POST)
            return line.recv(12)

    options = {"certificate": str(tmp_path / "leaf.pem"), "max_connections": 20}
    with listening(connection, URI, **options) as (_, listener), ExitStack() as stack:
        lines = [stack.enter_context(line_to(listener.port)) for _ in range(60)]
        assert [ask_over_tls(listener.port) for _ in range(5)] == [b"HTTP/1.1 200"] * 5
        assert all(not until_end(line) for line in lines[:40])
    with listening(connection, URI, client_timeout=0.5, **options) as (_, listener), line_to(listener.port) as line:
        line.sendall(b"\x16\x03\x01")
        assert until_end(line) == b""
        assert ask_over_tls(listener.port) == b"HTTP/1.1 200"


# L2: requests that two readers take for different ones

LENGTH: Final = b"Content-Length: %d\r\n" % len(envelope())
HIDDEN: Final = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    "octets",
    [
        CHUNKED.replace(b"Transfer", LENGTH + b"Transfer") + b"0\r\n\r\n",
        CHUNKED.replace(b"Transfer-Encoding: chunked\r\n", b"transfer-encoding: Chunked\r\n" + LENGTH) + b"0\r\n\r\n",
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
        CHUNKED.replace(b"chunked", b"chunked, identity") + b"0\r\n\r\n",
        CHUNKED.replace(b"chunked", b"xchunked") + b"0\r\n\r\n",
        CHUNKED.replace(b"Encoding: ", b"Encoding: chunked\r\nTransfer-Encoding: ") + b"0\r\n\r\n",
        CHUNKED + b"0\r\n\n" + HIDDEN,
        CHUNKED + b"0\r\nX: y\n\n" + HIDDEN,
        CHUNKED + b"0\n\r\n",
        CHUNKED + b"0;a\n\r\n\r\n",
        CHUNKED.replace(b"\r\n<", b";a\rb\r\n<", 1) + b"0\r\n\r\n",
        CHUNKED + b"0;a\rb\r\n\r\n",
        CHUNKED + b"0\r\nX: y\nZ: t\r\n\r\n",
        CHUNKED + b"0\r\nX: y\r\n z\r\n\r\n",
        CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
        CHUNKED + b"0\r\nX: y\r\nTransfer-encoding: chunked\r\n\r\n",
        CHUNKED + b"0x0\r\n\r\n",
        CHUNKED + b"-0\r\n\r\n",
        CHUNKED.replace(b"</e:Envelope>\r\n", b"</e:Envelope>xx") + b"0\r\n\r\n",
        POST.replace(b"Content-Length", b"Content-Length: 5\r\nContent-Length"),
        POST.replace(b"Content-Length: ", b"Content-Length: 5, "),
        POST.replace(b"Content-Length: ", b"Content-Length: +"),
        POST.replace(b"Content-Length:", b"Content-Length :"),
        POST.replace(b"Host: a\r\n", b"Host: a\r\n X: folded\r\n"),
        POST.replace(b"Host: a\r\n", b"Host: a\r\nX: y\r\n\tz\r\n"),
        POST.replace(b"Host: a\r\n", b"Host: a\n"),
        POST.replace(b"Host: a\r\n", b"Host: a\r\nX: y\rz\r\n"),
        POST.replace(b"Host: a\r\n", b"Host: a\r\nX: y\nContent-Length: 3\r\n"),
        POST.replace(b"\r\n", b"\n"),
        POST.replace(b"\r\n\r\n", b"\r\n\n", 1),
        POST.replace(b"\r\n\r\n", b"\n\r\n", 1),
        POST.replace(b"Host: a\r\n", b"Host: a\r\nHost: b\r\n"),
        POST.replace(b"Host: a\r\n", b""),
        POST.replace(b"POST / ", b"POST  / "),
        POST.replace(b"POST / ", b"POST /a b "),
        POST.replace(b"POST / ", b"POST /\xe4 "),
        b"\r\n" + POST,
        POST.replace(b"Host: a\r\n", b"Host: a\r\nX\x00: y\r\n"),
    ],
)
@pytest.mark.usefixtures("served")
def test_a_request_is_read_in_one_way(connection: Connection, octets: bytes) -> None:
    """What a proxy may read otherwise is answered 400, nothing more is read, and the connection ends."""
    assert octets != POST
    with listening(connection, URI) as (bridge, listener), line_to(listener.port) as line:
        line.sendall(octets)
        answer = until_end(line)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), answer
        assert len(re.findall(rb"HTTP/1\.1 \d{3} ", answer)) == 1
        assert b"connection: close" in answer.lower()
        eventually(lambda: bridge.under_way == 0, "nothing of it is left")
        assert ask(listener, envelope()).status == 200


@pytest.mark.parametrize("size", [MAX_HEAD_OCTETS + 1, 4 * MAX_HEAD_OCTETS, 16 * MAX_HEAD_OCTETS])
@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.usefixtures("served")
def test_a_head_that_is_too_long(connection: Connection, size: int, is_slow: bool) -> None:
    """431, whether it comes at once or in parts."""
    with listening(connection, URI) as (_, listener), line_to(listener.port) as line:
        octets = POST.replace(b"Host: a\r\n", b"Host: a\r\nX: " + b"x" * size + b"\r\n")
        try:
            for start in range(0, len(octets), MAX_HEAD_OCTETS // 2 if is_slow else len(octets)):
                line.sendall(octets[start : start + (MAX_HEAD_OCTETS // 2 if is_slow else len(octets))])
                time.sleep(0.02 * is_slow)
        except OSError:
            pass  # it ended while the rest was on its way
        assert until_end(line)[:13] in (b"HTTP/1.1 431 ", b"")
        assert ask(listener, envelope()).status == 200


@pytest.mark.usefixtures("served")
def test_what_is_right_goes_through(connection: Connection) -> None:
    """Chunks, their extensions, trailers, and one request behind another on the same connection."""
    said = [
        POST,
        CHUNKED + b"0\r\n\r\n",
        CHUNKED.replace(b"\r\n<", b";a=b\r\n<", 1) + b"0;c\r\nX: y\r\n\r\n",
        POST.replace(b"Content-Length: ", LENGTH + b"Content-Length: "),
    ]
    with listening(connection, URI) as (_, listener), line_to(listener.port) as line:
        for each in said:
            line.sendall(each)
            answer = b""
            while not answer.endswith(b"</env:Envelope>"):
                answer += line.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200 "), each
        line.sendall(b"".join(said))
        for start in range(len(said[1])):
            line.sendall(said[1][start : start + 1])
        line.sendall(POST.replace(b"Host: a", b"Connection: close\r\nHost: a"))
        assert until_end(line).count(b"HTTP/1.1 200 ") == len(said) + 2


# L7: the page for health and metrics


@contextmanager
def page(**answers: bytes) -> Iterator[StatusPage]:
    """Have a page."""
    told = {f"/{name}": (lambda body=body: StatusResponse("text/plain", body)) for name, body in answers.items()}
    with StatusPage("127.0.0.1:0", told) as made:
        yield made


def asked(port: int) -> bytes:
    """Ask a page as watchers do."""
    with line_to(port) as line:
        line.sendall(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
        return until_end(line)


def test_who_drips_does_not_block_the_page() -> None:
    """The time is for a request, not for each octet of it; meanwhile the first make room."""
    with page(live=b"well") as told, ExitStack() as stack:
        lines = [stack.enter_context(line_to(told.port)) for _ in range(2 * MAX_PAGE_CONNECTIONS)]
        ended = set[socket.socket]()

        def drip() -> bool:
            for line in set(lines) - ended:
                try:
                    line.send(b"G")
                    line.setblocking(False)
                    if line.recv(1) == b"":
                        ended.add(line)
                except BlockingIOError:
                    pass
                except OSError:
                    ended.add(line)
            assert asked(told.port).endswith(b"well")
            return len(ended) == len(lines)

        started = time.monotonic()
        eventually(drip, "all are ended")
        assert time.monotonic() - started < 20


def test_who_does_not_read_does_not_block_the_page() -> None:
    """A long answer that nobody takes has the same time."""
    with page(live=b"well", metrics=b"x" * (16 * MIB)) as told, ExitStack() as stack:
        lines = [stack.enter_context(line_to(told.port, 4096)) for _ in range(2 * MAX_PAGE_CONNECTIONS)]
        for line in lines:
            line.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        started = time.monotonic()
        assert asked(told.port).endswith(b"well")
        eventually(lambda: not told._server.held, "all are ended")
        assert time.monotonic() - started < 20
        assert all(len(until_end(line)) < 16 * MIB for line in lines)


@pytest.mark.parametrize(
    ("line", "status"), [(b"GET /live", 200), (b"GET /live HTTP/1.x", 400), (b"GET", 400), (b"POST /live", 400)]
)
def test_each_answer_of_the_page_has_a_status(line: bytes, status: int) -> None:
    """Also where the request has no version, or a wrong one."""
    with page(live=b"well") as told, line_to(told.port) as client:
        client.sendall(line + b"\r\nHost: a\r\n\r\n")
        assert until_end(client).startswith(b"HTTP/1.0 %d " % status)


# The room itself
