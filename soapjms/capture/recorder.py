"""Writing messages to a capture log as they pass.

Give a `Recorder` to a `Client` or `Dispatcher`, or let a `Tap` feed it from a destination. A line is written whole; one
that cannot be written is counted and logged, and the call that it belongs to goes on.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import count, takewhile
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Final, Self

from brokers.connection import Connection, Delivery
from brokers.message import Destination, DestinationKind, Message, changed
from brokers.threads.thread import Thread
from soapjms.capture.log import DEFAULT_ROTATION_OCTETS, LogFiles, utc_now
from soapjms.capture.mask import Mask
from soapjms.protocol.record import Direction, Node, Record, capture, to_octets

log = logging.getLogger("soapjms.recorder")

DEFAULT_MASK: Final = Mask()
UNMASKED: Final = "this log has passwords and other secrets as they are"

FLUSH_SECONDS: Final = 1.0
"""After which what was recorded is in the file, if that is compressed."""


class Recorder:
    """A capture log that is being written. Thread-safe. Usable in a `with` statement.

    What a node does not know about a message is not in its record. Over STOMP a sender never learns the JMSMessageID of
    what it sent, so a one-way message that was recorded at sender and receiver has nothing that both records know: it
    counts as two. Where the broker tells the id, as the embedded one does, or the client sets a JMSCorrelationID, as it
    does with Artemis, they are found to be copies of one.

    A line of a `.jsonl` file is there when `record` returns. In a `.jsonl.gz` file it is there within a second, with
    the others of that time in a gzip member of their own, so that who is killed loses a second and nothing before it.
    What cannot be written, as on a full disk, is lost, counted in `failed` and logged; whatever comes when there is
    room again is written, and follows what was written before.

    A file that is full is followed by another beside it, since gzip cannot be read in parts: after `capture.jsonl.gz`
    come `capture-0002.jsonl.gz` and so on. Where none can be begun, which is logged, the last one grows on.

    Files that it makes are readable by their owner only. Passwords of WS-Security, and properties that are called as
    secrets are, are hidden as `soapjms capture` hides them; `meta.masked` of a record says what was.

    Args:
        path: a `.jsonl` file, or `.jsonl.gz` to compress; what it holds already stays, lines are added, to the last of
            the files if there are several.
        clock: returns the time of capture.
        rotation: octets of a file, as it is on the disk, after which another is begun.
        mask: what is hidden; None for nothing, which the log says and `meta.unmasked` of the first record.

    Attributes:
        path: the first file.

    Raises:
        UsageError: a `rotation` below 1.
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        path: str | Path,
        clock: Callable[[], datetime] = utc_now,
        *,
        rotation: int = DEFAULT_ROTATION_OCTETS,
        mask: Mask | None = DEFAULT_MASK,
    ) -> None:
        self.path = Path(path)
        self._mask = mask
        self._is_told = mask is not None
        self._clock = clock
        self._written = 0
        self._failed = 0
        self._lock = Lock()
        self._compressed = self.path.suffix == ".gz"
        self._log = LogFiles(
            self._numbered, len(self.files) or 1, rotation=rotation, compress=self._compressed, is_shared=True
        )
        self._closed = Event()
        self._flusher: Thread | None = None

    @property
    def files(self) -> list[Path]:
        """The files of the log that are there, in order."""
        return list(takewhile(Path.exists, map(self._numbered, count(1))))

    @property
    def written(self) -> int:
        """Messages that are in the files; what waits is written first."""
        self.flush()
        return self._written

    @property
    def failed(self) -> int:
        """Messages that could not be written; what waits is tried first."""
        self.flush()
        return self._failed

    def _numbered(self, number: int) -> Path:
        if number == 1:
            return self.path
        suffix = "".join(self.path.suffixes[-2:] if self._compressed else self.path.suffixes[-1:])
        return self.path.with_name(f"{self.path.name.removesuffix(suffix)}-{number:04}{suffix}")

    def now(self) -> datetime:
        """Return the time of capture of what passes now."""
        return self._clock()

    def record(
        self,
        message: Message,
        direction: Direction | None = None,
        node: Node | None = None,
        time: datetime | None = None,
    ) -> None:
        """Write one message. Never raises for what is in it or for a full disk: that is counted and logged.

        A message whose body does not go with its type is such a one: nobody could read what was written.

        Args:
            message: what passed.
            direction: what it is, if known.
            node: who captured it, if known.
            time: when it passed, if it is written later than that.
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
        made = capture(message, time, direction, node)  # as it is, so that one that nobody could read is found
        if self._mask is None:
            if self._is_told:
                return made
            self._is_told = True
            log.info("%s has passwords and other secrets as they are: mask=None hides nothing", self.path)
            return replace(made, meta={"unmasked": UNMASKED})
        masked = self._mask.apply(message)
        if not masked.what:
            return made
        made = capture(masked.message, time, direction, node, {"masked": list(masked.what)})
        return replace(made, truncated=True, sha256=None) if masked.is_cut else made

    def _see_to_flushing(self) -> None:
        if self._flusher is None or not self._flusher.is_alive():  # it is not, in a process that was forked
            self._flusher = Thread(target=self._flush_now_and_then, name="soapjms-recorder", daemon=True)
            self._flusher.start()
            atexit.register(self.close)

    def _flush_now_and_then(self) -> None:
        while not self._closed.wait(FLUSH_SECONDS):
            self.flush()

    def _flush(self) -> tuple[int, Exception | None]:
        """Write what waits; return how many messages were lost, and why."""
        waiting = self._log.waiting
        try:
            self._written += self._log.flush()
        except Exception as error:  # a call must not fail of it, whatever it is
            self._failed += waiting
            return waiting, error
        return 0, None

    def _tell(self, lost: int, problem: Exception | None) -> None:
        if lost:
            what = "a message was" if lost == 1 else f"{lost} messages were"
            log.warning("%s not recorded in %s: %r", what, self.path, problem)

    def flush(self) -> None:
        """Write what waits. Never raises: what cannot be written is counted and logged."""
        with self._lock:
            lost, problem = self._flush()
        self._tell(lost, problem)

    def close(self) -> None:
        """Write what is still to be written and close the file. Idempotent."""
        with self._lock:  # or a message that came in between would be lost
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
    """Have a message recorded, if there is who records; one of the user's own may fail, and the message goes on."""
    if recorder is None:
        return
    try:
        if time is None:
            recorder.record(message, direction, node)
        else:
            recorder.record(message, direction, node, time)
    except Exception:
        log.exception("the recorder failed; the message goes on")


