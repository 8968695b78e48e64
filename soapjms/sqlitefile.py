"""The tables of the store of requests, and the connections to its file. Who may write when is `soapjms.sqlitestore`'s.

The file is the service's own too: its tables are beside ours, whose names begin with `soapjms_`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

from brokers.message import Body, Message, MessageType, Properties, Property, PropertyType
from soapjms.protocol.errors import StoreError, UsageError

VERSION: Final = 1
PREFIX: Final = "soapjms_"
TABLES: Final = """
CREATE TABLE IF NOT EXISTS soapjms_version (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS soapjms_owners (owner TEXT PRIMARY KEY, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS soapjms_requests (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, owner TEXT, starts INTEGER NOT NULL,
    deaths INTEGER NOT NULL, failures INTEGER NOT NULL, touched REAL NOT NULL, octets INTEGER);
CREATE TABLE IF NOT EXISTS soapjms_responses (number INTEGER PRIMARY KEY, head TEXT NOT NULL, body BLOB);
"""
"""`owner` is who works on it, NULL for nobody; `starts` tells one beginning from the next; `octets` is the size of the
response, NULL until the request is finished."""

C = TypeVar("C", bound=sqlite3.Connection)

LOCKED_NAP: Final = 0.01
BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

PackedResponse: TypeAlias = tuple[str, Body] | None
"""What a response is but for its body, as JSON; and its body, bytes or text."""


def packed(response: Message | None) -> PackedResponse:
    """Turn a response into what the file holds: all but where it goes and what it is correlated with."""
    if response is None:
        return None
    members = {
        "type": response.message_type,
        "delivery_mode": response.delivery_mode,
        "priority": response.priority,
        "expiration": response.expiration,
        "properties": list(response.properties),
    }
    return json.dumps(members), response.body


def unpacked(found: PackedResponse) -> Message | None:
    """Turn what the file holds into a response again."""
    if found is None:
        return None
    head, body = found
    members = json.loads(head)
    return Message(
        message_type=MessageType(members["type"]),
        body=body,
        delivery_mode=members["delivery_mode"],
        priority=members["priority"],
        expiration=members["expiration"],
        properties=Properties(Property(name, PropertyType(kind), value) for name, kind, value in members["properties"]),
    )


class Entry(NamedTuple):
    """One request as the file has it."""

    number: int
    owner: str | None
    starts: int
    deaths: int
    failures: int
    octets: int | None

    @property
    def is_finished(self) -> bool:
        """Whether it has its response, or needs none any more."""
        return self.octets is not None


class Ledger:
    """A connection for our own tables."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path, timeout: float) -> Self:
        """Open the file, and make our tables in it if they are not there.

        Raises:
            StoreError: it cannot be opened, or is not ours.
        """
        connection = connected(path, timeout, sqlite3.Connection, "NORMAL")
        try:
            ledger = cls(connection)
            with ledger.writing():
                ledger._make_tables(path)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise StoreError(f"{path}: {error}") from error
            raise
        return ledger

    def _make_tables(self, path: Path) -> None:
        for statement in TABLES.strip().split(";\n"):
            self._connection.execute(statement)
        found = self._connection.execute("SELECT version FROM soapjms_version").fetchone()
        if found is None:
            self._connection.execute("INSERT INTO soapjms_version VALUES (?)", (VERSION,))
        elif found[0] != VERSION:
            raise StoreError(
                f"{path} is a store of version {found[0]}, and this soapjms is for version {VERSION}; use another file"
            )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Commit what is written within, or nothing of it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def hurry(self, seconds: float) -> None:
        """From now on wait no longer than that for others who write."""
        self._connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def end(self) -> None:
        """Close the connection."""
        self._connection.close()

    # Requests

    def entry(self, key: bytes) -> Entry | None:
        """Find a request."""
        found = self._connection.execute(
            "SELECT number, owner, starts, deaths, failures, octets FROM soapjms_requests WHERE key = ?", (key,)
        ).fetchone()
        return None if found is None else Entry(*found)

    def response(self, number: int) -> PackedResponse:
        """Find the response of a finished request; None for a one-way message."""
        found: PackedResponse = self._connection.execute(
            "SELECT head, body FROM soapjms_responses WHERE number = ?", (number,)
        ).fetchone()
        return found

    def add(self, key: bytes, owner: str, now: float) -> int:
        """Add a request that is begun, and return its number."""
        added = self._connection.execute(
            "INSERT INTO soapjms_requests (key, owner, starts, deaths, failures, touched) VALUES (?, ?, 1, 0, 0, ?)",
            (key, owner, now),
        )
        assert added.lastrowid is not None
        return added.lastrowid

    def begin_again(self, number: int, owner: str, deaths: int, now: float) -> None:
        """Note that a request is begun once more."""
        self._connection.execute(
            "UPDATE soapjms_requests SET owner = ?, starts = starts + 1, deaths = ?, touched = ? WHERE number = ?",
            (owner, deaths, now, number),
        )

    def finish(self, number: int, owner: str, starts: int, response: PackedResponse, now: float) -> bool:
        """Note that a request is finished; return whether it was still its owner's to finish."""
        octets = 0 if response is None or response[1] is None else len(response[1])
        done = self._connection.execute(
            "UPDATE soapjms_requests SET owner = NULL, octets = ?, touched = ?"
            " WHERE number = ? AND owner = ? AND starts = ?",
            (octets, now, number, owner, starts),
        )
        if done.rowcount and response is not None:
            self._connection.execute("INSERT INTO soapjms_responses VALUES (?, ?, ?)", (number, *response))
        return bool(done.rowcount)

    def let_go(self, number: int, owner: str, starts: int, deaths: int, failures: int) -> None:
        """Note that a request is nobody's any more, with its counts; nothing if it is somebody else's."""
        self._connection.execute(
            "UPDATE soapjms_requests SET owner = NULL, deaths = ?, failures = ?"
            " WHERE number = ? AND owner = ? AND starts = ?",
            (deaths, failures, number, owner, starts),
        )

    def forget(self, number: int, owner: str, starts: int) -> None:
        """Remove a request; nothing if it is somebody else's."""
        self._connection.execute(
            "DELETE FROM soapjms_requests WHERE number = ? AND owner = ? AND starts = ?", (number, owner, starts)
        )

    # Owners

    def show_life(self, owner: str, until: float) -> None:
        """Note that an owner counts as alive until then."""
        self._connection.execute("INSERT OR REPLACE INTO soapjms_owners VALUES (?, ?)", (owner, until))

    def is_alive(self, owner: str, now: float) -> bool:
        """Say whether an owner counts as alive."""
        found = self._connection.execute("SELECT until FROM soapjms_owners WHERE owner = ?", (owner,)).fetchone()
        return found is not None and found[0] > now

    def leave(self, owner: str) -> None:
        """Forget an owner; what it had begun is as that of one that died."""
        self._connection.execute("DELETE FROM soapjms_owners WHERE owner = ?", (owner,))

    # Cleaning up

    def newest_beyond(self, max_entries: int, max_octets: int) -> int:
        """Return the number of the newest request beyond the limits; so are all before it. 0 if none is."""
        found = self._connection.execute(
            "SELECT number FROM (SELECT number, ROW_NUMBER() OVER rest AS entries, SUM(octets) OVER rest AS octets"
            " FROM soapjms_requests WINDOW rest AS (ORDER BY number DESC))"
            " WHERE entries > ? OR octets > ? ORDER BY number DESC LIMIT 1",
            (max_entries, max_octets),
        ).fetchone()
        return found[0] if found else 0

    def doomed(self, after: int, up_to: int, before: float, limit: int) -> list[tuple[int, float]]:
        """List the next requests `after` a number that are `up_to` another, or last touched `before` a time.

        Each is its number and when it was touched.
        """
        return self._connection.execute(
            "SELECT number, touched FROM soapjms_requests"
            " WHERE number > ? AND (number <= ? OR touched < ?) ORDER BY number LIMIT ?",
            (after, up_to, before, limit),
        ).fetchall()

    def remove(self, requests: Sequence[tuple[int, float]]) -> None:
        """Remove requests that were not touched since; a response goes with its request."""
        connection = self._connection
        connection.executemany("DELETE FROM soapjms_requests WHERE number = ? AND touched = ?", requests)
        connection.executemany(
            "DELETE FROM soapjms_responses WHERE number = ? AND number NOT IN (SELECT number FROM soapjms_requests)",
            [(number,) for number, _ in requests],
        )

    def forget_owners(self, before: float) -> None:
        """Forget the owners that died before a time."""
        self._connection.execute("DELETE FROM soapjms_owners WHERE until < ?", (before,))


class ServiceConnection(sqlite3.Connection):
    """What a service gets: it reads and writes, but when that is committed is not its own to say."""

    def commit(self) -> NoReturn:
        """Refuse."""
        raise UsageError(NOT_YOURS.format("commit"))

    def rollback(self) -> NoReturn:
        """Refuse."""
        raise UsageError(NOT_YOURS.format("rollback"))

    def close(self) -> NoReturn:
        """Refuse."""
        raise UsageError(NOT_YOURS.format("close"))

    def executescript(self, sql_script: str, /) -> NoReturn:
        """Refuse: it would commit."""
        raise UsageError(NOT_YOURS.format("executescript"))

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute, within the transaction."""
        self._require_transaction()
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """Execute many times, within the transaction."""
        self._require_transaction()
        return super().executemany(sql, parameters)

    def __exit__(self, *exception: object) -> None:  # type: ignore[override]
        """Do nothing: the transaction ends with the request."""

    def _require_transaction(self) -> None:
        if not self.in_transaction:
            raise UsageError("request.transaction has ended: with its function, or by an error of the database")


NOT_YOURS: Final = (
    "{} on request.transaction: it is committed together with the request once the function returned, and rolled back "
    "if the function raises"
)


class Effects:
    """The connection for what services write, for one of them at a time."""

    def __init__(self, connection: ServiceConnection) -> None:
        self.connection = connection

    @classmethod
    def open(cls, path: Path, timeout: float) -> Self:
        """Open the file.

        Raises:
            StoreError: it cannot be opened.
        """
        return cls(connected(path, timeout, ServiceConnection, "FULL"))

    def begin(self) -> None:
        """Begin a transaction; from here on statements that would end it, or touch our tables, are refused."""
        sqlite3.Connection.execute(self.connection, "BEGIN IMMEDIATE")
        self.connection.set_authorizer(_authorize)

    @contextmanager
    def as_ledger(self) -> Iterator[Ledger]:
        """Lend the transaction for writing to our tables, and commit all of it."""
        self.connection.set_authorizer(None)
        if not self.connection.in_transaction:
            raise sqlite3.OperationalError("the transaction of the service was rolled back by an error of the database")
        yield Ledger(self.connection)
        sqlite3.Connection.execute(self.connection, "COMMIT")

    def undo(self) -> None:
        """Roll back what was not committed."""
        self.connection.set_authorizer(None)
        if self.connection.in_transaction:
            sqlite3.Connection.execute(self.connection, "ROLLBACK")

    def end(self) -> None:
        """Close the connection."""
        sqlite3.Connection.close(self.connection)


FORBIDDEN: Final = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})
WRITING: Final = frozenset(
    {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE}
    | {sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_CREATE_INDEX}
)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Deny what would end the transaction, and writing to our tables."""
    ours = action in WRITING and any(each is not None and each.lower().startswith(PREFIX) for each in (first, second))
    return sqlite3.SQLITE_DENY if ours or action in FORBIDDEN else sqlite3.SQLITE_OK


def connected(path: Path, timeout: float, kind: type[C], synchronous: str) -> C:
    """Connect to the file, which is made readable by its owner only, and see that it has a write-ahead log.

    Raises:
        StoreError: it cannot be opened, or is no SQLite file.
    """
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False, factory=kind)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path} cannot be opened as a store of requests: {error}") from error
    try:
        _use_write_ahead_log(connection, timeout)
        sqlite3.Connection.execute(connection, f"PRAGMA synchronous = {synchronous}")
    except sqlite3.Error as error:
        sqlite3.Connection.close(connection)
        raise StoreError(f"{path} cannot be used as a store of requests: {error}") from error
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch it on; while another process does so, SQLite says that the file is locked, and does not wait."""
    until = time.monotonic() + timeout
    while True:
        try:
            sqlite3.Connection.execute(connection, "PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in BUSY or time.monotonic() > until:
                raise
        time.sleep(LOCKED_NAP)
