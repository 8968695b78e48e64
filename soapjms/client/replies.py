"""Reply destinations: one for each client, its own or shared, or one for each pending call.

One destination serves all calls where replies repeat the JMSCorrelationID of their request. A responding node of the
2009 edition repeats the JMSMessageID, which a sender is not always told; there each call has its own destination, by
which its reply is recognized. A temporary destination ends with the generation of the connection that made it, or
earlier if the broker ends it; a fixed one, `replyToName`, stays.
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
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from brokers.connection import (
    Connection,
    ConnectionState,
    Consumer,
    Delivery,
    end_temporary,
    ended_on_failure,
    stop,
)
from brokers.errors import BrokerError, ClosedError, NotSentError
from brokers.message import Destination, Message
from brokers.threads.thread import Pool, future_of
from brokers.threads.timer import left
from soapjms.protocol.errors import UsageError

log = logging.getLogger("soapjms.replies")

T = TypeVar("T")

PREFETCH_MESSAGES: Final = 1000

MAX_KNOWN_REPLIES: Final = 1000
"""Replies that a destination remembers, so that a second copy of one is not taken for the reply to the next call."""

DESTINATION_GRACE_SECONDS: Final = 0.5
"""Seconds beyond its timeout that a call may wait for a new destination, as its timeout may be too short for that."""

MAX_LATE_OPENINGS: Final = 4
"""Destinations that are being opened for calls that have given up, before other calls wait for these."""

MAX_ENDING_THREADS: Final = 4
"""Threads that end destinations at a time, each waiting for the broker."""

OnReply: TypeAlias = Callable[[Message, str, str], None]
"""Called with a reply, the key of its call, and how to count the reply if this client has no call of that key."""


OnUnread: TypeAlias = Callable[[Message, str, str], None]
"""Called with the head of a reply above the connection's limit, the key of its call, and the reason."""

OnGone: TypeAlias = Callable[[Destination, str], None]
"""Called with a temporary destination that can receive no more replies, and the reason."""

MAX_GONE_DESTINATIONS: Final = 100
"""Ended destinations that are remembered, for calls that were about to use them."""


class ReplyCallbacks(NamedTuple):
    """Callbacks for replies, for replies that were not read, and for destinations that ended."""

    on_reply: OnReply
    on_unread: OnUnread = lambda message, key, reason: None
    on_gone: OnGone = lambda destination, reason: None


class ReplyStrategy(StrEnum):
    """Where replies come in.

    TEMPORARY: one temporary queue for all calls of a client. EXCLUSIVE: one temporary queue for each pending call,
    which tells replies apart whichever id they repeat. SHARED: the destination that `replyToName` or
    `topicReplyToName` names.
    """

    TEMPORARY = "temporary"
    EXCLUSIVE = "exclusive"
    SHARED = "shared"


ReplyStrategyName: TypeAlias = Literal["temporary", "exclusive", "shared"]


class Replies(ABC):
    """Destinations for replies, each created and subscribed to when it is first needed. Thread-safe."""

    by_place = False
    """True if the destination identifies the call of a reply; False if the JMSCorrelationID does."""

    is_lasting = False
    """True if replies still arrive after the connection was lost and restored."""

    def __init__(self, connection: Connection, told: ReplyCallbacks | OnReply) -> None:
        self._connection = connection
        self._told = told if isinstance(told, ReplyCallbacks) else ReplyCallbacks(told)
        self._lock = Lock()
        self._closed = False
        self.gone: dict[Destination, str] = {}

    def _note_gone(self, destination: Destination, generation: int, problem: str) -> None:
        """Remember a temporary destination that the broker ended; the end of the connection is handled elsewhere."""
        is_of_now = generation == self._connection.generation and self._connection.state is ConnectionState.CONNECTED
        if not problem or self._closed or not is_of_now:
            return
        self.gone = dict([*self.gone.items(), (destination, problem)][-MAX_GONE_DESTINATIONS:])
        self._told.on_gone(destination, problem)

    @property
    def is_open(self) -> bool:
        """Whether `lease` returns at once."""
        return False

    @abstractmethod
    def lease(self, key: str, until: float = inf) -> Destination:
        """Return a destination with a consumer for the reply to the call `key`.

        Args:
            key: names the call.
            until: the deadline of the call, by the monotonic clock; a call that needs a new destination gets half a
                second more.

        Raises:
            NotSentError: the broker did not create a destination in time.
            BrokerError: no destination can be created, as the connection is lost or the client is closed.
        """

    @abstractmethod
    def end(self, key: str, *, reusable: bool) -> None:
        """End the lease of the call `key`; `reusable` says that no further reply to it can come. Never waits."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening. Idempotent."""


