"""Records as flat columns: the form in which engines read, sort and count them, however a log is written.

A row of a Parquet log has its structures flattened, without copying; a record of a JSON line is written into the same
columns. Ordinary rows, which nearly all are, are read directly from their columns. Others are read by
`parquet.from_row`, which reports errors.

Spec: capture record, version 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from brokers.message import Properties
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.exchange import Keys, keys, keys_of
from soapjms.protocol.record import VERSION, Direction, Record, check_depth, read_json
from soapjms.protocol.text import reason_of
from soapjms.replay.flat_records import (
    DIRECTIONS,
    KINDS,
    NODES,
    FlatRecord,
    ValueCache,
    flattened,
    microseconds,
    pack_destination,
    pack_json,
    pack_properties,
)
from soapjms.replay.parquet import (
    TIMESTAMP,
    body_octets,
    check_text,
    dumps,
    from_row,
    properties_of,
    value_text,
)

HEADERS: Final = ("delivery_mode", "priority", "expiration", "timestamp", "type", "redelivered")
TEXT, LONG, BOOLEAN = pa.string(), pa.int64(), pa.bool_()

COLUMNS: Final = pa.schema(
    [
        ("line", LONG),
        ("v", LONG),
        ("time", LONG),
        ("direction", TEXT),
        ("node", TEXT),
        ("has_destination", BOOLEAN),
        ("kind", TEXT),
        ("name", TEXT),
        ("message_id", TEXT),
        ("correlation_id", TEXT),
        ("has_reply_to", BOOLEAN),
        ("reply_kind", TEXT),
        ("reply_name", TEXT),
        ("delivery_mode", LONG),
        ("priority", LONG),
        ("expiration", LONG),
        ("timestamp", LONG),
        ("type", TEXT),
        ("redelivered", BOOLEAN),
        ("properties", pa.list_(pa.struct([("name", TEXT), ("type", TEXT), ("value", TEXT)]))),
        ("untyped", BOOLEAN),
        ("message_type", TEXT),
        ("body", pa.binary()),
        ("truncated", BOOLEAN),
        ("sha256", TEXT),
        ("meta", pa.list_(pa.struct([("name", TEXT), ("value", TEXT)]))),
        ("extra", TEXT),
    ]
)
"""The number of the line or row in the log, and the content; times in microseconds since 1970."""

SIMPLE: Final = frozenset({"bytes", "text"})
"""Message types whose body is stored in its column as it is."""
EARLIEST: Final = microseconds(datetime.min.replace(tzinfo=UTC))
LATEST: Final = microseconds(datetime.max.replace(tzinfo=UTC))
"""The range of times that Python supports, in microseconds since 1970."""
MAX_ROW_CHARACTERS: Final = 1 << 16


# Into columns


def columns_of_rows(batch: pa.RecordBatch, line: int) -> pa.RecordBatch:
    """Flatten rows of `parquet.RECORDS`.

    Args:
        batch: the rows.
        line: the number of the first row in their log.
    """
    size = batch.num_rows
    jms = dict(zip((each.name for each in batch.column("jms").type), batch.column("jms").flatten(), strict=True))
    destination, reply_to = batch.column("destination"), jms["reply_to"]
    (kind, name), (reply_kind, reply_name) = destination.flatten(), reply_to.flatten()
    properties, meta = batch.column("properties"), batch.column("meta")
    found = {
        "line": pa.array(range(line, line + size), LONG),
        "time": batch.column("time").cast(LONG),
        "has_destination": destination.is_valid(),
        "kind": kind,
        "name": name,
        "has_reply_to": reply_to.is_valid(),
        "reply_kind": reply_kind,
        "reply_name": reply_name,
        **{each: jms[each] for each in ("message_id", "correlation_id", *HEADERS)},
        "properties": _entries(properties, "properties", [properties.keys, *properties.items.flatten()]),
        "meta": _entries(meta, "meta", [meta.keys, meta.items]),
    }
    columns = [found[each.name] if each.name in found else batch.column(each.name) for each in COLUMNS]
    return pa.record_batch(columns, COLUMNS)


def _entries(column: pa.MapArray, name: str, parts: list[pa.Array]) -> pa.ListArray:
    """Return maps as lists, which may hold a name twice."""
    ends = pa.concat_arrays([column.offsets]) if column.offset else column.offsets
    return _list_column(name, ends, parts, pa.concat_arrays([column.is_null()]) if column.null_count else None)


def _list_column(name: str, ends: pa.Array, parts: list[pa.Array], mask: pa.Array | None = None) -> pa.ListArray:
    """Make a column of lists from the members of all entries, and from where the entries of each row end."""
    kind = COLUMNS.field(name).type
    entries = pa.StructArray.from_arrays(parts, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(ends, entries, kind, mask=mask)


def are_larger(rows: pa.RecordBatch, octets: int) -> pa.Array:
    """Say of each row whether its texts have more octets together.

    Rows are measured one by one only if the longest texts of all columns are so long together, which is seen in a third
    of the time.
    """
    if _most_octets(rows) <= octets:
        return pa.repeat(pa.scalar(False), rows.num_rows)
    return pc.greater(_octets_of_rows(rows), octets)


def _most_octets(rows: pa.RecordBatch) -> int:
    """Return a number of octets that the texts of no row exceed."""
    found = 0
    for each in COLUMNS:
        column = rows.column(each.name)
        if each.name in LISTS:
            entries = pc.max(pc.list_value_length(column)).as_py() or 0
            found += entries * sum(map(_longest, column.flatten().flatten()))
        elif each.type in (TEXT, pa.binary()):
            found += _longest(column)
    return found


def _longest(texts: pa.Array) -> int:
    """Return how many octets the longest text of a column has."""
    longest: int | None = pc.max(pc.binary_length(texts)).as_py()
    return longest or 0


def _octets_of_rows(rows: pa.RecordBatch) -> pa.Array:
    """Return how many octets the texts of each row have together."""
    found = pa.repeat(pa.scalar(0, LONG), rows.num_rows)
    for each in COLUMNS:
        column = rows.column(each.name)
        if each.name in LISTS:
            numbers = pc.fill_null(pc.list_value_length(column), 0)
            ends = pc.cumulative_sum(numbers)
            starts = pc.subtract(ends, numbers)
            for texts in column.flatten().flatten():
                sums = pa.concat_arrays([pa.array([0], LONG), pc.cumulative_sum(_lengths(texts))])
                found = pc.add(found, pc.subtract(sums.take(ends), sums.take(starts)))
        elif each.type in (TEXT, pa.binary()):
            found = pc.add(found, _lengths(column))
    return found


def _lengths(texts: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(texts), 0).cast(LONG)


ListValues: TypeAlias = tuple[Sequence[str | None], ...]
"""What a column of lists has for a row: the names of all entries, and as many of each other member."""


class RecordRow(NamedTuple):
    """A record of a line, as columns hold it; no text has a lone surrogate.

    Attributes:
        values: those of `PLAIN`, the columns that hold one value.
        properties: names, types and values of the properties.
        meta: names and values of its members.
        octets: the length of its line.
    """

    values: tuple[Any, ...]
    properties: ListValues
    meta: ListValues
    octets: int


LISTS: Final = ("properties", "meta")
PLAIN: Final = tuple(name for name in COLUMNS.names if name not in LISTS)


class ColumnWriter:
    """Writes records into columns; nothing is kept for each record but its values, which saves Python much work.

    Attributes:
        octets: the length of all lines.
    """

    def __init__(self) -> None:
        self.octets = 0
        self._values: list[tuple[Any, ...]] = []
        self._lists = {name: _ListWriter(name) for name in LISTS}

    def __len__(self) -> int:
        return len(self._values)

    def add(self, row: RecordRow) -> None:
        """Add a record."""
        self._values.append(row.values)
        self.octets += row.octets
        self._lists["properties"].add(row.properties)
        self._lists["meta"].add(row.meta)

    def batch(self) -> pa.RecordBatch:
        """Return all records that were added, in this order."""
        plain = dict(zip(PLAIN, zip(*self._values, strict=True), strict=True))
        arrays = [
            self._lists[each.name].column() if each.name in LISTS else pa.array(plain[each.name], each.type)
            for each in COLUMNS
        ]
        return pa.record_batch(arrays, COLUMNS)


class _ListWriter:
    """Writes a column of lists: the members of all entries, end to end, and where those of each row end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ends = [0]
        self._members: list[list[str | None]] = [[] for _ in COLUMNS.field(name).type.value_type]

    def add(self, entries: ListValues) -> None:
        """Add the entries of a row."""
        for members, more in zip(self._members, entries, strict=True):
            members.extend(more)
        self._ends.append(len(self._members[0]))

    def column(self) -> pa.ListArray:
        """Return the column."""
        return _list_column(
            self._name, pa.array(self._ends, pa.int32()), [pa.array(each, TEXT) for each in self._members]
        )


