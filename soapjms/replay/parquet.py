"""Records, verdicts and rejected lines as rows: their Arrow schemas, and capture records in Parquet.

A record's row and its JSON line have the same content; `to_row` and `from_row` convert without loss.

Parquet is read column by column, as reading row by row would take most of the time of a run. Ordinary rows, which
nearly all are, are packed directly from their columns. Others are read by `from_row`, which reports errors. Engines do
not belong here, and no file is opened.

Spec: capture record, version 1, "Parquet" and "Verdicts".
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from brokers.message import MessageType, Properties, Property, PropertyType
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.exchange import Keys, keys, keys_of
from soapjms.protocol.record import (
    MEMBERS,
    NON_FINITE,
    VERSION,
    Direction,
    Record,
    check_depth,
    format_time,
    from_members,
    read_json,
    read_properties,
    to_members,
    union,
)
from soapjms.replay.bundles import (
    DIRECTIONS,
    KINDS,
    NODES,
    ValueCache,
    microseconds,
    pack,
    pack_destination,
    pack_json,
    pack_members,
    pack_properties,
)

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
STRINGS: Final = pa.list_(pa.field("element", pa.string()))
DESTINATION: Final = pa.struct([("kind", pa.string()), ("name", pa.string())])

RECORDS: Final = pa.schema(
    [
        ("v", pa.int64()),
        ("time", TIMESTAMP),
        ("direction", pa.string()),
        ("node", pa.string()),
        ("destination", DESTINATION),
        (
            "jms",
            pa.struct(
                [
                    ("message_id", pa.string()),
                    ("correlation_id", pa.string()),
                    ("reply_to", DESTINATION),
                    ("delivery_mode", pa.int64()),
                    ("priority", pa.int64()),
                    ("expiration", pa.int64()),
                    ("timestamp", pa.int64()),
                    ("type", pa.string()),
                    ("redelivered", pa.bool_()),
                ]
            ),
        ),
        ("properties", pa.map_(pa.string(), pa.struct([("type", pa.string()), ("value", pa.string())]))),
        ("untyped", pa.bool_()),
        ("message_type", pa.string()),
        ("body", pa.binary()),
        ("truncated", pa.bool_()),
        ("sha256", pa.string()),
        ("meta", pa.map_(pa.string(), pa.string())),
        ("extra", pa.string()),
    ]
)
"""The Parquet form of a capture record. `types` has no column: each property's struct holds its type."""

VERDICTS: Final = pa.schema(
    [
        ("exchange_id", pa.string()),
        ("message_id", pa.string()),
        ("time", TIMESTAMP),
        ("destination", pa.string()),
        ("assertion", pa.string()),
        ("level", pa.string()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("expected_subcodes", STRINGS),
        ("observed_subcode", pa.string()),
    ]
)

REJECTED: Final = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("raw", pa.string())]
)


def to_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Turn rows, with values in the order of the columns, into one batch."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    return pa.record_batch([pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)], schema)


def check_text(record: Record) -> None:
    """Refuse a record with a lone surrogate in a string, which no row can carry.

    Raises:
        InvalidRecordError: the record has one; the text says where.
    """
    for name, value in to_members(record).items():
        place = _lone_surrogate(value, name)
        if place is not None:
            raise InvalidRecordError(f"{place} holds a lone surrogate, which UTF-8 cannot carry")


def _lone_surrogate(value: Any, place: str) -> str | None:
    if isinstance(value, str):
        return place if _is_broken(value) else None
    if isinstance(value, dict):
        for name, each in value.items():
            found = f"a name in {place}" if _is_broken(name) else _lone_surrogate(each, f"{place}.{name}")
            if found is not None:
                return found
    if isinstance(value, list):
        for index, each in enumerate(value):
            found = _lone_surrogate(each, f"{place}[{index}]")
            if found is not None:
                return found
    return None


