"""All that passed in a test, in a file that replay reads too."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import Final

from soapjms.observing import Begun, Ended, Observation, Observer
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.exchange import Exchange, exchanges_of
from soapjms.protocol.record import Record, from_json
from soapjms.recorder import Recorder

PATIENCE: Final = 5.0
"""Seconds to wait for what has to happen soon."""

MOST_BLANK: Final = 100_000
"""Blank lines of a log; a small file may hold millions when it is unpacked."""


class UnderWay(Observer):
    """Knows whether dispatchers have settled all that they got: give it to each as its observer. Thread-safe."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._number = 0

    def begun(self, begun: Begun) -> Observation:
        """Count a request until it is answered, and recorded."""
        self.add(1)
        return Followed(self, begun)

    def add(self, number: int) -> None:
        """Count more, or less."""
        with self._changed:
            self._number += number
            self._changed.notify_all()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count a request while somebody lets it wait on purpose."""
        self.add(-1)
        try:
            yield
        finally:
            self.add(1)

    def wait(self, timeout: float = PATIENCE) -> bool:
        """Wait until nothing is under way; say whether that came within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._number == 0, timeout)


class Followed(Observation):
    """A request that is under way."""

    def __init__(self, under_way: UnderWay, begun: Begun) -> None:
        self._under_way = under_way
        self.begun = begun

    def ended(self, ended: Ended) -> None:
        """Count it no more."""
        self._under_way.add(-1)


class Traffic(Recorder):
    """A recorder that tells what it has recorded: `recorder=` of a `Client`, `Dispatcher` or `StubService`.

    Args:
        path: the capture log, a new `.jsonl` file.

    Attributes:
        under_way: makes those who read wait for dispatchers: `observer=traffic.under_way` of each that records here.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.under_way = UnderWay()

    def records(self) -> list[Record]:
        """Return what passed so far, once all requests are settled or after 5 seconds.

        A client may have its answer before the service has recorded it, so this waits.

        Raises:
            InvalidRecordError: somebody else wrote to the file.
        """
        self.under_way.wait()
        return read_logs(self.files)

    def exchanges(self) -> list[Exchange]:
        """Return what passed so far as exchanges, as replay pairs them."""
        return list(exchanges_of(self.records()))


def read_logs(paths: Iterable[Path]) -> list[Record]:
    """Read the files of a capture log, as `read_log` reads one."""
    return [record for path in paths for record in read_log(path)]


def read_log(path: Path) -> list[Record]:
    """Read a capture log, `.jsonl` or `.jsonl.gz`.

    Raises:
        InvalidRecordError: a line is no record, or far too many are blank; the message says which.
        OSError: it cannot be read.
    """
    found = []
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        try:
            for number, line in enumerate(map(bytes.strip, lines), 1):
                if line:
                    found.append(_record(line, path, number))
                elif number - len(found) > MOST_BLANK:
                    raise InvalidRecordError(f"{path}, line {number}: more than {MOST_BLANK} lines are blank")
        except (EOFError, zlib.error) as error:
            raise InvalidRecordError(f"{path}: {error}") from None
    return found


def _record(line: bytes, path: Path, number: int) -> Record:
    try:
        return from_json(line.decode("utf-8"))
    except (InvalidRecordError, UnicodeDecodeError) as error:
        raise InvalidRecordError(f"{path}, line {number}: {error}") from None
