"""A captured message in forms to copy: as text, as a capture record, as a `soapjms call`, as Markdown for a ticket.

All content of a log is untrusted. No copy has a character that a terminal would act on; in the command everything is
quoted for a shell, and in Markdown everything stands in code that its content cannot end.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from soapjms.protocol.names import Profile
from soapjms.protocol.record import Record, body_to_json, from_json
from soapjms.protocol.repetition import obstacles
from soapjms.protocol.uri import visible
from soapjms.replay.differences import Difference, Piece
from soapjms.replay.excerpts import jms_headers, value_text
from soapjms.replay.report.remedies import STACKS, Remedy, RuleText

MAX_BODY_OCTETS: Final = 1 << 16
"""Maximum number of octets or characters of a body in a copy."""


# As text


def raw_text(record: Record, most: int = MAX_BODY_OCTETS) -> str:
    """Return a message as lines of headers, lines of properties, and its body, as far as it has them.

    An empty line is between them.

    Control characters are shown as escapes, octets that are not UTF-8 too.

    Args:
        record: the captured message.
        most: maximum number of octets or characters of the body.
    """
    message = record.message
    headers = [f"{name}: {visible(value)}" for name, value in jms_headers(message) if value is not None]
    properties = [f"{visible(each.name)}: {visible(value_text(each.value))}" for each in message.properties]
    parts = ("\n".join(lines) for lines in (headers, properties, _body_lines(record, most)))
    return "\n\n".join(filter(None, parts))


def _body_lines(record: Record, most: int) -> Iterator[str]:
    body = record.message.body
    if isinstance(body, str | bytes | memoryview):
        text = body[:most] if isinstance(body, str) else bytes(body[:most]).decode("utf-8", "backslashreplace")
    else:
        text = "" if body is None else json.dumps(body_to_json(body))[:most]
    yield from map(visible, text.split("\n"))
    left = record.message.size - most
    if isinstance(body, str | bytes | memoryview) and left > 0:
        yield f"… ({left} more {'characters' if isinstance(body, str) else 'octets'})"
    if record.truncated:
        yield "… (the body was cut when it was captured)"


# As a command


class CallCommand(NamedTuple):
    """A command line that sends a request again, as it was captured.

    Attributes:
        line: the lines for a POSIX shell; empty if there are none. They take the broker from SOAPJMS_CONNECTION.
        lost: what it does otherwise than the request, or why there is none.
    """

    line: str
    lost: tuple[str, ...]


IDS: Final = "JMSMessageID, JMSCorrelationID and JMSTimestamp are new, and a temporary queue takes the answer"
IDS_ONE_WAY: Final = "JMSMessageID and JMSTimestamp are new"
END_OF_RECORD: Final = "SOAPJMS_RECORD"
"""The line that ends the record in the command; no line of JSON is the same."""


def call_command(line: str, profile: Profile) -> CallCommand:
    """Return the `soapjms call` that sends a captured request or one-way message again.

    Args:
        line: its capture record: one line, of which all is printable.
        profile: the edition or dialect to judge by.

    Raises:
        InvalidRecordError: the line is no record.
    """
    record = from_json(line)
    if problem := next(obstacles(record), None):
        return CallCommand("", (problem,))
    words = ("soapjms", "call", "--record", "-", "--profile", profile.name)
    document = shell_line(line)
    text = f"{shlex.join(words)} <<'{END_OF_RECORD}'\n{document}\n{END_OF_RECORD}\n"
    return CallCommand(text, (IDS_ONE_WAY if record.message.reply_to is None else IDS,))


def shell_line(line: str) -> str:
    """Write a record so that no shell takes a part of it for a reference to its history."""
    return line.replace("!", "\\u0021")  # it can only be within a string of JSON


# As Markdown


def ticket(
    assertion: str,
    text: RuleText,
    reason: str,
    differences: Sequence[Difference] = (),
    *,
    level: str = "MUST",
    messages: Iterable[tuple[str, str]] = (),
    facts: Mapping[str, str] | None = None,
    stack: str = "",
) -> str:
    """Return Markdown about a finding, for the ticket of who has to change something.

    Args:
        assertion: the id of the assertion.
        text: the texts about the assertion.
        reason: the reason of the verdict.
        differences: what is wrong, place by place.
        level: MUST or SHOULD.
        messages: the messages to show, each with its heading and its text of `raw_text`.
        facts: further facts by label, such as the party, how often, and since when.
        stack: the stack of the party by `guess_dialect`, whose remedy is shown too.
    """
    quotation = f": {code_span(text.quotation)}" if text.quotation else ""
    lines = [
        f"## {assertion}: {text.rule}",
        "",
        f"* **{level}**, {text.place}{quotation}",
        f"* seen: {code_span(reason)}",
        *(f"* {label}: {code_span(value)}" for label, value in (facts or {}).items()),
        "",
    ]
    for each in differences:
        lines += [_diff(each), ""]
    lines += ["### What to change", ""]
    if stack in text.by_stack:
        lines += [f"{STACKS[stack]}: {_advice(text.by_stack[stack])}", "", f"In general: {_advice(text.general)}", ""]
    else:
        lines += [_advice(text.general), ""]
    for heading, message in messages:
        lines += [f"### {heading}", "", code_block(message), ""]
    return "\n".join(lines).rstrip() + "\n"


def _advice(remedy: Remedy) -> str:
    return f"{remedy.text} {code_span(remedy.code)}" if remedy.code else remedy.text


def _diff(difference: Difference) -> str:
    right = "right" if difference.is_value else "accepted"
    lines = [f"  {difference.place}", *_marked("-", "seen", difference.seen), *_marked("+", right, difference.right)]
    return code_block("\n".join(lines), "diff")


def _marked(sign: str, label: str, pieces: tuple[Piece, ...]) -> Iterator[str]:
    """Yield the lines of a value, each with a sign, and below it what is marked, as a diff has no other way."""
    text = "".join(each.text for each in pieces)
    if not text:
        yield f"{sign} {label}: nothing"
        return
    for number, line in enumerate(text.split("\n")):
        yield f"{sign} {f'{label}: ' if not number else ''}{line}"
    marked = [each.text.replace("\n", " ") for each in pieces if each.is_marked]
    if marked and "".join(marked) != text:
        yield f"{sign} in it: {' … '.join(marked)}"


def code_span(text: str) -> str:
    """Return a text as code in a line of Markdown; nothing in it can end the code."""
    line = visible(text) or " "
    fence = "`" * (_longest_run(line) + 1)
    return f"{fence} {line} {fence}"


def code_block(text: str, language: str = "text") -> str:
    """Return lines as a block of code in Markdown; no line of theirs can end it."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


# All of them together


def compacted(texts: Mapping[str, str], parts: Sequence[str]) -> dict[str, str | list[str | int]]:
    """Write texts with the numbers of the parts that they share; joined, they are the same again.

    Args:
        texts: texts by name.
        parts: what occurs in several of them.
    """
    return {name: _numbered(text, parts) for name, text in texts.items()}


def _numbered(text: str, parts: Sequence[str]) -> str | list[str | int]:
    pieces: list[str | int] = [text]
    for number, part in enumerate(parts):
        if part:
            pieces = [each for piece in pieces for each in _split(piece, part, number)]
    return text if pieces == [text] else pieces


def _split(piece: str | int, part: str, number: int) -> Iterator[str | int]:
    if isinstance(piece, int):
        yield piece
        return
    for index, between in enumerate(piece.split(part)):
        if index:
            yield number
        if between:
            yield between
