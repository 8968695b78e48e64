"""SQLite as the store of requests uses it, of which some statements fail: before their effect, or after it.

A disk that is full undoes the whole transaction, as SQLite may do it; the other errors leave it as it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from threading import Event, Lock
from typing import Any, Final

from calling_kit import (
    Wrapped,
)

from brokers import Completion, Delivery, Message, SendResult, Transaction
from soapjms import SqliteStore
from soapjms.service.store.base import Claim, Store
from soapjms.service.store.effects import ServiceConnection

BROKEN: Final = {
    "full": (sqlite3.OperationalError, "database or disk is full", sqlite3.SQLITE_FULL),
    "locked": (sqlite3.OperationalError, "database is locked", sqlite3.SQLITE_BUSY),
    "corrupt": (sqlite3.DatabaseError, "database disk image is malformed", sqlite3.SQLITE_CORRUPT),
}
"""What a statement fails with: the error, what it says, its code."""


class Failures:
    """Counts statements, and lets some fail.

    Args:
        at: the position of the first that fails; None for none.
        times: how many fail, one after the other.
        after: they fail after their effect, and not before.
        broken: with what, a key of `BROKEN`.

    Attributes:
        names: the statements so far.
        fired: set once one failed.
    """

    def __init__(self, at: int | None = None, *, times: int = 1, after: bool = False, broken: str = "full") -> None:
        self.names: list[str] = []
        self.fired = Event()
        self._failing = range(0) if at is None else range(at, at + times)
        self._after = after
        self._broken = broken
        self._lock = Lock()

    def run(self, connection: sqlite3.Connection, sql: str, execute: Callable[[], Any]) -> Any:
        """Execute a statement, or let it fail."""
        with self._lock:
            is_meant = len(self.names) in self._failing
            self.names.append(sql)
        if not is_meant:
            return execute()
        self.fired.set()
        if self._after:
            execute()
        elif self._broken == "full" and connection.in_transaction:
            sqlite3.Connection.set_authorizer(connection, None)
            sqlite3.Connection.execute(connection, "ROLLBACK")
        kind, said, code = BROKEN[self._broken]
        error = kind(said)
        error.sqlite_errorcode = code
        raise error


class FaultySqlite:
    """Stands where a module imported `sqlite3`."""

    def __init__(self, failures: Failures) -> None:
        self.Connection = failing(sqlite3.Connection, failures)
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    def connect(self, path: Any, *, factory: type[sqlite3.Connection], **options: Any) -> sqlite3.Connection:
        """Connect as `sqlite3.connect` does."""
        if not issubclass(factory, self.Connection):
            factory = failing(factory, self._failures)
        return sqlite3.connect(path, factory=factory, **options)


def failing(kind: type[sqlite3.Connection], failures: Failures) -> type[sqlite3.Connection]:
    """Make a kind of connection whose statements fail; those of a service fail where its cursors have them executed."""
    if issubclass(kind, ServiceConnection):
        return failing_service(kind, failures)

    def execute(self: Any, sql: str, parameters: Any = (), /) -> Any:
        return failures.run(self, sql, lambda: kind.execute(self, sql, parameters))

    def executemany(self: Any, sql: str, parameters: Any, /) -> Any:
        return failures.run(self, sql, lambda: kind.executemany(self, sql, parameters))

    return type(f"Failing{kind.__name__}", (kind,), {"execute": execute, "executemany": executemany})


def failing_service(kind: type[ServiceConnection], failures: Failures) -> type[sqlite3.Connection]:
    """Make a kind of connection whose functions' statements fail."""

    def carry_out(self: Any, statement: Callable[..., Any], *arguments: Any) -> Any:
        def fail_or_execute(*given: Any) -> Any:
            return failures.run(self, given[0], lambda: statement(*given))

        return kind.carry_out(self, fail_or_execute, *arguments)

    return type(f"Failing{kind.__name__}", (kind,), {"carry_out": carry_out})


def limit_pages(database: ServiceConnection, pages: int) -> None:
    """Let a file not grow beyond this, as on a full disk; a function itself may not."""
    sqlite3.Connection.set_authorizer(database, None)
    database.execute(f"PRAGMA max_page_count = {pages}").fetchone()
    database.restrict()


class LosesCommits(Wrapped):
    """A connection that is closed instead of each commit and answer: all was done, and nobody was told."""

    def begin(self) -> Transaction:
        self.inner.close(0)
        return self.inner.begin()

    def answer(self, delivery: Delivery, response: Message) -> Completion[SendResult]:
        self.inner.close(0)
        return self.inner.answer(delivery, response)


class Died(Store):
    """A store whose requests were all begun by somebody who died."""

    def __init__(self, inner: SqliteStore) -> None:
        self.inner = inner
        self.deaths = 1

    def begin(self, key: bytes) -> Any:
        found = self.inner.begin(key)
        if isinstance(found, Claim):
            found.deaths = self.deaths
        return found

    def close(self) -> None:
        """Nothing; the inner one is the fixture's."""
