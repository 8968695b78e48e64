"""The engine without Spark: one process, columns in a temporary store on disk.

It runs the statements of `plan.py`, and judges what they leave to Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from heapq import nsmallest
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from brokers.message import Destination, DestinationKind
from soapjms.progress import Phase
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.replay import plan
from soapjms.replay.bundles import FlatRecord, Unpacker
from soapjms.replay.column_store import ColumnStore
from soapjms.replay.columns import COLUMNS, RefusedRow
from soapjms.replay.findings import service_place
from soapjms.replay.inputs import RejectedRow, shown, whole
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import REJECTED, VERDICTS, properties_of
from soapjms.replay.records import column_reader, read_columns
from soapjms.replay.shapes import WHOLE_WAY, ShapeCounts, ShapeMemory
from soapjms.replay.summary import (
    BACKWARDS,
    MAX_SPANS,
    MESSAGES,
    REJECTS_SHOWN,
    WIDTH_MICROSECONDS,
    RunTally,
    Timeline,
)
from soapjms.replay.terms import SHOWN, Job, Progress, ReplayTerms, place
from soapjms.replay.verdicts import judge_all, judge_alone

STORED_ROWS: Final = 122_880
"""Number of rows that are stored at a time, if they are small: DuckDB keeps so many together; fewer cost more."""
STORED_OCTETS: Final = 128 << 20
REPORT_RECORDS: Final = 2_000

ROW: Final = pa.field("row", pa.int64())
RECORDS: Final = pa.schema([ROW, *COLUMNS])
OTHERS: Final = pa.schema([ROW, ("key", pa.string()), ("by_alias", pa.bool_()), ("announces", pa.string())])
TOLD: Final = pa.schema(
    [
        ("kind_number", pa.int64()),
        ("is_valid", pa.bool_()),
        ("is_usual", pa.bool_()),
        ("number", pa.int64()),
        ("request_uri", pa.string()),
        ("is_jndi", pa.bool_()),
        ("states_headers", pa.bool_()),
        ("charset", pa.string()),
        ("is_fault", pa.bool_()),
    ]
)
DOCUMENTS: Final = pa.schema([ROW, ("document", pa.string()), ("has_fault", pa.bool_())])
SOUND: Final = pa.schema([("shape_number", pa.int64())])


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
    with closing(ColumnStore(result.parent)) as store:
        with Rows(result / "rejected" / PART, REJECTED) as rows:
            for found in _rejected(job, store, progress):
                rows.write(found)
                tally.count("rejected")
                first = nsmallest(REJECTS_SHOWN, [*first, found], key=place)
        terms = _decided(job.terms, store, tally)
        for statement in (plan.KEYED, plan.PLACED, plan.NONE_COUNTED):
            store.execute(statement)
        memory = ShapeMemory(terms)
        if memory.is_used:
            progress("counting")
            _count(terms, memory, store, tally)
        with Rows(result / "verdicts" / PART, VERDICTS) as rows:
            for row in judge_all(_rest(store, progress), replace(terms, exact=True), tally):
                rows.write(row)
    return tally, first


# Reading


def _rejected(job: Job, store: ColumnStore, progress: Progress) -> Iterator[RejectedRow]:
    """Store all records with what rules read of them, and yield what is no record."""
    store.create("records", RECORDS)
    store.create("others", OTHERS)
    yield from job.rejected
    yield from _stored(job, store, progress)
    progress("sorting")
    _learn(job.terms, store)
    names = {log.number: log.name for log in job.logs}
    for batch in store.batches(plan.UNPLAIN):
        keys: list[tuple[Any, ...]] = []
        positions = zip(*(batch.column(name).to_pylist() for name in ("row", "file", "line")), strict=True)
        for (row, file, line), found in zip(positions, column_reader().rows(_content(batch)), strict=True):
            if isinstance(found, RefusedRow):
                yield RejectedRow(names[file], line, *found)
            else:
                keys.append((row, *found.keys))
        store.insert_rows("others", keys, OTHERS)


def _stored(job: Job, store: ColumnStore, progress: Progress) -> Iterator[RejectedRow]:
    """Store all rows, and yield what is none."""
    octets, total = 0, sum(log.size for log in job.logs) if len(job.logs) > 1 else None
    waiting: list[pa.RecordBatch] = []
    stored = 0
    for number, log in enumerate(job.logs, 1):
        what = f"reading {log.name} ({number} of {len(job.logs)})"
        progress(Phase(what, octets, total))
        for found in read_columns(whole(log)):
            if isinstance(found, RejectedRow):
                yield found
                continue
            waiting.append(found)
            if _are_many(waiting):
                stored += _store(waiting, stored, store)
                progress(Phase(f"{what}: {stored} records", octets, total))
        octets += log.size
    _store(waiting, stored, store)


def _are_many(batches: list[pa.RecordBatch]) -> bool:
    rows, octets = sum(each.num_rows for each in batches), sum(each.nbytes for each in batches)
    return bool(rows >= STORED_ROWS or octets >= STORED_OCTETS)


def _store(waiting: list[pa.RecordBatch], stored: int, store: ColumnStore) -> int:
    """Store batches, and empty their list; return the number of rows."""
    table = pa.Table.from_batches(waiting, COLUMNS)
    waiting.clear()
    rows = pa.array(range(stored, stored + table.num_rows), pa.int64())
    store.insert("records", table.add_column(0, ROW, rows))
    return int(table.num_rows)


def _content(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of records, without others."""
    return batch.select(COLUMNS.names).cast(COLUMNS)


