"""What ActiveMQ Classic and Artemis each need to run: files, options, a main class, and where they keep their counters.

A row for a product; `real_brokers` runs them, as a child process or in a container.
"""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from places import ROOT

BUILD: Final = ROOT / "build"
CLASSIC_FILES: Final = ROOT / "tests/peers/activemq"
CLASSIC_JARS: Final = BUILD / "activemq" / "lib"
ARTEMIS_FILES: Final = ROOT / "tests/peers/artemis"
LOGGING: Final = CLASSIC_FILES / "log4j2.properties"
TEMPORARY_ADDRESS: Final = re.compile(r"temp-(queue|topic)\.")
"""How `brokers.stomp` calls what it makes on Artemis."""

INTERNAL: Final = re.compile(r"ActiveMQ\.Advisory\.|activemq\.(management|notifications)|\$sys\.")
"""Destinations of the broker's own."""


class Ports(NamedTuple):
    """Where the connectors of one broker listen."""

    openwire: int
    stomp: int
    amqp: int
    ws: int
    tls: int
    mutual_tls: int
    amqps: int
    wss: int
    mutual_amqps: int
    jolokia: int


@dataclass(frozen=True)
class Counters:
    """What a broker says it holds; empty where it holds nothing. Its own advisory and management queues are left out.

    Attributes:
        messages: how many wait in each queue and durable subscription that has any, dead letters among them.
        consumers: how many each destination has that has any.
        temporaries: the temporary destinations there are.
        connections: how many clients are connected.
    """

    messages: dict[str, int]
    consumers: dict[str, int]
    temporaries: list[str]
    connections: int


class Ask(Protocol):
    """Reads attributes of all MBeans whose name fits a pattern: properties of the name, and attributes, for each."""

    def __call__(self, pattern: str, *attributes: str) -> list[tuple[dict[str, str], dict[str, Any]]]: ...


class Recipe(ABC):
    """One product.

    Attributes:
        title: what people call it.
        image: the container image with the same version.
        home: where the image has the product.
        started: what its log says once it takes connections.
        factory: the connection factory of its Java client.
        clients: where the jars of that are.
    """

    title: ClassVar[str]
    image: ClassVar[str]
    home: ClassVar[str]
    started: ClassVar[re.Pattern[str]]
    factory: ClassVar[str]
    clients: ClassVar[Path]

    @property
    @abstractmethod
    def fetched(self) -> Path:
        """A file that `make brokers` brings."""

    @abstractmethod
    def write(self, directory: Path) -> None:
        """Put the configuration into a directory of the broker's own."""

    @abstractmethod
    def command(self, home: str, files: str) -> list[str]:
        """Return class path, main class and arguments, for a broker whose files are where `write` put them."""

    @abstractmethod
    def options(self, home: str, files: str, data: str) -> list[str]:
        """Return the options of the JVM that only this product needs; it may write where `data` is."""

    @abstractmethod
    def count(self, ask: Ask) -> Counters:
        """Read the broker's counters."""

    @abstractmethod
    def deletion(self, queue: str) -> tuple[str, str, list[object]]:
        """Say what deletes a queue with all that is in it, its consumers too: MBean, operation, arguments."""


