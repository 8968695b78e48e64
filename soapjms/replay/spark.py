"""The engine on Spark: it reads logs in parts, and judges by the plan of `spark_plan`.

Spark only reads in parts, joins, sorts and writes. Only counts, a few samples and the list of files reach the driver,
so a log may be larger than any machine. Bodies stay in the logs: the few records that are judged are read again.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it
from pyspark.sql.pandas.types import from_arrow_schema

from soapjms.protocol.text import counted
from soapjms.replay import hadoop
from soapjms.replay.errors import NoInputError, SparkFailedError
from soapjms.replay.facts import LINE_BITS, PACK, FactReader, line_of
from soapjms.replay.facts import PACKED as PACKED_FACTS
from soapjms.replay.flat_records import pack
from soapjms.replay.inputs import SPLIT_OCTETS, LogFile, RejectedRow, Split, count_lines, octets_of, split_size, splits
from soapjms.replay.parquet import REJECTED, to_batches
from soapjms.replay.records import read_rows
from soapjms.replay.spark_plan import (
    PACKED,
    SHUFFLE,
    Batches,
    frame,
    judge,
    kept,
    rows_of,
    task_store,
    write,
)
from soapjms.replay.spark_session import session, was_interrupted, watched
from soapjms.replay.summary import REJECTS_SHOWN, RunTally, note_others
from soapjms.replay.terms import SHOWN, Job, Progress, ReplayTerms, nothing_to_read

MAX_ERROR_CHARACTERS: Final = 4000
JAVA_ENDED: Final = (
    "Spark's Java process ended unexpectedly; very large messages need more memory than its default: "
    "--conf spark.driver.memory=4g gives it 4 GiB"
)

CHANGED: Final = re.compile(rf"^[\w.]*{NoInputError.__name__}: (.*)$", re.MULTILINE)
"""What a task says that did not find a record again."""


@contextmanager
def failing_as_ours() -> Iterator[None]:
    """Turn Spark's exceptions into ours.

    Raises:
        SparkFailedError: Spark failed, or its Java process ended.
        NoInputError: a log was changed meanwhile.
        KeyboardInterrupt: Spark failed because of Ctrl-C.
    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        if isinstance(error, Py4JNetworkError | ConnectionError):
            raise SparkFailedError(JAVA_ENDED) from error
        if changed := CHANGED.search(str(error)):
            raise NoInputError(changed[1]) from error
        raise SparkFailedError(f"the Spark job failed: {str(error)[:MAX_ERROR_CHARACTERS]}") from error


def first_rejected(refused: DataFrame) -> list[RejectedRow]:
    """Return the first of the rows of rejected/."""
    ordered = refused.orderBy("file", F.col("line").asc_nulls_first(), "reason")
    return [RejectedRow(*row) for row in ordered.limit(REJECTS_SHOWN).collect()]


SHUFFLED_OCTETS: Final = 64 << 20
"""Size of the logs for each task that finds what is within places, or judges."""
MAX_TASKS: Final = 4000
"""Maximum number of tasks that read, and of tasks that find what is within places: each of the former leaves a block
for each of the latter."""
MAX_SENT: Final = 500_000
"""Number of records to be read again up to which their numbers are sent to every task that reads other machines' files,
and the files are not moved."""

TOLD: Final = pa.schema([*REJECTED, ("lines", pa.int64()), ("edition", pa.string()), ("records", pa.int64())])
STAGED: Final = pa.schema([*PACKED_FACTS, ("part", pa.int64()), ("told", pa.struct(list(TOLD)))])
"""The rows that reading makes: facts of records; and what is told of a part: a rejected text, with its line counted
from the beginning of the part; its number of lines; how many records show an edition."""
SPLITS: Final = pa.schema([("part", pa.int64()), ("split", pa.binary())])


