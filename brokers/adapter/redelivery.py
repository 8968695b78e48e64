"""How often a message that its consumer releases is delivered, the pause before each redelivery, and why it is refused.

Dead letters that we make have the same properties everywhere. Counting the releases, and what else a dead letter is on
the wire, belong in the adapter.
"""

from __future__ import annotations

from typing import Final

MAX_DELIVERIES: Final = 6
"""Number of deliveries after which a released message becomes a dead letter; `Dispatcher` has the same default."""

FIRST_PAUSE_SECONDS: Final = 0.05
"""Pause before the first redelivery, in seconds; it doubles each time, to 1.55 s in total."""

MAX_PAUSE_DELIVERIES: Final = 10
"""Number of deliveries after which the pause no longer grows: a broker may have a higher limit."""


REASON_PROPERTY: Final = "dead_letter_reason"
DESTINATION_PROPERTY: Final = "dead_letter_destination"
"""Properties of a dead letter that we make: why it is one, and where the message was sent."""

MAX_REASON_CHARACTERS: Final = 1000
"""Maximum number of characters of the reason for a rejection, which a frame must hold and many messages may have."""


def carried_reason(reason: str) -> str:
    """Return the reason for a rejection as every protocol can carry it.

    It is cut, NUL is left out, and `?` stands for what UTF-8 cannot encode.
    """
    cut = reason if len(reason) <= MAX_REASON_CHARACTERS else f"{reason[: MAX_REASON_CHARACTERS - 1]}…"
    return cut.replace("\0", "").encode(errors="replace").decode()


def pause_after(deliveries: int) -> float:
    """Return the pause in seconds before a message is given back that was delivered this often, counted from 1."""
    return FIRST_PAUSE_SECONDS * 2.0 ** (min(deliveries, MAX_PAUSE_DELIVERIES) - 1)
