"""What may be in the way of a call, looked for in order, the cheap things first: one table of checks.

A check returns what it found; what is wrong comes with the command that mends it and the page of the docs that says
more. Whatever rests on something that failed is not tried.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from secrets import token_hex
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from brokers.connection import SCHEMES, Connection, connect
from brokers.errors import BrokerError, LoginRefusedError, TlsError
from brokers.failover import read_failover
from brokers.message import DeliveryMode, Destination, Message, MessageType
from brokers.naming import Names
from brokers.naming.allowed import own_endpoint
from soapjms.addressing import destination_of
from soapjms.health import PING_PREFIX
from soapjms.opening import broker_url_of
from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri import visible
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.addresses import read_uri

OLDEST, NEWEST = (3, 11), (3, 13)
OLDEST_JAVA: Final = 17
DEFAULT_TIMEOUT: Final = 5.0
SKEW_NOTED, SKEW_FAILED = 1.0, 5.0
"""Seconds that the clocks of broker and machine may be apart."""

ROOM: Final = 256 << 20
"""Octets that a disk has free at least, where captures are to be written."""

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "stomp": ("stomp",),
    "amqp": ("proton", "websockets"),
    "cli": ("click", "rich"),
    "replay": ("pyarrow", "jinja2"),
    "spark": ("pyspark", "pandas"),
    "zeep": ("zeep",),
    "prometheus": ("prometheus_client",),
    "opentelemetry": ("opentelemetry",),
}
"""The extras, and the modules that each brings."""

PORTS: Final[Mapping[str, int]] = {"stomp": 61613, "stomp+ssl": 61612, "amqp": 5672, "amqps": 5671}
JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
NOTHING_FITS: Final = "soapjms_doctor = 'never'"
"""A selector that no message fits."""


class Outcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: its name.
        outcome: how it ended.
        text: what was seen.
        page: the page of the docs that says more; None where all is well.
        command: what mends it; None likewise.
    """

    check: str
    outcome: Outcome
    text: str
    page: str | None = None
    command: str | None = None

    @property
    def hint(self) -> str | None:
        """Where to read on and what to type."""
        return None if self.command is None else f"see {self.page}; type: {self.command}"


class Seen(NamedTuple):
    """What a check saw: an outcome with its text, and what mends it."""

    outcome: Outcome
    text: str
    command: str | None = None
    page: str | None = None


def _ok(text: str) -> Seen:
    return Seen(Outcome.OK, text)


def _skipped(text: str) -> Seen:
    return Seen(Outcome.SKIPPED, text)


@dataclass(slots=True)
class Patient:
    """What is looked at, and what the checks found out on their way. Usable in a `with` statement, which disconnects.

    Attributes:
        url: of the broker; None where `names` and `place` lead to it, or nothing is known of it.
        place: URI or port of the service, None if none is asked about.
        names: JNDI names.
        properties: binding properties that win over those of the place.
        folder: where captures are to be written.
        timeout: seconds that anything at the broker may take.
    """

    url: str | None = None
    place: str | Port | None = None
    names: Names | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path("captures")
    timeout: float = DEFAULT_TIMEOUT
    destination: Destination | None = None
    connection: Connection | None = None
    echo: tuple[float, float, Message] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.connection is not None:
            self.connection.close(self.timeout)


def examine(patient: Patient) -> Iterator[Finding]:
    """Make all checks, in order, and yield what each found."""
    failed: set[str] = set()
    for check in CHECKS:
        missing = [each for each in check.needs if each in failed]
        seen = _skipped(f"needs: {', '.join(missing)}") if missing else check.run(patient)
        if seen.outcome is Outcome.FAILED or missing:
            failed.add(check.name)
        page = (seen.page or check.page) if seen.command else None
        yield Finding(check.name, seen.outcome, visible(seen.text), page, seen.command)


# This machine


def _python(patient: Patient) -> Seen:
    version, found = sys.version_info[:2], sys.version.partition(" ")[0]
    if OLDEST <= version <= NEWEST:
        return _ok(f"{found}, {sys.executable}")
    wanted = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    return Seen(Outcome.FAILED, f"{found}; it has to be {wanted}", f"python{NEWEST[0]}.{NEWEST[1]} -m venv .venv")


