"""The progress of long work: a bar on a terminal, else a line now and then.

Both go to standard error, as the results of a command go to standard output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final, TypeAlias

import click
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from soapjms.cli.terminal import console
from soapjms.progress import Phase
from soapjms.protocol.uri import visible

Show: TypeAlias = Callable[[str], None]

REPORT_SECONDS: Final = 30.0
"""Seconds between two lines without a terminal; shorter work has none."""


@contextmanager
def progress(every: float = REPORT_SECONDS) -> Iterator[Show]:
    """Yield a function that shows a text until the next one, or the end of the block.

    For a `Phase` with a total, a terminal shows a bar, the share that is done, and an estimate of the time left; for
    any other text, a spinner.
    """
    terminal = console(stderr=True)
    if terminal.is_terminal:
        with _bars(terminal) as bars:
            yield _on_terminal(bars)
    else:
        yield _in_lines(every)


class _IfKnown(ProgressColumn):
    """A column for work whose total is known."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        """Show the column, or nothing."""
        return self._column.render(task) if task.total else Text()


def _bars(terminal: Console) -> Progress:
    known = (BarColumn(bar_width=20), TaskProgressColumn(), TimeRemainingColumn(compact=True))
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *(_IfKnown(each) for each in known),
        console=terminal,
        transient=True,
    )


def _on_terminal(bars: Progress) -> Show:
    task = bars.add_task("", total=None)

    def show(text: str) -> None:
        phase, before = _phase(text), bars.tasks[0]
        if phase.total != before.total or phase.done < before.completed:
            bars.reset(task, total=phase.total)  # other work: its speed has nothing to do with the last one's
        bars.update(task, description=escape(visible(text)), completed=phase.done, total=phase.total)

    return show


def _in_lines(every: float) -> Show:
    last = monotonic()

    def show(text: str) -> None:
        nonlocal last
        if (now := monotonic()) - last >= every:
            last, phase = now, _phase(text)
            part = f" ({100 * phase.done / phase.total:.0f} %)" if phase.total else ""
            say(f"{text}{part}")

    return show


def say(text: str) -> None:
    """Print a line to standard error; if it cannot be written, as on a full disk, the work goes on without it."""
    with suppress(OSError):
        click.echo(visible(text), err=True)


def _phase(text: str) -> Phase:
    return text if isinstance(text, Phase) else Phase(text)
