"""The time of a store, without trusting the machine's clock: signs of life of other processes, and age of entries.

The clock of the machine may step by hours or years, in both directions. So dead processes are found by counting: a
process is dead if it gave no sign of life while this one gave several. A process does not count as dead because nobody
could write for a while, or because all processes were stopped together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

BEATS_PER_LEASE: Final = 4
"""Signs of life within a lease."""

MAX_LEAP_SHARE: Final = 0.5
"""Most of the time that entries are kept that may pass at once while no process has the file open, as a share."""


class Liveness:
    """Tells which processes that share a file are alive, by their signs of life. For one thread at a time.

    Attributes:
        signs: the number of signs that this process gave.
    """

    def __init__(self) -> None:
        self.signs = 0
        self._seen: dict[str, tuple[float, int]] = {}  # by owner: its last sign, and the number of our signs then

    def look(self, found: Mapping[str, float]) -> None:
        """Note the last sign of each owner, after this process gave one more."""
        self.signs += 1
        self._seen = {owner: self._noted(owner, sign) for owner, sign in found.items()}

    def is_alive(self, owner: str, sign: float | None) -> bool:
        """Say whether another owner is alive, by its last sign; `sign` is None if it left."""
        if sign is None:
            return False
        self._seen[owner] = self._noted(owner, sign)
        return self.signs - self._seen[owner][1] < BEATS_PER_LEASE

    def dead(self) -> list[tuple[str, float]]:
        """List the dead owners, with the last sign of each."""
        return [(owner, sign) for owner, (sign, at) in self._seen.items() if self.signs - at >= BEATS_PER_LEASE]

    def _noted(self, owner: str, sign: float) -> tuple[float, int]:
        before = self._seen.get(owner)
        return before if before is not None and before[0] == sign else (sign, self.signs)


class FileTime:
    """The time of a file, in seconds; it never steps, even if the clock of the machine does.

    It continues from the newest entry, so that it is about the same for all processes that share the file. The clock of
    the machine is only used when the file is opened, to measure the time since the last opening, up to half the time
    that entries are kept: a clock that is wrong by years counts once, and entries that are not old do not vanish.

    Args:
        clock: returns seconds since 1970; may step.
        steady: returns seconds of a clock without steps.
        keep: seconds that entries are kept.
        newest: time of the newest entry; 0 if there is none.
        opened: the file's time at its last opening, and the latest reading of `clock` at any opening until then; None
            if the file was not opened before.

    Attributes:
        clock: the latest reading of `clock` at any opening, to be stored for the next one.
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
        """Return the file's time."""
        return self._steady() + self._offset

    def catch_up(self, newest: float) -> None:
        """Advance to the time of the newest entry, which another process may have made."""
        self._offset = max(self._offset, newest - self._steady())
