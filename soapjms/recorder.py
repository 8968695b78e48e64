"""Writing messages to a capture log as they pass.

Give a `Recorder` to a `Client` or `Dispatcher`, or let a `Tap` feed it from a destination. A line is written whole; one
that cannot be written is counted and logged, and the call that it belongs to goes on.
"""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, takewhile
from math import inf
from os import SEEK_END
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from brokers.connection import Connection, Delivery
from brokers.message import Destination, DestinationKind, Message
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, Node, capture, to_json

log = logging.getLogger("soapjms.recorder")

DEFAULT_ROTATION: Final = 64 << 20
"""Octets of a capture log's file."""


def utc_now() -> datetime:
    """Return the time of capture."""
    return datetime.now(UTC)


class Recorder:
    """A capture log that is being written. Thread-safe. Usable in a `with` statement.

    What a node does not know about a message is not in its record. Over STOMP a sender never learns the JMSMessageID of
    what it sent, so a one-way message that was recorded at sender and receiver has nothing that both records know: it
    counts as two. Where the broker tells the id, as the embedded one does, or the client sets a JMSCorrelationID, as it
    does with Artemis, they are found to be copies of one.

    A file that is full is followed by another beside it, since gzip cannot be read in parts: after `capture.jsonl.gz`
    come `capture-0002.jsonl.gz` and so on. Where none can be begun, which is logged, the last one grows on.

    Args:
        path: a `.jsonl` file, or `.jsonl.gz` to compress; what it holds already stays, lines are added, to the last of
            the files if there are several.
        clock: returns the time of capture.
        rotation: octets of a file, as it is on the disk, after which another is begun.

    Attributes:
        path: the first file.
        written: lines written.
        failed: messages that could not be written.

    Raises:
        UsageError: a `rotation` below 1.
        OSError: the file cannot be opened.
    """

    def __init__(
        self, path: str | Path, clock: Callable[[], datetime] = utc_now, *, rotation: int = DEFAULT_ROTATION
    ) -> None:
        if rotation < 1:
            raise UsageError(f"rotation is {rotation}; it is a number of octets, at least 1")
        self.path = Path(path)
        self.written = 0
        self.failed = 0
        self._clock = clock
        self._rotation: float = rotation
        self._lock = Lock()
        self._compressed = self.path.suffix == ".gz"
        self._number = len(self.files) or 1
        self._torn = not self._compressed and _ends_in_a_line(self._numbered(self._number))
        self._file: BinaryIO | gzip.GzipFile | None = self._open(self._number)

    @property
    def files(self) -> list[Path]:
        """The files of the log that are there, in order."""
        return list(takewhile(Path.exists, map(self._numbered, count(1))))

    def _numbered(self, number: int) -> Path:
        if number == 1:
            return self.path
        suffix = "".join(self.path.suffixes[-2:] if self._compressed else self.path.suffixes[-1:])
        return self.path.with_name(f"{self.path.name.removesuffix(suffix)}-{number:04}{suffix}")

    def _open(self, number: int) -> Any:
        path = self._numbered(number)
        return gzip.open(path, "ab") if self._compressed else path.open("ab", buffering=0)

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
            line = to_json(capture(message, time or self.now(), direction, node)).encode("utf-8") + b"\n"
            with self._lock:
                self._write(line)
                self.written += 1
        except Exception as error:
            with self._lock:
                self.failed += 1
            log.warning("a message was not recorded in %s: %r", self.path, error)

    def _write(self, line: bytes) -> None:
        if self._file is None:
            raise ValueError("the recorder is closed")
        if os.fstat(self._file.fileno()).st_size >= self._rotation:
            self._rotate(self._file)
        octets = b"\n" + line if self._torn else line
        written = self._file.write(octets)
        self._torn = written != len(octets)
        if self._torn:  # what follows begins a line of its own, so that only this one is lost
            raise OSError(f"{written} of {len(octets)} octets were written")

    def _rotate(self, full: BinaryIO | gzip.GzipFile) -> None:
        """Go on in the next file; in this one where no other can be begun."""
        try:
            self._file = self._open(self._number + 1)
        except OSError as error:
            log.warning("%s grows on, as no other file can be begun: %s", self._numbered(self._number), error)
            self._rotation = inf
            return
        self._number, self._torn = self._number + 1, False
        full.close()

    def close(self) -> None:
        """Write what is still to be written and close the file. Idempotent."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

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


class Outgoing:
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


def _ends_in_a_line(path: Path) -> bool:
    """Say whether a log ends in the middle of a line, as that of a process that was killed may."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, SEEK_END)
        return file.read() != b"\n"


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
    return replace(copy, destination=Destination(kind, name))


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
