"""Writing messages to a capture log as they pass.

Give a `Recorder` to a `Client` or `Dispatcher`, or let a `Tap` feed it from a destination. A line is written whole; one
that cannot be written is counted and logged, and the call that it belongs to goes on.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, Self

from brokers.connection import Connection, Delivery
from brokers.message import Destination, Message
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
        self._file: BinaryIO | gzip.GzipFile | None = self._open()

    def _open(self) -> Any:
        if self.path.suffix == ".gz":
            return gzip.open(self.path, "ab")
        return self.path.open("ab", buffering=0)

    def record(self, message: Message, direction: Direction | None = None, node: Node | None = None) -> None:
        """Write one message. Never raises for what is in it or for a full disk: that is counted and logged."""
        try:
            line = to_json(capture(message, self._clock(), direction, node)).encode("utf-8") + b"\n"
            with self._lock:
                if self._file is None:
                    raise ValueError(f"the recorder of {self.path} is closed")
                self._file.write(line)
                self.written += 1
        except (OSError, ValueError, TypeError) as error:
            with self._lock:
                self.failed += 1
            log.warning("a message was not recorded in %s: %s", self.path, error)

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


class Tap:
    """Records what a broker copies to a destination (a mirrored queue, a wire tap), as a node outside the exchange.

    Args:
        connection: to the broker.
        source: the destination with the copies.
        recorder: where to.
        translate: gives a copy its original headers back, where the broker changed them on the way.
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
