"""Attachments and content encodings on the whole path: between two nodes, and between client and service."""

from __future__ import annotations

import gzip
import logging
import tracemalloc
from base64 import encodebytes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calling_kit import NS, PATIENCE, OnActiveMQ, OnEachBroker, element, eventually
from calling_kit import envelope as greeting
from lxml import etree
from protocol_kit import changed, endpoint, envelope, started

import soapjms
from brokers import Connection, Message, MessageType
from soapjms import Attachment, Client, Dispatcher, Limits, Reply, Request, Service, SoapVersion
from soapjms.protocol import names, xml
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import as_envelope
from soapjms.protocol.errors import InvalidPropertyError, LocalProtocolError, UsageError
from soapjms.protocol.names import CR_2009, REC_2012, Mep, Profile
from soapjms.protocol.requesting import RequestingNode, ResponseReceived, findings
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode

OCTETS = bytes(range(256)) * 8
PICTURE = Attachment(OCTETS, "image/png", "picture@test")
NOTE = Attachment("a note: ä\r\n".encode(), "text/plain; charset=utf-8", "note@test")
ENCODING = names.CONTENT_ENCODING

EACH_VERSION = pytest.mark.parametrize("version", list(SoapVersion))
EACH_TYPE = pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
EACH_PROFILE = pytest.mark.parametrize("profile", [CR_2009, REC_2012], ids=lambda each: each.name)


def including(version: SoapVersion, *attachments: Attachment) -> etree._Element:
    """Make an envelope that refers to attachments by xop:Include."""
    root = xml.parse(envelope(version))
    for each in attachments:
        etree.SubElement(root[0][0], "{urn:x}data").append(each.include())
    return root


def received(message: Message, **options: Any) -> tuple[RespondingNode, RequestAccepted]:
    """Have a responding node take a request."""
    node = RespondingNode(Setting(**options))
    event = node.receive(message)
    assert isinstance(event, RequestAccepted), event
    assert event.tolerated == ()
    return node, event


def answered(node: RequestingNode, response: Message) -> ResponseReceived:
    """Have a requesting node take its response."""
    event = node.receive(response, response.correlation_id)
    assert isinstance(event, ResponseReceived), event
    return event


