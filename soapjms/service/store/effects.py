"""The connection behind `request.transaction`: what a service may do with it, and how long it may hold it.

A lock keeps a function's statement and the end of its transaction from outside, when its time is over, apart. Which
request gets a transaction, and what is committed, is decided in `soapjms.service.store.sqlite`.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sys import getrefcount
from threading import RLock
from typing import Any, Final, NoReturn, ParamSpec, Self, TypeVar

from soapjms.protocol.errors import StoreError, UsageError
from soapjms.service.store.tables import PREFIX, Results, connected

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPT_SECONDS: Final = 0.05
"""Seconds between two tries to interrupt a statement."""

NOT_THE_FUNCTIONS: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    | {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL}
)
"""Codes of errors of the file, not of the function. SQLITE_LOCKED is not among them, as only the function itself can
cause it, and neither is SQLITE_INTERRUPT: a transaction that is broken off raises a UsageError instead."""

NOT_YOURS: Final = (
    "{} must not be called on request.transaction: it is committed together with the request once the function "
    "returned, and rolled back if the function raises"
)
ENDED: Final = "request.transaction has ended: with its function, or by an error of the database"
TOO_LONG: Final = (
    "request.transaction was rolled back, as its function had it for longer than {:g} s, and nobody else could write: "
    "use it late, or give the store a longer transaction_timeout"
)
ROLLED_BACK: Final = "request.transaction was rolled back by an error of the database while its function ran{}"


FORBIDDEN: Final = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})
TEMPORARY: Final = frozenset(
    {sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_TEMP_VIEW}
    | {sqlite3.SQLITE_CREATE_TEMP_TRIGGER, sqlite3.SQLITE_CREATE_TEMP_INDEX}
)
"""What makes things that last as long as the connection, and may hide our tables."""

WRITING: Final = frozenset(
    {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE}
    | {sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_CREATE_INDEX}
    | TEMPORARY
)
PRAGMAS: Final = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
    | {"foreign_key_check", "integrity_check", "quick_check", "defer_foreign_keys"}
)
"""The only ones that a service may give a value to: they read, or hold for the transaction alone."""


REFUSED: Final = (
    *("commit", "rollback", "close", "executescript"),  # they end the transaction
    *("set_authorizer", "blobopen", "enable_load_extension"),  # they lift the restrictions, or pass them by
    *("setlimit", "setconfig", "deserialize"),  # they hold for later transactions too
    "backup",  # it waits for the end of the transaction
)
"""Methods of a connection that a service must not call; some are there only in newer versions of Python."""


class ServiceTransaction:
    """One transaction of a service.

    Attributes:
        until: when its time is over, by the monotonic clock.
        ended: the error text for whoever uses it after its end; empty before.
        is_stopped: True once its function has ended.
        is_over: True once it was rolled back and its connection closed.
        failure: the first error of the file among the errors of its statements, else the last error.
    """

    def __init__(self, until: float) -> None:
        self.until = until
        self.ended = ""
        self.is_stopped = self.is_over = False
        self.failure: sqlite3.Error | None = None


class ServiceCursor(sqlite3.Cursor):
    """A cursor of a `ServiceConnection`."""

    connection: ServiceConnection

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        """Execute, within the transaction."""
        return self.connection.carry_out(super().execute, sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Self:
        """Execute many times, within the transaction."""
        return self.connection.carry_out(super().executemany, sql, parameters)

    def executescript(self, sql_script: str, /) -> NoReturn:
        """Refuse: it would commit."""
        raise UsageError(NOT_YOURS.format("executescript"))

    def fetchone(self) -> Any:
        """Fetch a row."""
        return self.connection.read(super().fetchone)

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """Fetch some rows."""
        return self.connection.read(super().fetchmany, self.arraysize if size is None else size)

    def fetchall(self) -> list[Any]:
        """Fetch all rows."""
        return self.connection.read(super().fetchall)

    def __next__(self) -> Any:
        return self.connection.read(super().__next__)


class ServiceConnection(sqlite3.Connection):
    """The connection that a service gets: it can read and write, but not commit or roll back; see `REFUSED`.

    Attributes:
        turn: held while a statement runs, or while the transaction is ended from outside.
        span: the transaction; the last one, which has ended, while there is none.
        is_changed: True once a service made something that outlasts its transaction.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.turn = RLock()
        self.span = ServiceTransaction(math.inf)
        self.span.ended, self.span.is_stopped = ENDED, True
        self.is_changed = False

    def create_function(self, *arguments: Any, **options: Any) -> None:
        """Create a function for this transaction."""
        self._change(super().create_function, *arguments, **options)

    def create_aggregate(self, *arguments: Any, **options: Any) -> None:
        """Create an aggregate function for this transaction."""
        self._change(super().create_aggregate, *arguments, **options)

    def create_window_function(self, *arguments: Any, **options: Any) -> None:
        """Create a window function for this transaction."""
        self._change(super().create_window_function, *arguments, **options)

    def create_collation(self, *arguments: Any, **options: Any) -> None:
        """Create a collation for this transaction."""
        self._change(super().create_collation, *arguments, **options)

    def cursor(self, factory: type[sqlite3.Cursor] | None = None) -> Any:  # type: ignore[override]
        """Make a cursor; a cursor of another class gets the same restrictions."""
        if factory is None or issubclass(ServiceCursor, factory):
            kind: type[sqlite3.Cursor] = ServiceCursor
        else:
            kind = type(factory.__name__, (factory, ServiceCursor), {})
        with self.turn:
            self._require_time()
            return super().cursor(kind)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute, within the transaction."""
        cursor: sqlite3.Cursor = self.cursor()
        return cursor.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Execute many times, within the transaction."""
        cursor: sqlite3.Cursor = self.cursor()
        return cursor.executemany(sql, parameters)

    def __exit__(self, *exception: object) -> None:  # type: ignore[override]
        """Do nothing: the transaction ends with the request."""

    def carry_out(self, statement: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Execute a statement.

        Raises:
            UsageError: the transaction has ended.
        """
        with self.turn:
            self._require_time()
            if not self.in_transaction:
                raise UsageError(ENDED)
            return self._noted(statement, *arguments, **options)

    def read(self, rows: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Read rows of a statement.

        Raises:
            UsageError: the time of the transaction is over.
        """
        with self.turn:
            self._require_time()
            return self._noted(rows, *arguments, **options)

    def restrict(self) -> None:
        """Refuse statements that would end the transaction, write to our tables, or change later transactions."""
        super().set_authorizer(self._authorize)

    def reset(self) -> None:
        """Lift the restrictions, and undo the settings of the service."""
        super().set_authorizer(None)
        self.set_progress_handler(None, 0)
        self.set_trace_callback(None)
        self.row_factory, self.text_factory = None, str

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_PRAGMA and second is not None and (first or "").lower() not in PRAGMAS:
            return sqlite3.SQLITE_DENY
        self.is_changed = self.is_changed or action in TEMPORARY
        ours = action in WRITING and any(
            each is not None and each.lower().startswith(PREFIX) for each in (first, second)
        )
        return sqlite3.SQLITE_DENY if ours or action in FORBIDDEN else sqlite3.SQLITE_OK

    def _change(self, create: Callable[P, None], *arguments: P.args, **options: P.kwargs) -> None:
        with self.turn:
            self._require_time()
            self.is_changed = True
            create(*arguments, **options)

    def _require_time(self) -> None:
        if self.span.ended:
            raise UsageError(self.span.ended)

    def _noted(self, operation: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run an operation, and remember its error even if the function catches it."""
        try:
            return operation(*arguments, **options)
        except sqlite3.Error as error:
            if self.span.ended:  # it was interrupted
                raise UsageError(self.span.ended) from error
            if not is_of_the_file(self.span.failure):
                self.span.failure = error
            raise


def _refusal(method: str) -> Callable[..., NoReturn]:
    def refuse(self: ServiceConnection, *_: object, **__: object) -> NoReturn:
        raise UsageError(NOT_YOURS.format(method))

    return refuse


for _method in REFUSED:
    setattr(ServiceConnection, _method, _refusal(_method))


def code_of(error: sqlite3.Error | None) -> int:
    """Return the primary code of an error; 0 if SQLite did not raise it."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def is_of_the_file(error: sqlite3.Error | None) -> bool:
    """Say whether an error is one of the file, and not a mistake in its use."""
    return code_of(error) in NOT_THE_FUNCTIONS


class Effects:
    """The connection for the writes of services, used by one of them at a time.

    Opening it takes about as long as a whole transaction, so a service gets the connection of the one before, unless
    that has kept it.

    Args:
        connection: the connection.
        path: the file.
        timeout: seconds that a service may hold a transaction.
    """

    def __init__(self, connection: ServiceConnection, path: Path, timeout: float) -> None:
        self.connection = connection
        self._path = path
        self._timeout = timeout
        self._patience = math.nan
        self._references = 0
        self._modes = _modes(connection)
        self._is_lent = False

    @classmethod
    def open(cls, path: Path, patience: float, timeout: float) -> Self:
        """Open the file; wait up to `patience` seconds for other writers.

        Raises:
            StoreError: the file cannot be opened.
        """
        effects = cls(connected(path, patience, ServiceConnection, "FULL"), path, timeout)
        effects._references = getrefcount(effects.connection)
        return effects

    def begin(self, patience: float) -> bool:
        """Begin a transaction; return False if others hold one for longer than `patience`, in seconds."""
        self._is_lent = False
        execute = sqlite3.Connection.execute
        if patience != self._patience:
            execute(self.connection, f"PRAGMA busy_timeout = {round(patience * 1000)}")
            self._patience = patience
        try:
            execute(self.connection, "BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def lend(self, now: float) -> None:
        """Lend the transaction to a service; statements that would end it, or write to our tables, are refused."""
        self._is_lent = True
        self.connection.restrict()
        self.connection.span = ServiceTransaction(now + self._timeout)

    # While a service has the transaction

    def late(self, now: float) -> ServiceTransaction | None:
        """Return the transaction if a service has held it for too long, else None."""
        span = self.connection.span
        return span if now > span.until and not span.is_stopped else None

    def break_off(self, span: ServiceTransaction) -> bool:
        """Undo the writes of a service whose function is still running, and close; False if it has just ended.

        A running statement of the function is interrupted, and its next one raises UsageError. Call this on a separate
        thread: it waits for a statement that cannot be interrupted, as it is in a Python function.

        Args:
            span: the transaction to break off; there may be another one by now.
        """
        connection = self.connection
        span.ended = TOO_LONG.format(self._timeout)
        while not connection.turn.acquire(timeout=INTERRUPT_SECONDS):
            if connection.span is span:
                connection.interrupt()
        try:
            if connection.span is not span or span.is_stopped:
                return False
            with suppress(sqlite3.Error):  # such as an error of the file; closing undoes the writes too
                self.undo()
            sqlite3.Connection.close(connection)
            span.is_over = True
            return True
        finally:
            connection.turn.release()

    def stop(self) -> StoreError | UsageError | None:
        """Take the transaction back once the function has ended; return why its writes cannot be kept, or None.

        A thread that the function has left behind can do nothing with it from then on.
        """
        connection, span = self.connection, self.connection.span
        with connection.turn:
            if span.is_stopped:
                return None
            span.is_stopped, too_long = True, span.ended
            span.ended = too_long or ENDED
            if too_long:
                return UsageError(too_long)
            if is_of_the_file(span.failure):
                return StoreError(f"{self._path}: {span.failure}")
            if not _is_in_transaction(connection):
                return UsageError(ROLLED_BACK.format(f": {span.failure}" if span.failure else ""))
        return None

    @property
    def is_over(self) -> bool:
        """True if the transaction was broken off."""
        return self.connection.span.is_over

    # Once no service has the transaction

    @contextmanager
    def results(self) -> Iterator[Results]:
        """Yield our tables for writing within the transaction, then commit all of it."""
        connection = self.connection
        with connection.turn:
            connection.reset()
            connection.span, last = ServiceTransaction(math.inf), connection.span
            try:
                yield Results(connection)
                sqlite3.Connection.execute(connection, "COMMIT")
            finally:
                connection.span = last

    @property
    def is_spent(self) -> bool:
        """True if the next service must not get this connection: the last one changed it, or kept it or a cursor."""
        is_kept = getrefcount(self.connection) > self._references
        return self._is_lent and (is_kept or self.connection.is_changed or _modes(self.connection) != self._modes)

    def undo(self) -> None:
        """Roll back everything that was not committed."""
        self.connection.reset()
        if self.connection.in_transaction:
            sqlite3.Connection.execute(self.connection, "ROLLBACK")

    def end(self) -> None:
        """Close the connection."""
        sqlite3.Connection.close(self.connection)


def _modes(connection: sqlite3.Connection) -> tuple[str | None, object]:
    """Return the modes of a connection; setting them back may commit. `autocommit` is new in Python 3.12."""
    return connection.isolation_level, getattr(connection, "autocommit", None)


def _is_in_transaction(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:  # the connection was closed
        return False
