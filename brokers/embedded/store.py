"""The messages waiting in one place, in the order in which they are to be delivered.

Pure data: no lock, no thread, no clock, no destination names. `core.py` holds its lock around every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

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


Wants: TypeAlias = Callable[[Message, int], bool]
"""Says whether somebody wants a message, which it would be so many deliveries of."""


@dataclass(slots=True, eq=False)
class Entry:
    """One message in one store: `sequence` is its place in the order of arrival, `deliveries` counts hand-overs.

    `octets` is what it counts for here, `share` in all stores; `is_waiting` while it may be taken.
    """

    message: Message
    sequence: int
    octets: int = 0
    deliveries: int = 0
    share: Share = field(default_factory=Share)
    is_waiting: bool = False


class Line:
    """Entries of a store in the order in which they are to be delivered: all, or those that somebody wants.

    An entry may be in several lines; in those that it was not taken from it stays, passed over, until `prune`.

    Args:
        wants: which are meant; None for all.
        is_for_looking: what is taken from this line stays in the store, and is not shown again when it comes back.
    """

    __slots__ = ("_heap", "_known", "_wants", "is_for_looking")

    def __init__(self, wants: Wants | None = None, *, is_for_looking: bool = False) -> None:
        self._heap: list[tuple[int, int, Entry]] = []
        self._known: set[Entry] = set()
        self._wants = wants
        self.is_for_looking: Final = is_for_looking

    def offer(self, entry: Entry) -> bool:
        """Add a waiting entry, if it is wanted; say whether it is in the line."""
        if entry in self._known:
            return True
        if self._wants is not None and not self._wants(entry.message, entry.deliveries + 1):
            return False
        self._known.add(entry)
        heappush(self._heap, _ranked(entry))
        return True

    def next(self) -> Entry | None:
        """Remove and return the first entry that waits still; None if there is none."""
        while self._heap:
            entry = heappop(self._heap)[2]
            self._known.discard(entry)
            if entry.is_waiting and (
                self._wants is None or not entry.deliveries or self._wants(entry.message, entry.deliveries + 1)
            ):
                return entry
        return None

    def prune(self, waiting: int) -> None:
        """Forget what does not wait any more, once that is most of the line; so many wait in the store."""
        if len(self._heap) > 2 * waiting + SPARE:
            self._heap = [ranked for ranked in self._heap if ranked[2].is_waiting]
            heapify(self._heap)
            self._known = {ranked[2] for ranked in self._heap}

    @property
    def has_some(self) -> bool:
        """Whether there may be something to take."""
        return bool(self._heap)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for _, _, entry in self._heap if entry.is_waiting)


SPARE: Final = 64
"""Entries that a line may keep that do not wait any more, besides as many as do."""


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
        self._line = Line()
        self._others: list[Line] = []
        self._waiting = 0
        self._taken = 0
        self._octets = 0
        self._earliest_expiration: int | None = None
        self._has_ended = False

    def __len__(self) -> int:
        return self._waiting + self._taken

    @property
    def waiting(self) -> int:
        """How many entries could be taken, expired ones included."""
        return self._waiting

    def add(self, line: Line) -> None:
        """Have a line of its own for who wants some entries only, or looks at them."""
        for entry in self:
            line.offer(entry)
        self._others.append(line)

    def drop(self, line: Line) -> None:
        """End `add`."""
        self._others.remove(line)

    def excess(self, count: int, octets: int) -> str | None:
        """Say which limit `count` more entries of `octets` together would go beyond; None for none."""
        for name, limit, held, more in (
            ("max_messages", self._max_messages, len(self), count),
            ("max_octets", self._max_octets, self._octets, octets),
        ):
            if held + more > limit:
                return f"{name} is {limit}, there are {held} and {more} more were to come"
        return None

    def put(self, entry: Entry) -> list[Line]:
        """Add an entry that is new here, and return the lines besides that of all entries that it is in."""
        self._octets += entry.octets
        entry.share.enter()
        self._push(entry)
        return [line for line in self._others if line.offer(entry)]

    def _push(self, entry: Entry) -> None:
        expiration = entry.message.expiration
        if expiration and (self._earliest_expiration is None or expiration < self._earliest_expiration):
            self._earliest_expiration = expiration
        entry.is_waiting = True
        self._waiting += 1
        self._line.offer(entry)

    def take(self, now: int, line: Line | None = None) -> tuple[Entry | None, list[Entry]]:
        """Take the next entry that has not expired at `now`, or None; and the expired ones found before it.

        The expired ones have left the store.

        Args:
            now: milliseconds since 1970.
            line: where from; None for all entries.
        """
        expired: list[Entry] = []
        found: Entry | None = None
        while found is None and (entry := (line or self._line).next()) is not None:
            entry.is_waiting = False
            self._waiting -= 1
            if is_expired(entry.message, now):
                expired.append(entry)
                self._forget(entry)
            else:
                self._taken += 1
                entry.deliveries += 1
                found = entry
        self._prune()
        return found, expired

    @staticmethod
    def look(now: int, line: Line) -> Entry | None:
        """Return the next entry of a line that has not expired, and leave it where it is."""
        while (entry := line.next()) is not None and is_expired(entry.message, now):
            pass
        return entry

    def give_back(self, entry: Entry) -> list[Line]:
        """Put a taken entry back at its old place, unless there is none any more; as `put`."""
        if self._has_ended:
            self.settle(entry)
            return []
        self._taken -= 1
        self._push(entry)
        return [line for line in self._others if not line.is_for_looking and line.offer(entry)]

    def settle(self, entry: Entry) -> None:
        """Forget a taken entry: it was accepted, or went elsewhere."""
        self._taken -= 1
        self._forget(entry)

    def end(self) -> None:
        """Forget all that waits; what is taken is forgotten once it is settled, or given back."""
        self._has_ended = True
        self._drop_all(list(self))

    def expire(self, now: int) -> list[Entry]:
        """Remove and return every waiting entry that has expired; costs nothing until the first of them has."""
        if self._earliest_expiration is None or now < self._earliest_expiration:
            return []
        expired = [entry for entry in self if is_expired(entry.message, now)]
        self._drop_all(expired)
        self._earliest_expiration = min((e.message.expiration for e in self if e.message.expiration), default=None)
        return expired

    def _drop_all(self, entries: list[Entry]) -> None:
        for entry in entries:
            entry.is_waiting = False
            self._forget(entry)
        self._waiting -= len(entries)
        self._prune()

    def _prune(self) -> None:
        self._line.prune(self._waiting)
        for line in self._others:
            line.prune(self._waiting)

    def _forget(self, entry: Entry) -> None:
        self._octets -= entry.octets
        entry.share.leave()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._line)


def is_expired(message: Message, now: int) -> bool:
    """Say whether the message may no longer be delivered at `now`; an expiration of 0 or None means never."""
    return 0 < (message.expiration or 0) <= now


def _ranked(entry: Entry) -> tuple[int, int, Entry]:
    """Make the heap's item: the smallest comes first, and the sequence makes ties impossible."""
    priority = DEFAULT_PRIORITY if entry.message.priority is None else entry.message.priority
    return HIGHEST_PRIORITY - min(max(priority, 0), HIGHEST_PRIORITY), entry.sequence, entry
