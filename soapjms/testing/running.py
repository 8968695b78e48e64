"""Which broker tests use: the embedded one, ActiveMQ in a container or as a child process, or one that runs already.

`testcontainers` and `docker` are imported only here, and only if a container is asked for.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from brokers.connecting import SCHEMES, connect
from brokers.connection import Connection
from brokers.errors import BrokerError
from brokers.urls import without_login
from soapjms.protocol.errors import UsageError
from soapjms.protocol.showing import shown
from soapjms.testing.process import activemq
from soapjms.testing.waiting import BrokerNotAvailableError, wait_for

IMAGE: Final = "apache/activemq-classic:6.1.8"
STOMP_PORT: Final = 61613
LOGIN: Final = "admin:admin"
"""User and password as the image has them; its port is open to this machine only."""
START_TIMEOUT: Final = 90.0
"""Seconds from the start of the container, its image already there, until it lets us in."""

EMBEDDED: Final = "embedded"
CONTAINER: Final = "container"
AUTO: Final = "auto"
PROCESS: Final = "process"
"""Before a colon and a folder."""


@dataclass(frozen=True, slots=True)
class BrokerInUse:
    """A broker for tests.

    Attributes:
        url: for `soapjms.connect`, in this process; that of a real broker for any.
        description: which it is, without a password.
        is_embedded: it lives in this process and has nothing in it but what the tests put there.
    """

    url: str = field(repr=False)
    description: str
    is_embedded: bool = False

    def connect(self, **options: Any) -> Connection:
        """Make a connection, which is the caller's to close; see `soapjms.connect`."""
        return connect(self.url, **options)


def checked(choice: str) -> str:
    """Return what a user says to choose a broker.

    Raises:
        UsageError: it is neither one of the words nor a URL that an adapter serves.
    """
    scheme, colon, rest = choice.partition(":")
    if choice in (EMBEDDED, CONTAINER, AUTO) or (colon and scheme.lower() in SCHEMES) or (scheme == PROCESS and rest):
        return choice
    raise UsageError(
        # not shown as a whole: it may hold a password
        f"the broker for tests begins with {shown(scheme.lower())}; accepted are {EMBEDDED}, {CONTAINER} (ActiveMQ, "
        f"with Docker), {AUTO} (a container if Docker answers, else embedded), {PROCESS}:FOLDER (the ActiveMQ that was "
        f"unpacked there, with Java), or the URL of one, which begins with "
        f"{', '.join(f'{each}:' for each in SCHEMES)}"
    )


def decided(choice: str) -> tuple[str, str]:
    """Return what `auto` means on this machine, and why; another choice as it is, without a reason."""
    if choice != AUTO:
        return choice, ""
    problem = docker_problem()
    return (CONTAINER, "auto, as Docker answers") if problem is None else (EMBEDDED, f"auto, as {problem}")


def running(choice: str) -> AbstractContextManager[BrokerInUse]:
    """Have a broker while a `with` statement lasts: `embedded`, in a `container`, a child process
    (`process:FOLDER`), or that of a URL.

    Raises (on entering):
        BrokerNotAvailableError: it cannot be had.
    """
    starts: dict[str, Callable[[], AbstractContextManager[BrokerInUse]]] = {EMBEDDED: embedded, CONTAINER: container}
    if choice in starts:
        return starts[choice]()
    kind, _, folder = choice.partition(":")
    return process(folder) if kind == PROCESS else given(choice)


@contextmanager
def embedded() -> Iterator[BrokerInUse]:
    """Have a broker in this process which nobody else uses; it holds nothing yet, and forgets all in the end."""
    url = f"embedded:soapjms-test-{uuid4().hex}"
    with connect(url):  # it lives as long as a connection does
        yield BrokerInUse(url, "the embedded broker", is_embedded=True)


@contextmanager
def given(url: str) -> Iterator[BrokerInUse]:
    """Use a broker that runs already.

    Raises:
        BrokerNotAvailableError: nobody answers there, or does not let us in.
    """
    named = without_login(url)
    try:
        with connect(url) as connection:
            title = connection.capabilities.broker
    except (BrokerError, ImportError) as error:
        raise BrokerNotAvailableError(f"the tests are to use the broker at {named}: {error}") from error
    yield BrokerInUse(url, f"{title} at {named}", is_embedded=url.startswith("embedded:"))


@contextmanager
def process(folder: str) -> Iterator[BrokerInUse]:
    """Run the ActiveMQ Classic that was unpacked in a folder, on a free port of this machine, all in memory.

    Raises:
        BrokerNotAvailableError: it is not there, or there is no Java, or it does not start.
    """
    with activemq(folder) as url:
        yield BrokerInUse(url, f"ActiveMQ of {folder}, a child process at {url}")


@contextmanager
def container() -> Iterator[BrokerInUse]:
    """Run ActiveMQ Classic in a container, on a free port of this machine; pulling the image may take its time.

    Raises:
        BrokerNotAvailableError: there is no Docker engine, or the broker does not start.
    """
    problem = docker_problem()
    if problem is not None:
        raise BrokerNotAvailableError(
            f"the tests need ActiveMQ in a container, and {problem}. "
            "Start Docker, or name the folder of an ActiveMQ that was unpacked, --soapjms-broker=process:FOLDER, "
            f"or give the URL of a broker: --soapjms-broker=stomp://USER:PASSWORD@HOST:{STOMP_PORT}"
        )
    from testcontainers.core.container import DockerContainer

    box: Any = DockerContainer(IMAGE).with_exposed_ports(STOMP_PORT)
    with box:
        host, port = box.get_container_host_ip(), int(box.get_exposed_port(STOMP_PORT))
        url = f"stomp://{LOGIN}@{host}:{port}"
        wait_for(url, START_TIMEOUT, lambda: b"".join(box.get_logs()).decode("utf-8", "replace"))
        yield BrokerInUse(url, f"ActiveMQ in a container of {IMAGE}, port {port}")


def docker_problem() -> str | None:
    """Say why no container can be started, None if it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        problem = _docker_problem()
        gc.collect()  # where nobody answers, the library leaves its socket to the collector, which warns of that
    return problem


def _docker_problem() -> str | None:
    try:
        import docker
        import testcontainers  # noqa: F401  found now, or the reason is not told before the first test
    except ImportError as error:
        return f"a library is missing ({error}): pip install 'soapjms[testing]'"
    try:
        client = docker.from_env(timeout=10)
    except docker.errors.DockerException as error:
        return f"no Docker engine answers ({error})"
    try:
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        return f"no Docker engine answers ({error})"
    finally:
        client.close()
    return None
