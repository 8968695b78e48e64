"""SOAP over SMQP: request-response, one-way, faults, by the same client and dispatcher as over any broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from calling_kit import NS, PATIENCE, SOAP_11, SOAP_12, envelope, eventually, fresh, greeter, text_of
from smqp_kit import running

import soapjms
from brokers import Connection, MessageType
from brokers.smqp.server import Right
from soapjms import CallFailedError, Client, Dispatcher, Request, Service, SoapVersion
from soapjms.protocol import names
from soapjms.protocol.errors import SendOutcome


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a server that is prepared for JMS."""
    with running() as server:
        server.accounts("soap", rights=Right.NONE)
        server.server.administer(lambda admin: admin.prepare_for_jms())
        for path in ("/queue", "/topic", "/temporary"):
            server.grant("soap", path, Right.ALL)
        host, port = server.address
        yield f"smqp://soap:pw@{host}:{port}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """Connect the client."""
    with soapjms.connect(url) as connection:
        yield connection


@pytest.fixture
def other(url: str) -> Iterator[Connection]:
    """Connect the service."""
    with soapjms.connect(url) as connection:
        yield connection


@pytest.fixture
def uri() -> str:
    """Name a service."""
    return f"jms:queue:{fresh()}"


@pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
def test_call(
    connection: Connection, other: Connection, uri: str, version: SoapVersion, message_type: MessageType
) -> None:
    """A response comes back in the request's SOAP version and message type, and nothing breaks a rule."""
    uri += "?timeToLive=60000&priority=6"
    with (
        Dispatcher(other, uri, greeter()) as dispatcher,
        Client(connection, uri, message_type=message_type) as client,
    ):
        response = client.call(envelope("Zoë", version), soap_action="urn:greetMe", timeout=PATIENCE)
        eventually(lambda: dispatcher.counts["answered"] == 1, "it was counted")
    assert text_of(response) == "Hello Zoë"
    assert response.envelope.version is version
    assert response.message.message_type is message_type
    assert response.message.priority == 6
    assert response.findings() == ()


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
def test_faults(connection: Connection, other: Connection, uri: str, version: SoapVersion) -> None:
    """A service's own fault arrives with its detail; so does one for an operation that there is not."""
    with Dispatcher(other, uri, greeter()), Client(connection, uri, timeout=PATIENCE) as client:
        response = client.call(envelope("Ann", version, "fail"))
        assert response.message.properties.text(names.IS_FAULT) == "true"
        with pytest.raises(soapjms.SoapFaultError, match="no such person") as caught:
            response.raise_for_fault()
        assert caught.value.detail.findtext(f"{{{NS}}}who") == "Ann"
        unknown = client.call(envelope("Ann", version, "unknown"))
        assert unknown.fault is not None
        assert unknown.findings() == ()


def test_one_way(connection: Connection, other: Connection, uri: str) -> None:
    """A one-way message arrives once, and is gone."""
    seen: list[str | None] = []
    service = Service()

    @service.operation(f"{{{NS}}}note")
    def note(request: Request) -> None:
        seen.append(request.element.text)

    with Dispatcher(other, uri, service), Client(connection, uri) as client:
        for number in range(5):
            client.send(envelope(str(number), operation="note"))
        eventually(lambda: len(seen) == 5, "all arrived")
    assert sorted(seen, key=str) == [str(number) for number in range(5)]


def test_many_calls(connection: Connection, other: Connection, uri: str) -> None:
    """Calls of many threads at once each get their own answer."""
    with (
        Dispatcher(other, uri, greeter(), workers=4) as dispatcher,
        Client(connection, uri, timeout=60) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = threads.map(lambda number: text_of(client.call(envelope(str(number)))), range(100))
        assert list(answers) == [f"Hello {number}" for number in range(100)]
        eventually(lambda: dispatcher.counts["answered"] == 100, "all were counted")


def test_a_large_body(connection: Connection, other: Connection, uri: str) -> None:
    """A megabyte in both directions."""
    name = "x" * 1_000_000
    with Dispatcher(other, uri, greeter()), Client(connection, uri, timeout=PATIENCE) as client:
        assert text_of(client.call(envelope(name))) == f"Hello {name}"


def test_a_message_above_the_limit(connection: Connection, other: Connection, uri: str) -> None:
    """More than 16 MiB is refused, and says so; the next call works."""
    with Dispatcher(other, uri, greeter()), Client(connection, uri, timeout=PATIENCE) as client:
        with pytest.raises(CallFailedError, match="413") as caught:
            client.call(envelope("x" * (16 << 20)))
        assert caught.value.outcome is SendOutcome.REFUSED
        assert text_of(client.call(envelope("Ann"))) == "Hello Ann"


def test_a_request_that_nobody_may_send(url: str) -> None:
    """What the server refuses is told to the caller."""
    with (
        soapjms.connect(url) as connection,
        Client(connection, "jms:queue:%2Fnone", timeout=PATIENCE) as client,
        pytest.raises(CallFailedError, match="404"),
    ):
        client.call(envelope("Ann"))


def test_elsewhere(url: str) -> None:
    """The connection says whether the server is on this machine, as its URL has it."""
    for host, is_local in (("127.0.0.1", True), ("0.0.0.0", False)):
        with soapjms.connect(url.replace("127.0.0.1", host)) as connection:
            assert connection.is_local is is_local
