"""What only the embedded broker promises; what it shares with others is in the broker contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from broker_contract_kit import Inbox, next_in_queue, send, text
from embedded_kit import NEWS, ORDERS, EmbeddedFixtures, SetClock, receive

from brokers import (
    BrokerError,
    Connection,
    ConnectionFailedError,
    DeliveryMode,
    Destination,
    DestinationGoneError,
    DestinationKind,
    Message,
    MessageType,
    SendFailedError,
    StaleDestinationError,
    connect,
    properties,
    queue,
)
from brokers.embedded import Broker
from brokers.embedded.queues import received


class TestNames(EmbeddedFixtures):
    """`embedded:NAME` in one process."""

    def test_one_name_is_one_broker(self) -> None:
        """Connections by the same name meet; another name, and no name, are other brokers."""
        with connect("embedded:a") as first, connect("embedded:a") as second, connect("embedded:") as third:
            send(first, text(ORDERS, "for a"))
            send(third, text(ORDERS, "for the unnamed"))
            assert receive(second, ORDERS).body == "for a"
            with connect("embedded:") as fourth:
                assert receive(fourth, ORDERS).body == "for the unnamed"

    def test_a_broker_ends_with_its_last_connection(self) -> None:
        """While one connection is open the broker keeps its messages; after the last one a name starts afresh."""
        with connect("embedded:a") as first:
            with connect("embedded:a") as second:
                send(second, text(ORDERS, "kept"))
            assert receive(first, ORDERS).body == "kept"
            send(first, text(ORDERS, "lost"))
        with connect("embedded:a") as again:
            assert next_in_queue(again, ORDERS) == "marker"

    def test_options_start_a_broker(self) -> None:
        """The call that starts a broker may set its limits; a later one that tries is told that it is too late."""
        with connect("embedded:small", max_messages=1) as connection:
            send(connection, text(ORDERS, "a"))
            assert isinstance(connection.send(text(ORDERS, "b")).exception(), SendFailedError)
            with pytest.raises(ValueError, match="max_messages"):
                connect("embedded:small", max_messages=2)

    def test_a_message_that_is_as_the_broker_stores_it(self) -> None:
        """It is put as it is, with the id and the time that it has, unless a limit is reached."""
        with Broker(max_messages=1).connect() as connection:
            stored = received(text(ORDERS, "a"), connection.new_message_id(), 5)
            connection.put(stored)
            with pytest.raises(SendFailedError, match="max_messages is 1"):
                connection.put(stored)
            found = receive(connection, ORDERS)
            assert (found.body, found.message_id, found.timestamp) == ("a", stored.message_id, 5)

    @pytest.mark.parametrize("url", ["embedded://host", "embedded:/path", "embedded:u@h?b=c", "embedded:a#b"])
    def test_other_urls(self, url: str) -> None:
        """A URL with more than a name is refused."""
        with pytest.raises(ConnectionFailedError, match="embedded:NAME"):
            connect(url)

    @pytest.mark.parametrize("url", ["embedded:", "embedded:a"])
    def test_parameters(self, url: str) -> None:
        """There are none, as the error says; without them the URL is right."""
        with pytest.raises(ConnectionFailedError, match=f"takes no parameters: write '{url}', without the \\?"):
            connect(f"{url}?x=1")

    def test_a_name_may_be_escaped(self) -> None:
        """`%20` in a URL is the blank in the name."""
        with connect("embedded:a%20b", max_messages=1) as connection, connect("embedded:a b") as other:
            send(connection, text(ORDERS, "a"))
            assert receive(other, ORDERS).body == "a"

    def test_brokers_in_code_are_apart(self) -> None:
        """Two `Broker` objects share nothing, even by the same name, and keep messages while nobody is connected."""
        one, two = Broker("same"), Broker("same")
        with one.connect() as first, two.connect() as second:
            send(first, text(ORDERS, "for one"))
            assert next_in_queue(second, ORDERS) == "marker"
        with one.connect() as later:
            assert receive(later, ORDERS).body == "for one"

    @pytest.mark.parametrize(
        "limits",
        [
            {"max_deliveries": 0},
            {"max_messages": 0},
            {"max_octets": 0},
            {"max_total_octets": 0},
            {"max_destinations": "7"},
            {"max_messages": float("nan")},
            {"max_octets": True},
        ],
    )
    def test_limits_that_cannot_be(self, limits: dict[str, Any]) -> None:
        """A broker that could deliver or keep nothing, or with a limit that is no number, is the caller's error."""
        with pytest.raises(ValueError, match=f"{next(iter(limits))} must be a whole number of at least 1, got"):
            Broker(**limits)  # type: ignore[arg-type] # mypy cannot see which keyword a dict holds


