"""One thread that calls back when a deadline passes."""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Callable
from threading import Condition, Thread

log = logging.getLogger("soapjms.deadlines")


class Deadlines:
    """Calls functions at their deadlines, on one thread that lives while there is something to wait for.

    A function must not block. One that is not wanted any more may be left in: it should then do nothing.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._thread: Thread | None = None
        self._closed = False

    def call_at(self, seconds: float, function: Callable[[], None]) -> None:
        """Call `function` when the monotonic clock shows `seconds`."""
        with self._changed:
            heapq.heappush(self._heap, (seconds, next(self._count), function))
            if self._thread is None and not self._closed:
                self._thread = Thread(target=self._run, name="soapjms-deadlines", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Forget everything and end the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._heap or self._heap[0][0] > time.monotonic()):
                    self._changed.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
                if self._closed:
                    return
                _, _, function = heapq.heappop(self._heap)
            try:
                function()
            except Exception:
                log.exception("a function that was due failed")
