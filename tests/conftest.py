"""What the tests share: the real brokers, each started once a session and only if a test asks for it."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from real_brokers import RealActiveMQ, start_activemq

# How long an example takes is the machine's business: a busy one is no failure.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def activemq() -> Iterator[RealActiveMQ]:
    """Run one ActiveMQ Classic for the whole session; tests tell their queues apart by name."""
    with start_activemq() as broker:
        yield broker
