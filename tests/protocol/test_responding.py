"""The responding node and the receiving node, alone and back to back with a requesting node."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_kit import NOW, REPLIES, changed, delivered, endpoint, envelope, started

from brokers.message import Destination, Message, MessageType, PropertyValue, properties
from soapjms.protocol import xml
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import (
    Blame,
    FaultShape,
    as_envelope,
    build_fault,
    enclosed,
    read_fault,
    serialize,
)
from soapjms.protocol.errors import InvalidEnvelopeError, LocalProtocolError
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.mep import State
from soapjms.protocol.names import CR_2009, REC_2012, FailureReason, Mep, Profile, Role, SoapVersion, Subcode
from soapjms.protocol.record import Record
from soapjms.protocol.requesting import ResponseReceived, findings
from soapjms.protocol.responding import (
    Reaction,
    RequestAccepted,
    RequestRefused,
    RespondingNode,
    reaction,
)

PROFILES = pytest.mark.parametrize("profile", [CR_2009, REC_2012], ids=lambda each: each.name)
VERSIONS = pytest.mark.parametrize("version", list(SoapVersion))
TYPES = pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])


def accepted(message: Message, setting: Setting | None = None) -> tuple[RespondingNode, RequestAccepted]:
    """Have a new node accept a message."""
    node = RespondingNode(setting or Setting())
    event = node.receive(message)
    assert isinstance(event, RequestAccepted), event
    return node, event


def refused(message: Message, setting: Setting | None = None) -> tuple[RespondingNode, RequestRefused]:
    """Have a new node refuse a message."""
    node = RespondingNode(setting or Setting())
    event = node.receive(message)
    assert isinstance(event, RequestRefused), event
    return node, event


# Two nodes, back to back


@PROFILES
@VERSIONS
@TYPES
def test_a_call(profile: Profile, version: SoapVersion, message_type: MessageType) -> None:
    """A call between two nodes breaks no assertion, and both end in Success."""
    setting = Setting(profile=profile)
    at = endpoint("jms:queue:in?priority=7&timeToLive=5000&targetService=s", profile, message_type)
    asking, request = started(at, version=version, soap_action="urn:a")
    asking.sent()
    answering, event = accepted(request, setting)
    assert (event.one_way, event.soap_action, event.target_service, event.tolerated) == (False, "urn:a", "s", ())
    assert event.envelope.version is version
    response = delivered(answering.respond(envelope(version, "answer")))
    answering.sent()
    received = asking.receive(response, message_id=request.message_id)
    assert isinstance(received, ResponseReceived)
    assert received.envelope.content is not None
    assert received.envelope.content.text == "answer"
    assert findings(request, response, setting) == ()
    assert asking.machine.state is answering.machine.state is State.SUCCESS
    assert answering.machine.role is Role.RESPONDING


def test_an_action_that_is_written_like_the_request_uri() -> None:
    """A node that accepted one before still compares the next one with the action of the content type."""
    for wanted, stated in (("jms:queue:x", "jms:queue:x"), ("jms:queue:y", "jms:queue:x")):
        of_message = {
            "SOAPJMS_bindingVersion": "1.0",
            "SOAPJMS_contentType": f'application/soap+xml; charset=utf-8; action="{stated}"',
            "SOAPJMS_requestURI": wanted,
            "SOAPJMS_soapAction": wanted,
        }
        body = envelope(SoapVersion.SOAP_12)
        message = Message(
            message_type=MessageType.BYTES, body=body, properties=properties(of_message), reply_to=REPLIES
        )
        if wanted == stated:
            accepted(message)
        else:
            _, event = refused(message)
            assert event.subcode is Subcode.MISMATCHED_SOAP_ACTION


@PROFILES
def test_headers_of_the_response(profile: Profile) -> None:
    """SOAP/JMS 2.6.2.3: type, priority, delivery mode and expiration of the request, its reply destination, its URI."""
    _, request = started(endpoint("jms:queue:in?priority=7&deliveryMode=NON_PERSISTENT&timeToLive=5000&x=1"))
    answering, _ = accepted(request, Setting(profile=profile))
    response = answering.respond(envelope())
    assert response == Message(
        message_type=MessageType.BYTES,
        body=envelope(),
        destination=REPLIES,
        correlation_id=request.message_id if profile is CR_2009 else request.correlation_id,
        delivery_mode=1,
        priority=7,
        expiration=NOW + 5000,
        properties=properties(
            {
                "SOAPJMS_bindingVersion": "1.0",
                "SOAPJMS_contentType": "text/xml; charset=utf-8",
                "SOAPJMS_isFault": False,
                "SOAPJMS_requestURI": "jms:queue:in?x=1",
            }
        ),
    )


def test_correlation_without_correlation_id() -> None:
    """REC: a request without JMSCorrelationID is answered with its JMSMessageID."""
    _, request = started(correlation_id=None)
    answering, _ = accepted(request)
    assert answering.respond(envelope()).correlation_id == request.message_id


@PROFILES
def test_correlation_without_message_id(profile: Profile) -> None:
    """A request that the broker gives no JMSMessageID is answered with its JMSCorrelationID: there is nothing else."""
    _, request = started()
    answering, _ = accepted(replace(request, message_id=None), Setting(profile=profile))
    assert answering.respond(envelope()).correlation_id == request.correlation_id


def test_one_way() -> None:
    """SOAP/JMS 2.7: the receiving node takes the message, and nothing is sent back."""
    sending, message = started(mep=Mep.ONE_WAY)
    sending.sent()
    receiving, event = accepted(message)
    assert event.one_way
    assert (receiving.machine.role, receiving.machine.state) == (Role.RECEIVING, State.SUCCESS)
    with pytest.raises(LocalProtocolError):
        receiving.respond(envelope())
    assert findings(message, None, Setting()) == ()


@pytest.mark.parametrize("reply_to", [REPLIES, None], ids=["request-response", "one-way"])
def test_a_node_is_for_one_exchange(reply_to: Destination | None) -> None:
    """A second message at the same node is a mistake of its driver."""
    _, request = started(endpoint("jms:queue:in"))
    node, _ = accepted(replace(request, reply_to=reply_to))
    with pytest.raises(LocalProtocolError, match="for one exchange"):
        node.receive(request)


def test_a_fault_of_the_service() -> None:
    """A fault is a response: marked as one, and without the insides of the service."""
    asking, request = started(version=SoapVersion.SOAP_12)
    answering, _ = accepted(request)
    response = delivered(answering.respond(build_fault(SoapVersion.SOAP_12, "out of order", blame=Blame.RECEIVER)))
    assert response.properties.value("SOAPJMS_isFault") is True
    assert findings(request, response, Setting()) == ()
    received = asking.receive(response)
    assert isinstance(received, ResponseReceived)
    assert received.fault is not None
    assert received.fault.code.endswith("}Receiver")
    assert (received.fault.reason, received.fault.subcode) == ("out of order", None)


# Every subcode

Change = Callable[[Message], Message]
MULTIPART = b"--b\r\nContent-Type: text/plain\r\n\r\n" + envelope() + b"\r\n--b--"

CAUSES: dict[Subcode, list[Change]] = {
    Subcode.UNRECOGNIZED_BINDING_VERSION: [lambda message: changed(message, bindingVersion="2.0")],
    Subcode.UNSUPPORTED_MESSAGE_FORMAT: [
        lambda message: replace(message, message_type=MessageType.MAP, body=properties({"a": 1})),
        lambda message: replace(message, message_type=MessageType.OBJECT, body=b"\xac\xed"),
        lambda message: replace(message, message_type=MessageType.STREAM, body=()),
        lambda message: replace(message, message_type=MessageType.MESSAGE, body=None),
        lambda message: replace(message, message_type=MessageType.TEXT, body=None),
        lambda message: replace(message, message_type=MessageType.UNKNOWN, body=None),
    ],
    Subcode.MISSING_CONTENT_TYPE: [
        lambda message: changed(message, "contentType"),
        lambda message: changed(message, contentType=""),
    ],
    Subcode.CONTENT_TYPE_MISMATCH: [
        lambda message: changed(message, contentType="text/plain"),
        lambda message: changed(message, contentType="nonsense"),
        lambda message: changed(message, contentType="text/xml; charset"),
        lambda message: changed(message, contentType="text/xml; charset=utf-16"),
        lambda message: changed(message, contentType="text/xml; charset=\0"),
        lambda message: changed(
            replace(message, message_type=MessageType.BYTES, body=MULTIPART),
            contentType="multipart/related; boundary=b; type=text/xml",
        ),
    ],
    Subcode.MISSING_REQUEST_URI: [lambda message: changed(message, "requestURI")],
    Subcode.MALFORMED_REQUEST_URI: [
        lambda message: changed(message, requestURI="queue:in"),
        lambda message: changed(message, requestURI="jms:queue:"),
        lambda message: changed(message, requestURI="jms:queue:%"),
    ],
    Subcode.TARGET_SERVICE_NOT_ALLOWED: [
        lambda message: changed(message, requestURI="jms:queue:in?targetService=s"),
        lambda message: changed(message, requestURI="jms:queue:in?targetService=s&replyToName=r"),
    ],
    Subcode.UNSUPPORTED_LOOKUP_VARIANT: [lambda message: changed(message, requestURI="jms:xmpp:in")],
    Subcode.MISSING_SOAP_ACTION: [
        lambda message: changed(message, "soapAction", contentType='application/soap+xml; action="urn:a"')
    ],
    Subcode.MISMATCHED_SOAP_ACTION: [
        lambda message: changed(message, contentType='application/soap+xml; action="urn:a"', soapAction="urn:b")
    ],
    Subcode.CONTENT_ENCODING_NOT_SUPPORTED: [
        lambda message: changed(message, contentEncoding="deflate"),
        lambda message: changed(replace(message, message_type=MessageType.TEXT, body="x"), contentEncoding="gzip"),
    ],
}


def test_a_cause_for_every_subcode() -> None:
    """The tests below provoke every subcode there is."""
    assert set(CAUSES) == set(Subcode)


@PROFILES
@VERSIONS
@pytest.mark.parametrize(
    ("subcode", "change"), [(code, change) for code, changes in CAUSES.items() for change in changes]
)
def test_every_subcode(profile: Profile, version: SoapVersion, subcode: Subcode, change: Change) -> None:
    """The first rule that is broken gives the fault; it has the shape of edition and version, and is understood."""
    if subcode not in profile.subcodes:
        assert reaction_of(change, version, profile) is not subcode
        return
    setting = Setting(profile=profile)
    asking, request = started(endpoint(profile=profile), version=version, soap_action="urn:b")
    broken = change(request)
    node, event = refused(broken, setting)
    assert (event.subcode, event.one_way, event.message) == (subcode, False, broken)
    assert event.verdict is not None
    assert event.verdict.expected_subcodes[0] == subcode
    assert event.reason
    response = delivered(node.respond(event.fault))
    node.sent()
    assert node.machine.state is State.SUCCESS
    assert response.properties.value("SOAPJMS_isFault") is True
    assert response.message_type is (MessageType.TEXT if broken.message_type is MessageType.TEXT else MessageType.BYTES)
    received = asking.receive(response, message_id=request.message_id)
    assert isinstance(received, ResponseReceived)
    assert received.fault is not None
    assert (received.fault.subcode, received.fault.namespace) == (subcode, profile.namespace)
    shapes = {
        SoapVersion.SOAP_12: FaultShape.SUBCODE,
        SoapVersion.SOAP_11: {CR_2009: FaultShape.DETAIL}.get(profile, FaultShape.FAULTCODE),
    }
    assert received.fault.shape is shapes[received.fault.version]
    own = [each for each in findings(broken, response, setting) if each.record.direction == "response"]
    assert own == [], "the answer itself breaks a rule"


def reaction_of(change: Change, version: SoapVersion, profile: Profile) -> Subcode | None:
    """Return the subcode of the fault that a changed request gets, None if it is accepted."""
    _, request = started(endpoint(profile=profile), version=version, soap_action="urn:b")
    event = RespondingNode(Setting(profile=profile)).receive(change(request))
    return event.subcode if isinstance(event, RequestRefused) else None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("text/xml", SoapVersion.SOAP_11),
        ("application/soap+xml", SoapVersion.SOAP_12),
        ("text/plain", SoapVersion.SOAP_12),
        ("", SoapVersion.SOAP_12),
    ],
)
def test_soap_version_of_a_fault(kind: str, expected: SoapVersion) -> None:
    """The content type tells the version of the fault, else the body, else the node's default."""
    _, request = started(version=SoapVersion.SOAP_12)
    _, event = refused(changed(request, contentType=kind, bindingVersion="0"))
    assert as_envelope(event.fault).version is expected
    unreadable = changed(replace(request, body=b"\xff"), contentType=None)
    for default in SoapVersion:
        event = RespondingNode(Setting(), default).receive(unreadable)  # type: ignore[assignment]
        assert as_envelope(event.fault).version is default


