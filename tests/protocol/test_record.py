"""Capture records: one message as one JSON line, both ways, and what is refused."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_kit import draw_headers

from brokers.message import (
    INTEGER_BITS,
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    PropertyValue,
    queue,
)
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.protocol.record import (
    Direction,
    Node,
    Record,
    body_digest,
    body_to_json,
    capture,
    from_json,
    parse_time,
    read_json,
    to_json,
    to_members,
)

NOW = datetime(2026, 11, 20, 19, 22, 1, 123456, tzinfo=UTC)
EXAMPLE = """{"v":1,"time":"2026-11-20T19:22:01.123456Z","direction":"request","node":"requesting",
 "destination":{"kind":"queue","name":"greeter"},
 "jms":{"message_id":"ID:a-1","correlation_id":"c-1","reply_to":{"kind":"temporary-queue","name":"ID:a-1:1"},
        "delivery_mode":2,"priority":4,"expiration":0,"timestamp":1795201951945,"redelivered":false},
 "properties":{"SOAPJMS_requestURI":"jms:queue:greeter","SOAPJMS_bindingVersion":"1.0",
               "SOAPJMS_contentType":"text/xml; charset=utf-8","SOAPJMS_isFault":false},
 "message_type":"bytes","body":"PD94bWwg"}"""


def line(**members: Any) -> str:
    """Write the line of a small record with these members over its own; None leaves a member out."""
    least = {"v": 1, "time": "2026-11-20T19:22:01Z", "message_type": "text", "body": "x"}
    return json.dumps({name: value for name, value in {**least, **members}.items() if value is not None})


def body_of(kind: str, body: Any) -> Any:
    """Read the body of a record."""
    return from_json(line(message_type=kind, body=body)).message.body


# The examples of the format


def test_the_example_of_the_format() -> None:
    """The example record reads as the message that it shows, and is written as it was."""
    record = from_json(EXAMPLE)
    assert record == Record(
        time=NOW,
        direction=Direction.REQUEST,
        node=Node.REQUESTING,
        message=Message(
            message_type=MessageType.BYTES,
            body=b"<?xml ",
            destination=queue("greeter"),
            message_id="ID:a-1",
            correlation_id="c-1",
            reply_to=Destination(DestinationKind.TEMPORARY_QUEUE, "ID:a-1:1"),
            delivery_mode=2,
            priority=4,
            expiration=0,
            timestamp=1795201951945,
            redelivered=False,
            properties=Properties(
                [
                    Property("SOAPJMS_requestURI", PropertyType.STRING, "jms:queue:greeter"),
                    Property("SOAPJMS_bindingVersion", PropertyType.STRING, "1.0"),
                    Property("SOAPJMS_contentType", PropertyType.STRING, "text/xml; charset=utf-8"),
                    Property("SOAPJMS_isFault", PropertyType.BOOLEAN, False),
                ]
            ),
        ),
    )
    assert json.loads(to_json(record)) == json.loads(EXAMPLE)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, None, (PropertyType.BOOLEAN, True)),
        (1, None, (PropertyType.INT, 1)),
        (1 << 31, None, (PropertyType.LONG, 1 << 31)),
        ((1 << 63) - 1, None, (PropertyType.LONG, (1 << 63) - 1)),
        (1.0, None, (PropertyType.DOUBLE, 1.0)),
        ("1", None, (PropertyType.STRING, "1")),
        (None, None, (PropertyType.STRING, None)),
        (1, "byte", (PropertyType.BYTE, 1)),
        (1, "long", (PropertyType.LONG, 1)),
        (1, "double", (PropertyType.DOUBLE, 1.0)),
        (0.5, "float", (PropertyType.FLOAT, 0.5)),
        (2**53 + 1, "double", (PropertyType.DOUBLE, 2.0**53)),
        (1e300, "float", (PropertyType.FLOAT, 1e300)),
        ("-Infinity", "double", (PropertyType.DOUBLE, -math.inf)),
        ("Infinity", "float", (PropertyType.FLOAT, math.inf)),
        ("NaN", "string", (PropertyType.STRING, "NaN")),
        ("NaN", None, (PropertyType.STRING, "NaN")),
    ],
)
def test_types_of_properties(value: Any, kind: str | None, expected: tuple[PropertyType, PropertyValue]) -> None:
    """JSON's type tells the JMS type, an integer being the narrowest of int and long; `types` tells otherwise."""
    record = from_json(line(properties={"p": value}, types={"p": kind} if kind else None))
    assert record.message.properties == (Property("p", *expected),)
    assert from_json(to_json(record)) == record


