"""brokers.stomp on a real ActiveMQ Classic with messages whose JMSMessageID their sender over AMQP chose.

The broker cannot be told by an ACK that one is accepted: see `brokers.stomp.collection`. Each test fails there without
that: the connection ends, the broker delivers again, and so on for ever.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Timer
from time import monotonic
from typing import Any, Self

import proton
import pytest
from amqp_raw import Raw
from calling_kit import PATIENCE, SOAP_11, eventually, fresh
from cxf_kit import ECHO, answer_in, request_of
from proxy_kit import Proxy, Way
from real_brokers import RealBroker
from stomp_kit import Fixtures, Inbox, accepting, assert_empty, message_to

import soapjms
from brokers import (
    ClosedError,
    Connection,
    ConnectionLostError,
    Delivery,
    Destination,
    NoAnswerError,
    connect,
    queue,
    topic,
)
from brokers.stomp import StompConnection
from brokers.stomp import consumer as consumer_module
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
LIKE_OWN = "ID:looks-like-1-2-3:1:2:3:{}"
"""How they may look like the broker's own."""

SIZE = 2000
"""Octets of a body, so that frames without one count for little."""


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


def all_of(inbox: Inbox, count: int) -> list[object]:
    """Take messages until so many different ones have come, and those that come again."""
    had: list[object] = []
    while len(set(had)) < count:
        had.append(inbox.next().message.body)
    while not inbox.is_empty():
        had.append(inbox.next().message.body)
    return had


def is_torn(form: str, *connections: Connection) -> bool:
    """Say whether ActiveMQ wrote frames into each other, which ends the session: then messages come again.

    It writes an ERROR beside what other threads write. Only an ACK of an id that looks like its own provokes one.
    """
    return form == LIKE_OWN and any(each.generation > 1 for each in connections)


class Exclusive:
    """Takes all of a queue, whoever else is there, on a socket of its own: no adapter of ours asks for that."""

    def __init__(self, broker: RealBroker, name: str) -> None:
        self._socket = socket.create_connection((broker.host, broker.ports.stomp), PATIENCE)
        self._socket.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nlogin:admin\npasscode:admin\n\n\0")
        subscribe = f"SUBSCRIBE\nid:1\ndestination:/queue/{name}\nack:client\nactivemq.exclusive:true\nreceipt:r\n\n\0"
        self._socket.sendall(subscribe.encode())
        self._came = b""
        self.until(b"receipt-id:r")

    def until(self, wanted: bytes) -> None:
        """Wait until something came."""
        while wanted not in self._came:
            data = self._socket.recv(65536)
            assert data, self._came
            self._came += data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.mark.broker
