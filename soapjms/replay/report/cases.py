"""The findings of the page as cases: what was seen beside what would be right, the exchange, and copies to take along.

All texts are limited in length and have no control characters; the page inserts them as text only.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from brokers.message import Message
from soapjms.protocol.names import Level, Profile, profile
from soapjms.protocol.properties import Carrier
from soapjms.protocol.record import Record, format_time
from soapjms.protocol.uri import visible as printable
from soapjms.replay.differences import Piece, Span, cut
from soapjms.replay.excerpts import KIND_OF_NODE, KINDS, MAX_BODY_CHARACTERS, Excerpt, body_excerpt, headers
from soapjms.replay.findings import Sample
from soapjms.replay.parties import PartyKey
from soapjms.replay.report.copies import CallCommand, call_command, compacted, raw_text, shell_line, ticket
from soapjms.replay.report.remedies import rule_texts
from soapjms.replay.report.sentences import who
from soapjms.replay.report.tables import CauseLine
from soapjms.replay.report.texts import clock_time, visible, visible_lines
from soapjms.replay.summary import Summary

KEY_DIGITS: Final = 10
NODE_OF_KIND: Final = {kind: node for node, kind in KIND_OF_NODE.items()}
ANSWER: Final = KINDS[Carrier.RESPONSE]
IN_LOG: Final = "the request is longer than a report keeps; soapjms call --record sends its line of the log"


def key_of(line: CauseLine) -> str:
    """Return the name of a finding in addresses: the same in each report that has it."""
    said = f"{line.row.id}\0{line.verdict}\0{line.reason}".encode("utf-8", "backslashreplace")
    return sha256(said).hexdigest()[:KEY_DIGITS]


def case(line: CauseLine, sample: Sample, summary: Summary) -> dict[str, Any]:
    """Return a sample as the page's script reads it; members without a value are left out.

    Raises:
        InvalidRecordError: the sample was read from a damaged file.
    """
    records = [each.record for each in sample.messages]
    marked = [span for each in sample.differences if each.place.startswith("body") for span in each.spans]
    members = {
        "t": sample.time,
        "e": visible(sample.exchange_id),
        "i": visible(sample.message_id),
        "q": visible(sample.destination),
        "r": visible(sample.reason),
        "x1": visible(sample.expected_subcodes),
        "x2": visible(sample.observed_subcode),
        "k": sample.stack,
        "d": sample.direction,
        "df": [[each.place, _pairs(each.seen), _pairs(each.right), each.is_value] for each in sample.differences],
        "ms": [
            _message(each, record, marked if each.kind == sample.direction else [])
            for each, record in zip(sample.messages, records, strict=True)
        ],
        "c": _copies(line, sample, records, summary),
    }
    return {name: value for name, value in members.items() if value}


def _pairs(pieces: Iterable[Piece]) -> list[list[Any]]:
    return [[each.text, int(each.is_marked)] for each in pieces]


def _message(excerpt: Excerpt, record: Record, marked: list[Span]) -> dict[str, Any]:
    body, left = _body(record.message, marked)
    return {
        "d": excerpt.kind,
        "t": format_time(record.time),
        "k": excerpt.stack,
        "h": [[visible(name), visible(value)] for name, value in headers(record)],
        "b": _pairs(body),
        "m": left + excerpt.left,
    }


def _body(message: Message, marked: list[Span]) -> tuple[list[Piece], int]:
    """Return the beginning of a body in pieces, or what is around its first mark, and how much of it is left out."""
    body = message.body
    if not isinstance(body, str | bytes | memoryview):
        text, left = body_excerpt(message)
        return [Piece(visible_lines(text))] if text else [], left
    spans = sorted(each for each in marked if each[0] < len(body))
    is_far = bool(spans) and spans[0][1] > MAX_BODY_CHARACTERS
    first = max(0, spans[0][0] - MAX_BODY_CHARACTERS // 2) if is_far else 0
    last = min(len(body), first + MAX_BODY_CHARACTERS)
    return cut(body, spans, first, last, _text), len(body) - (last - first)


def _text(part: str | bytes | memoryview) -> str:
    text = part if isinstance(part, str) else bytes(part).decode("utf-8", "backslashreplace")
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(printable(line.replace("\t", "    ")) for line in lines)


def about_rule(line: CauseLine, summary: Summary) -> dict[str, Any]:
    """Return what the page says of the rule that a cause broke: the rule, where it is from, and the remedies."""
    text = rule_texts(summary.members["profile"])[line.rule]
    return {
        "a": line.row.id,
        "r": text.rule,
        "p": text.place,
        "h": line.row.link,
        "q": text.quotation,
        "g": text.general,
        "b": dict(text.by_stack),
    }


def times_of(line: CauseLine, summary: Summary) -> tuple[str, str]:
    """Return when a cause was seen first and last, as far as it is known; else an empty text.

    The earliest findings are its samples. The last one is known for each party and rule: if the party broke the rule
    for several reasons, it is that of any of them.
    """
    first = line.samples[0].time if line.samples else ""
    lasts = [
        party["times"][line.rule]["last"]
        for party in summary.members["parties"]
        if PartyKey.of(party) in line.cause.where and line.rule in party.get("times", {})
    ]
    return first, max((each for each in lasts if each), default="")


def _copies(line: CauseLine, sample: Sample, records: list[Record], summary: Summary) -> dict[str, Any]:
    """Return what can be copied, by its name in the page; the parts that several have are in `parts`, once."""
    judged = next((at for at, each in enumerate(sample.messages) if each.kind == sample.direction), None)
    if judged is None:
        return {}
    told = range(judged + 1) if sample.direction == ANSWER else (judged,)  # with the request that it answers
    raws = {at: raw_text(records[at]) for at in told}
    lines = [shell_line(sample.messages[at].line) for at in told if sample.messages[at].is_whole]
    command = _command(sample, profile(summary.members["profile"]))
    texts = {
        "raw": raws[judged],
        "record": "\n".join(lines) if len(lines) == len(told) else "",
        "call": command.line,
        "lost": "; ".join(command.lost),
        "ticket": ticket(
            line.row.id,
            rule_texts(summary.members["profile"])[line.rule],
            sample.reason,
            sample.differences,
            level=line.row.level if line.row.level != Level.NONE else Level.MUST,
            messages=[(sample.messages[at].kind.capitalize(), raw) for at, raw in raws.items()],
            facts=_facts(line, sample, summary),
            stack=sample.stack,
        ),
    }
    parts = [*raws.values(), *lines]
    return {"parts": parts, **compacted({name: text for name, text in texts.items() if text}, parts)}


def _facts(line: CauseLine, sample: Sample, summary: Summary) -> dict[str, str]:
    first, last = (each and clock_time(each) for each in times_of(line, summary))
    facts = {
        "by": who(NODE_OF_KIND[sample.direction], sample.place),
        "messages": f"{line.cause.count:,}",
        "since": first,
        "last": last,
        "example": f"captured {clock_time(sample.time)}",
        "exchange": sample.exchange_id,
        "message": sample.message_id,
        "expected fault": sample.expected_subcodes,
        "observed fault": sample.observed_subcode,
    }
    return {name: value for name, value in facts.items() if value}


def _command(sample: Sample, edition: Profile) -> CallCommand:
    """Return the command that sends the request, or the one-way message, again."""
    for excerpt in sample.messages:
        if excerpt.kind != ANSWER:
            if not excerpt.is_whole or excerpt.left:
                return CallCommand("", (IN_LOG,))
            return call_command(excerpt.line, edition)
    return CallCommand("", ("the request was not captured",))
