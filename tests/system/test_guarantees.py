"""Rows of docs/guarantees.md in each of its columns: with and without transactions, with and without a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple, Self

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Peers,
    Wrapped,
    element,
    envelope,
    eventually,
    fresh,
    request_message,
    take_one,
    text_of,
)
from faulty_kit import no_executor
from lxml import etree
from proxy_kit import Proxy
from real_brokers import RealBroker, start_activemq

from brokers import (
    BrokerError,
    Completion,
    Connection,
    ConnectionState,
    Message,
    SendResult,
    Transaction,
    connect,
    queue,
)
from brokers.embedded import Broker
from soapjms import CallFailedError, Client, Dispatcher, Policy, Request, Response, Service, SqliteStore
from soapjms.protocol import xml

GREET: Final = f"{{{NS}}}greetMe"
DEAD: Final = queue("DLQ.greeter")
ANSWERS: Final = queue("answers")

HOUR: Final = 3600.0

SILENCE: Final = {"stomp": "heartbeat=500", "amqp": "idle=1000"}
"""In the URL of each protocol: how many milliseconds the network may be silent."""

ROOM: Final = 6
"""Messages that a queue of the broker takes."""


class Column(NamedTuple):
    """One of the four combinations."""

    transactional: bool
    is_stored: bool


COLUMNS: Final = {
    "transactions and store": Column(True, True),
    "transactions": Column(True, False),
    "store": Column(False, True),
    "neither": Column(False, False),
}


class Scene(Peers):
    """A client, a service that a test starts as often as it likes, and what its function was run with."""

    @pytest.fixture
    def broker(self) -> Broker:
        return Broker("guarantees", max_messages=ROOM)

    @pytest.fixture(params=COLUMNS.values(), ids=COLUMNS)
    def column(self, request: pytest.FixtureRequest) -> Column:
        found: Column = request.param
        return found

    @pytest.fixture
    def runs(self) -> list[str]:
        return []

    @pytest.fixture
    def serve(self, column: Column, tmp_path: Path, other: Connection) -> Callable[..., Any]:
        """Start a service; its store is the same file each time, and `grace` the seconds for what it works on."""

        @contextmanager
        def started(
            service: Service, connection: Connection = other, grace: float = 10.0, **options: Any
        ) -> Iterator[Dispatcher]:
            store = SqliteStore(tmp_path / "requests.db", clock=lambda: time.time()) if column.is_stored else None
            dispatcher = Dispatcher(
                connection, URI, service, store=store, transactional=column.transactional, **options
            )
            dispatcher.start()
            try:
                yield dispatcher
            finally:
                dispatcher.close(grace)
            if store is not None:
                store.close()

        return started


def greeter(runs: list[str], meanwhile: Callable[[str], object] = lambda name: None, **options: Any) -> Service:
    """Make a service that notes whom it greets."""
    service = Service()

    @service.operation(GREET, **options)
    def greet(request: Request) -> etree._Element:
        runs.append(request.element.text or "")
        meanwhile(runs[-1])
        return element("greetMeResponse", f"Hello {request.element.text}")

    return service


class TestEnd(Scene):
    """A service that is told to end."""

    def test_within_its_grace(self, client: Client, serve: Callable[..., Any], runs: list[str], broker: Broker) -> None:
        """It answers what it works on; what waits is the next one's, and each runs once."""
        begun, go_on = Event(), Event()

        def work(name: str) -> None:
            begun.set()
            assert go_on.wait(PATIENCE)

        with serve(greeter(runs, work), workers=1) as dispatcher:
            first, second = client.submit(envelope("Ann")), client.submit(envelope("Bob"))
            assert begun.wait(PATIENCE)
            ended: list[bool] = []
            closing = Thread(target=lambda: ended.append(dispatcher.close(PATIENCE)))
            closing.start()
            eventually(lambda: "closed" in dispatcher.health().problem, "it ends")
            go_on.set()
            closing.join(PATIENCE)
            assert ended == [True]
        assert text_of(first.result(PATIENCE)) == "Hello Ann"
        assert runs == ["Ann"]
        with broker.connect() as connection, serve(greeter(runs), connection):
            assert text_of(second.result(PATIENCE)) == "Hello Bob"
        assert runs == ["Ann", "Bob"]

    def test_beyond_its_grace(self, client: Client, serve: Callable[..., Any], runs: list[str], broker: Broker) -> None:
        """What is not finished by then is the next one's; of the first run nothing is sent."""
        begun, go_on = Event(), Event()

        def work(name: str) -> None:
            begun.set()
            assert go_on.wait(PATIENCE)

        with broker.connect() as connection, serve(greeter(runs, work), connection) as dispatcher:
            future = client.submit(envelope("Ann"))
            assert begun.wait(PATIENCE)
            assert not dispatcher.close(0.05)
            go_on.set()
        with broker.connect() as connection, serve(greeter(runs), connection):
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        assert runs == ["Ann", "Ann"]
        assert not client.counts


