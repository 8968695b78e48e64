"""Writing messages to a capture log as they pass.

Give a `Recorder` to a `Client` or `Dispatcher`, or let a `Tap` feed it from a destination. Lines are written whole. A
line that cannot be written is counted and logged, and the call that it belongs to goes on.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import count, takewhile
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Final, Self

from brokers.connection import Connection, Delivery
from brokers.errors import UsageError
from brokers.message import Destination, DestinationKind, Message, changed
from brokers.threads.fork import after_fork
from brokers.threads.thread import Thread
from soapjms import events
from soapjms.capture.log import DEFAULT_ROTATION_OCTETS, LogFiles, utc_now
from soapjms.capture.mask import Mask
from soapjms.ping import is_ping
from soapjms.protocol.record import Direction, Node, Record, capture, to_octets
from soapjms.protocol.text import reason_of
from soapjms.validation import file_path, option

DEFAULT_MASK: Final = Mask()
UNMASKED: Final = "this log has passwords and other secrets as they are"

FLUSH_SECONDS: Final = 1.0
"""Seconds between two flushes of a compressed file."""


class Recorder:
    """A capture log that is being written. Thread-safe. Usable in a `with` statement.

    A record holds only what its node knows about the message. Over STOMP a sender never learns the JMSMessageID of its
    message, so the sender's and the receiver's records of a one-way message have no id in common: the message counts
    twice. If the broker tells the id, as the embedded one does, or the client sets a JMSCorrelationID, as it does with
    Artemis, both records are recognised as copies of one message.

    A line of a `.jsonl` file is written when `record` returns. In a `.jsonl.gz` file it is written within a second, in
    one gzip member with the other lines of that time, so that a process that is killed loses one second at most.
    Messages that cannot be written, as on a full disk, are lost, counted in `failed` and logged; once there is room
    again, new ones are written after those that were written before.

    When a file is full, another is begun beside it, since gzip cannot be read in parts: after `capture.jsonl.gz` come
    `capture-0002.jsonl.gz` and so on. If none can be begun, which is logged, the last one grows on.

    New files are readable by their owner only. Passwords of WS-Security, and properties whose names look like secrets,
    are hidden as `soapjms capture` hides them; `meta.masked` of a record lists what was hidden.

    Args:
        path: a `.jsonl` file, or `.jsonl.gz` to compress. Existing content stays: lines are appended, to the last of
            the files if there are several. A file that is not empty must be a log of that form.
        clock: returns the time of capture.
        rotation: size of a file on disk, in octets, after which another is begun.
        mask: what is hidden; None to hide nothing, which the log and `meta.unmasked` of the first record say.

    Attributes:
        path: the first file.

    Raises:
        UsageError: `path` is not that of a file, the file cannot be opened or is not a log, `rotation` is below 1, or
            `mask` is not a mask.
    """

    def __init__(
        self,
        path: str | Path,
        clock: Callable[[], datetime] = utc_now,
        *,
        rotation: int = DEFAULT_ROTATION_OCTETS,
        mask: Mask | None = DEFAULT_MASK,
    ) -> None:
        self.path = file_path(path)
        self._mask = option(mask, "mask", Mask)
        self._is_told = mask is not None
        self._clock = clock
        self._written = 0
        self._failed = 0
        self._lock = Lock()
        self._compressed = self.path.suffix == ".gz"
        try:
            self._log = LogFiles(
                self._numbered, len(self.files) or 1, rotation=rotation, compress=self._compressed, is_shared=True
            )
        except OSError as error:
            raise UsageError(
                f"path must name a file that can be written, got {self.path}: {reason_of(error)}"
            ) from error
        self._closed = Event()
        self._flusher: Thread | None = None
        after_fork(self, Recorder._begin_anew)

    @property
    def files(self) -> list[Path]:
        """The existing files of the log, in order."""
        return list(takewhile(Path.exists, map(self._numbered, count(1))))

    @property
    def written(self) -> int:
        """The number of messages that were written; waiting ones are written first."""
        self.flush()
        return self._written

    @property
    def failed(self) -> int:
        """The number of messages that could not be written; waiting ones are tried first."""
        self.flush()
        return self._failed

    def _numbered(self, number: int) -> Path:
        if number == 1:
            return self.path
        suffix = "".join(self.path.suffixes[-2:] if self._compressed else self.path.suffixes[-1:])
        return self.path.with_name(f"{self.path.name.removesuffix(suffix)}-{number:04}{suffix}")

    def now(self) -> datetime:
        """Return the time of capture for a message that passes now."""
        return self._clock()

    def record(
        self,
        message: Message,
        direction: Direction | None = None,
        node: Node | None = None,
        time: datetime | None = None,
    ) -> None:
        """Write one message. Never raises because of its content or a full disk: such failures are counted and logged.

        A message whose body does not match its type fails too, as its record could not be read.

        Args:
            message: the message that passed.
            direction: what the message is, if known.
            node: the node that captured it, if known.
            time: when the message passed, if it is written later.
        """
        try:
            line = to_octets(self._recorded(message, time or self.now(), direction, node)) + b"\n"
            with self._lock:
                if self._closed.is_set():
                    raise ValueError("the recorder is closed")
                if self._compressed:
                    self._see_to_flushing()
                is_due = self._log.add(line) or not self._compressed
                lost, problem = self._flush() if is_due else (0, None)
        except Exception as error:
            with self._lock:
                self._failed += 1
            lost, problem = 1, error
        self._tell(lost, problem)

    def _recorded(self, message: Message, time: datetime, direction: Direction | None, node: Node | None) -> Record:
        made = capture(message, time, direction, node)  # unmasked, so that an unreadable message is found
        if self._mask is None:
            if self._is_told:
                return made
            self._is_told = True
            events.CAPTURE_UNMASKED.log(self.path)
            return replace(made, meta={"unmasked": UNMASKED})
        masked = self._mask.apply(message)
        if not masked.what:
            return made
        made = capture(masked.message, time, direction, node, {"masked": list(masked.what)})
        return replace(made, truncated=True, sha256=None) if masked.is_cut else made

    def _see_to_flushing(self) -> None:
        if self._flusher is None or not self._flusher.is_alive():  # it is not alive in a forked process
            self._flusher = Thread(target=self._flush_now_and_then, name="soapjms-recorder", daemon=True)
            self._flusher.start()
            atexit.register(self.close)

    def _begin_anew(self) -> None:
        """In a forked process: leave the waiting lines to the process before, of which a thread may hold the lock."""
        self._lock = Lock()
        self._log.forget()

    def _flush_now_and_then(self) -> None:
        while not self._closed.wait(FLUSH_SECONDS):
            self.flush()

    def _flush(self) -> tuple[int, Exception | None]:
        """Write the waiting messages; return how many were lost, and why."""
        waiting = self._log.waiting
        try:
            self._written += self._log.flush()
        except Exception as error:  # no failure here may fail a call
            self._failed += waiting
            return waiting, error
        return 0, None

    def _tell(self, lost: int, problem: Exception | None) -> None:
        if lost:
            what = "a message was" if lost == 1 else f"{lost} messages were"
            events.CAPTURE_MESSAGE_NOT_RECORDED.log(what, self.path, problem)

    def flush(self) -> None:
        """Write the waiting messages. Never raises: messages that cannot be written are counted and logged."""
        with self._lock:
            lost, problem = self._flush()
        self._tell(lost, problem)

    def close(self) -> None:
        """Write the waiting messages and close the file. Idempotent."""
        with self._lock:  # so that no message comes in between and is lost
            lost, problem = self._flush()
            self._closed.set()
            self._log.close()
        self._tell(lost, problem)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def record(
    recorder: Recorder | None, message: Message, direction: Direction, node: Node, time: datetime | None = None
) -> None:
    """Record a message if there is a recorder; if a user's own recorder fails, log that and go on."""
    if recorder is None:
        return
    try:
        if time is None:
            recorder.record(message, direction, node)
        else:
            recorder.record(message, direction, node, time)
    except Exception:
        events.CAPTURE_RECORDER_FAILED.log()