# Order and strictness


def test_the_first_of_several_faults_counts() -> None:
    """Of several mistakes the first of the table gives the fault; property checks come before the body is read."""
    _, request = started()
    everything = changed(replace(request, body=b"\xff"), "contentType", "requestURI", bindingVersion="2")
    assert refused(everything)[1].subcode is Subcode.UNRECOGNIZED_BINDING_VERSION
    assert refused(changed(everything, bindingVersion="1.0"))[1].subcode is Subcode.MISSING_CONTENT_TYPE
    rest = changed(everything, bindingVersion="1.0", contentType="text/xml; charset=utf-16")
    assert refused(rest)[1].subcode is Subcode.MISSING_REQUEST_URI


def test_a_missing_binding_version() -> None:
    """Some stacks never send it: it is let pass and said, unless the node is strict."""
    _, request = started()
    without = changed(request, "bindingVersion")
    _, event = accepted(without)
    assert [each.assertion for each in event.tolerated] == ["Protocol-2010"]
    assert refused(without, Setting(strict=True))[1].subcode is Subcode.UNRECOGNIZED_BINDING_VERSION


@pytest.mark.parametrize(
    ("uri", "assertions"),
    [
        ("jms:queue:in?priority=4&jndiURL=x", []),
        ("jms:queue:in?replyToName=r", ["Protocol-2024"]),
        ("jms:jndi:a/b", []),
    ],
)
def test_what_is_tolerated(uri: str, assertions: list[str]) -> None:
    """What is broken and has no subcode is let pass, and said."""
    _, request = started()
    _, event = accepted(changed(request, requestURI=uri))
    assert [each.assertion for each in event.tolerated] == assertions


