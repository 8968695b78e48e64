"""The errors of names. No error text repeats a login, a query or an option of a URL."""

from collections.abc import Iterable
from typing import Final

from brokers.errors import BrokerError

MAX_LISTED_NAMES: Final = 20


class NamingError(BrokerError, ValueError):
    """A name, a file of names or a broker's URL is invalid or not allowed."""


class NameNotFoundError(BrokerError, LookupError):
    """A JNDI name is not registered; the text lists the registered names."""


def listed(names: Iterable[str]) -> str:
    """Return a sorted list of names for an error text, shortened to `MAX_LISTED_NAMES`."""
    ordered = sorted(set(names))
    more = len(ordered) - MAX_LISTED_NAMES
    return ", ".join(ordered[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "") or "none"
