"""The part of the broker contract about messages and about who gets them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Barrier
from typing import Any, Final

import pytest
from broker_contract_kit import (
    PATIENCE,
    BrokerUnderTest,
    Fixtures,
    Inbox,
    as_received,
    fresh,
    next_in_queue,
    round_trip,
    send,
    text,
)

from brokers import (
    BrokerError,
    Connection,
    Delivery,
    DeliveryMode,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Properties,
    PropertyType,
    SendFailedError,
    StaleDestinationError,
    UsageError,
    properties,
    queue,
    topic,
    typed,
)
from brokers.errors import SoapJmsError
from brokers.message import Body

AWKWARD_VALUES: Final = {
    "SOAPJMS_requestURI": "jms:jndi:orders?replyToName=a&b=c:d",
    "Content_$_Type": 'text/xml; charset="utf-8"',
    "colon": "a:b::c",
    "backslash": "a\\b\\n\\c\\",
    "newline": "a\nb\n",
    "carriage_return": "a\rb\r\nc",
    "spaces": "  a b  ",
    "tab": "a\tb",
    "non_ascii": "Grüße, 東京 🙂",
    "empty": "",
}

HALF: Final = "\ud800"
"""Half of a surrogate pair, which UTF-8 cannot encode."""


class MessageContract(Fixtures):
    """What a message is when it arrives."""

    @pytest.mark.parametrize("body", [bytes(range(256)), b"\0", b"\0\0a\0", b"<a/>\n", b"\xff\xfe"])
    def test_bytes_arrive_unchanged(self, connection: Connection, body: bytes) -> None:
        """A BytesMessage arrives as one, octet for octet, NUL too."""
        received = round_trip(connection, Message(message_type=MessageType.BYTES, body=body))
        assert (received.message_type, received.body) == (MessageType.BYTES, body)

    @pytest.mark.parametrize("body", ["<a/>", "Grüße, 東京 🙂", "one\ntwo\r\n\n", " spaces ", "a:b\\c\\n"])
    def test_text_arrives_unchanged(self, connection: Connection, body: str) -> None:
        """A TextMessage arrives as one, character for character."""
        received = round_trip(connection, Message(message_type=MessageType.TEXT, body=body))
        assert (received.message_type, received.body) == (MessageType.TEXT, body)

    @pytest.mark.parametrize(("kind", "body"), [(MessageType.BYTES, b""), (MessageType.TEXT, "")])
    def test_empty_bodies(self, connection: Connection, kind: MessageType, body: bytes | str) -> None:
        """An empty message arrives as it was, or as unknown where the broker cannot tell the types."""
        received = round_trip(connection, Message(message_type=kind, body=body))
        if connection.capabilities.message_types:
            assert (received.message_type, received.body) == (kind, body)
        else:
            assert received.message_type in (kind, MessageType.UNKNOWN)
            assert not received.body

    @pytest.mark.parametrize(
        ("kind", "body"), [(MessageType.BYTES, "text"), (MessageType.TEXT, b"octets"), (MessageType.TEXT, Properties())]
    )
    def test_a_body_of_another_type(self, connection: Connection, kind: MessageType, body: Body) -> None:
        """A body that does not go with the message's type is refused at once, in a transaction too."""
        message = Message(message_type=kind, body=body, destination=queue(fresh()))
        with pytest.raises(UsageError, match="cannot"):
            connection.send(message)
        if connection.capabilities.transactions:
            transaction = connection.begin()
            with pytest.raises(UsageError, match="cannot"):
                transaction.send(message)
            transaction.abort()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"correlation_id": 7},
            {"type": 7},
            {"priority": "high"},
            {"expiration": "soon"},
            {"reply_to": "queue:a"},
            {"destination": "queue:a"},
        ],
        ids=str,
    )
    def test_a_field_of_another_type(self, connection: Connection, wrong: dict[str, Any]) -> None:
        """What a field cannot be is refused at once, with its name; the messages of others are sent as before."""
        sent = Message(message_type=MessageType.TEXT, body="next", destination=queue(fresh()))
        (name,) = wrong
        with pytest.raises(UsageError, match=name):
            connection.send(replace(sent, **wrong))
        assert round_trip(connection, sent).body == "next"

    @pytest.mark.parametrize("given", ["hello", None, queue("a")], ids=str)
    def test_something_else_than_a_message(self, connection: Connection, given: Any) -> None:
        """It is refused at once, in a transaction too, whatever else is wrong; the error names the argument."""
        refused = partial(pytest.raises, UsageError, match=r"message must be a brokers\.Message, got ")
        with refused():
            connection.send(given)
        with refused():
            connection.send(given, "hello")  # type: ignore[arg-type]
        if connection.capabilities.transactions:
            transaction = connection.begin()
            with refused():
                transaction.send(given)
            transaction.abort()

    def test_something_else_than_a_transaction_or_a_delivery(self, connection: Connection) -> None:
        """The error names the argument, and where one comes from."""
        given: Any = Message(message_type=MessageType.TEXT, body="hello", destination=queue(fresh()))
        if connection.capabilities.transactions:
            with pytest.raises(
                UsageError, match=r"transaction must be what begin\(\) of this connection returned, got 'x'"
            ):
                connection.send(given, "x")  # type: ignore[arg-type]
            transaction = connection.begin()
            with pytest.raises(
                UsageError, match=r"delivery must be one that a consumer of this connection got, got Mess"
            ):
                transaction.accept(given)
            transaction.abort()

    def test_a_view_is_sent_as_bytes(self, connection: Connection) -> None:
        """A body may be a view of a larger one; what arrives is bytes."""
        received = round_trip(
            connection, Message(message_type=MessageType.BYTES, body=memoryview(b"head body tail")[5:9])
        )
        assert received.body == b"body"
        assert type(received.body) is bytes

    def test_a_mebibyte(self, connection: Connection) -> None:
        """A body of 1 MiB arrives unchanged."""
        body = bytes(range(256)) * 4096
        assert round_trip(connection, Message(message_type=MessageType.BYTES, body=body)).body == body

    @pytest.mark.parametrize(
        "message",
        [
            Message(message_type=MessageType.MAP, body=properties({"a": 1})),
            Message(message_type=MessageType.STREAM, body=(Element(PropertyType.INT, 1),)),
            Message(message_type=MessageType.OBJECT, body=b"\xac\xed"),
            Message(message_type=MessageType.MESSAGE),
        ],
        ids=lambda message: message.message_type,
    )
    def test_other_message_types(self, connection: Connection, message: Message) -> None:
        """The other types arrive unchanged, or sending them raises UsageError; they never arrive as something else."""
        if connection.capabilities.message_types:
            received = round_trip(connection, message)
            assert (received.message_type, received.body) == (message.message_type, message.body)
        else:
            with pytest.raises(UsageError, match=message.message_type):
                round_trip(connection, message)

    @pytest.mark.parametrize(
        "odd",
        [
            {"correlation_id": HALF},
            {"type": HALF},
            {"properties": Properties([typed("p", HALF)])},
            {"properties": Properties([typed(HALF, "p")])},
            {"properties": Properties([typed("JMSXUserID", HALF)])},
            {"message_type": MessageType.TEXT, "body": HALF},
            {"destination": queue(HALF)},
            {"destination": queue("")},
            {"correlation_id": "\0"},
        ],
        ids=str,
    )
    def test_odd_messages(self, connection: Connection, odd: dict[str, Any]) -> None:
        """A message that cannot be written is refused with an error that has the root of all others."""
        message = replace(Message(message_type=MessageType.BYTES, body=b"", destination=queue(fresh())), **odd)
        with suppress(SoapJmsError):
            connection.send(message).result(PATIENCE)
        assert round_trip(connection, Message(message_type=MessageType.TEXT, body="next")).body == "next"

    @pytest.mark.parametrize("given", ["text", None, b"", {}], ids=repr)
    def test_what_is_no_message(self, connection: Connection, given: Any) -> None:
        """It is the caller's error, raised at once; the messages of others are sent as before."""
        uses: list[Callable[[], object]] = [
            lambda: connection.send(given),
            lambda: connection.begin_send(given, lambda error, message_id=None: None),
            lambda: connection.answer(given, given),
            lambda: connection.begin_answer(given, given, lambda error, message_id=None: None),
        ]
        if connection.capabilities.transactions:
            uses.append(lambda: connection.begin().send(given))
        for use in uses:
            with pytest.raises(UsageError, match=f"message must be a brokers.Message, got {type(given).__name__}"):
                use()
        sent = Message(message_type=MessageType.TEXT, body="next", destination=queue(fresh()))
        assert round_trip(connection, sent).body == "next"

    def test_arguments_of_other_types(self, connection: Connection) -> None:
        """Each is the caller's error, which says what is accepted."""
        text: Any = "text"
        uses: list[tuple[str, Callable[[], object]]] = [
            ("destination must be one such as brokers.queue", lambda: connection.end_temporary(text)),
            ("destination must be one such as brokers.queue", lambda: connection.unsubscribe(text, "name")),
            ("on_state must be a plain function", lambda: connection.watch(text)),
        ]
        if connection.capabilities.transactions:
            message = Message(message_type=MessageType.TEXT, body="", destination=queue(fresh()))
            uses += [
                (
                    "transaction must be what begin\\(\\) of this connection returned, got 'text'",
                    lambda: connection.send(message, text),
                ),
                (
                    "delivery must be one that a consumer of this connection got, got str",
                    lambda: connection.begin().accept(text),
                ),
            ]
        for says, use in uses:
            with pytest.raises(UsageError, match=says):
                use()

    def test_a_message_needs_a_destination(self, connection: Connection) -> None:
        """A message without a destination is the caller's error, raised at once."""
        with pytest.raises(UsageError, match="destination"):
            connection.send(Message(message_type=MessageType.TEXT, body="lost"))

    @pytest.mark.parametrize("mode", list(DeliveryMode))
    def test_headers_arrive(self, connection: Connection, mode: DeliveryMode) -> None:
        """The headers that a sender sets arrive as they were set; the expiration later by what a duration took."""
        in_an_hour = int(time.time() * 1000) + 3_600_000
        sent = Message(
            message_type=MessageType.TEXT,
            body="x",
            correlation_id="ID:a\\b:c 1",
            reply_to=queue("contract.replies"),
            delivery_mode=mode,
            priority=7,
            expiration=in_an_hour,
            type="urn:example:order",
        )
        received = round_trip(connection, sent)
        assert received.correlation_id == sent.correlation_id
        assert received.reply_to is not None
        assert (received.reply_to.kind, received.reply_to.name) == (DestinationKind.QUEUE, "contract.replies")
        assert received.delivery_mode == mode
        assert (received.priority, received.type) == (7, "urn:example:order")
        late = 0 if connection.capabilities.tells_time else 1000
        assert in_an_hour <= (received.expiration or 0) <= in_an_hour + late

    def test_headers_of_the_broker(self, connection: Connection) -> None:
        """The broker sets message id, timestamp and destination, and says that this is no redelivery."""
        destination, inbox = queue(fresh()), Inbox()
        before = int(time.time() * 1000)
        with connection.consume(destination, inbox):
            result = connection.send(text(destination, "x")).result(PATIENCE)
            delivery = inbox.next()
        received = delivery.message
        assert received.message_id
        assert result.message_id == (received.message_id if connection.capabilities.tells_message_id else None)
        assert received.timestamp is not None
        assert abs(received.timestamp - before) < 60_000
        assert received.destination is not None
        assert (received.destination.kind, received.destination.name) == (DestinationKind.QUEUE, destination.name)
        assert not received.redelivered
        assert delivery.delivery_count == (1 if connection.capabilities.delivery_count else None)
        assert delivery.generation == connection.generation

    def test_what_is_not_set_is_not_there(self, connection: Connection) -> None:
        """Headers that have no default stay None; there are no properties of the way's own."""
        received = round_trip(connection, Message(message_type=MessageType.TEXT, body="x"))
        assert (received.correlation_id, received.reply_to, received.type) == (None, None, None)
        assert received.expiration in (None, 0)
        assert received.properties == Properties()

    def test_awkward_properties(self, connection: Connection) -> None:
        """Names and values that need escaping on some wire arrive unchanged."""
        sent = properties(AWKWARD_VALUES)
        received = round_trip(connection, Message(message_type=MessageType.TEXT, body="x", properties=sent))
        assert set(received.properties) == set(sent)
        assert len(received.properties) == len(sent)

    def test_typed_properties(self, connection: Connection) -> None:
        """Properties of every JMS type arrive typed if the capability says so, else as their JMS string forms."""
        sent = Properties(
            [
                typed("yes", True),
                typed("no", False),
                typed("byte", -128, PropertyType.BYTE),
                typed("short", 32767, PropertyType.SHORT),
                typed("int", -5),
                typed("long", 2**62),
                typed("float", 0.5, PropertyType.FLOAT),
                typed("double", -1.25),
                typed("string", "1"),
            ]
        )
        received = round_trip(connection, Message(message_type=MessageType.TEXT, body="x", properties=sent))
        assert sorted(received.properties) == sorted(as_received(sent, connection.capabilities))
        assert received.untyped is not connection.capabilities.typed_properties


