"""brokers.amqp.listener: what becomes of the deliveries of a client, and which of them count.

Spec: AMQP 1.0 part 3, section 3.2.1 (delivery-count) and 3.4 (outcomes); part 4, section 4.4.2 (transactional
retirement).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqp_raw import ACCEPTED, MODIFIED, REJECTED, RELEASED, Raw
from amqp_soak import paused
from proton import Condition, Described, Message, symbol, ulong
from waiting import eventually

from brokers import queue
from brokers.amqp.listener import Listener
from brokers.embedded import Broker


@pytest.fixture
def broker() -> Broker:
    """Make a broker."""
    return Broker()


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    """Connect to it."""
    with Listener(broker, port=0) as listening, Raw(listening.port) as client:
        yield client


def decide(client: Raw, transaction: bytes | None, state: int, fields: list[Any]) -> None:
    """Tell the outcome of the last delivery, within a transaction or not."""
    delivery = client.deliveries.pop()
    if transaction is not None:
        delivery.local.data = [transaction, Described(ulong(state), fields)]
        delivery.update(0x34)
    else:
        if state == REJECTED and fields:
            delivery.local.condition = Condition("app:no", "not this one")
        if state == MODIFIED:
            delivery.local.failed, delivery.local.undeliverable = [*fields, False, False][:2]
        delivery.update(state)
    delivery.settle()
    client.pump()


def counts(client: Raw, many: int) -> list[tuple[str, int]]:
    """Wait for so many messages, and return what each says and how often it was delivered in vain."""
    client.until(lambda: len(client.received) >= many)
    found = []
    for _, octets in client.received[:many]:
        message = Message()
        message.decode(octets)
        found.append((str(message.body), int(message.delivery_count)))
    del client.received[:many]
    return found


NO = [Described(ulong(0x1D), [symbol("app:no"), "not this one", None])]

OUTCOMES = [
    pytest.param(ACCEPTED, [], 0, None, id="accepted"),
    pytest.param(REJECTED, NO, 0, "not this one", id="rejected"),
    pytest.param(RELEASED, [], 1, 0, id="released"),
    pytest.param(MODIFIED, [], 1, 0, id="modified"),
    pytest.param(MODIFIED, [True], 1, 1, id="failed"),
    pytest.param(MODIFIED, [False, True], 0, "modified: not deliverable here", id="undeliverable"),
]
"""Outcomes, how many messages then are in the queue, and how often they failed; or why there is a dead letter."""


def see(client: Raw, broker: Broker, left: int, then: int | str | None) -> None:
    """See that an outcome took effect."""
    letters = queue("DLQ.q")
    assert (broker.depth(queue("q")), broker.depth(letters)) == (left, int(isinstance(then, str)))
    if isinstance(then, int):
        assert counts(client, 1) == [("a", then)]
    elif then is not None:
        client.receive("DLQ.q")
        client.until(lambda: client.received)
        message = Message()
        message.decode(client.received.pop()[1])
        assert message.properties is not None
        assert message.properties["dead_letter_reason"] == then


@pytest.mark.parametrize(("state", "fields", "left", "then"), OUTCOMES)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_outcomes(
    broker: Broker, raw: Raw, in_transaction: bool, state: int, fields: list[Any], left: int, then: int | str | None
) -> None:
    """Each takes effect; within a transaction when that is committed, and not before."""
    control, sender = raw.control(), raw.attach("q")
    raw.outcome(raw.send(sender, Message(body="a")))
    raw.receive("q")
    assert counts(raw, 1) == [("a", 0)]
    if not in_transaction:
        decide(raw, None, state, fields)
        raw.outcome(raw.send(raw.attach("other"), Message(body="later")))
    else:
        transaction = raw.declare(control)
        decide(raw, transaction, state, fields)
        raw.outcome(raw.send(raw.attach("other"), Message(body="later")))
        assert (broker.depth(queue("q")), broker.depth(queue("DLQ.q"))) == (1, 0)
        assert raw.received == []
        assert raw.discharge(control, transaction, fail=False).state == ACCEPTED
    see(raw, broker, left, then)


@pytest.mark.parametrize(("state", "fields", "left", "then"), OUTCOMES)
def test_a_rollback_undoes_each_outcome(
    broker: Broker, raw: Raw, state: int, fields: list[Any], left: int, then: int | str | None
) -> None:
    """The message is delivered again, and nothing else became of it; it can then be decided about anew."""
    control, sender = raw.control(), raw.attach("q")
    raw.outcome(raw.send(sender, Message(body="a")))
    raw.receive("q")
    assert counts(raw, 1) == [("a", 0)]
    transaction = raw.declare(control)
    decide(raw, transaction, state, fields)
    assert raw.discharge(control, transaction, fail=True).state == ACCEPTED
    assert counts(raw, 1) == [("a", 1)]
    assert (broker.depth(queue("q")), broker.depth(queue("DLQ.q"))) == (1, 0)
    decide(raw, None, ACCEPTED, [])
    eventually(lambda: broker.depth(queue("q")) == 0, "it is gone")


@pytest.mark.parametrize(("state", "fields", "left", "then"), OUTCOMES)
def test_outcomes_outlive_their_link(
    broker: Broker, raw: Raw, state: int, fields: list[Any], left: int, then: int | str | None
) -> None:
    """A client may close the link of what it decided about before it commits."""
    control, sender = raw.control(), raw.attach("q")
    raw.outcome(raw.send(sender, Message(body="a")))
    link = raw.receive("q")
    assert counts(raw, 1) == [("a", 0)]
    transaction = raw.declare(control)
    decide(raw, transaction, state, fields)
    link.close()
    raw.end_of(link)
    raw.receive("q")
    raw.outcome(raw.send(raw.attach("other"), Message(body="later")))
    assert (broker.depth(queue("q")), broker.depth(queue("DLQ.q"))) == (1, 0)
    assert raw.received == []
    assert raw.discharge(control, transaction, fail=False).state == ACCEPTED
    see(raw, broker, left, then)


def test_credit_within_a_transaction(raw: Raw) -> None:
    """Credit of one at a time gets message after message, however many the transaction holds by then."""
    control, sender = raw.control(), raw.attach("q")
    for number in range(5):
        raw.outcome(raw.send(sender, Message(body=f"{number}")))
    link, transaction = raw.receive("q", credit=1), raw.declare(control)
    for number in range(5):
        assert raw.take(1) == [f"{number}"]
        raw.settle(raw.deliveries.pop(), ACCEPTED, transaction=transaction)
        link.flow(1)
        raw.pump()
    assert raw.discharge(control, transaction, fail=False).state == ACCEPTED


def test_an_outcome_in_no_transaction(broker: Broker, raw: Raw) -> None:
    """The link ends with the reason, and the message is delivered again: it was seen, so that counts."""
    sender = raw.attach("q")
    raw.outcome(raw.send(sender, Message(body="a")))
    link = raw.receive("q")
    assert counts(raw, 1) == [("a", 0)]
    raw.settle(raw.deliveries.pop(), ACCEPTED, transaction=b"none")
    assert raw.end_of(link).condition == "amqp:transaction:unknown-id"
    raw.receive("q")
    assert counts(raw, 1) == [("a", 1)]


SIZE = 60_000
MANY = 400
"""Messages that are far more than the sockets between two programs hold."""


def leave_by_detaching(client: Raw, link: Any) -> None:
    """End the link, and read on."""
    link.close()
    client.end_of(link)


def leave_by_going(client: Raw, link: Any) -> None:
    """Say no more, as a program that was ended, and read what was written until then."""
    client.read_to_the_end()


@pytest.mark.parametrize("leave", [leave_by_detaching, leave_by_going])
def test_only_what_was_written_counts(broker: Broker, leave: Callable[[Raw, Any], None]) -> None:
    """What waits for a client to read when its link or connection ends was never delivered to it."""
    with Listener(broker, port=0) as listener, Raw(listener.port) as sender:
        link = sender.attach("q")
        for number in range(MANY):
            assert sender.outcome(sender.send(link, Message(body=f"{number:04}" + "x" * SIZE))).state == ACCEPTED
        with Raw(listener.port, receive_buffer=1 << 16) as slow:
            taking = slow.receive("q", credit=MANY)
            eventually(lambda: paused(listener) > 0, "it is behind")
            leave(slow, taking)
            seen = {octets.partition(b"xxxx")[0][-4:].decode() for _, octets in slow.received}
        eventually(lambda: listener.guests == 1, "it is gone")
        sender.receive("q", credit=MANY)
        again = counts(sender, MANY)
        counted = {body[:4] for body, count in again if count}
        assert max(count for _, count in again) <= 1
        assert counted <= seen
        assert 0 < len(counted) < MANY
        if leave is leave_by_going:
            assert counted == seen
