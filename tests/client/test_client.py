"""The client: calls, futures, one-way messages, JNDI names; who gets which reply."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    SOAP_11,
    SOAP_12,
    URI,
    Peers,
    Wrapped,
    answer_to,
    arrivals,
    element,
    envelope,
    eventually,
    fresh,
    request_message,
    responder,
    take_one,
    text_of,
)

import soapjms
from brokers import (
    Completion,
    Connection,
    DestinationKind,
    Message,
    MessageType,
    SendResult,
    Transaction,
    queue,
)
from brokers.embedded import Broker
from brokers.errors import ConnectionLostError
from brokers.naming import NameNotFoundError
from soapjms import CallFailedError, CallTimeoutError, Client, Dispatcher, Names, UsageError
from soapjms.protocol import names
from soapjms.protocol.record import Direction, Node, from_json


@pytest.mark.usefixtures("served")
class TestCalling(Peers):
    """Against our own dispatcher."""

    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    @pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
    def test_call(self, connection: Connection, version: soapjms.SoapVersion, message_type: MessageType) -> None:
        """A call returns the response in the request's SOAP version and message type, and breaks no rule."""
        with Client(connection, URI, message_type=message_type) as client:
            response = client.call(envelope("Ann", version), soap_action="urn:greetMe", timeout=PATIENCE)
        assert text_of(response) == "Hello Ann"
        assert response.envelope.version is version
        assert response.request.message_type is response.message.message_type is message_type
        assert response.request.properties.text(names.SOAP_ACTION) == "urn:greetMe"
        assert response.raise_for_fault() is response
        assert response.endpoint is client.endpoint
        assert response.findings() == ()

    @pytest.mark.parametrize("made", [envelope("Ann"), envelope("Ann").decode()])
    def test_octets_and_text(self, client: Client, made: bytes | str) -> None:
        """An envelope may be octets or text."""
        assert text_of(client.call(made)) == "Hello Ann"

    def test_element(self, client: Client) -> None:
        """An envelope may be an element."""
        root = soapjms.protocol.envelope.wrap(element("greetMe", "Ann"), SOAP_12)
        assert text_of(client.call(root)) == "Hello Ann"

    def test_empty_body(self, client: Client) -> None:
        """A response with an empty body has no element."""
        assert client.call(envelope(operation="pingMe")).element is None

    @pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
    def test_fault(self, client: Client, version: soapjms.SoapVersion) -> None:
        """A fault is a value; who asks gets it raised, with its reason, blame and detail."""
        response = client.call(envelope("Ann", version, operation="fail"))
        assert response.fault is not None
        assert response.fault.reason == "no such person"
        assert response.message.properties.value(names.IS_FAULT) is True
        with pytest.raises(soapjms.SoapFaultError, match="no such person") as caught:
            response.raise_for_fault()
        assert caught.value.blame == "Sender"
        assert caught.value.subcode is None
        assert caught.value.detail.findtext(f"{{{NS}}}who") == "Ann"

    def test_findings(self, client: Client) -> None:
        """What the peer broke is told, with the assertion."""
        response = client.call(envelope())
        broken = replace(response, message=replace(response.message, correlation_id="another"))
        assert [verdict.assertion for verdict in broken.findings()] == ["Protocol-2038"]

    def test_findings_of_a_call_with_its_own_action(self, connection: Connection) -> None:
        """The action of a call takes the place of that of the properties: it breaks nothing (Protocol-2018)."""
        with Client(connection, URI, properties={"soapAction": "urn:usual"}) as client:
            own = client.call(envelope(), soap_action="urn:greetMe", timeout=PATIENCE)
            usual = client.call(envelope(), timeout=PATIENCE)
        for response, action in ((own, "urn:greetMe"), (usual, "urn:usual")):
            assert response.request.properties.text(names.SOAP_ACTION) == action
            assert response.findings() == ()

    def test_submit(self, client: Client) -> None:
        """Many calls under way at once: each future holds its own response."""
        futures = {name: client.submit(envelope(name)) for name in ("Ann", "Bob", "Cem")}
        for name, future in futures.items():
            assert text_of(future.result(PATIENCE)) == f"Hello {name}"
        assert client.under_way == 0

    def test_one_reply_destination(self, broker: Broker, client: Client) -> None:
        """All calls of a client share one temporary queue."""
        wait([client.submit(envelope()) for _ in range(20)], PATIENCE)
        assert len([each for each in broker.destinations() if each.kind is DestinationKind.TEMPORARY_QUEUE]) == 1

    def test_callback_calls_again(self, client: Client) -> None:
        """A callback runs on a thread of the client's own, and may call and wait."""
        done: Future[tuple[str | None, str]] = Future()

        def again(first: Future[soapjms.Response]) -> None:
            second = client.call(envelope(text_of(first.result()) or ""))
            done.set_result((text_of(second), current_thread().name))

        client.submit(envelope("Ann")).add_done_callback(again)
        text, thread = done.result(PATIENCE)
        assert text == "Hello Hello Ann"
        called = Event()
        client.submit(envelope()).add_done_callback(lambda _: called.set())
        assert called.wait(PATIENCE)
        assert thread.startswith("soapjms-client")

    def test_properties(self, other: Connection, connection: Connection, served: Dispatcher) -> None:
        """Binding properties come from the URI and win from the program; an action of the call wins over both."""
        served.close()
        uri = URI + "?priority=7&deliveryMode=NON_PERSISTENT&targetService=a&x=y&timeToLive=60000"
        given: dict[str, str | int | bool] = {"priority": 2, "soapAction": "urn:default"}
        with Client(connection, uri, properties=given) as client, arrivals(other, GREETER) as found:
            client.submit(envelope())
            client.submit(envelope(), soap_action="urn:mine")
            first, second = found.take(2)
        assert (first.priority, first.delivery_mode) == (2, 1)
        assert first.expiration is not None
        assert first.timestamp is not None
        assert abs(first.expiration - first.timestamp - 60000) < 20_000
        assert first.properties.value(names.TARGET_SERVICE) == "a"
        assert first.properties.value(names.REQUEST_URI) == "jms:queue:greeter?x=y"
        assert first.properties.value(names.SOAP_ACTION) == "urn:default"
        assert second.properties.value(names.SOAP_ACTION) == "urn:mine"

    def test_recorded(self, connection: Connection, tmp_path: Path) -> None:
        """The recorder gets what passes, with direction and node."""
        log = tmp_path / "log.jsonl"
        with soapjms.Recorder(log) as recorder, Client(connection, URI, recorder=recorder) as client:
            client.call(envelope())
            client.send(envelope())
        records = [from_json(line) for line in log.read_text().splitlines()]
        assert [(each.direction, each.node) for each in records] == [
            (Direction.REQUEST, Node.REQUESTING),
            (Direction.RESPONSE, Node.REQUESTING),
            (Direction.ONE_WAY, Node.SENDING),
        ]

    def test_recorded_with_the_id(self, connection: Connection, other: Connection, tmp_path: Path) -> None:
        """Where the broker tells the JMSMessageID, it is in the records of requests and one-way messages."""
        log = tmp_path / "log.jsonl"
        place = fresh()
        with (
            soapjms.Recorder(log) as recorder,
            Client(connection, f"jms:queue:{place}", recorder=recorder) as client,
            arrivals(other, queue(place)) as found,
        ):
            client.submit(envelope())
            client.send(envelope())
            sent = [each.message_id for each in found.take(2)]
        records = [from_json(line) for line in log.read_text().splitlines()]
        assert [each.message.message_id for each in records] == sent
        assert None not in sent

    def test_recorded_in_order(self, connection: Connection, served: Dispatcher, tmp_path: Path) -> None:
        """A response that comes before the broker told the request's id waits for it; both have their own times."""
        log = tmp_path / "log.jsonl"
        passed: list[datetime] = []

        def clock() -> datetime:
            passed.append(datetime(2026, 1, 1, second=len(passed), tzinfo=UTC))
            return passed[-1]

        class TellsLate(Wrapped):
            def send(
                self, message: Message, transaction: Transaction | None = None, **options: Any
            ) -> Completion[SendResult]:
                sent = super().send(message, transaction, **options)
                eventually(lambda: len(passed) == 2, "the response is there")
                return sent

        with soapjms.Recorder(log, clock) as recorder, Client(TellsLate(connection), URI, recorder=recorder) as client:
            client.call(envelope())
        records = [from_json(line) for line in log.read_text().splitlines()]
        assert [each.direction for each in records] == [Direction.REQUEST, Direction.RESPONSE]
        assert [each.time for each in records] == passed
        assert records[0].message.message_id is not None

    def test_recorded_though_not_sent(self, connection: Connection, tmp_path: Path) -> None:
        """What the broker never took is recorded without an id, however sending it ended."""
        log = tmp_path / "log.jsonl"
        ends: list[BaseException] = [
            ConnectionLostError("gone"),
            KeyboardInterrupt(),
            ConnectionLostError("gone"),
            KeyboardInterrupt(),
        ]

        class Refuses(Wrapped):
            def send(
                self, message: Message, transaction: Transaction | None = None, **options: Any
            ) -> Completion[SendResult]:
                raise ends.pop(0)

        with soapjms.Recorder(log) as recorder, Client(Refuses(connection), URI, recorder=recorder) as client:
            for use in (client.call, client.send):
                with pytest.raises(CallFailedError):
                    use(envelope())
                with pytest.raises(KeyboardInterrupt):
                    use(envelope())
        records = [from_json(line) for line in log.read_text().splitlines()]
        kinds = [Direction.REQUEST, Direction.REQUEST, Direction.ONE_WAY, Direction.ONE_WAY]
        assert [(each.direction, each.message.message_id) for each in records] == [(kind, None) for kind in kinds]

    def test_recorded_by_a_clock_that_fails(self, connection: Connection, tmp_path: Path) -> None:
        """The recorder counts what it could not write; the call goes on."""

        def clock() -> datetime:
            raise OSError("no clock")

        with soapjms.Recorder(tmp_path / "log.jsonl", clock) as recorder:
            with Client(connection, URI, recorder=recorder) as client:
                client.call(envelope())
            assert (recorder.written, recorder.failed) == (0, 2)


