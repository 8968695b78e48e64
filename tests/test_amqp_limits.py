"""brokers.amqp.provider: what clients take of files, threads, memory and time has limits, and others are served on."""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from amqp_raw import PATIENCE, Raw
from amqp_soak import eventually

from brokers import BrokerError, queue
from brokers.amqp.provider import Listener
from brokers.embedded import Broker


@contextmanager
def files_for(more: int) -> Iterator[None]:
    """Let this process open so many more files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = max(int(each) for each in os.listdir("/proc/self/fd"))
    held = [os.dup(0)]
    while held[-1] <= top:  # no gap is left below
        held.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in held:
            os.close(each)


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Ask for stacks that there is no memory for."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


def is_turned_away(listener: Listener) -> None:
    """Connect, and find the connection closed."""
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as client:
        assert client.recv(1) == b""


def test_no_more_files(caplog: pytest.LogCaptureFixture) -> None:
    """A client for which there are no files is turned away; once there are some again the next one is served."""
    with Listener(Broker(), port=0) as listener:
        with files_for(2):  # the client's socket and the listener's, but none to wait for it
            is_turned_away(listener)
        with Raw(listener.port) as client:
            client.receive("q")
    assert "is turned away: [Errno 24]" in caplog.text


def test_no_more_threads(caplog: pytest.LogCaptureFixture) -> None:
    """A client for which there is no thread is turned away, and forgotten; the next one is served."""
    with Listener(Broker(), port=0) as listener:
        with no_more_threads():
            is_turned_away(listener)
        eventually("it is forgotten", lambda: listener.guests == 0)
        with Raw(listener.port) as client:
            client.receive("q")
    assert "is turned away: can't start new thread" in caplog.text


def test_no_thread_for_a_consumer(caplog: pytest.LogCaptureFixture) -> None:
    """Its link is refused, nothing is left of it, and the client goes on."""
    broker = Broker()
    with Listener(broker, port=0) as listener, Raw(listener.port) as client:
        with no_more_threads():
            end = client.end_of(client.receive("topic://t"))
            assert end.condition == "amqp:resource-limit-exceeded"
            assert "topic:t is not consumed from" in (end.description or "")
            with broker.connect() as connection, pytest.raises(BrokerError, match="is not consumed from"):
                connection.consume(queue("q"), print)
        assert broker.destinations() == []
        client.receive("topic://t")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
