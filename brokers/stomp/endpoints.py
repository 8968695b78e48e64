"""The brokers of a STOMP connection: each is spoken to in the version that suits it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from brokers.endpoints import Endpoints
from brokers.stomp.link import Link, UnansweredError
from brokers.stomp.login import Login

log = logging.getLogger(__name__)

FIRST_LOGIN: Final = 1 / 3
"""The part of the time for logging in after which the broker is asked once more."""

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
        link = self._log_in(login.speaking(self.versions.get(str(login), login.version)), until)
        wanted = link.dialect.version
        if wanted == link.login.version:
            return link
        link.close(min(until, monotonic() + LEAVE), lambda: b"")
        self.versions[str(login)] = wanted
        return self._log_in(login.speaking(wanted), until)

    def _log_in(self, login: Login, until: float) -> Link:
        """Log in; once more, on another socket, if the broker accepts the first and then says nothing.

        One that has locked up some of its threads answers on the others: Artemis does, see `confirms_leave`.
        """
        left = max(0.0, until - monotonic())
        link = self._next(login)
        try:
            link.open(left, left * FIRST_LOGIN)
        except UnansweredError as error:
            log.warning("%s; logging in once more", error)
            link = self._next(login)
            link.open(max(0.0, until - monotonic()))
        return link