class TestNodes:
    """Two nodes back to back."""

    @EACH_VERSION
    @EACH_TYPE
    @EACH_PROFILE
    @pytest.mark.parametrize("mtom", [False, True])
    def test_there_and_back(
        self, version: SoapVersion, message_type: MessageType, profile: Profile, mtom: bool
    ) -> None:
        """Attachments go both ways, as SwA and as MTOM, and every rule is kept."""
        body = including(version, PICTURE, NOTE) if mtom else envelope(version)
        at = endpoint(profile=profile, message_type=message_type, soapAction="urn:a")
        client, request = started(at, body=body, attachments=[PICTURE, NOTE])
        service, accepted = received(request, profile=profile)
        assert accepted.envelope.version is version
        assert [bytes(each.content) for each in accepted.attachments] == [OCTETS, NOTE.content]
        if mtom:
            assert [accepted.attachments.octets_of(each) for each in accepted.envelope.root.iter("{urn:x}data")] == [
                OCTETS,
                NOTE.content,
            ]
        response = service.respond(body, [NOTE, PICTURE])
        assert response.message_type is message_type
        found = answered(client, response)
        assert [bytes(each.content) for each in found.attachments] == [NOTE.content, OCTETS]
        assert findings(request, response, Setting(profile=profile, properties=at.properties)) == ()

    def test_one_way(self) -> None:
        """A one-way message has attachments too."""
        _, message = started(mep=Mep.ONE_WAY, attachments=[PICTURE])
        assert received(message)[1].attachments[0].content == OCTETS

    def test_none(self) -> None:
        """A message of one part has none."""
        client, request = started()
        service, accepted = received(request)
        assert list(accepted.attachments) == []
        assert list(answered(client, service.respond(envelope())).attachments) == []

    @pytest.mark.parametrize("base64", [False, True])
    def test_memory(self, base64: bool) -> None:
        """Reading and judging a BytesMessage adds at most what a large part has in it, and nothing if it is binary."""
        size = 8 << 20
        _, request = started(attachments=[Attachment(bytes(size), content_id="large")])
        assert isinstance(request.body, bytes)
        if base64:
            body = request.body.replace(bytes(size), encodebytes(bytes(size)).strip())
            head, encoding, rest = body.rpartition(b"Encoding: binary")
            request = replace(request, body=head + encoding.replace(b"binary", b"base64") + rest)
        tracemalloc.start()
        _, accepted = received(request)
        assert len(accepted.attachments[0].content) == size
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (len(accepted.attachments[0].raw) if base64 else size // 10)

    def test_what_does_not_fit(self) -> None:
        """What cannot be sent is an error before anything happened: the node can be asked again."""
        client = RequestingNode(endpoint(), Mep.ONE_WAY)
        with pytest.raises(UsageError, match="Content-ID"):
            client.start(envelope(), destination=started()[1].destination, now=0, attachments=[PICTURE, PICTURE])  # type: ignore[arg-type]
        assert client.request is None
        service, _ = received(started()[1])
        with pytest.raises(UsageError, match="Content-ID"):
            service.respond(envelope(), [PICTURE, PICTURE])
        assert service.respond(envelope(), [PICTURE]) is not None
        with pytest.raises(LocalProtocolError, match="no request to respond to"):
            service.respond(envelope())
        with pytest.raises(LocalProtocolError, match="no request to respond to"):
            RespondingNode(Setting()).respond(envelope())

    @EACH_VERSION
    def test_a_broken_multipart_request_is_answered_in_its_version(self, version: SoapVersion) -> None:
        """The SOAP version of the fault is that which the content type's parameters tell."""
        _, request = started(body=including(version, PICTURE), attachments=[PICTURE])
        node = RespondingNode(Setting())
        event = node.receive(replace(request, body=b"--"))
        assert isinstance(event, RequestRefused)
        assert (event.subcode, event.excess) == (None, None)
        assert as_envelope(event.fault).version is version
        assert event.verdict is not None
        assert event.verdict.assertion == "Protocol-2029"


class TestContentEncoding:
    """REC 2.2.3 contentEncoding, between two nodes."""

    @EACH_VERSION
    def test_gzip_both_ways(self, version: SoapVersion) -> None:
        """Who asks for gzip sends it, and gets it; fault or not."""
        text = envelope(version, "x" * 1000)
        client, request = started(endpoint(contentEncoding="GZIP"), body=text)
        assert isinstance(request.body, bytes)
        assert gzip.decompress(request.body) == text
        assert request.size < 300
        assert request.properties.text(ENCODING) == "gzip"
        service, accepted = received(request)
        assert accepted.envelope.version is version
        response = service.respond(text)
        assert isinstance(response.body, bytes)
        assert gzip.decompress(response.body) == text
        assert response.properties.text(ENCODING) == "gzip"
        assert answered(client, response).envelope.version is version
        assert findings(request, response, Setting()) == ()

    @pytest.mark.parametrize("values", [{}, {"contentEncoding": "identity"}, {"contentEncoding": "Identity"}])
    def test_identity(self, values: dict[str, str]) -> None:
        """Without it nothing is compressed, and the property is not sent."""
        _, request = started(endpoint(**values))
        service, _ = received(request)
        for message in (request, service.respond(envelope())):
            assert message.body == envelope()
            assert message.properties.lookup(ENCODING) is None

    def test_attachments_have_none(self) -> None:
        """The REC defines none for multipart bodies, so these go as they are, both ways."""
        _, request = started(endpoint(contentEncoding="gzip"), attachments=[PICTURE])
        assert request.properties.lookup(ENCODING) is None
        received(request)
        _, request = started(endpoint(contentEncoding="gzip"))
        service, _ = received(request)
        response = service.respond(envelope(), [PICTURE])
        assert response.properties.lookup(ENCODING) is None
        assert isinstance(response.body, bytes)
        assert response.body.startswith(b"--")

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"contentEncoding": "deflate"}, "must be gzip, identity for a bytes message of rec-2012, got 'deflate'"),
            ({"contentEncoding": "gzip", "message_type": MessageType.TEXT}, "must be identity for a text message"),
            ({"contentEncoding": "gzip", "profile": CR_2009}, "must be identity for a bytes message of cr-2009"),
        ],
    )
    def test_what_cannot_be_asked_for(self, options: dict[str, Any], why: str) -> None:
        """An encoding that profile or message type do not have is the caller's error."""
        with pytest.raises(InvalidPropertyError, match=why):
            endpoint(**options)

    @pytest.mark.parametrize(
        ("encoding", "message_type", "attachments"),
        [
            ("deflate", MessageType.BYTES, []),
            ("gzip", MessageType.TEXT, []),
            ("gzip", MessageType.BYTES, [PICTURE]),
            ("x", MessageType.TEXT, [PICTURE]),
        ],
    )
    def test_what_is_refused(self, encoding: str, message_type: MessageType, attachments: Sequence[Attachment]) -> None:
        """Others, and any on a TextMessage or a multipart body, are contentEncodingNotSupported; the fault has none."""
        _, request = started(endpoint(message_type=message_type), attachments=attachments)
        node = RespondingNode(Setting())
        event = node.receive(changed(request, contentEncoding=encoding))
        assert isinstance(event, RequestRefused)
        assert event.subcode == "contentEncodingNotSupported"
        assert node.respond(event.fault).properties.lookup(ENCODING) is None

    def test_the_charset_of_a_compressed_body_is_judged(self) -> None:
        """What is judged of a body is judged of what was compressed, whatever was judged before."""
        text = envelope()
        _, request = started(endpoint(contentEncoding="gzip"), body=text)
        for charset, subcode in (("utf-8", None), ("utf-16", "contentTypeMismatch")) * 2:
            event = RespondingNode(Setting()).receive(changed(request, contentType=f"text/xml; charset={charset}"))
            assert (event.subcode if isinstance(event, RequestRefused) else None) == subcode


