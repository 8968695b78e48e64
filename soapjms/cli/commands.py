"""The group of commands, and the table of their modules.

Shared parts of options are here too: ranges of finite numbers, since `nan` and `inf` are numbers to Python, waiting
times, names of destinations, and groups of options. Each command belongs in a module of its own, which is imported when
the command is run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from itertools import chain
from math import isfinite
from traceback import format_exception
from typing import Any, Final, NamedTuple, TypeVar

import click

from brokers.arguments import uri_problem
from brokers.redaction import visible, without_logins
from soapjms import __version__
from soapjms.cli.configuration import CONFIG_VARIABLE, DEBUG, DebugOption, equip, read_defaults, unknown_variables
from soapjms.cli.paths import InputFile, ParamType, error_text, files
from soapjms.cli.status import INTERRUPTED_STATUS, UNKNOWN_STATUS, USAGE_STATUS
from soapjms.cli.trust import UNNAMED
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, SoapJmsError

F = TypeVar("F", bound=Callable[..., Any])


class CommandEntry(NamedTuple):
    """The module of a command, and its line in --help, which is shown without importing the module."""

    module: str
    help: str


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    "bridge": CommandEntry("soapjms.cli.bridge", "Let HTTP clients reach JMS, or serve WSGI over JMS."),
    "broker": CommandEntry("soapjms.cli.broker", "Run the embedded broker for AMQP clients, or an SMQP server."),
    "call": CommandEntry("soapjms.cli.call", "Call a service and print its answer."),
    "capture": CommandEntry("soapjms.cli.capture", "Record the messages that pass a broker, from outside."),
    "doctor": CommandEntry("soapjms.cli.doctor", "Look for problems that would make a call fail."),
    "explain": CommandEntry("soapjms.cli.explain", "Show the effective binding properties and their origins."),
    "generate": CommandEntry("soapjms.cli.generate", "Write capture logs of any size, with violations at known rates."),
    "replay": CommandEntry("soapjms.cli.replay", "Judge captured traffic for conformance."),
    "report": CommandEntry("soapjms.cli.report", "Make the report of a replay again, or compare two replays."),
    "serve": CommandEntry("soapjms.cli.serve", "Answer requests with the functions of a service."),
    "unsubscribe": CommandEntry("soapjms.cli.unsubscribe", "Delete a durable subscription."),
    "uri": CommandEntry("soapjms.cli.uri", "Show the meaning of a jms: URI and its errors."),
    "wsdl": CommandEntry("soapjms.cli.wsdl", "Show, check and extend a WSDL, or generate code."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is run, so that --help is fast."""

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
            if (hint := _how_to_install(error)) is None:
                raise
            raise click.UsageError(hint) from None
        assert isinstance(command, click.Command)
        return equip(command, (cmd_name,))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; for an unknown name, suggest a similar one."""
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
        """Run a command. Ctrl-C ends it with a separate status, as 1 stands for findings."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED_STATUS)
        except click.ClickException as error:
            raise _harmless(error) from None
        except (BrokenPipeError, click.exceptions.Exit, click.Abort):  # handled by click
            raise
        except Exception as error:
            click.echo(_traceback(error) if DEBUG in ctx.meta else f"Error: {_message(error)}", err=True)
            ctx.exit(UNKNOWN_STATUS if isinstance(error, CallFailedError) and not error.is_known else USAGE_STATUS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their help from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in sorted(COMMANDS.items())])


def _harmless(error: click.ClickException) -> click.ClickException:
    """Return click's error without logins and control characters: it may quote an argument, or a line of a file."""
    said = error.format_message()
    text = "\n".join(map(visible, without_logins(said).split("\n")))
    return error if text == said else click.UsageError(text, getattr(error, "ctx", None))


def _message(error: Exception) -> str:
    """Describe an error in one line; for an unexpected one, add its class and how to see its place."""
    text = error_text(without_logins(str(error)))
    if isinstance(error, ImportError) and (hint := _how_to_install(error)) is not None:
        return hint
    if isinstance(error, CallTimeoutError):
        return f"{text}; soapjms doctor --uri URI says whether anything consumes there"
    if isinstance(error, SoapJmsError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text}\nThis is a bug in soapjms. --debug shows where it happened."


def _how_to_install(error: ImportError) -> str | None:
    """Say which extra installs a missing package, in one line; None if a module of our own is missing."""
    from soapjms.doctor.checks import EXTRAS

    if error.name is None or "pip install" in str(error):  # one of our own errors, which says what to do
        return str(error)
    package = error.name.partition(".")[0]
    if package in ("soapjms", "brokers"):
        return None
    extra = next((name for name, modules in EXTRAS.items() if package in modules), "all")
    return f"{package} is not installed. Type: pip install 'soapjms[{extra}]'"


def _traceback(error: Exception) -> str:
    return "\n".join(visible(without_logins(line)) for line in "".join(format_exception(error)).splitlines())


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"soapjms, version {__version__}")
        ctx.exit()


CONFIG_FILE: Final = InputFile("a TOML file with values for options")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option(
    "--config", metavar="FILE", envvar=CONFIG_VARIABLE, shell_complete=files,
    help="Values for options.  [default: soapjms.toml of the working directory, if it is yours]",
)  # fmt: skip
@click.pass_context
def soapjms(ctx: click.Context, config: str | None) -> None:
    """SOAP over JMS 1.0 for Python: call, serve, capture, and replay for conformance.

    An option's value comes from its flag, else from a variable SOAPJMS_COMMAND_OPTION, else from a TOML file.

    The pages that texts name as docs/… are in the folder soapjms/docs of the installed package.
    """
    if config is not None:  # not by the type of the option: an error there would leave --debug on for the process
        CONFIG_FILE.checked(config, "--config")
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
"""Maximum number of seconds in an option for a waiting time: a year."""


class Range(click.FloatRange):
    """A range of finite numbers. NaN is neither below nor above any bound, so click alone would accept it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


SECONDS: Final = Range(min=0, max=MAX_WAIT_SECONDS, min_open=True)
FILE_MEBIBYTES: Final = Range(min=0, max=1 << 30, min_open=True)
AT_LEAST_ONE: Final = click.IntRange(min=1)


class DestinationName(ParamType):
    """The name of a queue or topic; a `jms:` URI is refused."""

    name = "name"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is."""
        problem = uri_problem(value, self._kind)
        return value if problem is None else self.fail(problem, param, ctx)


QUEUE_NAME: Final = DestinationName("queue")
TOPIC_NAME: Final = DestinationName("topic")


def grouped(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Make a decorator that adds several options to a command, in order."""

    def add(function: F) -> F:
        for each in reversed(options):
            function = each(function)
        return function

    return add
