"""brokers.amqp.listener: the embedded broker as a provider of the anonymous terminus, to clients of anybody's making.

The names AT-xx are those of `docs/conformance-amqp.md`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from amqp_raw import ACCEPTED, MODIFIED, PATIENCE, REJECTED, RELEASED, Raw, transfer
from proton import Described, Message, Terminus, byte, symbol, ulong

import brokers
from brokers import Delivery, Destination, DestinationKind, MessageType, SendFailedError, queue, topic
from brokers.amqp.listener import Action, Listener, Options
from brokers.amqp.listener.bursts import MAX_UNWRITTEN
from brokers.amqp.sections import AmqpSection, encode
from brokers.embedded import Broker

GONE = "temp-queue://ID:nobody"
"""An address that a direct link cannot be attached to."""


def may(user: str | None, action: Action, destination: Destination) -> bool:
    """Let nobody use what is forbidden."""
    return not str(destination.name).startswith("forbidden")


@pytest.fixture
def broker() -> Broker:
    """Make a broker."""
    return Broker()


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    """Listen."""
    with Listener(broker, port=0, options=Options(may=may)) as listening:
        yield listening


@pytest.fixture
def raw(listener: Listener) -> Iterator[Raw]:
    """Connect."""
    with Raw(listener.port) as client:
        yield client


def to(address: str | None, body: str = "x", **more: object) -> Message:
    """Make a message."""
    message = Message(body=body, **more)
    if address is not None:
        message.address = address
    return message


def direct(raw: Raw, address: str) -> tuple[str | None, str | None]:
    """Learn the error that a direct link to an address has."""
    link = raw.attach(address)
    assert link.remote_target.type == Terminus.UNSPECIFIED
    end = raw.end_of(link)
    assert end.state == "closed"
    return end.condition, end.description


def test_at16_the_capability_is_offered(raw: Raw) -> None:
    """AT-16: the connection says that the rest holds."""
    assert "ANONYMOUS-RELAY" in raw.offered


@pytest.mark.parametrize("address", [None, ""])
def test_at15_a_target_without_address(raw: Raw, address: str | None) -> None:
    """AT-15: it is answered with a target, without address, and with credit."""
    link = raw.attach(address)
    assert (link.remote_target.type, link.remote_target.address) == (Terminus.TARGET, None)
    assert link.credit > 0


def test_at02_messages_arrive_as_over_a_direct_link(raw: Raw) -> None:
    """AT-02: the bare message is the same octet for octet, the outcome too, whichever way it came."""
    raw.receive("q")
    message = to("q", "body", id=ulong(7), correlation_id=b"\x00\xff", content_type="x/y", properties={"a": byte(1)})
    message.annotations = {symbol("x-opt-mine"): 5}
    message.reply_to_group_id = "g"
    octets = bytes(message.encode())
    for link in (raw.attach(None), raw.attach("q")):
        assert raw.outcome(raw.send(link, octets)).state == ACCEPTED
    raw.until(lambda: len(raw.received) == 2)
    at = octets.index(b"\x00\x53\x72")  # the annotations, and after them the bare message
    for _, received in raw.received:
        assert received[received.index(b"\x00\x53\x72") :] == octets[at:]


def test_at01_at03_one_link_for_all_destinations(raw: Raw) -> None:
    """AT-01, AT-03: each message goes where its `to` says, in order, and has an outcome of its own."""
    first, second = raw.receive("a"), raw.receive("b")
    link = raw.attach(None)
    tags = [raw.send(link, to(name, body)) for name, body in (("a", "1"), ("b", "2"), ("a", "3"), (GONE, "4"))]
    assert [raw.outcome(tag).state for tag in tags] == [ACCEPTED, ACCEPTED, ACCEPTED, REJECTED]
    raw.until(lambda: len(raw.received) == 3)
    bodies: dict[str, list[str]] = {first.name: [], second.name: []}
    for name, octets in raw.received:
        message = Message()
        message.decode(octets)
        bodies[name].append(str(message.body))
    assert bodies == {first.name: ["1", "3"], second.name: ["2"]}


def test_at04_capabilities_that_some_node_has(raw: Raw) -> None:
    """AT-04: of what was asked for the answer repeats what some destination has."""
    from amqp_kit import symbols

    link = raw.attach(None, capabilities=("queue", "x-none"))
    assert symbols(link.remote_target.capabilities) == ["queue"]


@pytest.mark.parametrize(
    ("settled", "outcomes"), [(False, ("accepted", "rejected")), (False, ("accepted",)), (True, ())]
)
def test_at06_a_node_without_what_was_promised(raw: Raw, settled: bool, outcomes: tuple[str, ...]) -> None:
    """AT-06: a topic, where the link was for queues, is amqp:not-implemented: rejected, or the link is detached;
    where rejected could not tell it, a transaction is not committed."""
    link = raw.attach(None, capabilities=("queue",), outcomes=outcomes or ("accepted", "rejected"))
    tag = raw.send(link, to("topic://t"), settled=settled)
    told = raw.outcome(tag) if not settled and "rejected" in outcomes else raw.end_of(link)
    assert told.condition == "amqp:not-implemented"
    link, control = (
        raw.attach(None, capabilities=("queue",), outcomes=outcomes or ("accepted", "rejected")),
        raw.control(),
    )
    transaction = raw.declare(control)
    raw.send(link, to("topic://t"), settled=settled, transaction=transaction)
    ended = raw.discharge(control, transaction, fail=False)
    assert (ended.state == ACCEPTED) is (not settled and "rejected" in outcomes)
    assert ended.condition in (None, "amqp:transaction:rollback")


@pytest.mark.parametrize(
    "capabilities",
    [("topic",), ("queue",), ("topic", "queue"), ("queue", "topic"), ("x", "topic", "temporary-topic"), ("x",)],
)
def test_at02_at06_an_address_without_a_kind_is_what_it_is_at_a_direct_link(
    broker: Broker, raw: Raw, capabilities: tuple[str, ...]
) -> None:
    """AT-02, AT-06: the kind is that of the first agreed capability, and without one a queue."""
    raw.receive("plain", capabilities=("queue",))
    raw.receive("plain", capabilities=("topic",))
    arrived = []
    for address in ("plain", None):
        link = raw.attach(address, capabilities=capabilities)
        for body in ("1", "2", "3"):
            assert raw.outcome(raw.send(link, to("plain", body))).state == ACCEPTED
        raw.until(lambda: len(raw.received) == 3)
        arrived.append({name for name, _ in raw.received})
        raw.received.clear()
    assert len(arrived[0]) == 1
    assert arrived[0] == arrived[1]


def test_at02_equal_messages_on_links_of_two_kinds(raw: Raw) -> None:
    """AT-02: each goes where its own link says, however many came before."""
    receivers = [raw.receive("plain", capabilities=(kind,)).name for kind in ("queue", "topic")]
    links = [raw.attach(None, capabilities=(kind,)) for kind in ("queue", "topic")]
    for _ in range(3):
        for link in links:
            assert raw.outcome(raw.send(link, to("plain"))).state == ACCEPTED
    raw.until(lambda: len(raw.received) == 6)
    assert sorted(name for name, _ in raw.received) == sorted(receivers * 3)


@pytest.mark.parametrize(
    ("capabilities", "address", "annotation", "condition"),
    [
        (("topic",), "queue://q", None, "amqp:not-implemented"),
        (("topic",), "q", 0, "amqp:not-implemented"),
        (("topic",), None, None, "amqp:precondition-failed"),
        (("topic", "queue"), "queue://q", None, None),
        (("topic", "queue"), "q", 0, None),
        (("queue", "topic"), GONE, None, "amqp:not-found"),
        (("temporary-queue",), None, None, "amqp:precondition-failed"),
        (("temporary-queue",), "temp-queue://", None, "amqp:invalid-field"),
        (("temporary-queue",), "q", None, "amqp:not-found"),
        (("temporary-queue",), "topic://t", None, "amqp:not-implemented"),
    ],
)
def test_at06_what_a_message_says_goes_before_what_its_link_says(
    raw: Raw, capabilities: tuple[str, ...], address: str | None, annotation: int | None, condition: str | None
) -> None:
    """AT-06: of several capabilities the destination needs one, as it can have no more; it must exist first."""
    link = raw.attach(None, capabilities=capabilities)
    message = to(address)
    if annotation is not None:
        message.annotations = {symbol("x-opt-jms-dest"): byte(annotation)}
    for _ in range(3):  # the second and third are read by their shape
        assert raw.outcome(raw.send(link, message)).condition == condition


ACCEPTS = ("accepted",)
CELLS = [(settled, rejects, in_transaction) for in_transaction in (0, 1) for settled in (0, 1) for rejects in (1, 0)]


@pytest.mark.parametrize("address", [GONE, "forbidden.q", "queue://", "topic://", "temp-queue://", None])
@pytest.mark.parametrize(("settled", "rejects", "in_transaction"), CELLS)
def test_at07_to_at14_the_matrix_of_outcomes(
    broker: Broker, raw: Raw, address: str | None, settled: int, rejects: int, in_transaction: int
) -> None:
    """AT-07 to AT-14, AT-21 to AT-23: in each of the eight cells one error, that of a direct link, with the tag."""
    expected = direct(raw, address) if address is not None else ("amqp:precondition-failed", None)
    link = raw.attach(None, outcomes=("accepted", "rejected") if rejects else ("accepted",))
    control = raw.control() if in_transaction else None
    transaction = raw.declare(control) if in_transaction else None
    if transaction is not None:
        raw.send(link, to("kept", "good"), transaction=transaction)
    tag = raw.send(link, to(address), settled=bool(settled), transaction=transaction, tag="the-tag")

    if not settled and rejects:  # rows 1 and 5
        told = raw.outcome(tag)
        assert (told.state, told.transaction) == (REJECTED, transaction)
        assert link.name not in raw.detached
    elif transaction is None or not settled:  # rows 2, 3, 4 and 6
        told = raw.end_of(link)
        assert told.state == "closed"
    else:  # rows 7 and 8
        raw.settle_down()
        assert link.name not in raw.detached
        told = None
    if told is not None:
        assert told.condition == expected[0]
        assert expected[1] is None or told.description == expected[1]
        assert told.info == {"delivery-tag": b"the-tag"}

    if transaction is not None:
        assert broker.depth(queue("kept")) == 0  # AT-22
        ended = raw.discharge(control, transaction, fail=False)
        if not settled and rejects:
            assert ended.state == ACCEPTED
            assert broker.depth(queue("kept")) == 1
        else:
            assert (ended.state, ended.condition) == (REJECTED, "amqp:transaction:rollback")
            assert broker.depth(queue("kept")) == 0
            assert raw.discharge(control, transaction, fail=True).state == ACCEPTED  # AT-23
            assert raw.discharge(control, transaction, fail=True).condition == "amqp:transaction:unknown-id"
    if not settled and rejects:  # the link goes on
        assert raw.outcome(raw.send(link, to("after"))).state == ACCEPTED


def test_at12_only_the_link_is_detached(raw: Raw) -> None:
    """AT-12, AT-14: session, connection and other links are as before; of two bad ones the first is named."""
    bad, good = raw.attach(None), raw.attach(None)
    raw.send(bad, to(GONE), settled=True, tag="first")
    raw.send(bad, to(GONE), settled=True, tag="second")
    assert raw.end_of(bad).info == {"delivery-tag": b"first"}
    assert raw.outcome(raw.send(good, to("q"))).state == ACCEPTED
    assert raw.closed is None


@pytest.mark.parametrize(("settled", "outcomes"), [(True, ("accepted", "rejected")), (False, ("accepted",))])
def test_at09_at14_the_first_bad_message_ends_the_link(
    broker: Broker, raw: Raw, settled: bool, outcomes: tuple[str, ...]
) -> None:
    """AT-09, AT-14: of several in one write the first is named, and what follows it is not taken."""
    link, other = raw.attach(None, outcomes=outcomes), raw.attach(None)
    for address, tag in (("good", "0"), (GONE, "first"), (None, "second"), ("good", "third")):
        raw.send(link, to(address), settled=settled, tag=tag, now=False)
    told = raw.end_of(link)
    assert set(raw.outcomes) - {"0"} == set()  # nobody is told of what is not taken that it was settled
    assert (told.condition, told.info) == ("amqp:not-found", {"delivery-tag": b"first"})
    assert raw.outcome(raw.send(other, to("q"))).state == ACCEPTED
    assert broker.depth(queue("good")) == 1


@pytest.mark.parametrize("size", [5_000, 3_000_000])
def test_nothing_is_taken_after_an_oversized_message(size: int) -> None:
    """The link has ended, and the session goes on; also where more than a session's window comes in one write."""
    broker = Broker()
    with Listener(broker, port=0, options=Options(max_message=1000)) as listening, Raw(listening.port) as raw:
        link, other = raw.attach(None), raw.attach(None)
        raw.send(link, to("q", "x" * size), now=False)
        raw.send(link, to(GONE), settled=True, now=False)
        for _ in range(50):
            raw.send(link, to("q", "y" * 900), now=False)
        assert raw.end_of(link).condition == "amqp:link:message-size-exceeded"
        assert raw.outcomes == {}  # nobody is told that it was settled
        assert raw.outcome(raw.send(other, to("other"))).state == ACCEPTED
        assert broker.depth(queue("q")) == 0
        assert raw.outcome(raw.send(raw.attach("again"), to(None))).state == ACCEPTED


