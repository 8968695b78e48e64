"""One step of following logs, on Spark: add new records to the held ones, judge finished keys, and hold the rest.

A key, see `soapjms.protocol.exchange.keys`, is finished when its newest record is older than the watermark by more
than the time a call is remembered: no record that may still come belongs to it. It is judged by the same generator as
in a replay. The times alone decide which keys are finished, so held records need no Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it

from soapjms.protocol.exchange import keys
from soapjms.protocol.record import format_time, from_json, parse_time, to_octets
from soapjms.replay.flat_records import EPOCH, FlatRecord, flattened
from soapjms.replay.follower.checkpoint import HELD, Checkpoint, FollowResults, earlier, first_late, first_rejects
from soapjms.replay.follower.tail import Chunk, Plan, read_chunk
from soapjms.replay.inputs import RejectedRow
from soapjms.replay.output import PART, Rows
from soapjms.replay.parquet import REJECTED, TIMESTAMP, to_batches
from soapjms.replay.spark import first_rejected
from soapjms.replay.spark_plan import Batches, by_tasks, judge_packed, kept, write
from soapjms.replay.summary import LATE_SHOWN, MARKED, RunTally
from soapjms.replay.terms import LateRecord, ReplayTerms

KEPT: Final = pa.schema(
    [
        ("key", pa.string()),
        ("by_alias", pa.bool_()),
        ("announces", pa.string()),
        ("time", TIMESTAMP),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("packed", pa.binary()),
    ]
)
"""A held record: its keys, its time, its position, and its line, compressed because Java copies it."""
FOUND: Final = pa.schema([*KEPT, ("raw", pa.string()), ("reason", pa.string())])
"""A record, or a text that could not be read, with the reason."""
LATE: Final = pa.schema([("file", pa.string()), ("line", pa.int64()), ("time", TIMESTAMP), ("raw", pa.string())])
CODEC: Final = "zstd"
COMPRESSION_LEVEL: Final = 1
SIZE_OCTETS: Final = 8
"""Number of octets before compressed data that hold its original size."""
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


class _Counts(NamedTuple):
    """Counts of a step's records, and their newest time."""

    newest: datetime | None
    late: int
    rejected: int


