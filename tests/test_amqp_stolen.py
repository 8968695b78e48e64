"""A durable subscription that another client of the same client id takes: it is left to that one for a while."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest
from amqp_kit import text
from broker_contract_kit import Inbox
from calling_kit import eventually

import brokers
from brokers import topic
from brokers.amqp.consumer import FIRST_RETREAT, LONGEST_RETREAT, Retreat
from brokers.amqp.provider import Listener
from brokers.embedded import Broker

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
        said = "another consumer of client id 'me' has the durable subscription 'mine' now, which is asked for again in"
        assert kept.problem.startswith(said)
        assert "amqp:link:stolen" in kept.problem
        with pytest.raises(Empty):
            problems.get(timeout=FIRST_RETREAT / 4)
        second.send(text(NEWS, "1")).result(10)
        assert after.bodies(1) == ["1"]
        taken.close()
        second.send(text(NEWS, "2")).result(10)
        assert before.bodies(1) == ["2"]
        eventually(lambda: not kept.problem, "all is well again")


def test_pauses() -> None:
    """They are seconds, grow to some minutes, and begin again after the subscription was kept for long."""
    retreat = Retreat()
    bound = FIRST_RETREAT
    for _ in range(2000):
        assert bound / 2 <= retreat.pause(0.0) <= bound
        bound = min(bound * 2, LONGEST_RETREAT)
    assert retreat.pause(LONGEST_RETREAT) >= LONGEST_RETREAT / 2
    assert retreat.pause(LONGEST_RETREAT + 1) <= FIRST_RETREAT
