"""brokers.stomp, without a broker: messages to frames and back, and the URL."""

from __future__ import annotations

import pickle
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stomp.utils import parse_frame
from stomp_kit import (
    message_to,
)

from brokers import (
    ConnectionFailedError,
    DeliveryMode,
    Destination,
    DestinationGoneError,
    DestinationKind,
    Message,
    MessageType,
    Property,
    PropertyType,
    properties,
    queue,
    topic,
)
from brokers.stomp.codec import pack
from brokers.stomp.dialect import ARTEMIS, MIN_FRAME_OCTETS, RESERVED, dialect_of
from brokers.stomp.frames import (
    from_frame,
    parse_destination,
    refusal,
    spell,
    spell_reply_to,
    subscribe_headers,
    to_frame,
)

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NAMES = TEXTS.filter(lambda name: name and name not in RESERVED)
DESTINATIONS = st.one_of(
    st.builds(Destination, st.sampled_from(DestinationKind), TEXTS.filter(lambda name: name != "")),
    st.builds(
        lambda name: Destination(DestinationKind.TEMPORARY_QUEUE, None, address=f"/temp-queue/{name}"),
        TEXTS,
    ),
)
MESSAGES = st.builds(
    lambda content, names, **headers: Message(
        message_type=content[0],
        body=content[1],
        properties=properties(Property(name, PropertyType.STRING, value) for name, value in names.items()),
        redelivered=False,
        untyped=True,
        **headers,
    ),
    st.one_of(
        st.tuples(st.just(MessageType.BYTES), st.binary()),
        st.tuples(st.just(MessageType.TEXT), TEXTS.filter(lambda body: body != "")),
    ),
    st.dictionaries(NAMES, TEXTS),
    destination=DESTINATIONS,
    reply_to=st.none() | DESTINATIONS,
    correlation_id=st.none() | TEXTS,
    type=st.none() | TEXTS,
    delivery_mode=st.sampled_from(DeliveryMode),
    priority=st.none() | st.integers(0, 9),
    expiration=st.none() | st.integers(0, 2**63 - 1),
)


@given(MESSAGES)
def test_message_survives_both_ways(message: Message) -> None:
    """What to_frame writes, from_frame reads, through the very octets of the wire."""
    headers, body = to_frame(message)
    frame = parse_frame(pack("SEND", headers, body).removesuffix(b"\0"))
    assert frame.headers == headers
    assert from_frame(frame.headers, frame.body) == message
    assert pickle.loads(pickle.dumps(message)) == message


@given(st.dictionaries(TEXTS.filter(bool), TEXTS))
@example({"a:b\\c": "x:\\n\r\n\\c", " lead": "  trail  "})
def test_headers_are_escaped_both_ways(headers: dict[str, str]) -> None:
    """Colon, backslash, line feed and carriage return, in names as in values; blanks stay where they are."""
    octets = pack("SEND", headers)
    assert octets.count(b"\n") == len(headers) + 2
    assert b"\r" not in octets
    assert parse_frame(octets.removesuffix(b"\0")).headers == headers


@given(st.dictionaries(TEXTS.filter(bool), TEXTS), st.binary())
def test_any_frame_makes_a_message(headers: dict[str, str], body: bytes) -> None:
    """A peer may send what it likes: from_frame never raises."""
    assert from_frame(headers, body).untyped


@pytest.mark.parametrize("name", ["priority", "expires", "timestamp"])
@pytest.mark.parametrize("value", ["", "high", "-", "٣", "1e9", "9" * 400])
def test_number_that_is_none_is_dropped(name: str, value: str) -> None:
    """A JMS client may set a property called `priority`; it then stands where the number was."""
    message = from_frame({"destination": "/queue/q", name: value}, b"x")
    assert (message.priority, message.expiration, message.timestamp) == (None, None, None)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
def test_text_that_no_header_can_carry_is_refused(bad: str, version: str) -> None:
    """NUL would end the frame; a lone surrogate would become a question mark."""
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        pack("SEND", {"name": bad}, version=version)
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        pack("SEND", {bad: "value"}, version=version)


