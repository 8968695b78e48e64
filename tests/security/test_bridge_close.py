"""What follows the last request of a connection: it calls nobody, and takes nothing from the answer."""

from __future__ import annotations

import socket

import pytest
from bridge_kit import bridged
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
