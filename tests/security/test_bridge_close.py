"""What follows the last request of a connection, or one that is refused: it takes nothing from the answer."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
import trustme
from bridge_kit import bridged, listening
from calling_kit import NS, PATIENCE, element, envelope
from lxml import etree

from brokers.embedded import Broker
from soapjms import Dispatcher, Request, Service


def post(name: str, more: str = "") -> bytes:
    """Write a request."""
    body = envelope(name)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


@pytest.mark.parametrize("what", [post("Eve"), b"\0", b"GET / HTTP/1.1\r\n\r\n"], ids=["request", "nul", "get"])
@pytest.mark.parametrize("is_apart", [False, True])
def test_behind_the_last(what: bytes, is_apart: bool) -> None:
    """The last request is answered whatever its client says after it; before, the service was called and the client
    was told that its request was bad."""
    asked, service = list[str](), Service()

    @service.operation(f"{{{NS}}}greetMe")
    def greet(request: Request) -> etree._Element:
        asked.append(request.element.text or "")
        if is_apart:
            line.sendall(what)
        return element("said", "Hello")

    with (
        Broker().connect() as connection,
        Dispatcher(connection, "jms:queue:greeter", service, workers=1),
        bridged(connection, "jms:queue:greeter") as listener,
        socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as line,
    ):
        line.sendall(post("Ann", "Connection: close\r\n") + (b"" if is_apart else what))
        answer = line.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1
    assert asked == ["Ann"]


MEBIBYTE = 1 << 20
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/xml\r\n"
REFUSED = {
    "too large": (HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % (40 * MEBIBYTE), b"413"),
    "of another kind": (
        HEAD.replace(b"text/xml", b"a/b") + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % (40 * MEBIBYTE),
        b"415",
    ),
    "no request": (HEAD + b"no header\r\n\r\n", b"400"),
    "a wrong chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", b"400"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("has_tls", [False, True])
def test_who_uploads_what_is_refused_reads_why(what: str, has_tls: bool, tmp_path: Path) -> None:
    """A client that sends all of its body before it reads gets the answer, not a reset."""
    head, status = REFUSED[what]
    authority, trusted = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusted)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "leaf.pem"))
    options = {"certificate": str(tmp_path / "leaf.pem")} if has_tls else {}
    with (
        Broker().connect() as connection,
        listening(connection, "jms:queue:greeter", **options) as (_, listener),
        socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") if has_tls else plain as line,
    ):
        line.sendall(head)
        for _ in range(40):
            line.sendall(b"x" * MEBIBYTE)
        if not has_tls:
            line.shutdown(socket.SHUT_WR)
        answer = b""
        while b"\r\n\r\n" not in answer and (octets := line.recv(1 << 16)):
            answer += octets
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"bytearray" not in answer


def test_who_never_ends_is_ended() -> None:
    """A client that was refused and sends on, little at a time, is one that keeps us waiting."""
    with (
        Broker().connect() as connection,
        listening(connection, "jms:queue:greeter", client_timeout=1.0) as (_, listener),
        socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as line,
    ):
        line.sendall(HEAD + b"no header\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 400"
        begun = monotonic()
        with suppress(ConnectionError):
            while monotonic() < begun + PATIENCE:
                line.sendall(b"x")
                sleep(0.05)
        assert monotonic() - begun < PATIENCE / 2


def test_what_is_said_of_a_wrong_request() -> None:
    """It is what was sent, as far as it is shown, and no more of it than fits on a few lines."""
    with Broker().connect() as connection, bridged(connection, "jms:queue:greeter") as listener:
        for wrong in (b"no header", b"a b: c", b"x" * 10_000):
            with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as line:
                line.sendall(HEAD + wrong + b"\r\n\r\n")
                answer = line.makefile("rb").read().partition(b"\r\n\r\n")[2]
            assert wrong[:100] in answer
            assert b"bytearray" not in answer
            assert len(answer) < 600
