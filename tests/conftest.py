"""What the tests share: the real brokers, each started once a session and only if a test asks for it."""

from collections.abc import Iterator

import pytest
from real_brokers import RealActiveMQ, start_activemq


@pytest.fixture(scope="session")
def activemq() -> Iterator[RealActiveMQ]:
    """Run one ActiveMQ Classic for the whole session; tests tell their queues apart by name."""
    with start_activemq() as broker:
        yield broker