def test_properties_that_are_there_twice() -> None:
    """JMS has no two properties of one name; where an adapter gives two, the first is written, with its own type."""
    twice = Properties((Property("a", PropertyType.DOUBLE, math.inf), Property("a", PropertyType.STRING, "x")))
    for properties in (twice, Properties(twice[::-1])):
        record = capture(Message(message_type=MessageType.TEXT, properties=properties), NOW)
        assert from_json(to_json(record)).message.properties == properties[:1]
        assert properties.lookup("a") == properties[0]


def test_not_a_number() -> None:
    """NaN travels as a string with its type."""
    text = to_json(from_json(line(properties={"p": "NaN"}, types={"p": "double"})))
    value = from_json(text).message.properties.value("p")
    assert isinstance(value, float)
    assert math.isnan(value)
    assert json.loads(text)["properties"] == {"p": "NaN"}


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("bytes", "PGEvPg==", b"<a/>"),
        ("bytes", "", b""),
        ("text", "", ""),
        ("object", "rO0=", b"\xac\xed"),
        ("unknown", "PGEvPg==", b"<a/>"),
        ("map", {"a": {"type": "short", "value": 1}}, Properties([Property("a", PropertyType.SHORT, 1)])),
        ("map", {"a": {"type": "bytes", "value": "AA=="}}, Properties([Property("a", PropertyType.BYTES, "AA==")])),
        ("map", {}, Properties()),
        ("stream", [{"type": "string", "value": None}], (Element(PropertyType.STRING, None),)),
        ("stream", [], ()),
        ("unknown", {"a": {"type": "int", "value": 1}}, Properties([Property("a", PropertyType.INT, 1)])),
        ("unknown", [{"type": "int", "value": 1}], (Element(PropertyType.INT, 1),)),
        ("bytes", None, None),
        ("text", None, None),
        ("message", None, None),
    ],
)
def test_bodies(kind: str, body: Any, expected: Any) -> None:
    """Each message type has its form of body; without one it is a null body, which is not an empty one."""
    record = from_json(line(message_type=kind, body=body))
    assert record.message.body == expected
    assert type(record.message.body) is type(expected)
    assert from_json(to_json(record)) == record


def test_text_of_unknown_type() -> None:
    """The text of a message whose type is not known is written as octets, as its reader takes it."""
    record = Record(message=Message(message_type=MessageType.UNKNOWN, body="ä"), time=NOW)
    assert from_json(to_json(record)).message.body == "ä".encode()


def test_destinations() -> None:
    """All four kinds are read; a name that the node cannot know is null."""
    for kind in DestinationKind:
        record = from_json(line(destination={"kind": kind, "name": None}, jms={"reply_to": {"kind": kind}}))
        assert record.message.destination == record.message.reply_to == Destination(kind, None)


def test_null_is_absent() -> None:
    """A member that is null says nothing, as one that is absent."""
    text = line().replace('"v"', '"direction":null,"node":null,"destination":null,"jms":null,"meta":null,"v"')
    assert from_json(text) == from_json(line())
    assert from_json(line(jms={"priority": None, "reply_to": None})) == from_json(line())


@pytest.mark.parametrize(
    ("members", "digested"),
    [
        ({"message_type": "text", "body": "ä"}, "ä".encode()),
        ({"message_type": "bytes", "body": "AAH/"}, b"\0\x01\xff"),
        ({"message_type": "unknown", "body": "AAH/"}, b"\0\x01\xff"),
        ({"message_type": "object", "body": "AAH/"}, b"\0\x01\xff"),
    ],
)
def test_the_digest_of_a_whole_body_is_checked(members: dict[str, Any], digested: bytes) -> None:
    """A body that was changed after its capture is no body to judge; one that was cut has nothing to compare."""
    right, wrong = sha256(digested).hexdigest(), "0" * 64
    for digest in (right, right.upper()):
        assert from_json(line(**members, sha256=digest)).sha256 == digest
    said = f"member sha256 is '{wrong}', and the body has the SHA-256 {right}: one of them was changed; for a body"
    with pytest.raises(InvalidRecordError, match=said):
        from_json(line(**members, sha256=wrong))
    assert from_json(line(**members, sha256=wrong, truncated=True)).sha256 == wrong


def test_a_body_without_octets_has_no_digest_to_check() -> None:
    """A map, a stream, and none."""
    for members in ({"message_type": "map", "body": {}}, {"message_type": "stream", "body": []}, {"body": None}):
        assert from_json(line(**members, sha256="ab")).sha256 == "ab"