class FollowSteps:
    """Carries out plans, one after the other."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint, terms: ReplayTerms, patience: Patience) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._terms = terms
        self._patience = patience

    def take(self, plans: DataFrame, batch: int) -> None:
        """Carry out the plans of a micro-batch; plans that were finished before an interruption are skipped."""
        for plan in sorted((Plan.from_json(row.value) for row in plans.collect()), key=lambda each: each.number):
            before = self._checkpoint.done()
            if plan.number > before.number:
                self._do(plan, before)

    def _do(self, plan: Plan, before: FollowResults) -> None:
        folder = self._checkpoint.begin(plan.number)
        with kept(self._found(plan.chunks)) as found:
            counts = self._count(found, before)
            unread = None if plan.unread is None else parse_time(plan.unread) if plan.unread else EPOCH
            after = before.after(plan.number, counts.newest, unread, self._patience.disorder)
            rejects, late = _write_left_out(found, before, counts, folder)
            records = self._with_held(_timely(found, before), before.number)
            with kept(_with_newest(_placed(records))) as placed:
                over = self._over(after)
                write(placed.where(~over).select(KEPT.names), str(folder / HELD))
                tally = self._judge(placed.where(over), folder)
        tally.add(before.tally)
        _note(tally, counts, plan.chunks)
        held = sum(parquet.read_metadata(each).num_rows for each in (folder / HELD).glob("*.parquet"))
        done = replace(after, late=before.late + counts.late, held=held, tally=tally, rejects=rejects, first_late=late)
        self._checkpoint.commit(folder, done)
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
        with kept(self._found(chunks)) as found:
            counts = self._count(found, done)
            rejects, late = _write_left_out(found, done, counts, result)
            tally = self._judge(_placed(self._with_held(_timely(found, done), done.number)), result)
        tally.add(done.tally)
        _note(tally, counts, chunks)
        return replace(done, late=done.late + counts.late, tally=tally, rejects=rejects, first_late=late)

    def _found(self, chunks: tuple[Chunk, ...]) -> DataFrame:
        """Read chunks, each in a separate task."""
        read = partial(_read, chunks=chunks)
        return by_tasks(self._spark.range(0, len(chunks), 1, max(1, len(chunks))), read, FOUND)

    def _count(self, found: DataFrame, before: FollowResults) -> _Counts:
        """Count records, and find the newest time; times in the future come from wrong clocks, and are ignored."""
        now = F.lit(datetime.now(UTC))
        row = found.agg(
            F.max(F.when(F.col("reason").isNull() & (F.col("time") <= now), F.unix_micros("time"))).alias("newest"),
            F.count(F.when(F.col("reason").isNull() & ~_in_time(before), True)).alias("late"),
            F.count("reason").alias("rejected"),
        ).first()
        assert row is not None
        newest = None if row.newest is None else EPOCH + timedelta(microseconds=row.newest)
        return _Counts(newest, row.late, row.rejected)

    def _with_held(self, new: DataFrame, number: int) -> DataFrame:
        held = self._checkpoint.held(number)
        return new if held is None else new.union(self._spark.read.parquet(str(held)).select(KEPT.names))

    def _over(self, after: FollowResults) -> Column:
        """Return the condition that the key of a record is finished."""
        if after.watermark is None:
            return F.lit(False)
        return F.col("newest") < F.lit(earlier(after.watermark, self._patience.remember))

    def _judge(self, placed: DataFrame, folder: Path) -> RunTally:
        # The order of a replay: files in the order of their paths, a folder's name before longer names.
        path = F.translate("file", "/", "\1")
        together = (
            placed.repartition("place").sortWithinPartitions("place", "time", path, "line").select("place", "packed")
        )
        return judge_packed(together, self._terms, str(folder), _records)


def _write_left_out(
    found: DataFrame, before: FollowResults, counts: _Counts, folder: Path
) -> tuple[tuple[RejectedRow, ...], tuple[LateRecord, ...]]:
    """Write rejected and late records; return the first of each, including those of earlier steps."""
    for rows, number, schema, name in (
        (_refused(found), counts.rejected, REJECTED, "rejected"),
        (_late(found, before), counts.late, LATE, "late"),
    ):
        if number:
            write(rows, str(folder / name))
        else:  # nearly always the case, and not worth a Spark job
            (folder / name).mkdir()
            with Rows(folder / name / PART, schema):
                pass
    rejects = tuple(first_rejected(_refused(found))) if counts.rejected else ()
    late = _first_late(_late(found, before)) if counts.late else ()
    return first_rejects(before.rejects, rejects), first_late(before.first_late, late)


def _first_late(late: DataFrame) -> tuple[LateRecord, ...]:
    first = late.orderBy("file", "line").limit(LATE_SHOWN).select("file", "line", F.unix_micros("time").alias("time"))
    return tuple(
        LateRecord(row.file, row.line, format_time(EPOCH + timedelta(microseconds=row.time))) for row in first.collect()
    )


def _note(tally: RunTally, counts: _Counts, chunks: tuple[Chunk, ...]) -> None:
    tally.count("rejected", by=counts.rejected)
    for _ in filter(None, (chunk.marked for chunk in chunks)):
        tally.note(*MARKED)
    if counts.late:
        code, text = LATE_NOTE
        tally.count("note", code, by=counts.late)
        tally.notes[code] = text


# From DataFrame to DataFrame


def _in_time(before: FollowResults) -> Column:
    return F.lit(True) if before.watermark is None else F.col("time") >= F.lit(before.watermark)


def _refused(found: DataFrame) -> DataFrame:
    return found.where("reason IS NOT NULL").select(REJECTED.names)


def _late(found: DataFrame, before: FollowResults) -> DataFrame:
    late = found.where(F.col("reason").isNull() & ~_in_time(before)).select("file", "line", "time", "packed")
    return by_tasks(late, _with_lines, LATE)


def _timely(found: DataFrame, before: FollowResults) -> DataFrame:
    return found.where(F.col("reason").isNull() & _in_time(before)).select(KEPT.names)


def _placed(records: DataFrame) -> DataFrame:
    """Give each record its place: the key that it shares with its copies and its partner, as far as those are here."""
    aliases = (
        records.where("announces IS NOT NULL")
        .groupBy(F.col("announces").alias("alias"))
        .agg(F.min("key").alias("request_key"))
    )
    answers = records.where("by_alias").join(aliases, F.col("key") == F.col("alias"), "left")
    return (
        records.where("NOT by_alias")
        .withColumn("place", F.col("key"))
        .union(answers.withColumn("place", F.coalesce("request_key", "key")).select(*KEPT.names, "place"))
    )


def _with_newest(placed: DataFrame) -> DataFrame:
    """Give each record the time of the newest one at its place."""
    return placed.withColumn("newest", F.max("time").over(Window.partitionBy("place")))


# Inside the tasks


def compressed(octets: bytes) -> bytes:
    """Compress octets, with their size in front."""
    packed: bytes = pa.Codec(CODEC, COMPRESSION_LEVEL).compress(octets, asbytes=True)
    return len(octets).to_bytes(SIZE_OCTETS, "little") + packed


def inflated(octets: bytes) -> bytes:
    """Return the octets that `compressed` was given."""
    size = int.from_bytes(octets[:SIZE_OCTETS], "little")
    found: bytes = pa.Codec(CODEC).decompress(memoryview(octets)[SIZE_OCTETS:], size, asbytes=True)
    return found


def _read(batches: Batches, chunks: tuple[Chunk, ...]) -> Batches:
    numbers = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return to_batches(chain.from_iterable(_rows(chunks[number]) for number in numbers), FOUND)


def _rows(chunk: Chunk) -> Iterator[tuple[Any, ...]]:
    for found in read_chunk(chunk):
        if isinstance(found, RejectedRow):
            yield None, None, None, None, found.file, found.line, None, found.raw, found.reason
        else:
            key, record = keys(found.record), found.record
            packed = compressed(to_octets(record))
            yield key.key, key.by_alias, key.announces, record.time, chunk.name, found.line, packed, None, None


def _records(batches: Batches) -> Iterator[tuple[str, FlatRecord]]:
    for batch in batches:
        for place, packed in zip(*batch.columns, strict=True):
            yield place.as_py(), flattened(from_json(inflated(packed.as_py()).decode()))


def _with_lines(batches: Batches) -> Batches:
    return to_batches(_lines(batches), LATE)


def _lines(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        for *where, packed in zip(*batch.columns, strict=True):
            yield *(each.as_py() for each in where), inflated(packed.as_py()).decode()
