"""Our client and our service over a connection that does not know one of its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import brokers
from brokers import Connection
from sides import Setting
from sides.ours import Client, service_of


@contextmanager
def connected(setting: Setting) -> Iterator[Connection]:
    """Connect."""
    with brokers.connect(setting.url) as connection:
        if setting.without:
            forbid(connection, setting.without)
        yield connection


def forbid(connection: Any, option: str) -> None:
    """Have a connection know nothing of an option."""
    if option == "answer":
        connection.answer = lambda delivery, message: connection.send(message)
        connection.begin_answer = partial(Connection.begin_answer, connection)
        return
    consume = connection.consume

    def consume_without(destination: Any, on_delivery: Any, **named: Any) -> Any:
        def deliver(delivery: Any) -> None:
            on_delivery(delivery)
            delivery.accept()

        is_accepted = option == "auto_accept" and named.get(option)
        return consume(destination, deliver if is_accepted else on_delivery, **named | {option: False})

    connection.consume = consume_without


@contextmanager
def service(setting: Setting) -> Iterator[None]:
    """Serve while the `with` statement lasts."""
    with connected(setting) as connection, service_of(connection, setting):
        yield


@contextmanager
def client(setting: Setting) -> Iterator[Client]:
    """Connect a client."""
    with connected(setting) as connection, Client(setting, connection) as made:
        yield made
