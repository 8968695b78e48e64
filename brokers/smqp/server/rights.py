"""Who may do what at which topic: the User Access List. No command of SMQP reaches it (SM-240).

Spec: SMQP 2.2 (a topic without an entry has its parent's), 6.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

from brokers.smqp.server.accounts import Account
from brokers.smqp.server.database import Database
from brokers.smqp.server.directory import Directory, Topic

ROOT_NUMBER: Final = 0
"""Stands for `/`, which is no topic, in the list."""
ANYONE: Final = 0
"""Stands for every account that has no entry of its own."""


class Right(IntFlag):
    """What an entry allows."""

    NONE = 0
    PUBLISH = 1
    SUBSCRIBE = 2
    TOPICS = 4  # create, rename and remove at or below
    PARAMETERS = 8  # of the queue
    REPLY = 16
    REMOTE = 32  # messages go on to other servers
    ALL = 63


OWN: Final = Right.SUBSCRIBE | Right.TOPICS
"""What an account may do with the temporary topics that it created."""


class Rights:
    """The entries; one that is missing is the parent's, and without any nothing is allowed.

    `version` counts their changes.
    """

    def __init__(self, database: Database, directory: Directory) -> None:
        self._database = database
        self._directory = directory
        self.version = 0
        self._entries: dict[tuple[int, int], Right] = {}
        self.reload()

    def reload(self) -> None:
        """Read all from the file again."""
        self.version += 1
        rows = self._database.rows("SELECT topic, account, rights FROM rights")
        self._entries = {(topic, account): Right(rights) for topic, account, rights in rows}

    def grant(self, topic: int, account: int, rights: Right) -> None:
        """Set an entry."""
        self._database.execute("INSERT OR REPLACE INTO rights VALUES (?, ?, ?)", topic, account, int(rights))
        self._entries[topic, account] = rights
        self.version += 1

    def forget(self, topic: int) -> None:
        """Drop the entries of a topic that was removed."""
        self._database.execute("DELETE FROM rights WHERE topic = ?", topic)
        self._entries = {key: rights for key, rights in self._entries.items() if key[0] != topic}

    def of(self, account: Account, path: str) -> Right:
        """Say what an account may do at a path, which need not exist.

        A temporary topic is its owner's, whatever is granted above it: others may publish there at most. With the
        messages of a virtual topic nobody may do what he may not at the topic that it leads to: else whoever may create
        topics anywhere could give himself rights at any other.
        """
        if account.is_admin:
            return Right.ALL
        granted, owner = self._granted(account, path), self._directory.owner(path)
        if owner is None:
            topic = self._directory.find(path)
            if topic is None or topic.target is None:
                return granted
            return granted & (Right.TOPICS | self.of(account, self._directory.actual(topic).path))
        return granted | OWN if owner.account == account.number else granted & Right.PUBLISH

    def _granted(self, account: Account, path: str) -> Right:
        while path not in ("/", ""):
            topic = self._directory.find(path)
            found = None if topic is None else self._entry(topic.number, account)
            if found is not None:
                return found
            path = path.rpartition("/")[0]
        found = self._entry(ROOT_NUMBER, account)
        return Right.NONE if found is None else found

    def allows(self, account: Account, topic: Topic, right: Right) -> bool:
        """Say whether an account has a right at a topic."""
        return right in self.of(account, topic.path)

    def _entry(self, topic: int, account: Account) -> Right | None:
        own = self._entries.get((topic, account.number))
        return self._entries.get((topic, ANYONE)) if own is None else own
