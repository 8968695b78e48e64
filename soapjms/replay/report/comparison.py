"""Two runs side by side: what got better, and what got worse.

Logs differ in length, so a party's messages are compared by the share of those judged by a rule that broke it, and a
difference that chance explains is none. There is no better or worse where only one of the runs judged a party by a
rule, but that what is broken only in the second is worse. An assertion got worse if it did for any party.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import sqrt
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.assertions.model import assertion_of, rule_name
from soapjms.protocol.errors import UsageError
from soapjms.replay.parties import BROKEN, JUDGED, RESPONDING
from soapjms.replay.report.remedies import rules
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

    @property
    def broken(self) -> tuple[int, int]:
        """How often it was broken, and judged."""
        return self.failed + self.warning, self.judged

    def of(self, outcome: str) -> Fraction:
        """Return the share of judged messages with this outcome; 0 if none was judged."""
        return Fraction(self.failed if outcome == VerdictOutcome.FAILED else self.warning, self.judged or 1)


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
        parties: what each party breaks; empty if one of the runs is of a version that did not tell parties apart.
        rejected: how many records could not be read in each run.
        rejected_worse: whether their share grew.
    """

    profile: str
    messages: tuple[int, int]
    verdicts: tuple[str, str]
    changes: tuple[Change, ...]
    parties: tuple[PartyChange, ...]
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
            "parties": [_party_members(each) for each in self.parties],
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


def _party_members(change: PartyChange) -> dict[str, Any]:
    party = change.now or change.before or {}
    return {
        **{name: party[name] for name in ("destination", "node", "stack")},
        "seen": {"old": change.before is not None, "new": change.now is not None},
        "rules": {
            rule.rule: {"course": str(rule.course), "old": _counts(rule.before), "new": _counts(rule.now)}
            for rule in change.rules
        },
    }


def _counts(counts: tuple[int, int]) -> dict[str, int]:
    return {"broken": counts[0], "judged": counts[1]}