def row_of(line: int, record: Record, octets: int) -> RecordRow:
    """Return a record as columns hold it.

    Args:
        line: the number of its line.
        record: the record.
        octets: the length of its line.
    """
    message = record.message
    extra = dumps(dict(record.extra)) if record.extra else None
    values = plain_values(line, microseconds(record.time), record, message, message, body_octets(record), extra)
    return RecordRow(values, list_values(message.properties), meta_values(record.meta), octets)


def plain_values(
    line: int, time: int, record: Any, message: Any, headers: Any, body: bytes | None, extra: str | None
) -> tuple[Any, ...]:
    """Return the values of `PLAIN`.

    Args:
        line: the number of the line.
        time: in microseconds since 1970.
        record: has the attributes of a `Record`, as far as they are not other arguments.
        message: has the destination and what kind of message it is, as a `Message` does.
        headers: has the other headers, as a `Message` does.
        body: as octets.
        extra: unknown members as JSON.
    """
    destination, reply_to = message.destination, headers.reply_to
    return (
        line, VERSION, time, record.direction, record.node,
        destination is not None, destination and destination.kind, destination and destination.name,
        headers.message_id, headers.correlation_id,
        reply_to is not None, reply_to and reply_to.kind, reply_to and reply_to.name,
        headers.delivery_mode, headers.priority, headers.expiration, headers.timestamp, headers.type,
        headers.redelivered, bool(message.untyped), message.message_type, body, bool(record.truncated),
        record.sha256, extra,
    )  # fmt: skip


