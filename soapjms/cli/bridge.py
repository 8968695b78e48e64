"""`soapjms bridge`: let HTTP clients reach services over JMS, and serve a WSGI application over JMS."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click

from brokers.connection import Connection, ConnectionState
from brokers.listeners.descriptors import raise_limit
from brokers.naming import Names
from soapjms.bridge.limits import MAX_BODY, MAX_CALLS, MAX_CONNECTIONS, MAX_HELD
from soapjms.bridge.wsdl import port_of
from soapjms.cli.commands import AT_LEAST_ONE, SECONDS, Range
from soapjms.cli.configuration import is_debug
from soapjms.cli.connection import CONNECTION_OPTION, check_reachable, opened, read_names
from soapjms.cli.options import ALLOW_OPTION, names_option, set_option
from soapjms.cli.paths import CERTIFICATE, KEY, WSDL_FILE
from soapjms.cli.serve import LOG_FORMAT_HELP, log_to_terminal, serve_until_told, serving_options
from soapjms.cli.status import FAILED_STATUS
from soapjms.cli.terminal import ANNOUNCED_OPTION, announce
from soapjms.cli.wsdl import refusing
from soapjms.client.client import DEFAULT_TIMEOUT
from soapjms.observing import Health
from soapjms.protocol.errors import InvalidWsdlError, PingFailedError, UsageError
from soapjms.protocol.names import PROFILES
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl import Port
from soapjms.serving.runner import PING_TIMEOUT, ending, watch
from soapjms.serving.status_page import Board, StatusPage, health_answers
from soapjms.wsdl import read_wsdl

if TYPE_CHECKING:  # these need the extra, which --help does not
    from soapjms.bridge.backend import Behind
    from soapjms.bridge.http import HttpBridge
    from soapjms.bridge.listener import Listener

BRIDGE_PROCESS_NUMBER: Final = 0
"""The process number under which a bridge, which has one process, reports its health."""


@click.group("bridge")
def command() -> None:
    """Bridges between SOAP over HTTP and SOAP over JMS."""


# HTTP at the front


def _by_path(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read [PATH=]VALUE options; without a path, a value is for the root."""
    found: dict[str, str] = {}
    for each in values:
        path, equals, value = each.partition("=")
        if not (equals and path.startswith("/")):
            path, value = "/", each
        path = path.rstrip("/") or "/"
        if path in found:
            raise click.BadParameter(f"{path} must be given only once; use another path, as in /bank={value}")
        found[path] = value
    return found


@command.command("http", short_help="Pass requests of HTTP clients on to services over JMS.")
@click.option("--listen", required=True, metavar="HOST:PORT", help="Address for HTTP clients; port 0 for any free one.")
@click.option(
    "--to", multiple=True, callback=_by_path, metavar="[PATH=]URI",
    help="Address of the service: a jms: URI; repeatable, with a path such as /bank for each.",
)  # fmt: skip
@click.option(
    "--wsdl", multiple=True, callback=_by_path, metavar="[PATH=]FILE[#PORT]",
    help="WSDL of the service, served at ?wsdl; names one-way operations and, without --to, the address; repeatable.",
)  # fmt: skip
@ALLOW_OPTION
@CONNECTION_OPTION
@names_option()
@click.option(
    "--timeout", type=SECONDS, default=DEFAULT_TIMEOUT, show_default=True,
    metavar="SECONDS", help="How long a call may take.",
)  # fmt: skip
@click.option("--one-way", multiple=True, metavar="ACTION|ELEMENT", help="A request without an answer; repeatable.")
@set_option()
@click.option(
    "--profile", type=click.Choice(sorted(PROFILES)), help="Edition of the specification.  [default: the WSDL's]"
)
@click.option(
    "--max-body", type=AT_LEAST_ONE, default=MAX_BODY, show_default=True, metavar="OCTETS",
    help="Maximum size of a request.",
)  # fmt: skip
@click.option("--max-calls", type=AT_LEAST_ONE, default=MAX_CALLS, show_default=True, help="Maximum calls at a time.")
@click.option(
    "--open", "is_open", is_flag=True,
    help="Listen also at addresses that other machines can reach: everybody there may call without a login.",
)  # fmt: skip
@click.option(
    "--max-connections", type=AT_LEAST_ONE, default=MAX_CONNECTIONS, show_default=True,
    help="Maximum connections at a time, half of them from one address.",
)  # fmt: skip
@click.option(
    "--max-held", type=AT_LEAST_ONE, default=MAX_HELD, show_default=True, metavar="OCTETS",
    help="Maximum size of unfinished requests and unread answers together; half of it for one address.",
)  # fmt: skip
@click.option("--public-url", metavar="URL", help="URL that clients use, for the WSDL.  [default: by their Host]")
@click.option("--cert", metavar="FILE", type=CERTIFICATE, help="Certificate with its chain, in PEM, for HTTPS.")
@click.option("--key", metavar="FILE", type=KEY, help="The certificate's key, in PEM, if it is in another file.")
@click.option("--health", metavar="HOST:PORT", help="Listen there for GET /live and /ready.")
@click.option(
    "--grace", type=Range(min=1, max=86400), default=30.0, show_default=True,
    help="Seconds to finish calls that are under way.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="WARNING", show_default=True,
    help="Lowest level that is logged to standard error.",
)  # fmt: skip
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help=LOG_FORMAT_HELP
)
@ANNOUNCED_OPTION
def http_command(
    listen: str,
    connection: str | None,
    names: str | None,
    cert: str | None,
    key: str | None,
    health: str | None,
    grace: float,
    is_open: bool,
    max_connections: int,
    log_level: str,
    log_format: str,
    as_json: bool,
    to: dict[str, str],
    wsdl: dict[str, str],
    allow: tuple[str, ...],
    **options: Any,
) -> None:
    """Listen for SOAP over HTTP, and pass each request on to a service over JMS.

    Ends at SIGTERM or Ctrl-C, once all calls under way are answered.

    Exit status: 0 ended as told, 1 calls were left unfinished, 2 usage, or the broker cannot be reached.
    """
    from soapjms.bridge.http import HttpBridge
    from soapjms.bridge.listener import Listener

    log_to_terminal(log_level, log_format, debug=is_debug())
    raise_limit()
    stop, behind, known = Event(), _behind(to, wsdl, allow), read_names(names)
    board = Board(stop=stop)
    with ExitStack() as stack:
        open_connection = stack.enter_context(_opened(connection, behind, known, options))
        bridge = stack.enter_context(HttpBridge(open_connection, behind, names=known, **options))
        listener = Listener(
            bridge, listen, grace=grace, certificate=cert, key=key, is_open=is_open, max_connections=max_connections
        )
        stack.callback(listener.stop)
        if health is not None:
            _tell_health(stack.enter_context(_status_page(health, board)), as_json)
        stack.enter_context(ending(stop))
        listener.start()
        for path, client in bridge.clients.items():
            _tell_path(f"{listener.url}{path}", client.endpoint.request_uri, as_json)
        health_of_all = partial(_health, open_connection, bridge, listener)
        dead = watch(health_of_all, stop, partial(board.note, BRIDGE_PROCESS_NUMBER))
        if dead is not None:
            click.echo("Error: the bridge cannot go on: its connection or its listener has ended", err=True)
        is_finished = listener.stop()
    sys.exit(0 if dead is None and is_finished else FAILED_STATUS)


