"""What the report offers to copy: true to the message, and safe in a shell, a terminal and a ticket."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calling_kit import fresh, take_one
from cli_kit import run
from replay_logs import CXF, ENVELOPE, at, request
from report_kit import ATTACK

import soapjms
from brokers import Destination, DestinationKind, Message, MessageType, properties, queue, topic
from brokers.message import Element, PropertyType
from soapjms.protocol.assertions import ASSERTIONS, Outcome, Setting, judge
from soapjms.protocol.exchange import exchanges_of
from soapjms.protocol.names import PROFILES, REC_2012, Profile
from soapjms.protocol.record import Direction, Record, body_digest, capture, from_json
from soapjms.replay.differences import Difference, Piece, differences
from soapjms.replay.excerpts import capture_line
from soapjms.replay.report.copies import (
    IDS,
    MAX_BODY_OCTETS,
    CallCommand,
    call_command,
    code_block,
    code_span,
    raw_text,
    ticket,
)
from soapjms.replay.report.remedies import rule_text

SHELL = "soapjms() {{ printf '%s\\0' \"$@\" > words; cat > envelope; }}; {}"
HOSTILE = f"'\"`$(touch broken) ; touch broken & !x {ATTACK}\n-- --uri=x"


TYPED = HOSTILE.replace("\0", "")
"""The same without NUL, which no argument of a program can hold."""


def recorded(message: Message, direction: Direction | None = Direction.REQUEST) -> Record:
    """Capture a message."""
    return capture(message, at(1), direction)


def command(message: Message, profile: Profile = REC_2012) -> CallCommand:
    """Return the command for a request."""
    return call_command(recorded(message), profile)


def typed_in(line: str, folder: Path) -> tuple[list[str], bytes]:
    """Let a shell run a line; return the words that the program gets, and its standard input."""
    subprocess.run(["/bin/sh", "-c", SHELL.format(line)], cwd=folder, check=True, timeout=60)
    assert {each.name for each in folder.iterdir()} == {"words", "envelope"}
    return (folder / "words").read_text("utf-8").split("\0")[:-1], (folder / "envelope").read_bytes()


def sent_by(line: str, folder: Path, destination: Destination) -> Message:
    """Return the message that the command sends."""
    words, envelope = typed_in(line, folder)
    url = f"embedded:{fresh('broker')}"
    with soapjms.connect(url) as connection:
        done = run(*words, "--connection", url, "--timeout", "0.1", stdin=envelope)
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
    assert from_json(capture_line(record)) == record


@pytest.mark.parametrize("body", [b"x" * 20, "ä" * 20])
def test_a_long_body_is_cut_in_the_record(body: bytes | str) -> None:
    """The record says that it was cut, and keeps the digest of the whole."""
    kind = MessageType.TEXT if isinstance(body, str) else MessageType.BYTES
    found = from_json(capture_line(recorded(request(1, body=body, message_type=kind)), 10))
    assert (found.message.body, found.truncated, found.sha256) == (body[:10], True, body_digest(body))
    again = from_json(capture_line(found, 5))
    assert (again.message.body, again.sha256) == (body[:5], body_digest(body))


def test_a_hostile_record_is_printable() -> None:
    """Nothing of it acts on a terminal, and it still is the record."""
    record = recorded(
        request(1, message_type=MessageType.TEXT, body=HOSTILE + "\U0001f600\ue000\U000e0001", message_id=HOSTILE)
    )
    line = capture_line(record)
    assert line.isprintable()
    assert from_json(line) == record


# As a command


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"message_type": MessageType.TEXT, "body": ENVELOPE.format("ä")},
        {"body": ENVELOPE.format("ä\u202e\x85'").encode()},
        {"body": ENVELOPE.format("it's\n$(touch broken) `touch broken` !1").encode()},
        {"delivery_mode": 1, "priority": 7},
        {"destination": queue("a b/c?d=e&'f")},
        {"reply_to": None},
    ],
)
def test_a_command_sends_the_request_again(changes: dict[str, Any], tmp_path: Path) -> None:
    """What the shell and the program make of it is what was captured, but for what the copy says."""
    message = request(1, **changes)
    found = command(message)
    assert all(each.isprintable() for each in found.line.split("\n"))
    sent = sent_by(found.line, tmp_path, message.destination or queue(""))
    assert sent.body == message.body
    assert sent.message_type is message.message_type
    assert (sent.delivery_mode, sent.priority) == (message.delivery_mode, message.priority)
    assert (sent.reply_to is None) is (message.reply_to is None)
    said = " ".join(found.lost)
    theirs = {each.name: each.value for each in message.properties}
    ours = {each.name: each.value for each in sent.properties if each.name.startswith("SOAPJMS_")}
    for name in theirs.keys() | ours.keys():
        assert theirs.get(name) == ours.get(name) or name in said


def test_a_reply_queue_and_a_lifetime(tmp_path: Path) -> None:
    """They are parameters of the URI, as are the other properties of the sender; what is secret is left out."""
    uri = "jms:queue:greeter?custom=a%27b&password=hidden&priority=1"
    more = {"SOAPJMS_requestURI": uri, "SOAPJMS_targetService": "s'"}
    message = request(1, reply_to=queue("r&r"), expiration=1795176000001 + 60_000)
    message = replace(message, properties=message.properties.merged(properties(more)))
    found = command(message)
    assert "hidden" not in found.line
    words, _ = typed_in(found.line, tmp_path)
    assert words[words.index("--uri") + 1] == (
        "jms:queue:greeter?custom=a%27b&deliveryMode=PERSISTENT&priority=4&timeToLive=60000&replyToName=r%26r"
        "&targetService=s%27"
    )


def test_the_dialect_of_the_sender_is_found() -> None:
    """A request of CXF is sent by the dialect cxf, which writes all of its properties."""
    lines = CXF.read_text("utf-8").splitlines()
    exchanges = list(exchanges_of(map(from_json, lines)))
    found = [call_command(each.request, REC_2012) for each in exchanges if each.request is not None]
    assert sum("--profile cxf" in each.line and each.lost == (IDS,) for each in found) >= 5


def test_the_profile_of_the_replay_comes_first() -> None:
    """Of several that do equally well."""
    message = request(1)
    message = replace(message, properties=message.properties.merged(properties({"SOAPJMS_soapAction": "urn:greet"})))
    for name in ("cr-2009", "rec-2012"):
        assert f"--profile {name}" in command(message, PROFILES[name]).line


def test_a_topic() -> None:
    """The kind of the destination is the variant of the URI."""
    found = command(request(1, destination=topic("news"), reply_to=topic("answers")))
    assert "jms:topic:news?" in found.line
    assert "&topicReplyToName=answers" in found.line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SOAPJMS_bindingVersion": "0.9"}, "SOAPJMS_bindingVersion is sent as '1.0', not as '0.9'"),
        ({"SOAPJMS_contentType": "text/plain"}, "SOAPJMS_contentType is sent as 'text/xml; charset=utf-8', not as"),
        ({"trace": "1"}, "trace is not sent"),
        ({"SOAPJMS_isFault": "x"}, "SOAPJMS_isFault is"),
        ({"SOAPJMS_soapAction": "a\x1b[31m"}, "SOAPJMS_soapAction is not sent"),
        ({"SOAPJMS_requestURI": "jms:jndi:greeter"}, "SOAPJMS_requestURI is sent as 'jms:queue:greeter"),
    ],
)
def test_what_a_command_cannot_express_is_said(changes: dict[str, Any], said: str) -> None:
    """A client writes some properties by itself, and only rightly."""
    message = request(1)
    found = command(replace(message, properties=message.properties.merged(properties(changes))))
    assert found.line
    assert any(each.startswith(said) for each in found.lost), found.lost
    assert found.lost[-1] == IDS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"message_type": MessageType.MAP, "body": properties({"a": 1})}, "sends no message of the type map"),
        ({"destination": None}, "does not show the name of the destination"),
        ({"destination": Destination(DestinationKind.QUEUE, None)}, "does not show the name of the destination"),
        ({"reply_to": queue(HOSTILE)}, "does not send this request: "),
        ({"destination": queue("\ud800")}, "does not send this request: "),
        ({"body": b"no XML"}, "does not send this request: "),
        ({"body": None}, "does not send this request: "),
        ({"body": ENVELOPE.format("x" * MAX_BODY_OCTETS).encode()}, "is too long for a command line"),
    ],
)
def test_requests_without_a_command(changes: dict[str, Any], said: str) -> None:
    """Where no call comes near it, the copy says why."""
    found = command(request(1, **changes))
    assert found.line == ""
    assert said in found.lost[0]


def test_a_cut_request_has_no_command() -> None:
    """Its rest is unknown."""
    assert call_command(replace(recorded(request(1)), truncated=True), REC_2012) == CallCommand(
        "", ("the body was cut when it was captured",)
    )


def test_attachments_and_compression() -> None:
    """An envelope goes without its attachments, which the copy says; gzip is asked for."""
    body = (
        b"--b\r\nContent-Type: text/xml\r\n\r\n"
        + ENVELOPE.format(1).encode()
        + b"\r\n--b\r\nContent-ID: <a>\r\n\r\nx\r\n--b--"
    )
    message = request(1, body=body)
    kind = {"SOAPJMS_contentType": 'multipart/related; boundary=b; type="text/xml"'}
    found = command(replace(message, properties=message.properties.merged(properties(kind))))
    assert "attachments are not sent: 1; each needs --attachment FILE" in found.lost
    from gzip import compress

    zipped = request(1, body=compress(ENVELOPE.format(1).encode()))
    zipped = replace(zipped, properties=zipped.properties.merged(properties({"SOAPJMS_contentEncoding": "gzip"})))
    found = command(zipped)
    assert found.line.endswith("--set contentEncoding=gzip")
    assert not any("SOAPJMS_contentEncoding" in each for each in found.lost)


@pytest.mark.parametrize(
    "changes",
    [
        {"destination": queue(TYPED)},
        {"reply_to": queue(TYPED)},
        {"properties": properties({"SOAPJMS_soapAction": HOSTILE, "SOAPJMS_targetService": TYPED})},
        {"properties": properties({"SOAPJMS_requestURI": f"jms:queue:greeter?{HOSTILE}=1", HOSTILE: HOSTILE})},
        {"properties": properties({"SOAPJMS_soapAction": "--connection=x '$(touch broken)"})},
        {"body": ENVELOPE.format("' | touch broken #").encode()},
        {"message_id": HOSTILE, "correlation_id": HOSTILE, "type": HOSTILE},
    ],
)
def test_a_hostile_request_runs_nothing(changes: dict[str, Any], tmp_path: Path) -> None:
    """A shell only ever starts the one program, with words that are no other options."""
    found = command(request(1, **changes))
    assert all(each.isprintable() for each in (*found.line.split("\n"), *found.lost))
    words, _ = typed_in(found.line, tmp_path)
    assert words[:3] == ["call", "-", "--uri"]
    options = [each.partition("=")[0] for each in words[2:] if each.startswith("--")]
    assert set(options) <= {"--uri", "--profile", "--action", "--text", "--one-way", "--set"}
    assert run(*words, "--connection", f"embedded:{fresh('none')}", stdin=b"").exit_code == 2


# As Markdown


def test_ticket() -> None:
    """It says the rule, what was seen and what to change, with the remedy of the stack."""
    message = request(1, properties=properties({"SOAPJMS_bindingVersion": "0.9"}))
    (exchange,) = exchanges_of([recorded(message)])
    (verdict,) = (
        each
        for each in judge(exchange, Setting())
        if each.assertion == "Protocol-2010" and each.outcome is Outcome.FAILED
    )
    text = ticket(
        verdict.assertion,
        rule_text(next(each for each in ASSERTIONS if each.id == "Protocol-2010")),
        verdict.reason or "",
        differences(verdict, exchange, Setting()),
        messages=[("Request", verdict.record)],
        facts={"party": "clients of queue:greeter", "how often": "11"},
        stack="cxf",
    )
    assert text.startswith("## Protocol-2010: SOAPJMS_bindingVersion is present and 1.0.\n\n* section 2.2.3 ")
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
            messages=[("Request", recorded(message))],
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
    json.dumps([raw_text(record), capture_line(record), call_command(record, REC_2012)])
