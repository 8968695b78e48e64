"""Frames written by hand over sockets, which are cut and searched for three headers, but not read: the limit.

What is to be written is kept until the loop is about to wait, so that one call of the system writes it all.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from select import select
from threading import Thread
from urllib.parse import urlsplit

from sides import GROUP, Caller, Setting, envelope

BINDING = b"SOAPJMS_bindingVersion:1.0\nSOAPJMS_contentType:text/xml; charset=utf-8\n"
READ_OCTETS = 1 << 20


class Line:
    """A STOMP connection."""

    def __init__(self, setting: Setting) -> None:
        parts = urlsplit(setting.url)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = bytearray()
        self._unwritten: list[bytes] = []
        login = f"login:{parts.username}\npasscode:{parts.password}\n"
        self.write(f"CONNECT\naccept-version:1.2\nhost:{parts.hostname}\n{login}heart-beat:0,0\n\n\0".encode())
        self.frames()

    def write(self, *octets: bytes) -> None:
        """Write before the next wait."""
        self._unwritten += octets

    def flush(self) -> None:
        """Write now. What arrives while the broker takes no more is read, as the broker may wait for that."""
        unwritten = memoryview(b"".join(self._unwritten))
        self._unwritten.clear()
        while unwritten:
            try:
                unwritten = unwritten[self._socket.send(unwritten, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                if select([self._socket], [self._socket], [])[0]:
                    self._receive()

    def frames(self) -> list[tuple[bytes, bytes]]:
        """Wait for at least one frame and return the heads, with their last line's end, and bodies of all that came."""
        self.flush()
        while not (found := self._cut()):
            self._receive()
        return found

    def _receive(self) -> None:
        arrived = self._socket.recv(READ_OCTETS)
        if not arrived:
            raise EOFError
        self._read += arrived

    def _cut(self) -> list[tuple[bytes, bytes]]:
        read, at, found = self._read, 0, []
        while (end := read.find(b"\n\n", at)) >= 0:
            head, body = bytes(read[at : end + 1]), end + 2
            length = value(head, b"content-length")
            nul = body + int(length) if length else read.find(b"\0", body)
            if not 0 <= nul < len(read):
                break
            found.append((head.lstrip(), bytes(read[body:nul])))
            at = nul + 1
        del read[:at]
        return found


def value(head: bytes, name: bytes) -> bytes:
    """Return the value of a header as it is on the wire, empty if there is none."""
    at = head.find(b"\n" + name + b":")
    return b"" if at < 0 else head[at + len(name) + 2 : head.index(b"\n", at + 1)]


ANSWER = (
    b"SEND\ndestination:%b\ncorrelation-id:%b\npersistent:%b\nSOAPJMS_requestURI:%b\n"
    b"%bSOAPJMS_isFault:false\n%bcontent-length:%d\n\n%b\0"
)


def answer(head: bytes, body: bytes, more: bytes) -> bytes:
    """Write an answer."""
    names = (b"reply-to", b"correlation-id", b"persistent", b"SOAPJMS_requestURI")
    return ANSWER % (*(value(head, name) for name in names), BINDING, more, len(body), body)


def plain(line: Line) -> None:
    """Answer; acknowledge once the answer was confirmed."""
    acknowledgements: dict[bytes, bytes] = {}
    while True:
        for head, body in line.frames():
            if head.startswith(b"MESSAGE"):
                ack = value(head, b"ack")
                acknowledgements[ack] = b"ACK\nid:%b\n\n\0" % ack
                line.write(answer(head, body, b"receipt:%b\n" % ack))
            else:
                line.write(acknowledgements.pop(value(head, b"receipt-id")))


def transactions(line: Line) -> None:
    """Answer and acknowledge in group commits."""
    arrived: deque[tuple[bytes, bytes]] = deque()
    number, is_committing = 0, False
    while True:
        for head, body in line.frames():
            if head.startswith(b"MESSAGE"):
                arrived.append((head, body))
            elif value(head, b"receipt-id") == b"commit":
                is_committing = False
        if arrived and not is_committing:
            number, is_committing = number + 1, True
            line.write(b"BEGIN\ntransaction:%d\n\n\0" % number)
            for position in range(min(len(arrived), GROUP)):
                head, body = arrived.popleft()
                line.write(
                    answer(head, body, b"transaction:%d\nreceipt:%d\n" % (number, position)),
                    b"ACK\nid:%b\ntransaction:%d\n\n\0" % (value(head, b"ack"), number),
                )
            line.write(b"COMMIT\ntransaction:%d\nreceipt:commit\n\n\0" % number)


@contextmanager
def service(setting: Setting) -> Iterator[None]:
    """Serve while the process lasts."""
    line = Line(setting)
    for number in range(setting.in_flight):
        line.write(
            b"SUBSCRIBE\ndestination:/queue/%b\nid:%d\nack:client\nactivemq.prefetchSize:1\n\n\0"
            % (setting.queue.encode(), number)
        )
    line.flush()
    Thread(target=transactions if setting.transactional else plain, args=(line,), daemon=True).start()
    yield


class Client(Caller):
    """Sends requests and counts the replies of a temporary queue."""

    def __init__(self, setting: Setting) -> None:
        self._line = Line(setting)
        self._line.write(b"SUBSCRIBE\ndestination:/temp-queue/r\nid:r\nack:auto\nactivemq.prefetchSize:1000\n\n\0")
        body = envelope(setting.octets)
        queue = setting.queue.encode()
        self._start = (
            b"SEND\ndestination:/queue/%b\nreply-to:/temp-queue/r\npersistent:true\n%bSOAPJMS_requestURI:jms:queue:%b\ncontent-length:%d\n"
            % (queue, BINDING, queue, len(body))
        )
        self._end = b"\n\n%b\0" % body
        self._numbers: deque[int] = deque()

    def submit(self, number: int) -> None:
        self._line.write(b"%bcorrelation-id:%d\nreceipt:%d%b" % (self._start, number, number, self._end))

    async def take(self) -> int:
        while not self._numbers:
            heads = (head for head, _ in self._line.frames())
            self._numbers.extend(int(value(head, b"correlation-id")) for head in heads if head.startswith(b"MESSAGE"))
        return self._numbers.popleft()


@contextmanager
def client(setting: Setting) -> Iterator[Client]:
    """Connect a client."""
    yield Client(setting)
