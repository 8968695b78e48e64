"""Counting what happens, by name."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Tally:
    """Counts that several threads add to.

    Attributes:
        counts: how often, by name.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, *what: str, times: int = 1) -> None:
        """Count each of these."""
        with self._lock:
            for each in what:
                self.counts[str(each)] += times
