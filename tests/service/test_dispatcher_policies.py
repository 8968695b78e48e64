"""What becomes of requests that fail, are too late, or kill whoever works on them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Peers,
    TellsNoTime,
    Wrapped,
    arrivals,
    element,
    envelope,
    eventually,
    request_message,
    take_one,
    text_of,
)
from faulty_sqlite_kit import Died

from brokers import Completion, Connection, Message, SendFailedError, SendResult, queue
from brokers.embedded import Broker
from soapjms import Attachment, Client, Dispatcher, Policy, Reply, Request, Service, SqliteStore, UsageError
from soapjms.protocol import names, xml
from soapjms.protocol.envelope import Fault, as_envelope, read_fault

GREET = f"{{{NS}}}greetMe"
DEAD = queue("DLQ.greeter")
LETTERS = queue("letters")
ANSWERS = queue("answers")
AT_ONCE: dict[str, Any] = {"pause": 0.0}


def failing(times: int, policy: Policy, answer: Any = None, runs: list[Request] | None = None) -> Service:
    """Make a service whose function fails so often before it answers."""
    service, seen = Service(), [] if runs is None else runs

    @service.operation(GREET, policy=policy)
    def greet(request: Request) -> Any:
        seen.append(request)
        if len(seen) <= times:
            raise ValueError(f"no, for the {len(seen)}. time")
        return answer or element("greetMeResponse", str(len(seen)))

    return service


def fault_in(message: Message) -> Fault | None:
    """Return the fault that a message holds, None if it holds an answer."""
    assert isinstance(message.body, bytes | str)
    return read_fault(as_envelope(xml.parse(message.body)))


class Kit(Peers):
    """With a store that a test may ask for."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        with SqliteStore(tmp_path / "requests.db") as store:
            yield store


