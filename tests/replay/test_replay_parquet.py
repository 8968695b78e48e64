"""Replay of Parquet: the same records in columns give the same results, and what is no record is rejected."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from record_kit import captured
from replay_logs import (
    CXF,
    ENVELOPE,
    assert_equal,
    at,
    request,
    response,
    rows,
    summary,
    three_observers,
    write_parquet,
)

from brokers.message import Message, MessageType, properties, queue
from soapjms.protocol.exchange import keys
from soapjms.protocol.record import Direction, Record, capture, from_json, to_json
from soapjms.replay import NoInputError, records, replay
from soapjms.replay.columns import ColumnReader, ColumnWriter, FlatRow, RefusedRow, columns_of_rows, row_of
from soapjms.replay.errors import StoreFailedError
from soapjms.replay.flat_records import Unpacker, ValueCache, flat_of, pack
from soapjms.replay.inputs import expand, opened, splits, whole
from soapjms.replay.parquet import RECORDS, as_records, to_row
from soapjms.replay.records import CapturedRecord, RejectedRow, read, read_columns


def the_cxf_log() -> list[Record]:
    """Read the traffic of another stack."""
    return [from_json(line) for line in CXF.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("group", [4, 1000])
def test_the_same_log_in_either_form(tmp_path: Path, group: int) -> None:
    """JSON Lines and Parquet of the same records have the same results, however the rows are grouped."""
    records = [*the_cxf_log(), *three_observers()]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(to_json(each) + "\n" for each in records), "utf-8")
    replay(log, tmp_path / "lines", engine="local")
    replay(write_parquet(tmp_path / "log.parquet", records, group), tmp_path / "columns", engine="local")
    assert_equal(tmp_path / "lines", tmp_path / "columns")


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
def test_parquet_on_spark(tmp_path: Path) -> None:
    """A folder of Parquet, with a foreign file in it, gives on Spark what it gives without."""
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    write_parquet(logs / "a.parquet", the_cxf_log(), 5)
    write_parquet(logs / "deep" / "b.parquet", three_observers())
    pq.write_table(pa.table({"a": [1]}), logs / "c.parquet")
    for engine in ("local", "spark"):
        replay(logs, tmp_path / engine, engine=engine)
    assert_equal(tmp_path / "local", tmp_path / "spark")
    (refused,) = rows(tmp_path / "spark", "rejected")
    assert refused["reason"] == "a Parquet file of something else: it has no column v, time, message_type"


# Rows


def read_row(row: dict[str, Any]) -> FlatRow | RefusedRow:
    """Read a row twice, as one that comes again."""
    batch = as_records(pa.RecordBatch.from_pylist([row, row], RECORDS))
    one, two = ColumnReader().rows(columns_of_rows(batch, 1))
    assert one == two
    return one


@given(captured())
def test_a_row_is_read_as_its_record(record: Record) -> None:
    """From its columns, as Parquet or a line made them, and packed and unpacked, it is the record again."""
    row = read_row(to_row(record))
    assert isinstance(row, FlatRow)
    assert row.keys == keys(record)
    unpacker = Unpacker()
    assert unpacker.record(row.record) == unpacker.record(flat_of(pack(row.record))) == record
    assert unpacker.record(row.record) == record  # from what was remembered
    writer = ColumnWriter()
    writer.add(row_of(1, record, 1))
    assert [*ColumnReader().rows(writer.batch())] == [row]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"v": 2}, "format version 2"),
        ({"v": None}, "member v is null"),
        ({"time": None}, "time is missing"),
        ({"message_type": "letter"}, "member message_type is 'letter'"),
        ({"direction": "up"}, "member direction is 'up'"),
        ({"node": "x"}, "member node is 'x'"),
        ({"destination": {"kind": "lake", "name": "a"}}, "member destination.kind is 'lake'"),
        ({"destination": {"kind": None, "name": "a"}}, "member destination.kind is null"),
        ({"message_type": "text", "body": b"\xff"}, "column body is not UTF-8"),
        ({"sha256": "0" * 64}, "member sha256"),
        ({"extra": "nonsense"}, "column extra is not JSON"),
        ({"properties": [("a", {"type": "int", "value": "x"})]}, "column properties.a is not JSON"),
        ({"properties": [("a", {"type": "letter", "value": "1"})]}, "member types.a is 'letter'"),
        ({"properties": [("a", None)]}, "column properties.a has no type"),
        ({"meta": [("a", "nonsense")]}, "column meta.a is not JSON"),
        ({"meta": [("a", None)]}, "column meta.a is not JSON"),
        ({"meta": [("a", "NaN")]}, "column meta.a is not JSON: NaN is no JSON"),
        ({"meta": [("a", "[" * 63 + "]" * 63)]}, "nested more than 64 deep"),
        ({"meta": [("a", "[" * 900 + "]" * 900)]}, "column meta.a is JSON that is nested more than 64 deep"),
        ({"meta": [("a", '"\\ud800"')]}, "meta.a holds a lone surrogate"),
        ({"extra": '{"a": 1e999}'}, "column extra is not JSON"),
        ({"extra": '{"a": %s}' % ("[" * 900 + "]" * 900)}, "column extra is JSON that is nested more than 64 deep"),
        ({"extra": '{"jms": {"correlation_id": "\\udc00"}}'}, "jms.correlation_id holds a lone surrogate"),
        ({"extra": '{"jms": []}'}, "member jms is []"),
    ],
)
def test_a_row_that_is_no_record_is_refused(change: dict[str, Any], reason: str) -> None:
    """With its reason, and the row as JSON."""
    row = read_row({**to_row(capture(request(1), at(1))), **change})
    assert isinstance(row, RefusedRow)
    assert reason in row.reason
    assert json.loads(row.raw).keys() == set(RECORDS.names)


def column_of(octets: bytes) -> pa.Array:
    """Make a column of null and a string, with whatever octets in it: Parquet does not check them."""
    return pa.Array.from_buffers(
        pa.string(),
        2,
        [pa.py_buffer(b"\x02"), pa.py_buffer(struct.pack("<iii", 0, 0, len(octets))), pa.py_buffer(octets)],
    )


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("time", pa.array([0, 1 << 62]).cast(RECORDS.field("time").type), "column time cannot be read: date value"),
        ("time", pa.array([0, -(1 << 62)]).cast(RECORDS.field("time").type), "column time cannot be read: date value"),
        ("time", pa.array([0, 253402300800000000]).cast(RECORDS.field("time").type), "column time cannot be read"),
        ("sha256", column_of(b"a\xff"), "column sha256 cannot be read: invalid start byte at octet 1"),
        ("extra", column_of(b"\xc3"), "column extra cannot be read: unexpected end of data at octet 0"),
    ],
)
def test_a_value_that_python_cannot_hold_is_refused_with_its_row(
    tmp_path: Path, column: str, values: pa.Array, reason: str
) -> None:
    """A time beyond the last year, text that is no UTF-8: the other rows are judged."""
    row = {**to_row(capture(request(1), at(1))), "sha256": None}
    table = pa.Table.from_pylist([row, row], RECORDS)
    index = RECORDS.get_field_index(column)
    pq.write_table(table.set_column(index, RECORDS.field(index), values), tmp_path / "log.parquet")
    made = replay(tmp_path / "log.parquet", tmp_path / "out", engine="local")
    assert made.members["messages"] == 1
    (refused,) = rows(tmp_path / "out", "rejected")
    assert refused["line"] == 2
    assert reason in refused["reason"]
    assert json.loads(refused["raw"])[column] is None


@pytest.mark.parametrize("engine", ["exact", "local"])
def test_octets_in_a_map_are_refused_with_their_row_only(tmp_path: Path, engine: str) -> None:
    """A value in meta that is no UTF-8 costs one row: the others of its batch are judged."""
    table = pa.Table.from_pylist([to_row(capture(request(number), at(1))) for number in range(2)], RECORDS)
    octets = pa.array([b'"ok"', b'"\xff"'], pa.binary())
    values = pa.StringArray.from_buffers(2, octets.buffers()[1], octets.buffers()[2])
    meta = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "k"]), values)
    pq.write_table(table.set_column(RECORDS.get_field_index("meta"), "meta", meta), tmp_path / "log.parquet")
    made = replay(tmp_path / "log.parquet", tmp_path / "out", engine=engine)
    assert made.members["messages"] == 1
    assert [each["line"] for each in rows(tmp_path / "out", "rejected")] == [2]


def test_what_a_row_said_can_be_said_by_a_line() -> None:
    """Whatever JSON is in the columns of a row that is read, its record can be written as a line, and read again."""
    deepest = "[" * 62 + "]" * 62
    for change in ({"meta": [("a", deepest), ("b", "1e308")]}, {"extra": '{"jms.reply_to": 5, "jms": {"x": [0.5]}}'}):
        row = read_row({**to_row(capture(request(1), at(1))), **change})
        assert isinstance(row, FlatRow)
        record = Unpacker().record(row.record)
        assert from_json(to_json(record)) == record


# Files


def test_what_comes_again_stays_remembered() -> None:
    """It is worked out once, however much else comes by; what did not come for two pages is forgotten."""
    worked: list[str] = []
    memory = ValueCache(lambda text: worked.append(text) or text.upper(), len, most=3)  # type: ignore[func-returns-value]
    for number in range(20):
        assert memory("often") == "OFTEN"
        assert memory(f"once {number}") == f"ONCE {number}"
    assert worked.count("often") == 1
    memory("once 0")
    assert worked.count("once 0") == 2
    assert len(worked) == 22


def test_rows_are_numbered_however_a_file_is_cut(tmp_path: Path) -> None:
    """What is rejected has the number of its row in the file."""
    table = [to_row(capture(request(n), at(n))) for n in range(20)]
    for number in (3, 17):
        table[number]["v"] = 7
    path = tmp_path / "log.parquet"
    pq.write_table(pa.Table.from_pylist(table, RECORDS), path, row_group_size=4)
    (log,), refused, _ = expand([path])
    assert refused == []
    for size in (1, 5000, 1 << 30):
        found = [each for part in splits([log], size) for each in read(part)]
        assert [each.line for each in found] == list(range(1, 21))
        assert [each.line for each in found if isinstance(each, RejectedRow)] == [4, 18]
    assert len(splits([log], 1)) == 5


def test_columns_of_other_types_and_none(tmp_path: Path) -> None:
    """Absent columns are null, others are cast where nothing is lost: what another tool wrote is read."""
    path = tmp_path / "log.parquet"
    time = pa.array([at(1), at(2)], pa.timestamp("ns", tz="UTC"))
    columns = {
        "v": pa.array([1, 1], pa.int8()),
        "time": time,
        "message_type": pa.array(["message"] * 2, pa.large_string()),
    }
    pq.write_table(pa.table({**columns, "unknown": [1, 2]}), path)
    (log,), *_ = expand([path])
    found = list(read(whole(log)))
    assert [each.record for each in found if isinstance(each, CapturedRecord)] == [
        Record(message=Message(message_type=MessageType.MESSAGE), time=at(n)) for n in (1, 2)
    ]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"a": [1]}), "it has no column v, time, message_type"),
        (pa.table({"v": [[1]], "time": [at(1)], "message_type": ["text"]}), "column v is of type list"),
        (
            pa.table({"v": [1], "time": [at(1)], "message_type": ["text"], "body": [1.5]}),
            "column body is of type double; binary is",
        ),
    ],
)
def test_parquet_of_something_else_is_rejected(tmp_path: Path, table: pa.Table, reason: str) -> None:
    """As a whole, before anything of it is read."""
    pq.write_table(table, tmp_path / "log.parquet")
    logs, (refused,), _ = expand([tmp_path / "log.parquet"])
    assert logs == []
    assert reason in refused.reason


def test_values_that_are_no_such_thing_end_the_reading(tmp_path: Path) -> None:
    """Text in the place of numbers may be numbers; where it is not, the rest of the file is rejected, and said so."""
    columns = {"time": [at(1), at(2)], "message_type": ["message"] * 2}
    pq.write_table(pa.table({"v": ["1", "1"], **columns}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": ["1", "x"], **columns}), tmp_path / "b.parquet", row_group_size=1)
    (good, bad), *_ = expand([tmp_path])
    assert [type(each) for each in read(whole(good))] == [CapturedRecord, CapturedRecord]
    first, second = read(whole(bad))
    assert isinstance(first, CapturedRecord)
    assert isinstance(second, RejectedRow)
    assert second.line == 2
    assert "column v is of type string; int64 is required" in second.reason


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Write a log as Parquet."""
    records = [capture(each, at(n)) for n in range(50) for each in (request(n), response(n))]
    return write_parquet(tmp_path / "good.parquet", records, 10)


