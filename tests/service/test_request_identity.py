"""What names a request, so that its redelivery is known and nothing else is taken for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from calling_kit import request_message

from brokers import Destination, DestinationKind, Message, MessageType, properties, queue
from soapjms import UsageError
from soapjms.client.retry import KEY_PROPERTY, LOCK_PROPERTY, lock_of
from soapjms.service.store.base import ANY_CLAIM, KEY_OCTETS, OWN_PLACE, key_of

TEMPORARY = Destination(DestinationKind.TEMPORARY_QUEUE, "ID:client-1:1")
REQUEST = request_message("greeter", TEMPORARY, message_id="ID:1", correlation_id="c", timestamp=7, redelivered=False)


@pytest.mark.parametrize("stable", [True, False])
def test_redelivered(stable: bool) -> None:
    """A redelivery has the name of the first delivery; where the JMSMessageID changes, that is not in it."""
    again = replace(REQUEST, redelivered=True, message_id="ID:1" if stable else "ID:2")
    key = key_of(REQUEST, stable_message_id=stable)
    assert key is not None
    assert key == key_of(again, stable_message_id=stable)


@pytest.mark.parametrize(
    ("change", "stable", "tells"),
    [
        ({"message_id": "ID:2"}, True, True),
        ({"destination": queue("copies")}, True, True),
        ({"body": b"<other/>"}, True, True),
        ({"reply_to": Destination(DestinationKind.TEMPORARY_QUEUE, "ID:client-2:1")}, True, True),
        ({"correlation_id": "d"}, True, True),
        ({"properties": properties({"SOAPJMS_targetService": "other"})}, True, True),
        ({"properties": properties({"JMSXUserID": "bob"})}, True, True),
        ({"properties": properties({"JMSXDeliveryCount": 2})}, True, False),
        ({"correlation_id": "d"}, False, True),
        ({"reply_to": queue("answers")}, False, True),
        ({"timestamp": 8}, False, True),
        ({"destination": queue("copies")}, False, True),
        ({"body": "<other/>", "message_type": MessageType.TEXT}, False, True),
        ({"body": None}, False, True),
    ],
)
def test_told_apart(change: dict[str, Any], stable: bool, tells: bool) -> None:
    """What belongs to name and place tells requests apart; what a broker adds does not."""
    other: Message = replace(REQUEST, **change)
    assert (key_of(other, stable_message_id=stable) != key_of(REQUEST, stable_message_id=stable)) is tells


def test_places() -> None:
    """A copy to be answered elsewhere has the same name; a temporary queue of the own connection is no place."""
    key, elsewhere, own = (
        key_of(replace(REQUEST, reply_to=each), stable_message_id=True)
        for each in (TEMPORARY, queue("other"), Destination(DestinationKind.TEMPORARY_QUEUE, None, "/temp-queue/1"))
    )
    assert key is not None
    assert elsewhere is not None
    assert elsewhere != key
    assert elsewhere[:KEY_OCTETS] == key[:KEY_OCTETS]
    assert own == key[:KEY_OCTETS] + OWN_PLACE


def test_retry() -> None:
    """What is sent again by who has the key has a name alone; with the lock it has a place."""
    first, again = (
        key_of(replace(REQUEST, properties=properties({name: value})), stable_message_id=True)
        for name, value in ((LOCK_PROPERTY, lock_of("k")), (KEY_PROPERTY, "k"))
    )
    assert first is not None
    assert again == first[:KEY_OCTETS] != first


@pytest.mark.parametrize(("change", "stable"), [({"message_id": None}, True), ({"correlation_id": ""}, False)])
def test_nothing_tells(change: dict[str, Any], stable: bool) -> None:
    """Without an id there is no name: another request may look the same."""
    assert key_of(replace(REQUEST, **change), stable_message_id=stable) is None


def test_unstored() -> None:
    """Without a store every delivery is worked on, and there is no transaction; it says how to get one."""
    for _ in range(2):
        with pytest.raises(UsageError, match="it one, as in Dispatcher"):
            ANY_CLAIM.transaction  # noqa: B018 - reading it is the test
        ANY_CLAIM.roll_back()
        ANY_CLAIM.finish(None)
        ANY_CLAIM.abandon()
        ANY_CLAIM.forget()
