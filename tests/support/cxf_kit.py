"""Apache CXF as clients and services over JMS: one Java process for many cases, which `tests/peers/cxf/Cxf.java` is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from calling_kit import SOAP_11, SOAP_12
from lxml import etree
from places import ROOT
from real_brokers import BRIEF, PASSWORD, USER, BrokerStartError, RealBroker, java, tail
from zeep_kit import CXF_NS as NS
from zeep_kit import ECHO

import soapjms
from brokers import MessageType
from soapjms import SoapVersion
from soapjms.protocol.names import Subcode
from soapjms.service.typed import TypedService

JARS = ROOT / "build/cxf/lib"
PROGRAM = ROOT / "tests/peers/cxf/Cxf.java"
PATIENCE = 90.0

VERSIONS: Final = {SoapVersion.SOAP_11: "1.1", SoapVersion.SOAP_12: "1.2"}

FACTORIES: Final = {
    "openwire": "org.apache.activemq.jndi.ActiveMQInitialContextFactory",
    "core": "org.apache.activemq.artemis.jndi.ActiveMQInitialContextFactory",
    "amqp": "Cxf$Amqp",
}
"""What makes the connection factory, by the protocol that it speaks."""


class Answer(NamedTuple):
    """What CXF's client got.

    Attributes:
        kind: `ok` with a text, `null` without one, `declared` with code and reason of the declared fault, `fault` with
            code, subcodes, reason and detail of another, or `failed` with a reason of CXF's own.
        words: what there is of that.
    """

    kind: str
    words: tuple[str, ...]


class Cxf:
    """A process of CXF's. Thread-safe."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.log = log  # what it writes beside
        self._process = process
        self._numbers, self._lock = count(1), Lock()
        self._asked: dict[str, Future[list[str]]] = {}
        self.reader = Thread(target=self._read, name="cxf", daemon=True)
        self.reader.start()

    def submit(self, *words: str) -> Future[list[str]]:
        """Have it do something, as its program says; the future has the words of the answer."""
        future: Future[list[str]] = Future()
        assert self._process.stdin is not None
        with self._lock:
            number = str(next(self._numbers))
            self._asked[number] = future
            self._process.stdin.write("\t".join(map(quote_plus, (number, *words))) + "\n")
            self._process.stdin.flush()
        return future

    def ask(self, *words: str) -> list[str]:
        """Have it done."""
        return self.submit(*words).result(PATIENCE)

    def begin(
        self, uri: str, operation: str, text: str | None = "", version: SoapVersion = SoapVersion.SOAP_11, **more: str
    ) -> Future[list[str]]:
        """Begin a call; see `call`."""
        words = [f"{name}={value}" for name, value in more.items()]
        if text is None:
            words.append("text=null")
        return self.submit("call", VERSIONS[version], uri, operation, text or "", *words)

    def call(
        self, uri: str, operation: str, text: str | None = "", version: SoapVersion = SoapVersion.SOAP_11, **more: str
    ) -> Answer:
        """Call as CXF's client; calls with the same version and URI have one client.

        Args:
            uri: of the service; see `uri_of`.
            operation: `greetMe`, `testFault`, `pingMe`, `pingCount`.
            text: its argument; None leaves it out.
            version: of SOAP.
            more: options of the program's.
        """
        kind, *words = self.begin(uri, operation, text, version, **more).result(PATIENCE)
        return Answer(kind, tuple(words))

    @contextmanager
    def service(self, uri: str, version: SoapVersion = SoapVersion.SOAP_11, *more: str) -> Iterator[str]:
        """Run a service of CXF's, and yield its name here; its operations echo."""
        name = f"service-{next(self._numbers)}"
        assert self.ask("serve", name, VERSIONS[version], uri, *more) == ["ok"]
        try:
            yield name
        finally:
            self.submit("stop", name)  # which takes it a second, and nobody waits for

    def heard(self, service: str) -> list[str]:
        """Return what came to a service one way."""
        return self.ask("heard", service)[1:]

    @contextmanager
    def client(self, uri: str, version: SoapVersion, *more: str) -> Iterator[None]:
        """Call a URI within; its client ends after that, with its connection, which takes a while that nobody waits."""
        try:
            yield
        finally:
            self.submit("leave", VERSIONS[version], uri, *more)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, *words = map(unquote_plus, line.rstrip("\n").split("\t"))
            self._asked.pop(number).set_result(words)
        for each in list(self._asked.values()):
            each.set_exception(RuntimeError(f"CXF ended:\n{tail(self.log.read_text('utf-8', 'replace'))}"))


