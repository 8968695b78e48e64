"""The engine on Spark: plain functions from DataFrame to DataFrame.

Spark only reads in parts, joins, sorts and writes. Only counts, a few samples and the list of files reach the driver,
so a log may be larger than any machine. Records are distributed by correlation key, never by queue. They travel packed
in bundles, which only Python unpacks.

Persisting, judging in tasks, writing and counting are the same for a replay and for a run that follows logs. Finding
new lines and finished calls is in `follower/`.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark import StorageLevel, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it
from pyspark.sql.pandas.types import from_arrow_schema

from soapjms.replay import hadoop
from soapjms.replay.bundles import Bundler, FlatRecord, Unpacker, flat_of, in_order, pack_aliases, rekeyed, used_aliases
from soapjms.replay.errors import SparkFailedError
from soapjms.replay.inputs import LogFile, RejectedRow, Split, count_lines, splits, whole
from soapjms.replay.output import PART, Rows, write_text
from soapjms.replay.parquet import REJECTED, VERDICTS, to_batch
from soapjms.replay.records import PackedRecord, read_packed
from soapjms.replay.shapes import ShapeMemory
from soapjms.replay.spark_session import session, was_interrupted, watched
from soapjms.replay.summary import REJECTS_SHOWN, RunTally, note_others
from soapjms.replay.terms import SHOWN, Job, Progress, ReplayTerms, nothing_to_read, place
from soapjms.replay.verdicts import judge_all

Batches: TypeAlias = Iterator[pa.RecordBatch]
Records: TypeAlias = Callable[[Batches], Iterator[tuple[str, FlatRecord]]]

MAX_ERROR_CHARACTERS: Final = 4000
JAVA_ENDED: Final = (
    "Spark's Java process ended unexpectedly; very large messages need more memory than its default: "
    "--conf spark.driver.memory=4g gives it 4 GiB"
)
BATCH_ROWS: Final = 1000
BATCH_OCTETS: Final = 16 << 20

JUDGED: Final = pa.schema([("part", pa.int32())])
"""The number of a task that judged something; the names of its files contain it."""


@contextmanager
def failing_as_ours() -> Iterator[None]:
    """Turn Spark's exceptions into ours.

    Raises:
        SparkFailedError: Spark failed, or its Java process ended.
        KeyboardInterrupt: Spark failed because of Ctrl-C.
    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        if isinstance(error, Py4JNetworkError | ConnectionError):
            raise SparkFailedError(JAVA_ENDED) from error
        raise SparkFailedError(f"the Spark job failed: {str(error)[:MAX_ERROR_CHARACTERS]}") from error


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows on the workers' disks, so that they are computed once though they are read twice."""
    stored = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield stored
    finally:
        stored.unpersist()


def write(rows: DataFrame, folder: Path) -> None:
    """Write rows as Parquet, without the empty file that Hadoop writes as a sign of success."""
    rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(str(folder))


def first_rejected(refused: DataFrame) -> list[RejectedRow]:
    """Return the first of the rows of rejected/."""
    ordered = refused.orderBy("file", F.col("line").asc_nulls_first(), "reason")
    return [RejectedRow(*row) for row in ordered.limit(REJECTS_SHOWN).collect()]


# Judging


def judge(together: DataFrame, terms: ReplayTerms, records: Records, folder: Path) -> RunTally:
    """Pair and judge, write the verdicts as Parquet, and return the counts.

    Args:
        together: records, those of a key in one task and one after another.
        terms: how to pair and judge.
        records: reads the records with their keys.
        folder: the folder for the verdicts; all machines must see it.
    """
    folder.mkdir(parents=True)
    parts = [row.part for row in judged(together, terms, records, folder).collect()]
    if not parts:  # there was nothing to judge
        with Rows(folder / PART, VERDICTS):
            pass
    tally = RunTally()
    for part in parts:  # by name, as a listing on a shared file system may be out of date
        tally.add(RunTally.from_json(_counts_of(folder, part).read_text("utf-8")))
    for left in folder.glob(".*"):  # the counts, and unfinished files of killed tasks
        left.unlink(missing_ok=True)
    return tally


