"""Our AMQP listener under attack: by strangers that guess names and passwords, by users that pretend to be others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

import brokers
from brokers import Destination, DestinationGoneError, Message, MessageType
from brokers.amqp.provider import Listener, Options, Rights
from brokers.embedded import Broker

USERS = {"ann": "secret-of-ann", "eve": "secret-of-eve"}
RIGHTS = "ann * queue:orders"


@contextmanager
def listening(**options: Any) -> Iterator[Listener]:
    """Listen at a free port, with two users of whom one has no rights."""
    options = {"users": USERS, "may": Rights.read(RIGHTS), **options}
    with Listener(Broker(), port=0, options=Options(**options)) as listener:
        yield listener


@contextmanager
def user(listener: Listener, name: str) -> Iterator[brokers.Connection]:
    """Connect as a user."""
    url = listener.url.replace("://", f"://{name}:{USERS[name]}@")
    with brokers.connect(url, reconnect=False) as connection:
        yield connection


def text(body: str, to: Destination) -> Message:
    """Make a TextMessage."""
    return Message(message_type=MessageType.TEXT, body=body, destination=to)


def test_temporary_names_are_not_guessed() -> None:
    """Names of temporary queues tell nothing of each other; who was told one can send there, with no other right."""
    with listening() as listener, user(listener, "ann") as ann, user(listener, "eve") as eve:
        arrived: SimpleQueue[Any] = SimpleQueue()
        own, asked = eve.temporary(), ann.temporary()
        ann.consume(asked, lambda delivery: arrived.put(delivery.message.body), auto_accept=True)
        assert own.name is not None
        assert asked.name is not None
        beginning, _, mine = own.name.rpartition("-")
        near = int(mine, 16)
        for number in range(max(0, near - 30), near + 30):
            for guess in (f"{beginning}-{number}", f"{beginning}-{number:x}"):
                if guess != own.name:
                    with pytest.raises(DestinationGoneError):
                        eve.send(text("forged", replace(asked, name=guess, address=None))).result(20)
        assert len(set(asked.name.rpartition("-")[2])) > 4
        assert len(asked.name.rpartition("-")[2]) * 4 >= 128
        eve.send(text("told", asked)).result(20)
        assert arrived.get(timeout=20) == "told"