def test_optional_flags() -> None:
    """untyped, truncated and sha256 are kept, and written only where they say something."""
    record = from_json(line(untyped=True, truncated=True, sha256="AB", meta={"host": "h"}))
    assert (record.message.untyped, record.truncated, record.sha256, record.meta) == (True, True, "AB", {"host": "h"})
    assert from_json(to_json(record)) == record
    assert not {"untyped", "truncated", "sha256", "meta", "direction", "node", "types"} & set(
        json.loads(to_json(from_json(line())))
    )


# Time


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-20T19:22:01.123456Z", NOW),
        ("2026-11-20t19:22:01.123456z", NOW),
        ("2026-11-20T20:22:01.123456+01:00", NOW),
        ("2026-11-20T19:22:01.123456789Z", NOW),
        ("2026-11-20T19:22:01Z", NOW.replace(microsecond=0)),
        ("2026-11-20T19:22:01.1Z", NOW.replace(microsecond=100_000)),
    ],
)
def test_times(text: str, time: datetime) -> None:
    """Times are RFC 3339, read as UTC; what is finer than a microsecond is dropped."""
    assert parse_time(text) == time
    assert parse_time(text).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2026-11-20", "2026-11-20T19:22:01", "2026-11-20 19:22:01Z", "20261120T192201Z",
        "2026-W47-5T19:22:01Z", "2026-13-20T19:22:01Z", "2026-11-20T19:22:61Z", "0001-01-01T00:00:00+23:59",
        "٢٠٢٦-11-20T19:22:01Z",
    ],
)  # fmt: skip
def test_bad_times(text: str) -> None:
    """What is no RFC 3339 time with an offset, or lies outside the calendar, is refused."""
    with pytest.raises(InvalidRecordError, match=r"member time is .*; an RFC 3339 time in UTC is required, of"):
        parse_time(text)


def test_times_are_written_in_utc() -> None:
    """A time in another zone is written as the same moment in UTC, always with microseconds."""
    elsewhere = datetime(2026, 11, 20, 20, 22, 1, tzinfo=timezone(timedelta(hours=1)))
    record = Record(message=Message(message_type=MessageType.TEXT), time=elsewhere)
    assert json.loads(to_json(record))["time"] == "2026-11-20T19:22:01.000000Z"


# Round trip


def has_no_apart_pair(text: str) -> bool:
    """Say whether no two halves of a surrogate pair stand side by side: JSON would make one character of them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text


TEXTS = st.text(st.characters(exclude_categories=()), max_size=8).filter(has_no_apart_pair)


def typed_values() -> st.SearchStrategy[tuple[PropertyType, PropertyValue]]:
    """Draw a JMS type, and a value of it."""
    integers = [
        st.tuples(st.just(kind), st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
        for kind, bits in INTEGER_BITS.items()
    ]
    fractions = [
        st.tuples(st.just(kind), st.floats(allow_nan=False)) for kind in (PropertyType.FLOAT, PropertyType.DOUBLE)
    ]
    return st.one_of(
        *integers,
        *fractions,
        st.tuples(st.just(PropertyType.BOOLEAN), st.booleans()),
        st.tuples(st.just(PropertyType.STRING), st.none() | TEXTS),
    )


ENTRIES = st.dictionaries(TEXTS, typed_values(), max_size=3).map(
    lambda entries: Properties(Property(name, *entry) for name, entry in entries.items())
)
BODIES: dict[MessageType, st.SearchStrategy[Any]] = {
    MessageType.BYTES: st.binary(max_size=20),
    MessageType.OBJECT: st.binary(max_size=20),
    MessageType.UNKNOWN: st.binary(max_size=20) | ENTRIES,
    MessageType.TEXT: TEXTS,
    MessageType.MAP: ENTRIES,
    MessageType.STREAM: st.lists(typed_values(), max_size=3).map(lambda all_: tuple(Element(*each) for each in all_)),
    MessageType.MESSAGE: st.none(),
}
DESTINATIONS = st.none() | st.builds(Destination, st.sampled_from(DestinationKind), st.none() | TEXTS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Draw any record that can be captured."""
    kind = draw(st.sampled_from(MessageType))
    message = Message(
        message_type=kind,
        body=draw(st.none() | BODIES[kind]),
        properties=draw(ENTRIES),
        **draw_headers(draw, TEXTS, DESTINATIONS),
    )
    truncated = draw(st.booleans())
    any_digest = st.text("0123456789abcdef", min_size=64, max_size=64)
    return Record(
        message=message,
        time=draw(st.datetimes(timezones=st.just(UTC))),
        direction=draw(st.none() | st.sampled_from(Direction)),
        node=draw(st.none() | st.sampled_from(Node)),
        truncated=truncated,
        sha256=draw(st.none() | (any_digest if truncated else st.just(body_digest(message.body)))),
        meta=draw(st.dictionaries(TEXTS, JSON, max_size=2)),
        extra=draw(st.dictionaries(TEXTS.map("x_{}".format), JSON, max_size=2)),
    )


