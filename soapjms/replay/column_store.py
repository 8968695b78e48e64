"""A database of columns in this process, in a file that compresses them, as they may not fit into memory.

Nothing is read or written elsewhere: statements see no file, no network, and no extension but those built in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from soapjms.replay.parquet import to_batch

PAGE_ROWS: Final = 2000
"""Number of rows that are read at a time."""
MEMORY_LIMIT: Final = "50%"
"""Share of the machine's memory. Two thousand bodies are in memory at a time, several times, however large they are."""


class ColumnStore:
    """Tables of columns.

    Args:
        folder: the folder for the file, which whoever owns the folder deletes; only its owner may read it.
    """

    def __init__(self, folder: Path) -> None:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(folder / "columns"),
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._connection = duckdb.connect(str(folder / "columns.duckdb"), config=settings)
        self._connection.execute("PRAGMA disable_checkpoint_on_shutdown; SET enable_external_access = false")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def execute(self, statement: str, **values: Any) -> None:
        """Execute a statement; `$name` in it stands for a value."""
        self._connection.execute(statement, values or None)

    def create(self, name: str, columns: pa.Schema) -> None:
        """Make an empty table, in place of one that may exist."""
        self._give(f"CREATE OR REPLACE TABLE {name} AS FROM given", columns.empty_table())

    def insert(self, name: str, rows: pa.Table) -> None:
        """Insert rows."""
        self._give(f"INSERT INTO {name} FROM given", rows)

    def insert_rows(self, name: str, rows: list[tuple[Any, ...]], columns: pa.Schema) -> None:
        """Insert rows of values."""
        self.insert(name, pa.Table.from_batches([to_batch(rows, columns)]))

    def _give(self, statement: str, rows: pa.Table) -> None:
        self._connection.register("given", rows)
        self._connection.execute(statement)
        self._connection.unregister("given")

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Read the result of a query page by page; tables may be changed meanwhile."""
        with closing(self._connection.cursor()) as cursor:
            yield from cursor.sql(query).to_arrow_reader(PAGE_ROWS)

    def pages(self, query: str) -> Iterator[Iterator[tuple[Any, ...]]]:
        """Read the result of a query as rows of values, page by page."""
        for batch in self.batches(query):
            yield zip(*(each.to_pylist() for each in batch.columns), strict=True)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Read the result of a query as rows of values."""
        return chain.from_iterable(self.pages(query))

    def count(self, query: str) -> int:
        """Return the number of rows that a query finds."""
        ((number,),) = self.rows(f"SELECT count(*) FROM ({query})")
        return int(number)
