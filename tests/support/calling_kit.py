"""What the tests of client, service and dispatcher share: envelopes, a greeter, hand-made peers, waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from threading import Event
from typing import Any, Final
from uuid import uuid4

import pytest
from lxml import etree
from waiting import PATIENCE
from waiting import eventually as eventually

import soapjms
from brokers import (
    BrokerError,
    Completion,
    Connection,
    Delivery,
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    SendResult,
    Transaction,
    queue,
    typed,
)
from brokers.embedded import Broker
from soapjms import Client, Dispatcher
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting
from soapjms.protocol.names import Profile, SoapVersion
from soapjms.protocol.responding import RequestAccepted, RespondingNode

REAL_BROKERS: Final = ("activemq", "artemis")
"""The fixtures that start one."""

NS: Final = "urn:greeter"
SOAP_11, SOAP_12 = SoapVersion.SOAP_11, SoapVersion.SOAP_12


def fresh(what: str = "greeter") -> str:
    """Make a name that no other test uses."""
    return f"test.{what}.{uuid4().hex}"


# Envelopes


def element(name: str, text: str = "") -> etree._Element:
    """Make an element of the greeter's namespace."""
    made = etree.Element(f"{{{NS}}}{name}", nsmap={None: NS})
    made.text = text
    return made


def envelope(text: str = "World", version: SoapVersion = SOAP_11, operation: str = "greetMe") -> bytes:
    """Write a request."""
    return (
        f'<e:Envelope xmlns:e="{version.namespace}"><e:Body><{operation} xmlns="{NS}">{text}</{operation}>'
        "</e:Body></e:Envelope>"
    ).encode()


def greeter() -> soapjms.Service:
    """Make a service: `greetMe` says hello, `fail` answers with a fault, `pingMe` answers with an empty body."""
    service = soapjms.Service()

    @service.operation(f"{{{NS}}}greetMe")
    def greet_me(request: soapjms.Request) -> etree._Element:
        return element("greetMeResponse", f"Hello {request.element.text}")

    @service.operation(f"{{{NS}}}fail")
    def fail(request: soapjms.Request) -> etree._Element:
        raise soapjms.SoapFaultError(
            "no such person", blame="Sender", detail=element("who", request.element.text or "")
        )

    @service.operation(f"{{{NS}}}pingMe")
    def ping_me(request: soapjms.Request) -> None:
        return None

    return service


def text_of(response: soapjms.Response) -> str | None:
    """Return what the greeter said."""
    assert response.fault is None, response.fault
    assert response.element is not None
    return response.element.text


# Hand-made peers


def request_message(destination: str, reply_to: Destination | None, body: bytes | str = b"", **changes: Any) -> Message:
    """Make a request as the specification has it, without our client.

    `changes` are fields of the message; `properties` is a mapping put over the right ones, None takes one away.
    """
    right: dict[str, Any] = {
        names.REQUEST_URI: f"jms:queue:{destination}",
        names.BINDING_VERSION: "1.0",
        names.CONTENT_TYPE: "text/xml; charset=utf-8",
    }
    values = right | changes.pop("properties", {})
    body = body or envelope()
    made = Message(
        message_type=MessageType.BYTES if isinstance(body, bytes) else MessageType.TEXT,
        body=body,
        properties=Properties(typed(name, value) for name, value in values.items() if value is not None),
        destination=queue(destination),
        correlation_id=f"hand-made-{uuid4().hex}",
        reply_to=reply_to,
    )
    return replace(made, **changes)


def answer_to(request: Message, text: str = "", profile: Profile = names.REC_2012, **changes: Any) -> Message:
    """Make the response to a request, without our dispatcher; `changes` are fields of the message."""
    node = RespondingNode(Setting(profile=profile))
    accepted = node.receive(request)
    version = accepted.envelope.version if isinstance(accepted, RequestAccepted) else node.default_version
    return replace(node.respond(envelope(text, version, "greetMeResponse")), **changes)


class Arrivals:
    """An `on_delivery` that accepts what it gets and keeps it for the test to wait for."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[Message] = SimpleQueue()

    def __call__(self, delivery: Delivery) -> None:
        delivery.accept()
        self._messages.put(delivery.message)

    def next(self) -> Message:
        """Wait for the next message."""
        return self._messages.get(timeout=PATIENCE)

    def take(self, count: int) -> list[Message]:
        """Wait for so many."""
        return [self.next() for _ in range(count)]


@contextmanager
def arrivals(connection: Connection, destination: Destination) -> Iterator[Arrivals]:
    """Take what comes to a destination."""
    found = Arrivals()
    with connection.consume(destination, found, prefetch=100):
        yield found


@contextmanager
def responder(
    connection: Connection, destination: Destination, answers: Callable[[Message], Iterable[Message]]
) -> Iterator[None]:
    """Answer each request that comes to a destination with any number of messages."""

    def on_delivery(delivery: Delivery) -> None:
        delivery.accept()
        for message in answers(delivery.message):
            connection.send(message).result(PATIENCE)

    with connection.consume(destination, on_delivery):
        yield


def take_one(connection: Connection, destination: Destination) -> Message:
    """Take one message from a queue."""
    with arrivals(connection, destination) as found:
        return found.next()


# On the embedded broker

URI: Final = "jms:queue:greeter"
GREETER: Final = queue("greeter")


class Peers:
    """A broker of the test's own, a client's connection, a service's, a client; a greeter for those who ask for it."""

    @pytest.fixture
    def broker(self) -> Broker:
        return Broker("client")

    @pytest.fixture
    def connection(self, broker: Broker) -> Iterator[Connection]:
        with broker.connect() as connection:
            yield connection

    @pytest.fixture
    def other(self, broker: Broker) -> Iterator[Connection]:
        """The service's connection."""
        with broker.connect() as connection:
            yield connection

    @pytest.fixture
    def client(self, connection: Connection) -> Iterator[Client]:
        with Client(connection, URI, timeout=PATIENCE) as client:
            yield client

    @pytest.fixture
    def served(self, other: Connection) -> Iterator[Dispatcher]:
        """A greeter at work."""
        with Dispatcher(other, URI, greeter()) as dispatcher:
            yield dispatcher


