"""How a connection of `brokers` over SMQP ends, and what is under way on it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proxy_kit import Proxy
from smqp_kit import Running, eventually, prepared, running

import brokers
from brokers import queue


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
