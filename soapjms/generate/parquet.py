"""Writes generated logs as Parquet, column by column: row by row would take most of the generator's time.

Spec: capture record, version 1, "Parquet".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from soapjms.capture.log import file_name
from soapjms.generate.traffic import TrafficLine
from soapjms.generate.violations import Members
from soapjms.protocol.record import VERSION
from soapjms.replay.parquet import DESTINATION, RECORDS

ROW_GROUP_ROWS: Final = 10_000
"""Number of rows in a row group."""


class ParquetRows:
    """Writes rows in the Parquet form of the capture record."""

    def __init__(self, folder: Path, rotation: int, begun: datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rotation, self._begun = folder, rotation, begun
        self.files: list[Path] = []
        self._lines: list[TrafficLine] = []
        self._part: _Part | None = None

    def add(self, line: TrafficLine) -> None:
        """Take a line."""
        self._lines.append(line)
        if len(self._lines) >= ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        (self._part or self._next_part()).close()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        if self._part is None or self._part.size >= self._rotation:
            if self._part is not None:
                self._part.close()
            self._part = self._next_part()
        self._part.write(lines)

    def _next_part(self) -> _Part:
        self.files.append(self._folder / file_name(self._begun, len(self.files) + 1, ".parquet"))
        return _Part(self.files[-1])


class _Part:
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._writer = pq.ParquetWriter(self._file, RECORDS)

    @property
    def size(self) -> int:
        """The number of octets written so far."""
        return self._file.tell()

    def write(self, lines: Sequence[TrafficLine]) -> None:
        """Write lines as one row group."""
        self._writer.write_batch(batch_of(lines))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()
        self._file.close()


def batch_of(lines: Sequence[TrafficLine]) -> pa.RecordBatch:
    """Turn lines into rows of `RECORDS`."""
    messages = [line.message for line in lines]
    members = [message.members for message in messages]
    columns: dict[str, Any] = {
        "v": [VERSION] * len(lines),
        "time": [line.time for line in lines],
        "direction": [line.direction for line in lines],
        "node": [line.node for line in lines],
        "destination": _structs(DESTINATION, [each.get("destination") for each in members]),
        "jms": _structs(RECORDS.field("jms").type, [each["jms"] for each in members]),
        "properties": _maps("properties", [each["properties"] for each in members]),
        "untyped": [each.get("untyped", False) for each in members],
        "message_type": [each["message_type"] for each in members],
        "body": [_octets(each.members["body"]) for each in messages],
        "truncated": [False] * len(lines),
        "sha256": [each.get("sha256") for each in members],
        "meta": _maps("meta", [each["meta"] for each in members]),
        "extra": [None] * len(lines),
    }
    arrays = [_array(columns[each.name], each.type) for each in RECORDS]
    return pa.record_batch(arrays, RECORDS)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _structs(kind: pa.StructType, values: Sequence[Members | None]) -> pa.Array:
    """Make a column of structs, with a column for each member; None becomes null."""
    inside = []
    for each in kind:
        column = [None if value is None else value.get(each.name) for value in values]
        inside.append(_structs(each.type, column) if pa.types.is_struct(each.type) else pa.array(column, each.type))
    return pa.StructArray.from_arrays(inside, fields=list(kind), mask=pa.array([value is None for value in values]))


def _maps(name: str, values: Sequence[Members]) -> pa.Array:
    """Make a column of maps; the values of `properties` also have their types."""
    kind = RECORDS.field(name).type
    ends = [0]
    for each in values:
        ends.append(ends[-1] + len(each))
    entries = [value for each in values for value in each.values()]
    items = _typed(entries, kind.item_type) if name == "properties" else pa.array(map(_dumps, entries), kind.item_type)
    keys = pa.array((key for each in values for key in each), pa.string())
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, items, kind)


TYPES: Final = {str: "string", bool: "boolean", int: "int"}
"""The JMS types of the property values that the generator makes."""


def _typed(values: Iterable[Any], kind: pa.StructType) -> pa.Array:
    found = [(TYPES[type(value)], value if isinstance(value, str) else _dumps(value)) for value in values]
    types, texts = zip(*found, strict=True) if found else ((), ())
    return pa.StructArray.from_arrays([pa.array(types, pa.string()), pa.array(texts, pa.string())], fields=list(kind))


def _octets(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else _dumps(body)).encode()


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
