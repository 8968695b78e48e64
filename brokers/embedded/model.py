"""The pieces that `core.py` moves about, under its lock: destinations, who waits, who holds what.

Data with next to no behaviour; nothing here takes a lock or calls anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition
from typing import NamedTuple, TypeAlias

from brokers.embedded.store import Entry, Store
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
    """

    limit: int | None = None
    made: int = 0
    temporaries: dict[Node, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Outlet:
    """One stream of messages out of a destination; its subscriptions compete for them.

    `durable_name` is None but for a durable topic subscription, which `maker` made. `idle` holds the subscriptions that
    found nothing to take, longest waiting first (a dict, as Python has no ordered set).
    """

    source: Destination
    store: Store
    durable_name: str | None = None
    maker: Place | None = None
    subscriptions: set[Subscription] = field(default_factory=set)
    idle: dict[Subscription, None] = field(default_factory=dict)

    @property
    def is_ephemeral(self) -> bool:
        """True where the messages end with their one subscriber."""
        return self.source.kind.is_topic and self.durable_name is None

    def wake_one(self) -> None:
        """Let one waiting subscription look again, if there is something to find."""
        if self.idle and self.store.waiting:
            subscription = next(iter(self.idle))
            del self.idle[subscription]
            subscription.changed.notify()


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
            outlet.durable_name or outlet.subscriptions or len(outlet.store) for outlet in self.outlets
        )


@dataclass(slots=True, eq=False)
class Subscription:
    """One consumer's place at an outlet.

    `owner` is whose it is, `changed` what its thread waits on, `held` what it was handed and has not settled,
    `enlisted` how many of these are in transactions. On credit those make room for others, as the client took them.
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
