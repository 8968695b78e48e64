"""A database of columns in this process, in a file that compresses them, as they may not fit into memory.

Nothing is read or written elsewhere: statements see no file, no network, and no extension but those built in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import duckdb
import pyarrow as pa

from soapjms.replay.errors import StoreFailedError

PAGE_ROWS: Final = 2000
"""Number of rows that are read at a time."""
WAITING_ROWS: Final = 122_880
"""Number of rows from which on they wait no longer: as many as the engine takes together."""
WAITING_OCTETS: Final = 32 << 20
WAITING_TABLES: Final = 256
"""Number of tables that may wait, as each needs some memory however few rows it has."""
MEMORY_LIMIT: Final = "1GB"


INTERRUPTED: Final = "Query interrupted"
"""The text of the error that the engine raises in place of KeyboardInterrupt."""
CORES_OF_CONTAINER: Final = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)
"""Where a container sees its limit of processor time, by version of control groups: microseconds in a period of
microseconds; "max" or -1 if there is none."""
MEMORY_OF_CONTAINER: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where a container sees its limit of memory, in octets, by version of control groups."""
MIN_RUN_OCTETS: Final = 1 << 30
MAX_RUN_OCTETS: Final = 8 << 30
"""Limits of the memory that the store of a whole run may take."""