def _records(query: str, store: ColumnStore) -> Iterator[tuple[str, FlatRecord]]:
    """Read records with their places."""
    for batch in store.batches(query):
        places, rows = batch.column("place").to_pylist(), column_reader().rows(_content(batch))
        for name, found in zip(places, rows, strict=True):
            assert not isinstance(found, RefusedRow)
            yield name, found.record


# What rules read


def _learn(terms: ReplayTerms, store: ColumnStore) -> None:
    """Make the facts of all records, in place of those by other terms."""
    memory = ShapeMemory(terms)
    store.execute(plan.KINDS)
    store.create("told", TOLD)
    for rows in store.pages("SELECT kind_number, stated FROM kinds"):
        store.insert_rows("told", [(number, *_told(memory, stated)) for number, stated in rows], TOLD)
    store.execute(plan.facts(with_markup=memory.is_used or terms.is_open))
    store.execute(plan.MARKUPS)
    store.create("documents", DOCUMENTS)
    for rows in store.pages(plan.EXAMPLES):
        store.insert_rows("documents", [(row, *_document(memory, *body)) for row, *body in rows], DOCUMENTS)


def _told(memory: ShapeMemory, stated: list[dict[str, str | None]]) -> tuple[Any, ...]:
    """Return what properties tell as a row of `TOLD`, without its number."""
    try:
        read = properties_of((each["name"] or "", each) for each in stated)
    except InvalidRecordError:
        return False, *(None,) * 7
    found = memory.facts_of(read)
    return (True, False, *(None,) * 6) if found is WHOLE_WAY else (True, True, *found)


def _document(memory: ShapeMemory, kind: str, charset: str | None, body: bytes) -> tuple[Any, ...]:
    """Return what rules may read of a body as a row of `DOCUMENTS`, without its number."""
    found = memory.document_of(body.decode() if kind == "text" else body, charset)
    return (None, None) if found is None else (repr(found), found.fault is not None)


def _decided(terms: ReplayTerms, store: ColumnStore, tally: RunTally) -> ReplayTerms:
    """Choose the profile by what the records show, if it is open."""
    if not terms.is_open:
        return terms
    unpacker = Unpacker()
    for _, flat in _records(plan.MAY_SHOW_FAULTS, store):
        if (edition := terms.edition_shown(unpacker.record(flat))) is not None:
            tally.count(SHOWN, edition)
    decided = terms.decided(tally.counts)
    if decided.setting.profile != terms.setting.profile:
        _learn(decided, store)
    return decided


# Counting


def _count(terms: ReplayTerms, memory: ShapeMemory, store: ColumnStore, tally: RunTally) -> None:
    """Judge one exchange of each shape, and count those of the shapes that break nothing."""
    store.execute(plan.SIDES, window=memory.window)
    store.execute(plan.MESSAGES)
    store.execute(plan.exchanges(by_destination=memory.knows_senders), window=memory.window)
    store.execute(plan.SHAPES)
    sound = _sound(terms, memory, store)
    store.create("sound", SOUND)
    store.insert_rows("sound", [(number,) for number in sound], SOUND)
    store.execute(plan.COUNTED)
    for number, group in groupby(store.rows(plan.TIMES_OF_SHAPES), key=itemgetter(0)):
        times = Counter[str]()
        for _, kind, name, exchanges in group:
            times[_place(kind, name)] += exchanges
        tally.add_times(sound[number].tally, sound[number].at_place, times)
    _count_times(store, tally)


def _sound(terms: ReplayTerms, memory: ShapeMemory, store: ColumnStore) -> Mapping[int, ShapeCounts]:
    """Judge one exchange of each shape; return what each exchange of those that break nothing adds to the counts."""
    numbers = dict(store.rows("SELECT place, shape_number FROM shapes"))
    sound: dict[int, ShapeCounts] = {}
    for name, group in groupby(_records(plan.OF_SHAPES, store), key=itemgetter(0)):
        rows, found = judge_alone((memory.unpack.record(flat) for _, flat in group), terms)
        if not rows:
            sound[numbers[name]] = ShapeCounts(found)
    return sound


def _count_times(store: ColumnStore, tally: RunTally) -> None:
    """Count the records of the counted exchanges, and their messages and latencies by time."""
    ((records, first, last),) = [*store.rows(plan.ENDS)]
    if not records:
        return
    tally.count("records", by=records)
    level = 0
    while store.count(plan.spans(WIDTH_MICROSECONDS[level])) > MAX_SPANS:
        level += 1
    width = WIDTH_MICROSECONDS[level]
    spans = {number: Counter({MESSAGES: times}) for number, times in store.rows(plan.spans(width))}
    for number, bin_, kind, name, times in store.rows(plan.latencies(width)):
        spans[number][BACKWARDS if bin_ is None else f"latency/{bin_}"] += times
        if bin_ is not None:
            tally.add_latency(_place(kind, name), bin_, times)
    tally.timeline.add(Timeline(level, spans, first, last))


def _place(kind: str | None, name: str | None) -> str:
    """Return the destination as counts by destination name it."""
    return service_place(None if kind is None else Destination(DestinationKind(kind), name))


# Judging


def _rest(store: ColumnStore, progress: Progress) -> Iterator[tuple[str, FlatRecord]]:
    """Yield the records that were not counted with their keys: those of a key together, in order of time."""
    total = store.count("SELECT place FROM placed WHERE place NOT IN (SELECT place FROM counted)")
    for number, each in enumerate(_records(plan.REST, store)):
        if number % REPORT_RECORDS == 0:
            progress(Phase(f"judging: {number} of {total} records", number, total))
        yield each
