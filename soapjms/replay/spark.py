"""The engine on Spark: plain functions from DataFrame to DataFrame; Spark only reads in parts, joins, sorts and writes.

Nothing comes to the driver but counts, a handful of samples and the list of files, so a log may be larger than any
machine. Records are spread by correlation key, never by queue. They travel as the lines they came in: to parse a
line again costs less than to take a nested row apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it
from pyspark.sql.pandas.types import from_arrow_schema

from soapjms.protocol.exchange import keys
from soapjms.protocol.record import Record, from_json
from soapjms.replay.errors import SparkFailedError
from soapjms.replay.job import Job, Progress
from soapjms.replay.judging import judge_all
from soapjms.replay.read import Captured, LogFile, Rejected, Split, count_lines, read, splits
from soapjms.replay.schema import REJECTED, TIMESTAMP, VERDICTS, to_batch
from soapjms.replay.session import session, was_interrupted
from soapjms.replay.summary import REJECTS_SHOWN, Tally
from soapjms.replay.terms import SHOWN, Choice, Terms

Batches: TypeAlias = Iterator[pa.RecordBatch]

SPLIT: Final = 32 << 20
"""Octets of a plain log that one task reads."""
GZIP_RATIO: Final = 8
LONGEST_ERROR: Final = 4000
SHUFFLE: Final = "spark.sql.shuffle.partitions"
BATCH_ROWS: Final = 1000
BATCH_OCTETS: Final = 16 << 20

STAGED: Final = pa.schema(
    [
        *REJECTED,  # of a record: reason is null, raw is its line
        ("number", pa.int64()),
        ("key", pa.string()),
        ("by_alias", pa.bool_()),
        ("announces", pa.string()),
        ("time", TIMESTAMP),
        ("edition", pa.string()),
    ]
)
JUDGED: Final = pa.schema([*VERDICTS, ("tally", pa.string())])
COUNTED: Final = pa.schema([("part", pa.int64()), ("lines", pa.int64())])


def run(
    job: Job, result: Path, progress: Progress, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> tuple[Tally, list[Rejected]]:
    """Judge a job's logs and write verdicts/ and rejected/ under `result`.

    Args:
        job: what to judge.
        result: the folder; on a cluster, one that all machines see.
        progress: told what begins.
        master: as Spark's own; local[2] by default.
        conf: further settings of Spark.

    Returns:
        the counts, and the first of the rejected records.

    Raises:
        SparkMissingError: there is no Java, or Spark did not start.
        SparkFailedError: it gave up.
    """
    settings = dict(conf or {})
    progress("starting Spark")
    try:
        with session(master, settings, result.parent) as spark:
            if SHUFFLE not in settings:
                spark.conf.set(SHUFFLE, _shuffle_partitions(spark, job.logs))
            return _run(job, result, progress, spark)
    except (PySparkException, Py4JError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        raise SparkFailedError(f"the Spark job failed: {str(error)[:LONGEST_ERROR]}") from error


def _run(job: Job, result: Path, progress: Progress, spark: SparkSession) -> tuple[Tally, list[Rejected]]:
    progress(f"reading {len(job.logs)} files")
    with _kept(staged(spark, numbered(spark, splits(job.logs, SPLIT)), job.terms)) as found:
        refused = rejected(spark, found, job.rejected)
        _write(refused, result / "rejected")
        tally = Tally()
        for row in editions(found).toLocalIterator() if job.terms.choice is Choice.OPEN else ():
            tally.count(SHOWN, row["edition"], by=row["records"])
        progress("judging")
        with _kept(judged(keyed(found), job.terms.decided(tally.counts))) as rows:
            _write(verdicts(rows), result / "verdicts")
            progress("counting")
            for row in tallies(rows).toLocalIterator():
                tally.add(Tally.from_json(row.tally))
        tally.count("rejected", by=refused.count())
        return tally, _first(refused) if tally.counts["rejected",] else []


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows on the workers' disks, so that what is read from them twice is worked out once."""
    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()


