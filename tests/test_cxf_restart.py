"""Apache CXF as the client of our service, while ActiveMQ is killed and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event

import pytest
from calling_kit import PATIENCE, SOAP_11, Arrivals, eventually, fresh, request_message
from cxf_kit import Cxf, echo_service, start_cxf, uri_of
from proxy_kit import Proxy
from real_brokers import RealBroker, start_activemq

import soapjms
from brokers import queue
from soapjms import Dispatcher
from soapjms.answers import Prepared

pytestmark = pytest.mark.broker

CALLS = 300


@pytest.fixture(scope="module")
def cxf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cxf]:
    """Run CXF for all tests here."""
    with start_cxf(tmp_path_factory.mktemp("cxf")) as running:
        yield running


@pytest.fixture
def mortal() -> Iterator[RealBroker]:
    """A broker of the test's own."""
    with start_activemq() as broker:
        yield broker


@pytest.mark.parametrize("protocol", ["stomp", pytest.param("amqp", marks=pytest.mark.soak)])
def test_answers_wait(cxf: Cxf, mortal: RealBroker, protocol: str) -> None:
    """The broker is back, and our service, before CXF has its temporary queue again: the answer waits for that."""
    name = fresh("cxf")
    begun, goes_on = Event(), Event()

    def hold(request: soapjms.Request, call_next: Callable[[soapjms.Request], Prepared]) -> Prepared:
        begun.set()
        assert goes_on.wait(PATIENCE)
        return call_next(request)

    with (
        Proxy(mortal.host, mortal.ports.openwire) as proxy,
        soapjms.connect(getattr(mortal, f"{protocol}_url")) as connection,
        Dispatcher(connection, f"jms:queue:{name}", echo_service(SOAP_11)[0], middleware=[hold]) as dispatcher,
    ):
        called = cxf.begin(failover_uri(mortal, name, proxy.port), "greetMe", "Ann")
        assert begun.wait(PATIENCE)
        # ActiveMQ hands a message over before it is on its disk; what is stored one after the other tells that it is.
        connection.send(request_message(f"{name}.stored", None)).result(PATIENCE)
        proxy.leave()
        mortal.kill()
        goes_on.set()
        mortal.start()
        eventually(lambda: dispatcher.counts["client awaited"], "the answer waits")
        proxy.come_back()
        assert called.result(PATIENCE) == ["ok", "Ann"]
        assert dispatcher.counts["client gone"] == 0


@pytest.mark.soak
@pytest.mark.parametrize("replies", ["temporary", "named"])
def test_under_load(cxf: Cxf, mortal: RealBroker, replies: str) -> None:
    """Of many calls hardly one is lost, as what lies in a temporary queue ends with the broker; with a named one none.

    What is in that one's dead-letter queue then are replies that CXF had before: ActiveMQ's Java client, to which they
    are delivered again after it was cut off before it could accept them, has them put there.
    """
    name = fresh("cxf")
    options = {"replyToName": f"{name}.replies"} if replies == "named" else {}
    uri = failover_uri(mortal, name, mortal.ports.openwire, **options)
    with soapjms.connect(mortal.stomp_url) as connection:
        with Dispatcher(connection, f"jms:queue:{name}", echo_service(SOAP_11)[0]) as dispatcher:
            calls = [cxf.begin(uri, "greetMe", str(number)) for number in range(CALLS)]
            eventually(lambda: dispatcher.counts["answered"] > CALLS // 10, "some were answered")
            mortal.kill()
            mortal.start()
            answers = [each.result(2 * PATIENCE) for each in calls]
        good = [answer == ["ok", str(number)] for number, answer in enumerate(answers)]
        assert sum(good) >= (CALLS if replies == "named" else CALLS - 10), answers
        letters = mortal.counters().messages.get(f"DLQ.{name}.replies", 0)
        found = Arrivals()
        with connection.consume(queue(f"DLQ.{name}.replies"), found):
            for letter in found.take(letters):
                assert "Suppressing duplicate delivery" in (letter.properties.text("dlqDeliveryFailureCause") or "")


def failover_uri(broker: RealBroker, name: str, port: int, **options: str) -> str:
    """Write the URI by which CXF finds a queue, and again."""
    url = f"failover:(tcp://{broker.host}:{port})?maxReconnectDelay=500"
    return uri_of(broker, name, jndiURL=url, receiveTimeout=60_000, **options)
