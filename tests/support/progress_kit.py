"""What programs that take minutes say meanwhile: how far they are, on standard error, now and then."""

from __future__ import annotations

import sys
import time
from threading import Lock
from typing import Final

SECONDS: Final = 10.0
"""Between two lines."""


class Progress:
    """Counts what is done. Thread-safe.

    Args:
        what: is counted: `calls`.
        total: how many there are to be.
        seconds: that pass at least between two lines; the last one is said at once.
    """

    def __init__(self, what: str, total: int, seconds: float = SECONDS) -> None:
        self._what = what
        self._total = total
        self._seconds = seconds
        self._lock = Lock()
        self._done = 0
        self._began = self._said = time.monotonic()

    def add(self, number: int = 1) -> None:
        """Note that so many more are done."""
        with self._lock:
            self._done += number
            now = time.monotonic()
            is_due = now - self._said >= self._seconds or self._done == self._total
            if is_due:
                self._said = now
            text = f"  {self._done} of {self._total} {self._what} after {now - self._began:.0f} s"
        if is_due:
            say(text)


def say(text: str) -> None:
    """Write a line, now."""
    print(text, file=sys.stderr, flush=True)