class OutgoingRecord:
    """The record of a message that is being sent, and of its answer. Thread-safe.

    A broker that tells the JMSMessageID does so once it has the message, and the answer may arrive before that. So both
    records wait until then, and are written in order, with the times at which the messages passed.

    Args:
        recorder: the recorder.
        message: the message that is about to be sent.
        direction: what the message is.
        node: the node that sends it.
        tells_message_id: whether the broker will tell the id; if not, the message is written at once, without one.
    """

    def __init__(
        self, recorder: Recorder, message: Message, direction: Direction, node: Node, *, tells_message_id: bool
    ) -> None:
        self._recorder = recorder
        self._lock = Lock()
        self._waiting: list[tuple[Message, Direction, Node, datetime | None]] = []
        self._is_written = not tells_message_id
        if self._is_written:
            record(recorder, message, direction, node)
        else:
            self._waiting.append((message, direction, node, self._time()))

    def sent(self, message_id: str | None = None) -> None:
        """Note that the broker has the message, or never will, and write the records. Idempotent."""
        with self._lock:
            for message, direction, node, time in self._waiting:
                known = message if self._is_written else replace(message, message_id=message_id)
                self._is_written = True
                record(self._recorder, known, direction, node, time)
            self._waiting.clear()

    def answered(self, message: Message, direction: Direction, node: Node) -> None:
        """Record the answer to the message."""
        with self._lock:
            if self._is_written:
                record(self._recorder, message, direction, node)
            else:
                self._waiting.append((message, direction, node, self._time()))

    def _time(self) -> datetime | None:
        try:
            return self._recorder.now()
        except Exception:  # the clock is asked again when the record is written; a failure then is counted
            return None


