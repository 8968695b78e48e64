"""Waking other threads late: once the thread that wakes them has done all that it has at hand.

Only one thread of a program runs Python at a time. A thread that is woken by another one which goes on working can only
wait for that one again, so each result costs two more changes of threads. Therefore a thread that reads a socket holds
wakings until it is about to wait for the next octets.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Final, TypeAlias

Waking: TypeAlias = Callable[[], object]
"""Wakes a thread; it neither blocks nor raises."""

MAX_HELD_WAKINGS: Final = 16
"""Number of wakings that a thread holds at most, as it may have very much at hand."""


class _Held(local):
    """The wakings that this thread holds, in order; None if it wakes others at once."""

    wakings: list[Waking] | None = None


_HELD: Final = _Held()


def wake(waking: Waking) -> None:
    """Wake a thread, now or when this thread is about to wait."""
    held = _HELD.wakings
    if held is None:
        waking()
        return
    held.append(waking)
    if len(held) >= MAX_HELD_WAKINGS:
        wake_held()


def hold_wakings() -> None:
    """Hold the wakings of this thread from now on. It must call `wake_held` before it waits for anything."""
    if _HELD.wakings is None:
        _HELD.wakings = []


def wake_held() -> None:
    """Wake the threads whose wakings this thread holds."""
    held = _HELD.wakings
    if held:
        for waking in held:
            waking()
        held.clear()


def hold_no_wakings() -> None:
    """Wake the threads whose wakings this thread holds, and others at once from now on."""
    wake_held()
    _HELD.wakings = None
