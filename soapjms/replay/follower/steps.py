"""One step of following logs: add new records to the held ones, judge the calls that are over, and hold the rest.

A place, see `soapjms.replay.plan`, is over when its newest record is older than the watermark by more than the time a
call is remembered: no record that may still come belongs to it. Of a place that is never over, because its key recurs
all the time, those records are judged that no later one can change. All are judged as those of a replay are, by the
same plan; tasks read the logs and judge, and this process does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nsmallest
from itertools import chain, count, filterfalse
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from soapjms.protocol.exchange import settled
from soapjms.protocol.record import Record, format_time, parse_time, to_octets
from soapjms.replay.column_store import ColumnStore
from soapjms.replay.contents import CONTENTS, records_of
from soapjms.replay.facts import FACTS, MAX_PYTHON_ROWS, GivenPart
from soapjms.replay.flat_records import EPOCH, Unpacker, microseconds
from soapjms.replay.follower.checkpoint import RESULTS, Checkpoint
from soapjms.replay.follower.held_records import HELD, MEMORY_LIMIT, ROWS
from soapjms.replay.follower.results import FollowResults, earlier, first_late, first_rejects
from soapjms.replay.follower.tail import Chunk, Plan, is_still_there, not_in_time, opened_chunk
from soapjms.replay.inputs import RejectedRow
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import TIMESTAMP
from soapjms.replay.stored_facts import StoredFacts, Tasks
from soapjms.replay.summary import LATE_SHOWN, MARKED, RunTally
from soapjms.replay.tasks import PartsFound, forget_reader, read_parts, taken_rows, write_records, write_rejected
from soapjms.replay.terms import LateRecord, ReplayTerms

LATE: Final = pa.schema([("file", pa.string()), ("line", pa.int64()), ("time", TIMESTAMP), ("raw", pa.string())])
MIN_CROWD: Final = 10_000
"""Number of records of one place, older than calls are remembered, at which it is searched for settled ones."""
LATE_NOTE: Final = (
    "lateRecord",
    "a record came too late: it is kept under late/ and was not judged; a longer --disorder allows for it",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for records that belong together.

    Attributes:
        disorder: how much later than its time a record may come.
        remember: how long a call is held after its last record, at least the window.
    """

    disorder: timedelta
    remember: timedelta


class _NewRecords(NamedTuple):
    """What was read: how many records came too late and what is no record, the first of each, and the newest time."""

    newest: datetime | None
    late: int
    first_late: tuple[LateRecord, ...]
    rejected: int
    rejects: tuple[RejectedRow, ...]


class _ChunkRead(NamedTuple):
    """What was read of a chunk, or None if it cannot be read; and why it, or some of it, was not."""

    found: PartsFound | None
    lost: RejectedRow | None


def _read_chunk(given: tuple[int, Chunk], folder: Path, terms: ReplayTerms, keeps: Path) -> _ChunkRead:
    """Read a chunk as the part of a number; see `read_parts`."""
    number, chunk = given
    with opened_chunk(chunk) as part:
        if isinstance(part, RejectedRow):
            return _ChunkRead(None, part)
        split, stream = part
        found = read_parts([GivenPart(number, split, stream)], folder, terms, keeps)
        return _ChunkRead(found, None if is_still_there(chunk, stream) else not_in_time(chunk))


