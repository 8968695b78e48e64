"""Recording what a broker copies to a topic, as a program does it: what is recorded, hidden, dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

import pytest
from calling_kit import Wrapped, envelope, eventually, fresh, request_message
from capture_kit import no_file_beyond
from cli_kit import records_in

import soapjms
from brokers import (
    BrokerError,
    Connection,
    Consumer,
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    queue,
    topic,
    typed,
)
from brokers.amqp.listener import Listener
from brokers.connection import ConnectionState
from brokers.embedded import Broker
from soapjms.capture.log import CaptureLog, utc_now
from soapjms.capture.mask import Mask, MaskedMessage
from soapjms.capture.sources import copies_reach, direction_of, from_divert, tap_point
from soapjms.capture.tap import Backlog, Capture, CopiedMessage, MessageFilter
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, Node, format_time
from soapjms.replay import replay

COPIES = topic("copies")


@pytest.fixture
def connection() -> Iterator[Connection]:
    """A broker in this process."""
    with soapjms.connect(f"embedded:{fresh('broker')}") as connection:
        yield connection


def copy(body: bytes = b"", reply_to: Destination | None = None, **changes: Any) -> Message:
    """Make a message of SOAP/JMS that is sent to the topic of the copies."""
    properties = changes.pop("properties", {})
    return replace(
        request_message("asked", reply_to, body, properties=properties), **{"destination": COPIES, **changes}
    )


def plain(**changes: Any) -> Message:
    """Make one that is of nothing."""
    return Message(message_type=MessageType.TEXT, body="text", **{"destination": COPIES, **changes})


def send(connection: Connection, *messages: Message) -> None:
    """Send, and return when the broker has all."""
    for each in messages:
        connection.send(each).result(9)


def seen(capture: Capture, count: int) -> None:
    """Wait until so many copies have come."""
    eventually(lambda: capture.counts["seen"] == count, f"{count} copies came")


def test_records(connection: Connection, tmp_path: Path) -> None:
    """Node and broker are in each; the time is when it came; the log is complete when it is closed."""
    with CaptureLog(tmp_path) as log, Capture(connection, log, [COPIES]) as capture:
        send(connection, copy(), copy())
        seen(capture, 2)
    records = records_in(tmp_path)
    assert [(each.node, each.direction, dict(each.meta)) for each in records] == [
        (Node.TAP, None, {"broker": "embedded"})
    ] * 2
    assert all(each.sha256 for each in records)
    assert dict(capture.counts) == {"seen": 2, "recorded": 2, "masked": 0, "left out": 0}


def test_each_has_a_time_of_its_own(tmp_path: Path) -> None:
    """Copies that were read together follow each other by microseconds, in the order in which they came."""
    with (
        Listener(Broker(), port=0) as listener,
        soapjms.connect(listener.url) as connection,
        soapjms.connect(listener.url) as sender,
        CaptureLog(tmp_path) as log,
        Capture(connection, log, [COPIES]) as capture,
    ):
        begun = utc_now()
        for each in [sender.send(copy(b"%d" % number)) for number in range(50)]:
            each.result(9)
        seen(capture, 50)
        ended = utc_now()
    records = records_in(tmp_path)
    assert [each.message.body for each in records] == [b"%d" % number for number in range(50)]
    times = [each.time for each in records]
    assert begun <= times[0]
    assert all(earlier < later for earlier, later in pairwise(times))
    assert times[-1] <= ended


@pytest.mark.parametrize(
    ("losses", "gaps"),
    [
        ("-connection +connection -first +first", [(1, 2), (3, 4)]),
        ("-first -connection +connection +first", [(1, 4)]),
        ("-connection -first +connection +first", [(1, 4)]),
        ("-first -second +first +second -second", [(1, 4), (5, None)]),
        ("-connection -connection +connection", [(1, 3)]),
    ],
)
def test_gaps(connection: Connection, tmp_path: Path, losses: str, gaps: list[tuple[int, int | None]]) -> None:
    """A gap begins when the connection or a subscription is lost, and ends when all are there; a record tells it."""
    told: dict[str, Any] = {}

    class Unsteady(Wrapped):
        def watch(self, on_state: Any) -> None:
            told["connection"] = on_state

        def _consume(self, options: Any, on_delivery: Any) -> Any:
            told[options.destination.name] = options.on_problem
            return super()._consume(options, on_delivery)

    steps = [datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC) for second in range(9)]
    now = steps[0]
    with (
        CaptureLog(tmp_path) as log,
        Capture(Unsteady(connection), log, [topic("first"), topic("second")], clock=lambda: now) as capture,
    ):
        for step, loss in enumerate(losses.split(), 1):
            now = steps[step]
            is_lost, what = loss.startswith("-"), loss[1:]
            if what == "connection":
                told[what](ConnectionState.LOST if is_lost else ConnectionState.CONNECTED)
            else:
                told[what]("ended" if is_lost else "")
        assert [(each.begun, each.ended) for each in capture.gaps] == [
            (steps[begun], None if ended is None else steps[ended]) for begun, ended in gaps
        ]
        send(connection, copy(destination=topic("first")))
        seen(capture, 1)
    (record,) = records_in(tmp_path)
    assert record.meta["not_connected_before"] == [
        [format_time(steps[begun]), format_time(steps[ended])] for begun, ended in gaps if ended is not None
    ]


def test_ends_though_the_broker_does_not_answer(connection: Connection, tmp_path: Path) -> None:
    """That a subscription cannot be ended keeps nothing from being written."""

    class Mute(Wrapped):
        def _consume(self, options: Any, on_delivery: Any) -> Consumer:
            return MuteConsumer(super()._consume(options, on_delivery))

    class MuteConsumer(Consumer):
        def __init__(self, inner: Consumer) -> None:
            self.inner = inner

        def close(self) -> None:
            self.inner.close()
            raise BrokerError("the broker did not answer within 30 s")

    with CaptureLog(tmp_path) as log, Capture(Mute(connection), log, [COPIES]) as capture:
        send(connection, copy(), copy())
        seen(capture, 2)
    assert len(records_in(tmp_path)) == 2


def test_only_what_is_of_the_binding(connection: Connection, tmp_path: Path) -> None:
    """And what answers it, whatever that is; unless everything is asked for. Never a ping."""
    answers = fresh()
    messages = (
        copy(reply_to=queue(answers)),
        plain(destination=queue(answers)),
        plain(),
        plain(correlation_id="soapjms-ping-1"),
    )
    with (
        CaptureLog(tmp_path / "some") as some,
        CaptureLog(tmp_path / "all") as everything,
        Capture(connection, some, [COPIES], translate=from_divert) as one,
        Capture(connection, everything, [COPIES], translate=from_divert, everything=True) as other,
    ):
        send(connection, *map(copied, messages))
        seen(one, 3)
        seen(other, 3)
    assert (one.counts["recorded"], one.counts["other"]) == (2, 1)
    assert (other.counts["recorded"], other.counts["other"]) == (3, 0)


def copied(message: Message) -> Message:
    """Do as Artemis does."""
    assert message.destination is not None
    said = Properties([typed("_AMQ_ORIG_ADDRESS", message.destination.name or "")])
    return replace(message, destination=COPIES, properties=message.properties.merged(said))


def test_queues() -> None:
    """Requests to some, with their answers; nothing to others."""
    wanted = MessageFilter(["a"], everything=False)
    asked, reply = plain(destination=queue("a"), reply_to=queue("r")), plain(destination=queue("r"))
    assert not wanted.wants(reply)
    assert wanted.wants(asked)
    assert wanted.wants(reply)
    assert not wanted.wants(copy(destination=queue("b"), reply_to=queue("s")))
    assert not wanted.wants(plain(destination=queue("s")))
    assert not wanted.wants(plain(destination=None))


def test_reply_destination_of_several() -> None:
    """One that serves requests to other queues, too, is told apart by what the answers refer to."""
    wanted = MessageFilter(["a"], everything=False)
    assert wanted.wants(plain(destination=queue("a"), reply_to=queue("r"), correlation_id="1"))
    assert not wanted.wants(plain(destination=queue("b"), reply_to=queue("r"), correlation_id="2", message_id="ID:3"))
    assert [wanted.wants(plain(destination=queue("r"), correlation_id=each)) for each in ("1", "2", "ID:3", None)] == [
        True,
        False,
        False,
        True,
    ]


def test_reply_destinations_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest are known: a client that asks again stays."""
    monkeypatch.setattr("soapjms.capture.tap.MAX_KNOWN_REPLIES", 2)
    wanted = MessageFilter([], everything=False)
    for name in ("one", "two", "one", "three"):
        wanted.wants(copy(reply_to=queue(name)))
    known = [name for name in ("one", "two", "three") if wanted.wants(plain(destination=queue(name)))]
    assert known == ["one", "three"]


