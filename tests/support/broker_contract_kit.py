"""What the broker contract's tests are written with: an inbox to wait for, messages, connections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Final, Protocol
from uuid import uuid4

import pytest

from brokers import (
    Capabilities,
    Connection,
    Delivery,
    Destination,
    Message,
    MessageType,
    Properties,
    connect,
    queue,
    typed,
)

PATIENCE: Final = 60.0
"""Seconds after which something that should happen counts as not happening, on a machine with much else to do too."""


class BrokerUnderTest(Protocol):
    """What the fixture `broker` is."""

    url: str
    dead_letters: str
    topics: str

    def connect(self) -> Connection: ...


@dataclass(frozen=True)
class ReachedByUrl:
    """A broker under test, the queue that it puts dead letters of a queue into, and what topics are called there."""

    url: str
    dead_letters: str = "DLQ.{}"
    topics: str = "{}"

    def connect(self) -> Connection:
        """Connect once more."""
        return connect(self.url)


def assert_marked(message: Message, capabilities: Capabilities) -> None:
    """See that a message says that it was delivered before, if the broker tells it."""
    assert message.redelivered is (True if capabilities.tells_redelivery else message.redelivered or None)


class Inbox:
    """An `on_delivery` that keeps what it gets, accepted or not, for the test to wait for."""

    def __init__(self, *, accept: bool = True) -> None:
        self._accept = accept
        self._deliveries: SimpleQueue[Delivery] = SimpleQueue()

    def __call__(self, delivery: Delivery) -> None:
        if self._accept:
            delivery.accept()
        self._deliveries.put(delivery)

    def next(self) -> Delivery:
        """Wait for the next delivery."""
        return self._deliveries.get(timeout=PATIENCE)

    def bodies(self, count: int) -> list[object]:
        """Wait for so many deliveries and return their bodies."""
        return [self.next().message.body for _ in range(count)]


def make_queue(name: str) -> None:
    """Do nothing: most brokers make a queue when it is used. A test replaces this for one that does not."""


def fresh(what: str = "queue") -> str:
    """Make a name that no other test uses, and a queue of that name if the broker needs that."""
    name = f"contract.{what}.{uuid4().hex}"
    if what != "topic":
        make_queue(name)
    return name


def text(destination: Destination, body: str, reply_to: Destination | None = None) -> Message:
    """Make a TextMessage."""
    return Message(message_type=MessageType.TEXT, body=body, destination=destination, reply_to=reply_to)


def send(connection: Connection, *messages: Message) -> None:
    """Send, and return when the broker has them."""
    for message in messages:
        connection.send(message).result(PATIENCE)


def round_trip(connection: Connection, message: Message) -> Message:
    """Send a message to a queue of its own and return what arrives."""
    inbox = Inbox()
    destination = queue(fresh())
    with connection.consume(destination, inbox):
        connection.send(replace(message, destination=destination)).result(PATIENCE)
        return inbox.next().message


def next_in_queue(connection: Connection, destination: Destination) -> object:
    """Send a marker to a queue and return the first body there: the marker, if the queue was empty."""
    inbox = Inbox()
    send(connection, text(destination, "marker"))
    with connection.consume(destination, inbox):
        return inbox.next().message.body


def as_received(sent: Properties, capabilities: Capabilities) -> Properties:
    """Say what becomes of properties on the way: themselves, or their JMS string forms."""
    if capabilities.typed_properties:
        return sent
    return Properties(typed(entry.name, sent.text(entry.name) or "") for entry in sent)


class Fixtures:
    """Connections for a test, closed after it. The test module adds the fixture `broker`."""

    @pytest.fixture
    def connection(self, broker: BrokerUnderTest) -> Iterator[Connection]:
        with broker.connect() as connection:
            yield connection

    @pytest.fixture
    def other(self, broker: BrokerUnderTest) -> Iterator[Connection]:
        with broker.connect() as connection:
            yield connection
