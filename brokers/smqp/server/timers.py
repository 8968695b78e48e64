"""What is to be done at a time, for one thread; whoever holds it looks at the clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Timer:
    """One function and when it is due; None once it ran or was cancelled."""

    __slots__ = ("at", "function", "order")

    def __init__(self, at: float, order: int, function: Callable[[], None]) -> None:
        self.at = at
        self.order = order
        self.function: Callable[[], None] | None = function

    def __lt__(self, other: Timer) -> bool:
        return (self.at, self.order) < (other.at, other.order)

    def cancel(self) -> None:
        """Do not run it."""
        self.function = None


class Timers:
    """The timers, the next one first."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._orders = count()

    def at(self, time: float, function: Callable[[], None]) -> Timer:
        """Run a function at a time."""
        timer = Timer(time, next(self._orders), function)
        heapq.heappush(self._heap, timer)
        if len(self._heap) > 64 and sum(each.function is None for each in self._heap) > len(self._heap) // 2:
            self._heap = [each for each in self._heap if each.function is not None]
            heapq.heapify(self._heap)
        return timer

    def next(self) -> float | None:
        """Say when the next is due."""
        while self._heap and self._heap[0].function is None:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

    def run(self, now: float, guarded: Callable[[Callable[[], None]], None]) -> None:
        """Run what is due, each by `guarded`."""
        while (at := self.next()) is not None and at <= now:
            timer = heapq.heappop(self._heap)
            function, timer.function = timer.function, None
            if function is not None:
                guarded(function)