class SharedReplies(Replies):
    """One destination for all calls, told apart by JMSCorrelationID.

    Args:
        connection: the connection to the broker.
        fixed: the destination; None for a temporary queue of this connection.
        selector: selects the replies to this client, on a fixed destination that others use too.
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

    @property
    def is_open(self) -> bool:
        """Whether there is a destination."""
        return self._place is not None and self._is_valid(self._place)

    def lease(self, key: str, until: float = inf) -> Destination:
        """Return the destination: the fixed one, or the temporary queue of the connection's present generation.

        Raises:
            BrokerError: the broker ended the subscription to the fixed destination, and it is not restored yet.
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
                raise BrokerError(f"no replies can be received from {self._fixed} now: {self._place[2].problem}")
            if self._opening is None or self._opening.done():
                self._opening = future_of(self._open, "soapjms-replies")
            opening = self._opening
        return awaited(opening, until)

    def _open(self) -> Destination:
        generation = self._connection.generation
        destination = self._fixed or self._connection.temporary(fresh=False)  # replies name their call
        with ended_on_failure(self._connection, destination):  # a fixed one is not ended
            consumer = self._connection.consume(
                destination,
                self._on_delivery,
                prefetch=PREFETCH_MESSAGES,
                selector=self._selector,
                auto_accept=True,
                inline=True,
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
        """Do nothing: all calls use the destination."""

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
        self.consumer: Consumer  # set once it is subscribed, before any other thread has the place
        self.holder = ""
        self.seen: deque[str] = deque(maxlen=MAX_KNOWN_REPLIES)


class ExclusiveReplies(Replies):
    """A temporary queue for each pending call; the queue of a call that ended without its reply is deleted.

    Args:
        connection: the connection to the broker.
        told: takes the replies.
    """

    by_place = True

    def __init__(self, connection: Connection, told: ReplyCallbacks | OnReply) -> None:
        super().__init__(connection, told)
        self._idle: list[_Place] = []
        self._leased: dict[str, _Place] = {}
        self._late: deque[Future[_Place]] = deque()  # being opened, for calls that have given up
        self._endings = Pool(MAX_ENDING_THREADS, "soapjms-replies-end")

    def lease(self, key: str, until: float = inf) -> Destination:
        """Return a destination that no other call uses until `end`."""
        place = self._take_idle() or self._opened(until)
        with self._lock:
            if not self._closed:
                place.holder = key
                self._leased[key] = place
                return place.destination
        self._end(place)
        raise ClosedError("the client is closed")

    def end(self, key: str, *, reusable: bool) -> None:
        """Keep the destination for the next call if it is reusable, else delete it."""
        with self._lock:
            place = self._leased.pop(key, None)
            if place is None:
                return
            if reusable and not self._closed:
                place.holder = ""
                self._idle.append(place)
                return
        try:
            self._endings.submit(self._end, place)
        except (RuntimeError, MemoryError):  # there is no thread: the place stays taken as long as the client
            with self._lock:
                self._leased[key] = place

    def close(self) -> None:
        """Stop all consumers, and delete the destinations."""
        with self._lock:
            self._closed = True
            places = [*self._idle, *self._leased.values()]
            self._idle.clear()
            self._leased.clear()
        for place in places:
            self._end(place)
        self._endings.shutdown()

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

    def _opened(self, until: float) -> _Place:
        """Open a place, or wait for one that is being opened for a call that has given up, if there are some of these.

        So the calls to a broker that hangs do not leave more and more threads behind.
        """
        with self._lock:
            opening = self._late.popleft() if len(self._late) >= MAX_LATE_OPENINGS else None
        if opening is None:
            opening = future_of(self._open, "soapjms-replies")
            opening.add_done_callback(self._keep)
        try:
            return awaited(opening, until)
        except BaseException:
            with self._lock:
                self._late.append(opening)
            if opening.done():
                self._keep(opening)
            raise

    def _keep(self, opening: Future[_Place]) -> None:
        """Keep a place that was opened too late for its call, for another one."""
        with self._lock:
            if opening not in self._late:  # a call waits for it
                return
            self._late.remove(opening)
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
        with ended_on_failure(self._connection, place.destination):
            place.consumer = self._connection.consume(
                place.destination,
                partial(self._on_delivery, place),
                prefetch=PREFETCH_MESSAGES,
                auto_accept=True,
                inline=True,
                on_refused=partial(self._on_refused, place),
                on_problem=partial(self._note_gone, place.destination, place.generation),
            )
        return place

    def _on_refused(self, place: _Place, message: Message, reason: str) -> None:
        self._told.on_unread(message, place.holder, reason)

    def _on_delivery(self, place: _Place, delivery: Delivery) -> None:
        """Hand a reply to the call that holds the place, unless it repeats an earlier reply or has no correlation id.

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
    """The inputs that decide where replies come in.

    Attributes:
        wanted: the caller's choice. None for the fixed destination if there is one; otherwise for one temporary queue,
            or for one queue a call where replies repeat the JMSMessageID.
        fixed: the destination that the binding properties name, or None.
        by_message_id: True if replies repeat the JMSMessageID of their request.
        prefix: starts the JMSCorrelationIDs of this client.
    """

    wanted: ReplyStrategy | None
    fixed: Destination | None
    by_message_id: bool
    prefix: str

    def replies(self, connection: Connection, told: ReplyCallbacks | OnReply) -> Replies:
        """Make the reply destinations of this choice.

        Raises:
            UsageError: the caller's choice contradicts the binding properties or the edition.
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
                f"replies='{strategy}' contradicts replyToName or topicReplyToName, which names "
                f"{self.fixed or 'nothing'}: 'shared' needs one of them, 'temporary' and 'exclusive' exclude both"
            )
        if strategy is ReplyStrategy.TEMPORARY and self.by_message_id:
            raise UsageError(
                "replies='temporary' cannot tell apart replies that repeat the JMSMessageID, as in this edition: "
                "omit it, or use 'exclusive'"
            )
        return strategy


def awaited(asked: Future[T], until: float) -> T:
    """Wait for the broker's answer until `until` on the monotonic clock, plus `DESTINATION_GRACE_SECONDS`.

    Raises:
        NotSentError: the answer did not come in time.
    """
    try:
        return asked.result(None if until == inf else left(until) + DESTINATION_GRACE_SECONDS)
    except FutureTimeoutError:
        if asked.done():  # it ended at this moment, or the function raised the TimeoutError itself
            return asked.result()
        raise NotSentError("the broker did not create a reply destination in time") from None


def reply_strategy(wanted: ReplyStrategy | str | None) -> ReplyStrategy | None:
    """Return the strategy, which may be given by its name; None for the default.

    Raises:
        UsageError: there is no such strategy.
    """
    if wanted is None or wanted in tuple(ReplyStrategy):
        return None if wanted is None else ReplyStrategy(wanted)
    raise UsageError(f"replies must be one of {', '.join(ReplyStrategy)}, or None for the default, got {wanted!r}")