class TestHeaders(EmbeddedFixtures):
    """What the broker writes into a message."""

    def test_headers_set_on_receipt(self, connection: Connection, clock: SetClock) -> None:
        """Id and timestamp are the broker's, whatever the sender wrote; unset headers get JMS's defaults."""
        mine = replace(text(ORDERS, "a"), message_id="ID:mine", timestamp=1, redelivered=True)
        result = connection.send(mine).result()
        received = receive(connection, ORDERS)
        assert received.message_id == result.message_id
        assert received.timestamp == clock.now
        assert (received.priority, received.delivery_mode) == (4, DeliveryMode.PERSISTENT)
        assert (received.expiration, received.redelivered) == (0, False)

    def test_message_ids(self, broker: Broker, connection: Connection) -> None:
        """Message ids begin with ID: and the broker's name, and no two are the same, of one broker or of two."""
        with Broker("test").connect() as elsewhere, Broker().connect() as unnamed:
            connections = (connection, connection, elsewhere, unnamed)
            ids = [each.send(text(ORDERS, "a")).result().message_id or "" for each in connections]
        assert len(set(ids)) == 4
        assert all(one.startswith("ID:embedded-test-") for one in ids[:3])
        assert ids[3].startswith("ID:embedded-")

    def test_a_null_property(self, connection: Connection) -> None:
        """A property that is JMS's null string arrives as one."""
        send(connection, replace(text(ORDERS, "a"), properties=properties({"nothing": None})))
        assert receive(connection, ORDERS).properties == properties({"nothing": None})

    def test_a_body_of_another_kind(self, connection: Connection) -> None:
        """A body that does not go with the message type is refused, so that no other adapter surprises later."""
        with pytest.raises(ValueError, match="a text message cannot carry a body of type bytes"):
            connection.send(Message(message_type=MessageType.TEXT, body=b"a", destination=ORDERS))

    def test_a_destination_without_a_name(self, connection: Connection) -> None:
        """A destination that only another broker's adapter could spell is refused."""
        foreign = Destination(DestinationKind.TEMPORARY_QUEUE, None, "/temp-queue/a")
        with pytest.raises(ValueError, match="must have a name, got temporary-queue:/temp-queue/a"):
            connection.send(text(foreign, "a"))


class TestTopics(EmbeddedFixtures):
    """Durable and other subscriptions."""

    def test_durable(self, connection: Connection) -> None:
        """A durable subscription keeps what is sent while nobody is subscribed; others do not."""
        with connection.consume(NEWS, Inbox(), durable_name="archive"), connection.consume(NEWS, Inbox()):
            pass
        send(connection, text(NEWS, "a"), text(NEWS, "b"))
        archive, other = Inbox(), Inbox()
        with connection.consume(NEWS, archive, durable_name="archive"), connection.consume(NEWS, other):
            send(connection, text(NEWS, "c"))
            assert archive.bodies(3) == ["a", "b", "c"]
            assert other.bodies(1) == ["c"]

    def test_two_durable_names(self, connection: Connection) -> None:
        """Each durable name keeps its own copy; consumers of one name share it."""
        for name in ("one", "two"):
            connection.consume(NEWS, Inbox(), durable_name=name).close()
        send(connection, text(NEWS, "a"), text(NEWS, "b"))
        first, second = Inbox(accept=False), Inbox(accept=False)
        with connection.consume(NEWS, first, durable_name="one"), connection.consume(NEWS, second, durable_name="one"):
            assert {first.next().message.body, second.next().message.body} == {"a", "b"}
        both = Inbox()
        with connection.consume(NEWS, both, durable_name="two"):
            assert both.bodies(2) == ["a", "b"]

    def test_forget_durable(self, broker: Broker, connection: Connection) -> None:
        """A durable subscription can be ended once it has no consumer; forgetting what is not there does nothing."""
        broker.forget_durable(NEWS, "archive")
        consumer = connection.consume(NEWS, Inbox(), durable_name="archive")
        with pytest.raises(BrokerError, match="archive"):
            broker.forget_durable(NEWS, "archive")
        consumer.close()
        send(connection, text(NEWS, "a"))
        broker.forget_durable(NEWS, "other")
        assert broker.depth(NEWS) == 1
        broker.forget_durable(NEWS, "archive")
        assert broker.depth(NEWS) == 0

    def test_durable_needs_a_topic(self, connection: Connection) -> None:
        """A durable name on a queue is the caller's error."""
        with pytest.raises(ValueError, match="must be a topic"):
            connection.consume(ORDERS, Inbox(), durable_name="archive")


