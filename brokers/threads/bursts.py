"""Waking other threads late: after the *burst* of what a thread has at hand.

Only one thread of a program runs Python at a time. A thread that is woken by another one which goes on working can only
wait for that one again, so each result costs two more changes of threads. Therefore a thread that handles many things
one after the other, such as the messages that arrived together, wakes others after the last of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from threading import local
from time import monotonic
from typing import Final

SOON_SECONDS: Final = 0.001
"""Time within which a thread waits that submits something and then waits, in seconds."""


class _OwnBurst(local):
    """What the calling thread has to call after its burst; None if it has no bursts."""

    calls: deque[Callable[[], object]] | None = None


_OWN: Final = _OwnBurst()


def after_burst(function: Callable[[], object]) -> None:
    """Call a function, which must neither block nor fail, after the burst of the calling thread, or at once."""
    calls = _OWN.calls
    if calls is None:
        function()
    else:
        calls.append(function)


def begin_bursts(calls: deque[Callable[[], object]] | None = None) -> None:
    """Let the calling thread have bursts from now on. It must call `end_burst` before it waits for anything.

    Args:
        calls: gets what is to be called after a burst, if another thread may have to call that.
    """
    if _OWN.calls is None:
        _OWN.calls = deque() if calls is None else calls


def end_burst() -> None:
    """Call what waits for the end of the burst of the calling thread."""
    calls = _OWN.calls
    while calls:
        calls.popleft()()


def leave_bursts() -> None:
    """Call what waits for the end of the burst, and have no more bursts in the calling thread."""
    end_burst()
    _OWN.calls = None


class Submitter:
    """A thread that gives tasks to crews and then waits, or does not, for a future that they complete.

    A thread that is woken for the first of many tasks takes turns with the one that makes the others. So a crew leaves
    it to a submitter that waited the last time to wake it when it waits again. Only a hint: the watcher of the crew
    finds tasks that no thread was woken for, some milliseconds later.

    Attributes:
        waits: whether it waited the last time, soon after it had submitted something.
        submitted_at: when it last submitted something, by the monotonic clock.
        owed: wakes the crews that it gave tasks since, or does what else was left to it.
    """

    __slots__ = ("owed", "submitted_at", "waits")

    def __init__(self) -> None:
        self.waits = False
        self.submitted_at = inf
        self.owed: list[Callable[[], None]] = []

    def about_to_wait(self) -> None:
        """Do what was left to this thread, which is the calling one, and remember that it waits."""
        self.waits = monotonic() - self.submitted_at < SOON_SECONDS
        if self.owed:
            self.wake_owed()

    def wake_owed(self) -> None:
        """Do what was left to this thread."""
        while self.owed:
            self.owed.pop()()


class Submitters(local):
    """The `Submitter` of each thread, as `own`."""

    def __init__(self) -> None:
        self.own = Submitter()


SUBMITTERS: Final = Submitters()
