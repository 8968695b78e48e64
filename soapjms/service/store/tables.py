"""The tables of the store of requests in its two files; `soapjms.service.store.sqlite` decides who writes when.

The first file also has the service's own tables, beside ours, whose names begin with `soapjms_`: ours hold the requests
that were finished together with a service's writes. The second has the claims and all other finished requests.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias, TypeVar

from brokers.files import reason_of
from brokers.message import Body, Destination, DestinationKind, Message, MessageType, Properties, Property, PropertyType
from soapjms.protocol.errors import StoreError
from soapjms.service.store.base import KEY_OCTETS
from soapjms.service.store.place import barred_of

VERSION: Final = 2
PREFIX: Final = "soapjms_"
RESULTS: Final = """
CREATE TABLE soapjms_version (version INTEGER NOT NULL);
CREATE TABLE soapjms_requests (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, touched REAL NOT NULL, octets INTEGER NOT NULL);
CREATE TABLE soapjms_responses (number INTEGER PRIMARY KEY, head TEXT NOT NULL, body BLOB);
"""
"""The first file: requests that were finished with their service's writes. `octets` is the size of the response."""

CLAIMS: Final = """
CREATE TABLE soapjms_version (version INTEGER NOT NULL);
CREATE TABLE soapjms_owners (owner TEXT PRIMARY KEY, until REAL NOT NULL);
CREATE TABLE soapjms_opened (time REAL NOT NULL, clock REAL NOT NULL);
CREATE TABLE soapjms_requests (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, owner TEXT, starts INTEGER NOT NULL,
    deaths INTEGER NOT NULL, failures INTEGER NOT NULL, touched REAL NOT NULL, octets INTEGER,
    writes REAL, pid INTEGER, name TEXT);
CREATE TABLE soapjms_arrivals (key BLOB PRIMARY KEY, deliveries INTEGER NOT NULL, touched REAL NOT NULL);
CREATE TABLE soapjms_responses (number INTEGER PRIMARY KEY, head TEXT NOT NULL, body BLOB);
"""
"""The second file. `owner` is the store that runs the request, or NULL; `starts` counts how often it was begun;
`octets` is the size of the response, NULL until the request is finished here; `writes` is when its owner began a
transaction in the first file, or NULL, and `pid` and `name` are the owner's process and its name for the request.
`until` changes with each sign of life, and only that is read of it. `soapjms_opened` holds the time of the last
opening; see `clock.py`. An arrival is a delivery of a request whose body was not read to its end yet."""

FROM_VERSION_1: Final = """
ALTER TABLE soapjms_requests RENAME TO soapjms_requests_1;
CREATE TABLE soapjms_requests (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, touched REAL NOT NULL, octets INTEGER NOT NULL);
INSERT INTO soapjms_requests SELECT number, key, touched, octets FROM soapjms_requests_1 WHERE octets IS NOT NULL;
DROP TABLE soapjms_requests_1;
DROP TABLE soapjms_owners;
UPDATE soapjms_version SET version = 2;
"""
"""Converts a file of version 1, which had the claims too, into a first file; processes still using it cannot write."""

C = TypeVar("C", bound=sqlite3.Connection)

LOCKED_NAP_SECONDS: Final = 0.01
MAX_LISTED_KEYS: Final = 10
READABLE: Final = (1, VERSION)
BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

PackedResponse: TypeAlias = tuple[str, Body] | None
"""A response without its body, as JSON, and its body, bytes or text."""


def packed(response: Message | None) -> PackedResponse:
    """Turn a response into the form that the file holds, without its correlation id."""
    if response is None:
        return None
    members: dict[str, object] = {
        "type": response.message_type,
        "delivery_mode": response.delivery_mode,
        "priority": response.priority,
        "expiration": response.expiration,
        "properties": list(response.properties),
    }
    if (to := response.destination) is not None:
        members["to"] = [to.kind, to.name, to.address]
    return json.dumps(members), response.body


