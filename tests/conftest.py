"""What the tests share: the real brokers, each started once a session and only if a test asks for it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from ports import nobody
from qpid_kit import Qpid, start_qpid
from real_brokers import RealBroker, start_activemq, start_artemis

from brokers.amqp.listener import Listener
from brokers.embedded import Broker

# An assertion in what the tests share says what it saw, like one in a test.
KITS = {path.stem for path in Path(__file__).parent.glob("support/*_kit.py")} | {"broker_contract_deliveries"}
pytest.register_assert_rewrite(*(KITS - sys.modules.keys()))

# How long an example takes is the machine's business: a busy one is no failure. The examples are the same each time: a
# run that fails says something of what was changed. `pytest --hypothesis-profile=search` looks at others.
SLOW = [HealthCheck.too_slow]
settings.register_profile("search", deadline=None, suppress_health_check=SLOW, print_blob=True)
settings.register_profile("tests", deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.load_profile("tests")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would the processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def kept_port() -> Iterator[int]:
    """Keep a port for a server that leaves and comes back: nobody else gets it meanwhile."""
    with nobody() as port:
        yield port


@pytest.fixture
def shared_url() -> Iterator[str]:
    """A broker in this process that other processes reach."""
    with Listener(Broker("shared"), port=0) as listener:
        yield f"amqp://127.0.0.1:{listener.port}"


@pytest.fixture(scope="session")
def activemq() -> Iterator[RealBroker]:
    """Run one ActiveMQ Classic for the whole session; tests tell their queues apart by name."""
    with start_activemq() as broker:
        yield broker


@pytest.fixture(scope="session")
def artemis() -> Iterator[RealBroker]:
    """Run one Artemis for the whole session, likewise."""
    with start_artemis() as broker:
        yield broker


@pytest.fixture(scope="session")
def qpid() -> Iterator[Qpid]:
    """Run one Qpid Broker-J for the whole session, likewise."""
    with start_qpid() as broker:
        yield broker


@pytest.fixture
def too_deep(tmp_path: Path) -> Path:
    """Make a folder with folders in it so deep that their path is longer than any path may be."""
    folder = tmp_path / "deep"
    folder.mkdir()
    inside = os.open(folder, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 255, dir_fd=inside)
        before, inside = inside, os.open("d" * 255, os.O_RDONLY, dir_fd=inside)
        os.close(before)
    os.close(inside)
    return folder
