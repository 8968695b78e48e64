"""Real message brokers for tests, benchmarks and demos, started and stopped by the program that needs them.

`start_activemq()` gives ActiveMQ Classic 6.1.8: in a container where a Docker engine answers, else as a child process
on the jars that `make brokers` fetched. Either way the same configuration (`tests/activemq/`) and the same attributes.

pytest has this folder on its path and offers the session fixture `activemq`. Another program puts the folder on its
path itself, as in `PYTHONPATH=tests python benchmarks/echo.py`, and writes:

    with start_activemq() as broker:
        connection = brokers.connect(broker.stomp_url)
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

ROOT: Final = Path(__file__).resolve().parent.parent
CONFIGURATION: Final = ROOT / "tests" / "activemq"
JARS: Final = ROOT / "build" / "activemq" / "lib"
IMAGE: Final = "apache/activemq-classic:6.1.8"

USER: Final = "admin"
PASSWORD: Final = "admin"
STARTED: Final = re.compile(r"BrokerService Apache ActiveMQ .* started$", re.MULTILINE)
OLDEST_JAVA: Final = 17
PORT_ATTEMPTS: Final = 5
POLL: Final = 0.05
"""Seconds between two looks at a broker that is starting."""


class BrokerStartError(RuntimeError):
    """A real broker could not be started; the message says why and what to do."""


class PortTakenError(BrokerStartError):
    """Somebody else took one of the ports between finding it free and binding it."""


class Ports(NamedTuple):
    """Where the connectors of one broker listen."""

    openwire: int
    stomp: int
    amqp: int
    ws: int


IN_CONTAINER: Final = Ports(openwire=61616, stomp=61613, amqp=5672, ws=61614)


class RealActiveMQ(ABC):
    """ActiveMQ Classic, running while the `with` statement lasts.

    Args:
        mirrored: copy what is sent to a queue to the topic `VirtualTopic.Mirror.` and the queue's name, for a tap.
    """

    def __init__(self, *, mirrored: bool = False) -> None:
        self.host = "127.0.0.1"
        self.mirrored = mirrored
        self._ports: Ports | None = None

    @abstractmethod
    def start(self, timeout: float = 60.0) -> None:
        """Start the broker and return once a STOMP client can log in.

        Raises:
            BrokerStartError: it cannot run here, or was not ready after `timeout` seconds; the message holds the end
                of its log.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker and remove what it stored. Idempotent."""

    @abstractmethod
    def log(self) -> str:
        """Return what the broker has logged so far."""

    @property
    def ports(self) -> Ports:
        """The ports in use."""
        if self._ports is None:
            raise BrokerStartError("the broker is not running")
        return self._ports

    @property
    def stomp_url(self) -> str:
        """For `brokers.connect`."""
        return f"stomp://{USER}:{PASSWORD}@{self.host}:{self.ports.stomp}"

    @property
    def amqp_url(self) -> str:
        """AMQP 1.0 over TCP."""
        return f"amqp://{USER}:{PASSWORD}@{self.host}:{self.ports.amqp}"

    @property
    def ws_url(self) -> str:
        """AMQP or STOMP over WebSocket, by subprotocol."""
        return f"ws://{USER}:{PASSWORD}@{self.host}:{self.ports.ws}"

    @property
    def openwire_url(self) -> str:
        """For Java clients, which take user and password separately."""
        return f"tcp://{self.host}:{self.ports.openwire}"

    @property
    def classpath(self) -> str:
        """The class path of a Java program that talks to this broker."""
        require_jars()
        return f"{JARS}{os.sep}*"

    def send_special(
        self,
        kind: str,
        queue: str,
        *,
        reply_to: str | None = None,
        wait: float = 0.0,
        content_type: str = "text/xml; charset=utf-8",
    ) -> dict[str, Any] | None:
        """Send a message that STOMP cannot, from a Java client, as a SOAP/JMS request would look.

        Args:
            kind: `map`, `stream`, `object`, `message` (no body at all), `null-text`, `text` or `bytes`.
            queue: where to.
            reply_to: JMSReplyTo: the name of a queue, `temporary` for a temporary queue, None for none.
            wait: seconds to wait for a reply on `reply_to`; 0 for not at all.
            content_type: the value of SOAPJMS_contentType.

        Returns:
            The reply: `type`, `body` (as text), `correlationId`, `messageId` (of the request), `properties`; None if
            none was waited for, or none came in time.

        Raises:
            BrokerStartError: no Java, or the program failed; the message holds what it wrote.
        """
        command = [java(), "-Xmx128m", "-cp", self.classpath, str(CONFIGURATION / "SendSpecial.java")]
        command += [self.openwire_url, queue, kind, content_type, reply_to or "-", str(round(wait * 1000))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=wait + 60, check=False)
        if done.returncode != 0:
            raise BrokerStartError(f"SendSpecial failed with {done.returncode}:\n{tail(done.stderr)}")
        reply: dict[str, Any] | None = json.loads(done.stdout.strip().splitlines()[-1])
        return reply

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ActiveMQ(RealActiveMQ):
    """ActiveMQ Classic as a child process, on free ports, with its files in a temporary directory."""

    def __init__(self, *, mirrored: bool = False) -> None:
        super().__init__(mirrored=mirrored)
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the broker while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def directory(self) -> Path:
        """Where this broker keeps its log and data."""
        if self._directory is None:
            raise BrokerStartError("the broker is not running")
        return self._directory

    def start(self, timeout: float = 60.0) -> None:
        """Start the broker; one whose ports were taken by somebody else is started again on others."""
        require_jars()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                return self._start_once(java(), timeout)
            except PortTakenError:
                self.stop()
                if attempt == PORT_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
        return None

    def _start_once(self, executable: str, timeout: float) -> None:
        directory = Path(tempfile.mkdtemp(prefix="activemq-"))
        self._directory = directory
        self._ports = free_ports()
        with (directory / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(executable, self._ports, directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )
        self._wait_until_ready(self._process, timeout)

    def _command(self, executable: str, ports: Ports, directory: Path) -> list[str]:
        options = [
            *system_properties(ports, self.host, str(directory)),
            f"-Dactivemq.home={directory}",
            f"-Dlog4j2.configurationFile={CONFIGURATION / 'log4j2.properties'}",
        ]
        (directory / "activemq.xml").write_text(configuration(self.mirrored), "utf-8")
        start = ["org.apache.activemq.console.Main", "start", f"xbean:file:{directory / 'activemq.xml'}"]
        return [executable, "-Xmx512m", *options, "-cp", self.classpath, *start]

    def _wait_until_ready(self, process: subprocess.Popen[bytes], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        # Its own log first: on a port that it did not get, somebody else's broker may answer.
        while not (STARTED.search(self.log()) and answers_stomp(self.host, self.ports.stomp)):
            if process.poll() is not None:
                log = self.log()
                error = PortTakenError if "Address already in use" in log else BrokerStartError
                raise error(f"ActiveMQ ended with {process.returncode} while starting:\n{tail(log)}")
            if time.monotonic() > deadline:
                raise BrokerStartError(f"ActiveMQ was not ready after {timeout} s:\n{tail(self.log())}")
            time.sleep(POLL)

    def stop(self) -> None:
        """Ask the process to end, kill it if it does not within 10 s, and remove its directory."""
        process, self._process = self._process, None
        if process is not None:
            end(process)
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory)
        self._ports = None

    def kill(self) -> None:
        """End the broker at once, as a power cut would; `stop` cleans up afterwards."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """Return what the broker has logged so far."""
        if self._directory is None:
            return ""
        return (self._directory / "broker.log").read_text(encoding="utf-8", errors="replace")


class ActiveMQContainer(RealActiveMQ):
    """ActiveMQ Classic in a container, with the same configuration as the child process has."""

    def __init__(self, *, mirrored: bool = False) -> None:
        super().__init__(mirrored=mirrored)
        # Imported here because the `test` extra is only needed by who starts containers.
        from testcontainers.core.container import DockerContainer

        folder = "/soapjms"
        self._files = Path(tempfile.mkdtemp(prefix="activemq-"))
        self._files.chmod(0o755)  # the broker runs as another user there
        (self._files / "activemq.xml").write_text(configuration(mirrored), "utf-8")
        options = system_properties(IN_CONTAINER, "0.0.0.0", "/tmp/soapjms-data")  # inside the container
        self._container = (
            DockerContainer(IMAGE)
            .with_volume_mapping(str(self._files), folder, "ro")
            .with_env("JDK_JAVA_OPTIONS", " ".join(options))  # the start script sets the usual variables anew
            .with_command(f"activemq console xbean:file:{folder}/activemq.xml")
            .with_exposed_ports(*IN_CONTAINER)
        )
        self._running = False

    def start(self, timeout: float = 60.0) -> None:
        """Start the container; pulling the image is not counted in `timeout`."""
        self._container.start()
        self._running = True
        try:
            self.host = self._container.get_container_host_ip()
            self._ports = Ports(*(int(self._container.get_exposed_port(port)) for port in IN_CONTAINER))
            self._wait_until_ready(timeout)
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not answers_stomp(self.host, self.ports.stomp):
            if time.monotonic() > deadline:
                raise BrokerStartError(f"{IMAGE} was not ready after {timeout} s:\n{tail(self.log())}")
            time.sleep(POLL)

    def stop(self) -> None:
        """Stop and remove the container."""
        if self._running:
            self._running = False
            self._container.stop()
        shutil.rmtree(self._files, ignore_errors=True)  # a second stop finds none
        self._ports = None

    def log(self) -> str:
        """Return what the broker has logged so far."""
        if not self._running:
            return ""
        out, err = self._container.get_logs()
        return (out + err).decode("utf-8", "replace")


def start_activemq(*, mirrored: bool = False) -> RealActiveMQ:
    """Choose how to run ActiveMQ here: a container where a Docker engine answers, else a child process.

    The broker starts with the `with` statement.
    """
    return ActiveMQContainer(mirrored=mirrored) if docker_answers() else ActiveMQ(mirrored=mirrored)


def docker_answers() -> bool:
    """Say whether there is a Docker engine that containers can be started on."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        return subprocess.run([docker, "info"], capture_output=True, timeout=20, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def java() -> str:
    """Find a Java that is new enough: that of JAVA_HOME, else the one on PATH.

    Raises:
        BrokerStartError: none, or older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise BrokerStartError(f"the tests run real brokers and need Java {OLDEST_JAVA} or newer: run `make java`")
    shown = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise BrokerStartError(f"{found} is too old, Java {OLDEST_JAVA} is needed: run `make java`\n{shown}")
    return found


def require_jars() -> None:
    """Check that the broker's jars were fetched.

    Raises:
        BrokerStartError: they were not.
    """
    if not any(JARS.glob("activemq-broker-*.jar")):
        raise BrokerStartError(f"no ActiveMQ in {JARS.relative_to(ROOT)}: run `make brokers` first")


def configuration(mirrored: bool) -> str:
    """Return the broker's configuration; the schema takes no placeholder for a boolean, so it is set in the text."""
    text = (CONFIGURATION / "activemq.xml").read_text("utf-8")
    off = 'useMirroredQueues="false"'
    assert off in text
    return text.replace(off, 'useMirroredQueues="true"') if mirrored else text


