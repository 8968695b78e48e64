"""The data structures of the core: stores of waiting messages, destinations, subscriptions and headers.

`core.py` holds its lock around every call. Nothing here takes a lock, starts a thread, reads a clock or calls back
except for selectors. Waiting messages are kept in the order of delivery, without knowledge of destination names.

The headers that JMS 1.1 section 3.4 assigns to the provider are set by pure functions from message to message. All
other headers pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from brokers.adapter.redelivery import DESTINATION_PROPERTY, REASON_PROPERTY
from brokers.embedded.lock import WakeUp, WakingLock
from brokers.errors import UsageError
from brokers.message import (
    DEFAULT_PRIORITY,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageDraft,
    Properties,
    body_problem,
    changed,
    field_problem,
    typed,
)

HIGHEST_PRIORITY: Final = 9


MESSAGE_OVERHEAD_OCTETS: Final = 512
"""Octets that count for each message in the total, besides its own size."""


@dataclass(slots=True, eq=False)
class Total:
    """The size of all messages of a broker, in octets."""

    octets: int = 0


@dataclass(slots=True, eq=False)
class MessageShare:
    """The share of one message in the total, counted while `stores`, the number of stores that hold it, is not 0."""

    total: Total = field(default_factory=Total)
    octets: int = 0
    stores: int = 0


Wants: TypeAlias = Callable[[Message, int], bool]
"""Returns whether a subscription wants a message, given the number of its deliveries including this one."""


@dataclass(slots=True, eq=False)
class QueueEntry:
    """One message in one store: `sequence` is its place in the order of arrival, `deliveries` counts hand-overs.

    `octets` is its size in this store, `share` its share in the total; `is_waiting` is True while it may be taken.
    """

    message: Message
    sequence: int
    octets: int = 0
    deliveries: int = 0
    share: MessageShare = field(default_factory=MessageShare)
    is_waiting: bool = False


class EntryLine:
    """Entries of a store in the order of delivery: all, or those that a subscription wants.

    An entry may be in several lines; after it was taken from one, the others skip it until `prune` removes it.

    Args:
        wants: selects the entries; None for all.
        is_for_looking: whether the line is for a browser: entries stay in the store, and are not shown twice.
    """

    __slots__ = ("_heap", "_known", "_wants", "is_for_looking")

    def __init__(self, wants: Wants | None = None, *, is_for_looking: bool = False) -> None:
        self._heap: list[tuple[int, int, QueueEntry]] = []
        self._known: set[QueueEntry] = set()
        self._wants = wants
        self.is_for_looking: Final = is_for_looking

    def offer(self, entry: QueueEntry) -> bool:
        """Add a waiting entry if it is wanted; return whether it is in the line."""
        if entry in self._known:
            return True
        if self._wants is not None and not self._wants(entry.message, entry.deliveries + 1):
            return False
        self._known.add(entry)
        priority = (
            DEFAULT_PRIORITY if (given := entry.message.priority) is None else min(max(given, 0), HIGHEST_PRIORITY)
        )
        heappush(self._heap, (HIGHEST_PRIORITY - priority, entry.sequence, entry))  # no two sequences are the same
        return True

    def next(self) -> QueueEntry | None:
        """Remove and return the first entry that is still waiting, or None."""
        while self._heap:
            entry = heappop(self._heap)[2]
            self._known.discard(entry)
            if entry.is_waiting and (
                self._wants is None or not entry.deliveries or self._wants(entry.message, entry.deliveries + 1)
            ):
                return entry
        return None

    def prune(self, waiting: int) -> None:
        """Drop entries that are no longer waiting, once they are most of the line; `waiting` are in the store."""
        if len(self._heap) > 2 * waiting + SPARE_ENTRIES:
            self._heap = [ranked for ranked in self._heap if ranked[2].is_waiting]
            heapify(self._heap)
            self._known = {ranked[2] for ranked in self._heap}

    @property
    def has_some(self) -> bool:
        """Whether there may be an entry to take."""
        return bool(self._heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        return (entry for _, _, entry in self._heap if entry.is_waiting)


SPARE_ENTRIES: Final = 64
"""Number of entries beyond twice the waiting ones that a line may keep before it is pruned."""


class EntryStore:
    """Entries by priority (9 first), then by arrival; an entry that comes back takes its old place again.

    An entry is *waiting* from `put` to `take`, and *taken* until `settle` or `give_back`. Waiting and taken entries
    together count towards the limits, so a taken entry can always come back.

    Args:
        max_messages: maximum number of entries.
        max_octets: maximum of their octets together.

    Attributes:
        waiting: number of entries that could be taken, including expired ones.
        has_others: whether a line was added.
    """

    def __init__(self, max_messages: int, max_octets: int) -> None:
        self._max_messages: Final = max_messages
        self._max_octets: Final = max_octets
        self._line = EntryLine()
        self._others: list[EntryLine] = []
        self.has_others = False
        self.waiting = 0
        self._entries = 0
        self._octets = 0
        self._earliest_expiration: int | None = None
        self._has_ended = False

    def __len__(self) -> int:
        return self._entries

    def add(self, line: EntryLine) -> None:
        """Add a line for a subscription with a selector, or for a browser."""
        for entry in self:
            line.offer(entry)
        self._others.append(line)
        self.has_others = True

    def drop(self, line: EntryLine) -> None:
        """Remove a line that was added."""
        self._others.remove(line)
        self.has_others = bool(self._others)

    def excess(self, count: int, octets: int) -> str | None:
        """Return which limit `count` more entries of `octets` together would exceed, or None."""
        if self._entries + count <= self._max_messages and self._octets + octets <= self._max_octets:
            return None
        for name, limit, held, more in (
            ("max_messages", self._max_messages, self._entries, count),
            ("max_octets", self._max_octets, self._octets, octets),
        ):
            if held + more > limit:
                return f"{name} is {limit}, it has {held}, and {more} more were to be added"
        return None

    def put(self, entry: QueueEntry) -> list[EntryLine]:
        """Add a new entry, and return the added lines that contain it."""
        self._count(entry)
        self._push(entry)
        return [line for line in self._others if line.offer(entry)] if self.has_others else []

    def put_taken(self, entry: QueueEntry) -> None:
        """Add a new entry that is taken at once, as `put` and `take` do."""
        self._count(entry)
        entry.deliveries = 1

    def _count(self, entry: QueueEntry) -> None:
        self._entries += 1
        self._octets += entry.octets
        share = entry.share
        share.stores += 1
        if share.stores == 1:
            share.total.octets += share.octets

    def _push(self, entry: QueueEntry) -> None:
        expiration = entry.message.expiration
        if expiration and (self._earliest_expiration is None or expiration < self._earliest_expiration):
            self._earliest_expiration = expiration
        entry.is_waiting = True
        self.waiting += 1
        self._line.offer(entry)

    def take(self, now: int, line: EntryLine | None = None) -> tuple[QueueEntry | None, list[QueueEntry]]:
        """Take the next entry that has not expired at `now`, or None, and return it with the expired ones before it.

        The expired entries have left the store.

        Args:
            now: milliseconds since 1970.
            line: the line to take from; None for that of all entries.
        """
        expired: list[QueueEntry] = []
        found: QueueEntry | None = None
        if not self.waiting:
            return found, expired
        while found is None and (entry := (line or self._line).next()) is not None:
            entry.is_waiting = False
            self.waiting -= 1
            if is_expired(entry.message, now):
                expired.append(entry)
                self.settle(entry)
            else:
                entry.deliveries += 1
                found = entry
        if self._others:  # otherwise no line has entries that were taken from another
            self._prune()
        return found, expired

    @staticmethod
    def look(now: int, line: EntryLine) -> QueueEntry | None:
        """Return the next entry of a line that has not expired, and leave it in the store."""
        while (entry := line.next()) is not None and is_expired(entry.message, now):
            pass
        return entry

    def give_back(self, entry: QueueEntry) -> list[EntryLine]:
        """Put a taken entry back at its old place, unless the store has ended; returns lines like `put`."""
        if self._has_ended:
            self.settle(entry)
            return []
        self._push(entry)
        return [line for line in self._others if not line.is_for_looking and line.offer(entry)]

    def settle(self, entry: QueueEntry) -> None:
        """Forget a taken entry: it was accepted, or moved elsewhere."""
        self._entries -= 1
        self._octets -= entry.octets
        share = entry.share
        share.stores -= 1
        if share.stores == 0:
            share.total.octets -= share.octets

    def end(self) -> None:
        """Forget all waiting entries; taken ones are forgotten once they are settled or given back."""
        self._has_ended = True
        self._drop_all(list(self))

    def expire(self, now: int) -> list[QueueEntry]:
        """Remove and return all waiting entries that have expired; costs nothing until the first one expires."""
        if self._earliest_expiration is None or now < self._earliest_expiration:
            return []
        expired = [entry for entry in self if is_expired(entry.message, now)]
        self._drop_all(expired)
        self._earliest_expiration = min((e.message.expiration for e in self if e.message.expiration), default=None)
        return expired

    def _drop_all(self, entries: list[QueueEntry]) -> None:
        for entry in entries:
            entry.is_waiting = False
            self.settle(entry)
        self.waiting -= len(entries)
        self._prune()

    def _prune(self) -> None:
        self._line.prune(self.waiting)
        for line in self._others:
            line.prune(self.waiting)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._line)


def is_expired(message: Message, now: int) -> bool:
    """Return whether a message has expired at `now`; an expiration of 0 or None means never."""
    return 0 < (message.expiration or 0) <= now


Key: TypeAlias = tuple[DestinationKind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """The limits of a broker; `Broker` describes each."""

    max_messages: int
    max_octets: int
    max_total_octets: int
    max_destinations: int


@dataclass(slots=True, eq=False)
class ConnectionPlace:
    """A connection's place in the broker.

    `made` counts the existing destinations and durable subscriptions that it created, up to `limit`, or None for as
    many as the broker has room for; `temporaries` end with it (a dict, because Python has no ordered set). `client`
    identifies the client if that may have several connections; None if it is unknown.
    """

    limit: int | None = None
    client: Hashable | None = None
    made: int = 0
    temporaries: dict[DestinationNode, None] = field(default_factory=dict)

    def is_same_as(self, other: ConnectionPlace) -> bool:
        """Return whether both connections belong to one client."""
        return self is other or (self.client is not None and self.client == other.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeTerms:
    """The terms of a subscription.

    Attributes:
        prefetch: number of deliveries that may be held; with 0 it is on credit, and `allow` sets how many it gets.
        name: of a shared or durable subscription to a topic; None for an anonymous one.
        is_durable: whether a named subscription outlives its consumers.
        wants: selects the messages; None for all.
        leaves_out_own: whether messages to a topic from the same connection, or the same client, are left out.
        label: identifies `wants`, for a comparison with the terms of a named subscription.
        is_browsing: whether it looks at the messages of a queue without taking them.
    """

    prefetch: int = 1
    name: str | None = None
    is_durable: bool = True
    wants: Wants | None = None
    leaves_out_own: bool = False
    label: Hashable = None
    is_browsing: bool = False


ALL: Final = SubscribeTerms()


@dataclass(slots=True, eq=False)
class Outlet:
    """One stream of messages out of a destination; its subscriptions compete for them.

    `terms` are those of a topic's subscription, created by `maker`; they select the messages. `idle` holds the
    subscriptions that found no message, longest waiting first (a dict, because Python has no ordered set).
    """

    source: Destination
    store: EntryStore
    terms: SubscribeTerms = ALL
    maker: ConnectionPlace | None = None
    subscriptions: set[OutletSubscription] = field(default_factory=set)
    idle: dict[OutletSubscription, None] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        """The name of a named subscription to a topic, or None."""
        return self.terms.name

    @property
    def is_durable(self) -> bool:
        """Whether messages are kept while there is no subscription."""
        return self.terms.name is not None and self.terms.is_durable

    @property
    def is_ephemeral(self) -> bool:
        """Whether the messages are dropped with the last subscription."""
        return self.source.kind.is_topic and not self.is_durable

    def takes(self, message: Message, sender: ConnectionPlace) -> bool:
        """Return whether a message to the topic belongs in this outlet."""
        terms = self.terms
        if terms.leaves_out_own and self.maker is not None and sender.is_same_as(self.maker):
            return False
        return terms.wants is None or terms.wants(message, 1)

    def put(self, entry: QueueEntry) -> None:
        """Add a new entry, and wake the subscriptions that may want it.

        If nothing else waits, the first idle subscription is woken with the entry in its hand.
        """
        if self.idle and not (self.store.waiting or self.store.has_others):
            first = next(iter(self.idle))
            if not first.is_full:
                del self.idle[first]
                first.hand(entry)
                return
        self._wake(self.store.put(entry))

    def give_back(self, entry: QueueEntry) -> None:
        """Put a taken entry back, and wake the subscriptions that may want it."""
        self._wake(self.store.give_back(entry))

    def hand_on(self) -> None:
        """Wake other subscriptions, for a message that an ending subscription was woken for."""
        if self.idle and self.store.waiting:
            self._wake([each.line for each in self.idle if each.line is not None and each.line.has_some])

    def _wake(self, lines: list[EntryLine]) -> None:
        """Wake the first idle subscription that can take from these lines, and all browsers."""
        if not (self.idle and self.store.waiting):
            return
        is_woken, is_browsed = False, bool(lines) and any(line.is_for_looking for line in lines)
        woken: list[OutletSubscription] = []
        for each in self.idle:
            if (each.line is None or each.line in lines) and (each.is_browsing or not is_woken):
                woken.append(each)
                is_woken = is_woken or not (each.is_browsing or each.is_full)
            if is_woken and not is_browsed:
                break
        for each in woken:  # a full one will check again when it has room
            del self.idle[each]
            each.rouse()


@dataclass(slots=True, eq=False)
class DestinationNode:
    """One destination with its outlets; `maker` used it first, `owner` is the connection of a temporary one.

    `is_topic` says whether each of its outlets gets a message.
    """

    destination: Destination
    maker: ConnectionPlace
    owner: ConnectionPlace | None = None
    outlets: list[Outlet] = field(default_factory=list)
    is_topic: bool = False

    @property
    def is_unused(self) -> bool:
        """Whether removing the node loses nothing: it has no message, subscriber, durable name or owner."""
        if self.owner is not None:
            return False
        return not [each for each in self.outlets if each.subscriptions or len(each.store) or each.is_durable]


@dataclass(slots=True, eq=False)
class OutletSubscription:
    """The subscription of one consumer to an outlet.

    `owner` is its connection, `held` its unsettled hand-overs, and `prefetch` their maximum number or, on credit, the
    number of further hand-overs. `line` has the entries that it wants of a queue; None for all entries of the outlet.

    `accepts` says whether its deliveries are accepted at once, and so never held.

    `wake_up` makes a thread take messages, until there is none or it holds as many as it may: until then it
    `is_at_work`, from the beginning, and `thread` is the id of that thread once it has begun. `in_hand` has the
    delivery that it was woken with: either the thread that begins removes it there, or one that stops it.
    """

    node: DestinationNode
    outlet: Outlet
    owner: ConnectionPlace
    prefetch: int
    lock: WakingLock
    wake_up: WakeUp
    accepts: bool = False
    held: set[Handover] = field(default_factory=set)
    in_hand: list[Handover] = field(default_factory=list)
    is_open: bool = True
    is_on_credit: bool = False
    line: EntryLine | None = None
    is_at_work: bool = True
    thread: int | None = None

    def rouse(self) -> None:
        """Have it woken, unless it is at work."""
        if not self.is_at_work:
            self.is_at_work = True
            self.lock.note(self.wake_up)

    def hand(self, entry: QueueEntry) -> None:
        """Wake an idle subscription with a new entry, which its store then has as taken, unless it `accepts`."""
        holding = Handover(entry, self, entry.message, 1)
        if self.accepts:
            entry.deliveries = 1
        else:
            self.outlet.store.put_taken(entry)
            self.held.add(holding)
        if self.is_on_credit:
            self.prefetch -= 1
        self.in_hand.append(holding)
        self.is_at_work = True
        self.lock.note(self.wake_up)

    def hand_back(self, holding: Handover) -> None:
        """Put the delivery that it was woken with, and did not begin, back at its place."""
        if self.accepts:
            self.outlet.store.put_taken(holding.entry)
        self.held.discard(holding)
        if self.is_on_credit:
            self.prefetch += 1
        holding.entry.deliveries = 0
        self.outlet.give_back(holding.entry)

    @property
    def is_browsing(self) -> bool:
        """Whether it only looks at messages."""
        return self.line is not None and self.line.is_for_looking

    @property
    def is_full(self) -> bool:
        """Whether no further message may be handed to it."""
        return self.prefetch <= 0 if self.is_on_credit else len(self.held) >= self.prefetch


@dataclass(slots=True, eq=False)
class Handover:
    """One hand-over of an entry to a subscription. A redelivery is another hand-over, which makes the old one void.

    `batch` is the open transaction that settles it, or None.
    """

    entry: QueueEntry
    subscription: OutletSubscription
    message: Message
    delivery_count: int
    batch: Batch | None = None

    @property
    def is_free(self) -> bool:
        """Whether it is neither settled, nor given back, nor in a transaction."""
        return self.batch is None and self in self.subscription.held


Deed: TypeAlias = Callable[[Handover], None]
"""Settles a hand-over."""


class MessageRoute(NamedTuple):
    """A message, the outlets that it goes to, and its octets: in each of them, and in the total of all destinations."""

    message: Message
    outlets: list[Outlet]
    octets: int
    total_octets: int


@dataclass(slots=True, eq=False)
class Batch:
    """The contents of a transaction of `owner`: messages, and how to settle hand-overs, in this order."""

    owner: ConnectionPlace
    sends: list[Message] = field(default_factory=list)
    decided: dict[Handover, Deed] = field(default_factory=dict)
    is_open: bool = True


def key_of(destination: Destination) -> Key:
    """Return the key of a destination: kind and name, without the address that an adapter uses on the wire.

    Raises:
        UsageError: it has no name, so it came from a connection to another broker.
    """
    if not destination.name:
        raise UsageError(f"a destination of the embedded broker must have a name, got {destination}")
    return destination.kind, destination.name


DEAD_LETTER_PREFIX: Final = "DLQ."
TEMPORARY_DEAD_LETTERS: Final = Destination(DestinationKind.QUEUE, DEAD_LETTER_PREFIX + "temporary")
"""The queue for the dead letters of all temporary destinations: one for each would stay forever."""

EXPIRED: Final = "expired"


TEXT_OR_NONE: Final = str, type(None)
PLACE_OR_NONE: Final = Destination, type(None)
"""What `isinstance` takes; unions, made anew for each message, would take three times as long."""


def received(message: Message, message_id: str, now: int) -> Message:
    """Return the message as the broker stores it: with id, time of receipt and defaults, and not redelivered.

    The sender's own message id and timestamp are replaced. A `memoryview` body is copied, because the sender may change
    the memory later.

    Raises:
        UsageError: the body does not fit the message type, or a field has a value of a wrong type.
    """
    problem = body_problem(message)
    if problem is not None:
        raise UsageError(problem)
    body, priority, mode = message.body, message.priority, message.delivery_mode
    if isinstance(body, memoryview):
        body = bytes(body)
    if priority is None:
        priority = DEFAULT_PRIORITY
    if mode is None:
        mode = DeliveryMode.PERSISTENT
    expiration = message.expiration or 0
    numbers_fit = isinstance(mode, int) and isinstance(priority, int) and isinstance(expiration, int)
    texts_fit = isinstance(message.correlation_id, TEXT_OR_NONE) and isinstance(message.type, TEXT_OR_NONE)
    others_fit = isinstance(message.reply_to, PLACE_OR_NONE) and isinstance(message.properties, Properties)
    if not (numbers_fit and texts_fit and others_fit):
        raise UsageError(field_problem(message))
    if type(message) is not Message:
        stamp = {"message_id": message_id, "timestamp": now, "expiration": expiration}
        return _changed(message, body=body, priority=priority, delivery_mode=mode, redelivered=False, **stamp)
    return MessageDraft(
        message.message_type,
        body,
        message.properties,
        message.destination,
        message_id,
        message.correlation_id,
        message.reply_to,
        mode,
        priority,
        expiration,
        now,
        message.type,
        False,  # by place, as that is quicker
        message.untyped,
    ).frozen()


def redelivered(message: Message) -> Message:
    """Return the message marked as redelivered."""
    return _changed(message, redelivered=True)


def _changed(message: Message, **changes: Any) -> Message:
    """Return a message with some values changed; one of a subclass, as listeners have, keeps its own fields."""
    if type(message) is Message:
        return changed(message, **changes)
    made = object.__new__(type(message))
    for name in message.__dataclass_fields__:
        object.__setattr__(made, name, changes[name] if name in changes else getattr(message, name))
    return made


def is_dead_letter_queue(destination: Destination) -> bool:
    """Return whether a destination is a dead-letter queue; messages that fail there are not moved again."""
    return destination.kind is DestinationKind.QUEUE and (destination.name or "").startswith(DEAD_LETTER_PREFIX)


def dead_letter(message: Message, source: Destination, reason: str) -> Message:
    """Return the message addressed to the dead-letter queue of `source`, with the reason and without expiration.

    It keeps its message id, so that it can be matched with the message that was sent.
    """
    why = (typed(REASON_PROPERTY, reason), typed(DESTINATION_PROPERTY, str(source)))
    return _changed(
        message,
        destination=_dead_letter_queue(source),
        properties=message.properties.merged(why),
        expiration=0,
        redelivered=False,
    )


def _dead_letter_queue(source: Destination) -> Destination:
    if source.kind.is_temporary:
        return TEMPORARY_DEAD_LETTERS
    return Destination(DestinationKind.QUEUE, f"{DEAD_LETTER_PREFIX}{source.name}")
