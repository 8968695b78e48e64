"""The brokers of a connection, tried in turn, and the schedule of attempts after a session was lost.

This module decides on pauses, number of attempts and thread; the connection defines the attempt itself. No retry
library is used: its pauses would not end when the connection is closed.
"""

from __future__ import annotations

import errno
import logging
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from threading import Event, Lock, current_thread
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from brokers import events
from brokers.arguments import finite, is_count
from brokers.errors import BrokerError, ClosedError, ConnectionFailedError, UnreachableError, UsageError
from brokers.files import reason_of
from brokers.threads.thread import Thread
from brokers.threads.timer import left


class Openable(Protocol):
    """A session that can be opened once, and ended from any thread."""

    def open(self, timeout: float) -> None:
        """Connect within `timeout` seconds, or raise ConnectionFailedError."""

    def drop(self) -> None:
        """End the session at once."""


SILENT: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
"""System errors for an address where nothing answers."""


def no_connection(where: object, error: OSError, advice: str = "") -> ConnectionFailedError:
    """Return the error for a broker that was not reached."""
    if isinstance(error, socket.gaierror):
        return ConnectionFailedError(f"no connection to {where}: no host of that name is known ({error.strerror})")
    kind = UnreachableError if error.errno in SILENT else ConnectionFailedError
    return kind(f"no connection to {where}: {reason_of(error)}{advice}")


LoginT = TypeVar("LoginT")
LinkT = TypeVar("LinkT", bound=Openable)


class BrokerEndpoints(Generic[LoginT, LinkT]):
    """The brokers of a connection.

    Args:
        logins: address and login of each broker, in order of preference.
        make: returns a new session, not yet open.
        randomize: whether to try the brokers in random order.
    """

    def __init__(self, logins: Sequence[LoginT], make: Callable[[LoginT], LinkT], *, randomize: bool) -> None:
        self._logins = logins
        self._make = make
        self._randomize = randomize
        self._lock = Lock()
        self._candidate: LinkT | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of brokers."""
        return len(self._logins)

    def open(self, timeout: float) -> LinkT:
        """Return a session with the first broker that accepts the login.

        Each broker gets its share of `timeout`, in seconds, so that a silent one does not use it up.

        Raises:
            ConnectionFailedError: no broker did; the text has the reason for each. UnreachableError if none answered.
            ClosedError: `close` was called.
            UsageError: the login cannot be encoded.
        """
        until = monotonic() + timeout
        logins = random.sample(self._logins, len(self._logins)) if self._randomize else self._logins
        failures: list[ConnectionFailedError] = []
        for position, login in enumerate(logins):
            try:
                link = self._enter(login, left(until) / (len(logins) - position))
            except ConnectionFailedError as error:
                failures.append(error)
            else:
                return self._hand_over(link)
        if len(failures) == 1:
            raise failures[0]
        is_silent = all(isinstance(each, UnreachableError) for each in failures)
        kind = UnreachableError if is_silent else ConnectionFailedError
        raise kind(f"none of {len(failures)} brokers: {'; '.join(map(str, failures))}")

    def close(self) -> None:
        """Open no further session; one that is being opened fails at once."""
        with self._lock:
            self._is_closed = True
            link = self._candidate
        if link is not None:
            link.drop()

    def _enter(self, login: LoginT, timeout: float) -> LinkT:
        """Open a session with one broker."""
        link = self._next(login)
        link.open(timeout)
        return link

    def _next(self, login: LoginT) -> LinkT:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the connection was closed meanwhile")
            self._candidate = candidate = self._make(login)
            return candidate

    def _hand_over(self, link: LinkT) -> LinkT:
        with self._lock:
            self._candidate = None
            if not self._is_closed:
                return link
        link.drop()
        raise ClosedError("the connection was closed meanwhile")


NEAR_PAUSE_SECONDS: Final = 2.0
"""Longest pause after an attempt that was answered, even by a refusal, in seconds."""

MAX_DOUBLINGS: Final = 30
"""Limit on the doublings of a pause: by then it exceeds every sensible maximum."""


STEADY_SECONDS: Final = 5.0
"""Time for which a session must last so that the pauses start over when it is lost, in seconds.

