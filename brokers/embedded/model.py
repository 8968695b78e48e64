"""The pieces that `core.py` moves about, under its lock: destinations, who waits, who holds what.

Data with next to no behaviour; nothing here takes a lock or calls anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Condition
from typing import Final, NamedTuple, TypeAlias

from brokers.embedded.store import Entry, Line, Store, Wants
from brokers.message import Destination, DestinationKind, Message

Key: TypeAlias = tuple[DestinationKind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a broker holds; `Broker` says what each means."""

    max_messages: int
    max_octets: int
    max_total_octets: int
    max_destinations: int


@dataclass(slots=True, eq=False)
class Place:
    """A connection's place in the broker.

    `made` counts the destinations and durable subscriptions that are there because of it, up to `limit`, None for as
    many as the broker has room for; `temporaries` are those that end with it (a dict, as Python has no ordered set).
    `client` is who it belongs to, where one client may have several; None for nobody in particular.
    """

    limit: int | None = None
    client: Hashable | None = None
    made: int = 0
    temporaries: dict[Node, None] = field(default_factory=dict)

    def is_same_as(self, other: Place) -> bool:
        """Say whether these are of one client."""
        return self is other or (self.client is not None and self.client == other.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
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


ALL: Final = Terms()


@dataclass(slots=True, eq=False)
class Outlet:
    """One stream of messages out of a destination; its subscriptions compete for them.

    `terms` are those of a topic's subscription, which `maker` made: they say what is put in here. `idle` holds the
    subscriptions that found nothing to take, longest waiting first (a dict, as Python has no ordered set).
    """

    source: Destination
    store: Store
    terms: Terms = ALL
    maker: Place | None = None
    subscriptions: set[Subscription] = field(default_factory=set)
    idle: dict[Subscription, None] = field(default_factory=dict)

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

    def takes(self, message: Message, sender: Place) -> bool:
        """Say whether a message that somebody sent to the topic is put in here."""
        terms = self.terms
        if terms.leaves_out_own and self.maker is not None and sender.is_same_as(self.maker):
            return False
        return terms.wants is None or terms.wants(message, 1)

    def put(self, entry: Entry) -> None:
        """Add an entry that is new here, and let who wants it look."""
        self._wake(self.store.put(entry))

    def give_back(self, entry: Entry) -> None:
        """Take back an entry that was taken, and let who wants it look."""
        self._wake(self.store.give_back(entry))

    def hand_on(self) -> None:
        """Let others look for what a subscription was to take that is ending."""
        if self.idle and self.store.waiting:
            self._wake([each.line for each in self.idle if each.line is not None and each.line.has_some])

    def _wake(self, lines: list[Line]) -> None:
        """Let the first idle subscription look that can take what is in these lines, and all that look at it only."""
        if not (self.idle and self.store.waiting):
            return
        is_woken, is_browsed = False, any(line.is_for_looking for line in lines)
        woken: list[Subscription] = []
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
class Node:
    """One destination with its outlets; `maker` used it first, `owner` is whom a temporary one belongs to."""

    destination: Destination
    maker: Place
    owner: Place | None = None
    outlets: list[Outlet] = field(default_factory=list)

    @property
    def is_unused(self) -> bool:
        """True where forgetting the node loses nothing: no message, no subscriber, no durable name, no owner."""
        return self.owner is None and not any(
            outlet.is_durable or outlet.subscriptions or len(outlet.store) for outlet in self.outlets
        )


@dataclass(slots=True, eq=False)
class Subscription:
    """One consumer's place at an outlet.

    `owner` is whose it is, `changed` what its thread waits on, `held` what it was handed and has not settled,
    `enlisted` how many of these are in transactions. On credit those make room for others, as the client took them.
    `line` is of what it wants of a queue; None for all that the outlet has.
    """

    node: Node
    outlet: Outlet
    owner: Place
    prefetch: int
    changed: Condition
    held: set[Holding] = field(default_factory=set)
    enlisted: int = 0
    is_open: bool = True
    is_on_credit: bool = False
    line: Line | None = None

    @property
    def is_browsing(self) -> bool:
        """True where it takes nothing."""
        return self.line is not None and self.line.is_for_looking

    @property
    def is_full(self) -> bool:
        """True while it may be handed nothing more."""
        return len(self.held) - self.enlisted * self.is_on_credit >= self.prefetch


@dataclass(slots=True, eq=False)
class Holding:
    """One hand-over of an entry to a subscription; delivered again, it is another one, so that an old one is void.

    `batch` is the transaction that its end is part of and that is still to be committed.
    """

    entry: Entry
    subscription: Subscription
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


Deed: TypeAlias = Callable[[Holding], None]
"""Ends a holding."""


class Route(NamedTuple):
    """Where a message of so many octets is to go."""

    message: Message
    octets: int
    outlets: list[Outlet]


@dataclass(slots=True, eq=False)
class Batch:
    """What a transaction of `owner` gathered: messages, and what is to be done with holdings, in this order."""

    owner: Place
    sends: list[Message] = field(default_factory=list)
    decided: dict[Holding, Deed] = field(default_factory=dict)
    is_open: bool = True


def key_of(destination: Destination) -> Key:
    """Return what tells destinations apart; how an adapter spelt one on its wire does not.

    Raises:
        ValueError: it has no name, so it came from a connection to another broker.
    """
    if not destination.name:
        raise ValueError(f"the embedded broker knows destinations by name, and {destination} has none")
    return destination.kind, destination.name