class TestPolicies(Kit):
    """What a policy says of a function that fails."""

    @pytest.mark.parametrize("stored", [True, False])
    def test_retried(self, client: Client, other: Connection, store: SqliteStore, stored: bool) -> None:
        """It is run again as often as said, and its answer is that of the run that succeeded."""
        service = failing(2, Policy(retries=2, **AT_ONCE))
        with Dispatcher(other, URI, service, store=store if stored else None) as dispatcher:
            assert text_of(client.call(envelope())) == "3"
            eventually(lambda: dispatcher.counts["answered"] == 1, "it was counted")
            assert dispatcher.counts == {"accepted": 1, "retried": 2, "answered": 1, "commits": 1}

    @pytest.mark.parametrize("stored", [True, False])
    def test_given_up(
        self, client: Client, other: Connection, store: SqliteStore, stored: bool, broker: Broker
    ) -> None:
        """After that the caller gets a fault that tells nothing of the insides; the request is accepted."""
        service = failing(9, Policy(retries=2, **AT_ONCE))
        with Dispatcher(other, URI, service, store=store if stored else None) as dispatcher:
            fault = client.call(envelope()).fault
            eventually(lambda: dispatcher.counts["answered"] == 1, "it was counted")
            assert dispatcher.counts == {"accepted": 1, "retried": 2, "failed": 1, "answered": 1, "commits": 1}
        assert fault is not None
        assert fault.reason == "the service failed"
        assert (broker.depth(GREETER), broker.depth(DEAD)) == (0, 0)

    def test_pauses(self) -> None:
        """Each pause is twice as long as the one before, up to a minute."""
        policy = Policy(retries=99, pause=0.5)
        assert [policy.pause_after(tries) for tries in (1, 2, 3, 7, 8, 99)] == [0.5, 1.0, 2.0, 32.0, 60.0, 60.0]

    def test_retries_outlive_the_process(self, client: Client, broker: Broker, store: SqliteStore) -> None:
        """With a store, who goes on with a request goes on counting."""
        runs = list[Request]()
        service = failing(9, Policy(retries=2, pause=60.0), runs=runs)
        for failures in (1, 2):
            with broker.connect() as connection, Dispatcher(connection, URI, service, store=store):
                if failures == 1:
                    future = client.submit(envelope())
                eventually(lambda: len(runs) == failures, "it failed")  # noqa: B023 - called at once
        with broker.connect() as connection, Dispatcher(connection, URI, service, store=store) as dispatcher:
            assert future.result(PATIENCE).fault is not None
            assert dispatcher.counts["retried"] == 0
        assert len(runs) == 3

    def test_closing_during_a_pause(self, client: Client, other: Connection, broker: Broker) -> None:
        """Closing waits for no pause: the broker delivers the request again."""
        dispatcher = Dispatcher(other, URI, failing(9, Policy(retries=1, pause=60.0)), workers=1).start()
        client.submit(envelope())
        eventually(lambda: dispatcher.counts["retried"] == 1, "it failed")
        assert dispatcher.close(PATIENCE)
        assert broker.depth(GREETER) == 1

    def test_expired_meanwhile(self, connection: Connection, other: Connection) -> None:
        """A request that nobody waits for any more is not tried again."""
        service = Service()

        @service.operation(GREET, policy=Policy(retries=9, **AT_ONCE))
        def greet(request: Request) -> None:
            while time.time_ns() // 1_000_000 < (request.deadline or 0):
                time.sleep(0.01)
            raise ValueError("no")

        with Dispatcher(other, URI, service) as dispatcher:
            message = request_message("greeter", ANSWERS, expiration=time.time_ns() // 1_000_000 + 1500)
            connection.send(message)
            eventually(lambda: dispatcher.counts["commits"] == 1, "it was accepted")
            assert (dispatcher.counts["retried"], dispatcher.counts["failed"]) == (0, 1)

    @pytest.mark.parametrize("dead_letters", [None, "letters"])
    @pytest.mark.parametrize("stored", [True, False])
    def test_dead_letter(
        self,
        client: Client,
        other: Connection,
        broker: Broker,
        store: SqliteStore,
        stored: bool,
        dead_letters: str | None,
    ) -> None:
        """The caller gets the fault, the request becomes a dead letter with its reason; sent again it is run again."""
        service = failing(2, Policy(retries=1, then="dead-letter", **AT_ONCE))
        place = DEAD if dead_letters is None else LETTERS
        with Dispatcher(other, URI, service, store=store if stored else None, dead_letters=dead_letters) as dispatcher:
            message = request_message("greeter", ANSWERS, expiration=time.time_ns() // 1_000_000 + 100_000)
            other.send(message)
            fault = fault_in(take_one(other, ANSWERS))
            assert fault is not None
            assert fault.reason == "the service failed"
            letter = take_one(other, place)
            eventually(lambda: dispatcher.under_way == 0, "it was settled")
            assert dispatcher.counts["rejected"] == dispatcher.counts["failed"] == dispatcher.counts["answered"] == 1
            reason = letter.properties.text("dead_letter_reason") or ""
            assert reason == "its function failed 2 times, at last with ValueError('no, for the 2. time')"
            assert (letter.correlation_id, letter.reply_to) == (message.correlation_id, ANSWERS)
            assert not letter.expiration
            assert broker.depth(GREETER) == 0
            other.send(replace(letter, destination=GREETER))
            assert fault_in(take_one(other, ANSWERS)) is None

    def test_what_a_letter_says(self, other: Connection) -> None:
        """In a queue of its own a dead letter says also where it was, what its id was, and what its caller was told."""
        with Dispatcher(other, URI, failing(9, Policy(then="dead-letter")), dead_letters="letters"):
            sent = other.send(request_message("greeter", ANSWERS)).result(PATIENCE)
            letter = take_one(other, LETTERS)
        assert letter.properties.text("dead_letter_destination") == "queue:greeter"
        assert letter.properties.text("dead_letter_message_id") == sent.message_id
        assert "the service failed" in (letter.properties.text("dead_letter_fault") or "")

    @pytest.mark.parametrize(
        ("error", "raises"),
        [
            *((SendFailedError("no room"), False), (SendFailedError("no room"), True)),
            *((ValueError("a MapMessage"), True), (RuntimeError("no new thread"), True), (OSError("no file"), False)),
        ],
    )
    def test_letter_refused(
        self, client: Client, other: Connection, broker: Broker, error: Exception, raises: bool
    ) -> None:
        """A dead letter that cannot be written is left to the broker; the caller gets the fault."""

        class Full(Wrapped):
            def send(self, message: Message, transaction: Any = None, **options: Any) -> Completion[SendResult]:
                if message.destination != LETTERS:
                    return super().send(message, transaction, **options)
                if raises:
                    raise error
                future: Completion[SendResult] = Completion(lambda: None)  # type: ignore[arg-type, return-value]
                future.set_exception(error)
                return future

        service = failing(9, Policy(then="dead-letter"))
        with Dispatcher(Full(other), URI, service, dead_letters="letters") as dispatcher:
            assert client.call(envelope()).fault is not None
            eventually(lambda: broker.depth(DEAD) == 1, "the broker has it")
            assert dispatcher.counts["failed"] == 1

    def test_one_way(self, client: Client, other: Connection, broker: Broker) -> None:
        """A one-way message is tried again and becomes a dead letter too; a fault goes to nobody."""
        with Dispatcher(other, URI, failing(9, Policy(retries=1, then="dead-letter", **AT_ONCE))) as dispatcher:
            client.send(envelope())
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            eventually(lambda: dispatcher.under_way == 0, "it was settled")
            assert dispatcher.counts == {"accepted": 1, "one-way": 1, "retried": 1, "failed": 1, "rejected": 1}

    @pytest.mark.parametrize("policy", [Policy(), Policy(then="fault")], ids=["default", "fault"])
    @pytest.mark.parametrize("is_stored", [True, False])
    def test_one_way_by_default(
        self, client: Client, other: Connection, broker: Broker, store: SqliteStore, policy: Policy, is_stored: bool
    ) -> None:
        """Whatever the policy: a fault would go to nobody, and nothing would be left of the request."""
        with Dispatcher(other, URI, failing(9, policy), store=store if is_stored else None) as dispatcher:
            client.send(envelope())
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            eventually(lambda: dispatcher.under_way == 0, "it was settled")
            assert dispatcher.counts == {"accepted": 1, "one-way": 1, "failed": 1, "rejected": 1}

    def test_one_way_not_run_again(self, client: Client, other: Connection, broker: Broker, store: SqliteStore) -> None:
        """One that was begun and never finished is one too, where it is not to be run again."""
        service = failing(0, Policy(unfinished="fault"))
        with Dispatcher(other, URI, service, store=Died(store)) as dispatcher:
            client.send(envelope())
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            eventually(lambda: dispatcher.under_way == 0, "it was settled")
            assert dispatcher.counts == {"accepted": 1, "one-way": 1, "not run again": 1, "rejected": 1}

    def test_client_gone(self, client: Client, other: Connection, broker: Broker) -> None:
        """That its caller left keeps no request from the dead letters."""
        gone, go_on = broker.connect(), Event()
        service = Service(policy=Policy(then="dead-letter"))

        @service.operation(GREET)
        def greet(request: Request) -> None:
            assert go_on.wait(PATIENCE)
            raise ValueError("no")

        with Dispatcher(other, URI, service) as dispatcher:
            Client(gone, URI).submit(envelope())
            eventually(lambda: dispatcher.under_way == 1, "it is being worked on")
            gone.close()
            go_on.set()
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            assert dispatcher.counts["client gone"] == 1

    def test_answer_that_cannot_be_sent(self, client: Client, other: Connection, store: SqliteStore) -> None:
        """A function whose attachments cannot be sent failed: what it wrote is undone, and it is run again."""
        missing = Reply(None, [Attachment(Path("/no/such/file"), "image/png")])
        runs = list[str]()
        service = Service(policy=Policy(retries=1, **AT_ONCE))

        @service.operation(GREET)
        def greet(request: Request) -> Any:
            request.transaction.execute(f"CREATE TABLE t{len(runs)} (a)")
            runs.append("run")
            return missing if len(runs) == 1 else None

        with Dispatcher(other, URI, service, store=store):
            assert client.call(envelope()).fault is None
        with closing(sqlite3.connect(store.path)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 't_'").fetchall()
        assert tables == [("t1",)]

    def test_of_the_service(self, client: Client, other: Connection) -> None:
        """A service's policy holds for operations without their own, and for those alone."""
        service, runs = Service(policy=Policy(retries=1, **AT_ONCE)), list[str]()

        def fail(request: Request) -> None:
            runs.append(request.name)
            raise ValueError("no")

        service.operation(GREET)(fail)
        service.operation(f"{{{NS}}}own", policy=Policy())(fail)
        with Dispatcher(other, URI, service):
            client.call(envelope())
            client.call(envelope(operation="own"))
        assert runs == [GREET, GREET, f"{{{NS}}}own"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"retries": -1}, "retries must be an integer, at least 0, got -1"),
        ({"retries": True}, "retries must be .* got True"),
        ({"retries": 1.5}, r"retries must be .* got 1\.5"),
        ({"pause": -1}, "pause must be a finite number of seconds, at least 0, got -1"),
        ({"pause": float("nan")}, "pause must be .* got nan"),
        ({"pause": "1"}, "pause must be .* got '1'"),
        ({"pause": True}, "pause must be .* got True"),
        ({"pause": 10**400}, "pause must be .* got 1000"),
        ({"then": "drop"}, "then must be one of fault, dead-letter, got 'drop'"),
        ({"unfinished": "drop"}, "unfinished must be one of rerun, fault, got 'drop'"),
    ],
)
def test_no_policy(arguments: dict[str, Any], said: str) -> None:
    """A policy that makes no sense is refused."""
    with pytest.raises(UsageError, match=said):
        Policy(**arguments)


