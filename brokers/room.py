"""Room for clients that are waited for, in all and for each address, and who goes when there is none left. No I/O.

A connection, an unfinished request, an unread answer: whatever is held for a client is held for so long only as the
client does its part. Where more is held than there is room for, the one that has kept us waiting longest goes; what is
being worked on never does. So clients that say or take nothing may come in any number, and the others still get in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final

from brokers.guesses import GRACE, place_of

log = logging.getLogger(__name__)

TELL: Final = 10.0
"""Seconds between two log lines about those that had to go."""


@dataclass(eq=False, slots=True)
class Held:
    """What is held for a client.

    Attributes:
        place: of its address.
        size: how much of the room it takes.
        end: what ends it, and returns at once.
        since: when the client began to keep us waiting, by the clock of the room; None while it does not.
        has_to_go: it was ended to make room.
    """

    place: str
    size: int
    end: Callable[[], None]
    since: float | None
    has_to_go: bool = False


class Room:
    """What is held for clients. Thread-safe.

    One address (of IPv6: one network of 64 bits) has half of the room. Where it has more, the one of its own that has
    kept us waiting longest goes, unless that is less than `GRACE` seconds; where the whole is full, the one of the
    address that has most, however short the time. What is alone in the room stays.

    Args:
        most: in all.
        what: is held, for the log.
        ticks: seconds of a clock that never jumps.
    """

    def __init__(self, most: int, what: str, ticks: Callable[[], float] = monotonic) -> None:
        self.most = most
        self.most_each = max(1, most // 2)
        self._what = what
        self._ticks = ticks
        self._lock = Lock()
        self._held: dict[str, dict[Held, None]] = {}
        self._sizes: dict[str, int] = {}
        self._total = 0
        self._gone, self._told_at = 0, -TELL

    @property
    def count(self) -> int:
        """How many are held."""
        with self._lock:
            return sum(len(each) for each in self._held.values())

    def enter(self, address: str, size: int, end: Callable[[], None]) -> Held:
        """Hold something for a client at an address, which keeps us waiting from now on; others may have to go."""
        held = Held(place_of(address), 0, end, self._ticks())
        with self._lock:
            self._held.setdefault(held.place, {})[held] = None
            self._sizes.setdefault(held.place, 0)
        self.grow(held, size)
        return held

    def grow(self, held: Held, size: int) -> None:
        """Hold more of the same; others may have to go, and so may this one."""
        with self._lock:
            if held not in self._held.get(held.place, ()):
                return
            held.size += size
            self._sizes[held.place] += size
            self._total += size
            going = self._making_room(held.place)
        for each in going:
            each.end()

    def waits(self, held: Held) -> None:
        """From now on its client keeps us waiting, or does so anew."""
        held.since = self._ticks()

    def leave(self, held: Held) -> None:
        """Hold it no longer. Idempotent."""
        with self._lock:
            self._drop(held)

    def _drop(self, held: Held) -> None:
        own = self._held.get(held.place, {})
        if held not in own:
            return
        del own[held]
        self._sizes[held.place] -= held.size
        self._total -= held.size
        if not own:
            del self._held[held.place], self._sizes[held.place]

    def _making_room(self, place: str) -> list[Held]:
        going = list[Held]()
        while (found := self._first_to_go(place)) is not None:
            found.has_to_go = True
            self._drop(found)
            going.append(found)
        if going:
            self._tell(place, len(going))
        return going

    def _first_to_go(self, place: str) -> Held | None:
        """Find who has to go, if somebody has to."""
        is_full = self._total > self.most
        if not is_full and self._sizes.get(place, 0) <= self.most_each:
            return None
        places = self._held.values() if is_full else [self._held[place]]
        held = [each for those in places for each in those]
        late = self._ticks() - (0.0 if is_full else GRACE)
        waiting = [
            (-self._sizes[each.place], each.since, each)
            for each in held
            if each.since is not None and each.since <= late
        ]
        return min(waiting, key=lambda each: each[:2])[2] if waiting and len(held) > 1 else None

    def _tell(self, place: str, count: int) -> None:
        self._gone += count
        now = self._ticks()
        if now - self._told_at < TELL:
            return
        said = "there is no room for more %s: %d had to go, the last for one from %s"
        log.warning(said, self._what, self._gone, place or "somewhere")
        self._gone, self._told_at = 0, now
