"""What a row of the table is: where its cases come from, what carries them out, and what each may cost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

KIB = 1 << 10
MIB = 1 << 20


class Case(NamedTuple):
    """Something that a hostile peer sends.

    Attributes:
        octets: of it, by which time and memory are bounded.
        carry_out: sends it, asserts what must hold, and says what became of it.
    """

    octets: int
    carry_out: Callable[[], str]


class Target(Protocol):
    """What the cases of a row are sent to, one after the other."""

    def make(self, chance: Random) -> Case:
        """Make a case of nothing but `chance`."""

    def look(self) -> None:
        """See between cases that others are served as before."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """An entry point under attack.

    Attributes:
        name: of it.
        holds: what must hold, for who reads a failure.
        opens: makes the target of all cases of a run.
        cases: how many `make fuzz` carries out.
        gate: how many the gate does.
        step: cases that one seed stands for.
        seconds: of processor time that a case may take for each 64 KiB begun.
        ratio: octets of memory that a case may take for each of its own.
        slack: octets of memory that it may take beyond.
        growth: octets by which what the process holds may grow in a run, from its hundredth case on.
        thresholds: of the garbage collector; None as they are.
        look_every: cases between two looks at the target.
        expected: what of errors in the log is right, as a pattern; None for nothing.
    """

    name: str
    holds: str
    opens: Callable[[], AbstractContextManager[Target]]
    cases: int = 20_000
    gate: int
    step: int = 1
    seconds: float = 1.0
    ratio: float = 20.0
    slack: int = 8 * MIB
    growth: int = 32 * MIB
    thresholds: tuple[int, int, int] | None = None
    look_every: int = 50
    expected: str | None = None

    def seconds_of(self, octets: int) -> float:
        """Return the processor time that a case of a size may take."""
        return self.seconds * (1 + octets // (64 * KIB))

    def memory_of(self, octets: int) -> float:
        """Return the octets of memory that a case of a size may take."""
        return self.slack + self.ratio * octets

    def command(self, seed: int, cases: int | None = None) -> str:
        """Return what carries cases out again."""
        return f'make fuzz FUZZ="--only {self.name} --seed {seed} --cases {cases or self.step}"'
