"""Apache CXF as the client of our service and as the service of our client, while ActiveMQ is killed and comes back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from calling_kit import PATIENCE, SOAP_11, Arrivals, eventually, fresh, request_message
from cxf_kit import Cxf, answer_in, echo_service, request_of, uri_of
from proxy_kit import Proxy
from real_brokers import RealBroker, start_activemq

import soapjms
from brokers import Connection, ConnectionState, Message, queue
from soapjms import CallFailedError, Client, Dispatcher
from soapjms.observing import Begun, Ended, Observation, Observer, Outcome
from soapjms.protocol.record import Direction, from_json
from soapjms.reply import Prepared

pytestmark = pytest.mark.broker

CALLS = 300
MOST_KILLS = 5
PROTOCOLS = ["stomp", pytest.param("amqp", marks=pytest.mark.soak)]


@pytest.fixture(scope="module")
def mortal() -> Iterator[RealBroker]:
    """A broker that each test kills and starts again."""
    with start_activemq() as broker:
        yield broker


@pytest.mark.parametrize("protocol", PROTOCOLS)
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


class Lost(Observer, Observation):
    """Writes down which requests were not accepted: their commit was under way when the broker died."""

    def __init__(self, calls: set[str], call: str = "") -> None:
        self.calls, self._call = calls, call

    def begun(self, begun: Begun) -> Observation:
        assert begun.message is not None
        return Lost(self.calls, text_in(begun.message))

    def ended(self, ended: Ended) -> None:
        if ended.outcome is Outcome.LOST:
            self.calls.add(self._call)


@pytest.mark.soak
def test_temporary_queue_under_load(cxf: Cxf, mortal: RealBroker, tmp_path: Path) -> None:
    """No call is lost but those whose answers the broker had: what lies in a temporary queue ends with it.

    Those of a commit that the broker carried out, and could not confirm any more, may be among them. Nobody gets the
    answer of another call.
    """
    name, unconfirmed = fresh("cxf"), set[str]()
    observer = Lost(unconfirmed)
    with (
        soapjms.connect(mortal.stomp_url) as connection,
        soapjms.Recorder(tmp_path / "answers.jsonl") as recorder,
        Dispatcher(
            connection, f"jms:queue:{name}", echo_service(SOAP_11)[0], recorder=recorder, observer=observer
        ) as dispatcher,
    ):
        uri = failover_uri(mortal, name, mortal.ports.openwire)
        calls = [cxf.begin(uri, "greetMe", f"call {number}") for number in range(CALLS)]
        eventually(lambda: dispatcher.counts["answered"] > CALLS // 10, "some were answered")
        mortal.kill()
        eventually(lambda: connection.state is not ConnectionState.CONNECTED, "the service knows")
        recorder.flush()
        lines = (tmp_path / "answers.jsonl").read_text().splitlines()
        had = {text_in(each.message) for each in map(from_json, lines) if each.direction is Direction.RESPONSE}
        mortal.start()
        answers = [each.result(2 * PATIENCE) for each in calls]
        lost = {f"call {number}" for number, answer in enumerate(answers) if answer[0] != "ok"}
        assert [answer[1] for answer in answers if answer[0] == "ok"] == [
            f"call {number}" for number in range(CALLS) if f"call {number}" not in lost
        ]
        assert 0 < len(had) < CALLS, "the broker died amid the load"
        assert lost <= had | unconfirmed, (lost, had, unconfirmed)


@pytest.mark.soak
def test_named_queue_under_load(cxf: Cxf, mortal: RealBroker) -> None:
    """No call is lost; what is in the dead-letter queue of the replies then are replies that CXF had before.

    ActiveMQ's Java client, to which they are delivered again after it was cut off before it could accept them, has them
    put there. That may take some kills to be seen.
    """
    name, letters = fresh("cxf"), dict[str, str | None]()
    uri = failover_uri(mortal, name, mortal.ports.openwire, replyToName=f"{name}.replies")
    service = echo_service(SOAP_11)[0]
    with soapjms.connect(mortal.stomp_url) as connection, Dispatcher(connection, f"jms:queue:{name}", service) as ours:
        for kills in range(1, MOST_KILLS + 1):
            calls = [cxf.begin(uri, "greetMe", f"call {number}") for number in range(CALLS)]
            enough = ours.counts["answered"] + CALLS // 10
            eventually(lambda enough=enough: ours.counts["answered"] > enough, "some were answered")  # type: ignore[misc]
            mortal.kill()
            mortal.start()
            assert [each.result(2 * PATIENCE) for each in calls] == [["ok", f"call {n}"] for n in range(CALLS)], kills
            count = mortal.counters().messages.get(f"DLQ.{name}.replies", 0)
            found = Arrivals()
            with connection.consume(queue(f"DLQ.{name}.replies"), found):
                letters |= {
                    text_in(each): each.properties.text("dlqDeliveryFailureCause") for each in found.take(count)
                }
            if letters:
                break
        assert letters, "no reply was delivered twice, so this shows nothing"
        assert all("Suppressing duplicate delivery" in (why or "") for why in letters.values()), letters


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("replies", ["named", "temporary"])
def test_call_of_their_service(cxf: Cxf, mortal: RealBroker, protocol: str, replies: str) -> None:
    """A request that the broker has outlasts it. Where the reply can too, it comes; else its caller is told at once.

    Nothing is known of it then, and another call is answered as soon as CXF is there again.
    """
    name = fresh("cxf")
    with (
        Proxy(mortal.host, mortal.ports.openwire) as proxy,
        cxf.service(failover_uri(mortal, name, proxy.port)),
        soapjms.connect(getattr(mortal, f"{protocol}_url")) as connection,
        caller(connection, name, replies) as client,
    ):
        assert answer_in(client.call(request_of(SOAP_11, "greetMe", "before"))) == "before"
        proxy.leave()
        called = client.submit(request_of(SOAP_11, "greetMe", "Ann"))
        eventually(lambda: all(each.is_confirmed for each in client._calls.all()), "the broker has it")
        mortal.kill()
        mortal.start()
        if replies == "temporary":  # it went with the broker
            with pytest.raises(CallFailedError, match="is not known") as caught:
                called.result(PATIENCE)
            assert not caught.value.is_known
        proxy.come_back()
        if replies == "named":
            assert answer_in(called.result(PATIENCE)) == "Ann"
        assert answer_in(client.call(request_of(SOAP_11, "greetMe", "after"))) == "after"


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
@pytest.mark.parametrize("replies", ["named", "temporary"])
def test_their_service_under_load(cxf: Cxf, mortal: RealBroker, protocol: str, replies: str) -> None:
    """Each call gets its own answer, or fails and says that nothing is known; none hangs. Called again, those too."""
    name = fresh("cxf")
    with (
        cxf.service(failover_uri(mortal, name, mortal.ports.openwire)),
        soapjms.connect(getattr(mortal, f"{protocol}_url")) as connection,
        caller(connection, name, replies) as client,
    ):
        calls = [client.submit(request_of(SOAP_11, "greetMe", f"call {number}")) for number in range(CALLS)]
        eventually(lambda: sum(each.done() for each in calls) > CALLS // 10, "some were answered")
        mortal.kill()
        mortal.start()
        errors = [each.exception(2 * PATIENCE) for each in calls]
        unknown = {number: error for number, error in enumerate(errors) if error is not None}
        assert all(type(each) is CallFailedError and not each.is_known for each in unknown.values()), unknown
        assert unknown or replies == "named", "no call was under way, so this shows nothing"
        for number, call in enumerate(calls):
            if number not in unknown:
                assert answer_in(call.result()) == f"call {number}"
        for number in unknown:
            assert answer_in(client.call(request_of(SOAP_11, "greetMe", f"call {number}"))) == f"call {number}"


def caller(connection: Connection, name: str, replies: str) -> Client:
    """Make a client of CXF's service whose replies go to a queue of a name, or to a temporary one."""
    properties = {"replyToName": f"{name}.replies"} if replies == "named" else {}
    return Client(connection, f"jms:queue:{name}", properties=properties, timeout=PATIENCE)


def text_in(message: Message) -> str:
    """Return what a request or a reply holds."""
    body = message.body
    assert isinstance(body, bytes | memoryview)
    return re.findall(r"Type>(call \d+)<", bytes(body).decode())[0]


def failover_uri(broker: RealBroker, name: str, port: int, **options: str) -> str:
    """Write the URI by which CXF finds a queue, and again."""
    url = f"failover:(tcp://{broker.host}:{port})?maxReconnectDelay=500"
    return uri_of(broker, name, jndiURL=url, receiveTimeout=60_000, **options)
