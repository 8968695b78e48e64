"""ActiveMQ Classic ends consumers and tells STOMP clients nothing: who serves hears of it all the same."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Event, RLock
from types import SimpleNamespace
from typing import Any

import pytest
from broker_recipes import Classic
from calling_kit import NS, PATIENCE, element, envelope, eventually, fresh, greeter, text_of
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from proxy_kit import Proxy, Way
from real_brokers import ChildBroker, RealBroker

import brokers
from brokers import Connection, queue, topic
from brokers.stomp.acknowledge import StompSubscription
from brokers.stomp.consumer import StompConsumer, StompDelivery
from brokers.stomp.dialect import ACTIVEMQ_CLASSIC
from brokers.stomp.roll import ENDED, Roll, read_advisory
from brokers.stomp.session import StompSession, SubscriptionRoute
from soapjms import Client, Dispatcher, Request, Service
from soapjms.prometheus import Metrics

WORKERS = 3
SLOW = (
    '<policyEntry queue="{}.&gt;"><slowConsumerStrategy><abortSlowAckConsumerStrategy checkPeriod="100" '
    'maxSlowDuration="100" maxTimeSinceLastAck="1000" ignoreIdleConsumers="{}" abortConnection="false"/>'
    "</slowConsumerStrategy></policyEntry>"
)
EVERYBODY = '<authorizationEntry topic="&gt;" read="users"'
IMPATIENT = {
    "<policyEntries>": "<policyEntries>" + SLOW.format("slow", "true") + SLOW.format("idle", "false"),
    EVERYBODY: EVERYBODY.replace("users", "admins"),
}
MUTE = "does not report ended consumers"


class Lean(Classic):
    """Without the library that writes advisories down for STOMP clients."""

    def command(self, home: str, files: str) -> list[str]:
        """Name each jar but one."""
        _, _, *rest = super().command(home, files)
        jars = [f"{home}/lib/{each.name}" for each in Path(home, "lib").glob("*.jar") if "jettison" not in each.name]
        return ["-cp", os.pathsep.join(jars), *rest]


@pytest.fixture(scope="module")
def impatient() -> Iterator[RealBroker]:
    """Run a broker that ends consumers: of `slow.` queues who is slow, of `idle.` queues who acknowledges nothing."""
    with ChildBroker(Classic(changes=IMPATIENT)) as broker:
        yield broker


@pytest.fixture(params=["stomp", "stomp with client id", "amqp"])
def connection(request: pytest.FixtureRequest, impatient: RealBroker) -> Iterator[Connection]:
    """Connect to it in each way; over AMQP it says itself that it ended a consumer."""
    url = {
        "stomp": impatient.stomp_url,
        "stomp with client id": f"{impatient.stomp_url}?clientId={fresh()}",
        "amqp": impatient.amqp_url,
    }[request.param]
    with brokers.connect(url) as made:
        yield made


class Held:
    """Middleware that keeps the first request until the test lets it go."""

    def __init__(self) -> None:
        self.begun, self.go_on = Event(), Event()

    def __call__(self, request: Any, call_next: Callable[[Any], Any]) -> Any:
        """Keep a request that is the first."""
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
        return call_next(request)


@pytest.mark.broker
class TestDispatcher:
    """A broker that ends the consumers of those who are slow."""

    @pytest.mark.parametrize("transactional", [True, False], ids=["transactions", "without"])
    def test_slow(self, impatient: RealBroker, connection: Connection, transactional: bool) -> None:
        """Whose consumer was ended is not ready, says why, and serves again; nobody else is alarmed."""
        name, held, registry = f"slow.{fresh()}", Held(), CollectorRegistry()
        uri, labels = f"jms:queue:{name}", {"destination": f"queue:{name}"}
        with (
            brokers.connect(impatient.amqp_url) as asking,
            brokers.connect(impatient.stomp_url) as beside,
            Client(asking, uri, timeout=PATIENCE) as client,
            Dispatcher(
                connection,
                uri,
                greeter(),
                workers=WORKERS,
                middleware=[held],
                observer=Metrics(registry),
                transactional=transactional,
            ) as dispatcher,
        ):
            assert dispatcher.health().ready
            asked = client.submit(envelope("one"))
            assert held.begun.wait(PATIENCE)
            with Dispatcher(beside, uri, greeter(), workers=1) as other:
                eventually(lambda: "1 of 3 subscriptions" in dispatcher.health().problem, "it is told")
                assert other.health().ready
                assert other.subscriptions == (1, 1)
            assert dispatcher.health().live
            assert text_of(asked.result(PATIENCE)) == "Hello one"  # another worker got it
            for number in range(50):
                assert text_of(client.call(envelope(f"{number}"))) == f"Hello {number}"
            # Else a request would wait behind what is held. A broker on a busy machine ends others too, for a moment.
            eventually(lambda: dispatcher.subscriptions == (WORKERS - 1, WORKERS), "all others are there")
            held.go_on.set()
            eventually(lambda: dispatcher.health().ready, "it is ready again")
            eventually(lambda: impatient.counters().consumers.get(name) == WORKERS, "every worker has a consumer")
            assert [text_of(client.call(envelope(f"{number}"))) for number in range(9)] == [
                f"Hello {number}" for number in range(9)
            ]
            told = partial(registry.get_sample_value, "soapjms_service_subscriptions", labels)
            eventually(lambda: told() == WORKERS, "the metrics say so too")
            assert connection.generation == 1

    @pytest.mark.parametrize("transactional", [True, False], ids=["transactions", "without"])
    def test_slow_with_a_store(
        self, impatient: RealBroker, connection: Connection, transactional: bool, tmp_path: Path
    ) -> None:
        """What it works on is delivered again, and waits for the end of the first run: there is no second."""
        uri, held, runs = f"jms:queue:slow.{fresh()}", Held(), list[str]()
        service = Service()

        @service.operation(f"{{{NS}}}greetMe")
        def greet(request: Request) -> Any:
            runs.append(request.element.text or "")
            return held(request, lambda _: element("greetMeResponse", f"Hello {runs[-1]}"))

        with (
            brokers.connect(impatient.amqp_url) as asking,
            Client(asking, uri, timeout=PATIENCE) as client,
            Dispatcher(
                connection,
                uri,
                service,
                workers=WORKERS,
                store=tmp_path / "requests.db",
                transactional=transactional,
            ) as dispatcher,
        ):
            asked = client.submit(envelope("one"))
            assert held.begun.wait(PATIENCE)
            eventually(lambda: not dispatcher.health().ready, "it is told")
            held.go_on.set()
            assert text_of(asked.result(PATIENCE)) == "Hello one"
            eventually(lambda: dispatcher.health().ready, "it is ready again")
            assert text_of(client.call(envelope("two"))) == "Hello two"
        assert runs == ["one", "two"]

    def test_idle(self, impatient: RealBroker, connection: Connection) -> None:
        """One that has nothing to do loses its consumers again and again, and is never deaf."""
        name, ended = f"idle.{fresh()}", list[str]()
        with (
            brokers.connect(impatient.stomp_url) as other,
            connection.consume(brokers.queue(name), lambda delivery: delivery.accept(), on_problem=ended.append),
        ):
            for _ in range(2):
                before = len(ended)
                eventually(lambda before=before: len(ended) > before and not ended[-1], "it was ended, and is there")  # type: ignore[misc]
                other.send(
                    brokers.Message(message_type=brokers.MessageType.TEXT, body="x", destination=brokers.queue(name))
                ).result(PATIENCE)
                eventually(lambda: name not in impatient.counters().messages, "it was taken")
        assert connection.generation == 1

    def test_without_the_right(
        self, impatient: RealBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Who may not listen to advisories is as ready as ever, and its connection and its calls are none the worse."""
        caplog.set_level(logging.INFO)
        serves_untold(impatient.stomp_url.replace("admin", "limited"), caplog, monkeypatch)


