"""What goes wrong with names. No message repeats a login, a query or an option of a URL."""

import re
from collections.abc import Iterable
from typing import Final

from brokers.errors import BrokerError

MAX_LISTED_NAMES: Final = 20

SECRET: Final = re.compile(
    r"(?i)pass(?:w|phrase|code)|pwd|credential|secret|token|username|principal|authorization|bearer|cookie|jwt"
    r"|x[-_.]?auth|(?:api|access|private)[-_.]?key|session[-_.]?id|(?<![a-z])(?:otp|pin)(?![a-z])"
)
"""What the name of an entry looks like whose value must not be shown."""


class NamingError(BrokerError, ValueError):
    """Names, a file of names or a broker's URL that are not as they must be, or not allowed."""


class NameNotFoundError(BrokerError, LookupError):
    """A JNDI name that is not registered; the message lists those that are."""


def listed(names: Iterable[str]) -> str:
    """List names for an error message: in order, not too many."""
    ordered = sorted(set(names))
    more = len(ordered) - MAX_LISTED_NAMES
    return ", ".join(ordered[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "") or "none"
