"""brokers.adapter.dial: which address of a host is connected to, and what becomes of names that there cannot be."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from select import select
from time import monotonic
from typing import Any

import pytest
from amqp_kit import Peer
from proton import Condition, symbol

import brokers
from brokers import ConnectionFailedError, UsageError
from brokers.adapter.dial import connected
from brokers.amqp.listener import Listener
from brokers.embedded import Broker

PATIENCE = 10.0

NAME = "broker.example"

Address = tuple[int, Any]
"""A family and an address of it."""


@pytest.fixture
def silent() -> Iterator[Address]:
    """Give an address where nothing answers: the queue of its listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield socket.AF_INET, listener.getsockname()


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that has the system know addresses of `NAME`."""
    real = socket.getaddrinfo

    def give(*addresses: Address) -> None:
        def look_up(host: str, *arguments: Any, **more: Any) -> Any:
            if host != NAME:
                return real(host, *arguments, **more)
            return [(family, socket.SOCK_STREAM, 0, "", address) for family, address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return give


def reach(seconds: float) -> tuple[str, int]:
    """Connect to `NAME`, and return the address that was reached."""
    with connected(NAME, 1, monotonic() + seconds, lambda plain, until: plain) as made:
        found: tuple[str, int] = made.getpeername()
        return found


def test_a_silent_address_leaves_time_for_the_next(silent: Address, named: Callable[..., None]) -> None:
    """Each gets its share."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        named(silent, (socket.AF_INET, listener.getsockname()))
        assert reach(0.4) == listener.getsockname()
    began = monotonic()
    named(silent, silent)
    with pytest.raises(OSError, match="timed out"):
        reach(0.2)
    assert monotonic() - began < PATIENCE / 2


@pytest.mark.parametrize("scheme", ["amqps", "stomp+ssl", "smqps"])
def test_a_silent_handshake_leaves_time_for_the_next(scheme: str, named: Callable[..., None]) -> None:
    """An address that is connected to and says nothing gets no more than its share."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        named(*[(socket.AF_INET, each.getsockname()) for each in listeners])
        began = monotonic()
        with pytest.raises(ConnectionFailedError):
            brokers.connect(f"{scheme}://me:pw@{NAME}:1", timeout=0.4)
        assert monotonic() - began < 1.2
        assert all(select([each], [], [], 0)[0] for each in listeners), "each was tried"


def test_an_address_of_a_family_that_the_system_lacks(named: Callable[..., None]) -> None:
    """It is no reason not to try the next."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        named((250, ("::1", 1)), (socket.AF_INET, listener.getsockname()))
        assert reach(PATIENCE) == listener.getsockname()
    named((250, ("::1", 1)))
    with pytest.raises(OSError, match="not supported"):
        reach(PATIENCE)
    named()
    with pytest.raises(OSError, match="the name has no address"):
        reach(PATIENCE)


@pytest.mark.parametrize("scheme", ["amqp", "amqps", "amqp+ws", "stomp", "stomp+ssl", "smqp", "smqps"])
@pytest.mark.parametrize("host", ["a..b", "a" * 70, ".b"])
def test_a_name_that_cannot_be(scheme: str, host: str) -> None:
    """It is unknown, as others are that nobody has."""
    with pytest.raises(ConnectionFailedError, match=r"no host of that name|not a valid name|name in a certificate"):
        brokers.connect(f"{scheme}://me:pw@{host}:1", timeout=PATIENCE)


def test_a_list_goes_on_after_such_a_name() -> None:
    """With the next broker."""
    with Listener(Broker(), port=0) as listener:
        url = f"failover:(amqp://a..b:1,{listener.url})"
        brokers.connect(url, timeout=PATIENCE, reconnect=False).close()


def test_a_redirect_to_such_a_name() -> None:
    """It is an error of the broker, like any other."""
    info = {symbol("network-host"): "a..b", symbol("hostname"): "a..b"}
    peer = Peer(closes_with=Condition("amqp:connection:redirect", "go", info))
    with peer, pytest.raises(ConnectionFailedError, match="not a valid name"):
        brokers.connect(peer.url, timeout=PATIENCE, reconnect=False)


@pytest.mark.parametrize("name", [".x", "a..b", "a" * 70, "a%00b"])
def test_a_name_that_no_certificate_can_have(name: str) -> None:
    """The caller has written it."""
    with pytest.raises(UsageError, match=r"serverName in a URL. must be a host's name"):
        brokers.connect(f"amqps://127.0.0.1:1?serverName={name}", timeout=PATIENCE)