def _shuffle_partitions(spark: SparkSession, logs: Iterable[LogFile]) -> int:
    octets = sum(GZIP_RATIO * log.size if log.gzipped else log.size for log in logs)
    return int(max(spark.sparkContext.defaultParallelism, octets // SPLIT))


def _write(rows: DataFrame, folder: Path) -> None:
    rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(str(folder))


def _first(refused: DataFrame) -> list[Rejected]:
    ordered = refused.orderBy("file", F.col("line").asc_nulls_first(), "reason")
    return [Rejected(*row) for row in ordered.limit(REJECTS_SHOWN).collect()]


# From DataFrame to DataFrame


def numbered(spark: SparkSession, parts: list[Split]) -> list[Split]:
    """Tell each part the number of its first line: where a file has several, their line ends are counted first."""
    several = [part for part in parts if part.start > 0 or part.end is not None]
    if not several:
        return parts
    counted = _each(spark, several, _count_part, COUNTED)
    lines = {row.part: row.lines for row in counted.toLocalIterator()}
    first: dict[Split, int] = {}
    number, log = 1, several[0].log
    for index, part in enumerate(several):
        if part.log != log:
            number, log = 1, part.log
        first[part] = number
        number += lines[index]
    return [part._replace(first_line=first.get(part, 1)) for part in parts]


def staged(spark: SparkSession, parts: list[Split], terms: Terms) -> DataFrame:
    """Read all lines: records with their keys, and what could not be read, with its reason."""
    return _each(spark, parts, partial(_read_part, terms=terms), STAGED)


def editions(found: DataFrame) -> DataFrame:
    """Count the records that show each edition."""
    return found.where("edition IS NOT NULL").groupBy("edition").agg(F.count("*").alias("records"))


def rejected(spark: SparkSession, found: DataFrame, more: Iterable[Rejected]) -> DataFrame:
    """Select what could not be read, and add what was not even opened."""
    refused = found.where("reason IS NOT NULL").select(REJECTED.names)
    unopened = [tuple(each) for each in more]
    return refused.union(spark.createDataFrame(unopened, from_arrow_schema(REJECTED))) if unopened else refused


def keyed(found: DataFrame) -> DataFrame:
    """Give each record the key under which it meets its copies and its partner."""
    records = found.where("reason IS NULL").select("key", "by_alias", "announces", "time", "number", "line", "raw")
    aliases = (
        records.where("announces IS NOT NULL")
        .groupBy(F.col("announces").alias("alias"))
        .agg(F.min("key").alias("request_key"))
    )
    # Only answers are joined: a join of all would send every request to the one task that has the nulls.
    answers = records.where("by_alias").join(aliases, F.col("key") == F.col("alias"), "left")
    columns = ["time", "number", "line", "raw"]
    return (
        records.where("NOT by_alias")
        .select("key", *columns)
        .union(answers.select(F.coalesce("request_key", "key").alias("key"), *columns))
    )


def judged(records: DataFrame, terms: Terms) -> DataFrame:
    """Pair and judge: rows of verdicts, and from each task one row with its tally and nothing else."""
    together = records.repartition("key").sortWithinPartitions("key", "time", "number", "line").select("key", "raw")
    return together.mapInArrow(partial(_judge_part, terms=terms), from_arrow_schema(JUDGED))


def verdicts(rows: DataFrame) -> DataFrame:
    """Select the verdicts."""
    return rows.where("tally IS NULL").select(VERDICTS.names)


def tallies(rows: DataFrame) -> DataFrame:
    """Select the counts, a row for each task."""
    return rows.where("tally IS NOT NULL").select("tally")


def _each(
    spark: SparkSession, parts: list[Split], work: Callable[[int, Split], Iterable[tuple[Any, ...]]], schema: pa.Schema
) -> DataFrame:
    """Do some work on each part, in tasks of about `SPLIT` octets, and give the rows that come out."""
    octets = sum((part.end or part.log.size) - part.start for part in parts)
    tasks = max(1, min(len(parts), max(4 * spark.sparkContext.defaultParallelism, octets // SPLIT)))
    task = partial(_work_on, parts=parts, work=work, schema=schema)
    return spark.range(0, len(parts), 1, tasks).mapInArrow(task, from_arrow_schema(schema))


# Inside the tasks


def _work_on(
    batches: Batches, parts: list[Split], work: Callable[[int, Split], Iterable[tuple[Any, ...]]], schema: pa.Schema
) -> Batches:
    numbers = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return _batches(chain.from_iterable(work(number, parts[number]) for number in numbers), schema)


def _count_part(number: int, part: Split) -> Iterable[tuple[Any, ...]]:
    return [(number, count_lines(part))]


def _read_part(_: int, part: Split, terms: Terms) -> Iterator[tuple[Any, ...]]:
    for found in read(part):
        yield _refused_row(part.log, found) if isinstance(found, Rejected) else _record_row(part.log, found, terms)


def _refused_row(log: LogFile, found: Rejected) -> tuple[Any, ...]:
    return *found, log.number, None, None, None, None, None


def _record_row(log: LogFile, found: Captured, terms: Terms) -> tuple[Any, ...]:
    key, record = keys(found.record), found.record
    place = log.name, found.line, None, found.text, log.number
    return *place, key.key, key.by_alias, key.announces, record.time, terms.edition_shown(record)


def _judge_part(batches: Batches, terms: Terms) -> Batches:
    tally = Tally()
    yield from _batches(((*row, None) for row in judge_all(_records(batches), terms, tally)), JUDGED)
    if tally.counts:
        yield to_batch([(*(None,) * len(VERDICTS), tally.to_json())], JUDGED)


def _records(batches: Batches) -> Iterator[tuple[str, Record]]:
    for batch in batches:
        keys_of, lines = (column.to_pylist() for column in batch.columns)
        for key, line in zip(keys_of, lines, strict=True):
            yield key, from_json(line)


def _batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Batches:
    """Gather rows into batches of bounded size."""
    waiting: list[tuple[Any, ...]] = []
    octets = 0
    for row in rows:
        waiting.append(row)
        octets += sum(len(value) for value in row if isinstance(value, str))
        if len(waiting) >= BATCH_ROWS or octets >= BATCH_OCTETS:
            yield to_batch(waiting, schema)
            waiting, octets = [], 0
    if waiting:
        yield to_batch(waiting, schema)
