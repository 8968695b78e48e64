"""Real message brokers for tests, benchmarks and demos, started and stopped by the program that needs them.

`start_activemq()` gives ActiveMQ Classic 6.1.8 and `start_artemis()` Artemis 2.44.0: in a container where a Docker
engine answers, else as a child process on what `make brokers` fetched. Either way the same configuration
(`tests/peers/activemq/`, `tests/peers/artemis/`) and the same attributes. A broker that was killed starts again on the
same ports with the same data.

pytest has this folder on its path and offers the session fixtures `activemq` and `artemis`. Another program puts the
folder on its path itself, as in `PYTHONPATH=tests/support python benchmarks/echo.py`, and writes:

    with start_activemq() as broker:
        connection = brokers.connect(broker.stomp_url)
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from broker_certificates import Certificates
from broker_recipes import BUILD, CLASSIC_FILES, LOGGING, Artemis, Classic, Counters, Ports, Recipe
from places import ROOT
from ports import free_ports

AGENT: Final = BUILD / "jolokia" / "agent.jar"

USER: Final = "admin"
PASSWORD: Final = "admin"
OLDEST_JAVA: Final = 17
PORT_ATTEMPTS: Final = 5
BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java that runs for seconds: it starts with half the processor time, and compiles nothing well."""

POLL: Final = 0.05
"""Seconds between two looks at a broker that is starting."""

IN_CONTAINER: Final = Ports(
    openwire=61616,
    stomp=61613,
    amqp=5672,
    ws=61614,
    tls=61612,
    mutual_tls=61611,
    amqps=5671,
    wss=61615,
    mutual_amqps=5670,
    jolokia=8778,
)


class BrokerStartError(RuntimeError):
    """A real broker could not be started; the message says why and what to do."""


class PortTakenError(BrokerStartError):
    """Somebody else took one of the ports between finding it free and binding it."""