def meta_values(meta: Mapping[str, Any]) -> ListValues:
    """Return the members of meta as columns hold them."""
    return [*meta], [*map(dumps, meta.values())]


def list_values(properties: Properties) -> ListValues:
    """Return properties as columns hold them."""
    names, kinds, values = zip(*properties, strict=True) if properties else ((), (), ())
    return names, kinds, [*map(value_text, values)]


# Out of columns


class FlatRow(NamedTuple):
    """A record that was read from its columns, with its keys."""

    keys: Keys
    record: FlatRecord


class RefusedRow(NamedTuple):
    """A row that is not a record: the reason, and the row as JSON."""

    reason: str
    raw: str


def flat_row(record: Record) -> FlatRow:
    """Return a record with its keys as `ColumnReader` does."""
    return FlatRow(keys(record), flattened(record))


class ColumnReader:
    """Reads rows. Caches properties and destinations, which most messages repeat. Not thread-safe."""

    def __init__(self) -> None:
        self._properties = ValueCache(_packed_properties, _characters)
        self._meta = ValueCache(_packed_meta, _characters)
        self._destination = ValueCache(_packed_destination, _characters)

    def rows(self, batch: pa.RecordBatch) -> Iterator[FlatRow | RefusedRow]:
        """Read the rows of a batch of `COLUMNS`."""
        try:
            properties, meta = Entries(batch.column("properties")), Entries(batch.column("meta"))
            columns = zip(*(batch.column(name).to_pylist() for name in READ), strict=True)
        except UnicodeDecodeError:  # Arrow does not say in which row
            yield from (self.by_itself(batch, index) for index in range(batch.num_rows))
            return
        for index, row in enumerate(columns):
            found = self._ordinary(row, properties.of(index), meta.of(index))
            yield self.by_itself(batch, index) if found is None else found

    def _ordinary(self, row: tuple[Any, ...], named: Texts, described: Texts) -> FlatRow | None:
        """Read an ordinary, valid row; return None for any other."""
        (
            version, time, direction, node, has_destination, kind, name, message_id, correlation_id,
            has_reply, reply_kind, reply_name, delivery_mode, priority, expiration, timestamp, type_, redelivered,
            untyped, message_type, body, truncated, sha, extra,
        ) = row  # fmt: skip
        properties, meta = self._properties(named), self._meta(described)
        usual = (
            extra is None
            and meta is not None
            and version == VERSION
            and time is not None
            and EARLIEST <= time <= LATEST
            and message_type in SIMPLE
            and direction in DIRECTIONS
            and node in NODES
        )
        if (
            properties is None
            or not usual
            or (sha is not None and body is not None and not truncated and not _fits(body, sha))
        ):
            return None
        try:
            destination = self._destination((kind, name)) if has_destination else None
            reply_to = self._destination((reply_kind, reply_name)) if has_reply else None
            content = body.decode() if message_type == "text" and body is not None else body
        except (KeyError, UnicodeDecodeError):
            return None
        flat = FlatRecord(
            time, direction, node, bool(truncated), sha, meta or None, None, message_type, None, content,
            properties, destination, reply_to, message_id, correlation_id,
            delivery_mode, priority, expiration, timestamp, type_, redelivered, bool(untyped),
        )  # fmt: skip
        asks = has_reply if direction is None else direction == Direction.REQUEST
        found = keys_of(message_id, correlation_id, asks)
        return None if found is None else FlatRow(found, flat)

    def by_itself(self, batch: pa.RecordBatch, index: int) -> FlatRow | RefusedRow:
        """Read one row, whatever it holds."""
        row, problem = _values(batch.slice(index, 1))
        try:
            if problem is not None:
                raise InvalidRecordError(problem)
            record = from_row(row)
            check_text(record)
        except InvalidRecordError as error:
            text = json.dumps(row, default=_shown, ensure_ascii=False)
            return RefusedRow(str(error).encode("utf-8", "backslashreplace").decode(), text[:MAX_ROW_CHARACTERS])
        return flat_row(record)


