"""The plan of a replay on Spark: from the facts of records to verdicts.

Spark moves, sorts and writes rows, of which those of facts have many records each; the queries of `plan` are run by
DuckDB inside of the tasks, each for a bucket of places. The records that must be judged are fetched again, packed, and
judged by Python. Only counts, and what is known of shapes, reach the driver.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import Broadcast, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it
from pyspark.sql.pandas.types import from_arrow_schema

from soapjms.replay import plan
from soapjms.replay.buckets import BUCKETED, BucketRows, buckets_of, by_bucket
from soapjms.replay.column_store import ColumnStore, WaitingRows, gathered, widened
from soapjms.replay.counts import SOUND, ShapeCounts, packed_counts, unpacked_counts
from soapjms.replay.facts import FACTS
from soapjms.replay.flat_records import FlatRecord, flat_of
from soapjms.replay.parquet import VERDICTS, to_batch, to_batches
from soapjms.replay.stored_facts import count_sound, define_entries
from soapjms.replay.summary import RunTally
from soapjms.replay.terms import Progress, ReplayTerms
from soapjms.replay.verdicts import judge_all

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")
Batches: TypeAlias = Iterator[pa.RecordBatch]
Task: TypeAlias = Callable[[Batches], Batches]
Records: TypeAlias = Iterator[tuple[str, FlatRecord]]
Fetch: TypeAlias = Callable[[DataFrame], DataFrame]
"""Returns rows of `PACKED` for those of `WANTED`."""

SHUFFLE: Final = "spark.sql.shuffle.partitions"
RESULTS_OF_TASKS: Final = 64
"""Number of tasks whose results are sent to the driver at a time."""
BUCKETS_OF_TASK: Final = 16
"""Number of buckets whose entries a task reads, if that leaves four tasks for each core."""
MAX_ANNOUNCED: Final = 200_000
"""Number of ids that a task remembers in order to see which answers may pass on."""
MAX_FEW_TASKS: Final = 512
"""Maximum number of tasks for steps with few rows: to count shapes, to fetch records, and to judge them."""

PLACED: Final = pa.schema([*FACTS, ("place", pa.string())])
KEYS: Final = pa.schema([FACTS.field("announces"), FACTS.field("key")])
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
OWN: Final = BucketRows("own", "SELECT *, key AS place FROM facts WHERE NOT by_alias", "place", PLACED)
"""Facts of records whose place is known."""
ANSWERS: Final = BucketRows("answers", "SELECT *, key AS place FROM facts WHERE by_alias", "place", PLACED)
"""Facts of records whose key may stand for another one, with the place that they have if it does not."""
ANNOUNCED: Final = BucketRows(
    "announced", "SELECT announces, key FROM facts WHERE announces IS NOT NULL", "announces", KEYS
)
"""The keys that others may stand for. Rows of a bucket that are in order of their kinds have them before `ANSWERS`."""
READ: Final = (OWN, ANSWERS, ANNOUNCED)
"""What is sent of the facts of a part of the logs."""
RESOLVED: Final = BucketRows(OWN.kind, "FROM placed WHERE by_alias", "place", PLACED)
"""Facts of answers, with their places."""
FOUND: Final = pa.schema(
    [("shape", pa.binary()), ("example", pa.string()), ("exchanges", pa.int64()), ("entries", pa.binary())]
)
"""A row of `plan.SHAPES_HERE`, of a bucket of places; or some of its entries, in Arrow's format."""
PACKED: Final = pa.schema([("place", pa.string()), ("time", pa.int64()), ("row", pa.int64()), ("packed", pa.binary())])
"""Records that were fetched again."""
WANTED: Final = pa.schema([PACKED.field(name) for name in ("place", "time", "row")])
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


def by_tasks(rows: DataFrame, task: Task, columns: pa.Schema) -> DataFrame:
    """Let tasks make rows of rows.

    Args:
        rows: the rows.
        task: makes batches of batches; it is pickled and sent to the workers.
        columns: the columns of the rows that are made.
    """
    return rows.mapInArrow(partial(run_task, task=task), from_arrow_schema(columns))


