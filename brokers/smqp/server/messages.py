"""The messages of a server: their states, and their outstanding deliveries.

A delivery without a row is done. A row with an account and a session belongs to that session; without a session it
waits for the account to log in; without an account it is for a queue, and goes to the first free session.

Spec: SMQP 2.2.1 (Trash), 2.4, 3 (an account may be logged in several times), 4.1.8.1, 4.1.11, 4.1.12.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from brokers.smqp.protocol.ids import Ranges
from brokers.smqp.server.database import Database


class MessageState(IntEnum):
    """PENDING: not all current subscribers are informed. LINGERING: all are, and its timeout runs. TRASH: expired."""

    PENDING = 0
    LINGERING = 1
    TRASH = 2


KEPT: Final = (MessageState.PENDING, MessageState.LINGERING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A stored message; its header and body are in the form in which they are sent.

    Attributes:
        smuid: its number, 0 before it is stored.
        topic: the number of its topic.
        account: the number of the account that published it, or None.
        guid: the guid of the session that published it; None if duplicates are not detected by it.
        uid: the publisher's identifier for it.
        cmuid: account, guid and identifier, as they are sent.
        origin: the Smuid given by another server, None for a message of this server.
        created: the value of Created.
        header: the lines of all other attributes except Smuid and Cmuid.
        body: sections and the line with the dot.
        size: see `size_of`.
        received: when it was received, in seconds since 1970.
        priority: its priority; lower numbers go first.
        timeout: its timeout in seconds, -1 for none.
        depth: how many servers further it may be passed on; -1 for no limit.
        receipt: whether a receipt must be sent once a subscriber has it.
        sequenced: whether it has a Sequence.
        state: its state.
        expires: when the state changes by itself, in seconds since 1970; None for never.
    """

    smuid: int = 0
    topic: int
    account: int | None
    guid: str | None
    uid: str
    cmuid: str
    origin: str | None
    created: str
    header: bytes
    body: bytes
    size: int
    received: float
    priority: int
    timeout: float
    depth: int
    receipt: bool
    sequenced: bool
    state: MessageState = MessageState.PENDING
    expires: float | None = None


MESSAGE_COLUMNS: Final = (
    "smuid, topic, account, guid, uid, cmuid, origin, created, header, body, size, received, priority, timeout, depth, "
    "receipt, sequenced, state, expires"
)
NAMES: Final = tuple(MESSAGE_COLUMNS.split(", "))
SELECT: Final = f"SELECT {MESSAGE_COLUMNS} FROM messages"  # noqa: S608 - names of columns
INSERT: Final = f"INSERT INTO messages ({MESSAGE_COLUMNS[7:]}) VALUES ({', '.join('?' * (len(NAMES) - 1))})"  # noqa: S608 - as above


ROW_OCTETS: Final = 256
"""Octets that a message counts beside its texts: about what its row, its deliveries and their indexes take."""


def size_of(header: bytes, body: bytes, *texts: str) -> int:
    """Return how many octets a message counts, with its other texts."""
    return len(header) + len(body) + sum(len(each.encode()) for each in texts) + ROW_OCTETS


