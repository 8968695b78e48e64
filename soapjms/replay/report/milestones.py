"""When the behaviour of a party changed: it was first seen, it began or ceased to break a rule, it was last seen.

A party with a stack that was not seen at its destination before is a new party, so a new stack shows as one, too.
Chance makes gaps: only a silence of many times the usual gap is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.text import counted
from soapjms.replay.parties import BROKEN
from soapjms.replay.report.sentences import WORDS, own_breaches, party_name

MAX_MILESTONES: Final = 12
MIN_MESSAGES: Final = 5
"""Number of messages of a party, or of those that broke a rule, from which on its changes are told."""
LATEST_BEGIN: Final = 0.02
"""Share of the time of the run within which a party that is seen, or breaks a rule, was there from the beginning."""
EARLIEST_END: Final = 0.05
"""Share of the time of the run within which a party that was seen, or broke a rule, is there to the end."""
MIN_SILENT_GAPS: Final = 10
"""How many usual gaps between messages a silence must last to be told."""
MAX_TOGETHER_SHARE: Final = 0.01
"""Share of the time of the run within which rules of one party begin, or cease, to be broken together."""


class Milestone(NamedTuple):
    """A change in the behaviour of a party."""

    time: datetime
    text: str


class Period(NamedTuple):
    """From when to when there were messages of some kind, and how many."""

    first: datetime
    last: datetime
    number: int

    @property
    def least_silence(self) -> timedelta:
        """How long there must be no message of the kind, so that chance does not explain it."""
        return MIN_SILENT_GAPS * (self.last - self.first) / max(1, self.number - 1)


def milestones(members: Mapping[str, Any]) -> list[Milestone]:
    """Return the changes of the parties that break most, in order of time.

    Args:
        members: the members of summary.json.
    """
    run = _run(members)
    if run is None:
        return []
    found: list[Milestone] = []
    for party in members["parties"]:
        if party["destination"] is not None:
            found += _of_party(party, run)
        if len(found) >= MAX_MILESTONES:
            break
    return sorted(found[:MAX_MILESTONES])


def has_ceased(party: Mapping[str, Any], rule: str, members: Mapping[str, Any]) -> bool:
    """Say whether a party broke a rule, and went on without for a while until the end of the run."""
    run, seen, broke = _run(members), _seen(party), _broke(party, rule)
    return run is not None and seen is not None and broke is not None and _ends_within(broke, seen, run)


def _of_party(party: Mapping[str, Any], run: Period) -> Iterator[Milestone]:
    name, is_many, seen = party_name(party), WORDS[party["node"]].is_many, _seen(party)
    if seen is None:
        return
    if _begins_within(seen, run, run):
        yield Milestone(seen.first, f"{name} first seen")
    if _ends_within(seen, run, run):
        yield Milestone(seen.last, f"{name} last seen")
    broke = {
        rule: each for rule in own_breaches(party, VerdictOutcome.FAILED) if (each := _broke(party, rule)) is not None
    }
    began = ((each.first, rule) for rule, each in broke.items() if _begins_within(each, seen, run))
    for time, rules in _together(began, run):
        yield Milestone(time, f"{name} {'begin' if is_many else 'begins'} to break {rules}")
    ceased = ((each.last, rule) for rule, each in broke.items() if _ends_within(each, seen, run))
    for time, rules in _together(ceased, run):
        yield Milestone(time, f"{name} no longer {'break' if is_many else 'breaks'} {rules} after this")


def _together(changes: Iterable[tuple[datetime, str]], run: Period) -> Iterator[tuple[datetime, str]]:
    """Yield times with the names of the rules that changed then."""
    groups: list[tuple[datetime, list[str]]] = []
    for time, rule in sorted(changes):
        if groups and time - groups[-1][0] <= MAX_TOGETHER_SHARE * (run.last - run.first):
            groups[-1][1].append(rule)
        else:
            groups.append((time, [rule]))
    for time, rules in groups:
        more = len(rules) - 1
        yield time, rules[0] if not more else f"{rules[0]} and {counted(more, 'more rule')}"


def _begins_within(one: Period, other: Period, run: Period) -> bool:
    """Say whether one period begins clearly later than another does."""
    usual = max(LATEST_BEGIN * (run.last - run.first), one.least_silence)
    return one.number >= MIN_MESSAGES and one.first - other.first > usual


def _ends_within(one: Period, other: Period, run: Period) -> bool:
    """Say whether one period ends clearly earlier than another does."""
    usual = max(EARLIEST_END * (run.last - run.first), one.least_silence)
    return one.number >= MIN_MESSAGES and other.last - one.last > usual


def _run(members: Mapping[str, Any]) -> Period | None:
    run = _period(members["time"], members.get("messages", 0))
    return None if run is None or run.first == run.last else run


def _seen(party: Mapping[str, Any]) -> Period | None:
    return _period(party, party["messages"])


def _broke(party: Mapping[str, Any], rule: str) -> Period | None:
    """Return when a party broke a rule; None for results of an earlier version, which do not tell."""
    times = party.get("times", {}).get(rule)
    return None if times is None else _period(times, sum(party[outcome].get(rule, 0) for outcome in BROKEN))


def _period(times: Mapping[str, str | None], number: int) -> Period | None:
    first, last = times["first"], times["last"]
    if first is None or last is None:
        return None
    return Period(datetime.fromisoformat(first), datetime.fromisoformat(last), number)