class RealBroker(ABC):
    """A broker that runs while the `with` statement lasts.

    Args:
        recipe: the product.
        is_measured: have Java compile well what runs often, which makes its start cost twice as much.
    """

    def __init__(self, recipe: Recipe, *, is_measured: bool = False) -> None:
        self.recipe = recipe
        self._java_options = () if is_measured else BRIEF
        self.host = "127.0.0.1"
        self._ports: Ports | None = None
        self._directory: Path | None = None
        self._certificates: Certificates | None = None

    @abstractmethod
    def start(self, timeout: float = 120.0) -> None:
        """Start the broker and return once a STOMP client can log in; after `kill` on the same ports and data.

        Raises:
            BrokerStartError: it cannot run here, or was not ready after `timeout` seconds; the message holds the end
                of its log.
        """

    @abstractmethod
    def kill(self) -> None:
        """End the broker at once, as a power cut would; then `start` it again, or `stop` to clean up."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the broker and remove what it stored. Idempotent."""

    @abstractmethod
    def log(self) -> str:
        """Return what the broker has logged so far, in all its lives."""

    @property
    def ports(self) -> Ports:
        """The ports in use."""
        if self._ports is None:
            raise BrokerStartError("the broker is not running")
        return self._ports

    @property
    def directory(self) -> Path:
        """Where this broker has its configuration; as a child process its log and data too."""
        if self._directory is None:
            raise BrokerStartError("the broker is not running")
        return self._directory

    @property
    def certificates(self) -> Certificates:
        """What the TLS connectors use, and what their clients need."""
        if self._certificates is None:
            raise BrokerStartError("the broker is not running")
        return self._certificates

    @property
    def stomp_url(self) -> str:
        """For `brokers.connect`."""
        return f"stomp://{USER}:{PASSWORD}@{self.host}:{self.ports.stomp}"

    @property
    def tls_url(self) -> str:
        """STOMP over TLS. The certificate is for `localhost`, so that `127.0.0.1` is a wrong name for it."""
        return f"stomp+ssl://{USER}:{PASSWORD}@localhost:{self.ports.tls}"

    @property
    def mutual_tls_url(self) -> str:
        """STOMP over TLS for clients that show a certificate."""
        return f"stomp+ssl://{USER}:{PASSWORD}@localhost:{self.ports.mutual_tls}"

    @property
    def amqp_url(self) -> str:
        """AMQP 1.0 over TCP."""
        return f"amqp://{USER}:{PASSWORD}@{self.host}:{self.ports.amqp}"

    @property
    def ws_url(self) -> str:
        """AMQP over WebSocket; STOMP would be at the same port."""
        return f"amqp+ws://{USER}:{PASSWORD}@{self.host}:{self.ports.ws}"

    @property
    def amqps_url(self) -> str:
        """AMQP 1.0 over TLS."""
        return f"amqps://{USER}:{PASSWORD}@localhost:{self.ports.amqps}"

    @property
    def wss_url(self) -> str:
        """AMQP over WebSocket over TLS."""
        return f"amqp+wss://{USER}:{PASSWORD}@localhost:{self.ports.wss}"

    @property
    def mutual_amqps_url(self) -> str:
        """AMQP 1.0 over TLS for clients that show a certificate, by which Artemis knows who they are."""
        return f"amqps://localhost:{self.ports.mutual_amqps}"

    @property
    def openwire_url(self) -> str:
        """For the Java clients of either broker, which take user and password separately."""
        return f"tcp://{self.host}:{self.ports.openwire}"

    @property
    def classpath(self) -> str:
        """The class path of a Java program that talks to this broker."""
        require(self.recipe)
        return f"{self.recipe.clients}{os.sep}*"

    def counters(self) -> Counters:
        """Ask the broker what it holds, through Jolokia."""
        return self.recipe.count(self._ask)

    def delete_queue(self, name: str) -> None:
        """Delete a queue with what is in it, as an operator may, though somebody consumes from it."""
        mbean, operation, arguments = self.recipe.deletion(name)
        answer = self._call({"type": "exec", "mbean": mbean, "operation": operation, "arguments": arguments})
        assert answer["status"] == 200, answer

    def close_consumer(self, address: str) -> None:
        """Close one of the consumers of an address of Artemis, as an operator may."""
        mbean = 'org.apache.activemq.artemis:broker="tests"'
        those = json.dumps({"field": "ADDRESS", "operation": "EQUALS", "value": address})
        asked = {"operation": "listConsumers(java.lang.String,int,int)", "arguments": [those, 1, 1]}
        (found,) = json.loads(self._call({"type": "exec", "mbean": mbean, **asked})["value"])["data"]
        which = {
            "operation": "closeConsumerWithID(java.lang.String,java.lang.String)",
            "arguments": [found["session"], found["id"]],
        }
        answer = self._call({"type": "exec", "mbean": mbean, **which})
        assert answer["value"] is True, answer

    def queues_of(self, address: str) -> list[str]:
        """List the queues of an address of Artemis: that of its name, or one for each subscription to a topic."""
        found = self._ask(
            'org.apache.activemq.artemis:broker="tests",component=addresses,subcomponent=queues,*', "Name"
        )
        return sorted(name["queue"] for name, _ in found if name["address"] == address)

    def problems(self, *levels: str) -> list[str]:
        """Return the lines of the log of these levels, `ERROR` unless given."""
        wanted = re.compile(rf"^\S+ ({'|'.join(levels or ('ERROR',))}) ")
        return [line for line in self.log().splitlines() if wanted.match(line)]

    def _ask(self, pattern: str, *attributes: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
        answer = self._call({"type": "read", "mbean": pattern, "attribute": attributes})
        if answer["status"] == 404:  # no such MBean: there are no destinations of the kind
            return []
        assert answer["status"] == 200, answer
        found = answer["value"] if "*" in pattern else {pattern: answer["value"]}
        return [(key_properties(name), values) for name, values in found.items()]

    def _call(self, question: dict[str, Any]) -> dict[str, Any]:
        secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(
            f"http://{self.host}:{self.ports.jolokia}/jolokia/",
            json.dumps(question).encode(),
            {"Authorization": f"Basic {secret}"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

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
            kind: `map`, `stream`, `object`, `message` (no body at all), `null-text`, `text` or `bytes`; with commas
                between, a message of each.
            queue: where to.
            reply_to: JMSReplyTo: the name of a queue, `temporary` for a temporary queue, None for none.
            wait: seconds to wait for a reply on `reply_to`; 0 for not at all.
            content_type: the value of SOAPJMS_contentType.

        Returns:
            The reply: `type`, `body` (as text), `correlationId`, `replyTo`, `messageId` (of the request), `properties`;
            None if none was waited for, or none came in time.

        Raises:
            BrokerStartError: no Java, or the program failed; the message holds what it wrote.
        """
        command = [
            java(),
            *BRIEF,
            "-Xmx128m",
            f"-Dfactory={self.recipe.factory}",
            "-cp",
            self.classpath,
            str(CLASSIC_FILES / "SendSpecial.java"),
        ]
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

    def _prepare(self) -> Path:
        """Make the directory with configuration and certificates, unless it is there from before a kill."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix=f"{self.recipe.title.lower()}-"))
            self._directory.chmod(0o755)  # in a container the broker runs as another user
            self.recipe.write(self._directory)
            self._certificates = Certificates(self._directory / "certificates")
            shutil.copyfile(LOGGING, self._directory / "log4j2.properties")
        return self._directory

    def _remove(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory)
        self._ports = self._certificates = None

    def _options(self, home: str, files: str, agent: str, data: str, ports: Ports, host: str) -> list[str]:
        """Spell what the configuration files leave open as options of the JVM."""
        return [
            *self._java_options,
            "-Xmx1g",
            f"-javaagent:{agent}=host={host},port={ports.jolokia},user={USER},password={PASSWORD},discoveryEnabled=false",
            f"-Dbroker.host={host}",
            f"-Dbroker.data={data}",
            f"-Dbroker.certificates={files}/certificates",
            *(f"-Dbroker.{connector}={port}" for connector, port in ports._asdict().items()),
            f"-Dlog4j2.configurationFile={files}/log4j2.properties",
            *self.recipe.options(home, files, data),
        ]


class ChildBroker(RealBroker):
    """A broker as a child process, on free ports, with its files in a temporary directory."""

    def __init__(self, recipe: Recipe, *, is_measured: bool = False) -> None:
        super().__init__(recipe, is_measured=is_measured)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the broker while it runs."""
        return None if self._process is None else self._process.pid

    def start(self, timeout: float = 120.0) -> None:
        """Start the broker; a new one whose ports were taken by somebody else is started again on others."""
        require(self.recipe)
        is_new = self._ports is None
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                return self._start_once(java(), timeout)
            except PortTakenError:
                if not is_new or attempt == PORT_ATTEMPTS:
                    raise
                self.stop()
            except BaseException:
                if is_new:
                    self.stop()
                raise
        return None

    def _start_once(self, executable: str, timeout: float) -> None:
        directory = self._prepare()
        self._ports = ports = self._ports or broker_ports()
        home, files = str(self.recipe.fetched.parent.parent), str(directory)
        options = self._options(home, files, str(AGENT), f"{directory}/data", ports, self.host)
        with (directory / "broker.log").open("ab") as log:
            logged = log.tell()
            self._process = subprocess.Popen(
                [executable, *options, *self.recipe.command(home, files)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )
        self._wait_until_ready(self._process, logged, timeout)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], logged: int, timeout: float) -> None:
        title, deadline = self.recipe.title, time.monotonic() + timeout
        # Its own log first: on a port that it did not get, somebody else's broker may answer.
        while not (self.recipe.started.search(self._log_from(logged)) and answers_stomp(self.host, self.ports.stomp)):
            log = self._log_from(logged)
            if "Address already in use" in log:  # Artemis goes on without the connector
                process.kill()
                process.wait()
                raise PortTakenError(f"{title} did not get all of its ports:\n{tail(log)}")
            if process.poll() is not None:
                raise BrokerStartError(f"{title} ended with {process.returncode} while starting:\n{tail(log)}")
            if time.monotonic() > deadline:
                raise BrokerStartError(f"{title} was not ready after {timeout} s:\n{tail(log)}")
            time.sleep(POLL)

    def kill(self) -> None:
        """End the broker with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Ask the process to end, kill it if it does not within 10 s, and remove its directory."""
        process, self._process = self._process, None
        if process is not None:
            end(process)
        self._remove()

    def log(self) -> str:
        """Return what the broker has logged so far, in all its lives."""
        return self._log_from(0)

    def _log_from(self, octet: int) -> str:
        if self._directory is None:
            return ""
        with (self._directory / "broker.log").open("rb") as log:
            log.seek(octet)
            return log.read().decode("utf-8", "replace")


class ContainerBroker(RealBroker):
    """A broker in a container, with the same configuration as the child process has."""

    def __init__(self, recipe: Recipe, *, is_measured: bool = False) -> None:
        super().__init__(recipe, is_measured=is_measured)
        self._container: Any = None

    def start(self, timeout: float = 120.0) -> None:
        """Start the container; pulling the image is not counted in `timeout`."""
        if self._container is not None:
            self._container.get_wrapped_container().start()
            return self._wait_until_ready(timeout)
        if not AGENT.exists():
            raise BrokerStartError(f"no {AGENT.relative_to(ROOT)}: run `make brokers` first")
        self._ports = broker_ports()  # published at fixed ports, or a restart would change them
        self._container = self._describe(self._prepare(), self._ports)
        try:
            self._container.start()
            self.host = self._container.get_container_host_ip()
            self._wait_until_ready(timeout)
        except BaseException:
            self.stop()
            raise
        return None

    def _describe(self, directory: Path, ports: Ports) -> Any:
        # Imported here because the `test` extra is only needed by who starts containers.
        from testcontainers.core.container import DockerContainer

        files, agent, home = "/soapjms", "/soapjms-agent.jar", self.recipe.home
        options = self._options(home, files, agent, "/tmp/soapjms-data", IN_CONTAINER, "0.0.0.0")
        container = (
            DockerContainer(self.recipe.image, entrypoint="java")
            .with_volume_mapping(str(directory), files, "ro")
            .with_volume_mapping(str(AGENT), agent, "ro")
            .with_command([*options, *self.recipe.command(home, files)])
        )
        for inside, outside in zip(IN_CONTAINER, ports, strict=True):
            container = container.with_bind_ports(inside, outside)
        return container

    def _wait_until_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not answers_stomp(self.host, self.ports.stomp):
            if time.monotonic() > deadline:
                raise BrokerStartError(f"{self.recipe.image} was not ready after {timeout} s:\n{tail(self.log())}")
            time.sleep(POLL)

    def kill(self) -> None:
        """End what runs in the container with SIGKILL; its files stay."""
        self._container.get_wrapped_container().kill("SIGKILL")

    def stop(self) -> None:
        """Stop and remove the container."""
        container, self._container = self._container, None
        if container is not None:
            container.stop()
        self._remove()

    def log(self) -> str:
        """Return what the broker has logged so far, in all its lives."""
        if self._container is None:
            return ""
        out, err = self._container.get_logs()
        return (out + err).decode("utf-8", "replace")


class ActiveMQ(ChildBroker):
    """ActiveMQ Classic as a child process, whatever else there is."""

    def __init__(self, *, mirrored: bool = False) -> None:
        super().__init__(Classic(mirrored=mirrored))


def start_activemq(
    *,
    mirrored: bool = False,
    memory: str = "128mb",
    store: str = "1gb",
    native_amqp: bool = False,
    is_measured: bool = False,
) -> RealBroker:
    """Choose how to run ActiveMQ Classic here: a container where a Docker engine answers, else a child process.

    The broker starts with the `with` statement.

    Args:
        mirrored: copy what is sent to a queue to the topic `VirtualTopic.Mirror.` and the queue's name, for a tap.
        memory, store: what all messages together may take of either.
        native_amqp: have the AMQP connector as it is by default, which keeps messages whole.
        is_measured: have Java compile well what runs often, for a benchmark.
    """
    recipe = Classic(mirrored=mirrored, memory=memory, store=store, native_amqp=native_amqp)
    return _choose(recipe, is_measured)


def start_artemis(*, setting: str = "", is_measured: bool = False) -> RealBroker:
    """Choose how to run Artemis, likewise; `setting` is XML for its core, such as diverts."""
    return _choose(Artemis(setting=setting), is_measured)


STARTERS: Final = {"activemq": start_activemq, "artemis": start_artemis}
"""What starts each real broker, by the name that tests and commands have for it."""


def _choose(recipe: Recipe, is_measured: bool) -> RealBroker:
    return (ContainerBroker if docker_answers() else ChildBroker)(recipe, is_measured=is_measured)


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


def require(recipe: Recipe) -> None:
    """Check that what a broker consists of was fetched.

    Raises:
        BrokerStartError: it was not.
    """
    for file in (recipe.fetched, AGENT):
        if not file.exists():
            raise BrokerStartError(f"no {file.relative_to(ROOT)}: run `make brokers` first")


def broker_ports() -> Ports:
    """Find ports for a broker that nobody listens on now."""
    return Ports(*free_ports(len(Ports._fields)))


def key_properties(name: str) -> dict[str, str]:
    """Read the name of an MBean: `domain:key=value,key="value, quoted"`."""
    found = re.findall(r'([^=,:]+)=("(?:[^"\\]|\\.)*"|[^,]*)', name.partition(":")[2])
    return {key: re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' else value for key, value in found}


def answers_stomp(host: str, port: int) -> bool:
    """Say whether a STOMP broker at the port lets our user in; leave as it wants to be left."""
    hello = f"CONNECT\naccept-version:1.2\nhost:{host}\nlogin:{USER}\npasscode:{PASSWORD}\n\n\0"
    try:
        with socket.create_connection((host, port), timeout=5) as client:
            client.sendall(hello.encode())
            is_in = client.recv(4096).lstrip().startswith(b"CONNECTED")
            client.sendall(b"DISCONNECT\nreceipt:r\n\n\0")
            while client.recv(4096):  # the receipt, then the end
                pass
            return is_in
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
