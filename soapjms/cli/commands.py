"""The group of commands, and the table that says which module holds each.

What several commands make their options of is here too: finite numbers, as `nan` and `inf` are numbers to Python, times
that can be waited for, groups of options. A command itself belongs in a module of its own, which is imported when it is
run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from math import isfinite
from traceback import format_exception
from typing import Any, Final, NamedTuple, TypeVar

import click

from brokers.errors import BrokerError
from brokers.redaction import without_logins
from soapjms.cli.configuration import CONFIG_VARIABLE, DEBUG, DebugOption, equip, read_defaults, unknown_variables
from soapjms.cli.status import INTERRUPTED_STATUS, UNKNOWN_STATUS, USAGE_STATUS
from soapjms.cli.trust import UNNAMED
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, SoapJmsError
from soapjms.protocol.uri import visible

F = TypeVar("F", bound=Callable[..., Any])


class CommandEntry(NamedTuple):
    """Where a command is, and the line that --help says about it without importing it."""

    module: str
    help: str


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    "bridge": CommandEntry(
        "soapjms.cli.bridge", "Let HTTP clients reach services over JMS; serve a WSGI application over JMS."
    ),
    "broker": CommandEntry("soapjms.cli.broker", "Run the embedded broker for AMQP clients, or an SMQP server."),
    "call": CommandEntry("soapjms.cli.call", "Call a service and print what it answers."),
    "capture": CommandEntry("soapjms.cli.capture", "Record what passes a broker, from outside."),
    "doctor": CommandEntry("soapjms.cli.doctor", "Look for what is in the way of a call."),
    "explain": CommandEntry("soapjms.cli.explain", "Say which binding properties count, and where each comes from."),
    "generate": CommandEntry("soapjms.cli.generate", "Write capture logs of any size, with breaches at known rates."),
    "replay": CommandEntry("soapjms.cli.replay", "Judge captured traffic for conformance, on Spark."),
    "report": CommandEntry("soapjms.cli.report", "Make the report of a replay again, or compare two replays."),
    "serve": CommandEntry("soapjms.cli.serve", "Answer requests with the functions of a service, until told to end."),
    "unsubscribe": CommandEntry("soapjms.cli.unsubscribe", "End a durable subscription for good."),
    "uri": CommandEntry("soapjms.cli.uri", "Say what a jms: URI means and what is wrong with it."),
    "wsdl": CommandEntry("soapjms.cli.wsdl", "Say what a WSDL means for SOAP/JMS, check it, add a port to it."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module when that command is run, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands by name."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command: the attribute `command` of its module."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        try:
            command = import_module(entry.module).command
        except ImportError as error:
            if error.name is None:  # one of ours, which says what to do
                raise click.UsageError(str(error)) from None
            package = (error.name or "").split(".")[0]
            if package in ("soapjms", "brokers"):
                raise
            raise click.UsageError(f"{package} is not installed. Type: pip install 'soapjms[all]'") from None
        assert isinstance(command, click.Command)
        return equip(command, (cmd_name,))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; of one that is not there say which was perhaps meant."""
        near = [] if args[0] in COMMANDS else get_close_matches(args[0], COMMANDS, n=1)
        if near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def all_commands(self, ctx: click.Context) -> Iterator[click.Command]:
        """Import every command whose libraries are installed."""
        for name in COMMANDS:
            with suppress(click.UsageError):
                command = self.get_command(ctx, name)
                assert command is not None, "it is in the table"
                yield command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it with a status of its own, as 1 says that something was found."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED_STATUS)
        except click.ClickException as error:
            raise _without_logins(error) from None
        except (BrokenPipeError, click.exceptions.Exit, click.Abort):  # click has its ways
            raise
        except Exception as error:
            click.echo(_traceback(error) if DEBUG in ctx.meta else f"Error: {_message(error)}", err=True)
            ctx.exit(UNKNOWN_STATUS if isinstance(error, CallFailedError) and not error.is_known else USAGE_STATUS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their help from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in sorted(COMMANDS.items())])


def _without_logins(error: click.ClickException) -> click.ClickException:
    """Return what click says of a word that it did not expect, which may be a URL with a password, without that."""
    said = error.format_message()
    text = without_logins(said)
    return error if text == said else click.UsageError(text, getattr(error, "ctx", None))


def _message(error: Exception) -> str:
    """Say what went wrong in one line; what nobody expected with its kind, and how to see where."""
    text = visible(without_logins(str(error)))
    if isinstance(error, CallTimeoutError):
        return f"{text}; soapjms doctor --uri URI sees whether anybody serves there"
    if isinstance(error, SoapJmsError | BrokerError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text}\nThis is a mistake in soapjms. With --debug it shows where."


def _traceback(error: Exception) -> str:
    return "\n".join(visible(without_logins(line)) for line in "".join(format_exception(error)).splitlines())


def _version() -> str:
    try:
        return version("soapjms")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="soapjms")
@click.option(
    "--config", metavar="FILE", envvar=CONFIG_VARIABLE,
    help="Values for options.  [default: soapjms.toml of the working directory, if it is yours]",
)  # fmt: skip
@click.pass_context
def soapjms(ctx: click.Context, config: str | None) -> None:
    """SOAP over JMS 1.0 for Python: call, serve, capture, and replay for conformance.

    An option is given as a flag, else as a variable SOAPJMS_COMMAND_OPTION, else in a TOML file.
    """
    group = ctx.command
    assert isinstance(group, LazyGroup)
    assert ctx.invoked_subcommand is not None
    command = group.get_command(ctx, ctx.invoked_subcommand)
    assert command is not None
    for line in unknown_variables(os.environ, chain((command,), group.all_commands(ctx))):
        click.echo(f"Warning: {visible(line)}", err=True)
    ctx.meta[UNNAMED] = config is None
    ctx.default_map = dict(read_defaults(config, command, ctx.invoked_subcommand, list(COMMANDS)))


soapjms.params.append(DebugOption())


MAX_WAIT_SECONDS: Final = 365 * 86400
"""Seconds that a command may wait for anything: a year."""


class Range(click.FloatRange):
    """A range of finite numbers. NaN is smaller than no bound and larger than none, so click lets it through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


SECONDS: Final = Range(min=0, max=MAX_WAIT_SECONDS, min_open=True)
AT_LEAST_ONE: Final = click.IntRange(min=1)


def grouped(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Make a decorator that gives a command several options, in their order."""

    def add(function: F) -> F:
        for each in reversed(options):
            function = each(function)
        return function

    return add
