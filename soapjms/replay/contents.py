"""Records as they are held until their calls are over: columns, and a file for each large record.

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
from soapjms.replay.column_store import widened
from soapjms.replay.columns import COLUMNS, FlatRow, are_larger
from soapjms.replay.flat_records import FlatRecord, flat_of, pack
from soapjms.replay.output import sync
from soapjms.replay.records import column_reader

CONTENTS: Final = pa.schema([("row", pa.int64()), *COLUMNS, ("record_file", pa.string())])
"""A record with its number; or, for a large one, the name of the file that has it, in place of all but its position."""
POSITION: Final = ("row", "line")


def contents_of(given: pa.Table, folder: Path) -> pa.Table:
    """Return records, with their numbers, as rows of `CONTENTS`.

    Args:
        given: the records, at least one: their numbers, and `COLUMNS`.
        folder: the folder for the files of large ones.
    """
    (batch,) = given.combine_chunks().to_batches()
    is_large = are_larger(batch, MAX_MARKUP_OCTETS)
    if not pc.any(is_large).as_py():
        return pa.Table.from_batches([widened(batch, CONTENTS)])
    large = batch.filter(is_large)
    files: list[str | None] = []
    for row in column_reader().rows(large.select(COLUMNS.names)):
        files.append(None)
        if isinstance(row, FlatRow):  # else it is no record
            files[-1] = name = uuid4().hex
            (folder / name).write_bytes(pack(row.record))
            sync(folder / name)
    positions = [large.column(name) for name in POSITION]
    named = pa.record_batch([*positions, pa.array(files, pa.string())], [*POSITION, "record_file"])
    usual = batch.filter(pc.invert(is_large))
    return pa.Table.from_batches([widened(usual, CONTENTS), widened(named, CONTENTS)])


def records_of(contents: pa.RecordBatch, folder: Path) -> Iterator[FlatRecord]:
    """Read records out of rows of `CONTENTS`; see `contents_of`."""
    files = contents.column("record_file")
    usual = column_reader().rows(contents.filter(files.is_null()).select(COLUMNS.names))
    for name in files.to_pylist():
        if name is not None:
            yield flat_of((folder / name).read_bytes())
            continue
        row = next(usual)
        assert isinstance(row, FlatRow)
        yield row.record
