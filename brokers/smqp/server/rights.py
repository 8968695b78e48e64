"""The rights of accounts at topics (the User Access List), and the subscriptions.

No command of SMQP changes the User Access List (SM-240). A subscription belongs to its account and outlives the
session (SM-153). Wildcards are stored as such, together with the parts that were excluded from them later.

Spec: SMQP 2.2 (a topic without an entry has that of its parent), 6; SMQP 4.1.10, 4.1.11.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag, StrEnum
from typing import Final, NamedTuple

from brokers.smqp.protocol.topics import covers, covers_all_of, fold, moved
from brokers.smqp.server.accounts import Account
from brokers.smqp.server.database import Database
from brokers.smqp.server.topics import Directory, Topic

ROOT_NUMBER: Final = 0
"""The number of `/`, which is not a topic, in the list."""
ANYONE: Final = 0
"""The number that stands for all accounts without an entry of their own."""


class Right(IntFlag):
    """The rights in an entry."""

    NONE = 0
    PUBLISH = 1
    SUBSCRIBE = 2
    TOPICS = 4  # create, rename and remove at or below
    PARAMETERS = 8  # of the queue
    REPLY = 16
    REMOTE = 32  # pass messages on to other servers
    ALL = 63


OWN: Final = Right.SUBSCRIBE | Right.TOPICS
"""The rights of an account at the temporary topics that it created."""


class TopicRights:
    """The entries; a topic without an entry has that of its parent, and without any entry nothing is allowed.

    `version` counts the changes.
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
        """Return the rights of an account at a path, which need not exist.

        A temporary topic belongs to its owner, whatever is granted above it: others may at most publish there. At a
        virtual topic an account has no more rights to messages than at the target: otherwise an account that may create
        topics anywhere could gain rights at any other topic.
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


class Resource(StrEnum):
    """The kinds of subscriptions, as named in the reply to UNSUBSCRIBE."""

    MESSAGE = "MESSAGE"
    TOPIC = "TOPIC"
    SUBSCRIBER = "SUB"


class TopicSubscription(NamedTuple):
    """One pattern of one account."""

    account: int
    resource: Resource
    folded: str
    pattern: str
    since: float | None
    is_exclusion: bool


class TopicSubscriber(NamedTuple):
    """A subscriber of a topic: the account, the name by which it subscribed, and the time from which on."""

    account: int
    name: str
    since: float | None


class Subscriptions:
    """The subscriptions. `version` counts the changes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.version = 0
        self._all: dict[Resource, dict[int, list[TopicSubscription]]] = {}
        self.reload()

    def reload(self) -> None:
        """Read all from the file again."""
        self.version += 1
        self._all = {resource: {} for resource in Resource}
        rows = self._database.rows(
            "SELECT account, resource, folded, pattern, since, is_exclusion FROM subscriptions ORDER BY folded"
        )
        for account, resource, folded, pattern, since, is_exclusion in rows:
            each = TopicSubscription(account, Resource(resource), folded, pattern, since, bool(is_exclusion))
            self._all[each.resource].setdefault(account, []).append(each)

    def count(self, account: int) -> int:
        """Count the subscriptions of an account."""
        return sum(len(of_accounts.get(account, ())) for of_accounts in self._all.values())

    def has(self, account: int, resource: Resource, pattern: str) -> bool:
        """Say whether an account has a subscription to a pattern."""
        own, folded = self._all[resource].get(account, ()), fold(pattern)
        return any(each.folded == folded and not each.is_exclusion for each in own)

    def wanted(self, resource: Resource, account: int, folded: str) -> TopicSubscription | None:
        """Return the subscription of an account that covers a topic, preferably an exact one, or None."""
        own = self._all[resource].get(account, ())
        itself = resource is Resource.TOPIC
        if any(each.is_exclusion and covers(each.folded, folded, itself=itself) for each in own):
            return None
        found = [each for each in own if not each.is_exclusion and covers(each.folded, folded, itself=itself)]
        return min(found, key=lambda each: each.folded != folded, default=None)

    def who(self, resource: Resource, names: Iterable[str]) -> list[TopicSubscriber]:
        """Return the subscribers of a topic by its names; each account once, by the first name that matches."""
        spelled = [(name, fold(name)) for name in names]
        out = []
        for account in self._all[resource]:
            for name, folded in spelled:
                if (found := self.wanted(resource, account, folded)) is not None:
                    out.append(TopicSubscriber(account, name, found.since))
                    break
        return out

    def add(self, account: int, resource: Resource, pattern: str, since: float | None) -> None:
        """Subscribe; parts that were excluded from the pattern before are included again."""
        folded, itself = fold(pattern), resource is Resource.TOPIC
        for each in self._all[resource].get(account, ()):
            if each.is_exclusion and covers_all_of(folded, each.folded, itself=itself):
                self._delete(each)
        self._insert(TopicSubscription(account, resource, folded, pattern, since, False))
        self.reload()

    def remove(self, account: int, resource: Resource, pattern: str) -> bool:
        """Unsubscribe; say whether the pattern covered any subscription, in whole or in part."""
        covered, is_left_out = self._within(account, resource, pattern)
        if not is_left_out and all(each.is_exclusion for each in covered):
            return False
        for each in covered:
            self._delete(each)
        if is_left_out:
            self._insert(TopicSubscription(account, resource, fold(pattern), pattern, None, True))
        self.reload()
        return True

    def grows_without(self, account: int, resource: Resource, pattern: str) -> bool:
        """Say whether there would be one entry more after unsubscribing: a part that is left out of a wider pattern."""
        covered, is_left_out = self._within(account, resource, pattern)
        return is_left_out and not covered

    def _within(self, account: int, resource: Resource, pattern: str) -> tuple[list[TopicSubscription], bool]:
        """Return the entries that a pattern covers, and whether it is a part of a wider one, not left out so far."""
        folded, itself = fold(pattern), resource is Resource.TOPIC
        own = self._all[resource].get(account, [])
        covered = [each for each in own if covers_all_of(folded, each.folded, itself=itself)]
        around = [each for each in own if covers_all_of(each.folded, folded, itself=itself)]
        is_part = any(not each.is_exclusion and each not in covered for each in around)
        return covered, is_part and not any(each.is_exclusion for each in around)

    def patterns(self, account: int, resource: Resource) -> list[str]:
        """List the patterns of an account, without the excluded parts."""
        return [each.pattern for each in self._all[resource].get(account, ()) if not each.is_exclusion]

    def follow(self, old: str, new: str) -> None:
        """Change the patterns at or below a topic that was renamed."""
        for of_accounts in list(self._all.values()):
            for own in of_accounts.values():
                for each in own:
                    if (pattern := moved(each.pattern, old, new)) is not None:
                        self._delete(each)
                        self._insert(each._replace(pattern=pattern, folded=fold(pattern)))
        self.reload()

    def forget(self, folded: str) -> None:
        """Drop the subscriptions that name a removed topic."""
        self._database.execute("DELETE FROM subscriptions WHERE folded = ?", folded)
        self.reload()

    def _insert(self, each: TopicSubscription) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO subscriptions (account, resource, folded, pattern, since, is_exclusion)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            *(each.account, each.resource, each.folded, each.pattern, each.since, each.is_exclusion),
        )

    def _delete(self, each: TopicSubscription) -> None:
        self._database.execute(
            "DELETE FROM subscriptions WHERE account = ? AND resource = ? AND folded = ? AND is_exclusion = ?",
            *(each.account, each.resource, each.folded, each.is_exclusion),
        )
