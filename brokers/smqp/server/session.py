"""One client of the server: its dialogue at the command connection, and the notify connection of its session.

The command connection knows where it is in its dialogue, and what belongs to the session alone. The notify
connection is stop and wait, so one message is on its way at a time.

Spec: SMQP 4.1.1 (each login is an instance of its account); the state table of section 9.1 of the digest; SMQP
4.1.6.5, 4.1.12; the state table of section 9.2 of the digest.

Deviation: where an acknowledgement does not come in time, the connection is closed and made again before the message
is sent once more. Acknowledgements have no identifiers, so on the old connection a late one would count for the
next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

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
    """Where the connection is."""

    NONE = "none"
    CONNECTING = "connecting"
    IDLE = "idle"
    AWAITING = "a message was sent and is not acknowledged"


class Supplier(Protocol):
    """What a channel gets its messages from, and tells what became of them: the core of the server."""

    options: Options

    def do(self, action: Action) -> None:
        """Note what is to be done outside."""

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function in so many seconds."""

    def wake(self, session: SmqpSession) -> None:
        """Have a look at what can be sent to a session."""

    def next_item(self, session: SmqpSession) -> Item | None:
        """Return what is next for a session."""

    def take(self, session: SmqpSession, item: Item) -> int:
        """Note that it goes to a session; return how many were taken before."""

    def notification(self, item: Item) -> bytes:
        """Write it."""

    def patience(self, item: Item) -> float:
        """Return the seconds that its acknowledgement may take."""

    def pause_after(self, item: Item) -> float:
        """Return the seconds until it is sent again."""

    def acknowledged(self, item: Item) -> None:
        """It arrived."""

    def unanswered(self, item: Item) -> None:
        """Its acknowledgement did not come."""


class SmqpChannel:
    """The way to one client.

    Attributes:
        phase: where it is.
        is_suspended: the client asked for no messages until it resumes.
        is_wanted: it is to be made even if there is nothing to send.
        served: grows with each message, so that those who got one longest ago are served first.
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
        self._octets = Octets()
        self._replies = ReplyLines()

    # What the session wants

    def set_port(self, port: int, on_result: Callable[[ReplyCode], None]) -> None:
        """Drop the connection, make one to another port, and say how that went."""
        self._drop()
        self._port, self._on_port, self._failures = port, on_result, 0
        self._connect()

    def tell(self, notice: bytes) -> None:
        """Send a notification that is not acknowledged, after the message that is on its way."""
        self._events.append(notice)
        self._core.wake(self._session)

    def end(self) -> None:
        """The session ends: give back what is on its way."""
        self._on_port = None
        self._drop()

    # What happened to the connection

    def opened(self, attempt: int) -> None:
        """It was made."""
        if attempt != self._attempt or self.phase is not SessionPhase.CONNECTING:
            return
        self.phase, self._failures, self.is_wanted = SessionPhase.IDLE, 0, False
        self._octets, self._replies = Octets(), ReplyLines()
        self._report(ReplyCode.OK)
        self._core.wake(self._session)

    def failed(self, attempt: int, *, timed_out: bool) -> None:
        """It could not be made."""
        if attempt != self._attempt or self.phase is not SessionPhase.CONNECTING:
            return
        self.phase = SessionPhase.NONE
        self._report(ReplyCode.TIMED_OUT if timed_out else ReplyCode.NOT_FOUND)
        self._retry_later()

    def lost(self, attempt: int) -> None:
        """It ended."""
        if attempt == self._attempt and self.phase in (SessionPhase.IDLE, SessionPhase.AWAITING):
            self._drop()
            self._retry_later()

    def received(self, attempt: int, data: bytes) -> None:
        """Octets came from the client."""
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
        """Send what there is to send now."""
        if self.phase is SessionPhase.NONE and self._pause is None and self._has_something():
            self._connect()
        if self.phase is SessionPhase.IDLE:
            while self._events:
                self._write(self._events.popleft())
            if not self.is_suspended and self._pause is None:
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
        """Close the connection; what is on its way counts as not delivered."""
        self._end_wait()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self.phase is not SessionPhase.NONE:
            self._core.do(NotifyClose(self._session.number, self._attempt))
        self.phase = SessionPhase.NONE
        item, self._item = self._item, None
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
        self._core.do(NotifyWrite(self._session.number, self._attempt, data))


def notice(command: bytes, lines: bytes = b"") -> bytes:
    """Put a notification together that is followed by attributes, if by anything."""
    return command + lines + b"\r\n"


HIGH_WATER_OCTETS: Final = 256 * 1024
"""Octets of answers after which a client has to read before it is answered further."""
STRANGER_HIGH_WATER_OCTETS: Final = 4 * 1024
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
class SmqpAnswer:
    """What is said to a command: a reply, and the messages that follow it."""

    reply: SmqpReply
    form: ReplyForm = ReplyForm.PLAIN
    body: bytes = b""


class SmqpSession:
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
        self.is_busy = False
        self.interests: dict[str, str] = {}
        self.temporaries: list[int] = []
        self.wants_timeout = False
        self.idle: Timer | None = None
        self.finish: Callable[[SmqpAnswer], None]
        self.channel: SmqpChannel

    @property
    def is_full(self) -> bool:
        """Whether so much is to be written to the client that no further command is read before that went out."""
        return self.unsent > (HIGH_WATER_OCTETS if self.is_ready else STRANGER_HIGH_WATER_OCTETS)

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
