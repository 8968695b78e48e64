"""The client's part of notifications: it stores messages, and hands messages and other notifications to callbacks.

Callbacks run on a separate thread, one at a time and in order. Receipts and replies are separated from other messages.
Messages without a callback wait until this program subscribes: subscriptions of an earlier run deliver right after
login.

Spec: SMQP 4.1.8 (receipts and replies come by the login topic), 4.1.12.
"""

from __future__ import annotations

import queue
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Lock, current_thread
from time import monotonic
from typing import Any, Final, TypeVar

from brokers import events
from brokers.smqp.client.inbox import (
    DefaultTimeout,
    Goodbye,
    Inbox,
    InboxState,
    Received,
    SubscriberCount,
    Told,
    TopicChange,
)
from brokers.smqp.client.options import ClientOptions
from brokers.smqp.protocol.commands import CommandKind, Notice
from brokers.smqp.protocol.dialect import SmqpDialect
from brokers.smqp.protocol.dialogue import CommandReader, ReceivedCommand
from brokers.smqp.protocol.ids import NUMBER
from brokers.smqp.protocol.messages import RECEIPT_CMUID, REPLIED_CMUID, SmqpLimits, SmqpMessage
from brokers.smqp.protocol.topics import covers, fold
from brokers.threads.thread import Thread
from brokers.threads.timer import Deadlines

OnMessage = Callable[[Received], None]
PAUSE_SECONDS: Final = 1.0
"""Seconds until an operation that failed in the inbox is tried again."""


class InboxHandover:
    """Hands over messages from the inbox to callbacks.

    A message is removed from the inbox when its callback has returned or raised; exceptions are logged. If the program
    ends during a callback, the next program with the same inbox hands over the message again.
    """

    def __init__(self, inbox: Inbox, dialect: SmqpDialect, limits: SmqpLimits) -> None:
        self._inbox = inbox
        self._dialect = dialect
        self._limits = limits
        self._lock = Lock()
        self._registered: dict[str, OnMessage] = {}
        self._callbacks: dict[str, OnMessage] = {}  # the registered ones whose turn has come
        self._unclaimed: list[str] = []
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._deadlines = Deadlines("smqp inbox")
        self._deadlines.start()  # now, so that no message is kept back for want of a thread
        self._thread = Thread(target=self._run, name="smqp callbacks", daemon=True)
        for smuid in inbox.waiting(InboxState.READY):
            self.message(smuid)
        self._thread.start()

    def register(self, pattern: str, on_message: OnMessage) -> None:
        """Hand over the messages that a pattern covers, those already waiting first."""
        with self._lock:
            self._registered[fold(pattern)] = on_message
        self._tasks.put(partial(self._begin, fold(pattern), on_message))

    def unregister(self, pattern: str) -> None:
        """Stop handing over the messages that a pattern covers."""
        with self._lock:
            for known in (self._registered, self._callbacks):
                for each in [each for each in known if covers(fold(pattern), each)]:
                    del known[each]

    def message(self, smuid: str) -> None:
        """Queue a message of the inbox to be handed over."""
        self._tasks.put(partial(self.attempt, partial(self._give, smuid)))

    def call(self, function: Callable[[], None]) -> None:
        """Queue a function to be called."""
        self._tasks.put(function)

    def attempt(self, task: Callable[[], None]) -> None:
        """Do something in the inbox; if that fails, as on a full disk, do it again later."""
        try:
            task()
        except sqlite3.Error as error:
            events.SMQP_CLIENT_INBOX_FAILED.log(PAUSE_SECONDS, error)
            self.attempt_later(PAUSE_SECONDS, task)

    def attempt_later(self, seconds: float, task: Callable[[], None]) -> None:
        """Attempt something after `seconds`, on the callbacks' thread."""
        self._deadlines.call_at(monotonic() + seconds, partial(self._tasks.put, partial(self.attempt, task)))

    def close(self) -> None:
        """Hand over everything queued so far, then close the inbox; do not wait for that if a callback calls this."""
        self._deadlines.close()
        self._tasks.put(None)
        if current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            _call("a notification", task)
        self._inbox.close()  # only now: the message of a callback that closes the client must still be noted as given

    def _begin(self, pattern: str, on_message: OnMessage) -> None:
        """Hand over the waiting messages, in order; later ones come after them."""
        with self._lock:
            if self._registered.get(pattern) is on_message:
                self._callbacks[pattern] = on_message
        unclaimed, self._unclaimed = self._unclaimed, []
        for smuid in unclaimed:
            self.attempt(partial(self._give, smuid))

    def _give(self, smuid: str) -> None:
        found = self._inbox.read(smuid)
        if found is None:
            return
        topic, octets = found
        on_message = self._claimed(smuid, topic)
        if on_message is None:
            return
        _call(smuid, lambda: on_message(Received(topic, read_content(octets, self._dialect, self._limits))))
        self.attempt(partial(self._inbox.given, smuid))  # otherwise the next program would hand over the message again

    def _claimed(self, smuid: str, topic: str) -> OnMessage | None:
        """Return the callback of the most exact pattern; without one the message waits."""
        folded = fold(topic[topic.find("/") :])
        with self._lock:
            matching = [each for each in self._callbacks if covers(each, folded)]
            if not matching:
                # The context of another server may have slashes itself.
                matching = [each for each in self._callbacks if fold(topic).endswith(each)]
            if matching:
                return self._callbacks[max(matching, key=lambda each: (each == folded, len(each)))]
        self._unclaimed.append(smuid)
        return None


