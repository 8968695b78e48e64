"""How a connection of `brokers` over SMQP ends, and what is under way on it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic
from typing import Any

import pytest
from proxy_kit import Proxy
from smqp_kit import PATIENCE, Running, eventually, prepared, running

import brokers
from brokers import ClosedError, queue
from brokers.smqp.adapter import SmqpConnection
from brokers.smqp.adapter.consumer import SmqpConsumer


@pytest.fixture
def server() -> Iterator[Running]:
    """Run a server of one's own."""
    with running() as server:
        yield server


@pytest.fixture
def proxy(server: Running) -> Iterator[Proxy]:
    """Put a proxy before it."""
    with Proxy(*server.address) as proxy:
        yield proxy


@pytest.fixture
def url(server: Running, proxy: Proxy) -> str:
    """Prepare it for JMS, and say where it is by way of the proxy."""
    return prepared(server).replace(f":{server.address[1]}", f":{proxy.port}")


def sessions(server: Running) -> int:
    """Count the sessions that are logged in."""
    return len(server.server.engine.core.sessions)


def test_an_interrupted_consume(server: Running, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has its consumer, so none is left that takes messages."""

    def interrupt(topic: str, until: float) -> None:
        raise KeyboardInterrupt

    with brokers.connect(url) as connection:
        monkeypatch.setattr(connection, "_create", interrupt)
        with pytest.raises(KeyboardInterrupt) as found:
            connection.consume(queue("q"), print)
        assert found.tb
        eventually(lambda: sessions(server) == 1, "only the sender is left")


def test_closing_while_the_server_is_silent(proxy: Proxy, url: str) -> None:
    """It takes no longer than it may, with however many consumers."""
    connection = brokers.connect(url, timeout=PATIENCE)
    for number in range(3):
        connection.consume(queue(f"q{number}"), print)
    proxy.silence()
    began = monotonic()
    connection.close(0.2)
    assert monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("owner", "name", "is_after"),
    [(SmqpConnection, "session", False), (SmqpConsumer, "begin", False), (SmqpConsumer, "begin", True)],
)
def test_closing_while_consume_is_under_way(
    owner: type, name: str, is_after: bool, server: Running, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever moment: its consumer ends with the connection, and the caller is told."""
    step, begun, go_on = getattr(owner, name), Event(), Event()

    def stop_at(wanted: bool) -> None:
        if is_after is wanted:
            begun.set()
            assert go_on.wait(PATIENCE)

    def stopping(self: Any, *arguments: Any) -> Any:
        stop_at(False)
        result = step(self, *arguments)
        stop_at(True)
        return result

    with brokers.connect(url) as connection, ThreadPoolExecutor(1) as threads:
        connection.consume(queue("q"), print).close()  # which makes the queue
        monkeypatch.setattr(owner, name, stopping)
        consumed = threads.submit(connection.consume, queue("q"), print)
        assert begun.wait(PATIENCE)
        connection.close()
        eventually(lambda: sessions(server) == 0, "none is left while `consume` is still under way")
        go_on.set()
        with pytest.raises(ClosedError):
            consumed.result(PATIENCE)
        eventually(lambda: sessions(server) == 0, "none is left")