def cores() -> int:
    """Return how many cores this process may use, by its own limit and by that of its container."""
    found = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    for files in CORES_OF_CONTAINER:
        with suppress(OSError, ValueError, ZeroDivisionError):  # there is no limit
            limit, period = map(int, " ".join(each.read_text("ascii") for each in files).split())
            found = min(found, -(-limit // period)) if limit > 0 else found
    return found


def memory_of_run() -> str:
    """Return the memory limit for the store of a whole run, as `ColumnStore` takes it.

    It is a quarter of the memory of this machine or its container, within `MIN_RUN_OCTETS` and `MAX_RUN_OCTETS`.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in MEMORY_OF_CONTAINER:
        with suppress(OSError, ValueError):  # there is none, or it is "max"
            found = min(found, int(limit.read_text("ascii")))
    return f"{min(MAX_RUN_OCTETS, max(MIN_RUN_OCTETS, found // 4))}B"


def settings(threads: int) -> dict[str, str | bool | int | float | list[str]]:
    """Return settings of the engine: it uses no extensions but those built in.

    Args:
        threads: how many threads work on a statement.
    """
    return {
        "threads": threads,
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def widened(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return a batch with all columns of a schema; those that it does not have are null."""
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    values = (
        given[each.name].cast(each.type) if each.name in given else pa.nulls(batch.num_rows, each.type)
        for each in columns
    )
    return pa.record_batch([*values], columns)


@contextmanager
def failures_told() -> Iterator[None]:
    """Turn errors of the engine that are no mistakes in a statement into ours.

    Raises:
        StoreFailedError: there is too little memory or disk space.
        KeyboardInterrupt: Ctrl-C ended a statement.
    """
    try:
        yield
    except (duckdb.OperationalError, duckdb.FatalException) as error:  # the latter if it cannot write its own file
        raise StoreFailedError(f"what is kept in between cannot be stored: {error}") from error
    except (RuntimeError, duckdb.InterruptException) as error:
        if str(error) == INTERRUPTED or isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from None
        raise


class WaitingRows:
    """Rows that wait for others, as a statement has its price however few rows it is for.

    Args:
        octets: the size from which on they wait no longer.
    """

    def __init__(self, octets: int = WAITING_OCTETS) -> None:
        self._most = octets
        self._all: list[pa.Table] = []
        self._rows = self._octets = 0

    def add(self, rows: pa.RecordBatch | pa.Table) -> Iterator[pa.Table]:
        """Add rows; yield all that wait, if they are enough."""
        if not rows.num_rows:
            return
        self._all.append(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]))
        self._rows, self._octets = self._rows + rows.num_rows, self._octets + rows.nbytes
        if self._rows >= WAITING_ROWS or self._octets >= self._most or len(self._all) >= WAITING_TABLES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """Yield all that wait, if there are any."""
        if self._all:
            yield pa.concat_tables(self._all)
            self._all.clear()
            self._rows = self._octets = 0


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of batches, those of small ones together."""
    waiting = WaitingRows()
    for batch in batches:
        yield from waiting.add(batch)
    yield from waiting.rest()


class ColumnStore:
    """Tables of columns.

    Args:
        folder: the folder for files, which exists, and which its owner deletes; nobody else may read it.
        threads: how many threads work on a statement; None for one on each core.
        in_memory: whether a file is only made for what does not fit into memory.
        memory: how much memory it may take; None for `MEMORY_LIMIT`.
    """

    def __init__(
        self, folder: Path, threads: int | None = None, *, in_memory: bool = False, memory: str | None = None
    ) -> None:
        self._folder = folder
        spilled = folder / f"columns-{uuid4().hex}"  # one for each store, as they would use the same names in it
        config = {
            **settings(threads or cores()),
            "memory_limit": memory or MEMORY_LIMIT,
            "temp_directory": str(spilled),
        }
        self._connection = duckdb.connect(":memory:" if in_memory else str(folder / "columns.duckdb"), config=config)
        self._connection.execute("PRAGMA disable_checkpoint_on_shutdown; SET enable_external_access = false")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Carry out all statements of a block, or none; `rows` does not see their results before its end."""
        self._connection.begin()
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def define(self, name: str, query: str, kind: str = "TABLE") -> None:
        """Make a table of the result of a query, in place of one that may exist.

        Args:
            name: its name.
            query: the query.
            kind: `TEMP TABLE` for one that is not written to the file, `VIEW` for none at all.
        """
        self._connection.execute(f"CREATE OR REPLACE {kind} {name} AS {query}")

    def drop(self, name: str) -> None:
        """Remove a table."""
        self._connection.execute(f"DROP TABLE {name}")

    def lend(self, name: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Let queries read rows, which are not copied, until others are lent by this name."""
        self._connection.register(name, rows)

    def insert_from(self, name: str, query: str) -> None:
        """Insert the result of a query, which has the columns of the table in their order."""
        self._connection.execute(f"INSERT INTO {name} {query}")

    def delete(self, name: str, condition: str) -> None:
        """Delete the rows of a table that meet a condition."""
        self._connection.execute(f"DELETE FROM {name} WHERE {condition}")

    def create(self, name: str, columns: pa.Schema) -> None:
        """Make an empty table, in place of one that may exist."""
        self._give(f"CREATE OR REPLACE TABLE {name} AS FROM given", columns.empty_table())

    def insert(self, name: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Insert rows."""
        self._give(f"INSERT INTO {name} FROM given", rows)

    def insert_batches(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Insert batches."""
        for rows in gathered(batches):
            self.insert(name, rows)

    def _give(self, statement: str, rows: pa.RecordBatch | pa.Table) -> None:
        self._connection.register("given", rows)
        self._connection.execute(statement)
        self._connection.unregister("given")

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Read the result of a query at once; it may read temporary tables, and what was lent."""
        return self._connection.sql(query).fetchall()

    def table(self, query: str, columns: pa.Schema) -> pa.Table:
        """Read the result of a query at once, with the types of these columns."""
        return self._connection.sql(query).to_arrow_table().cast(columns)

    def batches(self, query: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Read the result of a query as batches, page by page; tables must not be changed meanwhile.

        Args:
            query: the query.
            columns: the columns of the batches; those that the query does not have are null.
        """
        for batch in self._connection.sql(query).to_arrow_reader(PAGE_ROWS):
            yield widened(batch, columns)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Read the result of a query as rows of values, page by page; tables may be changed meanwhile."""
        with closing(self._connection.cursor()) as cursor:
            for batch in cursor.sql(query).to_arrow_reader(PAGE_ROWS):
                yield from zip(*(each.to_pylist() for each in batch.columns), strict=True)
