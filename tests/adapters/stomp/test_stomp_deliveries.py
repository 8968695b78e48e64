"""brokers.stomp on a real ActiveMQ Classic: settling deliveries, one by one and in transactions."""

from __future__ import annotations

import re
from queue import SimpleQueue

import pytest
from real_brokers import RealBroker
from stomp_kit import (
    PATIENCE,
    Fixtures,
    Inbox,
    accepting,
    assert_empty,
    message_to,
    send,
)

from brokers import (
    ClosedError,
    ConnectionState,
    Delivery,
    DeliveryMode,
    Destination,
    DestinationGoneError,
    SendFailedError,
    queue,
    topic,
)
from brokers.stomp import StompConnection


def writes(connection: StompConnection, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record what is written to the socket, each write an entry."""
    transport = connection._link._wire
    written: list[bytes] = []
    through = transport.send

    def send_and_note(data: bytes) -> None:
        written.append(data)
        through(data)

    monkeypatch.setattr(transport, "send", send_and_note)
    return written


@pytest.mark.broker
class TestDeliveries(Fixtures):
    """What the adapter leans on of acknowledgement and transactions."""

    def test_commit_stands_though_one_client_left(
        self, connection: StompConnection, gone: Destination, name: str
    ) -> None:
        """The answers to the others and all acceptances are carried out; the commit tells who left."""
        send(connection, message_to(queue(name)))
        held, answers = Inbox(), accepting()
        consumer = connection.consume(queue(name), held)
        connection.consume(queue(f"{name}.answers"), answers)
        transaction = connection.begin()
        transaction.accept(held.next())
        transaction.send(message_to(gone))
        transaction.send(message_to(queue(f"{name}.answers"), b"answer"))
        (refused,) = transaction.commit().result(PATIENCE)
        assert refused.message.destination == gone
        assert isinstance(refused.error, DestinationGoneError)
        assert answers.next().message.body == b"answer"
        consumer.close()
        assert_empty(connection, name)

    def test_release_gives_back_all_that_is_held(self, connection: StompConnection, name: str) -> None:
        """The broker redelivers under the same message id; the older deliveries are void."""
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox, prefetch=2)
        send(connection, message_to(queue(name), b"1"), message_to(queue(name), b"2"))
        first, second = inbox.next(), inbox.next()
        first.release()
        again = [inbox.next(), inbox.next()]
        assert [delivery.message.body for delivery in again] == [b"1", b"2"]
        assert [delivery.message.redelivered for delivery in again] == [True, True]
        assert [delivery.message.message_id for delivery in again] == [
            first.message.message_id,
            second.message.message_id,
        ]
        second.accept()  # void: the message is in `again`
        transaction = connection.begin()
        transaction.accept(second)
        transaction.send(message_to(queue(f"{name}.answers")))
        with pytest.raises(ClosedError, match="went back"):
            transaction.commit().result(PATIENCE)
        for delivery in again:
            delivery.accept()
        consumer.close()
        assert_empty(connection, f"{name}.answers", name)

    def test_release_from_a_topic_keeps_the_message(self, connection: StompConnection, name: str) -> None:
        """Its copy would go with the subscription, so it is put before the consumer again."""
        inbox = Inbox()
        connection.consume(topic(name), inbox)
        send(connection, message_to(topic(name), b"1"), message_to(topic(name), b"2"))
        inbox.next().release()
        again = inbox.next()
        assert (again.message.body, again.message.redelivered) == (b"1", True)
        again.accept()
        assert inbox.next().message.body == b"2"

    def test_failing_consumer_gets_the_message_again(self, connection: StompConnection, name: str) -> None:
        """An exception is a release."""
        tries: list[bool | None] = []

        def fail_once(delivery: Delivery) -> None:
            tries.append(delivery.message.redelivered)
            if len(tries) == 1:
                raise RuntimeError("the first try fails")
            delivery.accept()

        inbox = Inbox(fail_once)
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name)))
        inbox.next()
        assert tries == [False, True]

    def test_rejected_message_is_a_dead_letter(
        self, connection: StompConnection, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """NACK puts this one there and no other; the reason is in our log."""
        dead = accepting()
        connection.consume(queue(f"DLQ.{name}"), dead)
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox, prefetch=2)
        send(connection, message_to(queue(name), b"good"), message_to(queue(name), b"bad"))
        good, bad = inbox.next(), inbox.next()
        bad.reject("it is bad, " * 100 + "all of it")
        assert dead.next().message.body == b"bad"
        assert "it is bad, all of it" in caplog.text
        good.accept()
        consumer.close()
        assert_empty(connection, name)

    @pytest.mark.parametrize("prefetch", [1, 10])
    def test_aborted_acceptance_can_be_repeated(self, connection: StompConnection, name: str, prefetch: int) -> None:
        """The broker never heard of it: nothing is redelivered, and the consumer still holds the message."""
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox, prefetch=prefetch)
        send(connection, message_to(queue(name), b"1"))
        delivery = inbox.next()
        transaction = connection.begin()
        transaction.accept(delivery)
        transaction.send(message_to(queue(f"{name}.answers")))
        transaction.abort()
        assert inbox.nothing()
        delivery.accept()
        consumer.close()
        assert_empty(connection, name, f"{name}.answers")

    def test_commit_is_one_write(self, connection: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Everything from BEGIN to COMMIT goes out together; before that, nothing."""
        inbox = Inbox()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name)))
        delivery = inbox.next()
        written = writes(connection, monkeypatch)
        transaction = connection.begin()
        transaction.send(message_to(queue(f"{name}.1")))
        transaction.send(message_to(queue(f"{name}.2")))
        transaction.accept(delivery)
        assert written == []
        transaction.commit().result(PATIENCE)
        frames = [frame.lstrip(b"\n").partition(b"\n")[0] for frame in b"".join(written).split(b"\0")]
        assert len(written) == 1
        assert frames == [b"BEGIN", b"SEND", b"SEND", b"ACK", b"COMMIT", b""]

    def test_answer_is_one_write(self, connection: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """What needs no receipt goes out together with the acknowledgement of what it answers, which is told once."""
        inbox = Inbox()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name)))
        delivery = inbox.next()
        written = writes(connection, monkeypatch)
        answer = message_to(queue(f"{name}.answers"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        connection.answer(delivery, answer).result(PATIENCE)
        delivery.accept()
        assert [frame.lstrip(b"\n").partition(b"\n")[0] for frame in b"".join(written).split(b"\0")] == [
            b"SEND",
            b"ACK",
            b"",
        ]
        assert len(written) == 1

    def test_answer_to_what_went_back(self, connection: StompConnection, name: str) -> None:
        """It is sent, though there is nothing to accept any more; the request is delivered again."""
        inbox, answers = Inbox(), accepting()
        consumer = connection.consume(queue(name), inbox)
        connection.consume(queue(f"{name}.answers"), answers)
        send(connection, message_to(queue(name)))
        delivery = inbox.next()
        consumer.close()
        answer = message_to(queue(f"{name}.answers"), b"answer", delivery_mode=DeliveryMode.NON_PERSISTENT)
        connection.answer(delivery, answer).result(PATIENCE)
        assert answers.next().message.body == b"answer"
        connection.consume(queue(name), inbox)
        assert inbox.next().message.redelivered

    def test_refused_commit_ends_the_connection(
        self,
        activemq: RealBroker,
        connection: StompConnection,
        gone: Destination,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """ActiveMQ keeps what was acknowledged in it out of reach until the connection closes; then it delivers again.

        The commit is made to fail by taking the receipts from its sends: that is why they have some.
        """
        states: SimpleQueue[ConnectionState] = SimpleQueue()
        connection.watch(states.put)
        inbox = Inbox()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name), b"request"))
        transaction = connection.begin()
        transaction.accept(inbox.next())
        transaction.send(message_to(gone))
        transport = connection._link._wire
        through = transport.send
        receipt_of_send = re.compile(rb"(SEND\n[^\0]*)receipt:[^\n]*\n")
        monkeypatch.setattr(transport, "send", lambda data: through(receipt_of_send.sub(rb"\1", data)))
        with pytest.raises(SendFailedError, match="rollback only"):
            transaction.commit().result(PATIENCE)
        assert states.get(timeout=PATIENCE) is ConnectionState.LOST
        again = inbox.next()
        assert again.message.redelivered
        assert again.generation == 2

    def test_accepting_twice_in_one_way_or_another(
        self, connection: StompConnection, other: StompConnection, name: str
    ) -> None:
        """What is accepted already is left out of a transaction; what came by another connection is refused."""
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name)))
        delivery = inbox.next()
        delivery.accept()
        delivery.accept()
        delivery.release()
        delivery.reject("too late")
        transaction = connection.begin()
        transaction.accept(delivery)
        transaction.commit().result(PATIENCE)
        with pytest.raises(ValueError, match="another connection"):
            other.begin().accept(delivery)
        with pytest.raises(ValueError, match="another connection"):
            other.send(message_to(queue(name)), connection.begin())
        with pytest.raises(ClosedError):
            transaction.send(message_to(queue(name)))
        transaction.abort()
        consumer.close()
        assert_empty(connection, name, f"DLQ.{name}")

    def test_prefetch_of_one_holds_one(self, connection: StompConnection, name: str) -> None:
        """The broker hands over no second message before the first is accepted."""
        inbox = Inbox()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name), b"1"), message_to(queue(name), b"2"))
        first = inbox.next()
        assert inbox.nothing()
        first.accept()
        assert inbox.next().message.body == b"2"

    def test_broker_accepts_for_the_consumer(self, connection: StompConnection, name: str) -> None:
        """With `auto_accept` it hands over all it has and keeps nothing back; settling does nothing."""
        inbox = Inbox()
        with connection.consume(queue(name), inbox, auto_accept=True):
            send(connection, *(message_to(queue(name), body) for body in (b"1", b"2", b"3")))
            deliveries = [inbox.next() for _ in range(3)]
            deliveries[0].accept()
            deliveries[1].release()
            deliveries[2].reject("too late")
        assert_empty(connection, name, f"DLQ.{name}")
