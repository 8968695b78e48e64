"""WS-Addressing over JMS: what a client writes and checks, where a service answers to, and within which bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from calling_kit import NS, PATIENCE, OnEachBroker, arrivals, element, envelope, eventually, greeter, text_of
from lxml import etree
from zeep.plugins import HistoryPlugin
from zeep.wsa import WsAddressingPlugin
from zeep_kit import CXF_NS, ECHO, echo, gallery_wsdl, written

import soapjms
import soapjms.zeep
from brokers import Connection, Message, queue
from brokers.embedded import Broker
from soapjms import CallFailedError, Client, Dispatcher, Reply, Request, Service, Services, SoapVersion, UsageError
from soapjms.protocol.envelope import Envelope, Fault, as_envelope, read_fault
from soapjms.protocol.wsa import WSA_2004, WSA_2005, Edition

URI = "jms:queue:greeter"
ACTION = "urn:greeter:greetMe"
FRAME = '<g:frame xmlns:g="urn:gallery"><g:title>Dusk</g:title></g:frame>'


def with_headers(
    inside: str, edition: Edition = WSA_2005, operation: str = "greetMe", version: SoapVersion = SoapVersion.SOAP_11
) -> bytes:
    """Write a request with addressing headers."""
    header = f'<e:Header xmlns:a="{edition.namespace}">{inside}</e:Header><e:Body>'
    return envelope("Ann", version, operation).replace(b"<e:Body>", header.encode())


def headers(address: str = "", faults: str = "", *, action: str = ACTION, more: str = "") -> str:
    """Write an Action, an id, and where answers go."""
    written = f"<a:Action>{action}</a:Action><a:MessageID>urn:1</a:MessageID>{more}"
    for name, each in (("ReplyTo", address), ("FaultTo", faults)):
        if each:
            written += f"<a:{name}><a:Address>{each}</a:Address></a:{name}>"
    return written


def said(envelope: Envelope, edition: Edition = WSA_2005) -> dict[str, str | None]:
    """Return the addressing headers of a message by name."""
    assert envelope.header is not None
    found = [each for each in envelope.header if etree.QName(each).namespace == edition.namespace]
    return {etree.QName(each).localname: each.text for each in found}


def read(message: Message) -> Envelope:
    assert isinstance(message.body, bytes | memoryview)
    return as_envelope(etree.fromstring(bytes(message.body)))


def service(**options: Any) -> Service:
    """Make a service that says hello by its action, or fails."""
    made = Service(**{"addressing": True} | options)

    @made.operation(f"{{{NS}}}greetMe", action=ACTION)
    def greet(request: Request) -> etree._Element:
        return element("said", f"Hello {request.addressing and request.addressing.message_id}")

    @made.operation(f"{{{NS}}}fail")
    def fail(request: Request) -> None:
        raise soapjms.SoapFaultError("no such person", blame="Sender")

    @made.operation(f"{{{NS}}}break")
    def fail_itself(request: Request) -> None:
        raise ConnectionError

    return made


class TestOnBrokers(OnEachBroker):
    """Client and service."""

    def test_calls(self, connection: Connection, other: Connection, uri: str) -> None:
        """The answer relates to the request; so does a fault: of a function, of a failure, for an unknown operation."""
        with Dispatcher(other, uri, service()), Client(connection, uri, addressing=True, timeout=PATIENCE) as client:
            response = client.call(envelope(), soap_action=ACTION)
            request = said(read(response.request))
            assert set(request) == {"Action", "MessageID", "To", "ReplyTo"}
            assert (request["Action"], request["To"]) == (ACTION, uri)
            assert text_of(response) == f"Hello {request['MessageID']}"
            answer = said(response.envelope)
            assert (answer["Action"], answer["RelatesTo"]) == (f"{ACTION}Response", request["MessageID"])
            assert answer["To"] == WSA_2005.anonymous
            assert answer["MessageID"] not in (None, request["MessageID"])
            for operation, action in (("fail", WSA_2005.soap_fault_action), ("break", WSA_2005.soap_fault_action)):
                response = client.call(envelope(operation=operation), soap_action="urn:other")
                assert response.fault is not None
                answer = said(response.envelope)
                assert (answer["Action"], answer["RelatesTo"]) == (action, said(read(response.request))["MessageID"])
            response = client.call(envelope(operation="unknown"), soap_action="urn:other")
            assert response.fault is not None
            assert response.fault.subcodes == (WSA_2005.tag("ActionNotSupported"),)
            assert said(response.envelope)["Action"] == WSA_2005.fault_action
            client.send(envelope(), soap_action=ACTION)

    def test_reply_and_fault_elsewhere(self, connection: Connection, other: Connection, uri: str, name: str) -> None:
        """Answers go to the queue that ReplyTo names, faults to that of FaultTo, with JMSReplyTo and without."""
        answers, faults = queue(f"{name}.answers"), queue(f"{name}.faults")
        ends = headers(f"jms:queue:{answers.name}", f"jms:queue:{faults.name}")
        with (
            Dispatcher(other, uri, service()),
            Client(connection, uri, timeout=PATIENCE) as client,
            arrivals(connection, answers) as answered,
            arrivals(connection, faults) as failed,
        ):
            client.send(with_headers(ends), soap_action=ACTION)
            assert said(read(answered.next()))["RelatesTo"] == "urn:1"
            client.send(with_headers(ends.replace(ACTION, "urn:other"), operation="fail"))
            fault = read_fault(read(failed.next()))
            assert fault is not None
            assert fault.reason == "no such person"
            future = client.submit(with_headers(ends), soap_action=ACTION)
            assert said(read(answered.next()))["To"] == f"jms:queue:{answers.name}"
            assert not future.done()
            future.cancel()


@pytest.fixture
def connection() -> Iterator[Connection]:
    with Broker().connect() as connection:
        yield connection


@pytest.fixture
def ask(connection: Connection) -> Callable[..., Any]:
    """Call a service with an envelope."""

    def ask(body: bytes, made: Service | None = None, soap_action: str | None = None, **options: Any) -> Any:
        with (
            Dispatcher(connection, URI, made or service(), **options),
            Client(connection, URI, timeout=PATIENCE) as client,
        ):
            return client.call(body, soap_action=soap_action)

    return ask


class TestService:
    """What a service makes of headers."""

    def refusal(self, response: Any) -> str:
        """Return the last subcode of a fault, which relates to the request if that has one id."""
        fault = response.fault
        assert isinstance(fault, Fault), response.message.body
        assert said(response.envelope)["Action"] == WSA_2005.fault_action
        found: str = fault.subcodes[-1]
        return found.rpartition("}")[2]

    @pytest.mark.parametrize("version", SoapVersion)
    @pytest.mark.parametrize(
        ("inside", "code"),
        [
            (headers(action="x"), "ActionMismatch"),
            (headers(more="<a:MessageID>urn:2</a:MessageID>"), "InvalidCardinality"),
            (f"<a:Action>{ACTION}</a:Action>", "MessageAddressingHeaderRequired"),
            ("<a:MessageID>urn:1</a:MessageID>", "MessageAddressingHeaderRequired"),
            (headers("http://elsewhere.example/"), "InvalidAddress"),
            (headers("jms:jndi:jms/Answers"), "InvalidAddress"),
            (headers("jms:queue:"), "InvalidAddress"),
            (headers("jms:queue:greeter"), "InvalidAddress"),
            (headers("jms:queue:DLQ.x"), "InvalidAddress"),
            (headers("jms:queue:a,b"), "InvalidAddress"),
            (headers("jms:topic:news"), "InvalidAddress"),
            (headers(faults="jms:topic:news"), "InvalidAddress"),
        ],
    )
    def test_refused(self, ask: Callable[..., Any], inside: str, code: str, version: SoapVersion) -> None:
        """What is wrong is answered with its fault, at JMSReplyTo."""
        response = ask(with_headers(inside, version=version), soap_action=ACTION)
        assert self.refusal(response) == code
        assert response.fault.as_error().blame in ("Sender", "Receiver")

    def test_allowed(self, ask: Callable[..., Any], connection: Connection) -> None:
        """The lists that hold for JMSReplyTo hold for ReplyTo; what is refused runs nothing."""
        runs: list[int] = []

        def noting(request: Request, call_next: Any) -> Any:
            runs.append(1)
            return call_next(request)

        body = with_headers(headers("jms:queue:mine"))
        response = ask(body, service(middleware=[noting]), reply_queues=["other"])
        assert self.refusal(response) == "InvalidAddress"
        assert "reply_queues does not allow" in response.fault.reason
        assert runs == []
        with (
            Dispatcher(connection, URI, service(), reply_queues=["mine"], reply_topics=["news"]),
            Client(connection, URI) as client,
            arrivals(connection, queue("mine")) as mine,
        ):
            client.send(body)
            mine.next()

    def test_nowhere(self, connection: Connection) -> None:
        """The address none means that nothing is sent; the request is accepted."""
        with (
            Dispatcher(connection, URI, service()) as dispatcher,
            Client(connection, URI, timeout=PATIENCE) as client,
            arrivals(connection, queue("faults")) as faults,
        ):
            future = client.submit(with_headers(headers(WSA_2005.none)))
            eventually(lambda: dispatcher.counts["accepted"] == 1 and dispatcher.under_way == 0, "it was worked on")
            assert not future.done()
            client.send(with_headers(headers(WSA_2005.none, "jms:queue:faults"), operation="greetMe"))
            client.send(with_headers(headers(WSA_2005.none, "jms:queue:faults", action="x"), operation="fail"))
            assert read_fault(read(faults.next())) is not None
            eventually(lambda: dispatcher.counts["accepted"] == 3 and dispatcher.under_way == 0, "all were worked on")
            future.cancel()

    def test_refused_one_way(self, connection: Connection) -> None:
        """A one-way message with wrong headers is not run, and nobody is told."""
        with Dispatcher(connection, URI, service()) as dispatcher, Client(connection, URI) as client:
            client.send(with_headers(headers(more="<a:To/>")))
            eventually(lambda: dispatcher.counts["InvalidAddressingHeader"] == 1, "it is refused")

    def test_old_edition(self, ask: Callable[..., Any]) -> None:
        """Who speaks the edition of 2004 is answered in it."""
        body = with_headers(headers(WSA_2004.anonymous), WSA_2004)
        response = ask(body)
        assert text_of(response) == "Hello urn:1"
        assert said(response.envelope, WSA_2004)["RelatesTo"] == "urn:1"
        response = ask(with_headers(headers(more="<a:Action>x</a:Action>"), WSA_2004))
        assert response.fault.subcodes == (WSA_2004.tag("InvalidMessageInformationHeader"),)

    def test_required(self, ask: Callable[..., Any]) -> None:
        """Without headers a service that asks for them refuses; one that does not answers without."""
        assert self.refusal(ask(envelope(), service(addressing="required"))) == "MessageAddressingHeaderRequired"
        response = ask(envelope())
        assert text_of(response) == "Hello None"
        assert response.envelope.header is None

    def test_understood(self, ask: Callable[..., Any]) -> None:
        """Headers that must be understood are, if the service has `addressing`; in one of several services too."""
        body = with_headers(headers().replace("<a:Action>", '<a:Action e:mustUnderstand="1">'))
        assert text_of(ask(body)) == "Hello urn:1"
        assert (
            text_of(ask(body, Services({"a": service()}), middleware=[lambda request, go: go(request)]))
            == "Hello urn:1"
        )
        assert ask(body, greeter()).fault.code.endswith("MustUnderstand")

    def test_dispatch(self, ask: Callable[..., Any]) -> None:
        """Without SOAPJMS_soapAction the Action says which operation; that of the properties counts over it."""
        made = Service()
        made.operation(f"{{{NS}}}greetMe", action="urn:a")(lambda request: element("said", "a"))
        made.operation(f"{{{NS}}}greetMe", action="urn:b")(lambda request: element("said", "b"))
        assert text_of(ask(with_headers(headers(action="urn:b")), made)) == "b"
        assert text_of(ask(with_headers(headers(action="urn:b")), made, soap_action="urn:a")) == "a"
        assert text_of(ask(with_headers(headers(action="urn:b")), Services({"a": made, "b": greeter()}))) == "b"

    def test_reply_action(self, ask: Callable[..., Any]) -> None:
        """An operation may say what its answers are called; one that writes the headers itself is left alone."""
        made = Service(addressing=True)
        relates = etree.Element(WSA_2005.tag("RelatesTo"))
        relates.text = "urn:mine"
        made.operation(f"{{{NS}}}greetMe", reply_action="urn:greeted")(lambda request: None)
        made.operation(f"{{{NS}}}own")(lambda request: Reply(None, headers=[relates]))
        assert said(ask(with_headers(headers()), made).envelope)["Action"] == "urn:greeted"
        assert said(ask(with_headers(headers(), operation="own"), made).envelope) == {"RelatesTo": "urn:mine"}

    def test_answered_from_the_store(self, connection: Connection, tmp_path: Any) -> None:
        """A request delivered again is answered where its headers say."""
        faults = f"jms:queue:{uuid4().hex}"
        runs: list[int] = []
        made = Service(addressing=True)

        @made.operation(f"{{{NS}}}greetMe")
        def fail(request: Request) -> Any:
            runs.append(1)
            return soapjms.SoapFaultError("no")

        store = str(tmp_path / "s.db")
        with arrivals(connection, queue(faults.removeprefix("jms:queue:"))) as failed:
            with Dispatcher(connection, URI, made, store=store), Client(connection, URI) as client:
                client.send(with_headers(headers("jms:queue:answers", faults)))
                sent = failed.next()
            again = Dispatcher(connection, URI, made, store=store)
            with Client(connection, URI) as client, again:
                client.send(with_headers(headers("jms:queue:answers", faults)))
                assert read_fault(read(failed.next())) is not None
        assert sent.destination == queue(faults.removeprefix("jms:queue:"))
        assert len(runs) == 2

    @pytest.mark.parametrize("wrong", ["yes", 1.5, None])
    def test_option(self, wrong: Any) -> None:
        with pytest.raises(UsageError, match="addressing must be True, False, or 'required', got "):
            Service(addressing=wrong)


class TestClient:
    """What a client writes and checks."""

    def test_no_action(self, connection: Connection) -> None:
        with Client(connection, URI, addressing=True) as client, pytest.raises(UsageError, match="needs an action"):
            client.call(envelope())

    def test_its_own_headers(self, connection: Connection) -> None:
        """What the envelope has stays."""
        with (
            Dispatcher(connection, URI, service()),
            Client(connection, URI, properties={"soapAction": "urn:a"}, addressing=True, timeout=PATIENCE) as client,
        ):
            response = client.call(with_headers("<a:MessageID>urn:mine</a:MessageID>"))
            assert said(read(response.request))["Action"] == "urn:a"
            assert said(response.envelope)["RelatesTo"] == "urn:mine"

    def test_of_another_request(self, connection: Connection) -> None:
        """A response that relates to another request is refused."""
        wrong = etree.Element(WSA_2005.tag("RelatesTo"))
        wrong.text = "urn:other"
        made = Service()
        made.operation(f"{{{NS}}}greetMe")(lambda request: Reply(element("said", "x"), headers=[wrong]))
        with (
            Dispatcher(connection, URI, made),
            Client(connection, URI, addressing=True, timeout=PATIENCE) as client,
        ):
            with pytest.raises(CallFailedError, match="relates to urn:other, and the request was urn:uuid:") as caught:
                client.call(envelope(), soap_action=ACTION)
            assert caught.value.reason == "receptionFailure"
        with Dispatcher(connection, URI, made), Client(connection, URI, timeout=PATIENCE) as client:
            assert text_of(client.call(envelope(), soap_action=ACTION)) == "x"


class TestZeep:
    """zeep's plugin, and `addressing=True`."""

    @pytest.fixture
    def typed(self) -> Service:
        made = Service.from_wsdl(ECHO[SoapVersion.SOAP_11], addressing="required")
        made.operation("greetMe")(lambda requestType: f"Hello {requestType}")
        return made

    def service_of(self, client: Any) -> Any:
        return client.create_service(next(iter(client.wsdl.bindings)), URI)

    def test_plugin(self, connection: Connection, typed: Service) -> None:
        """It works as over HTTP, and the answer relates to its MessageID."""
        history = HistoryPlugin()
        options: dict[str, Any] = {"connection": connection, "operation_timeout": PATIENCE}
        plugins = [WsAddressingPlugin(URI), history]
        with (
            Dispatcher(connection, URI, typed),
            soapjms.zeep.Client(ECHO[SoapVersion.SOAP_11], plugins=plugins, **options) as client,
        ):
            assert self.service_of(client).greetMe("World") == "Hello World"
        sent, received = (said(as_envelope(each["envelope"])) for each in (history.last_sent, history.last_received))
        assert received["RelatesTo"] == sent["MessageID"]
        assert str(received["Action"]).startswith(CXF_NS)
        assert str(received["Action"]).endswith("greetMeResponse")

    @pytest.mark.parametrize(
        ("attribute", "action"),
        [
            ('a:Action="urn:framed" xmlns:a="http://www.w3.org/2007/05/addressing/metadata"', "urn:framed"),
            ('name="Framed"', "urn:gallery:Gallery:Framed"),
            ("", "urn:gallery:Gallery:frameResponse"),
        ],
    )
    def test_what_the_wsdl_says(self, connection: Connection, tmp_path: Path, attribute: str, action: str) -> None:
        """The Action of an answer is that of the output, or made of the names in the WSDL."""
        text = gallery_wsdl().replace(
            '<wsdl:output message="g:framed"/>', f'<wsdl:output message="g:framed" {attribute}/>'
        )
        made = Service.from_wsdl(written(tmp_path, text), addressing=True)
        made.operation("frame")(lambda title, picture: {"title": title})
        body = envelope().replace(b'<greetMe xmlns="urn:greeter">World</greetMe>', FRAME.encode())
        with Dispatcher(connection, URI, made), Client(connection, URI, addressing=True, timeout=PATIENCE) as client:
            response = client.call(body, soap_action="urn:gallery/frame")
            assert response.fault is None, response.fault
            assert said(response.envelope)["Action"] == action

    def test_option(self, connection: Connection) -> None:
        """Headers are written by `addressing=True`, for asyncio too."""
        made = echo()
        seen: list[Any] = []

        def looking(request: Request, call_next: Any) -> Any:
            seen.append(said(request.envelope)["Action"])
            return call_next(request)

        options: dict[str, Any] = {"connection": connection, "operation_timeout": PATIENCE, "addressing": True}

        async def main() -> None:
            async with soapjms.zeep.AsyncClient(path, **options) as client:
                assert await self.service_of(client).greetMe("World") == "Hello World"

        path = ECHO[SoapVersion.SOAP_11]
        with Dispatcher(connection, URI, made, middleware=[looking]):
            asyncio.run(main())
            with soapjms.zeep.Client(path, **options) as client:
                operation = next(iter(client.wsdl.bindings.values())).get("greetMe")
                operation.soapaction, operation.abstract.wsa_action = "", "urn:of-the-port-type"
                assert self.service_of(client).greetMe("World") == "Hello World"
            with soapjms.zeep.Client(path, properties={"soapAction": "urn:set"}, **options) as client:
                assert self.service_of(client).greetMe("World") == "Hello World"
        assert seen == ["urn:soapjms:echo/greetMe", "urn:of-the-port-type", "urn:set"]
