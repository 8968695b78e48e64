"""How often passwords may be guessed from one place, for the servers here, and others that pace guesses. No I/O.

A place is an address, or of IPv6 a network of 64 bits, which is what one customer has. Some refused logins are free;
beyond that one more is looked at every few seconds, and those between are refused unseen, which costs nothing. Who has
logged in from a place before counts apart from the strangers there, so that these do not keep them out.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

FREE_LOGINS: Final = 10
"""Refused logins of one lane that are looked at without a pause."""
LOGIN_INTERVAL_SECONDS: Final = 2.0
"""After which one more is looked at."""
LOGIN_GRACE_SECONDS: Final = 1.0
"""Seconds that who connects has to log in before it may have to make room for others, as when many come at once."""
MAX_KNOWN_LANES: Final = 10_000
"""Lanes, and users that have logged in; beyond that those of longest ago are forgotten."""
SHOWN_CHARACTERS: Final = 80
"""Characters of a user's name in the log."""


class Lane(NamedTuple):
    """Whose logins count together: those of one user who has logged in from a place before, or all others there."""

    place: str
    user: str


def place_of(address: str) -> str:
    """Return the place of an address; text that is none is a place of its own."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or f"{IPv6Address(int(found) >> 64 << 64)}/64")


class Guesses:
    """Counts refused logins. Thread-safe.

    Args:
        ticks: seconds of a clock that never jumps.
        what: is refused, for the log, and how it belongs to its place.
    """

    def __init__(self, ticks: Callable[[], float] = monotonic, what: str = "login from") -> None:
        self._ticks = ticks
        self._what = what
        self._lock = Lock()
        self._known: OrderedDict[Lane, None] = OrderedDict()
        self._refused: OrderedDict[Lane, tuple[float, float]] = OrderedDict()
        self._unseen: dict[Lane, int] = {}

    def lane(self, address: str, user: str) -> Lane:
        """Say with which others a login counts."""
        own = Lane(place_of(address), user.casefold())
        with self._lock:
            return own if own in self._known else own._replace(user="")

    def allows(self, lane: Lane) -> bool:
        """Say whether a password is to be looked at; if not, the login is refused unseen."""
        with self._lock:
            if self._count(lane) <= FREE_LOGINS - 1:
                return True
            self._unseen[lane] = self._unseen.get(lane, 0) + 1
            if self._unseen[lane] == 1:
                those = self._what.replace(" ", "s ", 1)
                log.warning(
                    "%s %s are refused unseen for now, but for one in %g s", those, _told(lane), LOGIN_INTERVAL_SECONDS
                )
            return False

    def right(self, address: str, user: str) -> None:
        """Note a login: from now on this user counts apart from others at that place."""
        own = Lane(place_of(address), user.casefold())
        with self._lock:
            self._refused.pop(own, None)
            self._known[own] = None
            self._known.move_to_end(own)
            if len(self._known) > MAX_KNOWN_LANES:
                self._known.popitem(last=False)

    def wrong(self, lane: Lane, user: str) -> None:
        """Note a login that was refused, and log it."""
        with self._lock:
            self._refused[lane] = self._count(lane) + 1.0, self._ticks()
            self._refused.move_to_end(lane)
            if len(self._refused) > MAX_KNOWN_LANES:
                self._unseen.pop(self._refused.popitem(last=False)[0], None)
            unseen = self._unseen.pop(lane, 0)
        others = f"; {unseen} more since the last one were refused unseen" if unseen else ""
        log.warning("a %s %s was refused%s", self._what, _told(lane._replace(user=user)), others)

    def _count(self, lane: Lane) -> float:
        count, since = self._refused.get(lane, (0.0, 0.0))
        return max(0.0, count - (self._ticks() - since) / LOGIN_INTERVAL_SECONDS)


def _told(lane: Lane) -> str:
    return (
        f"{lane.place[:SHOWN_CHARACTERS]} as {lane.user[:SHOWN_CHARACTERS]!r}"
        if lane.user
        else lane.place[:SHOWN_CHARACTERS]
    )
