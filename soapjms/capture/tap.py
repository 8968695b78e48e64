"""Recording of a broker's traffic from outside: a tap on the copies that the broker makes.

The traffic is not touched: the copies are read from a topic as they come. Copies that come faster than they can be
written are dropped and counted, and the log says so; nobody waits for the tap. While nothing can be written, as on a
full disk, copies wait in memory as long as there is room, and writing is tried again.

This module decides which messages are recorded. No broker's name belongs here: see `sources.py`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Condition, Event, Lock
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from brokers.arguments import destination_name, items
from brokers.connection import Connection, ConnectionState, Delivery, stop
from brokers.message import Destination, Message
from brokers.threads.thread import Thread
from brokers.threads.timer import left
from soapjms import events
from soapjms.capture.log import CaptureLog, utc_now
from soapjms.capture.mask import Mask, MaskedMessage
from soapjms.capture.sources import direction_of
from soapjms.ping import is_ping, new_ping_id, ping_message
from soapjms.protocol.record import Node, Record, capture, format_time, to_octets
from soapjms.validation import option

MAX_BACKLOG_MESSAGES: Final = 100_000
MAX_BACKLOG_OCTETS: Final = 64 << 20
"""Limits on waiting copies; only the octets of bodies count."""

GATHER_SECONDS: Final = 0.3
"""Seconds that copies gather before they are written, if there is room for them."""

SET_BACK: Final = timedelta(seconds=1)
"""A clock that goes back by more was set, and times go back with it; else each time is later than the one before."""

MAX_KNOWN_REPLIES: Final = 100_000
"""Maximum number of known reply destinations, and of ids of other requests that share them."""

BINDING: Final = "SOAPJMS_"


class CopiedMessage(NamedTuple):
    """A copy, the time it came, how many copies were dropped since the one before it, and its size in octets."""

    message: Message
    time: datetime
    dropped: int
    octets: int


class MessageFilter:
    """Decides which messages are recorded. Not thread-safe.

    Args:
        queues: names of the destinations of requests; if empty, all messages with a property of the binding.
        everything: record all messages instead.
    """

    def __init__(self, queues: Collection[str], everything: bool) -> None:
        names = items(queues, "queues", "a list of names")
        self._queues = frozenset(destination_name("each of queues", each) for each in names)
        self._everything = everything
        self._replies: OrderedDict[int, None] = OrderedDict()  # hashes, as peers choose names of any length
        self._others: OrderedDict[int, None] = OrderedDict()

    def wants(self, message: Message) -> bool:
        """Say whether to record a message: for itself, or as the answer to one that is recorded."""
        if self._everything:
            return True
        replies = _name(message.reply_to)
        if not self._is_first(message):
            if hash(replies) in self._replies:  # a reply destination may serve other requests, too
                _remember(self._others, message.correlation_id, message.message_id)
            is_reply = hash(_name(message.destination)) in self._replies
            return is_reply and hash(message.correlation_id) not in self._others
        _remember(self._replies, replies)
        return True

    def _is_first(self, message: Message) -> bool:
        if self._queues:
            return _name(message.destination) in self._queues
        for name, _, _ in message.properties:  # noqa: SIM110  # in half the time of any()
            if name.startswith(BINDING):
                return True
        return False


def _remember(known: OrderedDict[int, None], *names: str | None) -> None:
    """Add names as the newest, and forget the oldest if there are too many."""
    for each in map(hash, filter(None, names)):
        known[each] = None
        known.move_to_end(each)
        if len(known) > MAX_KNOWN_REPLIES:
            known.popitem(last=False)


def _name(destination: Destination | None) -> str | None:
    return None if destination is None else destination.name


class Backlog:
    """Copies that wait to be written, bounded in number and size. Thread-safe.

    Args:
        messages: maximum number of copies.
        octets: maximum size of all messages, as `Message.octets` counts it; a single message may be larger.
    """

    def __init__(self, messages: int = MAX_BACKLOG_MESSAGES, octets: int = MAX_BACKLOG_OCTETS) -> None:
        self._most = messages
        self._most_octets = octets
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._waiting: deque[CopiedMessage] = deque()
        self._octets = 0
        self._dropped = 0
        self._is_closed = False

    def put(self, message: Message, time: datetime) -> bool:
        """Add a copy, or drop it if there is no room; return whether it was added."""
        size = message.octets
        with self._lock:
            is_full = len(self._waiting) >= self._most or self._octets + size > self._most_octets
            if is_full and self._waiting:
                self._dropped += 1
                return False
            self._waiting.append(CopiedMessage(message, time, self._dropped, size))
            self._octets += size
            self._dropped = 0
            if len(self._waiting) == 1 or self._is_half_full:
                self._changed.notify()
            return True

    @property
    def _is_half_full(self) -> bool:
        return len(self._waiting) * 2 >= self._most or self._octets * 2 >= self._most_octets

    def take(self, seconds: float) -> CopiedMessage | None:
        """Return the next copy, or None if none arrived within `seconds`, or the backlog is closed and empty.

        If the call had to wait, it returns a moment after the copy arrived, or once half of the room is taken. So other
        copies gather behind it: a change of threads for each of them would cost more than writing it.
        """
        with self._lock:
            is_late = not self._waiting
            if is_late:
                self._changed.wait_for(lambda: self._waiting or self._is_closed, seconds)
            if not self._waiting:
                return None
            arrived = self._waiting.popleft()
            self._octets -= arrived.octets
            if is_late and seconds:
                self._changed.wait_for(lambda: self._is_closed or self._is_half_full, GATHER_SECONDS)
            return arrived

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until the backlog is closed, for at most `seconds`; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, seconds)

    @property
    def is_over(self) -> bool:
        """Whether the backlog is closed and empty."""
        return self._is_closed and not self._waiting

    def close(self) -> None:
        """Note that no more copies will come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


