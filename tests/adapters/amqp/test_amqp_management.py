"""brokers.amqp, management: queues that are made by requests, at a broker that makes none otherwise, as RabbitMQ 4.

The peer here answers as RabbitMQ 4.0.5 was seen to do. `make soak` runs the whole contract with RabbitMQ itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
from amqp_kit import PATIENCE, Peer, text, wait_until
from managed_kit import Managed
from proton import Condition, Delivery

import brokers
from brokers import (
    BrokerError,
    Connection,
    ConnectionFailedError,
    ConnectionLostError,
    DestinationGoneError,
    DestinationKind,
    NoAnswerError,
    NoDestinationError,
    UnsupportedError,
    UsageError,
    queue,
    topic,
)
from brokers.adapter.redelivery import MAX_DELIVERIES
from brokers.amqp import AmqpConnection
from brokers.amqp.sections import AmqpSection, encode

OWN = {"durable": False, "exclusive": True, "auto_delete": False, "arguments": {}}


@pytest.fixture
def broker() -> Iterator[Managed]:
    """Give the broker."""
    with Managed() as peer:
        yield peer


@pytest.fixture
def connection(broker: Managed) -> Iterator[Connection]:
    """Connect to it."""
    with brokers.connect(broker.url, timeout=PATIENCE) as opened:
        yield opened


def test_temporary_queue(broker: Managed, connection: Connection) -> None:
    """It is a queue of this connection alone, with a name that nobody guesses; its end deletes it."""
    first, second = connection.temporary(), connection.temporary()
    assert first.kind is DestinationKind.TEMPORARY_QUEUE
    assert [each[:2] for each in broker.asked] == [("PUT", str(first.address)), ("PUT", str(second.address))]
    assert broker.asked[0][2] == OWN
    assert str(first.address) == f"/queues/temporary-queue.{first.name}"
    assert first.address != second.address
    connection.consume(first, lambda delivery: None)
    assert [each.address for each in broker.attached if not each.is_sender] == ["/management", first.address]
    connection.end_temporary(first)
    wait_until(lambda: len(broker.asked) == 3, "the queue is deleted")
    assert broker.asked[2] == ("DELETE", first.address, None)


def test_one_pair_of_links(broker: Managed, connection: Connection) -> None:
    """Both links have one name, go to and from the management node, and serve all requests."""
    for _ in range(3):
        connection.temporary()
    pair = [each for each in broker.attached if each.address == "/management"]
    assert {each.name for each in pair} == {pair[0].name}
    assert sorted(each.is_sender for each in pair) == [False, True]
    assert broker.links[pair[0].name].remote_properties == {"paired": True}


def test_topic(broker: Managed, connection: Connection) -> None:
    """A subscriber has a queue of its own, which is bound to the topic and goes with the subscriber."""
    connection.consume(topic("news.#"), lambda delivery: None)
    (put, path, body), (post, where, binding) = broker.asked
    assert (put, body) == ("PUT", {**OWN, "auto_delete": True})
    name = path.removeprefix("/queues/")
    assert (post, where) == ("POST", "/bindings")
    assert binding == {"source": "amq.topic", "binding_key": "news.#", "destination_queue": name, "arguments": {}}
    assert broker.attached[-1].address == path


@pytest.mark.parametrize("refused", ["binding", "link", "session"])
def test_a_topic_that_cannot_be_consumed_from(broker: Managed, refused: str) -> None:
    """The queue that was made for the subscriber is deleted: it would gather messages that nobody takes."""
    broker.sessions = 2 if refused == "session" else 1000
    broker.refuses_subscriptions = refused == "link"
    if refused == "binding":
        broker.answers["POST"] = "403", "access refused"
    with brokers.connect(broker.url, timeout=PATIENCE) as connection:
        with pytest.raises(BrokerError):
            connection.consume(topic("news"), print)
        wait_until(lambda: [each[0] for each in broker.asked] == ["PUT", "POST", "DELETE"], "the queue is deleted")
        assert broker.asked[2][1] == broker.asked[0][1]


def test_consumers_of_a_queue(broker: Managed, connection: Connection) -> None:
    """The broker tells their number, and that there is no such queue."""
    assert isinstance(connection, AmqpConnection)
    broker.answers["GET"] = "200", {"name": "a/b", "consumer_count": 2}
    assert connection.consumers(queue("a/b")) == 2
    assert broker.asked == [("GET", "/queues/a%2Fb", None)]
    broker.answers["GET"] = "404", "queue 'a/b' in vhost '/' not found"
    with pytest.raises(NoDestinationError, match="404 queue 'a/b' in vhost '/' not found"):
        connection.consumers(queue("a/b"))
    broker.answers["GET"] = "200", None
    with pytest.raises(BrokerError, match="did not say how many consumers /queues/a%2Fb has"):
        connection.consumers(queue("a/b"))
    with pytest.raises(UnsupportedError, match="does not tell how many consumers topic:t has"):
        connection.consumers(topic("t"))


def test_refused_request(broker: Managed, connection: Connection) -> None:
    """The caller gets the status and the broker's words, and the next request is carried out."""
    broker.answers["PUT"] = "403", "access refused for user 'guest'"
    with pytest.raises(BrokerError, match="the broker refused: 403 access refused for user 'guest'"):
        connection.temporary()
    broker.answers["PUT"] = "201", {}
    assert connection.temporary().name