def test_hidden(connection: Connection, tmp_path: Path) -> None:
    """What was hidden is said in the record, and the digest is of what is left: a replay reads it."""
    secret, zstd = envelope("4711"), {"SOAPJMS_contentEncoding": "zstd"}
    mask = Mask(elements=["greetMe"], properties=["customer"])
    with CaptureLog(tmp_path / "log") as log, Capture(connection, log, [COPIES], mask=mask) as capture:
        send(connection, copy(secret, properties={"customer": "Ann"}), copy(secret, properties=zstd))
        seen(capture, 2)
    one, other = records_in(tmp_path / "log")
    assert one.meta["masked"] == ["property customer", "element greetMe"]
    assert b"4711" not in bytes(one.message.body)  # type: ignore[arg-type]
    assert (other.message.body, other.truncated, other.sha256) == (None, True, None)
    assert other.meta["masked"] == ["body: the encoding 'zstd' is not known"]
    assert (capture.counts["masked"], capture.counts["left out"]) == (2, 1)
    summary = replay([tmp_path / "log"], tmp_path / "out", engine="local")
    assert (summary.members["records"], summary.members["rejected"]) == (2, 0)


class Slow(Mask):
    """Waits before each message is written."""

    def __init__(self, begun: Event, go_on: Event) -> None:
        super().__init__()
        object.__setattr__(self, "begun", begun)
        object.__setattr__(self, "go_on", go_on)

    def apply(self, message: Message) -> MaskedMessage:
        self.begun.set()  # type: ignore[attr-defined]
        assert self.go_on.wait(20)  # type: ignore[attr-defined]
        return super().apply(message)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mask": ["Card"]}, "mask must be a"),
        ({"mask": []}, "mask must be a"),
        ({"queues": "bank"}, "queues must be a list of names, got 'bank'"),
    ],
)
def test_wrong_options(connection: Connection, tmp_path: Path, options: dict[str, Any], says: str) -> None:
    """They are refused before anything is recorded."""
    with CaptureLog(tmp_path / "log") as log, pytest.raises(UsageError, match=says):
        Capture(connection, log, [COPIES], **options)