@pytest.mark.broker
@pytest.mark.parametrize(
    "recipe",
    [Lean(), Classic(changes={'useJmx="true"': 'useJmx="true" advisorySupport="false"'})],
    ids=["lean", "mute"],
)
def test_a_broker_that_tells_nothing(
    recipe: Classic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left alone after a while, and all else is as ever."""
    caplog.set_level(logging.INFO)
    with ChildBroker(recipe) as broker:
        serves_untold(broker.stomp_url, caplog, monkeypatch)


def serves_untold(url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """See that a service answers and is ready where nothing is told of its consumers, and that the log says so once."""
    monkeypatch.setattr("brokers.stomp.roll.ADVISORY_SECONDS", 0.5)
    uri = f"jms:queue:limited.{fresh()}"
    with (
        brokers.connect(url) as connection,
        brokers.connect(url) as asking,
        Dispatcher(connection, uri, greeter(), workers=WORKERS) as dispatcher,
        Client(asking, uri, timeout=PATIENCE) as client,
    ):
        assert text_of(client.call(envelope("one"))) == "Hello one"
        eventually(lambda: MUTE in caplog.text, "it is known that nothing will be told")
        assert dispatcher.health().ready
        assert text_of(client.call(envelope("two"))) == "Hello two"
        assert (connection.generation, asking.generation) == (1, 1)
        assert caplog.text.count(MUTE) == 1
        said = [each for each in caplog.records if each.name == "brokers.stomp.roll" and each.levelno > logging.INFO]
        assert all(MUTE in each.message for each in said)


@pytest.mark.broker
def test_after_a_reconnect(impatient: RealBroker) -> None:
    """In the next session it listens again; to a topic as to a queue."""
    ended = list[str]()
    with brokers.connect(impatient.stomp_url) as connection:
        connection.consume(topic(fresh()), lambda delivery: None)
        connection.consume(brokers.queue(f"idle.{fresh()}"), lambda delivery: None, on_problem=ended.append)
        connection._link.drop()  # type: ignore[attr-defined]
        eventually(lambda: connection.generation == 2, "it is connected again")
        eventually(lambda: ended.count(ENDED) > 1, "it is told")


@pytest.mark.broker
def test_what_is_due_in_a_reconnect(impatient: RealBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message whose time to go back comes while consumers are made to go on spoils no numbers of the new session."""
    got, told = SimpleQueue[brokers.Delivery](), list[tuple[int, str]]()
    name = f"idle.{fresh()}"
    with brokers.connect(impatient.stomp_url) as connection:
        connection.consume(brokers.queue(f"other.{fresh()}"), lambda delivery: None)
        consumer = connection.consume(
            brokers.queue(name), got.put, on_problem=lambda why: told.append((connection.generation, why))
        )
        body = brokers.Message(message_type=brokers.MessageType.TEXT, body="x", destination=brokers.queue(name))
        connection.send(body).result(PATIENCE)
        held = got.get(timeout=PATIENCE)
        assert isinstance(held, StompDelivery)
        assert isinstance(consumer, StompConsumer)
        go_on = consumer.go_on

        def go_on_after_that(link: StompSession, generation: int) -> None:
            consumer._give_back(held.arrival)
            go_on(link, generation)

        monkeypatch.setattr(consumer, "go_on", go_on_after_that)
        connection._link.drop()  # type: ignore[attr-defined]
        eventually(lambda: (2, ENDED) in told, "it is told in the new session")


@pytest.mark.broker
class TestSilence:
    """Where nothing is told, or late."""

    @pytest.mark.parametrize("is_watched", [True, False])
    def test_heard_late(
        self,
        impatient: RealBroker,
        is_watched: bool,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A broker that was slow to tell, as one that was paused: from then on all is told; a warning where it counts.

        And what is not told of one destination takes nothing from another.
        """
        caplog.set_level(logging.INFO)
        monkeypatch.setattr("brokers.stomp.roll.ADVISORY_SECONDS", 0.3)
        late, before, told = f"idle.{fresh()}", f"idle.{fresh()}", {"late": list[str](), "before": list[str]()}
        with (
            Proxy(impatient.host, impatient.ports.stomp) as proxy,
            brokers.connect(proxy.stomp_url) as connection,
            ThreadPoolExecutor(1) as pool,
        ):
            connection.consume(brokers.queue(before), lambda delivery: None, on_problem=told["before"].append)
            proxy.silence(Way.DOWN)
            asked = pool.submit(
                connection.consume,
                brokers.queue(late),
                lambda delivery: None,
                on_problem=told["late"].append if is_watched else None,
            )
            eventually(lambda: f"{MUTE}, on ActiveMQ.Advisory.Consumer.Queue.{late}" in caplog.text, "it is missed")
            (record,) = [
                each for each in caplog.records if f"{MUTE}, on ActiveMQ.Advisory.Consumer.Queue.{late}" in each.message
            ]
            assert record.levelno == (logging.WARNING if is_watched else logging.INFO)
            proxy.speak()
            asked.result(PATIENCE)
            eventually(lambda: "after all" in caplog.text, "it was heard")
            eventually(lambda: ENDED in told["before"], "the other one is told")
            eventually(lambda: not is_watched or ENDED in told["late"], "it is told")
            assert connection.generation == 1

    def test_own_name_unknown(
        self, impatient: RealBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What is told of others, whose numbers may be the same, is not taken for ours: the log says that it is so."""
        monkeypatch.setattr("brokers.stomp.roll.ADVISORY_SECONDS", 0.5)
        monkeypatch.setattr("brokers.stomp.roll.SENDER", re.compile("(un)readable"))
        name, told = fresh(), list[str]()
        with (
            brokers.connect(f"{impatient.stomp_url}?clientId={fresh()}") as connection,
            brokers.connect(impatient.stomp_url) as stranger,
            connection.consume(brokers.queue(name), lambda delivery: None, on_problem=told.append),
        ):
            for _ in range(4):
                stranger.consume(brokers.queue(name), lambda delivery: None).close()
            eventually(lambda: "the broker's name of this session is not known" in caplog.text, "it is known")
            assert told == []


class Noted:
    """A session that notes what is written, as command and `id`."""

    def __init__(self) -> None:
        self.writing, self.dialect, self.session, self.is_up = RLock(), ACTIVEMQ_CLASSIC, "ID:vm-1-2-3:2", True
        self.login = SimpleNamespace(client_id=None)
        self.routes: dict[str, SubscriptionRoute] = {}
        self.unroute = self.routes.pop
        self.written: list[tuple[str, str]] = []

    def route(self, subscription: str, route: SubscriptionRoute) -> None:
        self.routes[subscription] = route

    def request(self, data: bytes, receipts: Any) -> None:
        command, *lines = data.decode().split("\n")
        self.written.append((command, next(line for line in lines if line.startswith("id:")).removeprefix("id:")))


def test_queues_that_come_and_go() -> None:
    """Of a queue that nobody here consumes from any more, no advisories are asked for; of one with a consumer, all."""
    link, numbers, planned, doubts = Noted(), count(1), list[Callable[[], None]](), list[str]()
    session: Any = link
    roll = Roll(session, lambda what: f"{what}-{next(numbers)}", lambda seconds, function: planned.append(function))

    def enrol(name: str) -> None:
        roll.enrol(StompSubscription(name, session, 1), queue(name), doubts.append, is_watched=False)

    def ended(number: int) -> None:
        consumer = {"connectionId": link.session, "value": number}
        for route in list(link.routes.values()):
            route.receive({}, json.dumps({"RemoveInfo": {"objectId": consumer}}).encode())

    def pass_time() -> None:
        while planned:
            planned.pop()()

    enrol("orders")  # consumers 1, of the advisories, and 2
    enrol("orders")  # 3
    ended(2)
    pass_time()
    assert link.written == [("SUBSCRIBE", "roll-1")]
    ended(3)
    enrol("orders")  # 4, before the time has passed
    pass_time()
    assert link.written == [("SUBSCRIBE", "roll-1")]
    ended(4)
    pass_time()
    assert link.written == [("SUBSCRIBE", "roll-1"), ("UNSUBSCRIBE", "roll-1")]
    assert not link.routes
    enrol("orders")  # 5, of the advisories, and 6
    ended(6)
    assert link.written[2:] == [("SUBSCRIBE", "roll-3")]
    assert doubts == [ENDED] * 4


class TestReadAdvisory:
    """What the broker writes."""

    def test_read(self) -> None:
        """Who came or went."""
        added = (
            b'{"ConsumerInfo":{"commandId":6,"consumerId":{"connectionId":"ID:vm-1-2-3:2","sessionId":-1,"value":2},'
            b'"destination":{"@class":"ActiveMQQueue","string":"q"},"prefetchSize":1}}'
        )
        removed = (
            b'{"RemoveInfo":{"commandId":0,"objectId":{"@class":"ConsumerId","connectionId":"ID:vm-1-2-3:2",'
            b'"sessionId":-1,"value":2},"lastDeliveredSequenceId":-2}}'
        )
        assert read_advisory(added) == ("ConsumerInfo", "ID:vm-1-2-3:2", 2)
        assert read_advisory(removed) == ("RemoveInfo", "ID:vm-1-2-3:2", 2)

    @pytest.mark.parametrize(
        "body",
        [
            *(b"", b"\xff", b"[]", b"{}", b'{"RemoveInfo":3}', b'{"RemoveInfo":{}}', b"[" * 9999),
            *(b'{"RemoveInfo":{"objectId":{"connectionId":"x","value":%b}}}' % each for each in (b"1e999", b"NaN")),
        ],
    )
    def test_nothing(self, body: bytes) -> None:
        """What is something else says nothing."""
        assert read_advisory(body) == ("", "", 0)

    @given(st.binary())
    def test_never_raises(self, body: bytes) -> None:
        """Whatever arrives."""
        read_advisory(body)
