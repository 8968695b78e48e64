"""brokers.stomp on a real ActiveMQ Classic with messages whose JMSMessageID their sender over AMQP chose.

The broker cannot be told by an ACK that one is accepted: see `brokers.stomp.collection`. Each test fails there without
that: the connection ends, the broker delivers again, and so on for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count
from queue import SimpleQueue
from typing import Any

import proton
import pytest
from amqp_raw import Raw
from calling_kit import PATIENCE, SOAP_11, eventually, fresh
from cxf_kit import answer_in, echo_service, request_of
from real_brokers import RealBroker
from stomp_kit import Fixtures, Inbox, accepting, assert_empty, message_to

from brokers import Delivery, Destination, connect, queue, topic
from brokers.stomp import StompConnection
from soapjms import Client, Dispatcher

QPID = "ID:8a1b6ff2-4f0e-4d8a-93c5-0d8b6ce9a0a1:1:1:1-{}"
"""How Qpid JMS makes ids."""

IDS = [
    QPID.format(1),
    "ID:0c7cdbae-1111-2222-3333-444455556666",
    "plain",
    7,
    "it's \\ 100%_!\n[x]:ÿ",
    "ID:" + "long%_!'" * 150,
]
LIKE_OWN = "ID:looks-like-1-2-3:1:2:3:4"
NUMBERS = count(1)


def send_with_ids(broker: RealBroker, where: Destination, ids: Sequence[object], **more: Any) -> None:
    """Send messages over AMQP, each with an id of its own and its number as the body."""
    with Raw(broker.ports.amqp, container=fresh("sender"), user="admin") as client:
        link = client.attach(f"{'topic' if where.kind.is_topic else 'queue'}://{where.name}")
        for number, each in enumerate(ids):
            message = proton.Message(**{"body": f"{number}", "durable": True} | more)
            message.id = each
            client.until(lambda: link.credit)
            client.outcome(client.send(link, message))


def bodies(inbox: Inbox, number: int) -> list[object]:
    """Take so many messages, and return what they hold."""
    return [inbox.next().message.body for _ in range(number)]


@pytest.mark.broker
class TestQueues(Fixtures):
    """What an ACK cannot name is taken from its queue all the same, once, and the session goes on."""

    @pytest.mark.parametrize("message_id", IDS, ids=range(len(IDS)))
    def test_accepted(self, connection: StompConnection, activemq: RealBroker, name: str, message_id: object) -> None:
        """By itself; also where others of the queue wait for messages."""
        inbox, other = accepting(), accepting()
        consumer = connection.consume(queue(name), inbox)
        send_with_ids(activemq, queue(name), [message_id])
        assert bodies(inbox, 1) == ["0"]
        beside = connection.consume(queue(name), other)
        consumer.close()
        assert other.nothing()
        beside.close()
        assert connection.generation == 1
        assert_empty(connection, name)

    @pytest.mark.parametrize("message_id", [IDS[0], LIKE_OWN], ids=["qpid", "like-own"])
    def test_in_a_transaction(
        self, connection: StompConnection, activemq: RealBroker, name: str, message_id: object
    ) -> None:
        """The answers and the other acceptances are committed first; the next message comes by the same session."""
        held, also = Inbox(), Inbox()
        consumers = [connection.consume(queue(name), held), connection.consume(queue(f"{name}.own"), also)]
        connection.send(message_to(queue(f"{name}.own"))).result(PATIENCE)
        send_with_ids(activemq, queue(name), [message_id, None])
        transaction = connection.begin()
        transaction.accept(held.next())
        transaction.accept(also.next())
        transaction.send(message_to(queue(f"{name}.answers"), b"answer"))
        assert transaction.commit().result(PATIENCE) == ()
        last = held.next()
        assert (last.message.body, last.message.redelivered) == ("1", False)
        last.accept()
        for each in consumers:
            each.close()
        assert connection.generation == 1
        assert_empty(connection, name, f"{name}.own")

    def test_one_id_for_all(self, connection: StompConnection, activemq: RealBroker, name: str) -> None:
        """Senders may number their messages, or give all the same id: each is handed on, and taken once."""
        inbox = accepting()
        consumer = connection.consume(queue(name), inbox)
        send_with_ids(activemq, queue(name), ["1"] * 5)
        assert bodies(inbox, 5) == [f"{number}" for number in range(5)]
        consumer.close()
        assert_empty(connection, name)

    @pytest.mark.parametrize("more", [{}, {"inline": True}, {"prefetch": 1}], ids=["turns", "inline", "one"])
    def test_accepted_in_chunks(
        self, connection: StompConnection, activemq: RealBroker, name: str, more: dict[str, Any]
    ) -> None:
        """With `auto_accept`, among others of the broker's own ids, more than it may have on the way."""
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox, **{"prefetch": 10, "auto_accept": True} | more)
        ids = [None if number % 7 == 3 else QPID.format(number) for number in range(60)]
        send_with_ids(activemq, queue(name), ids)
        assert bodies(inbox, 60) == [f"{number}" for number in range(60)]
        assert inbox.nothing()
        consumer.close()
        assert connection.generation == 1
        assert_empty(connection, name)

    def test_released(self, connection: StompConnection, activemq: RealBroker, name: str) -> None:
        """It goes back, comes again, and is accepted then."""
        tries: list[Delivery] = []

        def fail_once(delivery: Delivery) -> None:
            tries.append(delivery)
            delivery.release() if len(tries) == 1 else delivery.accept()

        inbox = Inbox(fail_once)
        consumer = connection.consume(queue(name), inbox)
        send_with_ids(activemq, queue(name), [IDS[0]])
        assert bodies(inbox, 2) == ["0", "0"]
        consumer.close()
        assert_empty(connection, name)

    def test_rejected(self, connection: StompConnection, activemq: RealBroker, name: str) -> None:
        """A NACK cannot name it either, so it is sent to the queue for dead letters, with the reason."""
        inbox, dead = Inbox(lambda delivery: delivery.reject("not wanted")), accepting()
        consumer = connection.consume(queue(name), inbox)
        send_with_ids(activemq, queue(name), [IDS[0]])
        inbox.next()
        consumer.close()
        assert_empty(connection, name)
        letters = connection.consume(queue("ActiveMQ.DLQ"), dead, selector=f"_AMQ_ORIG_ADDRESS = '/queue/{name}'")
        letter = dead.next().message
        assert (letter.body, letter.properties.value("dead_letter_reason")) == ("0", "not wanted")
        letters.close()

    def test_above_the_limit(self, activemq: RealBroker, name: str, caplog: pytest.LogCaptureFixture) -> None:
        """One that is rejected unread is taken at once too, though it is passed over again then."""
        refused = SimpleQueue[str]()
        with connect(f"{activemq.stomp_url}?maxMessage=1000") as connection:
            assert isinstance(connection, StompConnection)
            consumer = connection.consume(queue(name), accepting(), on_refused=lambda _, why: refused.put(why))
            send_with_ids(activemq, queue(name), [IDS[0]], body="y" * 2000)
            assert refused.get(timeout=PATIENCE)
            consumer.close()
            assert_empty(connection, name)
        assert "come again" not in caplog.text


