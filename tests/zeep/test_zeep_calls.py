"""Calls through zeep: values, faults, headers, plugins, WS-Security, settings, errors; on both kinds of broker."""

from __future__ import annotations

import asyncio
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zeep
import zeep.exceptions
from calling_kit import PATIENCE, SOAP_11, SOAP_12, OnEachBroker, answer_to, eventually, responder
from lxml import etree
from places import ROOT
from prometheus_client import CollectorRegistry
from zeep.plugins import HistoryPlugin
from zeep.wsse import UsernameToken
from zeep_kit import CXF_NS, ECHO, NS, echo, gallery_wsdl, made, written

import soapjms
from brokers import Connection, Message, queue
from brokers.embedded import Broker
from brokers.message import Property, PropertyType
from soapjms import CR_2009, REC_2012, CallTimeoutError, Dispatcher, Profile, Request, Service, SoapVersion, UsageError
from soapjms.prometheus import Metrics
from soapjms.protocol import names
from soapjms.protocol.names import FailureReason
from soapjms.zeep import (
    ArgumentsError,
    AsyncClient,
    Client,
    JmsFaultError,
    JmsTimeoutError,
    JmsTransport,
    JmsTransportError,
)

BOTH = [SOAP_11, SOAP_12]
ACTIONS = {SOAP_11: '"urn:gallery/frame"', SOAP_12: "urn:gallery/frame"}
"""As CXF writes it: it quotes with SOAP 1.1 only."""


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Return a connection to a broker of the test's own."""
    with Broker("gallery").connect() as connection:
        yield connection


class TestCxf(OnEachBroker):
    """The WSDLs that Apache CXF publishes, each operation of them, in both SOAP versions."""

    @pytest.mark.parametrize("plain", [False, True], ids=["soapjms.zeep.Client", "zeep.Client"])
    @pytest.mark.parametrize("version", BOTH)
    def test_each_operation(
        self, connection: Connection, other: Connection, name: str, version: SoapVersion, plain: bool, tmp_path: Path
    ) -> None:
        """Values in, values out; one-way; the declared fault."""
        text = ECHO[version].read_text(encoding="utf-8")
        address = text.partition('location="')[2].partition('"')[0]
        path = written(tmp_path, text.replace(address, f"jms:queue:{name}?timeToLive=60000"))
        with Dispatcher(other, f"jms:queue:{name}", echo()), JmsTransport(connection, operation_timeout=PATIENCE) as to:
            client = zeep.Client(str(path), transport=to) if plain else Client(path, transport=to)
            assert client.service.greetMe("Zoë") == "Hello Zoë"
            assert client.service.greetMe(requestType=None) == "Hello None"
            assert client.service.pingMe("there") is None
            eventually(lambda: client.service.pingCount() == 1, "the ping was counted")
            with pytest.raises(zeep.exceptions.Fault, match="it was asked for") as caught:
                client.service.testFault("broken")
        fault = caught.value
        assert fault.code == ("env:Client" if version is SOAP_11 else "env:Sender")
        detail = client.wsdl.types.deserialize(fault.detail[0])
        assert (detail.code, detail.reason) == (7, "broken")
        assert (fault.subcode, fault.subcodes, fault.response.envelope.version) == (None, [], version)
        assert fault.response.findings() == ()


def gallery() -> Service:
    """Make the service: it greets its visitor in a header, and frames titles."""
    service = Service()

    @service.operation(f"{{{NS}}}frame")
    def frame(request: Request) -> etree._Element:
        root = etree.fromstring(
            f'<e:Envelope xmlns:e="{request.envelope.version.namespace}"><e:Header/><e:Body/></e:Envelope>'
        )
        visitor = None if request.envelope.header is None else request.envelope.header.findtext(f"{{{NS}}}visitor")
        etree.SubElement(root[0], f"{{{NS}}}guard").text = f"for {visitor}"
        root[1].append(made("framed", title=f"[{request.findtext(f'{{{NS}}}title')}]"))
        return root

    @service.operation(f"{{{NS}}}hang")
    def hang(request: Request) -> etree._Element:
        return made("hung", place=request.findtext(f".//{{{NS}}}year", "?"))

    return service


