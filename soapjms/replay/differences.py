"""What a message has beside what would be right, as pieces of text that are marked where they differ.

The places and what is accepted there are the spots of a verdict's reason, which its check made; nothing is judged here.
All pieces are plain text: control characters of a log are shown as escapes, and long values are cut around their marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from brokers.message import as_text
from soapjms.protocol.assertions import Reason, Setting, Spot, SpotKind, Verdict, judge
from soapjms.protocol.assertions.spots import MAX_RIGHT_CHARACTERS
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.received_message import Reading
from soapjms.protocol.uri import visible
from soapjms.replay.excerpts import jms_headers, time_in_words

Span = tuple[int, int]
"""Begin and end."""

SHOWN_BEFORE_CHARACTERS: Final = 60
"""Octets or characters that are shown before the first mark."""
MAX_SHOWN_CHARACTERS: Final = 300
"""Maximum number of octets or characters that are shown of a value."""
MAX_WORDS: Final = 64
"""Maximum number of words that are compared from the first one on that differs."""
WORD: Final = re.compile(r"[\w.+-]+|.", re.DOTALL)


class Piece(NamedTuple):
    """A piece of a text; marked if it is what is wrong, or what is right in its place."""

    text: str
    is_marked: bool = False


class Difference(NamedTuple):
    """One place of a message, with what is there and what would be right.

    Attributes:
        place: where it is: `property SOAPJMS_contentType`, `header JMSPriority`, `body, octets 0 to 19`.
        seen: what the message has there; empty if it has nothing.
        right: what would be right there.
        is_value: True if `right` is a value, False if it says what is accepted.
        spans: begin and end of what is marked in `seen`, in characters of the whole value; of a body in octets, without
            its content encoding, or in characters of a text.
    """

    place: str
    seen: tuple[Piece, ...]
    right: tuple[Piece, ...]
    is_value: bool
    spans: tuple[Span, ...] = ()

    @classmethod
    def of(cls, members: list[Any]) -> Difference:
        """Read a difference from its JSON form, in which tuples are lists."""
        place, seen, right, is_value, spans = members
        ours, theirs = (tuple(Piece(text, is_marked) for text, is_marked in each) for each in (seen, right))
        return cls(place, ours, theirs, is_value, tuple((begin, end) for begin, end in spans))


def differences(verdict: Verdict, exchange: Exchange, setting: Setting) -> list[Difference]:
    """Return what is wrong with a message by a verdict on it, place by place; empty for one that broke nothing.

    Args:
        verdict: one of the verdicts on the exchange.
        exchange: the exchange that was judged.
        setting: the setting by which it was judged.
    """
    reason = _judged_again(verdict, exchange, setting)
    if not isinstance(reason, Reason):
        return []
    message = Reading.of(verdict.record, setting.profile, setting.limits)
    return [_difference(spot, message) for spot in reason.spots]


def _judged_again(verdict: Verdict, exchange: Exchange, setting: Setting) -> str | None:
    """Return the reason with spots of this message: a verdict may have that of another, similar message."""
    for each in judge(exchange, setting):
        is_same = (each.assertion, each.outcome, each.reason) == (verdict.assertion, verdict.outcome, verdict.reason)
        if is_same and each.record is verdict.record:
            return each.reason
    return None


def _difference(spot: Spot, message: Reading) -> Difference:
    seen = _seen(spot, message)
    if spot.kind is SpotKind.BODY:
        return _of_body(spot, seen)
    place = f"{spot.kind} {visible(spot.name)}"
    if seen is None:
        return Difference(place, (), _pieces(spot.right, [(0, len(spot.right))] * spot.is_value), spot.is_value)
    text = str(seen)
    if not spot.is_value:
        marks = [spot.span or (0, len(text))]
        return Difference(place, _pieces(text, marks), _pieces(spot.right, []), False, tuple(marks))
    ours, theirs = _compared(text, spot.right)
    left, right = ((*_pieces(each, marks), *_time(spot, each)) for each, marks in ((text, ours), (spot.right, theirs)))
    return Difference(place, left, right, True, tuple(ours))


def _time(spot: Spot, value: str) -> Iterator[Piece]:
    """Yield a time in words, beside the value of a header that holds one."""
    words = time_in_words(spot.name, value) if spot.kind is SpotKind.HEADER else ""
    if words:
        yield Piece(f" ({words})")


def _seen(spot: Spot, message: Reading) -> str | bytes | None:
    """Return what a message has at a spot, as text or octets; None for nothing."""
    if spot.kind is SpotKind.HEADER:
        return dict(jms_headers(message.message)).get(spot.name)
    if spot.kind is SpotKind.BODY:
        return message.body
    found = message.message.properties.lookup(spot.name)
    if found is None:
        return None
    return str(found.type) if spot.kind is SpotKind.PROPERTY_TYPE else as_text(found.value)


def _of_body(spot: Spot, body: str | bytes | None) -> Difference:
    """Make the difference of a body, of which no certain part may be wrong."""
    right = _pieces(spot.right, [])
    if body is None:
        return Difference("body", (), right, False)
    marks = [spot.span] if spot.span is not None else []
    return Difference(_place_in_body(body, marks), _pieces(body, marks), right, False, tuple(marks))


def _place_in_body(body: str | bytes, marks: list[Span]) -> str:
    if not marks:
        return "body"
    unit, (begin, end) = "character" if isinstance(body, str) else "octet", marks[0]
    return f"body, {unit} {begin}" if end <= begin + 1 else f"body, {unit}s {begin} to {end - 1}"


def _compared(seen: str, right: str) -> tuple[list[Span], list[Span]]:
    """Return the spans at which two values differ, in words: those near the first one that differs."""
    ours, theirs = _words(seen), _words(right)
    begin = _length_in_common(ours, theirs)
    end = _length_in_common(ours[begin:][::-1], theirs[begin:][::-1])
    one, other = ours[begin : len(ours) - end], theirs[begin : len(theirs) - end]
    blocks = SequenceMatcher(None, one[:MAX_WORDS], other[:MAX_WORDS], autojunk=False).get_opcodes()
    changes = [each for kind, *each in blocks if kind != "equal"]
    if max(len(one), len(other)) > MAX_WORDS and len(changes) > 1:
        changes.pop()  # the words at the cut, whose counterparts come after it
    return (
        [_span(ours, begin + each[0], begin + each[1]) for each in changes],
        [_span(theirs, begin + each[2], begin + each[3]) for each in changes],
    )


def _words(text: str) -> list[str]:
    return WORD.findall(text[:MAX_RIGHT_CHARACTERS])


def _length_in_common(one: list[str], other: list[str]) -> int:
    """Return the number of words with which both begin."""
    both = zip(one, other, strict=False)
    return next((number for number, (ours, theirs) in enumerate(both) if ours != theirs), min(len(one), len(other)))


def _span(words: list[str], begin: int, end: int) -> Span:
    start = sum(map(len, words[:begin]))
    return start, start + sum(map(len, words[begin:end]))


def _pieces(value: str | bytes, marks: Iterable[Span]) -> tuple[Piece, ...]:
    """Cut a value at its marks, and leave out what is far before or after the first one."""
    spans = [each for each in marks if each[0] < each[1]]
    first = max(0, spans[0][0] - SHOWN_BEFORE_CHARACTERS) if spans else 0
    last = min(len(value), first + MAX_SHOWN_CHARACTERS)
    return (*cut(value, spans, first, last, _text), *[Piece("…")] * (last < len(value)))


def cut(
    value: str | bytes | memoryview, spans: Iterable[Span], first: int, last: int, text: Callable[[Any], str]
) -> list[Piece]:
    """Cut what is from `first` to `last` in a value at its marks; what comes before that is an ellipsis."""
    pieces, at = [Piece("…" if first else "")], first
    for begin, end in spans:
        begin, end = min(begin, last), min(end, last)
        pieces += [Piece(text(value[at:begin])), Piece(text(value[max(at, begin) : end]), True)]
        at = max(at, end)
    pieces.append(Piece(text(value[at:last])))
    return [each for each in pieces if each.text]


def _text(value: str | bytes) -> str:
    """Return characters, or octets in UTF-8, as text without control characters; the line ends stay."""
    text = value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
    return "\n".join(map(visible, text.split("\n")))
