"""`soapjms serve`: serve from the command line, in one process or several."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Final, NoReturn

import click

from brokers.errors import BrokerError
from soapjms.cli.commands import AT_LEAST_ONE, F, Range, grouped
from soapjms.cli.configuration import OUR_LOGS, is_debug, show_debug
from soapjms.cli.status import FAILED_STATUS, USAGE_STATUS
from soapjms.cli.terminal import ANNOUNCED_OPTION, announce
from soapjms.cli.wsdl import settings
from soapjms.protocol.errors import StoreError, UsageError
from soapjms.protocol.names import PROFILES
from soapjms.protocol.uri import visible
from soapjms.serving.runner import ServeOptions, in_one_line
from soapjms.serving.status_page import START_TIMEOUT
from soapjms.serving.supervisor import serve


def _option(name: str, text: str, variable: str = "", **rest: Any) -> Callable[[F], F]:
    """Make an option that an environment variable may give too: SOAPJMS_ and its name, unless it says another."""
    variable = f"SOAPJMS_{variable or name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, help=text, envvar=variable, show_envvar=True, **rest)


serving_options: Final = grouped(
    _option(
        "--connection", "URL of the broker. With a password, better in the environment.", required=True, metavar="URL"
    ),
    _option("--uri", "Where requests come to: a jms: URI.  [default: the port of a typed service]", metavar="URI"),
    _option("--wsdl", "Or a WSDL that says it.", metavar="FILE"),
    _option(
        "--port", "Port of the WSDL, or SERVICE/PORT.  [default: the only SOAP/JMS port]", "WSDL_PORT", metavar="PORT"
    ),
    _option("--names", "JNDI names: jndi.properties, or a .toml file.", metavar="FILE"),
    click.option(
        "--set",
        "properties",
        multiple=True,
        callback=settings,
        metavar="NAME=VALUE",
        help="A binding property; repeatable.",
    ),
    _option("--profile", "Edition of the specification.", type=click.Choice(sorted(PROFILES))),
    _option("--processes", "Processes, as competing consumers.", type=AT_LEAST_ONE, default=1, show_default=True),
    _option("--workers", "Requests worked on at a time in each.", type=AT_LEAST_ONE, default=4, show_default=True),
    _option("--prefetch", "Requests handed to a worker ahead.", type=AT_LEAST_ONE, default=1, show_default=True),
    _option(
        "--transactions/--no-transactions",
        "Accept requests and send answers in transactions of the broker, where it has them.",
        "TRANSACTIONS",
        default=True,
        show_default=True,
    ),
    _option("--store", "Remembers what was finished, for all processes of this machine.", metavar="FILE"),
    _option(
        "--lease",
        "Seconds after which a process that was killed counts as dead.",
        default=5.0,
        show_default=True,
        type=Range(min=0.1, max=3600),
    ),
    _option(
        "--transaction-timeout",
        "Seconds that a function may have its request.transaction; then it is rolled back.",
        default=30.0,
        show_default=True,
        type=Range(min=0.1, max=86400),
    ),
    _option(
        "--max-deliveries", "After so many a request is a dead letter.", type=AT_LEAST_ONE, default=6, show_default=True
    ),
    _option(
        "--stalled-after",
        "Seconds after which it is not ready where all workers are at work and none finished anything.",
        default=60.0,
        show_default=True,
        type=Range(min=0.1, max=86400),
    ),
    _option("--dead-letters", "Queue for dead letters.  [default: the broker's own]", metavar="QUEUE"),
    _option(
        "--reply-topic", "Topic that answers may go to; repeatable.  [default: none]", multiple=True, metavar="NAME"
    ),
    _option("--reply-queue", "Queue that they may go to; repeatable.  [default: any]", multiple=True, metavar="NAME"),
    _option(
        "--middleware",
        "Function around the service; repeatable, the outermost first.",
        multiple=True,
        metavar="MODULE:NAME",
    ),
    _option("--verify", "Function that says who sent a request; see docs/security.md.", metavar="MODULE:NAME"),
    _option(
        "--durable",
        "Durable subscription to the topic served; needs clientId=NAME in the URL. soapjms unsubscribe ends it.",
        metavar="NAME",
    ),
    _option(
        "--grace",
        "Seconds to finish what is under way.",
        type=Range(min=0, max=86400),
        default=30.0,
        show_default=True,
    ),
    _option(
        "--start-timeout",
        "With several processes: seconds after which one that does not serve yet counts as hung.",
        default=START_TIMEOUT,
        show_default=True,
        type=Range(min=1, max=86400),
    ),
    _option("--health", "Listen there for GET /live and /ready.", metavar="HOST:PORT"),
    _option("--metrics", "Listen there for GET /metrics of Prometheus; may be where --health is.", metavar="HOST:PORT"),
    _option("--traces", "Trace requests with OpenTelemetry, as the module sets it up.", is_flag=True),
    _option(
        "--log-level",
        "What is logged on standard error.",
        default="INFO",
        show_default=True,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    ),
    ANNOUNCED_OPTION,
)
"""What says how something is served; `serve_until_told` takes them."""


@click.command("serve")
@click.argument("target", metavar="MODULE:SERVICE")
@serving_options
def command(target: str, **options: Any) -> None:
    """Serve the soapjms.Service that SERVICE is called in MODULE, which is found in the current folder too.

    Ends at SIGTERM or Ctrl-C, once what is under way is finished. A process of several that ends is started again.

    Exit status: 0 ended as told, 1 something was left undone or failed, 2 usage, 130 interrupted a second time.
    """
    serve_until_told(target, **options)


def serve_until_told(target: str, *, log_level: str, as_json: bool, **options: Any) -> NoReturn:
    """Serve what `target` names until a signal says to end, and exit with the status; see `ServeOptions`."""
    if options["uri"] is not None and options["wsdl"] is not None:
        raise click.UsageError("give either --uri or --wsdl")
    if options["port"] is not None and options["wsdl"] is None:
        raise click.UsageError("--port is for a WSDL; a URI has no ports")
    if options["durable"] is not None and options["processes"] > 1:
        raise click.UsageError("--durable needs --processes 1: one connection at a time has its client id")
    log_to_terminal(log_level, debug=is_debug())
    try:
        is_well = serve(
            ServeOptions(target=target, **options),
            announce=partial(announce, as_json=as_json),
            initializer=partial(_begin_process, log_level, debug=is_debug()),
        )
    except (UsageError, BrokerError, StoreError) as error:
        click.echo(f"Error: {visible(str(error))}", err=True)
        sys.exit(USAGE_STATUS if isinstance(error, UsageError) else FAILED_STATUS)
    sys.exit(0 if is_well else FAILED_STATUS)


def _begin_process(log_level: str, *, debug: bool) -> None:
    """Set up the log of a process that was started."""
    if debug:
        show_debug()
    log_to_terminal(log_level, debug=debug)


# The log


class OneLine(logging.Formatter):
    """Says in the line itself what an error was and where it came from, in the place of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record without its traceback."""
        if not record.exc_info or record.exc_info[1] is None:
            return super().format(record)
        plain = copy(record)
        plain.exc_info = plain.exc_text = None
        error = in_one_line(record.exc_info[1])
        return f"{super().format(plain)}: {error}; --log-level DEBUG shows how it came there"


def log_to_terminal(level: str, *, debug: bool = False) -> None:
    """Write the log to standard error, unless the service's module does something else about it.

    Tracebacks are for those who ask for the level DEBUG. With `debug` our own log is there already: see `show_debug`.
    """
    form = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(form) if level == "DEBUG" else OneLine(form))
    if debug:
        handler.addFilter(lambda record: record.name.partition(".")[0] not in OUR_LOGS)
    logging.basicConfig(level=level, handlers=[handler])