class Messages:
    """The table of messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin_at(self, smuid: int) -> None:
        """Set the number of the first message, if there was none yet."""
        if self._database.row("SELECT 1 FROM sqlite_sequence WHERE name = 'messages'") is None:
            self._database.execute("INSERT INTO sqlite_sequence VALUES ('messages', ?)", smuid - 1)

    def add(self, message: StoredMessage) -> int:
        """Store a message; return its number, which is higher than all before."""
        return self._database.insert(INSERT, *(getattr(message, name) for name in NAMES[1:]))

    def get(self, smuid: int) -> StoredMessage | None:
        """Return a message, or None."""
        return _stored(self._database.row(f"{SELECT} WHERE smuid = ?", smuid))

    def find(
        self, account: int, guid: str, uid: str, *, topic: int | None = None, header_start: bytes = b""
    ) -> int | None:
        """Return the number of a message that a session published under an identifier before (D-55 of the digest).

        Args:
            account: the account of the session.
            guid: the guid of the session.
            uid: the identifier.
            topic: the topic of the message; None for any.
            header_start: the beginning of its header.
        """
        row = self._database.row(
            "SELECT smuid FROM messages WHERE account = ? AND guid = ? AND uid = ?"
            " AND topic = IFNULL(?, topic) AND IFNULL(substr(header, 1, ?), x'') = ? LIMIT 1",
            *(account, guid, uid, topic, len(header_start), header_start),
        )
        return None if row is None else int(row[0])

    def numbers(self, topic: int, *, trash: bool) -> list[int]:
        """List the messages of a topic, or of its Trash."""
        states = (MessageState.TRASH, MessageState.TRASH) if trash else KEPT
        rows = self._database.rows(
            "SELECT smuid FROM messages WHERE topic = ? AND state IN (?, ?) ORDER BY smuid", topic, *states
        )
        return [number for (number,) in rows]

    def sizes(self, topic: int, ranges: Ranges, limit: int, *, trash: bool) -> dict[int, int]:
        """Return up to `limit` messages of a topic, or of its Trash, in ranges: sizes by ascending numbers."""
        states = (MessageState.TRASH, MessageState.TRASH) if trash else KEPT
        found: dict[int, int] = {}
        for begin, end in ranges:
            found.update(
                self._database.rows(
                    "SELECT smuid, size FROM messages"
                    " WHERE topic = ? AND state IN (?, ?) AND smuid BETWEEN ? AND ? ORDER BY smuid LIMIT ?",
                    *(topic, *states, begin, end, limit - len(found)),
                )
            )
        return dict(sorted(found.items()))

    def count(self, topic: int, *, trash: bool = False) -> int:
        """Count the messages of a topic, or of its Trash."""
        states = (MessageState.TRASH, MessageState.TRASH) if trash else KEPT
        query = "SELECT COUNT(*) FROM messages WHERE topic = ? AND state IN (?, ?)"
        return int(self._database.row(query, topic, *states)[0])

    def octets(self, topic: int) -> int:
        """Count the octets in a topic, without its Trash."""
        row = self._database.row("SELECT octets FROM held WHERE topic = ?", topic)
        return 0 if row is None else int(row[0])

    def set_state(self, smuid: int, state: MessageState, expires: float | None) -> None:
        """Set the state of a message, and when it changes by itself."""
        self._database.execute("UPDATE messages SET state = ?, expires = ? WHERE smuid = ?", state, expires, smuid)

    def take_receipt(self, smuid: int) -> bool:
        """Say whether a receipt is due, and clear that: it is due only once."""
        return bool(self._database.execute("UPDATE messages SET receipt = 0 WHERE smuid = ? AND receipt = 1", smuid))

    def due(self, now: float, limit: int) -> list[tuple[int, MessageState]]:
        """List up to `limit` messages whose state must have changed by `now`."""
        query = "SELECT smuid, state FROM messages WHERE expires <= ? ORDER BY expires LIMIT ?"
        return [(smuid, MessageState(state)) for smuid, state in self._database.rows(query, now, limit)]

    def next_due(self) -> float | None:
        """Return when the next state changes by itself, or None."""
        found: float | None = self._database.row("SELECT MIN(expires) FROM messages WHERE expires IS NOT NULL")[0]
        return found

    def remove(self, smuid: int) -> None:
        """Remove a message and all records of its deliveries."""
        for table in ("messages", "deliveries", "delivered", "forwards"):
            self._database.execute(f"DELETE FROM {table} WHERE smuid = ?", smuid)  # noqa: S608 - names of tables

    def remove_all(self, topic: int) -> None:
        """Remove the messages of a topic, including its Trash."""
        for (smuid,) in self._database.rows("SELECT smuid FROM messages WHERE topic = ?", topic):
            self.remove(smuid)

    # Messages of other servers

    def known_origin(self, origin: str) -> int | None:
        """Return the number under which another server's message came before, or None (SM-238)."""
        row = self._database.row("SELECT smuid FROM origins WHERE origin = ?", origin)
        return None if row is None else int(row[0])

    def remember_origin(self, origin: str, smuid: int, now: float) -> None:
        """Remember the Smuid of a message from another server."""
        self._database.execute("INSERT OR IGNORE INTO origins VALUES (?, ?, ?)", origin, smuid, now)

    def forget_origins(self, before: float) -> None:
        """Forget the origins seen before a time."""
        self._database.execute("DELETE FROM origins WHERE seen < ?", before)


