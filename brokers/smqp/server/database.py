"""The server's SQLite file: its tables and transactions.

Everything that arrives together is written in one transaction, which is committed before any reply is sent (SM-134,
SM-162). A command that fails is undone alone, by a savepoint.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from brokers.files import reason_of
from brokers.smqp.protocol.replies import SmqpStoreError

VERSION: Final = 2
TABLES: Final = """
CREATE TABLE smqp (version INTEGER NOT NULL);
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, folded TEXT NOT NULL UNIQUE, password TEXT NOT NULL,
    is_admin INTEGER NOT NULL, is_peer INTEGER NOT NULL, topic INTEGER, logins INTEGER NOT NULL DEFAULT 0,
    full_name TEXT, email TEXT, address TEXT, phone TEXT);
CREATE TABLE topics (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, folded TEXT NOT NULL UNIQUE, target INTEGER,
    keywords TEXT NOT NULL DEFAULT '', is_removing INTEGER NOT NULL DEFAULT 0, is_login INTEGER NOT NULL DEFAULT 0,
    kind TEXT NOT NULL, timeout REAL, retry_timeout REAL, max_retries INTEGER, max_messages INTEGER,
    max_message INTEGER, max_octets INTEGER);
CREATE TRIGGER held_ended AFTER DELETE ON topics BEGIN DELETE FROM held WHERE topic = old.id; END;
CREATE TABLE rights (
    topic INTEGER NOT NULL, account INTEGER NOT NULL, rights INTEGER NOT NULL,
    PRIMARY KEY (topic, account)) WITHOUT ROWID;
CREATE TABLE messages (
    smuid INTEGER PRIMARY KEY AUTOINCREMENT, topic INTEGER NOT NULL, account INTEGER, guid TEXT, uid TEXT,
    cmuid TEXT NOT NULL, origin TEXT, created TEXT NOT NULL, header BLOB NOT NULL, body BLOB NOT NULL,
    size INTEGER NOT NULL, received REAL NOT NULL, priority INTEGER NOT NULL, timeout REAL NOT NULL,
    depth INTEGER NOT NULL, receipt INTEGER NOT NULL, sequenced INTEGER NOT NULL, state INTEGER NOT NULL,
    expires REAL);
CREATE INDEX messages_by_topic ON messages (topic, state, smuid);
CREATE INDEX messages_by_cmuid ON messages (account, guid, uid);
CREATE INDEX messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL;
CREATE TABLE deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, smuid INTEGER NOT NULL, topic INTEGER NOT NULL, account INTEGER,
    session INTEGER, name TEXT NOT NULL, priority INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    current INTEGER NOT NULL);
CREATE INDEX deliveries_by_session ON deliveries (session, priority, smuid);
CREATE INDEX deliveries_by_message ON deliveries (smuid, account);
CREATE INDEX deliveries_by_account ON deliveries (account, session);
CREATE INDEX deliveries_by_topic ON deliveries (topic, priority, smuid);
CREATE TABLE delivered (
    smuid INTEGER NOT NULL, account INTEGER NOT NULL, PRIMARY KEY (smuid, account)) WITHOUT ROWID;
CREATE TABLE forwards (
    link TEXT NOT NULL, smuid INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (link, smuid)) WITHOUT ROWID;
