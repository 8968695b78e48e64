"""brokers.adapter.consumer: a subscription that was ended is made again, whatever an attempt fails of."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event
from time import monotonic
from typing import Any

import pytest
from amqp_kit import PATIENCE, Peer, text
from calling_kit import eventually
from limits_kit import no_more_threads, refuse_thread_once
from proton import Condition, symbol

import brokers
from brokers import BrokerError, ConnectionState, queue
from brokers.amqp.listener import Listener
from brokers.amqp.message_reader import ReceivedMessage, from_amqp_message
from brokers.amqp.redirects import Branches
from brokers.embedded import Broker


def end(peer: Peer) -> None:
    """Have the peer end the newest link of a consumer of `q`, and say nothing of another place."""

    def close() -> None:
        name = next(each.name for each in reversed(peer.attached) if each.address == "q" and not each.is_sender)
        peer.links[name].condition = Condition("amqp:internal-error", "ended")
        peer.links[name].close()

    peer.do(close)


def addresses(peer: Peer) -> list[str | None]:
    """List what clients attached to."""
    return [each.address for each in peer.attached]


@pytest.mark.parametrize("error", [TimeoutError(), MemoryError(), RuntimeError("can't start new thread")])
@pytest.mark.parametrize("is_lost", [False, True], ids=["link", "connection"])
def test_redirect_that_fails_once(error: Exception, is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt follows it; the connection is none the worse, and meanwhile the consumer has a problem."""
    told, failing, original = list[str](), [error], Branches.to

    def to(branches: Branches, login: Any, info: Any) -> Any:
        if failing:
            raise failing.pop()
        return original(branches, login, info)

    monkeypatch.setattr(Branches, "to", to)
    with Peer() as goal, Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        info = {symbol("network-host"): "127.0.0.1", symbol("port"): goal.port, symbol("address"): "there"}
        consumer = connection.consume(queue("q"), lambda delivery: None, on_problem=told.append)
        peer.refuses["q"] = Condition("amqp:link:redirect", "moved", info)
        if is_lost:
            peer.cut()
        else:
            end(peer)
        eventually(lambda: addresses(goal) == ["there"], "it was followed")
        eventually(lambda: consumer.problem == "" and told[-1:] == [""], "all is well")
        assert told[0]
        assert connection.generation == 1 + is_lost


def test_no_delivery_begins_after_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even that of a message which was being read meanwhile: it goes back, and another consumer gets it."""
    is_read, is_closed = Event(), Event()

    def slow(*arguments: Any) -> ReceivedMessage:
        is_read.set()
        assert is_closed.wait(PATIENCE)
        return from_amqp_message(*arguments)

    got: SimpleQueue[str] = SimpleQueue()
    with Listener(Broker(), port=0) as listener, brokers.connect(listener.url, timeout=PATIENCE) as connection:
        monkeypatch.setattr("brokers.amqp.consumer.from_amqp_message", slow)
        consumer = connection.consume(queue("q"), lambda delivery: got.put("the closed one"))
        connection.send(text(queue("q"))).result(PATIENCE)
        assert is_read.wait(PATIENCE)
        consumer.close()
        is_closed.set()
        connection.consume(queue("q"), lambda delivery: got.put("another"))
        assert got.get(timeout=PATIENCE) == "another"
        consumer.join(monotonic() + PATIENCE)
        assert got.empty()


def test_no_thread_that_makes_it_again(caplog: pytest.LogCaptureFixture) -> None:
    """It is made again once there is one."""
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        consumer = connection.consume(queue("q"), lambda delivery: None)
        with no_more_threads():
            end(peer)
            eventually(lambda: "a due task has to wait" in caplog.text, "there is no thread")
            assert consumer.problem
        eventually(lambda: addresses(peer) == ["q", "q"] and not consumer.problem, "there is another")


def test_no_thread_for_the_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is made again even if nobody can be told that it was lost; they are told of both then."""
    told: SimpleQueue[ConnectionState] = SimpleQueue()
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        connection.watch(told.put)
        refusals = refuse_thread_once(monkeypatch, "-callback")
        peer.cut()
        assert [told.get(timeout=PATIENCE) for _ in range(2)] == [ConnectionState.LOST, ConnectionState.CONNECTED]
        assert not refusals


def test_no_thread_for_a_delivery() -> None:
    """It begins once there is one, though no other message follows."""
    got: SimpleQueue[object] = SimpleQueue()
    with (
        Listener(Broker(), port=0) as listener,
        brokers.connect(listener.url, timeout=PATIENCE) as connection,
        connection.consume(queue("q"), lambda delivery: got.put(delivery.message.body)) as consumer,
    ):
        with no_more_threads():
            connection.send(text(queue("q"), "only")).result(PATIENCE)
            eventually(lambda: consumer._turns.is_busy, "it has arrived")
        assert got.get(timeout=PATIENCE) == "only"


def test_no_thread_for_what_is_due() -> None:
    """Who would not hear of the end of a subscription gets none."""
    with Peer() as peer, brokers.connect(peer.url, timeout=PATIENCE) as connection:
        with no_more_threads(), pytest.raises(BrokerError, match="cannot consume from queue:q: can't start new thread"):
            connection.consume(queue("q"), lambda delivery: None)
        with connection.consume(queue("q"), lambda delivery: None) as consumer:
            assert addresses(peer) == ["q"]
            assert not consumer.problem


def test_close_while_a_due_task_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing keeps its deadline, even if the thread for pauses is held up by the one that begins its task."""
    begun, is_over = Event(), Event()

    def submit(function: Any) -> None:
        begun.set()
        assert is_over.wait(PATIENCE)

    with Listener(Broker(), port=0) as listener:
        connection: Any = brokers.connect(listener.url, timeout=PATIENCE)
        monkeypatch.setattr(connection._crew, "submit", submit)
        connection.later(0.0, lambda: None)
        assert begun.wait(PATIENCE)
        before = monotonic()
        connection.close(0.1)
        assert monotonic() - before < PATIENCE / 2
        is_over.set()
