"""Rows on their way between tasks of Spark: each in the bucket of its key, and the same when it arrives."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from soapjms.replay.column_store import ColumnStore
from soapjms.replay.parquet import to_batch, to_batches
from soapjms.replay.shipments import MAX_ROWS, SHIPPED, Shipment, buckets_of

COLUMNS = pa.schema([("name", pa.string()), ("number", pa.int64()), ("octets", pa.binary()), ("flag", pa.bool_())])
BY_NAME = Shipment("all", "FROM rows", "name", COLUMNS)
SOME = Shipment("some", "SELECT name, octets FROM rows WHERE flag", "name", pa.schema([COLUMNS[0], COLUMNS[2]]))
NUMBER = 3 * MAX_ROWS


def some_rows(number: int) -> tuple[Any, ...]:
    """Return a row, with a name that three others have, some of them with nulls."""
    return f"name-{number // 4}", number, None if number % 5 else bytes([number % 251]), (None, True, False)[number % 3]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ColumnStore]:
    made = ColumnStore(tmp_path, 1, in_memory=True)
    made.lend("rows", to_batch([some_rows(number) for number in range(NUMBER)], COLUMNS))
    yield made
    made.close()


@pytest.mark.parametrize("buckets", [1, 2, 7, 5000])
def test_each_row_arrives_once(store: ColumnStore, buckets: int) -> None:
    """Rows of two kinds arrive as they were, and equal keys in one bucket."""
    sent = sorted((*BY_NAME.sent(store, buckets), *SOME.sent(store, buckets)), key=itemgetter(0))
    of_bucket = [
        [(each.kind, rows.to_pylist()) for each, rows in bucket]
        for bucket in buckets_of(to_batches(sent, SHIPPED), (BY_NAME, SOME))
    ]
    assert len(of_bucket) == len({bucket for bucket, *_ in sent}) <= buckets
    assert all(0 <= bucket < buckets for bucket, *_ in sent)
    whole = [[row for kind, rows in bucket if kind == "all" for row in rows] for bucket in of_bucket]
    found = [tuple(row.values()) for rows in whole for row in rows]
    assert sorted(found, key=itemgetter(1)) == [some_rows(number) for number in range(NUMBER)]
    names = [{row["name"] for row in rows} for rows in whole]
    assert sum(map(len, names)) == len(set().union(*names)) == NUMBER // 4
    flagged = [row for bucket in of_bucket for kind, rows in bucket if kind == "some" for row in rows]
    assert sorted(row["name"] for row in flagged) == sorted(
        name for name, _, _, flag in map(some_rows, range(NUMBER)) if flag
    )


def test_how_many_travel_together(store: ColumnStore) -> None:
    """A bucket with many rows is sent in several pieces, so that none is large."""
    pieces = [BY_NAME.received(octets).num_rows for _, _, octets in BY_NAME.sent(store, 1)]
    assert max(pieces) == MAX_ROWS
    assert sum(pieces) == NUMBER
    for _, same in groupby(BY_NAME.sent(store, 3), key=itemgetter(0)):
        assert all(BY_NAME.received(octets).num_rows <= MAX_ROWS for *_, octets in same)


def test_the_bucket_of_a_key_is_the_same_everywhere(store: ColumnStore) -> None:
    """Workers may have other releases of their engine of columns: the bucket is made of the MD5 of the key."""
    store.lend("rows", to_batch([("greeter", 1, None, None)], COLUMNS))
    assert [bucket for bucket, *_ in BY_NAME.sent(store, 1000)] == [
        int.from_bytes(md5(b"greeter").digest()[8:], "little") % 1000
    ]