Otherwise a broker that ends each session once it is open would get as many logins as it can end. The same holds for a
subscription, and attempts to renew it.
"""


class ShortLives:
    """Counts the sessions, or subscriptions, in a row that each lasted less than `STEADY_SECONDS`."""

    def __init__(self) -> None:
        self._number = 0
        self._began = -inf

    def begin(self) -> None:
        """Note the time before an attempt: what the attempt restores may end before the attempt returns."""
        self._began = monotonic()

    def end(self) -> int:
        """Note that a life has ended; return the number of short ones in a row, including it."""
        self._number = self._number + 1 if monotonic() - self._began < STEADY_SECONDS else 0
        return self._number


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """How to restore a lost connection.

    Attributes:
        initial: upper bound of the first pause, in seconds; the bound doubles with each failed attempt, and with each
            connection that is lost again within 5 s.
        maximum: upper bound of every pause, in seconds. If the address answers, even with a refusal, pauses are at
            most 2 s: the broker is probably starting, and an attempt costs little.
        attempts: number of failed attempts in a row after which the connection is closed; None for no limit.
        randomize: whether to try several brokers in random order; otherwise in the order in which they are listed.

    Raises:
        UsageError: a pause is not a positive, finite number, or there is not a whole number of attempts, at least 1.
    """

    initial: float = 0.1
    maximum: float = 10.0
    attempts: int | None = None
    randomize: bool = False

    def __post_init__(self) -> None:
        finite(self.initial, "initial")
        finite(self.maximum, "maximum")
        if self.attempts is not None and not is_count(self.attempts):
            got = f"{self.attempts!r}; reconnect=False turns attempts off"
            raise UsageError(f"attempts must be a whole number, at least 1, got {got}")

    def pause(self, failed: int, *, is_silent: bool) -> float:
        """Return the pause before an attempt: random, so that clients spread out, up to a bound that doubles.

        Args:
            failed: number of attempts in a row that failed in the same way as the last one.
            is_silent: whether nothing answered at the address.
        """
        bound = min(
            self.maximum, self.initial * 2.0 ** min(failed, MAX_DOUBLINGS), inf if is_silent else NEAR_PAUSE_SECONDS
        )
        return random.uniform(0.0, bound)  # noqa: S311  # no secret


class Reconnector:
    """Makes attempts to reconnect, on its own thread, which lives while the connection is lost.

    Args:
        name: of the connection, for the log.
        plan: pauses and number of attempts.
        attempt: makes one attempt, or raises the reason for its failure. Gets the seconds since the loss.
        give_up: called with the cause when no further attempt will be made.
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
        self._lives = ShortLives()

    def start(self) -> None:
        """Begin to reconnect. The thread of an earlier loss makes no further attempt."""
        if self._stopped.is_set():
            return
        thread = Thread(target=self._run, name=f"{self._name} reconnector", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:  # otherwise the connection would stay lost without notice
            why = f"{error}" or "no memory"
            self._give_up(f"{self._name} was lost, and no thread could be started to reconnect: {why}")
        else:
            self._thread = thread

    def stop(self) -> None:
        """Begin no further attempt."""
        self._stopped.set()

    def join(self, until: float) -> None:
        """Wait for the current attempt until the monotonic clock shows `until`."""
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(left(until))

    def _run(self) -> None:
        lost, why, is_silent = monotonic(), "", False
        failed = self._lives.end()
        for number in count(1):
            if self._stopped.wait(self._plan.pause(failed, is_silent=is_silent)):
                return
            self._lives.begin()
            try:
                self._attempt(monotonic() - lost)
            except Exception as error:  # whatever the reason, the next attempt may succeed
                if self._stopped.is_set():
                    return
                why = self._note_failure(number, error, why)
                was_silent, is_silent = is_silent, isinstance(error, UnreachableError)
                failed = failed + 1 if is_silent == was_silent else 0
            else:
                events.CONNECTION_RESTORED.log(self._name, monotonic() - lost)
                return
            if number == self._plan.attempts:
                self._give_up(f"{self._name} could not reconnect in {number} attempts: {why}")
                return

    def _note_failure(self, number: int, error: Exception, before: str) -> str:
        """Log why an attempt failed: as a warning, or as a debug line if the reason is the same as before."""
        why = f"{error}" or repr(error)
        level = logging.DEBUG if why == before else logging.WARNING
        ours = error if not isinstance(error, BrokerError) else None  # a bug, so its traceback is useful
        events.CONNECTION_ATTEMPT_FAILED.log(self._name, number, why, level=level, exc_info=ours)
        return why