CREATE TABLE origins (origin TEXT PRIMARY KEY, smuid INTEGER NOT NULL, seen REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE subscriptions (
    account INTEGER NOT NULL, resource TEXT NOT NULL, folded TEXT NOT NULL, is_exclusion INTEGER NOT NULL,
    pattern TEXT NOT NULL, since REAL, PRIMARY KEY (account, resource, folded, is_exclusion)) WITHOUT ROWID;
"""
"""The columns of a key must come first: otherwise SQLite 3.40 takes other columns as NULL when it checks its file."""

HELD: Final = """
CREATE TABLE held (topic INTEGER PRIMARY KEY, octets INTEGER NOT NULL);
CREATE TRIGGER held_added AFTER INSERT ON messages WHEN new.state < 2 BEGIN
    INSERT INTO held VALUES (new.topic, new.size)
    ON CONFLICT (topic) DO UPDATE SET octets = octets + excluded.octets; END;
CREATE TRIGGER held_moved AFTER UPDATE OF state ON messages WHEN (old.state < 2) <> (new.state < 2) BEGIN
    UPDATE held SET octets = octets + (CASE WHEN new.state < 2 THEN new.size ELSE -new.size END)
    WHERE topic = new.topic; END;
CREATE TRIGGER held_removed AFTER DELETE ON messages WHEN old.state < 2 BEGIN
    UPDATE held SET octets = octets - old.size WHERE topic = old.topic; END;
INSERT INTO held SELECT topic, SUM(size) FROM messages WHERE state < 2 GROUP BY topic;
"""
"""The octets of each topic, without its Trash (state 2): needed for every message, so that they are not summed up each
time. A file that was made before this table existed gets it when it is opened."""

RENUMBERED: Final = ("topics", "deliveries")
"""The tables in which, by version 1, a new row could get the number of one that was gone. So a client's late answer, or
its end, could concern what belonged to another."""


class Database:
    """A connection to the file, for one thread at a time.

    Args:
        path: the path of the file, which is created if it is missing; `:memory:` keeps nothing.

    Raises:
        SmqpStoreError: the file cannot be opened, or has another version.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._is_undone = False
        try:
            if self._path != ":memory:":
                with suppress(FileExistsError):
                    os.close(os.open(self._path, os.O_CREAT | os.O_EXCL, 0o600))
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=1.0)
            self._open()
        except OSError as error:
            raise SmqpStoreError(f"the store of a server cannot be created: {reason_of(error)}") from error
        except sqlite3.Error as error:
            raise SmqpStoreError(f"{path} cannot be used as the store of a server: {error}") from error

    def _open(self) -> None:
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = FULL")
        self.execute("PRAGMA locking_mode = EXCLUSIVE")  # a second server on the same file fails at once
        self.execute("BEGIN IMMEDIATE")
        if self.row("SELECT 1 FROM sqlite_schema WHERE name = 'smqp'") is None:
            self._execute_all(TABLES)
            self.execute("INSERT INTO smqp VALUES (?)", VERSION)
        found = self.row("SELECT version FROM smqp")
        if found == (1,):
            self._upgrade()
            found = (VERSION,)
        if found is None or found[0] != VERSION:
            raise SmqpStoreError(f"{self._path} must have version {VERSION}, got {found and found[0]}")
        if self.row("SELECT 1 FROM sqlite_schema WHERE name = 'held'") is None:
            self._execute_all(HELD)
        self.execute("COMMIT")

    def _upgrade(self) -> None:
        """Turn a file of version 1 into one of this version."""
        for table in RENUMBERED:
            self.execute(f"CREATE TEMP TABLE before AS SELECT * FROM {table}")  # noqa: S608 - one of `RENUMBERED`
            self.execute(f"DROP TABLE {table}")
            self._execute_all(TABLES, of=table)
            self.execute(f"INSERT INTO {table} SELECT * FROM before")  # noqa: S608 - as above
            self.execute("DROP TABLE before")
        self.execute("UPDATE smqp SET version = ?", VERSION)

    def _execute_all(self, script: str, of: str = "") -> None:
        """Execute the statements of a script: all, or those that create a table and what belongs to it."""
        for statement in script.strip().split(";\n"):
            if not of or re.search(rf"(TABLE|ON) {of} ", statement):
                self.execute(statement)

    def execute(self, sql: str, *parameters: Any) -> int:
        """Execute a statement; return the number of changed rows."""
        return self._connection.execute(sql, parameters).rowcount

    def insert(self, sql: str, *parameters: Any) -> int:
        """Insert a row; return its number."""
        number = self._connection.execute(sql, parameters).lastrowid
        assert number is not None
        return number

    def many(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Execute a statement for each row of parameters."""
        self._connection.executemany(sql, rows)

    def row(self, sql: str, *parameters: Any) -> Any:
        """Return the first row of a query, or None."""
        return self._connection.execute(sql, parameters).fetchone()

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        """Return all rows of a query."""
        return self._connection.execute(sql, parameters).fetchall()

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""
        if not self._connection.in_transaction:
            self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make all changes since `begin` permanent.

        Raises:
            sqlite3.Error: none of the changes was made permanent.
        """
        if self._is_undone:
            self._is_undone = False
            raise sqlite3.OperationalError("an error of the database has undone the transaction")
        if self._connection.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo all uncommitted changes."""
        self._is_undone = False
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo the changes made inside the `with` statement, and only these, if it raises."""
        self.begin()
        self.execute("SAVEPOINT one")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self.execute("ROLLBACK TO one")
                self.execute("RELEASE one")
            else:  # earlier changes of the transaction are undone too
                self._is_undone = True
            raise
        self.execute("RELEASE one")

    def close(self) -> None:
        """Close the file; uncommitted changes are undone."""
        self.rollback()
        self._connection.close()
