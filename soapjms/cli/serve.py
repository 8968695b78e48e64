"""`soapjms serve`: serve from the command line, in one process or several."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event
from typing import Any, Final, NoReturn, TypeVar

import click

from soapjms.cli.commands import Range
from soapjms.cli.configuration import is_debug
from soapjms.cli.runner import Serving, ending, log_to_terminal, run
from soapjms.cli.status_page import START_TIMEOUT, Answer, Board, Measuring, Page, health_answers, measuring
from soapjms.cli.supervisor import Supervisor
from soapjms.cli.terminal import ANNOUNCED_OPTION, announce
from soapjms.cli.wsdl import refusing, settings
from soapjms.protocol.names import PROFILES

AT_LEAST_ONE: Final = click.IntRange(min=1)

F = TypeVar("F", bound=Callable[..., Any])


def _option(name: str, text: str, variable: str = "", **rest: Any) -> Callable[[F], F]:
    """Make an option that an environment variable may give too: SOAPJMS_ and its name, unless it says another."""
    variable = f"SOAPJMS_{variable or name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, help=text, envvar=variable, show_envvar=True, **rest)


SERVE_OPTIONS: Final = (
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
"""What says how something is served; `serving_options` gives them to a command."""


def serving_options(function: F) -> F:
    """Add them; `serve_until_told` takes them."""
    for each in reversed(SERVE_OPTIONS):
        function = each(function)
    return function


@click.command("serve")
@click.argument("target", metavar="MODULE:SERVICE")
@serving_options
def command(target: str, **options: Any) -> None:
    """Serve the soapjms.Service that SERVICE is called in MODULE, which is found in the current folder too.

    Ends at SIGTERM or Ctrl-C, once what is under way is finished. A process of several that ends is started again.

    Exit status: 0 ended as told, 1 something was left undone or failed, 2 usage, 130 interrupted a second time.
    """
    serve_until_told(target, **options)


def serve_until_told(
    target: str, *, processes: int, health: str | None, metrics: str | None, start_timeout: float, **options: Any
) -> NoReturn:
    """Serve what `target` names until a signal says to end, and exit with the status; see `Serving` for the options."""
    if options["uri"] is not None and options["wsdl"] is not None:
        raise click.UsageError("give either --uri or --wsdl")
    if options["port"] is not None and options["wsdl"] is None:
        raise click.UsageError("--port is for a WSDL; a URI has no ports")
    if options["durable"] is not None and processes > 1:
        raise click.UsageError("--durable needs --processes 1: one connection at a time has its client id")
    serving = Serving(target=target, metrics=metrics is not None, debug=is_debug(), **options)
    board, stop = Board(start_timeout), Event()
    log_to_terminal(serving.log_level, debug=serving.debug)
    with ExitStack() as stack:
        with refusing():
            measures = None if metrics is None else stack.enter_context(measuring(processes))
            for address, answers in answers_at(health, board, metrics, measures).items():
                page = stack.enter_context(Page(address, answers))
                what = "metrics" if address != health else "health" if address != metrics else "health and metrics"
                said = {"telling": what, "port": page.port, "paths": [*answers]} if serving.as_json else None
                announce(f"{what} at port {page.port}: {', '.join(answers)}", said)
        stack.enter_context(ending(stop))
        if processes > 1:
            status = Supervisor(serving, processes, board, lambda pid: forget(pid, board, measures)).run(stop)
        else:
            status = run(serving, stop, lambda found: board.note(os.getpid(), found))
    sys.exit(status)


def answers_at(
    health: str | None, board: Board, metrics: str | None, measures: Measuring | None
) -> dict[str, dict[str, Answer]]:
    """Return what is to be told where: by address, by path."""
    found: dict[str, dict[str, Answer]] = {}
    if health is not None:
        found[health] = {**health_answers(board)}
    if metrics is not None and measures is not None:
        found.setdefault(metrics, {})["/metrics"] = lambda: measures.tell(board.hung())
    return found


def forget(pid: int, board: Board, measures: Measuring | None) -> None:
    """Forget a process that has ended, but for what it counted."""
    board.forget(pid)
    if measures is not None:
        measures.forget(pid)
