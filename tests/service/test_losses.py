"""Answers that the broker ends the connection for: the request ends as a dead letter, and the others are answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TypeAlias

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    URI,
    Gate,
    OnActiveMQ,
    Peers,
    Wrapped,
    element,
    envelope,
    eventually,
    request_message,
    take_one,
    text_of,
)
from faulty_kit import no_executor
from lxml import etree

from brokers import (
    Completion,
    Connection,
    ConnectionLostError,
    Delivery,
    Message,
    RefusedSend,
    SendResult,
    Transaction,
    queue,
)
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Request, Service
from soapjms.service.committer import Losses

LIMIT = 17 << 20
"""Octets of an answer that the ActiveMQ of these tests does not take."""

LOST: Final = ConnectionLostError("the connection was lost")

UNANSWERABLE = "was carried out, but the connection was lost with each of"


class Greeter:
    """A service whose answer is as large as it is asked for, and how often it ran."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.service = Service()
        self.service.operation(f"{{{NS}}}greetMe")(self.greet)

    def greet(self, request: Request) -> etree._Element:
        """Greet, at length those who are called `big`."""
        text = request.element.text or ""
        self.runs.append(text)
        return element("greetMeResponse", "x" * LIMIT if text == "big" else f"Hello {text}")


Commit: TypeAlias = Completion[tuple[RefusedSend, ...]]


class Unheard(Commit):
    """The end of a commit, of which who waits for it hears later than others."""

    def __init__(self) -> None:
        super().__init__(no_executor)
        self.asked, self.heard = Event(), Event()

    def on_settled(self, fn: Callable[[Future[tuple[RefusedSend, ...]]], object]) -> None:
        super().on_settled(fn)
        self.asked.set()

    def call_back(self, fn: Callable[[Future[tuple[RefusedSend, ...]]], object]) -> None:
        def tell() -> None:
            assert self.heard.wait(PATIENCE)
            fn(self)

        Thread(target=tell, daemon=True).start()


def lost_commit() -> Commit:
    """Make the end of a commit that was lost."""
    future: Commit = Completion(no_executor)
    future.settle((), LOST)
    return future


class Losing(Wrapped):
    """A connection that is lost with each commit of an answer above the limit, which ends as `end` makes it."""

    def __init__(self, inner: Connection, end: Callable[[], Commit] = lost_commit) -> None:
        super().__init__(inner)
        self.end = end
        self.lost: list[Delivery] = []

    def begin(self) -> Transaction:
        return LosingTransaction(super().begin(), self.lost, self.end)

    def come_back(self) -> None:
        """Have delivered again what was lost."""
        while self.lost:
            self.lost.pop().release()


