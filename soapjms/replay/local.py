"""The engine without Spark: one process, memory that does not grow with the log, Parquet through pyarrow.

It does the same as the Spark engine, with SQLite in place of Spark's shuffle: it joins the aliases, and sorts by key
and time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final

from soapjms.progress import Phase
from soapjms.protocol.errors import UsageError
from soapjms.replay.bundles import FlatRecord, Unpacker, flat_of
from soapjms.replay.inputs import RejectedRow, shown, whole
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import REJECTED, VERDICTS
from soapjms.replay.records import PackedRecord, read_packed
from soapjms.replay.summary import REJECTS_SHOWN, RunTally
from soapjms.replay.terms import SHOWN, Job, Progress, place
from soapjms.replay.verdicts import judge_all

BATCH_ROWS: Final = 2000
REPORT_RECORDS: Final = 2_000

TABLES: Final = """
CREATE TABLE staged (key TEXT, by_alias INTEGER, announces TEXT, time INTEGER, file INTEGER, line INTEGER, packed BLOB);
CREATE TABLE aliases (alias TEXT PRIMARY KEY, key TEXT) WITHOUT ROWID;
"""
ALIASES: Final = """
INSERT INTO aliases SELECT announces, min(key) FROM staged WHERE announces IS NOT NULL GROUP BY announces
"""
SORTED: Final = """
SELECT coalesce(aliases.key, staged.key) AS place, packed
FROM staged LEFT JOIN aliases ON staged.by_alias AND aliases.alias = staged.key
ORDER BY place, time, file, line
"""


def run(job: Job, result: Path, progress: Progress) -> tuple[RunTally, list[RejectedRow]]:
    """Judge a job's logs and write verdicts/ and rejected/ under `result`.

    Returns:
        the counts, and the first rejected records.

    Raises:
        UsageError: a log is on another machine.
    """
    if job.elsewhere:
        raise UsageError(f"{shown(job.elsewhere[0])} needs Spark to be read; without it, name files on this machine")
    tally = RunTally()
    first: list[RejectedRow] = []
    for name in ("rejected", "verdicts"):
        (result / name).mkdir()
    with closing(_Sorter(result.parent / "sorting.sqlite")) as sorter:
        with Rows(result / "rejected" / PART, REJECTED) as rows:
            for found in _read(job, sorter, progress, tally):
                rows.write(found)
                tally.count("rejected")
                first = nsmallest(REJECTS_SHOWN, [*first, found], key=place)
        with Rows(result / "verdicts" / PART, VERDICTS) as rows:
            records = _counted(sorter.sorted(), sorter.count, progress)
            for row in judge_all(records, job.terms.decided(tally.counts), tally):
                rows.write(row)
    return tally, first


def _read(job: Job, sorter: _Sorter, progress: Progress, tally: RunTally) -> Iterator[RejectedRow]:
    """Put all records into the sorter, count the editions that they show, and yield what could not be read."""
    yield from job.rejected
    unpack = Unpacker().unpack
    octets, total = 0, sum(log.size for log in job.logs) if len(job.logs) > 1 else None
    for number, log in enumerate(job.logs, 1):
        what = f"reading {log.name} ({number} of {len(job.logs)})"
        progress(Phase(what, octets, total))
        for found in read_packed(whole(log)):
            if isinstance(found, RejectedRow):
                yield found
            else:
                sorter.add(found)
                if sorter.count % REPORT_RECORDS == 0:
                    progress(Phase(f"{what}: {sorter.count} records", octets, total))
                if job.terms.is_open and (edition := job.terms.edition_shown(unpack(found.row.packed))) is not None:
                    tally.count(SHOWN, edition)
        octets += log.size


def _counted(
    records: Iterable[tuple[str, FlatRecord]], total: int, progress: Progress
) -> Iterator[tuple[str, FlatRecord]]:
    for number, each in enumerate(records):
        if number % REPORT_RECORDS == 0:
            progress(Phase(f"judging: {number} of {total} records", number, total))
        yield each


class _Sorter:
    """Sorts records in a temporary database, since they may not fit into memory."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + TABLES)
        self._waiting: list[tuple[Any, ...]] = []
        self.count = 0

    def add(self, found: PackedRecord) -> None:
        """Add one record."""
        self.count += 1
        key, time, packed = found.row
        self._waiting.append((*key, time, found.file, found.line, packed))
        if len(self._waiting) >= BATCH_ROWS:
            self._flush()

    def sorted(self) -> Iterator[tuple[str, FlatRecord]]:
        """Yield all records with their keys: those of a key together, in order of time."""
        self._flush()
        self._database.execute(ALIASES)
        for key, packed in self._database.execute(SORTED):
            yield key, flat_of(packed)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?, ?, ?)", self._waiting)
        self._waiting.clear()
