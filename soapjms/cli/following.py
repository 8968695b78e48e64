"""What `soapjms replay --follow` is told, and running it until it is to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from threading import Event
from typing import Any, Final, TypeVar

import click

from soapjms.cli.ending import ending
from soapjms.replay import Summary
from soapjms.replay.errors import importing_spark
from soapjms.replay.report import visible

F = TypeVar("F", bound=Callable[..., Any])

NAMES: Final = ("until_idle", "disorder", "remember", "every", "checkpoint")
LONGEST: Final = timedelta(days=3650).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """What to follow, and the options that were given for that."""

    folder: str
    options: dict[str, Any]


def _seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> timedelta | None:
    if value is not None and not 0 <= value <= LONGEST:  # NaN is neither
        raise click.BadParameter(f"{value:g}; it must be 0 to {LONGEST:g} seconds")
    return None if value is None else timedelta(seconds=value)


def _seconds_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=float, callback=_seconds, metavar="SECONDS", help=text)


OPTIONS: Final = (
    click.option("--follow", metavar="DIR", help="Folder whose logs are judged as they are written, on Spark."),
    _seconds_option("--until-idle", "Follow until nothing new came for so long.  [default: until told to end]"),
    _seconds_option(
        "--disorder",
        "Follow: how much later than its time a record may come; later ones are kept under late/.  [default: 60]",
    ),
    _seconds_option(
        "--remember", "Follow: how long a call is held after its last record.  [default: the window, at the least]"
    ),
    _seconds_option("--every", "Follow: how often to look for something new.  [default: 5]"),
    click.option(
        "--checkpoint", metavar="DIR", help="Follow: where to keep what is needed to go on.  [default: OUT.checkpoint]"
    ),
)


def follow_options(command: F) -> F:
    """Give a command the options of following."""
    return reduce(lambda made, option: option(made), reversed(OPTIONS), command)


def take_follow(options: dict[str, Any]) -> Follow | None:
    """Take the options of following out of a command's; None without --follow.

    Raises:
        click.UsageError: there are others of them without it.
    """
    folder = options.pop("follow")
    given = {name: value for name in NAMES if (value := options.pop(name)) is not None}
    if folder is None and given:
        raise click.UsageError(f"--{next(iter(given)).replace('_', '-')} is for --follow")
    return None if folder is None else Follow(folder=folder, options=given)


def follow_logs(follow: Follow, out: str, profile: str, **terms: Any) -> Summary:
    """Follow logs until told to end, with a line on standard error for each step.

    Raises:
        SparkMissingError: PySpark is not installed.
    """
    with importing_spark():
        from soapjms.replay.following import follow as run

    stop = Event()
    with ending(stop):
        return run(follow.folder, out, profile, stop=stop, progress=_say, **follow.options, **terms)


def _say(text: str) -> None:
    click.echo(visible(text), err=True)
