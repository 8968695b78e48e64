"""The whole path: client, broker, dispatcher, service; on the embedded broker and on ActiveMQ over STOMP."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from calling_kit import (
    NS,
    PATIENCE,
    SOAP_11,
    SOAP_12,
    OnEachBroker,
    OnRealBrokers,
    answer_to,
    arrivals,
    element,
    envelope,
    eventually,
    fresh,
    greeter,
    request_message,
    responder,
    text_of,
)
from lxml import etree

import soapjms
from brokers import Connection, Destination, MessageType, queue, topic
from brokers.stomp import StompConnection
from soapjms import CallFailedError, Client, Dispatcher, Profile, Request, Service, SoapVersion
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting, VerdictOutcome, judge
from soapjms.protocol.exchange import exchanges_of
from soapjms.protocol.record import EPOCH, Direction, capture

CALLS = 1000
IN_FLIGHT = 32


class TestRequestResponse(OnEachBroker):
    """Calls and their answers."""

    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    @pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
    @pytest.mark.parametrize("profile", [names.REC_2012, names.CR_2009])
    def test_call(
        self,
        connection: Connection,
        other: Connection,
        uri: str,
        version: SoapVersion,
        message_type: MessageType,
        profile: Profile,
    ) -> None:
        """A response comes back in the request's SOAP version and message type, and nothing breaks a rule."""
        uri += "?timeToLive=60000&priority=6"
        with (
            Dispatcher(other, uri, greeter(), profile=profile) as dispatcher,
            Client(connection, uri, message_type=message_type, profile=profile) as client,
        ):
            response = client.call(envelope("Zoë", version), soap_action="urn:greetMe", timeout=PATIENCE)
            eventually(lambda: dispatcher.counts["answered"] == 1, "it was counted")
        assert text_of(response) == "Hello Zoë"
        assert response.envelope.version is version
        assert response.message.message_type is message_type
        assert response.message.priority == 6
        assert response.message.properties.text(names.IS_FAULT) == "false"
        assert response.message.properties.text(names.REQUEST_URI) == response.endpoint.request_uri
        # Which JMSMessageID the 2009 edition's response should repeat, the client may not know.
        broken = {verdict.assertion for verdict in response.findings()}
        assert broken - ({"Protocol-2038"} if profile is names.CR_2009 else set()) == set()
        assert dispatcher.counts == {"accepted": 1, "answered": 1, "commits": 1}
        assert client.counts == {}

    @pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
    def test_application_fault(self, connection: Connection, other: Connection, uri: str, version: SoapVersion) -> None:
        """A service's own fault arrives with its detail."""
        with Dispatcher(other, uri, greeter()), Client(connection, uri) as client:
            response = client.call(envelope("Ann", version, "fail"), timeout=PATIENCE)
        assert response.message.properties.text(names.IS_FAULT) == "true"
        with pytest.raises(soapjms.SoapFaultError, match="no such person") as caught:
            response.raise_for_fault()
        assert caught.value.detail.findtext(f"{{{NS}}}who") == "Ann"

    def test_one_connection(self, connection: Connection, uri: str) -> None:
        """Client and dispatcher may share a connection."""
        with Dispatcher(connection, uri, greeter()), Client(connection, uri, timeout=PATIENCE) as client:
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    def test_large_body(self, connection: Connection, other: Connection, uri: str) -> None:
        """A megabyte in both directions."""
        name = "x" * 1_000_000
        with Dispatcher(other, uri, greeter()), Client(connection, uri, timeout=PATIENCE) as client:
            assert text_of(client.call(envelope(name))) == f"Hello {name}"

    def test_many_calls(self, connection: Connection, other: Connection, uri: str) -> None:
        """A thousand calls of many threads at once each get their own answer."""
        with (
            Dispatcher(other, uri, greeter(), workers=8) as dispatcher,
            Client(connection, uri, timeout=60) as client,
            ThreadPoolExecutor(IN_FLIGHT) as threads,
        ):
            answers = threads.map(lambda number: text_of(client.call(envelope(str(number)))), range(CALLS))
            assert list(answers) == [f"Hello {number}" for number in range(CALLS)]
            eventually(lambda: dispatcher.counts["answered"] == CALLS, "all were counted")
        assert dispatcher.counts["commits"] <= CALLS
        assert (client.counts, client.under_way) == ({}, 0)

    def test_many_futures(self, connection: Connection, other: Connection, uri: str) -> None:
        """As many futures as one likes, from one thread; the same of two clients on one connection."""
        with (
            Dispatcher(other, uri, greeter(), workers=4),
            Client(connection, uri, timeout=60) as first,
            Client(connection, uri, timeout=60) as second,
        ):
            futures = [
                (f"Hello {number}", client.submit(envelope(str(number))))
                for number in range(100)
                for client in (first, second)
            ]
            for wanted, future in futures:
                assert text_of(future.result(PATIENCE)) == wanted


