"""The state of following logs after a step, over all steps so far."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from typing import Final

from soapjms.protocol.record import format_time, parse_time
from soapjms.replay.inputs import RejectedRow
from soapjms.replay.summary import LATE_SHOWN, REJECTS_SHOWN, RunTally
from soapjms.replay.terms import LateRecord, place

EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowResults:
    """The state after a step, over all steps so far.

    Attributes:
        number: number of the step and its plan; -1 before the first.
        newest: the time of the newest record so far.
        watermark: records with an earlier time are no longer accepted.
        late: how many records came with an earlier time.
        held: how many records are held.
        tally: counts of everything that is judged.
        rejects: the first records that could not be read.
        first_late: the first records that came with an earlier time.
    """

    number: int = -1
    newest: datetime | None = None
    watermark: datetime | None = None
    late: int = 0
    held: int = 0
    tally: RunTally = field(default_factory=RunTally)
    rejects: tuple[RejectedRow, ...] = ()
    first_late: tuple[LateRecord, ...] = ()

    def after(
        self, number: int, newest: datetime | None, unread: datetime | None, disorder: timedelta
    ) -> FollowResults:
        """Return the state after another step, whose counts are still to be added; time never runs backwards.

        Args:
            number: number of the step.
            newest: the time of the newest record in it, or None.
            unread: the time of the earliest record that exists but was not read, or None.
            disorder: how much later than its time a record may come.
        """
        seen = max(filter(None, (self.newest, newest)), default=None)
        marks = [self.watermark] if self.watermark else []
        if seen is not None:
            marks.append(earlier(seen if unread is None else min(seen, unread), disorder))
        return replace(self, number=number, newest=seen, watermark=max(marks, default=None))

    def to_json(self) -> str:
        """Write the state as JSON."""
        return json.dumps(
            {
                "number": self.number,
                "newest": None if self.newest is None else format_time(self.newest),
                "watermark": None if self.watermark is None else format_time(self.watermark),
                "late": self.late,
                "held": self.held,
                "tally": self.tally.to_json(),
                "rejects": self.rejects,
                "first_late": self.first_late,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> FollowResults:
        """Read what `to_json` wrote."""
        members = json.loads(text)
        times = {name: parse_time(text) if (text := members[name]) else None for name in ("newest", "watermark")}
        tally, rejects = RunTally.from_json(members["tally"]), tuple(RejectedRow(*each) for each in members["rejects"])
        late = tuple(LateRecord(*each) for each in members["first_late"])
        return cls(**{**members, **times, "tally": tally, "rejects": rejects, "first_late": late})


def earlier(time: datetime, span: timedelta) -> datetime:
    """Return the time that is earlier by `span`, but no earlier than `EARLIEST`."""
    return max(time - EARLIEST, span) - span + EARLIEST


def first_rejects(*parts: tuple[RejectedRow, ...]) -> tuple[RejectedRow, ...]:
    """Return the first rejected records of several parts."""
    return tuple(nsmallest(REJECTS_SHOWN, (each for part in parts for each in part), key=place))


def first_late(*parts: tuple[LateRecord, ...]) -> tuple[LateRecord, ...]:
    """Return the first late records of several parts."""
    return tuple(nsmallest(LATE_SHOWN, (each for part in parts for each in part)))
