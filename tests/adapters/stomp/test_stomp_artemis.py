"""What the adapter leans on of Artemis, and what Artemis does otherwise than ActiveMQ Classic; `docs/brokers.md`."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from real_brokers import RealBroker
from stomp_kit import (
    PATIENCE,
    Inbox,
    OnArtemis,
    OnBoth,
    accepting,
    assert_empty,
    message_to,
    send,
    wait_until,
)

import brokers
from brokers import (
    Delivery,
    DestinationKind,
    MessageType,
    UnsupportedError,
    properties,
    queue,
    topic,
)
from brokers.stomp import Credentials, StompConnection
from brokers.stomp.transaction import StompTransaction, TransactionNames

pytestmark = pytest.mark.broker


def test_names_of_transactions_are_used_again() -> None:
    """Artemis keeps a session for each that it ever saw, so there are no more than transactions under way."""
    names = TransactionNames()
    first, second = names.take(), names.take()
    assert first != second
    names.give_back(first)
    assert names.take() == first


class TestTemporary(OnArtemis):
    """Temporary destinations, which Artemis has no word for over STOMP."""

    def test_gone_after_close(self, broker: RealBroker, name: str) -> None:
        """Neither name, queue, message nor consumer stays, whatever was in it."""
        with brokers.connect(broker.stomp_url, timeout=PATIENCE) as leaving:
            held = Inbox()
            for kind in (DestinationKind.TEMPORARY_QUEUE, DestinationKind.TEMPORARY_TOPIC):
                mine = leaving.temporary(kind)
                leaving.consume(mine, held)
                leaving.send(message_to(mine)).result(PATIENCE)
                leaving.send(message_to(mine)).result(PATIENCE)
                held.next()
            assert len(broker.counters().temporaries) >= 2
        wait_until(lambda: not broker.counters().temporaries)

    def test_late_reply_vanishes(
        self, broker: RealBroker, connection: StompConnection, other: StompConnection, name: str
    ) -> None:
        """The broker makes no queue for it that nobody would ever empty, and soon forgets the name again."""
        requests = accepting()
        connection.consume(queue(name), requests)
        with brokers.connect(broker.stomp_url, timeout=PATIENCE) as leaving:
            mine = leaving.temporary()
            leaving.consume(mine, Inbox())
            leaving.send(message_to(queue(name), reply_to=mine)).result(PATIENCE)
            gone = requests.next().message.reply_to
        assert gone is not None
        assert gone.kind is DestinationKind.TEMPORARY_QUEUE
        send(connection, message_to(gone, b"late"))
        assert gone.address not in broker.counters().messages
        wait_until(lambda: gone.address not in broker.counters().temporaries)

    def test_release_keeps_the_message(self, connection: StompConnection) -> None:
        """It would go with its subscription, so it is put before the consumer again."""
        inbox, mine = Inbox(), connection.temporary()
        connection.consume(mine, inbox)
        send(connection, message_to(mine, b"reply"))
        inbox.next().release()
        again = inbox.next()
        assert (again.message.body, again.message.redelivered) == (b"reply", True)


class TestAcceptance(OnArtemis):
    """Accepting, rejecting, giving back."""

    def test_crash_between_answer_and_acceptance(
        self, connection: StompConnection, other: StompConnection, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The request is delivered again, and nothing is lost: Artemis takes no acceptance into a transaction."""
        assert not connection.capabilities.accepts_in_transactions
        requests, answers = Inbox(), accepting()
        consumers = [connection.consume(queue(name), requests), other.consume(queue(f"{name}.answers"), answers)]
        send(other, message_to(queue(name), b"request"))
        monkeypatch.setattr(StompTransaction, "_accept", lambda self, pending, future: self._link.drop())
        transaction = connection.begin()
        transaction.accept(requests.next())
        transaction.send(message_to(queue(f"{name}.answers"), b"answer"))
        transaction.commit()
        assert answers.next().message.body == b"answer"
        again = requests.next()  # over the next session
        assert again.generation == 2
        assert again.message.body == b"request"
        monkeypatch.undo()
        again.accept()
        for consumer in consumers:
            consumer.close()
        assert_empty(connection, name, f"{name}.answers")

    def test_commit_of_acceptances_alone(self, connection: StompConnection, other: StompConnection, name: str) -> None:
        """It is confirmed as any."""
        requests = Inbox()
        consumer = connection.consume(queue(name), requests, prefetch=2)
        send(other, message_to(queue(name), b"1"), message_to(queue(name), b"2"))
        transaction = connection.begin()
        transaction.accept(requests.next())
        transaction.accept(requests.next())
        assert transaction.commit().result(PATIENCE) == ()
        consumer.close()
        assert_empty(connection, name)

    def test_rejected_message_is_a_dead_letter(self, connection: StompConnection, name: str) -> None:
        """It is sent to `DLQ` with where it was and why; a NACK would lose it. Its type and headers stay."""
        dead = Inbox()
        connection.consume(queue("DLQ"), dead, selector=f"name = '{name}'")
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox)
        for body in (b"bytes", "text"):
            sent = message_to(
                queue(name),
                body,
                correlation_id="c:1",
                reply_to=queue("replies"),
                priority=7,
                expiration=int(time.time() * 1000) + 3_600_000,
                properties=properties({"name": name, "odd:name": "a\rb\n"}),
            )
            send(connection, sent)
            inbox.next().reject("it is\0 bad \ud800")
            letter = dead.next()
            letter.accept()
            message = letter.message
            assert (message.body, message.message_type) == (body, sent.message_type)
            assert (message.correlation_id, message.reply_to, message.priority) == ("c:1", queue("replies"), 7)
            assert message.expiration == 0
            assert message.properties.text("dead_letter_reason") == "it is bad ?"
            assert message.properties.text("odd:name") == "a\rb\n"
            assert message.properties.text("_AMQ_ORIG_ADDRESS") == name
        consumer.close()
        assert_empty(connection, name)

    @pytest.mark.parametrize("ends", ["consumer", "connection"])
    def test_rejected_and_closed(self, broker: RealBroker, connection: StompConnection, name: str, ends: str) -> None:
        """Who rejects and closes at once has a dead letter for each message, and no message back in its queue."""
        dead, inbox, bodies = Inbox(), Inbox(), (b"1", b"2", b"3")
        connection.consume(queue("DLQ"), dead, selector=f"name = '{name}'")
        send(connection, *(message_to(queue(name), each, properties=properties({"name": name})) for each in bodies))
        with brokers.connect(broker.stomp_url, timeout=PATIENCE) as mine:
            consumer = mine.consume(queue(name), inbox, prefetch=20)
            held = [inbox.next() for _ in bodies]
            for each in held:
                each.reject("it is bad")
            if ends == "consumer":
                consumer.close()
        assert_empty(connection, name)
        for body in bodies:
            letter = dead.next()
            letter.accept()
            assert letter.message.body == body

    def test_rejected_message_that_cannot_be_a_dead_letter(
        self, broker: RealBroker, connection: StompConnection, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is not lost: the log says why, and it comes again."""
        allowed, inbox = queue(f"limited.{name}"), Inbox()
        send(connection, message_to(allowed, b"bad"))
        url = f"stomp://{broker.host}:{broker.ports.stomp}"
        with brokers.connect(url, timeout=PATIENCE, credentials=Credentials("limited", "limited")) as limited:
            limited.consume(allowed, inbox)
            inbox.next().reject("it is bad")
            again = inbox.next()
            assert (again.message.body, again.message.redelivered) == (b"bad", True)
            assert "refused as a dead letter" in caplog.text
            again.accept()
        assert_empty(connection, f"limited.{name}")

    def test_prefetch_is_never_exceeded(self, connection: StompConnection, other: StompConnection, name: str) -> None:
        """Artemis counts octets: of large messages fewer are held, so that others get them."""
        holding, witness = Inbox(), accepting()
        with connection.consume(queue(name), holding, prefetch=5):
            send(connection, *(message_to(queue(name), bytes([number]) * 5000) for number in range(3)))
            first = holding.next()
            with other.consume(queue(name), witness):
                witness.next()
            first.accept()


class TestMessages(OnArtemis):
    """What arrives."""

    def test_who_and_how(self, connection: StompConnection) -> None:
        """The broker names itself, and gets the version of STOMP in which a refused frame does not end the session."""
        assert connection.capabilities.broker.startswith("ActiveMQ-Artemis/2.")
        assert connection._link.login.version == "1.1"
        assert connection.generation == 1

    def test_message_id_is_the_brokers_number(self, connection: StompConnection, name: str) -> None:
        """The same at each delivery, so that releases can be counted; but no JMSMessageID, for what came over STOMP."""
        inbox = Inbox()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name)))
        first = inbox.next()
        first.release()
        again = inbox.next()
        assert first.message.message_id == again.message.message_id
        assert (first.message.message_id or "").isdecimal()
        assert not connection.capabilities.stable_message_id

    def test_selector_over_headers(self, connection: StompConnection, name: str) -> None:
        """A JMS selector; what Artemis calls otherwise is translated, but not in quotes."""
        inbox = accepting()
        connection.consume(queue(name), inbox, selector="JMSPriority > 5 AND word <> 'JMSPriority'")
        plain = message_to(queue(name), b"low", priority=2, properties=properties({"word": "a"}))
        send(
            connection,
            plain,
            replace(plain, body=b"quoted", priority=8, properties=properties({"word": "JMSPriority"})),
            replace(plain, body=b"high", priority=8),
        )
        assert inbox.next().message.body == b"high"

    def test_group_keeps_its_name(self, connection: StompConnection, name: str) -> None:
        """Artemis hands JMSXGroupID out under a name of its own."""
        inbox = accepting()
        connection.consume(queue(name), inbox)
        send(connection, message_to(queue(name), properties=properties({"JMSXGroupID": "g"})))
        assert inbox.next().message.properties.text("JMSXGroupID") == "g"


class TestJava(OnArtemis):
    """Artemis's own Java client at the other side."""

    @pytest.mark.parametrize(
        ("kind", "body"), [(MessageType.BYTES, b"<a>\xc3\xbc\0</a>"), (MessageType.TEXT, "<a>\u00fc</a>")]
    )
    def test_types_and_destinations_both_ways(
        self, broker: RealBroker, connection: StompConnection, name: str, kind: MessageType, body: bytes | str
    ) -> None:
        """Bytes are bytes and text is text; the temporary queue of each is one that the other can answer to."""
        mine = connection.temporary()

        def answer(delivery: Delivery) -> None:
            delivery.accept()
            assert delivery.message.reply_to is not None
            assert delivery.message.reply_to.kind is DestinationKind.TEMPORARY_QUEUE
            answered = message_to(delivery.message.reply_to, body, reply_to=mine, correlation_id="c")
            connection.send(replace(answered, properties=properties({"answer": True})))

        inbox = Inbox(answer)
        connection.consume(queue(name), inbox)
        reply = broker.send_special(kind.value, name, reply_to="temporary", wait=PATIENCE)
        request = inbox.next().message
        assert request.message_type is kind
        assert request.destination == queue(name)
        assert all(not each.name.startswith("_") for each in request.properties)
        assert reply is not None
        assert (reply["type"], reply["body"]) == (kind.value, body if isinstance(body, str) else body.decode())
        assert (reply["correlationId"], reply["properties"]["answer"]) == ("c", "true")
        assert mine.address is not None
        assert mine.address in reply["replyTo"]
        assert "Topic" in reply["replyTo"]

    def test_other_kinds(self, broker: RealBroker, connection: StompConnection, name: str) -> None:
        """Artemis reads every body but that of bytes as a text: a map becomes a letter, and a stream never comes.

        An object and a message without a body arrive as a null text does, and an empty one.
        """
        inbox = accepting()
        connection.consume(queue(name), inbox, prefetch=10)
        broker.send_special("stream,map,null-text,object", name)
        came = [inbox.next().message for _ in range(3)]
        assert [each.message_type for each in came] == [MessageType.TEXT, MessageType.UNKNOWN, MessageType.UNKNOWN]
        assert [len(str(each.body or "")) for each in came] == [1, 0, 0]


class TestDurableTopics(OnBoth):
    """Durable subscriptions, on each real broker."""

    def test_kept_while_nobody_consumes(self, broker: RealBroker, connection: StompConnection, name: str) -> None:
        """What is sent meanwhile waits for the same client id and name; released and restarted it comes again."""
        url = f"{broker.stomp_url}?clientId={name}"
        with brokers.connect(url, timeout=PATIENCE) as mine:
            assert mine.capabilities.durable_topics
            mine.consume(topic(name), Inbox(), durable_name="d")
        send(connection, message_to(topic(name), b"1"), message_to(topic(name), b"2"))
        with brokers.connect(broker.stomp_url, timeout=PATIENCE, client_id=name) as mine:
            inbox = Inbox()
            mine.consume(topic(name), inbox, durable_name="d")
            first = inbox.next()
            assert (first.message.body, first.message.destination) == (b"1", topic(name))
            first.release()
            again = inbox.next()
            assert again.message.body == b"1"
            again.accept()
        with brokers.connect(url, timeout=PATIENCE) as mine:
            inbox = accepting()
            mine.consume(topic(name), inbox, durable_name="d")
            assert inbox.next().message.body == b"2"

    def test_what_it_needs(self, connection: StompConnection, name: str) -> None:
        """A client id, and a topic."""
        with pytest.raises(UnsupportedError, match=r"durable_topics.*client_id=NAME"):
            connection.consume(topic(name), Inbox(), durable_name="d")
        with pytest.raises(ValueError, match="must be a topic"):
            connection.consume(queue(name), Inbox(), durable_name="d")
