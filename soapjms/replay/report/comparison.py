"""Two runs side by side: what got better, and what got worse.

Logs differ in length, so runs are compared by the share of judged messages that failed, or ended with a warning.
Assertions that were judged in only one run are listed separately; one that is broken only in the second is worse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import sqrt
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import Outcome
from soapjms.protocol.assertions.model import rule_name
from soapjms.protocol.errors import UsageError
from soapjms.replay.parties import BROKEN, JUDGED
from soapjms.replay.summary import Summary

MAX_NAMED_CAUSES: Final = 5
"""Maximum number of new causes, and of gone causes, that are named for an assertion."""


class Turn(StrEnum):
    """How an assertion changed from one run to the other."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    NO_LONGER = "no longer judged"
    NEWLY = "newly judged"
    NEVER = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationShare:
    """How often an assertion was judged, and how often it failed or ended with a warning."""

    judged: int
    failed: int
    warning: int

    def of(self, outcome: str) -> Fraction:
        """Return the share of judged messages with this outcome; 0 if none was judged."""
        return Fraction(self.failed if outcome == Outcome.FAILED else self.warning, self.judged or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One assertion in two runs.

    Attributes:
        new: the most frequent reasons that only the second run has.
        gone: the most frequent reasons that only the first run has.
    """

    assertion: str
    title: str
    turn: Turn
    old: ViolationShare
    now: ViolationShare
    new: tuple[str, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The changes from one run to the other. In pairs, the first run comes first.

    Attributes:
        changes: all assertions, the worse ones first.
        rejected: how many records could not be read in each run.
        rejected_worse: whether their share grew.
    """

    profile: str
    messages: tuple[int, int]
    verdicts: tuple[str, str]
    changes: tuple[Change, ...]
    rejected: tuple[int, int]
    rejected_worse: bool

    @property
    def worse(self) -> bool:
        """Whether anything got worse."""
        return self.rejected_worse or any(each.turn is Turn.WORSE for each in self.changes)

    def turned(self, turn: Turn) -> list[Change]:
        """List the assertions with this turn."""
        return [each for each in self.changes if each.turn is turn]

    def to_json(self) -> str:
        """Write the comparison as JSON; shares are of judged messages."""
        members = {
            "profile": self.profile,
            "worse": self.worse,
            "verdict": _pair(self.verdicts),
            "messages": _pair(self.messages),
            "rejected": {**_pair(self.rejected), "worse": self.rejected_worse},
            "assertions": {each.assertion: _members(each) for each in self.changes if each.turn is not Turn.NEVER},
        }
        return json.dumps(members, ensure_ascii=False, indent=2) + "\n"


def _pair(values: tuple[Any, Any]) -> dict[str, Any]:
    return {"old": values[0], "new": values[1]}


def _members(change: Change) -> dict[str, Any]:
    return {
        "turn": str(change.turn),
        "old": _share(change.old),
        "new": _share(change.now),
        "newReasons": list(change.new),
        "goneReasons": list(change.gone),
    }


def _share(share: ViolationShare) -> dict[str, Any]:
    return {
        "judged": share.judged,
        "failed": share.failed,
        "warning": share.warning,
        "failedShare": round(float(share.of(Outcome.FAILED)), 6),
        "warningShare": round(float(share.of(Outcome.WARNING)), 6),
    }


def check_comparable(one: str, other: str) -> None:
    """Refuse to compare runs that were judged by different profiles.

    Raises:
        UsageError: the profiles differ.
    """
    if one != other:
        raise UsageError(
            f"the first run was judged by profile {one}, the second by {other}: their verdicts cannot be compared; "
            f"replay one of the logs again with --profile {one} or {other}"
        )


def compare(old: Summary, new: Summary, tolerance: float = 0.0) -> Comparison:
    """Compare two runs.

    Args:
        old, new: their results.
        tolerance: by how much a share may grow or shrink and still count as the same, from 0 to 1. An assertion that
            did not fail at all before and fails now is always worse.

    Raises:
        UsageError: the runs were judged by different profiles, which have different assertions.
    """
    check_comparable(old.members["profile"], new.members["profile"])
    names = sorted({*old.members["assertions"], *new.members["assertions"]})
    changes = [_change(name, old, new, Fraction(tolerance)) for name in names]
    rejected = old.members["rejected"], new.members["rejected"]
    return Comparison(
        profile=new.members["profile"],
        messages=(old.members["messages"], new.members["messages"]),
        verdicts=(old.members["verdict"], new.members["verdict"]),
        changes=tuple(sorted(changes, key=lambda each: (list(Turn).index(each.turn), each.assertion))),
        rejected=rejected,
        rejected_worse=_grew(_rejected(old), _rejected(new), Fraction(tolerance)),
    )


def _change(name: str, old: Summary, new: Summary, tolerance: Fraction) -> Change:
    before, after = _share_of(name, old), _share_of(name, new)
    were, are = _reasons(name, old), _reasons(name, new)
    said: Mapping[str, Any] = (new if name in new.members["assertions"] else old).members["assertions"][name]
    return Change(
        assertion=name,
        title=said["title"],
        turn=_turn(before, after, tolerance),
        old=before,
        now=after,
        new=tuple(_without(are, were)),
        gone=tuple(_without(were, are)),
    )


def _share_of(name: str, run: Summary) -> ViolationShare:
    counts = run.members["assertions"].get(name, {})
    judged = sum(counts.get(each, 0) for each in JUDGED)
    return ViolationShare(judged=judged, failed=counts.get(Outcome.FAILED, 0), warning=counts.get(Outcome.WARNING, 0))


def _turn(before: ViolationShare, after: ViolationShare, tolerance: Fraction) -> Turn:
    if not before.judged or not after.judged:
        if before.judged:
            return Turn.NO_LONGER
        return _judged_first(after) if after.judged else Turn.NEVER
    for outcome in (Outcome.FAILED, Outcome.WARNING):  # fewer failures are better, even with more warnings
        if _grew(before.of(outcome), after.of(outcome), tolerance):
            return Turn.WORSE
        if _grew(after.of(outcome), before.of(outcome), tolerance):
            return Turn.BETTER
    return Turn.SAME


def _judged_first(after: ViolationShare) -> Turn:
    return Turn.WORSE if after.failed or after.warning else Turn.NEWLY


def _grew(before: Fraction, after: Fraction, tolerance: Fraction) -> bool:
    return after > before and (after - before > tolerance or not before)


def _rejected(run: Summary) -> Fraction:
    rejected = run.members["rejected"]
    return Fraction(rejected, (rejected + run.members["records"]) or 1)


def _reasons(name: str, run: Summary) -> list[str]:
    """Return the reasons why an assertion was broken, most frequent first."""
    rules = (name, rule_name(name, is_answer=True))
    return [reason for outcome in BROKEN for rule in rules for reason, _ in run.findings.of(rule, outcome)]


def _without(reasons: Iterable[str], others: Iterable[str]) -> Iterator[str]:
    known, left = set(others), MAX_NAMED_CAUSES
    for each in reasons:
        if each not in known and left:
            left -= 1
            yield each


# By party


MAX_ERRORS: Final = 2
"""Number of standard errors up to which a difference between two shares may be chance, and counts as none."""


class Course(StrEnum):
    """How a rule that a party breaks, or broke, changed."""

    NEW = "new"
    MORE = "more"
    FEWER = "fewer"
    GONE = "gone"
    SAME = "same"


class RuleChange(NamedTuple):
    """One rule of one party in two runs, each with the number of messages that broke it and of those judged by it."""

    rule: str
    course: Course
    before: tuple[int, int]
    now: tuple[int, int]


class PartyChange(NamedTuple):
    """One party in two runs, with the rules that it breaks or broke; the run that has none of its messages has None."""

    before: Mapping[str, Any] | None
    now: Mapping[str, Any] | None
    rules: list[RuleChange]


def compare_parties(old: Summary, new: Summary) -> list[PartyChange]:
    """Compare what each party breaks; those of the second run come first, in its order.

    Args:
        old, new: the results of two runs by one profile.
    """
    before, now = ({party_key(each): each for each in run.members["parties"]} for run in (old, new))
    keys = dict.fromkeys([*now, *before])
    return [PartyChange(before.get(key), now.get(key), _rule_changes(before.get(key), now.get(key))) for key in keys]


def party_key(party: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells a party of summary.json apart in several runs."""
    return party["destination"], party["node"], party["stack"]


def _rule_changes(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> list[RuleChange]:
    names = {name for party in (before, now) if party for outcome in BROKEN for name in party[outcome]}
    changes = [
        RuleChange(name, _course(_broken(before, name), _broken(now, name)), _broken(before, name), _broken(now, name))
        for name in sorted(names)
    ]
    return sorted(changes, key=lambda each: (list(Course).index(each.course), -each.now[0], each.rule))


def _broken(party: Mapping[str, Any] | None, rule: str) -> tuple[int, int]:
    """Return how many messages broke a rule, and how many were judged by it."""
    if party is None:
        return 0, 0
    broken = sum(party[outcome].get(rule, 0) for outcome in BROKEN)
    return broken, broken + party[Outcome.PASSED].get(rule, 0)


def _course(before: tuple[int, int], now: tuple[int, int]) -> Course:
    if not before[0] or not now[0]:
        return Course.NEW if now[0] else Course.GONE
    one, other = before[0] / before[1], now[0] / now[1]
    share = (before[0] + now[0]) / (before[1] + now[1])
    chance = MAX_ERRORS * sqrt(share * (1 - share) * (1 / before[1] + 1 / now[1]))
    return Course.SAME if abs(other - one) <= chance else Course.MORE if other > one else Course.FEWER
