"""`soapjms serve`: serve from the command line, in one process or several."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Final, NoReturn

import click

from brokers.adapter.redelivery import MAX_DELIVERIES
from brokers.errors import BrokerError
from brokers.redaction import visible
from soapjms.cli.commands import AT_LEAST_ONE, F, Range, grouped
from soapjms.cli.configuration import OUR_LOGS, is_debug, show_debug
from soapjms.cli.connection import check_reachable
from soapjms.cli.options import (
    ALLOW_OPTION,
    check_place,
    names_option,
    port_option,
    set_option,
    uri_option,
    wsdl_option,
)
from soapjms.cli.paths import OutputFile, error_text
from soapjms.cli.status import FAILED_STATUS, USAGE_STATUS
from soapjms.cli.terminal import ANNOUNCED_OPTION, announce
from soapjms.protocol.errors import StoreError, UsageError
from soapjms.protocol.names import PROFILES
from soapjms.serving.runner import ServeOptions, in_one_line
from soapjms.serving.status_page import START_TIMEOUT
from soapjms.serving.supervisor import serve

LOG_FORMAT_HELP: Final = "Log lines for people, or a JSON object a line with the fields of docs/logging.md."

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _variable(name: str) -> dict[str, Any]:
    """Return the arguments that give an option an environment variable: SOAPJMS_ and `name`."""
    return {"envvar": f"SOAPJMS_{name}", "show_envvar": True}


def _option(name: str, text: str, variable: str = "", **rest: Any) -> Callable[[F], F]:
    """Make an option with an environment variable, by default of the option's name."""
    variable = variable or name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, help=text, **_variable(variable), **rest)


serving_options: Final = grouped(
    _option(
        "--connection", "URL of the broker. With a password, better in the environment.", required=True, metavar="URL"
    ),
    uri_option("the port of a typed service", **_variable("URI")),
    wsdl_option(**_variable("WSDL")),
    port_option(**_variable("WSDL_PORT")),
    ALLOW_OPTION,
    names_option(**_variable("NAMES")),
    set_option(),
    _option("--profile", "Edition of the specification.", type=click.Choice(sorted(PROFILES))),
    _option("--processes", "Processes, as competing consumers.", type=AT_LEAST_ONE, default=1, show_default=True),
    _option("--workers", "Requests at a time in each process.", type=AT_LEAST_ONE, default=4, show_default=True),
    _option("--prefetch", "Requests delivered to a worker ahead.", type=AT_LEAST_ONE, default=1, show_default=True),
    _option(
        "--transactions/--no-transactions",
        "Accept requests and send answers in transactions of the broker, if it supports them.",
        "TRANSACTIONS",
        default=True,
        show_default=True,
    ),
    _option(
        "--store",
        "File that remembers finished requests, for all processes of this machine.",
        metavar="FILE",
        type=OutputFile("a file for the store"),
    ),
    _option(
        "--lease",
        "Seconds after which a killed process counts as dead.",
        default=5.0,
        show_default=True,
        type=Range(min=0.1, max=3600),
    ),
    _option(
        "--transaction-timeout",
        "Seconds after which the request.transaction of a function is rolled back.",
        default=30.0,
        show_default=True,
        type=Range(min=0.1, max=86400),
    ),
    _option(
        "--max-deliveries",
        "Deliveries after which a request becomes a dead letter.",
        type=AT_LEAST_ONE,
        default=MAX_DELIVERIES,
        show_default=True,
    ),
    _option(
        "--stalled-after",
        "Seconds after which the service is not ready if all workers are busy and none has finished a request.",
        default=60.0,
        show_default=True,
        type=Range(min=0.1, max=86400),
    ),
    _option("--dead-letters", "Queue for dead letters.  [default: the broker's own]", metavar="QUEUE"),
    _option(
        "--reply-topic", "Topic that answers may go to; repeatable.  [default: none]", multiple=True, metavar="NAME"
    ),
    _option(
        "--reply-queue", "Queue that answers may go to; repeatable.  [default: any]", multiple=True, metavar="NAME"
    ),
    _option(
        "--middleware",
        "Function around the service; repeatable, the outermost first.",
        multiple=True,
        metavar="MODULE:NAME",
    ),
    _option("--verify", "Function that identifies the sender; see docs/security.md.", metavar="MODULE:NAME"),
    _option(
        "--durable",
        "Durable subscription to the served topic; needs clientId=… in the URL. soapjms unsubscribe deletes it.",
        metavar="NAME",
    ),
    _option(
        "--grace",
        "Seconds to finish requests that are under way.",
        type=Range(min=0, max=86400),
        default=30.0,
        show_default=True,
    ),
    _option(
        "--start-timeout",
        "With several processes: seconds after which a process that does not serve yet counts as hung.",
        default=START_TIMEOUT,
        show_default=True,
        type=Range(min=1, max=86400),
    ),
    _option("--health", "Listen there for GET /live and /ready.", metavar="HOST:PORT"),
    _option("--metrics", "Listen there for Prometheus's GET /metrics; may equal --health.", metavar="HOST:PORT"),
    _option("--traces", "Trace requests with OpenTelemetry, which the module sets up.", is_flag=True),
    _option(
        "--log-level",
        "Lowest level that is logged to standard error.",
        default="INFO",
        show_default=True,
        type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    ),
    _option("--log-format", LOG_FORMAT_HELP, default="text", show_default=True, type=click.Choice(["text", "json"])),
    ANNOUNCED_OPTION,
)
"""The options of commands that serve; `serve_until_told` takes their values."""


