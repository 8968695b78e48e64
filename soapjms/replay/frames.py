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
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark import StorageLevel
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

Batches: TypeAlias = Iterator[pa.RecordBatch]

LONGEST_ERROR: Final = 4000
BATCH_ROWS: Final = 1000
BATCH_OCTETS: Final = 16 << 20

JUDGED: Final = pa.schema([*VERDICTS, ("tally", pa.string())])
"""A verdict, or the counts of a task and nothing else."""


@contextmanager
def failing_as_ours() -> Iterator[None]:
    """Have what Spark raises leave the block as an error of ours.

    Raises:
        SparkFailedError: Spark gave up.
        KeyboardInterrupt: it did so because of Ctrl-C.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
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


def judged(together: DataFrame, terms: Terms, records: Callable[[Batches], Iterator[tuple[str, Record]]]) -> DataFrame:
    """Pair and judge: rows of verdicts, and from each task one row with its tally and nothing else.

    Args:
        together: records, those of a key in one task and one after another.
        terms: what to judge by.
        records: reads them, each with its key.
    """
    return together.mapInArrow(partial(_judge_part, terms=terms, records=records), from_arrow_schema(JUDGED))


def verdicts(rows: DataFrame) -> DataFrame:
    """Select the verdicts of what was judged."""
    return rows.where("tally IS NULL").select(VERDICTS.names)


def add_counts(rows: DataFrame, tally: Tally) -> None:
    """Add the counts of what was judged, a row for each task."""
    for row in rows.where("tally IS NOT NULL").select("tally").toLocalIterator(prefetchPartitions=True):
        tally.add(Tally.from_json(row.tally))


def _judge_part(batches: Batches, terms: Terms, records: Callable[[Batches], Iterator[tuple[str, Record]]]) -> Batches:
    tally = Tally()
    yield from to_batches(((*row, None) for row in judge_all(records(batches), terms, tally)), JUDGED)
    if tally.counts:
        yield to_batch([(*(None,) * len(VERDICTS), tally.to_json())], JUDGED)


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