def test_a_message_that_is_too_large_fails_at_its_sender() -> None:
    """It is told why before it is sent, and its link goes on."""
    with (
        Listener(Broker(), port=0, options=Options(max_message=1000)) as listening,
        brokers.connect(listening.url, reconnect=False) as connection,
    ):
        for size in (2000, 200_000):
            large = brokers.Message(message_type=MessageType.TEXT, body="x" * size, destination=queue("q"))
            with pytest.raises(SendFailedError, match="the broker takes messages of 1000 octets here"):
                connection.send(large).result(PATIENCE)
        connection.send(replace(large, body="small")).result(PATIENCE)
        assert listening.broker.depth(queue("q")) == 1


def resident() -> int:
    """Return the memory of this process, in octets."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def test_what_comes_on_a_refused_link_is_dropped(raw: Raw, broker: Broker) -> None:
    """A client that does not wait for the answer to its attach, and sends without credit, costs no memory."""
    raw.attach("q")
    refused = raw.session.sender("refused")
    refused.target.address = GONE
    refused.open()
    raw.pump()
    before = resident()
    for number in range(1600):
        raw.write(transfer(1, number // 8, bytes(60_000), more=number % 8 != 7))
    raw.write(transfer(0, 200, bytes(to(None).encode() or b""), more=False))
    assert raw.end_of(refused).condition == "amqp:not-found"
    raw.until(lambda: broker.depth(queue("q")))
    assert resident() - before < 32 << 20


def test_at23_a_rollback_always_succeeds(raw: Raw) -> None:
    """AT-23: of a transaction that went wrong too; what was in it is nowhere."""
    link, control = raw.attach(None), raw.control()
    transaction = raw.declare(control)
    raw.send(link, to(GONE), settled=True, transaction=transaction)
    assert raw.discharge(control, transaction, fail=True).state == ACCEPTED
    ended = raw.discharge(control, transaction, fail=True)
    assert (ended.state, ended.condition) == (REJECTED, "amqp:transaction:unknown-id")


@pytest.mark.parametrize("descriptor", [ulong(0x33), symbol("x:declare:list"), [], 49.0])
def test_what_the_coordinator_does_not_take(raw: Raw, descriptor: object) -> None:
    """It is rejected, whatever describes it, and the link goes on."""
    control = raw.control()
    told = raw.outcome(raw.send(control, Message(body=Described(descriptor, [None]))))
    assert (told.state, told.condition) == (REJECTED, "amqp:not-implemented")
    assert raw.discharge(control, raw.declare(control), fail=True).state == ACCEPTED


def test_at23_a_refused_commit_can_be_rolled_back(raw: Raw) -> None:
    """AT-11, AT-23: also where the refusal ended the control link, and another link rolls back; until then, whatever
    else is wanted of the transaction is told that it is rolled back."""
    link, mute, control = raw.attach(None), raw.attach(None, kind=Terminus.COORDINATOR, outcomes=ACCEPTS), raw.control()
    transaction = raw.declare(mute)
    raw.send(link, to(GONE), settled=True, transaction=transaction)
    raw.send(mute, Message(body=Described(ulong(0x32), [transaction, False])))
    assert raw.end_of(mute).condition == "amqp:transaction:rollback"
    again = raw.discharge(control, transaction, fail=False)
    assert (again.state, again.condition) == (REJECTED, "amqp:transaction:rollback")
    raw.send(link, to("q"), transaction=transaction)
    assert raw.end_of(link).condition == "amqp:transaction:rollback"
    assert raw.discharge(control, transaction, fail=True).state == ACCEPTED


@pytest.mark.parametrize("settled", [False, True])
def test_at21_at22_a_routable_message_in_a_transaction(broker: Broker, raw: Raw, settled: bool) -> None:
    """AT-21, AT-22: accepted for the time being, and seen by nobody before the discharge."""
    link, control = raw.attach(None), raw.control()
    raw.receive("q")
    transaction = raw.declare(control)
    tag = raw.send(link, to("q", "in"), settled=settled, transaction=transaction)
    if not settled:
        told = raw.outcome(tag)
        assert (told.state, told.transaction) == (ACCEPTED, transaction)
    assert raw.outcome(raw.send(link, to("q", "outside"))).state == ACCEPTED
    assert raw.take(1) == ["outside"]
    assert raw.discharge(control, transaction, fail=False).state == ACCEPTED
    assert raw.take(1) == ["in"]


def test_acceptances_in_a_transaction(broker: Broker, raw: Raw) -> None:
    """After a rollback the message is delivered again; after a commit it is gone."""
    link, control = raw.attach(None), raw.control()
    raw.receive("q")
    raw.outcome(raw.send(link, to("q", "request")))
    for fail, left in ((True, 1), (False, 0)):
        raw.until(lambda: raw.deliveries)
        transaction = raw.declare(control)
        raw.settle(raw.deliveries.pop(), ACCEPTED, transaction=transaction)
        assert raw.discharge(control, transaction, fail=fail).state == ACCEPTED
        if left:
            assert raw.take(2) == ["request", "request"]
    assert broker.depth(queue("q")) == 0


def test_the_end_of_the_control_link_rolls_back(broker: Broker, raw: Raw) -> None:
    """A client that lost interest leaves nothing open."""
    link, control = raw.attach(None), raw.control()
    transaction = raw.declare(control)
    raw.outcome(raw.send(link, to("q"), transaction=transaction))
    control.close()
    raw.end_of(control)
    again = raw.control()
    assert raw.discharge(again, transaction, fail=False).condition == "amqp:transaction:unknown-id"
    assert broker.depth(queue("q")) == 0


def test_a_control_link_ends_only_what_it_began(broker: Broker, raw: Raw) -> None:
    """Another one's transaction goes on."""
    link, control, other = raw.attach(None), raw.control(), raw.control()
    mine, others = raw.declare(control), raw.declare(other)
    for transaction in (mine, others):
        raw.outcome(raw.send(link, to("q"), transaction=transaction))
    control.close()
    raw.end_of(control)
    assert raw.discharge(other, others, fail=False).state == ACCEPTED
    assert broker.depth(queue("q")) == 1


