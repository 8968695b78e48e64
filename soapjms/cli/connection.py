"""Shared parts of commands that talk to a broker: the options, the connection, the service's address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from brokers.adapter.redelivery import MAX_DELIVERIES
from brokers.connection import Connection
from brokers.errors import BrokerError
from brokers.naming import Names, NamingError
from brokers.redaction import shown
from soapjms.cli.commands import SECONDS, F, grouped
from soapjms.cli.options import ALLOW_OPTION, check_place, names_option, port_in, port_option, uri_option, wsdl_option
from soapjms.client.client import DEFAULT_TIMEOUT
from soapjms.destinations import connect_uri, connect_url
from soapjms.protocol.wsdl import Port
from soapjms.wsdl import read_wsdl

CONNECTION_OPTION: Final = click.option(
    "--connection", metavar="URL", help="URL of the broker. With a password, better in SOAPJMS_CONNECTION."
)
TIMEOUT_OPTION: Final = click.option(
    "--timeout", type=SECONDS, default=DEFAULT_TIMEOUT, show_default=True,
    metavar="SECONDS", help="How long to wait for the connection, and then for an answer.",
)  # fmt: skip


def place_options(function: F, default_port: str = "the only SOAP/JMS port") -> F:
    """Add the options for a service's address; `place_of` and `read_names` take their values."""
    return grouped(uri_option(), wsdl_option(), port_option(default_port), ALLOW_OPTION, names_option())(function)


def place_of(uri: str | None, wsdl: str | None, port: str | None, allow: tuple[str, ...] = ()) -> str | Port:
    """Return the service's address: the URI, or a port of the WSDL.

    Raises:
        click.UsageError: both or neither is given, or --port with a URI.
        InvalidWsdlError, UsageError: the WSDL or the port cannot be used.
    """
    check_place(uri, wsdl, port)
    if wsdl is not None:
        return port_in(read_wsdl(wsdl, allow=allow), port)
    assert uri is not None
    return uri


def read_names(path: str | None) -> Names | None:
    """Read JNDI names: from a `.toml` file as TOML, from any other as `jndi.properties`.

    Raises:
        OSError, NamingError: the file cannot be read.
    """
    return None if path is None else Names.from_file(path)


def check_reachable(
    url: str | None,
    *,
    missing: str = "service",
    others: str = "soapjms serve",
    instead: str = "call from the program that serves, with soapjms.Client",
) -> None:
    """Refuse an embedded broker that nobody else in this process uses: no other program can be there.

    Args:
        url: the URL of the broker, or None.
        missing: what the command needs at the broker.
        others: what connects to the same broker.
        instead: what works with an embedded broker.

    Raises:
        click.UsageError: the URL names such a broker.
    """
    if url is None or url.partition(":")[0].lower() != "embedded" or _is_running(url):
        return
    raise click.UsageError(
        f"--connection {shown(url)} is a broker inside of this process, where no {missing} is. Run a broker, such as "
        f"soapjms broker --amqp localhost:5672, and give --connection amqp://localhost:5672 here and to {others}; "
        f"or {instead}"
    )


def _is_running(url: str) -> bool:
    """Say whether the embedded broker that a URL names is running: only the call that starts it may have options."""
    from brokers import embedded

    try:
        embedded.connect(url, max_deliveries=MAX_DELIVERIES).close()
    except (ValueError, BrokerError):  # with the latter the URL is wrong, which connecting to it will report
        return True
    return False


def opened(
    url: str | None, place: str | Port, names: Names | None, properties: Mapping[str, Any], timeout: float
) -> Connection:
    """Connect to the URL or, without one, to the broker that the JNDI names lead to.

    Raises:
        click.UsageError: neither is given, or the names do not allow the broker.
        UsageError, BrokerError: the URL cannot be read, or no broker answers. The error text repeats no password.
    """
    if url is not None:
        return connect_url(url, timeout)
    if names is None:
        raise click.UsageError(
            "give --connection, such as stomp://USER:PASSWORD@HOST:61613, or set SOAPJMS_CONNECTION; or --names"
        )
    try:
        return connect_uri(place, names, properties=properties, timeout=timeout)
    except NamingError as error:
        raise click.UsageError(
            f"{error}. Give --connection URL, or --names a .toml file with [allowed_brokers]"
        ) from error
