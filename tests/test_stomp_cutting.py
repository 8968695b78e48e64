"""Frames come whole out of whatever pieces a socket brings, in time that grows with their length."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers import ConnectionLostError
from brokers.stomp.cutting import Cutter
from brokers.stomp.link import pack

FRAMES = st.lists(
    st.one_of(
        st.builds(lambda body: pack("MESSAGE", {"content-length": str(len(body))}, body), st.binary(max_size=60)),
        st.builds(lambda body: pack("MESSAGE", {"a": "b"}, body.replace(b"\0", b"")), st.binary(max_size=60)),
        st.builds(lambda text: pack("RECEIPT", {"receipt-id": text}), st.text("ab\\:\n\r", max_size=8)),
        st.sampled_from([b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0", b"ERROR\ncontent-length: 2 \r\n\r\n\0\0\0", b"ODD\0"]),
    ),
    max_size=6,
)  # fmt: skip


@given(FRAMES, st.data())
def test_any_pieces(frames: list[bytes], data: st.DataObject) -> None:
    """Wherever the octets are cut, and whatever signs of life are between, the frames are the same."""
    between = data.draw(st.lists(st.sampled_from([b"", b"\n", b"\r\n", b"\n\n\n"]), min_size=6, max_size=6))
    octets = b"".join(life + frame for life, frame in zip(between, frames, strict=False)) + b"\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=8)))
    cutter = Cutter()
    found = [frame for start, end in pairwise([0, *cuts, len(octets)]) for frame in cutter.cut(octets[start:end])]
    assert found == frames


@given(FRAMES)
def test_octet_by_octet(frames: list[bytes]) -> None:
    """One octet at a time is enough."""
    cutter = Cutter()
    octets = b"".join(frames)
    found = [frame for at in range(len(octets)) for frame in cutter.cut(octets[at : at + 1])]
    assert found == frames


def test_a_frame_of_another_length() -> None:
    """A body that is longer than its content-length leaves nothing that could be trusted."""
    with pytest.raises(ConnectionLostError, match="content-length"):
        list(Cutter().cut(b"MESSAGE\ncontent-length:1\n\nab\0"))


def test_a_length_beyond_any() -> None:
    """A length that no frame has is none, so that the frame ends at its NUL."""
    frame = b"MESSAGE\ncontent-length:99999999999\n\nab\0"
    assert list(Cutter().cut(frame)) == [frame]


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
