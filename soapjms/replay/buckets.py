"""Rows on their way from the tasks of Spark that make them to those that need them.

Each row of a table belongs to a bucket, by a hash of one of its columns. Rows of a bucket travel together, as octets:
so Spark moves no row for each record, and no value is made a value of Java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it

from soapjms.replay.column_store import ColumnStore

BUCKETED: Final = pa.schema([("bucket", pa.int64()), ("kind", pa.string()), ("rows", pa.binary())])
"""Rows of a kind, in Arrow's format without their schema."""
MAX_OCTETS: Final = 1 << 20
"""About how large rows may be that travel together."""


class BucketRows(NamedTuple):
    """Rows that go to the buckets of their keys.

    Attributes:
        kind: a name for them.
        query: finds them.
        key: the column that decides which bucket they belong to.
        columns: their columns.
    """

    kind: str
    query: str
    key: str
    columns: pa.Schema

    def sent(self, store: ColumnStore, buckets: int) -> Iterator[tuple[int, str, bytes]]:
        """Yield the rows of a store, as rows of `BUCKETED`."""
        # DuckDB's own hash may differ from release to release, and so from worker to worker.
        bucket = f"(md5_number_lower({self.key}) % {buckets})::BIGINT"
        columns = pa.schema([*self.columns, ("bucket", pa.int64())])
        for page in store.batches(
            f"SELECT *, {bucket} AS bucket FROM ({self.query}) AS found ORDER BY bucket", columns
        ):
            start, most = 0, max(1, MAX_OCTETS * page.num_rows // max(1, page.nbytes))
            rows = page.select(self.columns.names)
            for number, same in groupby(page.column("bucket").to_pylist()):
                end = start + sum(1 for _ in same)
                for at in range(start, end, most):
                    yield number, self.kind, rows.slice(at, min(most, end - at)).serialize().to_pybytes()
                start = end

    def received(self, octets: bytes) -> pa.RecordBatch:
        """Return rows that were sent."""
        return pa.ipc.read_record_batch(octets, self.columns)


def by_bucket(rows: DataFrame, tasks: int, *order: str) -> DataFrame:
    """Bring the rows of a bucket into one task, one after another.

    Args:
        rows: rows of `BUCKETED`.
        tasks: how many tasks and buckets there are.
        order: columns by which the rows of a bucket are in order.
    """
    if hasattr(rows, "repartitionById"):
        spread = rows.repartitionById(tasks, F.col("bucket").cast("int"))
        return spread.sortWithinPartitions(*order) if order else spread
    # In Spark 4.0 some tasks get several buckets, and some none.
    return rows.repartition(tasks, "bucket").sortWithinPartitions("bucket", *order)


def buckets_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[tuple[str, bytes]]]]:
    """Yield the buckets, each with what it has: rows as they were sent, and their kind."""
    rows = (
        row
        for batch in batches
        for row in zip(*(batch.column(name).to_pylist() for name in BUCKETED.names), strict=True)
    )
    for bucket, same in groupby(rows, key=itemgetter(0)):
        yield bucket, ((kind, octets) for _, kind, octets in same)
