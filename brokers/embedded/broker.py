"""`Broker`, as programs and tests use it, and the brokers of this process that a URL names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from threading import Lock
from time import time_ns
from typing import Final, TypedDict

from brokers.embedded.claims import Claims
from brokers.embedded.connection import EmbeddedConnection
from brokers.embedded.core import Clock, EmbeddedCore
from brokers.embedded.queues import BrokerLimits, SubscribeTerms
from brokers.message import Destination

DEFAULT_MAX_DELIVERIES: Final = 6
DEFAULT_MAX_MESSAGES: Final = 100_000
DEFAULT_MAX_OCTETS: Final = 256 << 20
DEFAULT_MAX_TOTAL_OCTETS: Final = 1 << 30
DEFAULT_MAX_DESTINATIONS: Final = 100_000


def epoch_milliseconds() -> int:
    """Read the wall clock, in milliseconds since 1970."""
    return time_ns() // 1_000_000


class Broker:
    """A message broker in this process, in memory only. It lives as long as somebody refers to it.

    `broker = Broker(); connection = broker.connect()`. Every `Broker()` is a broker of its own, whatever its name.

    Attributes:
        name: shows in message ids and thread names.
        claims: who is to be the only one, of those that listeners let in.
    """

    def __init__(
        self,
        name: str = "",
        *,
        clock: Clock = epoch_milliseconds,
        max_deliveries: int = DEFAULT_MAX_DELIVERIES,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        max_octets: int = DEFAULT_MAX_OCTETS,
        max_total_octets: int = DEFAULT_MAX_TOTAL_OCTETS,
        max_destinations: int = DEFAULT_MAX_DESTINATIONS,
    ) -> None:
        """Make a broker without any destination; destinations come into being when used.

        Args:
            name: shows in message ids and thread names.
            clock: the time in milliseconds since 1970, for timestamps and expiry. A message that waits is checked when
                it would be delivered or when its queue is full, not before.
            max_deliveries: when a message comes back from this many deliveries it goes to the dead-letter queue.
            max_messages: how many messages, waiting or handed over, a queue or a topic's subscriber may have; beyond
                that a send fails. A dead letter beyond it is dropped and logged.
            max_octets: how many octets they may have together, by `Message.octets`; else as `max_messages`.
            max_total_octets: how many octets all messages of the broker may have together, with 512 more for each;
                beyond that every send fails. One that several subscribers are to get counts once.
            max_destinations: how many queues and topics in use, temporary destinations and durable subscriptions there
                may be; what would make one more fails.

        Raises:
            ValueError: a maximum below 1.
        """
        limits = BrokerLimits(
            max_messages=max_messages,
            max_octets=max_octets,
            max_total_octets=max_total_octets,
            max_destinations=max_destinations,
        )
        for limit, value in {"max_deliveries": max_deliveries, **asdict(limits)}.items():
            if value < 1:
                raise ValueError(f"{limit} must be at least 1, not {value}")
        self.name: Final = name
        self.claims: Final = Claims()
        self._core = EmbeddedCore(name, clock, max_deliveries, limits)
        self._connections = count(1)

    def connect(
        self, *, max_destinations: int | None = None, on_close: Callable[[], None] = lambda: None
    ) -> EmbeddedConnection:
        """Make a connection.

        Args:
            max_destinations: how many of the destinations and durable subscriptions that there are it may have made.
            on_close: called once it is closed.
        """
        label = f"embedded-{self.name}" if self.name else "embedded"
        return EmbeddedConnection(self._core, f"{label}-{next(self._connections)}", on_close, max_destinations)

    @property
    def has_connections(self) -> bool:
        """True while a connection is open."""
        return self._core.has_connections

    def depth(self, destination: Destination) -> int:
        """Count the messages that a destination has waiting, or handed over and not settled."""
        return self._core.depth(destination)

    def has(self, destination: Destination) -> bool:
        """Say whether there is such a destination; one that lasts is there once it is used."""
        return self._core.has(destination)

    def destinations(self) -> list[Destination]:
        """List the destinations in use: with messages, consumers or a durable subscription, and temporary ones."""
        return self._core.destinations()

    def durable(self, durable_name: str) -> tuple[Destination, SubscribeTerms] | None:
        """Return a topic to which there is a durable subscription of this name, and its terms; None for none."""
        return self._core.durable(durable_name)

    def forget_durable(self, topic: Destination, durable_name: str) -> None:
        """End a durable subscription that nobody will come back to, with the messages kept for it.

        Raises:
            BrokerError: it has a consumer.
        """
        self._core.forget_durable(topic, durable_name)


class BrokerOptions(TypedDict, total=False):
    """What a URL's broker can be given by the call that starts it; `Broker` says what each means."""

    clock: Clock
    max_deliveries: int
    max_messages: int
    max_octets: int
    max_total_octets: int
    max_destinations: int


class Registry:
    """The named brokers that have an open connection."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._brokers: dict[str, Broker] = {}

    def connect(self, name: str, options: BrokerOptions) -> EmbeddedConnection:
        """Connect to the broker called `name`, which is started if nobody is connected to it.

        Raises:
            ValueError: options for a broker that runs already; it would not heed them.
        """
        with self._lock:
            broker = self._brokers.get(name)
            if broker is None:
                broker = Broker(name, **options)
            elif options:
                raise ValueError(f"embedded:{name} runs already, so these come too late: {', '.join(sorted(options))}")
            self._brokers[name] = broker
            return broker.connect(on_close=lambda: self._drop_if_idle(broker))

    def _drop_if_idle(self, broker: Broker) -> None:
        with self._lock:
            if not broker.has_connections and self._brokers.get(broker.name) is broker:
                del self._brokers[broker.name]


REGISTRY: Final = Registry()
"""The one piece of module state: two calls of `connect("embedded:a")` anywhere in a process must find the same broker,
and they share nothing but this module."""