class TestQueues(Fixtures):
    """What an ACK cannot name is taken from its queue all the same, once, and the session goes on."""

    @pytest.mark.parametrize("message_id", [*IDS, LIKE_OWN.format(4)], ids=range(len(IDS) + 1))
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

    @pytest.mark.parametrize("message_id", [IDS[0], LIKE_OWN.format(4)], ids=["qpid", "like-own"])
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
        answers = accepting()
        with connection.consume(queue(f"{name}.answers"), answers):
            assert answers.next().message.body == b"answer"

    @pytest.mark.parametrize("commits", [1, 2, 5])
    def test_several_of_one_consumer(
        self, connection: StompConnection, activemq: RealBroker, name: str, commits: int
    ) -> None:
        """In one transaction, or in several that are under way at a time: what was committed does not come again.

        A transaction whose commit comes after another's messages were collected is told that it did not, as the
        messages went back; they come again.
        """
        held = Inbox()
        consumer = connection.consume(queue(name), held, prefetch=10)
        send_with_ids(activemq, queue(name), [QPID.format(1), LIKE_OWN.format(1), None, LIKE_OWN.format(2), "x"] * 2)
        deliveries = [held.next() for _ in range(10)]
        transactions = [connection.begin() for _ in range(commits)]
        for number, delivery in enumerate(deliveries):
            transactions[number % commits].accept(delivery)
        errors = [each.exception(PATIENCE) for each in [each.commit() for each in transactions]]
        assert errors[0] is None
        late = [number for number, error in enumerate(errors) if error is not None]
        assert all("nothing was committed" in str(errors[number]) for number in late)
        again = connection.begin()
        for number in late:
            for _ in deliveries[number::commits]:
                again.accept(held.next())
        again.commit().result(PATIENCE)
        assert held.nothing()
        consumer.close()
        assert connection.generation == 1
        assert_empty(connection, name)

    def test_what_is_held_beside_it(self, connection: StompConnection, activemq: RealBroker, name: str) -> None:
        """It goes back, and comes again; who accepts it by then is told that it did not."""
        held = Inbox()
        consumer = connection.consume(queue(name), held, prefetch=2)
        send_with_ids(activemq, queue(name), IDS[:2])
        first, second = connection.begin(), connection.begin()
        first.accept(held.next())
        second.accept(held.next())
        first.commit().result(PATIENCE)
        again = held.next()
        assert (again.message.body, again.message.redelivered) == ("1", True)
        with pytest.raises(ClosedError, match="nothing was committed"):
            second.commit().result(PATIENCE)
        again.accept()
        consumer.close()
        assert_empty(connection, name)

    def test_another_one_has_it(
        self,
        connection: StompConnection,
        activemq: RealBroker,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """What cannot be taken in time comes again, and its commit says so; it does not pass for accepted."""
        monkeypatch.setattr(consumer_module, "COLLECTION_SECONDS", 0.5)
        held = Inbox()
        consumer = connection.consume(queue(name), held, prefetch=2)
        send_with_ids(activemq, queue(name), IDS[:2])
        deliveries = [held.next(), held.next()]
        with Exclusive(activemq, name) as exclusive:
            transaction = connection.begin()
            transaction.accept(deliveries[0])
            transaction.send(message_to(queue(f"{name}.answers"), b"answer"))
            future = transaction.commit()
            exclusive.until(b"\n\n0\0")
            with pytest.raises(NoAnswerError, match=f"{IDS[0]} was accepted, and may come again"):
                future.result(PATIENCE)
        again = held.next()
        assert again.message.redelivered
        assert connection.generation == 1
        consumer.close()
        answers = accepting()
        with connection.consume(queue(f"{name}.answers"), answers):
            assert answers.next().message.body == b"answer"

    def test_connection_is_lost(self, proxy: Proxy, activemq: RealBroker, name: str) -> None:
        """Whether it was accepted is not known then, and it is said at once."""
        held = Inbox()
        with connect(proxy.stomp_url) as connection:
            consumer = connection.consume(queue(name), held)
            first = consumer._subscription.id
            send_with_ids(activemq, queue(name), IDS[:1])
            transaction = connection.begin()
            transaction.accept(held.next())
            with Exclusive(activemq, name):
                future = transaction.commit()
                eventually(lambda: consumer._subscription.id != first, "it is collected")
                proxy.cut()
                with pytest.raises(ConnectionLostError):
                    future.result(5)

    def test_connection_has_no_threads_any_more(
        self, connection: StompConnection, activemq: RealBroker, name: str
    ) -> None:
        """As at the end of `close`: the commit says that it is not known."""
        held = Inbox()
        connection.consume(queue(name), held)
        send_with_ids(activemq, queue(name), IDS[:1])
        transaction = connection.begin()
        transaction.accept(held.next())
        connection._crew.close()
        with pytest.raises(ConnectionLostError):
            transaction.commit().result(PATIENCE)

    @pytest.mark.parametrize("goes_on", [True, False])
    def test_two_that_nothing_tells_apart(
        self, connection: StompConnection, activemq: RealBroker, name: str, goes_on: bool
    ) -> None:
        """Of two with one id and time that of the right body is accepted; the other is there, whoever is to have it."""
        held = Inbox()
        consumer = connection.consume(queue(name), held, prefetch=2)
        send_with_ids(activemq, queue(name), ["1", "1"], creation_time=1e9)
        first, second = held.next(), held.next()
        assert first.message.timestamp == second.message.timestamp
        transaction = connection.begin()
        transaction.accept(second)
        future = transaction.commit()
        if not goes_on:
            consumer.close()
            consumer = connection.consume(queue(name), held)
        future.result(PATIENCE)
        last = held.next()
        assert last.message.body == "0"
        last.accept()
        consumer.close()
        assert_empty(connection, name)

    def test_session_ends_before_the_other_one_is_back(self, proxy: Proxy, activemq: RealBroker, name: str) -> None:
        """It was taken beside the one that is accepted, and is sent to its queue over the next session."""
        held = Inbox()
        with connect(proxy.stomp_url) as connection:
            connection.consume(queue(name), held, prefetch=2)
            send_with_ids(activemq, queue(name), ["1", "1"], creation_time=1e9)
            first, second = held.next(), held.next()
            assert (first.message.body, second.message.body) == ("0", "1")
            transaction = connection.begin()
            transaction.accept(first)
            proxy.cut_before(b"SEND\n")
            transaction.commit().result(PATIENCE)
            assert held.next().message.body == "1"
            assert connection.generation == 2

    def test_one_id_for_all(self, connection: StompConnection, activemq: RealBroker, name: str) -> None:
        """Senders may number their messages, or give all the same id: each is handed on, and taken once."""
        inbox = accepting()
        consumer = connection.consume(queue(name), inbox)
        send_with_ids(activemq, queue(name), ["1"] * 5)
        assert bodies(inbox, 5) == [f"{number}" for number in range(5)]
        consumer.close()
        assert_empty(connection, name)

    @pytest.mark.parametrize("form", [QPID, LIKE_OWN], ids=["qpid", "like-own"])
    @pytest.mark.parametrize("own", [0, 7, 2], ids=["none-own", "some-own", "half-own"])
    @pytest.mark.parametrize("more", [{}, {"lazy": True}, {"prefetch": 1}], ids=["turns", "lazy", "one"])
    def test_accepted_in_chunks(
        self,
        connection: StompConnection,
        activemq: RealBroker,
        name: str,
        form: str,
        own: int,
        more: dict[str, Any],
    ) -> None:
        """With `auto_accept`, by themselves or among others of the broker's own ids, more than may be on the way."""
        inbox = Inbox()
        consumer = connection.consume(queue(name), inbox, **{"prefetch": 10, "auto_accept": True} | more)
        ids = [None if own and number % own == own // 2 else form.format(number) for number in range(60)]
        send_with_ids(activemq, queue(name), ids)
        had = all_of(inbox, 60)
        consumer.close()
        assert had == [f"{number}" for number in range(60)] or is_torn(form, connection)
        assert_empty(connection, name)

    @pytest.mark.parametrize("form", [QPID, LIKE_OWN], ids=["qpid", "like-own"])
    @pytest.mark.parametrize("auto_accept", [True, False])
    @pytest.mark.parametrize("whole", [True, False], ids=["connection", "consumer"])
    def test_closed_amid_a_backlog(
        self, connection: StompConnection, activemq: RealBroker, name: str, form: str, auto_accept: bool, whole: bool
    ) -> None:
        """What was accepted does not come again, and all the rest is there: each message is had once."""
        send_with_ids(activemq, queue(name), [form.format(number) for number in range(40)])
        had: list[object] = []
        enough = Event()

        def take(delivery: Delivery) -> None:
            had.append(delivery.message.body)
            if not auto_accept:
                delivery.accept()
            if len(had) == 15:
                enough.set()
                assert over.wait(PATIENCE)

        over = Event()
        with connect(activemq.stomp_url) as closing:
            consumer = closing.consume(queue(name), take, prefetch=10, auto_accept=auto_accept)
            assert enough.wait(PATIENCE)
            Timer(0.2, over.set).start()
            if not whole:
                consumer.join(monotonic() + PATIENCE)
                consumer.close()
        rest = accepting()
        with connection.consume(queue(name), rest, prefetch=10):
            had += all_of(rest, 40 - len(set(had)))
        assert sorted(set(had)) == sorted(f"{number}" for number in range(40))  # type: ignore[type-var]
        assert len(had) == 40 or is_torn(form, connection, closing)
        assert_empty(connection, name)

    @pytest.mark.parametrize("form", [QPID, LIKE_OWN], ids=["qpid", "like-own"])
    @pytest.mark.parametrize("more", [{}, {"auto_accept": True, "lazy": True}], ids=["tap", "capture"])
    def test_cost(self, proxy: Proxy, activemq: RealBroker, name: str, form: str, more: dict[str, Any]) -> None:
        """Of a backlog each message is written a few times, however many there are, or may be on the way."""
        count, inbox = 600, Inbox(lambda delivery: None if more else delivery.accept())
        send_with_ids(activemq, queue(name), [form.format(number) for number in range(count)], body="y" * SIZE)
        with connect(proxy.stomp_url) as connection:
            before = proxy.octets[Way.DOWN]
            connection.consume(queue(name), inbox, prefetch=200, **more)
            assert isinstance(connection, StompConnection)
            had = bodies(inbox, count)
            while not inbox.is_empty():
                had.append(inbox.next().message.body)
            cost = proxy.octets[Way.DOWN] - before
            assert (len(had) == count and cost < 4 * count * SIZE) or is_torn(form, connection)
        with connect(activemq.stomp_url) as looking:
            assert isinstance(looking, StompConnection)
            assert_empty(looking, name)

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

    @pytest.mark.parametrize("message_id", [IDS[0], LIKE_OWN.format(4)], ids=["qpid", "like-own"])
    def test_rejected(self, connection: StompConnection, activemq: RealBroker, name: str, message_id: str) -> None:
        """A NACK cannot name it either, so it is sent to the queue for dead letters, with the reason."""
        inbox, dead = Inbox(lambda delivery: delivery.reject("not wanted")), accepting()
        consumer = connection.consume(queue(name), inbox)
        send_with_ids(activemq, queue(name), [message_id])
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
        assert caplog.text.count("count as accepted at once") == 1

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


OPTIONS = {
    "plain": {},
    "without": {"transactional": False},
    "store": {"store": "requests.db"},
    "store without": {"store": "requests.db", "transactional": False},
    "ahead": {"store": "requests.db", "prefetch": 5},
}


@pytest.mark.broker
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_service(activemq: RealBroker, tmp_path: Path, options: dict[str, Any]) -> None:
    """A service is called by who chooses ids, from time to time: each function runs once, each call has its answer."""
    if "store" in options:
        options = options | {"store": tmp_path / "requests.db"}
    service, heard, greeted = soapjms.Service.from_wsdl(ECHO[SOAP_11]), list[str](), list[str]()

    @service.operation("greetMe")
    def greet(requestType: str) -> str:
        greeted.append(requestType)
        return requestType

    @service.operation("pingMe")
    def ping(requestType: str) -> None:
        heard.append(requestType)

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
        eventually(lambda: name not in activemq.counters().messages, "all was taken from the queue")
        assert ours.generation == 1
    if "prefetch" not in options:  # else a request that came again is answered once more, from the store
        assert dispatcher.counts["answered"] == 40
    assert sorted(heard) == sorted(f"{number}" for number in range(10))
    assert sorted(greeted) == sorted(f"{number}" for number in range(40))
    with connect(activemq.stomp_url) as looking:
        assert_empty(looking, name)


@pytest.mark.broker
def test_service_that_cannot_accept(activemq: RealBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller has the answer; the request counts as lost, and is whoever's it comes to."""
    monkeypatch.setattr(consumer_module, "COLLECTION_SECONDS", 0.5)
    name, begun, goes_on = fresh(), Event(), Event()
    service = soapjms.Service.from_wsdl(ECHO[SOAP_11])

    @service.operation("greetMe")
    def greet(requestType: str) -> str:
        begun.set()
        assert goes_on.wait(PATIENCE)
        return requestType

    with (
        connect(activemq.stomp_url) as ours,
        connect(activemq.amqp_url, message_ids=True) as theirs,
        Dispatcher(ours, f"jms:queue:{name}", service) as dispatcher,
        Client(theirs, f"jms:queue:{name}") as client,
    ):
        future = client.submit(request_of(SOAP_11, "greetMe", "Ann"))
        assert begun.wait(PATIENCE)
        with Exclusive(activemq, name) as exclusive:
            goes_on.set()
            assert answer_in(future.result(PATIENCE)) == "Ann"
            exclusive.until(b"Ann")
            eventually(lambda: dispatcher.counts["lost"] == 1, "it is counted")
        assert dispatcher.counts["answered"] == 0