@given(records())
def test_round_trip(record: Record) -> None:
    """What is written reads back as it was, and is one line that any UTF-8 file can hold."""
    text = to_json(record)
    assert from_json(text) == record
    assert "\n" not in text
    text.encode("utf-8")


@given(records())
def test_written_as_an_encoder_would(record: Record) -> None:
    """A line has no other spaces, escapes or order than the encoder of the standard library gives its members."""
    members = to_members(record)
    plain = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    escaped = json.dumps(members, separators=(",", ":"))
    assert to_json(record) in (plain, escaped)  # the latter where there is half of a surrogate pair


@given(JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    """Whatever JSON a line holds, and whatever member it stands in for, there is a record or a refusal."""
    for name in ("v", "time", "direction", "node", "destination", "jms", "properties", "types", "message_type", "body"):
        for text in (json.dumps(value), line(**{name: value}), line(message_type="map", body={"a": value})):
            try:
                to_json(from_json(text))
            except InvalidRecordError as error:
                assert str(error)  # noqa: PT017  # either outcome is right


def test_lone_surrogates() -> None:
    """Half of a surrogate pair is kept, and written so that the line stays UTF-8."""
    record = from_json(line(body="\ud800ä"))
    assert record.message.body == "\ud800ä"
    assert "\\ud800" in to_json(record)
    assert from_json(to_json(record)) == record
    assert body_digest("\ud800") is not None


# Unknown members


def test_unknown_members_are_kept() -> None:
    """What this version does not know is kept, also inside jms, jms.reply_to and destination, and written back."""
    text = line(
        new={"a": [1, None]},
        destination={"kind": "queue", "name": "q", "new": 1},
        jms={"priority": 4, "new": 2, "reply_to": {"kind": "queue", "name": "r", "new": 3}},
    )
    record = from_json(text)
    assert record.extra == {
        "new": {"a": [1, None]},
        "destination": {"new": 1},
        "jms": {"new": 2, "reply_to": {"new": 3}},
    }
    written = json.loads(to_json(record))
    assert {name: written[name] for name in ("new", "destination", "jms")} == {
        name: json.loads(text)[name] for name in ("new", "destination", "jms")
    }
    assert from_json(to_json(record)) == record


@pytest.mark.parametrize("value", [5, {"kind": "topic", "name": "elsewhere"}])
def test_an_unknown_member_is_no_other_by_its_name(value: Any) -> None:
    """One that is called as the path to another changes nothing there, and is written back as it was."""
    text = line(jms={"reply_to": {"kind": "queue", "name": "r", "new": 3}}, **{"jms.reply_to": value, "body.x": value})
    record = from_json(text)
    assert record.message.reply_to == queue("r")
    assert json.loads(to_json(record))["jms.reply_to"] == value
    assert from_json(to_json(record)) == record


# Refused


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "^not JSON: it is empty$"),
        ("{", "^not JSON: it ends too early, with character 1$"),
        ("this is not JSON", "^not JSON: no value begins at its first character$"),
        ("\ufeff{}", "^not JSON: no value begins at its first character$"),
        ('{"v" 1}', "^not JSON: a colon is missing at character 6$"),
        ('{"v":1 "w":2}', "^not JSON: a comma is missing at character 8$"),
        ('{"v":1} x', "^not JSON: something follows the value at character 9$"),
        ('{"v', "^not JSON: a string without an end begins at character 2$"),
        ('{"v":"\x01"}', "^not JSON: a control character stands in a string at character 7$"),
        ('{"v":"\\x"}', "^not JSON: an escape is not one of JSON at character 7$"),
        ("[]", r"not a JSON object but \[\]"),
        ("null", "not a JSON object but null"),
        ('"' + "x" * 100 + '"', r"not a JSON object but 'x{76}\.\.\."),
        ("[" * 100_000, "nested more than 64 deep"),
        (line(meta={"deep": json.loads("[" * 63 + "]" * 63)}), "nested more than 64 deep"),
        ('{"v":1,"meta":{"x":NaN}}', "NaN is no JSON; write it as a string and its type under types"),
        ('{"v":1,"meta":{"x":1e400}}', "the number '1e400' is beyond a double"),
        ('{"v":1,"meta":{"x":' + "9" * 5000 + "}}", "^not JSON: a number has more digits than are read$"),
        ("{}", "member v is null; the format version 1 is required"),
        (line(v="1"), "member v is '1'; the format version 1"),
        (line(v=True), "member v is true; the format version 1"),
        (line(v=2), "format version 2; this program reads version 1"),
        (line(v=0), "format version 0; this program reads version 1"),
        (line(time=None), "member time is missing; an RFC 3339 time"),
        (line(time=5), "member time is 5; a string is required"),
        (line(direction="reply"), "member direction is 'reply'; accepted are: request, response, one-way"),
        (line(direction=["request"]), r'member direction is \["request"\]; accepted are'),
        (line(node="me"), "member node is 'me'; accepted are: requesting, responding"),
        (line(destination="q"), "member destination is 'q'; an object is required"),
        (line(destination={}), "member destination.kind is null; accepted are: queue, topic"),
        (line(destination={"kind": "stack"}), "member destination.kind is 'stack'; accepted are: queue, topic"),
        (line(destination={"kind": "queue", "name": 1}), "member destination.name is 1; a string is required"),
        (line(jms=[]), r"member jms is \[\]; an object is required"),
        (line(jms={"message_id": 1}), "member jms.message_id is 1; a string is required"),
        (line(jms={"priority": "4"}), "member jms.priority is '4'; an integer of at most 64 bits is required"),
        (line(jms={"priority": 4.0}), "member jms.priority is 4.0; an integer"),
        (line(jms={"priority": True}), "member jms.priority is true; an integer"),
        (line(jms={"expiration": 1 << 63}), "member jms.expiration is 9223372036854775808; an integer"),
        (line(jms={"redelivered": 0}), "member jms.redelivered is 0; true or false is required"),
        (line(jms={"reply_to": "q"}), "member jms.reply_to is 'q'; an object is required"),
        (line(jms={"reply_to": {"kind": 1}}), "member jms.reply_to.kind is 1; accepted are: queue"),
        (line(properties=[]), "member properties is"),
        (line(types={"p": "int"}, properties={"p": "1"}), "property p is '1': .*must be an integer"),
        (line(types={"p": "byte"}, properties={"p": 128}), "property p is 128: .*does not fit JMS byte"),
        (line(types={"p": "number"}, properties={"p": 1}), "member types.p is 'number'; accepted are: boolean"),
        (line(types={"p": "bytes"}, properties={"p": ""}), "a property has no type bytes"),
        (line(types={"p": "double"}, properties={"p": 10**400}), "property p is 1000.*too large"),
        (line(types={"p": "double"}, properties={"p": "1"}), "property p is '1'"),
        (line(types={"p": "boolean"}, properties={"p": None}), "property p is null"),
        (line(types=1), "member types is 1; an object"),
        (line(properties={"p": 1 << 63}), "property p is 9223372036854775808: .*64 bits"),
        (line(properties={"p": [1]}), r"property p is \[1\]: a JMS property must be"),
        (line(untyped="true"), "member untyped is 'true'; true or false"),
        (line(truncated=1), "member truncated is 1; true or false"),
        (line(sha256=1), "member sha256 is 1; a string"),
        (line(meta="m"), "member meta is 'm'; an object"),
        (line(message_type=None), "member message_type is null; accepted are: bytes, text, map"),
        (line(message_type="xml"), "member message_type is 'xml'; accepted are: bytes, text, map"),
        (line(message_type="bytes", body="<a/>"), "member body does not fit message_type bytes: not base64"),
        (line(message_type="bytes", body="ä"), "member body does not fit message_type bytes: "),
        (line(message_type="bytes", body="PGE\n"), "member body does not fit message_type bytes: not base64"),
        (
            line(message_type="object", body=1),
            "member body does not fit message_type object: a string is required, not 1",
        ),
        (line(message_type="unknown", body=1), "member body does not fit message_type unknown: a string is required"),
        (line(message_type="text", body={}), "member body does not fit message_type text: a string is required"),
        (line(message_type="message", body=""), "a message of type 'message' has no body"),
        (line(message_type="map", body=[]), r"message_type map: an object is required, not \[\]"),
        (line(message_type="map", body={"a": 1}), 'message_type map: an object with "type" and "value" is required'),
        (line(message_type="map", body={"a": {"type": "int"}}), 'an object with "type" and "value" is required'),
        (line(message_type="map", body={"a": {"value": 1}}), "message_type map: member type is null"),
        (line(message_type="map", body={"a": {"type": "int", "value": "1"}}), "message_type map: property a is '1'"),
        (line(message_type="stream", body={}), "message_type stream: a list is required, not {}"),
        (line(message_type="stream", body=[{"type": "int", "value": 1.5}]), "property element 0 is 1.5"),
    ],
    ids=lambda text: text[:60],
)
def test_what_is_refused(text: str, why: str) -> None:
    """The refusal names the member, what was seen and what is accepted; a later version is refused with its number."""
    with pytest.raises(InvalidRecordError, match=why):
        from_json(text)


