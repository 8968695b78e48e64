"""Frames come whole out of whatever pieces a socket brings, in time that grows with their length."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers import ConnectionLostError
from brokers.message import TOO_LARGE
from brokers.stomp.codec import (
    HEADERS_TOO_LARGE,
    LARGE_OCTETS,
    MAX_HEADERS,
    NO_MEMORY,
    Cut,
    Cutter,
    SkippedFrame,
    WholeFrame,
    pack,
)

FRAMES = st.lists(
    st.one_of(
        st.builds(lambda body: pack("MESSAGE", {"content-length": str(len(body))}, body), st.binary(max_size=60)),
        st.builds(lambda body: pack("MESSAGE", {"a": "b"}, body.replace(b"\0", b"")), st.binary(max_size=60)),
        st.builds(lambda text: pack("RECEIPT", {"receipt-id": text}), st.text("ab\\:\n\r", max_size=8)),
        st.sampled_from([b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0", b"ERROR\ncontent-length: 2 \r\n\r\n\0\0\0", b"ODD\0"]),
    ),
    max_size=6,
)  # fmt: skip

LARGE = st.sampled_from([0, 30, LARGE_OCTETS])


def octets_of(cut: Cut) -> bytes | SkippedFrame:
    """Return a complete frame as it came."""
    return cut.head + cut.body + b"\0" if isinstance(cut, WholeFrame) else cut


@given(FRAMES, LARGE, st.data())
def test_any_pieces(frames: list[bytes], large: int, data: st.DataObject) -> None:
    """Wherever the octets are cut, and whatever signs of life are between, the frames are the same."""
    between = data.draw(st.lists(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n\n"]), min_size=6, max_size=6))
    octets = b"".join(life + frame for life, frame in zip(between, frames, strict=False)) + b"\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=8)))
    cutter = Cutter(large=large)
    found = [frame for start, end in pairwise([0, *cuts, len(octets)]) for frame in cutter.cut(octets[start:end])]
    assert list(map(octets_of, found)) == frames


@given(FRAMES, LARGE)
def test_octet_by_octet(frames: list[bytes], large: int) -> None:
    """One octet at a time is enough."""
    cutter = Cutter(large=large)
    octets = b"".join(frames)
    found = [frame for at in range(len(octets)) for frame in cutter.cut(octets[at : at + 1])]
    assert list(map(octets_of, found)) == frames


def test_a_frame_of_another_length() -> None:
    """A body that is longer than its content-length leaves nothing that could be trusted."""
    for cutter in (Cutter(), Cutter(large=0)):
        with pytest.raises(ConnectionLostError, match="content-length"):
            list(cutter.cut(b"MESSAGE\ncontent-length:1\n\nab\0"))


@pytest.mark.parametrize("head", [b"MESSAGE\na:b", b"MESSAGE\na:b\n", b"MESSAGE", b"\nMESSAGE\r\na:b\r\n"])
def test_headers_without_an_end(head: bytes) -> None:
    """Of a message that ends within its headers nothing is handed on: it is torn, and what follows may be its rest."""
    with pytest.raises(ConnectionLostError, match="headers do not end with a blank line"):
        list(Cutter().cut(head + b"\0\nb:c\n\nbody\0"))


def test_a_length_beyond_any() -> None:
    """A length with too many digits leaves nothing that could be trusted either: a NUL in the body would not end it."""
    with pytest.raises(ConnectionLostError, match="content-length of more than 12 digits"):
        list(Cutter().cut(b"MESSAGE\ncontent-length:9999999999999\n\nab\0"))


LIMIT = 20


def what_is_left(frame: bytes) -> bytes | SkippedFrame:
    """Say what a frame becomes."""
    head, _, body = frame[:-1].partition(b"\n\n")
    return SkippedFrame(head + b"\n\n", len(body), TOO_LARGE.format(len(body), LIMIT)) if len(body) > LIMIT else frame


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=3 * LIMIT)), max_size=5), LARGE, st.data())
def test_above_the_limit(bodies: list[tuple[bool, bytes]], large: int, data: st.DataObject) -> None:
    """A frame above the limit is passed over, whatever its pieces, with a length and without; the others are whole."""
    frames = [
        pack("MESSAGE", {"content-length": str(len(body))}, body)
        if has_length
        else pack("MESSAGE", {"a": "b"}, body.replace(b"\0", b""))
        for has_length, body in bodies
    ]
    octets = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=8)))
    cutter = Cutter(LIMIT, large)
    found = [frame for start, end in pairwise([0, *cuts, len(octets)]) for frame in cutter.cut(octets[start:end])]
    assert list(map(octets_of, found)) == [what_is_left(frame) for frame in frames]


@pytest.mark.parametrize("has_length", [True, False])
def test_what_is_held(has_length: bool) -> None:
    """Of a frame with a length above the limit nothing is held but its head; of another as much as the limit."""
    cutter = Cutter(1000)
    piece = b"x" * 500
    assert not list(cutter.cut(b"MESSAGE\nack:1\n" + b"content-length:100000\n" * has_length + b"\n"))
    for _ in range(200):
        assert not list(cutter.cut(piece))
        assert len(cutter._held) <= (0 if has_length else 1000 + len(piece))
    [found] = cutter.cut(b"\0")
    assert isinstance(found, SkippedFrame)
    assert (found.size, found.head.startswith(b"MESSAGE\nack:1\n")) == (100_000, True)


def test_length_that_is_wrong_above_the_limit() -> None:
    """It is noticed there too."""
    with pytest.raises(ConnectionLostError, match="does not end where its content-length says"):
        list(Cutter(1).cut(b"MESSAGE\ncontent-length:2\n\nabc\0"))


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
@pytest.mark.parametrize(
    "more",
    [
        b"a:b\n" * 600_000,
        b"a:" + b"b" * (3 << 20) + b"\n",
        b"message-id:forged" + b"x" * (2 << 20) + b"\n",
        b"ack:2\n" * 400_000,
    ],
)
def test_headers_above_the_limit(more: bytes, size: int) -> None:
    """Of headers above the limit those are kept by which the message is known, the first of each; little is held."""
    head = b"MESSAGE\nack:1\n" + more + b"message-id:2\nreply-to:/queue/r\ncontent-length:3\n\n"
    frame, cutter, found = head + b"\0\0\0\0" + pack("RECEIPT", {}), Cutter(), list[Cut]()
    step = max(size, len(frame) // 1000)
    for at in range(0, len(frame), step):
        found += cutter.cut(frame[at : at + step])
        assert len(cutter._held) < 3 << 20
    first = b"MESSAGE\nack:1\nmessage-id:2\nreply-to:/queue/r\ncontent-length:3\n\n"
    assert list(map(octets_of, found)) == [SkippedFrame(first, 3, HEADERS_TOO_LARGE), pack("RECEIPT", {})]


@pytest.mark.parametrize("large", [0, LARGE_OCTETS])
def test_let_go(large: int) -> None:
    """What came of a body can be let go once, and so much as is to be told of the frame is kept; a head cannot."""
    cutter, head, body = Cutter(large=large), b"MESSAGE\nmessage-id:1\ncontent-length:6\n\n", b"abcdef"
    assert list(cutter.cut(head[:10])) == []
    assert not cutter.let_go()
    assert list(cutter.cut(head[10:] + body[:4])) == []
    assert cutter.let_go()
    assert not cutter._held
    assert not cutter.let_go()
    receipt = pack("RECEIPT", {})
    found = cutter.cut(body[4:] + b"\0" + receipt)
    assert list(map(octets_of, found)) == [SkippedFrame(head, 6, NO_MEMORY), receipt]


def test_a_large_body_is_kept_once() -> None:
    """A body of a megabyte takes a megabyte and a little more, from its first octet to the end of its frame."""
    size, piece = 1 << 20, bytes(1 << 12)
    cutter = Cutter()
    tracemalloc.start()
    found = list(cutter.cut(b"MESSAGE\ncontent-length:%d\n\n" % size))
    for _ in range(size // len(piece)):
        found += cutter.cut(piece)
    found += cutter.cut(b"\0")
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(each.body) for each in found if isinstance(each, WholeFrame)] == [size]
    assert highest < 1.25 * size


def test_many_headers() -> None:
    """So many lines that are short are too many as well; as many as may be are not."""
    for count, is_whole in ((MAX_HEADERS - 3, True), (MAX_HEADERS, False)):
        frame = b"MESSAGE\nack:1\n" + b"a:\n" * count + b"\n\0"
        [found] = Cutter().cut(frame)
        assert (octets_of(found) == frame) is is_whole


def test_each_octet_is_looked_at_once() -> None:
    """A frame with NULs in its body, in pieces, takes time in proportion to its length: see the numbers of searches."""

    class Counted(bytearray):
        looked = 0

        def find(self, *arguments: object) -> int:  # type: ignore[override]
            type(self).looked += len(self) - int(str(arguments[1]))
            return super().find(*arguments)  # type: ignore[arg-type]

    cutter = Cutter()
    cutter._held = Counted()
    body = b"\0x" * 50_000
    frame = pack("MESSAGE", {"content-length": str(len(body))}, body) + pack("RECEIPT", {}, b"x" * 50_000)
    found = [each for at in range(0, len(frame), 1000) for each in cutter.cut(frame[at : at + 1000])]
    assert len(found) == 2
    assert Counted.looked <= 2 * len(frame)


@pytest.mark.parametrize("frame", [b"\0", b"x\0", b"MESSAG\n\0"])
def test_short_frames(frame: bytes) -> None:
    """For each of many frames without an end of their headers, what follows is not looked through."""
    octets = frame * (1_000_000 // len(frame))
    began = process_time()
    assert sum(1 for _ in Cutter().cut(octets)) == 1_000_000 // len(frame)
    assert process_time() - began < 8
