"""Where a connection may have its session: one or more brokers, tried in turn."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from brokers.errors import ClosedError, ConnectionFailedError, UnreachableError


class Opening(Protocol):
    """What can be opened once, and ended from any thread."""

    def open(self, timeout: float) -> None:
        """Connect within so many seconds, or raise ConnectionFailedError."""

    def drop(self) -> None:
        """End at once."""


LEAST: Final = 0.001
"""Seconds: a socket's time-out of nothing would mean not to wait at all."""

SILENT: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
"""What the system says of an address where nothing answers."""


def connect_to(attempt: socket.socket, address: Any, seconds: float) -> None:
    """Connect a socket within so many seconds.

    Raises:
        OSError: nobody listens there; `no_connection` says whether something answered.
    """
    attempt.settimeout(max(LEAST, seconds))
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
LinkT = TypeVar("LinkT", bound=Opening)


class Endpoints(Generic[LoginT, LinkT]):
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