def test_white_space_before_the_envelope() -> None:
    """It breaks Protocol-2030, which has no subcode, and leaves the envelope readable: let pass, and said."""
    _, request = started()
    _, event = accepted(replace(request, body=b"\n" + envelope()))
    assert [each.assertion for each in event.tolerated] == ["Protocol-2030"]


@pytest.mark.parametrize("value", ['"urn:a"', "urn:a"])
def test_quoted_action(value: str) -> None:
    """The service gets the action without the quotes that some stacks put around it."""
    _, request = started(version=SoapVersion.SOAP_12, soap_action="urn:a")
    assert accepted(changed(request, soapAction=value))[1].soap_action == "urn:a"


def test_supported_variants() -> None:
    """A node may support further variants, or fewer."""
    _, request = started()
    vendor = changed(request, requestURI="jms:vnd.example.x:in")
    accepted(vendor, Setting(variants=frozenset({"vnd.example.x"})))
    assert refused(request, Setting(variants=frozenset({"jndi"})))[1].subcode is Subcode.UNSUPPORTED_LOOKUP_VARIANT


@pytest.mark.parametrize("profile", [CR_2009, REC_2012], ids=lambda each: each.name)
def test_gzip(profile: Profile) -> None:
    """REC: a gzip body is decoded. The CR does not know the property: the body is no XML."""
    _, request = started(endpoint(profile=profile))
    packed = changed(replace(request, body=gzip.compress(envelope())), contentEncoding="gzip", contentType="text/xml")
    if profile is REC_2012:
        accepted(packed, Setting(profile=profile))
    else:
        assert refused(packed, Setting(profile=profile))[1].subcode is None


