"""The pieces that the core moves about: waiting messages in order, destinations, subscriptions and headers.

`core.py` holds its lock around every call. Nothing here takes a lock, starts a thread or reads a clock, and nobody
is called. The messages waiting in one place are kept in the order in which they are to be delivered, without
knowledge of destination names.

What a broker writes into the messages that pass through it is what JMS 1.1 section 3.4 gives to the provider: pure
functions from message to message. Any header that they do not name passes unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from threading import Condition
from typing import Final, NamedTuple, TypeAlias

from brokers.message import (
    DEFAULT_PRIORITY,
    Body,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    body_problem,
    typed,
)

HIGHEST_PRIORITY: Final = 9


MESSAGE_OVERHEAD_OCTETS: Final = 512
"""Octets that a message takes besides what it is made of, where all of them are counted."""


@dataclass(slots=True, eq=False)
class Total:
    """What all stores of a broker hold together, in octets."""

    octets: int = 0


@dataclass(slots=True, eq=False)
class MessageShare:
    """What one message has of a total, once, however many stores it is in."""

    total: Total = field(default_factory=Total)
    octets: int = 0
    stores: int = 0

    def enter(self) -> None:
        """Note that one more store has the message."""
        self.stores += 1
        if self.stores == 1:
            self.total.octets += self.octets

    def leave(self) -> None:
        """Note that one store fewer has it."""
        self.stores -= 1
        if self.stores == 0:
            self.total.octets -= self.octets


Wants: TypeAlias = Callable[[Message, int], bool]
"""Says whether somebody wants a message, which it would be so many deliveries of."""


@dataclass(slots=True, eq=False)
class QueueEntry:
    """One message in one store: `sequence` is its place in the order of arrival, `deliveries` counts hand-overs.

    `octets` is what it counts for here, `share` in all stores; `is_waiting` while it may be taken.
    """

    message: Message
    sequence: int
    octets: int = 0
    deliveries: int = 0
    share: MessageShare = field(default_factory=MessageShare)
    is_waiting: bool = False


class EntryLine:
    """Entries of a store in the order in which they are to be delivered: all, or those that somebody wants.

    An entry may be in several lines; in those that it was not taken from it stays, passed over, until `prune`.

    Args:
        wants: which are meant; None for all.
        is_for_looking: what is taken from this line stays in the store, and is not shown again when it comes back.
    """

    __slots__ = ("_heap", "_known", "_wants", "is_for_looking")

    def __init__(self, wants: Wants | None = None, *, is_for_looking: bool = False) -> None:
        self._heap: list[tuple[int, int, QueueEntry]] = []
        self._known: set[QueueEntry] = set()
        self._wants = wants
        self.is_for_looking: Final = is_for_looking

    def offer(self, entry: QueueEntry) -> bool:
        """Add a waiting entry, if it is wanted; say whether it is in the line."""
        if entry in self._known:
            return True
        if self._wants is not None and not self._wants(entry.message, entry.deliveries + 1):
            return False
        self._known.add(entry)
        heappush(self._heap, _ranked(entry))
        return True

    def next(self) -> QueueEntry | None:
        """Remove and return the first entry that waits still; None if there is none."""
        while self._heap:
            entry = heappop(self._heap)[2]
            self._known.discard(entry)
            if entry.is_waiting and (
                self._wants is None or not entry.deliveries or self._wants(entry.message, entry.deliveries + 1)
            ):
                return entry
        return None

    def prune(self, waiting: int) -> None:
        """Forget what does not wait any more, once that is most of the line; so many wait in the store."""
        if len(self._heap) > 2 * waiting + SPARE_ENTRIES:
            self._heap = [ranked for ranked in self._heap if ranked[2].is_waiting]
            heapify(self._heap)
            self._known = {ranked[2] for ranked in self._heap}

    @property
    def has_some(self) -> bool:
        """Whether there may be something to take."""
        return bool(self._heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        return (entry for _, _, entry in self._heap if entry.is_waiting)


SPARE_ENTRIES: Final = 64
"""Entries that a line may keep that do not wait any more, besides as many as do."""


class EntryStore:
    """Entries by priority (9 first), then by arrival; one that comes back takes its old place again.

    An entry is *waiting* from `put` to `take`, *taken* until `settle` or `give_back`. Waiting and taken entries
    together count towards the limits, so what was taken can always come back.

    Args:
        max_messages: how many there may be.
        max_octets: how many octets they may have together.
    """

    def __init__(self, max_messages: int, max_octets: int) -> None:
        self._max_messages: Final = max_messages
        self._max_octets: Final = max_octets
        self._line = EntryLine()
        self._others: list[EntryLine] = []
        self._waiting = 0
        self._taken = 0
        self._octets = 0
        self._earliest_expiration: int | None = None
        self._has_ended = False

    def __len__(self) -> int:
        return self._waiting + self._taken

    @property
    def waiting(self) -> int:
        """How many entries could be taken, expired ones included."""
        return self._waiting

    def add(self, line: EntryLine) -> None:
        """Have a line of its own for who wants some entries only, or looks at them."""
        for entry in self:
            line.offer(entry)
        self._others.append(line)

    def drop(self, line: EntryLine) -> None:
        """End `add`."""
        self._others.remove(line)

    def excess(self, count: int, octets: int) -> str | None:
        """Say which limit `count` more entries of `octets` together would go beyond; None for none."""
        for name, limit, held, more in (
            ("max_messages", self._max_messages, len(self), count),
            ("max_octets", self._max_octets, self._octets, octets),
        ):
            if held + more > limit:
                return f"{name} is {limit}, there are {held} and {more} more were to come"
        return None

    def put(self, entry: QueueEntry) -> list[EntryLine]:
        """Add an entry that is new here, and return the lines besides that of all entries that it is in."""
        self._octets += entry.octets
        entry.share.enter()
        self._push(entry)
        return [line for line in self._others if line.offer(entry)]

    def _push(self, entry: QueueEntry) -> None:
        expiration = entry.message.expiration
        if expiration and (self._earliest_expiration is None or expiration < self._earliest_expiration):
            self._earliest_expiration = expiration
        entry.is_waiting = True
        self._waiting += 1
        self._line.offer(entry)

    def take(self, now: int, line: EntryLine | None = None) -> tuple[QueueEntry | None, list[QueueEntry]]:
        """Take the next entry that has not expired at `now`, or None; and the expired ones found before it.

        The expired ones have left the store.

        Args:
            now: milliseconds since 1970.
            line: where from; None for all entries.
        """
        expired: list[QueueEntry] = []
        found: QueueEntry | None = None
        while found is None and (entry := (line or self._line).next()) is not None:
            entry.is_waiting = False
            self._waiting -= 1
            if is_expired(entry.message, now):
                expired.append(entry)
                self._forget(entry)
            else:
                self._taken += 1
                entry.deliveries += 1
                found = entry
        self._prune()
        return found, expired

    @staticmethod
    def look(now: int, line: EntryLine) -> QueueEntry | None:
        """Return the next entry of a line that has not expired, and leave it where it is."""
        while (entry := line.next()) is not None and is_expired(entry.message, now):
            pass
        return entry

    def give_back(self, entry: QueueEntry) -> list[EntryLine]:
        """Put a taken entry back at its old place, unless there is none any more; as `put`."""
        if self._has_ended:
            self.settle(entry)
            return []
        self._taken -= 1
        self._push(entry)
        return [line for line in self._others if not line.is_for_looking and line.offer(entry)]

    def settle(self, entry: QueueEntry) -> None:
        """Forget a taken entry: it was accepted, or went elsewhere."""
        self._taken -= 1
        self._forget(entry)

    def end(self) -> None:
        """Forget all that waits; what is taken is forgotten once it is settled, or given back."""
        self._has_ended = True
        self._drop_all(list(self))

    def expire(self, now: int) -> list[QueueEntry]:
        """Remove and return every waiting entry that has expired; costs nothing until the first of them has."""
        if self._earliest_expiration is None or now < self._earliest_expiration:
            return []
        expired = [entry for entry in self if is_expired(entry.message, now)]
        self._drop_all(expired)
        self._earliest_expiration = min((e.message.expiration for e in self if e.message.expiration), default=None)
        return expired

    def _drop_all(self, entries: list[QueueEntry]) -> None:
        for entry in entries:
            entry.is_waiting = False
            self._forget(entry)
        self._waiting -= len(entries)
        self._prune()

    def _prune(self) -> None:
        self._line.prune(self._waiting)
        for line in self._others:
            line.prune(self._waiting)

    def _forget(self, entry: QueueEntry) -> None:
        self._octets -= entry.octets
        entry.share.leave()

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._line)


def is_expired(message: Message, now: int) -> bool:
    """Say whether the message may no longer be delivered at `now`; an expiration of 0 or None means never."""
    return 0 < (message.expiration or 0) <= now


def _ranked(entry: QueueEntry) -> tuple[int, int, QueueEntry]:
    """Make the heap's item: the smallest comes first, and the sequence makes ties impossible."""
    priority = DEFAULT_PRIORITY if entry.message.priority is None else entry.message.priority
    return HIGHEST_PRIORITY - min(max(priority, 0), HIGHEST_PRIORITY), entry.sequence, entry


