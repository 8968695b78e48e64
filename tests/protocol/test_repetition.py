"""A captured request as it is sent again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from brokers.message import Destination, DestinationKind, Message, MessageType, properties, queue
from soapjms.protocol.record import Direction, Record, capture
from soapjms.protocol.repetition import again, obstacles

NOW = 2_000_000_000_000
TIME = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def record(direction: Direction | None = Direction.REQUEST, **headers: Any) -> Record:
    """Capture a request."""
    values: dict[str, Any] = {
        "message_type": MessageType.BYTES,
        "body": b"<a/>",
        "destination": queue("orders"),
        "reply_to": queue("replies"),
        "message_id": "ID:1",
        "correlation_id": "1",
        "timestamp": 1000,
        "redelivered": True,
        "properties": properties({"SOAPJMS_bindingVersion": "0.3", "JMSXDeliveryCount": 2, "JMSXGroupID": "g"}),
    }
    return capture(Message(**{**values, **headers}), TIME, direction)


def test_only_what_belongs_to_one_sending_is_new() -> None:
    """Body and properties are as they were, but for those of the provider."""
    captured = record().message
    sent = again(record(), None, NOW, "new")
    assert sent == replace(
        captured,
        reply_to=None,
        message_id=None,
        timestamp=None,
        redelivered=None,
        correlation_id="new",
        properties=properties({"SOAPJMS_bindingVersion": "0.3", "JMSXGroupID": "g"}),
    )
    assert again(record(correlation_id=None), queue("test"), NOW, "new").correlation_id is None
    assert again(record(), queue("test"), NOW, "new").destination == queue("test")


@pytest.mark.parametrize(
    ("expiration", "timestamp", "wanted"),
    [
        (None, 1000, None),
        (0, 1000, 0),
        (31_000, 1000, NOW + 30_000),
        (1000, 1000, None),
        ((1 << 63) - 1, 1000, NOW + (1 << 62)),
        (round(TIME.timestamp() * 1000) + 500, None, NOW + 500),
    ],
)
def test_its_lifetime_begins_anew(expiration: int | None, timestamp: int | None, wanted: int | None) -> None:
    """As long as it was, in a JMS long; from its capture if nothing says when it was sent."""
    assert again(record(expiration=expiration, timestamp=timestamp), None, NOW, "").expiration == wanted


@pytest.mark.parametrize(
    ("captured", "said"),
    [
        (record(Direction.RESPONSE), "got one of a response"),
        (replace(record(), truncated=True), "the body was cut"),
        (record(destination=None), "does not show the name"),
        (record(destination=Destination(DestinationKind.QUEUE, None)), "does not show the name"),
        (record(destination=Destination(DestinationKind.TEMPORARY_QUEUE, "t")), "temporary-queue:t was temporary"),
    ],
)
def test_obstacles(captured: Record, said: str) -> None:
    """What keeps a record from being sent again, whatever the connection."""
    assert said in next(obstacles(captured))


def test_another_destination_is_a_way_out() -> None:
    """A request to a temporary queue goes elsewhere."""
    assert not list(obstacles(record()))
    assert not list(obstacles(record(destination=None), queue("test")))