def test_attachments() -> None:
    """A multipart request is accepted with the envelope of its first part."""
    _, request = started()
    body = MULTIPART.replace(b"text/plain", b"text/xml")
    message = changed(replace(request, body=body), contentType='multipart/related; boundary=b; type="text/xml"')
    assert accepted(message)[1].envelope.version is SoapVersion.SOAP_11


# What no subcode is for


@pytest.mark.parametrize(
    ("body", "kind", "assertion"),
    [
        (b"<a/>", "text/xml", "Protocol-2030"),
        (b"\xff", "text/xml", "Protocol-2030"),
        (b"", "text/xml", "Protocol-2030"),
        (envelope(), "multipart/related; boundary=b", "Protocol-2029"),
        (
            b"--b\r\nContent-Type: text/xml\r\n\r\n<a/>\r\n--b--",
            "multipart/related; boundary=b; type=text/xml",
            "Local-2.4-partEnvelope",
        ),
    ],
)
@pytest.mark.parametrize("gone", ["", "bindingVersion"])
def test_a_body_that_is_no_envelope(body: bytes, kind: str, assertion: str, gone: str) -> None:
    """It is answered with a fault of the sender without a subcode; the verdict is the one on the body."""
    _, request = started()
    node, event = refused(changed(replace(request, body=body), gone, contentType=kind))
    assert event.subcode is None
    assert event.verdict is not None
    assert event.verdict.assertion == assertion
    fault = read_fault(as_envelope(event.fault))
    assert fault is not None
    assert (fault.code.rpartition("}")[2], fault.subcode) == ("Client", None)
    assert event.reason in fault.reason
    node.respond(event.fault)