def test_headers_of_stomp_1_0_are_not_escaped() -> None:
    """It has no escapes; CONNECT is sent that way in all versions, so that a password may contain a colon."""
    octets = pack("CONNECT", {"login": "a", "passcode": "b:c\\n"}, version="1.0")
    assert octets == b"CONNECT\nlogin:a\npasscode:b:c\\n\n\n\0"


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (message_to(None), "no destination"),
        (message_to(Destination(DestinationKind.QUEUE, "")), "must have a name or an address"),
        (message_to(queue("q"), "a\0b"), "NUL"),
        (message_to(queue("q"), properties=properties({"priority": 5})), "'priority'"),
        (message_to(queue("q"), properties=properties({"receipt": "r"})), "'receipt'"),
        (message_to(queue("q"), properties=properties({"": "r"})), "''"),
        (Message(message_type=MessageType.BYTES, body="text", destination=queue("q")), "str"),
        (Message(message_type=MessageType.TEXT, body=None, destination=queue("q")), "NoneType"),
        (Message(message_type=MessageType.MAP, body=properties({}), destination=queue("q")), "got map"),
        (Message(message_type=MessageType.UNKNOWN, destination=queue("q")), "got unknown"),
    ],
)
def test_message_that_stomp_cannot_carry_is_refused(message: Message, complaint: str) -> None:
    """The caller's mistake is an exception that names it."""
    with pytest.raises(ValueError, match=complaint):
        to_frame(message)


def test_headers_of_a_frame() -> None:
    """Bytes have a content-length, text has none; booleans are lower case; null properties are left out."""
    more = {"SOAPJMS_isFault": False, "number": 7, "nothing": None}
    headers, body = to_frame(
        message_to(
            queue("q"),
            memoryview(b"ab").tobytes(),
            delivery_mode=2,
            expiration=0,
            message_id="ID:mine",
            timestamp=5,
            properties=properties(more),
        )
    )
    assert body == b"ab"
    assert headers == {
        "destination": "/queue/q",
        "persistent": "true",
        "expires": "0",
        "content-length": "2",
        "SOAPJMS_isFault": "false",
        "number": "7",
    }
    assert "content-length" not in to_frame(message_to(queue("q"), "text"))[0]


def test_view_of_bytes_is_sent() -> None:
    """A part of a larger buffer needs no copy before it gets here."""
    message = Message(message_type=MessageType.BYTES, body=memoryview(b"abcd")[1:3], destination=queue("q"))
    assert to_frame(message)[1] == b"bc"


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("/queue/a/b", queue("a/b")),
        ("/topic/t", topic("t")),
        ("/remote-temp-queue/ID:x", Destination(DestinationKind.TEMPORARY_QUEUE, "ID:x")),
        ("/remote-temp-topic/ID:x", Destination(DestinationKind.TEMPORARY_TOPIC, "ID:x")),
        ("/temp-queue/r", Destination(DestinationKind.TEMPORARY_QUEUE, None, address="/temp-queue/r")),
        ("/temp-topic/r", Destination(DestinationKind.TEMPORARY_TOPIC, None, address="/temp-topic/r")),
    ],
)
def test_destinations_are_spelled_as_activemq_does(text: str, destination: Destination) -> None:
    """Both ways."""
    assert parse_destination(text) == destination
    assert spell(destination) == text


def test_destination_without_prefix_is_a_queue() -> None:
    """As ActiveMQ takes it."""
    assert parse_destination("plain") == queue("plain")


def test_text_that_is_no_utf8_is_unknown() -> None:
    """The octets are kept for whoever judges the message."""
    message = from_frame({}, b"\xff")
    assert (message.message_type, message.body) == (MessageType.UNKNOWN, b"\xff")


def test_error_frame_is_told_without_its_stack_trace() -> None:
    """A destination that is gone has an error of its own."""
    gone = refusal({"message": "m"}, b"org.x.DestinationDoesNotExistException: The destination q\n\tat org.x.Y")
    assert isinstance(gone, DestinationGoneError)
    assert "at org.x" not in str(gone)
    other = refusal({"message": "not allowed"}, b"")
    assert not isinstance(other, DestinationGoneError)
    assert "not allowed" in str(other)