READ: Final = tuple(name for name in COLUMNS.names if name not in {"line", "properties", "meta"})


def _values(row: pa.RecordBatch) -> tuple[dict[str, Any], str | None]:
    """Return a row in the form of `parquet.from_row`, and the problem with a value that Python cannot hold, which
    becomes None."""
    found: dict[str, Any] = {}
    problem = None
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            (found[name],) = (column.cast(TIMESTAMP) if name == "time" else column).to_pylist()
        except (ValueError, OverflowError) as error:  # not UTF-8; a time beyond Python's years
            found[name], problem = None, f"column {name} cannot be read: {reason_of(error)}"
    reply_to = {"kind": found["reply_kind"], "name": found["reply_name"]} if found["has_reply_to"] else None
    jms = {name: found[name] for name in ("message_id", "correlation_id")}
    return {
        **{name: found[name] for name in ("v", "time", "direction", "node")},
        "destination": {"kind": found["kind"], "name": found["name"]} if found["has_destination"] else None,
        "jms": {**jms, "reply_to": reply_to, **{name: found[name] for name in HEADERS}},
        "properties": [(each["name"], _without_name(each)) for each in found["properties"] or ()],
        **{name: found[name] for name in ("untyped", "message_type", "body", "truncated", "sha256")},
        "meta": [(each["name"], each["value"]) for each in found["meta"] or ()],
        "extra": found["extra"],
    }, problem


def _without_name(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": entry["type"], "value": entry["value"]}


def _characters(texts: Texts) -> int:
    return sum(len(each or "") for each in texts)


def _packed_properties(named: Texts) -> bytes | None:
    """Pack the properties of a row; return None if they are invalid."""
    third = len(named) // 3
    entries = zip(named[:third], named[third : 2 * third], named[2 * third :], strict=True)
    try:
        read = properties_of((name or "", {"type": kind, "value": value}) for name, kind, value in entries)
    except InvalidRecordError:
        return None
    return pack_properties(read)


def _packed_meta(described: Texts) -> str | None:
    """Pack the meta of a row, "" if it is empty; return None if it is invalid."""
    half = len(described) // 2
    try:
        members = {
            name or "": read_json(text or "") for name, text in zip(described[:half], described[half:], strict=True)
        }
        check_depth({"meta": members})
        if any("\\u" in (text or "") for text in described[half:]):
            return None  # it may be a lone surrogate
    except InvalidRecordError:
        return None
    return pack_json(members) or ""


def _packed_destination(place: Texts) -> bytes:
    """Pack a destination.

    Raises:
        KeyError: there is no such kind of destination.
    """
    kind, name = place
    return pack_destination(str(KINDS[kind or ""]), name)


def _fits(body: bytes, digest: str) -> bool:
    return sha256(body).hexdigest() == digest.lower()


def _shown(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


Texts: TypeAlias = tuple[str | None, ...]


class Entries:
    """The entries in the lists of a column, end to end, and where those of each row end.

    Args:
        column: one of the types of `COLUMNS`.
    """

    def __init__(self, column: pa.ListArray) -> None:
        self._ends = column.offsets.to_pylist()
        self._columns = [each.to_pylist() for each in column.values.flatten()]

    def of(self, index: int) -> Texts:
        """Return the entries of one row: those of the first member, then those of the next."""
        start, end = self._ends[index], self._ends[index + 1]
        return tuple([value for column in self._columns for value in column[start:end]]) if start != end else ()

    def __iter__(self) -> Iterator[tuple[Texts, ...]]:
        """Yield the entries of each row, each with its members."""
        for start, end in pairwise(self._ends):
            yield tuple(zip(*(column[start:end] for column in self._columns), strict=True))
