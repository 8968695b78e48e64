"""How often a message that its consumer releases is delivered, the pause before each redelivery, and why it is refused.

STOMP does not carry the delivery count, nor do the classic queues of RabbitMQ have one: the broker redelivers a
released message at once. So a message that always fails would be delivered forever, thousands of times a second. The
count here allows a pause before each redelivery, and a dead letter in the end.

Dead letters that we make have the same properties everywhere. What else a dead letter is on the wire belongs in the
adapter.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
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


MAX_RELEASED_MESSAGES: Final = 10_000
"""Maximum number of messages whose releases are counted; beyond it the oldest are forgotten."""


class Releases:
    """Counts the releases of each message over one connection. Thread-safe.

    Attributes:
        counts: the number of releases by message; of those that were released and not settled since.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.counts: dict[Hashable, int] = {}

    def __contains__(self, message: Hashable) -> bool:
        """Return whether a message was released and not settled since. Costs nothing while none was released."""
        return message in self.counts

    def count(self, message: Hashable) -> int:
        """Record one more release of a message, and return their number."""
        with self._lock:
            releases = self.counts.pop(message, 0) + 1
            self.counts[message] = releases
            if len(self.counts) > MAX_RELEASED_MESSAGES:
                del self.counts[next(iter(self.counts))]
            return releases

    def forget(self, message: Hashable) -> None:
        """Forget a message that was accepted or rejected. Costs nothing while none was released."""
        if self.counts:
            with self._lock:
                self.counts.pop(message, None)
