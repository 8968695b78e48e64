"""The engine on Spark: plain functions from DataFrame to DataFrame; Spark only reads in parts, joins, sorts and writes.

Nothing comes to the driver but counts, a handful of samples and the list of files, so a log may be larger than any
machine. Records are spread by correlation key, never by queue. They travel packed: nobody but Python looks into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it
from pyspark.sql.pandas.types import from_arrow_schema

from soapjms.protocol.record import Record
from soapjms.replay import hadoop
from soapjms.replay.frames import (
    Batches,
    add_counts,
    failing_as_ours,
    first_rejected,
    judged,
    kept,
    to_batches,
    verdicts,
    write,
)
from soapjms.replay.inputs import LogFile, Rejected, Split, count_lines, splits, whole
from soapjms.replay.job import Job, Progress, nothing_to_read
from soapjms.replay.packing import Unpacker
from soapjms.replay.read import Packed, read_packed
from soapjms.replay.schema import REJECTED
from soapjms.replay.session import session
from soapjms.replay.summary import Tally
from soapjms.replay.terms import SHOWN, Terms

SPLIT: Final = 32 << 20
"""Octets of a log that one task reads, where it can be read in parts."""
SMALLEST_SPLIT: Final = 4 << 20
"""Of a log that is small for the cores there are."""
SHUFFLE: Final = "spark.sql.shuffle.partitions"
MOST_ALIASES: Final = 100_000
"""Message ids that answers repeat: up to so many go to every task, of more the answers go to the ids."""

STAGED: Final = pa.schema(
    [
        *REJECTED,  # of a record only the line
        ("number", pa.int64()),
        ("start", pa.int64()),
        ("key", pa.string()),
        ("by_alias", pa.bool_()),
        ("announces", pa.string()),
        ("time", pa.int64()),
        ("packed", pa.binary()),
        ("edition", pa.string()),
    ]
)
"""What was read: records, and what could not be read. Lines count from the part that they are in."""
PLACE: Final = ("number", "start", "line")
COUNTED: Final = pa.schema([("number", pa.int64()), ("start", pa.int64()), ("lines", pa.int64())])


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
        NoInputError: there is nothing to read at the URIs.
    """
    settings = dict(conf or {})
    progress("starting Spark")
    with failing_as_ours(), session(master, settings, result.parent) as spark:
        far, refused = hadoop.find(spark, job.elsewhere, len(job.logs))
        job = replace(job, rejected=(*job.rejected, *refused))
        if not far and not job.logs:
            raise nothing_to_read(job.rejected)
        if SHUFFLE not in settings:
            spark.conf.set(SHUFFLE, _shuffle_partitions(spark, [*job.logs, *far]))
        return _run(job, far, result, progress, spark)


def _run(
    job: Job, far: list[LogFile], result: Path, progress: Progress, spark: SparkSession
) -> tuple[Tally, list[Rejected]]:
    progress(f"reading {len(job.logs) + len(far)} files")
    parts = splits(job.logs, _split_size(spark, job.logs))
    everything = staged(spark, parts, job.terms)
    with kept(everything.union(fetched(spark, far, job.terms)) if far else everything) as found:
        tally, broken = _census(found)
        refused = _refused(spark, found, parts, broken, job.rejected)
        write(refused, result / "rejected")
        tally.count("rejected", by=len(job.rejected))
        progress("judging")
        with kept(aliases(found)) as used:
            records = keyed(found, used, used.count())
            with kept(judged(together(records), job.terms.decided(tally.counts), _records)) as rows:
                write(verdicts(rows), result / "verdicts")
                progress("counting")
                add_counts(rows, tally)
        return tally, first_rejected(refused) if tally.counts["rejected",] else []


