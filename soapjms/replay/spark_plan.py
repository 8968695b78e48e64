"""The plan of a replay on Spark: from the facts of records to verdicts.

Spark moves, sorts and writes rows. What is within places is found by DuckDB inside of the tasks, as `plan` says; the
records that must be judged are fetched again, packed, and judged by Python. Only counts, and what is known of shapes,
reach the driver.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import Broadcast, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from soapjms.replay import plan
from soapjms.replay.column_store import ColumnStore
from soapjms.replay.counts import ShapeCounts, packed_counts, unpacked_counts
from soapjms.replay.facts import PACKED as PACKED_FACTS
from soapjms.replay.facts import UNPACK
from soapjms.replay.flat_records import FlatRecord, flat_of
from soapjms.replay.local import SOUND, count_sound, define_entries
from soapjms.replay.parquet import VERDICTS, to_batch, to_batches
from soapjms.replay.summary import RunTally
from soapjms.replay.terms import Progress, ReplayTerms
from soapjms.replay.verdicts import judge_all

Batches: TypeAlias = Iterator[pa.RecordBatch]
Records: TypeAlias = Iterator[tuple[str, FlatRecord]]
Fetch: TypeAlias = Callable[[DataFrame], DataFrame]
"""Returns rows of `PACKED` for those of `WANTED`."""

SHUFFLE: Final = "spark.sql.shuffle.partitions"
MAX_JUDGING_TASKS: Final = 512
"""Maximum number of tasks that judge; each writes a file of verdicts."""

MOVED: Final = pa.schema([*PACKED_FACTS, ("place", pa.string())])
ENTRIES: Final = pa.schema(
    [
        ("place", pa.string()),
        ("time", pa.int64()),
        ("row", pa.int64()),
        ("shape", pa.binary()),
        ("records", pa.int64()),
        ("asked", pa.int64()),
        ("answered", pa.int64()),
        ("kind", pa.string()),
        ("name", pa.string()),
    ]
)
PACKED: Final = pa.schema([("place", pa.string()), ("time", pa.int64()), ("row", pa.int64()), ("packed", pa.binary())])
"""Records that were fetched again."""
WANTED: Final = ("place", "time", "row")
COUNTS: Final = pa.schema([("tally", pa.string())])
JUDGED: Final = pa.schema([("verdict", pa.struct(list(VERDICTS))), ("tally", pa.string())])
"""A verdict, or the counts of a task."""
KNOWN: Final = pa.schema([("example", pa.string()), ("counts", pa.binary())])


def write(rows: DataFrame, folder: str) -> None:
    """Write rows as Parquet, at least one file, without the empty file that Hadoop writes as a sign of success.

    Args:
        rows: the rows.
        folder: the folder, or its URI; in one of this machine no checksums are left.
    """
    rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(folder)
    for left in Path(folder).glob(".*.crc"):
        left.unlink()


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows on the workers' disks, so that they are computed once though they are read twice."""
    stored = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield stored
    finally:
        stored.unpersist()


def judge(
    spark: SparkSession, facts: DataFrame, terms: ReplayTerms, fetch: Fetch, folder: str, progress: Progress
) -> RunTally:
    """Pair and judge records, write the verdicts as Parquet, and return the counts.

    Args:
        spark: the session.
        facts: the packed facts of the records.
        terms: how to pair and judge.
        fetch: fetches records again.
        folder: the folder for verdicts/, or its URI.
        progress: called with each phase.
    """
    tally = RunTally()
    facts.createOrReplaceTempView("facts")
    with ExitStack() as stack:
        aliases = stack.enter_context(kept(spark.sql(plan.ALIASES)))
        aliases.count()  # so that Spark knows whether they are few, and sends them to all tasks then
        aliases.createOrReplaceTempView("aliases")
        placed = spark.sql(plan.PLACED)
        if terms.counts_shapes:
            progress("counting")
            task = partial(_entries, terms=terms)
            moved = placed.select(MOVED.names).repartition("place")
            entries = stack.enter_context(kept(moved.mapInArrow(task, from_arrow_schema(ENTRIES))))
            entries.createOrReplaceTempView("entries")
            _count(spark, entries, terms, fetch, tally)
            wanted = spark.sql(plan.REST)
        else:
            wanted = placed.select(*WANTED)
        progress("judging")
        tally.add(judge_packed(in_order(fetch(wanted)), terms, folder))
    return tally


# Counting


