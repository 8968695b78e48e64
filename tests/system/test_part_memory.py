"""The memory that a large attachment takes: hardly more than its own size, in whoever sends and whoever reads it."""

from __future__ import annotations

import sys

import pytest
from places import ROOT
from real_brokers import RealBroker

sys.path.insert(0, str(ROOT / "benchmarks"))
from part_memory import measure

OCTETS = 8 << 20


@pytest.mark.broker
@pytest.mark.parametrize("way", ["request", "response"])
def test_a_part_is_held_once(activemq: RealBroker, way: str) -> None:
    """Client and service take at most 1.1 times the part, which one of them sends over STOMP and the other reads."""
    assert max(measure(activemq.stomp_url, f"memory.{way}", way, OCTETS)) <= 1.1
