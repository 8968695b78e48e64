"""Subscriptions that an SMQP server ends, as when an administrator removes the topic: told, and made again."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
from calling_kit import PATIENCE, envelope, eventually, fresh, greeter, text_of
from smqp_kit import Running, prepared, running

import brokers
from brokers import Connection, Destination, Message, MessageType, queue
from brokers.smqp.adapter.consumer import SmqpConsumer
from brokers.smqp.adapter.messages import topic_of
from brokers.smqp.client import ClientOptions
from brokers.smqp.server import Right, TopicKind
from soapjms import CallFailedError, Client, Dispatcher

OPTIONS = ClientOptions(check=0.05, renew=(0.02, 0.1))


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server of one's own, prepared for JMS, with an account that may remove any topic."""
    with running() as server:
        server.accounts("admin", is_admin=True)
        yield server


@pytest.fixture
def url(server: Running) -> str:
    """Say where it is."""
    return prepared(server)


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """Connect, and look often whether subscriptions are there."""
    with brokers.connect(url, options=OPTIONS) as made:
        yield made


@pytest.fixture
def other(url: str) -> Iterator[Connection]:
    """Connect once more."""
    with brokers.connect(url, options=OPTIONS) as made:
        yield made


def remove(server: Running, topic: str) -> None:
    """Remove a topic, as an administrator may."""
    assert server.client("admin", listen=False).code(f"REMOVE TOPIC {topic}") == 200


def send(connection: Connection, destination: Destination, body: str) -> None:
    """Send a text."""
    connection.send(Message(message_type=MessageType.TEXT, body=body, destination=destination)).result(PATIENCE)


def test_a_queue_is_made_again(server: Running, connection: Connection, other: Connection) -> None:
    """Who consumes from it is told twice, and gets what comes to the next one of that name."""
    name, got, told = fresh(), SimpleQueue[object](), SimpleQueue[str]()
    with connection.consume(
        queue(name), lambda delivery: got.put(delivery.message.body), auto_accept=True, on_problem=told.put
    ) as consumer:
        for number in range(3):
            remove(server, topic_of(queue(name)))
            assert "404" in told.get(timeout=PATIENCE)
            assert told.get(timeout=PATIENCE) == ""
            assert consumer.problem == ""
            send(other, queue(name), f"{number}")
            assert got.get(timeout=PATIENCE) == f"{number}"


def test_a_topic_of_smqp_is_waited_for(server: Running, connection: Connection, other: Connection) -> None:
    """It is not ours to make: a dispatcher is not ready until it is there again, and then serves."""
    server.topics("/bank", kind=TopicKind.QUEUE)
    server.grant("jms", "/bank", Right.ALL)
    with (
        Dispatcher(connection, "jms:queue:%2Fbank", greeter(), workers=1) as dispatcher,
        Client(other, "jms:queue:%2Fbank", timeout=PATIENCE) as client,
    ):
        assert text_of(client.call(envelope("one"))) == "Hello one"
        remove(server, "/bank")
        eventually(lambda: "1 of 1 subscriptions" in dispatcher.health().problem, "it is told")
        assert dispatcher.health().live
        assert dispatcher.subscriptions == (0, 1)
        server.topics("/bank", kind=TopicKind.QUEUE)
        server.grant("jms", "/bank", Right.ALL)
        eventually(lambda: dispatcher.health().ready, "it is ready again")
        assert text_of(client.call(envelope("two"))) == "Hello two"


def test_removed_while_its_session_was_away(server: Running, connection: Connection, other: Connection) -> None:
    """What cannot be subscribed to again by the next session, is made again."""
    name, got, told = fresh(), SimpleQueue[object](), SimpleQueue[str]()
    consumer = connection.consume(
        queue(name), lambda delivery: got.put(delivery.message.body), auto_accept=True, on_problem=told.put
    )
    assert isinstance(consumer, SmqpConsumer)
    with consumer.session.lock:  # which keeps it from looking
        remove(server, topic_of(queue(name)))
        consumer.session._line.close()
    assert told.get(timeout=PATIENCE)
    eventually(lambda: not consumer.problem, "it is there again")
    send(other, queue(name), "news")
    assert got.get(timeout=PATIENCE) == "news"


def test_replies(server: Running, connection: Connection, other: Connection) -> None:
    """The queue of a client's replies is removed: the call fails at once, and the next has another."""
    name, asked, answer = fresh(), Event(), Event()

    def hold(request: Any, call_next: Any) -> Any:
        asked.set()
        answer.wait(PATIENCE)
        return call_next(request)

    with (
        Dispatcher(other, f"jms:queue:{name}", greeter(), middleware=[hold]),
        Client(connection, f"jms:queue:{name}", timeout=PATIENCE) as client,
    ):
        future = client.submit(envelope("one"))
        assert asked.wait(PATIENCE)
        (call,) = client._calls.all()
        assert call.reply_to is not None
        remove(server, topic_of(call.reply_to))
        with pytest.raises(CallFailedError, match="the broker ended the destination of the replies"):
            future.result(PATIENCE)
        answer.set()
        assert text_of(client.call(envelope("two"))) == "Hello two"


def test_nothing_is_told_of_what_is_well(connection: Connection, other: Connection) -> None:
    """However often it looks; and one that is closed is subscribed to nothing."""
    name, got, told = fresh(), SimpleQueue[object](), list[str]()
    with connection.consume(
        queue(name), lambda delivery: (got.put(delivery.message.body), delivery.accept())[0], on_problem=told.append
    ):
        for number in range(50):
            send(other, queue(name), f"{number}")
            assert got.get(timeout=PATIENCE) == f"{number}"
    assert told == []