class Gallery:
    """A gallery on the embedded broker, its WSDL in a file."""

    @pytest.fixture(params=BOTH)
    def version(self, request: pytest.FixtureRequest) -> SoapVersion:
        return SoapVersion(request.param)

    @pytest.fixture
    def path(self, tmp_path: Path, version: SoapVersion) -> Path:
        return written(tmp_path, gallery_wsdl(version=version))

    @pytest.fixture
    def served(self, connection: Connection) -> Iterator[Dispatcher]:
        with Dispatcher(connection, "jms:queue:gallery", gallery()) as dispatcher:
            yield dispatcher


@pytest.mark.usefixtures("served")
class TestZeepsFeatures(Gallery):
    """What people use of zeep."""

    def test_soap_headers(self, connection: Connection, path: Path) -> None:
        """Declared ones by name, both ways; any as elements; default ones for all calls."""
        with Client(path, connection=connection) as client:
            said = client.service.frame("Dusk", _soapheaders={"visitor": "Ann"})
            assert (said.header.guard, said.body.title) == ("for Ann", "[Dusk]")
            element = etree.Element(f"{{{NS}}}visitor")
            element.text = "Bob"
            assert client.service.frame("Dusk", _soapheaders=[element]).header.guard == "for Bob"
            client.set_default_soapheaders({"visitor": "Cem"})
            assert client.service.frame("Dusk").header.guard == "for Cem"

    def test_plugins_and_history(self, connection: Connection, path: Path) -> None:
        """What was sent and received; a plugin may change the envelope, and the action."""

        class Louder(zeep.Plugin):
            def egress(self, envelope: Any, http_headers: Any, operation: Any, binding_options: Any) -> Any:
                title = envelope.find(f".//{{{NS}}}title")
                title.text = title.text.upper()
                return envelope, {**http_headers, "SOAPAction": '"urn:louder"'}

            def ingress(self, envelope: Any, http_headers: Any, operation: Any) -> Any:
                envelope.find(f".//{{{NS}}}title").text += "!"
                return envelope, http_headers

        history = HistoryPlugin()
        with Client(path, connection=connection, plugins=[Louder(), history]) as client:
            assert client.service.frame("Dusk").body.title == "[DUSK]!"
        assert history.last_sent["envelope"].findtext(f".//{{{NS}}}title") == "DUSK"
        assert history.last_sent["http_headers"]["SOAPAction"] == '"urn:louder"'
        assert history.last_received is not None
        headers = history.last_received["http_headers"]
        assert headers[names.REQUEST_URI] == "jms:queue:gallery"
        assert headers["content-type"] == headers[names.CONTENT_TYPE]

    def test_a_plugin_with_an_action_that_no_message_carries(self, connection: Connection, path: Path) -> None:
        """It is refused, with and without asyncio, and no call is under way then."""

        class Broken(zeep.Plugin):
            def egress(self, envelope: Any, http_headers: Any, operation: Any, binding_options: Any) -> Any:
                return envelope, {**http_headers, "SOAPAction": '"urn:a\0b"'}

        async def call() -> None:
            async with AsyncClient(path, connection=connection, plugins=[Broken()]) as client:
                await client.service.frame("Dusk")

        with Client(path, connection=connection, plugins=[Broken()]) as client:
            for each in (lambda: client.service.frame("Dusk"), lambda: asyncio.run(call())):
                with pytest.raises(UsageError, match=r"soap_action is .* holds NUL at 5"):
                    each()

    def test_a_plugin_that_returns_something_else(self, connection: Connection, path: Path) -> None:
        """zeep says what it thinks of it."""

        class Odd(zeep.Plugin):
            def ingress(self, envelope: Any, http_headers: Any, operation: Any) -> Any:
                return etree.Element("odd"), http_headers

        with (
            Client(path, connection=connection, plugins=[Odd()]) as client,
            pytest.raises(zeep.exceptions.XMLSyntaxError, match="does not contain a valid"),
        ):
            client.service.frame("Dusk")

    def test_a_response_of_no_parts(self, connection: Connection, tmp_path: Path) -> None:
        """It comes back as nothing, when it is there."""
        text = gallery_wsdl().replace('<wsdl:part name="hung" element="g:hung"/>', "")
        with Client(written(tmp_path, text), connection=connection) as client:
            assert client.service.hang({"year": 1}) is None

    @pytest.mark.parametrize("several", [False, True])
    def test_wsse(self, connection: Connection, path: Path, several: bool) -> None:
        """One or a list: applied to what is sent, and verifying what comes."""
        verified = []

        class Token(UsernameToken):
            def verify(self, envelope: Any) -> None:
                verified.append(envelope.tag)

        history = HistoryPlugin()
        wsse = [Token("ann", "secret")] * 2 if several else Token("ann", "secret")
        with Client(path, wsse=wsse, connection=connection, plugins=[history]) as client:
            assert client.service.frame("Dusk").body.title == "[Dusk]"
        sent = history.last_sent["envelope"]
        assert [each.text for each in sent.iter("{*}Username")] == ["ann"] * len(verified)
        assert len(verified) == (2 if several else 1)

    def test_a_signature_that_is_wrong(self, connection: Connection, path: Path) -> None:
        """What verifying raises comes to the caller."""

        class Refusing(UsernameToken):
            def verify(self, envelope: Any) -> None:
                raise zeep.exceptions.SignatureVerificationFailed("not theirs")

        with (
            Client(path, wsse=Refusing("ann"), connection=connection) as client,
            pytest.raises(zeep.exceptions.SignatureVerificationFailed, match="not theirs"),
        ):
            client.service.frame("Dusk")

    def test_raw_response(self, connection: Connection, path: Path, version: SoapVersion) -> None:
        """What requests would have had, for a response, a fault and a one-way message; with the JMS message."""
        with Client(path, connection=connection) as client, client.settings(raw_response=True):
            raw = client.service.frame("Dusk")
            assert (raw.status_code, raw.ok) == (200, True)
            assert etree.fromstring(raw.content).findtext(f".//{{{NS}}}title") == "[Dusk]"
            assert raw.headers["Content-Type"].startswith(version.media_type)
            assert raw.jms.findings() == ()
            accepted = client.service.note("late")
            assert (accepted.status_code, accepted.content, accepted.jms) == (202, b"", None)

    def test_types_and_factories(self, connection: Connection, path: Path) -> None:
        """Objects of the schema's types, dictionaries and keywords are all the same."""
        with Client(path, connection=connection) as client:
            work = client.type_factory(NS).Work
            assert client.service.hang(work(year=1889)) == "1889"
            assert client.service.hang(work={"year": 1889}) == "1889"
            assert client.create_message(client.service, "hang", {"year": 1889}).tag.endswith("Envelope")
            assert [name for name, _ in client.service] == ["frame", "hang", "note"]

    def test_the_action(self, connection: Connection, path: Path) -> None:
        """That of the properties counts over that of the WSDL's operation (Protocol-2001)."""
        for properties, action in (({}, "urn:gallery/frame"), ({"soapAction": "urn:set"}, "urn:set")):
            with Client(path, connection=connection, properties=properties) as client:
                with client.settings(raw_response=True):
                    raw = client.service.frame("Dusk")
                assert raw.jms.request.properties.text(names.SOAP_ACTION) == action

    def test_options(self, connection: Connection, path: Path, version: SoapVersion, tmp_path: Path) -> None:
        """Those of a soapjms.Client: message type, properties, profile, recorder, observer."""
        registry = CollectorRegistry()
        with (
            soapjms.Recorder(tmp_path / "log.jsonl") as recorder,
            Client(
                path,
                connection=connection,
                message_type=soapjms.protocol.requesting.MessageType.TEXT,
                properties={"priority": 8},
                profile="cxf",
                recorder=recorder,
                observer=Metrics(registry),
            ) as client,
            client.settings(raw_response=True),
        ):
            raw = client.service.frame("Dusk")
        assert isinstance(raw.jms.request.body, str)
        assert raw.jms.request.priority == 8
        assert raw.jms.request.properties.text(names.SOAP_ACTION) == ACTIONS[version]
        assert len((tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()) == 2
        labels = {"destination": "queue:gallery", "pattern": "request-response", "operation": "", "subcode": ""}
        assert registry.get_sample_value("soapjms_client_calls_total", labels | {"outcome": "response"}) == 1
        with pytest.raises(UsageError, match="got 7"):
            JmsTransport(connection, observer=7)


class TestFaults(Gallery):
    """Faults of the binding, whatever their shape."""

    @pytest.mark.parametrize("profile", [CR_2009, REC_2012])
    def test_the_subcode(self, connection: Connection, path: Path, version: SoapVersion, profile: Profile) -> None:
        """It is reached by its name, wherever it stands in the fault."""
        fault = soapjms.protocol.envelope.build_fault(
            version, "no type", profile=profile, subcode=soapjms.Subcode.MISSING_CONTENT_TYPE
        )
        caught = self.fault_for(connection, path, lambda: fault)
        assert (str(caught), caught.subcode) == ("no type", "missingContentType")
        assert caught.subcodes == [etree.QName(profile.namespace, "missingContentType")]
        assert isinstance(caught.code, str)

    def test_of_the_other_version(self, connection: Connection, path: Path, version: SoapVersion) -> None:
        """A node that knows one SOAP version only answers in it: still a fault, with its code."""
        other = SOAP_12 if version is SOAP_11 else SOAP_11
        fault = soapjms.protocol.envelope.build_fault(
            other, "not that version", blame=soapjms.protocol.envelope.Blame.VERSION_MISMATCH
        )
        answer = soapjms.protocol.envelope.serialize(fault)
        with (
            responder(connection, queue("gallery"), lambda request: [answer_to(request, body=answer)]),
            Client(path, connection=connection, operation_timeout=PATIENCE) as client,
            pytest.raises(JmsFaultError, match="not that version") as caught,
        ):
            client.service.frame("Dusk")
        assert caught.value.code == "env:VersionMismatch"

    def test_in_a_default_namespace(self, connection: Connection, path: Path, version: SoapVersion) -> None:
        """The prefix of the envelope is nobody's business."""
        text = {
            SOAP_11: '<faultcode xmlns="">Client</faultcode><faultstring xmlns="">no</faultstring>'
            '<faultactor xmlns="">urn:actor</faultactor>',
            SOAP_12: '<Code><Value>Sender</Value><Subcode><Value xmlns:a="urn:a">a:one</Value><Subcode>'
            "<Value>b c</Value></Subcode></Subcode></Code><Reason><Text>no</Text></Reason><Role>urn:actor</Role>",
        }[version]
        root = f'<Envelope xmlns="{version.namespace}"><Body><Fault>{text}</Fault></Body></Envelope>'
        caught = self.fault_for(connection, path, lambda: etree.fromstring(root))
        assert (str(caught), caught.code, caught.actor) == (
            "no",
            {"1.1": "Client", "1.2": "Sender"}[version],
            "urn:actor",
        )
        assert caught.subcodes == ([] if version is SOAP_11 else [etree.QName("urn:a", "one")])

    def fault_for(self, connection: Connection, path: Path, answer: Callable[[], etree._Element]) -> JmsFaultError:
        service = Service()
        service.operation(f"{{{NS}}}frame")(lambda request: answer())
        with (
            Dispatcher(connection, "jms:queue:gallery", service),
            Client(path, connection=connection, operation_timeout=PATIENCE) as client,
            pytest.raises(JmsFaultError) as caught,
        ):
            client.service.frame("Dusk")
        return caught.value


class TestErrors(Gallery):
    """What goes wrong, each with one clear message."""

    @pytest.fixture(params=[SOAP_11])
    def version(self, request: pytest.FixtureRequest) -> SoapVersion:
        return SoapVersion(request.param)

    def test_time_out(self, connection: Connection, path: Path) -> None:
        """A typed error, by soapjms's name, zeep's and Python's; by the transport's time-out or that of a `with`."""
        with Client(path, connection=connection, operation_timeout=0.05) as client:
            for kind in (JmsTimeoutError, CallTimeoutError, zeep.exceptions.TransportError, TimeoutError):
                with pytest.raises(kind, match="no correlated response came in time"):
                    client.service.frame("Dusk")
        with JmsTransport(connection) as transport:
            client = zeep.Client(str(path), transport=transport)
            with transport.settings(timeout=0.05), pytest.raises(JmsTimeoutError) as caught:
                client.service.frame("Dusk")
            assert transport._seconds == transport.operation_timeout == 30
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.reason) == (str(caught.value), FailureReason.RECEPTION_FAILURE)
        assert (again.message, again.status_code) == (str(again), 0)

    @pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "5", True])
    def test_a_time_out_that_is_none(self, connection: Connection, seconds: Any) -> None:
        """A call always ends."""
        with pytest.raises(UsageError, match="positive, finite number of seconds"):
            JmsTransport(connection, operation_timeout=seconds)
        with (
            JmsTransport(connection) as transport,
            pytest.raises(UsageError, match="positive, finite number of seconds"),
            transport.settings(timeout=seconds),
        ):
            pass

    def test_a_lost_connection(self, connection: Connection, path: Path) -> None:
        """The call fails; so does one after that, and one-way messages."""
        with Client(path, connection=connection) as client:
            service = client.service
            connection.close()
            for call in (service.frame, service.note):
                with pytest.raises(JmsTransportError, match="could not be sent") as caught:
                    call("Dusk")
                assert caught.value.reason == FailureReason.TRANSMISSION_FAILURE

    def test_a_closed_transport(self, connection: Connection, path: Path) -> None:
        """It says so."""
        with Client(path, connection=connection) as client:
            service = client.service
        with pytest.raises(UsageError, match="the transport is closed"):
            service.frame("Dusk")
        client.close()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"titel": "Dusk"}, "unexpected keyword argument 'titel'. Signature: `title: xsd:string"),
            ({"title": ["Dusk"]}, "frame: .*it takes: title: xsd:string"),
            (
                {"title": "Dusk", "picture": [5]},
                r"frame: frame\.picture must be of type base64Binary, got 5; it takes: title: xsd:string",
            ),
            ({"title": "Dusk", "_soapheaders": 5}, "frame: Invalid value given to _soapheaders; it takes"),
        ],
    )
    def test_wrong_arguments(self, connection: Connection, path: Path, arguments: dict[str, Any], message: str) -> None:
        """One error, which is a TypeError and a ValueError, with what would be right."""
        with Client(path, connection=connection) as client:
            for kind in (ArgumentsError, TypeError, ValueError):
                with pytest.raises(kind, match=message):
                    client.service.frame(**arguments)

    def test_a_missing_argument(self, connection: Connection, path: Path) -> None:
        """zeep's own error, with the path."""
        with (
            Client(path, connection=connection) as client,
            pytest.raises(zeep.exceptions.ValidationError, match=r"Missing element title \(frame.title\)"),
        ):
            client.service.frame()

    @pytest.mark.parametrize("plain", [False, True])
    def test_an_operation_that_is_not_there(self, connection: Connection, path: Path, plain: bool) -> None:
        """An AttributeError that names those there are."""
        with JmsTransport(connection) as transport:
            client = (zeep.Client if plain else Client)(str(path), transport=transport)
            message = "no operation 'fram'" if plain else "no operation 'fram'; there are: frame, hang, note"
            with pytest.raises(AttributeError, match=message):
                client.service.fram("Dusk")
            assert not hasattr(client.service, "fram")

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (
                "<e:Body/>",
                "the response to frame does not fit the WSDL: it holds nothing; the WSDL says {urn:gallery}framed",
            ),
            ("<e:Body><other/></e:Body>", "it holds other; the WSDL says {urn:gallery}framed"),
            (f"<e:Body><framed xmlns='{NS}'><a/></framed></e:Body>", "Unexpected element '{urn:gallery}a'"),
        ],
    )
    def test_a_response_of_another_kind(self, connection: Connection, path: Path, body: str, message: str) -> None:
        """A typed error, whatever zeep makes of it."""
        root = f'<e:Envelope xmlns:e="{SOAP_11.namespace}">{body}</e:Envelope>'
        with (
            responder(connection, queue("gallery"), lambda request: [answer_to(request, body=root.encode())]),
            Client(path, connection=connection) as client,
            pytest.raises(zeep.exceptions.Error, match=message),
        ):
            client.service.frame("Dusk")

    @pytest.mark.parametrize("version", BOTH)
    @pytest.mark.parametrize("strict", [True, False])
    def test_a_response_in_the_other_soap_version(
        self, connection: Connection, path: Path, version: SoapVersion, strict: bool
    ) -> None:
        """A typed error that names both versions, and not what zeep happens to stumble over."""
        (other,) = set(BOTH) - {version}
        with (
            responder(connection, queue("gallery"), in_version(other)),
            Client(path, connection=connection, settings=zeep.Settings(strict=strict)) as client,
            pytest.raises(JmsTransportError, match=f"the envelope is SOAP {other}, .* SOAP {version}") as caught,
        ):
            client.service.frame("Dusk")
        assert caught.value.reason == FailureReason.RECEPTION_FAILURE

    @pytest.mark.parametrize("version", BOTH)
    @pytest.mark.parametrize("strict", [True, False])
    def test_a_response_in_the_other_soap_version_with_asyncio(
        self, connection: Connection, path: Path, version: SoapVersion, strict: bool
    ) -> None:
        """Likewise."""
        (other,) = set(BOTH) - {version}

        async def call() -> None:
            async with AsyncClient(path, connection=connection, settings=zeep.Settings(strict=strict)) as client:
                await client.service.frame("Dusk")

        with (
            responder(connection, queue("gallery"), in_version(other)),
            pytest.raises(JmsTransportError, match=f"the envelope is SOAP {other}, .* SOAP {version}") as caught,
        ):
            asyncio.run(call())
        assert caught.value.reason == FailureReason.RECEPTION_FAILURE

    def test_a_response_of_another_kind_where_anything_goes(self, connection: Connection, path: Path) -> None:
        """Without `strict` zeep makes of it what it can; what it stumbles over is a typed error."""
        empty = f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><e:Body>{{}}</e:Body></e:Envelope>'
        bodies = iter((empty.format("<other/>"), empty.format("")))
        with (
            responder(connection, queue("gallery"), lambda request: [answer_to(request, body=next(bodies).encode())]),
            Client(path, connection=connection, settings=zeep.Settings(strict=False)) as client,
        ):
            assert client.service.frame("Dusk").body.title is None
            with pytest.raises(
                JmsTransportError, match="the response to frame does not fit the WSDL: IndexErr"
            ) as caught:
                client.service.frame("Dusk")
        assert caught.value.reason == FailureReason.RECEPTION_FAILURE

    def test_a_document_for_another_transport(self, connection: Connection, path: Path) -> None:
        """A zeep client that has our document and another's transport says what it lacks."""
        with Client(path, connection=connection) as client:
            other = zeep.Client(client.wsdl, transport=object())
            with pytest.raises(UsageError, match=r"transport must be a JmsTransport, .* got an object"):
                other.service.frame("Dusk")

    def test_what_a_client_is_made_with(self, connection: Connection, path: Path) -> None:
        """A connection or a transport, not both, and no other's; arguments of zeep are checked before a call."""
        with JmsTransport(connection) as transport:
            for arguments, message in (
                ({}, "connection or transport must be given; soapjms.connect"),
                ({"connection": "stomp://ann:secret@host"}, "connection must be what soapjms.connect"),
                ({"connection": connection, "transport": transport}, "must be given alone, got connection too"),
                ({"transport": transport, "names": None}, "must be given alone, got names too"),
                ({"transport": zeep.Transport()}, r"must be a soapjms\.zeep\.JmsTransport, got a Transport"),
                (
                    {"connection": connection, "settings": {"strict": False}},
                    "settings must be zeep.Settings.* got a dict",
                ),
                (
                    {"connection": connection, "plugins": HistoryPlugin()},
                    "a list of zeep's plugins, got a HistoryPlugin",
                ),
                ({"connection": connection, "wsse": ("ann", "pw")}, "wsse must be an object such as .*, got a tuple"),
                ({"connection": connection, "wsse": [("ann", "pw")]}, "wsse must be an object such as .*, got a tuple"),
                ({"connection": connection, "profile": "rec"}, "profile must be a Profile"),
                ({"connection": connection, "message_type": "map"}, "message_type must be 'bytes' or 'text'"),
                (
                    {"connection": connection, "operation_timeout": "5"},
                    "operation_timeout must be a positive, finite .*'5'",
                ),
            ):
                with pytest.raises(UsageError, match=message):
                    Client(path, **arguments)
            for wrong, hint in (
                ("timeout", ": seconds to wait are given as operation_timeout"),
                ("uri", r": an address in place of the WSDL's is given to create_service\(BINDING, URI\)"),
                ("speed", ""),
            ):
                said = f"unexpected keyword argument '{wrong}'{hint}; there are: addressing, allow, limits, "
                with pytest.raises(TypeError, match=said):
                    Client(path, connection=connection, **{wrong: 5})


