"""What the tests of the embedded broker share: a broker with small limits, a clock to set, two destinations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_contract_kit import Inbox

from brokers import (
    Connection,
    Destination,
    Message,
    queue,
    topic,
)
from brokers.embedded import Broker

ORDERS = queue("orders")
NEWS = topic("news")


class SetClock:
    """A clock that shows what the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class EmbeddedFixtures:
    """A broker with small limits and a clock of the test's own, and a connection to it."""

    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock()

    @pytest.fixture
    def broker(self, clock: SetClock) -> Broker:
        return Broker("test", clock=clock, max_deliveries=3, max_messages=4)

    @pytest.fixture
    def connection(self, broker: Broker) -> Iterator[Connection]:
        with broker.connect() as connection:
            yield connection


def receive(connection: Connection, destination: Destination) -> Message:
    """Take one message from a queue."""
    inbox = Inbox()
    with connection.consume(destination, inbox):
        return inbox.next().message
