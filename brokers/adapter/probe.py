"""What a peer speaks that does not answer: it is greeted in other protocols, without user and password.

Each greeting has a connection of its own, which ends at once.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from queue import Empty
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import Final, NamedTuple, TypeVar

from brokers.adapter.wrong_port import HEAD_OCTETS, PortUrl, check_silent
from brokers.threads.timer import left

SILENT_SECONDS: Final = 3.0
"""Seconds, and at most a third of the time-out, after which a peer that has said nothing is greeted otherwise."""

ANSWER_SECONDS: Final = 1.5
"""Time that a peer has to answer the greetings of other protocols, in seconds."""

ASK_PAUSE_SECONDS: Final = 60.0
"""Seconds after which a peer that still says nothing is greeted in other protocols again."""

FIRST_OCTETS_SECONDS: Final = 1.0
"""Time that a peer which does not speak TLS has to say what it speaks, in seconds."""

UNASKED_SECONDS: Final = 0.2
"""Time that such a peer has to speak first, in seconds."""

MIN_TIMEOUT_SECONDS: Final = 0.001
"""Shortest socket time-out, in seconds: 0 would make the socket non-blocking."""

PLAIN_GREETINGS: Final = (
    b"AMQP\x03\x01\x00\x00",
    b"CONNECT\naccept-version:0.0\nhost:-\n\n\0",  # a version that is refused before any login
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
)
"""What peers without TLS answer that do not speak first, as those of SMQP and OpenWire do."""

T = TypeVar("T")


def wait_or_ask(wait: Callable[[float], T], url: PortUrl, until: float, is_silent: Callable[[], bool]) -> T:
    """Wait for the first word of a peer; if there is none for a while, or at all, find out what the peer speaks.

    Args:
        wait: waits so many seconds, and raises TimeoutError or `Empty` if that was not enough; may be called again.
        url: the URL of the peer.
        until: when the monotonic clock shows this, waiting ends.
        is_silent: whether nothing was heard yet, and the peer may be greeted without TLS.

    Raises:
        ConnectionFailedError: the peer speaks another protocol.
    """
    try:
        heard = wait(min(SILENT_SECONDS, left(until) / 3))
    except (TimeoutError, Empty):
        if is_silent():
            _ask(url, until)
        return wait(left(until))
    if is_silent():
        _ask(url, until)  # it has closed the connection
    return heard


class PeerAnswers(NamedTuple):
    """When a peer was greeted in other protocols, and the first octets of its answers."""

    at: float
    answers: list[bytes]


_asked: dict[tuple[str, str, int], PeerAnswers] = {}


def _ask(url: PortUrl, until: float) -> None:
    """Greet a peer in other protocols; for a while its answers are remembered, as it may be a broker in trouble."""
    key, now = (url.scheme, url.host, url.port), monotonic()
    for each, asked in list(_asked.items()):
        if asked.at + ASK_PAUSE_SECONDS <= now:
            _asked.pop(each, None)
    known = _asked.get(key)
    if known is None:
        known = _asked[key] = PeerAnswers(now, list(_answers(key[1:], min(until, now + ANSWER_SECONDS))))
    for said in known.answers:
        check_silent(url, said)


def _answers(address: tuple[str, int], until: float) -> Iterator[bytes]:
    """Yield the first octets of each answer to a greeting."""
    with ExitStack() as stack, DefaultSelector() as waiting:
        for greeting in (*PLAIN_GREETINGS, _tls_greeting(address[0])):
            with suppress(OSError):
                asked = stack.enter_context(socket.create_connection(address, max(MIN_TIMEOUT_SECONDS, left(until))))
                asked.sendall(greeting)
                waiting.register(asked, EVENT_READ)
        while waiting.get_map() and left(until):
            for key, _ in waiting.select(left(until)):
                waiting.unregister(key.fileobj)
                with suppress(OSError):
                    assert isinstance(key.fileobj, socket.socket)
                    yield key.fileobj.recv(HEAD_OCTETS)


def _tls_greeting(host: str) -> bytes:
    greeting = ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), greeting, server_hostname=host)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return greeting.read()


def first_octets(address: tuple[str, int], until: float) -> bytes:
    """Return the first octets that a peer writes on another connection; empty if there are none soon.

    OpenSSL does not give away what it has read. Some peers speak first, and reset the connection at a greeting of TLS;
    others answer only to one, so they get it after a moment.
    """
    seconds = max(MIN_TIMEOUT_SECONDS, min(FIRST_OCTETS_SECONDS, left(until)))
    with suppress(OSError), socket.create_connection(address, seconds) as again:
        again.settimeout(min(seconds, UNASKED_SECONDS))
        with suppress(TimeoutError):
            return again.recv(HEAD_OCTETS)
        again.settimeout(seconds)
        again.sendall(_tls_greeting(address[0]))
        return again.recv(HEAD_OCTETS)
    return b""
