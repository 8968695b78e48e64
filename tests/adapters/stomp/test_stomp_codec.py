"""Frames are read as stomp.py reads them, or left to it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stomp.utils import parse_frame

from brokers.errors import UsageError
from brokers.stomp.codec import LARGE_OCTETS, Cutter, Frame, WholeFrame, pack, pack_apart, read

LINES = st.text(st.sampled_from("ab:\\cnr\t é\u2028"), max_size=12)
BODIES = st.binary(max_size=40)


@given(st.lists(LINES, max_size=6), BODIES)
@example(["a:1", "a:2", ":nameless", "no header", "", "b:\\\\c\\c\\x\\"], b"")
def test_reads_what_stomp_py_reads(lines: list[str], body: bytes) -> None:
    """Whatever the headers look like, both find the same, the first of two with one name too."""
    head = "\n".join(["MESSAGE", *filter(None, lines), "", ""]).encode()
    theirs = parse_frame(head + body)
    assert read(WholeFrame(head, body)) == Frame(theirs.cmd, theirs.headers, theirs.body)


@given(st.dictionaries(st.text("ab\\:\ncr", min_size=1, max_size=6), st.text("ab\\:\ncr", max_size=6)), BODIES)
def test_what_was_written_is_read(headers: dict[str, str], body: bytes) -> None:
    """Names and values come back from the wire as they went there."""
    headers |= {"content-length": str(len(body))}
    head = pack("MESSAGE", headers).removesuffix(b"\0")
    assert pack("MESSAGE", headers, body) == head + body + b"\0"
    assert read(WholeFrame(head, body)) == Frame("MESSAGE", headers, body)


@pytest.mark.parametrize("body", [b"a\0SEND\ndestination:b\n\n", b"a" * LARGE_OCTETS + b"\0"])
def test_no_body_holds_further_frames(body: bytes) -> None:
    """Without a length, NUL ends a frame: the broker would carry out what comes after it."""
    for write in (pack, pack_apart):
        with pytest.raises(UsageError, match="the body of SEND cannot hold NUL without content-length"):
            write("SEND", {"destination": "a"}, body, version="1.2")
        assert write("SEND", {"content-length": str(len(body))}, body, version="1.2")


def test_a_header_that_is_no_utf8() -> None:
    """Octets that are no UTF-8 become replacement characters, as with stomp.py."""
    found = read(WholeFrame(b"MESSAGE\na:\xff\n\n"))
    assert found is not None
    assert found.headers == parse_frame(b"MESSAGE\na:\xff\n\n").headers == {"a": "\ufffd"}


@pytest.mark.parametrize("octets", [b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0", b"MESSAGE\na:\r\n\n\0", b"RECEIPT\na:b\0"])
def test_what_is_out_of_the_ordinary_is_left(octets: bytes) -> None:
    """Lines that end with CR and LF, or headers without an end, are for stomp.py."""
    [frame] = Cutter().cut(octets)
    assert isinstance(frame, WholeFrame)
    assert read(frame) is None
