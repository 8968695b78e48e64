"""The assertions as the report lists them: how each ended, and why one was not judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from soapjms.protocol.assertions import Outcome
from soapjms.protocol.names import profile
from soapjms.replay.report.links import specification
from soapjms.replay.summary import Summary

JUDGED: Final = (Outcome.PASSED, Outcome.FAILED, Outcome.WARNING)
NEVER: Final = "not judged"
UNSEEN: Final = "not observable"
STATES: Final = (str(Outcome.FAILED), str(Outcome.WARNING), str(Outcome.PASSED), NEVER, UNSEEN)


class Row(NamedTuple):
    """One assertion as the report lists it."""

    id: str
    title: str
    section: str
    level: str
    state: str
    counts: Mapping[str, int]
    link: str
    not_observable: str | None

    @property
    def judged(self) -> int:
        """How often it was judged to an end."""
        return sum(self.counts[each] for each in JUDGED)

    @property
    def why_not(self) -> str:
        """Why it was never judged to an end."""
        if self.not_observable is not None:
            return self.not_observable
        return next((reason for outcome, reason in NOT_JUDGED.items() if self.counts[outcome]), NOBODY)


NOT_JUDGED: Final[Mapping[str, str]] = {
    Outcome.MISSING_INPUT: "the records lack what the check needs",
    Outcome.PREREQ_FAILED: "a check that it rests on failed",
    Outcome.NOT_APPLICABLE: "it says nothing about the messages of this log",
}
NOBODY: Final = "no message of this log is subject to it"


def rows(summary: Summary) -> list[Row]:
    """List all assertions: the failed ones first, then warnings, passed ones, and those never exercised."""
    unseen = summary.members["notObservable"]
    edition = profile(summary.members["profile"]).edition
    listed = [_row(name, each, edition, unseen) for name, each in summary.members["assertions"].items()]
    return sorted(listed, key=lambda row: (STATES.index(row.state), row.id))


def _row(name: str, said: Mapping[str, Any], edition: str, unseen: Mapping[str, str]) -> Row:
    return Row(
        id=name,
        title=said["title"],
        section=said["section"],
        level=said["level"],
        state=_state(said, name in unseen),
        counts={str(outcome): said[outcome] for outcome in Outcome},
        link=specification(edition, name, said["section"]),
        not_observable=unseen.get(name),
    )


def _state(counts: Mapping[str, Any], unseen: bool) -> str:
    for outcome in (Outcome.FAILED, Outcome.WARNING, Outcome.PASSED):
        if counts[outcome]:
            return str(outcome)
    return UNSEEN if unseen else NEVER
