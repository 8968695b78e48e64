"""The terminal as every command sees it."""

from __future__ import annotations

from typing import Final

from rich.console import Console

PLAIN_WIDTH: Final = 160
"""Characters in a line where the output is no terminal."""


def console(*, stderr: bool = False) -> Console:
    """Return what a command prints to: the terminal, or lines of a fixed width where there is none."""
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)
