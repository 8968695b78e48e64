"""`soapjms uri parse`: show the meaning of a `jms:` URI and its errors.

Values that look like secrets are shown as `***`, and control characters as escapes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from soapjms.cli.options import JSON_OPTION
from soapjms.cli.status import FINDINGS_STATUS
from soapjms.cli.terminal import console
from soapjms.protocol.properties import request_uri
from soapjms.protocol.uri import JmsUri, Mode, Severity, parse, visible
from soapjms.protocol.uri.redact import without_user_info

STYLES: Final = {Severity.SYNTAX: "bold red", Severity.VALUE: "red", Severity.NOTE: "yellow"}


@click.group("uri")
def command() -> None:
    """Read jms: URIs."""


@command.command("parse", short_help="Show the meaning of a jms: URI and its errors.")
@click.argument("uri", metavar="URI")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.LENIENT.value,
    show_default=True,
    help="Grammar: strict is RFC 6167, draft-03 the draft before it, lenient also accepts URIs seen in practice.",
)
@JSON_OPTION
def parse_command(uri: str, mode: str, as_json: bool) -> None:
    """Show the meaning of a jms: URI and its errors.

    Quote the URI: the shell acts on & and ?. Values that look like secrets are shown as ***.

    Exit status: 0 the URI is valid, 1 it is not, 2 usage.
    """
    parsed = parse(uri, Mode(mode))
    said = members(parsed)
    if as_json:
        click.echo(json.dumps(said))
    else:
        show(parsed, said, console())
    sys.exit(0 if parsed.valid else FINDINGS_STATUS)


def members(uri: JmsUri) -> dict[str, Any]:
    """Return the JSON form, without secrets. A URI that is not well-formed has no requestURI."""
    return {
        "well_formed": uri.well_formed,
        "valid": uri.valid,
        "variant": None if uri.variant is None else without_user_info(uri.variant),
        "destination": None if uri.destination is None else without_user_info(uri.destination),
        "parameters": [[each.shown_name, each.shown_value] for each in uri.parameters],
        "request_uri": parse(request_uri(uri), uri.mode).redacted if uri.well_formed else None,
        "findings": [{"code": each.code, "text": each.text} for each in uri.findings],
    }


def show(uri: JmsUri, said: dict[str, Any], out: Console) -> None:
    """Print the verdict, the parts, and the findings."""
    out.print(_verdict(uri), Text(f"by the grammar {uri.mode}"))
    parts = Table(show_header=False, box=None)
    for label, value in _rows(said):
        parts.add_row(Text(label), Text("-" if value is None else visible(value), overflow="fold"))
    out.print(parts)
    if uri.findings:
        findings = Table("at", "", "finding", "problem, and the rule")
        for each in uri.findings:
            cells = str(each.position), str(each.severity), each.code, each.text
            findings.add_row(*(Text(visible(cell), overflow="fold") for cell in cells), style=STYLES[each.severity])
        out.print(findings)


def _verdict(uri: JmsUri) -> Text:
    if uri.valid:
        return Text("VALID", style="green")
    return Text("WELL-FORMED, NOT VALID" if uri.well_formed else "NOT WELL-FORMED", style="bold red")


def _rows(said: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [
        ("variant", said["variant"]),
        ("destination", said["destination"]),
        *((f"parameter {visible(name)}", value) for name, value in said["parameters"]),
        ("requestURI", said["request_uri"]),
    ]
