"""The messages of a server: where each is in its life, and who is still to be informed of it.

A delivery that has no row is done. A row with an account and a session is that session's; without a session it waits
for the account to come back; without an account it is of a queue, for the first session that is free.

Spec: SMQP 2.2.1 (Trash), 2.4, 3 (an account may be logged in several times), 4.1.8.1, 4.1.11, 4.1.12.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from brokers.smqp.protocol.ids import Ranges
from brokers.smqp.server.database import Database


class MessageState(IntEnum):
    """PENDING: somebody is still to be informed. LINGERING: all current subscribers are, its time runs. TRASH: dead."""

    PENDING = 0
    LINGERING = 1
    TRASH = 2


KEPT: Final = (MessageState.PENDING, MessageState.LINGERING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """One message as it is kept: its header and body are as they go out.

    Attributes:
        smuid: its number, 0 before it is stored.
        topic: the number of its topic.
        account: who published it, None for the server itself.
        guid: of the session that it came by; None if duplicates are not to be found by it.
        uid: the publisher's own identifier for it.
        cmuid: account, guid and identifier as they go out.
        origin: the Smuid that another server gave it, None for one's own.
        created: the value of Created.
        header: the lines of all other attributes but Smuid and Cmuid.
        body: sections and the line with the dot.
        size: octets of header and body.
        received: when it came, seconds since 1970.
        priority: lower goes first.
        timeout: seconds, -1 for ever.
        depth: how many servers further it may go; -1 for all.
        receipt: the publisher is to be told once somebody has it.
        sequenced: it has a Sequence.
        state: where it is in its life.
        expires: when that changes by itself; None for never.
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


