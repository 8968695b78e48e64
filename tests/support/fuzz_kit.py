"""Mutated messages, and the way each takes through everything that reads messages.

Hypothesis draws; `drive` asserts. `test_fuzz.py` runs some hundreds, `make fuzz` thousands (`fuzz/messages.py`).
"""

from __future__ import annotations

import codecs
import gzip
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from protocol_kit import changed, endpoint, envelope, started

from brokers.message import (
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    body_problem,
    queue,
    topic,
    typed,
)
from soapjms.protocol.assertions import Setting, habits, judge, violations
from soapjms.protocol.envelope import FaultShape, as_envelope, read_fault, serialize
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.protocol.exchange import Exchange, Pattern, exchanges_of, pair
from soapjms.protocol.mep import State
from soapjms.protocol.names import CR_2009, PROFILES, REC_2012, Profile, SoapVersion
from soapjms.protocol.record import Direction, Record, capture, from_json, to_json
from soapjms.protocol.requesting import ExchangeFailed, ResponseIgnored, ResponseReceived
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode, reaction
from soapjms.protocol.xml import parse as parse_whole

MOST_SECONDS: Final = 5.0
"""Processor time that one message may take in all; it takes a few milliseconds."""

# What is mutated: messages that are right


def _multipart(inner: bytes, version: SoapVersion, encoding: str = "8bit") -> tuple[bytes, str]:
    kind = version.media_type
    head = f"Content-Type: {kind}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\nContent-ID: <a@b>\r\n\r\n"
    other = b"Content-Type: application/octet-stream\r\nContent-ID: <c@d>\r\n\r\n\x00\xff--b\r\n"
    content = b64encode(inner) if encoding == "base64" else inner
    body = b"--b\r\n" + head.encode() + content + b"\r\n--b\r\n" + other + b"\r\n--b--\r\n"
    return body, f'multipart/related; boundary=b; type="{kind}"; start="<a@b>"'


def _bases() -> list[Message]:
    """Make a message for each SOAP version, message type, pattern of content and edition."""
    found = []
    for profile in (CR_2009, REC_2012):
        for version in SoapVersion:
            for kind in (MessageType.BYTES, MessageType.TEXT):
                _, message = started(
                    endpoint("jms:queue:in?timeToLive=5&targetService=t", profile, kind),
                    version=version,
                    soap_action="urn:a",
                )
                found.append(message)
            inner = envelope(version)
            body, content_type = _multipart(inner, version)
            found.append(changed(replace(message, message_type=MessageType.BYTES, body=body), contentType=content_type))
            body, content_type = _multipart(inner, version, "base64")
            text = replace(message, body=body.decode("latin-1"))
            found.append(changed(text, contentType=content_type))
            packed = replace(message, message_type=MessageType.BYTES, body=gzip.compress(inner, mtime=0))
            found.append(changed(packed, contentEncoding="gzip"))
    return found


BASES: Final = _bases()

# Mutations: each takes a message and draws what it needs

Draw = Callable[[st.SearchStrategy[Any]], Any]
Mutation = Callable[[Draw, Message], Message]

