"""What a replay and a run that follows logs do alike on Spark: keeping rows, judging them in tasks, writing, counting.

How records come to be sorted by their keys is not for here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark import StorageLevel, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it
from pyspark.sql.pandas.types import from_arrow_schema

from soapjms.protocol.record import Record
from soapjms.replay.errors import SparkFailedError
from soapjms.replay.inputs import Rejected
from soapjms.replay.judging import judge_all
from soapjms.replay.schema import VERDICTS, to_batch
from soapjms.replay.session import was_interrupted
from soapjms.replay.summary import REJECTS_SHOWN, Tally
from soapjms.replay.terms import Terms
from soapjms.replay.writing import PART, Rows, write_text

Batches: TypeAlias = Iterator[pa.RecordBatch]
Records: TypeAlias = Callable[[Batches], Iterator[tuple[str, Record]]]

LONGEST_ERROR: Final = 4000
JAVA_ENDED: Final = (
    "Spark's Java ended in the middle of it; very large messages take more memory than it has by default: "
    "--conf spark.driver.memory=4g gives it 4 GiB"
)
BATCH_ROWS: Final = 1000
BATCH_OCTETS: Final = 16 << 20

JUDGED: Final = pa.schema([("part", pa.int32())])
"""The number of a task that judged something: its files are called by it."""


@contextmanager
def failing_as_ours() -> Iterator[None]:
    """Have what Spark raises leave the block as an error of ours.

    Raises:
        SparkFailedError: Spark gave up, or its Java ended.
        KeyboardInterrupt: it did so because of Ctrl-C.
    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        if isinstance(error, Py4JNetworkError | ConnectionError):
            raise SparkFailedError(JAVA_ENDED) from error
        raise SparkFailedError(f"the Spark job failed: {str(error)[:LONGEST_ERROR]}") from error


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows on the workers' disks, so that what is read from them twice is worked out once."""
    stored = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield stored
    finally:
        stored.unpersist()


def write(rows: DataFrame, folder: Path) -> None:
    """Write rows as Parquet, without the empty file by which Hadoop says that it is done."""
    rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(str(folder))


def first_rejected(refused: DataFrame) -> list[Rejected]:
    """Return the first of the rows of rejected/."""
    ordered = refused.orderBy("file", F.col("line").asc_nulls_first(), "reason")
    return [Rejected(*row) for row in ordered.limit(REJECTS_SHOWN).collect()]


# Judging


def judge(together: DataFrame, terms: Terms, records: Records, folder: Path) -> Tally:
    """Pair and judge, write the verdicts as Parquet, and return the counts.

    Args:
        together: records, those of a key in one task and one after another.
        terms: what to judge by.
        records: reads them, each with its key.
        folder: for the verdicts; all machines see it.
    """
    folder.mkdir(parents=True)
    parts = [row.part for row in judged(together, terms, records, folder).collect()]
    if not parts:  # there was nothing to judge
        with Rows(folder / PART, VERDICTS):
            pass
    tally = Tally()
    for part in parts:  # by their names: on a file system of several machines a listing may be an old one
        tally.add(Tally.from_json(_counts_of(folder, part).read_text("utf-8")))
    for left in folder.glob(".*"):  # the counts, and what tasks that were killed had begun
        left.unlink(missing_ok=True)
    return tally


def _counts_of(folder: Path, part: int) -> Path:
    return folder / f".part-{part:05}.counts"


def judged(together: DataFrame, terms: Terms, records: Records, folder: Path) -> DataFrame:
    """Pair and judge; see `judge`. A task writes its verdicts into a file and its counts into one, and gives a row.

    The verdicts of a task do not come back through Java, which would keep them to have them read twice.
    """
    task = partial(_judge_part, terms=terms, records=records, folder=str(folder))
    return together.mapInArrow(task, from_arrow_schema(JUDGED))


def _judge_part(batches: Batches, terms: Terms, records: Records, folder: str) -> Batches:
    tally, part = Tally(), _number_of_task()
    path = Path(folder, f"part-{part:05}.parquet")
    with Rows(path, VERDICTS) as rows:
        for row in judge_all(records(batches), terms, tally):
            rows.write(row)
    if tally.counts:
        write_text(_counts_of(path.parent, part), tally.to_json())
        yield to_batch([(part,)], JUDGED)


def _number_of_task() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def to_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Batches:
    """Gather rows into batches of bounded size."""
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
