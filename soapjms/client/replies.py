"""Where replies come in: one destination a client, of its own or shared, or one for each call under way.

One destination serves all calls where replies repeat the JMSCorrelationID of their request. A responding node of the
2009 edition repeats the JMSMessageID, which a sender is not always told; there each call has a destination of its own,
and the place that a reply came to says whose it is. A temporary destination ends with the generation of the connection
that made it, or before if the broker ends it; a fixed one, `replyToName`, stays.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import inf
from threading import Lock
from typing import Final, NamedTuple, TypeAlias, TypeVar

from brokers.adapter.wait import left
from brokers.connection import Connection, ConnectionState, Consumer, Delivery, end_temporary, stop
from brokers.errors import BrokerError, ClosedError, NotSentError
from brokers.message import Destination, Message
from brokers.threads.thread import Thread
from soapjms.protocol.errors import UsageError

log = logging.getLogger("soapjms.replies")

T = TypeVar("T")

PREFETCH_MESSAGES: Final = 1000

MAX_KNOWN_REPLIES: Final = 1000
"""Replies that a destination remembers, so that a second copy of one is not taken for the next call's."""

DESTINATION_GRACE_SECONDS: Final = 0.5
"""Seconds that a call gets for a new destination beyond its own time, which may be too short for ever getting one."""

OnReply: TypeAlias = Callable[[Message, str, str], None]
"""Called with a reply, the key of the call that it is for, and what it is if the key is of no call of this client."""


OnUnread: TypeAlias = Callable[[Message, str, str], None]
"""Called with the head of a reply above the connection's limit, the key of the call that it is for, and the reason."""

OnGone: TypeAlias = Callable[[Destination, str], None]
"""Called with a temporary destination to which no reply comes any more, and the reason."""

MAX_GONE_DESTINATIONS: Final = 100
"""Destinations that are remembered as gone, for the calls that were about to name them."""


class ReplyCallbacks(NamedTuple):
    """Who is told of what comes in, and of what cannot any more."""

    on_reply: OnReply
    on_unread: OnUnread = lambda message, key, reason: None
    on_gone: OnGone = lambda destination, reason: None


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

    def __init__(self, connection: Connection, told: ReplyCallbacks | OnReply) -> None:
        self._connection = connection
        self._told = told if isinstance(told, ReplyCallbacks) else ReplyCallbacks(told)
        self._lock = Lock()
        self._closed = False
        self.gone: dict[Destination, str] = {}

    def _note_gone(self, destination: Destination, generation: int, problem: str) -> None:
        """Take note that the broker ended a temporary destination; of a connection's end others are told."""
        is_of_now = generation == self._connection.generation and self._connection.state is ConnectionState.CONNECTED
        if not problem or self._closed or not is_of_now:
            return
        self.gone = dict([*self.gone.items(), (destination, problem)][-MAX_GONE_DESTINATIONS:])
        self._told.on_gone(destination, problem)

    @abstractmethod
    def lease(self, key: str, until: float = inf) -> Destination:
        """Return where the reply for the call `key` is to go; somebody listens there.

        Args:
            key: names the call.
            until: what the monotonic clock shows when the call's time is over; one that needs another destination gets
                half a second more.

        Raises:
            NotSentError: the broker did not make one in time.
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
        told: takes the replies.
    """

    def __init__(
        self, connection: Connection, fixed: Destination | None, selector: str | None, told: ReplyCallbacks | OnReply
    ) -> None:
        super().__init__(connection, told)
        self.is_lasting = fixed is not None
        self._fixed = fixed
        self._selector = selector
        self._place: tuple[int, Destination, Consumer] | None = None
        self._opening: Future[Destination] | None = None

    def lease(self, key: str, until: float = inf) -> Destination:
        """Return the destination, which is another with each generation of the connection unless it is fixed.

        Raises:
            BrokerError: the broker ended the subscription to the fixed destination, and it is not there again yet.
        """
        place = self._place
        if place is not None and self._is_valid(place):
            return place[1]
        with self._lock:
            if self._closed:
                raise ClosedError("the client is closed")
            if self._place is not None and self._is_valid(self._place):
                return self._place[1]
            if self._place is not None and self.is_lasting:
                raise BrokerError(f"no replies come from {self._fixed} just now: {self._place[2].problem}")
            if self._opening is None or self._opening.done():
                self._opening = elsewhere(self._open)
            opening = self._opening
        return awaited(opening, until)

    def _open(self) -> Destination:
        generation = self._connection.generation
        destination = self._fixed or self._connection.temporary(fresh=False)  # replies name their call
        consumer = self._connection.consume(
            destination,
            self._on_delivery,
            prefetch=PREFETCH_MESSAGES,
            selector=self._selector,
            auto_accept=True,
            quick=True,
            on_refused=self._on_refused,
            on_problem=None if self.is_lasting else partial(self._note_gone, destination, generation),
        )
        with self._lock:
            if not self._closed:
                self._place = generation, destination, consumer
                return destination
        self._end(destination, consumer)
        raise ClosedError("the client is closed")

    def end(self, key: str, *, reusable: bool) -> None:
        """Nothing: the destination is everybody's."""

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            self._closed = True
            place, self._place = self._place, None
        if place is not None:
            self._end(*place[1:])

    def _end(self, destination: Destination, consumer: Consumer) -> None:
        stop(consumer)
        if self._fixed is None:
            end_temporary(self._connection, destination)

    def _is_valid(self, place: tuple[int, Destination, Consumer]) -> bool:
        return not place[2].problem and (self.is_lasting or place[0] == self._connection.generation)

    def _on_refused(self, message: Message, reason: str) -> None:
        self._told.on_unread(message, message.correlation_id or "", reason)

    def _on_delivery(self, delivery: Delivery) -> None:
        key = delivery.message.correlation_id or ""
        self._told.on_reply(delivery.message, key, "foreign" if key and self.is_lasting else "unknown")


