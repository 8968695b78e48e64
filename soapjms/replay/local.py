"""The engine without Spark: one process, columns in a temporary store on disk.

It runs the queries of `plan.py`, and judges what they leave to Python. No body is stored, but those of records that are
judged by themselves: these are read again, and put into a file in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from heapq import nsmallest
from itertools import groupby, tee
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from soapjms.progress import Phase
from soapjms.protocol.errors import UsageError
from soapjms.replay import plan
from soapjms.replay.column_store import ColumnStore
from soapjms.replay.counts import ShapeCounts, add_counted
from soapjms.replay.facts import FactReader, line_of, part_of
from soapjms.replay.flat_records import MICROSECOND, FlatRecord, Unpacker, flat_of, pack
from soapjms.replay.inputs import RejectedRow, shown, whole
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import REJECTED, VERDICTS
from soapjms.replay.records import read_rows
from soapjms.replay.summary import REJECTS_SHOWN, RunTally
from soapjms.replay.terms import SHOWN, Job, Progress, ReplayTerms, place
from soapjms.replay.verdicts import judge_all, judge_alone

REPORT_RECORDS: Final = 2_000
SOUND: Final = pa.schema([("shape", pa.binary()), ("example", pa.string())])
CHOSEN: Final = pa.schema(
    [("place", pa.string()), ("time", pa.int64()), ("row", pa.int64()), ("start", pa.int64()), ("octets", pa.int64())]
)


@contextmanager
def run(job: Job, result: Path, progress: Progress) -> Iterator[tuple[RunTally, list[RejectedRow]]]:
    """Judge a job's logs and write verdicts/ and rejected/ under `result`.

    Yields:
        the counts, and the first rejected records.

    Raises:
        UsageError: a log is on another machine.
        NoInputError: a log was changed meanwhile.
    """
    if job.elsewhere:
        raise UsageError(f"{shown(job.elsewhere[0])} needs Spark to be read; without it, name files on this machine")
    tally = RunTally()
    first: list[RejectedRow] = []
    for name in ("rejected", "verdicts"):
        (result / name).mkdir()
    with closing(ColumnStore(result.parent)) as store:
        with Rows(result / "rejected" / PART, REJECTED) as rows:
            for found in _rejected(job, store, tally, progress):
                rows.write(found)
                tally.count("rejected")
                first = nsmallest(REJECTS_SHOWN, [*first, found], key=place)
        terms = _decided(job, store, tally, progress)
        store.define("aliases", plan.ALIASES)
        store.define("placed", plan.PLACED, "VIEW")
        if terms.counts_shapes:
            progress("counting")
            _count(job, terms, store, tally)
        query = plan.REST if terms.counts_shapes else plan.ALL
        with Rows(result / "verdicts" / PART, VERDICTS) as rows:
            for row in judge_all(_rest(job, query, store, progress), terms, tally):
                rows.write(row)
    yield tally, first


# Reading


def _rejected(job: Job, store: ColumnStore, tally: RunTally, progress: Progress) -> Iterator[RejectedRow]:
    """Store the facts of all records, and yield what is no record."""
    yield from job.rejected
    reader = FactReader(job.terms, store)
    octets, total = 0, sum(log.size for log in job.logs) if len(job.logs) > 1 else None
    stored = 0
    for part, log in enumerate(job.logs):
        what = f"reading {log.name} ({part + 1} of {len(job.logs)})"
        progress(Phase(what, octets, total))
        for found in reader.read(part, whole(log)):
            if isinstance(found, RejectedRow):
                yield found
                continue
            stored += found
            progress(Phase(f"{what}: {stored} records", octets, total))
        octets += log.size
    for edition, records in reader.shown.items():
        tally.count(SHOWN, edition, by=records)


def _decided(job: Job, store: ColumnStore, tally: RunTally, progress: Progress) -> ReplayTerms:
    """Choose the profile by what the records show, if it is open; if it is not that which was supposed, read again."""
    terms = job.terms.decided(tally.counts)
    if terms.setting.profile != job.terms.setting.profile:
        for _ in _rejected(replace(job, terms=terms), store, RunTally(), progress):
            pass  # it was reported
    return terms


# Judging


def _count(job: Job, terms: ReplayTerms, store: ColumnStore, tally: RunTally) -> None:
    """Judge one exchange of each shape, and count those of the shapes that break nothing."""
    define_entries(store, terms)
    store.define("shapes", plan.SHAPES)
    sound: dict[str, ShapeCounts] = {}
    unpack = Unpacker()
    for name, group in groupby(_chosen(job, plan.OF_SHAPES, store), key=itemgetter(0)):
        rows, found = judge_alone((unpack.record(flat) for _, flat in group), terms)
        if not rows:
            sound[name] = ShapeCounts(found)
    count_sound(
        store, [row for row in store.rows("SELECT shape, example FROM shapes") if row[1] in sound], sound, tally
    )


def define_entries(store: ColumnStore, terms: ReplayTerms) -> None:
    """Make `entries` of the records in `facts` and `placed`; see `plan`."""
    for name, query in plan.within_places(terms.window // MICROSECOND).items():
        store.define(name, query, "VIEW" if name == "messages" else "TABLE")


def count_sound(
    store: ColumnStore, shapes: list[tuple[Any, ...]], sound: Mapping[str, ShapeCounts], tally: RunTally
) -> None:
    """Count the exchanges of `entries` whose shapes break nothing.

    Args:
        store: has `entries`; gets `sound` and `counted`.
        shapes: the rows of `sound`.
        sound: what each exchange adds to the counts, by the example of its shape.
        tally: the counts.
    """
    store.create("sound", SOUND)
    store.insert_rows("sound", shapes, SOUND)
    store.define("counted", plan.COUNTED)
    add_counted(tally, sound, store.rows)


def _rest(job: Job, query: str, store: ColumnStore, progress: Progress) -> Iterator[tuple[str, FlatRecord]]:
    """Yield the records that were not counted with their keys: those of a key together, in order of time."""
    ((total,),) = store.rows(plan.number_of(query))
    progress("sorting")
    for number, each in enumerate(_chosen(job, query, store)):
        if number % REPORT_RECORDS == 0:
            progress(Phase(f"judging: {number} of {total} records", number, total))
        yield each


def _chosen(job: Job, query: str, store: ColumnStore) -> Iterator[tuple[str, FlatRecord]]:
    """Read records again: those of a place together, in order of time.

    Args:
        job: the logs.
        query: finds their places, times and numbers.
        store: the facts.
    """
    store.create("chosen", CHOSEN)
    with store.file() as file:
        store.insert_rows("chosen", _stored(job, store.rows(f"{query} ORDER BY row"), file), CHOSEN)
        for name, start, octets in store.rows("SELECT place, start, octets FROM chosen ORDER BY place, time, row"):
            file.seek(start)
            yield name, flat_of(file.read(octets))


def _stored(job: Job, rows: Iterator[tuple[str, int, int]], file: BinaryIO) -> Iterator[tuple[str, int, int, int, int]]:
    """Read records again, and write them into a file; yield rows of `CHOSEN`.

    Args:
        job: the logs.
        rows: their places, times and numbers, in order of the numbers.
        file: the file.
    """
    start = 0
    for part, group in groupby(rows, key=lambda row: part_of(row[2])):
        wanted, again = tee(group)
        found = read_rows(whole(job.logs[part]), (line_of(number) for _, _, number in wanted))
        for (name, time, number), flat in zip(again, found, strict=True):
            packed = pack(flat)
            file.write(packed)
            yield name, time, number, start, len(packed)
            start += len(packed)
