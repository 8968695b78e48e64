"""Answers to clients that have left, on every broker and protocol, with transactions and without.

What a broker says of a destination that is gone is its own; Artemis says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest
from calling_kit import PATIENCE, arrivals, element, envelope, eventually, fresh, request_message, text_of
from lxml import etree
from qpid_kit import Qpid
from real_brokers import RealBroker

import soapjms
from brokers import Connection, queue
from brokers.amqp.listener import Listener
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Request, Service


@pytest.fixture(
    params=[
        "amqp listener",
        *(
            pytest.param(each, marks=pytest.mark.broker)
            for each in ("activemq stomp", "activemq amqp", "artemis stomp", "artemis amqp", "qpid amqp")
        ),
    ]
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the broker is."""
    name, _, protocol = request.param.rpartition(" ")
    if name == "amqp":
        with Listener(Broker(fresh("gone")), "127.0.0.1", 0) as listener:
            yield listener.url
        return
    real: RealBroker | Qpid = request.getfixturevalue(name)
    yield getattr(real, f"{protocol}_url")


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """The service's connection."""
    with soapjms.connect(url) as connection:
        yield connection


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("transactional", [True, False])
def test_is_no_dead_letter(url: str, connection: Connection, transactional: bool, persistent: bool) -> None:
    """The request is done with: it counts as `client gone` where the broker tells, and the service goes on."""
    name = fresh()
    has_begun, has_left = Event(), Event()
    service = Service()

    @service.operation("{urn:greeter}greetMe")
    def greet(request: Request) -> etree._Element:
        if request.element.text == "leaving":
            has_begun.set()
            assert has_left.wait(PATIENCE)
        return element("greetMeResponse", f"Hello {request.element.text}")

    uri = f"jms:queue:{name}" + "?deliveryMode=NON_PERSISTENT" * (not persistent)
    with Dispatcher(connection, uri, service, transactional=transactional) as dispatcher:
        with soapjms.connect(url) as leaving, Client(leaving, uri) as client:
            client.submit(envelope("leaving"))
            assert has_begun.wait(PATIENCE)
        has_left.set()
        eventually(lambda: dispatcher.counts["client gone"] + dispatcher.counts["answered"] == 1, "it is counted")
        told = connection.capabilities.tells_gone and (persistent or transactional or "stomp" not in url)
        assert dispatcher.counts["client gone"] == told
        assert (dispatcher.counts["rejected"], dispatcher.counts["answer refused"]) == (0, 0)
        with soapjms.connect(url) as staying, Client(staying, uri, timeout=PATIENCE) as client:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
    with arrivals(connection, queue(name)) as left:
        marker = request_message(name, None)
        connection.send(marker).result(PATIENCE)
        assert left.next().correlation_id == marker.correlation_id
