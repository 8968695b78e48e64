"""brokers.stomp on a real ActiveMQ Classic: what arrives, from whom, and how it looks there."""

from __future__ import annotations

import socket

import pytest
from real_brokers import RealBroker
from stomp_kit import (
    PATIENCE,
    Fixtures,
    Inbox,
    accepting,
    message_to,
    send,
    wait_until,
)

from brokers import (
    BrokerError,
    Delivery,
    DeliveryMode,
    Destination,
    DestinationGoneError,
    DestinationKind,
    MessageType,
    Property,
    PropertyType,
    StaleDestinationError,
    UnsupportedError,
    properties,
    queue,
    topic,
)
from brokers.stomp import StompConnection


@pytest.mark.broker
class TestMessages(Fixtures):
    """What the adapter leans on of messages and destinations."""

    def test_who_and_how(self, connection: StompConnection) -> None:
        """The broker names itself; what STOMP lacks is a capability that is False; no secret in the repr; no Nagle."""
        assert connection.capabilities.broker.startswith("ActiveMQ/6.")
        assert not connection.capabilities.typed_properties
        assert not connection.capabilities.release
        assert "admin" not in repr(connection)
        assert connection.generation == 1
        nagle = connection._link._wire._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert nagle != 0

    def test_owner_sees_its_temporary_queue_as_it_made_it(
        self, connection: StompConnection, other: StompConnection, name: str
    ) -> None:
        """One reply queue has two names: its address at the owner, `ID:...` at everybody else."""
        mine = connection.temporary()
        requests, replies = accepting(), accepting()
        connection.consume(mine, replies)
        other.consume(queue(name), requests)
        send(connection, message_to(queue(name), reply_to=mine))
        reply_to = requests.next().message.reply_to
        assert reply_to is not None
        assert reply_to.kind is DestinationKind.TEMPORARY_QUEUE
        assert reply_to.name is not None
        assert reply_to.name.startswith("ID:")
        send(other, message_to(reply_to, b"reply"))
        reply = replies.next().message
        assert (reply.body, reply.destination) == (b"reply", mine)

    def test_send_to_a_client_that_left(self, connection: StompConnection, gone: Destination, name: str) -> None:
        """It fails by itself with an ERROR; the connection and everybody else on it go on."""
        with pytest.raises(DestinationGoneError):
            send(connection, message_to(gone))
        unreceipted = message_to(gone, delivery_mode=DeliveryMode.NON_PERSISTENT)
        connection.send(unreceipted).result(PATIENCE)  # done when written
        send(connection, message_to(queue(name)))

    @pytest.mark.parametrize("kind", ["map", "stream", "object", "message", "null-text"])
    def test_other_kinds_of_message_are_unknown(
        self, activemq: RealBroker, connection: StompConnection, name: str, kind: str
    ) -> None:
        """Over STOMP they all look like an empty text; the properties come, each a string."""
        inbox = accepting()
        connection.consume(queue(name), inbox)
        activemq.send_special(kind, name)
        message = inbox.next().message
        assert (message.message_type, message.body) == (MessageType.UNKNOWN, None)
        assert message.untyped
        assert message.properties.lookup("SOAPJMS_isFault") == Property("SOAPJMS_isFault", PropertyType.STRING, "false")

    @pytest.mark.parametrize(
        ("kind", "body"), [(MessageType.BYTES, b"<a>\xc3\xbc\0</a>"), (MessageType.TEXT, "<a>\u00fc</a>")]
    )
    def test_content_length_decides_the_type_both_ways(
        self, activemq: RealBroker, connection: StompConnection, name: str, kind: MessageType, body: bytes | str
    ) -> None:
        """Java and Python see the same kind of message, in both directions."""

        def answer(delivery: Delivery) -> None:
            delivery.accept()
            assert delivery.message.reply_to is not None
            connection.send(message_to(delivery.message.reply_to, body, properties=properties({"answer": True})))

        inbox = Inbox(answer)
        connection.consume(queue(name), inbox)
        reply = activemq.send_special(kind.value, name, reply_to="temporary", wait=PATIENCE)
        assert inbox.next().message.message_type is kind
        assert reply is not None
        assert reply["type"] == kind.value
        assert reply["body"] == (body if isinstance(body, str) else body.decode())
        assert reply["properties"]["answer"] == "true"

    def test_empty_bodies(self, connection: StompConnection, name: str) -> None:
        """Empty bytes stay bytes; an empty text cannot be told from the kinds that STOMP does not carry."""
        inbox = accepting()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name), b""), message_to(queue(name), ""))
        assert inbox.next().message.message_type is MessageType.BYTES
        assert inbox.next().message.message_type is MessageType.UNKNOWN

    def test_selector(self, connection: StompConnection, name: str) -> None:
        """It is passed on; one that the broker cannot read is an error at once."""
        inbox = accepting()
        connection.consume(queue(name), inbox, selector="JMSCorrelationID = 'a:b'")
        send(
            connection, message_to(queue(name), correlation_id="c"), message_to(queue(name), b"2", correlation_id="a:b")
        )
        assert inbox.next().message.body == b"2"
        with pytest.raises(BrokerError, match="cannot consume"):
            connection.consume(queue(name), inbox, selector="a = = b")

    def test_what_consume_refuses(self, connection: StompConnection, other: StompConnection, name: str) -> None:
        """Durable names, a prefetch of none, and temporary destinations of others, which ActiveMQ would hand out."""
        with pytest.raises(UnsupportedError, match="durable_topics"):
            connection.consume(topic(name), Inbox(), durable_name="d")
        with pytest.raises(ValueError, match="prefetch must be a whole number from 1 to 2,147,483,647, got 0"):
            connection.consume(queue(name), Inbox(), prefetch=0)
        with pytest.raises(StaleDestinationError):
            connection.consume(other.temporary(), Inbox())
        with pytest.raises(StaleDestinationError):
            connection.consume(Destination(DestinationKind.TEMPORARY_QUEUE, "ID:of-another"), Inbox())
        with pytest.raises(StaleDestinationError):
            connection.send(message_to(other.temporary()))
        with pytest.raises(StaleDestinationError):
            connection.send(message_to(queue(name), reply_to=other.temporary()))
        with pytest.raises(ValueError, match="kind must be that of a temporary destination"):
            connection.temporary(DestinationKind.QUEUE)

    def test_cancelled_send_is_forgotten(self, activemq: RealBroker, connection: StompConnection, name: str) -> None:
        """Its receipt finds nobody; the connection goes on."""
        future = connection.send(message_to(queue(name), delivery_mode=DeliveryMode.PERSISTENT))
        future.cancel()
        send(connection, message_to(queue(name)))
        wait_until(lambda: not connection._link._waiting)

    def test_large_message(self, connection: StompConnection, name: str) -> None:
        """A few mebibytes with every octet, NUL among them."""
        body = bytes(range(256)) * 8192
        inbox = accepting()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name), body))
        assert inbox.next().message.body == body
