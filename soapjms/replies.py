"""Where replies come in: one destination a client, of its own or shared, or one for each call under way.

One destination serves all calls where replies repeat the JMSCorrelationID of their request. A responding node of the
2009 edition repeats the JMSMessageID, which a sender is not always told; there each call has a destination of its own,
and the place that a reply came to says whose it is. A temporary destination ends with the generation of the connection
that made it; a fixed one, `replyToName`, stays.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Final, TypeAlias

from brokers.connection import Connection, Consumer, Delivery
from brokers.errors import BrokerError, ClosedError
from brokers.message import Destination, Message
from soapjms.protocol.errors import UsageError

log = logging.getLogger("soapjms.replies")

PREFETCH: Final = 1000

REMEMBERED: Final = 1000
"""Replies that a destination remembers, so that a second copy of one is not taken for the next call's."""

OnReply: TypeAlias = Callable[[Message, str, str], None]
"""Called with a reply, the key of the call that it is for, and what it is if the key is of no call of this client."""


class ReplyStrategy(StrEnum):
    """Where replies come in.

    TEMPORARY: one temporary queue for all calls of a client. EXCLUSIVE: one for each call under way, which tells
    replies apart whatever they repeat. SHARED: the destination that `replyToName` or `topicReplyToName` names.
    """

    TEMPORARY = "temporary"
    EXCLUSIVE = "exclusive"
    SHARED = "shared"


class Replies(ABC):
    """Destinations for replies, each made and listened to when it is first needed. Thread-safe."""

    by_place = False
    """True where the destination says whose reply it is; else the JMSCorrelationID does."""

    is_lasting = False
    """True where replies come in after the connection was lost and made again."""

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
        self.is_lasting = fixed is not None
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
        if place is not None and self._is_valid(place[0]):
            return place[1]
        with self._lock:
            if self._closed:
                raise ClosedError("the client is closed")
            generation = self._connection.generation
            if self._place is None or not self._is_valid(self._place[0]):
                destination = self._fixed or self._connection.temporary(fresh=False)  # replies name their call
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
            if self._fixed is None:
                end_temporary(self._connection, place[1])

    def _is_valid(self, generation: int) -> bool:
        return self.is_lasting or generation == self._connection.generation

    def _on_delivery(self, delivery: Delivery) -> None:
        key = delivery.message.correlation_id or ""
        self._on_reply(delivery.message, key, "foreign" if key and self.is_lasting else "unknown")


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
    """A temporary queue for each call under way; one whose call ended without its reply is ended, and never used again.

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
        self._end(place)
        raise ClosedError("the client is closed")

    def end(self, key: str, *, reusable: bool) -> None:
        """Take the destination back, or end it."""
        with self._lock:
            place = self._leased.pop(key, None)
            if place is None:
                return
            if reusable and not self._closed:
                place.holder = ""
                self._idle.append(place)
                return
        self._end(place)

    def close(self) -> None:
        """Stop listening everywhere, and end the destinations."""
        with self._lock:
            self._closed = True
            places = [*self._idle, *self._leased.values()]
            self._idle.clear()
            self._leased.clear()
        for place in places:
            self._end(place)

    def _end(self, place: _Place) -> None:
        stop(place.consumer)
        end_temporary(self._connection, place.destination)

    def _take_idle(self) -> _Place | None:
        with self._lock:
            while self._idle:
                place = self._idle.pop()
                if place.generation == self._connection.generation:
                    return place
            return None

    def _open(self) -> _Place:
        place = _Place(self._connection.temporary(ends=True), self._connection.generation)
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
            self._on_reply(message, "", "duplicate" if repeats else "unknown")
            return
        place.seen.append(repeats)
        self._on_reply(message, place.holder, "unknown")


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """What decides where replies come in.

    Attributes:
        wanted: the caller's wish. Without one that is the fixed destination if there is one, else a temporary queue
            for all calls, or for each where replies repeat the JMSMessageID.
        fixed: the destination that the binding properties name.
        by_message_id: replies repeat the JMSMessageID of their request.
        prefix: of the JMSCorrelationIDs that are ours.
    """

    wanted: ReplyStrategy | None
    fixed: Destination | None
    by_message_id: bool
    prefix: str

    def replies(self, connection: Connection, on_reply: OnReply) -> Replies:
        """Make what was chosen, for replies that `on_reply` takes.

        Raises:
            UsageError: the wish contradicts the binding properties or the edition.
        """
        strategy = self._strategy()
        if strategy is ReplyStrategy.EXCLUSIVE:
            return ExclusiveReplies(connection, on_reply)
        ours = None
        if self.fixed is not None and not self.by_message_id and connection.capabilities.selectors:
            ours = f"JMSCorrelationID LIKE '{self.prefix}%'"
        return SharedReplies(connection, self.fixed, ours, on_reply)

    def _strategy(self) -> ReplyStrategy:
        usual = ReplyStrategy.EXCLUSIVE if self.by_message_id else ReplyStrategy.TEMPORARY
        strategy = self.wanted or (usual if self.fixed is None else ReplyStrategy.SHARED)
        if (strategy is ReplyStrategy.SHARED) != (self.fixed is not None):
            raise UsageError(
                f"replies='{strategy}', but replyToName or topicReplyToName names {self.fixed or 'nothing'}: "
                "'shared' goes with one of them, 'temporary' and 'exclusive' without"
            )
        if strategy is ReplyStrategy.TEMPORARY and self.by_message_id:
            raise UsageError(
                "replies='temporary' cannot tell replies apart that repeat the JMSMessageID, as in this edition: "
                "leave it out, or write 'exclusive'"
            )
        return strategy


def stop(consumer: Consumer) -> None:
    """Close a consumer, which may have ended with its connection."""
    try:
        consumer.close()
    except BrokerError as error:
        log.debug("the consumer was gone before: %s", error)


def end_temporary(connection: Connection, destination: Destination) -> None:
    """End a temporary destination, which may have ended with its connection."""
    try:
        connection.end_temporary(destination)
    except BrokerError as error:
        log.debug("%s was gone before: %s", destination, error)