@click.command("serve")
@click.argument("target", metavar="MODULE:SERVICE")
@serving_options
def command(target: str, **options: Any) -> None:
    """Serve the soapjms.Service SERVICE of MODULE; modules in the current folder are found too.

    Ends at SIGTERM or Ctrl-C, once requests under way are finished. With several processes, one that ends is restarted.

    Exit status: 0 ended as told, 1 requests were left unfinished or failed, or the broker cannot be reached or refuses
    the login, 2 usage, 130 interrupted a second time.
    """
    serve_until_told(target, **options)


def serve_until_told(target: str, *, log_level: str, log_format: str, as_json: bool, **options: Any) -> NoReturn:
    """Serve the target until a signal says to stop, and exit with the status; see `ServeOptions`."""
    check_place(options["uri"], options["wsdl"], options["port"], is_required=False)
    if options["durable"] is not None and options["processes"] > 1:
        raise click.UsageError("--durable needs --processes 1: only one connection at a time can have its client id")
    check_reachable(
        options["connection"],
        missing="client",
        others="clients",
        instead="serve from the program that calls, with soapjms.Dispatcher",
    )
    log_to_terminal(log_level, log_format, debug=is_debug())
    try:
        is_well = serve(
            ServeOptions(target=target, **options),
            announce=partial(announce, as_json=as_json),
            initializer=partial(_begin_process, log_level, log_format, debug=is_debug()),
        )
    except (UsageError, BrokerError, StoreError) as error:
        click.echo(f"Error: {error_text(error)}", err=True)
        sys.exit(USAGE_STATUS if isinstance(error, UsageError) else FAILED_STATUS)
    sys.exit(0 if is_well else FAILED_STATUS)


def _begin_process(log_level: str, log_format: str, *, debug: bool) -> None:
    """Set up the log of a new process."""
    if debug:
        show_debug()
    log_to_terminal(log_level, log_format, debug=debug)


# The log


class OneLine(logging.Formatter):
    """Describes an error and its place in the log line itself, instead of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record without its traceback."""
        if not record.exc_info or record.exc_info[1] is None:
            return super().format(record)
        plain = copy(record)
        plain.exc_info = plain.exc_text = None
        error = in_one_line(record.exc_info[1])
        return f"{super().format(plain)}: {error}; --log-level DEBUG shows the traceback"


class IndentedTraceback(logging.Formatter):
    """Writes tracebacks with escapes and indented, so that no text of an error passes for a line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; the traceback that another formatter wrote is not used."""
        own = copy(record)
        own.exc_text = None
        return super().format(own)

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the name in the base class
        """Write a traceback."""
        return "\n".join(f"  {visible(line)}" for line in super().formatException(ei).splitlines())


class JsonLine(logging.Formatter):
    """Writes a record as one line of JSON, with its event and fields, and its traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; a value that JSON does not know is written as text."""
        members = {
            "time": self.formatTime(record),
            "process": record.process,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info and record.exc_info[1] is not None:
            members["traceback"] = self.formatException(record.exc_info)
        return json.dumps(members, default=str)


def log_to_terminal(level: str, log_format: str, *, debug: bool = False) -> None:
    """Write the log to standard error; the module of the service may replace that, as `basicConfig(force=True)` does.

    In the format text only the level DEBUG shows tracebacks. With `debug` our own log is shown already: see
    `show_debug`.
    """
    form = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonLine())
    else:
        handler.setFormatter(IndentedTraceback(form) if level == "DEBUG" else OneLine(form))
    if debug:
        handler.addFilter(lambda record: record.name.partition(".")[0] not in OUR_LOGS)
    logging.basicConfig(level=level, handlers=[handler])