def _opened(
    url: str | None, behind: Mapping[str, Behind], known: Names | None, options: Mapping[str, Any]
) -> Connection:
    check_reachable(url, instead="bridge from the program that serves, with soapjms.bridge.http.HttpBridge")
    return opened(url, _place(behind), known, options["properties"], options["timeout"])


def _tell_path(url: str, uri: str, as_json: bool) -> None:
    announce(visible(f"bridging {url} to {uri}"), {"bridging": url, "to": uri}, as_json=as_json)


def _status_page(address: str, board: Board) -> StatusPage:
    with refusing():
        return StatusPage(address, health_answers(board))


def _tell_health(page: StatusPage, as_json: bool) -> None:
    members = {"telling": "health", "port": page.port, "paths": ["/live", "/ready"]}
    announce(f"health at port {page.port}: /live, /ready", members, as_json=as_json)


def _behind(to: Mapping[str, str], wsdl: Mapping[str, str], allow: tuple[str, ...]) -> dict[str, Behind]:
    """Combine URIs and WSDLs by path.

    Raises:
        click.UsageError: neither is given.
    """
    from soapjms.bridge.backend import Behind

    if not to and not wsdl:
        raise click.UsageError("give --to, such as jms:queue:bank, or --wsdl, or both")
    found = {}
    for path in dict.fromkeys((*to, *wsdl)):
        file, sharp, port = wsdl.get(path, "").rpartition("#")
        name = (file if sharp else port) or None
        found[path] = Behind(to.get(path), name and WSDL_FILE.checked(name, "--wsdl"), port if sharp else None, allow)
    return found


def _place(behind: Mapping[str, Behind]) -> str | Port:
    """Return the address of the first service, which names the broker if there is no --connection.

    Raises:
        InvalidWsdlError, UsageError: a WSDL cannot be read, or does not have exactly one such port.
    """
    ports = {path: _port(each.wsdl, each) for path, each in behind.items() if each.wsdl is not None}
    path, first = next(iter(behind.items()))
    return first.to if isinstance(first.to, str) else ports[path]


def _port(wsdl: str | Path, behind: Behind) -> Port:
    try:
        return port_of(read_wsdl(wsdl, allow=behind.allow), behind.port)
    except InvalidWsdlError:
        raise
    except UsageError as error:
        raise UsageError(f"{wsdl}: {error}; choose one with --wsdl {wsdl}#PORT") from error


def _health(connection: Connection, bridge: HttpBridge, listener: Listener) -> Health:
    """Return the health of the bridge; it is live as long as both of its sides are."""
    live = listener.is_running and connection.state is not ConnectionState.CLOSED
    problem, seconds = "", None
    try:
        seconds = next(iter(bridge.clients.values())).ping(PING_TIMEOUT) if live else None
    except (PingFailedError, UsageError) as error:
        problem = f"{error}"
    return Health(live, live and not problem, problem, bridge.under_way, seconds)


# WSGI at the back


@command.command("wsgi", short_help="Serve a WSGI application over JMS.")
@click.argument("target", metavar="MODULE:APP")
@click.option("--path", "wsgi_path", default="/", show_default=True, help="PATH_INFO that the application gets.")
@serving_options
def wsgi_command(target: str, **options: Any) -> None:
    """Serve the WSGI application APP of MODULE over JMS; modules in the current folder are found too.

    It gets each request as a POST of SOAP over HTTP. All else is as with `soapjms serve`.

    Exit status: 0 ended as told, 1 requests were left unfinished or failed, or the broker cannot be reached or refuses
    the login, 2 usage, 130 interrupted a second time.
    """
    serve_until_told(target, **options)
