"""A timer, one thread that calls functions at their deadlines; and the time that is left until a deadline."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, current_thread
from typing import Final, TypeAlias

from brokers import events
from brokers.threads.thread import Thread

Later: TypeAlias = Callable[[float, Callable[[], None]], None]
"""Runs a function after a number of seconds, on a thread where it may block; never once its owner is closed."""

MIN_SWEEP_DEADLINES: Final = 64
"""Number of forgotten deadlines that may stay in the heap before it is swept."""


def left(until: float) -> float:
    """Return the seconds until the monotonic clock shows `until`, or 0 if that has passed."""
    return max(0.0, until - time.monotonic())


class Deadline:
    """A function and the time when it is due; `function` is None once it was called or forgotten."""

    __slots__ = ("function", "number", "seconds")

    def __init__(self, seconds: float, number: int, function: Callable[[], None]) -> None:
        self.seconds = seconds
        self.number = number
        self.function: Callable[[], None] | None = function

    def __lt__(self, other: Deadline) -> bool:
        return (self.seconds, self.number) < (other.seconds, other.number)


class Deadlines:
    """Calls functions at their deadlines, on one thread that starts with the first deadline or with `start`.

    A function must not block. An exception from it is logged. `name` is the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = Condition()
        self._heap: list[Deadline] = []
        self._forgotten = 0
        self._numbers = itertools.count()
        self._thread: Thread | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return the number of deadlines kept, including forgotten ones that were not swept yet."""
        return len(self._heap)

    def start(self) -> None:
        """Start the thread, unless it runs or the timer is closed, so that `call_at` cannot fail for want of it.

        Raises:
            RuntimeError: the thread could not be started.
        """
        with self._changed:
            if not self._closed:
                self._be_started()

    def _be_started(self) -> None:
        if self._thread is None:
            thread = Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def call_at(self, seconds: float, function: Callable[[], None]) -> Deadline:
        """Call `function` when the monotonic clock shows `seconds`; never once the timer is closed.

        Raises:
            RuntimeError: the thread was not running and could not be started.
        """
        with self._changed:
            deadline = Deadline(seconds, next(self._numbers), function)
            if self._closed:
                deadline.function = None
                return deadline
            self._be_started()
            heapq.heappush(self._heap, deadline)
            if self._heap[0] is deadline:
                self._changed.notify()
            return deadline

    def forget(self, deadline: Deadline) -> None:
        """Drop the function without calling it. Does nothing if it was called or forgotten before."""
        with self._changed:
            if deadline.function is None:
                return
            deadline.function = None
            self._forgotten += 1
            if self._forgotten > max(MIN_SWEEP_DEADLINES, len(self._heap) // 2):
                self._heap = [each for each in self._heap if each.function is not None]
                heapq.heapify(self._heap)
                self._forgotten = 0

    def close(self, timeout: float | None = None) -> None:
        """Forget all deadlines and end the thread; wait for it up to `timeout` seconds. Idempotent."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (wait := self._wait()) != 0:
                    self._changed.wait(wait)
                if self._closed:
                    return
                due = heapq.heappop(self._heap)
                function, due.function = due.function, None
                if function is None:
                    self._forgotten -= 1
                    continue
            try:
                function()
            except BaseException:  # SystemExit too: it must not end the thread, which others rely on
                with suppress(MemoryError):
                    events.TIMER_FAILED.log()
            del due, function  # they may hold large objects, and the next one may take long to come due

    def _wait(self) -> float | None:
        """Return the seconds until the first deadline, 0 if it has passed, or None if there is no deadline."""
        if not self._heap:
            return None
        return left(self._heap[0].seconds)
