"""RFC 6455, octet by octet: what our listener answers to handshakes and frames, good and bad.

The client is no library: each request and each frame is written here as the RFC describes it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import pytest

from brokers.amqp.listener import Listener, Options
from brokers.amqp.sasl import AMQP_HEADER
from brokers.amqp.url import WebSocketBinding
from brokers.amqp.websocket_stream import MAX_MESSAGE_OCTETS
from brokers.embedded import Broker

PATIENCE = 20.0

KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The example of RFC 6455, 1.3."""

MASK = bytes((0x37, 0xFA, 0x21, 0x3D))
"""Likewise, of 5.7."""

HEADERS = {
    "Host": "127.0.0.1:{port}",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "amqp",
}

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FIN = 0x80


class Wire:
    """One connection, of octets."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._port = port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(
        self, changes: dict[str, str | None] | None = None, more: tuple[str, ...] = ()
    ) -> tuple[int, dict[str, str]]:
        """Ask for a WebSocket, with headers changed, left out where they are None; return status and headers."""
        headers = {**HEADERS, **(changes or {})}
        lines = [f"{name}: {value.format(port=self._port)}" for name, value in headers.items() if value is not None]
        self._socket.sendall("\r\n".join(["GET / HTTP/1.1", *lines, *more, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.octets(1)
        status, *answered = head.decode().strip().split("\r\n")
        return int(status.split()[1]), {
            name.lower(): value.strip() for name, _, value in (each.partition(":") for each in answered)
        }

    def octets(self, count: int) -> bytes:
        """Read so many."""
        found = b""
        while len(found) < count:
            octets = self._socket.recv(count - len(found))
            if not octets:
                raise EOFError(found)
            found += octets
        return found

    def write(self, *frames: bytes) -> None:
        """Write frames."""
        self._socket.sendall(b"".join(frames))

    def read(self) -> tuple[int, bytes]:
        """Read a frame: its first octet and its payload. A server's is not masked, and no longer than it must be."""
        first, second = self.octets(2)
        assert second < FIN, "masked"
        if second == 126:
            length = int.from_bytes(self.octets(2), "big")
            assert length > 125
        elif second == 127:
            length = int.from_bytes(self.octets(8), "big")
            assert length > 65535
        else:
            length = second
        return first, self.octets(length)

    def ends(self) -> bool:
        """Say whether nothing more comes."""
        return self._socket.recv(1) == b""


def framed(first: int, payload: bytes = b"", *, masked: bool = True, length: int | None = None) -> bytes:
    """Write a frame; `length` may lie."""
    count = len(payload) if length is None else length
    bit = FIN if masked else 0
    if count < 126:
        head = bytes((first, bit | count))
    elif count < 1 << 16:
        head = bytes((first, bit | 126)) + count.to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + count.to_bytes(8, "big")
    if not masked:
        return head + payload
    return head + MASK + bytes(each ^ MASK[at % 4] for at, each in enumerate(payload))


@contextmanager
def listening(**options: object) -> Iterator[Listener]:
    """Listen for WebSocket."""
    with Listener(Broker(), port=0, options=Options(binding=WebSocketBinding.LENIENT, **options)) as listener:  # type: ignore[arg-type]
        yield listener


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with listening() as listener:
        yield listener.port


@pytest.fixture
def wire(port: int) -> Iterator[Wire]:
    with Wire(port) as connected:
        yield connected


@pytest.fixture
def opened(wire: Wire) -> Wire:
    """A WebSocket."""
    assert wire.ask()[0] == 101
    return wire


def test_the_handshake(wire: Wire) -> None:
    """WS-01, WS-05; 4.2.2: the answer repeats the sub-protocol, and proves that the request was understood."""
    status, headers = wire.ask()
    assert status == 101
    assert headers["sec-websocket-accept"] == ACCEPT
    assert headers["upgrade"].lower() == "websocket"
    assert headers["connection"].lower() == "upgrade"
    assert headers["sec-websocket-protocol"] == "amqp"
    assert "sec-websocket-extensions" not in headers


