"""What the tests of the STOMP adapter share: connections to a real ActiveMQ, inboxes, messages."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from proxy_kit import Proxy
from real_brokers import RealBroker
from waiting import eventually as wait_until

import brokers
from brokers import (
    Delivery,
    DeliveryMode,
    Destination,
    Message,
    MessageType,
    queue,
)
from brokers.stomp import StompConnection

PATIENCE = 60.0
"""Seconds after which something that should happen counts as not happening."""

NUMBERS = count()


def message_to(destination: Destination | None, body: bytes | str = b"<m/>", **more: Any) -> Message:
    """Make a BytesMessage or a TextMessage."""
    kind = MessageType.BYTES if isinstance(body, bytes) else MessageType.TEXT
    return Message(message_type=kind, body=body, destination=destination, **more)


def assert_no_threads() -> None:
    """Fail if a thread of an adapter lives on after its grace of a few seconds."""
    wait_until(lambda: not [thread for thread in threading.enumerate() if "stomp" in thread.name.lower()])


class Inbox:
    """An `on_delivery` that keeps what it gets."""

    def __init__(self, then: Callable[[Delivery], object] = lambda delivery: None) -> None:
        self._then = then
        self._deliveries: SimpleQueue[Delivery] = SimpleQueue()

    def __call__(self, delivery: Delivery) -> None:
        self._then(delivery)
        self._deliveries.put(delivery)

    def next(self) -> Delivery:
        return self._deliveries.get(timeout=PATIENCE)

    def is_empty(self, seconds: float = 0.3) -> bool:
        """Say whether nothing is there, nor comes; what comes stays."""
        until = time.monotonic() + seconds
        while self._deliveries.empty() and time.monotonic() < until:
            time.sleep(0.01)
        return self._deliveries.empty()

    def nothing(self, seconds: float = 0.3) -> bool:
        """Say whether nothing came."""
        try:
            self._deliveries.get(timeout=seconds)
        except Empty:
            return True
        return False


def accepting() -> Inbox:
    """Make an inbox that accepts."""
    return Inbox(lambda delivery: delivery.accept())


def send(connection: StompConnection, *messages: Message) -> None:
    """Send and wait until the broker has them."""
    for message in messages:
        connection.send(replace(message, delivery_mode=DeliveryMode.PERSISTENT)).result(PATIENCE)


def assert_empty(connection: StompConnection, *names: str) -> None:
    """Show that queues are empty: what is sent now is what comes first."""
    for name in names:
        inbox = accepting()
        send(connection, message_to(queue(name), b"marker"))
        with connection.consume(queue(name), inbox):
            assert inbox.next().message.body == b"marker"


class Fixtures:
    """A queue's name and two connections for a test, closed after it, on ActiveMQ Classic."""

    @pytest.fixture
    def broker(self, activemq: RealBroker) -> RealBroker:
        """Choose the broker."""
        return activemq

    @pytest.fixture
    def name(self, request: pytest.FixtureRequest) -> str:
        """Name a queue that is this test's own."""
        return f"{request.node.originalname}.{os.getpid()}.{next(NUMBERS)}"

    @pytest.fixture
    def connection(self, broker: RealBroker) -> Iterator[StompConnection]:
        """Connect."""
        with brokers.connect(broker.stomp_url, timeout=PATIENCE) as made:
            assert isinstance(made, StompConnection)
            yield made

    @pytest.fixture
    def other(self, broker: RealBroker) -> Iterator[StompConnection]:
        """Connect a second time."""
        with brokers.connect(broker.stomp_url, timeout=PATIENCE) as made:
            assert isinstance(made, StompConnection)
            yield made

    @pytest.fixture
    def proxy(self, broker: RealBroker) -> Iterator[Proxy]:
        """Put a proxy before the broker."""
        with Proxy(broker.host, broker.ports.stomp) as proxy:
            yield proxy

    @pytest.fixture
    def gone(self, broker: RealBroker, connection: StompConnection, name: str) -> Destination:
        """Learn the name of a temporary queue whose owner has left."""
        inbox = accepting()
        with connection.consume(queue(name), inbox), brokers.connect(broker.stomp_url) as leaving:
            leaving.send(message_to(queue(name), reply_to=leaving.temporary())).result(PATIENCE)
            reply_to = inbox.next().message.reply_to
        assert reply_to is not None
        return reply_to


class OnArtemis(Fixtures):
    """The same on Artemis."""

    @pytest.fixture
    def broker(self, artemis: RealBroker) -> RealBroker:
        """Choose the broker."""
        return artemis


class OnBoth(Fixtures):
    """The same on each real broker."""

    @pytest.fixture(params=["activemq", "artemis"])
    def broker(self, request: pytest.FixtureRequest) -> RealBroker:
        """Choose the broker."""
        found: RealBroker = request.getfixturevalue(request.param)
        return found
