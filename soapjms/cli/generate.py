"""`soapjms generate`: write capture logs of any size, with labelled violations at known rates."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any

import click
from rich.table import Table

from soapjms.capture.log import DEFAULT_ROTATION_OCTETS
from soapjms.cli.commands import FILE_MEBIBYTES, Range
from soapjms.cli.paths import OutputFolder, error_text
from soapjms.cli.progress import progress
from soapjms.cli.terminal import console
from soapjms.generate import BROKEN, DISORDER, FORMS, PACE, VIOLATIONS, Generated, generate
from soapjms.progress import Phase
from soapjms.protocol.errors import UsageError
from soapjms.protocol.limits import MIB
from soapjms.protocol.names import DEFAULT_PROFILE, EDITIONS
from soapjms.replay.engines import install_line


def _shares(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for each in values:
        name, _, share = each.partition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            raise click.BadParameter(f"a rate must be NAME=SHARE, such as charset=0.01, got {each!r}") from None
    return shares


def _list(as_json: bool) -> None:
    if as_json:
        columns = ("on_request", "on_response", "editions")
        rows = {name: {each: list(getattr(row, each)) for each in columns} for name, row in VIOLATIONS.items()}
        click.echo(json.dumps({"violations": rows}, indent=2))
        return
    table = Table()
    for name in ("violation", "breaks on the request", "on the response", "editions"):
        table.add_column(name, overflow="fold")
    for name, row in VIOLATIONS.items():
        table.add_row(name, ", ".join(row.on_request), ", ".join(row.on_response), ", ".join(row.editions))
    console().print(table)


@click.command("generate")
@click.argument("out", metavar="DIR", required=False, type=OutputFolder("a new folder"))
@click.option("--messages", "-n", type=click.IntRange(0), metavar="N", help="Number of messages.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed makes another log.")
@click.option("--form", type=click.Choice(FORMS), default="jsonl", show_default=True, help="Format of the logs.")
@click.option(
    "--profile", type=click.Choice(sorted(EDITIONS)), default=DEFAULT_PROFILE.name, show_default=True,
    help="Edition of the specification that valid traffic follows and labels refer to.",
)  # fmt: skip
@click.option(
    "--broken", type=Range(0, 1), default=BROKEN, show_default=True, metavar="SHARE",
    help="Share of exchanges with a violation, spread over all violations without a --rate.",
)  # fmt: skip
@click.option(
    "--rate", "rates", multiple=True, callback=_shares, metavar="NAME=SHARE",
    help="Share of exchanges with one violation; repeatable.",
)  # fmt: skip
@click.option("--queues", type=click.IntRange(1), default=20, show_default=True, help="Number of destinations.")
@click.option(
    "--skew", type=Range(0, 1), default=0.0, metavar="SHARE",
    help="Share of exchanges that go to the first destination.  [default: an even spread]",
)  # fmt: skip
@click.option("--pace", type=float, default=PACE, show_default=True, help="Messages per second of the log's time.")
@click.option(
    "--disorder", type=float, default=DISORDER, show_default=True, metavar="SECONDS",
    help="By how much a line may come later in the log than its time says.",
)  # fmt: skip
@click.option(
    "--rotate", type=FILE_MEBIBYTES, default=DEFAULT_ROTATION_OCTETS / MIB, show_default=True,
    metavar="MIB", help="Size of a file after which another is begun.",
)  # fmt: skip
@click.option("--list", "is_list", is_flag=True, help="List the violations and end.")
@click.option("--json", "as_json", is_flag=True, help="Print expected.json instead of text.")
def command(out: str | None, messages: int | None, rotate: float, is_list: bool, as_json: bool, **terms: Any) -> None:
    """Write capture logs of any size that resemble real traffic, with violations of the specification at known rates.

    DIR, a new folder, gets logs/, labels.jsonl (which message breaks which assertion) and expected.json (what a replay
    must find). The same options write the same octets.

    Exit status: 0, or 2 if an option is wrong, or DIR cannot be written.
    """
    if is_list:
        _list(as_json)
        return
    if out is None or messages is None:
        raise click.UsageError("give DIR, a new folder, and --messages, the number of messages")
    begun = monotonic()
    try:
        with progress() as tell:

            def tell_messages(done: int) -> None:
                tell(Phase(f"{done} of {messages} messages", done, messages))

            made = generate(out, messages, rotation=max(1, int(rotate * MIB)), progress=tell_messages, **terms)
    except UsageError as error:
        raise click.UsageError(error_text(error)) from None
    if as_json:
        click.echo(json.dumps(made.members, indent=2))
    else:
        click.echo(_said(out, made, monotonic() - begun))


def _said(out: str, made: Generated, seconds: float) -> str:
    members = made.members
    octets = sum(each.stat().st_size for each in made.files)
    broken = sum(members["violations"].values())
    install = install_line()
    before = "" if install is None else f"{install}\n"
    return (
        f"{members['messages']} messages in {members['records']} records, {len(made.files)} files of "
        f"{octets / MIB:.1f} MiB, {broken} exchanges with violations; {members['messages'] / seconds:.0f} "
        f"messages per second\n{before}soapjms replay {out}/logs --out report --profile {members['profile']}"
    )
