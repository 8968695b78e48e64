"""The messages that a client has taken but not yet handed over, and the types that it hands over to callbacks.

A message is stored before it is acknowledged, so that none is lost, and its Smuid is remembered, so that none is
handed over twice. A Smuid is forgotten once the message was handed over and the server has confirmed that it will not
send it again: the server may publish it again later. Without a confirmation it is remembered for a while.

Spec: SMQP 4.1.12.1 (two-phase commit); 2.1 (once only).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from threading import Lock
from typing import Final

from brokers.smqp.protocol.ids import Timeout
from brokers.smqp.protocol.messages import Attributes, SmqpMessage, SmqpSection
from brokers.smqp.protocol.replies import SmqpStoreError

TABLE: Final = """
CREATE TABLE IF NOT EXISTS inbox (
    smuid TEXT PRIMARY KEY, place INTEGER, topic TEXT NOT NULL, octets BLOB NOT NULL, state INTEGER NOT NULL,
    confirmed INTEGER NOT NULL, at REAL NOT NULL)
"""
MEMORY_SECONDS: Final = 86_400.0
"""Time, in seconds, for which messages handed over without the server's confirmation are remembered."""


class InboxState(IntEnum):
    """HELD: acknowledged, but not confirmed by the server. READY: to be handed over. GIVEN: handed over."""

    HELD = 0
    READY = 1
    GIVEN = 2


class Inbox:
    """The messages that a client has taken. Thread-safe.

    Args:
        path: a file, for one client at a time; `:memory:` keeps nothing when the program ends.
        clock: returns the time in seconds since 1970.

    Raises:
        SmqpStoreError: the file cannot be used.
    """

    def __init__(self, path: str | Path = ":memory:", *, clock: Callable[[], float] = time.time) -> None:
        self._lock = Lock()
        self._clock = clock
        try:
            self._database = sqlite3.connect(str(path), isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute(TABLE)
            self._database.execute(
                "DELETE FROM inbox WHERE state = ? AND at < ?", (InboxState.GIVEN, clock() - MEMORY_SECONDS)
            )
        except sqlite3.Error as error:
            raise SmqpStoreError(f"{path} cannot be used as the inbox of a client: {error}") from error

    def hold(self, smuid: str, topic: str, octets: bytes) -> None:
        """Store a message before it is acknowledged; one that is stored already, or was handed over, is not changed."""
        with self._lock:
            self._database.execute(
                "INSERT OR IGNORE INTO inbox"
                " VALUES (?, (SELECT COALESCE(MAX(place), 0) + 1 FROM inbox), ?, ?, ?, 0, ?)",
                (smuid, topic, octets, InboxState.HELD, self._clock()),
            )

    def confirm(self, smuid: str) -> bool:
        """Note that the server will not send a message again; return whether it must be handed over now."""
        with self._lock:
            state = self._state(smuid)
            if state is InboxState.GIVEN:
                self._database.execute("DELETE FROM inbox WHERE smuid = ?", (smuid,))
            else:
                self._database.execute(
                    "UPDATE inbox SET confirmed = 1, state = ? WHERE smuid = ?", (InboxState.READY, smuid)
                )
            return state is InboxState.HELD

    def doubtful(self, topic: str, smuid: str) -> list[str]:
        """List the other messages of a topic that are not confirmed, in the order of arrival."""
        with self._lock:
            rows = self._database.execute(
                "SELECT smuid FROM inbox WHERE state = ? AND topic = ? AND smuid != ? ORDER BY place",
                (InboxState.HELD, topic, smuid),
            )
            return [each for (each,) in rows]

    def trust(self, smuid: str) -> bool:
        """Stop waiting for the confirmation of a message; return whether it must be handed over now."""
        with self._lock:
            done = self._database.execute(
                "UPDATE inbox SET state = ? WHERE smuid = ? AND state = ?", (InboxState.READY, smuid, InboxState.HELD)
            )
            return done.rowcount > 0

    def given(self, smuid: str) -> None:
        """Note that a message was handed over."""
        with self._lock:
            self._database.execute("DELETE FROM inbox WHERE smuid = ? AND confirmed", (smuid,))
            self._database.execute(
                "UPDATE inbox SET state = ?, octets = x'', at = ? WHERE smuid = ?",
                (InboxState.GIVEN, self._clock(), smuid),
            )

    def read(self, smuid: str) -> tuple[str, bytes] | None:
        """Return topic and octets of a message that is ready to be handed over, or None."""
        with self._lock:
            found: tuple[str, bytes] | None = self._database.execute(
                "SELECT topic, octets FROM inbox WHERE smuid = ? AND state = ?", (smuid, InboxState.READY)
            ).fetchone()
            return found

    def waiting(self, state: InboxState) -> list[str]:
        """List the messages in a state, in the order of arrival."""
        with self._lock:
            rows = self._database.execute("SELECT smuid FROM inbox WHERE state = ? ORDER BY place", (state,))
            return [smuid for (smuid,) in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _state(self, smuid: str) -> InboxState | None:
        found = self._database.execute("SELECT state FROM inbox WHERE smuid = ?", (smuid,)).fetchone()
        return None if found is None else InboxState(found[0])


@dataclass(frozen=True, slots=True)
class Received:
    """A received message.

    Attributes:
        topic: the topic, by the name that was subscribed to; another server's name may precede it.
        content: its attributes and data.
    """

    topic: str
    content: SmqpMessage

    @property
    def attributes(self) -> Attributes:
        """The header attributes."""
        return self.content.attributes

    @property
    def smuid(self) -> str:
        """The server's name for it."""
        return self.attributes.text("Smuid")

    @property
    def cmuid(self) -> str:
        """Its publisher's name for it."""
        return self.attributes.text("Cmuid")

    @property
    def wants_reply(self) -> bool:
        """Whether its publisher waits for a reply; without the attribute it does not."""
        return self.attributes.flag("Reply")

    @property
    def sections(self) -> tuple[SmqpSection, ...]:
        """Its sections of data, possibly none."""
        return self.content.sections

    @property
    def data(self) -> bytes:
        """The octets of its first section, empty if it has no sections."""
        return self.content.sections[0].data if self.content.sections else b""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A change of a topic: ADDED, RENAME, DELETED or KEYWORDS, with the new name or keywords."""

    topic: str
    action: str
    value: str


@dataclass(frozen=True, slots=True)
class SubscriberCount:
    """The current number of subscribers to a topic. With 0 there is no need to publish."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class DefaultTimeout:
    """The server's default timeout changed."""

    timeout: Timeout


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The announcement that the server will end after `seconds`; 0 is now."""

    seconds: Timeout


Told = TopicChange | SubscriberCount | DefaultTimeout | Goodbye
"""A notification other than a message."""
