"""The terminal output that all commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import click
from rich.console import Console

PLAIN_WIDTH: Final = 160
"""Characters per line if the output is not a terminal."""


def console(*, stderr: bool = False) -> Console:
    """Return the console that a command prints to: the terminal, or lines of a fixed width without one."""
    make = partial(Console, stderr=stderr, highlight=False, emoji=False)  # no picture for what is between colons
    found = make()
    return found if found.is_terminal else make(width=PLAIN_WIDTH)


_NOT_ASCII: Final = re.compile(r"[^\n -~]")


def visible_json(text: str) -> str:
    """Return a JSON text with escapes for characters that a terminal would act on or not show; its values are the same.

    Letters of all languages stay as they are.
    """
    return _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


ANNOUNCED_OPTION: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print announcements as JSON objects, one per line, instead of text."
)
"""For commands that run until they are told to stop, and announce at the start where they can be reached."""


def announce(text: str, members: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one line: the text, or a JSON object of the members."""
    click.echo(json.dumps(members) if as_json else text)