Key: TypeAlias = tuple[DestinationKind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """How much a broker holds; `Broker` says what each means."""

    max_messages: int
    max_octets: int
    max_total_octets: int
    max_destinations: int


@dataclass(slots=True, eq=False)
class ConnectionPlace:
    """A connection's place in the broker.

    `made` counts the destinations and durable subscriptions that are there because of it, up to `limit`, None for as
    many as the broker has room for; `temporaries` are those that end with it (a dict, as Python has no ordered set).
    `client` is who it belongs to, where one client may have several; None for nobody in particular.
    """

    limit: int | None = None
    client: Hashable | None = None
    made: int = 0
    temporaries: dict[DestinationNode, None] = field(default_factory=dict)

    def is_same_as(self, other: ConnectionPlace) -> bool:
        """Say whether these are of one client."""
        return self is other or (self.client is not None and self.client == other.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeTerms:
    """What somebody subscribes on.

    Attributes:
        prefetch: how much may be held; with 0 it is on credit, and gets nothing before it is allowed some.
        name: of a subscription to a topic that several share, or that lasts; None for one of its own.
        is_durable: what has a name outlives its subscriptions.
        wants: which messages; None for all.
        leaves_out_own: not those of a topic that the same place, or the same client, sent.
        label: what `wants` goes by, for a comparison with what a named subscription has.
        is_browsing: look at the messages of a queue, and take none.
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

    `terms` are those of a topic's subscription, which `maker` made: they say what is put in here. `idle` holds the
    subscriptions that found nothing to take, longest waiting first (a dict, as Python has no ordered set).
    """

    source: Destination
    store: EntryStore
    terms: SubscribeTerms = ALL
    maker: ConnectionPlace | None = None
    subscriptions: set[OutletSubscription] = field(default_factory=set)
    idle: dict[OutletSubscription, None] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        """Of a named subscription to a topic."""
        return self.terms.name

    @property
    def is_durable(self) -> bool:
        """True where the messages wait for subscriptions to come."""
        return self.terms.name is not None and self.terms.is_durable

    @property
    def is_ephemeral(self) -> bool:
        """True where the messages end with their last subscription."""
        return self.source.kind.is_topic and not self.is_durable

    def takes(self, message: Message, sender: ConnectionPlace) -> bool:
        """Say whether a message that somebody sent to the topic is put in here."""
        terms = self.terms
        if terms.leaves_out_own and self.maker is not None and sender.is_same_as(self.maker):
            return False
        return terms.wants is None or terms.wants(message, 1)

    def put(self, entry: QueueEntry) -> None:
        """Add an entry that is new here, and let who wants it look."""
        self._wake(self.store.put(entry))

    def give_back(self, entry: QueueEntry) -> None:
        """Take back an entry that was taken, and let who wants it look."""
        self._wake(self.store.give_back(entry))

    def hand_on(self) -> None:
        """Let others look for what a subscription was to take that is ending."""
        if self.idle and self.store.waiting:
            self._wake([each.line for each in self.idle if each.line is not None and each.line.has_some])

    def _wake(self, lines: list[EntryLine]) -> None:
        """Let the first idle subscription look that can take what is in these lines, and all that look at it only."""
        if not (self.idle and self.store.waiting):
            return
        is_woken, is_browsed = False, any(line.is_for_looking for line in lines)
        woken: list[OutletSubscription] = []
        for each in self.idle:
            if (each.line is None or each.line in lines) and (each.is_browsing or not is_woken):
                woken.append(each)
                is_woken = is_woken or not (each.is_browsing or each.is_full)
            if is_woken and not is_browsed:
                break
        for each in woken:  # one that is full will look when it is not
            del self.idle[each]
            each.changed.notify()


@dataclass(slots=True, eq=False)
class DestinationNode:
    """One destination with its outlets; `maker` used it first, `owner` is whom a temporary one belongs to."""

    destination: Destination
    maker: ConnectionPlace
    owner: ConnectionPlace | None = None
    outlets: list[Outlet] = field(default_factory=list)

    @property
    def is_unused(self) -> bool:
        """True where forgetting the node loses nothing: no message, no subscriber, no durable name, no owner."""
        return self.owner is None and not any(
            outlet.is_durable or outlet.subscriptions or len(outlet.store) for outlet in self.outlets
        )


@dataclass(slots=True, eq=False)
class OutletSubscription:
    """One consumer's place at an outlet.

    `owner` is whose it is, `changed` what its thread waits on, `held` what it was handed and has not settled,
    `enlisted` how many of these are in transactions. On credit those make room for others, as the client took them.
    `line` is of what it wants of a queue; None for all that the outlet has.
    """

    node: DestinationNode
    outlet: Outlet
    owner: ConnectionPlace
    prefetch: int
    changed: Condition
    held: set[Handover] = field(default_factory=set)
    enlisted: int = 0
    is_open: bool = True
    is_on_credit: bool = False
    line: EntryLine | None = None

    @property
    def is_browsing(self) -> bool:
        """True where it takes nothing."""
        return self.line is not None and self.line.is_for_looking

    @property
    def is_full(self) -> bool:
        """True while it may be handed nothing more."""
        return len(self.held) - self.enlisted * self.is_on_credit >= self.prefetch


@dataclass(slots=True, eq=False)
class Handover:
    """One hand-over of an entry to a subscription; delivered again, it is another one, so that an old one is void.

    `batch` is the transaction that its end is part of and that is still to be committed.
    """

    entry: QueueEntry
    subscription: OutletSubscription
    message: Message
    delivery_count: int
    batch: Batch | None = None

    @property
    def is_free(self) -> bool:
        """True while it is neither settled, nor given back, nor in a transaction."""
        return self.batch is None and self in self.subscription.held

    def enlist(self, batch: Batch | None) -> None:
        """Make its end part of a transaction, or not any more."""
        self.batch = batch
        self.subscription.enlisted += -1 if batch is None else 1


Deed: TypeAlias = Callable[[Handover], None]
"""Ends a holding."""


class MessageRoute(NamedTuple):
    """Where a message of so many octets is to go."""

    message: Message
    octets: int
    outlets: list[Outlet]


@dataclass(slots=True, eq=False)
class Batch:
    """What a transaction of `owner` gathered: messages, and what is to be done with holdings, in this order."""

    owner: ConnectionPlace
    sends: list[Message] = field(default_factory=list)
    decided: dict[Handover, Deed] = field(default_factory=dict)
    is_open: bool = True


def key_of(destination: Destination) -> Key:
    """Return what tells destinations apart; how an adapter spelt one on its wire does not.

    Raises:
        ValueError: it has no name, so it came from a connection to another broker.
    """
    if not destination.name:
        raise ValueError(f"the embedded broker knows destinations by name, and {destination} has none")
    return destination.kind, destination.name


DEAD_LETTER_PREFIX: Final = "DLQ."
TEMPORARY_DEAD_LETTERS: Final = Destination(DestinationKind.QUEUE, DEAD_LETTER_PREFIX + "temporary")
"""One queue for the dead letters of all temporary destinations: one each would outlive its use for ever."""

REASON_PROPERTY: Final = "dead_letter_reason"
DESTINATION_PROPERTY: Final = "dead_letter_destination"
EXPIRED: Final = "expired"


def received(message: Message, message_id: str, now: int) -> Message:
    """Return the message as the broker stores it: id and time of receipt set, defaults filled, never redelivered.

    The sender's own message id and timestamp are replaced. A `memoryview` body becomes bytes of its own, as the
    sender may go on to change what it views.

    Raises:
        ValueError: the body is of no kind that the message type has.
    """
    return replace(
        message,
        body=_checked_body(message),
        message_id=message_id,
        timestamp=now,
        priority=DEFAULT_PRIORITY if message.priority is None else message.priority,
        delivery_mode=DeliveryMode.PERSISTENT if message.delivery_mode is None else message.delivery_mode,
        expiration=message.expiration or 0,
        redelivered=False,
    )


def redelivered(message: Message) -> Message:
    """Return the message marked as one that was delivered before."""
    return replace(message, redelivered=True)


def is_dead_letter_queue(destination: Destination) -> bool:
    """Say whether dead letters end there: what fails in such a queue has nowhere further to go."""
    return destination.kind is DestinationKind.QUEUE and (destination.name or "").startswith(DEAD_LETTER_PREFIX)


def dead_letter(message: Message, source: Destination, reason: str) -> Message:
    """Return the message addressed to the dead-letter queue of `source`, saying why; it expires no more.

    It keeps its message id, so that it can be matched with what was sent.
    """
    why = (typed(REASON_PROPERTY, reason), typed(DESTINATION_PROPERTY, str(source)))
    return replace(
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


def _checked_body(message: Message) -> Body:
    problem = body_problem(message)
    if problem is not None:
        raise ValueError(problem)
    return bytes(message.body) if isinstance(message.body, memoryview) else message.body
