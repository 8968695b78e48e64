"""Where replies come in: one destination a client, or one for each call under way.

One destination serves all calls where replies repeat the JMSCorrelationID of their request. A responding node of the
2009 edition repeats the JMSMessageID, which a sender is not always told; there each call has a destination of its own,
and the place that a reply came to says whose it is.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Final, TypeAlias

from brokers.connection import Connection, Consumer, Delivery
from brokers.errors import BrokerError, ClosedError
from brokers.message import Destination, Message

log = logging.getLogger("soapjms.replies")

PREFETCH: Final = 1000

REMEMBERED: Final = 1000
"""Replies that a destination remembers, so that a second copy of one is not taken for the next call's."""

OnReply: TypeAlias = Callable[[Message, str], None]
"""Called with a reply and the key of the call that it is for; the key may be of no call under way."""


class Replies(ABC):
    """Destinations for replies, each made and listened to when it is first needed. Thread-safe."""

    by_place = False
    """True where the destination says whose reply it is; else the JMSCorrelationID does."""

    @abstractmethod
    def lease(self, key: str) -> Destination:
        """Return where the reply for the call `key` is to go; somebody listens there.

        Raises:
            BrokerError: there can be none, as the connection is lost or this was closed.
        """

    @abstractmethod
    def end(self, key: str, *, reusable: bool) -> None:
        """Tell that the call `key` is over; `reusable` if no reply for it can come any more. May block."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening. Idempotent."""


class SharedReplies(Replies):
    """One destination for all calls, told apart by JMSCorrelationID.

    Args:
        connection: to the broker.
        fixed: the destination; a temporary queue of this connection where it is None.
        selector: of the replies that are ours, for a fixed destination that others use too.
        on_reply: takes the replies.
    """

    def __init__(
        self, connection: Connection, fixed: Destination | None, selector: str | None, on_reply: OnReply
    ) -> None:
        self._connection = connection
        self._fixed = fixed
        self._selector = selector
        self._on_reply = on_reply
        self._lock = Lock()
        self._place: tuple[int, Destination, Consumer] | None = None
        self._closed = False

    def lease(self, key: str) -> Destination:
        """Return the destination, which is another with each generation of the connection unless it is fixed."""
        place = self._place
        if place is not None and place[0] == self._connection.generation:
            return place[1]
        with self._lock:
            if self._closed:
                raise ClosedError("the client is closed")
            generation = self._connection.generation
            if self._place is None or self._place[0] != generation:
                destination = self._fixed or self._connection.temporary()
                consumer = self._connection.consume(
                    destination,
                    self._on_delivery,
                    prefetch=PREFETCH,
                    selector=self._selector,
                    auto_accept=True,
                    inline=True,
                )
                self._place = generation, destination, consumer
            return self._place[1]

    def end(self, key: str, *, reusable: bool) -> None:
        """Nothing: the destination is everybody's."""

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            self._closed = True
            place, self._place = self._place, None
        if place is not None:
            stop(place[2])

    def _on_delivery(self, delivery: Delivery) -> None:
        self._on_reply(delivery.message, delivery.message.correlation_id or "")


class _Place:
    """A temporary queue for one call at a time."""

    __slots__ = ("consumer", "destination", "generation", "holder", "seen")

    def __init__(self, destination: Destination, generation: int) -> None:
        self.destination = destination
        self.generation = generation
        self.consumer: Consumer  # set once it listens, before anybody else knows the place
        self.holder = ""
        self.seen: deque[str] = deque(maxlen=REMEMBERED)


class ExclusiveReplies(Replies):
    """A temporary queue for each call under way; one whose call ended without its reply is never used again.

    Args:
        connection: to the broker.
        on_reply: takes the replies.
    """

    by_place = True

    def __init__(self, connection: Connection, on_reply: OnReply) -> None:
        self._connection = connection
        self._on_reply = on_reply
        self._lock = Lock()
        self._idle: list[_Place] = []
        self._leased: dict[str, _Place] = {}
        self._closed = False

    def lease(self, key: str) -> Destination:
        """Return a destination that no other call uses until `end`."""
        place = self._take_idle() or self._open()
        with self._lock:
            if not self._closed:
                place.holder = key
                self._leased[key] = place
                return place.destination
        stop(place.consumer)
        raise ClosedError("the client is closed")

    def end(self, key: str, *, reusable: bool) -> None:
        """Take the destination back, or stop listening there for good."""
        with self._lock:
            place = self._leased.pop(key, None)
            if place is None:
                return
            place.holder = ""
            if reusable and not self._closed:
                self._idle.append(place)
                return
        stop(place.consumer)

    def close(self) -> None:
        """Stop listening everywhere."""
        with self._lock:
            self._closed = True
            places = [*self._idle, *self._leased.values()]
            self._idle.clear()
            self._leased.clear()
        for place in places:
            stop(place.consumer)

    def _take_idle(self) -> _Place | None:
        with self._lock:
            while self._idle:
                place = self._idle.pop()
                if place.generation == self._connection.generation:
                    return place
            return None

    def _open(self) -> _Place:
        place = _Place(self._connection.temporary(), self._connection.generation)
        place.consumer = self._connection.consume(
            place.destination, partial(self._on_delivery, place), prefetch=PREFETCH, auto_accept=True, inline=True
        )
        return place

    def _on_delivery(self, place: _Place, delivery: Delivery) -> None:
        """Hand a reply to the call that holds the place; a second copy of an earlier one, or one without id, to none.

        A service that commits late may answer twice.
        """
        message = delivery.message
        repeats = message.correlation_id
        if not repeats or repeats in place.seen:
            self._on_reply(message, "")
            return
        place.seen.append(repeats)
        self._on_reply(message, place.holder)


def stop(consumer: Consumer) -> None:
    """Close a consumer, which may have ended with its connection."""
    try:
        consumer.close()
    except BrokerError as error:
        log.debug("the consumer was gone before: %s", error)