def test_the_end_of_a_connection_rolls_back(broker: Broker, listener: Listener) -> None:
    """What was sent in an open transaction is nowhere; what was accepted is delivered again."""
    with Raw(listener.port) as lost:
        link, control = lost.attach(None), lost.control()
        lost.outcome(lost.send(link, to("q", "request")))
        lost.receive("q")
        lost.until(lambda: lost.deliveries)
        transaction = lost.declare(control)
        lost.outcome(lost.send(link, to("q", "answer"), transaction=transaction))
        lost.settle(lost.deliveries.pop(), ACCEPTED, transaction=transaction)
        lost.settle_down()
    with Raw(listener.port) as next_one:
        next_one.receive("q")
        assert next_one.take(1) == ["request"]
    assert broker.depth(queue("q")) == 1


def test_an_idle_transaction_is_rolled_back(broker: Broker) -> None:
    """What it holds goes back, and who comes too late is told; one that is used goes on."""
    with (
        Listener(broker, port=0, options=Options(transaction_idle=2.0)) as listening,
        Raw(listening.port) as raw,
        Raw(listening.port) as other,
    ):
        link, control = raw.attach(None), raw.control()
        raw.outcome(raw.send(link, to("q", "request")))
        raw.receive("q", credit=1)
        raw.until(lambda: raw.deliveries)
        idle = raw.declare(control)
        raw.outcome(raw.send(link, to("q", "never"), transaction=idle))
        raw.settle(raw.deliveries.pop(), ACCEPTED, transaction=idle)
        other.receive("q")
        assert other.take(1) == ["request"]
        assert raw.discharge(control, idle, fail=False).condition == "amqp:transaction:timeout"
        raw.send(link, to("q"), transaction=idle)
        assert raw.end_of(link).condition == "amqp:transaction:timeout"
        assert raw.discharge(control, idle, fail=True).state == ACCEPTED  # AT-23
        assert raw.discharge(control, idle, fail=True).condition == "amqp:transaction:unknown-id"
        used, link = raw.declare(control), raw.attach(None)
        for number in range(24):  # longer than that
            raw.outcome(raw.send(link, to("used", str(number)), transaction=used))
            raw.settle_down()
        assert raw.discharge(control, used, fail=False).state == ACCEPTED
        assert broker.depth(queue("used")) == 24