def unpacked(found: PackedResponse) -> Message | None:
    """Turn the form that the file holds into a response again."""
    if found is None:
        return None
    head, body = found
    members = json.loads(head)
    to = members.get("to")  # absent in entries of an older version
    return Message(
        message_type=MessageType(members["type"]),
        body=body,
        delivery_mode=members["delivery_mode"],
        priority=members["priority"],
        expiration=members["expiration"],
        properties=Properties(Property(name, PropertyType(kind), value) for name, kind, value in members["properties"]),
        destination=None if to is None else Destination(DestinationKind(to[0]), to[1], address=to[2]),
    )


class ClaimEntry(NamedTuple):
    """One request in the claims."""

    number: int
    owner: str | None
    starts: int
    deaths: int
    failures: int
    octets: int | None
    writes: float | None

    @property
    def is_finished(self) -> bool:
        """True if the request has its response or needs none."""
        return self.octets is not None


class ClaimPlace(NamedTuple):
    """A claim as no other one is: a number may be given again once its request is forgotten, also by another process.

    Attributes:
        number: the number of its request.
        key: the key of its request.
        starts: how often that was begun, this time included.
        owner: who runs it.
    """

    number: int
    key: bytes
    starts: int
    owner: str


HELD: Final = "number = ? AND key = ? AND starts = ? AND owner = ?"
"""The condition for the request of a `ClaimPlace`, as long as nobody has taken it over."""


class Holder(NamedTuple):
    """The holder of a service's transaction: since when (seconds since 1970), its process, and the request's name."""

    since: float
    pid: int
    request: str


class File:
    """A connection for our own tables in one of the files: finished requests, and their removal."""

    TABLES: ClassVar[str]

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path, timeout: float) -> Self:
        """Open a file, and create our tables if it does not have them; otherwise nothing is written.

        Raises:
            StoreError: the file cannot be opened, or has tables of another version.
        """
        connection = connected(path, timeout, sqlite3.Connection, "NORMAL")
        try:
            file = cls(connection)
            if file.version() is None:
                with file.writing():
                    if file.version() is None:  # else another process was faster
                        file.run(cls.TABLES)
                        connection.execute("INSERT INTO soapjms_version VALUES (?)", (VERSION,))
            if (found := file.version()) not in READABLE:
                raise StoreError(
                    f"{path} is a store of version {found}, and this soapjms is for version {VERSION}; use another file"
                )
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise StoreError(f"{path}: {error}") from error
            raise
        return file

    def version(self) -> int | None:
        """Return the version of our tables; None if there are none."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'soapjms_version'").fetchone():
            return None
        found = self._connection.execute("SELECT version FROM soapjms_version").fetchone()
        return None if found is None else int(found[0])

    def run(self, statements: str) -> None:
        """Run several statements, in the current transaction."""
        for statement in statements.strip().split(";\n"):
            self._connection.execute(statement)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the `with` block in a transaction: commit all of its writes, or none if it raises."""
        try:
            self.begin()
            yield
            self.commit()
        except BaseException:
            self.roll_back()
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the transaction."""
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        """Undo the transaction, if there is one."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def hurry(self, seconds: float) -> None:
        """From now on wait no longer than `seconds` for other writers."""
        self._connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def end(self) -> None:
        """Close the connection."""
        self._connection.close()

    def response(self, number: int) -> PackedResponse:
        """Return the response of a finished request; None for a one-way message."""
        found: PackedResponse = self._connection.execute(
            "SELECT head, body FROM soapjms_responses WHERE number = ?", (number,)
        ).fetchone()
        return found

    def places(self, name: bytes) -> list[bytes]:
        """List up to `MAX_LISTED_KEYS` keys of a name, the oldest first; keys without their own place are included."""
        found = self._connection.execute(
            "SELECT number, key FROM soapjms_requests"
            " WHERE key BETWEEN ? AND ? AND length(key) IN (?, ?) ORDER BY key LIMIT ?",
            (*_keys_of(name), MAX_LISTED_KEYS),
        ).fetchall()
        return [key for _, key in sorted(found)]

    def _respond(self, number: int, response: PackedResponse) -> None:
        if response is not None:
            self._connection.execute("INSERT INTO soapjms_responses VALUES (?, ?, ?)", (number, *response))

    # Cleaning up

    def newest(self) -> float:
        """Return the time at which the newest request was last touched; 0 if there is none."""
        found = self._connection.execute("SELECT touched FROM soapjms_requests ORDER BY number DESC LIMIT 1").fetchone()
        return 0.0 if found is None else found[0]

    def newest_beyond(self, max_entries: int, max_octets: int) -> int:
        """Return the number of the newest request beyond the limits, as are all older ones; 0 if there is none."""
        found = self._connection.execute(
            "SELECT number FROM (SELECT number, ROW_NUMBER() OVER rest AS entries, SUM(octets) OVER rest AS octets"
            " FROM soapjms_requests WINDOW rest AS (ORDER BY number DESC))"
            " WHERE entries > ? OR octets > ? ORDER BY number DESC LIMIT 1",
            (max_entries, max_octets),
        ).fetchone()
        return found[0] if found else 0

    def doomed(self, after: int, up_to: int, before: float, limit: int) -> list[tuple[int, float]]:
        """List the next requests numbered above `after` that are numbered `up_to` at most or last touched `before`.

        Each is listed as its number and the time of its last touch.
        """
        return self._connection.execute(
            "SELECT number, touched FROM soapjms_requests"
            " WHERE number > ? AND (number <= ? OR touched < ?) ORDER BY number LIMIT ?",
            (after, up_to, before, limit),
        ).fetchall()

    def remove(self, requests: Sequence[tuple[int, float]]) -> int:
        """Remove requests, with their responses, if they were not touched since; return how many were removed."""
        connection = self._connection
        removed = connection.executemany("DELETE FROM soapjms_requests WHERE number = ? AND touched = ?", requests)
        connection.executemany(
            "DELETE FROM soapjms_responses WHERE number = ? AND number NOT IN (SELECT number FROM soapjms_requests)",
            [(number,) for number, _ in requests],
        )
        return removed.rowcount


