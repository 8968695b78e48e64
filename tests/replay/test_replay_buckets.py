"""Rows on their way between tasks of Spark: each in the bucket of its key, and the same when it arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from hashlib import md5
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from soapjms.replay import plan, spark_plan
from soapjms.replay.buckets import BUCKETED, MAX_OCTETS, BucketRows, buckets_of
from soapjms.replay.column_store import PAGE_ROWS, ColumnStore
from soapjms.replay.facts import FACTS
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
    assert [bucket for bucket, *_ in BY_NAME.sent(store, 1000)] == [bucket_of("greeter", 1000)]


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket of a key."""
    return int.from_bytes(md5(key.encode()).digest()[8:], "little") % buckets


def some_facts(random: Random) -> pa.Table:
    """Make facts of requests that announce an id, and of answers whose keys may be such an id."""
    ids, rows = [f"id-{number}" for number in range(60)], list[tuple[Any, ...]]()
    for number in range(200):
        asks = random.random() < 0.5
        announces = random.choice(ids[:30]) if asks and random.random() < 0.3 else None
        rows.append((number, random.choice(ids), not asks, announces, False, number, *(None,) * (len(FACTS) - 6)))
    return pa.Table.from_batches([to_batch(rows, FACTS)])


@pytest.mark.parametrize("most", [1, 1000], ids=["more ids than are remembered", "all ids"])
@pytest.mark.parametrize("buckets", [1, 3, 7])
def test_answers_come_to_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, most: int) -> None:
    """Also if a task has several buckets, and of an answer's key nobody knows, or several do, what it stands for."""
    monkeypatch.setattr(spark_plan, "MAX_ANNOUNCED", most)
    for seed in range(2):
        facts = some_facts(Random(seed))
        with closing(ColumnStore(tmp_path, 1, in_memory=True)) as store:
            store.lend("facts", facts)
            store.define("aliases", plan.ALIASES)
            store.define("placed", plan.PLACED, "VIEW")
            wanted = store.fetch("SELECT row, key, place FROM placed WHERE by_alias ORDER BY row")
            assert any(key != place for _, key, place in wanted)
        sent: list[tuple[int, str, bytes]] = []
        for start in range(0, len(facts), 40):  # what a part of a log sends
            with closing(ColumnStore(tmp_path, 1, in_memory=True)) as store:
                store.lend("facts", facts.slice(start, 40))
                sent += [
                    row for each in (spark_plan.ANSWERS, spark_plan.ANNOUNCED) for row in each.sent(store, buckets)
                ]
        task = spark_plan._resolve(iter(to_batches(sorted(sent, key=itemgetter(0, 1)), BUCKETED)), buckets)
        found = [
            (each["row"], each["key"], each["place"], bucket)
            for batch in task
            for bucket, kind, octets in zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for each in spark_plan.RESOLVED.received(octets).to_pylist()
            if kind == spark_plan.OWN.kind
        ]
        assert sorted(found) == [(*row, bucket_of(row[2], buckets)) for row in wanted]
