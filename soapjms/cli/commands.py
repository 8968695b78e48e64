"""The group of commands, and the table that says which module holds each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, NamedTuple

import click

from soapjms.cli import INTERRUPTED


class Entry(NamedTuple):
    """Where a command is, and the line that --help says about it without importing it."""

    module: str
    help: str


COMMANDS: Final[Mapping[str, Entry]] = {
    "explain": Entry("soapjms.cli.explain", "Say which binding properties count, and where each comes from."),
    "replay": Entry("soapjms.cli.replay", "Judge captured traffic for conformance, on Spark."),
    "serve": Entry("soapjms.cli.serve", "Answer requests with the functions of a service, until told to end."),
    "uri": Entry("soapjms.cli.uri", "Say what a jms: URI means and what is wrong with it."),
    "wsdl": Entry("soapjms.cli.wsdl", "Say what a WSDL means for SOAP/JMS, check it, add a port to it."),
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
            package = (error.name or "").split(".")[0]
            if package in ("soapjms", "brokers"):
                raise
            raise click.UsageError(f"{package} is not installed. Type: pip install 'soapjms[all]'") from None
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it with a status of its own, as 1 says that something was found."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their help from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in sorted(COMMANDS.items())])


def _version() -> str:
    try:
        return version("soapjms")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="soapjms")
def soapjms() -> None:
    """SOAP over JMS 1.0 for Python: call, serve, capture, and replay for conformance."""
