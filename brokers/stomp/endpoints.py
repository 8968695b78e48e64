"""The brokers of a STOMP connection: each is spoken to in the version that suits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from brokers.endpoints import Endpoints
from brokers.stomp.link import Link
from brokers.stomp.login import Login

LEAVE: Final = 1.0
"""Seconds that a broker gets to confirm that we leave, to come again in another version of STOMP."""


class StompEndpoints(Endpoints[Login, Link]):
    """The brokers of a connection, and what was learnt of them.

    Attributes:
        versions: of STOMP, by broker, once it is known.
    """

    versions: dict[str, str]

    def __init__(self, logins: Sequence[Login], on_end: Callable[[Link], None], *, randomize: bool) -> None:
        """Take what `Endpoints` does, with what a `Link` tells when it has ended."""
        super().__init__(logins, lambda login: Link(login, on_end), randomize=randomize)
        self.versions = {}

    def _enter(self, login: Login, timeout: float) -> Link:
        """Log in, and once more if the broker turns out to be one to speak another version of STOMP with."""
        until = monotonic() + timeout
        link = self._next(login.speaking(self.versions.get(str(login), login.version)))
        link.open(timeout)
        wanted = link.dialect.version
        if wanted == link.login.version:
            return link
        link.close(min(until, monotonic() + LEAVE), lambda: b"")
        self.versions[str(login)] = wanted
        link = self._next(login.speaking(wanted))
        link.open(max(0.0, until - monotonic()))
        return link
