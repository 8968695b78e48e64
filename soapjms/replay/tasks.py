"""The tasks of the engine without Spark, and of following logs: to read parts of logs, to read some of their records
again, to judge.

Each may run in a process of its own. So what may be large passes through files, in a folder that is given.
"""

from __future__ import annotations

import pickle
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from functools import lru_cache, partial
from heapq import nsmallest
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from soapjms.replay.column_store import ColumnStore
from soapjms.replay.contents import CONTENTS, contents_of
from soapjms.replay.counts import packed_counts
from soapjms.replay.facts import FACTS, LINE_BITS, FactReader, GivenPart
from soapjms.replay.flat_records import FlatRecord, flat_of, pack
from soapjms.replay.inputs import RejectedRow, Split
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import REJECTED, VERDICTS, to_batches
from soapjms.replay.records import read_rows
from soapjms.replay.summary import REJECTS_SHOWN, RunTally
from soapjms.replay.terms import ReplayTerms, place
from soapjms.replay.verdicts import judge_all

MAX_OPEN_FILES: Final = 64
"""Number of files of parts that are open at a time."""
REFUSED_ROWS: Final = 100
MAPPED_OCTETS: Final = 1 << 20
"""Size of a file above which it is mapped into memory: a process can map some ten thousand only."""


class PartsFound(NamedTuple):
    """What parts of logs hold that were read together.

    Attributes:
        facts: the file of their facts, Arrow's IPC format.
        records: the number of these.
        rejected: the file of what is no record, as rejected/ has it, with lines counted from the start of the part.
        refused: the number of these.
        shown: how many records show each edition.
        lines: the number of lines of a part whose lines are counted anew, else 0.
        contents: the file of their rows, of `CONTENTS`, among them all records, if they were wanted.
    """

    facts: Path
    records: int
    rejected: Path
    refused: int
    shown: Counter[str]
    lines: int
    contents: Path

    def take_refused(self, before: int = 0) -> Iterator[RejectedRow]:
        """Yield what is no record, whose file is deleted; `before` lines come before a part in its log."""
        if self.refused:
            with closing(parquet.ParquetFile(self.rejected)) as file:
                for batch in file.iter_batches(REFUSED_ROWS):  # few, as each may be large
                    for file_, line, *others in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                        yield RejectedRow(file_, None if line is None else line + before, *others)
        self.rejected.unlink()


def write_rejected(rejected: Iterable[RejectedRow], folder: Path) -> tuple[int, list[RejectedRow]]:
    """Write rejected/, which is there; return the number of its rows, and the first of them."""
    number = 0
    first: list[RejectedRow] = []
    with Rows(folder / PART, REJECTED) as rows:
        for found in rejected:
            rows.write(found)
            number += 1
            first = nsmallest(REJECTS_SHOWN, [*first, found], key=place)
    return number, first


def taken_rows(files: Iterable[Path], columns: pa.Schema) -> pa.Table:
    """Return the rows of files in Arrow's IPC format, which are deleted; those of large ones are read when used."""
    tables = [columns.empty_table()]
    for path in files:
        is_large = path.stat().st_size > MAPPED_OCTETS
        with pa.memory_map(str(path)) if is_large else pa.BufferReader(path.read_bytes()) as file:
            tables.append(pa.ipc.open_file(file).read_all())
        path.unlink()  # what was mapped of it stays
    return pa.concat_tables(tables)


class Location(NamedTuple):
    """Where a record is that was read again.

    Attributes:
        place: its key.
        file: the number of its file; see `records_file`.
        start, octets: where it begins in that, and its size.
    """

    place: str
    file: int
    start: int
    octets: int


@lru_cache(maxsize=1)
def _reader(terms: bytes, folder: Path) -> FactReader:
    return FactReader(pickle.loads(terms), ColumnStore(folder, 1, in_memory=True))  # noqa: S301  # we made it


def forget_reader() -> None:
    """Close the reader that this process keeps, so that no part of a log begins with empty caches."""
    _reader.cache_clear()


def read_parts(given: Iterable[GivenPart], folder: Path, terms: ReplayTerms, keeps: Path | None = None) -> PartsFound:
    """Read parts of logs.

    Args:
        given: the parts; only one if its lines are counted anew.
        folder: for what is found.
        terms: how to judge.
        keeps: a folder for large records, if the contents are wanted; lines are numbered then.
    """
    reader = _reader(pickle.dumps(terms), folder)
    facts, rejected, contents = (folder / f"{name}-{uuid4().hex}" for name in ("facts", "rejected", "contents"))
    records = refused = lines = 0
    with ExitStack() as files:
        sink = files.enter_context(pa.ipc.new_file(str(facts), FACTS))
        rows = files.enter_context(Rows(rejected, REJECTED))
        keep = None
        if keeps is not None:
            kept = files.enter_context(pa.ipc.new_file(str(contents), CONTENTS))
            keep = partial(_keep, folder=keeps, kept=kept)
        for found in reader.read(given, keep):
            if isinstance(found, pa.Table):
                sink.write_table(found)
                records += found.num_rows
            elif isinstance(told := found[1], RejectedRow):
                rows.write(told)
                refused += 1
            else:
                lines = told
    return PartsFound(facts, records, rejected, refused, reader.shown.copy(), lines, contents)


def _keep(given: pa.Table, folder: Path, kept: pa.RecordBatchFileWriter) -> None:
    kept.write_table(contents_of(given, folder))


def records_file(folder: Path, number: int) -> Path:
    """Return a file of records that were read again."""
    return folder / f"records-{number}"


FETCHED: Final = pa.schema([(name, pa.int64()) for name in ("row", "position", "file", "start", "octets")])
"""A record that was read again: its number, another that tells its position in the order of the logs, and where it is,
as `Location` has it."""


def write_records(
    folder: Path, number: int, records: Iterable[FlatRecord], rows: pa.Array, positions: pa.Array
) -> pa.RecordBatch:
    """Write records into a file.

    Args:
        folder: for the file.
        number: that of the file.
        records: the records.
        rows, positions: their numbers and positions.

    Returns:
        where they are, as rows of `FETCHED`.
    """
    sizes = array("q")
    with records_file(folder, number).open("wb") as file:
        for flat in records:
            sizes.append(file.write(pack(flat)))
    octets = pa.array(sizes, pa.int64())
    starts = pc.subtract(pc.cumulative_sum(octets), octets)
    files = pa.repeat(pa.scalar(number, pa.int64()), len(octets))
    return pa.record_batch([rows, positions, files, starts, octets], FETCHED)


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


def fetch(wanted: PartLines, folder: Path) -> pa.RecordBatch:
    """Read records again, and write them into a file; return where they are, as rows of `FETCHED`."""
    forget_reader()  # whose memory is not needed any more
    rows = pc.add(pa.array(wanted.lines, pa.int64()), wanted.part << LINE_BITS)
    return write_records(folder, wanted.part, read_rows(wanted.split, wanted.lines), rows, rows)


# Judging


class _Files:
    """The files of records, opened when they are first read, a few at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[int, BinaryIO] = {}

    def read(self, stored: Location) -> FlatRecord:
        if stored.file not in self._open:
            if len(self._open) >= MAX_OPEN_FILES:
                self.close()
            self._open[stored.file] = records_file(self._folder, stored.file).open("rb")
        file = self._open[stored.file]
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
