"""Subscriptions that a broker ends while the connection lives: they are made again, and nobody is deaf in silence."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
from calling_kit import PATIENCE, envelope, eventually, fresh, greeter, text_of
from prometheus_client import CollectorRegistry
from real_brokers import RealBroker

import brokers
from brokers import Connection, Message, MessageType, queue, topic
from soapjms import CallFailedError, Client, Dispatcher
from soapjms.observing import Observer, Place
from soapjms.prometheus import Metrics

WORKERS = 3
PAUSE = 4.0
"""Seconds for which a subscription stays away in these tests, so that it is seen to on a busy machine."""


class Slow:
    """Pauses between attempts that are long enough to be seen."""

    def pause(self, failed: int, *, is_silent: bool) -> float:
        """Return the same pause each time."""
        return PAUSE


class Noted(Observer):
    """Notes how many subscriptions more there are, and why fewer."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, str]] = []

    def subscriptions_changed(self, place: Place, change: int, problem: str) -> None:
        """Note it."""
        self.changes.append((change, problem))


@pytest.fixture(params=["stomp", "amqp"])
def protocol(request: pytest.FixtureRequest) -> str:
    """The way to the broker."""
    name: str = request.param
    return name


@pytest.fixture
def connection(artemis: RealBroker, protocol: str) -> Iterator[Connection]:
    """Connect to Artemis: who consumes from a queue of ActiveMQ Classic that is deleted goes on with the next one."""
    with brokers.connect(getattr(artemis, f"{protocol}_url")) as made:
        yield made


def text(name: str, body: str) -> Message:
    """Make a message to a queue."""
    return Message(message_type=MessageType.TEXT, body=body, destination=queue(name))


