"""brokers.amqp: messages to the octets of AMQP and back, without a broker."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import proton
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import symbol, timestamp, ubyte, uint, ulong, ushort

from brokers import (
    DeliveryMode,
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    UsageError,
    properties,
    queue,
    topic,
    typed,
)
from brokers.amqp import message_writer as writer
from brokers.amqp.dialect import (
    ACTIVEMQ_CLASSIC,
    ARTEMIS,
    PLAIN,
    RABBITMQ,
    AmqpDialect,
    dialect_of,
    read_address,
    spell,
)
from brokers.amqp.message_reader import from_amqp_message
from brokers.amqp.message_writer import to_amqp_message
from brokers.amqp.sections import AmqpSection, encode
from brokers.amqp.values import IN_SECTIONS, to_wire

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = TEXTS.filter(lambda name: bool(name) and "://" not in name and "\0" not in name)
BITS = {PropertyType.BYTE: 8, PropertyType.SHORT: 16, PropertyType.INT: 32, PropertyType.LONG: 64}
SCALARS = st.one_of(
    st.tuples(st.just(PropertyType.BOOLEAN), st.booleans()),
    *(st.tuples(st.just(kind), st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)) for kind, bits in BITS.items()),
    st.tuples(st.just(PropertyType.FLOAT), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(PropertyType.DOUBLE), st.floats(allow_nan=False)),
    st.tuples(st.just(PropertyType.STRING), TEXTS | st.none()),
)
VALUES = SCALARS | st.tuples(st.just(PropertyType.BYTES), st.sampled_from(["", "AAEC/w==", "YWJj"]))
ENTRIES = st.dictionaries(NAMES.filter(lambda name: name not in IN_SECTIONS), SCALARS, max_size=5).map(
    lambda entries: Properties(Property(name, *value) for name, value in entries.items())
)
BODIES = st.one_of(
    st.tuples(st.just(MessageType.BYTES), st.binary() | st.none()),
    st.tuples(st.just(MessageType.OBJECT), st.binary()),
    st.tuples(st.just(MessageType.TEXT), TEXTS | st.none()),
    st.tuples(
        st.just(MessageType.MAP),
        st.dictionaries(TEXTS, VALUES, max_size=5).map(
            lambda entries: Properties(Property(name, *value) for name, value in entries.items())
        ),
    ),
    st.tuples(
        st.just(MessageType.STREAM),
        st.lists(VALUES, max_size=5).map(lambda values: tuple(Element(*value) for value in values)),
    ),
    st.tuples(st.just(MessageType.MESSAGE), st.none()),
)
DESTINATIONS = st.builds(Destination, st.sampled_from(DestinationKind), NAMES)
TIMES = st.integers(0, 2**53)
MESSAGES = st.builds(
    lambda content, **headers: Message(message_type=content[0], body=content[1], redelivered=False, **headers),
    BODIES,
    properties=ENTRIES,
    destination=DESTINATIONS,
    reply_to=st.none() | DESTINATIONS,
    message_id=st.none() | TEXTS.map(lambda text: f"ID:{text}"),
    correlation_id=st.none() | TEXTS,
    type=st.none() | TEXTS,
    delivery_mode=st.sampled_from(DeliveryMode),
    priority=st.integers(0, 9),
    expiration=TIMES,
    timestamp=st.none() | TIMES,
)
DIALECT_ROWS = st.sampled_from([PLAIN, ACTIVEMQ_CLASSIC, ARTEMIS])


def arrived(octets: bytes, dialect: AmqpDialect = PLAIN) -> Message:
    """Read a message."""
    return from_amqp_message(octets, dialect).message


def from_proton(**fields: Any) -> Message:
    """Have proton's own message class write a message, and read it."""
    inferred = fields.pop("inferred", False)
    message = proton.Message(**fields)
    message.inferred = inferred
    return arrived(message.encode())


