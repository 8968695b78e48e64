"""What the report offers to copy: true to the message, and safe in a shell, a terminal and a ticket."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calling_kit import fresh, take_one
from cli_kit import run
from replay_logs import ENVELOPE, at, request
from report_kit import ATTACK, large

import soapjms
from brokers import Destination, DestinationKind, Message, MessageType, properties, queue, topic
from brokers.message import Element, PropertyType, changed
from soapjms.protocol.assertions import ASSERTIONS, Setting, VerdictOutcome, judge
from soapjms.protocol.exchange import exchanges_of
from soapjms.protocol.names import PROFILES, REC_2012, Profile
from soapjms.protocol.record import Direction, Record, body_digest, capture, from_json
from soapjms.replay.differences import Difference, Piece, differences
from soapjms.replay.excerpts import MAX_KEPT_OCTETS, Excerpt
from soapjms.replay.findings import Cause, Sample
from soapjms.replay.parties import PartyKey
from soapjms.replay.report.cases import times_of
from soapjms.replay.report.copies import (
    END_OF_RECORD,
    IDS,
    IDS_ONE_WAY,
    CallCommand,
    call_command,
    code_block,
    code_span,
    compacted,
    raw_text,
    ticket,
)
from soapjms.replay.report.remedies import rule_text
from soapjms.replay.report.tables import CauseLine, rows

SHELL = "soapjms() {{ printf '%s\\0' \"$@\" > words; cat > given; }}; {}"
HOSTILE = f"'\"`$(touch broken) ; touch broken & !x {ATTACK}\n-- --uri=x"


TYPED = HOSTILE.replace("\0", "")
"""The same without NUL, which no argument of a program can hold."""


def recorded(message: Message, direction: Direction | None = Direction.REQUEST) -> Record:
    """Capture a message."""
    return capture(message, at(1), direction)


def line_of(record: Record) -> str:
    """Return a record as an excerpt keeps it: a line of a log."""
    return Excerpt.of(record, "request", "").line


def command(message: Message, profile: Profile = REC_2012) -> CallCommand:
    """Return the command for a request."""
    return call_command(line_of(recorded(message)), profile)


def typed_in(line: str, folder: Path) -> tuple[list[str], bytes]:
    """Let a shell run a line; return the words that the program gets, and its standard input."""
    subprocess.run(["/bin/sh", "-c", SHELL.format(line)], cwd=folder, check=True, timeout=60)
    assert {each.name for each in folder.iterdir()} == {"words", "given"}
    return (folder / "words").read_text("utf-8").split("\0")[:-1], (folder / "given").read_bytes()


def sent_by(line: str, folder: Path, destination: Destination) -> Message:
    """Return the message that the command sends."""
    words, given = typed_in(line, folder)
    url = f"embedded:{fresh('broker')}"
    with soapjms.connect(url) as connection:
        done = run(*words, "--connection", url, "--timeout", "0.1", stdin=given)
        assert done.exit_code in (0, 3), done.stderr
        return take_one(connection, destination)


# As text


def test_raw_text() -> None:
    """Headers, properties and body, each under its JMS name."""
    text = raw_text(recorded(request(1, correlation_id=None, redelivered=False)))
    headers, own, body = text.split("\n\n")
    assert headers.splitlines() == [
        "JMS message type: bytes",
        "JMSDestination: queue:greeter",
        "JMSMessageID: ID:client-1",
        "JMSReplyTo: temporary-queue:ID:client:1",
        "JMSDeliveryMode: 2",
        "JMSPriority: 4",
        "JMSExpiration: 0",
        "JMSTimestamp: 1795176000001",
        "JMSRedelivered: false",
    ]
    assert own.splitlines()[0] == "SOAPJMS_requestURI: jms:queue:greeter"
    assert body == ENVELOPE.format(1)


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        (b"\xff<a>\n\x00", MessageType.BYTES, "\\xff<a>\n\\x00"),
        ("a\u202eb", MessageType.TEXT, "a\\u202eb"),
        (None, MessageType.TEXT, ""),
        (b"x" * 12, MessageType.BYTES, "x" * 10 + "\n… (2 more octets)"),
        ("x" * 12, MessageType.TEXT, "x" * 10 + "\n… (2 more characters)"),
        ((Element(PropertyType.STRING, "a"),), MessageType.STREAM, '[{"type": '),
    ],
)
def test_bodies_as_text(body: Any, kind: MessageType, shown: str) -> None:
    """Octets that are no text are escaped, a long body is cut, other bodies are JSON."""
    text = raw_text(recorded(request(1, body=body, message_type=kind, properties=properties({}))), 10)
    assert text.partition("\n\n")[2].startswith(shown)


def test_a_cut_body_says_so() -> None:
    """A copy does not pretend to be whole."""
    record = replace(recorded(request(1)), truncated=True)
    assert raw_text(record).endswith("… (the body was cut when it was captured)")


def test_a_hostile_message_has_no_lines_of_its_own() -> None:
    """A value cannot add a header, and nothing acts on a terminal."""
    message = request(1, message_id=HOSTILE, properties=properties({HOSTILE: HOSTILE}), body=HOSTILE.encode())
    text = raw_text(recorded(message))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.split("\n\n")[1].split("\n")) == 1


# As a capture record


def test_capture_line() -> None:
    """It is the record, as a replay reads it."""
    record = recorded(request(1))
    assert from_json(line_of(record)) == record


@pytest.mark.parametrize("body", [b"x" * 5000, "ä" * 5000])
def test_a_long_body_is_cut_in_the_record(body: bytes | str) -> None:
    """The record says that it was cut, and keeps the digest of the whole."""
    kind = MessageType.TEXT if isinstance(body, str) else MessageType.BYTES
    found = from_json(line_of(recorded(request(1, body=body, message_type=kind))))
    assert (found.message.body, found.truncated, found.sha256) == (body[:MAX_KEPT_OCTETS], True, body_digest(body))
    longer = replace(found, message=changed(found.message, body=body))
    again = from_json(line_of(longer))
    assert (again.message.body, again.sha256) == (body[:MAX_KEPT_OCTETS], body_digest(body))


def test_a_hostile_record_is_printable() -> None:
    """Nothing of it acts on a terminal, and it still is the record."""
    record = recorded(
        request(1, message_type=MessageType.TEXT, body=HOSTILE + "\U0001f600\ue000\U000e0001", message_id=HOSTILE)
    )
    line = line_of(record)
    assert line.isprintable()
    assert from_json(line) == record


# As a command


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"message_type": MessageType.TEXT, "body": ENVELOPE.format("ä")},
        {"body": ENVELOPE.format("it's\n$(touch broken) `touch broken` !1 \\!").encode()},
        {"message_type": MessageType.TEXT, "body": "no XML \u202e\x85' !! \\u0021 \\\\!"},
        {"delivery_mode": 1, "priority": 7, "type": "t"},
        {"destination": queue("a b/c?d=e&'f")},
        {"reply_to": topic("answers")},
        {"reply_to": None},
        {"message_type": MessageType.MAP, "body": properties({"a": 1, "b": True})},
        {"properties": properties({"SOAPJMS_bindingVersion": "0.3", "n": 7, "flag": True})},
    ],
)
def test_a_command_sends_the_request_again(changes: dict[str, Any], tmp_path: Path) -> None:
    """What the shell and the program make of it is what was captured, but for what the copy says."""
    message = request(1, **changes)
    found = command(message)
    assert all(each.isprintable() for each in found.line.split("\n"))
    assert "!" not in found.line
    sent = sent_by(found.line, tmp_path, message.destination or queue(""))
    for name in ("body", "message_type", "delivery_mode", "priority", "type"):
        assert getattr(sent, name) == getattr(message, name), name
    assert (sent.reply_to is None) is (message.reply_to is None)
    assert set(message.properties) <= set(sent.properties)
    assert found.lost == (IDS if message.reply_to else IDS_ONE_WAY,)


def test_the_profile_of_the_replay_judges() -> None:
    """So that the command says what the report says."""
    assert command(request(1), PROFILES["cxf"]).line.startswith("soapjms call --record - --profile cxf <<'")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"destination": None}, "does not show the name of the destination"),
        ({"destination": Destination(DestinationKind.QUEUE, None)}, "does not show the name of the destination"),
        ({"destination": Destination(DestinationKind.TEMPORARY_QUEUE, HOSTILE)}, "was temporary, and is gone"),
    ],
)
def test_requests_without_a_command(changes: dict[str, Any], said: str) -> None:
    """Where nothing can be sent, the copy says why."""
    found = command(request(1, **changes))
    assert found.line == ""
    assert said in found.lost[0]
    assert found.lost[0].isprintable()


def test_a_cut_request_has_no_command() -> None:
    """Its rest is unknown."""
    found = call_command(line_of(replace(recorded(request(1)), truncated=True)), REC_2012)
    assert found.line == ""
    assert "the body was cut when it was captured" in found.lost[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"destination": queue(HOSTILE)},
        {"reply_to": queue(HOSTILE)},
        {"properties": properties({"SOAPJMS_soapAction": HOSTILE, "SOAPJMS_targetService": TYPED})},
        {"properties": properties({"SOAPJMS_requestURI": f"jms:queue:greeter?{HOSTILE}=1", HOSTILE: HOSTILE})},
        {"properties": properties({"SOAPJMS_soapAction": "--connection=x '$(touch broken)"})},
        {"message_type": MessageType.TEXT, "body": f"{END_OF_RECORD}\ntouch broken\n{HOSTILE}"},
        {"message_id": f"\n{END_OF_RECORD}\ntouch broken", "correlation_id": HOSTILE, "type": HOSTILE},
    ],
)
def test_a_hostile_request_runs_nothing(changes: dict[str, Any], tmp_path: Path) -> None:
    """A shell only ever starts the one program, with our words, and gives it the record."""
    message = request(1, **changes)
    found = command(message)
    assert all(each.isprintable() for each in (*found.line.split("\n"), *found.lost))
    words, given = typed_in(found.line, tmp_path)
    assert words == ["call", "--record", "-", "--profile", "rec-2012"]
    assert from_json(given.decode()) == recorded(message)


# As Markdown


def test_ticket() -> None:
    """It says the rule, what was seen and what to change, with the remedy of the stack."""
    message = request(1, properties=properties({"SOAPJMS_bindingVersion": "0.9"}))
    (exchange,) = exchanges_of([recorded(message)])
    (verdict,) = (
        each
        for each in judge(exchange, Setting())
        if each.assertion == "Protocol-2010" and each.outcome is VerdictOutcome.FAILED
    )
    text = ticket(
        verdict.assertion,
        rule_text(next(each for each in ASSERTIONS if each.id == "Protocol-2010")),
        verdict.reason or "",
        differences(verdict, exchange, Setting()),
        level="SHOULD",
        messages=[("Request", raw_text(verdict.record))],
        facts={"party": "clients of queue:greeter", "how often": "11"},
        stack="cxf",
    )
    assert text.startswith(
        "## Protocol-2010: SOAPJMS_bindingVersion is present and 1.0.\n\n* **SHOULD**, section 2.2.3 of SOAP "
    )
    assert "* party: ` clients of queue:greeter `\n" in text
    assert "```diff\n  property SOAPJMS_bindingVersion\n- seen: 0.9\n+ right: 1.0\n```" in text
    assert "Apache CXF: CXF writes 1.0 unless" in text
    assert '` headers.setSOAPJMSBindingVersion("1.0") `' in text
    assert "### Request\n\n```text\nJMS message type: bytes\n" in text


def outside_of_code(markdown: str) -> str:
    """Return what is left of Markdown without its code, by the rules of CommonMark."""
    lines, fence = [], ""
    for line in markdown.split("\n"):
        opened = re.match(r"`{3,}", line)
        if fence:
            fence = "" if opened and len(opened[0]) >= len(fence) and not line.strip("`").strip() else fence
        elif opened:
            fence = opened[0]
        else:
            lines.append(line)
    assert not fence
    return re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", "\n".join(lines))


@pytest.mark.parametrize(
    "content",
    ["`", "``` \n```", "~~~", "`````\n# head\n`````", HOSTILE, "", " ", "\n\n# x", "@everyone #1 ![x](y) <img src=x>"],
)
def test_hostile_content_stays_in_its_code(content: str) -> None:
    """Whatever a message holds, the ticket's own words are the same."""

    def made(text: str) -> str:
        message = request(1, message_id=text, body=text.encode(), properties=properties({"x": text}))
        difference = Difference(f"header {'x'}", (Piece(text), Piece(text, True)), (Piece(text, True),), True)
        return ticket(
            "Protocol-2010",
            rule_text(ASSERTIONS[0]),
            text,
            [difference],
            messages=[("Request", raw_text(recorded(message)))],
            facts={"since": text},
        )

    assert outside_of_code(made(content)) == outside_of_code(made("plain"))


