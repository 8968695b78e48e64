"""Recording all that passes a broker, from outside: a tap on the copies that the broker makes.

The traffic is not touched: the copies are taken from a topic as they come. When they come faster than they can be
written, some are dropped and counted, and the log says so; nobody waits for the tap. Where nothing can be written,
as on a full disk, they wait in memory, as many as find room, and writing is tried again.

Which messages are wanted is decided here. No broker's name belongs here: see `sources.py`.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from threading import Condition, Event, Lock
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from brokers.connection import Connection, ConnectionState, Delivery, stop
from brokers.message import Destination, Message
from brokers.threads.thread import Thread
from soapjms.capture.log import CaptureLog, utc_now
from soapjms.capture.mask import Mask, MaskedMessage
from soapjms.capture.sources import direction_of, probe_message
from soapjms.ping import PING_PREFIX
from soapjms.protocol.record import Node, Record, capture, format_time, to_octets

MAX_BACKLOG_MESSAGES: Final = 100_000
MAX_BACKLOG_OCTETS: Final = 64 << 20
"""What may wait; of octets only those of bodies are counted."""

GATHER_SECONDS: Final = 0.3
"""How long copies gather before they are written, where there is room for them."""

SET_BACK: Final = timedelta(seconds=1)
"""A clock that goes back by more was set, and times go back with it; else each is later than the one before."""

MAX_KNOWN_REPLIES: Final = 100_000
"""Reply destinations that are known at a time, and ids of requests to others that share them."""

BINDING: Final = "SOAPJMS_"


class CopiedMessage(NamedTuple):
    """A copy, when it came, and how many were dropped before it since the one before."""

    message: Message
    time: datetime
    dropped: int


class MessageFilter:
    """Which messages are recorded. Not thread-safe.

    Args:
        queues: names of the destinations of requests; with none, all that have a property of the binding.
        everything: record all messages instead.
    """

    def __init__(self, queues: Collection[str], everything: bool) -> None:
        self._queues = frozenset(queues)
        self._everything = everything
        self._replies: OrderedDict[str, None] = OrderedDict()
        self._others: OrderedDict[str, None] = OrderedDict()

    def wants(self, message: Message) -> bool:
        """Say whether a message is to be recorded: it itself, or as the answer to one that is."""
        if self._everything:
            return True
        replies = _name(message.reply_to)
        if not self._is_first(message):
            if replies in self._replies:  # a destination of replies may serve other requests, too
                _remember(self._others, message.correlation_id, message.message_id)
            return _name(message.destination) in self._replies and message.correlation_id not in self._others
        _remember(self._replies, replies)
        return True

    def _is_first(self, message: Message) -> bool:
        if self._queues:
            return _name(message.destination) in self._queues
        for name, _, _ in message.properties:  # noqa: SIM110  # in half the time of any()
            if name.startswith(BINDING):
                return True
        return False


def _remember(known: OrderedDict[str, None], *names: str | None) -> None:
    """Add names as the newest, and forget the oldest where there are too many."""
    for name in filter(None, names):
        known[name] = None
        known.move_to_end(name)
        if len(known) > MAX_KNOWN_REPLIES:
            known.popitem(last=False)


def _name(destination: Destination | None) -> str | None:
    return None if destination is None else destination.name


class Backlog:
    """Copies that wait to be written: so many and so much, and no more. Thread-safe.

    Args:
        messages: how many.
        octets: of bodies; a single message may have more.
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
        """Add a copy, or drop it where there is no room; say whether it was added."""
        size = message.size
        with self._lock:
            is_full = len(self._waiting) >= self._most or self._octets + size > self._most_octets
            if is_full and self._waiting:
                self._dropped += 1
                return False
            self._waiting.append(CopiedMessage(message, time, self._dropped))
            self._octets += size
            self._dropped = 0
            if len(self._waiting) == 1 or self._is_half_full:
                self._changed.notify()
            return True

    @property
    def _is_half_full(self) -> bool:
        return len(self._waiting) * 2 >= self._most or self._octets * 2 >= self._most_octets

    def take(self, seconds: float) -> CopiedMessage | None:
        """Return the next copy, or None if none came in so many seconds, or none will come any more.

        One that had to be waited for is returned a moment later, unless half of the room is taken before: so others
        gather behind it, as a change of threads for each of them would cost more than to write it.
        """
        with self._lock:
            is_late = not self._waiting
            if is_late:
                self._changed.wait_for(lambda: self._waiting or self._is_closed, seconds)
            if not self._waiting:
                return None
            arrived = self._waiting.popleft()
            self._octets -= arrived.message.size
            if is_late and seconds:
                self._changed.wait_for(lambda: self._is_closed or self._is_half_full, GATHER_SECONDS)
            return arrived

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until nothing will come any more, so long at most; say whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, seconds)

    @property
    def is_over(self) -> bool:
        """Nothing waits, and nothing will."""
        return self._is_closed and not self._waiting

    def close(self) -> None:
        """Say that nothing will come any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


log = logging.getLogger("soapjms.capture")

PREFETCH_MESSAGES: Final = 1000
FLUSH_SECONDS: Final = 0.7
"""Seconds after which what gathered is written: so what passed is in the file within a second or little more."""

MAX_KNOWN_GAPS: Final = 1000


@dataclass(slots=True)
class Gap:
    """A time without connection: what passed then was not seen.

    Attributes:
        begun: when it was lost.
        ended: when it was made again, None if it was not.
    """

    begun: datetime
    ended: datetime | None = None


class Capture:
    """Records what a broker copies to a topic. Usable in a `with` statement; it begins at once.

    Args:
        connection: to the broker, for nothing else; stays the caller's to close.
        to: where records are written; stays the caller's to close, after this.
        sources: topics with the copies, or with messages to record as they are.
        translate: gives a copy its original headers back; see `soapjms.capture.sources`.
        mask: what is hidden.
        queues: record requests to these queues and topics, and their answers; with none, all messages that have a
            property of the binding, and answers to them.
        everything: record whatever there is; never pings and probes of our own.
        backlog: what may wait to be written.
        clock: returns the time of gaps, and of copies that do not say when they were read.

    Attributes:
        counts: messages that came (`seen`); of them `recorded`, of which some `masked` or with their body `left out`;
            `dropped` as there was no room, or as they were above the connection's limit; `failed` to be written;
            `other`, which were not wanted.
        gaps: when the connection was lost, or a subscription ended by the broker, the latest thousand times.
        problem: why nothing can be written just now; None if it can. What comes waits meanwhile.
        ended: set once the connection was closed by whoever, so that nothing comes any more.

    Raises:
        BrokerError: the broker lets nobody consume from a source.
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
        self._mask = mask or Mask()
        self._wanted = MessageFilter(queues, everything)
        self._backlog = backlog or Backlog()
        self._clock = clock
        self._read = self._latest = datetime.min.replace(tzinfo=UTC)  # when the copy before was read
        self._read_at = 0.0  # the former in seconds
        self._untold: deque[Gap] = deque(maxlen=MAX_KNOWN_GAPS)
        self._broker = 0, ""  # what it is, in which generation of the connection
        self._probe = f"{PING_PREFIX}{token_hex(8)}"
        self._probed = Event()
        self._writer = Thread(target=self._write_all, name="soapjms-capture", daemon=True)
        with ExitStack() as stack:
            for source in sources:
                consumer = connection.consume(
                    source,
                    self._on_delivery,
                    prefetch=PREFETCH_MESSAGES,
                    auto_accept=True,
                    lazy=True,
                    on_refused=self._on_refused,
                    on_problem=self._on_problem,
                )
                stack.callback(stop, consumer)
            self._consumers = stack.pop_all()
        connection.watch(self._on_state)
        self._writer.start()

    def is_fed(self, timeout: float) -> bool:
        """Say whether the broker copies to a source, by sending a message that nobody gets and waiting for its copy.

        When it has come, so have those of what was sent before.

        Raises:
            BrokerError: it cannot be sent.
        """
        self._probed.clear()
        nowhere = self._connection.temporary(fresh=False)
        try:
            self._connection.send(probe_message(nowhere, self._probe), timeout=timeout)
            return self._probed.wait(timeout)
        finally:
            self._connection.end_temporary(nowhere)

    def is_drained(self, timeout: float) -> bool:
        """Wait for the copies of what was sent before, and say whether all came.

        Some may not have if none came within `timeout` seconds; while some come, it waits on.

        Raises:
            BrokerError: as `is_fed` has it.
        """
        seen = -1
        while self.counts["seen"] != seen:
            seen = self.counts["seen"]
            if self.is_fed(timeout):
                return True
        return False

    def close(self) -> None:
        """Stop, and write what was captured. Idempotent."""
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
        """Put a copy aside; it waits for nobody, and never fails."""
        message = delivery.message
        if (message.correlation_id or "").startswith(PING_PREFIX):
            if message.correlation_id == self._probe:
                self._probed.set()
            return
        if not self._backlog.put(message, self._time_of(delivery)):
            self.counts["dropped"] += 1
        self.counts["seen"] += 1

    def _time_of(self, delivery: Delivery) -> datetime:
        """Return when a copy was read, at least a microsecond after the one before it: many are read together."""
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
        """Count a copy that nobody could read; the connection's log says why."""
        self.counts["dropped"] += 1
        self.counts["seen"] += 1

    def _on_problem(self, problem: str) -> None:
        """Take note of a time without a subscription as of one without a connection."""
        if not problem:
            self._end_gap()
        elif not self.gaps or self.gaps[-1].ended is not None:
            self.gaps.append(Gap(self._clock()))

    def _end_gap(self) -> None:
        if self.gaps and self.gaps[-1].ended is None:
            self.gaps[-1].ended = self._clock()
            self._untold.append(self.gaps[-1])

    def _on_state(self, state: ConnectionState) -> None:
        if state is ConnectionState.LOST:
            self.gaps.append(Gap(self._clock()))
        elif state is ConnectionState.CONNECTED:
            self._end_gap()
        elif state is ConnectionState.CLOSED:
            self.ended.set()

    # On the writer's thread

    def _write_all(self) -> None:
        due, is_over = monotonic() + FLUSH_SECONDS, False
        while not (is_over or self._backlog.is_over):
            left, is_full = max(0.0, due - monotonic()), False
            if self.problem is None:
                arrived = self._backlog.take(left)
                is_full = arrived is not None and self._take(arrived)
            else:  # what comes waits in the backlog, which is bounded
                is_over = self._backlog.wait_for_end(left)
            if is_full or is_over or monotonic() >= due:
                self._flush()
                due, is_over = monotonic() + FLUSH_SECONDS, is_over and self.problem is not None
        lost = self._flush(keep=False)
        while (arrived := self._backlog.take(0.0)) is not None:  # for want of room: there may be some again
            if self._take(arrived):
                lost += self._flush(keep=False)
        lost += self._flush(keep=False)
        if lost:
            log.warning("%d messages could not be written to %s: %s", lost, self._log.folder, self.problem)

    def _take(self, arrived: CopiedMessage) -> bool:
        """Make a line of a copy; say whether what waits is to be written."""
        try:
            message = self._translate(arrived.message)
            if not self._wanted.wants(message):
                self.counts["other"] += 1
                return False
            masked = self._mask.apply(message)
            line = to_octets(self._record(masked, arrived)) + b"\n"
        except Exception:  # a message must not end the capture, whatever is in it
            self.counts["failed"] += 1
            log.exception("a message could not be recorded")
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
            told, self._untold = self._untold, deque(maxlen=MAX_KNOWN_GAPS)
            meta["not_connected_before"] = [
                [format_time(each.begun), format_time(each.ended)] for each in told if each.ended is not None
            ]
        return meta

    def _flush(self, *, keep: bool = True) -> int:
        """Write what waits; what cannot be written waits on, or is lost: return how many messages are."""
        waiting = self._log.waiting
        try:
            self.counts["recorded"] += self._log.flush(keep=keep)
        except (OSError, MemoryError) as error:
            if keep and self.problem is None:
                log.warning(
                    "nothing can be written to %s; what comes waits in memory and is dropped once that is full; it is "
                    "tried again each %g s: %s",
                    self._log.folder,
                    FLUSH_SECONDS,
                    error,
                )
            self.problem = getattr(error, "strerror", None) or str(error) or "there is not memory enough"
            lost = 0 if keep else waiting
            self.counts["failed"] += lost
            return lost
        if self.problem is not None and waiting:
            log.warning(
                "%s can be written to again; dropped were %d messages", self._log.folder, self.counts["dropped"]
            )
            self.problem = None
        return 0
