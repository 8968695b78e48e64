"""Limits on password guesses from one place, for the servers here and other code that paces guesses. No I/O.

A place is an IPv4 address or an IPv6 network of 64 bits, which is what one customer has. Some refused logins are free;
after that, one login is checked every few seconds, and those in between are refused unseen, which costs nothing. A
user who has logged in from a place before is counted apart from strangers there, who therefore cannot lock them out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from brokers import events

FREE_LOGINS: Final = 10
"""Number of refused logins of one lane that are checked without a pause."""
LOGIN_INTERVAL_SECONDS: Final = 2.0
"""Interval after which one more login is checked, in seconds."""
LOGIN_GRACE_SECONDS: Final = 1.0
"""Time that a new client has to log in before it may have to make room for others, in seconds."""
MAX_KNOWN_LANES: Final = 10_000
"""Maximum number of lanes, and of users that have logged in; beyond it the oldest are forgotten."""
SHOWN_CHARACTERS: Final = 80
"""Maximum number of characters of a place or a user's name in the log."""


class Lane(NamedTuple):
    """Logins that count together: those of one user who has logged in from the place before, or of all others there."""

    place: str
    user: str


def place_of(address: str) -> str:
    """Return the place of an address; text that is not an address is its own place."""
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
        ticks: monotonic clock, in seconds.
        what: what is refused, with a preposition for the place, for the log.
    """

    def __init__(self, ticks: Callable[[], float] = monotonic, what: str = "login from") -> None:
        self._ticks = ticks
        self._what = what
        self._lock = Lock()
        self._known: OrderedDict[Lane, None] = OrderedDict()
        self._refused: OrderedDict[Lane, tuple[float, float]] = OrderedDict()
        self._unseen: dict[Lane, int] = {}

    def lane(self, address: str, user: str) -> Lane:
        """Return the lane that a login counts in."""
        own = Lane(place_of(address), user.casefold())
        with self._lock:
            return own if own in self._known else own._replace(user="")

    def allows(self, lane: Lane) -> bool:
        """Return whether the password is to be checked; if not, the login is refused unseen."""
        with self._lock:
            if self._count(lane) <= FREE_LOGINS - 1:
                return True
            self._unseen[lane] = self._unseen.get(lane, 0) + 1
            if self._unseen[lane] == 1:
                those = self._what.replace(" ", "s ", 1)
                events.LOGIN_UNSEEN.log(those, _told(lane), LOGIN_INTERVAL_SECONDS)
            return False

    def right(self, address: str, user: str) -> None:
        """Record a successful login: from now on this user is counted apart from others at that place."""
        own = Lane(place_of(address), user.casefold())
        with self._lock:
            self._refused.pop(own, None)
            self._known[own] = None
            self._known.move_to_end(own)
            if len(self._known) > MAX_KNOWN_LANES:
                self._known.popitem(last=False)

    def wrong(self, lane: Lane, user: str) -> None:
        """Record a refused login, and log it."""
        with self._lock:
            self._refused[lane] = self._count(lane) + 1.0, self._ticks()
            self._refused.move_to_end(lane)
            if len(self._refused) > MAX_KNOWN_LANES:
                self._unseen.pop(self._refused.popitem(last=False)[0], None)
            unseen = self._unseen.pop(lane, 0)
        others = f"; {unseen} more since the last one were refused unseen" if unseen else ""
        events.LOGIN_REFUSED.log(self._what, _told(lane._replace(user=user)), others)

    def _count(self, lane: Lane) -> float:
        count, since = self._refused.get(lane, (0.0, 0.0))
        return max(0.0, count - (self._ticks() - since) / LOGIN_INTERVAL_SECONDS)


def _told(lane: Lane) -> str:
    return (
        f"{lane.place[:SHOWN_CHARACTERS]} as {lane.user[:SHOWN_CHARACTERS]!r}"
        if lane.user
        else lane.place[:SHOWN_CHARACTERS]
    )
