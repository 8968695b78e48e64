"""What a long session over AMQP costs the listener: nothing is kept of links and transactions that have ended."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from amqp_broken import ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, END, TRANSFER
from amqp_kit import text
from amqp_raw import ACCEPTED, Raw, frame
from amqp_wire import BEGUN, OPENED, Wire, begun, flow, receiver, sender, source, target
from broker_contract_kit import Inbox
from calling_kit import eventually
from proton import Described, symbol, uint, ulong

from brokers import queue
from brokers.amqp.listener import Listener, Options
from brokers.amqp.listener.inspection import MAX_STOLEN_HANDLES
from brokers.embedded import Broker

LIMIT = "amqp:resource-limit-exceeded"
GONE = target("temp-queue://gone")


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(Broker(), port=0, options=Options(max_links=20)) as listening:
        yield listening


@pytest.fixture
def wire(listener: Listener) -> Iterator[Wire]:
    with begun(listener.port) as connected:
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


@pytest.mark.parametrize("attach", [sender, receiver])
def test_links_that_have_ended(attach: Callable[[str, int], bytes], wire: Wire) -> None:
    """A client that makes a consumer or a producer for each call may do so for years."""

    def once(number: int) -> None:
        wire.write(attach(f"{number}-{'n' * 10_000}", 0), frame(DETACH, uint(0), True))
        wire.until(DETACH)

    assert growth(once, 100) < 300_000  # the names alone have 1,000,000


def test_links_that_were_refused(wire: Wire) -> None:
    """Likewise if each is refused."""

    def once(number: int) -> None:
        refused = frame(ATTACH, f"{number}-{'n' * 10_000}", uint(0), False, None, None, None, GONE, None, None, uint(0))
        wire.write(refused, frame(DETACH, uint(0), True))
        wire.until(DETACH)

    assert growth(once, 100) < 300_000


def test_one_reason_for_many_messages(listener: Listener, wire: Wire) -> None:
    """A frame may reject all that was delivered: the dead letters have the beginning of its reason, and no more."""
    letters = queue("DLQ.q")
    with listener.broker.connect() as connection:
        for number in range(100):
            connection.send(text(queue("q"), f"{number}"))
        wire.write(receiver(), flow(uint(0), uint(0), uint(100)))
        for _ in range(100):
            wire.until(TRANSFER)
        rejected = Described(ulong(0x25), [Described(ulong(0x1D), [symbol("x:y"), "r" * 60_000])])
        wire.write(frame(DISPOSITION, True, uint(0), uint(99), True, rejected))
        eventually(lambda: listener.broker.depth(letters) == 100, "all are dead letters")
        arrived = Inbox()
        with connection.consume(letters, arrived):
            reasons = {arrived.next().message.properties.value("dead_letter_reason") for _ in range(100)}
    assert reasons == {"r" * 999 + "…"}


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


def test_stolen_links_whose_end_is_not_answered(wire: Wire) -> None:
    """Too many of one session end it; a client that answers may steal its own links as often as it likes."""
    for handle in range(2 * MAX_STOLEN_HANDLES):
        wire.write(sender("same", handle), *([frame(DETACH, uint(handle - 1), True)] if handle else []))
    wire.write(frame(DETACH, uint(handle), True))
    while not wire.until(DETACH).fields[1]:
        pass
    for handle in range(MAX_STOLEN_HANDLES + 2):
        wire.write(sender("same", handle))
    assert wire.until(END).error == (
        LIMIT,
        f"a client must answer the detach of stolen links, got {MAX_STOLEN_HANDLES + 1} that are not answered",
    )


def durable(number: int) -> bytes:
    """Attach a link of a durable subscription."""
    terms = source("topic://t", uint(2), symbol("never"))
    return frame(ATTACH, f"d{number}", uint(number), True, None, None, terms, target())


@pytest.mark.parametrize("answers", [True, False])
def test_links_that_another_connection_steals(answers: bool, listener: Listener) -> None:
    """The client that lost them must answer, too: otherwise its connection ends, as with refused links."""
    with Wire(listener.port) as first, Wire(listener.port) as second:
        for each in (first, second):
            each.write(OPENED, BEGUN)
            each.until(BEGIN)
        for number in range(25):
            for each in (first, second):
                each.write(durable(number))
                if not answers and number == 21 and each is first:
                    closed = first.until(CLOSE)
                    assert closed.error == (LIMIT, "the end of 21 refused links, or stolen ones, is not answered")
                    return
                each.until(ATTACH)
            assert first.until(DETACH).error[0] == "amqp:link:stolen"
            if answers:
                first.write(frame(DETACH, uint(number), True))
            second.write(frame(DETACH, uint(number), True))
            second.until(DETACH)
        assert answers
