"""Rows on their way between tasks of Spark: each in the bucket of its key, and the same when it arrives."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from soapjms.replay.buckets import BUCKETED, MAX_OCTETS, BucketRows, buckets_of
from soapjms.replay.column_store import PAGE_ROWS, ColumnStore
from soapjms.replay.parquet import to_batch, to_batches

COLUMNS = pa.schema([("name", pa.string()), ("number", pa.int64()), ("octets", pa.binary()), ("flag", pa.bool_())])
BY_NAME = BucketRows("all", "FROM rows", "name", COLUMNS)
SOME = BucketRows("some", "SELECT name, octets FROM rows WHERE flag", "name", pa.schema([COLUMNS[0], COLUMNS[2]]))
NUMBER = 5000


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
    kinds = {each.kind: each for each in (BY_NAME, SOME)}
    of_bucket = [
        [(kind, kinds[kind].received(octets).to_pylist()) for kind, octets in bucket]
        for _, bucket in buckets_of(to_batches(sent, BUCKETED))
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


def test_how_much_travels_together(store: ColumnStore) -> None:
    """A bucket with much is sent in several pieces, none of them large, however wide rows are."""
    pieces = [BY_NAME.received(octets).num_rows for _, _, octets in BY_NAME.sent(store, 1)]
    assert sum(pieces) == NUMBER
    assert max(pieces) == PAGE_ROWS
    store.lend("rows", to_batch([(f"{number}" * 100_000, number, None, None) for number in range(100)], COLUMNS))
    wide = [octets for _, _, octets in BY_NAME.sent(store, 2)]
    assert sum(BY_NAME.received(octets).num_rows for octets in wide) == 100
    assert max(map(len, wide)) < 2 * MAX_OCTETS


def test_the_bucket_of_a_key_is_the_same_everywhere(store: ColumnStore) -> None:
    """Workers may have other releases of their engine of columns: the bucket is made of the MD5 of the key."""
    store.lend("rows", to_batch([("greeter", 1, None, None)], COLUMNS))
    assert [bucket for bucket, *_ in BY_NAME.sent(store, 1000)] == [
        int.from_bytes(md5(b"greeter").digest()[8:], "little") % 1000
    ]