def test_unknown_broker_is_refused() -> None:
    """Without a row in the table messages would go astray."""
    with pytest.raises(ConnectionFailedError, match="RabbitMQ"):
        dialect_of("RabbitMQ/4.0")


def test_frames_for_artemis() -> None:
    """Queue or topic is said in a header of its own, a temporary destination's is left open; reply-to is as Java's."""
    temporary = Destination(DestinationKind.TEMPORARY_QUEUE, None, address="temp-queue.1-2")
    headers, _ = to_frame(message_to(queue("q"), reply_to=temporary), ARTEMIS)
    assert (headers["destination"], headers["destination-type"]) == ("q", "ANYCAST")
    assert headers["reply-to"] == "topic://temp-queue.1-2"
    headers, _ = to_frame(message_to(topic("t"), reply_to=queue("r")), ARTEMIS)
    assert (headers["destination"], headers["destination-type"]) == ("t", "MULTICAST")
    assert headers["reply-to"] == "queue://r"
    headers, _ = to_frame(message_to(temporary), ARTEMIS)
    assert headers["destination"] == "temp-queue.1-2"
    assert "destination-type" not in headers
    with pytest.raises(ValueError, match="'AMQ_SCHEDULED_DELAY'"):
        to_frame(message_to(queue("q"), properties=properties({"AMQ_SCHEDULED_DELAY": 5})), ARTEMIS)


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("queue://a/b", queue("a/b")),
        ("topic://t", topic("t")),
        ("temp-queue://uuid", Destination(DestinationKind.TEMPORARY_QUEUE, "uuid")),
        ("topic://temp-queue.1-2", Destination(DestinationKind.TEMPORARY_QUEUE, None, address="temp-queue.1-2")),
        ("topic://temp-topic.1-2", Destination(DestinationKind.TEMPORARY_TOPIC, None, address="temp-topic.1-2")),
        ("/queue/plain", queue("/queue/plain")),
    ],
)
def test_reply_to_is_spelled_as_artemis_does(text: str, destination: Destination) -> None:
    """As its Java client writes it; a plain name is a queue's."""
    assert parse_destination(text, ARTEMIS) == destination
    if "://" in text:
        assert spell_reply_to(destination, ARTEMIS) == text


def test_frames_of_artemis() -> None:
    """Where the length stands tells the type; what is about the frame is no property; `redelivered:false` is empty."""
    common = {
        "message-id": "26,34",
        "destination": "t",
        "redelivered": "false",
        "destination-type": "MULTICAST",
        "receipt": "r",
        "transaction": "t",
        "__AMQ_CID": "x",
        "_AMQ_GROUP_ID": "g",
        "mine": "1",
    }
    octets = from_frame({"content-length": "1", **common}, b"x", ARTEMIS)
    text = from_frame({**common, "content-length": "1"}, b"x", ARTEMIS)
    empty = from_frame(common, b"", ARTEMIS)
    assert [each.message_type for each in (octets, text, empty)] == [
        MessageType.BYTES,
        MessageType.TEXT,
        MessageType.UNKNOWN,
    ]
    assert text.destination == topic("t")
    assert (text.message_id, text.redelivered) == ("34", None)
    assert {each.name: each.value for each in text.properties} == {"JMSXGroupID": "g", "mine": "1"}
    assert from_frame({**common, "redelivered": "true"}, b"", ARTEMIS).redelivered is True


@pytest.mark.parametrize("name", ["__HDR_MESSAGE_ID", "NATIVE_MESSAGE_ID"])
def test_senders_id_of_artemis(name: str) -> None:
    """What came over OpenWire or AMQP has its JMSMessageID in a property; it is that, and no property of anybody's."""
    message = from_frame({"message-id": "26,34", name: "ID:vm-1:1:1:1:1", "mine": "1"}, b"", ARTEMIS)
    assert message.message_id == "ID:vm-1:1:1:1:1"
    assert [each.name for each in message.properties] == ["mine"]
    assert from_frame({"message-id": "26,34", name: "no id"}, b"", ARTEMIS).message_id == "34"
    assert from_frame({"message-id": "26,34", name: "ID:vm-1"}, b"").message_id == "26,34"
    with pytest.raises(ValueError, match=name):
        to_frame(message_to(queue("q"), properties=properties({name: "ID:1"})), ARTEMIS)


