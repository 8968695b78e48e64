"""Records, verdicts and rejected lines as rows: their Arrow schemas, and capture records in Parquet.

A record's row and its JSON line have the same content; `to_row` and `from_row` convert without loss.

Reading rows in numbers is the work of `columns.py`. Engines do not belong here, and no file is opened.

Spec: capture record, version 1, "Parquet" and "Verdicts".
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any, Final

import pyarrow as pa

from brokers.message import MessageType, Properties, Property, PropertyType, PropertyValue
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import (
    MEMBERS,
    NON_FINITE,
    VERSION,
    Record,
    check_depth,
    format_time,
    from_members,
    read_json,
    read_properties,
    to_members,
    union,
)
from soapjms.protocol.text import reason_of

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


BATCH_ROWS: Final = 1000
BATCH_OCTETS: Final = 4 << 20


def row_octets(row: tuple[Any, ...]) -> int:
    """Return about how many octets the texts of a row have."""
    return sum([len(value) for value in row if isinstance(value, str | bytes)])


def to_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Collect rows into batches of bounded size."""
    waiting: list[tuple[Any, ...]] = []
    octets = 0
    for row in rows:
        waiting.append(row)
        octets += row_octets(row)
        if len(waiting) >= BATCH_ROWS or octets >= BATCH_OCTETS:
            yield to_batch(waiting, schema)
            waiting, octets = [], 0
    if waiting:
        yield to_batch(waiting, schema)


def check_text(record: Record) -> None:
    """Refuse a record with a lone surrogate in a string, which no row can carry.

    Raises:
        InvalidRecordError: the record has one; the text says where.
    """
    for name, value in to_members(record).items():
        place = "the name of a member" if _is_broken(name) else _lone_surrogate(value, name)
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
        "body": body_octets(record),
        "truncated": record.truncated,
        "sha256": record.sha256,
        "meta": [(name, dumps(value)) for name, value in record.meta.items()],
        "extra": dumps(dict(record.extra)) if record.extra else None,
    }


def _known(value: Mapping[str, Any] | None, kind: pa.StructType) -> Any:
    """Keep a struct's own members; unknown ones are stored in `extra`."""
    return None if value is None else {each.name: value.get(each.name) for each in kind}


def _value_of(entry: Property) -> dict[str, str | None]:
    return {"type": entry.type, "value": value_text(entry.value)}


def value_text(value: PropertyValue) -> str | None:
    """Write the value of a property: a string as it is, anything else as JSON."""
    return value if value is None or isinstance(value, str) else dumps(value)


def body_octets(record: Record) -> bytes | None:
    """Return the body of a record as octets; that of a map or a stream is JSON."""
    body = record.message.body
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return dumps(to_members(record)["body"]).encode()


def dumps(value: Any) -> str:
    """Write JSON as the columns hold it."""
    return ENCODER.encode(value)


ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


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
        raise InvalidRecordError(f"column {column} is not UTF-8: {reason_of(error)}") from None


def _loads(column: str, text: str) -> Any:
    try:
        return read_json(text)
    except InvalidRecordError as error:
        raise InvalidRecordError(f"column {column} is {error}") from None


REQUIRED: Final = ("v", "time", "message_type")
"""Columns that every file of capture records has."""
MAX_REASON_CHARACTERS: Final = 1000


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
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type, safe=field.name != "time")  # nanoseconds are cut to microseconds
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = f"column {field.name} is of type {column.type}; {field.type} is required: {error}"
        raise InvalidRecordError(reason[:MAX_REASON_CHARACTERS]) from None