@pytest.mark.parametrize(
    "changes",
    [
        {"Upgrade": "WebSocket"},
        {"Connection": "keep-alive, Upgrade"},
        {"Connection": "upgrade"},
        {"Sec-WebSocket-Protocol": "chat, amqp"},
        {"Sec-WebSocket-Extensions": "permessage-deflate"},
    ],
)
def test_handshakes_that_are_as_good(changes: dict[str, str | None], wire: Wire) -> None:
    """4.2.1: tokens are read in any case and among others; extensions that are offered may be left."""
    status, headers = wire.ask(changes)
    assert (status, headers["sec-websocket-accept"]) == (101, ACCEPT)
    assert "sec-websocket-extensions" not in headers


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"Upgrade": None}, 426),
        ({"Upgrade": "h2c"}, 426),
        ({"Connection": "keep-alive"}, 426),
        ({"Sec-WebSocket-Key": None}, 400),
        ({"Sec-WebSocket-Key": "dG9vIHNob3J0"}, 400),
        ({"Sec-WebSocket-Key": "no base64!"}, 400),
        ({"Sec-WebSocket-Version": None}, 400),
        ({"Sec-WebSocket-Version": "8"}, 400),
        ({"Host": None}, 400),
        ({"Sec-WebSocket-Protocol": "chat"}, 400),
    ],
)
def test_bad_handshakes(changes: dict[str, str | None], expected: int, wire: Wire) -> None:
    """4.2.1 and 4.2.2: it is answered with what is wrong, and the connection ends."""
    status, headers = wire.ask(changes)
    assert status == expected
    assert "sec-websocket-accept" not in headers
    if "Sec-WebSocket-Version" in changes:
        assert headers["sec-websocket-version"] == "13"
    if expected == 426:
        assert headers["upgrade"] == "websocket"


def test_two_versions(wire: Wire) -> None:
    """4.4: a client that says two versions is told the one that is spoken."""
    status, headers = wire.ask(more=("Sec-WebSocket-Version: 8",))
    assert (status, headers["sec-websocket-version"]) == (400, "13")


ORIGINS = {
    "none": (None, "127.0.0.1:{port}", 101),
    "the host": ("http://127.0.0.1:{port}", "127.0.0.1:{port}", 101),
    "the host over TLS": ("https://127.0.0.1:{port}", "127.0.0.1:{port}", 101),
    "the host in another case": ("http://LOCALHOST:{port}", "localhost:{port}", 101),
    "a name of this machine": ("http://amqp.localhost:{port}", "amqp.localhost:{port}", 101),
    "an address": ("http://192.0.2.1:{port}", "192.0.2.1:{port}", 101),
    "an address of IPv6": ("http://[2001:db8::1]:{port}", "[2001:db8::1]:{port}", 101),
    "a name that is served": ("http://broker.example.org", "Broker.example.org", 101),
    "its port": ("http://broker.example.org:80", "broker.example.org", 101),
    "a name that leads here (DNS rebinding)": ("http://evil.example:{port}", "evil.example:{port}", 403),
    "a name that ends alike": ("http://notlocalhost:{port}", "notlocalhost:{port}", 403),
    "another host": ("http://evil.example", "127.0.0.1:{port}", 403),
    "another port": ("http://127.0.0.1:1", "127.0.0.1:{port}", 403),
    "another scheme": ("ftp://127.0.0.1:{port}", "127.0.0.1:{port}", 403),
    "a sandbox": ("null", "127.0.0.1:{port}", 403),
    "a file": ("file://", "127.0.0.1:{port}", 403),
    "no address": ("http://[::1:{port}", "[::1:{port}", 403),
    "no port": ("http://127.0.0.1:x", "127.0.0.1:x", 403),
    "a site that may": ("https://pages.example.org", "broker.example.org", 101),
}


@pytest.mark.parametrize("what", ORIGINS)
def test_origins(what: str) -> None:
    """10.2: Java's clients say the host that they ask for. That is let in where it cannot be a page of anybody's."""
    origin, host, expected = ORIGINS[what]
    served = {"hosts": frozenset({"broker.example.org"}), "origins": frozenset({"https://pages.example.org"})}
    with listening(**served) as listener, Wire(listener.port) as wire:
        assert wire.ask({"Origin": origin, "Host": host})[0] == expected


def test_two_origins(wire: Wire) -> None:
    """They are refused, whatever they are."""
    assert wire.ask({"Origin": "http://127.0.0.1:{port}"}, more=("Origin: http://evil.example",))[0] == 400


def test_where_it_listens_is_served() -> None:
    """A listener at a name is served as that name."""
    with Listener(Broker(), "localhost", 0, Options(binding=WebSocketBinding.LENIENT)) as listener:
        assert listener.options.hosts == {"localhost"}