@pytest.mark.parametrize("what", ["temporary", "topic"])
def test_no_answer(what: str) -> None:
    """It is an error after the time of the connection; the queue is deleted, as it may be made later, for nobody."""
    with Managed() as broker:
        put = broker.answers.pop("PUT")
        with brokers.connect(broker.url, timeout=1.0) as connection:
            with pytest.raises(NoAnswerError, match=r"did not answer PUT /queues/[a-z-]+\.\S+ within 1.0 s"):
                connection.temporary() if what == "temporary" else connection.consume(topic("t"), print)
            wait_until(lambda: [each[0] for each in broker.asked] == ["PUT", "DELETE"], "the queue is deleted")
            assert broker.asked[1][1] == broker.asked[0][1]
            broker.answers["PUT"] = put
            assert connection.temporary().name


END_OF_LINK: dict[str, Callable[[Any], Any]] = {"link": lambda link: link, "session": lambda link: link.session}


@pytest.mark.parametrize("what", END_OF_LINK)
def test_the_broker_ends_the_pair(broker: Managed, connection: Connection, what: str) -> None:
    """Who waits gets the reason, the connection lives on, and the next request attaches another pair."""
    put = broker.answers.pop("PUT")
    held: SimpleQueue[Any] = SimpleQueue()

    def serve(delivery: Any, octets: bytes) -> None:
        held.put(delivery.link)
        ended = END_OF_LINK[what](delivery.link)
        ended.condition = Condition("amqp:internal-error", "function_clause")
        ended.close()

    before, broker.on_transfer = broker.on_transfer, serve
    with pytest.raises(BrokerError, match=f"ended the {what} .*amqp:internal-error: function_clause"):
        connection.temporary()
    broker.on_transfer = before
    broker.answers["PUT"] = put
    made = connection.temporary()
    connection.send(text(made)).result(PATIENCE)
    assert len(broker.containers) == 1


def test_lost_connection(broker: Managed) -> None:
    """Who waits for an answer is told, and the next connection has management of its own."""
    del broker.answers["PUT"]
    with brokers.connect(broker.url, timeout=PATIENCE) as connection:
        broker.on_transfer = lambda delivery, octets: broker.cut()
        with pytest.raises(ConnectionLostError):
            connection.temporary()
        broker.on_transfer = broker._serve_message
        broker.answers["PUT"] = "201", None
        connection.wait_connected(PATIENCE)
        assert connection.temporary().name


def test_an_answer_without_end(broker: Managed, connection: Connection) -> None:
    """It fills no memory: the connection ends, and says why."""

    def serve(delivery: Any, octets: bytes) -> None:
        link = broker.back[delivery.link.name]
        link.delivery("1")
        for _ in range(80):
            link.send(b"\0" * (1 << 15))

    broker.on_transfer = serve
    with pytest.raises(ConnectionLostError, match="more than 1048576 octets in answer to a request"):
        connection.temporary()


