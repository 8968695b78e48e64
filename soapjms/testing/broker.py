"""The broker for tests: embedded, ActiveMQ in a container or child process, or one that is already running.

A child process is ActiveMQ Classic from the folder in which it was unpacked, without Docker. `testcontainers` and
`docker` are imported only here, and only if a container is asked for. A started broker is waited for; if a broker is
not available, an error says why.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any, Final
from uuid import uuid4

from brokers.connection import Connection
from brokers.errors import BrokerError
from brokers.redaction import without_login
from brokers.schemes import SCHEMES, connect
from soapjms.protocol.errors import SoapJmsError, UsageError
from soapjms.protocol.text import shown

POLL_SECONDS: Final = 0.1
SHOWN_LOG_LINES: Final = 30


class BrokerNotAvailableError(SoapJmsError):
    """The broker for the tests is not available; the message says why and what to do."""


def wait_for(url: str, timeout: float, log: Callable[[], str], is_running: Callable[[], bool] = lambda: True) -> None:
    """Return once a broker accepts connections.

    Args:
        url: the URL of the broker.
        timeout: maximum time to wait, in seconds.
        log: returns the log of the broker; its last lines are put into the error.
        is_running: returns whether the broker is still running.

    Raises:
        BrokerNotAvailableError: the broker accepted no connection in time, or has ended.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connect(url, timeout=5).close()
            return
        except BrokerError as error:
            has_ended = not is_running()  # before the log is read, so that the log is complete
            named, told = without_login(url), "\n".join(log().splitlines()[-SHOWN_LOG_LINES:])
            if has_ended:
                raise BrokerNotAvailableError(f"the broker for {named} ended before it was ready\n{told}") from error
            if time.monotonic() > deadline:
                raise BrokerNotAvailableError(
                    f"the broker at {named} was not ready after {timeout:g} s: {error}\n{told}"
                ) from error
        time.sleep(POLL_SECONDS)


BROKER: Final = "broker:({})?persistent=false&useJmx=false&schedulerSupport=false"
"""URI of a broker in memory, at an address of this machine only; it accepts any user and password."""

MAIN: Final = "org.apache.activemq.console.Main"
PORTS: Final = range(10_000, 20_000)
"""Ports below those that systems assign to clients and to servers without a fixed port, so that most are free."""

MAX_START_ATTEMPTS: Final = 20
START_TIMEOUT: Final = 90.0
"""Seconds from the start of a broker, its image already there, until it accepts connections."""

END_TIMEOUT: Final = 10.0
"""Seconds for the child process to end by itself."""


