"""What a dispatcher works on at the moment: how much, that no more is taken once it closes, and waiting for the end."""

from __future__ import annotations

from threading import Condition, Lock
from time import monotonic


class UnderWay:
    """Counts requests from their delivery until they are settled. Thread-safe.

    Attributes:
        number: how many there are.
        is_closing: no more are taken.
    """

    def __init__(self) -> None:
        self.number = 0
        self.is_closing = False
        self._lock = Lock()
        self._ended = Condition(self._lock)
        self._since = 0.0

    def begin(self) -> bool:
        """Count one more; False if no more are taken."""
        with self._lock:
            if not self.is_closing:
                if not self.number:
                    self._since = monotonic()
                self.number += 1
            return not self.is_closing

    def end(self, number: int) -> None:
        """Count so many less."""
        with self._lock:
            self.number -= number
            self._since = monotonic()
            if self.is_closing:
                self._ended.notify_all()

    @property
    def stalled(self) -> float:
        """For how many seconds nothing has ended, though something is under way; 0 while nothing is."""
        with self._lock:
            return monotonic() - self._since if self.number else 0.0

    def close(self) -> bool:
        """Take no more; False if that was so before."""
        with self._lock:
            was_closing, self.is_closing = self.is_closing, True
            return not was_closing

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds, once no more are taken, for the end of all; say whether they have ended."""
        with self._ended:
            return self._ended.wait_for(lambda: self.number == 0, seconds)