class Messages:
    """The messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin_at(self, smuid: int) -> None:
        """Number the first message so, if there was none yet."""
        if self._database.row("SELECT 1 FROM sqlite_sequence WHERE name = 'messages'") is None:
            self._database.execute("INSERT INTO sqlite_sequence VALUES ('messages', ?)", smuid - 1)

    def add(self, message: StoredMessage) -> int:
        """Store a message; return the number that it got, which is higher than any before."""
        return self._database.insert(INSERT, *(getattr(message, name) for name in NAMES[1:]))

    def get(self, smuid: int) -> StoredMessage | None:
        """Return a message."""
        return _stored(self._database.row(f"{SELECT} WHERE smuid = ?", smuid))

    def find(self, account: int, guid: str, uid: str) -> int | None:
        """Find what a session published under an identifier before (D-55 of the digest)."""
        row = self._database.row(
            "SELECT smuid FROM messages WHERE account = ? AND guid = ? AND uid = ?", account, guid, uid
        )
        return None if row is None else int(row[0])

    def numbers(self, topic: int, *, trash: bool) -> list[int]:
        """List the messages of a topic, or of its Trash."""
        states = (MessageState.TRASH, MessageState.TRASH) if trash else KEPT
        rows = self._database.rows(
            "SELECT smuid FROM messages WHERE topic = ? AND state IN (?, ?) ORDER BY smuid", topic, *states
        )
        return [number for (number,) in rows]

    def within(self, topic: int, ranges: Ranges, limit: int, *, trash: bool) -> list[StoredMessage]:
        """Return up to `limit` messages of a topic, or of its Trash, whose numbers are in ranges."""
        states = (MessageState.TRASH, MessageState.TRASH) if trash else KEPT
        found: dict[int, StoredMessage] = {}
        for begin, end in ranges:
            rows = self._database.rows(
                f"{SELECT} WHERE topic = ? AND state IN (?, ?) AND smuid BETWEEN ? AND ? ORDER BY smuid LIMIT ?",
                *(topic, *states, begin, end, limit - len(found)),
            )
            found.update((message.smuid, message) for row in rows if (message := _stored(row)))
        return [found[number] for number in sorted(found)]

    def count(self, topic: int, *, trash: bool = False) -> int:
        """Count the messages of a topic, or of its Trash."""
        states = (MessageState.TRASH, MessageState.TRASH) if trash else KEPT
        query = "SELECT COUNT(*) FROM messages WHERE topic = ? AND state IN (?, ?)"
        return int(self._database.row(query, topic, *states)[0])

    def octets(self, topic: int) -> int:
        """Count the octets that a topic holds, but for its Trash."""
        row = self._database.row("SELECT octets FROM held WHERE topic = ?", topic)
        return 0 if row is None else int(row[0])

    def set_state(self, smuid: int, state: MessageState, expires: float | None) -> None:
        """Note where a message is in its life, and when that changes by itself."""
        self._database.execute("UPDATE messages SET state = ?, expires = ? WHERE smuid = ?", state, expires, smuid)

    def take_receipt(self, smuid: int) -> bool:
        """Say whether a receipt is due, which it is once."""
        return bool(self._database.execute("UPDATE messages SET receipt = 0 WHERE smuid = ? AND receipt = 1", smuid))

    def due(self, now: float, limit: int) -> list[tuple[int, MessageState]]:
        """List messages whose state changes by now."""
        query = "SELECT smuid, state FROM messages WHERE expires <= ? ORDER BY expires LIMIT ?"
        return [(smuid, MessageState(state)) for smuid, state in self._database.rows(query, now, limit)]

    def next_due(self) -> float | None:
        """Say when the next state changes by itself."""
        found: float | None = self._database.row("SELECT MIN(expires) FROM messages WHERE expires IS NOT NULL")[0]
        return found

    def remove(self, smuid: int) -> None:
        """Remove a message and all that is known of its deliveries."""
        for table in ("messages", "deliveries", "delivered", "forwards"):
            self._database.execute(f"DELETE FROM {table} WHERE smuid = ?", smuid)  # noqa: S608 - names of tables

    def remove_all(self, topic: int) -> None:
        """Remove the messages of a topic, Trash too."""
        for (smuid,) in self._database.rows("SELECT smuid FROM messages WHERE topic = ?", topic):
            self.remove(smuid)

    # Messages of other servers

    def known_origin(self, origin: str) -> int | None:
        """Say under which number a message of another server came before (SM-238)."""
        row = self._database.row("SELECT smuid FROM origins WHERE origin = ?", origin)
        return None if row is None else int(row[0])

    def remember_origin(self, origin: str, smuid: int, now: float) -> None:
        """Note that a message came from another server, or went out from here and may come back."""
        self._database.execute("INSERT OR IGNORE INTO origins VALUES (?, ?, ?)", origin, smuid, now)

    def forget_origins(self, before: float) -> None:
        """Forget those of long ago."""
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
    """One message for one subscriber; `name` is the topic that it subscribed to."""

    number: int
    smuid: int
    topic: int
    account: int | None
    name: str
    attempts: int


DELIVERY_COLUMNS: Final = "id, smuid, topic, account, name, attempts"


class Deliveries:
    """The deliveries that are outstanding."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def recover(self, session_topics: list[int]) -> None:
        """After a start nobody is logged in: give all back to accounts and queues, each message once."""
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
        """Add one."""
        self._database.execute(
            "INSERT INTO deliveries (smuid, topic, account, session, name, priority, current) VALUES (?,?,?,?,?,?,?)",
            *(smuid, topic, account, session, name, priority, current),
        )

    def add_retained(
        self, topic: int, account: int, session: int, name: str, since: float | None, *, first_priority: bool
    ) -> None:
        """Add the messages that a topic still holds and the account has not had, and is not waiting for."""
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
        """Return what a session gets next."""
        row = self._database.row(
            f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE session = ? ORDER BY priority, smuid LIMIT 1",  # noqa: S608 - names of columns
            session,
        )
        return None if row is None else Item(*row)

    def next_of_queues(self, topics: list[int]) -> Item | None:
        """Return what waits in queues, the most urgent first."""
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
        """Give a row to a session, or back."""
        self._database.execute("UPDATE deliveries SET session = ? WHERE id = ?", session, number)

    def note_attempt(self, number: int) -> None:
        """Count one more attempt that led to nothing."""
        self._database.execute("UPDATE deliveries SET attempts = attempts + 1 WHERE id = ?", number)

    def finish(self, item: Item) -> None:
        """Note that a subscriber has it."""
        self._database.execute("DELETE FROM deliveries WHERE id = ?", item.number)
        if item.account is not None:
            self._database.execute("INSERT OR IGNORE INTO delivered VALUES (?, ?)", item.smuid, item.account)

    def drop(self, number: int) -> None:
        """Forget one."""
        self._database.execute("DELETE FROM deliveries WHERE id = ?", number)

    def adopt(self, account: int, session: int) -> None:
        """Give what waits for an account to its session."""
        self._database.execute(
            "UPDATE deliveries SET session = ? WHERE account = ? AND session IS NULL", session, account
        )

    def of_session(self, session: int) -> list[Item]:
        """List what a session has not had."""
        rows = self._database.rows(f"SELECT {DELIVERY_COLUMNS} FROM deliveries WHERE session = ?", session)  # noqa: S608 - as above
        return [Item(*row) for row in rows]

    def has_other(self, item: Item) -> bool:
        """Say whether another session of the account has the message, or is to have it."""
        found = self._database.row(
            "SELECT 1 FROM deliveries WHERE smuid = ? AND account = ? AND id != ?"
            " UNION ALL SELECT 1 FROM delivered WHERE smuid = ? AND account = ? LIMIT 1",
            *(item.smuid, item.account, item.number, item.smuid, item.account),
        )
        return found is not None

    def give_back(self, item: Item) -> None:
        """Let a row wait for its account, without holding up the message's time."""
        self._database.execute("UPDATE deliveries SET session = NULL, current = 0 WHERE id = ?", item.number)

    def withdraw(self, topic: int, account: int, *, before: float | None = None) -> list[int]:
        """Drop what waits for an account of a topic, all or what came before a time; return the messages."""
        condition = "topic = ? AND account = ?"
        parameters: list[object] = [topic, account]
        if before is not None:
            condition += " AND (SELECT received FROM messages m WHERE m.smuid = deliveries.smuid) < ?"
            parameters.append(before)
        rows = self._database.rows(f"SELECT smuid FROM deliveries WHERE {condition}", *parameters)  # noqa: S608 - conditions of above
        self._database.execute(f"DELETE FROM deliveries WHERE {condition}", *parameters)  # noqa: S608 - as above
        return [smuid for (smuid,) in rows]

    def is_awaited(self, smuid: int) -> bool:
        """Say whether a current subscriber is still to be informed."""
        return self._database.row("SELECT 1 FROM deliveries WHERE smuid = ? AND current LIMIT 1", smuid) is not None

    def unawaited(self) -> list[int]:
        """List the messages that are pending though nobody current is to be informed."""
        rows = self._database.rows(
            "SELECT smuid FROM messages WHERE state = 0"
            " AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.smuid = messages.smuid AND d.current)"
        )
        return [smuid for (smuid,) in rows]

    def forget(self, smuid: int, *, also_delivered: bool) -> None:
        """Drop all deliveries of a message; and, to send it to all again, who had it."""
        self._database.execute("DELETE FROM deliveries WHERE smuid = ?", smuid)
        if also_delivered:
            self._database.execute("DELETE FROM delivered WHERE smuid = ?", smuid)

    def rename(self, names: list[tuple[str, str]]) -> None:
        """Change the names of topics, pairs of new and old, under which messages go out."""
        self._database.many("UPDATE deliveries SET name = ? WHERE name = ?", names)

    def pending_messages(self, topic: int) -> int:
        """Count the messages of a topic that somebody is still to be informed of."""
        return int(self._database.row("SELECT COUNT(DISTINCT smuid) FROM deliveries WHERE topic = ?", topic)[0])
