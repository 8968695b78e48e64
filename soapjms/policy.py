"""What becomes of a request whose function fails, and of one whose fate is not known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Final

from soapjms.protocol.errors import UsageError

MAX_PAUSE: Final = 60.0
"""Seconds that a pause between two tries has at most."""


class Then(StrEnum):
    """What follows when a function failed and is not tried again. A caller who waits gets the fault in either case."""

    FAULT = "fault"
    DEAD_LETTER = "dead-letter"


class Unfinished(StrEnum):
    """What becomes of a request that somebody began, and died before it was finished."""

    RERUN = "rerun"
    FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What becomes of a request whose function fails, for a service or for one operation of it.

    A function fails when anything but a SoapFaultError leaves it, or when what it returned cannot be sent. A fault that
    it raises or returns is its answer, and is never tried again.

    Attributes:
        retries: how often it is tried again. With a store this counts over redeliveries and restarts, else within one
            delivery. The worker waits meanwhile; what it wrote through `request.transaction` is undone before.
        pause: seconds before the first of these; each is twice as long as the one before, and at most a minute.
        then: the fault alone (`fault`), or also the request to the dead letters (`dead-letter`). A one-way request
            becomes a dead letter with either: nobody would get the fault.
        unfinished: whether a request that was begun and never finished is run again (`rerun`) or answered with a fault
            (`fault`), a one-way request being a dead letter instead. Only a store knows of such.

    Raises:
        UsageError: a value is not as it must be.
    """

    retries: int = 0
    pause: float = 0.5
    then: Then | str = Then.FAULT
    unfinished: Unfinished | str = Unfinished.RERUN

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise UsageError(f"retries is {self.retries!r}; it is an integer, at least 0")
        if not isinstance(self.pause, int | float) or not isfinite(self.pause) or self.pause < 0:
            raise UsageError(f"pause is {self.pause!r}; it is a number of seconds, at least 0")
        for name, value, kind in (("then", self.then, Then), ("unfinished", self.unfinished, Unfinished)):
            if value not in list(kind):
                raise UsageError(f"{name} is {value!r}; it is one of: {', '.join(kind)}")

    def pause_after(self, tries: int) -> float:
        """Say how many seconds to wait after the nth try."""
        return min(MAX_PAUSE, self.pause * 2.0 ** min(tries - 1, 32))


DEFAULT: Final = Policy()
