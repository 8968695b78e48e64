"""Why an assertion does not hold, with the spots of the message that show it and what would be right there.

A check makes its spots beside its text, so that what is accepted is stated in one place. A spot names a place and has
no content of the message but what `right` repeats; who shows it reads the value from the message.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from soapjms.protocol.received_message import Reading

MESSAGE_TYPE: Final = "JMS message type"
"""The name of the JMS message type, which is no header in JMS, among the headers."""
MAX_RIGHT_CHARACTERS: Final = 1000
"""Longest text that a spot keeps, in characters: as it may repeat a value of the message."""


class SpotKind(StrEnum):
    """What kind of place a spot is."""

    HEADER = "header"
    PROPERTY = "property"
    PROPERTY_TYPE = "type of property"
    BODY = "body"


class Spot(NamedTuple):
    """A place in the judged message, for a pair in the response, that breaks an assertion.

    Attributes:
        kind: what kind of place it is.
        name: the JMS name of the header or property; empty for the body.
        right: what would be right there: a value, or a description of what is accepted.
        is_value: True if `right` is a value.
        span: begin and end of what is wrong, in characters of a value or a text, in octets of a body without its
            content encoding. None for all of a header or property, and if no certain part of a body is wrong.
    """

    kind: SpotKind
    name: str
    right: str
    is_value: bool = True
    span: tuple[int, int] | None = None


class Reason(str):
    """Why an assertion does not hold, for people; a text that also has the spots."""

    spots: tuple[Spot, ...]

    def __new__(cls, text: str, *spots: Spot) -> Reason:
        """Make a reason."""
        made = super().__new__(cls, text)
        made.spots = spots
        return made


def header(name: str, right: object, *, is_value: bool = True) -> Spot:
    """Return the spot of a header."""
    return Spot(SpotKind.HEADER, name, str(right)[:MAX_RIGHT_CHARACTERS], is_value)


def missing_property(name: str, right: str, *, is_value: bool = True) -> Spot:
    """Return the spot of a property that the message does not have under its own name."""
    return Spot(SpotKind.PROPERTY, name, right[:MAX_RIGHT_CHARACTERS], is_value)


def in_property(
    message: Reading, name: str, right: object, *, is_value: bool = True, span: tuple[int, int] | None = None
) -> Spot:
    """Return the spot of a property, under the name that it has in the message."""
    seen = name if message.message.properties.lookup(name) is not None else message.alias_of(name) or name
    return Spot(SpotKind.PROPERTY, seen, str(right)[:MAX_RIGHT_CHARACTERS], is_value, span)


def in_body(accepted: str, span: tuple[int, int] | None = None) -> Spot:
    """Return a spot of the body with a description of what is accepted."""
    return Spot(SpotKind.BODY, "", accepted[:MAX_RIGHT_CHARACTERS], False, span)


def span_of(text: str | None, body: bytes | str | None, encoding: str = "utf-8") -> tuple[int, int] | None:
    """Return where a body has a text first, in octets or characters; None if it does not have it, as it is written.

    Args:
        text: the text.
        body: the body.
        encoding: the name of the codec of its octets.
    """
    if not text or body is None:
        return None
    wanted = text.encode(encoding, "surrogatepass") if isinstance(body, bytes) else text
    begin = body.find(wanted)  # type: ignore[arg-type]  # both are octets, or both are text
    return None if begin < 0 else (begin, begin + len(wanted))


def malformed_span(text: str, line: int, column: int) -> tuple[int, int]:
    """Return the range of characters that a parser complains of, in a document that is not well-formed.

    It is the tag that ends before this place, else the character there, else the last one.

    Args:
        text: the document.
        line, column: where the parser stopped, from 1 on.
    """
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    has_mark = line == 1 and text.startswith("\ufeff")  # which is no character of the document to a parser
    at = min(start + column - 1 + has_mark, len(text))
    if text[at - 1 : at] == ">":
        return max(text.rfind("<", 0, at), 0), at
    begin = min(at, len(text) - 1)
    return begin, begin + 1


def beginning(body: bytes | str | None, size: int = 20) -> tuple[int, int]:
    """Return the range of the first octets or characters of a body."""
    return 0, min(size, len(body or b""))
