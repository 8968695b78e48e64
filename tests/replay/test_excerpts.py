"""What a report keeps of a message: bounded, whatever the message is, and still a record that can be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fuzz_kit import messages
from hypothesis import given, reject
from replay_logs import at, request

from brokers.message import Element, Message, MessageType, Properties, Property, PropertyType, queue
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, Record, capture
from soapjms.replay.excerpts import (
    MAX_KEPT_OCTETS,
    MAX_LINE_CHARACTERS,
    MAX_SAMPLE_HEADERS,
    Excerpt,
    body_excerpt,
    headers,
)

LONG = "x" * 20_000


def kept(record: Record) -> Excerpt:
    """Return the excerpt of a request."""
    return Excerpt.of(record, "request", "")


def test_a_usual_message_is_kept_whole() -> None:
    """Its record is the one that was captured."""
    record = capture(request(1), at(0), Direction.REQUEST)
    found = kept(record)
    assert (found.record, found.left, found.is_whole) == (record, 0, True)


def test_a_long_body_is_cut() -> None:
    """The record says so, and has the digest of the whole."""
    record = capture(request(1, body=b"<a/>" * 5000), at(0), Direction.REQUEST)
    found = kept(record)
    assert found.left == 20_000 - MAX_KEPT_OCTETS
    assert found.is_whole
    assert found.record.truncated
    assert found.record.sha256 == record.sha256


ENDLESS = Properties(Property(f"p{number}", PropertyType.STRING, LONG) for number in range(100))


@pytest.mark.parametrize(
    "changes",
    [
        {"properties": ENDLESS},
        {"type": LONG, "correlation_id": LONG, "message_id": LONG},
        {"destination": queue(LONG), "reply_to": queue(LONG)},
        {"message_type": MessageType.MAP, "body": ENDLESS},
        {"message_type": MessageType.STREAM, "body": tuple(Element(PropertyType.STRING, LONG) for _ in range(100))},
    ],
)
def test_whatever_is_long_is_cut(changes: dict[str, object]) -> None:
    """Ids, names of destinations, properties and elements; then it is no copy of the message any more."""
    record = replace(capture(request(1, **changes), at(0), Direction.REQUEST), meta={"host": LONG})
    found = kept(record)
    assert not found.is_whole
    assert len(found.line) <= 2 * MAX_LINE_CHARACTERS
    assert found.record.time == record.time
    assert len(found.record.message.properties) <= MAX_SAMPLE_HEADERS


@given(messages())
def test_any_message_can_be_read_again(message: Message) -> None:
    """Also those with what UTF-8 cannot carry."""
    try:
        record = capture(message, at(0))
    except UsageError:
        reject()  # no capture has it
    found = kept(record)
    assert found.record.time == at(0)
    assert found.line.isprintable()


def test_times_have_their_words_beside_them() -> None:
    """The number that the header holds, and when that is."""
    record = capture(request(1, expiration=0, timestamp=1_795_203_128_800), at(0), Direction.REQUEST)
    found = dict(headers(record))
    assert found["JMSExpiration"] == "0 (never)"
    assert found["JMSTimestamp"] == "1795203128800 (20 Nov 2026, 19:32:08.800 UTC)"
    assert dict(headers(capture(request(1, timestamp=0), at(0))))["JMSTimestamp"] == "0 (not set)"


def test_values_are_those_of_jms() -> None:
    """Flags in lower case, and nothing by its name in Python."""
    entries = Properties([Property("flag", PropertyType.BOOLEAN, True), Property("gone", PropertyType.STRING, None)])
    message = Message(message_type=MessageType.MAP, body=entries, properties=entries, redelivered=False)
    found = dict(headers(capture(message, at(0))))
    assert (found["JMSRedelivered"], found["flag"], found["gone"]) == ("false", "true", "(null)")
    assert body_excerpt(message) == ("flag: true\ngone: (null)", 0)
