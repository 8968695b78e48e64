"""Limits on what is held for slow clients, in total and for each address, and the choice of what to end. No I/O.

A connection, an unfinished request or an unread answer is held only for as long as the client does its part. When the
limit is exceeded, the share whose client has kept the server waiting longest is ended; a share that the server is
working on never is. So any number of silent clients may connect, and others still get in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Final

from brokers import events
from brokers.listeners.guesses import LOGIN_GRACE_SECONDS, place_of

LOG_INTERVAL_SECONDS: Final = 10.0
"""Minimum interval between two log lines about ended shares, in seconds."""


@dataclass(eq=False, slots=True)
class ClientShare:
    """Something held for a client, such as a connection.

    Attributes:
        place: place of the client's address, or its owner after `settle`.
        size: how much of the room it takes.
        end: ends it, and returns at once.
        since: when the client began to keep the server waiting, by the clock of the room; None while it does not.
        is_held: whether it is in the room.
        has_to_go: whether it was ended to make room.
    """

    place: str
    size: int
    end: Callable[[], None]
    since: float | None = None
    is_held: bool = True
    has_to_go: bool = False


@dataclass(slots=True)
class _Place:
    """The shares of one address; `waiting` has those whose clients keep the server waiting, the longest first."""

    count: int = 0
    size: int = 0
    waiting: dict[ClientShare, None] = field(default_factory=dict)


class Room:
    """The shares of all clients. Thread-safe.

    Each address (for IPv6, each network of 64 bits) has a limit. Beyond it, the longest waiting share of that address
    is ended, unless it has waited less than `LOGIN_GRACE_SECONDS`. If the whole room is full, the longest waiting share
    of the largest address is ended, however short its wait. The only share in the room is never ended.

    Args:
        most: maximum size of all shares.
        what: name of the shares, for the log.
        ticks: monotonic clock, in seconds.
        most_each: maximum size of the shares of one address; by default half of `most`.
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
        """Number of shares in the room."""
        with self._lock:
            return self._count

    @property
    def _count(self) -> int:
        return sum(each.count for each in self._places.values())

    def enter(self, address: str, size: int, end: Callable[[], None]) -> ClientShare:
        """Add a share for a client at an address, which keeps the server waiting from now on; may end other shares."""
        held = ClientShare(place_of(address), 0, end)
        with self._lock:
            self._places.setdefault(held.place, _Place()).count += 1
        self.waits(held)
        self.grow(held, size)
        return held

    def grow(self, held: ClientShare, size: int) -> None:
        """Increase the size of a share; this may end other shares, or the share itself."""
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
        """Record that the client keeps the server waiting from now on, even if it did before."""
        with self._lock:
            if held.is_held:
                waiting = self._places[held.place].waiting
                waiting.pop(held, None)
                waiting[held] = None
                held.since = self._ticks()

    def works(self, held: ClientShare) -> None:
        """Record that the client does not keep the server waiting from now on."""
        with self._lock:
            if held.is_held:
                self._places[held.place].waiting.pop(held, None)
            held.since = None

    def settle(self, held: ClientShare, owner: str, most: int) -> bool:
        """Move a share to a logged-in owner, so that it is never ended; False if it was ended, or the owner has `most`.

        Owners are kept apart from addresses: strangers at an address take no room from users who log in from there.
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
        """End the share that would be ended if the room were full, for example when no more files can be opened."""
        with self._lock:
            found = self._longest()
            if found is not None:
                self._let_go(found)
                self._tell(found.place, 1)
        if found is not None:
            found.end()

    def leave(self, held: ClientShare) -> None:
        """Remove a share. Idempotent."""
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
        """Return the share to end next, or None."""
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

        events.CLIENTS_ENDED.log(self._what, self._gone, place or "somewhere")
        self._gone, self._told_at = 0, now
