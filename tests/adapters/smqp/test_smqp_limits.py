"""brokers.smqp.client: what a client does that has no files or threads for a notification."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Event
from typing import Any

import pytest
from calling_kit import PATIENCE, eventually
from limits_kit import files_for, no_more_threads
from smqp_kit import FakeServer, Inbox, connected

from brokers.smqp.client.listener import NotifyListener
from brokers.smqp.protocol.dialect import STRICT
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.messages import SmqpLimits


class Hearer:
    """Keeps what is told that is no message."""

    def __init__(self) -> None:
        self.told = Event()

    def take(self, heard: ReceivedCommand) -> bool:
        raise AssertionError(heard)

    confirmed = doubted = take

    def notice(self, heard: ReceivedCommand) -> None:
        self.told.set()

    def ended(self) -> None:
        """The one before this, which there was none of."""


@contextmanager
def listening(hearer: Hearer, on_end: Callable[[], Any]) -> Iterator[int]:
    """Listen for a server at this machine; give the port."""
    listener = NotifyListener(
        *("127.0.0.1", 0, "127.0.0.1", hearer),
        secure=lambda connection: connection,
        dialect=STRICT,
        limits=SmqpLimits(),
        ack_timeout=PATIENCE,
        on_end=on_end,
    )
    try:
        yield listener.port
    finally:
        listener.close()


@pytest.mark.parametrize(
    ("without", "said"), [(partial(files_for, 1), "Too many open files"), (no_more_threads, "can't start new thread")]
)
def test_no_more_files_or_threads(
    without: Callable[[], AbstractContextManager[None]], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so; once there are some again the server is heard."""
    caplog.set_level(logging.WARNING)
    hearer = Hearer()
    with listening(hearer, lambda: None) as port:
        with without():
            first = socket.create_connection(("127.0.0.1", port), PATIENCE)
            eventually(lambda: said in caplog.text, "it is logged")
        with first, socket.create_connection(("127.0.0.1", port), PATIENCE) as server:
            server.sendall(b"NOTIFY SERVER BYE\r\n")
            assert hearer.told.wait(PATIENCE)


def test_a_message_in_doubt_without_further_threads() -> None:
    """It is handed over all the same."""
    inbox = Inbox()
    with FakeServer() as fake, connected(fake.address) as client:
        client.subscribe("/t", inbox)
        wire = fake.tell(1)
        with no_more_threads():
            wire.close()
            assert inbox.next().smuid == "h/1"