class TestOneWay(Peers):
    """`Client.send`."""

    def test_sent(self, client: Client, other: Connection) -> None:
        """A one-way message has no JMSReplyTo and no JMSCorrelationID."""
        client.send(envelope("Ann"), soap_action="urn:ping")
        message = take_one(other, GREETER)
        assert (message.body, message.reply_to, message.correlation_id) == (envelope("Ann"), None, None)
        assert message.properties.value(names.SOAP_ACTION) == "urn:ping"

    def test_refused(self, other: Connection) -> None:
        """What the broker refuses raises CallFailedError with the failure reason."""
        with Broker(max_messages=1).connect() as connection, Client(connection, URI) as client:
            client.send(envelope())
            with pytest.raises(CallFailedError, match=r"refused the message: .*is full") as caught:
                client.send(envelope())
        assert caught.value.reason == "transmissionFailure"

    def test_no_answer(self, connection: Connection) -> None:
        """A broker that does not confirm in time raises too."""
        says = "whether the message was sent is not known: no answer from the broker"
        with Client(Deaf(connection), URI, timeout=0.01) as client, pytest.raises(CallFailedError, match=says):
            client.send(envelope())

    def test_no_envelope(self, client: Client, broker: Broker) -> None:
        """What is no envelope is not sent."""
        with pytest.raises(soapjms.InvalidEnvelopeError, match="no SOAP envelope; an lxml element is given an"):
            client.send("<greetMe/>")
        assert broker.depth(GREETER) == 0

    def test_closed(self, client: Client) -> None:
        """A closed client sends nothing."""
        client.close()
        with pytest.raises(UsageError, match="the client is closed"):
            client.send(envelope())