class Wrapped(Connection):
    """A connection that passes everything on to another, for subclasses to change a part."""

    def __init__(self, inner: Connection) -> None:
        self.inner = inner

    @property
    def capabilities(self) -> Any:
        return self.inner.capabilities

    @property
    def generation(self) -> int:
        return self.inner.generation

    @property
    def state(self) -> Any:
        return self.inner.state

    def watch(self, on_state: Any) -> None:
        self.inner.watch(on_state)

    def unwatch(self, on_state: Any) -> None:
        self.inner.unwatch(on_state)

    def wait_connected(self, timeout: float | None = None) -> None:
        self.inner.wait_connected(timeout)

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        return self.inner.send(message, transaction, **options)

    def _consume(self, options: Any, on_delivery: Any) -> Any:
        return self.inner._consume(options, on_delivery)

    def unsubscribe(self, topic: Any, durable_name: str) -> None:
        self.inner.unsubscribe(topic, durable_name)

    def begin(self) -> Transaction:
        return self.inner.begin()

    def temporary(self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, **options: bool) -> Any:
        return self.inner.temporary(kind, **options)

    def end_temporary(self, destination: Any) -> None:
        self.inner.end_temporary(destination)

    def close(self, deadline: float = 5.0) -> None:
        self.inner.close(deadline)


class Refusing(Wrapped):
    """A connection to a broker that refuses all subscriptions."""

    def _consume(self, options: Any, on_delivery: Any) -> Any:
        raise BrokerError("not authorized")


def url_of(request: pytest.FixtureRequest) -> str:
    """Return where the real broker of a fixture's parameter is.

    Dead letters go to a queue for each, as ActiveMQ Classic is configured here, and as the embedded broker does it.
    """
    stomp_url: str = request.getfixturevalue(request.param).stomp_url
    return f"{stomp_url}?deadLetters=DLQ." if request.param == "artemis" else stomp_url


def assert_one_answer_each(client: Client) -> None:
    """Check that no answer came to nobody; where the broker accepts after the answer, a second copy is left out."""
    allowed = set() if client._connection.capabilities.accepts_in_transactions else {"duplicate"}
    assert set(client.counts) <= allowed


class Gate(Wrapped):
    """A connection whose first transaction waits until the test lets it begin."""

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.reached, self.open = Event(), Event()

    def begin(self) -> Transaction:
        self.reached.set()
        assert self.open.wait(PATIENCE)
        return super().begin()


class OnEachBroker:
    """Two connections and a queue of the test's own, on the embedded broker, and over STOMP on both real ones."""

    @pytest.fixture(params=["embedded", *(pytest.param(name, marks=pytest.mark.broker) for name in REAL_BROKERS)])
    def url(self, request: pytest.FixtureRequest) -> str:
        """Where the broker is; a real one is started only if its tests are to run."""
        if request.param == "embedded":
            return f"embedded:{fresh('broker')}"
        return url_of(request)

    @pytest.fixture
    def connection(self, url: str) -> Iterator[Connection]:
        with soapjms.connect(url) as connection:
            yield connection

    @pytest.fixture
    def other(self, url: str) -> Iterator[Connection]:
        """The service's connection."""
        with soapjms.connect(url) as connection:
            yield connection

    @pytest.fixture
    def name(self) -> str:
        """The name of a queue."""
        return fresh()

    @pytest.fixture
    def uri(self, name: str) -> str:
        """The URI of that queue."""
        return f"jms:queue:{name}"


class OnRealBrokers(OnEachBroker):
    """The same on both real brokers only."""

    @pytest.fixture(params=[pytest.param(name, marks=pytest.mark.broker) for name in REAL_BROKERS])
    def url(self, request: pytest.FixtureRequest) -> str:
        """Where the broker is; both put dead letters into a queue for each."""
        return url_of(request)


class OnActiveMQ(OnEachBroker):
    """The same on ActiveMQ only."""

    @pytest.fixture(params=[pytest.param("activemq", marks=pytest.mark.broker)])
    def url(self, request: pytest.FixtureRequest) -> str:
        """Where ActiveMQ is."""
        return url_of(request)


class TellsNoTime(Wrapped):
    """A connection to a broker that does not tell its time."""

    @property
    def capabilities(self) -> Any:
        return replace(self.inner.capabilities, tells_time=False)
