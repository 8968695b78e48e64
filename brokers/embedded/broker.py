"""`Broker`, for programs and tests, and the registry of the brokers of this process that a URL can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from threading import Lock
from typing import Final, TypedDict

from brokers.adapter.redelivery import MAX_DELIVERIES
from brokers.adapter.wait import epoch_milliseconds
from brokers.arguments import at_least_one, check_callback, instance
from brokers.embedded.claims import Claims
from brokers.embedded.connection import EmbeddedConnection
from brokers.embedded.core import Clock, EmbeddedCore
from brokers.embedded.queues import BrokerLimits, SubscribeTerms
from brokers.errors import UsageError
from brokers.message import Destination

DEFAULT_MAX_MESSAGES: Final = 100_000
DEFAULT_MAX_OCTETS: Final = 256 << 20
DEFAULT_MAX_TOTAL_OCTETS: Final = 1 << 30
DEFAULT_MAX_DESTINATIONS: Final = 100_000


class Broker:
    """A message broker in this process, in memory only. It lives as long as it is referred to.

    `broker = Broker(); connection = broker.connect()`. Every `Broker()` is a separate broker, whatever its name.

    Attributes:
        name: part of message ids and thread names.
        claims: names that only one client may use at a time, for the clients of listeners.
    """

    def __init__(
        self,
        name: str = "",
        *,
        clock: Clock = epoch_milliseconds,
        max_deliveries: int = MAX_DELIVERIES,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        max_octets: int = DEFAULT_MAX_OCTETS,
        max_total_octets: int = DEFAULT_MAX_TOTAL_OCTETS,
        max_destinations: int = DEFAULT_MAX_DESTINATIONS,
    ) -> None:
        """Create a broker without destinations; destinations are created when they are used.

        Args:
            name: part of message ids and thread names.
            clock: returns milliseconds since 1970, for timestamps and expiry. The expiry of a waiting message is
                checked when it is due for delivery or when its queue is full, not before.
            max_deliveries: a message that was delivered this often and not accepted goes to the dead-letter queue.
            max_messages: maximum number of messages, waiting or handed over, of a queue or a topic's subscriber. A
                send beyond it fails; a dead letter beyond it is dropped and logged.
            max_octets: maximum of their octets together, by `Message.octets`; otherwise like `max_messages`.
            max_total_octets: maximum of the octets of all messages of the broker, plus 512 for each; a send beyond it
                fails, a dead letter beyond it is dropped and logged. A message for several subscribers counts once; if
                each rejects it, it becomes several dead letters, and each counts.
            max_destinations: maximum number of queues and topics in use, temporary destinations and durable
                subscriptions; an operation that would create one more fails.

        Raises:
            UsageError: the name is no string, the clock no function, or a maximum not a whole number of at least 1.
        """
        instance(name, "name", str, "a string")
        check_callback(clock, "clock")
        limits = BrokerLimits(
            max_messages=max_messages,
            max_octets=max_octets,
            max_total_octets=max_total_octets,
            max_destinations=max_destinations,
        )
        for limit, value in {"max_deliveries": max_deliveries, **asdict(limits)}.items():
            at_least_one(value, limit)
        self.name: Final = name
        self.claims: Final = Claims()
        self._core = EmbeddedCore(name, clock, max_deliveries, limits)
        self._connections = count(1)

    def connect(
        self, *, max_destinations: int | None = None, on_close: Callable[[], None] = lambda: None
    ) -> EmbeddedConnection:
        """Return a new connection.

        Args:
            max_destinations: maximum number of existing destinations and durable subscriptions that were created by
                this connection; None for no limit but the broker's.
            on_close: called once the connection is closed.
        """
        label = f"embedded-{self.name}" if self.name else "embedded"
        return EmbeddedConnection(self._core, f"{label}-{next(self._connections)}", on_close, max_destinations)

    @property
    def has_connections(self) -> bool:
        """True while a connection is open."""
        return self._core.has_connections

    def depth(self, destination: Destination) -> int:
        """Return the number of messages of a destination that wait, or were handed over and are not settled."""
        return self._core.depth(destination)

    def has(self, destination: Destination) -> bool:
        """Return whether a destination exists; a queue or topic that is not temporary exists once it is used."""
        return self._core.has(destination)

    def destinations(self) -> list[Destination]:
        """List the destinations in use: with messages, consumers or a durable subscription, and temporary ones."""
        return self._core.destinations()

    def durable(self, durable_name: str) -> tuple[Destination, SubscribeTerms] | None:
        """Return the topic and the terms of a durable subscription of this name, or None if there is none."""
        return self._core.durable(durable_name)

    def forget_durable(self, topic: Destination, durable_name: str) -> None:
        """Delete a durable subscription, with the messages kept for it.

        Raises:
            BrokerError: the subscription has a consumer.
        """
        self._core.forget_durable(topic, durable_name)


class BrokerOptions(TypedDict, total=False):
    """Options for the call that starts the broker of a URL; `Broker` describes each."""

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
        """Connect to the broker called `name`, and start it if it has no connection yet.

        Raises:
            UsageError: there are options, but the broker is already running and would ignore them.
        """
        with self._lock:
            broker = self._brokers.get(name)
            if broker is None:
                broker = Broker(name, **options)
            elif options:
                raise UsageError(f"embedded:{name} is already running; its start must set {', '.join(sorted(options))}")
            self._brokers[name] = broker
            return broker.connect(on_close=lambda: self._drop_if_idle(broker))

    def _drop_if_idle(self, broker: Broker) -> None:
        with self._lock:
            if not broker.has_connections and self._brokers.get(broker.name) is broker:
                del self._brokers[broker.name]


REGISTRY: Final = Registry()
"""The only module state: two calls of `connect("embedded:a")` anywhere in a process must find the same broker, and
share nothing but this module."""
