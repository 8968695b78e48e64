"""The checks of this machine, of the address and of the broker, and a table of the schemes of broker URLs.

For the machine: Python, installed extras, Java, the folder for captures. For address and broker: port, login,
destination, a round trip, clocks. The order of the checks and their dependencies are in `__init__.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from brokers.adapter.dial import connected
from brokers.adapter.failover import read_failover
from brokers.connection import Connection
from brokers.errors import BrokerError, LoginRefusedError, NoDestinationError, TlsError
from brokers.message import Destination, DestinationKind, Message
from brokers.naming import NameNotFoundError, Names, NamingError
from brokers.naming.allow_list import BrokerEndpoint, own_endpoint
from brokers.network_schemes import NETWORK_SCHEMES
from brokers.schemes import connect
from brokers.tls import INVALID_CERTIFICATE
from brokers.url import TLS_OPTIONS
from soapjms.destinations import broker_url_of, destination_of, reply_destination_of
from soapjms.doctor.model import CheckOutcome, CheckResult, Patient, ok, skipped
from soapjms.ping import MAX_SKEW_SECONDS, Skew, new_ping_id, ping_message
from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri import parse
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.model import read_uri


class Way(NamedTuple):
    """A scheme: its default port, and the extra that it needs."""

    port: int
    extra: str | None


IN_PROCESS: Final = "embedded"
NEEDED: Final[Mapping[str, str | None]] = {"amqp": "amqp", "amqp+ws": "amqp", "smqp": None, "stomp": "stomp"}
"""The extra that each family of schemes needs, or None."""

WAYS: Final[Mapping[str, Way]] = {
    IN_PROCESS: Way(0, None),
    **{name: Way(each.port, NEEDED[each.family]) for name, each in NETWORK_SCHEMES.items()},
}
"""Ways to a broker, by scheme."""


RABBITMQ: Final = "rabbitmq"
"""The dialect of RabbitMQ 4."""

CREATE_QUEUE: Final[Mapping[str, str]] = {
    "artemis": "artemis queue create --name {name} --address {name} --anycast --durable --auto-create-address",
    RABBITMQ: "rabbitmqadmin declare queue name={name} queue_type=quorum durable=true",
    "qpid": "curl --user USER --request PUT --data '{{}}' http://HOST:8080/api/latest/queue/default/default/{name}",
}
"""Commands that create a queue, by the dialects of brokers that do not create queues themselves, or may not."""


def endpoints_of(url: str) -> list[BrokerEndpoint]:
    """Return the endpoints of the brokers of a URL.

    Raises:
        ValueError: `url` is not the URL of a broker, or lists something that is not.
    """
    endpoints = [own_endpoint(each) for each in read_failover(url, True).urls]
    for each in endpoints:
        if each.scheme not in WAYS:
            raise ValueError(f"a list of brokers must have URLs of brokers, got one with the scheme {each.scheme}:")
    return endpoints


def schemes_of(patient: Patient) -> list[str]:
    """Return the schemes of the URL; an invalid URL has none, and is reported by `check_port`."""
    try:
        return [each.scheme for each in endpoints_of(patient.url or "")]
    except ValueError:
        return []


SKEW_FAILURE_SECONDS: Final = 5.0
"""Clock skew between broker and machine, in seconds, above which the check fails."""

CLOCK_TOLERANCE_SECONDS: Final = 60.0
"""Clock skew, in seconds, up to which our messages do not expire on their way."""

NOTHING_FITS: Final = "soapjms_doctor = 'never'"
"""A selector that matches no message."""


def check_address(patient: Patient) -> CheckResult:
    """Check that the URI or WSDL leads to a destination, and without a URL JNDI names to the broker."""
    if patient.place is None:
        return skipped("give --uri or --wsdl to check it")
    try:
        uri, effective = read_uri(patient.place, patient.properties)
        patient.destination = destination_of(uri, patient.names or Names(), effective)
        patient.replies = reply_destination_of(uri, effective, patient.names or Names())
        if patient.url is None and patient.names is not None:
            patient.url = broker_url_of(effective, patient.names)
    except (UsageError, BrokerError) as error:
        return CheckResult(CheckOutcome.FAILED, str(error), _mended(error, patient.place))
    return ok(f"{uri.redacted} leads to {patient.destination}")


def _mended(error: UsageError | BrokerError, place: str | Port) -> str:
    """Return the command that repairs an address: for an unknown name one with a file of names."""
    where = "--wsdl FILE.wsdl" if isinstance(place, Port) else f"--uri {shlex.quote(parse(place).redacted)}"
    if isinstance(error, NameNotFoundError | NamingError):
        return f"soapjms doctor {where} --names FILE.toml"
    return "soapjms wsdl lint FILE.wsdl" if isinstance(place, Port) else "soapjms doctor --uri jms:queue:NAME"


DEFAULT_SCHEME: Final = "stomp"
ADVISED_URL: Final = re.compile(r"; write ([a-z+]+://)(?:USER:PASSWORD@)?([\w.:\[\]-]+)")
"""Matches the URL that the error of a wrong port, or of a missing login, advises."""

START: Final = "docker compose up --wait activemq"
LOOK_AGAIN: Final = "soapjms doctor --uri URI"
HERE: Final = ("localhost", "127.0.0.1", "::1")


def set_url(patient: Patient, error: Exception | None = None) -> str:
    """Return the command that sets the URL of a broker: that which an error advises, else one of the given scheme."""
    if (advised := ADVISED_URL.search(str(error or ""))) is not None:
        return f"export SOAPJMS_CONNECTION={advised[1]}USER:PASSWORD@{advised[2]}"
    way = next((each for each in schemes_of(patient) if each != IN_PROCESS), DEFAULT_SCHEME)
    return f"export SOAPJMS_CONNECTION={way}://USER:PASSWORD@HOST:{WAYS[way].port}"


TLS_VALUES: Final = {
    "caFile": "/etc/ssl/broker-ca.pem",
    "certFile": "/etc/ssl/client.pem",
    "keyFile": "/etc/ssl/client.key",
    "keyPasswordFile": "/run/secrets/key-password",
    "serverName": "NAME",
}
"""Examples of the values of parameters for TLS."""

TLS_PARAMETER: Final = re.compile(rf"\b({'|'.join(TLS_VALUES)})\b")
"""Matches the parameter that is to be changed: the first one in the text of a `TlsError`."""


def set_tls(patient: Patient, error: TlsError) -> str:
    """Return the command that sets what an error of TLS is about.

    That is a variable of the environment, or the URL if the parameter is there already or has no variable. For a
    certificate that only the broker can replace, it is the command that shows it.
    """
    if INVALID_CERTIFICATE in str(error):
        scheme, host, port = endpoints_of(patient.url or "")[0]
        place = shlex.quote(f"{host}:{port or WAYS[scheme].port}")
        return f"openssl s_client -connect {place} </dev/null | openssl x509 -noout -subject -dates"
    found = TLS_PARAMETER.search(str(error))
    if found is None:
        return set_url(patient, error)
    value, variable = TLS_VALUES[found[1]], TLS_OPTIONS[found[1]][2]
    if variable is not None and f"{found[1]}=" not in (patient.url or ""):
        return f"export {variable}={value}"
    name, _, url = set_url(patient, error).partition("=")
    return f"{name}={shlex.quote(f'{url}?{found[1]}={value}')}"


def check_port(patient: Patient) -> CheckResult:
    """Check that the port of one of the brokers is open."""
    if patient.url is None:
        return CheckResult(CheckOutcome.FAILED, "the URL of a broker is missing", set_url(patient))
    try:
        endpoints = endpoints_of(patient.url)
    except ValueError as error:
        return CheckResult(CheckOutcome.FAILED, str(error), set_url(patient))
    answers = []
    for scheme, host, port in endpoints:
        if scheme == IN_PROCESS:
            return ok("a broker in this process")
        number = port or WAYS[scheme].port
        try:
            with connected(host, number, time.monotonic() + patient.timeout, lambda plain, until: plain):
                return ok(f"{host}:{number} is open")
        except OSError as error:
            answers.append(f"{host}:{number}: {error.strerror or error}")
    is_here = all(host in HERE for _, host, _ in endpoints)
    return CheckResult(CheckOutcome.FAILED, "; ".join(answers), START if is_here else set_url(patient))


def check_login(patient: Patient) -> CheckResult:
    """Check that the broker accepts the login."""
    assert patient.url is not None
    try:
        patient.connection = connect(patient.url, timeout=patient.timeout)
    except LoginRefusedError as error:
        return CheckResult(CheckOutcome.FAILED, str(error), set_url(patient), "docs/brokers.md#login")
    except TlsError as error:
        return CheckResult(CheckOutcome.FAILED, str(error), set_tls(patient, error), "docs/brokers.md#tls")
    except (BrokerError, ValueError) as error:
        return CheckResult(CheckOutcome.FAILED, str(error), set_url(patient, error))
    return ok(patient.connection.capabilities.broker)


def check_destination(patient: Patient) -> CheckResult:
    """Check that the user may consume from the destination, with a selector so that no message is taken."""
    connection, destination = patient.connection, patient.destination
    assert connection is not None
    if destination is None:
        return skipped("give --uri or --wsdl to check it")
    if not connection.capabilities.selectors:
        return _check_untouched(patient, connection, destination)
    try:
        connection.consume(destination, lambda delivery: delivery.release(), selector=NOTHING_FITS).close()
    except NoDestinationError as error:
        return _missing(connection, destination, error)
    except BrokerError as error:
        return CheckResult(CheckOutcome.FAILED, str(error), set_url(patient))
    return ok(f"{destination} may be consumed from; no message was taken")


def _missing(connection: Connection, destination: Destination, error: NoDestinationError) -> CheckResult:
    make = CREATE_QUEUE.get(connection.capabilities.dialect)
    if make is None or destination.kind.is_topic:
        text = f"{error}; create it with the broker's own tools, and check again"
        return CheckResult(CheckOutcome.FAILED, text, LOOK_AGAIN)
    page = "docs/amqp.md#rabbitmq-4" if connection.capabilities.dialect == RABBITMQ else None
    return CheckResult(CheckOutcome.FAILED, str(error), make.format(name=shlex.quote(destination.name or "")), page)


def _check_untouched(patient: Patient, connection: Connection, destination: Destination) -> CheckResult:
    """Check that a queue exists, if the broker tells: a consumer without a selector would take its messages."""
    try:
        told = consumers_told(connection, destination)
    except NoDestinationError as error:
        return _missing(connection, destination, error)
    except BrokerError as error:
        return CheckResult(CheckOutcome.FAILED, str(error), set_url(patient))
    if told is None:
        return skipped(f"{destination} cannot be checked without taking its messages: the broker has no selectors")
    return ok(f"{destination} exists; whether the user may consume from it is not checked, as no message is taken")


def consumers_told(connection: Connection, destination: Destination) -> int | None:
    """Return the number of consumers of a queue by the broker's management node; None if it does not tell.

    Raises:
        NoDestinationError: there is no such queue.
        BrokerError: the broker did not answer.
    """
    if connection.capabilities.dialect != RABBITMQ:
        return None
    from brokers.amqp.connection import AmqpConnection  # needs an extra, which a connection to RabbitMQ has

    if not isinstance(connection, AmqpConnection) or destination.kind is not DestinationKind.QUEUE:
        return None
    return connection.consumers(destination)


def check_replies(patient: Patient) -> CheckResult:
    """Check that a message to the fixed reply queue reaches its selector, even if other replies lie there."""
    connection, replies = patient.connection, patient.replies
    assert connection is not None
    if replies is None or replies.kind.is_topic:
        return skipped("replies do not come to a fixed queue" if patient.place else "give --uri or --wsdl to check it")
    if not connection.capabilities.selectors:
        found = _check_untouched(patient, connection, replies)
        if found.outcome is CheckOutcome.FAILED:
            return found
        return skipped("the broker has no selectors, so a fixed reply queue belongs to one client")
    name = new_ping_id()
    try:
        connection.wait_connected(patient.timeout)
        _sent_to_ourselves(connection, replies, patient.timeout, name, f"JMSCorrelationID = '{name}'")
    except (BrokerError, FutureTimeoutError) as error:
        return CheckResult(
            CheckOutcome.FAILED, f"{replies}: {str(error) or 'the broker does not accept a message'}", set_url(patient)
        )
    except Empty:
        text = (
            f"{replies} has so many unread messages that a reply behind them is not found; purge it, and give requests "
            "a timeToLive, so that their replies expire"
        )
        return CheckResult(CheckOutcome.FAILED, text, f"activemq purge {shlex.quote(replies.name or '')}")
    return ok(f"a message to {replies} reached its selector")


def check_round_trip(patient: Patient) -> CheckResult:
    """Check that a message to a temporary queue comes back."""
    assert patient.connection is not None
    try:
        patient.connection.wait_connected(patient.timeout)  # some brokers close it when they refuse something
        patient.echo = _echo(patient.connection, patient.timeout)
    except BrokerError as error:
        return CheckResult(CheckOutcome.FAILED, str(error), set_url(patient), "docs/brokers.md")
    except (FutureTimeoutError, Empty):
        text = f"a message to a temporary queue did not come back within {patient.timeout:g} s"
        return CheckResult(CheckOutcome.FAILED, text, "soapjms doctor --debug --timeout 30")
    sent, back, _ = patient.echo
    return ok(f"{(back - sent) * 1000:.1f} ms to a temporary queue and back")


def _echo(connection: Connection, timeout: float) -> tuple[float, float, Message]:
    """Send a message to a temporary queue; see `_sent_to_ourselves`."""
    destination = connection.temporary()
    found = _sent_to_ourselves(connection, destination, timeout, new_ping_id())
    connection.end_temporary(destination)
    return found


def _sent_to_ourselves(
    connection: Connection, destination: Destination, timeout: float, name: str, selector: str | None = None
) -> tuple[float, float, Message]:
    """Send a message that expires soon; return when it was sent, when it was back, and the received message.

    Raises:
        BrokerError, TimeoutError, Empty: the message could not be sent, or was not back in time.
    """
    arrived: SimpleQueue[Message] = SimpleQueue()
    expiration = round((time.time() + CLOCK_TOLERANCE_SECONDS + timeout) * 1000)
    message = ping_message(name, destination, expiration)
    with connection.consume(
        destination, lambda delivery: arrived.put(delivery.message), auto_accept=True, selector=selector
    ):
        sent = time.time()
        connection.send(message, timeout=timeout).result(timeout)
        found = arrived.get(timeout=timeout)
        return sent, time.time(), found


def check_clock(patient: Patient) -> CheckResult:
    """Check that the clocks of broker and machine agree."""
    assert patient.echo is not None
    assert patient.connection is not None
    sent, back, message = patient.echo
    if not message.timestamp or not patient.connection.capabilities.tells_time:
        return skipped("the broker does not show its time")
    skew = Skew.of(sent, back, message.timestamp)
    if skew.certain <= MAX_SKEW_SECONDS:
        return ok(str(skew))
    outcome = CheckOutcome.FAILED if skew.certain > SKEW_FAILURE_SECONDS else CheckOutcome.NOTE
    return CheckResult(outcome, f"{skew}: requests may expire early or late", "timedatectl set-ntp true")


OLDEST, NEWEST = (3, 11), (3, 14)
OLDEST_JAVA: Final = 17
JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
MIN_FREE_OCTETS: Final = 256 << 20
"""Minimum free space on the disk for captures, in octets."""

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "stomp": ("stomp",),
    "amqp": ("proton", "websockets"),
    "cli": ("click", "rich"),
    "replay": ("pyarrow", "jinja2", "duckdb", "msgspec"),
    "spark": ("pyspark", "pandas"),
    "zeep": ("zeep",),
    "codegen": ("xsdata", "jinja2", "toposort", "click"),
    "wsse": ("xmlsec",),
    "bridge": ("starlette", "uvicorn"),
    "prometheus": ("prometheus_client",),
    "opentelemetry": ("opentelemetry",),
}
"""The modules that each extra installs."""


def check_python(patient: Patient) -> CheckResult:
    """Check that the release of Python is supported."""
    version, found = sys.version_info[:2], sys.version.partition(" ")[0]
    if OLDEST <= version <= NEWEST:
        return ok(f"{found}, {sys.executable}")
    wanted = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    return CheckResult(
        CheckOutcome.FAILED, f"Python must be {wanted}, got {found}", f"python{NEWEST[0]}.{NEWEST[1]} -m venv .venv"
    )


def check_extras(patient: Patient) -> CheckResult:
    """Check that the extra for the URL of the broker is installed; note other missing extras."""
    missing = [name for name, modules in EXTRAS.items() if not all(map(find_spec, modules))]
    needed = [name for name in missing if any(WAYS[each].extra == name for each in schemes_of(patient))]
    if needed:
        listed = ",".join(needed)
        return CheckResult(
            CheckOutcome.FAILED, f"the URL of the broker needs the extra {listed}", f"pip install 'soapjms[{listed}]'"
        )
    if missing:
        text = f"not installed, but not needed so far: {', '.join(missing)}"
        return CheckResult(CheckOutcome.NOTE, text, f"pip install 'soapjms[{','.join(missing)}]'")
    return ok(", ".join(EXTRAS))


def check_java(patient: Patient) -> CheckResult:
    """Check that there is a Java for Spark; nothing else needs one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    install = "apt-get install openjdk-17-jre-headless"
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        return CheckResult(CheckOutcome.NOTE, f"{where}: `soapjms replay` runs without Spark only", install)
    try:
        command = [java, "-version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr  # noqa: S603  # theirs
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckResult(CheckOutcome.NOTE, f"{java} does not run: {error}", install)
    version = JAVA_VERSION.search(said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        shown = said.partition("\n")[0]
        return CheckResult(
            CheckOutcome.NOTE, f"{java} is too old for Spark, which needs {OLDEST_JAVA}: {shown}", install
        )
    return ok(f"{version[1]}, {java}")


def check_folder(patient: Patient) -> CheckResult:
    """Check that captures can be written to the folder."""
    folder = patient.folder
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    quoted = shlex.quote(str(folder))
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"soapjms")
    except OSError as error:
        return CheckResult(
            CheckOutcome.FAILED,
            f"{there} cannot be written to: {error.strerror}",
            f"mkdir -p {quoted} && chmod u+rwx {quoted}",
        )
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free >> 20} MiB free"
    return (
        ok(text)
        if free >= MIN_FREE_OCTETS
        else CheckResult(CheckOutcome.NOTE, text, f"df -h {shlex.quote(str(there))}")
    )
