"""The progress of long work, as reported by functions that take a `progress` argument."""

from __future__ import annotations

from typing import Self


class Phase(str):
    """The current phase of long work, in a few words: a string that also holds how much of it is done.

    Attributes:
        done: how much is done, in any unit.
        total: how much there is to do, in the same unit; None if unknown.
    """

    __slots__ = ("done", "total")

    done: float
    total: float | None

    def __new__(cls, text: str, done: float = 0, total: float | None = None) -> Self:
        """Make a phase."""
        made = super().__new__(cls, text)
        made.done, made.total = done, total
        return made
