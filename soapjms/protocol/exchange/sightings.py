"""The messages of one stretch of time, each merged from its copies as they come in.

The look-ups keep what many messages share, such as a correlation id that never changes, from taking quadratic time.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Final, TypeAlias

from soapjms.protocol.exchange.copies import Mark, copy_mark, merge
from soapjms.protocol.exchange.model import exchange_id
from soapjms.protocol.record import Direction, Record

Kin: TypeAlias = tuple[Mark, Direction | None, bool]
"""What copies share, as a look-up: their mark, the direction and whether there is a message id."""
DIRECTIONS: Final = (None, *Direction)


@dataclass(slots=True, eq=False)
class Sighting:
    """One message under construction.

    Attributes:
        record: merged from the copies seen so far.
        number: counts the messages of a stretch.
        records: how many copies there are.
        times: when it was seen: the first time, and again wherever a copy came more than a window later.
        partner: its request or response.
        is_answer: True where it is the response of `partner`.
        misdirected: see `Exchange`.
    """

    record: Record
    number: int
    records: int = 1
    times: list[datetime] = field(default_factory=list)
    partner: Sighting | None = None
    is_answer: bool = False
    misdirected: bool = False
    mark: Mark | None = None
    kin: Kin | None = None

    @property
    def message_id(self) -> str | None:
        """The message id, None where no copy knows it."""
        return self.record.message.message_id or None

    @property
    def rank(self) -> tuple[str, int]:
        """What decides between messages that are equally near."""
        return exchange_id(self.record), self.number


class Sightings:
    """The messages of one stretch, in the order in which they were first seen.

    Copies are found by message id, however far apart they are; where one lacks it by direction, correlation id and
    body, the latest within the window.
    """

    def __init__(self, window: timedelta) -> None:
        self.messages: list[Sighting] = []
        self._window = window
        self._named: dict[str, Sighting] = {}
        self._kin: dict[Kin, list[tuple[int, Sighting]]] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._named

    def add(self, record: Record) -> None:
        """Merge a record, in order of time, into the message that it is a copy of, or begin a new one."""
        mark = copy_mark(record)
        found = self._named.get(record.message.message_id or "") or self._kin_of(record, mark)
        if found is None:
            self.begin(Sighting(record, 0, times=[record.time], mark=mark))
            return
        found.record = merge(found.record, record)
        found.records += 1
        found.mark = found.mark or mark
        if record.time - found.times[-1] > self._window:
            found.times.append(record.time)
        self._index(found)

    def begin(self, sighting: Sighting) -> None:
        """Take in a message that this stretch has not seen."""
        sighting.number = len(self.messages)
        self.messages.append(sighting)
        self._index(sighting)

    def _kin_of(self, record: Record, mark: Mark | None) -> Sighting | None:
        """Find the latest message of which a record may be a copy, one of them or both lacking the message id."""
        if mark is None:
            return None
        directions = DIRECTIONS if record.direction is None else (None, record.direction)
        named = (False,) if record.message.message_id else (False, True)
        found = (self._latest((mark, direction, each), record.time) for direction in directions for each in named)
        return max(filter(None, found), key=lambda each: each.number, default=None)

    def _latest(self, kin: Kin, time: datetime) -> Sighting | None:
        """Find the latest message with these marks; what has others by now, or is out of the window, never returns."""
        known = self._kin.get(kin, [])
        while known:
            sighting = known[0][1]
            if sighting.kin == kin and time - sighting.record.time <= self._window:
                return sighting
            heappop(known)
        return None

    def _index(self, sighting: Sighting) -> None:
        if sighting.message_id is not None:
            self._named[sighting.message_id] = sighting
        if sighting.mark is None:
            return
        kin = sighting.mark, sighting.record.direction, sighting.message_id is not None
        if kin != sighting.kin:
            sighting.kin = kin
            heappush(self._kin.setdefault(kin, []), (-sighting.number, sighting))
