"""Where a connection may have its session: one or more brokers, tried in turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Generic, Protocol, TypeVar

from brokers.errors import ClosedError, ConnectionFailedError


class Opening(Protocol):
    """What can be opened once, and ended from any thread."""

    def open(self, timeout: float) -> None:
        """Connect within so many seconds, or raise ConnectionFailedError."""

    def drop(self) -> None:
        """End at once."""


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

    def open(self, timeout: float) -> LinkT:
        """Return a session with the first broker that lets us in.

        Each gets its part of `timeout`, in seconds, so that one who is silent does not take it all.

        Raises:
            ConnectionFailedError: none did; the message says of each why.
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
        raise ConnectionFailedError(f"none of {len(failures)} brokers: {'; '.join(map(str, failures))}")

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