def _is_broken(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def to_row(record: Record) -> dict[str, Any]:
    """Return a record as a row of `RECORDS`.

    Raises:
        InvalidRecordError: a string in it holds a lone surrogate, which UTF-8 and so Parquet cannot carry.
    """
    check_text(record)
    members = to_members(record)
    jms = members["jms"]
    return {
        "v": VERSION,
        "time": record.time,
        "direction": record.direction,
        "node": record.node,
        "destination": _known(members.get("destination"), DESTINATION),
        "jms": {**_known(jms, RECORDS.field("jms").type), "reply_to": _known(jms.get("reply_to"), DESTINATION)},
        "properties": [(each.name, _value_of(each)) for each in record.message.properties],
        "untyped": record.message.untyped,
        "message_type": record.message.message_type,
        "body": _body_octets(record.message.message_type, members.get("body")),
        "truncated": record.truncated,
        "sha256": record.sha256,
        "meta": [(name, _dumps(value)) for name, value in record.meta.items()],
        "extra": _dumps(dict(record.extra)) if record.extra else None,
    }


def _known(value: Mapping[str, Any] | None, kind: pa.StructType) -> Any:
    """Keep a struct's own members; unknown ones are stored in `extra`."""
    return None if value is None else {each.name: value.get(each.name) for each in kind}


def _value_of(entry: Property) -> dict[str, str | None]:
    value = entry.value
    return {"type": entry.type, "value": value if value is None or isinstance(value, str) else _dumps(value)}


def _body_octets(kind: MessageType, body: Any) -> bytes | None:
    """Return the member `body` of a record as octets."""
    if body is None:
        return None
    if kind in (MessageType.MAP, MessageType.STREAM):
        return _dumps(body).encode()
    assert isinstance(body, str)
    return body.encode() if kind is MessageType.TEXT else b64decode(body)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def from_row(row: Mapping[str, Any]) -> Record:
    """Read a record from a row in the form of pyarrow's `to_pylist` (maps as pairs).

    Absent columns count as null; columns that this version does not know are dropped.

    Raises:
        InvalidRecordError: a column does not follow the format.
    """
    time = row.get("time")
    members = {name: row[name] for name in PLAIN_COLUMNS if row.get(name) is not None}
    members["time"] = None if time is None else format_time(time if time.tzinfo else time.replace(tzinfo=UTC))
    members["properties"], members["types"] = _typed(row.get("properties") or ())
    members["meta"] = {name: _loads(f"meta.{name}", value or "") for name, value in row.get("meta") or ()}
    if row.get("body") is not None:
        members["body"] = _body_member(row.get("message_type"), row["body"])
    extra = _loads("extra", row.get("extra") or "{}")
    if not isinstance(extra, dict):
        raise InvalidRecordError(f"column extra is not a JSON object but {type(extra).__name__}")
    members = union(members, extra)
    check_depth(members)
    return from_members(members)


def properties_of(entries: Iterable[tuple[str, Mapping[str, str | None]]]) -> Properties:
    """Read the properties of a row.

    Raises:
        InvalidRecordError: one of them is not a valid property.
    """
    return read_properties(*_typed(entries))


PLAIN_COLUMNS: Final = MEMBERS - {"time", "properties", "types", "body", "meta"}


def _typed(entries: Any) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    types: dict[str, str] = {}
    for name, entry in entries:
        if entry is None or entry["type"] is None:
            raise InvalidRecordError(f"column properties.{name} has no type")
        kind, text = entry["type"], entry["value"]
        types[name] = kind
        as_it_is = text is None or kind == PropertyType.STRING or text in NON_FINITE
        values[name] = text if as_it_is else _loads(f"properties.{name}", text)
    return values, types


def _body_member(kind: str | None, octets: bytes) -> Any:
    if kind == MessageType.TEXT:
        return _text("body", octets)
    if kind in (MessageType.MAP, MessageType.STREAM):
        return _loads("body", _text("body", octets))
    return b64encode(octets).decode("ascii")


def _text(column: str, octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise InvalidRecordError(f"column {column} is not UTF-8: {error}") from None


def _loads(column: str, text: str) -> Any:
    try:
        return read_json(text)
    except InvalidRecordError as error:
        raise InvalidRecordError(f"column {column} is {error}") from None


REQUIRED: Final = ("v", "time", "message_type")
"""Columns that every file of capture records has."""
SIMPLE: Final = frozenset({"bytes", "text"})
"""Message types whose body is stored in its column as it is."""
EARLIEST: Final = microseconds(datetime.min.replace(tzinfo=UTC))
LATEST: Final = microseconds(datetime.max.replace(tzinfo=UTC))
"""The range of times that Python supports, in microseconds since 1970."""
MAX_REASON_CHARACTERS: Final = 1000
MAX_ROW_CHARACTERS: Final = 1 << 16


class PackedRow(NamedTuple):
    """A record as engines move it: its keys, its time in microseconds since 1970, and all of it as octets."""

    keys: Keys
    time: int
    packed: bytes


class RefusedRow(NamedTuple):
    """A row that is not a record: the reason, and the row as JSON."""

    reason: str
    raw: str


def packed_row(record: Record) -> PackedRow:
    """Pack a record."""
    return PackedRow(keys(record), microseconds(record.time), pack(record))


def schema_problem(schema: pa.Schema) -> str | None:
    """Say why a Parquet file cannot hold capture records; None if it can."""
    missing = [name for name in REQUIRED if name not in schema.names]
    if missing:
        return f"a Parquet file of something else: it has no column {', '.join(missing)}"
    try:
        as_records(pa.record_batch([pa.nulls(0, each.type) for each in schema], schema))
    except InvalidRecordError as error:
        return str(error)
    return None


def as_records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch to the columns of `RECORDS`: absent columns become null, unknown ones are dropped.

    Raises:
        InvalidRecordError: a column has another type.
    """
    return pa.record_batch([_column(batch, field) for field in RECORDS], RECORDS)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    found = batch.schema.get_field_index(field.name)
    if found < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(found)
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type, safe=field.name != "time")  # nanoseconds are cut to microseconds
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = f"column {field.name} is of type {column.type}; {field.type} is required: {error}"
        raise InvalidRecordError(reason[:MAX_REASON_CHARACTERS]) from None


class Packer:
    """Packs rows. Caches properties and destinations, which most messages repeat."""

    def __init__(self) -> None:
        self._properties = ValueCache(_packed_properties, _characters)
        self._meta = ValueCache(_packed_meta, _characters)
        self._destination = ValueCache(_packed_destination, _characters)

    def rows(self, batch: pa.RecordBatch) -> Iterator[PackedRow | RefusedRow]:
        """Pack the rows of a batch of `RECORDS`."""
        try:
            entries, columns = _Entries(batch), zip(*_lists(batch), strict=True)
        except UnicodeDecodeError:  # Arrow does not say in which row
            yield from (self._by_itself(batch, index) for index in range(batch.num_rows))
            return
        for index, row in enumerate(columns):
            packed = self._packed(row, entries.properties(index), entries.meta(index))
            yield self._by_itself(batch, index) if packed is None else packed

    def _packed(self, row: tuple[Any, ...], named: Texts, described: Texts) -> PackedRow | None:
        """Pack an ordinary, valid row; return None for any other."""
        (
            version, time, direction, node, message_type, body, truncated, sha, untyped, extra,
            has_destination, kind, name, message_id, correlation_id, has_reply, reply_kind, reply_name,
            delivery_mode, priority, expiration, timestamp, type_, redelivered,
        ) = row  # fmt: skip
        properties, meta = self._properties(named), self._meta(described)
        usual = (
            extra is None
            and meta is not None
            and version == VERSION
            and time is not None
            and EARLIEST <= time <= LATEST
            and message_type in SIMPLE
            and properties is not None
            and direction in DIRECTIONS
            and node in NODES
        )
        if not usual or (sha is not None and body is not None and not truncated and not _fits(body, sha)):
            return None
        try:
            destination = self._destination((kind, name)) if has_destination else None
            reply_to = self._destination((reply_kind, reply_name)) if has_reply else None
            content = body.decode() if message_type == "text" and body is not None else body
        except (KeyError, UnicodeDecodeError):
            return None
        octets = pack_members(
            time, direction, node, bool(truncated), sha, meta or None, None, message_type, None, content,
            properties, destination, reply_to, message_id, correlation_id,
            delivery_mode, priority, expiration, timestamp, type_, redelivered, bool(untyped),
        )  # fmt: skip
        asks = has_reply if direction is None else direction == Direction.REQUEST
        found = keys_of(message_id, correlation_id, asks)
        return None if found is None else PackedRow(found, time, octets)

    def _by_itself(self, batch: pa.RecordBatch, index: int) -> PackedRow | RefusedRow:
        row, problem = _values(batch.slice(index, 1))
        try:
            if problem is not None:
                raise InvalidRecordError(problem)
            record = from_row(row)
            check_text(record)
        except InvalidRecordError as error:
            text = json.dumps(row, default=_shown, ensure_ascii=False)
            return RefusedRow(str(error).encode("utf-8", "backslashreplace").decode(), text[:MAX_ROW_CHARACTERS])
        return packed_row(record)


def _values(batch: pa.RecordBatch) -> tuple[dict[str, Any], str | None]:
    """Return the values of a row, and the problem with a value that Python cannot hold, which becomes None."""
    row: dict[str, Any] = {}
    problem = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            (row[name],) = column.to_pylist()
        except (ValueError, OverflowError) as error:  # not UTF-8; a time beyond Python's years
            row[name], problem = None, f"column {name} cannot be read: {error}"
    return row, problem


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


class _Entries:
    """The maps of each row, as one tuple of their names and entries."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        properties, meta = batch.column("properties"), batch.column("meta")
        types, values = properties.items.flatten()
        self._properties = _Flat(properties.offsets, properties.keys, types, values)
        self._meta = _Flat(meta.offsets, meta.keys, meta.items)

    def properties(self, index: int) -> Texts:
        """Return the properties of one row: names, types and values."""
        return self._properties.of(index)

    def meta(self, index: int) -> Texts:
        """Return the meta of one row: names and values."""
        return self._meta.of(index)


class _Flat:
    """The entries in the maps of a column, end to end, and where those of each row end."""

    def __init__(self, offsets: pa.Array, *columns: pa.Array) -> None:
        self._ends = offsets.to_pylist()
        self._columns = [each.to_pylist() for each in columns]

    def of(self, index: int) -> Texts:
        """Return the entries of one row: those of the first column, then those of the next."""
        start, end = self._ends[index], self._ends[index + 1]
        return tuple([value for column in self._columns for value in column[start:end]]) if start != end else ()


def _lists(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield the columns that `Packer` reads, as lists."""
    for name in ("v", "time", "direction", "node", "message_type", "body", "truncated", "sha256", "untyped", "extra"):
        column = batch.column(name)
        yield (column.cast(pa.int64()) if name == "time" else column).to_pylist()
    destination, jms = batch.column("destination"), batch.column("jms")
    yield destination.is_valid().to_pylist()
    yield from (each.to_pylist() for each in destination.flatten())
    inside = dict(zip((each.name for each in jms.type), jms.flatten(), strict=True))
    reply_to = inside.pop("reply_to")
    for name in ("message_id", "correlation_id"):
        yield inside.pop(name).to_pylist()
    yield reply_to.is_valid().to_pylist()
    yield from (each.to_pylist() for each in reply_to.flatten())
    yield from (each.to_pylist() for each in inside.values())
