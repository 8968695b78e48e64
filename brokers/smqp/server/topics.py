"""The topics of a server, in memory as in its file.

Spec: SMQP 2.2 (hierarchy, virtual topics, keywords), 2.2.2 (login topics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from brokers.arguments import is_number
from brokers.errors import UsageError
from brokers.smqp.protocol.topics import ROOT, child, covers, fold, parent
from brokers.smqp.server.database import Database

FOREVER_SECONDS: Final = -1.0
"""The stored value of a timeout that never ends; NULL means that no timeout is set."""


class TopicKind(StrEnum):
    """The recipients of a topic's messages. The draft has only the first kind; clients cannot see or change the kind.

    TOPIC: every subscribed account, even if it was absent. SESSION: every subscribed session, until it ends.
    QUEUE: one of the subscribed sessions; the message stays until one has taken it.
    """

    TOPIC = "topic"
    SESSION = "session"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic; for a parameter of None the server's default applies.

    Attributes:
        number: its number in the store.
        path: its path as created.
        folded: its path with case folded.
        target: the number of a virtual topic's target, or None.
        keywords: its keywords.
        is_removing: whether it takes no more messages, and is removed when the last is delivered.
        is_login: whether it is a login topic, or above one.
        kind: the recipients of its messages.
        timeout: the timeout of messages without their own, in seconds; -1 for no limit.
        retry_timeout: seconds until a message is sent again.
        max_retries: maximum number of retries for one message to one client.
        max_messages: maximum number of messages.
        max_message: maximum size of a message, in octets.
        max_octets: maximum total size of its messages, in octets.
    """

    number: int
    path: str
    folded: str
    target: int | None
    keywords: tuple[str, ...]
    is_removing: bool
    is_login: bool
    kind: TopicKind
    timeout: float | None = None
    retry_timeout: float | None = None
    max_retries: int | None = None
    max_messages: int | None = None
    max_message: int | None = None
    max_octets: int | None = None


class TopicOwner(NamedTuple):
    """The owner of a temporary topic: an account, and the session that created the topic."""

    account: int
    session: int


TOPIC_COLUMNS: Final = tuple("id" if each.name == "number" else each.name for each in fields(Topic))
MAX_STORED_NUMBER: Final = 2**63 - 1


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_STORED_NUMBER


class ParameterRule(NamedTuple):
    """What a parameter of a topic must be, in words, and the function that says whether a value is."""

    wanted: str
    fits: Callable[[Any], bool]