@given(MESSAGES, DIALECT_ROWS)
@example(
    Message(
        message_type=MessageType.TEXT,
        body="a\0b",
        destination=queue("q"),
        delivery_mode=2,
        priority=0,
        expiration=0,
        redelivered=False,
    ),
    PLAIN,
)
def test_message_survives_both_ways(message: Message, dialect: AmqpDialect) -> None:
    """What goes out comes back: every message type, every type of property, every header."""
    sent = message.timestamp
    if sent is not None and message.expiration:
        message = replace(message, expiration=max(message.expiration, sent + 1))
    received = from_amqp_message(to_amqp_message(message, dialect), dialect, message.destination, received=sent)
    assert received.message == message
    assert received.delivery_count == 1
    assert pickle.loads(pickle.dumps(received.message)) == message


LIKE = st.sampled_from
SIMILAR_ENTRIES = st.lists(
    st.builds(
        Property,
        LIKE(["p", "q", "é", "JMSXGroupID", "JMSXGroupSeq", "JMSXUserID", "n" * 300, "\ud800"]),
        LIKE(PropertyType),
        LIKE([None, True, False, 0, 1, 0.0, -0.0, 1.0, "", "1", "v" * 200, "v" * 700, "\ud800", 1 << 40]),
    ),
    max_size=4,
)
SIMILAR = st.builds(
    Message,
    message_type=LIKE([MessageType.BYTES, MessageType.TEXT, MessageType.UNKNOWN]),
    body=LIKE([b"", b"body", b"b" * 300, memoryview(b"body"), "text", None]),
    properties=SIMILAR_ENTRIES.map(Properties),
    destination=LIKE([None, queue("q"), topic("t"), queue("q" * 300), Destination(DestinationKind.QUEUE, None)]),
    reply_to=LIKE([None, queue("r"), Destination(DestinationKind.TEMPORARY_TOPIC, None, "temp-topic.x")]),
    message_id=LIKE([None, "ID:1", "ID:AMQP_ULONG:7", "ID:AMQP_ULONG:x", "i" * 300, "\ud800"]),
    correlation_id=LIKE([None, "", "c", "ID:AMQP_BINARY:00", "c" * 300]),
    type=LIKE([None, "", "t", "t" * 700]),
    delivery_mode=LIKE([None, 1, 2]),
    priority=LIKE([None, 0, 9, 10]),
    expiration=LIKE([None, 0, 1, 1 << 40, 1 << 63]),
    timestamp=LIKE([None, 0, 1 << 39, -5, 1 << 64]),
)


def written(write: Callable[[Message, AmqpDialect, bool], bytes | None], *given: Any) -> bytes | str | None:
    """Write a message; return `refused` if it cannot be written."""
    try:
        return write(*given)
    except (ValueError, TypeError, AssertionError, struct.error):
        return "refused"


@given(SIMILAR, DIALECT_ROWS, st.booleans())
def test_plain_messages_are_written_as_any(message: Message, dialect: AmqpDialect, with_header: bool) -> None:
    """What is put together from shared parts has the same octets as what is encoded section by section."""
    whole = written(lambda *given: writer._any_message(*given[:2], with_header=given[2]), message, dialect, with_header)
    for _ in range(2):  # the second time from the caches
        plain = writer._plain_message(message, message.message_id, message.timestamp, dialect, with_header=with_header)
        assert plain is None or plain == whole


def test_the_messages_of_calls_are_plain() -> None:
    """So they are written from shared parts."""
    message = Message(
        message_type=MessageType.BYTES,
        body=b"<m/>",
        properties=properties({"SOAPJMS_bindingVersion": "1.0", "SOAPJMS_isFault": False, "n": 1}),
        destination=queue("q"),
        message_id="ID:1",
        correlation_id="c",
        timestamp=1,
    )
    assert writer._plain_message(message, "ID:2", 2, ACTIVEMQ_CLASSIC, with_header=True) is not None
    stamped = writer.to_stamped_message(message, "ID:2", 2, ACTIVEMQ_CLASSIC)
    assert stamped == to_amqp_message(replace(message, message_id="ID:2", timestamp=2), ACTIVEMQ_CLASSIC)


