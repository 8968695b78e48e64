"""What a store goes by, instead of a clock that somebody may set: signs of life of others, and the age of its entries.

No process sees the clock of another, and the clock of the machine may step by hours or years, in both directions. So
who has died is told by counting: a process is dead that gave no sign of life while this one gave several. Nor does a
process count as dead because nobody could write for a while, or because all of them were stopped together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

BEATS_PER_LEASE: Final = 4
"""Signs of life within a lease."""

MAX_LEAP_SHARE: Final = 0.5
"""Of the time that entries are kept, how much may have gone by at most while nobody had the file open."""


class Liveness:
    """Whether the others that share a file are alive, by the signs that they give. For one thread at a time.

    Attributes:
        signs: how many this process gave.
    """

    def __init__(self) -> None:
        self.signs = 0
        self._seen: dict[str, tuple[float, int]] = {}  # by owner its last sign, and how many we had given then

    def look(self, found: Mapping[str, float]) -> None:
        """Note the last sign of each, once this process gave one more."""
        self.signs += 1
        self._seen = {owner: self._noted(owner, sign) for owner, sign in found.items()}

    def is_alive(self, owner: str, sign: float | None) -> bool:
        """Say whether another is alive whose last sign is this; None if it left."""
        if sign is None:
            return False
        self._seen[owner] = self._noted(owner, sign)
        return self.signs - self._seen[owner][1] < BEATS_PER_LEASE

    def dead(self) -> list[tuple[str, float]]:
        """List who is dead, with the last sign of each."""
        return [(owner, sign) for owner, (sign, at) in self._seen.items() if self.signs - at >= BEATS_PER_LEASE]

    def _noted(self, owner: str, sign: float) -> tuple[float, int]:
        before = self._seen.get(owner)
        return before if before is not None and before[0] == sign else (sign, self.signs)


class FileTime:
    """The time of a file, in seconds: it never steps, whatever becomes of the clock of the machine.

    It goes on from the newest entry, so that it is about the same for all who share the file. The clock of the machine
    counts when the file is opened, for what went by since it was opened before, and up to half the time that entries
    are kept: a clock that is wrong by years counts once, and no entry vanishes that is not old.

    Args:
        clock: seconds since 1970, which may step.
        steady: seconds that go by, without steps.
        keep: seconds that entries are kept.
        newest: when the newest entry was made; 0 if there is none.
        opened: this time when the file was opened before, and the latest that the clock ever said then; None if that is
            not known.

    Attributes:
        clock: the latest that the clock ever said when the file was opened, for the next time.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        steady: Callable[[], float],
        *,
        keep: float,
        newest: float,
        opened: tuple[float, float] | None = None,
    ) -> None:
        self._steady = steady
        now = clock()
        self.clock = now if opened is None else max(now, opened[1])
        then, said = opened or (newest, newest)
        latest = max(newest, then)
        self._offset = (
            min(max(latest, then + now - said), latest + keep * MAX_LEAP_SHARE) if latest else now
        ) - steady()

    def __call__(self) -> float:
        """Return the time."""
        return self._steady() + self._offset

    def catch_up(self, newest: float) -> None:
        """Be no earlier than the newest entry, which another may have made."""
        self._offset = max(self._offset, newest - self._steady())
