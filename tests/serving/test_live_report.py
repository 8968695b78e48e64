"""The page of a report that is still being written, for its readers and for whoever else reaches the port."""

from __future__ import annotations

import gzip
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse

import pytest
from calling_kit import PATIENCE, eventually

from soapjms.protocol.errors import UsageError
from soapjms.replay.report import live
from soapjms.serving import live_report
from soapjms.serving.live_report import MAX_READERS, LiveReport
from soapjms.serving.status_page import MAX_PAGE_CONNECTIONS

TOKEN = "a token & a half, ä"
REPORT = (
    '<!DOCTYPE html><meta http-equiv="Content-Security-Policy" content="script-src &#39;a&#39;; base-uri &#39;none&#39;'
    '"><head></head><body><p>{}</p></body></html>'
)
MIB = 1 << 20


@pytest.fixture
def page() -> Iterator[LiveReport]:
    """The page of a report on this machine."""
    with LiveReport("127.0.0.1:0") as made:
        yield made


def asked(page: LiveReport, path: str = "/", method: str = "GET", **headers: str) -> HTTPResponse:
    """Ask for a path; the connection is closed with the answer."""
    connection = HTTPConnection("127.0.0.1", int(page.url.split(":")[2].partition("/")[0]), timeout=PATIENCE)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def line_of(answer: HTTPResponse, beginning: str) -> str:
    """Read on until a line begins so, and return the rest of it."""
    while (line := answer.readline().decode()) != "":
        if line.startswith(beginning):
            return line.removeprefix(beginning).strip()
    raise AssertionError(f"ended before a line that begins with {beginning!r}")


def query(page: LiveReport) -> str:
    return "?" + page.url.partition("?")[2]


# The report


def test_the_newest_report_is_shown(page: LiveReport) -> None:
    """As the file, with a script more, which may ask this server only; before the first one it says so."""
    early = asked(page)
    assert (early.status, early.getheader("Refresh")) == (503, "2")
    assert b"The first report is being made" in early.read()
    for text in ("one", "two"):
        page.show(REPORT.format(text))
        answer = asked(page)
        said = answer.read().decode()
        assert (answer.status, answer.getheader("Cache-Control")) == (200, "no-store")
        assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
        assert f"<p>{text}</p><script data-report=" in said
        name = re.findall(r'data-report="(\w+)"', said)[0]
        assert said == live(REPORT.format(text), name)
        assert re.search(r"script-src &#39;a&#39; 'sha256-[^']+'; connect-src 'self'; base-uri", said)
    head = asked(page, method="HEAD")
    assert (head.status, head.read()) == (200, b"")
    assert int(head.getheader("Content-Length") or 0) == len(said.encode())


@pytest.mark.parametrize("accepted", ["gzip, deflate", "br;q=1.0, gzip;q=0.8"])
def test_a_report_is_compressed_where_that_is_accepted(page: LiveReport, accepted: str) -> None:
    """It is the same report; without the header, or with one that refuses gzip, it comes as it is."""
    page.show(REPORT.format("one" * 1000))
    answer = asked(page, Accept_Encoding=accepted)
    assert (answer.getheader("Content-Encoding"), answer.getheader("Vary")) == ("gzip", "Accept-Encoding")
    sent = answer.read()
    assert int(answer.getheader("Content-Length") or 0) == len(sent) < len(gzip.decompress(sent)) // 3
    for headers in ({}, {"Accept_Encoding": "gzip;q=0"}):
        plain = asked(page, **headers)
        assert (plain.getheader("Content-Encoding"), plain.getheader("Vary")) == (None, "Accept-Encoding")
        assert plain.read() == gzip.decompress(sent)


def test_nothing_else_is_reached(page: LiveReport) -> None:
    """No other path, no file, no other method."""
    page.show(REPORT.format("one"))
    for path in ("/report.html", "/summary.json", "/..", "/../../etc/passwd", "/%2e%2e/summary.json", "/events/"):
        answer = asked(page, path)
        assert answer.status == 404, path
        assert b"the paths here are / and /events" in answer.read()
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert asked(page, method=method).status == 501, method


# Its readers


def test_readers_are_told_of_new_reports(page: LiveReport) -> None:
    """Each gets the name of the newest one and its age in seconds when it comes, and those that follow."""
    first = asked(page, "/events")
    assert first.getheader("Content-Type") == "text/event-stream"
    assert line_of(first, "retry: ") == "2000"
    page.show(REPORT.format("one"))
    second = asked(page, "/events")
    names = {line_of(each, "id: ") for each in (first, second)}
    assert len(names) == 1
    assert names == set(re.findall(r'data-report="(\w+)"', asked(page).read().decode()))
    assert line_of(first, "event: ") == "report"
    assert 0 <= float(line_of(first, "data: ")) < PATIENCE
    page.show(REPORT.format("two"))
    assert {line_of(each, "id: ") for each in (first, second)}.isdisjoint(names)