MAXIMUM: Final = ParameterRule("a whole number of at least 1", partial(_is_whole, least=1))
PARAMETERS: Final[Mapping[str, ParameterRule]] = {
    "timeout": ParameterRule("a number of seconds, at least 0", lambda value: is_number(value) and value >= 0),
    "retry_timeout": ParameterRule("a number of seconds above 0", lambda value: is_number(value) and value > 0),
    "max_retries": ParameterRule("a whole number of at least 0", partial(_is_whole, least=0)),
    "max_messages": MAXIMUM,
    "max_message": MAXIMUM,
    "max_octets": MAXIMUM,
    "kind": ParameterRule("a TopicKind", lambda value: isinstance(value, TopicKind)),
}
"""The parameters of a topic that an administrator may set (SM-242)."""


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Check the parameters of a topic; each may be None.

    Raises:
        UsageError: a parameter is unknown, or has a value that it cannot have.
    """
    for name, value in parameters.items():
        if name not in PARAMETERS:
            raise UsageError(f"parameters of a topic must be among {', '.join(PARAMETERS)}, got {name}")
        if value is not None and not PARAMETERS[name].fits(value):
            raise UsageError(f"{name} must be {PARAMETERS[name].wanted}, got {value!r}")


class Directory:
    """All topics.

    Attributes:
        version: counts the changes.
        owners: the owners of temporary topics, by folded path. They are not stored, as they end with their sessions.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.version = 0
        self.owners: dict[str, TopicOwner] = {}
        self._by_path: dict[str, Topic] = {}
        self._by_number: dict[int, Topic] = {}
        self._children: dict[str, set[str]] = {}
        self._links: dict[int, set[str]] = {}
        self.reload()

    def reload(self) -> None:
        """Read all topics from the file again, for example after changes were undone."""
        self.version += 1
        for index in (self._by_path, self._by_number, self._children, self._links):
            index.clear()
        for row in self._database.rows(f"SELECT {', '.join(TOPIC_COLUMNS)} FROM topics"):  # noqa: S608 - names of columns
            self._index(_topic(row))
        self.owners = {path: owner for path, owner in self.owners.items() if path in self._by_path}

    # Lookup

    def __len__(self) -> int:
        return len(self._by_number)

    def find(self, path: str) -> Topic | None:
        """Find a topic, which may be virtual, by its path, ignoring case."""
        return self._by_path.get(fold(path))

    def owner(self, path: str) -> TopicOwner | None:
        """Return the owner of a temporary topic; None for any other topic."""
        return self.owners.get(fold(path))

    def get(self, number: int) -> Topic:
        """Return a topic by its number."""
        return self._by_number[number]

    def has(self, number: int) -> bool:
        """Say whether a topic still exists."""
        return number in self._by_number

    def actual(self, topic: Topic) -> Topic:
        """Return the target of a virtual topic, or the topic itself."""
        return topic if topic.target is None else self._by_number[topic.target]

    def children(self, path: str) -> list[Topic]:
        """List the topics directly below, by path."""
        return [self._by_path[each] for each in sorted(self._children.get(fold(path), ()))]

    def below(self, path: str) -> list[Topic]:
        """List the topics below at any depth, by path."""
        return list(self._walk(fold(path)))

    def _walk(self, folded: str) -> Iterator[Topic]:
        for each in sorted(self._children.get(folded, ())):
            yield self._by_path[each]
            yield from self._walk(each)

    def matching(self, pattern: str, base: str, *, itself: bool = False) -> list[Topic]:
        """List the topics that a pattern covers, all of which are at or below `base`."""
        folded = fold(pattern)
        found = [each for each in self._walk(fold(base)) if covers(folded, each.folded, itself=itself)]
        first = self.find(base)
        if first is not None and covers(folded, first.folded, itself=itself):
            found.insert(0, first)
        return found

    def links(self, topic: Topic) -> list[Topic]:
        """List the virtual topics that lead to one."""
        return [self._by_path[each] for each in sorted(self._links.get(topic.number, ()))]

    def all_of(self, kind: TopicKind) -> list[Topic]:
        """List the topics of a kind."""
        return [topic for topic in self._by_number.values() if topic.kind is kind]

    # Changes

    def add(self, path: str, kind: TopicKind, **values: Any) -> Topic:
        """Add a topic; its parent must exist."""
        topic = Topic(
            number=0,
            path=path,
            folded=fold(path),
            kind=kind,
            target=values.pop("target", None),
            keywords=values.pop("keywords", ()),
            is_login=values.pop("is_login", False),
            is_removing=False,
            **values,
        )
        row = _row(topic)[1:]
        columns, marks = ", ".join(TOPIC_COLUMNS[1:]), ", ".join("?" * len(row))
        number = self._database.insert(f"INSERT INTO topics ({columns}) VALUES ({marks})", *row)  # noqa: S608 - names of columns
        topic = replace(topic, number=number)
        self._index(topic)
        self.version += 1
        return topic

    def change(self, topic: Topic, **values: Any) -> Topic:
        """Change fields of a topic, except its path."""
        return self._put(topic, replace(topic, **values))

    def remove(self, topic: Topic) -> None:
        """Remove a topic that has no children and no links to it."""
        self._database.execute("DELETE FROM topics WHERE id = ?", topic.number)
        self._unindex(topic)
        self.owners.pop(topic.folded, None)
        self.version += 1

    def rename(self, topic: Topic, path: str) -> Topic:
        """Move a topic and all topics below it to another path."""
        moving = [topic, *self.below(topic.path)]
        for each in moving:
            self._unindex(each)
        for each in moving:
            new = path + each.path[len(topic.path) :]
            moved = replace(each, path=new, folded=fold(new))
            self._write(moved)
            self._index(moved)
        self.version += 1
        return self._by_number[topic.number]

    def _put(self, old: Topic, new: Topic) -> Topic:
        self._write(new)
        self._unindex(old)
        self._index(new)
        self.version += 1
        return new

    def _write(self, topic: Topic) -> None:
        assignments = ", ".join(f"{column} = ?" for column in TOPIC_COLUMNS[1:])
        number, *row = _row(topic)
        self._database.execute(f"UPDATE topics SET {assignments} WHERE id = ?", *row, number)  # noqa: S608 - as above

    def _index(self, topic: Topic) -> None:
        self._by_path[topic.folded] = self._by_number[topic.number] = topic
        self._children.setdefault(parent(topic.folded), set()).add(topic.folded)
        if topic.target is not None:
            self._links.setdefault(topic.target, set()).add(topic.folded)

    def _unindex(self, topic: Topic) -> None:
        del self._by_path[topic.folded], self._by_number[topic.number]
        self._children[parent(topic.folded)].discard(topic.folded)
        if topic.target is not None:
            self._links[topic.target].discard(topic.folded)


def _row(topic: Topic) -> list[Any]:
    values = {each.name: getattr(topic, each.name) for each in fields(Topic)}
    return list((values | {"keywords": ",".join(topic.keywords)}).values())


def _topic(row: tuple[Any, ...]) -> Topic:
    values = dict(zip((each.name for each in fields(Topic)), row, strict=True))
    values["keywords"] = tuple(word for word in values["keywords"].split(",") if word)
    values["kind"] = TopicKind(values["kind"])
    values["is_removing"], values["is_login"] = bool(values["is_removing"]), bool(values["is_login"])
    return Topic(**values)


def all_paths(path: str) -> Iterator[str]:
    """Yield the paths above a topic and its own, from the first level down, without `/`."""
    above = ROOT
    for part in path.split("/")[1:]:
        above = child(above, part)
        yield above
