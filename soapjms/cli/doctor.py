"""`soapjms doctor`: look for problems that would make a call fail, and say how to fix them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from soapjms.cli.commands import SECONDS
from soapjms.cli.connection import CONNECTION_OPTION, place_of, place_options, read_names
from soapjms.cli.options import set_option
from soapjms.cli.status import FINDINGS_STATUS
from soapjms.cli.terminal import console
from soapjms.doctor import CHECKS, CheckFinding, CheckOutcome, Patient, examine
from soapjms.doctor.model import DEFAULT_TIMEOUT
from soapjms.protocol.uri import visible

STYLES: Final = {
    CheckOutcome.OK: "green",
    CheckOutcome.NOTE: "yellow",
    CheckOutcome.FAILED: "bold red",
    CheckOutcome.SKIPPED: "dim",
}
WIDTH: Final = max(len(each.name) for each in CHECKS)


@click.command("doctor")
@CONNECTION_OPTION
@place_options
@set_option()
@click.option(
    "--out", "-o", "folder", default="captures", show_default=True, metavar="DIR",
    type=click.Path(path_type=Path), help="Folder for captures, checked for write access.",
)  # fmt: skip
@click.option(
    "--timeout", type=SECONDS, default=DEFAULT_TIMEOUT, show_default=True,
    metavar="SECONDS", help="How long each step at the broker may take.",
)  # fmt: skip
@click.option(
    "--jolokia", metavar="URL",
    help="URL of the broker's Jolokia, which counts consumers, such as http://USER:PASSWORD@HOST:8161/api/jolokia.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    connection: str | None,
    names: str | None,
    properties: dict[str, str],
    folder: Path,
    timeout: float,
    jolokia: str | None,
    as_json: bool,
    **place: Any,
) -> None:
    """Check this machine, the broker, and the destination of a service, cheap checks first.

    Nothing is sent to the service, and no message is taken from its queue: the number of consumers of the queue is told
    where the broker knows it, and whether they answer is not. Each failed check shows the command that
    fixes the problem and the page of the documentation about it.

    Exit status: 0 no check failed, 1 a check failed, 2 usage.
    """
    where = None if (place["uri"], place["wsdl"]) == (None, None) else place_of(**place)
    found = []
    with Patient(connection, where, read_names(names), properties, folder, timeout, jolokia) as patient:
        for each in examine(patient):
            found.append(each)
            if not as_json:
                show(each, console())
    if as_json:
        click.echo(json.dumps({"checks": [members(each) for each in found]}))
    sys.exit(FINDINGS_STATUS if any(each.outcome is CheckOutcome.FAILED for each in found) else 0)


def members(finding: CheckFinding) -> dict[str, str | None]:
    """Return the JSON form."""
    return {name: getattr(finding, name) for name in ("check", "outcome", "text", "page", "command")}


def show(finding: CheckFinding, out: Console) -> None:
    """Print a line with the finding, and one that says how to fix it."""
    outcome = (f"{finding.outcome:<7} ", STYLES[finding.outcome])
    out.print(Text.assemble(outcome, (f"{finding.check:<{WIDTH}}", "bold"), f"  {finding.text}"), soft_wrap=True)
    if finding.hint is not None:
        out.print(Text(f"{'':{len(outcome[0]) + WIDTH}}  {visible(finding.hint)}"), soft_wrap=True)
