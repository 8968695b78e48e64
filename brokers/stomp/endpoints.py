"""Where a connection may have its session: one or more brokers, tried in turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Final

from brokers.errors import ClosedError, ConnectionFailedError
from brokers.stomp.link import Link
from brokers.stomp.login import Login

LEAVE: Final = 1.0
"""Seconds that a broker gets to confirm that we leave, to come again in another version of STOMP."""


class Endpoints:
    """The brokers of a connection.

    Args:
        logins: where they are, the preferred one first.
        on_end: told when a session has ended; see `Link`.
        randomize: try any first.
    """

    def __init__(self, logins: Sequence[Login], on_end: Callable[[Link], None], *, randomize: bool) -> None:
        self._logins = logins
        self._on_end = on_end
        self._randomize = randomize
        self._lock = Lock()
        self._candidate: Link | None = None
        self._is_closed = False
        self._versions: dict[str, str] = {}  # of STOMP, by broker, once it is known

    def open(self, timeout: float) -> Link:
        """Return a session with the first broker that lets us in.

        Each gets its part of `timeout`, in seconds, so that one who is silent does not take it all.

        Raises:
            ConnectionFailedError: none did; the message says of each why.
            ClosedError: `close` was called.
            ValueError: a login that cannot be put in a frame.
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

    def _enter(self, login: Login, timeout: float) -> Link:
        """Log in, and once more if the broker turns out to be one to speak another version of STOMP with."""
        until = monotonic() + timeout
        link = self._next(login.speaking(self._versions.get(str(login), login.version)))
        link.open(timeout)
        wanted = link.dialect.version
        if wanted == link.login.version:
            return link
        link.close(min(until, monotonic() + LEAVE), lambda: b"")
        self._versions[str(login)] = wanted
        link = self._next(login.speaking(wanted))
        link.open(max(0.0, until - monotonic()))
        return link

    def _next(self, login: Login) -> Link:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the connection was closed meanwhile")
            self._candidate = Link(login, self._on_end)
            return self._candidate

    def _hand_over(self, link: Link) -> Link:
        with self._lock:
            self._candidate = None
            if not self._is_closed:
                return link
        link.drop()
        raise ClosedError("the connection was closed meanwhile")