def test_what_comes_too_fast_is_dropped_and_counted(connection: Connection, tmp_path: Path) -> None:
    """Nobody waits for the tap; the next record says how many are missing before it."""
    begun, go_on = Event(), Event()
    with (
        CaptureLog(tmp_path) as log,
        Capture(connection, log, [COPIES], mask=Slow(begun, go_on), backlog=Backlog(messages=3)) as capture,
    ):
        send(connection, copy())
        assert begun.wait(20)  # one is in the writer's hand
        send(connection, *(copy() for _ in range(9)))
        seen(capture, 10)  # though none could be written
        assert capture.counts["dropped"] == 6
        go_on.set()
        eventually(lambda: capture.counts["recorded"] == 4, "the rest was written")
        send(connection, copy())
        seen(capture, 11)
    records = records_in(tmp_path)
    assert [each.meta.get("dropped_before") for each in records] == [None] * 4 + [6]


def test_on_a_full_disk_it_waits(connection: Connection, tmp_path: Path) -> None:
    """As many as there is room for in memory; what was dropped is counted, and said by the next record."""
    with (
        CaptureLog(tmp_path) as log,
        Capture(connection, log, [COPIES], backlog=Backlog(messages=3)) as capture,
    ):
        with no_file_beyond(30):
            send(connection, copy())
            eventually(lambda: capture.problem == "File too large", "it could not be written")
            send(connection, *(copy() for _ in range(5)))
            seen(capture, 6)
            assert (capture.counts["recorded"], capture.counts["dropped"], capture.counts["failed"]) == (0, 2, 0)
        eventually(lambda: capture.counts["recorded"] == 4, "what waited was written")
        assert capture.problem is None
        send(connection, copy())
        seen(capture, 7)
    assert [each.meta.get("dropped_before") for each in records_in(tmp_path)] == [None] * 4 + [2]
    assert (capture.counts["recorded"], capture.counts["dropped"], capture.counts["failed"]) == (5, 2, 0)


