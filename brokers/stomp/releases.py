"""How often a message came back from its consumers, and what follows from it: a pause, at last the dead letters.

STOMP has no word for it: the broker delivers again at once what comes back, and tells nobody how often. So a message
that always fails would be delivered for ever, thousands of times a second.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Final

MAX_DELIVERIES: Final = 6
"""A message that comes back from this many deliveries is a dead letter, as with the embedded broker."""

FIRST_PAUSE: Final = 0.05
"""Seconds before a message is given back for the first time; they double each time, to 1.55 s in all."""

REMEMBERED: Final = 10_000
"""Messages whose releases are counted; of more, those that came back first are forgotten."""


def pause_after(releases: int) -> float:
    """Say how many seconds a message is kept before it is given back for the nth time."""
    return FIRST_PAUSE * 2.0 ** (releases - 1)


class Releases:
    """Counts the releases of each message over one connection. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Count the messages that are remembered."""
        return len(self._counts)

    def __contains__(self, message: Hashable) -> bool:
        """Say whether a message came back and was not settled since. Costs nothing while no message came back."""
        return message in self._counts

    def count(self, message: Hashable) -> int:
        """Note one more release of a message, and return how many there were."""
        with self._lock:
            releases = self._counts.pop(message, 0) + 1
            self._counts[message] = releases
            if len(self._counts) > REMEMBERED:
                del self._counts[next(iter(self._counts))]
            return releases

    def forget(self, message: Hashable) -> None:
        """Forget a message that was accepted or rejected. Costs nothing while no message came back."""
        if self._counts:
            with self._lock:
                self._counts.pop(message, None)