@pytest.mark.broker
class TestDispatcher:
    """An operator deletes the queue that is served."""

    def test_it_serves_again(
        self, artemis: RealBroker, connection: Connection, protocol: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Meanwhile it is not ready, the observers are told, and a request that comes then is answered afterwards."""
        monkeypatch.setattr("brokers.adapter.consumer.RENEWAL", Slow(), raising=False)
        name, noted, registry = fresh(), Noted(), CollectorRegistry()
        observers = [noted, Metrics(registry)]
        labels = {"destination": f"queue:{name}"}
        with (
            brokers.connect(getattr(artemis, f"{protocol}_url")) as other,
            Client(other, f"jms:queue:{name}", timeout=PATIENCE) as client,
            Dispatcher(connection, f"jms:queue:{name}", greeter(), workers=WORKERS, observer=observers) as dispatcher,
        ):
            assert text_of(client.call(envelope("one"))) == "Hello one"
            assert dispatcher.subscriptions == (WORKERS, WORKERS)
            eventually(lambda: dispatcher.under_way == 0, "it is committed, or Artemis fails at the deletion")
            artemis.delete_queue(name)
            eventually(lambda: dispatcher.subscriptions == (0, WORKERS), "the subscriptions have ended")
            health = dispatcher.health()
            assert (health.ready, health.live) == (False, True)
            assert "3 of 3 subscriptions" in health.problem
            told = partial(registry.get_sample_value, "soapjms_service_subscriptions", labels)
            eventually(lambda: told() == 0, "the metrics say so too")
            asked = client.submit(envelope("two"))
            eventually(lambda: dispatcher.health().ready, "it is ready again")
            assert text_of(asked.result(PATIENCE)) == "Hello two"
            eventually(lambda: artemis.counters().consumers.get(name) == WORKERS, "every worker has a subscription")
            assert [text_of(client.call(envelope(f"{number}"))) for number in range(9)] == [
                f"Hello {number}" for number in range(9)
            ]
            eventually(lambda: told() == WORKERS, "the metrics say so too")
            assert connection.generation == 1
        assert sum(change for change, _ in noted.changes) == 0
        assert all(problem for change, problem in noted.changes if change < 0)

    @pytest.mark.parametrize("workers", [1, WORKERS])
    def test_closed_by_an_operator(self, artemis: RealBroker, connection: Connection, workers: int) -> None:
        """Whose consumer an operator closes has another, and none is left that takes messages from it."""
        name = fresh()
        with (
            brokers.connect(artemis.amqp_url) as other,
            Client(other, f"jms:queue:{name}", timeout=PATIENCE) as client,
            Dispatcher(connection, f"jms:queue:{name}", greeter(), workers=workers) as dispatcher,
        ):
            assert text_of(client.call(envelope("one"))) == "Hello one"
            artemis.close_consumer(name)
            futures = [client.submit(envelope(f"{number}")) for number in range(20)]
            for number, future in enumerate(futures):
                assert text_of(future.result(PATIENCE)) == f"Hello {number}"
            eventually(lambda: dispatcher.health().ready, "it is ready")
            eventually(lambda: artemis.counters().consumers.get(name) == workers, "every worker has one consumer")

    def test_again_and_again(self, artemis: RealBroker, connection: Connection) -> None:
        """However often: no consumer is missed, and none is there twice."""
        name, got = fresh(), SimpleQueue[object]()
        for _ in range(WORKERS):
            connection.consume(queue(name), lambda delivery: (got.put(delivery.message.body), delivery.accept())[0])
        for number in range(5):
            artemis.delete_queue(name)
            eventually(lambda: artemis.counters().consumers.get(name) == WORKERS, "all are there again")
            connection.send(text(name, f"{number}")).result(PATIENCE)
            assert got.get(timeout=PATIENCE) == f"{number}"


@pytest.mark.broker
def test_over_websocket(artemis: RealBroker) -> None:
    """It serves again there too, in the same session."""
    name = fresh()
    with (
        brokers.connect(artemis.ws_url) as connection,
        brokers.connect(artemis.amqp_url) as other,
        Client(other, f"jms:queue:{name}", timeout=PATIENCE) as client,
        Dispatcher(connection, f"jms:queue:{name}", greeter(), workers=WORKERS) as dispatcher,
    ):
        assert text_of(client.call(envelope("one"))) == "Hello one"
        artemis.delete_queue(name)
        assert text_of(client.call(envelope("two"))) == "Hello two"
        eventually(lambda: dispatcher.health().ready, "it is ready again")
        eventually(lambda: artemis.counters().consumers.get(name) == WORKERS, "every worker has a subscription")
        assert connection.generation == 1


@pytest.mark.broker
class TestConsumer:
    """What a consumer says of itself."""

    def test_told_in_order(self, artemis: RealBroker, connection: Connection) -> None:
        """`on_problem` hears why it ended and that it lives again; `problem` says the same."""
        name, told = fresh(), SimpleQueue[str]()
        with connection.consume(queue(name), lambda delivery: None, on_problem=told.put) as consumer:
            assert consumer.problem == ""
            artemis.delete_queue(name)
            assert "deleted" in told.get(timeout=PATIENCE)
            assert told.get(timeout=PATIENCE) == ""
            assert consumer.problem == ""

    def test_one_of_several_topics(self, artemis: RealBroker, connection: Connection) -> None:
        """Whose subscription to a topic was ended alone gets another one; the others lose nothing."""
        name = fresh("topic")
        got = [SimpleQueue[object]() for _ in range(3)]
        told = [SimpleQueue[str]() for _ in range(3)]
        for inbox, problems in zip(got, told, strict=True):
            connection.consume(
                topic(name),
                lambda delivery, inbox=inbox: inbox.put(delivery.message.body),  # type: ignore[misc]
                on_problem=problems.put,
                auto_accept=True,
            )
        queues = artemis.queues_of(name)
        assert len(queues) == 3
        artemis.delete_queue(queues[0])
        eventually(lambda: len(artemis.queues_of(name)) == 3, "there are three again")
        assert set(queues[1:]) < set(artemis.queues_of(name))
        connection.send(Message(message_type=MessageType.TEXT, body="news", destination=topic(name))).result(PATIENCE)
        assert [inbox.get(timeout=PATIENCE) for inbox in got] == ["news"] * 3

    def test_closed_meanwhile(
        self, artemis: RealBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that is closed before is not made again."""
        monkeypatch.setattr("brokers.adapter.consumer.RENEWAL", Slow(), raising=False)
        name, other = fresh(), fresh()
        ended, renewed = Event(), Event()
        consumer = connection.consume(queue(name), lambda delivery: None, on_problem=lambda problem: ended.set())
        connection.consume(
            queue(other), lambda delivery: None, on_problem=lambda problem: None if problem else renewed.set()
        )
        artemis.delete_queue(name)
        assert ended.wait(PATIENCE)
        consumer.close()
        artemis.delete_queue(other)
        assert renewed.wait(PATIENCE)  # and as long after the first one
        assert name not in artemis.counters().consumers


@pytest.mark.broker
@pytest.mark.parametrize("profile", ["rec-2012", "cr-2009"])
class TestClient:
    """An operator deletes the queue to which a client's replies come: for all calls, or for each."""

    def test_not_deaf(self, artemis: RealBroker, connection: Connection, profile: str, protocol: str) -> None:
        """The call under way fails at once and says why; the next has another destination."""
        name, asked, answer = fresh(), Event(), Event()

        def hold(request: Any, call_next: Any) -> Any:
            asked.set()
            answer.wait(PATIENCE)
            return call_next(request)

        with (
            brokers.connect(getattr(artemis, f"{protocol}_url")) as other,
            Dispatcher(other, f"jms:queue:{name}", greeter(), profile=profile, middleware=[hold]),
            Client(connection, f"jms:queue:{name}", profile=profile, timeout=PATIENCE) as client,
        ):
            future = client.submit(envelope("one"))
            assert asked.wait(PATIENCE)
            (call,) = client._calls.all()
            assert call.reply_to is not None
            place = call.reply_to.name or call.reply_to.address or ""
            for each in artemis.queues_of(place):
                artemis.delete_queue(each)
            with pytest.raises(CallFailedError, match="the broker ended the destination of the replies") as caught:
                future.result(PATIENCE)
            assert "whether the service works on the request is not known" in str(caught.value)
            answer.set()
            assert text_of(client.call(envelope("two"))) == "Hello two"