def album() -> Service:
    """Make a service that sends attachments back: as they came, as MTOM, and ones that cannot be sent."""
    service = Service()

    @service.operation(f"{{{NS}}}greetMe")
    def echo(request: Request) -> Reply:
        again = [
            Attachment(each.content, str(each.fields["content-type"]), each.content_id) for each in request.attachments
        ]
        return Reply(element("greetMeResponse", str(len(again))), again)

    @service.operation(f"{{{NS}}}develop")
    def develop(request: Request) -> Reply:
        octets = bytes(request.attachments.octets_of(request.element))
        result = element("developResponse")
        picture = Attachment(octets[::-1], "image/png", "developed@test")
        result.append(picture.include())
        return Reply(result, [picture])

    @service.operation(f"{{{NS}}}fail")
    def fail(request: Request) -> Reply:
        path = Path(__file__).parent / "no such file"
        return Reply(element("failResponse"), [Attachment(path)])

    @service.operation(f"{{{NS}}}refuse")
    def refuse(request: Request) -> Reply:
        return Reply(soapjms.SoapFaultError("no", blame="Sender"), [PICTURE])

    return service


def to_develop(attachment: Attachment) -> etree._Element:
    """Write a request whose content is an attachment."""
    root = xml.parse(greeting("", operation="develop"))
    root[0][0].append(attachment.include())
    return root