@pytest.mark.parametrize("make", [lambda it: Service(policy=it), lambda it: Service().operation(GREET, policy=it)])
def test_policy_of_another_kind(make: Callable[[Any], Any]) -> None:
    """What is no policy is refused, with what would be."""
    with pytest.raises(UsageError, match=r"policy must be a soapjms\.Policy, such as Policy\(retries=3\), got 'retry'"):
        make("retry")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"prefetch": 0}, "prefetch must be a whole number of at least 1, got 0"),
        ({"max_deliveries": 0}, "max_deliveries must be a whole number of at least 1, got 0"),
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"dead_letters": "greeter"}, "must be the name of a queue other than the served one"),
        ({"dead_letters": ""}, "dead_letters must be .* got ''"),
        ({"dead_letters": "JMS:queue:dl"}, "dead_letters must be the name of a queue, such as 'dl', not a URI"),
        ({"dead_letters": LETTERS}, "must be the name of a queue"),
    ],
)
def test_arguments(arguments: dict[str, Any], said: str) -> None:
    """What a dispatcher cannot use is refused."""
    with Broker("arguments").connect() as connection, pytest.raises(UsageError, match=said):
        Dispatcher(connection, URI, Service(), **arguments)


class TestExpired(Kit):
    """Requests whose time is over when they come."""

    @pytest.fixture
    def other(self, broker: Broker) -> Iterator[Connection]:
        with TellsNoTime(broker.connect()) as connection:
            yield connection

    @pytest.fixture
    def broker(self) -> Broker:
        """A broker whose clock is an hour slow, so that it hands out what has expired."""
        return Broker("slow", clock=lambda: time.time_ns() // 1_000_000 - 3_600_000)

    @pytest.mark.parametrize("reply_to", [ANSWERS, None])
    def test_skipped(self, other: Connection, broker: Broker, reply_to: Any) -> None:
        """They are accepted, counted, and not run: nobody waits for an answer."""
        service, runs = Service(), list[str]()
        service.operation(GREET)(lambda request: runs.append(request.name))
        now = time.time_ns() // 1_000_000
        with Dispatcher(other, URI, service, workers=1) as dispatcher:
            other.send(request_message("greeter", reply_to, expiration=now - 1))
            other.send(request_message("greeter", reply_to, expiration=now + 100_000))
            other.send(request_message("greeter", reply_to, expiration=0))
            eventually(lambda: dispatcher.counts["commits"] == 3, "all were accepted")
        assert len(runs) == 2
        assert (dispatcher.counts["expired"], dispatcher.counts["accepted"]) == (1, 2)
        assert (broker.depth(GREETER), broker.depth(DEAD)) == (0, 0)


class TestPoison(Kit):
    """Requests that are delivered again and again, and never finished."""

    def test_counted_by_the_broker(self, client: Client, broker: Broker) -> None:
        """After so many deliveries one becomes a dead letter, and its caller gets a fault."""
        for count in (1, 2):
            with broker.connect() as connection:
                found = Event()
                with connection.consume(GREETER, lambda delivery: found.set()):  # noqa: B023 - called within
                    if count == 1:
                        future = client.submit(envelope())
                    assert found.wait(PATIENCE)
        service, runs = Service(), list[str]()
        service.operation(GREET)(lambda request: runs.append(request.name))
        with broker.connect() as connection, Dispatcher(connection, URI, service, max_deliveries=2) as dispatcher:
            assert future.result(PATIENCE).fault is not None
            eventually(lambda: broker.depth(DEAD) == 1, "it is a dead letter")
            assert (dispatcher.counts["poison"], dispatcher.counts["rejected"], len(runs)) == (1, 1, 0)
            letter = take_one(connection, DEAD)
        reason = letter.properties.text("dead_letter_reason")
        assert reason == "no delivery of the request was ever finished; there were 2"

    def test_what_the_broker_counts_beside_a_store(self, client: Client, broker: Broker, store: SqliteStore) -> None:
        """Deliveries to processes that died of another request, before they began this one, bury nothing."""
        for count in (1, 2, 3):
            with broker.connect() as connection:
                found = Event()
                with connection.consume(GREETER, lambda delivery: found.set()):  # noqa: B023 - called within
                    if count == 1:
                        future = client.submit(envelope())
                    assert found.wait(PATIENCE)
        service, runs = Service(), list[str]()
        service.operation(GREET)(lambda request: runs.append(request.name))
        with (
            broker.connect() as connection,
            Dispatcher(connection, URI, service, store=store, max_deliveries=2) as dispatcher,
        ):
            assert future.result(PATIENCE).fault is None
            assert (dispatcher.counts["poison"], len(runs)) == (0, 1)

    def test_counted_by_the_store(self, client: Client, other: Connection, store: SqliteStore, broker: Broker) -> None:
        """Where the broker does not count, the store counts who died at it; moved back, it is as new."""
        dying, service, runs = Died(store), Service(), list[Request]()
        service.operation(GREET)(runs.append)
        with Dispatcher(other, URI, service, store=dying, max_deliveries=1, dead_letters="letters"):
            assert client.call(envelope("Ann")).fault is not None
            letter = take_one(other, LETTERS)
        assert runs == []
        with Dispatcher(other, URI, service, store=store, max_deliveries=1):
            other.send(replace(letter, destination=GREETER, reply_to=ANSWERS))
            assert fault_in(take_one(other, ANSWERS)) is None
        assert len(runs) == 1

    def test_suspects_one_at_a_time(self, client: Client, other: Connection, store: SqliteStore) -> None:
        """What somebody died at is run one at a time, so that the one that kills takes no other along."""
        at_once, most, service = list[str](), list[int](), Service()
        go_on = Event()

        @service.operation(GREET)
        def greet(request: Request) -> None:
            at_once.append(request.name)
            most.append(len(at_once))
            go_on.wait(0.02)
            at_once.pop()

        with Dispatcher(other, URI, service, store=Died(store), workers=4):
            for future in [client.submit(envelope(str(number))) for number in range(6)]:
                assert future.result(PATIENCE).fault is None
        assert most == [1] * 6

    def test_closing_while_suspects_wait(self, client: Client, other: Connection, store: SqliteStore) -> None:
        """One that waits for its turn when the dispatcher is closed is left to the broker."""
        begun, go_on, service = Event(), Event(), Service()

        @service.operation(GREET)
        def greet(request: Request) -> None:
            begun.set()
            assert go_on.wait(PATIENCE)

        dispatcher = Dispatcher(other, URI, service, store=Died(store), workers=2).start()
        client.submit(envelope("Ann"))
        assert begun.wait(PATIENCE)
        client.submit(envelope("Bob"))
        eventually(lambda: dispatcher.under_way == 2, "the second waits")
        assert not dispatcher.close(1.0)
        go_on.set()
        assert dispatcher.under_way <= 1

    def test_slow_ones_do_not_wait(self, client: Client, other: Connection, store: SqliteStore) -> None:
        """Requests that nobody died at go on beside them."""
        begun, go_on, service = Event(), Event(), Service()
        dying = Died(store)

        @service.operation(GREET)
        def greet(request: Request) -> None:
            if request.redelivered:
                begun.set()
                assert go_on.wait(PATIENCE)

        with Dispatcher(other, URI, service, store=dying, workers=2):
            slow = client.submit(envelope("slow"))
            assert begun.wait(PATIENCE)
            dying.deaths = 0
            for _ in range(3):
                assert client.call(envelope()).fault is None
            go_on.set()
            assert slow.result(PATIENCE).fault is None


class TestPrefetch(Kit):
    """What the broker may hand over ahead."""

    def test_prefetch(self, client: Client, other: Connection) -> None:
        """It is what the consumers are given; all requests are answered all the same."""
        wished = list[int]()

        class Watched(Wrapped):
            def _consume(self, options: Any, on_delivery: Any) -> Any:
                wished.append(options.prefetch)
                return super()._consume(options, on_delivery)

        with Dispatcher(Watched(other), URI, failing(0, Policy()), workers=2, prefetch=8):
            for future in [client.submit(envelope()) for _ in range(40)]:
                assert future.result(PATIENCE).fault is None
        assert wished == [8, 8]

    def test_nothing_is_left(self, client: Client, other: Connection, broker: Broker) -> None:
        """What was handed over ahead and not begun goes back when the dispatcher closes."""
        begun, go_on, service = Event(), Event(), Service()

        @service.operation(GREET)
        def greet(request: Request) -> None:
            begun.set()
            assert go_on.wait(PATIENCE)

        dispatcher = Dispatcher(other, URI, service, workers=1, prefetch=8).start()
        for _ in range(4):
            client.submit(envelope())
        assert begun.wait(PATIENCE)
        go_on.set()
        dispatcher.close()
        answered = dispatcher.counts["answered"]
        with arrivals(other, GREETER) as left:
            left.take(4 - answered)


def test_names_are_legal() -> None:
    """The properties of a dead letter have names that JMS allows, and none of the binding's."""
    for name in ("dead_letter_reason", "dead_letter_destination", "dead_letter_message_id", "dead_letter_fault"):
        assert name.isidentifier()
        assert not name.startswith(("JMS", names.REQUEST_URI[:8]))