def _split_size(spark: SparkSession, logs: Iterable[LogFile]) -> int:
    """Choose the size of the parts that logs are read in: several for each core, so that all are done together."""
    octets = sum(whole(log).octets for log in logs)
    return int(min(SPLIT, max(SMALLEST_SPLIT, octets // (4 * spark.sparkContext.defaultParallelism))))


def _shuffle_partitions(spark: SparkSession, logs: Iterable[LogFile]) -> int:
    """Choose how many tasks judge: the same number for each core, as each begins with an empty memory."""
    octets, cores = sum(whole(log).octets for log in logs), spark.sparkContext.defaultParallelism
    return int(cores * max(1, -(-octets // (SPLIT * cores))))


def _census(found: DataFrame) -> tuple[Tally, set[int]]:
    """Count what could not be read and which editions show; return the logs in which something could not be read."""
    tally = Tally()
    broken: set[int] = set()
    for row in census(found).toLocalIterator():
        if row.rejected:
            tally.count("rejected", by=row.rejected)
            broken.add(row.number)
        if row.edition is not None:
            tally.count(SHOWN, row.edition, by=row.records)
    return tally, broken


def _refused(
    spark: SparkSession, found: DataFrame, parts: list[Split], broken: set[int], more: Iterable[Rejected]
) -> DataFrame:
    """Return the rows of rejected/: of logs that were read in parts, with the numbers that their lines have there."""
    unopened = spark.createDataFrame([tuple(each) for each in more], from_arrow_schema(REJECTED))
    if not broken:
        return unopened
    torn = [part for part in parts if part.log.number in broken and part.is_counted_anew]
    return rejected(found, first_lines(spark, torn)).union(unopened)


# From DataFrame to DataFrame


def staged(spark: SparkSession, parts: list[Split], terms: Terms) -> DataFrame:
    """Read everything: records with their keys, and what could not be read, with its reason."""
    return _each(spark, parts, partial(_read_part, terms=terms), STAGED)


def fetched(spark: SparkSession, logs: list[LogFile], terms: Terms) -> DataFrame:
    """Read all of the files of other machines, as `staged` does."""
    task = partial(_read_fetched, logs={log.path: log for log in logs}, terms=terms)
    return hadoop.contents(spark, logs).mapInArrow(task, from_arrow_schema(STAGED))


def census(found: DataFrame) -> DataFrame:
    """Count for each log the records that show an edition, and what could not be read."""
    counts = F.count("packed").alias("records"), F.count("reason").alias("rejected")
    return found.groupBy("number", "edition").agg(*counts)


def first_lines(spark: SparkSession, parts: list[Split]) -> DataFrame:
    """Tell the number of the line before each of these parts, which are all of their logs, in order.

    This reads the logs again; only those with something to report by its line are worth it.
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
    """Select what could not be read, its lines counted from the beginning of the log."""
    refused = found.where("reason IS NOT NULL").join(F.broadcast(lines), ["number", "start"], "left")
    line = (F.col("line") + F.coalesce("before", F.lit(0))).alias("line")
    return refused.select("file", line, "reason", "raw")


def aliases(found: DataFrame) -> DataFrame:
    """Select the message ids of requests that some record repeats as its correlation id, with the requests' keys."""
    announced = (
        found.where("announces IS NOT NULL")
        .groupBy(F.col("announces").alias("alias"))
        .agg(F.min("key").alias("request_key"))
    )
    return announced.join(found.where("by_alias").select(F.col("key").alias("alias")).distinct(), "alias")


def keyed(found: DataFrame, used: DataFrame, number: int) -> DataFrame:
    """Give each record the key under which it meets its copies and its partner.

    Args:
        found: what was read.
        used: the aliases.
        number: how many aliases there are.
    """
    records = found.where("packed IS NOT NULL")
    columns = ["time", *PLACE, "packed"]
    if not number:
        return records.select("key", *columns)
    if number <= MOST_ALIASES:
        used = F.broadcast(used)
    # Only answers are joined: a join of all would send every request to the one task that has the nulls.
    answers = records.where("by_alias").join(used, F.col("key") == F.col("alias"), "left")
    return (
        records.where("NOT by_alias")
        .select("key", *columns)
        .union(answers.select(F.coalesce("request_key", "key").alias("key"), *columns))
    )


def together(records: DataFrame) -> DataFrame:
    """Put the records of a key into one task, one after another."""
    return records.repartition("key").sortWithinPartitions("key", "time", *PLACE).select("key", "packed")


def _each(
    spark: SparkSession, parts: list[Split], work: Callable[[Split], Iterable[tuple[Any, ...]]], schema: pa.Schema
) -> DataFrame:
    """Do some work on each part, in tasks of `SPLIT` octets at most, and give the rows that come out."""
    octets = sum(part.octets for part in parts)
    tasks = max(1, min(len(parts), max(4 * spark.sparkContext.defaultParallelism, octets // SPLIT)))
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


def _read_part(part: Split, terms: Terms) -> Iterator[tuple[Any, ...]]:
    row = partial(_staged_row, terms=terms, unpack=Unpacker().unpack)
    return (row(part.log, part.start, found) for found in read_packed(part))


def _read_fetched(batches: Batches, logs: Mapping[str, LogFile], terms: Terms) -> Batches:
    row = partial(_staged_row, terms=terms, unpack=Unpacker().unpack)
    files = chain.from_iterable(
        zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches
    )
    found = chain.from_iterable(hadoop.read_content(logs, path, octets) for path, octets in files)
    return to_batches((row(log, 0, each) for log, each in found), STAGED)


def _staged_row(
    log: LogFile, start: int, found: Packed | Rejected, terms: Terms, unpack: Callable[[bytes], Record]
) -> tuple[Any, ...]:
    if isinstance(found, Rejected):
        return *found, log.number, start, None, None, None, None, None, None
    key, time, packed = found.row
    edition = terms.edition_shown(unpack(packed)) if terms.is_open else None
    return None, found.line, None, None, log.number, start, *key, time, packed, edition


def _records(batches: Batches) -> Iterator[tuple[str, Record]]:
    unpack = Unpacker().unpack
    for batch in batches:
        keys_of, octets = (column.to_pylist() for column in batch.columns)
        for key, packed in zip(keys_of, octets, strict=True):
            yield key, unpack(packed)