@contextmanager
def start_cxf(folder: Path) -> Iterator[Cxf]:
    """Run one; `folder` is for what is compiled, and for its log.

    Raises:
        BrokerStartError: what it consists of was not fetched, or it did not start.
    """
    if not JARS.exists():
        raise BrokerStartError(f"no {JARS.relative_to(ROOT)}: run `make brokers` first")
    executable = java()
    compiler = str(Path(executable).with_name("javac")) if "/" in executable else "javac"
    command = [compiler, *(f"-J{option}" for option in BRIEF), "-d", str(folder), "-cp", f"{JARS}/*", str(PROGRAM)]
    subprocess.run(command, check=True, timeout=PATIENCE)
    command = [executable, *BRIEF, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command.append("-Djms.protocols=tcp,failover,amqp")
    command += ["-cp", f"{folder}:{JARS}/*", "Cxf"]
    log = folder / "cxf.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, encoding="utf-8"
        )
    with process:  # which closes its pipes at last
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise BrokerStartError(f"CXF did not start:\n{tail(log.read_text('utf-8', 'replace'))}")
            running = Cxf(process, log)
            try:
                yield running
            finally:
                process.terminate()
                running.reader.join()  # which reads to the end of a pipe that is not to be closed under it
        finally:
            process.terminate()


def uri_of(broker: RealBroker, name: str, kind: str = "queue", over: str = "openwire", **options: str | int) -> str:
    """Write the URI by which CXF finds a destination.

    Args:
        broker: where it is.
        name: of the queue or topic.
        kind: `queue` or `topic`.
        over: the protocol of CXF's own connection.
        options: more parameters of the URI, CXF's own ones too.
    """
    parameters: dict[str, str | int] = {
        "jndiInitialContextFactory": FACTORIES[over],
        "jndiConnectionFactoryName": "ConnectionFactory",
        "username": USER,
        "password": PASSWORD,
        "jndiURL": f"amqp://{broker.host}:{broker.ports.amqp}" if over == "amqp" else broker.openwire_url,
    }
    written = "&".join(f"{key}={value}" for key, value in (parameters | options).items())  # CXF decodes nothing there
    return f"jms:{kind}:{name}?{written}"


def echo_service(version: SoapVersion) -> tuple[TypedService, list[str | None]]:
    """Make a service of ours that does what that of CXF does, and the list of what came to it one way."""
    service, heard = soapjms.Service.from_wsdl(ECHO[version]), list[str | None]()

    @service.operation("greetMe")
    def greet(requestType: str | None) -> str | None:
        if requestType == "fail":
            raise RuntimeError("as it was asked to")
        return requestType

    @service.operation("pingMe")
    def ping(requestType: str | None) -> None:
        heard.append(requestType)

    @service.operation("pingCount")
    def number() -> int:
        return len(heard)

    @service.operation("testFault")
    def fail(requestType: str) -> str:
        raise service.fault("EchoFault", code=42, reason=requestType, _message="declared")

    return service, heard


def request_of(version: SoapVersion, operation: str, text: str | None = None) -> bytes:
    """Write a request to such a service; None leaves the argument out."""
    root = etree.Element(f"{{{version.namespace}}}Envelope")
    call = etree.SubElement(etree.SubElement(root, f"{{{version.namespace}}}Body"), f"{{{NS}}}{operation}")
    if text is not None:
        etree.SubElement(call, f"{{{NS}}}requestType").text = text
    return etree.tostring(root)


def answer_in(response: soapjms.Response) -> str | None:
    """Return what a response of such a service holds; None if it has no value."""
    element = response.raise_for_fault().element
    assert element is not None
    return element.findtext(f"{{{NS}}}responseType")


WAYS: Final = [("activemq", "stomp"), ("activemq", "amqp"), ("artemis", "stomp"), ("artemis", "amqp")]
"""A broker, and our protocol there."""


CXF_WAYS: Final = {"activemq": ("openwire", "amqp"), "artemis": ("openwire", "core", "amqp")}
"""The protocols of CXF's own connection; the first is in the core of cases."""


KINDS: Final = {"bytes": MessageType.BYTES, "text": MessageType.TEXT}


class Case(NamedTuple):
    """One way to call.

    Attributes:
        broker: the name of its fixture.
        protocol: ours.
        over: the protocol of CXF's connection.
        version: of SOAP.
        kind: of message.
        replies: where they go: `temporary`, `exclusive` (ours: one for each call), `named`, `topic`, or `no id`: to a
            temporary queue, for a client without correlation ids.
        more: `gzip`, or `non-persistent`.
        destination: `queue` or `topic`.
    """

    broker: str
    protocol: str
    over: str
    version: SoapVersion
    kind: str = "bytes"
    replies: str = "temporary"
    more: str = ""
    destination: str = "queue"

    def __str__(self) -> str:
        return "-".join(str(each) for each in self if each).replace(" ", "_")