class Results(File):
    """The first file: requests that were finished together with a service's writes."""

    TABLES = RESULTS

    def commits(self) -> int:
        """Return a number that changes whenever another connection has committed something."""
        (found,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(found)

    def finished(self, key: bytes) -> FinishedRequest | None:
        """Return a request that was finished in this file, or None."""
        found = self._connection.execute("SELECT number FROM soapjms_requests WHERE key = ?", (key,)).fetchone()
        return None if found is None else FinishedRequest(self.response(found[0]))

    def finish(self, key: bytes, response: PackedResponse, now: float) -> bool:
        """Note that a request is finished; return False if it was finished before."""
        added = self._connection.execute(
            "INSERT OR IGNORE INTO soapjms_requests (key, touched, octets) VALUES (?, ?, ?)",
            (key, now, octets_of(response)),
        )
        if added.rowcount and added.lastrowid is not None:
            self._respond(added.lastrowid, response)
        return bool(added.rowcount)

    def move_claims(self, path: Path, ledger: Ledger, now: float) -> None:
        """Convert a file of version 1: its unfinished requests move to the claims.

        Raises:
            StoreError: a process of an older soapjms uses the file.
        """
        with self.writing():
            if self.version() != 1:
                return
            alive = self._connection.execute("SELECT 1 FROM soapjms_owners WHERE until > ?", (now,)).fetchone()
            if alive is not None:
                raise StoreError(
                    f"{path} is a store of version 1, which a process of an older soapjms is using: it is converted to "
                    f"version {VERSION} once all such processes have ended"
                )
            unfinished = self._connection.execute(
                "SELECT key, owner, starts, deaths, failures, touched FROM soapjms_requests WHERE octets IS NULL"
            ).fetchall()
            with ledger.writing():  # committed first; requests already there are of a conversion that died after it
                ledger.take_over(unfinished)
            self.run(FROM_VERSION_1)


class FinishedRequest(NamedTuple):
    """A request that was finished, with its response."""

    response: PackedResponse


def octets_of(response: PackedResponse) -> int:
    """Return the size of a response's body, as the limits count it."""
    return 0 if response is None or response[1] is None else len(response[1])


class Ledger(File):
    """The second file: who runs which request, and requests finished without a transaction of their service."""

    TABLES = CLAIMS

    # Time

    def opened(self) -> tuple[float, float] | None:
        """Return the file's time at its last opening, and the latest clock reading until then; None at first."""
        found: tuple[float, float] | None = self._connection.execute(
            "SELECT time, clock FROM soapjms_opened"
        ).fetchone()
        return found

    def note_opened(self, time: float, clock: float) -> None:
        """Note both values of `opened`."""
        self._connection.execute("DELETE FROM soapjms_opened")
        self._connection.execute("INSERT INTO soapjms_opened VALUES (?, ?)", (time, clock))

    # Requests

    def entry(self, key: bytes) -> ClaimEntry | None:
        """Return the entry of a request, or None."""
        found = self._connection.execute(
            "SELECT number, owner, starts, deaths, failures, octets, writes FROM soapjms_requests WHERE key = ?", (key,)
        ).fetchone()
        return None if found is None else ClaimEntry(*found)

    def is_copy(self, name: bytes, number: int) -> bool:
        """Say whether a request with the same name came before this one."""
        found = self._connection.execute(
            "SELECT 1 FROM soapjms_requests WHERE key BETWEEN ? AND ? AND length(key) IN (?, ?) AND number < ? LIMIT 1",
            (*_keys_of(name), number),
        ).fetchone()
        return found is not None

    def add(self, key: bytes, owner: str, now: float) -> int:
        """Add a request that begins, and return its number."""
        added = self._connection.execute(
            "INSERT INTO soapjms_requests (key, owner, starts, deaths, failures, touched) VALUES (?, ?, 1, 0, 0, ?)",
            (key, owner, now),
        )
        assert added.lastrowid is not None
        return added.lastrowid

    def begin_again(self, number: int, owner: str, deaths: int, now: float) -> None:
        """Note that a request is begun again; its former owner cannot commit it any more."""
        self._connection.execute(
            "UPDATE soapjms_requests SET owner = ?, starts = starts + 1, deaths = ?, touched = ?, writes = NULL"
            " WHERE number = ?",
            (owner, deaths, now, number),
        )

    def finish(self, place: ClaimPlace, response: PackedResponse, now: float) -> bool:
        """Note that a request is finished; return False if its owner does not hold it any more."""
        done = self._connection.execute(
            f"UPDATE soapjms_requests SET owner = NULL, octets = ?, touched = ? WHERE {HELD}",  # noqa: S608 - a constant
            (octets_of(response), now, *place),
        )
        if done.rowcount:
            self._respond(place.number, response)
        return bool(done.rowcount)

    def hold(self, place: ClaimPlace, holder: Holder) -> bool:
        """Note that the owner of a request began a transaction; return False if it does not hold it any more."""
        held = self._connection.execute(
            f"UPDATE soapjms_requests SET writes = ?, pid = ?, name = ? WHERE {HELD}",  # noqa: S608 - a constant
            (*holder, *place),
        )
        return bool(held.rowcount)

    def holder(self) -> Holder | None:
        """Return the holder of the transaction that was begun last, or None."""
        found = self._connection.execute(
            "SELECT writes, pid, name FROM soapjms_requests WHERE octets IS NULL AND writes IS NOT NULL"
            " ORDER BY writes DESC LIMIT 1"
        ).fetchone()
        return None if found is None else Holder(*found)

    def take_over(self, requests: Sequence[tuple[object, ...]]) -> None:
        """Add requests from a file of version 1."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO soapjms_requests (key, owner, starts, deaths, failures, touched)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            requests,
        )

    def remove_settled(self, requests: Sequence[tuple[int, float]]) -> int:
        """Remove those requests for which no owner may be about to commit a transaction; return how many."""
        found = [each for each in requests if self._is_settled(each[0])]
        return self.remove(found)

    def _is_settled(self, number: int) -> bool:
        found = self._connection.execute(
            "SELECT writes IS NULL OR octets IS NOT NULL FROM soapjms_requests WHERE number = ?", (number,)
        ).fetchone()
        return found is None or bool(found[0])

    def let_go(self, place: ClaimPlace, deaths: int, failures: int) -> None:
        """Release a request, with its counts; do nothing if another owner holds it."""
        self._connection.execute(
            f"UPDATE soapjms_requests SET owner = NULL, deaths = ?, failures = ? WHERE {HELD}",  # noqa: S608 - a constant
            (deaths, failures, *place),
        )

    def forget(self, place: ClaimPlace) -> None:
        """Remove a request; do nothing if another owner holds it."""
        self._connection.execute(f"DELETE FROM soapjms_requests WHERE {HELD}", place)  # noqa: S608 - a constant

    # Arrivals

    def arrive(self, key: bytes, deliveries: int, now: float) -> int:
        """Note one more delivery, at least `deliveries` in all, and return how many were noted before."""
        found = self._connection.execute("SELECT deliveries FROM soapjms_arrivals WHERE key = ?", (key,)).fetchone()
        before: int = 0 if found is None else found[0]
        self._connection.execute(
            "INSERT OR REPLACE INTO soapjms_arrivals VALUES (?, ?, ?)", (key, max(before + 1, deliveries), now)
        )
        return before

    def depart(self, key: bytes) -> None:
        """Forget the deliveries of a request."""
        self._connection.execute("DELETE FROM soapjms_arrivals WHERE key = ?", (key,))

    def forget_arrivals(self, before: float) -> None:
        """Forget the arrivals that were last noted before a time."""
        self._connection.execute("DELETE FROM soapjms_arrivals WHERE touched < ?", (before,))

    # Owners

    def show_life(self, owner: str, until: float) -> None:
        """Write a sign of life of an owner."""
        self._connection.execute("INSERT OR REPLACE INTO soapjms_owners VALUES (?, ?)", (owner, until))

    def signs(self) -> dict[str, float]:
        """Return the last sign of life of each owner."""
        return dict(self._connection.execute("SELECT owner, until FROM soapjms_owners").fetchall())

    def sign(self, owner: str) -> float | None:
        """Return the last sign of life of an owner; None if it left or was forgotten."""
        found = self._connection.execute("SELECT until FROM soapjms_owners WHERE owner = ?", (owner,)).fetchone()
        return None if found is None else found[0]

    def leave(self, owner: str) -> None:
        """Forget an owner; requests that it had begun are treated as if it had died."""
        self._connection.execute("DELETE FROM soapjms_owners WHERE owner = ?", (owner,))

    def forget_owner(self, owner: str, sign: float) -> None:
        """Forget an owner, unless it gave another sign of life since."""
        self._connection.execute("DELETE FROM soapjms_owners WHERE owner = ? AND until = ?", (owner, sign))


def _keys_of(name: bytes) -> tuple[bytes, bytes, int, int]:
    """Return the bounds and the lengths of the keys of a name: other keys between the bounds have other lengths."""
    return name, name + b"\xff" * KEY_OCTETS, len(name), len(name) + KEY_OCTETS


def connected(path: Path, timeout: float, kind: type[C], synchronous: str) -> C:
    """Connect to a file, created readable by its owner only if absent, and switch on its write-ahead log.

    Raises:
        StoreError: the file cannot be opened or written, or is not a SQLite file.
    """
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        if (barred := barred_of(path)) is not None:
            raise StoreError(f"{path} cannot be used as a store of requests: this user may not read and write {barred}")
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False, factory=kind)
    except OSError as error:
        raise StoreError(f"the store of requests cannot be created: {reason_of(error)}") from error
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened as a store of requests: {error}") from error
    try:
        _use_write_ahead_log(connection, timeout)
        sqlite3.Connection.execute(connection, f"PRAGMA synchronous = {synchronous}")
    except sqlite3.Error as error:
        sqlite3.Connection.close(connection)
        raise StoreError(f"{path} cannot be used as a store of requests: {error}") from error
    return connection


def _use_write_ahead_log(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch on the write-ahead log; while another process does so, SQLite raises BUSY or LOCKED without waiting."""
    until = time.monotonic() + timeout
    while True:
        try:
            sqlite3.Connection.execute(connection, "PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in BUSY or time.monotonic() > until:
                raise
        time.sleep(LOCKED_NAP_SECONDS)
