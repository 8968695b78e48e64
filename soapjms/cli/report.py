"""`soapjms report`: write the report of a replay again, or compare two replays."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from soapjms.cli.paths import InputFolder, OutputFile, error_text
from soapjms.cli.status import FINDINGS_STATUS, USAGE_STATUS
from soapjms.cli.terminal import console, visible_json
from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri import visible

RESULTS: Final = InputFolder("the --out folder of a replay")


def _share(ctx: click.Context, param: click.Parameter, percent: float) -> float:
    if not 0 <= percent <= 100:  # NaN is neither
        raise click.BadParameter(f"the tolerance must be from 0 to 100 percentage points, got {percent:g}")
    return percent / 100


@click.command("report")
@click.argument("folders", metavar="DIR [NEW] [NEWER...]", type=RESULTS, nargs=-1, required=True)
@click.option(
    "--tolerance",
    type=float,
    default=0.0,
    show_default=True,
    callback=_share,
    metavar="POINTS",
    help="Percentage points by which a share may change from DIR to NEW and still count as the same.",
)
@click.option(
    "--against", metavar="OLD", type=RESULTS, help="Results of an earlier replay, which the page compares DIR with."
)
@click.option(
    "--trend",
    metavar="PAGE",
    type=OutputFile("a page"),
    help="Write a page with the trend over DIR, NEW and all NEWER.",
)
@click.option("--json", "as_json", is_flag=True, help="Print summary.json, or the comparison, as JSON.")
@click.pass_context
def command(
    context: click.Context,
    folders: tuple[str, ...],
    tolerance: float,
    against: str | None,
    trend: str | None,
    as_json: bool,
) -> None:
    """Write report.html and junit.xml of a replay's results again, or compare replays.

    DIR is the --out folder of a replay. With NEW, the results of a later replay, nothing is written: the command shows
    what got better and what got worse, by the share of messages that failed an assertion among those judged by it.
    With --trend, a page shows for each party the share of its messages that broke rules, over any number of replays.

    Exit status: 0 the report is written, or nothing got worse, 1 something got worse, 2 usage, or DIR has no results.
    """
    paths = [Path(each) for each in folders]
    if trend is not None and (against is not None or as_json):
        raise click.UsageError("--trend writes a page of its own; leave out --against and --json")
    if trend is None and len(paths) > 2:
        raise click.UsageError(f"two folders are compared on the terminal, got {len(paths)}; --trend PAGE takes more")
    if len(paths) == 2 and against is not None:
        raise click.UsageError("--against is for the page of DIR; two folders are compared on the terminal")
    is_comparison = trend is None and len(paths) == 2
    if not is_comparison and context.get_parameter_source("tolerance") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--tolerance is for two folders, which are compared on the terminal")
    try:
        if trend is not None:
            _write_trend(paths, Path(trend))
        elif len(paths) == 1:
            _rewrite(paths[0], None if against is None else Path(against), as_json)
        else:
            _compare(paths[0], paths[1], tolerance, as_json)
    except UsageError as error:
        raise click.UsageError(error_text(error)) from None
    except OSError as error:
        click.echo(f"Error: {error_text(error)}", err=True)
        sys.exit(USAGE_STATUS)


def _write_trend(paths: list[Path], page: Path) -> None:
    from soapjms.replay.output import write_text
    from soapjms.replay.report import load, trend
    from soapjms.replay.report.files import as_written

    with as_written(*paths):
        made = trend([load(each) for each in paths])
    write_text(page, made)
    click.echo(f"trend: {visible(str(page))}")


def _rewrite(folder: Path, against: Path | None, as_json: bool) -> None:
    from soapjms.replay.report import rewrite

    summary = rewrite(folder, against)
    page = os.path.join(folder, "report.html")
    click.echo(visible_json(summary.to_json()) if as_json else f"report: {visible(page)}", nl=not as_json)


def _compare(old: Path, new: Path, tolerance: float, as_json: bool) -> None:
    from soapjms.replay.report import compare, load
    from soapjms.replay.report.files import as_written

    with as_written(old, new):
        comparison = compare(load(old), load(new), tolerance)
        if as_json:
            click.echo(visible_json(comparison.to_json()), nl=False)
        else:
            from soapjms.cli.comparison import show

            show(comparison, console())
    sys.exit(FINDINGS_STATUS if comparison.worse else 0)
