"""Messages above the limit of a connection: each is refused with the reason, and costs nobody else anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calling_kit import PATIENCE, element, envelope, eventually, fresh, greeter, text_of
from lxml import etree
from real_brokers import RealBroker

import brokers
from brokers import Connection, Message, MessageType, queue
from brokers.amqp.listener import Options
from brokers.amqp.url import AmqpOptions
from brokers.amqp.url import login_of as amqp_login
from brokers.message import MAX_MESSAGE_OCTETS
from brokers.stomp.codec import Cutter
from brokers.stomp.url import StompOptions
from brokers.stomp.url import login_of as stomp_login
from soapjms import CallFailedError, Client, Dispatcher, Limits, Request, Service
from soapjms.protocol.names import FailureReason

LIMIT = 100_000
MIB = 1 << 20
WORKERS = 3


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.broker) for name in ("activemq", "artemis")])
def broker(request: pytest.FixtureRequest) -> RealBroker:
    """Each of the real brokers."""
    found: RealBroker = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["amqp", "stomp"])
def url(broker: RealBroker, request: pytest.FixtureRequest) -> str:
    """Its URL, over both protocols, for who has the limit."""
    return broker.amqp_url if request.param == "amqp" else broker.stomp_url


@pytest.fixture
def other(broker: RealBroker) -> Iterator[Connection]:
    """A connection with the usual limit."""
    with brokers.connect(broker.amqp_url) as made:
        yield made


def dead_letters(broker: RealBroker, name: str) -> str:
    """Say where a broker puts what was rejected from a queue."""
    return "DLQ" if broker.recipe.title == "Artemis" else f"DLQ.{name}"


def large(name: str, octets: int) -> Message:
    """Make a request that nobody reads."""
    return Message(
        message_type=MessageType.BYTES, body=bytes(octets), destination=queue(name), correlation_id=f"large-{name}"
    )


def talkative() -> Service:
    """Make a service that answers at a length that its caller says."""
    service = Service()

    @service.operation("{urn:greeter}greetMe")
    def greet_me(request: Request) -> etree._Element:
        return element("greetMeResponse", "x" * int(request.element.text or 0))

    return service


def test_one_limit() -> None:
    """Adapters and nodes have the same one."""
    assert Limits().size == MAX_MESSAGE_OCTETS == 100 * MIB
    over_amqp, over_stomp = amqp_login("amqp://h", {}, AmqpOptions()), stomp_login("stomp://h", {}, StompOptions())
    assert over_amqp.max_message == over_stomp.max_message == Cutter()._limit == MAX_MESSAGE_OCTETS
    assert Options().max_message == MAX_MESSAGE_OCTETS


class TestDispatcher:
    """A request above the limit comes to a service."""

    @pytest.mark.parametrize("transactional", [True, False], ids=["transactions", "without"])
    @pytest.mark.parametrize("is_stored", [True, False], ids=["store", "no store"])
    def test_refused(
        self, broker: RealBroker, url: str, other: Connection, transactional: bool, is_stored: bool, tmp_path: Path
    ) -> None:
        """As often as there are workers, and more: callers are told, all go on, each such request is a dead letter."""
        name = fresh()
        letters = dead_letters(broker, name)
        before = broker.counters().messages.get(letters, 0)
        store = tmp_path / "requests.db" if is_stored else None
        with (
            brokers.connect(url, max_message=LIMIT) as connection,
            Dispatcher(
                connection, f"jms:queue:{name}", greeter(), workers=WORKERS, transactional=transactional, store=store
            ) as dispatcher,
            Client(other, f"jms:queue:{name}", timeout=PATIENCE) as client,
        ):
            for number in range(WORKERS + 2):
                if number % 2:
                    other.send(large(name, 3 * LIMIT)).result(PATIENCE)
                else:
                    fault = client.call(envelope("x" * 3 * LIMIT)).fault
                    assert fault is not None
                    assert fault.reason.startswith("the request was not read: ")
                    assert f"{LIMIT}" in fault.reason
                assert text_of(client.call(envelope(f"{number}"))) == f"Hello {number}"
            eventually(lambda: dispatcher.counts["too large"] == WORKERS + 2, "all were refused")
            eventually(
                lambda: broker.counters().messages.get(letters, 0) == before + WORKERS + 2, "all are dead letters"
            )
            assert dispatcher.subscriptions == (WORKERS, WORKERS)
            assert dispatcher.health().ready
            assert broker.counters().consumers[name] == WORKERS
            assert name not in broker.counters().messages

    @pytest.mark.broker
    @pytest.mark.parametrize("protocol", ["amqp", "stomp"])
    def test_at_its_real_size(self, protocol: str, artemis: RealBroker) -> None:
        """70 MiB are read with the usual limit, 101 MiB are not."""
        name = fresh()
        before = artemis.counters().messages.get("DLQ", 0)
        with (
            brokers.connect(artemis.amqp_url) as other,
            brokers.connect(artemis.amqp_url if protocol == "amqp" else artemis.stomp_url) as connection,
            Dispatcher(connection, f"jms:queue:{name}", greeter(), workers=1) as dispatcher,
            Client(other, f"jms:queue:{name}", timeout=PATIENCE) as client,
        ):
            other.send(large(name, 70 * MIB)).result(PATIENCE)
            eventually(lambda: dispatcher.counts["refused"] == 1, "it was read, and is no envelope")
            other.send(large(name, 101 * MIB)).result(PATIENCE)
            assert text_of(client.call(envelope())) == "Hello World"
            assert dispatcher.counts["too large"] == 1
            eventually(lambda: artemis.counters().messages.get("DLQ", 0) == before + 1, "it is a dead letter")
            assert dispatcher.health().ready


class TestClient:
    """A response above the limit comes to a client."""

    @pytest.mark.parametrize(
        ("url", "profile"), [("amqp", "rec-2012"), ("amqp", "cr-2009"), ("stomp", "rec-2012")], indirect=["url"]
    )
    @pytest.mark.parametrize("mode", ["PERSISTENT", "NON_PERSISTENT"])
    def test_told_at_once(self, url: str, other: Connection, profile: str, mode: str) -> None:
        """That call fails at once and says why; the calls beside and after it work."""
        name = fresh()
        options: dict[str, Any] = {"profile": profile, "timeout": PATIENCE, "properties": {"deliveryMode": mode}}
        with (
            Dispatcher(other, f"jms:queue:{name}", talkative(), profile=profile, workers=2),
            brokers.connect(url, max_message=LIMIT) as connection,
            Client(connection, f"jms:queue:{name}", **options) as client,
        ):
            for _ in range(3):
                began = time.monotonic()
                beside = client.submit(envelope("10"))
                with pytest.raises(CallFailedError, match=f"a message may have {LIMIT} here: max_message") as caught:
                    client.call(envelope(f"{3 * LIMIT}"))
                assert caught.value.reason is FailureReason.RECEPTION_FAILURE
                assert "it worked on the request" in str(caught.value)
                assert time.monotonic() - began < PATIENCE / 2
                assert text_of(beside.result(PATIENCE)) == "x" * 10
                assert text_of(client.call(envelope("20"))) == "x" * 20
            assert client.counts == {"too large": 3}
            assert connection.generation == 1
