"""How soon a lost connection is there again once its broker is, with nothing set: some seconds, whatever was before."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Thread

import pytest
from proxy_kit import Proxy
from real_brokers import RealBroker, start_activemq

import brokers
from brokers import Connection

PROTOCOLS = ("stomp", "amqp")
PATIENCE = 60.0

SOON = 8.0
"""Seconds that a connection takes at most to be there again: 2 s of a pause, an attempt, and a busy machine."""


def connected_within(connection: Connection, seconds: float) -> None:
    """Check that a connection which was lost is there again in time."""
    began = time.monotonic()
    connection.wait_connected(PATIENCE)
    assert time.monotonic() - began < seconds
    assert connection.generation > 1


@pytest.fixture
def mortal() -> Iterator[RealBroker]:
    """A broker of the test's own."""
    with start_activemq() as broker:
        yield broker


@pytest.mark.broker
@pytest.mark.parametrize("outage", [3.0, pytest.param(20.0, marks=pytest.mark.soak)])
def test_restarted_broker(mortal: RealBroker, outage: float) -> None:
    """ActiveMQ Classic that was killed and started again."""
    with brokers.connect(mortal.stomp_url) as stomp, brokers.connect(mortal.amqp_url) as amqp:
        mortal.kill()
        time.sleep(outage)
        mortal.start()
        for each in (stomp, amqp):
            connected_within(each, SOON)


def hold(listener: socket.socket, held: ExitStack) -> None:
    """Let everybody in, and say nothing, until the listener is closed."""
    while True:
        try:
            held.enter_context(listener.accept()[0])
        except OSError:
            return


@pytest.mark.broker
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_port_that_is_silent_first(activemq: RealBroker, protocol: str) -> None:
    """As of what stands before a broker that is being started: who was let in by then never hears anything."""
    port = getattr(activemq.ports, protocol)
    with (
        Proxy(activemq.host, port) as proxy,
        ExitStack() as held,
        brokers.connect(f"{protocol}://admin:admin@127.0.0.1:{proxy.port}") as connection,
    ):
        proxy.leave()
        with socket.create_server(("127.0.0.1", proxy.port)) as listener:
            holding = Thread(target=hold, args=[listener, held])
            holding.start()
            time.sleep(4)
            listener.shutdown(socket.SHUT_RDWR)
            holding.join()
        proxy.come_back()
        connected_within(connection, SOON)
