"""The server without sockets: what happened goes in, what is to be done comes out.

`accept`, `received`, `closed` and the like take what happened; `flush` commits what was written and hands over the
actions. So a client is never told of something that a crash could undo, and one commit serves all that came together.

Spec: SMQP 4, 4.1; the state table of section 9.1 of the digest.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

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

log = logging.getLogger(__name__)

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
LOGGED_IN_READ_OCTETS: Final = 256 * 1024
"""Octets that are read at once from a client that is logged in."""
STRANGER_READ_OCTETS: Final = 4 * 1024
"""The same, from one that is not."""
MAX_WAIT_SECONDS: Final = 60.0
"""Seconds until the engine wants to look at the clock again at the latest."""


class SmqpEngine:
    """One server.

    Args:
        database: where everything is kept.
        options: what the operator decided.
        clock: seconds since 1970.
        ticks: seconds of a clock that never jumps.
    """

    def __init__(
        self,
        database: Database,
        options: Options,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.core = SmqpCore(database, options, clock, ticks)
        self.core.recover()
        self.is_available = True
        self._last = 0
        self._room = Room(
            options.max_sessions, "SMQP clients that have not logged in", ticks, most_each=options.max_strangers
        )

    # What happened on command connections

    def accept(self, address: str, *, is_secure: bool = False) -> int:
        """A client connected; return the number by which actions name it."""
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
        reader.takes_messages = False  # until somebody is logged in
        session = SmqpSession(self._last, address, reader, held, is_secure=is_secure)
        session.channel = SmqpChannel(self.core, session)
        session.finish = lambda answer: self._finish(session, answer)
        session.idle = self.core.later(options.login_timeout, lambda: self._took_too_long(session))
        self.core.sessions[self._last] = session
        return self._last

    def _make_way(self, number: int) -> None:
        """End a stranger, so that another client finds room."""
        session = self.core.sessions.get(number)
        if session is not None:
            self._took_too_long(session)

    def _note(self, session: SmqpSession) -> None:
        """Note whether a client keeps us waiting that has not been logged in so far."""
        if session.is_ready:
            self._room.settle(session.held, session.owner.name, self.core.options.max_sessions)
        elif session.is_busy:
            self._room.works(session.held)
        else:
            self._room.waits(session.held)

    def is_busy(self, number: int) -> bool:
        """Say whether no octets of a client are to be read now; `Resume` says when they are again."""
        session = self.core.sessions.get(number)
        return session is not None and (session.is_busy or session.is_full)

    def room(self, number: int) -> int:
        """Say how many octets of a client to read at once: of a stranger few, as they may have to be held."""
        session = self.core.sessions.get(number)
        return LOGGED_IN_READ_OCTETS if session is not None and session.is_ready else STRANGER_READ_OCTETS

    def is_full(self, number: int) -> bool:
        """Say whether `drained` is to be called once all that was written went out."""
        session = self.core.sessions.get(number)
        return session is not None and session.is_full

    def drained(self, number: int) -> None:
        """What was written to a client went out."""
        session = self.core.sessions.get(number)
        if session is not None:
            session.unsent = 0
            self.core.do(Resume(number))
            self._read(session)

    def received(self, number: int, data: bytes) -> None:
        """Octets came from a client."""
        session = self.core.sessions.get(number)
        if session is not None:
            session.reader.feed(data)
            self._read(session)

    def closed(self, number: int) -> None:
        """A client's connection ended."""
        session = self.core.sessions.get(number)
        if session is not None:
            self._guarded(lambda: self._leave(session))

    def checked(self, number: int, is_right: bool) -> None:
        """A password was compared."""
        session = self.core.sessions.get(number)
        if session is not None:
            self._finish_with(session, lambda: login.checked(self.core, session, is_right=is_right))

    def unseen(self, number: int) -> None:
        """A password was not compared, as too many from there were wrong."""
        session = self.core.sessions.get(number)
        if session is not None:
            self._finish_with(session, lambda: login.unseen(session))

    def has(self, number: int) -> bool:
        """Say whether a client is connected still."""
        return number in self.core.sessions

    def hashed(self, number: int, password: Password) -> None:
        """A new password was hashed."""
        session = self.core.sessions.get(number)
        if session is not None:
            self._finish_with(session, lambda: login.hashed(self.core, session, password))

    # What happened on notify connections

    def notify_opened(self, number: int, attempt: int) -> None:
        """A notify connection was made."""
        self._to_channel(number, lambda channel: channel.opened(attempt))

    def notify_failed(self, number: int, attempt: int, *, timed_out: bool) -> None:
        """A notify connection could not be made."""
        self._to_channel(number, lambda channel: channel.failed(attempt, timed_out=timed_out))

    def notify_received(self, number: int, attempt: int, data: bytes) -> None:
        """Octets came on a notify connection."""
        self._to_channel(number, lambda channel: channel.received(attempt, data))

    def notify_closed(self, number: int, attempt: int) -> None:
        """A notify connection ended."""
        self._to_channel(number, lambda channel: channel.lost(attempt))

    def _to_channel(self, number: int, tell: Callable[[SmqpChannel], None]) -> None:
        session = self.core.sessions.get(number)
        if session is not None:
            self._guarded(lambda: tell(session.channel))

    # Time, and what is to be done

    def wait(self) -> float:
        """Say for how many seconds nothing will be due."""
        timer = self.core.timers.next()
        try:
            expiry = self.core.messages.next_due()
        except sqlite3.Error:  # which the next commit tells
            expiry = None
        seconds = [MAX_WAIT_SECONDS]
        if timer is not None:
            seconds.append(timer - self.core.ticks())
        if expiry is not None:
            seconds.append(expiry - self.core.clock())
        return max(0.0, min(seconds))

    def tick(self) -> None:
        """Do what is due."""
        self.core.timers.run(self.core.ticks(), self._guarded)
        self._guarded(self.core.sweep)

    def flush(self) -> list[Action]:
        """Commit what was written; return what is to be done now, in order."""
        core = self.core
        self._guarded(core.pump)
        try:
            core.database.commit()
        except sqlite3.Error:
            log.exception("nothing of what came last could be kept, so all connections are closed")
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
            log.error("the store could not be closed: %s", error)

    def _abandon(self) -> list[Action]:
        """Close every connection: the clients take what was not answered for not done."""
        core = self.core
        core.take_actions()
        for session in list(core.sessions.values()):
            session.channel.end()
            core.do(Close(session.number))
            self._room.leave(session.held)
        core.forget_sessions()
        try:
            core.database.rollback()
            core.reload()
            core.recover()
        except sqlite3.Error as error:
            log.error("the store cannot be used: %s", error)
        return core.take_actions()

    # Commands

    def _read(self, session: SmqpSession) -> None:
        while self._is_open(session) and (heard := session.reader.next()) is not None:
            self._refresh(session)
            self._answer(session, lambda heard=heard: self._handle(session, heard))  # type: ignore[misc]
            if session.is_busy and not session.is_ready:
                self._note(session)
            if heard.command is not None and heard.command.kind is CommandKind.QUIT and heard.refusal is None:
                self._end(session)

    def _is_open(self, session: SmqpSession) -> bool:
        return not (session.is_busy or session.is_full or session.stage is Stage.ENDED)

    def _handle(self, session: SmqpSession, heard: ReceivedCommand) -> SmqpAnswer | None:
        if heard.refusal is not None:
            if session.stage in (Stage.OLD_PASSWORD, Stage.NEW_PASSWORD):
                session.stage = Stage.READY
            raise heard.refusal
        assert heard.command is not None
        kind = heard.command.kind
        assert isinstance(kind, CommandKind)
        if not session.is_ready and kind not in FOR_STRANGERS:
            code = ReplyCode.BAD_REQUEST if session.stage is Stage.NAMED else ReplyCode.UNAUTHORIZED
            raise RefusedError(code, "first comes LOGIN, then PASS")
        if session.stage in (Stage.OLD_PASSWORD, Stage.NEW_PASSWORD) and kind not in FOR_STRANGERS:
            session.stage = Stage.READY
            raise RefusedError(ReplyCode.BAD_REQUEST, "after SET LOGIN PASSWORD comes PASS, twice")
        return HANDLERS[kind](self.core, session, heard)

    def _answer(self, session: SmqpSession, handle: Callable[[], SmqpAnswer | None]) -> None:
        """Carry a command out, or undo it, and say which."""
        try:
            with self.core.database.savepoint():
                answer = handle()
        except RefusedError as error:
            log.debug("session %d is told: %s", session.number, error)
            answer = SmqpAnswer(error.reply, ReplyForm.BARE if session.stage is Stage.STRANGER else ReplyForm.PLAIN)
        except sqlite3.Error:
            log.exception("a command of session %d failed in the store", session.number)
            self._reload()
            answer = SmqpAnswer(plain(ReplyCode.UNAVAILABLE))
        except Exception:
            log.exception("a command of session %d failed", session.number)
            self._reload()
            answer = SmqpAnswer(plain(ReplyCode.SERVER_ERROR))
        if answer is not None:
            self._write(session, answer)
        if session.failures >= self.core.options.max_failures:
            self._end(session)

    def _finish(self, session: SmqpSession, answer: SmqpAnswer) -> None:
        """Give the answer that a command had to wait for, and go on reading."""
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
        self.core.leave(session)
        self.core.sessions.pop(session.number, None)
        self._room.leave(session.held)
        session.stage = Stage.ENDED

    def _refresh(self, session: SmqpSession) -> None:
        """Let the time begin anew in which a client that is logged in has to say something."""
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
        self._guarded(lambda: self._end(session))

    def _guarded(self, function: Callable[[], None]) -> None:
        """Do something that nobody waits for; if it fails, undo what it wrote, and go on."""
        try:
            with self.core.database.savepoint():
                function()
        except Exception:
            log.exception("the server could not do something that was due")
            self._reload()

    def _reload(self) -> None:
        """Know again what the store says, if that can be read; else every commit fails until it can."""
        try:
            self.core.reload()
        except sqlite3.Error as error:
            log.error("the store cannot be read: %s", error)