MIRROR_PREFIX: Final = "VirtualTopic.Mirror."
"""Prefix that ActiveMQ puts before the name of a mirrored queue."""


def from_mirror(copy: Message) -> Message:
    """Restore the destination of a copy from ActiveMQ's mirrored queues: the `translate` of a tap on their topics.

    A name that ActiveMQ made itself (`ID:...`) belongs to a temporary queue. Other messages stay as they are.
    """
    destination = copy.destination
    if destination is None or destination.name is None or not destination.name.startswith(MIRROR_PREFIX):
        return copy
    name = destination.name.removeprefix(MIRROR_PREFIX)
    kind = DestinationKind.TEMPORARY_QUEUE if name.startswith("ID:") else DestinationKind.QUEUE
    return changed(copy, destination=Destination(kind, name))


class Tap:
    """Records the messages that a broker copies to a destination (a mirrored queue, a wire tap), as an outside node.

    It leaves out the messages by which soapjms measures round trips and clocks.

    Usable in a `with` statement.

    Args:
        connection: the connection to the broker.
        source: the destination with the copies.
        recorder: the recorder to write with.
        translate: restores the original headers of a copy if the broker changed them; see `from_mirror`.
    """

    def __init__(
        self,
        connection: Connection,
        source: Destination,
        recorder: Recorder,
        translate: Callable[[Message], Message] = lambda message: message,
    ) -> None:
        self._recorder = recorder
        self._translate = translate
        self._consumer = connection.consume(source, self._on_delivery, prefetch=100)

    def _on_delivery(self, delivery: Delivery) -> None:
        if not is_ping(delivery.message):
            self._recorder.record(self._translate(delivery.message), node=Node.TAP)
        delivery.accept()

    def close(self) -> None:
        """Stop recording."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