def test_deep_enough() -> None:
    """Nesting up to the limit is read, and can be written again."""
    record = from_json(line(meta={"deep": json.loads("[" * 62 + "]" * 62)}))
    assert from_json(to_json(record)) == record


# Writing


def test_captured_messages_have_their_digest() -> None:
    """The digest is that of the octets of a bytes or text body, text as UTF-8; other bodies have none."""
    of_bytes = capture(Message(message_type=MessageType.BYTES, body="ä".encode()), NOW, Direction.RESPONSE, Node.TAP)
    of_text = capture(Message(message_type=MessageType.TEXT, body="ä"), NOW)
    assert of_bytes.sha256 == of_text.sha256 == body_digest(memoryview("ä".encode()))
    assert (of_bytes.direction, of_bytes.node) == (Direction.RESPONSE, Node.TAP)
    assert capture(Message(message_type=MessageType.TEXT), NOW).sha256 is None
    assert body_digest(Properties()) is None


def test_bodies_as_json() -> None:
    """Octets are base64, whatever holds them; no body is null."""
    assert body_to_json(b"\xff") == body_to_json(memoryview(b"\xff")) == b64encode(b"\xff").decode()
    assert body_to_json(None) is None


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        (MessageType.BYTES, "text", "a bytes message cannot carry a body of type str; accepted is bytes or memoryview"),
        (MessageType.TEXT, b"octets", "a text message cannot carry a body of type bytes; accepted is str"),
        (
            MessageType.STREAM,
            Properties(),
            "a stream message cannot carry a body of type Properties; accepted is tuple",
        ),
        (MessageType.MESSAGE, b"", "a message message cannot carry a body of type bytes; accepted is none"),
    ],
)
def test_a_message_that_nobody_could_read_again_is_not_captured(kind: MessageType, body: Any, says: str) -> None:
    """The mistake is said where it is made, and not by who reads the log."""
    with pytest.raises(UsageError, match=says):
        capture(Message(message_type=kind, body=body), NOW)