def test_hearts_beat(page: LiveReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is nothing new, comments say that the connection lives."""
    monkeypatch.setattr(live_report, "HEARTBEAT_SECONDS", 0.02)
    answer = asked(page, "/events")
    for _ in range(3):
        assert line_of(answer, ":") == ""


def test_readers_end_with_the_page() -> None:
    """None is left waiting, and no thread of theirs."""
    with LiveReport("127.0.0.1:0") as page:
        readers = [asked(page, "/events") for _ in range(3)]
        page.show(REPORT.format("one"))
        assert len({line_of(each, "id: ") for each in readers}) == 1
    for each in readers:
        each.read()
    eventually(lambda: not page._server._server.held, "all are let go")


# Strangers


@pytest.mark.parametrize("path", ["/", "/events", "/other"])
@pytest.mark.parametrize("said", ["", "?token=", "?token=wrong", "?tokens={}", "?token=x&token={}", "?token={}x"])
def test_a_token_is_needed(path: str, said: str) -> None:
    """For everything, as a whole, if there is one; the answer tells nothing else."""
    with LiveReport("127.0.0.1:0", TOKEN) as page:
        page.show(REPORT.format("secret"))
        right = query(page).removeprefix("?token=")
        answer = asked(page, path + said.format(right))
        assert answer.status == 403
        assert b"secret" not in answer.read()


def test_the_address_has_the_token() -> None:
    """Whatever it consists of; with it, the host does not matter."""
    with LiveReport("127.0.0.1:0", TOKEN) as page:
        page.show(REPORT.format("secret"))
        assert asked(page, "/" + query(page), Host="reports.example").status == 200
        assert asked(page, "/events" + query(page)).status == 200


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0"])
def test_other_machines_need_a_token(address: str) -> None:
    """One is made where they reach the page, for each run another."""
    with LiveReport(address) as page, LiveReport(address) as other:
        page.show(REPORT.format("secret"))
        assert re.fullmatch(r"\?token=[\w-]{40,}", query(page))
        assert query(page) != query(other)
        assert asked(page).status == 403
        assert asked(page, "/" + query(page)).status == 200
        assert socket.gethostname() in page.url


def test_a_short_token_is_refused() -> None:
    """It would be guessed."""
    with pytest.raises(UsageError, match="a token must have at least 16 characters, got 5"):
        LiveReport("127.0.0.1:0", "short")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:8080", 200), ("127.0.0.1:1", 200), ("[::1]:8080", 200), ("127.8.9.1", 200),
        ("evil.example", 421), ("evil.example:80", 421), ("localhost.evil.example", 421), ("192.0.2.1", 421),
        ("", 421), ("[::1", 421), ("\xff", 421),
    ],
)  # fmt: skip
def test_other_names_of_this_machine_are_refused(page: LiveReport, host: str, status: int) -> None:
    """A page in a browser here could have made its own name one of them (DNS rebinding)."""
    page.show(REPORT.format("one"))
    assert asked(page, Host=host).status == status


def test_other_sites_get_nothing(page: LiveReport) -> None:
    """A browser says who asks; a link from elsewhere may be followed, and the page is in no frame."""
    page.show(REPORT.format("one"))
    assert asked(page, "/events", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors").status == 403
    assert asked(page, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    answer = asked(page, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert answer.status == 200
    assert answer.getheader("Content-Security-Policy") == "frame-ancestors 'none'"
    assert answer.getheader("Cross-Origin-Resource-Policy") == "same-origin"
    assert answer.getheader("Referrer-Policy") == "no-referrer"


def test_the_log_has_no_token(caplog: pytest.LogCaptureFixture) -> None:
    """Not even with all details."""
    with caplog.at_level(logging.DEBUG), LiveReport("127.0.0.1:0", TOKEN) as page:
        asked(page, "/" + query(page)).read()
        eventually(lambda: "page: " in caplog.text, "it is logged")
    assert query(page).removeprefix("?token=") not in caplog.text


def test_there_are_only_so_many_readers(page: LiveReport) -> None:
    """Who comes then is told to try again later by the end of the answer; the report is there for all."""
    page.show(REPORT.format("one"))
    readers = [asked(page, "/events") for _ in range(MAX_READERS)]
    for each in readers:
        line_of(each, "id: ")
    assert asked(page, "/events").read() == b""
    assert asked(page).status == 200
    readers.pop().close()

    def is_let_in() -> bool:
        page.show(REPORT.format("next"))  # who left is noticed when there is something to say
        return b"retry" in asked(page, "/events").readline()

    eventually(is_let_in, "there is room again")


def test_who_does_not_read_keeps_nobody_out(page: LiveReport) -> None:
    """Any number of clients that take nothing of a long report, or say nothing, are ended."""
    page.show(REPORT.format("x" * (16 * MIB)))
    port = int(page.url.split(":")[2].strip("/"))
    with ExitStack() as stack:
        for number in range(2 * MAX_PAGE_CONNECTIONS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(PATIENCE)
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n" * (number % 2))
        assert len(asked(page).read()) > 16 * MIB
        assert len(page._server._server.held) <= MAX_PAGE_CONNECTIONS + 1
        eventually(lambda: not page._server._server.held, "all are ended")
