"""One client at its command connection: where it is in its dialogue, and what belongs to the session alone.

Spec: SMQP 4.1.1 (each login is an instance of its account); the state table of section 9.1 of the digest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from brokers.room import Held
from brokers.smqp.dialogue import CommandReader
from brokers.smqp.replies import Reply, ReplyForm
from brokers.smqp.server.accounts import Account
from brokers.smqp.topics import covers

if TYPE_CHECKING:
    from brokers.smqp.server.channel import Channel
    from brokers.smqp.server.timers import Timer


HIGH_WATER: Final = 256 * 1024
"""Octets of answers after which a client has to read before it is answered further."""
STRANGER_HIGH_WATER: Final = 4 * 1024
"""The same, of who is not logged in."""


class Stage(StrEnum):
    """What the dialogue has come to."""

    STRANGER = "not logged in"
    NAMED = "LOGIN was accepted, PASS is to follow"
    READY = "logged in"
    OLD_PASSWORD = "SET LOGIN PASSWORD was accepted, PASS with the old one is to follow"  # noqa: S105 - no password
    NEW_PASSWORD = "the old password was right, PASS with the new one is to follow"  # noqa: S105 - no password
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said to a command: a reply, and the messages that follow it."""

    reply: Reply
    form: ReplyForm = ReplyForm.PLAIN
    body: bytes = b""


class Session:
    """One client's dialogue.

    Attributes:
        number: its own, while the server runs.
        address: where the client connected from; notify connections go nowhere else.
        is_secure: it came by TLS, and so do its notify connections.
        stage: where the dialogue is.
        account: whose it is, once logged in.
        claimed: the account whose password is to follow.
        guid: of this login.
        failures: wrong passwords so far.
        missed_ports: ports that were named since a message was taken, or with `hide_ports=False` somebody listened.
        held: its part of the room that the server has.
        unsent: octets written since the connection had sent all.
        is_busy: the answer to a command is still to come, so no further one is read.
        interests: patterns of topics whose subscriptions last as long as the session.
        temporaries: topics that end with it.
        wants_timeout: it is to be told of changes of the default timeout.
        finish: gives the answer that a busy session waits for.
        channel: its notify connection.
    """

    def __init__(self, number: int, address: str, reader: CommandReader, held: Held, *, is_secure: bool) -> None:
        self.held = held
        self.number = number
        self.address = address
        self.is_secure = is_secure
        self.reader = reader
        self.stage = Stage.STRANGER
        self.account: Account | None = None
        self.claimed = ""
        self.guid = ""
        self.failures = 0
        self.missed_ports = 0
        self.unsent = 0
        self.is_busy = False
        self.interests: dict[str, str] = {}
        self.temporaries: list[int] = []
        self.wants_timeout = False
        self.idle: Timer | None = None
        self.finish: Callable[[Answer], None]
        self.channel: Channel

    @property
    def is_full(self) -> bool:
        """Whether so much is to be written to the client that no further command is read before that went out."""
        return self.unsent > (HIGH_WATER if self.is_ready else STRANGER_HIGH_WATER)

    @property
    def owner(self) -> Account:
        """The account of a session that is logged in."""
        assert self.account is not None
        return self.account

    @property
    def is_ready(self) -> bool:
        """Whether somebody is logged in."""
        return self.stage in (Stage.READY, Stage.OLD_PASSWORD, Stage.NEW_PASSWORD)

    def is_interested(self, folded: str) -> bool:
        """Say whether the session itself subscribed to a topic."""
        return any(covers(pattern, folded) for pattern in self.interests)
