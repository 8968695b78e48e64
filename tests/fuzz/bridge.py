"""HTTP clients of the bridge that want a proxy and us to disagree on where a request ends, or say anything at all."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Final, NamedTuple

import h11
from bridge_kit import ask
from calling_kit import NS, PATIENCE, element, envelope, eventually
from lxml import etree

from brokers.embedded import Broker
from fuzz.row import Case, Row
from soapjms import Dispatcher, Request, Service
from soapjms.bridge.http import HttpBridge
from soapjms.bridge.listener import Listener

QUIET: Final = 0.05
"""Seconds without an answer after which a client whose request may not be whole gives up."""

KIND: Final = ("Content-Type", "text/xml; charset=utf-8")
SMUGGLED: Final = "smuggled"
UNCLEAR: Final = "unclear?"
"""Of the same length: in a doubtful request that was changed, which may have become two plain ones by that."""

Headers = list[tuple[str, str]]


class Asked(NamedTuple):
    """A request as it goes over the line.

    Attributes:
        octets: of it.
        name: that its envelope has; None if it is not for the service.
        is_plain: there is one way to read it.
        is_last: it ends the connection.
    """

    octets: bytes
    name: str | None
    is_plain: bool = True
    is_last: bool = False


def head(fields: Headers, line: str = "POST / HTTP/1.1", end: str = "\r\n") -> bytes:
    """Write the head of a request."""
    lines = [line, *(f"{name}: {value}" for name, value in fields)]
    return (end.join(lines) + end + end).encode("latin-1")


def chunked(body: bytes, chance: Random) -> bytes:
    """Write a body in chunks of any size, with extensions and trailers."""
    octets, at = b"", 0
    while at < len(body):
        size = chance.choice((1, 7, 100, 5000))
        piece = body[at : at + size]
        number = chance.choice([f"{len(piece):x}", f"{len(piece):X}", f"{len(piece):04x}"])
        octets += number.encode() + chance.choice([b"", b"", b";a=b", b';a="b c"', b";x"]) + b"\r\n" + piece + b"\r\n"
        at += size
    return octets + b"0\r\n" + chance.choice([b"", b"", b"X: y\r\n", b"Z: \r\nX: y\r\n"]) + b"\r\n"


def smuggled(name: str) -> bytes:
    """Write the request that is to be hidden in another."""
    body = envelope(f"{name} {SMUGGLED}")
    return head([("Host", "x"), KIND, ("Content-Length", f"{len(body)}")]) + body


def honest(name: str, chance: Random) -> Asked:
    """Make a request that is as it must be."""
    body, fields, is_last = envelope(name), [("Host", "x"), KIND], False
    if chance.random() < 0.2:
        body = gzip.compress(body, mtime=0)
        fields.append(("Content-Encoding", "gzip"))
    if chance.random() < 0.2:
        fields += [(f"X-{number}", "y" * chance.choice((0, 10, 100))) for number in range(chance.choice((1, 30)))]
    if chance.random() < 0.1:
        fields.append(("SOAPAction", chance.choice(['""', "urn:x", '"urn:x"'])))
    if chance.random() < 0.1:
        is_last = True
        fields.append(("Connection", chance.choice(["close", "Close", "keep-alive, close"])))
    if chance.random() < 0.5:
        fields.append(("Content-Length", f"{len(body)}"))
    else:
        fields.append(("Transfer-Encoding", chance.choice(["chunked", "Chunked"])))
        body = chunked(body, chance)
    fields = [(chance.choice([name, name.lower(), name.upper()]), value) for name, value in fields]
    chance.shuffle(fields)
    line = chance.choice(["POST / HTTP/1.1", "POST / HTTP/1.1", "POST http://x/ HTTP/1.1", "POST /?a=b HTTP/1.1"])
    return Asked(head(fields, line) + body, name, is_last=is_last)


def other(name: str, chance: Random) -> Asked:
    """Make a request that is as HTTP has it, and not for the service."""
    line = chance.choice(
        ["GET /?wsdl HTTP/1.1", "GET / HTTP/1.1", "OPTIONS / HTTP/1.1", "PUT / HTTP/1.1", "GET /x HTTP/1.1"]
    )
    return Asked(head([("Host", "x")], line), None)


FRAMINGS: Final[tuple[Headers, ...]] = (
    [("Content-Length", "{length}"), ("Transfer-Encoding", "chunked")],
    [("Transfer-Encoding", "chunked"), ("Content-Length", "{length}")],
    [("Content-Length", "{length}"), ("Content-Length", "{short}")],
    [("Content-Length", "{length}, {short}")],
    [("Content-Length", "+{length}")],
    [("Content-Length", "{length} {short}")],
    [("Content-Length", "0x{length}")],
    [("Content-Length", "-1")],
    [("Content-Length", "")],
    [("Content-Length", "1_0")],
    [("Content-Length", "9" * 400)],
    [("Content-Length ", "{length}")],
    [("Content-Length", "{length}"), ("Transfer-Encoding", "identity")],
    [("Content-Length", "{length}"), ("Transfer-Encoding", "xchunked")],
    [("Content-Length", "{length}"), ("Transfer-Encoding ", "chunked")],
    [("Content-Length", "{length}"), (" Transfer-Encoding", "chunked")],
    [("Content-Length", "{length}"), ("Transfer-Encoding", "\x0bchunked")],
    [("Content-Length", "{length}"), ("X", "y\r\n Transfer-Encoding: chunked")],
    [("Content-Length", "{length}"), ("X", "y\nTransfer-Encoding: chunked")],
    [("Content-Length", "{length}"), ("X", "y\rTransfer-Encoding: chunked")],
    [("Content-Length", "{length}"), ("X", "y\0")],
    [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")],
    [("Transfer-Encoding", "gzip, chunked")],
    [("Transfer-Encoding", "chunked, chunked")],
    [("Transfer-Encoding", "chunked\r\n ")],
    [("Transfer-Encoding", "chun\tked")],
    [("Transfer_Encoding", "chunked"), ("Content-Length", "{length}"), ("Content-Length", "0")],
)
"""Two readers may find different ends of such a request, or one of them none."""

CHUNKS: Final = (
    b"{size}\n{inner}\r\n0\r\n\r\n",
    b"{size}\r\n{inner}\n0\r\n\r\n",
    b"{size}\r\n{inner}0\r\n\r\n",
    b"{size}\r\n{inner}\r\n0\r\n\n",
    b"{size}\r\n{inner}\r\n0\n\n",
    b"{size}\r\n{inner}\r\n0\r\nX\r\n\r\n",
    b"0x{size}\r\n{inner}\r\n0\r\n\r\n",
    b"+{size}\r\n{inner}\r\n0\r\n\r\n",
    b"-1\r\n{inner}\r\n0\r\n\r\n",
    b" {size}\r\n{inner}\r\n0\r\n\r\n",
    b"{size};a=\n{inner}\r\n0\r\n\r\n",
    b"{size};a=\rb\r\n{inner}\r\n0\r\n\r\n",
    b"{size}\r\n{inner}\r\n0\r\nX: y\nZ: t\r\n\r\n",
    b"{size}\r\n{inner}\r\n0\r\nX: y\r\n z\r\n\r\n",
    b"{size}\r\n{inner}\r\n0\r\nContent-Length: 3\r\n\r\n",
    b"\r\n{size}\r\n{inner}\r\n0\r\n\r\n",
    b"{size}\r\n{inner}\r\n00000000000000000000000\r\n\r\n",
    b"1_0\r\n{inner}\r\n0\r\n\r\n",
)


def doubtful(name: str, chance: Random) -> Asked:
    """Make a request in which another one is hidden, for who reads it in another way."""
    inner = smuggled(name)
    if chance.random() < 0.4:
        body = chance.choice(CHUNKS).replace(b"{size}", f"{len(inner):x}".encode()).replace(b"{inner}", inner)
        return Asked(head([("Host", "x"), KIND, ("Transfer-Encoding", "chunked")]) + body, name, is_plain=False)
    body = chance.choice([b"0\r\n\r\n" + inner, b"5\r\nabcde\r\n0\r\n\r\n" + inner, inner, envelope(name) + inner])
    short = chance.choice([0, 5, len(body) - len(inner)])
    fields = [(key, value.format(length=len(body), short=short)) for key, value in chance.choice(FRAMINGS)]
    line = chance.choice(["POST / HTTP/1.1"] * 4 + ["POST / HTTP/1.0", "POST  / HTTP/1.1", "POST / HTTP/1.1 "])
    end = "\n" if chance.random() < 0.1 else "\r\n"
    return Asked(head([("Host", "x"), KIND, *fields], line, end) + body, name, is_plain=False)


PIECES: Final = [
    *(b"", b"\0", b"\r\n", b"\n", b" ", b"\r\n\r\n", b"\xff", b":", b"Expect: 100-continue\r\n", b"Host: y\r\n"),
    *(b"Upgrade: h2c\r\nConnection: Upgrade\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"X: " + b"y" * 70_000),
    *(b"x: y\r\n" * 3000, b"CONNECT x:1 HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"),
]  # fmt: skip


def changed(octets: bytes, chance: Random) -> bytes:
    """Change something anywhere."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(octets) + 1)
        piece = chance.choice(PIECES)
        octets = octets[:at] + piece + octets[at + chance.choice((0, 0, 1, 30)) :]
    return octets


