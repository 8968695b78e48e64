"""A client of the server: the dialogue on its command connection, and its notify connection.

The session holds the state of the dialogue and everything that ends with the session. The notify connection sends a
message only when the one before is acknowledged.

Spec: SMQP 4.1.1 (each login is an instance of its account); the state table of section 9.1 of the digest; SMQP
4.1.6.5, 4.1.12; the state table of section 9.2 of the digest.

Deviation: if an acknowledgement does not come in time, the connection is closed and opened again before the message is
sent again. Acknowledgements have no identifiers, so on the old connection a late one would be taken for the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from brokers.listeners.room import ClientShare
from brokers.smqp.protocol.dialogue import CommandReader
from brokers.smqp.protocol.lines import Octets, TooLongError
from brokers.smqp.protocol.replies import (
    RefusedError,
    ReplyCode,
    ReplyForm,
    ReplyLines,
    SmqpReply,
    WrongReplyError,
    format_reply,
    plain,
)
from brokers.smqp.protocol.topics import covers
from brokers.smqp.protocol.words import text_of
from brokers.smqp.server.accounts import Account
from brokers.smqp.server.actions import Action, Connect, NotifyClose, NotifyWrite, Timer
from brokers.smqp.server.messages import Item
from brokers.smqp.server.options import Options

ACK = format_reply(plain(ReplyCode.ACKNOWLEDGED))


class SessionPhase(StrEnum):
    """The state of a notify connection."""

    NONE = "none"
    CONNECTING = "connecting"
    IDLE = "idle"
    AWAITING = "a message was sent and is not acknowledged"


class Supplier(Protocol):
    """The part of the server's core that supplies a channel with messages, and is told their results."""

    options: Options

    def do(self, action: Action) -> None:
        """Add an action for the driver."""

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function after some seconds."""

    def wake(self, session: SmqpSession) -> None:
        """Mark a session to be checked for notifications to send."""

    def next_item(self, session: SmqpSession) -> Item | None:
        """Return the next item for a session, or None."""

    def take(self, session: SmqpSession, item: Item) -> int:
        """Note that an item is under way to a session; return the number of items so far."""

    def notification(self, item: Item) -> bytes:
        """Write the notification of an item."""

    def patience(self, item: Item) -> float:
        """Return how long to wait for the acknowledgement of an item, in seconds."""

    def pause_after(self, item: Item) -> float:
        """Return the pause after an item was refused, in seconds."""

    def acknowledged(self, item: Item) -> None:
        """Note that an item was acknowledged."""

    def unanswered(self, item: Item) -> None:
        """Note that an item was not acknowledged."""


class SmqpChannel:
    """The notify connection to a client.

    Attributes:
        phase: the state of the connection.
        is_suspended: whether the client asked for no messages until it resumes.
        is_wanted: whether to open it even if there is nothing to send.
        served: the sequence number of the last item sent, so that the sessions that have waited longest come first.
    """

    def __init__(self, core: Supplier, session: SmqpSession) -> None:
        self.phase = SessionPhase.NONE
        self.is_suspended = False
        self.is_wanted = False
        self.served = 0
        self._core = core
        self._session = session
        self._port = core.options.client_port
        self._attempt = 0
        self._failures = 0
        self._events: deque[bytes] = deque(maxlen=core.options.max_events)
        self._item: Item | None = None
        self._pause: Timer | None = None
        self._patience: Timer | None = None
        self._on_port: Callable[[ReplyCode], None] | None = None
        self._unsent = 0
        self._octets = Octets()
        self._replies = ReplyLines()

    @property
    def is_full(self) -> bool:
        """Whether so many octets are unsent that further notifications wait until they are sent."""
        return self._unsent > HIGH_WATER_OCTETS

    # For the session

    def set_port(self, port: int, on_result: Callable[[ReplyCode], None]) -> None:
        """Drop the connection, open one to another port, and pass the result to `on_result`."""
        self._drop()
        self._port, self._on_port, self._failures = port, on_result, 0
        self._connect()

    def tell(self, notice: bytes) -> None:
        """Send a notification without acknowledgement, after the message that is under way."""
        self._events.append(notice)
        self._core.wake(self._session)

    def end(self) -> None:
        """End the connection with its session; give back the message that is under way."""
        self._on_port = None
        self._drop()

    def close(self) -> None:
        """Close the connection, if it is there; the store is left as it is."""
        self._end_wait()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self.phase is not SessionPhase.NONE:
            self._core.do(NotifyClose(self._session.number, self._attempt))
        self.phase, self._item = SessionPhase.NONE, None

    # Events of the connection

    def opened(self, attempt: int) -> None:
        """Handle that the connection was opened."""
        if attempt != self._attempt or self.phase is not SessionPhase.CONNECTING:
            return
        self.phase, self._failures, self.is_wanted = SessionPhase.IDLE, 0, False
        self._unsent = 0
        self._octets, self._replies = Octets(), ReplyLines()
        self._report(ReplyCode.OK)
        self._core.wake(self._session)

    def failed(self, attempt: int, *, timed_out: bool) -> None:
        """Handle that the connection could not be opened."""
        if attempt != self._attempt or self.phase is not SessionPhase.CONNECTING:
            return
        self.phase = SessionPhase.NONE
        self._report(ReplyCode.TIMED_OUT if timed_out else ReplyCode.NOT_FOUND)
        self._retry_later()

    def lost(self, attempt: int) -> None:
        """Handle the end of the connection."""
        if attempt == self._attempt and self.phase in (SessionPhase.IDLE, SessionPhase.AWAITING):
            self._drop()
            self._retry_later()

    def drained(self, attempt: int) -> None:
        """Handle that all octets are sent."""
        if attempt == self._attempt:
            self._unsent = 0
            self._core.wake(self._session)

    def received(self, attempt: int, data: bytes) -> None:
        """Handle octets from the client."""
        if attempt != self._attempt or self.phase not in (SessionPhase.IDLE, SessionPhase.AWAITING):
            return
        self._octets.feed(data)
        while self.phase in (SessionPhase.IDLE, SessionPhase.AWAITING):
            try:
                line = self._octets.line()
                if line is None:
                    return
                if not (text := text_of(line)):
                    continue
                reply = self._replies.add(text)
            except (TooLongError, RefusedError, WrongReplyError):
                self._replies = ReplyLines()
                reply = plain(ReplyCode.BAD_REQUEST)
            if reply is not None:
                self._answered(reply)

    def _answered(self, reply: SmqpReply) -> None:
        if self._item is None:
            if reply.code is ReplyCode.ACKNOWLEDGED:
                self._write(ACK)
            return
        item, self._item = self._item, None
        self._end_wait()
        if reply.code is ReplyCode.ACKNOWLEDGED:
            self._session.missed_ports = 0
            self._core.acknowledged(item)
            self._write(ACK)
        else:
            self._core.unanswered(item)
            self._wait(self._core.pause_after(item))
        self._core.wake(self._session)

    # Sending

    def pump(self) -> None:
        """Send pending notifications."""
        if self.phase is SessionPhase.NONE and self._pause is None and self._has_something():
            self._connect()
        if self.phase is SessionPhase.IDLE:
            while self._events and not self.is_full:
                self._write(self._events.popleft())
            if not self.is_suspended and self._pause is None and not self.is_full:
                self._send_next()

    def _has_something(self) -> bool:
        if self._events or self.is_wanted:
            return True
        return not self.is_suspended and self._core.next_item(self._session) is not None

    def _send_next(self) -> None:
        item = self._core.next_item(self._session)
        if item is None:
            return
        self._item, self.phase = item, SessionPhase.AWAITING
        self.served = self._core.take(self._session, item)
        self._write(self._core.notification(item))
        self._patience = self._core.later(self._core.patience(item), self._gave_no_answer)

    def _gave_no_answer(self) -> None:
        self._drop()
        self._retry_later()

    # The connection itself

    def _connect(self) -> None:
        self._attempt += 1
        self.phase = SessionPhase.CONNECTING
        session = self._session
        self._core.do(Connect(session.number, self._attempt, session.address, self._port, session.is_secure))

    def _drop(self) -> None:
        """Close the connection; a message under way counts as not delivered."""
        item = self._item
        self.close()
        if item is not None:
            self._core.unanswered(item)
            self._core.wake(self._session)

    def _retry_later(self) -> None:
        first, last = self._core.options.reconnect
        self._wait(min(last, first * 2 ** min(self._failures, 20)))
        self._failures += 1

    def _wait(self, seconds: float) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self._core.later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self._core.wake(self._session)

    def _end_wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self.phase is SessionPhase.AWAITING:
            self.phase = SessionPhase.IDLE

    def _report(self, code: ReplyCode) -> None:
        on_port, self._on_port = self._on_port, None
        if on_port is not None:
            on_port(code)

    def _write(self, data: bytes) -> None:
        self._unsent += len(data)
        self._core.do(NotifyWrite(self._session.number, self._attempt, data))


def notice(command: bytes, lines: bytes = b"") -> bytes:
    """Return a notification: its command, its attributes and an empty line."""
    return command + lines + b"\r\n"


HIGH_WATER_OCTETS: Final = 256 * 1024
"""Octets of unsent replies above which no further commands of a client are read."""
STRANGER_HIGH_WATER_OCTETS: Final = 4 * 1024
"""The same for a client that is not logged in."""
TURN_COMMANDS: Final = 100
"""Number of commands of one client that are executed before others get their turn."""
STRANGER_TURN_COMMANDS: Final = 10
"""The same for a client that is not logged in."""


class Stage(StrEnum):
    """The state of the dialogue."""

    STRANGER = "not logged in"
    NAMED = "LOGIN was accepted, PASS is to follow"
    READY = "logged in"
    OLD_PASSWORD = "SET LOGIN PASSWORD was accepted, PASS with the old one is to follow"  # noqa: S105 - not a password
    NEW_PASSWORD = "the old password was right, PASS with the new one is to follow"  # noqa: S105 - no password
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SmqpAnswer:
    """The answer to a command: a reply, and the messages that follow it."""

    reply: SmqpReply
    form: ReplyForm = ReplyForm.PLAIN
    body: bytes = b""


OK: Final = SmqpAnswer(plain(ReplyCode.OK))


class HeardQueues(NamedTuple):
    """The queues that a session's own subscriptions cover.

    Attributes:
        versions: those of the topics and of the rights by which they were found.
        interests: the subscriptions.
        numbers: the numbers of the queues.
    """

    versions: tuple[int, int]
    interests: Mapping[str, str]
    numbers: frozenset[int]


class SmqpSession:
    """The session of one client.

    Attributes:
        number: its number, unique while the server runs.
        address: the address of the client, the only one that notify connections go to.
        is_secure: whether its connections use TLS.
        stage: the state of the dialogue.
        account: its account, once logged in.
        claimed: the account whose password must follow.
        guid: the guid of this login.
        failures: the number of wrong passwords so far.
        missed_ports: the number of ports stated since a message was taken, or with `hide_ports=False` since a
            connection was opened.
        held: its share of the server's room for clients.
        unsent: octets written since all were last sent.
        executed: commands executed since others last got their turn.
        is_busy: whether the reply to a command is still to come, so that no further command is read.
        interests: the patterns of subscriptions that end with the session; replaced when they change.
        heard: the queues that these cover, if it is known.
        wants_timeout: whether to notify it of changes of the default timeout.
        finish: writes the reply that a busy session waits for.
        channel: its notify connection.
    """

    def __init__(self, number: int, address: str, reader: CommandReader, held: ClientShare, *, is_secure: bool) -> None:
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
        self.executed = 0
        self.is_busy = False
        self.interests: Mapping[str, str] = {}
        self.heard: HeardQueues | None = None
        self.wants_timeout = False
        self.idle: Timer | None = None
        self.finish: Callable[[SmqpAnswer], None]
        self.channel: SmqpChannel

    @property
    def is_full(self) -> bool:
        """Whether no further command is read until the written octets are sent and others have had their turn."""
        if self.is_ready:
            return self.unsent > HIGH_WATER_OCTETS or self.executed >= TURN_COMMANDS
        return self.unsent > STRANGER_HIGH_WATER_OCTETS or self.executed >= STRANGER_TURN_COMMANDS

    @property
    def owner(self) -> Account:
        """The account of the session, which must be logged in."""
        assert self.account is not None
        return self.account

    @property
    def is_ready(self) -> bool:
        """Whether the session is logged in."""
        return self.stage in (Stage.READY, Stage.OLD_PASSWORD, Stage.NEW_PASSWORD)

    def is_interested(self, folded: str) -> bool:
        """Say whether the session itself subscribed to a topic."""
        return any(covers(pattern, folded) for pattern in self.interests)
