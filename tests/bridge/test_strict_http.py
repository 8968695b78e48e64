"""Strict reading of HTTP/1.1: what it costs, and how long lines may be.

What else is refused is in tests/security/test_bridge.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import h11
import pytest

from soapjms.bridge.strict_http import MAX_CHUNK_LINES_OCTETS, MAX_HEAD_OCTETS, StrictConnection

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def events(connection: StrictConnection) -> Iterator[object]:
    """Yield what has come whole."""
    while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        yield event


def test_a_chunk_costs_the_same_whatever_waits_behind_it() -> None:
    """Octets that are not read yet are not copied for each chunk."""
    connection = StrictConnection(h11.SERVER, MAX_HEAD_OCTETS)
    waiting = 16 << 20
    connection.receive_data(HEAD + b"1\r\na\r\n" * 1000 + b"%x\r\n" % waiting + bytes(waiting) + b"\r\n0\r\n\r\n")
    begun = time.process_time()
    sizes = [len(each.data) for each in events(connection) if isinstance(each, h11.Data)]
    assert time.process_time() - begun < 1.0
    assert sizes == [1] * 1000 + [waiting]


def test_very_small_chunks_are_refused() -> None:
    """Each takes as long to read as a large one: whoever sends many of them would hold up all others."""
    chunks = MAX_CHUNK_LINES_OCTETS // 5
    for size, has_to_end in ((1, True), (9, True), (10, False), (100, False)):
        connection = StrictConnection(h11.SERVER, MAX_HEAD_OCTETS)
        chunk = b"%x\r\n%s\r\n" % (size, b"a" * size)
        connection.receive_data(HEAD + chunk * chunks)
        assert sum(len(each.data) for each in events(connection) if isinstance(each, h11.Data)) == size * chunks
        connection.receive_data(chunk * chunks)
        if has_to_end:
            with pytest.raises(h11.RemoteProtocolError, match="twice as many octets as the lines around them"):
                list(events(connection))
        else:
            assert sum(len(each.data) for each in events(connection) if isinstance(each, h11.Data)) == size * chunks


def test_a_body_does_not_count_for_the_next() -> None:
    """Any number of requests with a few small chunks may come on one connection."""
    connection = StrictConnection(h11.SERVER, MAX_HEAD_OCTETS)
    for _ in range(3):
        connection.receive_data(HEAD + b"1\r\na\r\n" * (MAX_CHUNK_LINES_OCTETS // 5 - 1) + b"0\r\n\r\n")
        list(events(connection))
        for event in (h11.Response(status_code=202, headers=[("Content-Length", "0")]), h11.EndOfMessage()):
            connection.send(event)
        connection.start_next_cycle()


@pytest.mark.parametrize("lines", [b"1;%s\r\na\r\n", b"0;%s\r\n\r\n", b"0\r\nX: %s\r\n\r\n"])
def test_lines_of_a_chunked_body_are_limited(lines: bytes) -> None:
    """Even if they come at once, which h11 does not limit."""
    connection = StrictConnection(h11.SERVER, MAX_HEAD_OCTETS)
    connection.receive_data(HEAD + lines % bytes(b"x" * MAX_HEAD_OCTETS))
    with pytest.raises(h11.RemoteProtocolError, match="more than 16384 octets"):
        list(events(connection))
    assert connection.problem is not None
    assert connection.problem.error_status_hint == 431