class Bridged:
    """A bridge, the service behind it, and what that was asked."""

    def __init__(self, bridge: HttpBridge, listener: Listener, asked: list[str]) -> None:
        self._bridge = bridge
        self._listener = listener
        self._asked = asked
        self._number = 0

    def make(self, chance: Random) -> Case:
        """Make some requests, one behind the other on one connection."""
        count, case, requests = chance.choice((1, 1, 2, 3, 6)), f"{chance.randrange(1 << 40):x}", list[Asked]()
        for number in range(count):
            requests.append(chance.choice([honest, honest, other])(f"{case} {number}", chance))
        if chance.random() < 0.6:
            requests.insert(chance.randrange(len(requests) + 1), doubtful(f"{case} doubtful", chance))
        if (is_changed := chance.random() < 0.3) is True:
            at = chance.randrange(len(requests))
            octets = changed(requests[at].octets.replace(SMUGGLED.encode(), UNCLEAR.encode()), chance)
            requests[at] = requests[at]._replace(octets=octets, is_plain=False)
        else:
            body = envelope(f"{case} last")
            fields = [("Host", "x"), KIND, ("Content-Length", f"{len(body)}"), ("Connection", "close")]
            requests.append(Asked(head(fields) + body, f"{case} last", is_last=True))
        cut = chance.choice((1 << 20, 1 << 20, 1000, 100))
        size = sum(len(each.octets) for each in requests)
        return Case(size, lambda: self.tell(case, requests, cut, is_changed=is_changed))

    def tell(self, case: str, requests: list[Asked], cut: int, *, is_changed: bool) -> str:
        """Send them, read all answers, and see who was called."""
        octets = b"".join(each.octets for each in requests)
        with socket.create_connection(("127.0.0.1", self._listener.port), PATIENCE) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            is_cut_off = True
            with suppress(ConnectionError):
                for at in range(0, len(octets), cut):
                    line.sendall(octets[at : at + cut])
                is_cut_off = False
            line.settimeout(QUIET if is_changed else PATIENCE)
            answer, is_reset = read_all(line, is_patient=not is_changed)
        self._check_hidden()
        if is_changed:
            return "changed"
        stops = next(number for number, each in enumerate(requests) if each.is_last or not each.is_plain)
        heard, statuses = requests[: stops + 1], answers(answer, is_reset=is_reset or is_cut_off)
        asked, names = [each for each in self._asked if case in each], [each.name for each in heard if each.name]
        self._asked.clear()
        is_plain = heard[-1].is_plain
        said = f"{statuses} for {[each.octets[:60] for each in heard]}"
        if is_plain:
            assert asked == names, f"called by {asked}, and asked by {names}"
            assert len(statuses) == len(heard), said
            is_right = [
                (status == 200) is (each.name is not None) for status, each in zip(statuses, heard, strict=True)
            ]
            assert all(is_right), f"{said}, {answer!r}"
            return "all answered"
        assert asked in (names, names[:-1]), f"called by {asked}, and asked by {names}"
        if (is_reset or is_cut_off) and len(statuses) < len(
            heard
        ):  # what was refused was still being sent, so its answer is lost
            return "refused, and hung up"
        assert len(statuses) == len(heard), f"{said}, of which the last is doubtful"
        assert 400 <= statuses[-1] < 600, f"{said}, of which the last is doubtful"
        return "refused"

    def _check_hidden(self) -> None:
        """See that no hidden request has called by now, of this case or one before."""
        asked = [each for each in self._asked if SMUGGLED in each]
        assert not asked, f"called by what was hidden: {asked}"

    def look(self) -> None:
        """See that an honest client is answered, nothing is left, and no hidden request called at last."""
        told = ask(self._listener, envelope("Ann"))
        assert (told.status, told.text("said")) == (200, "Ann"), told
        eventually(lambda: self._bridge.under_way == 0, "nothing is under way", 20)
        self._check_hidden()