def test_headers_stand_where_the_mapping_has_them() -> None:
    """proton's message class, which we do not use, reads the same of our octets."""
    message = Message(
        message_type=MessageType.BYTES,
        body=b"<m/>",
        destination=queue("orders"),
        reply_to=Destination(DestinationKind.TEMPORARY_QUEUE, "r"),
        message_id="ID:1",
        correlation_id="c",
        type="urn:order",
        delivery_mode=DeliveryMode.NON_PERSISTENT,
        priority=7,
        timestamp=1_000_000,
        expiration=1_060_000,
        properties=properties({"JMSXGroupID": "g", "JMSXGroupSeq": 3, "JMSXUserID": "u", "SOAPJMS_isFault": True}),
    )
    seen = proton.Message()
    seen.decode(to_amqp_message(message, ACTIVEMQ_CLASSIC))
    assert (seen.address, seen.reply_to) == ("queue://orders", "temp-queue://r")
    assert (seen.id, seen.correlation_id, seen.subject) == ("ID:1", "c", "urn:order")
    assert (seen.durable, seen.priority, seen.ttl) == (False, 7, 60.0)
    assert (seen.creation_time, seen.expiry_time) == (1000.0, 0.0)  # that is its time to live
    assert (seen.group_id, seen.group_sequence, bytes(seen.user_id)) == ("g", 3, b"u")
    assert seen.content_type == "application/octet-stream"
    assert seen.properties == {"SOAPJMS_isFault": True}
    assert seen.annotations == {"x-opt-jms-msg-type": 3, "x-opt-jms-dest": 0, "x-opt-jms-reply-to": 2}
    assert (seen.inferred, bytes(seen.body)) == (True, b"<m/>")


def test_persistent_by_default() -> None:
    """As JMS has it, and not as AMQP does."""
    message = Message(message_type=MessageType.TEXT, body="x", destination=queue("q"))
    assert arrived(to_amqp_message(message)).delivery_mode == DeliveryMode.PERSISTENT


def test_large_bodies_are_not_short() -> None:
    """A data section says its length in one octet or in four."""
    for length in (0, 255, 256, 70_000):
        message = Message(message_type=MessageType.BYTES, body=bytes(length), destination=queue("q"))
        assert arrived(to_amqp_message(message)).body == bytes(length)


def test_view_of_bytes_is_sent() -> None:
    """A part of a larger buffer needs no copy before it gets here."""
    message = Message(message_type=MessageType.BYTES, body=memoryview(b"abcd")[1:3], destination=queue("q"))
    received = arrived(to_amqp_message(message))
    assert (received.body, type(received.body)) == (b"bc", bytes)


@pytest.mark.parametrize(
    ("fields", "message_type", "body"),
    [
        ({"body": b"octets", "inferred": True}, MessageType.BYTES, b"octets"),
        ({"body": b"octets"}, MessageType.BYTES, b"octets"),
        (
            {"body": b"\xac\xed", "inferred": True, "content_type": "application/x-java-serialized-object"},
            MessageType.OBJECT,
            b"\xac\xed",
        ),
        ({"body": "text"}, MessageType.TEXT, "text"),
        ({"body": {"a": 1}}, MessageType.MAP, Properties([typed("a", 1, PropertyType.LONG)])),
        ({"body": [True], "inferred": True}, MessageType.STREAM, (Element(PropertyType.BOOLEAN, True),)),
        ({"body": [True]}, MessageType.STREAM, (Element(PropertyType.BOOLEAN, True),)),
        ({}, MessageType.MESSAGE, None),
    ],
)
def test_message_type_without_annotation(fields: dict[str, Any], message_type: MessageType, body: object) -> None:
    """A sender that knows nothing of JMS is understood by what it sends."""
    received = from_proton(**fields)
    assert (received.message_type, received.body) == (message_type, body)


@pytest.mark.parametrize("body", [5, {"nested": {"a": 1}}, {1: "x"}, [[1]], symbol("s"), 1.5, UUID(int=1)])
def test_body_that_jms_has_no_type_for_is_unknown(body: object) -> None:
    """Its octets are there for whoever judges the message."""
    received = from_proton(body=body)
    assert received.message_type is MessageType.UNKNOWN
    assert isinstance(received.body, bytes)
    assert received.body.startswith(b"\x00\x53\x77")


def test_type_and_body_that_disagree_are_unknown() -> None:
    """A message that says it is text and holds data is neither."""
    received = from_proton(body=b"x", inferred=True, annotations={symbol("x-opt-jms-msg-type"): proton.byte(5)})
    assert received.message_type is MessageType.UNKNOWN