def test_text_of_a_kind_of_its_own() -> None:
    """A body that is a text of a subclass, as libraries have some, is written as text."""

    class Text(str):
        __slots__ = ()

    record = from_json(line(body="plain"))
    assert to_json(replace(record, message=replace(record.message, body=Text("plain")))) == to_json(record)


@pytest.mark.parametrize("part", ["{},", '"x",', '"",', "1,", '{"a":1},', "[],", '"\\\\\\"",'])
def test_json_of_too_many_parts_is_refused(part: str) -> None:
    """Before it takes memory: some octets of each may be many times as many."""
    with pytest.raises(InvalidRecordError, match="JSON of more than 1048576 strings, commas and opening brackets"):
        read_json(f'{{"x":[{part * (1 << 20)}0]}}')


@pytest.mark.parametrize("text", ["{,[", '\\"', "\\\\", '\\",'])
def test_what_stands_in_strings_is_no_part(text: str) -> None:
    """A large body may be full of commas, brackets and quotation marks; a string without its end is read once."""
    assert len(read_json(f'{{"x":"{text * (1 << 20)}"}}')["x"]) >= 1 << 20
    with pytest.raises(InvalidRecordError, match="a string without an end"):
        read_json(f'{{"x":"{text * (1 << 20)}')


@pytest.mark.parametrize("text", ['"' + "[{" * 100 + '"', json.dumps(["{" * 100, "[" * 100])])
def test_brackets_in_strings_are_not_nested(text: str) -> None:
    """However many there are: only objects and lists within each other count."""
    assert read_json(text) == json.loads(text)