class _Place:
    """A temporary queue for one call at a time."""

    __slots__ = ("consumer", "destination", "generation", "holder", "seen")

    def __init__(self, destination: Destination, generation: int) -> None:
        self.destination = destination
        self.generation = generation
        self.consumer: Consumer  # set once it listens, before anybody else knows the place
        self.holder = ""
        self.seen: deque[str] = deque(maxlen=MAX_KNOWN_REPLIES)


class ExclusiveReplies(Replies):
    """A temporary queue for each call under way; one whose call ended without its reply is ended, and never used again.

    Args:
        connection: to the broker.
        told: takes the replies.
    """

    by_place = True

    def __init__(self, connection: Connection, told: ReplyCallbacks | OnReply) -> None:
        super().__init__(connection, told)
        self._idle: list[_Place] = []
        self._leased: dict[str, _Place] = {}

    def lease(self, key: str, until: float = inf) -> Destination:
        """Return a destination that no other call uses until `end`."""
        place = self._take_idle()
        if place is None:
            opening = elsewhere(self._open)
            try:
                place = awaited(opening, until)
            except NotSentError:
                opening.add_done_callback(self._keep)
                raise
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
                if place.generation == self._connection.generation and not place.consumer.problem:
                    return place
            return None

    def _keep(self, opening: Future[_Place]) -> None:
        """Have another call use a place that came too late."""
        if opening.exception() is not None:
            return
        place = opening.result()
        with self._lock:
            if not self._closed:
                self._idle.append(place)
                return
        self._end(place)

    def _open(self) -> _Place:
        place = _Place(self._connection.temporary(ends=True), self._connection.generation)
        place.consumer = self._connection.consume(
            place.destination,
            partial(self._on_delivery, place),
            prefetch=PREFETCH_MESSAGES,
            auto_accept=True,
            quick=True,
            on_refused=partial(self._on_refused, place),
            on_problem=partial(self._note_gone, place.destination, place.generation),
        )
        return place

    def _on_refused(self, place: _Place, message: Message, reason: str) -> None:
        self._told.on_unread(message, place.holder, reason)

    def _on_delivery(self, place: _Place, delivery: Delivery) -> None:
        """Hand a reply to the call that holds the place; a second copy of an earlier one, or one without id, to none.

        A service that commits late may answer twice.
        """
        message = delivery.message
        repeats = message.correlation_id
        if not repeats or repeats in place.seen:
            self._told.on_reply(message, "", "duplicate" if repeats else "unknown")
            return
        place.seen.append(repeats)
        self._told.on_reply(message, place.holder, "unknown")


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

    def replies(self, connection: Connection, told: ReplyCallbacks | OnReply) -> Replies:
        """Make what was chosen, for replies that whoever is told takes.

        Raises:
            UsageError: the wish contradicts the binding properties or the edition.
        """
        strategy = self._strategy()
        if strategy is ReplyStrategy.EXCLUSIVE:
            return ExclusiveReplies(connection, told)
        ours = None
        if self.fixed is not None and not self.by_message_id and connection.capabilities.selectors:
            ours = f"JMSCorrelationID LIKE '{self.prefix}%'"
        return SharedReplies(connection, self.fixed, ours, told)

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


def elsewhere(function: Callable[[], T]) -> Future[T]:
    """Run what asks the broker on a thread of its own, so that nobody has to wait for it longer than he likes."""
    asked: Future[T] = Future()

    def run() -> None:
        try:
            asked.set_result(function())
        except BaseException as error:
            asked.set_exception(error)

    Thread(target=run, name="soapjms-replies", daemon=True).start()
    return asked


def awaited(asked: Future[T], until: float) -> T:
    """Wait for what the broker was asked for, until the monotonic clock shows `until` and a little longer.

    Raises:
        NotSentError: that was not long enough.
    """
    try:
        return asked.result(None if until == inf else left(until) + DESTINATION_GRACE_SECONDS)
    except FutureTimeoutError:
        if asked.done():  # at this moment, or it was its own
            return asked.result()
        raise NotSentError("the broker made no destination for the reply in time") from None


def reply_strategy(wanted: ReplyStrategy | str | None) -> ReplyStrategy | None:
    """Return the strategy, which may be given by its name; None for no wish.

    Raises:
        UsageError: there is no such one.
    """
    if wanted is None or wanted in tuple(ReplyStrategy):
        return None if wanted is None else ReplyStrategy(wanted)
    raise UsageError(f"replies is {wanted!r}; it is one of {', '.join(ReplyStrategy)}, or None for the usual")
