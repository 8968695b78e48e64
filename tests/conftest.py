"""What the tests share: the real brokers, each started once a session and only if a test asks for it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from ports import nobody
from qpid_kit import Qpid, start_qpid
from rabbitmq_kit import start_rabbitmq
from real_brokers import RealBroker, start_activemq, start_artemis

from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from soapjms.replay.engines import LOCAL, SPARK, EngineName

if TYPE_CHECKING:
    from cxf_kit import Cxf

# An assertion in what the tests share says what it saw, like one in a test.
KITS = {path.stem for path in Path(__file__).parent.glob("support/*_kit.py")} | {"broker_contract_deliveries"}
pytest.register_assert_rewrite(*(KITS - sys.modules.keys()))

# How long an example takes is the machine's business: a busy one is no failure. The examples are the same each time: a
# run that fails says something of what was changed. `pytest --hypothesis-profile=search` looks at others.
SLOW = [HealthCheck.too_slow]
settings.register_profile("search", deadline=None, suppress_health_check=SLOW, print_blob=True)
settings.register_profile("tests", deadline=None, suppress_health_check=SLOW, derandomize=True)
settings.load_profile("tests")

# A shell that starts the tests in the background has them ignore Ctrl-C, and `nohup` the end of the terminal, and so
# would the processes that they start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with a Spark more time: on a busy machine it takes minutes to start."""
    for each in items:
        if each.get_closest_marker("spark") and not each.get_closest_marker("timeout"):
            each.add_marker(pytest.mark.timeout(600))


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


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[str]:
    """Run one RabbitMQ for the whole session, likewise, and give its URL."""
    with start_rabbitmq() as url:
        yield url


@pytest.fixture(scope="session")
def cxf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cxf]:
    """Run one Apache CXF for the whole session, likewise."""
    from cxf_kit import start_cxf  # its assertions are rewritten by now

    with start_cxf(tmp_path_factory.mktemp("cxf")) as running:
        yield running


@pytest.fixture(scope="session")
def kept_spark() -> Iterator[ExitStack]:
    """What keeps a Spark running from one test to the next; without tests that ask for one it is empty."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def one_spark(kept_spark: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have a Spark run, started as replay starts it: replay uses it, and leaves it running for the tests that follow.

    Its first replay takes some ten seconds longer than all others.
    """
    from pyspark import SparkContext  # not without Spark

    from soapjms.replay.spark_session import session

    if SparkContext._active_spark_context is None:
        kept_spark.close()
        kept_spark.enter_context(session(None, {}, tmp_path_factory.mktemp("spark")))


@pytest.fixture
def own_spark(kept_spark: ExitStack) -> None:
    """Have no Spark run, since the test starts one."""
    kept_spark.close()


@pytest.fixture(params=[LOCAL, pytest.param(SPARK, marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> EngineName:
    """Name an engine of replay; if that is Spark, one runs."""
    if request.param == SPARK:
        request.getfixturevalue("one_spark")
    engine: EngineName = request.param
    return engine


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
