"""The dispatcher at work: workers, one-way messages, refused requests, what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Barrier, Event
from typing import Any

import pytest
from calling_kit import (
    GREETER,
    NS,
    PATIENCE,
    SOAP_12,
    URI,
    Peers,
    arrivals,
    element,
    envelope,
    eventually,
    greeter,
    request_message,
    take_one,
    text_of,
)
from lxml import etree
from places import DATA

import soapjms
from brokers import Connection, Destination, Message, MessageType, queue, topic
from brokers.embedded import Broker
from soapjms import Client, Dispatcher, Names, Request, Service
from soapjms.protocol import names, xml
from soapjms.protocol.envelope import as_envelope, read_fault
from soapjms.protocol.exchange import pair
from soapjms.protocol.record import Direction, Node, from_json

GREET = f"{{{NS}}}greetMe"
DEAD = queue("DLQ.greeter")
WSDL = DATA / "wsdl" / "echo-soap11.wsdl"


def serving(function: Callable[[Request], Any]) -> Service:
    """Make a service of one function."""
    service = Service()
    service.operation(GREET)(function)
    return service


def fault_in(message: Message) -> Any:
    """Return the fault that a message holds."""
    assert isinstance(message.body, bytes | str)
    return read_fault(as_envelope(xml.parse(message.body)))


class TestWorkers(Peers):
    """Requests worked on at a time."""

    def test_all_are_used(self, client: Client, other: Connection) -> None:
        """As many requests as there are workers are worked on at once."""
        together = Barrier(4)

        def greet(request: Request) -> None:
            together.wait(PATIENCE)  # four or none

        with Dispatcher(other, URI, serving(greet), workers=4):
            for future in [client.submit(envelope()) for _ in range(8)]:
                assert future.result(PATIENCE).fault is None

    def test_slow_request(self, client: Client, other: Connection) -> None:
        """A slow request holds up nobody; its answer comes when it is ready."""
        ready = Event()

        def greet(request: Request) -> etree._Element:
            if request.element.text == "slow":
                assert ready.wait(PATIENCE)
            return element("greetMeResponse", request.element.text or "")

        with Dispatcher(other, URI, serving(greet), workers=2) as dispatcher:
            slow = client.submit(envelope("slow"))
            for number in range(20):
                assert text_of(client.call(envelope(str(number)))) == str(number)
            assert not slow.done()
            eventually(lambda: dispatcher.counts["answered"] == 20, "the others were counted")
            ready.set()
            assert text_of(slow.result(PATIENCE)) == "slow"

    def test_topic(self, connection: Connection, other: Connection) -> None:
        """A topic's requests are answered once, however many workers were asked for."""
        calls = list[str]()

        def greet(request: Request) -> None:
            calls.append(request.name)

        with (
            Dispatcher(other, "jms:topic:news", serving(greet), workers=4) as dispatcher,
            Client(connection, "jms:topic:news", timeout=PATIENCE) as client,
        ):
            client.call(envelope())
            client.call(envelope())
            assert calls == [GREET, GREET]
            eventually(lambda: dispatcher.counts["answered"] == 2, "both were counted")
            assert client.counts == {}

    def test_jndi(self, connection: Connection, other: Connection) -> None:
        """The destination may be a JNDI name."""
        known = Names({"jms/greeter": GREETER})
        with Dispatcher(other, "jms:jndi:jms/greeter", greeter(), names=known) as dispatcher:
            assert dispatcher.destination == GREETER
            with Client(connection, URI, timeout=PATIENCE) as client:
                assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    def test_port(self, connection: Connection, other: Connection) -> None:
        """A WSDL's port may be served as it may be called."""
        port = soapjms.read_wsdl(WSDL).port()
        with (
            Dispatcher(other, port, greeter()) as dispatcher,
            Client(connection, port, timeout=PATIENCE) as client,
        ):
            assert dispatcher.destination.name == port.uri().destination
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    def test_jndi_environment(self, other: Connection) -> None:
        """Properties that are given count where a JNDI name is looked up."""
        properties = {"jndi-queue.jms/Greeter": "greeter"}
        known = Names.from_properties(
            text="java.naming.factory.initial = org.apache.activemq.jndi.ActiveMQInitialContextFactory"
        )
        dispatcher = Dispatcher(other, "jms:jndi:jms/Greeter", greeter(), names=known, properties=properties)
        assert dispatcher.destination == GREETER


