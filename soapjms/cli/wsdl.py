"""`soapjms wsdl`: show the meaning of a WSDL for SOAP over JMS and its errors, add a port, and generate code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from soapjms.cli.options import ALLOW_OPTION, JSON_OPTION, port_in, port_option, set_option
from soapjms.cli.paths import WSDL_FILE, OutputFile, OutputFolder, error_text
from soapjms.cli.status import FINDINGS_STATUS, USAGE_STATUS
from soapjms.cli.terminal import announce, console
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, EDITIONS, SoapVersion
from soapjms.protocol.properties import Origin
from soapjms.protocol.uri import visible
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Description, Finding, Severity
from soapjms.protocol.wsdl.as_json import finding_members, members
from soapjms.protocol.wsdl.lint import lint
from soapjms.protocol.wsdl.write import LEVELS, NewPort
from soapjms.wsdl import add_jms_port, read_wsdl

if TYPE_CHECKING:
    from soapjms.codegen import GeneratedPackage

STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow"}


@contextmanager
def refusing() -> Iterator[None]:
    """Print an error in the user's arguments or files, and exit with the status for usage."""
    try:
        yield
    except (UsageError, OSError) as error:
        click.echo(f"Error: {error_text(error)}", err=True)
        sys.exit(USAGE_STATUS)


@click.group("wsdl")
def command() -> None:
    """Read, check and extend WSDL files, and generate code from them."""


# inspect


@command.command("inspect", short_help="List services, ports, effective properties and operations.")
@click.argument("file", metavar="FILE", type=WSDL_FILE)
@JSON_OPTION
@ALLOW_OPTION
def inspect_command(file: str, as_json: bool, allow: tuple[str, ...]) -> None:
    """List services, ports, effective properties with their origin, and operations.

    Exit status: 0, or 2 if FILE or one of its SOAP/JMS ports is invalid.
    """
    with refusing():
        described = read_wsdl(file, allow=allow)
        said = members(described)
    if as_json:
        click.echo(json.dumps(said))
    else:
        _show_ports(described, said["ports"], console())


def _show_ports(described: Description, ports: Sequence[dict[str, Any]], out: Console) -> None:
    for port, said in zip(described.ports, ports, strict=True):
        transport = None if port.binding is None else port.binding.transport
        other = f"not SOAP/JMS: {said.get('not_soap_jms', f'transport {transport}')}"
        edition = f"SOAP/JMS, {port.profile.name}" if port.profile else other
        title = Text.assemble((visible(f"{said['service']}/{said['port']}"), "bold"), " ", visible(edition))
        out.print(title, soft_wrap=True)
        parts = Table(show_header=False, box=None)
        parts.add_row("SOAP", said["soap_version"] or "-")
        parts.add_row("address", _text(said["address"]))
        for each in said["operations"]:
            action = "" if each["soap_action"] is None else f" soapAction {each['soap_action']}"
            parts.add_row("operation", _text(f"{each['name']} ({each['mep']}){action}"))
        out.print(parts)
        if said["properties"]:
            out.print(property_table(said["properties"]))


def property_table(properties: dict[str, dict[str, Any]]) -> Table:
    """Make a table of effective properties: name, value, origin and, if given, overridden values."""
    table = Table("property", "value", "origin", *(["overridden"] if _tells_overridden(properties) else []))
    for name, each in properties.items():
        cells = [_text(name), _text(each["value"]), _text(each["origin"])]
        if "overridden" in each:
            cells.append(_text(", ".join(f"{lost['value']} ({lost['origin']})" for lost in each["overridden"])))
        table.add_row(*cells)
    return table


def _tells_overridden(properties: dict[str, dict[str, Any]]) -> bool:
    return any("overridden" in each for each in properties.values())


def _text(value: Value | None) -> Text:
    written = str(value).lower() if isinstance(value, bool) else str(value)
    return Text("-" if value is None else visible(written), overflow="fold")


# lint


@command.command("lint", short_help="Report broken rules and contradictions.")
@click.argument("file", metavar="FILE", type=WSDL_FILE)
@JSON_OPTION
@ALLOW_OPTION
def lint_command(file: str, as_json: bool, allow: tuple[str, ...]) -> None:
    """Report broken rules and contradictions, and what to write instead.

    Exit status: 0 nothing found, 1 findings, 2 FILE cannot be read.
    """
    with refusing():
        found = lint(read_wsdl(file, allow=allow))
    if as_json:
        click.echo(json.dumps({"findings": [finding_members(each) for each in found]}))
    else:
        _show_findings(found, console())
    sys.exit(FINDINGS_STATUS if found else 0)


def _show_findings(found: Sequence[Finding], out: Console) -> None:
    for each in found:
        place, rest = visible(str(each.place)), visible(f"{each.text} ({each.rule}); {each.write}")
        line = Text.assemble(f"{place}: ", (str(each.severity), STYLES[each.severity]), f": {rest}")
        out.print(line, soft_wrap=True)
    if not found:
        out.print(Text("nothing found", style="green"))


# add-port