def _count(spark: SparkSession, entries: DataFrame, terms: ReplayTerms, fetch: Fetch, tally: RunTally) -> None:
    """Judge one exchange of each shape, and count those of the shapes that break nothing."""
    shapes = [(bytes(shape), example) for shape, example, _ in spark.sql(plan.SHAPES).toLocalIterator()]
    frame(spark, shapes, SOUND).createOrReplaceTempView("shapes")
    examples = in_order(fetch(spark.sql(plan.OF_SHAPES)))
    known = examples.mapInArrow(partial(_judge_examples, terms=terms), from_arrow_schema(KNOWN))
    sound = unpacked_counts((example, bytes(packed)) for example, packed in known.toLocalIterator())
    shapes = [row for row in shapes if row[1] in sound]
    frame(spark, shapes, SOUND).createOrReplaceTempView("sound")
    told = spark.sparkContext.broadcast((shapes, sound))
    counted = entries.where("records IS NOT NULL").mapInArrow(
        partial(_count_part, told=told), from_arrow_schema(COUNTS)
    )
    tally.add(_sum(counted))
    told.unpersist()


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> DataFrame:
    """Make a frame of rows, with values in the order of the columns, whose size Spark knows."""
    return spark.createDataFrame(pa.Table.from_batches([to_batch(rows, schema)]))


def _count_part(batches: Batches, told: Broadcast[tuple[list[tuple[Any, ...]], dict[str, ShapeCounts]]]) -> Batches:
    tally = RunTally()
    with closing(task_store()) as store:
        store.create("entries", ENTRIES)
        for batch in batches:
            store.insert("entries", batch)
        count_sound(store, *told.value, tally)
    yield to_batch([(tally.to_json(),)], COUNTS)


def in_order(packed: DataFrame) -> DataFrame:
    """Put the records of a place into one task, one after another, in order of time."""
    tasks = min(MAX_JUDGING_TASKS, int(packed.sparkSession.conf.get(SHUFFLE) or 1))
    return packed.repartition(tasks, "place").sortWithinPartitions(*WANTED).select("place", "packed")


def _entries(batches: Batches, terms: ReplayTerms) -> Batches:
    with closing(task_store()) as store:
        store.create("moved", MOVED)
        for batch in batches:
            store.insert("moved", batch)
        store.define("placed", UNPACK)
        store.define("facts", "SELECT * EXCLUDE (place) FROM placed", "VIEW")
        define_entries(store, terms)
        yield from store.batches("FROM entries", ENTRIES)


def task_store() -> ColumnStore:
    """Return a store for a task: in memory, and beyond that in the folder that Spark has for what does not fit."""
    return ColumnStore(Path(os.environ.get("SPARK_LOCAL_DIRS", gettempdir()).split(",")[0]), 1, in_memory=True)


def _judge_examples(batches: Batches, terms: ReplayTerms) -> Batches:
    return to_batches(packed_counts(_records(batches), terms), KNOWN)


# Judging


def judge_packed(
    packed: DataFrame, terms: ReplayTerms, folder: str, records: Callable[[Batches], Records] | None = None
) -> RunTally:
    """Pair and judge records, each exchange by itself; write the verdicts as Parquet, and return the counts.

    Args:
        packed: the records, those of a place in one task, one after another in order of time.
        terms: how to pair and judge.
        folder: the folder for verdicts/, or its URI.
        records: reads the records with their places; by default from two columns, the second as `pack` packs it.
    """
    task = partial(_judge_part, terms=terms, records=records or _records)
    with kept(packed.mapInArrow(task, from_arrow_schema(JUDGED))) as judged:
        write(judged.where("tally IS NULL").select("verdict.*"), f"{folder}/verdicts")
        return _sum(judged.where("tally IS NOT NULL"))


def _sum(told: DataFrame) -> RunTally:
    """Add up the counts that tasks told."""
    tally = RunTally()
    for row in told.select("tally").toLocalIterator():
        tally.add(RunTally.from_json(row.tally))
    return tally


def _judge_part(batches: Batches, terms: ReplayTerms, records: Callable[[Batches], Records]) -> Batches:
    tally = RunTally()
    for found in to_batches(judge_all(records(batches), terms, tally), VERDICTS):
        verdicts = pa.StructArray.from_arrays(found.columns, fields=list(VERDICTS))
        yield pa.record_batch([verdicts, pa.nulls(len(verdicts), pa.string())], JUDGED)
    if tally.counts:
        yield pa.RecordBatch.from_pylist([{"tally": tally.to_json()}], JUDGED)


def _records(batches: Batches) -> Records:
    for place, packed in rows_of(batches):
        yield place, flat_of(packed)


def rows_of(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of batches as values."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