def in_version(version: SoapVersion) -> Callable[[Message], list[Message]]:
    """Make a service that answers in a version of SOAP, whatever it was asked in."""
    body = f'<e:Envelope xmlns:e="{version.namespace}"><e:Body><framed xmlns="{NS}"/></e:Body></e:Envelope>'
    stated = Property(names.CONTENT_TYPE, PropertyType.STRING, f"{version.media_type}; charset=utf-8")

    def answer(request: Message) -> list[Message]:
        made = answer_to(request, body=body.encode())
        return [replace(made, properties=made.properties.merged([stated]))]

    return answer


def test_threads(connection: Connection, tmp_path: Path) -> None:
    """A client is for as many threads as one likes: each has its own answer and its own settings."""
    path = written(tmp_path, gallery_wsdl())
    with (
        Dispatcher(connection, "jms:queue:gallery", gallery(), workers=4),
        Client(path, connection=connection, operation_timeout=PATIENCE) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        service = client.service

        def call(year: int) -> Any:
            with client.settings(raw_response=year % 2 == 0), client.transport.settings(timeout=PATIENCE + year):
                said = service.hang({"year": year})
            return said if year % 2 else etree.fromstring(said.content).findtext(f".//{{{NS}}}place")

        assert list(threads.map(call, range(200))) == [str(year) for year in range(200)]


def test_without_zeep(tmp_path: Path) -> None:
    """The message says what to install."""
    program = "import sys; sys.modules['zeep'] = None; import soapjms.zeep"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: soapjms.zeep needs zeep (")
    assert done.stderr.splitlines()[-1].endswith("): pip install 'soapjms[zeep]'")


def test_an_operation_without_input(connection: Connection, tmp_path: Path) -> None:
    """Nothing of the kind is in SOAP over JMS."""
    text = gallery_wsdl()
    begin = text.index('<wsdl:operation name="note"><s:operation')
    text = text[:begin] + re.sub(r"<wsdl:input>.*?</wsdl:input>", "", text[begin:], count=1)
    with (
        Client(written(tmp_path, text), connection=connection) as client,
        pytest.raises(UsageError, match="the operation 'note' cannot be called, as it has no input"),
    ):
        client.service.note("x")


def test_comments_in_a_response(tmp_path: Path) -> None:
    """They stand in nobody's way, nor do processing instructions."""
    root = (
        f'<e:Envelope xmlns:e="{SOAP_11.namespace}"><!-- a --><e:Body><?b c?><greetMeResponse xmlns="{CXF_NS}">'
        "<!-- d --><responseType>Hel<!-- e -->lo</responseType></greetMeResponse></e:Body></e:Envelope>"
    )
    with (
        Broker("comments").connect() as connection,
        Client(ECHO[SOAP_11], connection=connection) as client,
        responder(connection, queue("CXF.ECHO"), lambda request: [answer_to(request, body=root.encode())]),
    ):
        assert client.service.greetMe("x") == "Hello"
