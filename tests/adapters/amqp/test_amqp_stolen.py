"""A durable subscription that another client of the same client id takes: it is left to that one for a while."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from threading import Barrier
from time import sleep

import pytest
from amqp_kit import text
from broker_contract_kit import Inbox
from calling_kit import eventually

import brokers
from brokers import BrokerError, Delivery, topic
from brokers.amqp.consumer import FIRST_RETREAT_SECONDS, MAX_RETREAT_SECONDS, Retreat
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from brokers.embedded.claims import Claims

NEWS = topic("t")


@pytest.fixture
def url() -> Iterator[str]:
    with Listener(Broker(), port=0) as listening:
        yield f"{listening.url}?clientId=me"


def test_it_is_not_taken_back_at_once(url: str) -> None:
    """Who lost it says who has it, and has it again once the other one has gone; nothing is lost."""
    problems: SimpleQueue[str] = SimpleQueue()
    before, after = Inbox(), Inbox()
    with brokers.connect(url) as first, brokers.connect(url) as second:
        kept = first.consume(NEWS, before, durable_name="mine")
        taken = second.consume(NEWS, after, durable_name="mine", on_problem=problems.put)
        eventually(lambda: kept.problem, "the first was told")
        said = "another consumer of client id 'me' took the durable subscription 'mine', which is requested again in"
        assert kept.problem.startswith(said)
        assert "amqp:link:stolen" in kept.problem
        with pytest.raises(Empty):
            problems.get(timeout=FIRST_RETREAT_SECONDS / 4)
        second.send(text(NEWS, "1")).result(10)
        assert after.bodies(1) == ["1"]
        taken.close()
        second.send(text(NEWS, "2")).result(10)
        assert before.bodies(1) == ["2"]
        eventually(lambda: not kept.problem, "all is well again")


def test_pauses() -> None:
    """They are seconds, grow to some minutes, and begin again after the subscription was kept for long."""
    retreat = Retreat()
    bound = FIRST_RETREAT_SECONDS
    for _ in range(2000):
        assert bound / 2 <= retreat.pause(0.0) <= bound
        bound = min(bound * 2, MAX_RETREAT_SECONDS)
    assert retreat.pause(MAX_RETREAT_SECONDS) >= MAX_RETREAT_SECONDS / 2
    assert retreat.pause(MAX_RETREAT_SECONDS + 1) <= FIRST_RETREAT_SECONDS


def test_one_at_a_time() -> None:
    """Of many who take it at once, by several listeners, one has it in the end, and gets everything."""
    broker = Broker()
    count = 12
    came: list[list[object]] = [[] for _ in range(count)]
    start = Barrier(count)
    with ExitStack() as stack:
        listeners = [stack.enter_context(Listener(broker, port=0)) for _ in range(2)]
        urls = [f"{each.url}?clientId=me" for each in listeners]
        connections = [stack.enter_context(brokers.connect(urls[number % 2])) for number in range(count)]

        def take(number: int) -> None:
            start.wait(10)

            def note(delivery: Delivery) -> None:
                came[number].append(delivery.message.body)
                delivery.accept()

            connections[number].consume(NEWS, note, durable_name="mine")

        with ThreadPoolExecutor(count) as pool:
            list(pool.map(take, range(count)))
        for number in range(20):
            connections[0].send(text(NEWS, f"{number}")).result(10)
        eventually(lambda: sum(map(len, came)) >= 20, "all have come")
        assert sorted(map(len, came)) == [0] * (count - 1) + [20]


def test_claims_of_many_threads() -> None:
    """Who makes a consumer has ended the one before: at no moment are there two, whatever fails."""
    claims = Claims()
    there: list[int] = []
    most: list[int] = []

    def make(number: int) -> int:
        most.append(len(there))
        sleep(0)  # another thread's turn
        there.append(number)
        if number % 5 == 0:
            there.remove(number)
            raise BrokerError("refused")
        return number

    def take(number: int) -> None:
        with suppress(BrokerError):
            claims.succeed("mine", lambda: make(number), there.remove)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, range(1, 2001)))
    assert len(most) == 2000
    assert set(most) == {0}
    assert len(there) <= 1
