"""The logs of a run on Spark: tasks read their facts, and later some of their records again.

There are three kinds. Those on this machine, which all machines of a cluster see, and those that fsspec opens, are read
in parts by the tasks themselves. Others on other machines are read by Spark, through Hadoop: each as a whole, or large
ones of JSON Lines in blocks. Each part, file or block has a number; the number of a record is made of it and the line.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it

from soapjms.replay import hadoop
from soapjms.replay.buckets import BUCKETED
from soapjms.replay.column_store import WaitingRows
from soapjms.replay.errors import NoInputError
from soapjms.replay.facts import LINE_BITS, READ_OCTETS, FactReader, GivenPart, line_of, part_of
from soapjms.replay.flat_records import pack
from soapjms.replay.inputs import (
    SPLIT_OCTETS,
    LogFile,
    RejectedRow,
    Split,
    octets_of,
    split_size,
    splits,
    whole,
)
from soapjms.replay.parquet import REJECTED, to_batches
from soapjms.replay.records import MAX_LINE_OCTETS, read_rows
from soapjms.replay.spark_plan import (
    MAX_FEW_TASKS,
    PACKED,
    READ,
    Batches,
    by_tasks,
    frame,
    number_of_buckets,
    rows_of,
    task_store,
)
from soapjms.replay.terms import ReplayTerms

SHUFFLED_OCTETS: Final = 256 << 20
"""Size of the logs for each task that finds what is within places, or judges."""
MIN_SHUFFLED_OCTETS: Final = 64 << 20
"""The same as long as there are fewer such tasks than keep all cores busy."""
MAX_TASKS: Final = 4000
"""Maximum number of tasks that read, and of tasks that find what is within places: each of the former leaves a block
for each of the latter."""
MAX_SENT: Final = 500_000
"""Number of records to be read again up to which their numbers are sent to every task that reads other machines' files,
and the files are not moved."""

PASSED_OVER: Final = (
    "Spark has not read it: it passes over names that end with ._COPYING_, in some versions those that begin with _ or "
    "., and files that are gone or damaged if spark.sql.files.ignoreMissingFiles or ignoreCorruptFiles say so"
)
"""Why a file on another machine that was found was not read."""

TOLD: Final = pa.schema(
    [*REJECTED, ("lines", pa.int64()), ("octets", pa.int64()), ("edition", pa.string()), ("records", pa.int64())]
)
STAGED: Final = pa.schema([*BUCKETED, ("part", pa.int64()), ("told", pa.struct(list(TOLD)))])
"""The rows that reading makes: facts of records, by bucket; and what is told of a part: a rejected text, with its line
counted from the beginning of the part; its number of lines, and of octets if Spark reads it; how many records show an
edition."""
SPLITS: Final = pa.schema([("part", pa.int64()), ("split", pa.binary())])


class TaskTerms(NamedTuple):
    """What a task that reads is told.

    Attributes:
        terms: how to judge.
        buckets: how many buckets of places there are.
    """

    terms: ReplayTerms
    buckets: int


class LogParts(Protocol):
    """The logs of one kind.

    Attributes:
        logs: the number of the log of each part.
    """

    logs: list[int]

    def facts(self, terms: TaskTerms) -> DataFrame:
        """Read all: rows of `STAGED`."""

    def fetch(self, rows: DataFrame) -> DataFrame:
        """Read records again; see `Fetch`.

        Args:
            rows: rows of `WANTED`, and `part` in addition.
        """


class Logs:
    """The logs of a run.

    Attributes:
        number: how many there are.

    Args:
        spark: the session.
        logs: those that tasks read by themselves.
        far: those that Hadoop opens.
    """

    def __init__(self, spark: SparkSession, logs: Iterable[LogFile], far: Iterable[LogFile]) -> None:
        self._spark = spark
        near, elsewhere = list(logs), list(far)
        self.number = len(near) + len(elsewhere)
        self._whole = [log for log in elsewhere if not hadoop.has_blocks(log)]
        self._long = [log for log in elsewhere if hadoop.has_blocks(log)]
        self._states = [hadoop.state_of(spark, log.path) for log in self._long]
        self._sources: list[tuple[int, LogParts]] = []
        self._logs: list[int] = []  # the number of the log of each part
        for kind, some in ((LocalParts, near), (WholeFiles, self._whole), (Blocks, self._long)):
            if some:
                source: LogParts = kind(spark, some, len(self._logs))
                self._sources.append((len(self._logs), source))
                self._logs.extend(source.logs)

    def facts(self, terms: ReplayTerms) -> DataFrame:
        """Read all: facts of records, and what could not be read, with the reason."""
        task_terms = TaskTerms(terms, number_of_buckets(self._spark))
        return reduce(DataFrame.union, [source.facts(task_terms) for _, source in self._sources])

    def fetch(self, wanted: DataFrame) -> DataFrame:
        """Read records again; see `Fetch`."""
        rows, part = wanted.withColumn("part", F.shiftright("row", LINE_BITS)), F.col("part")
        found = [
            source.fetch(rows.where((part >= first) & (part < first + len(source.logs))))
            for first, source in self._sources
        ]
        return reduce(DataFrame.union, found)

    def first_lines(self, lines: Mapping[int, int]) -> DataFrame:
        """Return the number of lines before each part.

        Args:
            lines: the number of lines of each part that is counted anew.
        """
        before: list[tuple[int, int]] = []
        log, total = -1, 0
        for part, number in enumerate(self._logs):
            if number != log:
                log, total = number, 0
            before.append((part, total))
            total += lines.get(part, 0)
        return self._spark.createDataFrame(before, "part long, before long")

    def passed_over(self, octets: Mapping[int, int]) -> list[RejectedRow]:
        """Return what Spark passes over: whole files, or in blocks the lines that are too long.

        Args:
            octets: how many octets were read of each whole file, and in lines of each block.
        """
        read = Counter[int]()
        for part, count in octets.items():
            read[self._logs[part]] += count
        unread = [
            RejectedRow(log.name, None, PASSED_OVER) for log in self._whole if log.size and log.number not in read
        ]
        missing = ((log, log.size - read[log.number]) for log in self._long)
        return unread + [
            RejectedRow(
                log.name,
                None,
                f"{left} octets are in lines of more than {MAX_LINE_OCTETS}; they are not read, nor counted as lines",
            )
            for log, left in missing
            if left >= MAX_LINE_OCTETS
        ]

    def require_unchanged(self) -> None:
        """Require that files that are read in blocks are what they were at first, as they are read several times.

        Raises:
            NoInputError: one is not.
        """
        for log, before in zip(self._long, self._states, strict=True):
            if hadoop.state_of(self._spark, log.path) != before:
                raise NoInputError(f"{log.name}: its size or time is another now: the log was changed meanwhile")


# How many tasks


def reading_tasks(parts: Sequence[Split], cores: int) -> int:
    """Choose how many tasks read parts of logs."""
    octets = sum(part.octets for part in parts)
    return max(1, min(len(parts), max(4 * cores, octets // SPLIT_OCTETS), MAX_TASKS))


def shuffle_tasks(logs: Iterable[LogFile], cores: int) -> int:
    """Choose how many tasks find what is within places."""
    octets = octets_of(logs)
    return min(MAX_TASKS, max(1, octets // SHUFFLED_OCTETS, min(4 * cores, octets // MIN_SHUFFLED_OCTETS)))


# Logs that tasks read by themselves


class LocalParts:
    """Logs on this machine, or that fsspec opens, in parts; see `LogParts`.

    Args:
        spark: the session.
        logs: the logs.
        first: the number of the first part, which is 0.
    """

    def __init__(self, spark: SparkSession, logs: Sequence[LogFile], first: int) -> None:
        assert first == 0  # as these logs come first
        self._spark = spark
        cores = spark.sparkContext.defaultParallelism
        self._parts = splits(logs, split_size(logs, cores))
        self._tasks = reading_tasks(self._parts, cores)
        self.logs = [part.log.number for part in self._parts]

    def facts(self, terms: TaskTerms) -> DataFrame:
        """Read all: rows of `STAGED`."""
        numbers = self._spark.range(0, len(self._parts), 1, self._tasks).withColumnRenamed("id", "part")
        staged = numbers.join(F.broadcast(self._splits()), "part").select(SPLITS.names)
        return by_tasks(staged, partial(_read, terms=terms), STAGED)

    def fetch(self, rows: DataFrame) -> DataFrame:
        """Bring the records of a part behind the part itself."""
        nothing = [F.lit(None).cast(kind).alias(name) for name, kind in (("place", "string"), ("time", "long"))]
        parts = self._splits().select(*nothing, F.lit(-1).cast("long").alias("row"), *SPLITS.names)
        both = parts.union(rows.withColumn("split", F.lit(None).cast("binary")))
        tasks = min(self._tasks, max(MAX_FEW_TASKS, self._spark.sparkContext.defaultParallelism))
        ordered = both.repartition(tasks, "part").sortWithinPartitions("part", "row")
        return by_tasks(ordered, partial(_fetch, rows=_fetched), PACKED)

    def _splits(self) -> DataFrame:
        return frame(self._spark, rows_of_parts(self._parts), SPLITS)


def rows_of_parts(parts: Iterable[Split]) -> list[tuple[int, bytes]]:
    """Return the rows of `SPLITS`."""
    return [(number, pickle.dumps(part.without_groups)) for number, part in enumerate(parts)]


def _read(batches: Batches, terms: TaskTerms) -> Batches:
    parts = (TaskPart(part, pickle.loads(split)) for part, split in rows_of(batches))  # noqa: S301  # the driver made it
    return _reader(pickle.dumps(terms)).read(parts)


def _fetched(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for _, group in groupby(rows_of(batches), key=itemgetter(3)):
        first, *rows = group
        split = pickle.loads(first[-1])  # noqa: S301  # see above
        yield from _packed(split, [row[:3] for row in rows])


# Logs that Spark fetches as a whole


class WholeFiles:
    """Logs on other machines, each of which is one part; see `LogParts`.

    Args:
        spark: the session.
        logs: the logs.
        first: the number of the first part.
    """

    def __init__(self, spark: SparkSession, logs: Sequence[LogFile], first: int) -> None:
        self._spark = spark
        self._paths = [log.path for log in logs]
        self._rows = [(log.path, part, pickle.dumps(log)) for part, log in enumerate(logs, first)]
        self.logs = [log.number for log in logs]

    def facts(self, terms: TaskTerms) -> DataFrame:
        """Read all: rows of `STAGED`."""
        return by_tasks(self._contents(), partial(_read_whole, terms=terms), STAGED)

    def fetch(self, rows: DataFrame) -> DataFrame:
        """Give each file the numbers of its wanted records."""
        wanted = F.sort_array(F.collect_list(F.struct("row", "place", "time"))).alias("wanted")
        of_part = sent(rows, rows.groupBy("part").agg(wanted))
        found = self._contents().join(of_part, "part").select("content", "log", "wanted")
        return by_tasks(found, partial(_fetch, rows=_fetched_whole), PACKED)

    def _contents(self) -> DataFrame:
        parts = frame(self._spark, self._rows, FILES)
        found = hadoop.contents(self._spark, self._paths).coalesce(MAX_TASKS)
        return found.join(F.broadcast(parts), "path").select("part", "log", "content")


FILES: Final = pa.schema([("path", pa.string()), ("part", pa.int64()), ("log", pa.binary())])


def sent(rows: DataFrame, made: DataFrame) -> DataFrame:
    """Have what is made of the rows of records sent to all tasks if there are few of these."""
    return F.broadcast(made) if rows.count() <= MAX_SENT else made


def _read_whole(batches: Batches, terms: TaskTerms) -> Batches:
    parts = (
        TaskPart(
            part,
            hadoop.split_of(pickle.loads(log), octets),  # noqa: S301  # see above
            BytesIO(octets),
            {"octets": len(octets)},
        )
        for part, log, octets in rows_of(batches)
    )
    return _reader(pickle.dumps(terms)).read(parts)


def _fetched_whole(batches: Batches) -> Iterator[tuple[Any, ...]]:
    for octets, log, wanted in rows_of(batches):
        split = hadoop.split_of(pickle.loads(log), octets)  # noqa: S301  # see above
        assert isinstance(split, Split)
        rows = [(each["place"], each["time"], each["row"]) for each in wanted]
        yield from _packed(split, rows, BytesIO(octets))


# Logs that Spark reads in blocks


class Blocks:
    """Large logs of JSON Lines on other machines; see `LogParts`.

    Args:
        spark: the session.
        logs: the logs.
        first: the number of the first part.
    """

    def __init__(self, spark: SparkSession, logs: Sequence[LogFile], first: int) -> None:
        self._spark = spark
        self._paths = [log.path for log in logs]
        blocks = dict(enumerate((log for log in logs for _ in range(hadoop.number_of_blocks(log))), first))
        first_parts = {log.path: part for part, log in reversed(blocks.items())}
        self._rows = [(hadoop.uri_of(spark, path), part) for path, part in first_parts.items()]
        self.logs = [log.number for log in blocks.values()]
        self._told = spark.sparkContext.broadcast(blocks)

    def facts(self, terms: TaskTerms) -> DataFrame:
        """Read all: rows of `STAGED`."""
        task = partial(_read_blocks, logs=self._told, terms=terms)
        return by_tasks(self._lines(), task, STAGED)

    def fetch(self, rows: DataFrame) -> DataFrame:
        """Let Spark find the lines of the wanted records."""
        wanted = sent(rows, rows.select("place", "time", "row"))
        found = self._lines().join(wanted, "row").select("place", "time", "row", "octets")
        task = partial(_fetch, rows=partial(_fetched_lines, logs=self._told))
        return by_tasks(found, task, PACKED)

    def _lines(self) -> DataFrame:
        """Return the lines with the numbers of their records."""
        first_parts = frame(self._spark, self._rows, FIRST_PARTS)
        found = hadoop.lines(self._spark, self._paths).coalesce(MAX_TASKS).join(F.broadcast(first_parts), "uri")
        part = F.col("part") + F.col("block")
        return found.select((F.shiftleft(part, LINE_BITS) + F.col("line")).alias("row"), "octets")


FIRST_PARTS: Final = pa.schema([("uri", pa.string()), ("part", pa.int64())])
LogsOfParts: TypeAlias = Broadcast[dict[int, LogFile]]


def _read_blocks(batches: Batches, logs: LogsOfParts, terms: TaskTerms) -> Batches:
    return _reader(pickle.dumps(terms)).read(_blocks(batches, logs))


def _blocks(batches: Batches, logs: LogsOfParts) -> Iterator[TaskPart]:
    for part, lines in groupby(rows_of(batches), key=lambda each: part_of(each[0])):
        name = logs.value[part].name
        # The block begins with a line of its own, as only the beginning of a log may have a byte order mark.
        octets, number = bytearray(b"\n"), 0
        for number, (row, line) in enumerate(lines, 1):
            if line_of(row) != number:
                raise RuntimeError(f"{name}: a task has not read one block after another")
            octets += line
            octets += b"\n"
        split = whole(logs.value[part]._replace(size=len(octets)))._replace(first_line=0)
        yield TaskPart(part, split, BytesIO(octets), {"lines": number, "octets": len(octets) - 1})


def _fetched_lines(batches: Batches, logs: LogsOfParts) -> Iterator[tuple[Any, ...]]:
    for place, time, row, octets in rows_of(batches):
        split = whole(logs.value[part_of(row)])._replace(first_line=line_of(row))
        yield from _packed(split, [(place, time, row)], BytesIO(octets))


# Inside the tasks


class TaskPart(NamedTuple):
    """A part of the logs that a task reads.

    Attributes:
        part: its number.
        split: the part; or why it cannot be read.
        stream: its octets, if the log is not a file on this machine.
        told: what else is told of it; see `TOLD`.
    """

    part: int
    split: Split | RejectedRow
    stream: BinaryIO | None = None
    told: Mapping[str, Any] | None = None


class TaskReader:
    """Reads facts in a task.

    Args:
        terms: how to judge.
        buckets: how many there are.
    """

    def __init__(self, terms: ReplayTerms, buckets: int) -> None:
        self._store = task_store()
        self._reader = FactReader(terms, self._store)
        self._buckets = buckets

    def read(self, parts: Iterable[TaskPart]) -> Batches:
        """Read parts of logs; yield rows of `STAGED`, with facts of several parts together if they are small."""
        waiting, told = WaitingRows(READ_OCTETS), list[pa.RecordBatch]()
        for found in self._reader.read(_readable(parts, told)):
            yield from told
            told.clear()
            if isinstance(found, pa.Table):
                for facts in waiting.add(found):
                    yield from self._sent(facts)
            else:
                yield _told(*found)
        yield from told
        for edition, records in self._reader.shown.items():
            yield _told(0, {"edition": edition, "records": records})  # of whichever part
        for facts in waiting.rest():
            yield from self._sent(facts)

    def _sent(self, facts: pa.Table) -> Batches:
        self._store.lend("facts", facts)
        for each in READ:
            rows = each.sent(self._store, self._buckets)
            yield from to_batches(((*row, None, None) for row in rows), STAGED)


def _readable(parts: Iterable[TaskPart], told: list[pa.RecordBatch]) -> Iterator[GivenPart]:
    """Yield the parts that can be read; add what else is told to a list."""
    for part, split, stream, known in parts:
        if known is not None:
            told.append(_told(part, known))
        if isinstance(split, RejectedRow):
            told.append(_told(part, split))
        else:
            yield GivenPart(part, split, stream)


def _told(part: int, what: RejectedRow | int | Mapping[str, Any]) -> pa.RecordBatch:
    """Return what is told of a part: what is no record, its number of lines, or members of `TOLD`."""
    members = what._asdict() if isinstance(what, RejectedRow) else {"lines": what} if isinstance(what, int) else what
    return pa.RecordBatch.from_pylist([{"part": part, "told": members}], STAGED)


@lru_cache(maxsize=1)
def _reader(terms: bytes) -> TaskReader:
    """Return the reader of this worker, so that no part of a log begins with empty caches."""
    return TaskReader(*pickle.loads(terms))  # noqa: S301  # we made it


def _fetch(batches: Batches, rows: Callable[[Batches], Iterator[tuple[Any, ...]]]) -> Batches:
    return to_batches(rows(batches), PACKED)


def _packed(split: Split, wanted: list[tuple[Any, ...]], stream: BinaryIO | None = None) -> Iterator[tuple[Any, ...]]:
    """Read records again; yield rows of `PACKED`, in the order of the wanted ones."""
    found = read_rows(split, (line_of(number) for _, _, number in wanted), stream)
    for row, flat in zip(wanted, found, strict=True):
        yield *row, pack(flat)