class LosingTransaction(Transaction):
    """A transaction that is lost if it has such an answer, with all that it would have accepted."""

    def __init__(self, inner: Transaction, lost: list[Delivery], end: Callable[[], Commit]) -> None:
        self._inner = inner
        self._lost = lost
        self._end = end
        self._is_lost = False
        self._deliveries: list[Delivery] = []

    def send(self, message: Message) -> None:
        self._is_lost = self._is_lost or message.size > LIMIT
        self._inner.send(message)

    def accept(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._inner.accept(delivery)

    def abort(self) -> None:
        self._inner.abort()

    def commit(self) -> Commit:
        if not self._is_lost:
            return self._inner.commit()
        self._inner.abort()
        self._lost += self._deliveries
        return self._end()


class Unconfirmed(Wrapped):
    """A connection whose answers are confirmed when the test says so."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.answers: list[tuple[Completion[SendResult], Completion[SendResult]]] = []

    def answer(self, delivery: Delivery, message: Message) -> Completion[SendResult]:
        held: Completion[SendResult] = Completion(no_executor)
        self.answers.append((held, self.inner.answer(delivery, message)))
        return held

    def confirm(self) -> None:
        """Confirm what was sent until now."""
        answers, self.answers = self.answers, []
        for held, sent in answers:
            held.settle(sent.result(PATIENCE))


@pytest.fixture(params=[False, True], ids=["no store", "store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | None]:
    """A store, or none."""
    return tmp_path / "requests.db" if request.param else None


class TestEmbedded(Peers):
    """On the embedded broker, over a connection that is lost."""

    def test_dead_letter(self, client: Client, other: Connection, broker: Broker, store: Path | None) -> None:
        """After so many losses the caller has a fault; with a store the function ran once."""
        greeter = Greeter()
        losing = Losing(other)
        with Dispatcher(losing, URI, greeter.service, max_deliveries=3, store=store) as dispatcher:
            future = client.submit(envelope("big"), timeout=PATIENCE)
            for losses in (1, 2, 3):
                eventually(lambda: dispatcher.counts["lost"] == losses, "the commit was lost")  # noqa: B023 - at once
                losing.come_back()
            response = future.result(PATIENCE)
            assert response.fault is not None
            assert UNANSWERABLE in response.fault.reason
            assert text_of(client.call(envelope("Ann"), timeout=PATIENCE)) == "Hello Ann"
        assert (dispatcher.counts["poison"], dispatcher.counts["rejected"], dispatcher.counts["lost"]) == (1, 1, 3)
        assert greeter.runs == ["big"] * (3 if store is None else 1) + ["Ann"]
        assert broker.depth(GREETER) == 0
        assert take_one(other, queue("DLQ.greeter")).correlation_id == response.message.correlation_id

    def test_delivered_again_at_once(self, client: Client, other: Connection) -> None:
        """A loss counts from the moment that the connection is lost, though the request may be back before the
        committer hears of it."""
        greeter, end = Greeter(), Unheard()
        losing = Losing(other, lambda: end)
        with Dispatcher(losing, URI, greeter.service, workers=2, max_deliveries=1) as dispatcher:
            future = client.submit(envelope("big"), timeout=PATIENCE)
            assert end.asked.wait(PATIENCE)
            end.settle((), LOST)
            losing.come_back()
            eventually(lambda: dispatcher.under_way == 2, "it is back")
            eventually(lambda: dispatcher.counts["poison"] == 1 or len(greeter.runs) == 2, "it is worked on")
            end.heard.set()
            fault = future.result(PATIENCE).fault
        assert greeter.runs == ["big"]
        assert fault is not None
        assert UNANSWERABLE in fault.reason

    def test_alone_after_that(self, client: Client, other: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        """A request that was lost so is in no transaction with others, which it might take along again."""
        gate = Gate(other)
        with Dispatcher(gate, URI, Greeter().service, workers=3) as dispatcher:
            monkeypatch.setattr(dispatcher._committer.losses, "by_key", {b"any": 1})
            monkeypatch.setattr(dispatcher._committer.losses, "times", lambda request: 1)
            futures = [client.submit(envelope("Ann"))]
            assert gate.reached.wait(PATIENCE)
            futures += [client.submit(envelope(text)) for text in ("Bob", "Eve")]
            eventually(lambda: dispatcher._committer.waiting == 2, "both are finished")
            gate.open.set()
            assert [text_of(each.result(PATIENCE)) for each in futures] == ["Hello Ann", "Hello Bob", "Hello Eve"]
        assert dispatcher.counts["commits"] == 3

    def test_alone_after_that_without_transactions(self, client: Client, other: Connection) -> None:
        """Nor is its answer on the way together with others; those that come meanwhile wait for it."""
        unconfirmed = Unconfirmed(other)
        with Dispatcher(unconfirmed, URI, Greeter().service, workers=4, transactional=False) as dispatcher:
            first = client.submit(envelope("Ann"))
            eventually(lambda: len(unconfirmed.answers) == 1, "Ann is answered")
            dispatcher._committer.losses.by_key[b"any"] = 1
            dispatcher._committer.losses.times = lambda request: "Bob" in str(request.body)  # type: ignore[method-assign]
            futures = [client.submit(envelope("Bob"))]
            eventually(lambda: dispatcher._committer.waiting == 1, "Bob waits for Ann")
            futures += [client.submit(envelope(text)) for text in ("Eve", "Kim")]
            eventually(lambda: dispatcher._committer.waiting == 3, "Eve and Kim wait for Bob")
            unconfirmed.confirm()
            assert text_of(first.result(PATIENCE)) == "Hello Ann"
            eventually(lambda: len(unconfirmed.answers) == 1, "Bob is answered")
            assert dispatcher._committer.waiting == 2
            unconfirmed.confirm()
            eventually(lambda: len(unconfirmed.answers) == 2, "Eve and Kim are answered together")
            unconfirmed.confirm()
            assert [text_of(each.result(PATIENCE)) for each in futures] == ["Hello Bob", "Hello Eve", "Hello Kim"]


class TestActiveMQ(OnActiveMQ):
    """On a broker that ends the connection for a frame above its limit."""

    @pytest.mark.parametrize("mode", ["PERSISTENT", "NON_PERSISTENT"])
    @pytest.mark.parametrize("transactional", [True, False])
    def test_dead_letter(
        self,
        connection: Connection,
        other: Connection,
        name: str,
        store: Path | None,
        transactional: bool,
        mode: str,
    ) -> None:
        """Likewise; the connection is made again a few times, and calls that come meanwhile are answered."""
        greeter, uri = Greeter(), f"jms:queue:{name}?deliveryMode={mode}"
        options: dict[str, Any] = {"max_deliveries": 2, "store": store, "transactional": transactional}
        with (
            Dispatcher(other, uri, greeter.service, **options) as dispatcher,
            Client(connection, uri, timeout=PATIENCE) as client,
        ):
            futures = [client.submit(envelope(text)) for text in ("Ann", "big", "Bob", "Eve")]
            ann, big, bob, eve = (future.result(PATIENCE) for future in futures)
            assert big.fault is not None
            assert UNANSWERABLE in big.fault.reason
            assert [text_of(each) for each in (ann, bob, eve)] == ["Hello Ann", "Hello Bob", "Hello Eve"]
            # Without transactions an answer may have left whose request was not accepted when the connection was lost.
            assert set(client.counts) <= (set() if transactional else {"duplicate"})
        assert dispatcher.counts["poison"] == 1
        assert dispatcher.counts["lost"] >= 2
        assert store is None or greeter.runs.count("big") == 1
        assert take_one(connection, queue(f"DLQ.{name}")).correlation_id == big.message.correlation_id


def test_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request by itself, those that nothing tells from others not, and of many the last."""
    monkeypatch.setattr("soapjms.service.committer.MAX_KNOWN_REQUESTS", 2)
    losses = Losses(lambda: False)
    first, second, third = (request_message("greeter", queue("answers"), correlation_id=each) for each in "abc")
    nameless = request_message("greeter", None, correlation_id=None)
    losses.note([first, nameless])
    losses.note([first, second])
    assert [losses.times(each) for each in (first, second, third, nameless)] == [2, 1, 0, 0]
    losses.note([third])
    assert [losses.times(each) for each in (first, second, third)] == [0, 1, 1]
    losses.forget(second)
    losses.forget(nameless)
    assert [losses.times(each) for each in (first, second, third)] == [0, 0, 1]