class TestOneWay(Peers):
    """Messages without JMSReplyTo."""

    def test_accepted(self, client: Client, other: Connection, broker: Broker) -> None:
        """The function runs, nothing is sent, the message is accepted."""
        seen: list[Request] = []
        with Dispatcher(other, URI, serving(seen.append)) as dispatcher:
            client.send(envelope("Ann"))
            eventually(lambda: dispatcher.counts["commits"] == 1, "the message was accepted")
        assert seen[0].one_way
        assert dispatcher.counts == {"accepted": 1, "one-way": 1, "commits": 1}
        assert broker.depth(GREETER) == 0

    @pytest.mark.parametrize(
        ("error", "count"), [(ValueError("no"), "rejected"), (soapjms.SoapFaultError("no"), "commits")]
    )
    def test_failure(
        self,
        client: Client,
        other: Connection,
        broker: Broker,
        error: Exception,
        count: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """It is logged, as nobody waits for its fault: a message whose function failed is a dead letter, a fault that
        the function means is its answer.
        """

        def greet(request: Request) -> None:
            raise error

        with Dispatcher(other, URI, serving(greet)) as dispatcher:
            client.send(envelope("Ann"))
            eventually(lambda: dispatcher.counts[count] == 1, "the message was settled")
        assert "no" in caplog.text
        assert broker.depth(GREETER) == 0

    def test_refused(self, other: Connection, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
        """A message that breaks a rule is not worked on; as there is nobody to tell, it is a warning in the log."""
        seen: list[Request] = []
        with Dispatcher(other, URI, serving(seen.append)) as dispatcher:
            other.send(request_message("greeter", None, properties={names.CONTENT_TYPE: None}))
            eventually(lambda: dispatcher.counts["commits"] == 1, "the message was accepted")
        assert seen == []
        assert dispatcher.counts == {"refused": 1, "missingContentType": 1, "one-way": 1, "commits": 1}
        (line,) = [each for each in caplog.messages if "refused" in each]
        assert "SOAPJMS_contentType is missing" in line
        assert "missingContentType" in line

    def test_a_peer_writes_no_lines_of_the_log(self, other: Connection, caplog: pytest.LogCaptureFixture) -> None:
        """What the peer sent stands in the log in one line, whatever is in it."""
        kind = 'text/xml; charset="x\nERROR all is lost"'
        with Dispatcher(other, URI, greeter()) as dispatcher:
            other.send(request_message("greeter", None, properties={names.CONTENT_TYPE: kind}))
            eventually(lambda: dispatcher.counts["commits"] == 1, "the message was accepted")
        assert "all is lost" in caplog.text
        assert not any("\n" in each for each in caplog.messages)


class TestRefusedRequests(Peers):
    """Requests that break a rule are answered with the fault for it."""

    @pytest.mark.parametrize(
        ("changes", "subcode"),
        [
            ({names.BINDING_VERSION: "0.9"}, "unrecognizedBindingVersion"),
            ({names.REQUEST_URI: None}, "missingRequestURI"),
            ({names.REQUEST_URI: "jms:mail:a"}, "unsupportedLookupVariant"),
            ({names.CONTENT_TYPE: "text/plain"}, "contentTypeMismatch"),
        ],
    )
    def test_subcode(self, other: Connection, changes: dict[str, str | None], subcode: str) -> None:
        """The fault has the subcode of the rule, and is counted under it."""
        message = request_message("greeter", queue("answers"), properties=changes)
        with Dispatcher(other, URI, greeter()) as dispatcher:
            other.send(message)
            answer = take_one(other, queue("answers"))
        assert fault_in(answer).subcode == subcode
        assert answer.correlation_id == message.correlation_id
        assert answer.properties.value(names.IS_FAULT) is True
        assert dispatcher.counts == {"refused": 1, subcode: 1, "answered": 1, "commits": 1}

    def test_no_envelope(self, other: Connection) -> None:
        """A body that is no envelope is answered with a fault without subcode, as the binding has none."""
        with Dispatcher(other, URI, greeter()) as dispatcher:
            other.send(request_message("greeter", queue("answers"), b"<greetMe/>"))
            fault = fault_in(take_one(other, queue("answers")))
        assert (fault.subcode, dispatcher.counts["no envelope"]) == (None, 1)

    @pytest.mark.parametrize(("strict", "subcode"), [(False, None), (True, "unrecognizedBindingVersion")])
    def test_strict(self, other: Connection, strict: bool, subcode: str | None) -> None:
        """A strict dispatcher refuses what a liberal one lets pass: a request without bindingVersion."""
        with Dispatcher(other, URI, greeter(), strict=strict):
            other.send(request_message("greeter", queue("answers"), properties={names.BINDING_VERSION: None}))
            fault = fault_in(take_one(other, queue("answers")))
        assert (fault and fault.subcode) == subcode

    def test_tolerated(self, other: Connection) -> None:
        """What is let pass is counted, and the function sees which rules the request breaks."""
        seen: list[Request] = []
        with Dispatcher(other, URI, serving(seen.append)) as dispatcher:
            other.send(request_message("greeter", queue("answers"), properties={names.BINDING_VERSION: None}))
            take_one(other, queue("answers"))
            other.send(request_message("greeter", queue("answers")))
            take_one(other, queue("answers"))
        assert [[each.assertion for each in request.tolerated] for request in seen] == [["Protocol-2010"], []]
        assert dispatcher.counts["tolerated"] == 1

    @pytest.mark.parametrize("one_way", [False, True])
    def test_notes(self, other: Connection, one_way: bool) -> None:
        """The function sees what other stacks do that breaks no rule, and it stands nowhere else."""
        habits = {names.CONTENT_TYPE: "text/xml;;charset=utf-8", names.SOAP_ACTION: '"urn:a"', names.IS_FAULT: False}
        seen: SimpleQueue[Request] = SimpleQueue()
        reply_to = None if one_way else queue("answers")
        with Dispatcher(other, URI, serving(seen.put)) as dispatcher:
            other.send(request_message("greeter", reply_to, properties=habits))
            request = seen.get(timeout=PATIENCE)
            other.send(request_message("greeter", reply_to))
            assert seen.get(timeout=PATIENCE).notes == ()
        assert [code for code, _ in request.notes] == ["quotedSoapAction", "isFaultOnRequest", "emptyParameter"]
        assert all(text for _, text in request.notes)
        assert request.tolerated == ()
        assert dispatcher.counts["tolerated"] == 0

    def test_profile(self, other: Connection) -> None:
        """The profile says the namespace of a subcode."""
        with Dispatcher(other, URI, greeter(), profile=names.CR_2009):
            other.send(request_message("greeter", queue("answers"), properties={names.REQUEST_URI: None}))
            assert fault_in(take_one(other, queue("answers"))).namespace == names.CR_NAMESPACE

    def test_message_type(self, other: Connection) -> None:
        """A MapMessage is refused with unsupportedJMSMessageFormat, in a BytesMessage."""
        message = replace(request_message("greeter", queue("answers")), message_type=MessageType.MAP, body=None)
        with Dispatcher(other, URI, greeter()):
            other.send(message)
            answer = take_one(other, queue("answers"))
        assert fault_in(answer).subcode == "unsupportedJMSMessageFormat"
        assert answer.message_type is MessageType.BYTES


class TestReplyDestinations(Peers):
    """A request whose JMSReplyTo is not to be written to."""

    @pytest.mark.parametrize(
        "reply_to",
        [
            GREETER,
            topic("news"),
            queue("ActiveMQ.Advisory.Connection"),
            queue("DLQ.greeter"),
            queue("answers,greeter"),
        ],
    )
    def test_refused(self, client: Client, other: Connection, broker: Broker, reply_to: Destination) -> None:
        """It is not worked on, goes to the dead letters with the reason, and nothing is sent where it says."""
        seen: list[Request] = []
        message = request_message("greeter", reply_to)
        with arrivals(other, topic("news")) as news, Dispatcher(other, URI, serving(seen.append)) as dispatcher:
            other.send(message)
            eventually(lambda: broker.depth(DEAD) == 1, "the request is a dead letter")
            client.call(envelope())  # the worker goes on
            other.send(replace(message, destination=topic("news"), body=b"marker"))
            assert news.next().body == b"marker"
        assert len(seen) == 1
        assert (dispatcher.counts["reply refused"], dispatcher.counts["rejected"]) == (1, 1)
        letter = take_one(other, DEAD)
        assert letter.correlation_id == message.correlation_id
        assert "it must not be answered: JMSReplyTo is" in (letter.properties.text("dead_letter_reason") or "")


class TestRecording(Peers):
    """What the dispatcher's recorder gets."""

    def test_recorded(self, client: Client, other: Connection, tmp_path: Path) -> None:
        """Requests, responses and one-way messages, each with direction and node, pair into the exchanges made."""
        log = tmp_path / "log.jsonl"
        with (
            soapjms.Recorder(log) as recorder,
            Dispatcher(other, URI, greeter(), workers=1, recorder=recorder) as dispatcher,
        ):
            client.call(envelope("Ann", SOAP_12))
            client.send(envelope())
            eventually(lambda: dispatcher.counts["commits"] == 2, "both were accepted")
        records = [from_json(line) for line in log.read_text().splitlines()]
        assert [(each.direction, each.node) for each in records] == [
            (Direction.REQUEST, Node.RESPONDING),
            (Direction.RESPONSE, Node.RESPONDING),
            (Direction.ONE_WAY, Node.RECEIVING),
        ]
        (exchange,) = pair(records[:2])
        assert exchange.response is not None
        assert exchange.id == records[0].message.message_id