class TestBrokenService(OnEachBroker):
    """Functions that fail in whatever way: the caller is told, once, and the service goes on."""

    @pytest.mark.parametrize(
        ("fail", "reason"),
        [
            (lambda: sys.exit(3), "the service failed"),
            (lambda: raising(KeyboardInterrupt()), "the service failed"),
            (lambda: raising(soapjms.SoapFaultError(None)), "no reason given"),
            (lambda: raising(soapjms.SoapFaultError(ValueError("too late"))), "too late"),
            (lambda: raising(soapjms.SoapFaultError("no", blame=["Sender"])), "the service failed"),  # type: ignore[arg-type]
        ],
        ids=["SystemExit", "KeyboardInterrupt", "no reason", "exception as reason", "unknown blame"],
    )
    def test_answered_once(
        self, connection: Connection, other: Connection, uri: str, fail: Callable[[], None], reason: str
    ) -> None:
        """The function runs once, and its caller gets a fault at once."""
        runs = list[str]()
        service = greeter()

        @service.operation(f"{{{NS}}}breakMe")
        def break_me(request: Request) -> None:
            runs.append(request.name)
            fail()

        with (
            Dispatcher(other, uri, service, workers=1) as dispatcher,
            Client(connection, uri, timeout=PATIENCE) as client,
        ):
            fault = client.call(envelope(operation="breakMe")).fault
            assert fault is not None
            assert fault.reason == reason
            assert text_of(client.call(envelope("Ann"))) == "Hello Ann"
            eventually(lambda: dispatcher.counts["answered"] == 2, "both were counted")
            assert dispatcher.counts["accepted"] == dispatcher.counts["commits"] == 2
        assert len(runs) == 1


def raising(error: BaseException) -> None:
    """Raise an error, where a statement has no place."""
    raise error