NAMES: Final = (
    "SOAPJMS_requestURI SOAPJMS_bindingVersion SOAPJMS_contentType SOAPJMS_contentEncoding SOAPJMS_soapAction "
    "SOAPJMS_targetService SOAPJMS_isFault SOAPJMS_requestIRI Content_Type SoapAction Mime_Version soapjms_isFault x"
).split()
VALUES: Final = [
    *("", " ", '"', "\0", "\ud800", "true", "TRUE", "1", "1.0", "2.0", "gzip", "identity", "deflate", '"urn:a"'),
    "a" * 5000,
    *("text/xml", "text/xml; charset=utf-16", "text/xml; charset=IBM037", "text/xml (((", 'text/xml; charset="\\'),
    *("text/xml;" * 500, "TEXT/XML; CHARSET=csISOLatin1", "application/soap+xml; action=urn:a", "application/xop+xml"),
    *("multipart/related", "multipart/related; boundary=b", 'multipart/related; boundary="' + "(" * 70 + '"'),
    *("multipart/related; boundary=b; type=text/xml; start=<c@d>", "application/soap+xml", "text/plain"),
    *("jms:", "jms:queue:q", "jms:topic:t", "jms:jndi:a?targetService=b", "jms:queue:q?replyToName=r", "jms:x:y"),
    *("jms:queue:%", "jms:queue:%00%ff", "jms:queue:q?" + "a=b&" * 500, "jms://queue:q", "JMS:QUEUE:q", "http://x/"),
]  # fmt: skip
SCALARS: Final = (
    st.sampled_from(VALUES)
    | st.text(max_size=20)
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.booleans()
    | st.none()
    | st.floats()
)
TOKENS: Final = [
    *(b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>", b"&x;", b"<!--", b"-->", b"<![CDATA[", b"]]>"),
    *(b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\x1f\x8b", b"<", b">", b'"', b"'", b"/", b"xmlns=''", b"a:b"),
    *(b"<?xml version='1.0' encoding='utf-16'?>", b"<?xml version='1.1' encoding='IBM037'?>", b"<?xml ", b"<?x?>"),
    *(b"\r\n--b\r\n", b"\r\n--b--", b"--b", b"\r\n\r\n", b"Content-Type:", b"Content-ID: <a@b>\r\n", b"cid:c@d"),
    *(b"<a>" * 300, b"x" * 3000, b" y='z'" * 100),
]  # fmt: skip
CODECS: Final = [
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-32-be",
    "utf-8-sig",
    "latin-1",
    "cp037",
    "cp500",
    "utf-7",
]
MARKS: Final = [
    codecs.BOM_UTF8,
    codecs.BOM_UTF16_BE,
    codecs.BOM_UTF16_LE,
    codecs.BOM_UTF32_BE,
    codecs.BOM_UTF32_LE,
    b"",
]
DESTINATIONS: Final = [
    *(
        None,
        queue(""),
        queue("in"),
        queue("\ud800"),
        topic("t"),
        Destination(DestinationKind.TEMPORARY_QUEUE, None, "/x"),
    ),
    *(Destination(DestinationKind.TEMPORARY_TOPIC, "r"), queue("a" * 5000)),
]
ODD_BODIES: Final = [
    *(
        None,
        b"",
        "",
        "\ud800",
        memoryview(envelope()),
        envelope().decode(),
        envelope(SoapVersion.SOAP_12),
        Properties(),
    ),
    *(Properties((Property("a", PropertyType.DOUBLE, float("nan")),)), (), (Element(PropertyType.BYTES, "AA=="),)),
]


def drop_property(draw: Draw, message: Message) -> Message:
    """Leave one out."""
    kept = list(message.properties)
    if kept:
        del kept[draw(st.integers(0, len(kept) - 1))]
    return replace(message, properties=Properties(kept))


def add_property(draw: Draw, message: Message) -> Message:
    """Add one with a value of whatever type: a new one, or one that is there already."""
    new = typed(draw(st.sampled_from(NAMES)), draw(SCALARS))
    entries = list(message.properties)
    entries.insert(draw(st.integers(0, len(entries))), new)
    return replace(message, properties=Properties(entries))


def set_property(draw: Draw, message: Message) -> Message:
    """Give one another value, of whatever type."""
    if not message.properties:
        return message
    name = draw(st.sampled_from([each.name for each in message.properties]))
    return replace(message, properties=message.properties.merged([typed(name, draw(SCALARS))]))


def garble_property(draw: Draw, message: Message) -> Message:
    """Change characters of one."""
    texts = [each for each in message.properties if isinstance(each.value, str) and each.value]
    if not texts:
        return message
    chosen = draw(st.sampled_from(texts))
    text = str(chosen.value)
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, len(text)))
    text = text[:start] + draw(st.text(max_size=4) | st.sampled_from(VALUES)) + text[end:]
    return replace(message, properties=message.properties.merged([chosen._replace(value=text)]))


def replace_body(draw: Draw, message: Message) -> Message:
    """Put another body in, of whatever kind."""
    return replace(message, body=draw(st.sampled_from(ODD_BODIES) | st.binary(max_size=60) | st.text(max_size=60)))


def change_body(draw: Draw, message: Message) -> Message:
    """Cut octets out, put others in: truncated, flipped, doubled, with a token that means something."""
    octets, back = _octets(message.body)
    if octets is None:
        return message
    start = draw(st.integers(0, len(octets)))
    end = min(len(octets), start + draw(st.sampled_from([0, 0, 1, 2, 20, 1 << 30])))
    piece = draw(st.sampled_from(TOKENS) | st.binary(max_size=3) | st.just(octets[start:end] * 2))
    return replace(message, body=back(octets[:start] + piece + octets[end:]))


