"""What an engine is given: the logs, what was rejected before they were read, and how to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from soapjms.replay.errors import NoInputError
from soapjms.replay.inputs import LogFile, Rejected
from soapjms.replay.terms import Terms

Progress: TypeAlias = Callable[[str], None]
"""Called with a few words whenever there is something new to tell; a `Phase` where it is known how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run over some logs.

    Attributes:
        logs: the files of this machine.
        elsewhere: URIs of others, which the engine is to find.
        rejected: what could not be opened.
        others: the names of files in folders that are called otherwise than logs.
        terms: how to pair and judge.
    """

    logs: tuple[LogFile, ...]
    elsewhere: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...]
    others: tuple[str, ...] = ()
    terms: Terms


class Late(NamedTuple):
    """A record that came when its time was over already: where it stands, and when it was captured."""

    file: str
    line: int
    time: str


def place(found: Rejected) -> tuple[str, int, str]:
    """Order what was rejected by file and line, whole files first."""
    return found.file, -1 if found.line is None else found.line, found.reason


def nothing_to_read(refused: Iterable[Rejected]) -> NoInputError:
    """Make the error that says of each argument why there is nothing to read."""
    return NoInputError("no input can be read: " + "; ".join(f"{each.file}: {each.reason}" for each in refused))
