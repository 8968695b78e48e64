"""Counting what happens, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock

from soapjms.observing import Observers


class Tally:
    """Counts that several threads add to.

    Args:
        observers: are told of each event.

    Attributes:
        counts: the number of events by name.
        observers: the observers, or None.
    """

    def __init__(self, observers: Observers | None = None) -> None:
        self.observers = observers
        self.counts: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, *what: str, times: int = 1) -> None:
        """Add `times` to the count of each of these names."""
        with self._lock:
            for each in what:
                self.counts[str(each)] += times
        if self.observers is not None:
            for each in what:
                self.observers.counted(str(each), times)

    def add_all(self, counts: Mapping[str, int]) -> None:
        """Add numbers to the counts of their names."""
        with self._lock:
            for name, times in counts.items():
                self.counts[name] += times
        if self.observers is not None:
            for name, times in counts.items():
                self.observers.counted(name, times)