@pytest.mark.broker
class TestTopics(Fixtures):
    """A copy of a topic's message cannot go back."""

    def test_counts_as_accepted(
        self, connection: StompConnection, activemq: RealBroker, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """From the first on the broker is told nothing more, as the log says once; the session goes on."""
        inbox = accepting()
        connection.consume(topic(name), inbox)
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                send_with_ids(activemq, topic(name), [QPID.format(number)])
                assert bodies(inbox, 1) == ["0"]
        send_with_ids(activemq, topic(name), [QPID.format(number) for number in range(9)])
        assert bodies(inbox, 9) == [f"{number}" for number in range(9)]
        assert connection.generation == 1
        assert caplog.text.count("counts as accepted at once") == 1

    def test_durable(self, activemq: RealBroker, name: str, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing would be kept then, so it is not handed on; who consumes is told why, and what to do."""
        inbox, problems = accepting(), list[str]()
        with connect(activemq.stomp_url, client_id=name) as connection:
            connection.consume(topic(name), inbox, durable_name="d", on_problem=problems.append)
            send_with_ids(activemq, topic(name), [IDS[0]])
            eventually(lambda: problems, "it is told")
            assert "Consume over AMQP" in problems[0]
            assert inbox.nothing()
            assert connection.generation == 1


@pytest.mark.broker
@pytest.mark.parametrize("options", [{}, {"transactional": False}, {"store": True}], ids=["plain", "without", "store"])
def test_service(activemq: RealBroker, tmp_path: Any, options: dict[str, Any]) -> None:
    """A service is called by who chooses ids, from time to time: each function runs once, each call has its answer."""
    if "store" in options:
        options = {"store": tmp_path / "requests.db"}
    service, heard = echo_service(SOAP_11)
    name = fresh()
    with (
        connect(activemq.stomp_url) as ours,
        connect(activemq.amqp_url, message_ids=True) as theirs,
        Dispatcher(ours, f"jms:queue:{name}", service, workers=4, **options) as dispatcher,
        Client(theirs, f"jms:queue:{name}") as client,
    ):
        futures = [client.submit(request_of(SOAP_11, "greetMe", f"{number}")) for number in range(40)]
        for number in range(10):
            client.send(request_of(SOAP_11, "pingMe", f"{number}"))
        assert [answer_in(each.result(PATIENCE)) for each in futures] == [f"{number}" for number in range(40)]
        eventually(lambda: len(heard) == 10, "each is heard once")
        assert ours.generation == 1
    assert dispatcher.counts["answered"] == 40
    assert sorted(heard) == sorted(f"{number}" for number in range(10))
    with connect(activemq.stomp_url) as looking:
        assert_empty(looking, name)