def test_no_queue_takes_the_message(broker: Managed, connection: Connection) -> None:
    """Such a broker releases it. To a queue it was sent in vain; a topic without subscribers takes all."""
    broker.released |= {"/queues/gone", "/exchanges/amq.topic/news"}
    with pytest.raises(DestinationGoneError, match="there is no queue:gone"):
        connection.send(text(queue("gone"))).result(PATIENCE)
    connection.send(text(topic("news"))).result(PATIENCE)


def test_an_old_version() -> None:
    """It has other addresses: the error says which versions will do, unless the user says how to speak to it."""
    with Peer(product="RabbitMQ", version="3.13.7") as broker:
        with pytest.raises(
            ConnectionFailedError, match=r"is RabbitMQ 3\.13\.7, and soapjms speaks to version 4 and newer"
        ):
            brokers.connect(broker.url, timeout=PATIENCE, reconnect=False)
        with brokers.connect(f"{broker.url}?dialect=plain", timeout=PATIENCE) as connection:
            assert connection.capabilities.dialect == "plain"


def test_a_virtual_host_without_its_prefix(broker: Managed) -> None:
    """RabbitMQ would show its default one, and nobody would notice: it is refused."""
    with pytest.raises(UsageError, match=r"virtualHost must begin with vhost: at RabbitMQ, as vhost:bank, got 'bank'"):
        brokers.connect(f"{broker.url}?virtualHost=bank", timeout=PATIENCE)
    brokers.connect(f"{broker.url}?virtualHost=vhost:bank", timeout=PATIENCE).close()


def test_what_it_lacks(connection: Connection) -> None:
    """Transactions, selectors and durable subscriptions are refused at once."""
    for refused in (
        connection.begin,
        partial(connection.consume, queue("q"), print, selector="a = 1"),
        partial(connection.consume, topic("t"), print, durable_name="me"),
        partial(connection.temporary, DestinationKind.TEMPORARY_TOPIC),
    ):
        with pytest.raises(UnsupportedError):
            refused()


def arrive(broker: Managed, number: int, acquired: bool, message_id: str = "ID:1") -> Any:
    """Have a message of the queue `q` delivered, and return the peer's delivery."""
    link = broker.back[broker.attached[-1].name]
    sent: list[Any] = []

    def send() -> None:
        sent.append(link.delivery(f"{number}"))
        head = encode(AmqpSection.HEADER, [True, None, None, acquired])
        stated = encode(AmqpSection.PROPERTIES, [message_id, None, "/queues/q"])
        link.send(head + stated + encode(AmqpSection.VALUE, "x"))
        link.advance()

    broker.do(send)
    return sent[0]


@pytest.mark.parametrize(("acquired", "is_marked"), [(True, False), (False, True)])
def test_a_redelivery(broker: Managed, connection: Connection, acquired: bool, is_marked: bool) -> None:
    """A queue that does not count deliveries says only that the message had another acquirer before."""
    got: SimpleQueue[Any] = SimpleQueue()
    connection.consume(queue("q"), got.put)
    arrive(broker, 1, acquired)
    received = got.get(timeout=PATIENCE).message
    assert (received.redelivered, received.destination) == (is_marked, queue("q"))


def test_a_queue_that_does_not_count_deliveries(broker: Managed, connection: Connection) -> None:
    """A message that is released again and again becomes a dead letter; one that was accepted counts anew."""
    got: SimpleQueue[Any] = SimpleQueue()
    connection.consume(queue("q"), got.put)
    sent, states = [], list[int]()
    for number in range(2 + MAX_DELIVERIES):
        sent.append(arrive(broker, number, acquired=number in (0, 2)))
        delivery = got.get(timeout=PATIENCE)
        delivery.accept() if number == 1 else delivery.release()

    def has_all() -> bool:
        broker.do(lambda: states.__setitem__(slice(None), [each.remote_state for each in sent]))
        return all(states)

    wait_until(has_all, "each delivery is settled")
    modified = int(Delivery.MODIFIED)
    assert states == [modified, Delivery.ACCEPTED, *[modified] * (MAX_DELIVERIES - 1), Delivery.REJECTED]
