"""Rows on their way from the tasks of Spark that make them to those that need them.

Each row of a table belongs to a bucket, by a hash of one of its columns. Rows of a bucket travel together, as octets:
so Spark moves a few rows for each task, and none for each record, and no value is made a value of Java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from soapjms.replay.column_store import ColumnStore

SHIPPED: Final = pa.schema([("bucket", pa.int64()), ("kind", pa.string()), ("rows", pa.binary())])
"""Rows of a kind, in Arrow's format without their schema."""
MAX_ROWS: Final = 1024
"""Maximum number of rows that travel together: some 400 KiB."""


class Shipment(NamedTuple):
    """What rows are shipped as.

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
        """Yield the rows of a store, as rows of `SHIPPED`."""
        # DuckDB's own hash may differ from release to release, and so from worker to worker.
        bucket = f"(md5_number_lower({self.key}) % {buckets})::BIGINT"
        columns = pa.schema([*self.columns, ("bucket", pa.int64())])
        table = store.table(
            f"SELECT *, {bucket} AS bucket FROM ({self.query}) AS found ORDER BY bucket", columns
        ).combine_chunks()
        start = 0
        for number, same in groupby(table.column("bucket").to_pylist()):
            size = sum(1 for _ in same)
            for some in table.slice(start, size).select(self.columns.names).to_batches(MAX_ROWS):
                yield number, self.kind, some.serialize().to_pybytes()
            start += size

    def received(self, octets: bytes) -> pa.RecordBatch:
        """Return rows that were shipped."""
        return pa.ipc.read_record_batch(octets, self.columns)


def by_bucket(rows: DataFrame, tasks: int) -> DataFrame:
    """Bring the rows of a bucket into one task, one after another."""
    return rows.repartition(tasks, "bucket").sortWithinPartitions("bucket")


def buckets_of(
    batches: Iterable[pa.RecordBatch], kinds: Iterable[Shipment]
) -> Iterator[Iterator[tuple[Shipment, pa.RecordBatch]]]:
    """Yield what each bucket has: rows, and what they are."""
    of_kind = {each.kind: each for each in kinds}
    rows = (
        row
        for batch in batches
        for row in zip(*(batch.column(name).to_pylist() for name in SHIPPED.names), strict=True)
    )
    for _, same in groupby(rows, key=itemgetter(0)):
        yield ((of_kind[kind], of_kind[kind].received(octets)) for _, kind, octets in same)