@pytest.mark.parametrize(
    ("text", "code"), [("a", "` a `"), ("`a``", "``` `a`` ```"), ("a\nb\x00", "` a\\nb\\x00 `"), ("", "`   `")]
)
def test_code_span(text: str, code: str) -> None:
    """It is on one line, and longer quotes enclose shorter ones."""
    assert code_span(text) == code


def test_code_block() -> None:
    """Its fence is longer than any in it."""
    assert code_block("a\n````\nb", "xml") == "`````xml\na\n````\nb\n`````"


def test_copies_are_small_enough_to_embed() -> None:
    """They can be put into a page as JSON."""
    record = recorded(request(1))
    json.dumps([raw_text(record), line_of(record), call_command(line_of(record), REC_2012)])


@pytest.mark.parametrize("parts", [[], ["aa", "bb"], ["bb", "aa", "none"], ["", "x"], ["aabb"]])
def test_what_several_copies_share_is_written_once(parts: list[str]) -> None:
    """Joined, each is the same again."""
    texts = {"one": "xaaybbaaz", "two": "aabb", "three": "", "four": "q"}
    found = compacted(texts, parts)
    for name, text in texts.items():
        pieces = [found[name]] if isinstance(found[name], str) else found[name]
        assert "".join(each if isinstance(each, str) else parts[each] for each in pieces) == text
    if "aabb" in parts:
        assert found["two"] == [0]