def _counts_of(folder: Path, part: int) -> Path:
    return folder / f".part-{part:05}.counts"


def judged(together: DataFrame, terms: ReplayTerms, records: Records, folder: Path) -> DataFrame:
    """Pair and judge; see `judge`. Each task writes a file of verdicts and one of counts, and returns a row.

    Verdicts do not go back through Java, which would keep a copy of them.
    """
    task = partial(_judge_part, terms=terms, records=records, folder=str(folder))
    return together.mapInArrow(task, from_arrow_schema(JUDGED))


def _judge_part(batches: Batches, terms: ReplayTerms, records: Records, folder: str) -> Batches:
    tally, part = RunTally(), _number_of_task()
    path = Path(folder, f"part-{part:05}.parquet")
    with Rows(path, VERDICTS) as rows:
        for row in judge_all(records(batches), terms, tally, _memory(terms)):
            rows.write(row)
    if tally.counts:
        write_text(_counts_of(path.parent, part), tally.to_json())
        yield to_batch([(part,)], JUDGED)


def _number_of_task() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def to_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Batches:
    """Collect rows into batches of bounded size."""
    waiting: list[tuple[Any, ...]] = []
    octets = 0
    for row in rows:
        waiting.append(row)
        octets += sum([len(value) for value in row if isinstance(value, str | bytes)])
        if len(waiting) >= BATCH_ROWS or octets >= BATCH_OCTETS:
            yield to_batch(waiting, schema)
            waiting, octets = [], 0
    if waiting:
        yield to_batch(waiting, schema)


SPLIT_OCTETS: Final = 32 << 20
"""Maximum size of the part of a log that one task reads, if it can be read in parts."""
MAX_JUDGED_OCTETS: Final = 16 << 20
"""Maximum size of logs that one task judges, a bucket at a time. Many small tasks end at about the same time."""
MIN_SPLIT_OCTETS: Final = 4 << 20
"""Minimum size of a part, for logs that are small for the number of cores."""
TASKS_OF_CORE: Final = 8
"""Minimum number of reading tasks, and of judging tasks, per core, if there is enough work."""
SHUFFLE: Final = "spark.sql.shuffle.partitions"
MAX_ALIASES: Final = 100_000
"""Maximum number of message ids in answers that are sent to every task; with more, the answers are sent to the ids."""

BUCKET_OCTETS: Final = 2 << 20
"""Size of the logs for each bucket, whose records a task holds and sorts at a time."""
MAX_BUCKETS: Final = 2048
BUCKETS_OF_TASK: Final = 8
"""Minimum number of buckets of each judging task, so that all have about the same amount of work."""

STAGED: Final = pa.schema(
    [
        *REJECTED,
        ("number", pa.int64()),
        ("start", pa.int64()),
        ("edition", pa.string()),
        ("records", pa.int64()),
        ("bucket", pa.int32()),
        ("answers", pa.bool_()),
        ("bundle", pa.binary()),
        ("ids", pa.binary()),
    ]
)
"""The rows that reading makes: rejected texts, with lines counted from the beginning of their part; numbers of records
of a log that show an edition; bundles of records."""
USED: Final = pa.schema([("bucket", pa.int32()), ("number", pa.int64()), ("aliases", pa.binary())])
BUNDLES: Final = pa.schema([("bucket", pa.int32()), ("bundle", pa.binary())])
COUNTED: Final = pa.schema([("number", pa.int64()), ("start", pa.int64()), ("lines", pa.int64())])