class OutgoingRecord:
    """The record of a message that is being sent, and of what answers it. Thread-safe.

    A broker that tells the JMSMessageID does so when it has the message, and the answer may be there before that. So
    both wait until then, and are written in their order, with the times at which they passed.

    Args:
        recorder: where to; None if nobody records.
        message: what is about to be sent.
        direction: what it is.
        node: who sends it.
        tells_message_id: the broker will tell the id; else the message is written at once, without one.
    """

    def __init__(
        self, recorder: Recorder | None, message: Message, direction: Direction, node: Node, *, tells_message_id: bool
    ) -> None:
        self._recorder = recorder
        self._lock = Lock()
        self._waiting: list[tuple[Message, Direction, Node, datetime | None]] = []
        self._is_written = recorder is None or not tells_message_id
        if self._is_written:
            record(recorder, message, direction, node)
        else:
            self._waiting.append((message, direction, node, self._time()))

    def sent(self, message_id: str | None = None) -> None:
        """Tell that the broker has the message, or never will: it is written. A second time does nothing."""
        with self._lock:
            for message, direction, node, time in self._waiting:
                known = message if self._is_written else replace(message, message_id=message_id)
                self._is_written = True
                record(self._recorder, known, direction, node, time)
            self._waiting.clear()

    def answered(self, message: Message, direction: Direction, node: Node) -> None:
        """Record what answers the message."""
        with self._lock:
            if self._is_written:
                record(self._recorder, message, direction, node)
            else:
                self._waiting.append((message, direction, node, self._time()))

    def _time(self) -> datetime | None:
        try:
            return None if self._recorder is None else self._recorder.now()
        except Exception:  # it is asked again when the record is written, and counted if it fails again
            return None


MIRROR_PREFIX: Final = "VirtualTopic.Mirror."
"""What ActiveMQ puts before the name of a mirrored queue."""


def from_mirror(copy: Message) -> Message:
    """Give a copy from ActiveMQ's mirrored queues its destination back: the `translate` of a tap on their topics.

    A name that ActiveMQ made itself (`ID:...`) is a temporary queue's. A message from elsewhere stays as it is.
    """
    destination = copy.destination
    if destination is None or destination.name is None or not destination.name.startswith(MIRROR_PREFIX):
        return copy
    name = destination.name.removeprefix(MIRROR_PREFIX)
    kind = DestinationKind.TEMPORARY_QUEUE if name.startswith("ID:") else DestinationKind.QUEUE
    return changed(copy, destination=Destination(kind, name))


class Tap:
    """Records what a broker copies to a destination (a mirrored queue, a wire tap), as a node outside the exchange.

    Usable in a `with` statement.

    Args:
        connection: to the broker.
        source: the destination with the copies.
        recorder: where to.
        translate: gives a copy its original headers back, where the broker changed them on the way; see `from_mirror`.
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