def test_several_data_sections_are_one_body() -> None:
    """AMQP lets a body come in pieces, of one kind."""
    pieces = encode(AmqpSection.DATA, b"a") + encode(AmqpSection.DATA, b"b" * 300)
    received = arrived(pieces)
    assert (received.message_type, received.body) == (MessageType.BYTES, b"a" + b"b" * 300)
    assert arrived(pieces + encode(AmqpSection.VALUE, "x")).message_type is MessageType.UNKNOWN


def test_types_of_properties() -> None:
    """AMQP has more types than JMS: the next larger one is taken, and what JMS cannot hold is dropped."""
    received = from_proton(
        properties={
            "ubyte": ubyte(255),
            "ushort": ushort(65535),
            "uint": uint(2**32 - 1),
            "ulong": ulong(5),
            "huge": ulong(2**64 - 1),
            "time": timestamp(5),
            "symbol": symbol("s"),
            "uuid": UUID(int=1),
            "null": None,
            "binary": b"dropped",
            "list": [1],
        }
    )
    assert {entry.name: (entry.type.value, entry.value) for entry in received.properties} == {
        "ubyte": ("short", 255),
        "ushort": ("int", 65535),
        "uint": ("long", 2**32 - 1),
        "ulong": ("long", 5),
        "huge": ("string", str(2**64 - 1)),
        "time": ("long", 5),
        "symbol": ("string", "s"),
        "uuid": ("string", str(UUID(int=1))),
        "null": ("string", None),
    }
    assert not received.untyped


def test_annotations_that_say_where_a_copy_was() -> None:
    """Artemis's are properties, called as Artemis calls them over STOMP; no others are, nor those of other brokers."""
    annotations = {symbol("x-opt-ORIG-ADDRESS"): "orders", symbol("x-opt-ORIG-MESSAGE-ID"): 7, symbol("x-opt-a"): 1}
    octets = proton.Message(annotations=annotations, properties={"p": "q"}).encode()
    shown = {"p": "q", "JMS_AMQP_MA_x-opt-ORIG-ADDRESS": "orders", "JMS_AMQP_MA_x-opt-ORIG-MESSAGE-ID": 7}
    for dialect, expected in ((ARTEMIS, shown), (PLAIN, {"p": "q"})):
        found = from_amqp_message(octets, dialect).message.properties
        assert {each.name: each.value for each in found} == expected


@pytest.mark.parametrize(
    ("dialect", "told", "message_id", "shown"),
    [
        (ARTEMIS, "ID:vm-1:1:1:1:1", "ID:vm-1:1:1:1:1", {"p": "q"}),
        (ARTEMIS, "no id", "ID:7", {"p": "q"}),
        (ARTEMIS, 7, "ID:7", {"p": "q"}),
        (PLAIN, "ID:vm-1:1:1:1:1", "ID:7", {"p": "q", "__HDR_MESSAGE_ID": "ID:vm-1:1:1:1:1"}),
    ],
)
def test_senders_id_of_artemis(dialect: AmqpDialect, told: object, message_id: str, shown: dict[str, object]) -> None:
    """What came over OpenWire has its JMSMessageID in a property; it is that, and no property of anybody's."""
    octets = proton.Message(id="ID:7", properties={"p": "q", "__HDR_MESSAGE_ID": told}).encode()
    message = from_amqp_message(octets, dialect).message
    assert message.message_id == message_id
    assert {each.name: each.value for each in message.properties} == shown


def test_redelivered_by_count() -> None:
    """AMQP counts the deliveries that failed, JMS all of them."""
    received = from_amqp_message(proton.Message(delivery_count=2).encode())
    assert (received.delivery_count, received.message.redelivered) == (3, True)