def run_task(given: Item, task: Callable[[Item], Result]) -> Result:
    """Run a task. Its worker looks for garbage after each task, but not among the objects that were there before it."""
    gc.freeze()
    return task(given)


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
        facts: the facts of the records, rows of `BUCKETED`, as those of `READ` are.
        terms: how to pair and judge.
        fetch: fetches records again.
        folder: the folder for verdicts/, or its URI.
        progress: called with each phase.
    """
    tally = RunTally()
    buckets = number_of_buckets(spark)
    others = by_bucket(facts.where(F.col("kind") != OWN.kind), buckets, "kind")
    resolved = by_tasks(others, partial(_resolve, buckets=buckets), BUCKETED)
    placed = facts.where(F.col("kind") == OWN.kind).union(resolved)
    progress("counting")
    entries = by_tasks(by_bucket(placed, buckets), partial(_entries, terms=terms), FOUND)
    with kept(entries) as found:
        sound = _count(spark, found, terms, fetch, tally)
        progress("judging")
        with _wanted(spark, found, plan.REST, "sound", sound) as rest:
            tally.add(judge_packed(in_order(fetch(rest)), terms, folder))
    return tally


def number_of_buckets(spark: SparkSession) -> int:
    """Return how many buckets of places there are, and of tasks for them."""
    return int(spark.conf.get(SHUFFLE) or 1)


def few_tasks(spark: SparkSession) -> int:
    """Return how many tasks count shapes, and judge."""
    return few_of(number_of_buckets(spark))


def few_of(tasks: int) -> int:
    """Return how many tasks there are in place of many, if each has little to do."""
    return min(MAX_FEW_TASKS, tasks)


def counting_tasks(buckets: int, cores: int) -> int:
    """Choose how many tasks read the entries of all buckets, once their shapes were counted."""
    return min(buckets, max(4 * cores, buckets // BUCKETS_OF_TASK))


# Places


def _resolve(batches: Batches, buckets: int) -> Batches:
    """Find the places of answers."""
    for number, bucket in buckets_of(batches):
        with closing(task_store()) as store:
            store.create("facts", FACTS)
            yield from to_batches(_resolved(number, bucket, store, buckets), BUCKETED)


def _resolved(
    number: int, bucket: Iterator[tuple[str, bytes]], store: ColumnStore, buckets: int
) -> Iterator[tuple[int, str, bytes]]:
    """Yield the answers of a bucket with their places. Those that were sent together go on unchanged if nobody
    announces one of their keys."""
    announced, waiting = set[str](), WaitingRows()
    for kind, octets in bucket:
        if kind == ANNOUNCED.kind:
            rows = widened(ANNOUNCED.received(octets), FACTS)
            if len(announced) < MAX_ANNOUNCED:
                announced.update(rows.column("announces").to_pylist())
        else:
            rows = ANSWERS.received(octets).select(FACTS.names)
            if len(announced) < MAX_ANNOUNCED and announced.isdisjoint(rows.column("key").to_pylist()):
                yield number, RESOLVED.kind, octets
                continue
        for some in waiting.add(rows):
            store.insert("facts", some)
    for some in waiting.rest():
        store.insert("facts", some)
    store.define("aliases", plan.ALIASES)
    store.define("placed", plan.PLACED, "VIEW")
    yield from RESOLVED.sent(store, buckets)


def _entries(batches: Batches, terms: ReplayTerms) -> Batches:
    for _, bucket in buckets_of(batches):
        with closing(task_store()) as store:
            store.create("placed", PLACED)
            store.insert_batches("placed", (OWN.received(octets) for _, octets in bucket))
            store.define("facts", "SELECT * EXCLUDE (place) FROM placed", "VIEW")
            define_entries(store, terms)
            yield from store.batches(plan.SHAPES_HERE, FOUND)
            for some in store.batches("FROM entries", ENTRIES):
                yield to_batch([(None, None, None, some.serialize().to_pybytes())], FOUND)


def task_store() -> ColumnStore:
    """Return a store for a task: in memory, and beyond that in the folder that Spark has for what does not fit."""
    return ColumnStore(Path(os.environ.get("SPARK_LOCAL_DIRS", gettempdir()).split(",")[0]), 1, in_memory=True)


# Counting


def _count(spark: SparkSession, found: DataFrame, terms: ReplayTerms, fetch: Fetch, tally: RunTally) -> pa.RecordBatch:
    """Judge one exchange of each shape, and count those of the shapes that break nothing, which are returned."""
    shapes_here = found.where("shape IS NOT NULL").repartition(few_tasks(spark), "shape")
    shapes_here.createOrReplaceTempView("shapes_here")
    shapes = [(bytes(shape), example) for shape, example, _ in spark.sql(plan.SHAPES).toLocalIterator()]
    with _wanted(spark, found, plan.OF_SHAPES, "shapes", to_batch(shapes, SOUND)) as wanted:
        known = by_tasks(in_order(fetch(wanted)), partial(_judge_examples, terms=terms), KNOWN)
        results = _results(known, few_tasks(spark))
        sound = unpacked_counts((example, bytes(packed)) for example, packed in results)
    of_sound = sound.shapes(shapes)
    with _broadcast(spark, (of_sound, sound.counts)) as told:
        counted = by_tasks(_with_entries(found), partial(_count_part, told=told), COUNTS)
        tally.add(_sum(_results(counted, _counting_tasks(spark))))
    return of_sound


@contextmanager
def _broadcast(spark: SparkSession, value: T) -> Iterator[Broadcast[T]]:
    """Tell all tasks a value."""
    told = spark.sparkContext.broadcast(value)
    try:
        yield told
    finally:
        told.destroy()


def _results(rows: DataFrame, tasks: int) -> Iterator[Any]:
    """Let all tasks compute rows at once, then yield them; `toLocalIterator` alone runs one task after another."""
    with kept(rows) as made:
        made.count()
        yield from _in_few_parts(made, tasks)


def _in_few_parts(made: DataFrame, tasks: int) -> Iterator[Any]:
    """Yield rows that tasks have made, those of many tasks at a time, as each time costs Spark 80 milliseconds."""
    return made.coalesce(-(-tasks // RESULTS_OF_TASKS)).toLocalIterator()


def _with_entries(found: DataFrame) -> DataFrame:
    """Select the entries. A task reads those of several buckets, as every task loads all shapes."""
    return found.where("entries IS NOT NULL").select("entries").coalesce(_counting_tasks(found.sparkSession))


def _counting_tasks(spark: SparkSession) -> int:
    return counting_tasks(number_of_buckets(spark), spark.sparkContext.defaultParallelism)


@contextmanager
def _wanted(
    spark: SparkSession, found: DataFrame, query: str, name: str, shapes: pa.RecordBatch
) -> Iterator[DataFrame]:
    """Find records by their entries.

    Args:
        spark: the session.
        found: rows of `FOUND`.
        query: finds them, in each part of the entries.
        name: the name of the table of shapes that it reads.
        shapes: its rows.
    """
    with _broadcast(spark, shapes) as told:
        task = partial(_find, query=query, name=name, shapes=told)
        yield by_tasks(_with_entries(found), task, WANTED)


def _find(batches: Batches, query: str, name: str, shapes: Broadcast[pa.RecordBatch]) -> Batches:
    with closing(task_store()) as store:
        store.lend(name, shapes.value)
        for entries in gathered(_entries_of(batches)):
            store.lend("entries", entries)
            yield from store.batches(query, WANTED)


def _count_part(batches: Batches, told: Broadcast[tuple[pa.RecordBatch, dict[str, ShapeCounts]]]) -> Batches:
    tally = RunTally()
    with closing(task_store()) as store:
        store.create("entries", ENTRIES)
        store.insert_batches("entries", (each.filter(each["records"].is_valid()) for each in _entries_of(batches)))
        count_sound(store, *told.value, tally)
    yield to_batch([(tally.to_json(),)], COUNTS)


def _entries_of(batches: Batches) -> Batches:
    for (octets,) in rows_of(batches):
        yield pa.ipc.read_record_batch(octets, ENTRIES)


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> DataFrame:
    """Make a frame of rows, with values in the order of the columns, whose size Spark knows."""
    return spark.createDataFrame(pa.Table.from_batches([to_batch(rows, schema)]))


def in_order(packed: DataFrame) -> DataFrame:
    """Put the records of a place into one task, one after another, in order of time."""
    tasks = few_tasks(packed.sparkSession)
    return packed.repartition(tasks, "place").sortWithinPartitions(*WANTED.names).select("place", "packed")


def _judge_examples(batches: Batches, terms: ReplayTerms) -> Batches:
    return to_batches(packed_counts(_records(batches), terms), KNOWN)


# Judging


def judge_packed(packed: DataFrame, terms: ReplayTerms, folder: str) -> RunTally:
    """Pair and judge records, each exchange by itself; write the verdicts as Parquet, and return the counts.

    Args:
        packed: the records, those of a place in one task, one after another in order of time.
        terms: how to pair and judge.
        folder: the folder for verdicts/, or its URI.
    """
    with kept(by_tasks(packed, partial(_judge_part, terms=terms), JUDGED)) as judged:
        write(judged.where("tally IS NULL").select("verdict.*"), f"{folder}/verdicts")
        told = judged.where("tally IS NOT NULL").select("tally")
        return _sum(_in_few_parts(told, few_tasks(packed.sparkSession)))


def _sum(told: Iterable[Any]) -> RunTally:
    """Add up the counts that tasks told."""
    tally = RunTally()
    for row in told:
        tally.add(RunTally.from_json(row.tally))
    return tally


def _judge_part(batches: Batches, terms: ReplayTerms) -> Batches:
    tally = RunTally()
    for found in to_batches(judge_all(_records(batches), terms, tally), VERDICTS):
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
