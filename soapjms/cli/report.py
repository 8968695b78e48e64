"""`soapjms report`: write the report of a replay again, or compare two replays."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

from soapjms.cli.paths import InputFolder, error_text
from soapjms.cli.status import FINDINGS_STATUS, USAGE_STATUS
from soapjms.cli.terminal import console
from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri import visible

RESULTS: Final = InputFolder("the --out folder of a replay")


def _share(ctx: click.Context, param: click.Parameter, percent: float) -> float:
    if not 0 <= percent <= 100:  # NaN is neither
        raise click.BadParameter(f"the tolerance must be from 0 to 100 percentage points, got {percent:g}")
    return percent / 100


@click.command("report")
@click.argument("old", metavar="DIR", type=RESULTS)
@click.argument("new", metavar="[NEW]", required=False, type=RESULTS)
@click.option(
    "--tolerance",
    type=float,
    default=0.0,
    show_default=True,
    callback=_share,
    metavar="POINTS",
    help="Percentage points by which a share may change and still count as the same.",
)
@click.option(
    "--against", metavar="OLD", type=RESULTS, help="Results of an earlier replay, which the page compares DIR with."
)
@click.option("--json", "as_json", is_flag=True, help="Print summary.json, or the comparison, as JSON.")
def command(old: str, new: str | None, tolerance: float, against: str | None, as_json: bool) -> None:
    """Write report.html and junit.xml of a replay's results again, or compare two replays.

    DIR is the --out folder of a replay. With NEW, the results of a later replay, nothing is written: the command shows
    what got better and what got worse, by the share of messages that failed an assertion among those judged by it.

    Exit status: 0 the report is written, or nothing got worse, 1 something got worse, 2 usage, or DIR has no results.
    """
    from soapjms.replay.report import compare, load
    from soapjms.replay.report.files import as_written, rewrite

    if new is not None and against is not None:
        raise click.UsageError("--against is for the page of DIR; two folders are compared on the terminal")
    try:
        if new is None:
            summary = rewrite(Path(old), None if against is None else Path(against))
        else:
            with as_written(Path(old), Path(new)):
                comparison = compare(load(Path(old)), load(Path(new)), tolerance)
    except UsageError as error:
        raise click.UsageError(error_text(error)) from None
    except OSError as error:
        click.echo(f"Error: {error_text(error)}", err=True)
        sys.exit(USAGE_STATUS)
    if new is None:
        page = os.path.join(old, "report.html")
        click.echo(summary.to_json() if as_json else f"report: {visible(page)}", nl=not as_json)
        return
    if as_json:
        click.echo(comparison.to_json(), nl=False)
    else:
        from soapjms.cli.comparison import show

        show(comparison, console())
    sys.exit(FINDINGS_STATUS if comparison.worse else 0)
