"""Actions that the engine asks a driver to execute in order, as values, and timers.

Timers are for one thread, and do not read the clock themselves. Nothing here touches a socket.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from brokers.smqp.server.accounts import Password


@dataclass(frozen=True, slots=True)
class Write:
    """Send octets on the command connection."""

    session: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """Send all pending octets, then close the command connection."""

    session: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Read from the command connection again; see `SmqpEngine.is_busy`."""

    session: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a notify connection; `attempt` distinguishes it from earlier ones."""

    session: int
    attempt: int
    host: str
    port: int
    is_secure: bool


@dataclass(frozen=True, slots=True)
class NotifyWrite:
    """Send octets on a notify connection."""

    session: int
    attempt: int
    data: bytes


@dataclass(frozen=True, slots=True)
class NotifyClose:
    """Close a notify connection, or stop opening it."""

    session: int
    attempt: int


@dataclass(frozen=True, slots=True)
class CheckPassword:
    """Compare a password with a stored one, outside the engine's thread; None if there is no such account.

    Passwords from one `address` are compared one after the other, and not at all after too many wrong ones.
    """

    session: int
    text: str
    stored: Password | None
    address: str
    account: str


@dataclass(frozen=True, slots=True)
class HashPassword:
    """Hash a new password, outside the engine's thread."""

    session: int
    text: str


Action: TypeAlias = Write | Close | Resume | Connect | NotifyWrite | NotifyClose | CheckPassword | HashPassword


class Timer:
    """A function and its due time; the function is None once it has run or was cancelled."""

    __slots__ = ("at", "function", "order")

    def __init__(self, at: float, order: int, function: Callable[[], None]) -> None:
        self.at = at
        self.order = order
        self.function: Callable[[], None] | None = function

    def __lt__(self, other: Timer) -> bool:
        return (self.at, self.order) < (other.at, other.order)

    def cancel(self) -> None:
        """Cancel the timer."""
        self.function = None


class Timers:
    """All timers, the next one first."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._orders = count()

    def at(self, time: float, function: Callable[[], None]) -> Timer:
        """Run a function at a given time."""
        timer = Timer(time, next(self._orders), function)
        heapq.heappush(self._heap, timer)
        if len(self._heap) > 64 and sum(each.function is None for each in self._heap) > len(self._heap) // 2:
            self._heap = [each for each in self._heap if each.function is not None]
            heapq.heapify(self._heap)
        return timer

    def next(self) -> float | None:
        """Return the time of the next timer, or None."""
        while self._heap and self._heap[0].function is None:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

    def run(self, now: float, guarded: Callable[[Callable[[], None]], object]) -> None:
        """Run all functions that are due, each through `guarded`."""
        while (at := self.next()) is not None and at <= now:
            timer = heapq.heappop(self._heap)
            function, timer.function = timer.function, None
            if function is not None:
                guarded(function)
