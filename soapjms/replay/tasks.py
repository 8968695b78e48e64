"""The tasks of the engine without Spark: to read a part of a log, to read some of its records again, to judge.

Each may run in a process of its own. So what may be large passes through files, in a folder that is given.
"""

from __future__ import annotations

import pickle
from array import array
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from soapjms.replay.column_store import ColumnStore
from soapjms.replay.counts import packed_counts
from soapjms.replay.facts import FACTS, LINE_BITS, FactReader
from soapjms.replay.flat_records import FlatRecord, flat_of, pack
from soapjms.replay.inputs import RejectedRow, Split, count_lines
from soapjms.replay.output import Rows
from soapjms.replay.parquet import REJECTED, VERDICTS, to_batches
from soapjms.replay.records import read_rows
from soapjms.replay.summary import RunTally
from soapjms.replay.terms import ReplayTerms
from soapjms.replay.verdicts import judge_all

MAX_OPEN_FILES: Final = 64
"""Number of files of parts that are open at a time."""


class PartFound(NamedTuple):
    """What a part of a log holds.

    Attributes:
        facts: the file of its facts, Arrow's IPC format.
        records: their number.
        rejected: the file of what is no record, as rejected/ has it, with lines counted from the start of the part.
        refused: their number.
        shown: how many records show each edition.
        lines: its number of lines if they are counted anew, else 0.
    """

    facts: Path
    records: int
    rejected: Path
    refused: int
    shown: Counter[str]
    lines: int


class Location(NamedTuple):
    """Where a record is that was read again.

    Attributes:
        place: its key.
        part: the number of the part in whose file it is.
        start, octets: where it begins in that, and its size.
    """

    place: str
    part: int
    start: int
    octets: int


@lru_cache(maxsize=1)
def _reader(terms: bytes, folder: Path) -> FactReader:
    return FactReader(pickle.loads(terms), ColumnStore(folder, 1, in_memory=True))  # noqa: S301  # we made it


def forget_reader() -> None:
    """Close the reader that this process keeps, so that no part of a log begins with empty caches."""
    _reader.cache_clear()


def read_part(given: tuple[int, Split], folder: Path, terms: ReplayTerms) -> PartFound:
    """Read a part of a log, whose number among all parts is given."""
    part, split = given
    reader = _reader(pickle.dumps(terms), folder)
    reader.shown.clear()
    facts, rejected = folder / f"facts-{uuid4().hex}", folder / f"rejected-{part}"
    records = refused = 0
    with pa.ipc.new_file(str(facts), FACTS) as sink, Rows(rejected, REJECTED) as rows:
        for found in reader.read(part, split):
            if isinstance(found, RejectedRow):
                rows.write(found)
                refused += 1
            else:
                sink.write_table(found)
                records += found.num_rows
    lines = count_lines(split) if split.is_counted_anew else 0
    return PartFound(facts, records, rejected, refused, reader.shown.copy(), lines)


def records_file(folder: Path, part: int) -> Path:
    """Return the file of the records of a part that were read again."""
    return folder / f"records-{part}"


FETCHED: Final = pa.schema([("row", pa.int64()), ("start", pa.int64()), ("octets", pa.int64())])


class PartLines(NamedTuple):
    """Records of a part that are to be read again.

    Attributes:
        part: the number of the part.
        split: the part.
        lines: the lines of the records, in order.
    """

    part: int
    split: Split
    lines: array[int]


def fetch(wanted: PartLines, folder: Path) -> tuple[int, pa.RecordBatch]:
    """Read records again, and write them into the file of their part.

    Returns:
        the number of the part, and where they are, as rows of `FETCHED`.
    """
    forget_reader()  # whose memory is not needed any more
    sizes = array("q")
    with records_file(folder, wanted.part).open("wb") as file:
        for flat in read_rows(wanted.split, wanted.lines):
            sizes.append(file.write(pack(flat)))
    octets = pa.array(sizes, pa.int64())
    rows = pc.add(pa.array(wanted.lines, pa.int64()), wanted.part << LINE_BITS)
    return wanted.part, pa.record_batch([rows, pc.subtract(pc.cumulative_sum(octets), octets), octets], FETCHED)


# Judging


class _Files:
    """The files of records, opened when they are first read, a few at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[int, BinaryIO] = {}

    def read(self, stored: Location) -> FlatRecord:
        if stored.part not in self._open:
            if len(self._open) >= MAX_OPEN_FILES:
                self.close()
            self._open[stored.part] = records_file(self._folder, stored.part).open("rb")
        file = self._open[stored.part]
        file.seek(stored.start)
        return flat_of(file.read(stored.octets))

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


def judge_examples(stored: Iterable[Location], folder: Path, terms: ReplayTerms) -> list[tuple[str, bytes]]:
    """Judge exchanges, one of each shape; see `packed_counts`."""
    with closing(_Files(folder)) as files:
        return [*packed_counts(((each.place, files.read(each)) for each in stored), terms)]


def judge(stored: list[Location], folder: Path, terms: ReplayTerms) -> tuple[list[pa.RecordBatch], int, RunTally]:
    """Judge exchanges; return the rows of verdicts/, the number of records, and the counts."""
    tally = RunTally()
    with closing(_Files(folder)) as files:
        rows = judge_all(((each.place, files.read(each)) for each in stored), terms, tally)
        return [*to_batches(rows, VERDICTS)], len(stored), tally
