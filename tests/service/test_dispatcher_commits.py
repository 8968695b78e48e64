"""Accepting a request and sending its answer together: groups, refusals, lost connections, no transactions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    PATIENCE,
    URI,
    Gate,
    Peers,
    Wrapped,
    arrivals,
    envelope,
    eventually,
    greeter,
    request_message,
    take_one,
    text_of,
)

from brokers import (
    Capabilities,
    Completion,
    Connection,
    ConnectionLostError,
    Delivery,
    Destination,
    DestinationKind,
    Message,
    RefusedSend,
    SendResult,
    Transaction,
    queue,
)
from brokers.adapter.redelivery import MAX_REASON_CHARACTERS
from brokers.embedded import Broker
from brokers.threads.futures import NearCompletion
from soapjms import Client, Dispatcher, Recorder, Service
from soapjms.protocol.record import Direction, Node
from soapjms.service.committer import MAX_GROUP_REQUESTS, _letter

DEAD = queue("DLQ.greeter")
ANSWERS = queue("answers")


def gathered(dispatcher: Dispatcher, requests: int) -> None:
    """Wait until so many requests are finished while the first waits for its commit."""
    eventually(lambda: dispatcher._committer.waiting == requests, "the others are finished")


class TestGroups(Peers):
    """What is ready goes into one transaction."""

    @pytest.mark.parametrize(("requests", "commits"), [(1, 1), (8, 2), (MAX_GROUP_REQUESTS + 6, 3)])
    def test_group(self, client: Client, other: Connection, requests: int, commits: int) -> None:
        """All that was finished during one commit goes into the next, up to a limit."""
        gate = Gate(other)
        with Dispatcher(gate, URI, greeter(), workers=requests) as dispatcher:
            futures = {"0": client.submit(envelope("0"))}
            assert gate.reached.wait(PATIENCE)
            futures |= {str(number): client.submit(envelope(str(number))) for number in range(1, requests)}
            gathered(dispatcher, requests - 1)
            gate.open.set()
            for number, future in futures.items():
                assert text_of(future.result(PATIENCE)) == f"Hello {number}"
            eventually(lambda: dispatcher.counts["answered"] == requests, "all were counted")
            assert dispatcher.counts["commits"] == commits

    def test_closing_commits_what_is_finished(self, client: Client, other: Connection) -> None:
        """What is finished when the dispatcher closes is committed, though it comes as one group with the end."""
        gate = Gate(other)
        dispatcher = Dispatcher(gate, URI, greeter(), workers=3).start()
        futures = [client.submit(envelope())]
        assert gate.reached.wait(PATIENCE)
        futures += [client.submit(envelope()) for _ in range(2)]
        gathered(dispatcher, 2)
        gate.open.set()
        dispatcher.close()
        for future in futures:
            assert future.result(PATIENCE).fault is None

    def test_end_within_a_group(self, client: Client, other: Connection) -> None:
        """Where the deadline of `close` passes during a commit, what was finished goes back all the same."""
        gate = Gate(other)
        dispatcher = Dispatcher(gate, URI, greeter(), workers=3).start()
        futures = [client.submit(envelope())]
        assert gate.reached.wait(PATIENCE)
        futures += [client.submit(envelope()) for _ in range(2)]
        gathered(dispatcher, 2)
        dispatcher.close(deadline=0.01)
        gate.open.set()
        eventually(lambda: dispatcher.counts["lost"] == 2, "what was not committed was counted")
        with Dispatcher(other, URI, greeter()):
            for future in futures:
                assert future.result(PATIENCE).fault is None


class TestRefusedAnswers(Peers):
    """Answers that the broker does not take."""

    @pytest.fixture
    def broker(self) -> Broker:
        return Broker("small", max_messages=3)

    def test_dead_letter(self, client: Client, other: Connection, broker: Broker) -> None:
        """A request whose answer is refused goes to the dead letters; those in the same group are answered."""
        for _ in range(3):
            other.send(request_message("answers", None))  # now it is full
        refused = request_message("greeter", ANSWERS)
        gate = Gate(other)
        with Dispatcher(gate, URI, greeter(), workers=4) as dispatcher:
            other.send(refused)
            assert gate.reached.wait(PATIENCE)
            second = replace(refused, correlation_id="second")
            other.send(second)
            future = client.submit(envelope("Ann"))
            gathered(dispatcher, 2)
            gate.open.set()
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
            eventually(lambda: broker.depth(DEAD) == 2, "the requests are dead letters")
            assert dispatcher.counts["rejected"] == 2
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
        with arrivals(other, DEAD) as letters:
            found = letters.take(2)
        assert {each.correlation_id for each in found} == {refused.correlation_id, "second"}
        for each in found:
            reason = each.properties.text("dead_letter_reason") or ""
            assert reason.startswith("its answer could not be sent: queue:answers is full")

    def test_answer_that_cannot_be_carried(self, client: Client, other: Connection, broker: Broker) -> None:
        """A reply destination that the adapter cannot write to spoils its own request only."""
        nowhere = Destination(DestinationKind.TEMPORARY_QUEUE, None, address="/temp-queue/of-another-broker")
        gate = Gate(other)
        with Dispatcher(gate, URI, greeter(), workers=3) as dispatcher:
            first = client.submit(envelope())
            assert gate.reached.wait(PATIENCE)
            future = client.submit(envelope("Ann"))
            other.send(request_message("greeter", nowhere))
            gathered(dispatcher, 2)
            gate.open.set()
            assert first.result(PATIENCE).fault is None
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
            eventually(lambda: broker.depth(DEAD) == 1, "the request is a dead letter")
            for _ in range(6):  # all workers go on
                assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
            assert dispatcher.counts["rejected"] == 1

    def test_client_that_left(self, client: Client, other: Connection, broker: Broker) -> None:
        """An answer to a client that is gone is dropped, and nobody else's with it."""
        gone = broker.connect()
        gate = Gate(other)
        with Dispatcher(gate, URI, greeter(), workers=2) as dispatcher:
            Client(gone, URI).submit(envelope())
            assert gate.reached.wait(PATIENCE)
            future = client.submit(envelope("Ann"))
            gathered(dispatcher, 1)
            gone.close()
            gate.open.set()
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
            eventually(lambda: dispatcher.counts["client gone"] == 1, "the other was counted")
        assert broker.depth(GREETER) == 0

    def test_rejecting_fails(self, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """Where the connection is lost before a request can be rejected, the broker delivers it again."""

        with Dispatcher(Stubborn(other, Passed, ConnectionLostError("gone")), URI, greeter()) as dispatcher:
            other.send(request_message("greeter", GREETER))
            eventually(lambda: dispatcher.counts["lost"] == 1, "it was counted")
        assert "the broker delivers them again: gone" in caplog.text


class TestUnusualFailures(Peers):
    """Errors that no adapter should raise: the dispatcher outlives them, and nobody waits for ever."""

    @pytest.mark.parametrize("error", [RuntimeError("odd"), SystemExit("odd")])
    def test_rejecting_fails(
        self, client: Client, other: Connection, broker: Broker, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A request that cannot be rejected is given back, and becomes a dead letter by itself; others are answered."""

        with Dispatcher(Stubborn(other, Passed, error), URI, greeter(), workers=1) as dispatcher:
            other.send(request_message("greeter", GREETER))
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            eventually(lambda: broker.depth(DEAD) == 1, "the request is a dead letter")
            eventually(lambda: dispatcher.under_way == 0, "nothing is under way")
            assert dispatcher.counts["lost"] == dispatcher.counts["rejected"] == 6
        assert "odd" in caplog.text

    def test_giving_back_fails_too(self, client: Client, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """A request that cannot even be given back stays with its worker; the others go on."""

        class Stuck(Passed):
            def release(self) -> None:
                raise RuntimeError("stuck")

        with Dispatcher(Stubborn(other, Stuck, RuntimeError("odd")), URI, greeter(), workers=2) as dispatcher:
            other.send(request_message("greeter", GREETER))
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            eventually(lambda: dispatcher.counts["lost"] == 1, "it was counted")
        assert "stuck" in caplog.text

    def test_beginning_fails(self, client: Client, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """A request whose transaction cannot begin for an unusual reason is worked on again."""
        errors = [SystemExit("odd")]

        class Moody(Wrapped):
            def begin(self) -> Transaction:
                if errors:
                    raise errors.pop()
                return super().begin()

        with Dispatcher(Moody(other), URI, greeter(), workers=1) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            assert dispatcher.counts["lost"] == 1
            assert dispatcher.counts["accepted"] == 2
        assert "odd" in caplog.text

    def test_recorder_fails(
        self, client: Client, other: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A recorder of the user's own that raises is logged; requests are answered all the same."""

        class Moody(Recorder):
            def record(self, message: Message, direction: Direction | None = None, node: Node | None = None) -> None:
                raise RuntimeError(f"no {direction}")

        with (
            Moody(tmp_path / "log.jsonl") as recorder,
            Dispatcher(other, URI, greeter(), workers=1, recorder=recorder) as dispatcher,
        ):
            for _ in range(3):
                assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            eventually(lambda: dispatcher.counts["answered"] == 3, "all were counted")
            eventually(lambda: dispatcher.under_way == 0, "nothing is under way")
            assert dispatcher.counts["lost"] == 0
        assert "no request" in caplog.text
        assert "no response" in caplog.text


class Passed(Delivery):
    """A delivery that passes everything on but for `reject`, which fails."""

    def __init__(self, inner: Delivery, error: BaseException) -> None:
        super().__init__(inner.message, inner.delivery_count, inner.generation)
        self.inner = inner
        self.error = error

    def accept(self) -> None:
        self.inner.accept()

    def release(self) -> None:
        self.inner.release()

    def reject(self, reason: str) -> None:
        raise self.error


class Stubborn(Wrapped):
    """A connection whose requests that want their answer on their own queue come as deliveries of another kind."""

    def __init__(self, inner: Connection, kind: type[Passed], error: BaseException) -> None:
        super().__init__(inner)
        self.kind = kind
        self.error = error

    def _consume(self, options: Any, on_delivery: Any) -> Any:
        def hand_on(delivery: Delivery) -> None:
            is_meant = delivery.message.reply_to == GREETER
            on_delivery(self.kind(delivery, self.error) if is_meant else delivery)

        return super()._consume(options, hand_on)


class TestLostConnections(Peers):
    """Nothing is accepted without its answer."""

    def test_lost_between_work_and_commit(self, client: Client, broker: Broker) -> None:
        """A request that was worked on, and whose connection was lost before the commit, is delivered again."""
        gate = Gate(broker.connect())
        seen = list[int | None]()
        with Dispatcher(gate, URI, greeter()) as dispatcher:
            future = client.submit(envelope("Ann"))
            assert gate.reached.wait(PATIENCE)
            gate.close(0)
            gate.open.set()
            eventually(lambda: dispatcher.counts["lost"] == 1, "it was counted")
            assert dispatcher.counts == {"accepted": 1, "lost": 1}
        assert not future.done()
        with broker.connect() as second:
            service, greet = Service(), greeter().operations["{urn:greeter}greetMe"]

            @service.operation("{urn:greeter}greetMe")
            def again(request: Any) -> Any:
                seen.append(request.delivery_count)
                return greet(request)

            with Dispatcher(second, URI, service):
                assert text_of(future.result(PATIENCE)) == "Hello Ann"
        assert seen == [2]

    def test_group_when_the_connection_is_closed(self, client: Client, broker: Broker) -> None:
        """Of a group, too, nothing is accepted."""
        gate = Gate(broker.connect())
        with Dispatcher(gate, URI, greeter(), workers=3) as dispatcher:
            client.submit(envelope())
            assert gate.reached.wait(PATIENCE)
            client.submit(envelope())
            client.send(envelope())
            gathered(dispatcher, 2)
            gate.close(0)
            gate.open.set()
            eventually(lambda: dispatcher.counts["lost"] == 3, "all were counted")
        assert broker.depth(GREETER) == 3

    @pytest.mark.parametrize("error", [ConnectionLostError("cut"), None])
    def test_commit_without_answer(
        self, client: Client, other: Connection, error: Exception | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A commit that the broker does not confirm counts as lost; whether it was carried out is not known."""
        monkeypatch.setattr("soapjms.service.committer.COMMIT_TIMEOUT", 0.01)

        class Unconfirmed(Wrapped):
            def begin(self) -> Transaction:
                return Silent(super().begin(), error)

        with Dispatcher(Unconfirmed(other), URI, greeter()) as dispatcher:
            future = client.submit(envelope())
            eventually(lambda: dispatcher.counts["lost"] == 1, "it was counted")
            assert not future.done()


class Silent(Transaction):
    """A transaction whose commit ends in an error, or never."""

    def __init__(self, inner: Transaction, error: Exception | None) -> None:
        self.inner = inner
        self.error = error

    def send(self, message: Message) -> None:
        self.inner.send(message)

    def accept(self, delivery: Delivery) -> None:
        self.inner.accept(delivery)

    def abort(self) -> None:
        self.inner.abort()

    def commit(self) -> Completion[tuple[RefusedSend, ...]]:
        future: Completion[tuple[RefusedSend, ...]] = Completion(lambda: ThreadPoolExecutor(1))
        if self.error is not None:
            future.set_exception(self.error)
        return future


class NeverBegun(Wrapped):
    """A connection on which no transaction may be begun."""

    def begin(self) -> Transaction:
        raise AssertionError("none is wanted")


class WithoutTransactions(NeverBegun):
    """A connection to a broker that has no transactions."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, transactions=False)


class ConfirmedLater(NeverBegun):
    """A connection that sends, and leaves it to the test when the broker confirms that."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.sent: SimpleQueue[NearCompletion[SendResult]] = SimpleQueue()

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        super().send(message, transaction, **options)
        future: NearCompletion[SendResult] = NearCompletion(lambda task: task())
        self.sent.put(future)
        return future


class FirstUnconfirmed(ConfirmedLater):
    """A connection of which the broker never confirms the first message."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.is_first = True

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        future = super().send(message, transaction, **options)
        if not self.is_first:
            future.settle(SendResult())
        self.is_first = False
        return future


class TestWithoutTransactions(Peers):
    """A request is accepted once the broker has its answer."""

    @pytest.fixture
    def broker(self) -> Broker:
        return Broker("plain", max_messages=5)

    @pytest.fixture(params=["the broker has none", "none are wanted"])
    def dispatcher(self, other: Connection, request: pytest.FixtureRequest) -> Iterator[Dispatcher]:
        are_wanted = request.param == "the broker has none"
        connection = WithoutTransactions(other) if are_wanted else NeverBegun(other)
        with Dispatcher(connection, URI, greeter(), transactional=are_wanted) as dispatcher:
            yield dispatcher

    def test_answered(self, client: Client, dispatcher: Dispatcher, broker: Broker) -> None:
        """Requests and one-way messages are accepted, each for itself."""
        for future in [client.submit(envelope("Ann")) for _ in range(5)]:
            assert text_of(future.result(PATIENCE)) == "Hello Ann"
        client.send(envelope())
        eventually(lambda: dispatcher.counts["commits"] == 6, "each was accepted")
        assert broker.depth(GREETER) == 0

    def test_client_that_left(self, dispatcher: Dispatcher, other: Connection, broker: Broker) -> None:
        """An answer to a client that is gone is dropped, and its request accepted."""
        with broker.connect() as gone:
            reply_to = gone.temporary()
        other.send(request_message("greeter", reply_to))
        eventually(lambda: dispatcher.counts["client gone"] == 1, "it was counted")
        eventually(lambda: broker.depth(GREETER) == 0, "the request was accepted")

    def test_refused(self, dispatcher: Dispatcher, other: Connection, broker: Broker) -> None:
        """A request whose answer is refused goes to the dead letters."""
        for _ in range(5):
            other.send(request_message("answers", None))
        other.send(request_message("greeter", ANSWERS))
        assert "is full" in (take_one(other, DEAD).properties.text("dead_letter_reason") or "")
        assert dispatcher.counts["rejected"] == 1
        assert broker.depth(ANSWERS) == 5

    def test_not_before_it_is_confirmed(self, client: Client, other: Connection, broker: Broker) -> None:
        """Meanwhile no thread waits: the only worker takes the next request, which is confirmed first."""
        connection = ConfirmedLater(other)
        with Dispatcher(connection, URI, greeter(), workers=1, prefetch=2, transactional=False) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
            first, second = (connection.sent.get(timeout=PATIENCE) for _ in range(2))

            def left() -> tuple[int, int, int]:
                return dispatcher.under_way, dispatcher.counts["answered"], broker.depth(GREETER)

            assert left() == (2, 0, 2)
            second.settle(SendResult())
            eventually(lambda: left() == (1, 1, 1), "the second is accepted")
            first.settle(SendResult())
            eventually(lambda: left() == (0, 2, 0), "the first is accepted")

    def test_never_confirmed(self, client: Client, other: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a time the request counts as lost and goes back: it is delivered again, and its worker goes on."""
        monkeypatch.setattr("soapjms.service.committer.CONFIRM_TIMEOUT", 0.01)
        monkeypatch.setattr("soapjms.service.committer.CONFIRM_POLL_SECONDS", 0.01)
        connection = FirstUnconfirmed(other)
        with Dispatcher(connection, URI, greeter(), workers=1, transactional=False) as dispatcher:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            unconfirmed, again = (connection.sent.get(timeout=PATIENCE) for _ in range(2))
            assert again.done()
            unconfirmed.settle(SendResult())  # too late: it changes nothing
            assert text_of(client.call(envelope("Bob"))) == "Hello Bob"
            eventually(lambda: dispatcher.counts["answered"] == 2 and not dispatcher.under_way, "both are accepted")
            assert dispatcher.counts["lost"] == 1
            assert client.counts.total() == 1, "the second answer was dropped"


def test_a_letter_whose_reason_no_property_can_hold() -> None:
    """It has what can be carried of the reason, as the dead letters of every adapter do."""
    work: Any = SimpleNamespace(delivery=SimpleNamespace(message=request_message("greeter", ANSWERS)), response=None)
    letter = _letter(work, DEAD, "not\0 \ud800 " + "x" * 2000)
    reason = letter.properties.text("dead_letter_reason") or ""
    assert reason.startswith("not ? xxx")
    assert len(reason) <= MAX_REASON_CHARACTERS