def encode_body(draw: Draw, message: Message) -> Message:
    """Write the body in another encoding, or behind another byte order mark."""
    octets, _ = _octets(message.body)
    if octets is None:
        return message
    swapped = octets.decode("utf-8", "replace").encode(draw(st.sampled_from(CODECS)), "replace")
    return replace(message, body=draw(st.sampled_from(MARKS)) + draw(st.sampled_from([octets, swapped])))


def pack_body(draw: Draw, message: Message) -> Message:
    """Compress the body, as the property says or not."""
    octets, _ = _octets(message.body)
    return message if octets is None else replace(message, body=gzip.compress(octets, mtime=0))


def change_kind(draw: Draw, message: Message) -> Message:
    """Call it a message of another type, or turn text into octets and back."""
    kind = draw(st.sampled_from(MessageType))
    if isinstance(message.body, bytes) and draw(st.booleans()):
        return replace(message, message_type=kind, body=message.body.decode("utf-8", "surrogateescape"))
    if isinstance(message.body, str) and draw(st.booleans()):
        return replace(message, message_type=kind, body=message.body.encode("utf-8", "surrogatepass"))
    return replace(message, message_type=kind)


IDS: Final = st.none() | st.sampled_from(["", "ID:1", "c-1", "\ud800", "a" * 5000]) | st.text(max_size=8)
LONGS: Final = st.none() | st.sampled_from([-1, 0, 1, 2, 4, 9, 10, 1 << 62, -(1 << 63)])
HEADERS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "message_id": IDS,
    "correlation_id": IDS,
    "type": IDS,
    "reply_to": st.sampled_from(DESTINATIONS),
    "destination": st.sampled_from(DESTINATIONS),
    "delivery_mode": LONGS,
    "priority": LONGS,
    "expiration": LONGS,
    "timestamp": LONGS,
    "redelivered": st.sampled_from([None, True, False]),
    "untyped": st.booleans(),
}


def set_header(draw: Draw, message: Message) -> Message:
    """Give a JMS header an odd value."""
    name = draw(st.sampled_from(sorted(HEADERS)))
    return replace(message, **{name: draw(HEADERS[name])})


MUTATIONS: Final[tuple[Mutation, ...]] = (
    *(drop_property, add_property, set_property, garble_property),
    *(replace_body, change_body, change_body, change_body, encode_body, pack_body, change_kind, set_header),
)


def _octets(body: Any) -> tuple[bytes | None, Callable[[bytes], bytes | str]]:
    """Return a body as octets, None if it is of another kind, and how to turn octets into one of its kind."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass"), lambda octets: octets.decode("utf-8", "replace")
    return (bytes(body) if isinstance(body, bytes | memoryview) else None), bytes


@st.composite
def messages(draw: Draw) -> Message:
    """Draw a message that was right and was mutated up to four times."""
    message: Message = draw(st.sampled_from(BASES))
    for mutation in draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4)):
        message = mutation(draw, message)
    return message


@st.composite
def lines(draw: Draw) -> str:
    """Draw a line of a capture log with some characters changed."""
    text = to_json(capture(draw(st.sampled_from(BASES)), TIME))
    start = draw(st.integers(0, len(text)))
    end = min(len(text), start + draw(st.sampled_from([0, 1, 5, 1 << 30])))
    odd = [
        "null",
        "[]",
        "{}",
        "1e999",
        "NaN",
        '"',
        "\\ud800",
        "[" * 200,
        "-1",
        "true",
        '"v":2,',
        "99999999999999999999",
    ]
    return text[:start] + draw(st.sampled_from(odd) | st.text(max_size=5)) + text[end:]


# The way that each takes

LONGEST_REASON: Final = 10_000
"""Characters; what a peer wrote is cut each time that a reason repeats it."""

TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
EDITIONS: Final = (CR_2009, REC_2012)
DIALECTS: Final = [name for name, each in PROFILES.items() if each not in EDITIONS]


@dataclass(slots=True)
class Tally:
    """What became of the messages that were driven."""

    messages: int = 0
    slowest: float = 0.0
    became: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Take in what another counted."""
        self.messages += other.messages
        self.slowest = max(self.slowest, other.slowest)
        self.became += other.became