class TestFunction(Scene):
    """A function that fails, or never returns."""

    def test_fails(self, client: Client, serve: Callable[..., Any], runs: list[str], broker: Broker) -> None:
        """It is tried again; then its caller has a fault, and the request is a dead letter by its policy."""

        def fail(name: str) -> None:
            raise ValueError(name)

        service = greeter(runs, fail, policy=Policy(retries=2, pause=0.0, then="dead-letter"))
        with serve(service) as dispatcher:
            fault = client.call(envelope("Ann")).fault
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            eventually(lambda: dispatcher.under_way == 0, "it was settled")
        assert fault is not None
        assert fault.reason == "the service failed"
        assert runs == ["Ann"] * 3
        assert broker.depth(GREETER) == 0

    def test_fails_one_way(self, client: Client, serve: Callable[..., Any], runs: list[str], broker: Broker) -> None:
        """Nobody would have a fault: it is a dead letter."""

        def fail(name: str) -> None:
            raise ValueError(name)

        with serve(greeter(runs, fail)) as dispatcher:
            client.send(envelope("Ann"))
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            eventually(lambda: dispatcher.under_way == 0, "it was settled")
        assert broker.depth(GREETER) == 0

    def test_never_returns(self, client: Client, serve: Callable[..., Any], runs: list[str], broker: Broker) -> None:
        """The other workers go on."""
        begun, go_on = Event(), Event()

        def work(name: str) -> None:
            if name == "Ann":
                begun.set()
                assert go_on.wait(PATIENCE)

        with broker.connect() as connection, serve(greeter(runs, work), connection, workers=2) as dispatcher:
            future = client.submit(envelope("Ann"))
            assert begun.wait(PATIENCE)
            for _ in range(10):
                assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
            health = dispatcher.health()
            assert (health.ready, health.under_way) == (True, 1)
            go_on.set()
            assert text_of(future.result(PATIENCE)) == "Hello Ann"


