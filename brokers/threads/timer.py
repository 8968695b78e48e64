"""One thread that calls back when a deadline passes."""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Callable
from threading import Condition, current_thread
from typing import Final, TypeAlias

from brokers.threads.thread import Thread

log = logging.getLogger(__name__)

Later: TypeAlias = Callable[[float, Callable[[], None]], None]
"""Has a function run after so many seconds, where it may block; not at all once its owner is closed."""

MIN_SWEEP_DEADLINES: Final = 64
"""Forgotten deadlines that may lie about before the heap is swept."""


class Deadline:
    """One function and when it is due; `function` is None once it was called or forgotten."""

    __slots__ = ("function", "number", "seconds")

    def __init__(self, seconds: float, number: int, function: Callable[[], None]) -> None:
        self.seconds = seconds
        self.number = number
        self.function: Callable[[], None] | None = function

    def __lt__(self, other: Deadline) -> bool:
        return (self.seconds, self.number) < (other.seconds, other.number)


class Deadlines:
    """Calls functions at their deadlines, on one thread that starts with the first of them, or before.

    A function must not block. An exception that leaves it is logged. `name` is the thread's.
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
        """Count what is kept, with what was forgotten and is still to be swept."""
        return len(self._heap)

    def start(self) -> None:
        """Start the thread, if it is not there and this is not closed: then `call_at` never lacks it.

        Raises:
            RuntimeError: there is none to be had.
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
        """Call `function` when the monotonic clock shows `seconds`; never once this is closed.

        Raises:
            RuntimeError: the first one needs a thread, and there is none to be had.
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
        """Do not call the function; let go of it at once. Does nothing a second time, or once it was called."""
        with self._changed:
            if deadline.function is None:
                return
            deadline.function = None
            self._forgotten += 1
            if self._forgotten > max(MIN_SWEEP_DEADLINES, len(self._heap) // 2):
                self._heap = [each for each in self._heap if each.function is not None]
                heapq.heapify(self._heap)
                self._forgotten = 0

    def close(self) -> None:
        """Forget everything and end the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not current_thread():
            thread.join()

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
            except Exception:
                log.exception("a function that was due failed")
            del due, function  # what they hold may be large, and the next one long in coming

    def _wait(self) -> float | None:
        """Return the seconds until the first deadline, 0 if it has passed, None where there is none."""
        if not self._heap:
            return None
        return max(0.0, self._heap[0].seconds - time.monotonic())