def _by_level(given: dict[str, str]) -> dict[Origin, dict[str, Value]]:
    """Group settings by the level before the first dot; settings without a level are the port's."""
    levels = {f"{level}.": level for level in LEVELS}
    sorted_: dict[Origin, dict[str, Value]] = {}
    for name, value in given.items():
        dotted = f"{name.partition('.')[0]}."
        level = levels.get(dotted, Origin.PORT)
        sorted_.setdefault(level, {})[name.removeprefix(dotted) if dotted in levels else name] = value
    return sorted_


@command.command("add-port", short_help="Add a SOAP/JMS port to a WSDL, with a binding if needed.")
@click.argument("file", metavar="FILE", type=WSDL_FILE)
@click.option("--to", required=True, metavar="URI", help="Address of the port: a jms: URI.")
@click.option(
    "--out",
    "-o",
    required=True,
    metavar="OUT",
    type=OutputFile("a file for the WSDL"),
    help="File to write; may be FILE.",
)
@click.option("--service", metavar="NAME", help="Service that gets the port.  [default: the only one]")
@click.option("--port", metavar="NAME", help="Name of the port.  [default: SERVICEJms]")
@click.option("--binding", metavar="NAME", help="A SOAP/JMS binding to use, or the name of the new one.")
@click.option("--interface", metavar="NAME", help="Port type or interface.  [default: that of the service's ports]")
@click.option("--soap", type=click.Choice([str(each) for each in SoapVersion]), help="SOAP version of a new binding.")
@click.option(
    "--profile", type=click.Choice(sorted(EDITIONS)), default=DEFAULT_PROFILE.name, show_default=True,
    help="Edition of the specification whose namespace is written.",
)  # fmt: skip
@set_option("A property, at the level port (default), service or binding; repeatable.", metavar="[LEVEL.]NAME=VALUE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@ALLOW_OPTION
def add_port_command(
    file: str, to: str, out: str, properties: dict[str, str], as_json: bool, allow: tuple[str, ...], **names: Any
) -> None:
    """Add a SOAP/JMS port to a WSDL, with a binding if needed. The rest of the file stays as it is.

    A property of the service applies to its other ports too; one that contradicts theirs is refused.

    Exit status: 0, or 2 if an argument or FILE is invalid; nothing is written then.
    """
    new = NewPort(
        address=to,
        service=names["service"],
        name=names["port"],
        binding=names["binding"],
        interface=names["interface"],
        soap_version=None if names["soap"] is None else SoapVersion(names["soap"]),
        profile=EDITIONS[names["profile"]],
        properties=_by_level(properties),
    )
    with refusing():
        described = add_jms_port(file, out, new, allow=allow)
    ports = [each.name for each in described.ports if each.profile is not None]
    text = f"{visible(out)}: {len(ports)} SOAP/JMS {'port' if len(ports) == 1 else 'ports'}"
    announce(text, {"file": out, "ports": ports}, as_json=as_json)


# generate


@command.command("generate", short_help="Write a Python package for a port of a WSDL.")
@click.argument("file", metavar="FILE", type=WSDL_FILE)
@click.option("--package", required=True, metavar="NAME", help="Name of the package, such as bank_client.")
@click.option(
    "--out", "-o", default=".", show_default="the current one", metavar="DIR",
    type=OutputFolder("a folder for the package"), help="Folder for the package.",
)  # fmt: skip
@port_option()
@click.option("--no-validate", is_flag=True, help="Accept schemas that are not valid XML Schema.")
@JSON_OPTION
@ALLOW_OPTION
def generate_command(
    file: str, package: str, out: str, port: str | None, no_validate: bool, as_json: bool, allow: tuple[str, ...]
) -> None:
    """Write a Python package for a port: dataclasses, a typed client, and a class for services.

    A package that was generated before is replaced as a whole; other files never are. The same FILE gives the same
    octets. Needs the extra codegen: pip install 'soapjms[codegen]'.

    Exit status: 0, or 2 if an argument or FILE is invalid; nothing is written then.
    """
    from soapjms.codegen import generate_package

    with refusing():
        port_in(read_wsdl(file, allow=allow), port)  # whose error names the option
        made = generate_package(file, package, out=out, port=port, allow=allow, validate=not no_validate)
    files = [str(made.path / each) for each in made.files]
    if as_json:
        click.echo(json.dumps({"package": package, "port": made.model.port.name, "files": files}))
        return
    click.echo("\n".join(visible(each) for each in files))
    click.echo(f"\nUse it like this, with what is sent in place of …:\n\n{_example(package, made)}")


def _example(package: str, made: GeneratedPackage) -> str:
    """Return three lines that use the package."""
    each = next(iter(made.model.operations), None)
    argument = f"{package}.{each.request}(…)" if each is not None and each.request else ""
    call = "..." if each is None else f"client.{each.method}({argument})"
    return (
        f"import soapjms, {package}\n"
        f'with soapjms.connect("stomp://localhost:61613") as connection:\n'
        f"    with {package}.{made.model.client}(connection) as client: print({call})"
    )