def _extras(patient: Patient) -> Seen:
    missing = [name for name, modules in EXTRAS.items() if not all(map(find_spec, modules))]
    needed = SCHEMES.get((patient.url or "").partition(":")[0].lower(), "").rpartition(".")[2]
    if needed in missing:
        return Seen(
            Outcome.FAILED, f"the URL of the broker needs the extra {needed}", f"pip install 'soapjms[{needed}]'"
        )
    if missing:
        text = f"not installed, and not needed so far: {', '.join(missing)}"
        return Seen(Outcome.NOTE, text, f"pip install 'soapjms[{','.join(missing)}]'")
    return _ok(", ".join(EXTRAS))


def _java(patient: Patient) -> Seen:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    install = "apt-get install openjdk-17-jre-headless"
    if java is None:
        where = f"JAVA_HOME is {home}, which holds no bin/java" if home else "there is no java on the PATH"
        return Seen(Outcome.NOTE, f"{where}: `soapjms replay` runs with --local only", install)
    try:
        command = [java, "-version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr  # noqa: S603  # theirs
    except (OSError, subprocess.TimeoutExpired) as error:
        return Seen(Outcome.NOTE, f"{java} does not run: {error}", install)
    version = JAVA_VERSION.search(said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        shown = said.partition("\n")[0]
        return Seen(Outcome.NOTE, f"{java} is too old for Spark, which needs {OLDEST_JAVA}: {shown}", install)
    return _ok(f"{version[1]}, {java}")


def _folder(patient: Patient) -> Seen:
    folder = patient.folder
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    quoted = shlex.quote(str(folder))
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"soapjms")
    except OSError as error:
        return Seen(
            Outcome.FAILED,
            f"{there} cannot be written to: {error.strerror}",
            f"mkdir -p {quoted} && chmod u+rwx {quoted}",
        )
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free >> 20} MiB free"
    return _ok(text) if free >= ROOM else Seen(Outcome.NOTE, text, f"df -h {shlex.quote(str(there))}")


# The address and the broker


def _address(patient: Patient) -> Seen:
    if patient.place is None:
        return _skipped("give --uri or --wsdl to have it looked at")
    try:
        uri, effective = read_uri(patient.place, patient.properties)
        patient.destination = destination_of(uri, patient.names or Names(), effective)
        if patient.url is None and patient.names is not None:
            patient.url = broker_url_of(effective, patient.names)
    except (UsageError, BrokerError) as error:
        return Seen(Outcome.FAILED, str(error), f"soapjms explain {shlex.quote(_shown(patient.place))}")
    return _ok(f"{uri.redacted} leads to {patient.destination}")


def _shown(place: str | Port) -> str:
    return place if isinstance(place, str) else "FILE.wsdl"


SET_URL: Final = "export SOAPJMS_CONNECTION=stomp://USER:PASSWORD@HOST:61613"
START: Final = "docker compose up --wait activemq"
HERE: Final = ("localhost", "127.0.0.1", "::1")


def _port(patient: Patient) -> Seen:
    if patient.url is None:
        return Seen(Outcome.FAILED, "no URL of a broker is given", SET_URL)
    try:
        endpoints = [own_endpoint(each) for each in read_failover(patient.url, True).urls]
    except ValueError as error:
        return Seen(Outcome.FAILED, str(error), SET_URL)
    answers = []
    for scheme, host, port in endpoints:
        if scheme == "embedded":
            return _ok("a broker in this process")
        try:
            number = port or PORTS[scheme]
            with socket.create_connection((host, number), patient.timeout):
                return _ok(f"{host}:{number} is open")
        except OSError as error:
            answers.append(f"{host}:{number}: {error.strerror or error}")
    is_here = all(host in HERE for _, host, _ in endpoints)
    return Seen(Outcome.FAILED, "; ".join(answers), START if is_here else SET_URL)


