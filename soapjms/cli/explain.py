"""`soapjms explain`: show the effective binding properties of a port or a URI, and where each comes from."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.text import Text

from soapjms.cli.options import ALLOW_OPTION, JSON_OPTION, check_place, port_in, port_option, set_option
from soapjms.cli.paths import WSDL_FILE, files
from soapjms.cli.terminal import console
from soapjms.cli.wsdl import property_table, refusing
from soapjms.protocol.properties import Effective
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl.as_json import overridden_members, property_members
from soapjms.protocol.wsdl.model import read_uri
from soapjms.wsdl import read_wsdl


@click.command("explain")
@click.argument("target", metavar="WSDL|URI", shell_complete=files)
@port_option()
@set_option("A property as a program would set it; overrides all else; repeatable.")
@JSON_OPTION
@ALLOW_OPTION
def command(target: str, port: str | None, properties: dict[str, str], as_json: bool, allow: tuple[str, ...]) -> None:
    """Print each effective binding property, its origin, and what it overrides.

    The origins, the strongest first: environment (--set), uri, port, service, binding, default. Values that look like
    secrets are shown as ***.

    Exit status: 0, or 2 if an argument is wrong or the WSDL or URI is invalid.
    """
    if target[:4].lower() == "jms:":
        check_place(target, None, port)
        with refusing():
            uri, effective = read_uri(target, properties)
    else:
        target = WSDL_FILE.checked(target, "WSDL|URI")
        with refusing():
            found = port_in(read_wsdl(target, allow=allow), port)
            uri, effective = found.uri(), found.effective(properties)
    said = members(effective)
    if as_json:
        click.echo(json.dumps({"uri": uri.redacted, "properties": said}))
        return
    out = console()
    out.print(Text(visible(uri.redacted), style="bold"), soft_wrap=True)
    out.print(property_table(said))


def members(effective: Effective) -> dict[str, dict[str, Any]]:
    """Return the JSON form: value, origin, and overridden values; a property that is ignored has no value."""
    said: dict[str, dict[str, Any]] = dict(property_members(effective))
    for name, each in said.items():
        each["overridden"] = overridden_members(effective, name)
    for name in (each for each in effective.overridden if each not in effective):
        said[name] = {"value": None, "origin": "ignored", "overridden": overridden_members(effective, name)}
    return said
