"""What a long session over AMQP costs the listener: nothing is kept of links and transactions that have ended."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from amqp_broken import BEGIN
from amqp_raw import ACCEPTED, Raw
from amqp_wire import BEGUN, OPENED, Wire, target

from brokers.amqp.listener import Listener, Options
from brokers.embedded import Broker

LIMIT = "amqp:resource-limit-exceeded"
GONE = target("temp-queue://gone")


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(Broker(), port=0, options=Options(max_links=20)) as listening:
        yield listening


@pytest.fixture
def wire(listener: Listener) -> Iterator[Wire]:
    with Wire(listener.port) as connected:
        connected.write(OPENED, BEGUN)
        connected.until(BEGIN)
        yield connected


@contextmanager
def traced() -> Iterator[None]:
    """Trace Python's memory."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def growth(once: Callable[[int], None], rounds: int) -> int:
    """Return by how many octets the memory of this process grows with further rounds of the same."""
    with traced():
        for number in range(rounds):
            once(number)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(rounds, 2 * rounds):
            once(number)
        return tracemalloc.get_traced_memory()[0] - before


def test_transactions_that_ended_on_another_link(listener: Listener) -> None:
    """A control link keeps nothing of what it declared; neither of what was committed nor of what was rolled back."""
    with Raw(listener.port) as raw:
        control, other = raw.control(), raw.control()

        def once(number: int) -> None:
            for fail in (True, False):
                transaction = raw.declare(control)
                assert raw.discharge(other, transaction, fail=fail).state == ACCEPTED

        with traced():
            once(0)
            counted = []
            for _ in range(2):
                for number in range(100):
                    once(number)
                snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/transactions.py")])
                counted.append(sum(each.size for each in snapshot.statistics("filename")))
    assert counted[1] - counted[0] < 5_000  # an id has 41 octets, and its entry in a set more
