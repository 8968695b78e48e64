"""Records as they are held until their calls are over: columns, and a file for each large body.

An engine of columns works on some thousand rows at a time, so none of them may be large.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from soapjms.protocol.assertions.markup import MAX_MARKUP_OCTETS
from soapjms.replay.columns import COLUMNS, FlatRow
from soapjms.replay.flat_records import FlatRecord
from soapjms.replay.records import column_reader

CONTENTS: Final = pa.schema([("row", pa.int64()), *COLUMNS, ("body_file", pa.string())])
"""A record with its number, and the name of the file that has its body in place of the column."""


def contents_of(given: pa.Table, bodies: Path) -> pa.Table:
    """Return records, with their numbers, as rows of `CONTENTS`.

    Args:
        given: the records: their numbers, and `COLUMNS`.
        bodies: the folder for files of large bodies.
    """
    body = given.column("body")
    is_large = pc.fill_null(pc.greater(pc.binary_length(body), MAX_MARKUP_OCTETS), False)
    if not pc.any(is_large).as_py():
        return given.append_column("body_file", pa.nulls(given.num_rows, pa.string()))
    files: list[str | None] = []
    for octets, large in zip(body, is_large.to_pylist(), strict=True):
        files.append(uuid4().hex if large else None)
        if large:
            (bodies / str(files[-1])).write_bytes(octets.as_buffer())
    small = given.set_column(given.column_names.index("body"), "body", pc.if_else(is_large, None, body))
    return small.append_column("body_file", pa.array(files, pa.string()))


def records_of(contents: pa.RecordBatch, bodies: Path) -> Iterator[FlatRecord]:
    """Read records out of rows of `CONTENTS`; see `contents_of`."""
    rows = contents.select(COLUMNS.names)
    files = contents.column("body_file")
    if files.null_count == len(files):
        yield from _records(rows)
        return
    for number, name in enumerate(files.to_pylist()):
        row = rows.take(pa.array([number]))
        if name is not None:
            octets = pa.array([(bodies / name).read_bytes()], pa.binary())
            row = row.set_column(COLUMNS.names.index("body"), COLUMNS.field("body"), octets)
        yield from _records(row)


def _records(rows: pa.RecordBatch) -> Iterator[FlatRecord]:
    for row in column_reader().rows(rows):
        assert isinstance(row, FlatRow)
        yield row.record