def test_one_way_faults_have_nowhere_to_go() -> None:
    """A one-way message that is refused ends in Fail, receptionFailure; a fault is never sent."""
    _, message = started(mep=Mep.ONE_WAY)
    node, event = refused(changed(message, "contentType"))
    assert (event.one_way, event.subcode) == (True, Subcode.MISSING_CONTENT_TYPE)
    assert (node.machine.role, node.machine.state) == (Role.RECEIVING, State.FAIL)
    assert node.machine.failure_reason is FailureReason.RECEPTION_FAILURE
    with pytest.raises(LocalProtocolError):
        node.respond(event.fault)


# The response


def test_no_response_without_a_request() -> None:
    """A node that got no request has nothing to respond to; what is no envelope is not sent."""
    with pytest.raises(LocalProtocolError):
        RespondingNode(Setting()).respond(envelope())
    node, _ = accepted(started()[1])
    with pytest.raises(InvalidEnvelopeError):
        node.respond("<a/>")
    node.respond(envelope())
    with pytest.raises(LocalProtocolError):
        node.respond(envelope())


def test_whether_the_response_is_a_fault() -> None:
    """The node says whether its response holds a fault, also of one that was made before."""
    request = started()[1]
    for body, is_fault in ((envelope(), False), (build_fault(SoapVersion.SOAP_11, "no"), True)):
        first, _ = accepted(request)
        assert not first.is_fault
        response = first.respond(body)
        again, _ = accepted(request)
        again.respond_again(response)
        assert first.is_fault is again.is_fault is is_fault


@PROFILES
def test_the_same_response_again(profile: Profile) -> None:
    """A request that is delivered again, perhaps with another JMSMessageID, gets the response that it was to get."""
    request = started()[1]
    node, _ = accepted(request, Setting(profile=profile))
    first = node.respond(envelope())
    again, _ = accepted(replace(request, message_id="ID:2", redelivered=True), Setting(profile=profile))
    second = again.respond_again(replace(first, destination=None, correlation_id=None))
    expected = "ID:2" if profile is CR_2009 else request.correlation_id
    assert second == replace(first, destination=request.reply_to, correlation_id=expected)
    again.sent()
    assert again.machine.state is State.SUCCESS
    with pytest.raises(LocalProtocolError):
        again.respond_again(first)


def test_the_same_response_for_a_later_try() -> None:
    """It expires with that try, not with the first one, and has its priority and delivery mode. Spec: 2.6.2.3."""
    request = started()[1]
    node, _ = accepted(replace(request, expiration=1000, priority=1, delivery_mode=1))
    first = node.respond(envelope())
    assert (first.expiration, first.priority, first.delivery_mode) == (1000, 1, 1)
    for expiration in (70_000, 0):
        later, _ = accepted(replace(request, expiration=expiration, priority=7, delivery_mode=2))
        second = later.respond_again(first)
        assert (second.expiration, second.priority, second.delivery_mode) == (expiration or None, 7, 2)
        assert second.body == first.body