class TestTemporaryDestinations(EmbeddedFixtures):
    """They belong to a connection."""

    def test_gone_with_the_owner(self, broker: Broker, connection: Connection) -> None:
        """After the owner closed, a send fails, and a commit tells which of its sends was refused."""
        with broker.connect() as owner:
            mine = owner.temporary()
            send(connection, text(mine, "unread"))
        assert broker.depth(mine) == 0
        with pytest.raises(DestinationGoneError, match=str(mine.name)):
            connection.send(text(mine, "late")).result()
        transaction = connection.begin()
        transaction.send(text(mine, "late"))
        (refused,) = transaction.commit().result()
        assert (refused.position, refused.message.destination) == (0, mine)
        assert isinstance(refused.error, DestinationGoneError)

    def test_removed_by_its_owner(self, connection: Connection, broker: Broker) -> None:
        """The error tells of both ways to end one, as its owner's connection may be open."""
        with broker.connect() as owner:
            mine = owner.temporary()
            owner.end_temporary(mine)
            with pytest.raises(DestinationGoneError, match="is gone: its owner removed it, or closed the connection"):
                connection.send(text(mine, "late")).result()

    def test_stale(self, broker: Broker, connection: Connection) -> None:
        """Nobody subscribes to one that is gone, or that is another connection's."""
        with broker.connect() as owner:
            mine = owner.temporary()
            with pytest.raises(StaleDestinationError, match="this connection"):
                connection.consume(mine, Inbox())
        with pytest.raises(StaleDestinationError, match="this connection"):
            connection.consume(mine, Inbox())


class TestTransactions(EmbeddedFixtures):
    """Corners of transactions."""

    def test_a_delivery_in_a_transaction_outlives_its_consumer(self, broker: Broker, connection: Connection) -> None:
        """What a transaction accepted stays with it when the consumer closes: committed, it is gone."""
        inbox = Inbox(accept=False)
        send(connection, text(ORDERS, "a"))
        with connection.consume(ORDERS, inbox):
            transaction = connection.begin()
            delivery = inbox.next()
            transaction.accept(delivery)
            transaction.accept(delivery)
            delivery.release()
        assert broker.depth(ORDERS) == 1
        transaction.commit().result()
        assert broker.depth(ORDERS) == 0

    def test_it_goes_back_after_an_abort(self, connection: Connection) -> None:
        """Aborted after the consumer closed, the delivery goes back."""
        inbox = Inbox(accept=False)
        send(connection, text(ORDERS, "a"))
        with connection.consume(ORDERS, inbox):
            transaction = connection.begin()
            transaction.accept(inbox.next())
        transaction.abort()
        transaction.abort()
        assert receive(connection, ORDERS).redelivered

    def test_closing_the_connection_aborts(self, broker: Broker, connection: Connection) -> None:
        """A transaction that is open when its connection closes is aborted."""
        inbox = Inbox(accept=False)
        send(connection, text(ORDERS, "a"))
        with broker.connect() as leaving:
            leaving.consume(ORDERS, inbox)
            transaction = leaving.begin()
            transaction.send(text(queue("replies"), "never"))
            transaction.accept(inbox.next())
        assert broker.depth(queue("replies")) == 0
        assert receive(connection, ORDERS).redelivered

    def test_of_another_connection(self, broker: Broker, connection: Connection) -> None:
        """Transactions and deliveries of another connection are refused."""
        inbox = Inbox(accept=False)
        with broker.connect() as other, connection.consume(ORDERS, inbox):
            send(connection, text(ORDERS, "a"))
            with pytest.raises(ValueError, match="another connection"):
                other.begin().accept(inbox.next())
            with pytest.raises(ValueError, match="another connection"):
                connection.send(text(ORDERS, "b"), other.begin())