@contextmanager
def activemq(folder: str) -> Iterator[str]:
    """Run the ActiveMQ of a folder during a `with` statement, on a free port, and yield its URL.

    Raises:
        BrokerNotAvailableError: the folder has no ActiveMQ, there is no Java, or the broker does not start.
    """
    url = f"stomp://127.0.0.1:{_free_port()}"
    command = [_java(folder), "-cp", _class_path(Path(folder)), MAIN, "start", BROKER.format(url)]
    with tempfile.TemporaryDirectory(prefix="soapjms-activemq-", ignore_cleanup_errors=True) as own:
        log = Path(own) / "log"
        with (
            log.open("wb") as output,
            subprocess.Popen(command, cwd=own, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as child,  # noqa: S603  # the user chose the folder
        ):
            try:
                wait_for(url, START_TIMEOUT, lambda: log.read_text("utf-8", "replace"), lambda: child.poll() is None)
                yield url
            finally:
                _end(child)


def _free_port() -> int:
    """Return a port that is free now; if another program takes it first, the broker reports that."""
    for each in SystemRandom().sample(PORTS, MAX_START_ATTEMPTS):
        with suppress(OSError), socket.create_server(("127.0.0.1", each)):  # an OSError: the port is taken
            return each
    raise BrokerNotAvailableError(f"none of {MAX_START_ATTEMPTS} ports from {PORTS.start} on is free")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()


def _java(folder: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the path"
        raise BrokerNotAvailableError(f"the tests need the ActiveMQ in {folder}, but {where}")
    return found


def _class_path(folder: Path) -> str:
    places = [each for each in (folder, folder / "lib", folder / "lib" / "optional") if any(each.glob("*.jar"))]
    if not any(next(each.glob("activemq-broker-*.jar"), None) for each in places):
        raise BrokerNotAvailableError(
            f"the tests need the ActiveMQ in {folder}, but neither it nor its lib/ has an activemq-broker-*.jar; "
            "name the folder in which ActiveMQ Classic was unpacked"
        )
    return os.pathsep.join(f"{each.absolute()}{os.sep}*" for each in places)


IMAGE: Final = "apache/activemq-classic:6.1.8"
STOMP_PORT: Final = 61613
LOGIN: Final = "admin:admin"
"""User and password of the image; its port is open to this machine only."""

EMBEDDED: Final = "embedded"
CONTAINER: Final = "container"
AUTO: Final = "auto"
PROCESS: Final = "process"
"""Prefix of a choice, before a colon and a folder."""


@dataclass(frozen=True, slots=True)
class BrokerInUse:
    """A broker for tests.

    Attributes:
        url: the URL for `soapjms.connect`; that of an embedded broker is valid in this process only.
        description: a description for people, without a password.
        is_embedded: whether it is in this process, and so has only what the tests put there.
    """

    url: str = field(repr=False)
    description: str
    is_embedded: bool = False

    def connect(self, **options: Any) -> Connection:
        """Make a connection, which the caller closes; see `soapjms.connect`."""
        return connect(self.url, **options)


def checked(choice: str) -> str:
    """Return a user's choice of a broker, after checking it.

    Raises:
        UsageError: the choice is neither one of the words nor a URL of a known scheme.
    """
    scheme, colon, rest = choice.partition(":")
    if choice in (EMBEDDED, CONTAINER, AUTO) or (colon and scheme.lower() in SCHEMES) or (scheme == PROCESS and rest):
        return choice
    raise UsageError(
        # not shown as a whole: it may hold a password
        f"the broker for tests must be {EMBEDDED}, {CONTAINER} (ActiveMQ, with Docker), {AUTO} (a container if Docker "
        f"answers, else embedded), {PROCESS}:FOLDER (the ActiveMQ unpacked there, with Java), or the URL of a broker, "
        f"which begins with {', '.join(f'{each}:' for each in SCHEMES)}; "
        f"got a text that begins with {shown(scheme.lower())}"
    )


def decided(choice: str) -> tuple[str, str]:
    """Return the choice that `auto` means on this machine, and why; other choices are unchanged, without a reason."""
    if choice != AUTO:
        return choice, ""
    problem = docker_problem()
    return (CONTAINER, "auto, as Docker answers") if problem is None else (EMBEDDED, f"auto, as {problem}")


def running(choice: str) -> AbstractContextManager[BrokerInUse]:
    """Provide a broker during a `with` statement: `embedded`, in a `container`, a child process (`process:FOLDER`),
    or that of a URL.

    Raises (on entering):
        BrokerNotAvailableError: the broker is not available.
    """
    starts: dict[str, Callable[[], AbstractContextManager[BrokerInUse]]] = {EMBEDDED: embedded, CONTAINER: container}
    if choice in starts:
        return starts[choice]()
    kind, _, folder = choice.partition(":")
    return process(folder) if kind == PROCESS else given(choice)


@contextmanager
def embedded() -> Iterator[BrokerInUse]:
    """Provide a new, empty broker in this process; its messages are lost at the end."""
    url = f"embedded:soapjms-test-{uuid4().hex}"
    with connect(url):  # the broker exists as long as it has a connection
        yield BrokerInUse(url, "the embedded broker", is_embedded=True)


@contextmanager
def given(url: str) -> Iterator[BrokerInUse]:
    """Use a broker that is already running.

    Raises:
        BrokerNotAvailableError: the broker does not answer, or refuses the connection.
    """
    named = without_login(url)
    try:
        with connect(url) as connection:
            title = connection.capabilities.broker
    except (BrokerError, ImportError) as error:
        raise BrokerNotAvailableError(f"the tests cannot use the broker at {named}: {error}") from error
    yield BrokerInUse(url, f"{title} at {named}", is_embedded=url.startswith("embedded:"))


@contextmanager
def process(folder: str) -> Iterator[BrokerInUse]:
    """Run the ActiveMQ Classic unpacked in a folder, on a free port of this machine, with all messages in memory.

    Raises:
        BrokerNotAvailableError: the folder has no ActiveMQ, there is no Java, or the broker does not start.
    """
    with activemq(folder) as url:
        yield BrokerInUse(url, f"ActiveMQ of {folder}, a child process at {url}")


@contextmanager
def container() -> Iterator[BrokerInUse]:
    """Run ActiveMQ Classic in a container, on a free port of this machine; pulling the image may take a while.

    Raises:
        BrokerNotAvailableError: there is no Docker engine, or the broker does not start.
    """
    problem = docker_problem()
    if problem is not None:
        raise BrokerNotAvailableError(
            f"the tests need ActiveMQ in a container, but {problem}. "
            "Start Docker, or name the folder of an unpacked ActiveMQ, --soapjms-broker=process:FOLDER, "
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
    """Return the reason why a container cannot be started, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        problem = _docker_problem()
        gc.collect()  # without an answer the library leaves its socket to the garbage collector, which warns of it
    return problem


def _docker_problem() -> str | None:
    try:
        import docker
        import testcontainers  # noqa: F401  imported now, to report it before the first test if it is missing
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
