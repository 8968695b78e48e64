"""Options that several commands have, each defined once, and the checks of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from soapjms.cli.commands import F
from soapjms.cli.paths import WSDL_FILE, InputFile, InputFolder
from soapjms.protocol.wsdl import Description, Port

NAMES_FILE: Final = InputFile("a file of JNDI names: jndi.properties, or a .toml file")
JSON_OPTION: Final = click.option(
    "--json", "as_json", is_flag=True,
    help="Print one JSON object instead of tables; values that look like secrets are *** there, too.",
)  # fmt: skip
ALLOW_OPTION: Final = click.option(
    "--allow",
    multiple=True,
    metavar="DIR",
    type=InputFolder("a folder with imports of a WSDL"),
    help="Another folder that imports may be read from; repeatable.",
)


def uri_option(default: str = "", **rest: Any) -> Callable[[F], F]:
    """Make the option for the address of a service; `default` describes the address without it, if there is one."""
    text = "Address of the service: a jms: URI."
    return click.option("--uri", metavar="URI", help=f"{text}  [default: {default}]" if default else text, **rest)


def wsdl_option(**rest: Any) -> Callable[[F], F]:
    """Make the option for a WSDL that has the address of a service."""
    return click.option("--wsdl", metavar="FILE", type=WSDL_FILE, help="Or a WSDL with the address.", **rest)


def port_option(default: str = "the only SOAP/JMS port", **rest: Any) -> Callable[[F], F]:
    """Make the option for the port of a WSDL; `default` describes the port without it."""
    text = f"Port of the WSDL, or SERVICE/PORT.  [default: {default}]"
    return click.option("--port", metavar="PORT", help=text, **rest)


def names_option(**rest: Any) -> Callable[[F], F]:
    """Make the option for a file of JNDI names."""
    return click.option(
        "--names", metavar="FILE", type=NAMES_FILE, help="JNDI names: jndi.properties, or a .toml file.", **rest
    )


def set_option(
    text: str = "A binding property; overrides URI and WSDL; repeatable.", metavar: str = "NAME=VALUE"
) -> Callable[[F], F]:
    """Make the option for binding properties; its values become the argument `properties`, a dict.

    Args:
        text: the help text.
        metavar: form of a value, as the help shows it.
    """
    read = named_values("a property must be NAME=VALUE, such as priority=7")
    return click.option("--set", "properties", multiple=True, callback=read, metavar=metavar, help=text)


def named_values(form: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    """Make a function that reads NAME=VALUE options; `form` says in the error what they must be."""

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in values:
            name, equals, value = each.partition("=")
            if not equals or not name.strip():
                raise click.BadParameter(f"{form}, got {each!r}")
            found[name.strip()] = value
        return found

    return read


def port_in(description: Description, name: str | None) -> Port:
    """Return a port of a WSDL, or the only one.

    Raises:
        UsageError: there is no such port, or more than one; the error lists the ports and names the option.
    """
    return description.port(name, option="--port SERVICE/PORT")


def ports_of(description: Description) -> list[str]:
    """Return the names of the SOAP/JMS ports of a WSDL, as --port takes them."""
    return [f"{each.service.name}/{each.name}" for each in description.ports if each.profile is not None]


def check_place(uri: str | None, wsdl: str | None, port: str | None, *, is_required: bool = True) -> None:
    """Check the values of the options for a service's address against each other.

    Args:
        uri: the URI, or None.
        wsdl: the WSDL, or None.
        port: the port of the WSDL, or None.
        is_required: whether the URI or the WSDL must be given.

    Raises:
        click.UsageError: both or, if required, neither is given; or a port without a WSDL.
    """
    if (uri is not None and wsdl is not None) or (is_required and uri is None and wsdl is None):
        raise click.UsageError("give either --uri or --wsdl")
    if port is not None and wsdl is None:
        raise click.UsageError("--port is for a WSDL; a URI has no ports")