def drive(message: Message, dialect: str, strict: bool, tally: Tally) -> None:
    """Send a message through both nodes, the judge, the record and the pairing, under both editions and a dialect."""
    began = time.process_time()
    for profile in (*EDITIONS, PROFILES[dialect]):
        setting = Setting(profile=profile, strict=strict)
        tally.became[f"{profile.name} {answer(message, setting)}"] += 1
        ask(message, profile)
        judge_all(message, setting)
    record_and_read(message)
    pair_all(message)
    took = time.process_time() - began
    assert took < MOST_SECONDS, f"{took:.1f} s of processor time"
    tally.messages += 1
    tally.slowest = max(tally.slowest, took)


def answer(message: Message, setting: Setting) -> str:
    """Hand it to a responding node as a request: it is accepted, or refused with a fault that can be sent."""
    node = RespondingNode(setting)
    event = node.receive(message)
    one_way = message.reply_to is None
    assert event.one_way is one_way
    if isinstance(event, RequestAccepted):
        reply: Any = envelope(event.envelope.version)
    else:
        assert isinstance(event, RequestRefused)
        assert event.reason
        assert is_fit_to_read(event.reason)
        read = read_fault(as_envelope(parse_whole(serialize(event.fault))))
        assert read is not None
        assert read.subcode == event.subcode
        assert event.subcode is None or read.shape in FaultShape
        reply = event.fault
    if not one_way:
        response = node.respond(reply)
        assert to_json(capture(response, TIME))
        node.sent()
    return "accepted" if isinstance(event, RequestAccepted) else f"refused, {event.subcode or 'no subcode'}"


def ask(message: Message, profile: Profile) -> None:
    """Hand it to a requesting node as the response, both as it is and with the correlation that fits."""
    for fits in (False, True):
        node, request = started(endpoint(profile=profile))
        came = replace(message, correlation_id=request.correlation_id) if fits else message
        event = node.receive(came)
        assert isinstance(event, ResponseReceived | ExchangeFailed | ResponseIgnored)
        assert isinstance(event, ResponseIgnored) is (came.correlation_id != request.correlation_id)
        assert (node.machine.state in (State.SUCCESS, State.FAIL)) is not isinstance(event, ResponseIgnored)


def judge_all(message: Message, setting: Setting) -> None:
    """Judge it as request, response and one-way message: a broken rule says why."""
    record = Record(message=message, time=TIME)
    good = Record(message=BASES[0], time=TIME)
    for exchange in (
        Exchange(id="", pattern=Pattern.REQUEST_RESPONSE, request=record, response=good),
        Exchange(id="", pattern=Pattern.REQUEST_RESPONSE, request=good, response=record),
        Exchange(id="", pattern=Pattern.ONE_WAY, request=record),
    ):
        verdicts = list(judge(exchange, setting))
        assert all(each.reason for each in violations(verdicts))
        assert all(is_fit_to_read(each.reason or "") for each in verdicts)
        tuple(habits(exchange, setting))
    reaction(Exchange(id="", pattern=Pattern.REQUEST_RESPONSE, request=record, response=record), setting)


def is_fit_to_read(reason: str) -> bool:
    """Say whether a reason is one line without anything that a terminal acts on, and of bounded length."""
    return reason.isprintable() and len(reason) < LONGEST_REASON


def record_and_read(message: Message) -> None:
    """Write it as a line of a capture log and read it again; only a body that its type cannot have is refused."""
    if body_problem(message) is not None:
        with pytest.raises(UsageError):
            capture(message, TIME)
        return
    line = to_json(capture(message, TIME, Direction.REQUEST))
    assert "\n" not in line
    assert to_json(from_json(line)) == line


def pair_all(message: Message) -> None:
    """Pair it with itself, with a message that is right and without time between: none is lost."""
    copies = [
        Record(message=message, time=TIME),
        Record(message=BASES[0], time=TIME),
        Record(
            message=replace(message, message_id=None), time=TIME + timedelta(seconds=1), direction=Direction.RESPONSE
        ),
        Record(message=message, time=TIME + timedelta(days=1), truncated=True),
    ]
    for found in (pair(copies), exchanges_of(copies)):
        assert sum(each.records for each in found) == len(copies)


def read_line(line: str) -> bool:
    """Read a garbled line of a capture log: it is a record, which can be written, or InvalidRecordError is raised."""
    try:
        record = from_json(line)
    except InvalidRecordError:
        return False
    assert to_json(from_json(to_json(record))) == to_json(record)
    return True
