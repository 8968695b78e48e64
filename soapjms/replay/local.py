"""The engine without Spark: this machine, with a process on each core if there is much to read.

The processes read parts of the logs, and judge. This one runs the queries of `plan.py` over the facts, which it keeps
in a temporary store on disk. No body is stored, but those of records that are judged by themselves: these are read
again, and put into files in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from heapq import nsmallest
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from soapjms.progress import Phase
from soapjms.protocol.errors import UsageError
from soapjms.replay import plan
from soapjms.replay.column_store import ColumnStore, cores
from soapjms.replay.counts import ShapeCounts, add_counted, unpacked_counts
from soapjms.replay.facts import FACTS, line_of, part_of
from soapjms.replay.flat_records import MICROSECOND
from soapjms.replay.inputs import RejectedRow, octets_of, shown, split_size, splits
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import REJECTED, VERDICTS
from soapjms.replay.processes import Processes
from soapjms.replay.summary import REJECTS_SHOWN, RunTally
from soapjms.replay.tasks import (
    FETCHED,
    MAX_OPEN_FILES,
    Location,
    PartFound,
    PartLines,
    fetch,
    forget_reader,
    judge,
    judge_examples,
    read_part,
    records_file,
)
from soapjms.replay.terms import SHOWN, Job, Progress, ReplayTerms, place

SMALL_OCTETS: Final = 32 << 20
"""Size of the logs, uncompressed, below which processes are not worth their start, which takes half a second."""
MAX_PROCESSES: Final = 8
"""Maximum number of processes: more would wait for this one, which stores what they read."""
STORED_ROWS: Final = 245_760
"""Number of facts that are stored at a time: two cores work on half of them each. Fewer take three times as long."""
REFUSED_ROWS: Final = 100
TASKS_OF_PROCESS: Final = 4
MIN_JUDGED, MAX_JUDGED = 500, 20_000
"""Number of tasks for each process that judge, if there is enough work; records that one of them judges."""
SOUND: Final = pa.schema([("shape", pa.binary()), ("example", pa.string())])
"""A shape that breaks nothing, and a key of `SoundExamples.counts`."""


@contextmanager
def run(job: Job, result: Path, progress: Progress) -> Iterator[tuple[RunTally, list[RejectedRow]]]:
    """Judge a job's logs and write verdicts/ and rejected/ under `result`.

    Yields:
        the counts, and the first rejected records.

    Raises:
        UsageError: a log is on another machine.
        NoInputError: a log was changed meanwhile.
        ProcessLostError: a process ended, as memory ran out.
    """
    if job.elsewhere:
        raise UsageError(f"{shown(job.elsewhere[0])} needs Spark to be read; without it, name files on this machine")
    for name in ("rejected", "verdicts"):
        (result / name).mkdir()
    is_small = octets_of(job.logs) < SMALL_OCTETS
    number = 1 if is_small else min(cores(), MAX_PROCESSES)
    try:
        store = ColumnStore(result.parent, in_memory=is_small)  # as a file waits for its disk at each statement
        with closing(store), Processes(number) as processes:
            local = LocalRun(job, store, processes, result, progress)
            tally, first = local.read()
            local.judge(tally)
    finally:
        forget_reader()
    yield tally, first


IN_ORDER: Final = """
SELECT place, row, start, octets FROM wanted JOIN fetched USING (row)
ORDER BY min(time) OVER (PARTITION BY place), place, time, row
"""
"""The records of a place together, in order of time; places too, as samples are the earliest findings so far: of later
ones none is made."""


class LocalRun:
    """One run.

    Args:
        job: the logs and the terms.
        store: for the facts.
        processes: do the tasks.
        result: the folder for verdicts/ and rejected/; that around it is for files in between.
        progress: called with each phase.
    """

    def __init__(self, job: Job, store: ColumnStore, processes: Processes, result: Path, progress: Progress) -> None:
        self._job, self._terms = job, job.terms
        self._store, self._processes = store, processes
        self._result, self._folder, self._progress = result, result.parent, progress
        self._parts = [each.without_groups for each in splits(job.logs, split_size(job.logs, processes.number))]

    # Reading

    def read(self) -> tuple[RunTally, list[RejectedRow]]:
        """Store the facts of all records, and write rejected/; return the counts, and the first rejected records."""
        tally = RunTally()
        first: list[RejectedRow] = []
        with Rows(self._result / "rejected" / PART, REJECTED) as rows:
            for found in chain(self._job.rejected, self._read_parts(tally)):
                rows.write(found)
                tally.count("rejected")
                first = nsmallest(REJECTS_SHOWN, [*first, found], key=place)
        self._terms = self._job.terms.decided(tally.counts)
        if self._terms.setting.profile != self._job.terms.setting.profile:  # not the one that was supposed
            for _ in self._read_parts(RunTally()):
                pass  # it was reported
        return tally, first

    def _read_parts(self, tally: RunTally) -> Iterator[RejectedRow]:
        """Store the facts of all records; yield what is no record."""
        self._store.create("facts", FACTS)
        logs = self._job.logs
        octets, total = 0, sum(part.octets for part in self._parts) if len(self._parts) > 1 else None
        stored = lines = 0
        lost = set[str]()
        task = partial(read_part, folder=self._folder, terms=self._terms)
        self._progress(Phase(_reading(logs[0].name, 0, len(logs)), octets, total))
        coming = list[PartFound]()
        for split, found in zip(self._parts, self._processes.map(task, enumerate(self._parts)), strict=True):
            coming.append(found)
            if sum(each.records for each in coming) >= STORED_ROWS or len(coming) >= MAX_OPEN_FILES:
                self._store_facts(coming)
            lines, lost = (lines, lost) if split.start else (0, set[str]())
            for refused in self._refused(found, lines):
                if refused.line is not None or refused.reason not in lost:  # a log that is gone is so for each part
                    yield refused
                if refused.line is None:
                    lost.add(refused.reason)
            lines += found.lines
            stored, octets = stored + found.records, octets + split.octets
            for edition, records in found.shown.items():
                tally.count(SHOWN, edition, by=records)
            what = _reading(split.log.name, split.log.number, len(logs))
            self._progress(Phase(f"{what}: {stored} records", octets, total))
        self._store_facts(coming)

    def _store_facts(self, coming: list[PartFound]) -> None:
        with ExitStack() as stack:
            files = [stack.enter_context(pa.memory_map(str(each.facts))) for each in coming]
            tables = [pa.ipc.open_file(file).read_all() for file in files]
            self._store.insert("facts", pa.concat_tables([FACTS.empty_table(), *tables]))
        for each in coming:
            each.facts.unlink()
        coming.clear()

    def _refused(self, found: PartFound, lines: int) -> Iterator[RejectedRow]:
        """Yield what of a part is no record; `lines` come before it in its log."""
        if found.refused:
            with closing(parquet.ParquetFile(found.rejected)) as file:
                for batch in file.iter_batches(REFUSED_ROWS):  # few, as each may be large
                    for file_, line, *others in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                        yield RejectedRow(file_, None if line is None else line + lines, *others)
        found.rejected.unlink()

    # Judging

    def judge(self, tally: RunTally) -> None:
        """Pair and judge the records, write verdicts/, and count."""
        self._store.define("aliases", plan.ALIASES)
        self._store.define("placed", plan.PLACED, "VIEW")
        if self._terms.counts_shapes:
            self._progress("counting")
            self._count(tally)
        query = plan.REST if self._terms.counts_shapes else plan.ALL
        self._progress("sorting")
        with self._fetched(query) as (wanted, total), Rows(self._result / "verdicts" / PART, VERDICTS) as rows:
            size = min(MAX_JUDGED, max(MIN_JUDGED, total // (TASKS_OF_PROCESS * self._processes.number)))
            task = partial(judge, folder=self._folder, terms=self._terms)
            judged = 0
            self._progress(_judging(judged, total))
            for batches, records, counts in self._processes.map(task, _some(wanted, size)):
                for batch in batches:
                    rows.write_batch(batch)
                tally.add(counts)
                judged += records
                self._progress(_judging(judged, total))

    def _count(self, tally: RunTally) -> None:
        """Judge one exchange of each shape, and count those of the shapes that break nothing."""
        define_entries(self._store, self._terms)
        self._store.define("shapes_here", plan.SHAPES_HERE, "VIEW")
        self._store.define("shapes", plan.SHAPES)
        task = partial(judge_examples, folder=self._folder, terms=self._terms)
        with self._fetched(plan.OF_SHAPES) as (wanted, _):
            told = self._processes.map(task, _some(wanted, MIN_JUDGED))
            sound = unpacked_counts(chain.from_iterable(told))
        shapes = sound.shapes(self._store.rows("SELECT shape, example FROM shapes"))
        count_sound(self._store, shapes, sound.counts, tally)

    @contextmanager
    def _fetched(self, query: str) -> Iterator[tuple[Iterator[Location], int]]:
        """Read records again.

        Args:
            query: finds their places, times and numbers.

        Yields:
            where the records are, as `IN_ORDER` has them; and how many they are.
        """
        self._store.define("wanted", query)
        self._store.create("fetched", FETCHED)
        parts = list[int]()
        for part, found in self._processes.map(partial(fetch, folder=self._folder), self._wanted()):
            parts.append(part)
            self._store.insert("fetched", found)
        ((total,),) = self._store.rows(plan.number_of("FROM fetched"))
        try:
            yield (Location(name, part_of(row), *at) for name, row, *at in self._store.rows(IN_ORDER)), total
        finally:
            for part in parts:
                records_file(self._folder, part).unlink()

    def _wanted(self) -> Iterator[PartLines]:
        rows = self._store.rows("SELECT row FROM wanted ORDER BY row")
        for part, group in groupby(rows, key=lambda row: part_of(row[0])):
            yield PartLines(part, self._parts[part], array("q", (line_of(number) for (number,) in group)))


def _reading(name: str, log: int, logs: int) -> str:
    return f"reading {name} ({log + 1} of {logs})"


def _judging(judged: int, total: int) -> Phase:
    return Phase(f"judging: {judged} of {total} records", judged, total)


def _some(stored: Iterator[Location], number: int) -> Iterator[list[Location]]:
    """Divide records into lists of about a number, those of a place in one."""
    found: list[Location] = []
    for _, group in groupby(stored, key=itemgetter(0)):
        found += group
        if len(found) >= number:
            yield found
            found = []
    if found:
        yield found


# What the tasks of Spark do, too


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
        sound: what each exchange adds to the counts, by the example in its row.
        tally: the counts.
    """
    store.create("sound", SOUND)
    store.insert_rows("sound", shapes, SOUND)
    store.define("counted", plan.COUNTED)
    add_counted(tally, sound, store.rows)