class FollowSteps:
    """Carries out plans, one after the other.

    Args:
        tasks: do the work on the records.
        checkpoint: what is kept of earlier steps; it is open.
        terms: how to judge.
        patience: how long to wait.
    """

    def __init__(self, tasks: Tasks, checkpoint: Checkpoint, terms: ReplayTerms, patience: Patience) -> None:
        self._tasks = tasks
        self._checkpoint, self._held, self._folder = checkpoint, checkpoint.held, checkpoint.temporary
        self._store = ColumnStore(self._folder, in_memory=True, memory=MEMORY_LIMIT)
        self._terms = terms
        self._patience = patience
        self._unpack = Unpacker()
        self._crowds: dict[str, int] = {}  # the number of records from which on a place is looked at again

    def close(self) -> None:
        """Forget what is kept in memory."""
        self._store.close()
        forget_reader()

    def carry_out(self, plans: Iterable[Plan]) -> None:
        """Carry out plans in their order; those that were finished before an interruption are skipped."""
        for plan in sorted(plans, key=lambda each: each.number):
            before = self._checkpoint.done()
            if plan.number > before.number:
                self._do(plan, before)

    def _do(self, plan: Plan, before: FollowResults) -> None:
        folder = self._checkpoint.begin(plan.number)
        new = self._read(plan.chunks, before, folder)
        unread = None if plan.unread is None else parse_time(plan.unread) if plan.unread else EPOCH
        after = before.after(plan.number, new.newest, unread, self._patience.disorder)
        over = self._over(after.watermark)
        done = replace(self._judged(over, plan.chunks, new, after, folder), held=self._held.number() - over.num_rows)
        self._checkpoint.commit(folder, over, done)
        self._checkpoint.merge()

    def as_of_now(self, rests: Iterable[Chunk], result: Path) -> FollowResults:
        """Write the results of held records and rests as if no more records followed.

        Args:
            rests: the parts of the logs behind their whole lines.
            result: a folder, which gets verdicts/, rejected/ and late/.

        Returns:
            the state after that, with all counts; it is not kept.
        """
        done, chunks = self._checkpoint.done(), tuple(rests)
        new = self._read(chunks, done, result)
        after = self._judged(None, chunks, new, done, result)
        self._held.forget_new()
        return after

    # Reading

    def _read(self, chunks: tuple[Chunk, ...], before: FollowResults, folder: Path) -> _NewRecords:
        """Add the records of chunks that are in time; write late/ and rejected/."""
        for name in RESULTS:
            (folder / name).mkdir()
        free = filterfalse(self._held.parts().__contains__, count())
        read = partial(_read_chunk, folder=self._folder, terms=self._terms, keeps=self._held.large)
        told = [*self._tasks.map(read, zip(free, chunks, strict=False))]
        found = [(chunk.name, each.found) for chunk, each in zip(chunks, told, strict=True) if each.found is not None]
        lost = [each.lost for each in told if each.lost is not None]
        refused_lines = chain.from_iterable(each.take_refused() for _, each in found)
        rejected, rejects = write_rejected(chain(lost, refused_lines), folder / "rejected")
        facts = taken_rows((each.facts for _, each in found), FACTS)
        contents = pa.concat_tables([HELD.empty_table(), *(_contents(each, name) for name, each in found)])
        times, now = facts.column("time"), microseconds(datetime.now(UTC))
        newest = pc.max(times.filter(pc.less_equal(times, now))).as_py()  # later times come from wrong clocks
        is_late = pc.less(times, -(1 << 63) if before.watermark is None else microseconds(before.watermark))
        late = facts.column("row").filter(is_late)
        first = self._write_late(contents.filter(pc.is_in(contents.column("row"), late)), folder)
        self._held.add(facts.filter(pc.invert(is_late)) if len(late) else facts, contents)
        time = None if newest is None else EPOCH + timedelta(microseconds=newest)
        return _NewRecords(time, len(late), first, rejected, tuple(rejects))

    def _write_late(self, records: pa.Table, folder: Path) -> tuple[LateRecord, ...]:
        """Write late/; return the first of its records."""
        first: list[LateRecord] = []
        with Rows(folder / "late" / PART, LATE) as rows:
            for batch in records.to_batches(MAX_PYTHON_ROWS):
                where = zip(batch.column("log").to_pylist(), batch.column("line").to_pylist(), strict=True)
                for (file, line), flat in zip(where, records_of(batch, self._held.large), strict=True):
                    record = self._unpack.record(flat)
                    rows.write((file, line, record.time, to_octets(record).decode()))
                    first.append(LateRecord(file, line, format_time(record.time)))
                first = nsmallest(LATE_SHOWN, first)
        return tuple(first)

    # Judging

    def _over(self, watermark: datetime | None) -> pa.Table:
        """Return the numbers of the records, rows of `ROWS`, that no record of the watermark or later can change.

        They are those of the places that are over. Of a place that never is, as its key recurs all the time, those
        that can be judged without the others are too, once it has thousands that are old enough.
        """
        limit = watermark and earlier(watermark, self._patience.remember)
        found = [self._held.over(limit)]
        if watermark is None or limit is None:
            return found[0]
        before, self._crowds = self._crowds, {}
        for place, rows in self._held.crowded(limit, watermark, MIN_CROWD):
            self._crowds[place] = before.get(place, 0)
            if rows.num_rows >= self._crowds[place]:
                found.append(self._settled(rows, limit))
                self._crowds[place] = 2 * (rows.num_rows - found[-1].num_rows)
        return pa.concat_tables(found)

    def _settled(self, rows: pa.Table, limit: datetime) -> pa.Table:
        """Return the numbers of those records of a place that can be judged without the others; see `settled`."""
        found: list[tuple[datetime, int, int, Record]] = []
        for batch in self._held.contents(rows):
            numbers = zip(batch.column("position").to_pylist(), batch.column("row").to_pylist(), strict=True)
            records = map(self._unpack.record, records_of(batch, self._held.large))
            found += ((record.time, *where, record) for where, record in zip(numbers, records, strict=True))
        found.sort(key=itemgetter(0, 1))
        over = settled((record for *_, record in found), self._terms.window, limit)
        return pa.table([pa.array((found[each][2] for each in over), pa.int64())], ROWS)

    def _judged(
        self, rows: pa.Table | None, chunks: tuple[Chunk, ...], new: _NewRecords, before: FollowResults, folder: Path
    ) -> FollowResults:
        """Judge the records of some numbers, or all, and write verdicts/; return the state with all counts."""
        tally = RunTally()
        self._store.create("facts", FACTS)
        self._store.insert_batches("facts", self._held.facts(rows))
        facts = StoredFacts(self._store, self._terms, self._tasks, self._folder, self._fetch)
        facts.judge(folder / "verdicts", tally)
        tally.count("rejected", by=new.rejected)
        for _ in filter(None, (chunk.marked for chunk in chunks)):
            tally.note(*MARKED)
        if new.late:
            code, text = LATE_NOTE
            tally.count("note", code, by=new.late)
            tally.notes[code] = text
        tally.add(before.tally)
        return replace(
            before,
            late=before.late + new.late,
            tally=tally,
            rejects=first_rejects(before.rejects, new.rejects),
            first_late=first_late(before.first_late, new.first_late),
        )

    def _fetch(self, rows: Iterator[int]) -> Iterator[pa.RecordBatch]:
        """Write held records into files; see `stored_facts.FetchIntoFiles`."""
        wanted = pa.table([pa.array(rows, pa.int64())], ROWS)
        for number, batch in enumerate(self._held.contents(wanted)):
            where = batch.column("row"), batch.column("position")
            yield write_records(self._folder, number, records_of(batch, self._held.large), *where)


def _contents(found: PartsFound, name: str) -> pa.Table:
    """Return the contents of a part of a log, rows of `HELD`."""
    rows = taken_rows([found.contents], CONTENTS)
    return rows.append_column("log", pa.repeat(pa.scalar(name, pa.string()), rows.num_rows))
