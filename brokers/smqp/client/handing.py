"""Hands messages and news over to callbacks, on a thread of its own, one at a time and in order.

What nobody has subscribed to in this program yet waits: a subscription of an earlier run delivers at once after login.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
from collections.abc import Callable
from functools import partial
from threading import Lock, current_thread
from time import monotonic
from typing import Final

from brokers.deadlines import Deadlines
from brokers.smqp.client.inbox import Inbox, InboxState
from brokers.smqp.client.received import Received
from brokers.smqp.commands import Kind
from brokers.smqp.content import Content
from brokers.smqp.dialect import Dialect
from brokers.smqp.dialogue import CommandReader
from brokers.smqp.reading import Limits
from brokers.smqp.topics import covers, fold
from brokers.threads import Thread

log = logging.getLogger(__name__)

OnMessage = Callable[[Received], None]
PAUSE_SECONDS: Final = 1.0
"""Before what the inbox could not do is tried again."""

CALLBACK_FAILED: Final = "a callback failed for %s"


class Handing:
    """The way from the inbox to callbacks.

    A message is taken out of the inbox when its callback returned, or raised, which is logged. If the program ends
    within a callback, the message is handed over again by the next program with the same inbox.
    """

    def __init__(self, inbox: Inbox, dialect: Dialect, limits: Limits) -> None:
        self._inbox = inbox
        self._dialect = dialect
        self._limits = limits
        self._lock = Lock()
        self._registered: dict[str, OnMessage] = {}
        self._callbacks: dict[str, OnMessage] = {}  # of them, those whose turn has come
        self._unclaimed: list[str] = []
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._deadlines = Deadlines("smqp inbox")
        self._thread = Thread(target=self._run, name="smqp callbacks", daemon=True)
        for smuid in inbox.waiting(InboxState.READY):
            self.message(smuid)
        self._thread.start()

    def register(self, pattern: str, on_message: OnMessage) -> None:
        """Hand over what a pattern covers, also what has waited for that, and that first."""
        with self._lock:
            self._registered[fold(pattern)] = on_message
        self._tasks.put(partial(self._begin, fold(pattern), on_message))

    def unregister(self, pattern: str) -> None:
        """Hand over no more of what a pattern covers."""
        with self._lock:
            for known in (self._registered, self._callbacks):
                for each in [each for each in known if covers(fold(pattern), each)]:
                    del known[each]

    def message(self, smuid: str) -> None:
        """Hand over a message of the inbox soon."""
        self._tasks.put(partial(self._give, smuid))

    def call(self, function: Callable[[], None]) -> None:
        """Call a function soon, in its turn."""
        self._tasks.put(function)

    def close(self) -> None:
        """Hand over what came before, then nothing more, and close the inbox; a callback does not wait for that."""
        self._deadlines.close()
        self._tasks.put(None)
        if current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception(CALLBACK_FAILED, "a notification")
        self._inbox.close()  # not before: a callback that closes the client has taken its message

    def _begin(self, pattern: str, on_message: OnMessage) -> None:
        """Hand over what has waited, in order: what came before this has had its turn, what came later has it next."""
        with self._lock:
            if self._registered.get(pattern) is on_message:
                self._callbacks[pattern] = on_message
        unclaimed, self._unclaimed = self._unclaimed, []
        for smuid in unclaimed:
            self._give(smuid)

    def _give(self, smuid: str) -> None:
        try:
            found = self._inbox.read(smuid)
        except sqlite3.Error as error:  # as on a disk that is full or fails
            self._try_later(partial(self._give, smuid), error)
            return
        if found is None:
            return
        topic, octets = found
        on_message = self._claimed(smuid, topic)
        if on_message is None:
            return
        try:
            on_message(Received(topic, read_content(octets, self._dialect, self._limits)))
        except Exception:
            log.exception(CALLBACK_FAILED, smuid)
        self._note_given(smuid)

    def _note_given(self, smuid: str) -> None:
        try:
            self._inbox.given(smuid)
        except sqlite3.Error as error:  # until it is noted, another program would hand the message over again
            self._try_later(partial(self._note_given, smuid), error)

    def _try_later(self, task: Callable[[], None], error: sqlite3.Error) -> None:
        log.warning("the inbox cannot be used, which is tried again in %g s: %s", PAUSE_SECONDS, error)
        self._deadlines.call_at(monotonic() + PAUSE_SECONDS, partial(self._tasks.put, task))

    def _claimed(self, smuid: str, topic: str) -> OnMessage | None:
        """Find the callback of the most exact pattern; without one the message waits."""
        folded = fold(topic[topic.find("/") :])
        with self._lock:
            matching = [each for each in self._callbacks if covers(each, folded)]
            if not matching:
                # The context of another server may itself have slashes.
                matching = [each for each in self._callbacks if fold(topic).endswith(each)]
            if matching:
                return self._callbacks[max(matching, key=lambda each: (each == folded, len(each)))]
        self._unclaimed.append(smuid)
        return None


def read_content(octets: bytes, dialect: Dialect, limits: Limits) -> Content:
    """Read a message as it was kept."""
    reader = CommandReader(limits, dialect)
    assert reader.begin(str(Kind.PUBLISH_MESSAGE) + " /kept 1") is None
    reader.feed(octets)
    heard = reader.next()
    assert heard is not None
    assert heard.content is not None
    return heard.content