class DestinationContract(Fixtures):
    """Who gets a message, and in what order."""

    def test_competing_consumers(self, connection: Connection, other: Connection) -> None:
        """Consumers of one queue share its messages: each message reaches one of them, and both are at work at once."""
        destination, inbox = queue(fresh()), Inbox()
        both_at_work = Barrier(2)

        def worker() -> Callable[[Delivery], None]:
            delivered = count()

            def on_delivery(delivery: Delivery) -> None:
                if next(delivered) == 0:
                    both_at_work.wait(PATIENCE)
                inbox(delivery)

            return on_delivery

        with connection.consume(destination, worker()), other.consume(destination, worker()):
            bodies = [str(number) for number in range(20)]
            send(connection, *(text(destination, body) for body in bodies))
            assert sorted(inbox.bodies(20), key=str) == sorted(bodies)
        assert next_in_queue(connection, destination) == "marker"

    def test_topic(self, broker: BrokerUnderTest, connection: Connection, other: Connection) -> None:
        """Every current subscriber of a topic gets every message, in order."""
        destination = topic(broker.topics.format(fresh("topic")))
        inboxes = Inbox(), Inbox(), Inbox()
        with (
            connection.consume(destination, inboxes[0]),
            connection.consume(destination, inboxes[1]),
            other.consume(destination, inboxes[2]),
        ):
            send(connection, *(text(destination, body) for body in "abc"))
            for inbox in inboxes:
                assert inbox.bodies(3) == ["a", "b", "c"]

    def test_topic_before_subscribing(self, broker: BrokerUnderTest, connection: Connection) -> None:
        """A topic delivers what is sent after `consume` returned, and nothing older."""
        destination, inbox = topic(broker.topics.format(fresh("topic"))), Inbox()
        send(connection, text(destination, "too early"))
        with connection.consume(destination, inbox):
            send(connection, text(destination, "in time"))
            assert inbox.bodies(1) == ["in time"]

    def test_reply_to_a_temporary_queue(self, connection: Connection, other: Connection) -> None:
        """A service on another connection answers to the temporary queue that it finds as reply_to."""
        requests, replies = queue(fresh()), Inbox()
        kinds: list[DestinationKind] = []

        def serve(delivery: Delivery) -> None:
            reply_to = delivery.message.reply_to
            assert reply_to is not None
            kinds.append(reply_to.kind)
            other.send(text(reply_to, "reply")).result(PATIENCE)
            delivery.accept()

        mine = connection.temporary()
        with other.consume(requests, serve), connection.consume(mine, replies):
            send(connection, text(requests, "request", reply_to=mine))
            assert replies.next().message.body == "reply"
        assert mine.kind is DestinationKind.TEMPORARY_QUEUE
        assert kinds == [DestinationKind.TEMPORARY_QUEUE]

    def test_a_name_with_a_nul(self, connection: Connection) -> None:
        """It is not cut off there: what is sent to it, or asks for answers there, does not reach another queue."""
        name = fresh()
        longer = queue(f"{name}\0more")
        with suppress(UsageError):  # not every protocol has such names
            send(connection, text(longer, "stray"))
        with suppress(UsageError):
            assert round_trip(connection, text(queue(name), "request", reply_to=longer)).reply_to == longer
        with pytest.raises(UsageError, match="NUL"):
            connection.consume(longer, Inbox())
        assert next_in_queue(connection, queue(name)) == "marker"

    def test_temporary_queues_are_apart(self, connection: Connection) -> None:
        """Each call of `temporary` gives a queue of its own."""
        first, second = connection.temporary(), connection.temporary()
        inbox, witness = Inbox(), Inbox()
        with connection.consume(first, inbox), connection.consume(second, witness):
            send(connection, text(first, "1"), text(second, "2"))
            assert (inbox.bodies(1), witness.bodies(1)) == (["1"], ["2"])

    @pytest.mark.parametrize("ends", [False, True])
    def test_a_temporary_queue_ends_early(self, connection: Connection, other: Connection, ends: bool) -> None:
        """One that is ended is this connection's no more; another is made, and one that is still in use stays."""
        requests, inbox = Inbox(), Inbox()
        ended, kept = connection.temporary(ends=ends), connection.temporary(ends=ends)
        connection.consume(ended, inbox, auto_accept=True).close()
        with connection.consume(kept, inbox, auto_accept=True):
            connection.end_temporary(ended)
            connection.end_temporary(ended)
            other.end_temporary(kept)
            with pytest.raises(StaleDestinationError):
                connection.consume(ended, inbox)
            again = connection.temporary(fresh=False)
            with connection.consume(again, inbox):
                send(connection, text(again, "1"))
                assert inbox.bodies(1) == ["1"]
            served = queue(fresh())
            with other.consume(served, requests):
                send(connection, text(served, "request", reply_to=kept))
                reply_to = requests.next().message.reply_to
            assert reply_to is not None
            send(other, text(reply_to, "2"))
            assert inbox.bodies(1) == ["2"]

    def test_temporary_topic(self, connection: Connection) -> None:
        """A temporary topic gives each subscriber a copy."""
        destination = connection.temporary(DestinationKind.TEMPORARY_TOPIC)
        inboxes = Inbox(), Inbox()
        with connection.consume(destination, inboxes[0]), connection.consume(destination, inboxes[1]):
            send(connection, text(destination, "a"))
            assert [inbox.bodies(1) for inbox in inboxes] == [["a"], ["a"]]

    def test_temporary_needs_a_temporary_kind(self, connection: Connection) -> None:
        """Asking for a temporary destination of a lasting kind is the caller's error."""
        with pytest.raises(UsageError, match="queue"):
            connection.temporary(DestinationKind.QUEUE)

    def test_only_the_owner_consumes_from_a_temporary_queue(self, connection: Connection, other: Connection) -> None:
        """Another connection cannot subscribe to a temporary queue, neither as made nor as it sees it in reply_to."""
        requests, inbox = queue(fresh()), Inbox()
        mine = connection.temporary()
        with other.consume(requests, inbox):
            send(connection, text(requests, "request", reply_to=mine))
            seen = inbox.next().message.reply_to
        assert seen is not None
        for destination in (mine, seen):
            with pytest.raises(BrokerError):
                other.consume(destination, Inbox())

    def test_reply_to_a_client_that_left(self, broker: BrokerUnderTest, connection: Connection) -> None:
        """A reply to a temporary queue that is gone harms nobody: it fails alone or vanishes."""
        gone = self.abandoned_reply_queue(broker, connection).message.reply_to
        assert gone is not None
        future = connection.send(text(gone, "reply"))
        assert isinstance(future.exception(PATIENCE), SendFailedError | None)
        assert next_in_queue(connection, queue(fresh())) == "marker"

    def test_commit_with_a_reply_to_a_client_that_left(self, broker: BrokerUnderTest, connection: Connection) -> None:
        """A commit stands though one of its replies has nobody left to go to."""
        delivery = self.abandoned_reply_queue(broker, connection)
        assert delivery.message.reply_to is not None
        destination = queue(fresh())
        transaction = connection.begin()
        transaction.send(text(delivery.message.reply_to, "reply"))
        transaction.send(text(destination, "other"))
        transaction.accept(delivery)
        refused = transaction.commit().result(PATIENCE)
        assert [(each.position, each.message.body) for each in refused] == [(0, "reply")] * len(refused)
        assert all(isinstance(each.error, SendFailedError) for each in refused)
        assert bool(refused) is connection.capabilities.tells_gone
        assert next_in_queue(connection, destination) == "other"

    def abandoned_reply_queue(self, broker: BrokerUnderTest, connection: Connection) -> Delivery:
        """Return a delivery, not accepted, whose sender closed its connection and with it its reply queue."""
        requests, inbox = queue(fresh()), Inbox(accept=False)
        with broker.connect() as client:
            mine = client.temporary()
            client.consume(mine, Inbox())
            connection.consume(requests, inbox)
            send(client, text(requests, "request", reply_to=mine))
            return inbox.next()

    def test_delivery_mode_by_default(self, connection: Connection) -> None:
        """A message that does not say otherwise is persistent, as in JMS."""
        destination, inbox = queue(fresh()), Inbox()
        with connection.consume(destination, inbox):
            send(connection, text(destination, "a"))
            assert inbox.next().message.delivery_mode == DeliveryMode.PERSISTENT

    def test_priority(self, connection: Connection) -> None:
        """What waits in a queue is delivered by priority, 9 first, and by arrival within a priority."""
        destination, inbox = queue(fresh()), Inbox()
        for body, priority in (("a", 1), ("b", 9), ("c", 4), ("d", 9), ("e", 0), ("f", 5)):
            send(connection, replace(text(destination, body), priority=priority, delivery_mode=DeliveryMode.PERSISTENT))
        with connection.consume(destination, inbox):
            assert inbox.bodies(6) == ["b", "d", "f", "c", "a", "e"]

    def test_expired(self, connection: Connection) -> None:
        """A message whose time is over is not delivered."""
        destination = queue(fresh())
        send(connection, replace(text(destination, "late"), expiration=int(time.time() * 1000) - 1000))
        assert next_in_queue(connection, destination) == "marker"