def test_a_response_that_cannot_be_sent() -> None:
    """A failure to send ends the exchange in Fail, transmissionFailure."""
    node, _ = accepted(started()[1])
    node.respond(envelope())
    assert node.send_failed() is FailureReason.TRANSMISSION_FAILURE
    assert (node.machine.state, node.machine.failure_reason) == (State.FAIL, FailureReason.TRANSMISSION_FAILURE)


SOME = st.none() | st.text(max_size=15) | st.booleans() | st.integers(-9, 9)


@given(
    kind=st.sampled_from(MessageType),
    body=st.none() | st.binary(max_size=30) | st.text(max_size=30) | st.just(envelope()) | st.just(MULTIPART),
    profile=st.sampled_from([CR_2009, REC_2012]),
    strict=st.booleans(),
    values=st.fixed_dictionaries(
        {
            "requestURI": SOME | st.just("jms:queue:q"),
            "bindingVersion": SOME | st.just("1.0"),
            "contentType": SOME
            | st.sampled_from(["text/xml", "multipart/related; boundary=b", "text/xml; charset=\0"]),
            "contentEncoding": SOME | st.sampled_from(["gzip", "deflate"]),
            "soapAction": SOME,
            "isFault": SOME,
        }
    ),
)
def test_nothing_that_arrives_raises(
    kind: MessageType, body: Any, profile: Profile, strict: bool, values: dict[str, PropertyValue]
) -> None:
    """Whatever arrives is accepted, or answered with a fault that can be sent; and it can be judged."""
    named = properties({f"SOAPJMS_{name}": value for name, value in values.items()})
    message = Message(message_type=kind, body=body, properties=named, reply_to=REPLIES, message_id="ID:1")
    setting = Setting(profile=profile, strict=strict)
    node = RespondingNode(setting)
    event = node.receive(message)
    fault = event.fault if isinstance(event, RequestRefused) else envelope()
    response = node.respond(fault)
    assert as_envelope(xml.parse(response.body)).version  # type: ignore[arg-type]
    findings(message, response, setting)


# What a node makes of captured traffic


def captured(request: Message | None, response: Message | None = None, *, truncated: bool = False) -> Exchange:
    """Make the exchange of captured messages."""

    def record(message: Message | None) -> Record | None:
        return (
            None
            if message is None
            else Record(message=message, time=datetime(2026, 1, 1, tzinfo=UTC), truncated=truncated)
        )

    pattern = Pattern.ONE_WAY if request and not request.reply_to else Pattern.REQUEST_RESPONSE
    return Exchange(id="1", pattern=pattern, request=record(request), response=record(response))


def answered(body: bytes) -> Message:
    """Make a captured response."""
    return Message(
        message_type=MessageType.BYTES, body=body, properties=properties({"SOAPJMS_contentType": "text/xml"})
    )


def fault_with(subcode: Subcode | None) -> Message:
    """Make a captured fault."""
    return answered(serialize(build_fault(SoapVersion.SOAP_11, "why", subcode=subcode)))


NO_TYPE = {"contentType": ""}
NEITHER = {"contentType": "", "requestURI": ""}
TYPE, URI = Subcode.MISSING_CONTENT_TYPE, Subcode.MISSING_REQUEST_URI


@pytest.mark.parametrize(
    ("change", "response", "expected", "observed", "agrees"),
    [
        ({}, answered(envelope()), None, None, True),
        ({}, fault_with(None), None, None, True),
        ({}, fault_with(URI), None, URI, False),
        ({}, None, None, None, None),
        (NO_TYPE, fault_with(TYPE), TYPE, TYPE, True),
        (NO_TYPE, fault_with(URI), TYPE, URI, False),
        (NO_TYPE, answered(envelope()), TYPE, None, False),
        (NEITHER, fault_with(URI), TYPE, URI, True),
        (NO_TYPE, None, TYPE, None, None),
    ],
)
def test_reaction(
    change: dict[str, str], response: Message | None, expected: str | None, observed: str | None, agrees: bool | None
) -> None:
    """What our node would have answered, beside what was answered: right is any fault that fits the request."""
    found = reaction(captured(changed(started()[1], **change), response), Setting())
    assert found is not None
    assert (found.expected, found.observed, found.agrees) == (expected, observed, agrees)
    assert found.accepted is (expected is None)
    assert found.answered is (response is not None)


