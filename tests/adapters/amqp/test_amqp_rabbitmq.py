"""brokers.amqp with RabbitMQ 4, in `make soak`: SOAP calls, and what its own ways mean for them.

The contract of brokers runs with it too: `tests/adapters/contract/test_broker_contract.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue
from uuid import uuid4

import pytest
from calling_kit import PATIENCE, arrivals, envelope, greeter, text_of
from rabbitmq_kit import make_queue, request_management

import soapjms
from brokers import Connection, Delivery, DestinationGoneError, Message, MessageType, NoDestinationError, connect, queue

pytestmark = [pytest.mark.broker, pytest.mark.soak]


@pytest.fixture
def connection(rabbitmq: str) -> Iterator[Connection]:
    """Connect."""
    with connect(rabbitmq, timeout=PATIENCE) as opened:
        yield opened


@pytest.fixture
def requests(rabbitmq: str) -> str:
    """Make a queue, and give its name."""
    name = f"requests.{uuid4().hex}"
    make_queue(rabbitmq, name)
    return name


def text(name: str) -> Message:
    """Make a message to a queue."""
    return Message(message_type=MessageType.TEXT, body="x", destination=queue(name))


def test_soap_calls(connection: Connection, requests: str) -> None:
    """Calls and their answers, over a temporary queue; nothing is broken."""
    uri = f"jms:queue:{requests}"
    with (
        soapjms.Dispatcher(connection, uri, greeter()) as dispatcher,
        soapjms.Client(connection, uri, timeout=PATIENCE) as client,
    ):
        for name in ("Zoë", "Ann"):
            response = client.call(envelope(name))
            assert (text_of(response), response.findings()) == (f"Hello {name}", ())
        assert dispatcher.health().ready


def test_an_answer_to_a_client_that_left(connection: Connection, requests: str, rabbitmq: str) -> None:
    """The service learns that it is gone, and serves others."""
    uri = f"jms:queue:{requests}"
    with connect(rabbitmq, timeout=PATIENCE) as leaving:
        client = soapjms.Client(leaving, uri, timeout=PATIENCE)
        client.submit(envelope("Gone"), expires=None)
    with (
        soapjms.Dispatcher(connection, uri, greeter()) as dispatcher,
        soapjms.Client(connection, uri, timeout=PATIENCE) as client,
    ):
        assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
        assert dispatcher.counts["client gone"] == 1


def test_a_refused_request_is_a_dead_letter(connection: Connection, requests: str) -> None:
    """What the service rejects goes to the dead-letter queue of the queue."""
    with arrivals(connection, queue(f"DLQ.{requests}")) as letters:
        connection.consume(queue(requests), lambda delivery: delivery.reject("no"))
        connection.send(text(requests)).result(PATIENCE)
        assert letters.next().body == "x"


def test_a_queue_that_does_not_exist(connection: Connection) -> None:
    """RabbitMQ makes none: to consume from it, and to send there, are errors that name it."""
    with pytest.raises(NoDestinationError, match="no queue 'nowhere'"):
        connection.consume(queue("nowhere"), print)
    with pytest.raises(DestinationGoneError, match="there is no queue:nowhere"):
        connection.send(text("nowhere")).result(PATIENCE)


def test_a_classic_queue(connection: Connection, rabbitmq: str) -> None:
    """It does not count deliveries, but a second one is marked."""
    name, got = f"classic.{uuid4().hex}", SimpleQueue[Delivery]()
    body = {"durable": True, "exclusive": False, "auto_delete": False, "arguments": {"x-queue-type": "classic"}}
    request_management(rabbitmq, "PUT", f"/queues/{name}", body)
    connection.consume(queue(name), got.put)
    connection.send(text(name)).result(PATIENCE)
    first = got.get(timeout=PATIENCE)
    first.release()
    second = got.get(timeout=PATIENCE)
    second.accept()
    assert (first.message.redelivered, second.message.redelivered) == (False, True)
