"""The comparison of two replays on the terminal."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soapjms.protocol.assertions import VerdictOutcome
from soapjms.protocol.assertions.model import assertion_of
from soapjms.protocol.text import counted
from soapjms.replay.report import visible
from soapjms.replay.report.comparison import MAX_NAMED_CAUSES, Change, Comparison, Turn, ViolationShare
from soapjms.replay.report.sentences import COURSES, comings, courses, party_name

STYLES: Final = {Turn.WORSE: "bold red", Turn.BETTER: "green"}
SHOWN: Final = (Turn.WORSE, Turn.BETTER, Turn.NO_LONGER, Turn.NEWLY)


def show(comparison: Comparison, console: Console) -> None:
    """Print the changes: better or worse, the shares, and new and gone reasons."""
    verdict = Text(
        "WORSE" if comparison.worse else "NOT WORSE", style=STYLES[Turn.WORSE if comparison.worse else Turn.BETTER]
    )
    before, after = comparison.messages
    one, other = comparison.verdicts
    said = f"by profile {comparison.profile}: {one} with {counted(before, 'message')}, then {other} with {after:,}"
    console.print(verdict, Text(visible(said)), soft_wrap=True)
    changed = [each for turn in SHOWN for each in comparison.turned(turn)]
    if changed:
        console.print(_table(changed, comparison))
    counts = ", ".join(f"{len(comparison.turned(turn))} {turn}" for turn in (*SHOWN, Turn.SAME))
    console.print(Text(f"assertions: {counts}"), soft_wrap=True)
    if comparison.parties:
        console.print(Text(visible(f"parties: {courses(comparison.parties)}")), soft_wrap=True)
    for sentence in comings(comparison.parties):
        console.print(Text(visible(sentence)), soft_wrap=True)
    if any(comparison.rejected):
        grown = ", a larger share" if comparison.rejected_worse else ""
        console.print(Text(f"rejected records: {comparison.rejected[0]}, then {comparison.rejected[1]}{grown}"))


def _table(changed: list[Change], comparison: Comparison) -> Table:
    table = Table()
    for name in ("assertion", "turned", "failed", "warned"):
        table.add_column(name, no_wrap=name == "assertion")
    table.add_column("meaning, parties, and reasons that are new (+) or gone (-)", overflow="fold")
    for each in changed:
        parties = [visible(line) for line in _parties(each.assertion, comparison)]
        reasons = [f"+ {visible(reason)}" for reason in each.new] + [f"- {visible(reason)}" for reason in each.gone]
        table.add_row(
            Text(each.assertion, style=STYLES.get(each.turn, "")),
            Text(str(each.turn), style=STYLES.get(each.turn, "")),
            Text(f"{_percent(each.old, VerdictOutcome.FAILED)} → {_percent(each.now, VerdictOutcome.FAILED)}"),
            Text(f"{_percent(each.old, VerdictOutcome.WARNING)} → {_percent(each.now, VerdictOutcome.WARNING)}"),
            Text("\n".join([each.title, *parties, *reasons])),
        )
    return table


def _parties(assertion: str, comparison: Comparison) -> list[str]:
    """Return what became of an assertion party by party, as far as it changed."""
    lines = [
        f"{party_name(change.now)}: {COURSES[rule.course]}, {_count(rule.before)} → {_count(rule.now)}"
        for change in comparison.parties
        if change.now is not None
        for rule in change.rules
        if assertion_of(rule.rule) == assertion and rule.course in COURSES
    ]
    more = len(lines) - MAX_NAMED_CAUSES
    return [*lines[:MAX_NAMED_CAUSES], *([f"{more} more parties"] if more > 0 else [])]


def _count(counts: tuple[int, int]) -> str:
    broken, judged = counts
    return f"{broken:,} of {judged:,}" if judged else "–"


def _percent(share: ViolationShare, outcome: str) -> str:
    if not share.judged:
        return "–"
    part: Fraction = share.of(outcome)
    return "0 %" if not part else f"{float(100 * part):.3g} %"