def test_when_a_cause_was_seen() -> None:
    """First by its earliest finding; last by what is known of its parties and the rule."""
    party = PartyKey("queue:orders", "requesting", "cxf")
    sample = Sample("2026-11-24T12:00:00.000000Z", "e", "m", "queue:orders", "r", "", "")
    row = next(each for each in rows(large(1000, 10)) if each.id == "Protocol-2010")
    line = CauseLine(row, row.id, "failed", "r", Cause("r", 3, [sample], Counter({party: 3})), {})
    said = {"destination": "queue:orders", "node": "requesting", "stack": "cxf"}
    times = {"Protocol-2010": {"first": "2026-11-24T12:00:00.000000Z", "last": "2026-11-24T23:59:59.000000Z"}}
    others = {**said, "stack": None, "times": {"Protocol-2010": {"first": "2026", "last": "2027"}}}
    summary = large(1000, 10)
    for known, last in ((times, "2026-11-24T23:59:59.000000Z"), ({}, "")):
        members = {**summary.members, "parties": [others, {**said, "times": known}]}
        assert times_of(line, replace(summary, members=members)) == (sample.time, last)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("Protocol-2010", "section 2.2.3 of SOAP over JMS 1.0, Candidate Recommendation of 2009"),
        ("Local-2.2.3-contentEncoding", "section 2.2.3 of SOAP over JMS 1.0, Recommendation of 2012"),
    ],
)
def test_a_section_says_of_which_text_it_is(row: str, words: str) -> None:
    """In words, not as a short form."""
    assert rule_text(next(each for each in ASSERTIONS if each.id == row)).place == words