def read_all(line: socket.socket, *, is_patient: bool) -> tuple[bytes, bool]:
    """Read to the end, and say whether that was a reset; who is not patient gives up when nothing comes for a while."""
    found = b""
    try:
        while octets := line.recv(65536):
            found += octets
    except TimeoutError:
        assert not is_patient, f"the connection did not end after {found[-200:]!r}"
    except ConnectionError:
        return found, True
    return found, False


def answers(octets: bytes, *, is_reset: bool) -> list[int]:
    """Take answers apart, and return their statuses; each is whole, but perhaps for the last before a reset."""
    statuses = list[int]()
    while octets:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(octets)
        reader.receive_data(b"")
        try:
            while not isinstance(event := reader.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    statuses.append(event.status_code)
        except h11.RemoteProtocolError:
            assert is_reset, f"an answer is not whole: {octets[:500]!r}"
            return statuses
        octets = reader.trailing_data[0]
    return statuses


@contextmanager
def bridging() -> Iterator[Bridged]:
    """Have a bridge listen, before a service that notes who calls it."""
    asked, service = list[str](), Service()

    @service.operation(f"{{{NS}}}greetMe")
    def greet(request: Request) -> etree._Element:
        asked.append(request.element.text or "")
        return element("said", request.element.text or "")

    with (
        Broker().connect() as connection,
        Dispatcher(connection, "jms:queue:greeter", service, workers=1),
        HttpBridge(connection, "jms:queue:greeter", timeout=PATIENCE) as bridge,
        Listener(bridge, "127.0.0.1:0") as listener,
    ):
        yield Bridged(bridge, listener, asked)


ROW: Final = Row(
    name="bridge",
    holds="each request is read in one way or refused, none that is hidden in another calls anybody, others are served",
    opens=bridging,
    cases=20_000,
    gate=200,
)