def test_transactions_are_bounded(broker: Broker) -> None:
    """In number, and in what they hold: the message that is too much is refused, and the rest can be committed."""
    with Listener(broker, port=0, options=Options(max_transactions=1500)) as listening, Raw(listening.port) as raw:
        link, control = raw.attach(None), raw.control()
        first, *others = [raw.declare(control) for _ in range(100)]
        refused = raw.outcome(raw.send(control, Message(body=Described(ulong(0x31), [None]))))
        assert (refused.state, refused.condition) == (REJECTED, "amqp:resource-limit-exceeded")
        assert raw.outcome(raw.send(link, to("q", "x" * 600), transaction=first)).state == ACCEPTED
        told = raw.outcome(raw.send(link, to("q", "x" * 600), transaction=others[0]))
        assert (told.state, told.condition) == (REJECTED, "amqp:resource-limit-exceeded")
        assert raw.discharge(control, first, fail=False).state == ACCEPTED
        assert raw.outcome(raw.send(link, to("q", "x" * 600), transaction=others[0])).state == ACCEPTED
        assert raw.discharge(control, others[0], fail=False).state == ACCEPTED
        assert broker.depth(queue("q")) == 2


def test_at24_refused_links(raw: Raw) -> None:
    """AT-24: the answer has no terminus, and the reason follows; for receivers as for senders."""
    assert direct(raw, GONE)[0] == "amqp:not-found"
    assert direct(raw, "forbidden.q")[0] == "amqp:unauthorized-access"
    link = raw.receive("forbidden.q")
    assert raw.end_of(link).condition == "amqp:unauthorized-access"