@given(st.dictionaries(TEXTS.filter(bool), TEXTS), st.binary())
def test_any_frame_of_artemis_makes_a_message(headers: dict[str, str], body: bytes) -> None:
    """A peer may send what it likes there too."""
    assert from_frame(headers, body, ARTEMIS).untyped


@given(st.dictionaries(TEXTS.filter(bool), TEXTS))
@example({"a:b\\c": "x:\\n\r\n\\c\r", " lead": "  trail  "})
def test_headers_of_stomp_1_1(headers: dict[str, str]) -> None:
    """It has no escape for CR, which stands for itself, and ends no line."""
    octets = pack("SEND", headers, version="1.1")
    lines = octets.removesuffix(b"\n\0").split(b"\n")[1:-1]
    read = {b"\\n": b"\n", b"\\c": b":", b"\\\\": b"\\"}

    def plain(part: bytes) -> str:
        return re.sub(rb"\\.", lambda found: read[found[0]], part).decode()

    assert {plain(name): plain(value) for name, _, value in (line.partition(b":") for line in lines)} == headers


@pytest.mark.parametrize(("count", "window"), [(1, 0), (2, 2 * MIN_FRAME_OCTETS), (10, 10 * MIN_FRAME_OCTETS)])
def test_prefetch_of_artemis_is_in_octets(count: int, window: int) -> None:
    """One at a time is 0; more are as many of the smallest there are."""
    headers = subscribe_headers(
        queue("q"), ARTEMIS, prefetch=count, durable_name="d", selector="JMSPriority = 'JMSType'"
    )
    assert headers == {
        "destination": "q",
        "subscription-type": "ANYCAST",
        "consumer-window-size": str(window),
        "selector": "AMQPriority = 'JMSType'",
        "durable-subscription-name": "d",
    }


def test_words_of_a_broker_are_shortened() -> None:
    """Artemis repeats the message, with all that is in it."""
    dump = "AMQ339011 Error sending message CoreMessage[messageID=1, properties=TypedProperties[secret=tops3cret]]@1"
    assert str(refusal({"message": dump}, b"", ARTEMIS)).endswith("AMQ339011 Error sending message; its log says why")
    assert len(str(refusal({"message": "x" * 100_000}, b"", ARTEMIS))) < 600
    assert isinstance(
        refusal({"message": "AMQ339001 Destination does not exist: q"}, b"", ARTEMIS), DestinationGoneError
    )


def test_end_of_a_consumer_of_artemis() -> None:
    """The broker names queue and address among much else; the first of each counts."""
    text = (
        "consumer with ID ServerConsumerImpl [id=0, filter=null, binding=LocalQueueBinding [address=orders, "
        "queue=QueueImpl[name=orders.eu, postOffice=[address=no, queue=QueueImpl[name=no, temp=false], temp=false]@5]] "
        "has been disconnected by server"
    )
    assert ARTEMIS.ended is not None
    found = ARTEMIS.ended.match(f"{text}\nat org.example")
    assert found is not None
    assert found.groupdict() == {"address": "orders", "queue": "orders.eu"}
    assert ARTEMIS.ended.match(text.replace("disconnected", "welcomed")) is None


def test_no_error_frame_takes_long() -> None:
    """A broker may repeat in its ERROR what a peer made up, in any number."""
    parts = ("consumer with ID ServerConsumerImpl [", "[address=", ", queue=QueueImpl[name=", ", ", " Message[")
    text = parts[0] + "".join(part * 500 for part in parts[1:])
    begin = time.process_time()
    assert ARTEMIS.ended is not None
    assert ARTEMIS.ended.match(text) is None
    refusal({}, text.encode(), ARTEMIS)
    assert time.process_time() - begin < 5