def test_reaction_to_a_body_that_is_no_envelope() -> None:
    """There is no subcode for it: any fault agrees."""
    broken = replace(started()[1], body=b"\xff")
    plain = reaction(captured(broken, answered(envelope())), Setting())
    fault = reaction(captured(broken, fault_with(None)), Setting())
    assert plain == Reaction(accepted=False, expected=None, fits=(), answered=True, observed=None, is_fault=False)
    assert (plain.agrees, fault.agrees if fault else None) == (False, True)


def test_no_reaction() -> None:
    """Without a request, with a cut one, and for a one-way message there is nothing to compare."""
    assert reaction(captured(None, answered(envelope())), Setting()) is None
    assert reaction(captured(started()[1], truncated=True), Setting()) is None
    assert reaction(captured(started(mep=Mep.ONE_WAY)[1]), Setting()) is None


@VERSIONS
def test_an_envelope_of_another_soap(version: SoapVersion) -> None:
    """SOAP 1.1 4.4.1, SOAP 1.2 Part 1 5.4.7: it is answered with VersionMismatch, in 1.2 with what is understood."""
    _, request = started(version=version)
    node, event = refused(replace(request, body=b"<Envelope xmlns='urn:soap'><Body/></Envelope>"))
    fault = read_fault(as_envelope(event.fault))
    assert fault is not None
    assert (event.subcode, fault.code) == (None, f"{{{version.namespace}}}VersionMismatch")
    supported = as_envelope(event.fault).root.findall(f".//{{{version.namespace}}}SupportedEnvelope")
    assert [each.nsmap["known"] for each in supported] == [
        each.namespace for each in (SoapVersion.SOAP_12, SoapVersion.SOAP_11) if version is SoapVersion.SOAP_12
    ]
    assert {each.get("qname") for each in supported} <= {"known:Envelope"}
    assert node.respond(event.fault).properties.value("SOAPJMS_isFault") is True


@PROFILES
@pytest.mark.parametrize("message_type", MessageType)
def test_what_cannot_be_understood_at_all(profile: Profile, message_type: MessageType) -> None:
    """A message without any property still gets a fault that its sender can read, of each type and with each body."""
    for body in (None, b"", b"\xff\xfe\x00", "text", (), properties({"a": 1})):
        asking, request = started(endpoint(profile=profile))
        bare = replace(request, message_type=message_type, body=body, properties=properties())
        node, event = refused(bare, Setting(profile=profile))
        assert event.subcode in (Subcode.UNSUPPORTED_MESSAGE_FORMAT, Subcode.MISSING_CONTENT_TYPE)
        received = asking.receive(delivered(node.respond(event.fault)), message_id=request.message_id)
        assert isinstance(received, ResponseReceived)
        assert received.fault is not None
        assert received.fault.subcode == event.subcode


@PROFILES
@TYPES
def test_an_answer_from_the_content_of_its_body(profile: Profile, message_type: MessageType) -> None:
    """Octets or characters, twice for the same properties: the response is that of the whole envelope."""
    for version in SoapVersion:
        content = xml.parse(b"<a:done xmlns:a='urn:a'>&#228;</a:done>")
        for _ in range(2):
            requesting, request = started(endpoint(profile=profile, message_type=message_type), version=version)
            node, _ = accepted(request, Setting(profile=profile))
            whole, _ = accepted(request, Setting(profile=profile))
            response = node.respond_with(content, version)
            assert response == whole.respond(enclosed(content, version))
            assert not node.is_fault
            event = requesting.receive(delivered(response), request.message_id)
            assert isinstance(event, ResponseReceived)
            assert event.envelope.content is not None
            assert event.envelope.content.text == "ä"