class Deaf(Wrapped):
    """A connection to a broker that never confirms."""

    def send(self, message: Message, transaction: Transaction | None = None, **options: Any) -> Completion[SendResult]:
        return Completion(lambda: ThreadPoolExecutor(1))


class TestReplies(Peers):
    """Who gets which reply: against a hand-made responder."""

    def test_in_any_order(self, client: Client, other: Connection) -> None:
        """Answers that come in another order than the requests each find their caller."""
        with arrivals(other, GREETER) as found:
            futures = [client.submit(envelope(str(number))) for number in range(5)]
            for message in reversed(found.take(5)):
                assert isinstance(message.body, bytes)
                other.send(answer_to(message, f"to {message.body.count(b'>')} {message.correlation_id}"))
            for number, future in enumerate(futures):
                response = future.result(PATIENCE)
                assert response.request.body == envelope(str(number))
                assert (text_of(response) or "").endswith(f" {response.request.correlation_id}")

    def test_second_reply(self, client: Client, other: Connection) -> None:
        """The first reply counts; a second one is counted and dropped."""
        with responder(other, GREETER, lambda request: [answer_to(request, "one"), answer_to(request, "two")]):
            assert text_of(client.call(envelope())) == "one"
            eventually(lambda: client.counts["duplicate"] == 1, "the second reply was counted")

    def test_late_reply(self, client: Client, other: Connection) -> None:
        """A reply to a call that timed out is counted and dropped, whatever else is under way."""
        with arrivals(other, GREETER) as found:
            with pytest.raises(CallTimeoutError):
                client.call(envelope("late"), timeout=0.5, expires=None)
            waiting = client.submit(envelope("waiting"))
            late, second = found.take(2)
            other.send(answer_to(late, "too late"))
            eventually(lambda: client.counts["late"] == 1, "the late reply was counted")
            assert not waiting.done()
            other.send(answer_to(second, "in time"))
            assert text_of(waiting.result(PATIENCE)) == "in time"
        assert client.counts == {"late": 1}

    @pytest.mark.parametrize("correlation_id", ["somebody else's", None])
    def test_foreign_reply(self, client: Client, other: Connection, correlation_id: str | None) -> None:
        """A reply of no call of this client is counted and handed to nobody."""

        def answers(request: Message) -> list[Message]:
            return [answer_to(request, "foreign", correlation_id=correlation_id), answer_to(request, "ours")]

        with responder(other, GREETER, answers):
            assert text_of(client.call(envelope())) == "ours"
        assert client.counts == {"unknown": 1}

    @pytest.mark.parametrize("body", [b"", b"no XML", b"<greetMe/>", b"<!DOCTYPE a><a/>"])
    def test_broken_reply(self, client: Client, other: Connection, body: bytes) -> None:
        """A correlated reply that is no SOAP envelope fails the call, and no other."""
        with (
            responder(other, GREETER, lambda request: [answer_to(request, body=body)]),
            pytest.raises(CallFailedError, match="the response is no SOAP envelope") as caught,
        ):
            client.call(envelope())
        assert caught.value.reason == "receptionFailure"
        assert not isinstance(caught.value, CallTimeoutError)

    def test_null_body(self, client: Client, other: Connection) -> None:
        """A reply of a type without a SOAP body fails the call."""

        def answers(request: Message) -> list[Message]:
            return [answer_to(request, message_type=MessageType.MESSAGE, body=None)]

        with responder(other, GREETER, answers), pytest.raises(CallFailedError, match="body of a message message"):
            client.call(envelope())


