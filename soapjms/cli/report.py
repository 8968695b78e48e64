"""`soapjms report`: write the report of a replay again, or compare two replays."""

from __future__ import annotations

import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from soapjms.cli.status import FINDINGS_STATUS, USAGE_STATUS
from soapjms.cli.terminal import console
from soapjms.protocol.assertions import Outcome
from soapjms.protocol.errors import UsageError
from soapjms.replay.report import load, visible
from soapjms.replay.report.comparison import Change, Comparison, Turn, ViolationShare, compare
from soapjms.replay.report.files import as_written, rewrite

STYLES: Final = {Turn.WORSE: "bold red", Turn.BETTER: "green"}
SHOWN: Final = (Turn.WORSE, Turn.BETTER, Turn.NO_LONGER, Turn.NEWLY)


def _share(ctx: click.Context, param: click.Parameter, percent: float) -> float:
    if not 0 <= percent <= 100:  # NaN is neither
        raise click.BadParameter(f"the tolerance must be from 0 to 100 percentage points, got {percent:g}")
    return percent / 100


@click.command("report")
@click.argument("old", metavar="DIR")
@click.argument("new", metavar="[NEW]", required=False)
@click.option(
    "--tolerance",
    type=float,
    default=0.0,
    show_default=True,
    callback=_share,
    metavar="POINTS",
    help="Percentage points by which a share may change and still count as the same.",
)
@click.option("--json", "as_json", is_flag=True, help="Print summary.json, or the comparison, as JSON.")
def command(old: str, new: str | None, tolerance: float, as_json: bool) -> None:
    """Write report.html and junit.xml of a replay's results again, or compare two replays.

    DIR is the --out folder of a replay. With NEW, the results of a later replay, nothing is written: the command shows
    what got better and what got worse, by the share of messages that failed an assertion among those judged by it.

    Exit status: 0 the report is written, or nothing got worse, 1 something got worse, 2 usage, or DIR has no results.
    """
    try:
        if new is None:
            summary = rewrite(Path(old))
        else:
            with as_written(Path(old), Path(new)):
                comparison = compare(load(Path(old)), load(Path(new)), tolerance)
    except UsageError as error:
        raise click.UsageError(visible(str(error))) from None
    except OSError as error:
        click.echo(f"Error: {visible(error)}", err=True)
        sys.exit(USAGE_STATUS)
    if new is None:
        page = os.path.join(old, "report.html")
        click.echo(summary.to_json() if as_json else f"report: {visible(page)}", nl=not as_json)
        return
    if as_json:
        click.echo(comparison.to_json(), nl=False)
    else:
        show(comparison, console())
    sys.exit(FINDINGS_STATUS if comparison.worse else 0)


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