def _stored(row: Any) -> StoredMessage | None:
    if row is None:
        return None
    values = dict(zip(NAMES, row, strict=True))
    values["state"] = MessageState(values["state"])
    values["receipt"], values["sequenced"] = bool(values["receipt"]), bool(values["sequenced"])
    return StoredMessage(**values)


NO_TIME: Final = -1e18


class Item(NamedTuple):
    """One message for one subscriber; `name` is the topic by which it subscribed."""

    number: int
    smuid: int
    topic: int
    account: int | None
    name: str
    attempts: int


DELIVERY_COLUMNS: Final = "id, smuid, topic, account, name, attempts"


class Deliveries:
    """The table of outstanding deliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def recover(self, session_topics: list[int]) -> None:
        """Give all deliveries back to accounts and queues after a start without sessions, each message once."""
        database = self._database
        database.many("DELETE FROM deliveries WHERE topic = ?", [(topic,) for topic in session_topics])
        database.execute(
            "DELETE FROM deliveries WHERE account IS NOT NULL AND (id NOT IN"
            " (SELECT MIN(id) FROM deliveries WHERE account IS NOT NULL GROUP BY smuid, account)"
            " OR EXISTS (SELECT 1 FROM delivered d WHERE d.smuid = deliveries.smuid"
            " AND d.account = deliveries.account))"
        )
        database.execute("UPDATE deliveries SET session = NULL, current = (account IS NULL)")

    def add(
        self, smuid: int, topic: int, account: int | None, session: int | None, name: str, priority: int, current: bool
    ) -> None:
        """Add a delivery."""
        self._database.execute(
            "INSERT INTO deliveries (smuid, topic, account, session, name, priority, current) VALUES (?,?,?,?,?,?,?)",
            *(smuid, topic, account, session, name, priority, current),
        )

    def add_retained(
        self, topic: int, account: int, session: int, name: str, since: float | None, *, first_priority: bool
    ) -> None:
        """Add deliveries of a topic's kept messages that the account has not had and is not waiting for."""
        self._database.execute(
            "INSERT INTO deliveries (smuid, topic, account, session, name, priority, current)"
            " SELECT m.smuid, m.topic, ?, ?, ?, CASE WHEN ? THEN 0 ELSE m.priority END, 0 FROM messages m"
            " WHERE m.topic = ? AND m.state IN (?, ?) AND m.received >= ?"
            " AND NOT EXISTS (SELECT 1 FROM delivered d WHERE d.smuid = m.smuid AND d.account = ?)"
            " AND NOT EXISTS (SELECT 1 FROM deliveries p WHERE p.smuid = m.smuid AND p.account = ?)",
            *(account, session, name, first_priority, topic, *KEPT, NO_TIME if since is None else since),
            *(account, account),
        )

    def next_for(self, session: int) -> Item | None:
        """Return the next item of a session, or None."""
        row = self._database.row(
            f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE session = ? ORDER BY priority, smuid LIMIT 1",  # noqa: S608 - names of columns
            session,
        )
        return None if row is None else Item(*row)

    def next_of_queues(self, topics: Iterable[int]) -> Item | None:
        """Return the most urgent item waiting in queues, or None."""
        best: tuple[int, int, Item] | None = None
        for topic in topics:
            row = self._database.row(
                f"SELECT priority, {DELIVERY_COLUMNS} FROM deliveries"  # noqa: S608 - names of columns
                " WHERE topic = ? AND account IS NULL AND session IS NULL ORDER BY priority, smuid LIMIT 1",
                topic,
            )
            if row is not None and (best is None or (row[0], row[2]) < best[:2]):
                best = row[0], row[2], Item(*row[1:])
        return None if best is None else best[2]

    def assign(self, number: int, session: int | None) -> None:
        """Assign a delivery to a session, or to none."""
        self._database.execute("UPDATE deliveries SET session = ? WHERE id = ?", session, number)

    def note_attempt(self, number: int) -> None:
        """Count a failed attempt."""
        self._database.execute("UPDATE deliveries SET attempts = attempts + 1 WHERE id = ?", number)

    def finish(self, item: Item) -> None:
        """Note that a subscriber has the message."""
        self._database.execute("DELETE FROM deliveries WHERE id = ?", item.number)
        if item.account is not None:
            self._database.execute("INSERT OR IGNORE INTO delivered VALUES (?, ?)", item.smuid, item.account)

    def drop(self, number: int) -> None:
        """Remove a delivery."""
        self._database.execute("DELETE FROM deliveries WHERE id = ?", number)

    def adopt(self, account: int, session: int) -> None:
        """Assign the deliveries waiting for an account to a session."""
        self._database.execute(
            "UPDATE deliveries SET session = ? WHERE account = ? AND session IS NULL", session, account
        )

    def of_session(self, session: int) -> list[Item]:
        """List the outstanding items of a session."""
        rows = self._database.rows(f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE session = ?", session)  # noqa: S608 - as above
        return [Item(*row) for row in rows]

    def has_other(self, item: Item) -> bool:
        """Say whether another session of the account has had the message, or will get it."""
        found = self._database.row(
            "SELECT 1 FROM deliveries WHERE smuid = ? AND account = ? AND id != ?"
            " UNION ALL SELECT 1 FROM delivered WHERE smuid = ? AND account = ? LIMIT 1",
            *(item.smuid, item.account, item.number, item.smuid, item.account),
        )
        return found is not None

    def give_back(self, item: Item) -> None:
        """Let a delivery wait for its account, without delaying the message's timeout."""
        self._database.execute("UPDATE deliveries SET session = NULL, current = 0 WHERE id = ?", item.number)

    def withdraw(self, topic: int, account: int, *, before: float | None = None) -> list[int]:
        """Drop an account's deliveries of a topic, all or those received before a time; return their messages."""
        condition = "topic = ? AND account = ?"
        parameters: list[object] = [topic, account]
        if before is not None:
            condition += " AND (SELECT received FROM messages m WHERE m.smuid = deliveries.smuid) < ?"
            parameters.append(before)
        rows = self._database.rows(f"SELECT smuid FROM deliveries WHERE {condition}", *parameters)  # noqa: S608 - conditions of above
        self._database.execute(f"DELETE FROM deliveries WHERE {condition}", *parameters)  # noqa: S608 - as above
        return [smuid for (smuid,) in rows]

    def is_awaited(self, smuid: int) -> bool:
        """Say whether a current subscriber is not yet informed."""
        return self._database.row("SELECT 1 FROM deliveries WHERE smuid = ? AND current LIMIT 1", smuid) is not None

    def unawaited(self) -> list[int]:
        """List the messages that are pending although all current subscribers are informed."""
        rows = self._database.rows(
            "SELECT smuid FROM messages WHERE state = 0"
            " AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.smuid = messages.smuid AND d.current)"
        )
        return [smuid for (smuid,) in rows]

    def forget(self, smuid: int, *, also_delivered: bool) -> None:
        """Drop all deliveries of a message, and with `also_delivered` the record of those who had it."""
        self._database.execute("DELETE FROM deliveries WHERE smuid = ?", smuid)
        if also_delivered:
            self._database.execute("DELETE FROM delivered WHERE smuid = ?", smuid)

    def rename(self, names: list[tuple[str, str]]) -> None:
        """Change the topic names under which messages are sent; `names` are pairs of new and old."""
        self._database.many("UPDATE deliveries SET name = ? WHERE name = ?", names)

    def pending_messages(self, topic: int) -> int:
        """Count the messages of a topic with outstanding deliveries."""
        return int(self._database.row("SELECT COUNT(DISTINCT smuid) FROM deliveries WHERE topic = ?", topic)[0])