def test_broken_parquet_is_rejected(tmp_path: Path, good: Path) -> None:
    """Cut off, or damaged in the middle: what could be read before that is judged."""
    octets = good.read_bytes()
    good.write_bytes(octets[:-100])
    with pytest.raises(NoInputError, match="cannot be read as Parquet"):
        replay(good, tmp_path / "out", engine="local")
    damaged = bytearray(octets)
    damaged[len(octets) // 3 : len(octets) // 3 + 2000] = b"\0" * 2000
    good.write_bytes(damaged)
    assert replay(good, tmp_path / "out", engine="local").exit_status == 1
    found = rows(tmp_path / "out", "rejected")
    assert found
    assert 0 < summary(tmp_path / "out")["records"] < 100


def test_a_body_that_many_rows_have_takes_its_place_in_some_only(tmp_path: Path) -> None:
    """It is in the file once; batches are bounded by what their rows have, and each row is read."""
    body, count = ENVELOPE.format("x" * 500_000).encode(), 100
    table = pa.Table.from_pylist([to_row(capture(request(1, body=body), at(1)))] * count, RECORDS)
    bodies = pa.DictionaryArray.from_arrays(pa.array([0, None] * (count // 2), pa.int32()), pa.array([body]))
    for store in (True, False):  # with the schema of Arrow it is a dictionary in any case
        shared = table.set_column(table.schema.get_field_index("body"), "body", bodies)
        pq.write_table(shared, tmp_path / "a.parquet", store_schema=store)
        assert (tmp_path / "a.parquet").stat().st_size < 100_000
        (log,) = expand([tmp_path]).logs
        batches = [each for each in read_columns(whole(log)) if not isinstance(each, RejectedRow)]
        assert max(each.nbytes for each in batches) < 17 << 20
        assert [each for batch in batches for each in batch.column("body").to_pylist()] == [body, None] * (count // 2)
        assert [each for batch in batches for each in batch.column("line").to_pylist()] == [*range(1, count + 1)]


POOLS: Final[list[pa.MemoryPool]] = []
"""All that were made: what is in their memory may be in use until the end."""


@contextmanager
def counted_memory() -> Iterator[pa.MemoryPool]:
    """Give Arrow memory that knows the most of it that was in use."""
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(usual)


LONG = "x" * 500_000


@pytest.mark.parametrize(
    "fields",
    [
        {"type": LONG},
        {"reply_to": queue(LONG)},
        {"destination": queue(LONG)},
        {"properties": properties({"long": LONG})},
    ],
    ids=lambda fields: next(iter(fields)),
)
@pytest.mark.parametrize("written", [{}, {"store_schema": False, "row_group_size": 70}, {"use_dictionary": False}])
def test_a_text_within_a_column_that_many_rows_have(
    fields: dict[str, Any], written: dict[str, Any], tmp_path: Path
) -> None:
    """As a body; so do texts of which the file has only the difference from the one before."""
    long, short = (
        to_row(capture(replace(request(1), **each), at(1))) for each in (fields, {"destination": queue("short")})
    )
    table = pa.Table.from_pylist([long] * 80 + [short] * 40, RECORDS)
    if "use_dictionary" in written:
        deltas = [path for path in _texts_of(table) if path != "body"]
        written = {**written, "column_encoding": dict.fromkeys(deltas, "DELTA_BYTE_ARRAY")}
    pq.write_table(table, tmp_path / "a.parquet", **written)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    (log,) = expand([tmp_path]).logs
    most = count = octets = 0
    with counted_memory() as pool:
        for each in read_columns(whole(log)):
            assert not isinstance(each, RejectedRow), each.reason
            most, count, octets = max(most, each.nbytes), count + each.num_rows, octets + each.nbytes
    assert (count, octets > 38 << 20) == (120, True)
    assert most < 18 << 20
    assert pool.max_memory() < 80 << 20


def _texts_of(table: pa.Table) -> list[str]:
    """Return the paths of the texts in a file of Parquet."""
    written = BytesIO()
    pq.write_table(table, written)
    schema = pq.read_metadata(written).schema
    columns = map(schema.column, range(len(schema)))
    return [each.path for each in columns if each.physical_type == "BYTE_ARRAY"]


def test_columns_that_no_record_has_are_not_read(good: Path) -> None:
    """Whatever they would take."""
    table = pq.read_table(good)
    numbers = pa.array([[0] * 20_000] * table.num_rows, pa.list_(pa.int8()))
    pq.write_table(table.append_column("numbers", numbers), good)
    (log,) = expand([good]).logs
    with counted_memory() as pool:
        (batch,) = read_columns(whole(log))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == table.num_rows
    assert pool.max_memory() < 1 << 20


class Exhausted(BytesIO):
    """A file that memory does not suffice for, from some octets on."""

    left = 0

    def read(self, size: int | None = -1) -> bytes:
        """Read, as long as there is memory."""
        self.left -= 1
        if self.left < 0:
            raise pa.ArrowMemoryError("malloc of size 9 failed")
        return super().read(size)


@pytest.mark.parametrize("left", range(4))
def test_memory_that_runs_out_is_no_damage(good: Path, left: int) -> None:
    """No row is rejected for it: another machine could read it."""
    (log,) = expand([good]).logs
    stream = Exhausted(good.read_bytes())
    stream.left = left
    with pytest.raises(StoreFailedError, match=r"\.parquet: memory ran out while it was read: malloc of size 9 failed"):
        list(read_columns(whole(log), stream))
    stream.seek(0)
    stream.left = 1
    with pytest.raises(StoreFailedError, match="memory ran out"):
        opened(stream, 0, "x.parquet", "x.parquet")


def test_a_row_with_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row group is rejected before it fills the memory, as null entries take no room in a file; others are read."""
    monkeypatch.setattr(records, "MAX_ROW_ENTRIES", 5000)
    rows_of_log = [to_row(capture(request(n), at(n), Direction.REQUEST)) for n in range(2)]
    rows_of_log[1]["properties"] = [("a", None)] * 8000
    log = tmp_path / "log.parquet"
    pq.write_table(pa.Table.from_pylist(rows_of_log, RECORDS), log, row_group_size=1)
    summary = replay(log, tmp_path / "out", engine="local")
    (refused,) = rows(tmp_path / "out", "rejected")
    assert refused["reason"] == "rows 2 to 2 cannot be read: rows have too many entries"
    assert summary.members["records"] == 1