class TestReplies(OnEachBroker):
    """Reply destinations."""

    def test_edition_2009(self, connection: Connection, other: Connection, uri: str) -> None:
        """A response that repeats the JMSMessageID, which the client may not know, finds its caller too."""
        with (
            Dispatcher(other, uri, greeter(), workers=8, profile=names.CR_2009),
            Client(connection, uri, profile=names.CR_2009, timeout=60) as client,
            ThreadPoolExecutor(8) as threads,
        ):
            answers = threads.map(lambda number: text_of(client.call(envelope(str(number)))), range(200))
            assert list(answers) == [f"Hello {number}" for number in range(200)]
            assert client.counts == {}

    @pytest.mark.parametrize(
        "reply_to", [None, topic("news"), queue("ActiveMQ.Advisory.Queue"), queue("a,ActiveMQ.DLQ")]
    )
    def test_forbidden(
        self,
        connection: Connection,
        other: Connection,
        name: str,
        uri: str,
        reply_to: Destination | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A request that would have its answer written elsewhere is a dead letter; None stands for its own queue.

        The log says why, and which option would let it go there.
        """
        message = request_message(name, reply_to or queue(name))
        with (
            Dispatcher(other, uri, greeter()) as dispatcher,
            arrivals(connection, queue(f"DLQ.{name}")) as letters,
        ):
            connection.send(message).result(PATIENCE)
            assert letters.next().correlation_id == message.correlation_id
        assert dispatcher.counts == {"reply refused": 1, "rejected": 1}
        said = [each.getMessage() for each in caplog.records if "must not be answered" in each.getMessage()]
        assert said
        assert ("reply_topics=True" in said[0]) is (reply_to == topic("news"))

    def test_fixed(self, connection: Connection, other: Connection, uri: str) -> None:
        """Replies come to the queue that `replyToName` names."""
        answers = fresh("answers")
        with (
            Dispatcher(other, uri, greeter()),
            Client(connection, f"{uri}?replyToName={answers}", timeout=PATIENCE) as client,
        ):
            response = client.call(envelope("Ann"))
        assert text_of(response) == "Hello Ann"
        assert response.message.destination == queue(answers)

    def test_to_a_topic(self, connection: Connection, other: Connection, uri: str) -> None:
        """A service that allows it answers to the topic that `topicReplyToName` names, where others listen too."""
        answers = fresh("answers")
        with (
            Dispatcher(other, uri, greeter(), reply_topics=[answers]) as dispatcher,
            Client(connection, f"{uri}?topicReplyToName={answers}", timeout=PATIENCE) as client,
            arrivals(other, topic(answers)) as listener,
        ):
            response = client.call(envelope("Ann"))
            assert listener.next().correlation_id == response.message.correlation_id
            eventually(lambda: dispatcher.counts["answered"] == 1, "it was counted")
        assert text_of(response) == "Hello Ann"
        assert (response.request.reply_to, response.message.destination) == (topic(answers), topic(answers))
        assert response.findings() == ()
        records = capture(response.request, EPOCH, Direction.REQUEST), capture(response.message, EPOCH)
        (exchange,) = exchanges_of(records)
        verdicts = judge(exchange, Setting(properties=response.endpoint.properties))
        passed = {each.assertion for each in verdicts if each.outcome is VerdictOutcome.PASSED}
        assert passed >= {"Protocol-2037", "Protocol-2070"}
        assert dispatcher.counts == {"accepted": 1, "answered": 1, "commits": 1}

    def test_by_topic(self, connection: Connection, other: Connection, name: str, uri: str) -> None:
        """Replies may come by the topic that `topicReplyToName` names, from a service that sends there."""
        with (
            responder(other, queue(name), lambda request: [answer_to(request, "by topic")]),
            Client(connection, f"{uri}?topicReplyToName={fresh('answers')}", timeout=PATIENCE) as client,
        ):
            assert text_of(client.call(envelope())) == "by topic"

    def test_late_second_and_foreign(self, connection: Connection, other: Connection, name: str, uri: str) -> None:
        """Replies that are nobody's are counted, and handed to nobody."""
        with arrivals(other, queue(name)) as found, Client(connection, uri, timeout=PATIENCE) as client:
            with pytest.raises(soapjms.CallTimeoutError):
                client.call(envelope("late"), timeout=0.5, expires=None)
            future = client.submit(envelope("in time"))
            late, request = found.take(2)
            other.send(answer_to(late, "late"))
            other.send(answer_to(request, "foreign", correlation_id="foreign"))
            other.send(answer_to(request, "first"))
            other.send(answer_to(request, "second"))
            assert text_of(future.result(PATIENCE)) == "first"
            eventually(lambda: client.counts == {"late": 1, "duplicate": 1, "unknown": 1}, "all were counted")

    def test_client_that_left(self, url: str, connection: Connection, other: Connection, uri: str) -> None:
        """A reply to a client that is gone takes nothing else down."""
        begun, gone = Event(), Event()

        def greet(request: Request) -> etree._Element:
            begun.set()
            assert gone.wait(PATIENCE)
            return element("greetMeResponse", f"Hello {request.element.text}")

        service = Service()
        service.operation(f"{{{NS}}}greetMe")(greet)
        leaving = soapjms.connect(url)
        with (
            Dispatcher(other, uri, service, workers=4) as dispatcher,
            Client(connection, uri, timeout=PATIENCE) as client,
        ):
            Client(leaving, uri).submit(envelope("nobody"))
            futures = [client.submit(envelope(name)) for name in ("Ann", "Bob", "Cem")]
            assert begun.wait(PATIENCE)
            leaving.close()
            gone.set()
            for future, name in zip(futures, ("Ann", "Bob", "Cem"), strict=True):
                assert text_of(future.result(PATIENCE)) == f"Hello {name}"
            assert text_of(client.call(envelope("Dan"))) == "Hello Dan"
            if other.capabilities.tells_gone:
                eventually(lambda: dispatcher.counts["client gone"] == 1, "the lost answer was counted")


class TestOneWay(OnEachBroker):
    """Messages that nobody answers."""

    @pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    def test_sent(
        self, connection: Connection, other: Connection, uri: str, version: SoapVersion, message_type: MessageType
    ) -> None:
        """A one-way message reaches its function, once."""
        seen: list[Request] = []
        service = Service()
        service.operation(f"{{{NS}}}pingMe")(seen.append)
        with (
            Dispatcher(other, uri, service) as dispatcher,
            Client(connection, uri, message_type=message_type) as client,
        ):
            client.send(envelope("Ann", version, "pingMe"))
            eventually(lambda: dispatcher.counts["commits"] == 1, "it was accepted")
        (request,) = seen
        assert (request.element.text, request.one_way, request.envelope.version) == ("Ann", True, version)
        assert request.message.message_type is message_type
        assert request.message.reply_to is None


class TestSelectors(OnRealBrokers):
    """What needs selectors."""

    def test_fixed_and_shared(self, connection: Connection, other: Connection, uri: str) -> None:
        """Two clients may share a fixed reply queue as the broker has selectors."""
        fixed = f"{uri}?replyToName={fresh('answers')}"
        with (
            Dispatcher(other, uri, greeter()),
            Client(connection, fixed, timeout=PATIENCE) as first,
            Client(other, fixed, timeout=PATIENCE) as second,
        ):
            for number in range(10):
                for client in (first, second):
                    assert text_of(client.call(envelope(str(number)))) == f"Hello {number}"
            assert first.counts == second.counts == {}


class TestLostConnection(OnRealBrokers):
    """The network fails, over STOMP."""

    def test_of_the_client(self, connection: Connection, other: Connection, uri: str) -> None:
        """Calls under way fail when the connection is lost; later ones wait until it is made again."""
        with Client(connection, uri, timeout=PATIENCE) as client:
            futures = [client.submit(envelope()) for _ in range(3)]
            cut(connection)
            for future in futures:
                with pytest.raises(CallFailedError, match=r"the connection .*was lost.*is not known"):
                    future.result(PATIENCE)
            with Dispatcher(other, uri, greeter()):
                assert text_of(client.call(envelope("Ann"))) == "Hello Ann"

    def test_of_the_dispatcher(self, url: str, connection: Connection, uri: str) -> None:
        """A request that was worked on when the connection was lost is delivered again, and answered."""
        begun, lost = Event(), Event()

        def greet(request: Request) -> None:
            begun.set()
            assert lost.wait(PATIENCE)

        service = Service()
        service.operation(f"{{{NS}}}greetMe")(greet)
        with Client(connection, uri, timeout=PATIENCE) as client:
            with soapjms.connect(url, reconnect=False) as first, Dispatcher(first, uri, service) as dispatcher:
                future = client.submit(envelope("Ann"))
                assert begun.wait(PATIENCE)
                cut(first)
                lost.set()
                eventually(lambda: dispatcher.counts["lost"] == 1, "it was counted")
            assert not future.done()
            with soapjms.connect(url) as second, Dispatcher(second, uri, greeter()):
                assert text_of(future.result(PATIENCE)) == "Hello Ann"


def cut(connection: Connection) -> None:
    """Cut the network connection, as a failing network would."""
    assert isinstance(connection, StompConnection)
    connection._link.drop()
