"""Taking from a queue what ActiveMQ Classic cannot be told the acceptance of.

It finds the message of an ACK by the JMSMessageID, which it reads as its own are: `ID:…:1:1:1:7`. Where a sender over
AMQP chose the id, as Qpid JMS does (`ID:…:1:1:1-1`), the ACK ends the connection with a NumberFormatException, and so
does a NACK. What such a message can do is go back, when its subscription ends. So that ends, and a *collection* takes
the message: a subscription before all others of the queue, that selects what came back with this id, and that is told
nothing, as the broker takes for accepted what it writes there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Final

from brokers.stomp.acceptance import Arrival, Subscription
from brokers.stomp.frames import Headers

PATIENCE: Final = 10.0
"""Seconds that a collection may take: what has not come by then is another consumer's, or expired."""

LONGEST_ID: Final = 500
"""Characters of a JMSMessageID that are asked for: the broker reads no line above 10 KiB."""

LONGEST_SELECTOR: Final = 1500
"""Characters of ids after which no more is asked for at once."""

WILD: Final = re.compile(r"[%_!]")
"""What has a meaning in a pattern of LIKE."""

FIRST: Final = "127"
"""The highest priority of a consumer."""


class Collection:
    """One of them.

    Args:
        subscription: that it is.
        wanted: what came and is accepted; all by the subscription that ends.
        settle: told once, by any thread, how many did not come.
        spare: given what comes beside that, as where two have one id: nobody else gets it any more.
    """

    def __init__(
        self,
        subscription: Subscription,
        wanted: Sequence[Arrival],
        settle: Callable[[int], None],
        spare: Callable[[Mapping[str, str], bytes], None],
    ) -> None:
        self.subscription = subscription
        self._wanted = list(wanted)
        self._missing = len(self._wanted)
        self._settle = settle
        self._spare = spare
        self._lock = Lock()
        self._has_ended = False

    def headers(self, address: str) -> Headers:
        """Return the headers of its SUBSCRIBE."""
        each = " OR ".join(_selected(arrival.headers) for arrival in self._wanted)
        return {
            "id": self.subscription.id,
            "destination": address,
            "ack": "auto",
            "activemq.priority": FIRST,
            "selector": f"JMSRedelivered = TRUE AND ({each})",
        }

    def receive(self, headers: Mapping[str, str], body: bytes) -> None:
        """Count what comes. For the thread that reads."""
        with self._lock:
            is_wanted = self._missing > 0
            self._missing -= is_wanted
        if not is_wanted:
            self._spare(headers, body)
        elif not self._missing:
            self.end()

    def end(self) -> None:
        """Wait for nothing more. Idempotent."""
        with self._lock:
            has_ended, self._has_ended = self._has_ended, True
        if not has_ended:
            self._settle(self._missing)


def is_full(wanted: Sequence[Arrival]) -> bool:
    """Say whether no more than these may be asked for at once."""
    return sum(min(LONGEST_ID, len(each.headers.get("message-id", ""))) for each in wanted) > LONGEST_SELECTOR


def _selected(headers: Mapping[str, str]) -> str:
    """Select a message: an id may be several messages' where senders number theirs, so its time counts too."""
    text = headers.get("message-id", "")
    found = f"= {_quoted(text)}"
    if len(text) > LONGEST_ID:
        found = f"LIKE {_quoted(WILD.sub(lambda wild: '!' + wild[0], text[:LONGEST_ID]) + '%')} ESCAPE '!'"
    stamp = headers.get("timestamp", "")
    when = f" AND JMSTimestamp = {int(stamp)}" if stamp.isascii() and stamp.isdigit() and len(stamp) < 19 else ""
    return f"(JMSMessageID {found}{when})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