@contextmanager
def run(
    job: Job,
    result: Path,
    progress: Progress,
    *,
    out: str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[tuple[RunTally, list[RejectedRow]]]:
    """Judge a job's logs and write verdicts/ and rejected/.

    Args:
        job: the logs and the terms.
        result: a folder of this machine, which the block may write other results into.
        progress: called with each phase.
        out: the URI of the folder for all results, which takes its place when the block ends without an error; None to
            write into `result`, which all machines of a cluster must see then.
        master: Spark's master; local[2] by default.
        conf: further settings of Spark.

    Yields:
        the counts, and the first rejected records.

    Raises:
        SparkMissingError: there is no Java, or Spark did not start.
        SparkFailedError: Spark failed.
        NoInputError: there is nothing to read at the URIs.
        UsageError: there are other files at `out`.
    """
    settings = dict(conf or {})
    progress("starting Spark")
    with ExitStack() as stack:
        stack.enter_context(failing_as_ours())
        spark = stack.enter_context(session(master, settings, result.parent))
        folder = str(result) if out is None else stack.enter_context(hadoop.staging(spark, out, result))
        far, refused, others = hadoop.find(spark, job.elsewhere, len(job.logs), leave_out=out)
        job = replace(job, rejected=(*job.rejected, *refused))
        if not far and not job.logs:
            raise nothing_to_read(job.rejected)
        if SHUFFLE not in settings:
            spark.conf.set(SHUFFLE, shuffle_tasks([*job.logs, *far]))
        with watched(spark, progress) as tell:
            tally, first = _run(job, Logs(spark, job.logs, far), folder, tell, spark)
        note_others(tally, others)
        yield tally, first


def _run(
    job: Job, logs: Logs, folder: str, progress: Progress, spark: SparkSession
) -> tuple[RunTally, list[RejectedRow]]:
    progress(f"reading {counted(logs.number, 'file')}")
    with ExitStack() as stack:
        found = stack.enter_context(kept(logs.facts(job.terms)))
        tally, lines = _census(found)
        refused = frame(spark, job.rejected, REJECTED)
        if tally.counts["rejected",]:
            refused = refused.union(_rejected(found, logs.first_lines(lines)))
        write(refused, f"{folder}/rejected")
        tally.count("rejected", by=len(job.rejected))
        first = first_rejected(refused) if tally.counts["rejected",] else []
        terms = job.terms.decided(tally.counts)
        if terms.setting.profile != job.terms.setting.profile:
            found = stack.enter_context(kept(logs.facts(terms)))
        facts = found.where("told IS NULL").select(PACKED_FACTS.names)
        tally.add(judge(spark, facts, terms, logs.fetch, folder, progress))
        return tally, first


def _census(found: DataFrame) -> tuple[RunTally, dict[int, int]]:
    """Count rejected rows and shown editions; also return the numbers of lines of parts, as far as counted."""
    tally = RunTally()
    lines: dict[int, int] = {}
    counts = F.count("reason").alias("rejected"), F.max("lines").alias("lines"), F.sum("records").alias("records")
    for row in (
        found.where("told IS NOT NULL")
        .select("part", "told.*")
        .groupBy("part", "edition")
        .agg(*counts)
        .toLocalIterator()
    ):
        if row.rejected:
            tally.count("rejected", by=row.rejected)
        if row.edition is not None:
            tally.count(SHOWN, row.edition, by=row.records)
        if row.lines is not None:
            lines[row.part] = row.lines
    return tally, lines


def _rejected(found: DataFrame, lines: DataFrame) -> DataFrame:
    """Select the rejected rows, with lines counted from the beginning of the log."""
    refused = found.where("told.reason IS NOT NULL").select("part", "told.*").join(F.broadcast(lines), "part", "left")
    line = (F.col("line") + F.coalesce("before", F.lit(0))).alias("line")
    return refused.select("file", line, "reason", "raw")


class Logs:
    """The logs of a run.

    Attributes:
        number: how many there are.

    Args:
        spark: the session.
        logs: those on this machine, which all machines of a cluster see.
        far: those on other machines.
    """

    def __init__(self, spark: SparkSession, logs: Iterable[LogFile], far: list[LogFile]) -> None:
        near = list(logs)
        self.number = len(near) + len(far)
        self._spark = spark
        cores = spark.sparkContext.defaultParallelism
        self._parts = splits(near, split_size(near, cores))
        self._tasks = reading_tasks(self._parts, cores)
        self._far = {log.path: (len(self._parts) + number, log) for number, log in enumerate(far)}

    def facts(self, terms: ReplayTerms) -> DataFrame:
        """Read all: facts of records, and what could not be read, with the reason."""
        numbers = self._spark.range(0, len(self._parts), 1, self._tasks).withColumnRenamed("id", "part")
        staged = numbers.join(F.broadcast(self._splits()), "part").select(SPLITS.names)
        found = staged.mapInArrow(partial(_read, terms=terms), from_arrow_schema(STAGED))
        if not self._far:
            return found
        task = partial(_read_far, logs=self._far, terms=terms)
        far = hadoop.contents(self._spark, self._far).mapInArrow(task, from_arrow_schema(STAGED))
        return found.union(far) if self._parts else far

    def fetch(self, wanted: DataFrame) -> DataFrame:
        """Read records again; see `Fetch`."""
        rows = wanted.withColumn("part", F.shiftright("row", LINE_BITS))
        if not self._far:
            return self._fetch_near(rows)
        is_near = F.col("part") < len(self._parts)
        return self._fetch_near(rows.where(is_near)).union(self._fetch_far(rows.where(~is_near)))

    def _fetch_near(self, rows: DataFrame) -> DataFrame:
        """Bring the records of a part behind the part itself."""
        nothing = [F.lit(None).cast(kind).alias(name) for name, kind in (("place", "string"), ("time", "long"))]
        parts = self._splits().select(*nothing, F.lit(-1).cast("long").alias("row"), *SPLITS.names)
        both = parts.union(rows.withColumn("split", F.lit(None).cast("binary")))
        ordered = both.repartition(self._tasks, "part").sortWithinPartitions("part", "row")
        return ordered.mapInArrow(_fetch, from_arrow_schema(PACKED))

    def _fetch_far(self, rows: DataFrame) -> DataFrame:
        """Give each file, which is one part, the numbers of its wanted records."""
        paths = self._spark.createDataFrame(
            [(part, path) for path, (part, _) in self._far.items()], "part long, path string"
        )
        wanted = F.sort_array(F.collect_list(F.struct("row", "place", "time"))).alias("wanted")
        of_file = rows.join(paths, "part").groupBy("path").agg(wanted)
        if rows.count() <= MAX_SENT:
            of_file = F.broadcast(of_file)
        return (
            hadoop.contents(self._spark, self._far)
            .join(of_file, "path")
            .mapInArrow(partial(_fetch_contents, logs=self._far), from_arrow_schema(PACKED))
        )

    def first_lines(self, lines: Mapping[int, int]) -> DataFrame:
        """Return the number of lines before each part.

        Args:
            lines: the number of lines of each part that is counted anew.
        """
        before: list[tuple[int, int]] = []
        log, total = -1, 0
        for number, part in enumerate(self._parts):
            if part.log.number != log:
                log, total = part.log.number, 0
            before.append((number, total))
            total += lines.get(number, 0)
        return self._spark.createDataFrame(before, "part long, before long")

    def _splits(self) -> DataFrame:
        return frame(self._spark, rows_of_parts(self._parts), SPLITS)


def rows_of_parts(parts: Iterable[Split]) -> list[tuple[int, bytes]]:
    """Return the rows of `SPLITS`."""
    return [(number, pickle.dumps(part.without_groups)) for number, part in enumerate(parts)]


# How many tasks


def reading_tasks(parts: Sequence[Split], cores: int) -> int:
    """Choose how many tasks read parts of logs."""
    octets = sum(part.octets for part in parts)
    return max(1, min(len(parts), max(4 * cores, octets // SPLIT_OCTETS), MAX_TASKS))


def shuffle_tasks(logs: Iterable[LogFile]) -> int:
    """Choose how many tasks find what is within places."""
    return min(MAX_TASKS, max(1, octets_of(logs) // SHUFFLED_OCTETS))


# Inside the tasks


class TaskReader:
    """Reads facts in a task.

    Args:
        terms: how to judge.
    """

    def __init__(self, terms: ReplayTerms) -> None:
        self._store = task_store()
        self._reader = FactReader(terms, self._store)

    def read(self, part: int, split: Split, stream: BinaryIO | None = None) -> Batches:
        """Read a part of a log; yield rows of `STAGED`."""
        self._reader.shown.clear()
        for found in self._reader.read(part, split, stream):
            if isinstance(found, RejectedRow):
                yield _told(part, found._asdict())
                continue
            self._store.lend("facts", found)
            yield from self._store.batches(PACK, STAGED)
        for edition, records in self._reader.shown.items():
            yield _told(part, {"edition": edition, "records": records})
        if split.is_counted_anew:
            yield _told(part, {"lines": count_lines(split)})


def _told(part: int, members: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"part": part, "told": members}], STAGED)


@lru_cache(maxsize=1)
def _reader(terms: bytes) -> TaskReader:
    """Return the reader of this worker, so that no part of a log begins with empty caches."""
    return TaskReader(pickle.loads(terms))  # noqa: S301  # we made it


def _read(batches: Batches, terms: ReplayTerms) -> Batches:
    for part, split in rows_of(batches):
        yield from _reader(pickle.dumps(terms)).read(part, pickle.loads(split))  # noqa: S301  # the driver made it


def _read_far(batches: Batches, logs: Mapping[str, tuple[int, LogFile]], terms: ReplayTerms) -> Batches:
    for path, octets in rows_of(batches):
        part, log = logs[path]
        split = hadoop.split_of(log, octets)
        if isinstance(split, RejectedRow):
            yield _told(part, split._asdict())
        else:
            yield from _reader(pickle.dumps(terms)).read(part, split, BytesIO(octets))


def _fetch_contents(batches: Batches, logs: Mapping[str, tuple[int, LogFile]]) -> Batches:
    return to_batches(_fetched_contents(batches, logs), PACKED)


def _fetched_contents(batches: Batches, logs: Mapping[str, tuple[int, LogFile]]) -> Iterator[tuple[Any, ...]]:
    for path, octets, wanted in rows_of(batches):
        split = hadoop.split_of(logs[path][1], octets)
        assert isinstance(split, Split)
        rows = [(each["place"], each["time"], each["row"]) for each in wanted]
        yield from _packed(split, rows, BytesIO(octets))


def _fetch(batches: Batches) -> Batches:
    return to_batches(_fetched(batches), PACKED)


def _fetched(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for _, group in groupby(rows_of(batches), key=itemgetter(3)):
        first, *rows = group
        split = pickle.loads(first[-1])  # noqa: S301  # see above
        yield from _packed(split, [row[:3] for row in rows])


def _packed(split: Split, wanted: list[tuple[Any, ...]], stream: BinaryIO | None = None) -> Iterator[tuple[Any, ...]]:
    """Read records again; yield rows of `PACKED`, in the order of the wanted ones."""
    found = read_rows(split, (line_of(number) for _, _, number in wanted), stream)
    for row, flat in zip(wanted, found, strict=True):
        yield *row, pack(flat)