class TestPoison(Scene):
    """A request that ends each service that works on it."""

    @pytest.mark.parametrize("when", ["at work", "reads it"])
    def test_dead_letter(
        self,
        client: Client,
        serve: Callable[..., Any],
        runs: list[str],
        broker: Broker,
        when: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """After `max_deliveries` it is a dead letter, and its caller has a fault; others are answered."""
        future, never = client.submit(envelope("Ann")), Event()
        for tries in (1, 2):
            connection, died = broker.connect(), Event()

            def die(name: str, connection: Connection = connection, died: Event = died) -> None:
                connection.close(0.0)
                died.set()
                assert never.wait(PATIENCE)

            def parse(document: bytes, *rest: Any, die: Callable[[str], None] = die) -> Any:
                if b"Ann" in document:
                    die("Ann")
                return xml.parse_utf8(document, *rest)

            if when == "reads it":
                monkeypatch.setattr("soapjms.protocol.received_message.parse_utf8", parse)
            with serve(greeter(runs, die), connection, grace=0.0, max_deliveries=2, workers=1) as dispatcher:
                assert died.wait(PATIENCE)
                assert not dispatcher.close(0.0)
            monkeypatch.undo()
            assert runs == (["Ann"] * tries if when == "at work" else [])
        with broker.connect() as connection, serve(greeter(runs), connection, max_deliveries=2) as dispatcher:
            fault = future.result(PATIENCE).fault
            assert fault is not None
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
            assert dispatcher.counts["poison"] == 1
        never.set()
        assert runs == [*(["Ann", "Ann"] if when == "at work" else []), "Bob"]


class TestMachine(Scene):
    """What fails is the machine of the service."""

    def test_want_of_memory(
        self, client: Client, serve: Callable[..., Any], runs: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The request goes back, and is answered once there is memory; others are meanwhile."""
        wanting = [1, 2]

        def parse(document: bytes, *rest: Any) -> Any:
            if b"Ann" in document and wanting:
                wanting.pop()
                raise MemoryError
            return xml.parse_utf8(document, *rest)

        monkeypatch.setattr("soapjms.protocol.received_message.parse_utf8", parse)
        with serve(greeter(runs), workers=1) as dispatcher:
            future = client.submit(envelope("Ann"))
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
            assert dispatcher.counts["out of memory"] == 2

    def test_never_enough_memory(
        self,
        client: Client,
        serve: Callable[..., Any],
        runs: list[str],
        broker: Broker,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It is a dead letter after `max_deliveries`, and its caller has a fault."""

        def parse(document: bytes, *rest: Any) -> Any:
            if b"Ann" in document:
                raise MemoryError
            return xml.parse_utf8(document, *rest)

        monkeypatch.setattr("soapjms.protocol.received_message.parse_utf8", parse)
        with serve(greeter(runs), max_deliveries=3) as dispatcher:
            fault = client.call(envelope("Ann")).fault
            assert fault is not None
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            assert dispatcher.counts["out of memory"] == 3
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"

    @pytest.mark.parametrize("step", [-HOUR, HOUR])
    def test_clock(
        self,
        client: Client,
        serve: Callable[..., Any],
        runs: list[str],
        step: float,
        broker: Broker,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """It is set while a request is worked on: that is answered once, and so is what waits for the next start."""
        begun, go_on, seconds, nanoseconds = Event(), Event(), time.time, time.time_ns

        def work(name: str) -> None:
            begun.set()
            assert go_on.wait(PATIENCE)

        with serve(greeter(runs, work)):
            future = client.submit(envelope("Ann"), expires=None)
            assert begun.wait(PATIENCE)
            monkeypatch.setattr("time.time", lambda: seconds() + step)
            monkeypatch.setattr("time.time_ns", lambda: nanoseconds() + int(step * 1e9))
            go_on.set()
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        future = client.submit(envelope("Bob"), expires=None)
        with broker.connect() as connection, serve(greeter(runs), connection):
            assert text_of(future.result(PATIENCE)) == "Hello Bob"
        assert runs == ["Ann", "Bob"]


class Unconfirmed(Wrapped):
    """A connection whose broker carries out the first send or commit, and never says so."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.is_first = True

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        found = super().send(message, transaction, **options)
        return found if transaction is not None else self.unheard(found)

    def begin(self) -> Transaction:
        return UnconfirmedTransaction(super().begin(), self)

    def unheard(self, future: Completion[Any]) -> Completion[Any]:
        """Return a future that is never done for the first, and what there is for the others."""
        is_first, self.is_first = self.is_first, False
        return Completion(no_executor) if is_first else future


class UnconfirmedTransaction(Transaction):
    """One of its transactions."""

    def __init__(self, inner: Transaction, connection: Unconfirmed) -> None:
        self._inner = inner
        self._connection = connection

    def send(self, message: Message) -> None:
        self._inner.send(message)

    def accept(self, delivery: Any) -> None:
        self._inner.accept(delivery)

    def abort(self) -> None:
        self._inner.abort()

    def commit(self) -> Completion[Any]:
        return self._connection.unheard(self._inner.commit())


class TestBroker(Scene):
    """What fails is the broker."""

    def test_full_destination(self, client: Client, serve: Callable[..., Any], runs: list[str], broker: Broker) -> None:
        """It takes no answer there: the request is a dead letter, and others are answered."""
        with broker.connect() as connection:
            for _ in range(ROOM):
                connection.send(request_message("answers", None)).result(PATIENCE)
            with serve(greeter(runs)) as dispatcher:
                connection.send(request_message("greeter", ANSWERS)).result(PATIENCE)
                assert "is full" in (take_one(connection, DEAD).properties.text("dead_letter_reason") or "")
                assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
                assert dispatcher.counts["rejected"] == 1

    def test_confirms_nothing(
        self,
        client: Client,
        serve: Callable[..., Any],
        runs: list[str],
        column: Column,
        other: Connection,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The caller has its answer, once; the worker goes on after a time."""
        monkeypatch.setattr("soapjms.service.committer.COMMIT_TIMEOUT", 0.05)
        monkeypatch.setattr("soapjms.service.committer.CONFIRM_TIMEOUT", 0.05)
        monkeypatch.setattr("soapjms.service.committer.CONFIRM_POLL_SECONDS", 0.01)
        with serve(greeter(runs), Unconfirmed(other), workers=1) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            eventually(lambda: dispatcher.counts["lost"] == 1, "it counts as lost")
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
        again = ["Ann"] if column == COLUMNS["neither"] else []
        assert runs == ["Ann", *again, "Bob"]
        assert set(client.counts) <= (set() if column.transactional else {"duplicate", "late"})

    def test_connection_is_lost(
        self, client: Client, serve: Callable[..., Any], runs: list[str], broker: Broker, column: Column
    ) -> None:
        """What was not answered is answered by the next; from the store, where there is one."""
        connection, begun = broker.connect(), Event()

        def work(name: str) -> None:
            connection.close(0.0)
            begun.set()

        with serve(greeter(runs, work), connection, workers=1):
            future = client.submit(envelope("Ann"))
            assert begun.wait(PATIENCE)
        with pytest.raises(BrokerError):
            connection.send(request_message("greeter", None))
        with broker.connect() as next_one, serve(greeter(runs), next_one):
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        assert runs == ["Ann"] * (1 if column.is_stored else 2)


class Columns:
    """A service of each column at one broker, each with a queue of its own, and a client for each.

    Args:
        connection: the services'.
        other: the clients'.
        path: where their stores are.
        meanwhile: called in each function, with the name of its column.
    """

    def __init__(
        self, connection: Connection, other: Connection, path: Path, meanwhile: Callable[[str], object]
    ) -> None:
        self.runs: dict[str, list[str]] = {name: [] for name in COLUMNS}
        self.dispatchers: dict[str, Dispatcher] = {}
        self.clients: dict[str, Client] = {}
        self._stack = ExitStack()
        for name, column in COLUMNS.items():
            uri = f"jms:queue:{fresh('column')}"
            store = SqliteStore(path / f"{name}.db") if column.is_stored else None
            if store is not None:
                self._stack.callback(store.close)
            service = greeter(self.runs[name], lambda _, name=name: meanwhile(name))  # type: ignore[misc]
            options = {"transactional": column.transactional, "workers": 1}
            dispatcher = Dispatcher(connection, uri, service, store=store, **options)
            self.dispatchers[name] = self._stack.enter_context(dispatcher)
            client = Client(other, f"{uri}?replyToName={uri.rpartition(':')[2]}.answers", timeout=PATIENCE)
            self.clients[name] = self._stack.enter_context(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, name: str) -> dict[str, Future[Response]]:
        """Send a request to each."""
        return {column: client.submit(envelope(name)) for column, client in self.clients.items()}


def check_answers(futures: dict[str, Future[Response]], name: str) -> None:
    """Check that each has its answer."""
    assert {column: text_of(each.result(PATIENCE)) for column, each in futures.items()} == dict.fromkeys(
        COLUMNS, f"Hello {name}"
    )


class Late:
    """Pauses before subscriptions are made again that are long enough to be seen."""

    def pause(self, failed: int, *, is_silent: bool) -> float:
        """Return the same pause each time."""
        return 3.0


def answered(client: Client, future: Future[Response]) -> str | None:
    """Return the answer; where it is not known whether there will be one, that of a second try."""
    error = future.exception(PATIENCE)
    if not isinstance(error, CallFailedError):
        return text_of(future.result())
    assert not error.is_known
    return text_of(client.call(envelope("Ann"), retry_of=error))


@pytest.fixture(scope="module")
def mortal() -> Iterator[RealBroker]:
    """A broker that may be killed."""
    with start_activemq() as broker:
        yield broker


@pytest.mark.broker
class TestRealBrokers:
    """What fails is a real broker, or the network to it."""

    @pytest.mark.parametrize("protocol", ["stomp", "amqp"])
    def test_silent_network(self, activemq: RealBroker, tmp_path: Path, protocol: str) -> None:
        """What was under way is answered once there is a way again."""
        begun, go_on = {name: Event() for name in COLUMNS}, Event()

        def work(name: str) -> None:
            begun[name].set()
            assert go_on.wait(PATIENCE)

        with (
            Proxy(activemq.host, getattr(activemq.ports, protocol)) as proxy,
            connect(f"{protocol}://admin:admin@127.0.0.1:{proxy.port}?{SILENCE[protocol]}") as connection,
            connect(getattr(activemq, f"{protocol}_url")) as other,
            Columns(connection, other, tmp_path, work) as columns,
        ):
            futures = columns.ask("Ann")
            assert all(each.wait(PATIENCE) for each in begun.values())
            proxy.silence()
            eventually(lambda: connection.state is not ConnectionState.CONNECTED, "it was noticed")
            go_on.set()
            proxy.speak()
            check_answers(futures, "Ann")
            check_answers(columns.ask("Bob"), "Bob")
            assert {name: runs.count("Ann") for name, runs in columns.runs.items() if COLUMNS[name].is_stored} == {
                "transactions and store": 1,
                "store": 1,
            }

    @pytest.mark.parametrize("protocol", ["stomp", "amqp"])
    def test_broker_dies(self, mortal: RealBroker, tmp_path: Path, protocol: str) -> None:
        """What was under way is answered once it is back."""
        begun, go_on = {name: Event() for name in COLUMNS}, Event()

        def work(name: str) -> None:
            begun[name].set()
            assert go_on.wait(PATIENCE)

        url = getattr(mortal, f"{protocol}_url")
        with connect(url) as connection, connect(url) as other, Columns(connection, other, tmp_path, work) as columns:
            futures = columns.ask("Ann")
            assert all(each.wait(PATIENCE) for each in begun.values())
            mortal.kill()
            eventually(lambda: connection.state is not ConnectionState.CONNECTED, "it was noticed")
            go_on.set()
            mortal.start()
            assert {name: answered(columns.clients[name], each) for name, each in futures.items()} == dict.fromkeys(
                COLUMNS, "Hello Ann"
            )
            check_answers(columns.ask("Bob"), "Bob")

    @pytest.mark.parametrize("protocol", ["stomp", "amqp"])
    def test_queue_is_deleted(
        self, artemis: RealBroker, tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not ready meanwhile; soon each serves again."""
        monkeypatch.setattr("brokers.adapter.consumer.RENEWAL", Late())
        url = getattr(artemis, f"{protocol}_url")
        with (
            connect(url) as connection,
            connect(url) as other,
            Columns(connection, other, tmp_path, lambda name: None) as columns,
        ):
            check_answers(columns.ask("Ann"), "Ann")
            for dispatcher in columns.dispatchers.values():
                artemis.delete_queue(dispatcher.destination.name or "")
                eventually(lambda: not dispatcher.health().ready, "it is not ready")  # noqa: B023 - called at once
            for dispatcher in columns.dispatchers.values():
                eventually(lambda: dispatcher.health().ready, "it is ready")  # noqa: B023 - called at once
            check_answers(columns.ask("Bob"), "Bob")
