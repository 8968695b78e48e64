"""The brokers where a connection may have its session, tried in turn, and when to try again after one was lost.

How long to pause between two attempts, how often to try and on which thread is decided here; what an attempt is, the
connection says. No library for retries is used: it would sleep through the connection's end.
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
from typing import Any, Final, Generic, Protocol, TypeVar

from brokers.errors import BrokerError, ClosedError, ConnectionFailedError, UnreachableError
from brokers.threads.thread import Thread


class Openable(Protocol):
    """What can be opened once, and ended from any thread."""

    def open(self, timeout: float) -> None:
        """Connect within so many seconds, or raise ConnectionFailedError."""

    def drop(self) -> None:
        """End at once."""


MIN_TIMEOUT_SECONDS: Final = 0.001
"""Seconds: a socket's time-out of nothing would mean not to wait at all."""

SILENT: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
"""What the system says of an address where nothing answers."""


def connect_to(attempt: socket.socket, address: Any, seconds: float) -> None:
    """Connect a socket within so many seconds.

    Raises:
        OSError: nobody listens there; `no_connection` says whether something answered.
    """
    attempt.settimeout(max(MIN_TIMEOUT_SECONDS, seconds))
    try:
        attempt.connect(address)
    except TimeoutError as error:
        raise OSError(errno.ETIMEDOUT, "timed out") from error
    if attempt.getsockname() == attempt.getpeername():
        raise ConnectionRefusedError("nobody listens there")  # and the system chose that port for our end


def no_connection(where: object, error: OSError, advice: str = "") -> ConnectionFailedError:
    """Make the error of a broker that was not reached."""
    if isinstance(error, socket.gaierror):
        return ConnectionFailedError(f"no connection to {where}: no host of that name is known ({error.strerror})")
    kind = UnreachableError if error.errno in SILENT else ConnectionFailedError
    return kind(f"no connection to {where}: {error}{advice}")


LoginT = TypeVar("LoginT")
LinkT = TypeVar("LinkT", bound=Openable)


class BrokerEndpoints(Generic[LoginT, LinkT]):
    """The brokers of a connection.

    Args:
        logins: where they are, the preferred one first.
        make: makes a session that is still to be opened.
        randomize: try any first.
    """

    def __init__(self, logins: Sequence[LoginT], make: Callable[[LoginT], LinkT], *, randomize: bool) -> None:
        self._logins = logins
        self._make = make
        self._randomize = randomize
        self._lock = Lock()
        self._candidate: LinkT | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Count the brokers."""
        return len(self._logins)

    def open(self, timeout: float) -> LinkT:
        """Return a session with the first broker that lets us in.

        Each gets its part of `timeout`, in seconds, so that one who is silent does not take it all.

        Raises:
            ConnectionFailedError: none did; the message says of each why. UnreachableError if none even answered.
            ClosedError: `close` was called.
            ValueError: a login that cannot be written.
        """
        until = monotonic() + timeout
        logins = random.sample(self._logins, len(self._logins)) if self._randomize else self._logins
        failures: list[ConnectionFailedError] = []
        for position, login in enumerate(logins):
            try:
                link = self._enter(login, max(0.0, until - monotonic()) / (len(logins) - position))
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
        """Open no more; what is being opened fails at once."""
        with self._lock:
            self._is_closed = True
            link = self._candidate
        if link is not None:
            link.drop()

    def _enter(self, login: LoginT, timeout: float) -> LinkT:
        """Log in."""
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


log = logging.getLogger(__name__)

NEAR_PAUSE_SECONDS: Final = 2.0
"""Seconds that no pause exceeds where the last attempt was answered, if only by a refusal."""

MAX_DOUBLINGS: Final = 30
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
        bound = min(
            self.maximum, self.initial * 2.0 ** min(failed, MAX_DOUBLINGS), inf if is_silent else NEAR_PAUSE_SECONDS
        )
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
