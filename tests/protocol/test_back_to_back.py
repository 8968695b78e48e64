"""Two nodes back to back, without I/O, in every combination.

That is of SOAP version, message type, pattern, encoding, attachments (none, SwA, MTOM) and profile.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from lxml import etree
from protocol_kit import changed, delivered, endpoint, envelope, started

from brokers.message import MessageType, properties
from soapjms.protocol import xml
from soapjms.protocol.assertions import Setting, guess_dialect, judge
from soapjms.protocol.attachments import Attachment
from soapjms.protocol.envelope import build_fault, serialize
from soapjms.protocol.errors import Blame
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.mep import State
from soapjms.protocol.names import DIALECTS, PROFILES, Mep, Profile, SoapVersion, Subcode
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import EPOCH, Direction, Record, from_json, to_json
from soapjms.protocol.requesting import ResponseReceived, findings
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode

URI = "jms:queue:in?priority=7&timeToLive=5000&targetService=s&deliveryMode=NON_PERSISTENT&x=1"
TYPES = (MessageType.BYTES, MessageType.TEXT)
ENCODINGS = ("utf-8", "utf-16", "iso-8859-1")
EVERY = pytest.mark.parametrize(
    ("version", "message_type", "encoding", "profile"),
    [
        pytest.param(*each, id="-".join((each[0], each[1], each[2], each[3].name)))
        for each in product(SoapVersion, TYPES, ENCODINGS, PROFILES.values())
    ],
)


def written(version: SoapVersion, text: str, encoding: str) -> bytes:
    """Write an envelope that declares its encoding."""
    declaration = f"<?xml version='1.0' encoding='{encoding}'?>"
    return (declaration + envelope(version, text).decode("utf-8")).encode(encoding)


def text_of(received: Any) -> str | None:
    """Return the text of the first element of a body."""
    content: etree._Element | None = received.envelope.content
    assert content is not None
    return content.text


@EVERY
def test_a_call(version: SoapVersion, message_type: MessageType, encoding: str, profile: Profile) -> None:
    """The request arrives as it was written, the response too; neither breaks a rule, and both nodes end in Success."""
    at = endpoint(URI, profile, message_type)
    setting = Setting(profile=profile, properties=at.properties)
    asking, request = started(at, version=version, soap_action="urn:a", body=written(version, "ä?", encoding))
    asking.sent()
    answering = RespondingNode(setting)
    event = answering.receive(request)
    assert isinstance(event, RequestAccepted), event
    assert (event.envelope.version, text_of(event), event.soap_action) == (version, "ä?", "urn:a")
    assert (event.one_way, event.tolerated) == (False, ())
    response = delivered(answering.respond(written(version, "ö!", encoding)))
    answering.sent()
    received = asking.receive(response, message_id=request.message_id)
    assert isinstance(received, ResponseReceived), received
    assert (received.envelope.version, text_of(received), received.fault) == (version, "ö!", None)
    assert (request.message_type, response.message_type) == (message_type, message_type)
    assert (response.priority, response.delivery_mode, response.expiration) == (7, 1, request.expiration)
    assert asking.machine.state is answering.machine.state is State.SUCCESS
    assert findings(request, response, setting) == ()


PICTURE = Attachment(bytes(range(256)), "image/png", "picture@test")
NOTE = Attachment("ä\r\n".encode(), "text/plain; charset=utf-8", "note@test")


@pytest.mark.parametrize("mep", Mep)
@pytest.mark.parametrize("mtom", [False, True], ids=["swa", "mtom"])
@EVERY
def test_attachments(
    version: SoapVersion, message_type: MessageType, encoding: str, profile: Profile, mtom: bool, mep: Mep
) -> None:
    """Attachments go along in either pattern, as SwA and as MTOM, whatever the envelope is in; every rule is kept."""
    at = endpoint(URI, profile, message_type)
    setting = Setting(profile=profile, properties=at.properties)
    root = xml.parse(written(version, "ä?", encoding))
    for each in (PICTURE, NOTE) if mtom else ():
        etree.SubElement(root[0][0], "{urn:x}data").append(each.include())
    body = etree.tostring(root, encoding=encoding, xml_declaration=True)
    asking, request = started(at, mep, version=version, soap_action="urn:ä", body=body, attachments=[PICTURE, NOTE])
    asking.sent()
    answering = RespondingNode(setting)
    event = answering.receive(request)
    assert isinstance(event, RequestAccepted), event
    assert (event.envelope.version, text_of(event), event.tolerated) == (version, "ä?", ())
    assert [bytes(each.content) for each in event.attachments] == [PICTURE.content, NOTE.content]
    if mep is Mep.ONE_WAY:
        assert findings(request, None, setting) == ()
        return
    response = delivered(answering.respond(body, [NOTE, PICTURE]))
    received = asking.receive(response, message_id=request.message_id)
    assert isinstance(received, ResponseReceived), received
    assert [bytes(each.content) for each in received.attachments] == [NOTE.content, PICTURE.content]
    assert findings(request, response, setting) == ()


@EVERY
def test_a_one_way_message(version: SoapVersion, message_type: MessageType, encoding: str, profile: Profile) -> None:
    """The message arrives as it was written, breaks no rule, and nothing is sent back."""
    at = endpoint(URI, profile, message_type)
    setting = Setting(profile=profile, properties=at.properties)
    sending, message = started(
        at, Mep.ONE_WAY, version=version, soap_action="urn:a", body=written(version, "ä?", encoding)
    )
    sending.sent()
    receiving = RespondingNode(setting)
    event = receiving.receive(message)
    assert isinstance(event, RequestAccepted), event
    assert (event.envelope.version, text_of(event), event.one_way, event.tolerated) == (version, "ä?", True, ())
    assert sending.machine.state is receiving.machine.state is State.SUCCESS
    assert findings(message, None, setting) == ()


@EVERY
def test_a_fault_of_the_application(
    version: SoapVersion, message_type: MessageType, encoding: str, profile: Profile
) -> None:
    """It passes through as it is, with isFault set where the dialect has it, and breaks no rule."""
    at = endpoint(URI, profile, message_type)
    setting = Setting(profile=profile, properties=at.properties)
    asking, request = started(at, version=version, body=written(version, "x", encoding))
    answering = RespondingNode(setting)
    answering.receive(request)
    fault = serialize(build_fault(version, "kaputt: ä", blame=Blame.RECEIVER)).decode()
    declared = f"<?xml version='1.0' encoding='{encoding}'?>{fault}"
    response = delivered(answering.respond(declared.encode(encoding)))
    received = asking.receive(response, message_id=request.message_id)
    assert isinstance(received, ResponseReceived), received
    assert received.fault is not None
    assert (received.fault.reason, received.fault.subcode) == ("kaputt: ä", None)
    flag = profile.spelled("SOAPJMS_isFault")
    assert response.properties.value("SOAPJMS_isFault") is (None if flag is None else True)
    assert findings(request, response, setting) == ()


@pytest.mark.parametrize("profile", DIALECTS.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("version", SoapVersion)
@pytest.mark.parametrize("message_type", TYPES)
def test_faults_in_a_dialect(profile: Profile, version: SoapVersion, message_type: MessageType) -> None:
    """What a dialect has, it has to have right: the fault is that of its edition, and its reader reads it."""
    action = profile.spelled("SOAPJMS_soapAction") or ""
    for broken, subcode in (
        ({"bindingVersion": "0.3"}, Subcode.UNRECOGNIZED_BINDING_VERSION),
        ({"contentType": "text/plain"}, Subcode.CONTENT_TYPE_MISMATCH),
        ({"requestURI": "jms:"}, Subcode.MALFORMED_REQUEST_URI),
        ({"requestURI": "jms:xmpp:in"}, Subcode.UNSUPPORTED_LOOKUP_VARIANT),
        ({"contentType": 'application/soap+xml; action="urn:b"'}, Subcode.MISMATCHED_SOAP_ACTION),
    ):
        asking, request = started(endpoint(URI, profile, message_type), version=version, soap_action="urn:a")
        assert request.properties.value(action)
        bad = changed(request, **broken)
        node = RespondingNode(Setting(profile=profile))
        event = node.receive(bad)
        assert isinstance(event, RequestRefused), (broken, event)
        assert event.subcode is subcode
        response = delivered(node.respond(event.fault))
        received = asking.receive(response, message_id=request.message_id)
        assert isinstance(received, ResponseReceived), received
        assert received.fault is not None
        assert (received.fault.subcode, received.fault.namespace) == (subcode, profile.namespace)
    wrong_type = replace(request, message_type=MessageType.MAP, body=properties({"a": 1}))
    event = RespondingNode(Setting(profile=profile)).receive(wrong_type)
    assert isinstance(event, RequestRefused)
    assert event.subcode is Subcode.UNSUPPORTED_MESSAGE_FORMAT


@EVERY
def test_a_captured_call(version: SoapVersion, message_type: MessageType, encoding: str, profile: Profile) -> None:
    """A call that was written to a log and read again is judged alike, and a dialect shows."""
    at = endpoint(URI, profile, message_type)
    _, request = started(at, version=version, soap_action="urn:a", body=written(version, "ä", encoding))
    node = RespondingNode(Setting(profile=profile))
    node.receive(request)
    response = delivered(node.respond(written(version, "ö", encoding)))
    asked, answered = (
        from_json(to_json(Record(message=each, time=EPOCH, direction=direction)))
        for each, direction in ((request, Direction.REQUEST), (response, Direction.RESPONSE))
    )
    exchange = Exchange(id="x", pattern=Pattern.REQUEST_RESPONSE, request=asked, response=answered)
    ends = {str(each.outcome) for each in judge(exchange, Setting(profile=profile))}
    assert ends == {"passed", "notApplicable"}
    expected = profile.name if profile.name in DIALECTS else None
    assert guess_dialect(Reading.of(asked, profile)) == expected
