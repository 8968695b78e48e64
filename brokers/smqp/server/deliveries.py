"""Who is still to be informed of which message. What is not here, is done.

A row with an account and a session is that session's; without a session it waits for the account to come back; without
an account it is of a queue, for the first session that is free.

Spec: SMQP 2.4, 3 (an account may be logged in several times), 4.1.11, 4.1.12.1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.smqp.server.database import Database
from brokers.smqp.server.messages import KEPT

NO_TIME: Final = -1e18


class Item(NamedTuple):
    """One message for one subscriber; `name` is the topic that it subscribed to."""

    number: int
    smuid: int
    topic: int
    account: int | None
    name: str
    attempts: int


COLUMNS: Final = "id, smuid, topic, account, name, attempts"


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
            f"SELECT {COLUMNS} FROM deliveries WHERE session = ? ORDER BY priority, smuid LIMIT 1",  # noqa: S608 - names of columns
            session,
        )
        return None if row is None else Item(*row)

    def next_of_queues(self, topics: list[int]) -> Item | None:
        """Return what waits in queues, the most urgent first."""
        best: tuple[int, int, Item] | None = None
        for topic in topics:
            row = self._database.row(
                f"SELECT priority, {COLUMNS} FROM deliveries"  # noqa: S608 - names of columns
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
        rows = self._database.rows(f"SELECT {COLUMNS} FROM deliveries WHERE session = ?", session)  # noqa: S608 - as above
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
