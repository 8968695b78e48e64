"""Listeners where this process may have few files open: they start, say so, and go on once there are none left."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from bridge_kit import listening
from calling_kit import PATIENCE, eventually
from limits_kit import files_for
from smqp_kit import running

from brokers.amqp.listener import Listener
from brokers.amqp.sasl import AMQP_HEADER
from brokers.embedded import Broker
from brokers.listeners.descriptors import RESERVED_FILES, bounded, raise_limit
from soapjms.serving import StatusPage, StatusResponse

PAUSED = 0.75
"""Seconds without files."""


@contextmanager
def limit(files: int) -> Iterator[None]:
    """Let this process have so many files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def amqp() -> Iterator[int]:
    """The AMQP listener."""
    with Listener(Broker(), port=0) as listener:
        yield listener.port


@contextmanager
def smqp() -> Iterator[int]:
    """The SMQP server."""
    with running() as server:
        yield server.address[1]


@contextmanager
def bridge() -> Iterator[int]:
    """The bridge."""
    with Broker().connect() as connection, listening(connection, "jms:queue:q") as (_, listener):
        yield listener.port


@contextmanager
def page() -> Iterator[int]:
    """The page for health."""
    with StatusPage("127.0.0.1:0", {"/": lambda: StatusResponse("text/plain", b"fine")}) as made:
        yield made.port


GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
LISTENERS = [(amqp, AMQP_HEADER), (smqp, b"NOOP\r\n"), (bridge, GET), (page, GET)]


@pytest.mark.parametrize(("listener", "question"), LISTENERS)
def test_no_more_files(listener: Callable[[], AbstractContextManager[int]], question: bytes) -> None:
    """While there are none to take a client with, nobody works at it without end; then the next client is served."""
    with listener() as port:
        waiting = [socket.socket() for _ in range(3)]
        with files_for(0):
            for client in waiting:
                client.settimeout(PATIENCE)
                client.connect(("127.0.0.1", port))
            begun = time.process_time()
            time.sleep(PAUSED)
            assert time.process_time() - begun < PAUSED / 3
        for client in waiting:
            client.close()

        def is_served() -> bool:
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                client.sendall(question)
                return client.recv(4) != b""

        eventually(is_served, "the next one is served")


@pytest.mark.parametrize("listener", [amqp, smqp, bridge])
def test_no_more_clients_than_files(
    listener: Callable[[], AbstractContextManager[int]], caplog: pytest.LogCaptureFixture
) -> None:
    """A listener that would let in more clients than there may be files says so at its start."""
    with limit(RESERVED_FILES + 60), listener():
        pass
    assert f"no more than {RESERVED_FILES + 60} files open" in caplog.text


def test_how_many() -> None:
    """As many as are wanted, if there are files for them and for the rest of the process; and always one."""
    with limit(RESERVED_FILES + 40):
        assert [bounded(each, 4, "clients") for each in (1, 10, 11, 5000)] == [1, 10, 10, 10]
    with limit(RESERVED_FILES - 20):
        assert bounded(10, 1, "clients") == 1


def test_raised() -> None:
    """A command has as many as it may give itself."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with limit(RESERVED_FILES):
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