def _share(share: ViolationShare) -> dict[str, Any]:
    return {
        "judged": share.judged,
        "failed": share.failed,
        "warning": share.warning,
        "failedShare": round(float(share.of(VerdictOutcome.FAILED)), 6),
        "warningShare": round(float(share.of(VerdictOutcome.WARNING)), 6),
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
        tolerance: by how much a share of a party's messages may grow or shrink and still count as the same, from 0 to
            1, beyond what chance explains. A rule that a party did not break at all before and breaks now is always
            worse.

    Raises:
        UsageError: the runs were judged by different profiles, which have different assertions.
    """
    check_comparable(old.members["profile"], new.members["profile"])
    names = sorted({*old.members["assertions"], *new.members["assertions"]})
    by_party = bool(old.members["parties"] and new.members["parties"])
    parties = tuple(compare_parties(old, new, tolerance)) if by_party else ()
    courses: dict[str, list[Course]] = {name: [] for name in names}
    for party in parties:
        for rule in party.rules:
            courses[assertion_of(rule.rule)].append(rule.course)
    for name in () if by_party else names:
        courses[name] = [_course(_share_of(name, old).broken, _share_of(name, new).broken, tolerance)]
    changes = [_change(name, old, new, courses[name]) for name in names]
    rejected = old.members["rejected"], new.members["rejected"]
    return Comparison(
        profile=new.members["profile"],
        messages=(old.members["messages"], new.members["messages"]),
        verdicts=(old.members["verdict"], new.members["verdict"]),
        changes=tuple(sorted(changes, key=lambda each: (list(Turn).index(each.turn), each.assertion))),
        parties=parties,
        rejected=rejected,
        rejected_worse=_grew(_rejected(old), _rejected(new), Fraction(tolerance)),
    )


def _change(name: str, old: Summary, new: Summary, courses: Iterable[Course]) -> Change:
    before, after = _share_of(name, old), _share_of(name, new)
    were, are = _reasons(name, old), _reasons(name, new)
    said: Mapping[str, Any] = (new if name in new.members["assertions"] else old).members["assertions"][name]
    return Change(
        assertion=name,
        title=said["title"],
        turn=_turn(before, after, courses),
        old=before,
        now=after,
        new=tuple(_without(are, were)),
        gone=tuple(_without(were, are)),
    )


def _share_of(name: str, run: Summary) -> ViolationShare:
    counts = run.members["assertions"].get(name, {})
    judged = sum(counts.get(each, 0) for each in JUDGED)
    return ViolationShare(
        judged=judged, failed=counts.get(VerdictOutcome.FAILED, 0), warning=counts.get(VerdictOutcome.WARNING, 0)
    )


def _turn(before: ViolationShare, after: ViolationShare, courses: Iterable[Course]) -> Turn:
    found = set(courses)
    if not after.judged:
        return Turn.NO_LONGER if before.judged else Turn.NEVER
    if found & WORSE:
        return Turn.WORSE
    if not before.judged:
        return Turn.NEWLY
    return Turn.BETTER if found & BETTER else Turn.SAME


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
    FIRST = "first"
    """It is broken, and the party was not judged by it before."""
    MORE = "more"
    FEWER = "fewer"
    GONE = "gone"
    UNSEEN = "unseen"
    """It was broken, and the party is not judged by it now."""
    SAME = "same"


WORSE: Final = frozenset({Course.NEW, Course.FIRST, Course.MORE})
BETTER: Final = frozenset({Course.FEWER, Course.GONE})


class RuleChange(NamedTuple):
    """One rule of one party in two runs, each with the number of messages that broke it and of those judged by it."""

    rule: str
    course: Course
    before: tuple[int, int]
    now: tuple[int, int]


class PartyChange(NamedTuple):
    """One party in two runs, with the rules that it breaks, or broke; the run that has none of its messages has None.

    What a party broke that is not seen now is no change.
    """

    before: Mapping[str, Any] | None
    now: Mapping[str, Any] | None
    rules: list[RuleChange]


def no_comparison(old: Summary, new: Summary) -> str | None:
    """Say why two runs cannot be compared by party; None if they can."""
    profile = old.members["profile"]
    if profile != new.members["profile"]:
        return f"was judged by profile {profile}, and cannot be compared"
    if not old.members["parties"] and old.members["messages"]:
        return "was written by an earlier version, which did not tell parties apart, and cannot be compared"
    return None


def compare_parties(old: Summary, new: Summary, tolerance: float = 0.0) -> list[PartyChange]:
    """Compare what each party breaks; those of the second run come first, in its order.

    Args:
        old, new: the results of two runs by one profile.
        tolerance: see `compare`.
    """
    before, now = ({party_key(each): each for each in run.members["parties"]} for run in (old, new))
    edition = new.members["profile"]
    return [
        PartyChange(before.get(key), now.get(key), _rule_changes(before.get(key), now.get(key), edition, tolerance))
        for key in dict.fromkeys([*now, *before])
    ]


def party_key(party: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells a party of summary.json apart in several runs."""
    return party["destination"], party["node"], party["stack"]


def _rule_changes(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, edition: str, tolerance: float
) -> list[RuleChange]:
    if now is None:
        return []
    names = {name for party in (before, now) if party for outcome in BROKEN for name in party[outcome]}
    mixed = {name for name in names if any(party and _is_mixed(party, name, edition) for party in (before, now))}
    counts = {name: (_broken(before, name), _broken(now, name)) for name in sorted(names - mixed)}
    changes = [
        RuleChange(name, _course(*both, tolerance), *both) for name, both in counts.items() if both[0][0] or both[1][0]
    ]
    return sorted(changes, key=lambda each: (list(Course).index(each.course), -each.now[0], each.rule))


def _broken(party: Mapping[str, Any] | None, rule: str) -> tuple[int, int]:
    """Return how many messages broke a rule, and how many were judged by it."""
    if party is None:
        return 0, 0
    broken = sum(party[outcome].get(rule, 0) for outcome in BROKEN)
    return broken, broken + party[VerdictOutcome.PASSED].get(rule, 0)


def _is_mixed(party: Mapping[str, Any], rule: str, edition: str) -> bool:
    """Say whether the counts of a rule are those of two: an earlier version had one for a rule and the answer to it."""
    return (
        "times" not in party
        and party["node"] == RESPONDING
        and rule_name(assertion_of(rule), is_answer=True) in rules(edition)
    )


def _course(before: tuple[int, int], now: tuple[int, int], tolerance: float) -> Course:
    if not before[1] or not now[1]:
        return Course.FIRST if now[0] else Course.UNSEEN
    if not before[0] or not now[0]:
        return Course.NEW if now[0] else Course.GONE
    one, other = before[0] / before[1], now[0] / now[1]
    share = (before[0] + now[0]) / (before[1] + now[1])
    chance = MAX_ERRORS * sqrt(share * (1 - share) * (1 / before[1] + 1 / now[1]))
    if abs(other - one) <= max(chance, tolerance):
        return Course.SAME
    return Course.MORE if other > one else Course.FEWER