@pytest.mark.parametrize("dialect", [ARTEMIS, ACTIVEMQ_CLASSIC])
@pytest.mark.parametrize(
    ("fields", "expiration", "if_counted_down"),
    [
        ({}, 0, 0),
        ({"expiry_time": 3}, 3_000, 3_000),  # though it has passed
        ({"ttl": 5}, 105_000, 105_000),
        ({"ttl": 5, "creation_time": 98}, 103_000, 105_000),
        ({"ttl": 5, "creation_time": 94}, 105_000, 105_000),  # by that clock it would have expired
        ({"ttl": 5, "creation_time": 102}, 105_000, 105_000),  # by that clock it has not been sent
        ({"ttl": 5, "expiry_time": 104.5}, 104_500, 104_500),
        ({"ttl": 5, "expiry_time": 102}, 102_000, 105_000),
        ({"ttl": 5, "expiry_time": 99}, 105_000, 105_000),
        ({"ttl": 5, "expiry_time": 3700}, 105_000, 105_000),
        ({"ttl": 0xFFFF_FFFF / 1000, "expiry_time": 5_000_000}, 5_000_000_000, 5_000_000_000),  # more than it can say
    ],
)
def test_expiration(fields: dict[str, Any], expiration: int, if_counted_down: int, dialect: AmqpDialect) -> None:
    """By this machine's clock, which shows 100 s, whatever that of the sender showed."""
    message = from_amqp_message(proton.Message(**fields).encode(), dialect, received=100_000).message
    assert message.expiration == (if_counted_down if dialect.counts_down else expiration)


def test_a_long_lifetime() -> None:
    """What is more than a time to live can say goes as a time."""
    asked = Message(message_type=MessageType.MESSAGE, destination=queue("q"), timestamp=1, expiration=1 << 40)
    seen = proton.Message()
    seen.decode(to_amqp_message(asked))
    assert seen.expiry_time == (1 << 40) / 1000
    assert arrived(to_amqp_message(asked)).expiration == 1 << 40


IDS = [
    ("ID:a", "ID:a", "ID:a"),
    ("a", "ID:AMQP_NO_PREFIX:a", "a"),
    (ulong(7), "ID:AMQP_ULONG:7", "ID:AMQP_ULONG:7"),
    (UUID(int=7), f"ID:AMQP_UUID:{UUID(int=7)}", f"ID:AMQP_UUID:{UUID(int=7)}"),
    (b"\x00\xff", "ID:AMQP_BINARY:00FF", "ID:AMQP_BINARY:00FF"),
    ("ID:AMQP_ULONG:7", "ID:AMQP_STRING:ID:AMQP_ULONG:7", "ID:AMQP_STRING:ID:AMQP_ULONG:7"),
]


@pytest.mark.parametrize(("wire", "as_message_id", "as_correlation_id"), IDS)
def test_ids_of_every_type(wire: Any, as_message_id: str, as_correlation_id: str) -> None:
    """Whatever a requester makes its ids of, it recognises the answer that carries one as its correlation id."""
    received = from_proton(id=wire, correlation_id=wire)
    assert (received.message_id, received.correlation_id) == (as_message_id, as_correlation_id)
    for text in (as_message_id, as_correlation_id):
        assert to_wire(text) == wire
        assert type(to_wire(text)) is type(wire)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ID:AMQP_ULONG:7", "ID:AMQP_ULONG:07"),
        ("ID:AMQP_BINARY:ABCD", "ID:AMQP_BINARY:abcd"),
        ("ID:AMQP_BINARY:ABCD", "ID:AMQP_BINARY:AB CD"),
        (f"ID:AMQP_UUID:{UUID(int=7)}", f"ID:AMQP_UUID:{{{UUID(int=7)}}}"),
    ],
)
def test_ids_that_differ_do_so_on_the_wire(one: str, other: str) -> None:
    """What is not the text of a value is sent as it is, so that no id becomes another one's."""
    assert to_wire(other) == other != to_wire(one)


def test_names_that_are_symbols() -> None:
    """A message is made of Python's own types, so that it can be unpickled without proton."""
    octets = encode(AmqpSection.APPLICATION_PROPERTIES, {symbol("a"): "x", symbol("b"): True})
    received = arrived(octets + encode(AmqpSection.VALUE, {symbol("k"): "v"}))
    assert received == replace(received, properties=properties({"a": "x", "b": True}), body=properties({"k": "v"}))
    assert b"proton" not in pickle.dumps(received)