PREFETCH_MESSAGES: Final = 1000
FLUSH_SECONDS: Final = 0.7
"""Seconds between two writes: with the time to gather, a message is in the file within little more than a second."""

MAX_KNOWN_GAPS: Final = 1000


@dataclass(slots=True)
class Gap:
    """A time without the connection or one of the subscriptions, in which messages passed unseen.

    Attributes:
        begun: when the first of them was lost.
        ended: when all were there again; None if they were not.
    """

    begun: datetime
    ended: datetime | None = None


class Capture:
    """Records the messages that a broker copies to a topic. Usable in a `with` statement; starts at once.

    Args:
        connection: a connection to the broker for this capture only; the caller closes it.
        to: the log that records are written to; the caller closes it, after this.
        sources: topics with the copies, or with messages to record as they are.
        translate: restores the original headers of a copy; see `soapjms.capture.sources`.
        mask: what is hidden.
        queues: record requests to these queues and topics, and their answers; if empty, all messages with a property
            of the binding, and their answers.
        everything: record all messages except our own pings and probes.
        backlog: holds the copies that wait to be written.
        clock: returns the time of gaps, and of copies without a time of reading.

    Attributes:
        counts: numbers of messages: all that came (`seen`); those `recorded`, of which some `masked` or with their body
            `left out`; those `dropped` because there was no room or they exceeded the connection's limit; those that
            `failed` to be written; and `other` ones, which were not wanted.
        gaps: the latest thousand times without the connection, or without one of the subscriptions.
        problem: why nothing can be written at the moment, or None. Copies wait meanwhile.
        ended: set once the connection is closed, so that no more messages come.

    Raises:
        UsageError: `mask` is not a mask, or `queues` is not a list of names.
        BrokerError: the broker refuses a consumer on a source.
    """

    def __init__(
        self,
        connection: Connection,
        to: CaptureLog,
        sources: Collection[Destination],
        *,
        translate: Callable[[Message], Message] = lambda message: message,
        mask: Mask | None = None,
        queues: Collection[str] = (),
        everything: bool = False,
        backlog: Backlog | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.gaps: deque[Gap] = deque(maxlen=MAX_KNOWN_GAPS)
        self.problem: str | None = None
        self.ended = Event()
        self._connection = connection
        self._log = to
        self._translate = translate
        self._mask = option(mask, "mask", Mask) or Mask()
        self._wanted = MessageFilter(queues, everything)
        self._backlog = backlog or Backlog()
        self._clock = clock
        self._read = self._latest = datetime.min.replace(tzinfo=UTC)  # when the previous copy was read
        self._read_at = 0.0  # the former in seconds
        self._lost: set[object] = set()  # the connection, and numbers of the sources without a subscription
        self._losing = Lock()
        self._untold: deque[Gap] = deque(maxlen=MAX_KNOWN_GAPS)
        self._broker = 0, ""  # generation of the connection, and the broker's name in it
        self._probe = new_ping_id()
        self._probed = Event()
        self._writer = Thread(target=self._write_all, name="soapjms-capture", daemon=True)
        with ExitStack() as stack:
            for number, source in enumerate(sources):
                consumer = connection.consume(
                    source,
                    self._on_delivery,
                    prefetch=PREFETCH_MESSAGES,
                    auto_accept=True,
                    lazy=True,
                    on_refused=self._on_refused,
                    on_problem=partial(self._on_problem, number),
                )
                stack.callback(stop, consumer)
            self._consumers = stack.pop_all()
        connection.watch(self._on_state)
        self._writer.start()

    def is_fed(self, timeout: float) -> bool:
        """Say whether the broker copies to a source, by sending a message to nobody and waiting for its copy.

        When its copy has come, so have the copies of all messages sent before it.

        Raises:
            BrokerError: the message cannot be sent.
        """
        self._probed.clear()
        nowhere = self._connection.temporary(fresh=False)
        try:
            self._connection.send(ping_message(self._probe, nowhere), timeout=timeout)
            return self._probed.wait(timeout)
        finally:
            self._connection.end_temporary(nowhere)

    def is_drained(self, timeout: float) -> bool:
        """Wait for the copies of all messages sent before, and say whether all came.

        Gives up after `timeout` seconds in which no copy came.

        Raises:
            BrokerError: see `is_fed`.
        """
        seen = -1
        while self.counts["seen"] != seen:
            seen = self.counts["seen"]
            if self.is_fed(timeout):
                return True
        return False

    def close(self) -> None:
        """Stop, and write the captured messages. Idempotent."""
        self._connection.unwatch(self._on_state)
        self._consumers.close()
        self._backlog.close()
        self._writer.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # On threads of the connection

    def _on_delivery(self, delivery: Delivery) -> None:
        """Put a copy into the backlog. Never blocks, never fails."""
        message = delivery.message
        if is_ping(message):
            if message.correlation_id == self._probe:
                self._probed.set()
            return
        if not self._backlog.put(message, self._time_of(delivery)):
            self.counts["dropped"] += 1
        self.counts["seen"] += 1

    def _time_of(self, delivery: Delivery) -> datetime:
        """Return when a copy was read, at least a microsecond after the previous one, as many are read together."""
        if delivery.read_at is None:
            return self._clock()
        if delivery.read_at != self._read_at:
            self._read_at, self._read = delivery.read_at, datetime.fromtimestamp(delivery.read_at, UTC)
        time = self._read
        if time <= self._latest < time + SET_BACK:
            time = self._latest + timedelta.resolution
        self._latest = time
        return time

    def _on_refused(self, message: Message, reason: str) -> None:
        """Count a copy that could not be read; the connection's log says why."""
        self.counts["dropped"] += 1
        self.counts["seen"] += 1

    def _on_problem(self, source: int, problem: str) -> None:
        self._note(source, is_lost=bool(problem))

    def _on_state(self, state: ConnectionState) -> None:
        if state is ConnectionState.CLOSED:
            self.ended.set()
        else:
            self._note(self._connection, is_lost=state is ConnectionState.LOST)

    def _note(self, what: object, *, is_lost: bool) -> None:
        """Note that the connection or a subscription is lost or there; a gap lasts until all are there."""
        with self._losing:
            was_whole = not self._lost
            (self._lost.add if is_lost else self._lost.discard)(what)
            if was_whole and self._lost:
                self.gaps.append(Gap(self._clock()))
            elif not was_whole and not self._lost:
                self.gaps[-1].ended = self._clock()
                self._untold.append(self.gaps[-1])

    # On the writer's thread

    def _write_all(self) -> None:
        due, is_over = monotonic() + FLUSH_SECONDS, False
        while not (is_over or self._backlog.is_over):
            rest, is_full = left(due), False
            if self.problem is None:
                arrived = self._backlog.take(rest)
                is_full = arrived is not None and self._take(arrived)
            else:  # copies wait in the backlog, which is bounded
                is_over = self._backlog.wait_for_end(rest)
            if is_full or is_over or monotonic() >= due:
                self._flush()
                due, is_over = monotonic() + FLUSH_SECONDS, is_over and self.problem is not None
        lost = self._flush(keep=False)
        while (arrived := self._backlog.take(0.0)) is not None:  # left while the disk was full; there may be room again
            if self._take(arrived):
                lost += self._flush(keep=False)
        lost += self._flush(keep=False)
        if lost:
            events.CAPTURE_MESSAGES_LOST.log(lost, self._log.folder, self.problem)

    def _take(self, arrived: CopiedMessage) -> bool:
        """Make a line from a copy and add it; return True if the waiting lines should be written."""
        try:
            message = self._translate(arrived.message)
            if not self._wanted.wants(message):
                self.counts["other"] += 1
                return False
            masked = self._mask.apply(message)
            line = to_octets(self._record(masked, arrived)) + b"\n"
        except Exception:  # no message may end the capture, whatever its content
            self.counts["failed"] += 1
            events.CAPTURE_TAP_FAILED.log()
            return False
        self.counts["masked"] += bool(masked.what)
        self.counts["left out"] += masked.is_cut
        return self._log.add(line)

    def _record(self, masked: MaskedMessage, arrived: CopiedMessage) -> Record:
        message, meta = masked.message, self._meta(masked, arrived)
        record = capture(message, arrived.time, direction_of(message), Node.TAP, meta)
        return replace(record, truncated=True, sha256=None) if masked.is_cut else record

    def _meta(self, masked: MaskedMessage, arrived: CopiedMessage) -> dict[str, Any]:
        generation = self._connection.generation
        if generation != self._broker[0]:
            self._broker = generation, self._connection.capabilities.broker
        meta: dict[str, Any] = {"broker": self._broker[1]}
        if masked.what:
            meta["masked"] = list(masked.what)
        if arrived.dropped:
            meta["dropped_before"] = arrived.dropped
        if self._untold:
            with self._losing:
                told, self._untold = self._untold, deque(maxlen=MAX_KNOWN_GAPS)
            meta["not_connected_before"] = [
                [format_time(each.begun), format_time(each.ended)] for each in told if each.ended is not None
            ]
        return meta

    def _flush(self, *, keep: bool = True) -> int:
        """Write the waiting lines; lines that cannot be written are kept or lost; return how many messages are lost."""
        waiting = self._log.waiting
        try:
            self.counts["recorded"] += self._log.flush(keep=keep)
        except (OSError, MemoryError) as error:
            if keep and self.problem is None:
                events.CAPTURE_WRITE_FAILED.log(self._log.folder, FLUSH_SECONDS, error)
            self.problem = getattr(error, "strerror", None) or str(error) or "there is not enough memory"
            lost = 0 if keep else waiting
            self.counts["failed"] += lost
            return lost
        if self.problem is not None and waiting:
            events.CAPTURE_WRITE_RESTORED.log(self._log.folder, self.counts["dropped"])
            self.problem = None
        return 0