def run(
    job: Job, result: Path, progress: Progress, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> tuple[RunTally, list[RejectedRow]]:
    """Judge a job's logs and write verdicts/ and rejected/ under `result`.

    Args:
        job: the logs and the terms.
        result: the folder; on a cluster, all machines must see it.
        progress: called with each phase.
        master: Spark's master; local[2] by default.
        conf: further settings of Spark.

    Returns:
        the counts, and the first rejected records.

    Raises:
        SparkMissingError: there is no Java, or Spark did not start.
        SparkFailedError: Spark failed.
        NoInputError: there is nothing to read at the URIs.
    """
    settings = dict(conf or {})
    progress("starting Spark")
    with failing_as_ours(), session(master, settings, result.parent) as spark:
        far, refused, others = hadoop.find(spark, job.elsewhere, len(job.logs))
        job = replace(job, rejected=(*job.rejected, *refused))
        if not far and not job.logs:
            raise nothing_to_read(job.rejected)
        if SHUFFLE not in settings:
            spark.conf.set(SHUFFLE, _shuffle_partitions(spark, [*job.logs, *far]))
        with watched(spark, progress) as tell:
            tally, first = _run(job, far, result, tell, spark)
        note_others(tally, others)
        return tally, first


def _run(
    job: Job, far: list[LogFile], result: Path, progress: Progress, spark: SparkSession
) -> tuple[RunTally, list[RejectedRow]]:
    progress(f"reading {len(job.logs) + len(far)} files")
    parts = splits(job.logs, _split_size(spark, job.logs))
    buckets = _buckets(spark, [*job.logs, *far])
    everything = staged(spark, parts, job.terms, buckets)
    with kept(everything.union(fetched(spark, far, job.terms, buckets)) if far else everything) as found:
        tally, broken = _census(found)
        torn = [part for part in parts if part.log.number in broken and part.is_counted_anew]
        refused = rejected(found, first_lines(spark, torn)) if broken else None
        first = _write_rejected(refused, job.rejected, result / "rejected")
        tally.count("rejected", by=len(job.rejected))
        progress("judging")
        with kept(aliases(found)) as used:
            bundles = keyed(found, used, used.agg(F.sum("number")).collect()[0][0] or 0, buckets)
            tasks = int(spark.conf.get(SHUFFLE) or 1)
            terms = job.terms.decided(tally.counts)
            tally.add(judge(together(bundles, tasks), terms, _records, result / "verdicts"))
        return tally, first


def _split_size(spark: SparkSession, logs: Iterable[LogFile]) -> int:
    """Choose the size of the parts that logs are read in."""
    return _part_size(spark, sum(whole(log).octets for log in logs), SPLIT_OCTETS)


def _shuffle_partitions(spark: SparkSession, logs: Iterable[LogFile]) -> int:
    """Choose how many tasks judge."""
    octets = sum(whole(log).octets for log in logs)
    return -(-octets // _part_size(spark, octets, MAX_JUDGED_OCTETS)) or 1


def _part_size(spark: SparkSession, octets: int, most: int) -> int:
    """Choose the size of one task: several tasks for each core, so that all cores end at about the same time."""
    return int(min(most, max(MIN_SPLIT_OCTETS, octets // (TASKS_OF_CORE * spark.sparkContext.defaultParallelism))))


def _buckets(spark: SparkSession, logs: Iterable[LogFile]) -> int:
    """Choose the number of buckets for the keys."""
    octets, tasks = sum(whole(log).octets for log in logs), int(spark.conf.get(SHUFFLE) or 0)
    return max(BUCKETS_OF_TASK * tasks, min(MAX_BUCKETS, octets // BUCKET_OCTETS))


def _census(found: DataFrame) -> tuple[RunTally, set[int]]:
    """Count rejected rows and shown editions; also return the numbers of the logs with rejected rows."""
    tally = RunTally()
    broken: set[int] = set()
    for row in census(found).toLocalIterator():
        if row.rejected:
            tally.count("rejected", by=row.rejected)
            broken.add(row.number)
        if row.edition is not None:
            tally.count(SHOWN, row.edition, by=row.records)
    return tally, broken


def _write_rejected(refused: DataFrame | None, more: tuple[RejectedRow, ...], folder: Path) -> list[RejectedRow]:
    """Write rejected/ from the workers' rows, if any, and from those of this process; return the first of all."""
    if refused is not None:
        write(refused, folder)
    folder.mkdir(exist_ok=True)
    with Rows(folder / PART, REJECTED) as rows:
        for each in more:
            rows.write(each)
    return nsmallest(REJECTS_SHOWN, [*more, *(first_rejected(refused) if refused is not None else ())], key=place)


# From DataFrame to DataFrame


def staged(spark: SparkSession, parts: list[Split], terms: ReplayTerms, buckets: int) -> DataFrame:
    """Read everything: records in bundles, and what could not be read, with the reason."""
    return _each(spark, parts, partial(_read_part, terms=terms, buckets=buckets), STAGED)


def fetched(spark: SparkSession, logs: list[LogFile], terms: ReplayTerms, buckets: int) -> DataFrame:
    """Read all files of other machines, as `staged` does for those on this one."""
    task = partial(_read_fetched, logs={log.path: log for log in logs}, terms=terms, buckets=buckets)
    return hadoop.contents(spark, logs).mapInArrow(task, from_arrow_schema(STAGED))


def census(found: DataFrame) -> DataFrame:
    """Count, for each log, the records that show an edition, and the rejected rows."""
    told = found.where("reason IS NOT NULL OR edition IS NOT NULL")
    counts = F.sum("records").alias("records"), F.count("reason").alias("rejected")
    return told.groupBy("number", "edition").agg(*counts)


def first_lines(spark: SparkSession, parts: list[Split]) -> DataFrame:
    """Return the number of lines before each part; the parts must be all parts of their logs, in order.

    This reads the logs again, so it is done only for logs with rejected lines.
    """
    counted = _each(spark, parts, _count_part, COUNTED)
    before: list[tuple[int, int, int]] = []
    lines = {(row.number, row.start): row.lines for row in counted.toLocalIterator()}
    log, total = -1, 0
    for part in parts:
        if part.log.number != log:
            log, total = part.log.number, 0
        before.append((log, part.start, total))
        total += lines[log, part.start]
    return spark.createDataFrame(before, "number long, start long, before long")


def rejected(found: DataFrame, lines: DataFrame) -> DataFrame:
    """Select the rejected rows, with lines counted from the beginning of the log."""
    refused = found.where("reason IS NOT NULL").join(F.broadcast(lines), ["number", "start"], "left")
    line = (F.col("line") + F.coalesce("before", F.lit(0))).alias("line")
    return refused.select("file", line, "reason", "raw")


def aliases(found: DataFrame) -> DataFrame:
    """Find the message ids of requests that another record has as its correlation id, with the requests' keys.

    There is a row for each bucket with such ids.
    """
    ids = found.where("ids IS NOT NULL").select("bucket", "answers", "ids")
    return together(ids).mapInArrow(_aliases_of, from_arrow_schema(USED))


def keyed(found: DataFrame, used: DataFrame, number: int, buckets: int) -> DataFrame:
    """Put each record into the bucket in which it meets its copies and its partner.

    Args:
        found: the rows that reading made.
        used: the aliases.
        number: the number of aliases.
        buckets: the number of buckets.
    """
    bundles = found.where("bundle IS NOT NULL")
    if not number:
        return bundles.select(BUNDLES.names)
    if number <= MAX_ALIASES:
        used = F.broadcast(used)
    answers = bundles.where("answers").select(BUNDLES.names).join(used.drop("number"), "bucket", "left")
    moved = answers.mapInArrow(partial(_rekeyed, buckets=buckets), from_arrow_schema(BUNDLES))
    return bundles.where("NOT answers").select(BUNDLES.names).union(moved)


def together(rows: DataFrame, tasks: int | None = None) -> DataFrame:
    """Put the rows of a bucket into one task, one after another; without `tasks`, Spark chooses how many there are."""
    parted = rows.repartition("bucket") if tasks is None else rows.repartition(tasks, "bucket")
    return parted.sortWithinPartitions("bucket")


def _each(
    spark: SparkSession, parts: list[Split], work: Callable[[Split], Iterable[tuple[Any, ...]]], schema: pa.Schema
) -> DataFrame:
    """Run `work` on each part, in tasks of about `SPLIT_OCTETS` octets at most, and return the resulting rows."""
    octets = sum(part.octets for part in parts)
    tasks = max(1, min(len(parts), max(4 * spark.sparkContext.defaultParallelism, octets // SPLIT_OCTETS)))
    task = partial(_work_on, parts=parts, work=work, schema=schema)
    return spark.range(0, len(parts), 1, tasks).mapInArrow(task, from_arrow_schema(schema))


# Inside the tasks


def _work_on(
    batches: Batches, parts: list[Split], work: Callable[[Split], Iterable[tuple[Any, ...]]], schema: pa.Schema
) -> Batches:
    numbers = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return to_batches(chain.from_iterable(work(parts[number]) for number in numbers), schema)


def _count_part(part: Split) -> Iterable[tuple[Any, ...]]:
    return [(part.log.number, part.start, count_lines(part))]


def _read_part(part: Split, terms: ReplayTerms, buckets: int) -> Iterator[tuple[Any, ...]]:
    return _staged_rows(((part.log, part.start, found) for found in read_packed(part)), terms, buckets)


def _read_fetched(batches: Batches, logs: Mapping[str, LogFile], terms: ReplayTerms, buckets: int) -> Batches:
    found = chain.from_iterable(hadoop.read_content(logs, path, octets) for path, octets in _rows(batches))
    return to_batches(_staged_rows(((log, 0, each) for log, each in found), terms, buckets), STAGED)


def _staged_rows(
    read: Iterable[tuple[LogFile, int, PackedRecord | RejectedRow]], terms: ReplayTerms, buckets: int
) -> Iterator[tuple[Any, ...]]:
    """Make rows from records and rejected texts, each with its log and part."""
    bundler, unpack = Bundler(buckets), Unpacker().unpack
    shown: Counter[tuple[int, str]] = Counter()
    for log, start, found in read:
        if isinstance(found, RejectedRow):
            yield *found, log.number, start, *(None,) * 6
            continue
        row = found.row
        entry = (row.keys.key, row.time, log.number, start, found.line, row.packed)
        bundler.add(entry, row.keys.by_alias, row.keys.announces)
        if terms.is_open and (edition := terms.edition_shown(unpack(row.packed))) is not None:
            shown[log.number, edition] += 1
        if bundler.is_full:
            yield from _bundle_rows(bundler)
    yield from _bundle_rows(bundler)
    for (number, edition), records in shown.items():
        yield *(None,) * 4, number, None, edition, records, *(None,) * 4


def _bundle_rows(bundler: Bundler) -> Iterator[tuple[Any, ...]]:
    return ((*(None,) * 8, *bundle) for bundle in bundler.take())


def _aliases_of(batches: Batches) -> Batches:
    return to_batches(_used_rows(_rows(batches)), USED)


def _used_rows(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for bucket, group in groupby(rows, key=itemgetter(0)):
        used = used_aliases((answers, ids) for _, answers, ids in group)
        if used:
            yield bucket, len(used), pack_aliases(used)


def _rekeyed(batches: Batches, buckets: int) -> Batches:
    return to_batches(rekeyed(_rows(batches), buckets), BUNDLES)


_MEMORIES: Final[dict[bytes, ShapeMemory]] = {}


def _memory(terms: ReplayTerms) -> ShapeMemory:
    """Return what this worker knows of shapes, so that no task begins with nothing."""
    key = pickle.dumps(terms)
    if key not in _MEMORIES:
        _MEMORIES.clear()  # those of an earlier run
        _MEMORIES[key] = ShapeMemory(terms)
    return _MEMORIES[key]


def _records(batches: Batches) -> Iterator[tuple[str, FlatRecord]]:
    for _, group in groupby(_rows(batches), key=itemgetter(0)):
        for key, *_, packed in in_order(bundle for _, bundle in group):
            yield key, flat_of(packed)


def _rows(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
