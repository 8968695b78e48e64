"""How many functions a call and a request go through, on the stack of a real one over each adapter."""

from __future__ import annotations

import pytest
from house import frames
from real_brokers import RealBroker

LIMIT = 8


def check(url: str) -> None:
    """Hold both sides to the limit."""
    sends, runs = frames(url)
    assert len(sends) <= LIMIT, sends
    assert len(runs) <= LIMIT, runs


def test_embedded() -> None:
    """Over the embedded broker."""
    check("embedded:frames")


@pytest.mark.broker
@pytest.mark.parametrize("scheme", ["stomp", "amqp"])
def test_real(activemq: RealBroker, scheme: str) -> None:
    """Over a network."""
    check({"stomp": activemq.stomp_url, "amqp": activemq.amqp_url}[scheme])
