"""The terminal as every command sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import click
from rich.console import Console

PLAIN_WIDTH: Final = 160
"""Characters in a line where the output is no terminal."""


def console(*, stderr: bool = False) -> Console:
    """Return what a command prints to: the terminal, or lines of a fixed width where there is none."""
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


ANNOUNCED_OPTION: Final = click.option(
    "--json", "as_json", is_flag=True, help="Say what it does as JSON objects, one a line, instead of words."
)
"""For commands that run until they are told to end, and say at their start where they can be found."""


def announce(text: str, members: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a line at once: the text, or a JSON object of these members."""
    click.echo(json.dumps(members) if as_json else text)
