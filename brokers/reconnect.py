"""When to try again after a session was lost: how long between two attempts, how often, and on which thread.

What an attempt is, the connection says. A library for retries would sleep through the connection's end.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import inf
from threading import Event, current_thread
from time import monotonic
from typing import Final

from brokers.errors import BrokerError, UnreachableError
from brokers.threads import Thread

log = logging.getLogger(__name__)

NEAR: Final = 2.0
"""Seconds that no pause exceeds where the last attempt was answered, if only by a refusal."""

DOUBLINGS: Final = 30
"""After so many, no pause is longer than any maximum that makes sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """How a lost connection is made again.

    Attributes:
        initial: seconds that the first pause lasts at most; each later one twice as long.
        maximum: seconds that no pause exceeds; where something answers at the address, even if nobody listens, none
            exceeds 2 s either: the broker is being started, and asking costs next to nothing.
        attempts: after so many in a row that failed the connection is closed; None for never.
        randomize: of several brokers try any first; else in the order in which they are listed.

    Raises:
        ValueError: a pause that is not positive and finite, fewer than one attempt.
    """

    initial: float = 0.1
    maximum: float = 10.0
    attempts: int | None = None
    randomize: bool = False

    def __post_init__(self) -> None:
        for seconds in (self.initial, self.maximum):
            if not 0 < seconds < float("inf"):
                raise ValueError(f"a pause before an attempt to reconnect must be positive and finite, not {seconds} s")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"{self.attempts} attempts to reconnect: write reconnect=False for none")

    def pause(self, failed: int, *, is_silent: bool) -> float:
        """Return the pause before an attempt: any up to a bound that doubles, so that clients come one by one.

        Args:
            failed: how many attempts in a row failed like the last one.
            is_silent: nothing answered at the address.
        """
        bound = min(self.maximum, self.initial * 2.0 ** min(failed, DOUBLINGS), inf if is_silent else NEAR)
        return random.uniform(0.0, bound)  # noqa: S311  # no secret


class Reconnector:
    """Makes attempts, on a thread of its own that lives while the connection is lost.

    Args:
        name: of the connection, for the log.
        plan: when and how often.
        attempt: makes one; what it raises is why it failed. Given the seconds for which the connection is lost.
        give_up: told the cause when there will be no more.
    """

    def __init__(
        self, name: str, plan: Reconnect, attempt: Callable[[float], None], give_up: Callable[[str], None]
    ) -> None:
        self._name = name
        self._plan = plan
        self._attempt = attempt
        self._give_up = give_up
        self._stopped = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin. The connection is lost, and the thread of an earlier loss has done its work."""
        if self._stopped.is_set():
            return
        thread = Thread(target=self._run, name=f"{self._name} reconnector", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # else it would stay lost, and nobody would know that for ever
            self._give_up(f"{self._name} was lost, and there is no thread to be had that makes it again: {error}")
        else:
            self._thread = thread

    def stop(self) -> None:
        """Begin no further attempt."""
        self._stopped.set()

    def join(self, until: float) -> None:
        """Wait for the attempt under way, until the monotonic clock shows `until`."""
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(max(0.0, until - monotonic()))

    def _run(self) -> None:
        lost, why, failed, is_silent = monotonic(), "", 0, False
        for number in count(1):
            if self._stopped.wait(self._plan.pause(failed, is_silent=is_silent)):
                return
            try:
                self._attempt(monotonic() - lost)
            except Exception as error:  # whatever it is, the next attempt may fare better
                if self._stopped.is_set():
                    return
                why = self._note_failure(number, error, why)
                was_silent, is_silent = is_silent, isinstance(error, UnreachableError)
                failed = failed + 1 if is_silent == was_silent else 0
            else:
                log.warning("%s: connected again after %.1f s", self._name, monotonic() - lost)
                return
            if number == self._plan.attempts:
                self._give_up(f"{self._name} was not reached again in {number} attempts: {why}")
                return

    def _note_failure(self, number: int, error: Exception, before: str) -> str:
        """Log why an attempt failed: as a warning once, however often the same follows."""
        why = f"{error}" or repr(error)
        level = logging.DEBUG if why == before else logging.WARNING
        ours = error if not isinstance(error, BrokerError) else None  # a mistake, so its traceback is of use
        log.log(level, "%s: attempt %d failed: %s", self._name, number, why, exc_info=ours)
        return why