def _login(patient: Patient) -> Seen:
    assert patient.url is not None
    try:
        patient.connection = connect(patient.url, timeout=patient.timeout)
    except LoginRefusedError as error:
        return Seen(Outcome.FAILED, str(error), SET_URL, "docs/brokers.md#who-asks")
    except TlsError as error:
        return Seen(Outcome.FAILED, str(error), "export BROKERS_CA_FILE=/etc/ssl/broker-ca.pem", "docs/brokers.md#tls")
    except (BrokerError, ValueError) as error:
        return Seen(Outcome.FAILED, str(error), SET_URL)
    return _ok(patient.connection.capabilities.broker)


def _destination(patient: Patient) -> Seen:
    connection, destination = patient.connection, patient.destination
    assert connection is not None
    if destination is None:
        return _skipped("give --uri or --wsdl to have it tried")
    if not connection.capabilities.selectors:
        return _skipped(f"{destination} cannot be tried without taking its messages: the broker has no selectors")
    try:
        connection.consume(destination, lambda delivery: delivery.release(), selector=NOTHING_FITS).close()
    except BrokerError as error:
        return Seen(Outcome.FAILED, str(error), SET_URL)
    return _ok(f"{destination} may be consumed from; no message was taken")


def _round_trip(patient: Patient) -> Seen:
    assert patient.connection is not None
    try:
        patient.connection.wait_connected(patient.timeout)  # some brokers end it where they refuse something
        patient.echo = _echo(patient.connection, patient.timeout)
    except BrokerError as error:
        return Seen(Outcome.FAILED, str(error), SET_URL, "docs/brokers.md")
    except (FutureTimeoutError, Empty):
        text = f"a message to a temporary queue did not come back within {patient.timeout:g} s"
        return Seen(Outcome.FAILED, text, "soapjms doctor --debug --timeout 30")
    sent, back, _ = patient.echo
    return _ok(f"{(back - sent) * 1000:.1f} ms to a temporary queue and back")


def _echo(connection: Connection, timeout: float) -> tuple[float, float, Message]:
    """Send a message to ourselves, and return when it was sent, when it was back, and as what.

    Raises:
        BrokerError, TimeoutError, Empty: it could not be sent, or was not back in time.
    """
    arrived: SimpleQueue[Message] = SimpleQueue()
    destination = connection.temporary()
    message = Message(
        message_type=MessageType.BYTES,
        body=b"",
        destination=destination,
        correlation_id=PING_PREFIX + token_hex(8),
        delivery_mode=DeliveryMode.NON_PERSISTENT,
    )
    with connection.consume(destination, lambda delivery: arrived.put(delivery.message), auto_accept=True, inline=True):
        sent = time.time()
        connection.send(message).result(timeout)
        found = arrived.get(timeout=timeout)
        return sent, time.time(), found


def _clock(patient: Patient) -> Seen:
    assert patient.echo is not None
    sent, back, message = patient.echo
    if not message.timestamp or (patient.url or "").startswith("amqp"):
        return _skipped("the broker does not tell its time")
    skew = message.timestamp / 1000 - (sent + back) / 2
    text = f"the broker's clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    beyond = abs(skew) - (back - sent) / 2
    if beyond <= SKEW_NOTED:
        return _ok(text)
    outcome = Outcome.FAILED if beyond > SKEW_FAILED else Outcome.NOTE
    return Seen(outcome, f"{text}: requests with a time to live may expire early or late", "timedatectl set-ntp true")


class Check(NamedTuple):
    """One row: its name, how it is made, the page that says more, and the checks that it rests on."""

    name: str
    run: Callable[[Patient], Seen]
    page: str
    needs: tuple[str, ...] = ()


CHECKS: Final = (
    Check("Python", _python, "README.md#install"),
    Check("extras", _extras, "README.md#install"),
    Check("Java", _java, "README.md#capture-and-replay"),
    Check("capture folder", _folder, "docs/cli.md#soapjms-capture"),
    Check("address", _address, "README.md#addresses"),
    Check("broker port", _port, "docs/brokers.md", ("extras",)),
    Check("login", _login, "docs/brokers.md", ("broker port",)),
    Check("destination", _destination, "docs/brokers.md#what-differs-over-stomp", ("login", "address")),
    Check("round trip", _round_trip, "docs/connections.md#a-silent-network", ("login",)),
    Check("clock", _clock, "docs/serving.md#what-is-not-run", ("round trip",)),
)
