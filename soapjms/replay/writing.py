"""Files of results, each of which is there as a whole or not at all: rows on their way into Parquet, and texts."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from soapjms.replay.schema import to_batch

BATCH: Final = 2000
PART: Final = "part-00000.parquet"
"""The file of rows that one process writes."""


def write_text(path: Path, text: str) -> None:
    """Write a file that is on the disk when it has its name; what was begun has a name that begins with a dot."""
    part = _beside(path)
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex}")


class Rows:
    """A Parquet file, written in batches; also without rows it says its columns.

    It has its name when the block ends well: who writes it again, after a failure or beside another, puts his in its
    place. What was begun and not ended has a name that begins with a dot.

    Args:
        path: the file.
        schema: its columns.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._part = _beside(path)
        self._writer = pq.ParquetWriter(self._part, schema)
        self._waiting: list[tuple[Any, ...]] = []

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()
        if kind is None:
            self._part.rename(self._path)
        else:
            self._part.unlink()

    def write(self, row: tuple[Any, ...]) -> None:
        """Write one row, its values in the order of the columns."""
        self._waiting.append(row)
        if len(self._waiting) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_batch(to_batch(self._waiting, self._schema))
        self._waiting.clear()
