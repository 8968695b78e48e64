"""Writing messages to a capture log as they pass.

Give a `Recorder` to a `Client` or `Dispatcher`, or let a `Tap` feed it from a destination. A line is written whole; one
that cannot be written is counted and logged, and the call that it belongs to goes on.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from os import SEEK_END
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from brokers.connection import Connection, Delivery
from brokers.message import Destination, DestinationKind, Message
from soapjms.protocol.record import Direction, Node, capture, to_json

log = logging.getLogger("soapjms.recorder")


def utc_now() -> datetime:
    """Return the time of capture."""
    return datetime.now(UTC)


class Recorder:
    """A capture log that is being written. Thread-safe. Usable in a `with` statement.

    Args:
        path: a `.jsonl` file, or `.jsonl.gz` to compress; what it holds already stays, lines are added.
        clock: returns the time of capture.

    Attributes:
        written: lines written.
        failed: messages that could not be written.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str | Path, clock: Callable[[], datetime] = utc_now) -> None:
        self.path = Path(path)
        self.written = 0
        self.failed = 0
        self._clock = clock
        self._lock = Lock()
        self._compressed = self.path.suffix == ".gz"
        self._torn = not self._compressed and _ends_in_a_line(self.path)
        self._file: BinaryIO | gzip.GzipFile | None = self._open()

    def _open(self) -> Any:
        return gzip.open(self.path, "ab") if self._compressed else self.path.open("ab", buffering=0)

    def record(self, message: Message, direction: Direction | None = None, node: Node | None = None) -> None:
        """Write one message. Never raises for what is in it or for a full disk: that is counted and logged."""
        try:
            line = to_json(capture(message, self._clock(), direction, node)).encode("utf-8") + b"\n"
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
        octets = b"\n" + line if self._torn else line
        written = self._file.write(octets)
        self._torn = written != len(octets)
        if self._torn:  # what follows begins a line of its own, so that only this one is lost
            raise OSError(f"{written} of {len(octets)} octets were written")

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


def record(recorder: Recorder | None, message: Message, direction: Direction, node: Node) -> None:
    """Have a message recorded, if there is who records; one of the user's own may fail, and the message goes on."""
    if recorder is None:
        return
    try:
        recorder.record(message, direction, node)
    except Exception:
        log.exception("the recorder failed; the message goes on")


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