def system_properties(ports: Ports, host: str, data: str) -> list[str]:
    """Spell what `activemq.xml` leaves open as options of the JVM."""
    connectors = [f"-Dbroker.{connector}={port}" for connector, port in ports._asdict().items()]
    return [f"-Dbroker.host={host}", f"-Dbroker.data={data}", *connectors]


def free_ports() -> Ports:
    """Find ports that nobody listens on now; all are held until the last is known, so they differ."""
    with ExitStack() as held:
        found = []
        for _ in range(4):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(int(listener.getsockname()[1]))
    return Ports(*found)


def answers_stomp(host: str, port: int) -> bool:
    """Say whether a STOMP broker at the port lets our user in."""
    hello = f"CONNECT\naccept-version:1.2\nhost:{host}\nlogin:{USER}\npasscode:{PASSWORD}\n\n\0"
    try:
        with socket.create_connection((host, port), timeout=5) as client:
            client.sendall(hello.encode())
            return client.recv(4096).lstrip().startswith(b"CONNECTED")
    except OSError:
        return False


def end(process: subprocess.Popen[bytes]) -> None:
    """End one child process: politely, and after 10 s for certain."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(text: str, lines: int = 40) -> str:
    """Return the last lines of a log."""
    return "\n".join(text.splitlines()[-lines:])