class Classic(Recipe):
    """ActiveMQ Classic 6.1.8 from its jars.

    Args:
        mirrored: copy what is sent to a queue to the topic `VirtualTopic.Mirror.` and the queue's name, for a tap.
        memory: what all messages together may take of it.
        store: what they may take on the disk.
        native_amqp: have the AMQP connector as it is by default, which keeps messages whole.
        changes: what else to write in `activemq.xml`, and in place of which text.
    """

    title = "ActiveMQ"
    image = "apache/activemq-classic:6.1.8"
    home = "/opt/apache-activemq"
    started = re.compile(r"BrokerService Apache ActiveMQ .* started$", re.MULTILINE)
    factory = "org.apache.activemq.ActiveMQConnectionFactory"
    clients = CLASSIC_JARS

    def __init__(
        self,
        *,
        mirrored: bool = False,
        memory: str = "128mb",
        store: str = "1gb",
        native_amqp: bool = False,
        changes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        mapping = "?transport.transformer=jms&amp;transport.tcpNoDelay=true"
        mapped = "amqp://${broker.host}:${broker.amqp}"
        self.settings = {
            mapped + mapping: mapped + mapping * (not native_amqp),
            'useMirroredQueues="false"': f'useMirroredQueues="{str(mirrored).lower()}"',
            '<memoryUsage limit="128mb"/>': f'<memoryUsage limit="{memory}"/>',
            '<storeUsage limit="1gb"/>': f'<storeUsage limit="{store}"/>',
            **changes,
        }

    @property
    def fetched(self) -> Path:
        """One of its jars."""
        return CLASSIC_JARS / "activemq-broker-6.1.8.jar"

    def write(self, directory: Path) -> None:
        """Write `activemq.xml`; the schema takes no placeholder for a boolean, so that is set in the text."""
        text = (CLASSIC_FILES / "activemq.xml").read_text("utf-8")
        for usual, wanted in self.settings.items():
            assert usual in text
            text = text.replace(usual, wanted)
        (directory / "activemq.xml").write_text(text, "utf-8")

    def command(self, home: str, files: str) -> list[str]:
        """Start from the Spring file."""
        jars = f"{home}/lib/*{os.pathsep}{home}/lib/optional/*"
        return ["-cp", jars, "org.apache.activemq.console.Main", "start", f"xbean:file:{files}/activemq.xml"]

    def options(self, home: str, files: str, data: str) -> list[str]:
        """Keep it out of the product's folder."""
        return [f"-Dactivemq.home={files}"]

    def count(self, ask: Ask) -> Counters:
        """Read the MBeans of its destinations."""
        found = ask(
            "org.apache.activemq:type=Broker,brokerName=tests,destinationType=*,destinationName=*",
            "QueueSize",
            "ConsumerCount",
        )
        ours = [
            (name["destinationName"], name["destinationType"], values)
            for name, values in found
            if not INTERNAL.match(name["destinationName"])
        ]
        ((_, broker),) = ask("org.apache.activemq:type=Broker,brokerName=tests", "CurrentConnectionsCount")
        return Counters(
            messages={name: values["QueueSize"] for name, _, values in ours if values["QueueSize"]},
            consumers={name: values["ConsumerCount"] for name, _, values in ours if values["ConsumerCount"]},
            temporaries=sorted(name for name, kind, _ in ours if kind.startswith("Temp")),
            connections=broker["CurrentConnectionsCount"],
        )

    def deletion(self, queue: str) -> tuple[str, str, list[object]]:
        """Its consumers stay, and get what comes to the next queue of that name."""
        return "org.apache.activemq:type=Broker,brokerName=tests", "removeQueue(java.lang.String)", [queue]


class Artemis(Recipe):
    """Apache Artemis 2.44.0 from its archive.

    Args:
        setting: XML to put before the addresses, such as diverts for a tap.
    """

    title = "Artemis"
    image = "apache/activemq-artemis:2.44.0"
    home = "/opt/activemq-artemis"
    started = re.compile(r"AMQ221001: Apache ActiveMQ Artemis Message Broker version")
    factory = "org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory"
    clients = BUILD / "artemis" / "client"

    def __init__(self, *, setting: str = "") -> None:
        self.setting = setting

    @property
    def fetched(self) -> Path:
        """The jar that starts it."""
        return BUILD / "artemis" / "apache-artemis-2.44.0" / "lib" / "artemis-boot.jar"

    def write(self, directory: Path) -> None:
        """Write what `artemis create` would, without what tests have no use for."""
        etc = directory / "etc"
        etc.mkdir()
        for source in ARTEMIS_FILES.iterdir():
            if source.name != "pom.xml":
                shutil.copyfile(source, etc / source.name)
        text = (etc / "broker.xml").read_text("utf-8")
        (etc / "broker.xml").write_text(text.replace("<addresses>", f"{self.setting}\n    <addresses>", 1), "utf-8")

    def command(self, home: str, files: str) -> list[str]:
        """Run in the foreground."""
        return ["-cp", f"{home}/lib/artemis-boot.jar", "org.apache.activemq.artemis.boot.Artemis", "run"]

    def options(self, home: str, files: str, data: str) -> list[str]:
        """Say where it is and where its configuration is, as its start script does."""
        return [
            f"-Dartemis.home={home}",
            f"-Dartemis.instance={Path(data).parent}",
            f"-Dartemis.instance.etc={files}/etc",
            f"-Djava.security.auth.login.config={files}/etc/login.config",
            f"-Djava.library.path={home}/bin/lib/linux-{os.uname().machine}",
            "-Dlog4j2.disableJmx=true",
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
        ]

    def count(self, ask: Ask) -> Counters:
        """Read the MBeans of its queues and addresses; a subscription to a topic is a queue there, named at random."""
        here = 'org.apache.activemq.artemis:broker="tests",component=addresses'
        queues = [
            (name, values)
            for name, values in ask(f"{here},subcomponent=queues,*", "MessageCount", "ConsumerCount", "Temporary")
            if not INTERNAL.match(name["address"])
        ]
        addresses = [name["address"] for name, _ in ask(f"{here},address=*", "Address")]
        consumers: dict[str, int] = {}
        for name, values in queues:
            if values["ConsumerCount"]:
                consumers[name["address"]] = consumers.get(name["address"], 0) + values["ConsumerCount"]
        ((_, broker),) = ask('org.apache.activemq.artemis:broker="tests"', "ConnectionCount")
        return Counters(
            messages={name["queue"]: values["MessageCount"] for name, values in queues if values["MessageCount"]},
            consumers=consumers,
            temporaries=sorted(
                {name["address"] for name, values in queues if values["Temporary"]}
                | {address for address in addresses if TEMPORARY_ADDRESS.match(address)}
            ),
            connections=broker["ConnectionCount"],
        )

    def deletion(self, queue: str) -> tuple[str, str, list[object]]:
        """Its consumers end."""
        name = 'org.apache.activemq.artemis:broker="tests"'
        return name, "destroyQueue(java.lang.String,boolean)", [queue, True]
