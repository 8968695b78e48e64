"""How far long work is, as the functions tell that take a `progress`."""

from __future__ import annotations

from typing import Self


class Phase(str):
    """What is under way, in a few words: a text that says besides how much of it is done.

    Attributes:
        done: how much, by any measure.
        total: how much there is to do by the same measure; None where nobody knows.
    """

    __slots__ = ("done", "total")

    done: float
    total: float | None

    def __new__(cls, text: str, done: float = 0, total: float | None = None) -> Self:
        """Make one."""
        made = super().__new__(cls, text)
        made.done, made.total = done, total
        return made