def _call(subject: str, function: Callable[[], None]) -> None:
    try:
        function()
    except BaseException:  # SystemExit too: it must not end the thread and keep back all later messages
        with suppress(MemoryError):
            events.SMQP_CLIENT_CALLBACK_FAILED.log(subject)


def read_content(octets: bytes, dialect: SmqpDialect, limits: SmqpLimits) -> SmqpMessage:
    """Read a stored message."""
    reader = CommandReader(limits, dialect)
    assert reader.begin(str(CommandKind.PUBLISH_MESSAGE) + " /kept 1") is None
    reader.feed(octets)
    heard = reader.next()
    assert heard is not None
    return heard.message


T = TypeVar("T", bound=Told)

MAX_EXPECTED_RECEIPTS: Final = 100_000
"""Maximum numbers of expected receipts and of expected replies; beyond it the oldest is dropped."""


class ClientHearer:
    """The `Hearer` of a client."""

    def __init__(self, inbox: Inbox, options: ClientOptions) -> None:
        self._inbox = inbox
        self._handing = InboxHandover(inbox, options.dialect, options.limits)
        self._in_doubt = options.in_doubt
        self._lock = Lock()
        self._own_topic = ""
        self._on_own: OnMessage | None = None
        self._callbacks: dict[type, Callable[[Any], None]] = {}
        self._receipts: OrderedDict[str, Future[Received]] = OrderedDict()
        self._replies: OrderedDict[str, Future[Received]] = OrderedDict()
        for smuid in inbox.waiting(InboxState.HELD):
            self._doubt(smuid)

    # For the client

    def own_topic(self, topic: str) -> None:
        """Take receipts and replies from the login topic."""
        self._own_topic = topic
        self._handing.register(topic, self._on_login_topic)

    def register(self, pattern: str, on_message: OnMessage) -> None:
        """Hand over the messages that a pattern covers; of the login topic, all but expected receipts and replies."""
        if fold(pattern) == fold(self._own_topic):
            self._on_own = on_message
        else:
            self._handing.register(pattern, on_message)

    def unregister(self, pattern: str) -> None:
        """Stop handing over the messages that a pattern covers."""
        self._handing.unregister(pattern)

    def on(self, what: type[T], callback: Callable[[T], None]) -> None:
        """Call `callback` with each notification of a type."""
        self._callbacks[what] = callback

    def expect(
        self, cmuid: str, *, receipt: bool, reply: bool
    ) -> tuple[Future[Received] | None, Future[Received] | None]:
        """Return the futures of the receipt and the reply of a message, None for one that is not asked for."""
        with self._lock:
            return (
                _expect(self._receipts, cmuid) if receipt else None,
                _expect(self._replies, cmuid) if reply else None,
            )

    def forget(self, cmuid: str) -> None:
        """Stop expecting a receipt and a reply for a message that was not published."""
        with self._lock:
            self._receipts.pop(cmuid, None)
            self._replies.pop(cmuid, None)

    def close(self) -> None:
        """Close, once all queued messages are handed over; those without a callback stay in the inbox."""
        self._handing.close()
        with self._lock:
            left = [*self._receipts.values(), *self._replies.values()]
        for future in left:
            future.cancel()

    # For the listener

    def take(self, heard: ReceivedCommand) -> bool:
        """Store a message before it is acknowledged."""
        self._inbox.hold(_smuid(heard), heard.known.topic, heard.message.written())
        return True

    def confirmed(self, heard: ReceivedCommand) -> None:
        """Hand over a message, unless that was done before.

        Messages of the same topic that are in doubt go first: the server sends the messages of a topic in order, so it
        knows that those were taken. If a message with priority overtook them and they come again, they are recognized.
        """
        self._handing.attempt(partial(self._confirm, heard.known.topic, _smuid(heard)))

    def _confirm(self, topic: str, smuid: str) -> None:
        for each in self._inbox.doubtful(topic, smuid):
            self._trust(each)
        if self._inbox.confirm(smuid):
            self._handing.message(smuid)

    def doubted(self, heard: ReceivedCommand) -> None:
        """Wait for a message to come again; hand it over if it does not."""
        self._doubt(_smuid(heard))

    def _doubt(self, smuid: str) -> None:
        self._handing.attempt_later(self._in_doubt, partial(self._trust, smuid))

    def _trust(self, smuid: str) -> None:
        if self._inbox.trust(smuid):
            self._handing.message(smuid)

    def notice(self, heard: ReceivedCommand) -> None:
        """Pass a notification to its callback, if there is one."""
        told = told_of(heard)
        callback = None if told is None else self._callbacks.get(type(told))
        if callback is not None:
            self._handing.call(partial(callback, told))

    def ended(self) -> None:
        """Do nothing: `take` never waits."""

    def _on_login_topic(self, received: Received) -> None:
        attributes = received.attributes
        for expected, name in ((self._receipts, RECEIPT_CMUID), (self._replies, REPLIED_CMUID)):
            with self._lock:
                future = expected.pop(attributes.text(name), None)
            if future is not None:
                if future.set_running_or_notify_cancel():
                    future.set_result(received)
                return
        if self._on_own is not None:
            self._on_own(received)
        else:
            events.SMQP_CLIENT_LOGIN_MESSAGE.log(received.smuid)


def told_of(heard: ReceivedCommand) -> Told | None:
    """Return the event of a notification other than a message, or None if it is malformed."""
    command = heard.known
    if command.kind is Notice.TOPIC:
        action, _, value = heard.attributes.text("Action").partition(" ")
        return TopicChange(command.topic, ACTIONS.get(action.upper(), action.upper()), value)
    if command.kind is Notice.SUBSCRIBERS:
        count = heard.attributes.text("Count")
        return SubscriberCount(command.topic, int(count)) if NUMBER.fullmatch(count) else None
    if command.kind is Notice.SERVER_TIMEOUT:
        return DefaultTimeout(command.timeout)
    return Goodbye(command.timeout)


ACTIONS: Final = {"ADD": "ADDED", "REN": "RENAME", "DEL": "DELETED", "KEY": "KEYWORDS"}


def _smuid(heard: ReceivedCommand) -> str:
    return heard.message.attributes.text("Smuid")


def _expect(expected: OrderedDict[str, Future[Received]], cmuid: str) -> Future[Received]:
    future: Future[Received] = Future()
    expected[cmuid] = future
    while len(expected) > MAX_EXPECTED_RECEIPTS:
        expected.popitem(last=False)[1].cancel()
    return future
