"""Heads that share a shape are read as those are that do not."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brokers.stomp.codec import WholeFrame, read
from brokers.stomp.dialect import NAMED
from brokers.stomp.frames import from_frame
from brokers.stomp.heads import MAX_AT_HAND, MAX_HEAD_OCTETS, MAX_PATTERNS, HeadReader, ShapedHeaders

NAMES = (
    "message-id destination destination-type correlation-id reply-to timestamp expires priority persistent redelivered "
    "type content-length ack subscription content-type __HDR_MESSAGE_ID SOAPJMS_requestURI p q receipt "
).split()
VALUES = ["", "1", "2", "true", "false", "ID:a-1-1-1:1:1:1:1", "ID:b", "/queue/a", "/temp-queue/x", "queue://a", "a:b"]
VALUES += ["MULTICAST", "\\c\\n", "\\\\", "\\x", "é\u2028", "jms\\cqueue\\ca", "7,8", "(.)*[", "\r"]


def head(names: list[str], values: list[str], more: str = "") -> WholeFrame:
    """Write a MESSAGE frame with so many headers as there are names."""
    lines = [f"{name}:{value}" for name, value in zip(names, values, strict=False)]
    return WholeFrame("\n".join(["MESSAGE", *lines, *filter(None, [more]), "", ""]).encode(), b"body")


HEADS = st.lists(st.sampled_from(NAMES), max_size=8).flatmap(
    lambda names: st.lists(
        st.tuples(
            st.lists(st.sampled_from(VALUES), min_size=len(names), max_size=len(names)),
            st.sampled_from(["", "", "", "no header", ":nameless", "b\\c:1", "b\\c:2"]),
        ).map(lambda found: head(names, *found)),
        max_size=6,
    )
)


@given(st.lists(HEADS, max_size=3).map(lambda groups: [each for group in groups for each in group]))
@example([head(["p", "p"], [first, second]) for first, second in ("ab", "ac", "dc", "ef")])
@example([head(["q", "b\\c", "p"], [value, "x", value]) for value in VALUES])
def test_same_as_line_by_line(frames: list[WholeFrame]) -> None:
    """Whatever came before, a frame has the same headers in the same order, and makes the same message."""
    for dialect in NAMED.values():
        reader = HeadReader()
        for frame in frames:
            found, expected = reader.read(frame), read(frame)
            assert found == expected
            if found is not None and expected is not None:
                assert list(found.headers.items()) == list(expected.headers.items())
                made = from_frame(found.headers, found.body, dialect)
                assert made == from_frame(dict(expected.headers), expected.body, dialect)


@pytest.mark.parametrize("dialect", NAMED.values(), ids=NAMED)
def test_dialects_differ(dialect: object) -> None:
    """What one dialect made of a shape is not taken for what another one makes of it."""
    reader = HeadReader()
    heads = [head(["message-id", "destination", "p"], [f"7,{number}", "/queue/a", "b"]) for number in range(4)]
    frames = [found for each in heads if (found := reader.read(each)) is not None]
    assert type(frames[-1].headers) is ShapedHeaders
    for other in NAMED.values():
        assert from_frame(frames[-1].headers, b"", other) == from_frame(dict(frames[-1].headers), b"", other)


def test_a_shape_from_the_third_on() -> None:
    """Two heads show what differs; the third, and whatever differs there alone, is read by its shape."""
    reader = HeadReader()
    found = [reader.read(head(["message-id", "p"], [f"{number}", "same"])) for number in range(5)]
    shaped = [each is not None and type(each.headers) is ShapedHeaders for each in found]
    assert shaped == [False, False, True, True, True]
    last = found[-1]
    assert last is not None
    assert isinstance(last.headers, ShapedHeaders)
    assert last.headers.shape.differing == ("message-id",)


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer whose heads have no shape has no more than so many patterns made, and none of long heads."""
    made = list[str]()
    compile_pattern = __import__("re").compile
    monkeypatch.setattr("brokers.stomp.heads.re.compile", lambda text: made.append(text) or compile_pattern(text))
    reader = HeadReader()
    for number in range(4 * MAX_PATTERNS):
        reader.read(head([f"a{number % 100}", f"b{number % 7}", "c"], [f"{number}", "x" * (number % 3), "y"]))
    assert 0 < len(made) <= MAX_PATTERNS
    assert len(reader._at_hand) <= MAX_AT_HAND
    known = len(made)
    for number in range(10):
        reader.read(head(["long"], ["x" * MAX_HEAD_OCTETS + f"{number}"]))
    assert len(made) == known


def test_a_limit_of_names() -> None:
    """Other names, or the same in another order, are another shape."""
    reader = HeadReader()
    for _ in range(3):
        for names in (["a", "b"], ["b", "a"], ["a"], ["a", "b", "c"]):
            frame = head(names, ["1", "2", "3"])
            assert reader.read(frame) == read(frame)
