"""The broker's lock, and what happens when it is released: subscriptions with something to do are woken.

A subscription is *at work* from the moment that it is woken until it finds nothing to take, so it is woken once for
many messages. How a woken subscription gets a thread is not decided here; see `connection.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, RLock, get_ident
from typing import Final

WakeUp = Callable[[], None]


class WakingLock:
    """A re-entrant lock. Whoever releases it calls the wake-ups that were noted while it was held, without the lock.

    Re-entrant, because a logging handler or finaliser may use the broker on a thread that holds the lock.

    Attributes:
        rested: signalled when a stopped subscription has let go of its thread.
    """

    def __init__(self) -> None:
        self._lock: Final = RLock()
        self._depth = 0
        self._noted: list[WakeUp] = []
        self.rested: Final = Condition(self._lock)

    def note(self, wake_up: WakeUp) -> None:
        """Call a function once the lock is released. With the lock held."""
        self._noted.append(wake_up)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth or not self._noted:
            self._lock.release()
            return
        noted, self._noted = self._noted, []
        self._lock.release()
        if len(noted) == 1:
            noted[0]()
        else:
            _call_all(noted)


def _call_all(noted: list[WakeUp]) -> None:
    """Call all, even if one raises, such as KeyboardInterrupt from a consumer on the sender's own thread."""
    try:
        while noted:
            noted.pop(0)()
    finally:
        if noted:
            _call_all(noted)


class OwnThread:
    """Runs tasks on the thread that submits them. A task that another one submits runs after it, not within it.

    So a chain of consumers that send to each other needs no more of the stack than one of them. Thread-safe.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, deque[WakeUp]] = {}  # by thread id, for threads that run a task

    def submit(self, task: WakeUp) -> None:
        """Run a task now, or after the one that this thread is running."""
        thread = get_ident()
        waiting = self._waiting.get(thread)
        if waiting is not None:
            waiting.append(task)
            return
        tasks = self._waiting[thread] = deque((task,))
        try:
            while tasks:
                tasks.popleft()()
        finally:
            del self._waiting[thread]
            if tasks:
                self.submit(tasks.popleft())
