"""Apache CXF as clients and services over JMS: one Java process for many cases, which `tests/peers/cxf/Cxf.java` is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from lxml import etree
from places import ROOT
from real_brokers import PASSWORD, USER, BrokerStartError, RealBroker, java, tail
from zeep_kit import CXF_NS as NS
from zeep_kit import ECHO

import soapjms
from soapjms import SoapVersion
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
    subprocess.run([compiler, "-d", str(folder), "-cp", f"{JARS}/*", str(PROGRAM)], check=True, timeout=PATIENCE)
    command = [executable, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
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
