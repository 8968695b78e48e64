"""Messages of the listener's clients are read alike, whether their head has a known shape or is decoded by section."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, symbol

from brokers import Destination, MessageType, queue
from brokers.amqp.listener.messages import CarriedMessage, MessageCarrier, uncarried
from brokers.amqp.listener.options import RefusalError
from brokers.amqp.sections import DATA_8, AmqpSection, MalformedError, encode
from brokers.embedded.queues import dead_letter, received
from brokers.message import ENTRY_OCTETS

NOW = 1_700_000_000_000
RECEIVED = NOW + 7


def octets_of(number: int, body: bytes = b"body", **more: Any) -> bytes:
    """Encode a message as a client does; only values that differ between messages depend on the number."""
    message = Message(
        body=body,
        id=f"ID:{number:04}",
        correlation_id=f"c-{number:04}",
        address="queue://here",
        reply_to="queue://there",
        properties={"name": f"{number:04}", "same": 5},
        creation_time=NOW / 1000 + number,
        inferred=True,
        durable=True,
        **more,
    )
    return bytes(message.encode())


def resolved(named: Destination | None) -> Destination:
    return named or queue("nowhere")


def outcome(carrier: MessageCarrier, octets: bytes, user: str | None = None) -> dict[str, Any] | str:
    """Return the message, or how it is refused."""
    try:
        carried = carrier.carry(octets, resolved, "ID:stored", RECEIVED, user)
    except (MalformedError, RefusalError) as error:
        return f"{type(error).__name__}: {error}"
    assert type(carried) is CarriedMessage
    found = asdict(carried)
    assert found == asdict(received(carried, carried.message_id or "", RECEIVED)), "it is as the broker stores it"
    return found


def knowing(user: str | None = None, **more: Any) -> MessageCarrier:
    """Return a carrier that knows the shape of these messages."""
    carrier = MessageCarrier()
    for number in range(1, 5):
        outcome(carrier, octets_of(number, **more), user)
    assert carrier._shapes[None].match(octets_of(9, **more)) is not None
    return carrier


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"ttl": 60},
        {"priority": 9},
        {"first_acquirer": True, "delivery_count": 3},
        {"instructions": {"x-opt-hop": 1}},
        {"annotations": {symbol("x-opt-jms-msg-type"): 3}},
        {"expiry_time": NOW / 1000 + 100},
        {"user_id": b"me"},
        {"group_id": "g", "group_sequence": 7},
        {"subject": "s", "content_type": "text/plain"},
    ],
    ids=lambda more: "-".join(more) or "plain",
)
def test_both_ways_are_one(more: dict[str, Any]) -> None:
    """All fields, the octets that are kept, and refusals are the same."""
    carrier = knowing("me", **more)
    for number in range(5, 9):
        octets = octets_of(number, b"x" * number, **more)
        assert outcome(carrier, octets, "me") == outcome(MessageCarrier(), octets, "me")


def test_a_users_id_that_differs() -> None:
    """A user-id of another one is found even if all else is known."""
    carrier = knowing("me", user_id=b"me")
    assert "RefusalError" in outcome(carrier, octets_of(5, user_id=b"xx"), "me")
    assert "RefusalError" not in outcome(carrier, octets_of(5, user_id=b"me"), "me")


@pytest.mark.parametrize("after", [b"\x00", b"\x00\x53", encode(AmqpSection.FOOTER, {}), b"\x00\x53\x77\xc0", b"\xff"])
def test_what_follows_the_body(after: bytes) -> None:
    """A footer is kept, and anything else that does not belong there is refused."""
    octets = octets_of(5) + after
    assert outcome(knowing(), octets) == outcome(MessageCarrier(), octets)


@pytest.mark.parametrize("value", [b"\x40", b"\x45", b"\xa1\x01a", b"\x53\x05"])
def test_a_data_section_without_octets(value: bytes) -> None:
    """Its message is taken like others without a JMS message type: its octets are the body."""
    body = b"\x00\x53\x75" + value
    found = outcome(MessageCarrier(), body)
    assert isinstance(found, dict)
    assert (found["message_type"], found["body"]) == (MessageType.UNKNOWN, body)


@pytest.mark.parametrize("body", [b"octets", "text", {"a": 1, "b": None}, [1, "x"], b"", 5, {"a": [1]}], ids=repr)
def test_bodies(body: Any) -> None:
    """A body of any kind is read alike, and that of no JMS message type too."""
    carrier = MessageCarrier()
    for number in range(1, 9):
        message = Message(body=body, id=f"ID:{number:04}", inferred=isinstance(body, bytes | list))
        assert outcome(carrier, octets := bytes(message.encode())) == outcome(MessageCarrier(), octets)
    assert carrier._shapes[None].match(octets) is not None


def test_what_the_sender_said() -> None:
    """The sender's id is that of the message, and its time is kept beside that of the broker."""
    for carrier in (knowing(), MessageCarrier()):
        carried = carrier.carry(octets_of(5), resolved, "ID:stored", RECEIVED, None)
        assert (carried.message_id, carried.timestamp) == ("ID:0005", RECEIVED)
        assert (carried.told_id, carried.told_timestamp) == ("ID:0005", NOW + 5000)


def test_a_message_without_an_id() -> None:
    """It gets the broker's; receivers over AMQP are not told that."""
    carried = MessageCarrier().carry(bytes(Message(body="x").encode()), resolved, "ID:stored", RECEIVED, None)
    assert (carried.message_id, carried.told_id) == ("ID:stored", None)


def test_its_size() -> None:
    """Its octets in AMQP count, and each property as in JMS; where it is encoded again, the larger of both sizes."""
    carried = knowing().carry(octets_of(5), resolved, "ID:stored", RECEIVED, None)
    assert carried.octets == len(carried.kept) + 2 * ENTRY_OCTETS
    letter = dead_letter(carried, queue("here"), "x" * 10_000)
    assert letter.octets > 10_000


CARRIER = knowing()


@given(st.data())
def test_broken_octets(data: st.DataObject) -> None:
    """Whatever an octet of a known message is changed to, and wherever it is cut, both ways agree."""
    octets = bytearray(octets_of(data.draw(st.integers(0, 9999))))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(octets[: data.draw(st.integers(len(octets) // 2, len(octets)))])
    assert outcome(CARRIER, cut) == outcome(MessageCarrier(), cut)


def test_a_boolean_that_is_neither_true_nor_false() -> None:
    """It is read alike, also if only such values of one property differ."""
    carrier = MessageCarrier()
    for value in (0, 1, 2, 0):
        octets = b"\x00\x53\x74\xc1\x06\x02\xa1\x01p\x56%c" % value + DATA_8 + b"\x04body"
        assert isinstance(outcome(carrier, octets), dict)
        assert outcome(carrier, octets) == outcome(MessageCarrier(), octets)


def test_it_goes_out_as_it_came() -> None:
    """Only the sections of a hop differ: the header is new, what comes after it is kept."""
    carried = knowing().carry(octets_of(5), resolved, "ID:stored", RECEIVED, None)
    kept = encode(AmqpSection.HEADER, [True])
    assert uncarried(carried, 1, NOW).endswith(carried.kept)
    assert carried.kept.endswith(DATA_8 + b"\x04body")
    assert octets_of(5).endswith(carried.kept)
    assert kept not in carried.kept