@pytest.mark.parametrize(
    "text", ["ID:AMQP_ULONG:x", "ID:AMQP_ULONG:18446744073709551616", "ID:AMQP_UUID:1", "ID:AMQP_BINARY:0", "ID:AMQP_"]
)
def test_id_that_only_looks_encoded_is_text(text: str) -> None:
    """A sender may choose any JMSCorrelationID."""
    assert to_wire(text) == text


@pytest.mark.parametrize(
    ("dialect", "destination", "address"),
    [
        (ACTIVEMQ_CLASSIC, queue("a/b"), "queue://a/b"),
        (ACTIVEMQ_CLASSIC, topic("t"), "topic://t"),
        (ACTIVEMQ_CLASSIC, Destination(DestinationKind.TEMPORARY_QUEUE, "ID:x"), "temp-queue://ID:x"),
        (ACTIVEMQ_CLASSIC, Destination(DestinationKind.TEMPORARY_TOPIC, "ID:x"), "temp-topic://ID:x"),
        (ARTEMIS, queue("q"), "q"),
        (PLAIN, topic("t"), "t"),
    ],
)
def test_addresses_are_spelled_as_the_broker_does(dialect: AmqpDialect, destination: Destination, address: str) -> None:
    """Both ways."""
    assert spell(destination, dialect) == address
    assert read_address(address, destination.kind, dialect) == destination


def test_temporary_destinations_of_stomp_on_artemis() -> None:
    """They are known by their names: the broker says that they are topics."""
    assert read_address("temp-queue.1", DestinationKind.TOPIC, ARTEMIS).kind is DestinationKind.TEMPORARY_QUEUE
    assert read_address("temp-queue.1", DestinationKind.TOPIC, PLAIN).kind is DestinationKind.TOPIC


@pytest.mark.parametrize(("dialect", "number"), [(ARTEMIS, 1), (PLAIN, 2), (ACTIVEMQ_CLASSIC, 2)])
def test_temporary_queues_that_are_topics(dialect: AmqpDialect, number: int) -> None:
    """A message says what they are to the broker, so that clients over other protocols answer to a topic."""
    mine = Destination(DestinationKind.TEMPORARY_QUEUE, "temp-queue.1")
    asked = Message(message_type=MessageType.TEXT, body="?", destination=queue("q"), reply_to=mine)
    seen = proton.Message()
    seen.decode(to_amqp_message(asked, dialect))
    assert seen.annotations["x-opt-jms-reply-to"] == number
    if dialect is ARTEMIS:
        assert from_amqp_message(to_amqp_message(asked, dialect), dialect).message.reply_to == mine


def test_broker_that_is_not_known() -> None:
    """It gets what the JMS mapping says."""
    assert dialect_of("ActiveMQ") is ACTIVEMQ_CLASSIC
    assert dialect_of("apache-activemq-artemis") is ARTEMIS
    assert dialect_of("SwiftMQ") is dialect_of(None) is PLAIN


@pytest.mark.parametrize(
    ("destination", "address"),
    [
        (queue("a.b"), "/queues/a.b"),
        (queue("a/b ü%2F"), "/queues/a%2Fb%20%C3%BC%252F"),
        (topic("news.sport"), "/exchanges/amq.topic/news.sport"),
        (topic("a/#"), "/exchanges/amq.topic/a%2F%23"),
        (Destination(DestinationKind.TEMPORARY_QUEUE, "x"), "/queues/temporary-queue.x"),
        (queue("temporary-queue"), "/queues/temporary-queue"),
    ],
)
def test_addresses_of_rabbitmq(destination: Destination, address: str) -> None:
    """Names are encoded as in a path, and read back."""
    assert spell(destination, RABBITMQ) == address
    assert read_address(address, None, RABBITMQ) == destination


