"""Room for clients that are waited for, in all and for each address, and who goes when there is none left. No I/O.

A connection, an unfinished request, an unread answer: whatever is held for a client is held for so long only as the
client does its part. Where more is held than there is room for, the one that has kept us waiting longest goes; what is
being worked on never does. So clients that say or take nothing may come in any number, and the others still get in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Final

from brokers.listeners.guesses import LOGIN_GRACE_SECONDS, place_of

log = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS: Final = 10.0
"""Seconds between two log lines about those that had to go."""


@dataclass(eq=False, slots=True)
class ClientShare:
    """What is held for a client.

    Attributes:
        place: of its address, or whose it is by now.
        size: how much of the room it takes.
        end: what ends it, and returns at once.
        since: when the client began to keep us waiting, by the clock of the room; None while it does not.
        is_held: it is in the room.
        has_to_go: it was ended to make room.
    """

    place: str
    size: int
    end: Callable[[], None]
    since: float | None = None
    is_held: bool = True
    has_to_go: bool = False


@dataclass(slots=True)
class _Place:
    """What is held for one address; those that keep us waiting in order, the longest first."""

    count: int = 0
    size: int = 0
    waiting: dict[ClientShare, None] = field(default_factory=dict)


class Room:
    """What is held for clients. Thread-safe.

    One address (of IPv6: one network of 64 bits) has its part. Where it has more, the one of its own that has kept us
    waiting longest goes, unless that is less than `LOGIN_GRACE_SECONDS` seconds; where the whole is full, the one of
    the address that has most, however short the time. What is alone in the room stays.

    Args:
        most: in all.
        what: is held, for the log.
        ticks: seconds of a clock that never jumps.
        most_each: for one address; half of the room unless given.
    """

    def __init__(
        self, most: int, what: str, ticks: Callable[[], float] = monotonic, *, most_each: int | None = None
    ) -> None:
        self.most = most
        self.most_each = max(1, most // 2) if most_each is None else most_each
        self._what = what
        self._ticks = ticks
        self._lock = Lock()
        self._places: dict[str, _Place] = {}
        self._total = 0
        self._gone, self._told_at = 0, -LOG_INTERVAL_SECONDS

    @property
    def count(self) -> int:
        """How many are held."""
        with self._lock:
            return self._count

    @property
    def _count(self) -> int:
        return sum(each.count for each in self._places.values())

    def enter(self, address: str, size: int, end: Callable[[], None]) -> ClientShare:
        """Hold something for a client at an address, which keeps us waiting from now on; others may have to go."""
        held = ClientShare(place_of(address), 0, end)
        with self._lock:
            self._places.setdefault(held.place, _Place()).count += 1
        self.waits(held)
        self.grow(held, size)
        return held

    def grow(self, held: ClientShare, size: int) -> None:
        """Hold more of the same; others may have to go, and so may this one."""
        with self._lock:
            if not held.is_held:
                return
            held.size += size
            self._places[held.place].size += size
            self._total += size
            going = self._making_room(held.place)
        for each in going:
            each.end()

    def waits(self, held: ClientShare) -> None:
        """From now on its client keeps us waiting, or does so anew."""
        with self._lock:
            if held.is_held:
                waiting = self._places[held.place].waiting
                waiting.pop(held, None)
                waiting[held] = None
                held.since = self._ticks()

    def works(self, held: ClientShare) -> None:
        """From now on its client does not keep us waiting."""
        with self._lock:
            if held.is_held:
                self._places[held.place].waiting.pop(held, None)
            held.since = None

    def settle(self, held: ClientShare, owner: str, most: int) -> bool:
        """Hold it for who has logged in, for which it never has to go; False where that one has so many, or it is gone.

        Owners are no addresses: what strangers do at one takes nothing from those who have logged in from there.
        """
        with self._lock:
            own = self._places.get(f"login:{owner}", _Place())
            if not held.is_held or own.count >= most:
                return False
            self._drop(held)
            held.place, held.since, held.is_held = f"login:{owner}", None, True
            own.count, own.size = own.count + 1, own.size + held.size
            self._places[held.place] = own
            self._total += held.size
            return True

    def shed(self) -> None:
        """End the one that would have to go if it were full, as where there are no more files to be had."""
        with self._lock:
            found = self._longest()
            if found is not None:
                self._let_go(found)
                self._tell(found.place, 1)
        if found is not None:
            found.end()

    def leave(self, held: ClientShare) -> None:
        """Hold it no longer. Idempotent."""
        with self._lock:
            self._drop(held)

    def _drop(self, held: ClientShare) -> None:
        if not held.is_held:
            return
        held.is_held = False
        own = self._places[held.place]
        own.waiting.pop(held, None)
        own.count -= 1
        own.size -= held.size
        self._total -= held.size
        if not own.count:
            del self._places[held.place]

    def _making_room(self, place: str) -> list[ClientShare]:
        going = list[ClientShare]()
        while (found := self._first_to_go(place)) is not None:
            self._let_go(found)
            going.append(found)
        if going:
            self._tell(place, len(going))
        return going

    def _let_go(self, held: ClientShare) -> None:
        held.has_to_go = True
        self._drop(held)

    def _longest(self) -> ClientShare | None:
        waiting = [(-each.size, next(iter(each.waiting))) for each in self._places.values() if each.waiting]
        return min(waiting, key=lambda each: (each[0], each[1].since))[1] if waiting else None

    def _first_to_go(self, place: str) -> ClientShare | None:
        """Find who has to go, if somebody has to."""
        if self._total > self.most:
            return self._longest() if self._count > 1 else None
        own = self._places.get(place)
        if own is None or own.size <= self.most_each or own.count == 1 or not own.waiting:
            return None
        first = next(iter(own.waiting))
        return first if first.since is not None and first.since <= self._ticks() - LOGIN_GRACE_SECONDS else None

    def _tell(self, place: str, count: int) -> None:
        self._gone += count
        now = self._ticks()
        if now - self._told_at < LOG_INTERVAL_SECONDS:
            return
        said = "there is no room for more %s: %d had to go, the last for one from %s"
        log.warning(said, self._what, self._gone, place or "somewhere")
        self._gone, self._told_at = 0, now
