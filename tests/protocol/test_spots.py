"""A broken assertion shows the spots of the message that break it, and what it says is right there is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from vector_kit import CASES, exchange_of, of_each_case, setting_of

from brokers.message import Destination, DestinationKind, Message, MessageType, PropertyType, changed, typed
from soapjms.protocol.assertions import ASSERTIONS, Reason, Setting, Spot, SpotKind, Verdict, VerdictOutcome, judge
from soapjms.protocol.assertions.spots import (
    MAX_RIGHT_CHARACTERS,
    MESSAGE_TYPE,
    header,
    in_body,
    in_property,
    missing_property,
)
from soapjms.protocol.content import parse_content_type, with_media_type, with_parameter
from soapjms.protocol.exchange import Exchange
from soapjms.protocol.names import REC_2012
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Record

BROKEN = (VerdictOutcome.FAILED, VerdictOutcome.WARNING)


def broken(exchange: Exchange, setting: Setting) -> list[Verdict]:
    """Return the verdicts of the broken assertions."""
    return [each for each in judge(exchange, setting) if each.outcome in BROKEN]


def destination(text: str) -> Destination:
    """Read `queue:orders`."""
    kind, _, name = text.partition(":")
    return Destination(DestinationKind(kind), name)


HEADERS = {
    "JMSDeliveryMode": ("delivery_mode", int),
    "JMSPriority": ("priority", int),
    "JMSExpiration": ("expiration", int),
    "JMSCorrelationID": ("correlation_id", str),
    "JMSReplyTo": ("reply_to", destination),
    "JMSDestination": ("destination", destination),
    MESSAGE_TYPE: ("message_type", MessageType),
}


def corrected(message: Message, spot: Spot) -> Message:
    """Return the message with the value that a spot says is right."""
    if spot.kind is SpotKind.HEADER:
        name, read = HEADERS[spot.name]
        return changed(message, **{name: read(spot.right)})
    old = message.properties.lookup(spot.name)
    if spot.kind is SpotKind.PROPERTY_TYPE:
        new = typed(spot.name, True, PropertyType(spot.right))
    else:
        assert spot.kind is SpotKind.PROPERTY
        is_flag = old is not None and old.type is PropertyType.BOOLEAN
        new = typed(spot.name, spot.right == "true" if is_flag else spot.right)
    return changed(message, properties=message.properties.merged([new]))


def with_correction(exchange: Exchange, verdict: Verdict) -> Exchange:
    """Return the exchange with all values that a verdict says are right."""
    assert isinstance(verdict.reason, Reason)
    record = verdict.record
    for spot in verdict.reason.spots:
        if spot.is_value:
            record = replace(record, message=corrected(record.message, spot))
    return replace(exchange, **{"response" if verdict.record is exchange.response else "request": record})


def value_of(record: Record, spot: Spot) -> object:
    """Return what a message has at a spot, not cut."""
    if spot.kind is SpotKind.BODY:
        return record.message.body
    if spot.kind is SpotKind.HEADER:
        return getattr(record.message, HEADERS[spot.name][0])
    return record.message.properties.value(spot.name)


@of_each_case
def test_every_broken_assertion_has_its_spots(case: dict[str, Any], profile: str) -> None:
    """Each names a place and what is right there; what it marks is in the value."""
    exchange = exchange_of(case)
    for verdict in broken(exchange, setting_of(case, profile)):
        assert isinstance(verdict.reason, Reason), verdict
        assert verdict.reason.spots, verdict
        for spot in verdict.reason.spots:
            assert bool(spot.name) is (spot.kind is not SpotKind.BODY)
            assert spot.right, verdict
            if spot.span is not None and verdict.record.message.properties.value("SOAPJMS_contentEncoding") is None:
                begin, end = spot.span
                assert 0 <= begin <= end <= len(str(value_of(verdict.record, spot)) or "")


@of_each_case
def test_what_is_right_is_accepted(case: dict[str, Any], profile: str) -> None:
    """With the values that the spots name, the assertion no longer complains of them."""
    exchange, setting = exchange_of(case), setting_of(case, profile)
    for verdict in broken(exchange, setting):
        assert isinstance(verdict.reason, Reason)
        if not any(each.is_value for each in verdict.reason.spots):
            continue
        again = broken(with_correction(exchange, verdict), setting)
        assert verdict.assertion not in {each.assertion for each in again}, (verdict.reason, verdict.reason.spots)


@pytest.mark.parametrize(
    ("text", "name", "value", "expected"),
    [
        ("text/xml; charset=utf-16", "charset", "UTF-8", "text/xml; charset=UTF-8"),
        ('text/xml;Charset="utf-16" ; a=b', "charset", "UTF-8", 'text/xml;Charset="UTF-8" ; a=b'),
        ("text/xml; a=b;", "charset", "UTF-8", 'text/xml; a=b;; charset="UTF-8"'),
        ("", "charset", "UTF-8", '; charset="UTF-8"'),
    ],
)
def test_parameter(text: str, name: str, value: str, expected: str) -> None:
    """A parameter gets another value in its place, and its quotes stay; one that is missing comes at the end."""
    assert with_parameter(text, name, value) == expected
    if text:
        assert parse_content_type(expected).parameters[name] == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [("text/xml; charset=utf-8", "application/soap+xml; charset=utf-8"), ("?", "application/soap+xml")],
)
def test_media_type(text: str, expected: str) -> None:
    """A media type is replaced; the parameters stay as they are written."""
    assert with_media_type(text, "application/soap+xml") == expected


def test_long_values_are_cut() -> None:
    """A spot does not keep a long text of a message."""
    long, message = "x" * 10_000, Reading(Message(message_type=MessageType.BYTES), REC_2012)
    for spot in (
        header("JMSReplyTo", long),
        in_property(message, "x", long),
        missing_property("x", long),
        in_body(long),
    ):
        assert len(spot.right) == MAX_RIGHT_CHARACTERS


def test_every_check_has_a_vector_with_spots() -> None:
    """All assertions that are judged were seen broken by these tests."""
    seen = set()
    for case, profile in CASES:
        setting = setting_of(case, profile)
        seen |= {each.assertion for each in broken(exchange_of(case), setting)}
        seen |= {row.id for row in ASSERTIONS if setting.profile.assertion_id(row.id) in seen}
    assert seen >= {row.id for row in ASSERTIONS if row.check is not None}