def test_ended_on_a_full_disk(connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What could not be written is counted as such, and told."""
    with no_file_beyond(30), CaptureLog(tmp_path) as log:
        with Capture(connection, log, [COPIES]) as capture:
            send(connection, copy())
            eventually(lambda: capture.problem is not None, "it could not be written")
            send(connection, copy(), copy())
            seen(capture, 3)
        assert (capture.counts["recorded"], capture.counts["failed"]) == (0, 3)
    assert caplog.messages[-1] == f"3 messages could not be written to {tmp_path}: File too large"
    assert list(tmp_path.iterdir()) == []


def test_there_is_room_again_at_the_end(connection: Connection, tmp_path: Path) -> None:
    """Then nothing is lost."""
    with CaptureLog(tmp_path) as log:
        capture = Capture(connection, log, [COPIES])
        with no_file_beyond(30):
            send(connection, copy())
            eventually(lambda: capture.problem is not None, "it could not be written")
            send(connection, copy(), copy())
            seen(capture, 3)
        capture.close()
    assert (capture.counts["recorded"], capture.counts["failed"]) == (3, 0)
    assert len(records_in(tmp_path)) == 3


def test_a_backlog_is_bounded_in_octets() -> None:
    """But for a single message, which is taken whatever its size."""
    backlog, large = Backlog(octets=100), copy(b"x" * 1000)
    now = utc_now()
    assert [backlog.put(each, now) for each in (large, copy(b"x"))] == [True, False]
    first = backlog.take(0)
    assert first is not None
    assert first.message is large
    assert backlog.take(0) is None
    assert backlog.put(copy(b"x"), now)
    second = backlog.take(0)
    assert second is not None
    assert second.dropped == 1


@pytest.mark.parametrize("ends", ["half full", "closed"])
def test_a_backlog_that_fills_is_taken_from_at_once(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waited for gathers no longer than until half of the room is taken, or until nothing more will come."""
    monkeypatch.setattr("soapjms.capture.tap.GATHER_SECONDS", 600)
    backlog, taken, begun = Backlog(messages=4), Queue[CopiedMessage | None](), Event()

    def take() -> None:
        begun.set()
        taken.put(backlog.take(600))

    taker = Thread(target=take, daemon=True)
    taker.start()
    assert begun.wait(20)
    backlog.put(copy(b"first"), utc_now())
    if ends == "closed":
        backlog.close()
    else:
        assert all(backlog.put(copy(), utc_now()) for _ in range(3))
    arrived = taken.get(timeout=20)
    assert arrived is not None
    assert arrived.message.body == b"first"
    taker.join(20)


def test_times_follow_a_clock_that_was_set_back(connection: Connection, tmp_path: Path) -> None:
    """Copies are later than those before, but not by what the clock was set back."""

    class Read(Wrapped):
        times = [100.0, 100.0, 99.9999, 101.0, 50.0, 50.0]  # noqa: RUF012

        def _consume(self, options: Any, on_delivery: Any) -> Consumer:
            def tell(delivery: Any) -> None:
                delivery.read_at = self.times.pop(0)
                on_delivery(delivery)

            return super()._consume(options, tell)

    with CaptureLog(tmp_path) as log, Capture(Read(connection), log, [COPIES]) as capture:
        send(connection, *(copy() for _ in range(6)))
        seen(capture, 6)
    times = [each.time.timestamp() for each in records_in(tmp_path)]
    assert times == pytest.approx([100, 100.000001, 100.000002, 101, 50, 50.000001], abs=1e-7, rel=0)


def test_a_broker_that_copies_nothing(connection: Connection, tmp_path: Path) -> None:
    """It is found out by a message that nobody gets."""
    with CaptureLog(tmp_path) as log, Capture(connection, log, [COPIES]) as capture:
        assert not capture.is_fed(0.05)


def test_waits_for_what_is_late(connection: Connection, tmp_path: Path) -> None:
    """At the end there may be copies still to come: as long as some do it waits for the last one."""

    class Late(Wrapped):
        sent = 0

        def send(self, message: Message, *arguments: Any, **options: Any) -> Any:
            self.sent += 1
            late = message if self.sent == 3 else copy()
            send(self.inner, *([replace(late, destination=COPIES)] if self.sent < 4 else []))
            return super().send(message, *arguments, **options)

    late = Late(connection)
    with CaptureLog(tmp_path) as log, Capture(late, log, [COPIES]) as capture:
        assert capture.is_drained(0.2)
        assert (late.sent, capture.counts["seen"]) == (3, 2)
        assert not capture.is_drained(0.2)


def test_looking_leaves_nothing(tmp_path: Path) -> None:
    """However often it is asked, and on one connection or between two, the broker has what it had before."""
    broker = Broker()
    with broker.connect() as connection, broker.connect() as other:
        with CaptureLog(tmp_path) as log, Capture(connection, log, [COPIES]) as capture:
            assert [capture.is_fed(0.01) for _ in range(3)] == [False] * 3
            assert not copies_reach(other, connection, COPIES, 0.01)
        assert [each for each in broker.destinations() if each.kind.is_temporary] == []


def test_the_end_of_the_connection_is_told(connection: Connection, tmp_path: Path) -> None:
    """Nothing will come any more."""
    with CaptureLog(tmp_path) as log, Capture(connection, log, [COPIES]) as capture:
        connection.close()
        assert capture.ended.wait(20)


# Taps


def test_copies_of_a_divert() -> None:
    """Destination, message id and properties are those of the original."""
    said = {"_AMQ_ORIG_ADDRESS": "asked", "_AMQ_ORIG_ROUTING_TYPE": "1", "_AMQ_ORIG_MESSAGE_ID": "7", "p": "q"}
    said |= {"JMS_AMQP_MA_x-opt-ORIG-ADDRESS": "asked"}
    given = plain(
        properties=Properties(typed(name, value) for name, value in said.items()),
        message_id="8",
        reply_to=Destination(DestinationKind.TEMPORARY_QUEUE, None, address="temp-queue.x"),
    )
    original = from_divert(given)
    assert (original.destination, original.message_id) == (queue("asked"), "7")
    assert original.properties == Properties([typed("p", "q")])
    assert original.reply_to == Destination(DestinationKind.TEMPORARY_QUEUE, "temp-queue.x")


def test_copies_of_a_divert_over_amqp() -> None:
    """There the JMSMessageID is seen, and what a sender over STOMP said is no property and no topic."""
    marks = [
        typed("JMS_AMQP_MA_x-opt-ORIG-ADDRESS", "t"),
        typed("JMS_AMQP_MA_x-opt-ORIG-MESSAGE-ID", 7),
        typed("JMS_AMQP_MA_x-opt-ORIG-ROUTING-TYPE", 0),
    ]
    own = [typed("receipt", "mine"), typed("p", 5)]
    original = from_divert(plain(properties=Properties(marks + own), message_id="ID:8"))
    assert (original.destination, original.message_id) == (topic("t"), "ID:8")
    assert original.properties == Properties(own)

    of_stomp = {"destination": "/queue/q", "receipt": "r", "content-length": "2", "_AMQ_ORIG_ADDRESS": "q"}
    marks = [
        *(typed(name, value) for name, value in of_stomp.items()),
        typed("_AMQ_ORIG_MESSAGE_ID", 7),
        typed("p", "5"),
    ]
    original = from_divert(plain(properties=Properties(marks), message_id=None, reply_to=topic("replies")))
    assert (original.destination, original.message_id, original.reply_to) == (queue("q"), "7", queue("replies"))
    assert original.properties == Properties([typed("p", "5")])


@pytest.mark.parametrize(
    ("address", "routing", "found"),
    [
        ("a", "1", queue("a")),
        ("a", "0", topic("a")),
        ("a", None, queue("a")),
        ("temp-queue.x", None, Destination(DestinationKind.TEMPORARY_QUEUE, "temp-queue.x")),
        ("temp-topic.x", "0", Destination(DestinationKind.TEMPORARY_TOPIC, "temp-topic.x")),
    ],
)
def test_destinations_of_a_divert(address: str, routing: str | None, found: Destination) -> None:
    """The kind is what the routing type says, or the name of a temporary one."""
    said = [typed("_AMQ_ORIG_ADDRESS", address)] + ([typed("_AMQ_ORIG_ROUTING_TYPE", routing)] if routing else [])
    assert from_divert(plain(properties=Properties(said))).destination == found


def test_a_message_from_elsewhere_stays() -> None:
    """It is no copy."""
    given = plain()
    assert from_divert(given) is given


@pytest.mark.parametrize(
    ("uri", "where", "reply_to", "direction"),
    [
        ("jms:queue:a%20b?priority=7", queue("a b"), None, Direction.ONE_WAY),
        ("jms:topic:a", topic("a"), None, Direction.ONE_WAY),
        ("jms:queue:a", topic("a"), None, None),
        ("jms:queue:a", queue("replies"), None, None),
        ("jms:queue:a", queue("a"), queue("replies"), None),
        ("jms:jndi:a", queue("a"), None, None),
        ("nonsense", queue("a"), None, None),
        (None, queue("a"), None, None),
        ("jms:queue:a", None, None, None),
        ("jms:queue:a", Destination(DestinationKind.TEMPORARY_QUEUE, "a"), None, None),
    ],
)
def test_one_way_messages_are_told(
    uri: str | None, where: Destination | None, reply_to: Destination | None, direction: Direction | None
) -> None:
    """By where they are and where they say that they go, as they may have a correlation id like a response."""
    message = copy(destination=where, reply_to=reply_to, properties={"SOAPJMS_requestURI": uri}, correlation_id="c")
    assert direction_of(message) is direction


def test_a_broker_without_a_tap() -> None:
    """It says what else there is."""
    assert tap_point("ActiveMQ/6.1.8").name == "activemq"
    with pytest.raises(UsageError, match=r"to be tapped, got 'embedded'.*recorder="):
        tap_point("embedded")