@pytest.mark.parametrize("size", [1, 3, 8])
def test_fragments(size: int, opened: Wire) -> None:
    """WS-22; 5.4: a message may come in fragments of any size, with pings between them; each is answered at once."""
    pieces = [AMQP_HEADER[at : at + size] for at in range(0, len(AMQP_HEADER), size)]
    for number, piece in enumerate(pieces):
        last = FIN if number == len(pieces) - 1 else 0
        opened.write(framed(last | (CONTINUATION if number else BINARY), piece), framed(FIN | PING, bytes([number])))
    answers = [opened.read() for _ in range(len(pieces) + 1)]
    assert [payload for first, payload in answers if first == FIN | PONG] == [bytes([at]) for at in range(len(pieces))]
    assert (FIN | BINARY, AMQP_HEADER) in answers


def test_an_empty_message_and_pongs_are_passed_over(opened: Wire) -> None:
    """5.5.3: a pong that nobody asked for is no matter."""
    opened.write(framed(FIN | PONG, b"x"), framed(FIN | BINARY), framed(FIN | BINARY, AMQP_HEADER))
    assert opened.read() == (FIN | BINARY, AMQP_HEADER)


def test_a_ping_of_125_octets(opened: Wire) -> None:
    """5.5: that is the longest."""
    opened.write(framed(FIN | PING, b"p" * 125))
    assert opened.read() == (FIN | PONG, b"p" * 125)


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x03\xe9bye", b"\x0b\xb8"])
def test_the_closing_handshake(payload: bytes, opened: Wire) -> None:
    """5.5.1: a close is answered with one of the same code, and the connection ends."""
    opened.write(framed(FIN | CLOSE, payload))
    first, answer = opened.read()
    assert (first, answer[:2]) == (FIN | CLOSE, payload[:2])
    assert opened.ends()


PROTOCOL, UNSUPPORTED, INCONSISTENT, TOO_BIG = 1002, 1003, 1007, 1009

BAD = {
    "not masked": ([framed(FIN | BINARY, AMQP_HEADER, masked=False)], PROTOCOL),
    "RSV1": ([framed(FIN | 0x40 | BINARY, AMQP_HEADER)], PROTOCOL),
    "RSV2": ([framed(FIN | 0x20 | BINARY, AMQP_HEADER)], PROTOCOL),
    "RSV3": ([framed(FIN | 0x10 | BINARY, AMQP_HEADER)], PROTOCOL),
    "opcode 3": ([framed(FIN | 0x3, AMQP_HEADER)], PROTOCOL),
    "opcode 11": ([framed(FIN | 0xB)], PROTOCOL),
    "a ping in fragments": ([framed(PING, b"x")], PROTOCOL),
    "a close in fragments": ([framed(CLOSE)], PROTOCOL),
    "a ping of 126 octets": ([framed(FIN | PING, b"x" * 126)], PROTOCOL),
    "a continuation of nothing": ([framed(FIN | CONTINUATION, AMQP_HEADER)], PROTOCOL),
    "a message within a message": ([framed(BINARY, AMQP_HEADER), framed(FIN | BINARY, AMQP_HEADER)], PROTOCOL),
    "a close of one octet": ([framed(FIN | CLOSE, b"\x03")], PROTOCOL),
    "a close that says that there was none": ([framed(FIN | CLOSE, (1005).to_bytes(2, "big"))], PROTOCOL),
    "a close that says that it is of no kind": ([framed(FIN | CLOSE, (1006).to_bytes(2, "big"))], PROTOCOL),
    "a close of code 999": ([framed(FIN | CLOSE, (999).to_bytes(2, "big"))], PROTOCOL),
    "a reason that is no UTF-8": ([framed(FIN | CLOSE, b"\x03\xe8\xff")], INCONSISTENT),
    "text": ([framed(FIN | TEXT, b"AMQP")], UNSUPPORTED),
    "a message too large": ([framed(FIN | BINARY, length=MAX_MESSAGE_OCTETS + 1)], TOO_BIG),
    "fragments too large": (
        [framed(BINARY, b"x" * (MAX_MESSAGE_OCTETS // 2))]
        + [framed(CONTINUATION, b"x" * (MAX_MESSAGE_OCTETS // 2))] * 2,
        TOO_BIG,
    ),
    "a message of 2 to the 63 octets": ([framed(FIN | BINARY, length=1 << 63)], TOO_BIG),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_frames(what: str, opened: Wire) -> None:
    """WS-20; 5.1 to 5.5, 7.4.1: they end the connection, with the code of the text."""
    frames, code = BAD[what]
    if what == "fragments too large":
        frames = [framed(BINARY, AMQP_HEADER[:4]), *[framed(CONTINUATION, b"x" * (MAX_MESSAGE_OCTETS // 2))] * 2]
    opened.write(*frames)
    while (answer := opened.read())[0] != FIN | CLOSE:
        pass
    assert int.from_bytes(answer[1][:2], "big") == code