class TestCalls(OnEachBroker):
    """Client and service."""

    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    def test_soap_with_attachments(
        self, connection: Connection, other: Connection, uri: str, message_type: MessageType, tmp_path: Path
    ) -> None:
        """Attachments reach the function, and the caller; a file is sent from where it is."""
        path = tmp_path / "x.bin"
        path.write_bytes(OCTETS)
        with Dispatcher(other, uri, album()), Client(connection, uri, message_type=message_type) as client:
            response = client.call(greeting(), attachments=[Attachment(path), NOTE], timeout=PATIENCE)
            future = client.submit(greeting(), attachments=[PICTURE], timeout=PATIENCE)
            assert response.element is not None
            assert response.element.text == "2"
            assert [bytes(each.content) for each in response.attachments] == [OCTETS, NOTE.content]
            assert response.findings() == ()
            assert future.result(PATIENCE).attachments.find("cid:picture@test") is not None

    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    def test_mtom(self, connection: Connection, other: Connection, uri: str, message_type: MessageType) -> None:
        """Binary content of elements goes as MTOM both ways."""
        with Dispatcher(other, uri, album()), Client(connection, uri, message_type=message_type) as client:
            response = client.call(to_develop(PICTURE), attachments=[PICTURE], timeout=PATIENCE)
        assert response.element is not None
        assert response.attachments.octets_of(response.element) == OCTETS[::-1]
        assert response.findings() == ()

    def test_one_way(self, connection: Connection, other: Connection, uri: str) -> None:
        """Attachments go one way, too."""
        seen: list[bytes] = []
        service = Service()
        service.operation(f"{{{NS}}}greetMe")(lambda request: seen.append(bytes(request.attachments[0].content)))
        with Dispatcher(other, uri, service) as dispatcher, Client(connection, uri) as client:
            client.send(greeting(), attachments=[PICTURE])
            client.call(greeting(), attachments=[NOTE], timeout=PATIENCE)
            eventually(lambda: len(seen) == 2, "both came")
            dispatcher.close()
        assert sorted(seen) == sorted([OCTETS, bytes(NOTE.octets())])

    def test_compressed(self, connection: Connection, other: Connection, uri: str) -> None:
        """Bodies go compressed both ways if the client asks for it."""
        with (
            Dispatcher(other, uri, album()),
            Client(connection, uri, properties={"contentEncoding": "gzip"}) as client,
        ):
            response = client.call(greeting(), timeout=PATIENCE)
        for message in (response.request, response.message):
            assert isinstance(message.body, bytes)
            assert gzip.decompress(message.body).endswith(b"Envelope>")
        assert response.findings() == ()

    def test_limits(self, connection: Connection, other: Connection, uri: str) -> None:
        """Client and dispatcher have limits of their own."""
        limits = Limits(parts=2)
        with (
            Dispatcher(other, uri, album(), limits=limits),
            Client(connection, uri, timeout=PATIENCE) as client,
            Client(connection, uri, timeout=PATIENCE, limits=Limits(size=100)) as strict,
        ):
            assert client.call(greeting(), attachments=[PICTURE]).fault is None
            fault = client.call(greeting(), attachments=[PICTURE, NOTE]).fault
            assert fault is not None
            assert fault.reason == "the multipart body has more parts; the limit parts is 2"
            with pytest.raises(soapjms.CallFailedError, match="the limit size is 100"):
                strict.call(greeting())

    def test_attachments_that_cannot_be_sent(
        self, connection: Connection, other: Connection, uri: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A service that answers with a file that is not there has failed; a client gets the error itself."""
        with Dispatcher(other, uri, album()), Client(connection, uri, timeout=PATIENCE) as client:
            with caplog.at_level(logging.CRITICAL, "soapjms.dispatcher"):
                fault = client.call(greeting(operation="fail")).fault
            assert fault is not None
            assert fault.reason == "the service failed"
            with pytest.raises(UsageError, match="Content-ID"):
                client.call(greeting(), attachments=[PICTURE, PICTURE])
            with pytest.raises(UsageError, match="no such file cannot be read: No such file"):
                client.send(greeting(), attachments=[Attachment(Path(__file__).parent / "no such file")])
            assert client.under_way == 0

    def test_attachments_that_cannot_be_read(self, connection: Connection, other: Connection, uri: str) -> None:
        """A function that stumbles over an attachment has the sender told."""
        with Dispatcher(other, uri, album()), Client(connection, uri, timeout=PATIENCE) as client:
            fault = client.call(greeting("base64?", operation="develop")).fault
        assert fault is not None
        assert fault.code.endswith("Client")
        assert "is no base64" in fault.reason

    def test_a_fault_in_a_reply(self, connection: Connection, other: Connection, uri: str) -> None:
        """A fault goes without attachments."""
        with Dispatcher(other, uri, album()), Client(connection, uri, timeout=PATIENCE) as client:
            response = client.call(greeting(operation="refuse"))
        assert response.fault is not None
        assert list(response.attachments) == []


class TestLarge(OnActiveMQ):
    """Eight mebibytes over ActiveMQ."""

    @pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
    def test_eight_mebibytes(
        self, connection: Connection, other: Connection, uri: str, message_type: MessageType
    ) -> None:
        """A part of 8 MiB goes there and back, as SwA and as MTOM."""
        large = Attachment(OCTETS * 4096, "image/png", "large@test")
        with Dispatcher(other, uri, album()), Client(connection, uri, message_type=message_type, timeout=60) as client:
            response = client.call(greeting(), attachments=[large])
            assert [each.content == large.content for each in response.attachments] == [True]
            response = client.call(to_develop(large), attachments=[large])
        assert response.element is not None
        assert response.attachments.octets_of(response.element) == bytes(large.octets())[::-1]