@pytest.mark.parametrize("address", ["queue://", "topic://", "temp-queue://", "temp-topic://"])
def test_addresses_without_a_name(raw: Raw, caplog: pytest.LogCaptureFixture, address: str) -> None:
    """Such a target or source is amqp:invalid-field; as an address for replies it is carried, to dead letters too."""
    assert direct(raw, address)[0] == "amqp:invalid-field"
    assert raw.end_of(raw.receive(address)).condition == "amqp:invalid-field"
    relay = raw.attach(None)
    assert raw.outcome(raw.send(relay, to("q", reply_to=address))).state == ACCEPTED
    raw.receive("q")
    raw.until(lambda: raw.deliveries)
    raw.settle(raw.deliveries.pop(), REJECTED)
    raw.receive("DLQ.q")
    assert raw.take(2) == ["x", "x"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_outcomes_that_are_not_listed(broker: Broker) -> None:
    """Clients that list none understand `rejected`, as most do; a strict listener goes by the letter."""
    for assume, expected in ((True, REJECTED), (False, "closed")):
        with Listener(broker, port=0, options=Options(assume_rejected=assume)) as listening, Raw(listening.port) as raw:
            link = raw.attach(None, outcomes=None)
            tag = raw.send(link, to(GONE))
            told = raw.outcome(tag) if assume else raw.end_of(link)
            assert told.state == expected


def test_credit_is_all_that_a_client_gets(raw: Raw) -> None:
    """Never more than the credit; others get the rest; settling alone brings no more."""
    sender = raw.attach("q")
    for body in "abcde":
        raw.outcome(raw.send(sender, to(None, body)))
    few = raw.receive("q", credit=2)
    assert raw.take(2) == ["a", "b"]
    others = raw.receive("q", credit=10)
    assert raw.take(3) == ["c", "d", "e"]
    raw.settle(raw.deliveries[0], ACCEPTED)
    raw.outcome(raw.send(sender, to(None, "f")))
    raw.until(lambda: raw.received)
    assert raw.received[0][0] == others.name
    few.flow(1)
    raw.outcome(raw.send(sender, to(None, "g")))
    raw.until(lambda: len(raw.received) == 2)


def test_a_drained_link_has_no_credit_left(raw: Raw) -> None:
    """What is there is sent, and the rest of the credit given back."""
    sender = raw.attach("q")
    raw.outcome(raw.send(sender, to(None, "a")))
    link = raw.receive("q", credit=0)
    link.drain(10)
    raw.until(lambda: link.credit == 0 and raw.received)
    assert raw.take(1) == ["a"]


def test_a_drained_link_gets_all_there_is(raw: Raw) -> None:
    """Also if more waits for the window of its session than is taken out of the queue at a time."""
    sender = raw.attach("q")
    for _ in range(20):
        raw.outcome(raw.send(sender, to(None, "x" * (MAX_UNWRITTEN // 10))))
    session = raw.connection.session()
    session.incoming_capacity = MAX_UNWRITTEN // 4
    session.open()
    link: Any = session.receiver("drained")
    link.source.address = "q"
    link.open()
    link.drain(30)
    raw.until(lambda: link.credit == 0)
    assert len(raw.received) == 20


@pytest.mark.parametrize(
    ("named", "place"),
    [
        ("queue://there", queue("there")),
        ("topic://there", topic("there")),
        ("there", queue("there")),
        (GONE, Destination(DestinationKind.TEMPORARY_QUEUE, "ID:nobody")),
        ("topic://", None),
    ],
)
def test_what_a_program_in_the_process_reads(raw: Raw, broker: Broker, named: str, place: Destination | None) -> None:
    """The sender's id, which an answer repeats, and where to answer, also if only the address tells its kind."""
    got = SimpleQueue[Delivery]()
    with broker.connect() as connection:
        connection.consume(queue("q"), got.put)
        raw.outcome(raw.send(raw.attach("q"), to(None, "a", id="ID:mine", reply_to=named)))
        message = got.get(timeout=PATIENCE).message
    assert (message.message_id, message.reply_to) == ("ID:mine", place)


@pytest.mark.parametrize(
    ("state", "failed", "count"), [(RELEASED, False, 0), (MODIFIED, False, 0), (MODIFIED, True, 1)]
)
def test_what_is_given_back_is_delivered_again(raw: Raw, state: int, failed: bool, count: int) -> None:
    """With a count of the deliveries that failed. Spec: AMQP 1.0 part 3, 3.4.4 and 3.4.5."""
    sender = raw.attach("q")
    raw.outcome(raw.send(sender, to(None, "a")))
    raw.receive("q")
    raw.until(lambda: raw.deliveries)
    raw.deliveries[0].local.failed = failed
    raw.settle(raw.deliveries.pop(), state)
    raw.until(lambda: len(raw.received) == 2)
    counts = []
    for _, octets in raw.received:
        message = Message()
        message.decode(octets)
        counts.append(message.delivery_count)
    assert counts == [0, count]


def test_what_nobody_has_seen_is_no_dead_letter(broker: Broker, listener: Listener) -> None:
    """A consumer that comes and goes gives back what it was sent ahead, however often: that is not delivered too often.
    What it had begun with, and did not finish, is in the end."""
    with Raw(listener.port) as sender:
        link = sender.attach("q")
        for number in range(5):
            sender.outcome(sender.send(link, to(None, f"{number}")))
    for _ in range(8):
        with Raw(listener.port) as client:
            client.receive("q", credit=5)
            client.until(lambda: len(client.deliveries) == broker.depth(queue("q")))
            first, *others = client.deliveries
            for each in others:
                client.settle(each, RELEASED)
            first.local.failed = True
            client.settle(first, MODIFIED)
            client.connection.close()
            client.until(lambda: client.closed)
    assert (broker.depth(queue("q")), broker.depth(queue("DLQ.q"))) == (4, 1)


def test_a_rejected_message_is_a_dead_letter(broker: Broker, raw: Raw) -> None:
    """With the client's reason."""
    sender = raw.attach("q")
    raw.outcome(raw.send(sender, to(None, "a")))
    raw.receive("q")
    raw.until(lambda: raw.deliveries)
    raw.settle(raw.deliveries.pop(), REJECTED)
    raw.receive("DLQ.q")
    raw.until(lambda: len(raw.received) == 2)
    message = Message()
    message.decode(raw.received[1][1])
    assert (message.body, message.properties["dead_letter_reason"]) == ("a", "rejected")


def test_numbers_that_no_field_has(broker: Broker, raw: Raw) -> None:
    """A message that says them is one without; it is a dead letter like any other, too."""
    sender = raw.attach("q")
    stated = [None] * 8 + [ulong(2**64 - 1), None, "g", ulong(2**60)]
    raw.outcome(raw.send(sender, encode(AmqpSection.PROPERTIES, stated) + encode(AmqpSection.VALUE, "x")))
    raw.receive("q")
    raw.until(lambda: raw.deliveries)
    raw.settle(raw.deliveries.pop(), REJECTED)
    raw.receive("DLQ.q")
    assert raw.take(2) == ["x", "x"]


def test_a_message_that_amqp_cannot_carry(broker: Broker, raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    """It is a dead letter, and one that is no such dead letter either is dropped; the next message comes."""
    raw.receive("q")
    raw.receive("DLQ.q")
    with broker.connect() as inside:
        for body in ("\ud800", "next"):
            inside.send(brokers.Message(message_type=MessageType.TEXT, body=body, destination=queue("q"))).result(
                PATIENCE
            )
    assert raw.take(1) == ["next"]
    raw.settle_down()
    assert (raw.received, broker.depth(queue("DLQ.q"))) == ([], 0)
    (dropped,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert "dropped message" in dropped
    assert "it could not be sent to an AMQP client: AMQP cannot carry the value of this message: 'utf-8'" in dropped


def test_settled_deliveries_are_gone(broker: Broker, raw: Raw) -> None:
    """A client that wants no settling gets each message once."""
    sender = raw.attach("q")
    raw.outcome(raw.send(sender, to(None, "a")))
    raw.receive("q", settled=True)
    assert raw.take(1) == ["a"]
    raw.until(lambda: broker.depth(queue("q")) == 0)


def test_temporary_nodes(raw: Raw, listener: Listener) -> None:
    """Dynamic nodes have an address that says what they are; others may send there, until the client goes."""
    link = raw.receive(None, dynamic=True)
    address = link.remote_source.address
    assert address.startswith("temp-queue://")
    with Raw(listener.port, container="other") as other:
        relay = other.attach(None)
        assert other.outcome(other.send(relay, to(address, "reply"))).state == ACCEPTED
        assert raw.take(1) == ["reply"]
        foreign = other.receive(address)
        assert other.end_of(foreign).condition == "amqp:not-allowed"
        raw.__exit__(None, None, None)
        other.until(lambda: listener.guests == 1)
        assert other.outcome(other.send(relay, to(address))).condition == "amqp:not-found"


def test_durable_subscriptions(broker: Broker, listener: Listener) -> None:
    """They outlive a detached link, and end with a closed one."""
    for ends, waiting in (("detach", ["kept"]), ("close", [])):
        with Raw(listener.port, container=f"me-{ends}") as raw:
            link = raw.receive("topic://t", durability=Terminus.DELIVERIES, name="mine")
            getattr(link, ends)()
            raw.until(lambda raw=raw: "mine" in raw.detached)
        with Raw(listener.port, container=f"me-{ends}") as raw:
            sender = raw.attach("topic://t")
            raw.outcome(raw.send(sender, to(None, "kept")))
            raw.receive("topic://t", durability=Terminus.DELIVERIES, name="mine")
            raw.outcome(raw.send(sender, to(None, "later")))
            assert raw.take(len(waiting) + 1) == [*waiting, "later"]
    assert topic("t") in broker.destinations()


def test_a_durable_subscription_of_two_links(broker: Broker, listener: Listener) -> None:
    """The one that is closed does not end it for the other; nor is that an error."""
    with Raw(listener.port, container="me") as one, Raw(listener.port, container="me") as two:
        first, _ = (each.receive("topic://t", durability=Terminus.DELIVERIES, name="mine") for each in (one, two))
        first.close()
        one.end_of(first)
        relay = one.attach(None)
        assert one.outcome(one.send(relay, to("topic://t", "kept"))).state == ACCEPTED
        assert two.take(1) == ["kept"]


def test_durable_subscriptions_are_their_users() -> None:
    """Another user with the same names has another one."""
    users = {"ann": "ann", "bob": "bob"}
    with Listener(Broker(), port=0, options=Options(users=users)) as listening:
        for user in users:
            with Raw(listening.port, container="same", user=user) as raw:
                raw.receive("topic://t", durability=Terminus.DELIVERIES, name="mine")
                raw.outcome(raw.send(raw.attach(None), to("topic://t", user)))
                assert raw.take(1) == [user]


def test_only_what_is_there() -> None:
    """A listener may be told which destinations there are; others are not made."""
    options = Options(destinations=frozenset({queue("a")}))
    with Listener(Broker(), port=0, options=options) as listening, Raw(listening.port) as raw:
        assert direct(raw, "b") == ("amqp:not-found", "there is no queue:b")
        relay = raw.attach(None)
        assert raw.outcome(raw.send(relay, to("a"))).state == ACCEPTED
        assert raw.outcome(raw.send(relay, to("b"))).condition == "amqp:not-found"


def test_limits() -> None:
    """Links, messages and clients have an end; who goes beyond is told, and others go on."""
    options = Options(max_links=2, max_message=1000, max_connections=2, max_logins=2)
    with Listener(Broker(max_messages=1), port=0, options=options) as listening, Raw(listening.port) as raw:
        link = raw.attach("q")
        assert raw.outcome(raw.send(link, to(None))).state == ACCEPTED
        assert raw.outcome(raw.send(link, to(None))).condition == "amqp:resource-limit-exceeded"
        raw.send(link, to(None, "x" * 2000))
        assert raw.end_of(link).condition == "amqp:link:message-size-exceeded"
        for _ in range(2):
            last = raw.attach("q")
        refused = raw.attach("q")
        assert raw.end_of(refused).condition == "amqp:resource-limit-exceeded"
        with Raw(listening.port, container="two"), pytest.raises((AssertionError, OSError)):
            Raw(listening.port, container="three")
        assert raw.outcome(raw.send(last, to(None))).condition == "amqp:resource-limit-exceeded"


def test_queues_are_bounded_in_octets() -> None:
    """Refused is what is beyond, alone and in a transaction, and said is what there is; what was taken is delivered."""
    with Listener(Broker(max_octets=1000), port=0) as listening, Raw(listening.port) as raw:
        link = raw.attach("q")
        for body in ("a", "b"):
            assert raw.outcome(raw.send(link, to(None, body * 400))).state == ACCEPTED
        refused = raw.outcome(raw.send(link, to(None, "c" * 400)))
        assert (refused.state, refused.condition) == (REJECTED, LIMIT)
        said = r"queue:q is full: max_octets is 1000, it has 8\d\d, and 4\d\d more were to be added"
        assert re.fullmatch(said, str(refused.description))
        control = raw.control()
        transaction = raw.declare(control)
        raw.outcome(raw.send(link, to(None, "d" * 400), transaction=transaction))
        ended = raw.discharge(control, transaction, fail=False)
        assert (ended.state, ended.condition) == (REJECTED, "amqp:transaction:rollback")
        assert "max_octets is 1000" in str(ended.description)
        raw.receive("q")
        assert raw.take(2) == ["a" * 400, "b" * 400]


LIMIT = "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("ends", ["answered", "unanswered"])
def test_refused_links_are_bounded(ends: str) -> None:
    """Who never answers their end loses the connection; who does may ask for as many as it likes."""
    with Listener(Broker(), port=0, options=Options(max_links=20)) as listening, Raw(listening.port) as raw:
        if ends == "answered":
            for _ in range(50):
                assert raw.end_of(raw.attach(GONE)).condition == "amqp:not-found"
            return
        links = [raw.session.sender(f"n{number}") for number in range(21)]
        for link in links:
            link.target.address = GONE
            link.open()
        raw.until(lambda: raw.closed)
        assert raw.closed is not None
        assert raw.closed.condition == LIMIT
        assert "refused links" in str(raw.closed.description)


def test_unfinished_messages_are_bounded() -> None:
    """On all links of a client together; the link that brings too much is detached, and then there is room again."""
    options = Options(max_message=100_000, max_unfinished=150_000)
    with Listener(Broker(), port=0, options=options) as listening, Raw(listening.port) as raw:
        links = [raw.attach("q") for _ in range(2)]
        for link in links:
            link.delivery("part")
            link.stream(b"x" * 90_000)
            raw.pump()
        assert raw.end_of(links[1]).condition == LIMIT
        assert links[0].name not in raw.detached
        links[0].close()
        raw.end_of(links[0])
        assert raw.outcome(raw.send(raw.attach("q"), to(None, "x" * 95_000))).state == ACCEPTED


@pytest.mark.parametrize("before", ["x" * 5000, None])
def test_a_transaction_never_loses_a_message(broker: Broker, before: str | None) -> None:
    """What is oversized, or comes behind what ends the link, does not let the rest be committed."""
    with Listener(broker, port=0, options=Options(max_message=1000)) as listening, Raw(listening.port) as raw:
        link, other, control = raw.attach(None), raw.attach(None), raw.control()
        transaction = raw.declare(control)
        raw.outcome(raw.send(other, to("q", "kept"), transaction=transaction))
        if before is None:
            raw.send(link, to(GONE), settled=True, tag="bad", now=False)
            raw.send(link, to("q"), settled=True, transaction=transaction)
        else:
            raw.send(link, to("q", before), settled=True, transaction=transaction, tag="bad")
        assert raw.end_of(link).info == {"delivery-tag": b"bad"}
        ended = raw.discharge(control, transaction, fail=False)
        assert (ended.state, ended.condition) == (REJECTED, "amqp:transaction:rollback")
        assert broker.depth(queue("q")) == 0


def test_what_was_sent_to_a_node_that_ends_before_the_commit(
    raw: Raw, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, as the client cannot be told."""
    with Raw(listener.port, container="owner") as owner:
        link = owner.receive(None, dynamic=True)
        control = raw.control()
        transaction = raw.declare(control)
        address = link.remote_source.address
        raw.outcome(raw.send(raw.attach(None), to(address), transaction=transaction))
        link.close()
        owner.end_of(link)
    assert raw.discharge(control, transaction, fail=False).state == ACCEPTED
    assert "without a message of it" in caplog.text


def test_destinations_that_one_client_makes() -> None:
    """Queues, topics, dynamic nodes and durable subscriptions have an end; what is there can still be used."""
    broker = Broker()
    with (
        Listener(broker, port=0, options=Options(max_client_destinations=3)) as listening,
        Raw(listening.port) as raw,
        Raw(listening.port, container="other") as other,
    ):
        relay = raw.attach(None)
        assert raw.outcome(raw.send(relay, to("q"))).state == ACCEPTED
        dynamic = raw.receive(None, dynamic=True)
        direct_link = raw.attach("late")  # a link makes nothing yet
        raw.receive("topic://t")
        refused = raw.outcome(raw.send(relay, to("another")))
        assert (refused.state, refused.condition) == (REJECTED, LIMIT)
        assert "this client has 3 destinations" in str(refused.description)
        assert raw.outcome(raw.send(direct_link, to(None))).condition == LIMIT
        for more in ({"address": "another"}, {"address": None, "dynamic": True}):
            assert raw.end_of(raw.receive(**more)).condition == LIMIT
        assert raw.end_of(raw.attach(None, dynamic=True)).condition == LIMIT
        durable = raw.receive("topic://t", durability=Terminus.DELIVERIES, name="d")
        assert raw.end_of(durable).condition == LIMIT
        for address in ("q", dynamic.remote_source.address, "topic://t"):
            assert raw.outcome(raw.send(relay, to(address))).state == ACCEPTED
        assert other.outcome(other.send(other.attach(None), to("another"))).state == ACCEPTED
    assert broker.depth(queue("late")) == 0


def test_destinations_are_forgotten_when_unused() -> None:
    """A queue that was emptied, a topic without subscribers, a node whose link ended: each makes room for others."""
    options = Options(max_client_destinations=3)
    with Listener(Broker(), port=0, options=options) as listening, Raw(listening.port) as raw:
        relay = raw.attach(None)
        for number in range(5):
            assert raw.outcome(raw.send(relay, to(f"q{number}", "x"))).state == ACCEPTED
            link = raw.receive(f"q{number}")
            assert raw.take(1) == ["x"]
            raw.settle(raw.deliveries[-1], ACCEPTED)
            link.close()
            raw.end_of(link)
            for made in (raw.receive("topic://t"), raw.receive(None, dynamic=True), raw.attach(None, dynamic=True)):
                assert made.name not in raw.detached
                made.close()
                raw.end_of(made)


def test_destinations_of_all_clients() -> None:
    """Who comes and goes leaves no more than the broker has room for; a transaction of too many is rolled back."""
    broker = Broker(max_destinations=4)
    with Listener(broker, port=0) as listening:
        for container, is_refused in (("one", False), ("two", True)):  # a queue each, the topic, a subscription each
            with Raw(listening.port, container=container) as raw:
                raw.outcome(raw.send(raw.attach(None), to(container)))
                link = raw.receive("topic://t", durability=Terminus.DELIVERIES, name="d")
                assert (link.name in raw.detached) is is_refused
                assert not is_refused or "(max_destinations)" in str(raw.detached["d"].description)
        with Raw(listening.port, container="next") as raw:
            relay, control = raw.attach(None), raw.control()
            transaction = raw.declare(control)
            for number in range(3):
                raw.outcome(raw.send(relay, to(f"in{number}"), transaction=transaction))
            ended = raw.discharge(control, transaction, fail=False)
            assert (ended.state, ended.condition) == (REJECTED, "amqp:transaction:rollback")
            assert not broker.has(queue("in0"))
            assert raw.outcome(raw.send(relay, to("one"))).state == ACCEPTED


def test_what_is_no_message_is_rejected(raw: Raw) -> None:
    """The octets of a transfer are read before they are taken."""
    link = raw.attach("q")
    told = raw.outcome(raw.send(link, b"\xff\xff"))
    assert (told.state, told.condition) == (REJECTED, "amqp:decode-error")