PLAIN: Final = Case("activemq", "stomp", "openwire", SOAP_11)


BY_IDS: Final = [
    Case("activemq", "stomp", "amqp", SOAP_11),
    Case("activemq", "stomp", "amqp", SOAP_12, replies="no id"),
    Case("activemq", "amqp", "amqp", SOAP_11, replies="no id"),
    Case("artemis", "stomp", "amqp", SOAP_11, replies="no id"),
    Case("artemis", "amqp", "core", SOAP_11, replies="no id"),
]
"""Ways of which one broker or the other tells the JMSMessageID in its own way, or cannot read it."""


def core(replies: tuple[str, ...]) -> list[Case]:
    """List the cases of the core: each feature by itself, everywhere."""
    return [each for each in BY_IDS if each.replies in replies] + [
        case
        for (broker, protocol), version in product(WAYS, (SOAP_11, SOAP_12))
        for plain in [Case(broker, protocol, CXF_WAYS[broker][0], version)]
        for case in (
            *(plain._replace(replies=each) for each in replies),
            plain._replace(kind="text"),
            plain._replace(more="gzip"),
            plain._replace(destination="topic"),
        )
    ]


def every(replies: tuple[str, ...]) -> list[Case]:
    """List all there are. Text is not compressed: CXF cannot."""
    return [
        Case(broker, protocol, over, version, *rest)
        for broker, protocol in WAYS
        for over in CXF_WAYS[broker]
        for version, *rest in product(
            (SOAP_11, SOAP_12), KINDS, replies, ("", "gzip", "non-persistent"), ("queue", "topic")
        )
        if not (rest[0] == "text" and rest[2] == "gzip")
    ]


class Foreign(NamedTuple):
    """A fault of CXF's or of a broker's that a case meets.

    Attributes:
        reason: what it is.
        error: what the test fails with.
    """

    reason: str
    error: type[Exception]


UNTOLD: Final = Foreign(
    "Artemis tells no STOMP client the JMSMessageID of what came over its core protocol", AssertionError
)


def at_their_client(case: Case) -> Foreign | None:
    """Return why CXF's client is not answered."""
    return UNTOLD if case[:3] == ("artemis", "stomp", "core") and case.replies == "no id" else None


class Side(NamedTuple):
    """What there is with CXF on one side.

    Attributes:
        replies: where they go.
        foreign: tells of a case what fault it meets that is not ours.
    """

    replies: tuple[str, ...]
    foreign: Callable[[Case], Foreign | None]

    def few(self) -> list[Case]:
        """List the cases in `make test`: the core, of what fails there only the plain ones."""
        return [case for case in core(self.replies) if self.foreign(case) is None or case[4:] == PLAIN[4:]]

    def all(self) -> list[Case]:
        """List all cases, which are in `make soak`."""
        return list(dict.fromkeys((*core(self.replies), *every(self.replies))))


THEIR_CLIENT: Final = Side(("temporary", "no id", "named", "topic"), at_their_client)


THEIR_SERVICE: Final = Side(("temporary", "exclusive", "named", "topic"), lambda case: None)


REFUSALS: Final[list[tuple[str, str | None, Subcode]]] = [
    ("bindingVersion", "0.3", Subcode.UNRECOGNIZED_BINDING_VERSION),
    ("contentType", None, Subcode.MISSING_CONTENT_TYPE),
    ("contentType", "text/plain; charset=utf-8", Subcode.CONTENT_TYPE_MISMATCH),
    ("requestURI", None, Subcode.MISSING_REQUEST_URI),
    ("requestURI", "jms:nowhere:orders", Subcode.MALFORMED_REQUEST_URI),
    ("requestURI", "jms:queue:orders?targetService=Echo", Subcode.TARGET_SERVICE_NOT_ALLOWED),
]
"""Requests that CXF's service refuses: a property of SOAP/JMS, what it says, None if it is missing, and the subcode."""


FAULT_CASES: Final = [
    Case(broker, protocol, over, version)
    for (broker, protocol), version in product(WAYS, (SOAP_11, SOAP_12))
    for over in CXF_WAYS[broker]
]
"""The ways to CXF's service, with both versions of SOAP; in `make test` those over OpenWire."""
