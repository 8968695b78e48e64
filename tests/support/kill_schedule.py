"""What is done to broker, services, callers and the network between them, and when: drawn from a seed."""

from __future__ import annotations

import random
from enum import StrEnum
from itertools import chain, repeat
from typing import Final, NamedTuple

CALLS_EACH: Final = 40
"""Calls between two faults, about."""


class Kind(StrEnum):
    """What can be done."""

    KILL = "SIGKILL"
    PAUSE = "SIGSTOP"
    ROLL = "SIGTERM, one after the other"
    RESET = "connections reset"
    DELAY = "everything delayed"
    SILENCE = "nothing forwarded"
    SILENCE_UP = "nothing forwarded to the broker"
    SILENCE_DOWN = "nothing forwarded from the broker"
    SWALLOW = "nothing forwarded, then connections reset"
    END_UP = "half-closed towards the broker"
    END_DOWN = "half-closed from the broker"


class Fault(NamedTuple):
    """One of them.

    Attributes:
        moment: how many calls have begun before.
        kind: what is done.
        target: `broker`, `services`, or the name of a process.
        seconds: how long, where it takes time.
    """

    moment: int
    kind: Kind
    target: str
    seconds: float

    def __str__(self) -> str:
        return f"after {self.moment} calls {self.target}: {self.kind}, {self.seconds:.1f} s"


DECK: Final = (
    (Kind.KILL, "broker", (0, 1)),
    (Kind.PAUSE, "broker", (1, 6)),
    (Kind.ROLL, "services", (0, 0)),
    (Kind.KILL, "service", (0, 1)),
    (Kind.KILL, "service", (0, 1)),
    (Kind.PAUSE, "service", (0.5, 4)),
    (Kind.PAUSE, "service", (6, 9)),  # beyond the lease of the store: somebody else takes over
    (Kind.RESET, "service", (0, 0)),
    (Kind.DELAY, "service", (2, 5)),
    (Kind.SILENCE, "service", (3, 9)),
    (Kind.SILENCE_UP, "service", (3, 9)),
    (Kind.SILENCE_DOWN, "service", (3, 9)),
    (Kind.SWALLOW, "service", (1, 3)),
    (Kind.END_UP, "service", (0, 0)),
    (Kind.END_DOWN, "service", (0, 0)),
    (Kind.KILL, "caller", (0, 1)),
    (Kind.PAUSE, "caller", (1, 6)),
    (Kind.RESET, "caller", (0, 0)),
    (Kind.DELAY, "caller", (2, 5)),
    (Kind.SILENCE, "caller", (3, 9)),
    (Kind.SILENCE_UP, "caller", (3, 9)),
    (Kind.SILENCE_DOWN, "caller", (3, 9)),
    (Kind.SWALLOW, "caller", (1, 3)),
    (Kind.END_UP, "caller", (0, 0)),
    (Kind.END_DOWN, "caller", (0, 0)),
)
"""Kind, target, and the bounds of its seconds. Each comes once before any comes again."""


def schedule(seed: int, calls: int, *, services: int, callers: int) -> list[Fault]:
    """Draw the faults of a run, in the order of their moments.

    Args:
        seed: of the choices.
        calls: how many there are.
        services: how many there are.
        callers: how many processes of them.
    """
    dice = random.Random(seed)
    numbers = {"service": services, "caller": callers}
    number = max(1, calls // CALLS_EACH)
    moments = sorted(dice.sample(range(calls // 20, calls * 9 // 10), number))
    decks = chain.from_iterable(dice.sample(DECK, len(DECK)) for _ in repeat(None))
    return [
        Fault(
            moment,
            kind,
            f"{target} {dice.randrange(numbers[target])}" if target in numbers else target,
            dice.uniform(*bounds),
        )
        for moment, (kind, target, bounds) in zip(moments, decks, strict=False)
    ]