def test_an_address_that_rabbitmq_does_not_write() -> None:
    """It is a name, and what is no encoding stays; a name that UTF-8 cannot encode is refused."""
    assert read_address("a%2Fb", None, RABBITMQ) == queue("a%2Fb")
    assert read_address("/queues/%zz", None, RABBITMQ) == queue("%zz")
    with pytest.raises(UsageError, match="UTF-8 cannot encode"):
        spell(queue("\ud800"), RABBITMQ)
    with pytest.raises(UsageError, match="must not hold NUL"):
        spell(queue("a\0"), RABBITMQ)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"destination": None}, "no destination"),
        ({"destination": queue("")}, "must have a name or an address"),
        ({"message_type": MessageType.UNKNOWN}, "got unknown"),
        ({"message_type": MessageType.BYTES}, "bytes cannot be str"),
        ({"message_type": MessageType.MAP}, "map cannot be str"),
        ({"message_type": MessageType.MESSAGE}, "message cannot be str"),
        ({"priority": 10}, "priority"),
        ({"correlation_id": "\ud800"}, "surrogates"),
        ({"expiration": 2**70, "timestamp": 0}, "AMQP cannot carry"),
        ({"properties": properties({"JMSXGroupSeq": "first"})}, "JMSXGroupSeq"),
        *(
            ({"properties": Properties([Property("a", PropertyType(kind), wrong)])}, f"as a JMS {kind}")
            for kind, wrong in (
                ("int", "abc"),
                ("int", 1.5),
                ("boolean", "false"),
                ("string", ["x"]),
                ("double", 1 << 2000),
                ("double", (1 << 60) + 1),
                ("double", "1.5"),
                ("double", True),
                ("float", (1 << 24) + 1),
                ("float", "1"),
                ("boolean", 5),
                ("long", True),
            )
        ),
        ({"properties": Properties([Property("a", "blob", 1)])}, "as a JMS blob"),  # type: ignore[arg-type]
        ({"properties": Properties([Property(None, PropertyType.INT, 1)])}, "AMQP cannot"),  # type: ignore[arg-type]
        ({"properties": None}, "AMQP cannot carry"),
        *(
            (
                {"message_type": MessageType.MAP, "body": Properties([Property("a", PropertyType.BYTES, wrong)])},
                "as a JMS bytes",
            )
            for wrong in ("***", "\u00e9", "YQ")
        ),
        *(({field: 5}, "AMQP cannot carry") for field in ("message_id", "correlation_id", "type")),
        ({"destination": queue(5)}, "AMQP cannot carry"),  # type: ignore[arg-type]
        ({"destination": queue("a\0b")}, "must not hold NUL"),
        ({"reply_to": queue("a" * 2049)}, "at most 2048 characters, got 2049"),
    ],
)
@pytest.mark.parametrize("body", [{}, {"message_type": MessageType.BYTES, "body": b"x"}])
def test_message_that_amqp_cannot_carry_is_refused(
    changes: dict[str, Any], complaint: str, body: dict[str, Any]
) -> None:
    """The caller's mistake is an exception that names it, in messages of either kind."""
    fields: dict[str, Any] = {"message_type": MessageType.TEXT, "body": "x", "destination": queue("q")} | body
    if "message_type" in changes:
        fields |= {"body": "x"}
    if changes != {"properties": None} or not body:
        with pytest.raises(UsageError, match=complaint):
            to_amqp_message(Message(**(fields | changes)))


@given(st.binary())
@example(b"\xff")
@example(b"\x73\x80\x00\x00\x00")  # a character beyond Unicode
@example(b"\x00\x53\x70")
@example(b"\x00\x53\x75\xb0\xff\xff\xff\xff")
@example(b"\x40")
@example(b"\x00\xa3\x01x\x40")
@example(encode(AmqpSection.PROPERTIES, [5, "no octets", 5, 5, 5, None, 5, 5, "never", "long ago", 5, "x"]))
@example(encode(AmqpSection.HEADER, ["yes", "high", "long", None, "often"]))
@example(encode(AmqpSection.MESSAGE_ANNOTATIONS, {symbol("x-opt-jms-msg-type"): 99}))
def test_any_octets_make_a_message(octets: bytes) -> None:
    """A peer may send what it likes: reading never raises."""
    assert isinstance(arrived(octets), Message)


def test_deep_nesting_makes_a_message() -> None:
    """60,000 lists in each other neither end the process nor raise."""
    levels = reversed(range(60_000))
    nested = b"".join(b"\xd0" + struct.pack(">II", 5 + 9 * level, 1) for level in levels) + b"\x40"
    assert arrived(b"\x00\x53\x77" + nested).message_type is MessageType.UNKNOWN
