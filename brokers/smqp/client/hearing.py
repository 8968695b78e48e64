"""What a client does with notifications: keeps messages, hands them over, tells receipts and replies from the rest.

Spec: SMQP 4.1.8 (receipts and replies come by the login topic), 4.1.12.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeVar

from brokers.deadlines import Deadlines
from brokers.smqp.client.handing import Handing, OnMessage
from brokers.smqp.client.inbox import Inbox, InboxState
from brokers.smqp.client.options import ClientOptions
from brokers.smqp.client.received import DefaultTimeout, Goodbye, Received, SubscriberCount, Told, TopicChange
from brokers.smqp.commands import Command, Notice
from brokers.smqp.dialogue import Heard
from brokers.smqp.topics import fold

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Told)

EXPECTED: Final = 100_000
"""Receipts and replies that may be waited for; the oldest is given up for one more."""


class Hearing:
    """Takes notifications for a client: a `Hearer`."""

    def __init__(self, inbox: Inbox, options: ClientOptions) -> None:
        self._inbox = inbox
        self._handing = Handing(inbox, options.dialect, options.limits)
        self._in_doubt = options.in_doubt
        self._deadlines = Deadlines("smqp in doubt")
        self._lock = Lock()
        self._own_topic = ""
        self._on_own: OnMessage | None = None
        self._callbacks: dict[type, Callable[[Any], None]] = {}
        self._receipts: OrderedDict[str, Future[Received]] = OrderedDict()
        self._replies: OrderedDict[str, Future[Received]] = OrderedDict()
        for smuid in inbox.waiting(InboxState.HELD):
            self._doubt(smuid)

    # What the client asks for

    def own_topic(self, topic: str) -> None:
        """Take receipts and replies from the login topic."""
        self._own_topic = topic
        self._handing.register(topic, self._on_login_topic)

    def register(self, pattern: str, on_message: OnMessage) -> None:
        """Hand over what a pattern covers; of the login topic, what is no receipt or reply that was asked for."""
        if fold(pattern) == fold(self._own_topic):
            self._on_own = on_message
        else:
            self._handing.register(pattern, on_message)

    def unregister(self, pattern: str) -> None:
        """Hand over no more of what a pattern covers."""
        self._handing.unregister(pattern)

    def on(self, what: type[T], callback: Callable[[T], None]) -> None:
        """Call back with each notification of a type."""
        self._callbacks[what] = callback

    def expect(
        self, cmuid: str, *, receipt: bool, reply: bool
    ) -> tuple[Future[Received] | None, Future[Received] | None]:
        """Make the futures of a message that asks for a receipt or a reply."""
        with self._lock:
            return (
                _expect(self._receipts, cmuid) if receipt else None,
                _expect(self._replies, cmuid) if reply else None,
            )

    def forget(self, cmuid: str) -> None:
        """Expect nothing for a message that was not published."""
        with self._lock:
            self._receipts.pop(cmuid, None)
            self._replies.pop(cmuid, None)

    def close(self) -> None:
        """End, once what came before was handed over; what nobody took stays in the inbox."""
        self._deadlines.close()
        self._handing.close()
        with self._lock:
            left = [*self._receipts.values(), *self._replies.values()]
        for future in left:
            future.cancel()

    # What the listener hears

    def take(self, heard: Heard) -> bool:
        """Keep a message, before it is acknowledged."""
        assert heard.command is not None
        assert heard.content is not None
        self._inbox.hold(_smuid(heard), heard.command.topic, heard.content.written())
        return True

    def confirmed(self, heard: Heard) -> None:
        """Hand a message over, if that was not done before.

        What is in doubt of the same topic goes first: the server sends a topic's messages in their order, so it knows
        that those were taken. If it does not, as a message with priority overtook them, they are known when they come.
        """
        assert heard.command is not None
        for smuid in self._inbox.doubtful(heard.command.topic, _smuid(heard)):
            self._trust(smuid)
        if self._inbox.confirm(_smuid(heard)):
            self._handing.message(_smuid(heard))

    def doubted(self, heard: Heard) -> None:
        """Wait whether a message comes again; if not, hand it over."""
        self._doubt(_smuid(heard))

    def _doubt(self, smuid: str) -> None:
        self._deadlines.call_at(monotonic() + self._in_doubt, partial(self._trust, smuid))

    def _trust(self, smuid: str) -> None:
        if self._inbox.trust(smuid):
            self._handing.message(smuid)

    def notice(self, heard: Heard) -> None:
        """Call back with what was told, if somebody wants to know."""
        told = told_of(heard)
        callback = None if told is None else self._callbacks.get(type(told))
        if callback is not None:
            self._handing.call(partial(callback, told))

    def ended(self) -> None:
        """Nothing waits."""

    def _on_login_topic(self, received: Received) -> None:
        attributes = received.attributes
        for expected, name in ((self._receipts, "X-Receipt-Cmuid"), (self._replies, "X-In-Reply-To-Cmuid")):
            with self._lock:
                future = expected.pop(attributes.text(name), None)
            if future is not None:
                if future.set_running_or_notify_cancel():
                    future.set_result(received)
                return
        if self._on_own is not None:
            self._on_own(received)
        else:
            log.info("nobody expected %s on the login topic", received.smuid)


def told_of(heard: Heard) -> Told | None:
    """Say what a notification that is no message tells; None for what it should not be."""
    command: Command | None = heard.command
    assert command is not None
    if command.kind is Notice.TOPIC:
        action, _, value = heard.attributes.text("Action").partition(" ")
        return TopicChange(command.topic, ACTIONS.get(action.upper(), action.upper()), value)
    if command.kind is Notice.SUBSCRIBERS:
        count = heard.attributes.text("Count")
        return SubscriberCount(command.topic, int(count)) if count.isascii() and count.isdecimal() else None
    if command.kind is Notice.SERVER_TIMEOUT:
        return DefaultTimeout(command.timeout)
    return Goodbye(command.timeout)


ACTIONS: Final = {"ADD": "ADDED", "REN": "RENAME", "DEL": "DELETED", "KEY": "KEYWORDS"}


def _smuid(heard: Heard) -> str:
    assert heard.content is not None
    return heard.content.attributes.text("Smuid")


def _expect(expected: OrderedDict[str, Future[Received]], cmuid: str) -> Future[Received]:
    future: Future[Received] = Future()
    expected[cmuid] = future
    while len(expected) > EXPECTED:
        expected.popitem(last=False)[1].cancel()
    return future
