"""The messages waiting in one place, in the order in which they are to be delivered.

Pure data: no lock, no thread, no clock, no destination names. `core.py` holds its lock around every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from brokers.message import DEFAULT_PRIORITY, Message

HIGHEST_PRIORITY: Final = 9


OVERHEAD: Final = 512
"""Octets that a message takes besides what it is made of, where all of them are counted."""


@dataclass(slots=True, eq=False)
class Total:
    """What all stores of a broker hold together, in octets."""

    octets: int = 0


@dataclass(slots=True, eq=False)
class Share:
    """What one message has of a total, once, however many stores it is in."""

    total: Total = field(default_factory=Total)
    octets: int = 0
    stores: int = 0

    def enter(self) -> None:
        """Note that one more store has the message."""
        self.stores += 1
        if self.stores == 1:
            self.total.octets += self.octets

    def leave(self) -> None:
        """Note that one store fewer has it."""
        self.stores -= 1
        if self.stores == 0:
            self.total.octets -= self.octets


@dataclass(slots=True, eq=False)
class Entry:
    """One message in one store: `sequence` is its place in the order of arrival, `deliveries` counts hand-overs.

    `octets` is what it counts for here, `share` in all stores.
    """

    message: Message
    sequence: int
    octets: int = 0
    deliveries: int = 0
    share: Share = field(default_factory=Share)


class Store:
    """Entries by priority (9 first), then by arrival; one that comes back takes its old place again.

    An entry is *waiting* from `put` to `take`, *taken* until `settle` or `give_back`. Waiting and taken entries
    together count towards the limits, so what was taken can always come back.

    Args:
        max_messages: how many there may be.
        max_octets: how many octets they may have together.
    """

    def __init__(self, max_messages: int, max_octets: int) -> None:
        self._max_messages: Final = max_messages
        self._max_octets: Final = max_octets
        self._heap: list[tuple[int, int, Entry]] = []
        self._taken = 0
        self._octets = 0
        self._earliest_expiration: int | None = None
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._heap) + self._taken

    @property
    def waiting(self) -> int:
        """How many entries could be taken, expired ones included."""
        return len(self._heap)

    def excess(self, count: int, octets: int) -> str | None:
        """Say which limit `count` more entries of `octets` together would go beyond; None for none."""
        for name, limit, held, more in (
            ("max_messages", self._max_messages, len(self), count),
            ("max_octets", self._max_octets, self._octets, octets),
        ):
            if held + more > limit:
                return f"{name} is {limit}, there are {held} and {more} more were to come"
        return None

    def put(self, entry: Entry) -> None:
        """Add an entry that is new here."""
        self._octets += entry.octets
        entry.share.enter()
        self._push(entry)

    def _push(self, entry: Entry) -> None:
        expiration = entry.message.expiration
        if expiration and (self._earliest_expiration is None or expiration < self._earliest_expiration):
            self._earliest_expiration = expiration
        heappush(self._heap, _ranked(entry))

    def take(self, now: int) -> tuple[Entry | None, list[Entry]]:
        """Take the next entry that has not expired at `now`, or None; and the expired ones found before it.

        The expired ones have left the store.
        """
        expired: list[Entry] = []
        while self._heap:
            entry = heappop(self._heap)[2]
            if not is_expired(entry.message, now):
                self._taken += 1
                entry.deliveries += 1
                return entry, expired
            expired.append(entry)
            self._forget(entry)
        return None, expired

    def give_back(self, entry: Entry) -> None:
        """Put a taken entry back at its old place, unless there is none any more."""
        if self._has_ended:
            self.settle(entry)
            return
        self._taken -= 1
        self._push(entry)

    def settle(self, entry: Entry) -> None:
        """Forget a taken entry: it was accepted, or went elsewhere."""
        self._taken -= 1
        self._forget(entry)

    def end(self) -> None:
        """Forget all that waits; what is taken is forgotten once it is settled, or given back."""
        self._has_ended = True
        for entry in self:
            self._forget(entry)
        self._heap.clear()

    def expire(self, now: int) -> list[Entry]:
        """Remove and return every waiting entry that has expired; costs nothing until the first of them has."""
        if self._earliest_expiration is None or now < self._earliest_expiration:
            return []
        expired = [entry for entry in self if is_expired(entry.message, now)]
        self._heap = [_ranked(entry) for entry in self if not is_expired(entry.message, now)]
        heapify(self._heap)
        for entry in expired:
            self._forget(entry)
        self._earliest_expiration = min((e.message.expiration for e in self if e.message.expiration), default=None)
        return expired

    def _forget(self, entry: Entry) -> None:
        self._octets -= entry.octets
        entry.share.leave()

    def __iter__(self) -> Iterator[Entry]:
        return (entry for _, _, entry in self._heap)


def is_expired(message: Message, now: int) -> bool:
    """Say whether the message may no longer be delivered at `now`; an expiration of 0 or None means never."""
    return 0 < (message.expiration or 0) <= now


def _ranked(entry: Entry) -> tuple[int, int, Entry]:
    """Make the heap's item: the smallest comes first, and the sequence makes ties impossible."""
    priority = DEFAULT_PRIORITY if entry.message.priority is None else entry.message.priority
    return HIGHEST_PRIORITY - min(max(priority, 0), HIGHEST_PRIORITY), entry.sequence, entry
