"""Telling the broker what an `auto_accept` consumer is done with: in chunks, so that it costs next to nothing.

With STOMP's own `ack:auto` a broker sends as fast as it can, and what a slow consumer has not taken piles up in this
process; and it forgets a message the moment that it writes it, so one that is on the way when the connection goes is
lost. So messages are acknowledged here, after `on_delivery` returned: the broker never has more on the way than the
prefetch, keeps the rest itself, and delivers again what it was not told of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple

from brokers.deadlines import Later
from brokers.errors import ConnectionLostError
from brokers.stomp.dialect import SMALLEST_FRAME
from brokers.stomp.frames import acknowledgement
from brokers.stomp.link import Link, pack

PARTS: Final = 4
"""The broker is told when this part of what it may have on the way is done, so that it never runs dry."""

SECONDS: Final = 0.2
"""After so long it is told anyway."""

LAZY_SECONDS: Final = 1.0
"""Likewise, where that is for somebody who is in no hurry: what a thread is woken for should be worth it."""


@dataclass(slots=True, eq=False)
class Subscription:
    """One SUBSCRIBE and its end. What is true of it changes only while the link's `writing` is held.

    Attributes:
        is_begun: SUBSCRIBE was written.
        is_live: it was not ended.
        is_leaving: it is about to end, so what comes by it is left to the next one.
        is_untold: the broker takes for accepted what it writes, and is told nothing.
    """

    id: str
    link: Link
    generation: int
    is_begun: bool = False
    is_live: bool = True
    is_leaving: bool = False
    is_untold: bool = False


class Arrival(NamedTuple):
    """A MESSAGE frame as it came, and the subscription that it came by.

    Of one above the limit the body was passed over, `size` octets; `refusal` says why.
    """

    subscription: Subscription
    headers: Mapping[str, str]
    body: bytes
    size: int = 0
    refusal: str = ""

    @property
    def can_be_named(self) -> bool:
        """Whether an ACK or a NACK can name the message; see `brokers.stomp.collection`."""
        own = self.subscription.link.dialect.own_ids
        return (
            own is None or self.subscription.is_untold or own.fullmatch(self.headers.get("message-id", "")) is not None
        )


class Acceptances:
    """What a consumer is done with and the broker was not told of yet.

    Args:
        prefetch: messages that the broker may have on the way.
        submit: runs a function at once, which does not wait.
        later: runs one after some seconds.
        seconds: after which the broker is told at the latest.
    """

    def __init__(
        self,
        prefetch: int,
        submit: Callable[[Callable[[], None]], None],
        later: Later,
        seconds: float = SECONDS,
    ) -> None:
        self._prefetch = prefetch
        self._submit = submit
        self._later = later
        self._seconds = seconds
        self._lock = Lock()
        self._done: list[Arrival] = []
        self._octets = 0
        self._is_asked = self._is_timed = False

    def note(self, arrival: Arrival) -> None:
        """Take note that `on_delivery` returned. Does not block: the thread that reads may call it."""
        with self._lock:
            if self._done and self._done[-1].subscription is not arrival.subscription:
                self._done.clear()  # an earlier session's: it is delivered again, or was its session's alone
                self._octets = 0
            self._done.append(Arrival(arrival.subscription, arrival.headers, b""))
            self._octets += len(arrival.body) + arrival.size
            share = max(len(self._done), self._octets // SMALLEST_FRAME) * PARTS
            ask, self._is_asked = share >= self._prefetch and not self._is_asked, share >= self._prefetch
            time, self._is_timed = not self._is_timed, True
        if ask:
            self._submit(self.tell)
        elif time:
            self._later(self._seconds, self._tell_in_time)

    def tell(self) -> None:
        """Tell the broker now."""
        with self._lock:
            subscription = self._done[-1].subscription if self._done else None
        if subscription is not None:
            with subscription.link.writing, suppress(ConnectionLostError):  # then it delivers them again
                subscription.link.write(self.frames(subscription))

    def frames(self, subscription: Subscription) -> bytes:
        """Return the ACK frames to write for a subscription, whose link's `writing` is held."""
        with self._lock:
            done, self._done = self._done, []
            self._octets = 0
            self._is_asked = False
        if not subscription.is_live or subscription.is_untold:
            return b""
        dialect = subscription.link.dialect
        told = done[-1:] if dialect.accepts_earlier else done
        return b"".join(
            pack("ACK", acknowledgement(each.headers, dialect)) for each in told if each.subscription is subscription
        )

    def _tell_in_time(self) -> None:
        with self._lock:
            self._is_timed = False
        self.tell()