class TestJndi(Peers):
    """The variant jndi, through `Names`."""

    @pytest.mark.usefixtures("served")
    def test_registered_names(self, connection: Connection) -> None:
        """Destination and reply destination are looked up in the registry."""
        known = Names({"jms/greeter": GREETER, "jms/answers": queue("answers")})
        uri = "jms:jndi:jms/greeter?replyToName=jms/answers&jndiURL=x"
        with Client(connection, uri, names=known, timeout=PATIENCE) as client:
            response = client.call(envelope("Ann"))
        assert text_of(response) == "Hello Ann"
        assert (response.request.destination, response.request.reply_to) == (GREETER, queue("answers"))
        assert response.request.properties.value(names.REQUEST_URI) == "jms:jndi:jms/greeter"

    @pytest.mark.usefixtures("served")
    def test_dynamic_name(self, connection: Connection) -> None:
        """A dynamic name needs no registry."""
        with Client(connection, "jms:jndi:dynamicQueues/greeter", timeout=PATIENCE) as client:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    @pytest.mark.parametrize("uri", ["jms:jndi:nobody", "jms:jndi:dynamicQueues/a?replyToName=nobody"])
    def test_unknown_name(self, connection: Connection, uri: str) -> None:
        """An unknown name is refused at once, with those that are known."""
        with pytest.raises(NameNotFoundError, match="'nobody'; registered: jms/greeter"):
            Client(connection, uri, names=Names({"jms/greeter": GREETER}))


class TestTheKit(Peers):
    """What these tests are written with."""

    def test_hand_made_request(self, other: Connection, served: Dispatcher) -> None:
        """The request that these tests make by hand is one that the dispatcher accepts."""
        reply_to = other.temporary()
        with arrivals(other, reply_to) as found:
            message = request_message("greeter", reply_to)
            other.send(message)
            assert found.next().correlation_id == message.correlation_id
        assert served.counts["accepted"] == 1
