"""Judging records whose facts are in a store: the plan of `plan.py`, carried out with tasks.

Without Spark the facts are those of all records of a run; when logs are followed, those of the calls that are over, and
for a report of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from soapjms.progress import Phase
from soapjms.replay import plan
from soapjms.replay.column_store import ColumnStore
from soapjms.replay.counts import ShapeCounts, add_counted, unpacked_counts
from soapjms.replay.flat_records import MICROSECOND
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import VERDICTS
from soapjms.replay.summary import RunTally
from soapjms.replay.tasks import FETCHED, Location, judge, judge_examples, records_file
from soapjms.replay.terms import Progress, ReplayTerms

Item = TypeVar("Item")
Result = TypeVar("Result")
FetchIntoFiles: TypeAlias = Callable[[Iterator[int]], Iterable[pa.RecordBatch]]
"""Writes records, whose numbers it is given in order, into files, and returns where they are, as rows of `FETCHED`."""

TASKS_OF_PROCESS: Final = 4
MIN_JUDGED, MAX_JUDGED = 500, 20_000
"""Number of tasks for each process that judge, if there is enough work; records that one of them judges."""
MAX_JUDGED_OCTETS: Final = 8 << 20
"""Size of these records: a verdict quotes ids, so that what breaks several rules may become several times as large."""
IN_ORDER: Final = """
SELECT place, file, start, octets FROM wanted JOIN fetched USING (row)
ORDER BY min(time) OVER (PARTITION BY place), place, time, position
"""
"""The records of a place together, in order of time; places too, as samples are the earliest findings so far: of later
ones none is made."""


class Tasks(Protocol):
    """What does tasks, such as `Processes`.

    Attributes:
        number: how many tasks are done at a time.
    """

    number: int

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Do a task for each item, and yield the results in the order of the items."""
        ...  # pragma: no cover  # a protocol


class StoredFacts:
    """The facts of records that are judged together.

    Args:
        store: has them in its table `facts`.
        terms: how to judge.
        tasks: does the work on the records.
        folder: for files in between, which all tasks see.
        fetch: writes records into such files.
        progress: called with each phase.
    """

    def __init__(
        self,
        store: ColumnStore,
        terms: ReplayTerms,
        tasks: Tasks,
        folder: Path,
        fetch: FetchIntoFiles,
        progress: Progress = lambda phase: None,
    ) -> None:
        self._store, self._terms, self._tasks = store, terms, tasks
        self._folder, self._fetch, self._progress = folder, fetch, progress

    def judge(self, verdicts: Path, tally: RunTally) -> None:
        """Pair and judge the records, write the verdicts, and count.

        Args:
            verdicts: the folder for them.
            tally: the counts.
        """
        self._store.define("aliases", plan.ALIASES)
        self._store.define("placed", plan.PLACED, "VIEW")
        if self._terms.counts_shapes:
            self._progress("counting")
            self._count(tally)
        query = plan.REST if self._terms.counts_shapes else plan.ALL
        self._progress("sorting")
        with self._fetched(query) as (wanted, total), Rows(verdicts / PART, VERDICTS) as rows:
            size = min(MAX_JUDGED, max(MIN_JUDGED, total // (TASKS_OF_PROCESS * self._tasks.number)))
            task = partial(judge, folder=self._folder, terms=self._terms)
            judged = 0
            self._progress(_judging(judged, total))
            for batches, records, counts in self._tasks.map(task, _some(wanted, size)):
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
            told = self._tasks.map(task, _some(wanted, MIN_JUDGED))
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
        numbers = (number for (number,) in self._store.rows("SELECT row FROM wanted ORDER BY row"))
        self._store.insert_batches("fetched", self._fetch(numbers))
        ((total,),) = self._store.rows(plan.number_of("FROM fetched"))
        try:
            yield (Location(*row) for row in self._store.rows(IN_ORDER)), total
        finally:
            for (file,) in self._store.rows("SELECT DISTINCT file FROM fetched"):
                records_file(self._folder, file).unlink()


def _judging(judged: int, total: int) -> Phase:
    return Phase(f"judging: {judged} of {total} records", judged, total)


def _some(stored: Iterator[Location], number: int) -> Iterator[list[Location]]:
    """Divide records into lists of about a number, or fewer if they are large; those of a place are in one."""
    found: list[Location] = []
    octets = 0
    for _, group in groupby(stored, key=itemgetter(0)):
        for each in group:
            found.append(each)
            octets += each.octets
        if len(found) >= number or octets >= MAX_JUDGED_OCTETS:
            yield found
            found, octets = [], 0
    if found:
        yield found


# What the tasks of Spark do, too


def define_entries(store: ColumnStore, terms: ReplayTerms) -> None:
    """Make `entries` of the records in `facts` and `placed`; see `plan`."""
    for name, query in plan.within_places(terms.window // MICROSECOND).items():
        store.define(name, query)


def count_sound(store: ColumnStore, shapes: pa.RecordBatch, sound: Mapping[str, ShapeCounts], tally: RunTally) -> None:
    """Count the exchanges of `entries` whose shapes break nothing.

    Args:
        store: has `entries`; gets `sound` and `counted`.
        shapes: the rows of `sound`.
        sound: what each exchange adds to the counts, by the example in its row.
        tally: the counts.
    """
    store.lend("sound", shapes)
    store.define("counted", plan.COUNTED)
    add_counted(tally, sound, store.rows)
