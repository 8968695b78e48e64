"""When the behaviour of a party changed: it was first seen, it began or ceased to break rules, it was last seen.

A party with a stack that was not seen at its destination before is a new party, so a new stack shows as one, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from soapjms.replay.report.sentences import WORDS, party_name

MAX_MILESTONES: Final = 12
MIN_MESSAGES: Final = 5
"""Number of messages of a party from which on its changes are told."""
LATEST_BEGIN: Final = 0.02
"""Share of the time of the run within which a party that is seen, or breaks rules, was there from the beginning."""
EARLIEST_END: Final = 0.05
"""Share of the time of the run within which a party that was seen, or broke rules, is there to the end."""


class Milestone(NamedTuple):
    """A change in the behaviour of a party."""

    time: datetime
    text: str


def milestones(members: Mapping[str, Any]) -> list[Milestone]:
    """Return the changes of the parties that break most, in order of time.

    Args:
        members: the members of summary.json.
    """
    first, last = (_time(members["time"][each]) for each in ("first", "last"))
    if first is None or last is None or first == last:
        return []
    found: list[Milestone] = []
    for party in members["parties"]:
        if party["messages"] >= MIN_MESSAGES and party["destination"] is not None:
            found += _of_party(party, first, last)
        if len(found) >= MAX_MILESTONES:
            break
    return sorted(found[:MAX_MILESTONES])


def has_ceased(party: Mapping[str, Any], members: Mapping[str, Any]) -> bool:
    """Say whether a party broke rules, and went on without for a while until the end of the run."""
    first, last, broke = _time(members["time"]["first"]), _time(members["time"]["last"]), _time(party["lastFailed"])
    seen = _time(party["last"])
    if first is None or last is None or broke is None or seen is None:
        return False
    return party["messages"] >= MIN_MESSAGES and broke < seen - EARLIEST_END * (last - first)


def _of_party(party: Mapping[str, Any], first: datetime, last: datetime) -> Iterator[Milestone]:
    name, is_many = party_name(party), WORDS[party["node"]].is_many
    seen, broke = _ends(party, "first", "last"), _ends(party, "firstFailed", "lastFailed")
    begin, end = LATEST_BEGIN * (last - first), EARLIEST_END * (last - first)
    if seen is not None:
        yield from _ends_of(seen, (first + begin, last - end), f"{name} first seen", f"{name} last seen")
    if seen is not None and broke is not None:
        began, ceased = ("begin", "break no rule") if is_many else ("begins", "breaks no rule")
        yield from _ends_of(
            broke, (seen[0] + begin, seen[1] - end), f"{name} {began} to break rules", f"{name} {ceased} after this"
        )


def _ends_of(
    ends: tuple[datetime, datetime], usual: tuple[datetime, datetime], began: str, ceased: str
) -> Iterator[Milestone]:
    if ends[0] > usual[0]:
        yield Milestone(ends[0], began)
    if ends[1] < usual[1]:
        yield Milestone(ends[1], ceased)


def _ends(party: Mapping[str, Any], first: str, last: str) -> tuple[datetime, datetime] | None:
    ends = _time(party[first]), _time(party[last])
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
