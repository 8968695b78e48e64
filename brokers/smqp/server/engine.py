"""The server without sockets: events go in, actions come out.

`accept`, `received`, `closed` and similar methods take events; `flush` commits the changes and returns the actions. So
a client never gets a reply that a crash could undo, and one commit serves everything that arrived together.

Spec: SMQP 4, 4.1; the state table of section 9.1 of the digest.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from brokers import events
from brokers.listeners.room import Room
from brokers.smqp.protocol.commands import CommandKind
from brokers.smqp.protocol.dialogue import CommandReader, ReceivedCommand, format_banner
from brokers.smqp.protocol.replies import RefusedError, ReplyCode, ReplyForm, format_reply, plain
from brokers.smqp.server.accounts import Password
from brokers.smqp.server.actions import Action, Close, Resume, Write
from brokers.smqp.server.commands import login, publish, query, settings, subscribe, topics
from brokers.smqp.server.core import SmqpCore
from brokers.smqp.server.database import Database
from brokers.smqp.server.options import Options
from brokers.smqp.server.session import SmqpAnswer, SmqpChannel, SmqpSession, Stage

Handler: TypeAlias = Callable[[SmqpCore, SmqpSession, ReceivedCommand], SmqpAnswer | None]

HANDLERS: Final[Mapping[CommandKind, Handler]] = {
    CommandKind.LOGIN: login.login,
    CommandKind.PASSWORD: login.password,
    CommandKind.COUNT_TOPIC: query.count_topics,
    CommandKind.COUNT_MESSAGE: query.count_messages,
    CommandKind.COUNT_SUBSCRIBERS: query.count_subscribers,
    CommandKind.LIST_TOPIC: query.list_topics,
    CommandKind.LIST_MESSAGE: query.list_messages,
    CommandKind.CREATE_TOPIC: topics.create,
    CommandKind.REMOVE_TOPIC: topics.remove,
    CommandKind.REMOVE_MESSAGE: topics.remove_message,
    CommandKind.SET_TOPIC_NAME: topics.rename,
    CommandKind.SET_TOPIC_KEYWORD: topics.set_keywords,
    CommandKind.SET_LOGIN_PASSWORD: login.set_password,
    CommandKind.SET_LOGIN_NAME: login.set_own,
    CommandKind.SET_LOGIN_EMAIL: login.set_own,
    CommandKind.SET_LOGIN_ADDRESS: login.set_own,
    CommandKind.SET_LOGIN_PHONE: login.set_own,
    CommandKind.SET_NOTIFY_PORT: settings.port,
    CommandKind.SET_NOTIFY_SUSPEND: settings.suspend,
    CommandKind.SET_NOTIFY_RESUME: settings.resume,
    CommandKind.FIND_TOPIC: query.find_topics,
    CommandKind.PUBLISH_MESSAGE: publish.publish,
    CommandKind.PUBLISH_REPLY: publish.reply,
    CommandKind.REPUBLISH_MESSAGE: publish.republish,
    CommandKind.SUBSCRIBE_MESSAGE: subscribe.subscribe,
    CommandKind.SUBSCRIBE_TOPIC: subscribe.subscribe,
    CommandKind.SUBSCRIBE_SUBSCRIBER: subscribe.subscribe,
    CommandKind.SUBSCRIBE_SERVER_TIMEOUT: subscribe.subscribe_timeout,
    CommandKind.UNSUBSCRIBE_MESSAGE: subscribe.unsubscribe,
    CommandKind.UNSUBSCRIBE_TOPIC: subscribe.unsubscribe,
    CommandKind.UNSUBSCRIBE_SUBSCRIBER: subscribe.unsubscribe,
    CommandKind.UNSUBSCRIBE_SERVER_TIMEOUT: subscribe.unsubscribe_timeout,
    CommandKind.UNSUBSCRIBE_ALL: subscribe.unsubscribe_all,
    CommandKind.GET_MESSAGE: query.get_messages,
    CommandKind.GET_TOPIC_KEYWORDS: query.get_keywords,
    CommandKind.NOOP: settings.noop,
    CommandKind.QUIT: settings.noop,
}
FOR_STRANGERS: Final = frozenset({CommandKind.LOGIN, CommandKind.PASSWORD, CommandKind.NOOP, CommandKind.QUIT})
WITHOUT_PASSWORD: Final = {
    Stage.NAMED: Stage.STRANGER,
    Stage.OLD_PASSWORD: Stage.READY,
    Stage.NEW_PASSWORD: Stage.READY,
}
"""The states in which a password is to follow, each with the one that any other command leads to."""
LOGGED_IN_READ_OCTETS: Final = 256 * 1024
"""Octets that are read at once from a client that is logged in."""
STRANGER_READ_OCTETS: Final = 4 * 1024
"""Octets that are read at once from a client that is not logged in."""
UNSETTLED_SECONDS: Final = 1.0
"""Interval at which it is tried again to settle in the store what a session left."""
MAX_WAIT_SECONDS: Final = 60.0
"""Maximum interval between two calls of `tick`, in seconds."""


class SmqpEngine:
    """A server without sockets.

    Args:
        database: the store.
        options: the operator's options.
        clock: returns the time in seconds since 1970.

    Attributes:
        core: the state and the operations.
        is_available: whether new clients are served.
        is_stored: whether the last `flush` has committed the changes.
    """

    def __init__(self, database: Database, options: Options, *, clock: Callable[[], float] = time.time) -> None:
        self.core = SmqpCore(database, options, clock)
        self.core.recover()
        self.is_available = True
        self.is_stored = True
        self._last = 0
        self._unsettled: list[SmqpSession] = []  # those that have left, but not the store yet
        self._room = Room(options.max_sessions, "SMQP clients that have not logged in", most_each=options.max_strangers)

    # Events of command connections

    def accept(self, address: str, *, is_secure: bool = False) -> int:
        """Handle a new client; return the number that identifies it in actions."""
        self._last += 1
        options = self.core.options
        self._room.most, self._room.most_each = options.max_sessions, options.max_strangers
        held = self._room.enter(address, 1, partial(self._make_way, self._last))
        available = self.is_available and not held.has_to_go
        self.core.do(Write(self._last, format_banner(is_available=available, server=options.software)))
        if not available:
            self._room.leave(held)
            self.core.do(Close(self._last))
            return self._last
        reader = CommandReader(options.limits, options.dialect)
        reader.takes_messages = False  # until the client is logged in
        session = SmqpSession(self._last, address, reader, held, is_secure=is_secure)
        session.channel = SmqpChannel(self.core, session)
        session.finish = lambda answer: self._finish(session, answer)
        session.idle = self.core.later(options.login_timeout, lambda: self._took_too_long(session))
        self.core.sessions[self._last] = session
        return self._last

    def _make_way(self, number: int) -> None:
        """End a client that is not logged in, to make room for another."""
        if (session := self.core.sessions.get(number)) is not None:
            self._took_too_long(session)

    def _note(self, session: SmqpSession) -> None:
        """Note whether a client that was not logged in so far keeps the server waiting."""
        if session.is_ready:
            self._room.settle(session.held, session.owner.name, self.core.options.max_sessions)
        elif session.is_busy:
            self._room.works(session.held)
        else:
            self._room.waits(session.held)

    def is_busy(self, number: int) -> bool:
        """Say whether reading from a client must stop until the action `Resume`."""
        session = self.core.sessions.get(number)
        return session is not None and (session.is_busy or session.is_full)

    def room(self, number: int) -> int:
        """Return how many octets to read at once from a client: few before its login, as they may have to be held."""
        session = self.core.sessions.get(number)
        return LOGGED_IN_READ_OCTETS if session is not None and session.is_ready else STRANGER_READ_OCTETS

    def is_full(self, number: int) -> bool:
        """Say whether `drained` must be called, in another turn, once all written octets are sent."""
        session = self.core.sessions.get(number)
        return session is not None and session.is_full

    def drained(self, number: int) -> None:
        """Handle that all octets written to a client are sent, and that others have had their turn."""
        if (session := self.core.sessions.get(number)) is not None:
            session.unsent = session.executed = 0
            self.core.do(Resume(number))
            self._read(session)

    def received(self, number: int, data: bytes) -> None:
        """Handle octets from a client."""
        if (session := self.core.sessions.get(number)) is not None:
            session.reader.feed(data)
            self._read(session)

    def closed(self, number: int) -> None:
        """Handle the end of a client's connection."""
        if (session := self.core.sessions.get(number)) is not None:
            self._leave(session)

    def checked(self, number: int, is_right: bool) -> None:
        """Handle the result of comparing a password."""
        if (session := self.core.sessions.get(number)) is not None:
            self._finish_with(session, lambda: login.checked(self.core, session, is_right=is_right))

    def unseen(self, number: int) -> None:
        """Handle a password that was not compared, because too many from its address were wrong."""
        if (session := self.core.sessions.get(number)) is not None:
            self._finish_with(session, lambda: login.unseen(session))

    def has(self, number: int) -> bool:
        """Say whether a client is still connected."""
        return number in self.core.sessions

    def hashed(self, number: int, password: Password) -> None:
        """Handle a new password that was hashed."""
        if (session := self.core.sessions.get(number)) is not None:
            self._finish_with(session, lambda: login.hashed(self.core, session, password))

    # Events of notify connections

    def notify_opened(self, number: int, attempt: int) -> None:
        """Handle a notify connection that was opened."""
        self._to_channel(number, lambda channel: channel.opened(attempt))

    def notify_failed(self, number: int, attempt: int, *, timed_out: bool) -> None:
        """Handle a notify connection that could not be opened."""
        self._to_channel(number, lambda channel: channel.failed(attempt, timed_out=timed_out))

    def notify_received(self, number: int, attempt: int, data: bytes) -> None:
        """Handle octets from a notify connection."""
        self._to_channel(number, lambda channel: channel.received(attempt, data))

    def is_notify_full(self, number: int) -> bool:
        """Say whether `notify_drained` must be called once all octets written to a notify connection are sent."""
        session = self.core.sessions.get(number)
        return session is not None and session.channel.is_full

    def notify_drained(self, number: int, attempt: int) -> None:
        """Handle that all octets written to a notify connection are sent."""
        self._to_channel(number, lambda channel: channel.drained(attempt))

    def notify_closed(self, number: int, attempt: int) -> None:
        """Handle the end of a notify connection."""
        self._to_channel(number, lambda channel: channel.lost(attempt))

    def _to_channel(self, number: int, tell: Callable[[SmqpChannel], None]) -> None:
        if (session := self.core.sessions.get(number)) is not None:
            self._guarded(lambda: tell(session.channel))

    # Time and actions

    def wait(self) -> float:
        """Return the number of seconds until `tick` must be called."""
        timer = self.core.timers.next()
        try:
            expiry = self.core.messages.next_due()
        except sqlite3.Error:  # the next commit reports it
            expiry = None
        seconds = [MAX_WAIT_SECONDS]
        if timer is not None:
            seconds.append(timer - time.monotonic())
        if expiry is not None:
            seconds.append(expiry - self.core.clock())
        if self._unsettled:
            seconds.append(UNSETTLED_SECONDS)
        return max(0.0, min(seconds))

    def tick(self) -> None:
        """Run all timers that are due, and process expired messages."""
        self._unsettled = [each for each in self._unsettled if not self._guarded(partial(self.core.leave, each))]
        self.core.timers.run(time.monotonic(), self._guarded)
        self._guarded(self.core.sweep)

    def flush(self) -> list[Action]:
        """Commit all changes; return the actions to execute now, in order."""
        core, self.is_stored = self.core, True
        self._guarded(core.pump)
        try:
            core.database.commit()
        except sqlite3.Error:
            events.SMQP_SERVER_COMMIT_FAILED.log()
            self.is_stored = False
            return self._abandon()
        return core.take_actions()

    def close(self) -> None:
        """End all sessions and close the store."""
        for session in list(self.core.sessions.values()):
            self.closed(session.number)
        try:
            self.core.database.commit()
            self.core.database.close()
        except sqlite3.Error as error:
            events.SMQP_SERVER_STORE_NOT_CLOSED.log(error)

    def _abandon(self) -> list[Action]:
        """Close every connection: clients assume that commands without a reply were not executed."""
        core = self.core
        core.take_actions()
        for session in list(core.sessions.values()):
            session.channel.close()
            core.do(Close(session.number))
            self._room.leave(session.held)
        core.forget_sessions()
        self._unsettled.clear()
        try:
            core.database.rollback()
            core.reload()
            core.recover()
        except sqlite3.Error as error:
            events.SMQP_SERVER_STORE_UNUSABLE.log(error)
        return core.take_actions()

    # Commands

    def _read(self, session: SmqpSession) -> None:
        while self._is_open(session) and (heard := session.reader.next()) is not None:
            self._refresh(session)
            session.executed += 1
            self._answer(session, lambda heard=heard: self._handle(session, heard))  # type: ignore[misc]
            if session.is_busy and not session.is_ready:
                self._note(session)
            if heard.command is not None and heard.command.kind is CommandKind.QUIT and heard.refusal is None:
                self._end(session)

    def _is_open(self, session: SmqpSession) -> bool:
        return not (session.is_busy or session.is_full or session.stage is Stage.ENDED)

    def _handle(self, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer | None:
        kind = None if heard.command is None else heard.command.kind
        awaited = session.stage
        if kind not in FOR_STRANGERS:
            session.stage = WITHOUT_PASSWORD.get(awaited, awaited)
        if heard.refusal is not None:
            raise heard.refusal
        assert isinstance(kind, CommandKind)
        if not session.is_ready and kind not in FOR_STRANGERS:
            code = ReplyCode.BAD_REQUEST if awaited is Stage.NAMED else ReplyCode.UNAUTHORIZED
            raise RefusedError(code, "LOGIN and PASS must come first")
        if session.stage is not awaited:
            raise RefusedError(ReplyCode.BAD_REQUEST, "SET LOGIN PASSWORD must be followed by PASS, twice")
        return HANDLERS[kind](self.core, session, heard)

    def _answer(self, session: SmqpSession, handle: Callable[[], SmqpAnswer | None]) -> None:
        """Execute a command, or undo it, and write the reply."""
        try:
            with self.core.database.savepoint():
                answer = handle()
        except RefusedError as error:
            events.SMQP_SERVER_COMMAND_REFUSED.log(session.number, error)
            answer = SmqpAnswer(error.reply, ReplyForm.BARE if session.stage is Stage.STRANGER else ReplyForm.PLAIN)
        except sqlite3.Error:
            events.SMQP_SERVER_COMMAND_NOT_STORED.log(session.number)
            self._reload()
            answer = SmqpAnswer(plain(ReplyCode.UNAVAILABLE))
        except Exception:
            events.SMQP_SERVER_COMMAND_FAILED.log(session.number)
            self._reload()
            answer = SmqpAnswer(plain(ReplyCode.SERVER_ERROR))
        if answer is not None:
            self._write(session, answer)
        if session.failures >= self.core.options.max_failures:
            self._end(session)

    def _finish(self, session: SmqpSession, answer: SmqpAnswer) -> None:
        """Write the delayed reply to a command, and go on reading."""
        self._finish_with(session, lambda: answer)

    def _finish_with(self, session: SmqpSession, handle: Callable[[], SmqpAnswer]) -> None:
        session.is_busy = False
        was_ready = session.is_ready
        self._answer(session, handle)
        if not was_ready:
            self._note(session)
        self.core.do(Resume(session.number))
        self._read(session)

    def _write(self, session: SmqpSession, answer: SmqpAnswer) -> None:
        octets = format_reply(answer.reply, answer.form) + answer.body
        session.unsent += len(octets)
        self.core.do(Write(session.number, octets))

    def _end(self, session: SmqpSession) -> None:
        self.core.do(Close(session.number))
        self._leave(session)

    def _leave(self, session: SmqpSession) -> None:
        if session.number not in self.core.sessions:
            return
        if session.idle is not None:
            session.idle.cancel()
        if not self._guarded(lambda: self.core.leave(session)):
            self._unsettled.append(session)
        session.channel.close()
        self.core.forget(session)
        self._room.leave(session.held)
        session.stage = Stage.ENDED

    def _refresh(self, session: SmqpSession) -> None:
        """Restart the idle timeout of a client that is logged in."""
        if not session.is_ready or session.idle is None:
            return
        session.idle.cancel()
        timeout = self.core.options.idle_timeout
        if timeout is not None:
            session.idle = self.core.later(timeout, lambda: self._took_too_long(session))

    def _took_too_long(self, session: SmqpSession) -> None:
        if session.number not in self.core.sessions or (session.is_ready and self.core.options.idle_timeout is None):
            return
        self._write(session, SmqpAnswer(plain(ReplyCode.TIMED_OUT)))
        self._end(session)

    def _guarded(self, function: Callable[[], None]) -> bool:
        """Run a function without a caller that waits for it; if it fails, undo its changes and go on.

        Returns:
            whether it succeeded.
        """
        try:
            with self.core.database.savepoint():
                function()
        except Exception:
            events.SMQP_SERVER_OPERATION_FAILED.log()
            self._reload()
            return False
        return True

    def _reload(self) -> None:
        """Read the state from the store again; if it cannot be read, every commit fails until it can."""
        try:
            self.core.reload()
        except sqlite3.Error as error:
            events.SMQP_SERVER_STORE_UNREAD.log(error)
