"""The comparison of two replays on the terminal."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soapjms.protocol.assertions import Outcome
from soapjms.replay.report import visible
from soapjms.replay.report.comparison import Change, Comparison, Turn, ViolationShare

STYLES: Final = {Turn.WORSE: "bold red", Turn.BETTER: "green"}
SHOWN: Final = (Turn.WORSE, Turn.BETTER, Turn.NO_LONGER, Turn.NEWLY)


def show(comparison: Comparison, console: Console) -> None:
    """Print the changes: better or worse, the shares, and new and gone reasons."""
    verdict = Text(
        "WORSE" if comparison.worse else "NOT WORSE", style=STYLES[Turn.WORSE if comparison.worse else Turn.BETTER]
    )
    before, after = comparison.messages
    one, other = comparison.verdicts
    said = f"by profile {comparison.profile}: {one} with {before} messages, then {other} with {after}"
    console.print(verdict, Text(said), soft_wrap=True)
    changed = [each for turn in SHOWN for each in comparison.turned(turn)]
    if changed:
        console.print(_table(changed))
    counts = ", ".join(f"{len(comparison.turned(turn))} {turn}" for turn in (*SHOWN, Turn.SAME))
    console.print(Text(f"assertions: {counts}"), soft_wrap=True)
    if any(comparison.rejected):
        grown = ", a larger share" if comparison.rejected_worse else ""
        console.print(Text(f"rejected records: {comparison.rejected[0]}, then {comparison.rejected[1]}{grown}"))


def _table(changed: list[Change]) -> Table:
    table = Table()
    for name in ("assertion", "turned", "failed", "warned"):
        table.add_column(name, no_wrap=name == "assertion")
    table.add_column("meaning, and reasons that are new (+) or gone (-)", overflow="fold")
    for each in changed:
        reasons = [f"+ {visible(reason)}" for reason in each.new] + [f"- {visible(reason)}" for reason in each.gone]
        table.add_row(
            Text(each.assertion, style=STYLES.get(each.turn, "")),
            Text(str(each.turn), style=STYLES.get(each.turn, "")),
            Text(f"{_percent(each.old, Outcome.FAILED)} → {_percent(each.now, Outcome.FAILED)}"),
            Text(f"{_percent(each.old, Outcome.WARNING)} → {_percent(each.now, Outcome.WARNING)}"),
            Text("\n".join([each.title, *reasons])),
        )
    return table


def _percent(share: ViolationShare, outcome: str) -> str:
    if not share.judged:
        return "–"
    part: Fraction = share.of(outcome)
    return "0 %" if not part else f"{float(100 * part):.3g} %"
