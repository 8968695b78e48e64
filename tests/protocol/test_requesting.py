"""The requesting node and the sending node: what they send, what they take for the response, how they end."""

from __future__ import annotations

import codecs
import gzip
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from protocol_kit import NOW, QUEUE, REPLIES, delivered, endpoint, envelope, started

from brokers.message import Message, MessageType, Property, PropertyType, properties
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting, VerdictOutcome
from soapjms.protocol.content import parse_content_type
from soapjms.protocol.envelope import build_fault, serialize
from soapjms.protocol.errors import InvalidEnvelopeError, InvalidPropertyError, LocalProtocolError
from soapjms.protocol.mep import State
from soapjms.protocol.message_parts import content_type
from soapjms.protocol.names import CR_2009, PROFILES, REC_2012, FailureReason, Mep, Profile, SoapVersion, Subcode
from soapjms.protocol.record import EPOCH, capture, from_json, to_json
from soapjms.protocol.requesting import (
    ExchangeFailed,
    RequestingNode,
    ResponseIgnored,
    ResponseReceived,
    findings,
)

SUPPLIED = (
    "jms:queue:in?targetService=sales&priority=7&deliveryMode=NON_PERSISTENT&timeToLive=5000&replyToName=r&note=1"
)


def answer(to: Message, **options: Any) -> Message:
    """Make a right response."""
    values = {
        "message_type": to.message_type,
        "body": envelope(),
        "destination": to.reply_to,
        "correlation_id": to.correlation_id,
        "properties": properties({"SOAPJMS_contentType": "text/xml", "SOAPJMS_bindingVersion": "1.0"}),
        **options,
    }
    return delivered(Message(**values))


# The request


def test_a_request() -> None:
    """SOAP/JMS 2.6.1.1: headers and properties follow from the URI; the requestURI keeps what is custom."""
    node, _ = started(endpoint(SUPPLIED), soap_action="urn:a")
    assert node.request == Message(
        message_type=MessageType.BYTES,
        body=envelope(),
        destination=QUEUE,
        reply_to=REPLIES,
        correlation_id=node.request.correlation_id if node.request else None,
        delivery_mode=1,
        priority=7,
        expiration=NOW + 5000,
        properties=properties(
            {
                "SOAPJMS_targetService": "sales",
                "SOAPJMS_bindingVersion": "1.0",
                "SOAPJMS_contentType": "text/xml; charset=utf-8",
                "SOAPJMS_soapAction": "urn:a",
                "SOAPJMS_requestURI": "jms:queue:in?note=1",
            }
        ),
    )
    assert node.endpoint.time_to_live == 5000
    assert node.machine.state is State.REQUESTING
    assert node.deadline == NOW + 1000


def test_what_nobody_set_is_left_to_the_provider() -> None:
    """Defaults are not written: headers stay unset, properties without value are absent."""
    node, _ = started(endpoint("jms:queue:in?timeToLive=0"))
    assert node.request is not None
    assert (node.request.delivery_mode, node.request.priority, node.request.expiration) == (None, None, None)
    assert [each.name for each in node.request.properties] == [
        "SOAPJMS_bindingVersion",
        "SOAPJMS_contentType",
        "SOAPJMS_requestURI",
    ]


@pytest.mark.parametrize("mep", list(Mep))
def test_other_properties(mep: Mep) -> None:
    """Others stand beside those of the binding, and never in their place; a judge has nothing against them."""
    others = properties({"traceparent": "00-1-2-01", "SOAPJMS_bindingVersion": "7"})
    node = RequestingNode(endpoint(), mep, others)
    reply_to = REPLIES if mep is Mep.REQUEST_RESPONSE else None
    message = node.start(envelope(), destination=QUEUE, now=NOW, reply_to=reply_to)
    plain = RequestingNode(endpoint(), mep).start(envelope(), destination=QUEUE, now=NOW, reply_to=reply_to)
    assert set(message.properties) == {*plain.properties, Property("traceparent", PropertyType.STRING, "00-1-2-01")}
    assert findings(message, None, Setting()) == findings(plain, None, Setting()) == ()


@pytest.mark.parametrize(
    ("uri", "environment", "name"),
    [
        ("jms:queue:in?targetService=", {}, names.TARGET_SERVICE),
        ("jms:queue:in?targetService=sales", {"targetService": ""}, names.TARGET_SERVICE),
        ("jms:queue:in", {"soapAction": ""}, names.SOAP_ACTION),
    ],
)
def test_an_empty_text_is_not_set(uri: str, environment: dict[str, Any], name: str) -> None:
    """An empty SOAPJMS_ property counts as missing, so none is written, and none is missed."""
    at = endpoint(uri, **environment)
    _, message = started(at)
    assert message.properties.lookup(name) is None
    assert findings(message, None, Setting(properties=at.properties)) == ()


def test_an_empty_reply_name_names_nothing() -> None:
    """The client chooses the reply destination then; no rule is broken by any name of it: Protocol-2001, 2008."""
    at = endpoint("jms:queue:in?replyToName=other", replyToName="")
    assert findings(started(at)[1], None, Setting(properties=at.properties)) == ()


@pytest.mark.parametrize("uri", ["jms:queue:in?timeToLive=9223372036854775807", "jms:queue:in?timeToLive=5000"])
def test_an_expiration_is_a_jms_long(uri: str) -> None:
    """However long a message lives, its capture can be read again, and no rule is broken: Protocol-2001, 2006."""
    at = endpoint(uri, timeToLive=(1 << 63) - 1)
    _, message = started(at)
    assert message.expiration is not None
    assert NOW + (1 << 60) < message.expiration < 1 << 63
    assert from_json(to_json(capture(message, EPOCH))).message == message
    assert findings(message, None, Setting(properties=at.properties)) == ()
    soon = replace(message, expiration=NOW + 5000)
    assert "Protocol-2006" in {each.assertion for each in findings(soon, None, Setting(properties=at.properties))}


@pytest.mark.parametrize("edition", PROFILES.values())
def test_a_reply_destination_that_is_looked_up(edition: Profile) -> None:
    """replyToName of the variant jndi is no name of a queue, in dialects without a requestURI too: Protocol-2008."""
    looked_up = endpoint("jms:jndi:in?replyToName=replies-by-another-name", edition)
    named = endpoint("jms:queue:in?replyToName=replies-by-another-name", edition)
    for at, broken in ((looked_up, set[str]()), (named, {"Protocol-2008"})):
        found = findings(started(at)[1], None, Setting(profile=edition, properties=at.properties))
        assert {each.assertion for each in found} == broken


def test_zero_is_a_priority() -> None:
    """A priority of 0 that somebody set is set on the message."""
    node, _ = started(endpoint("jms:queue:in?priority=0"))
    assert node.request is not None
    assert node.request.priority == 0


def test_action_of_the_environment() -> None:
    """The call's soapAction wins over that of the environment."""
    at = endpoint(soapAction="urn:environment")
    for given_action, expected in ((None, "urn:environment"), ("urn:call", "urn:call")):
        node, _ = started(at, soap_action=given_action)
        assert node.request is not None
        assert node.request.properties.text("SOAPJMS_soapAction") == expected


@pytest.mark.parametrize("message_type", [MessageType.BYTES, MessageType.TEXT])
@pytest.mark.parametrize("version", list(SoapVersion))
@pytest.mark.parametrize("form", [bytes, str, etree.fromstring])
def test_body_and_content_type(message_type: MessageType, version: SoapVersion, form: Any) -> None:
    """An envelope as octets, text or element goes out in either message type, with the media type of its version."""
    body = envelope(version)
    supplied = body.decode() if form is str else form(body)
    node, _ = started(endpoint(message_type=message_type), body=supplied, soap_action="urn:a")
    assert node.request is not None
    assert node.request.message_type is message_type
    sent = node.request.body
    assert sent == (body.decode() if message_type is MessageType.TEXT else body)
    kind = parse_content_type(node.request.properties.text("SOAPJMS_contentType") or "")
    assert kind.media_type == version.media_type
    assert kind.charset == "utf-8"
    assert kind.parameters.get("action") == ("urn:a" if version is SoapVersion.SOAP_12 else None)


@pytest.mark.parametrize(
    ("octets", "charset"),
    [
        (envelope(), "utf-8"),
        (codecs.BOM_UTF8 + envelope(), "utf-8"),
        (b"<?xml version='1.0' encoding='ISO-8859-1'?>" + envelope().decode().encode("latin-1"), "ISO-8859-1"),
        (envelope().decode().encode("utf-16"), "utf-16"),
        (b"\n\t" + envelope(), "utf-8"),
    ],
)
def test_charset_of_octets(octets: bytes, charset: str) -> None:
    """Octets go as they are in a BytesMessage with their own encoding as charset; in a TextMessage they are decoded."""
    node, sent = started(body=octets)
    assert sent.body == octets.lstrip()
    assert sent.properties.text("SOAPJMS_contentType") == f"text/xml; charset={charset}"
    assert findings(sent, None, Setting()) == ()
    _, as_text = started(endpoint(message_type=MessageType.TEXT), body=octets)
    assert as_text.body == envelope().decode()
    assert as_text.properties.text("SOAPJMS_contentType") == "text/xml; charset=utf-8"
    assert node.machine.state is State.REQUESTING


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_action_parameter(action: str) -> None:
    """Whatever the action, the content type gives it back."""
    kind = parse_content_type(content_type(SoapVersion.SOAP_12.media_type, "utf-8", action))
    assert kind.problem is None
    assert kind.parameters.get("action", "") == action


# A start that is refused


def test_what_is_no_envelope_is_not_sent() -> None:
    """The caller's mistake is raised, and the exchange can still be started."""
    node = RequestingNode(endpoint())
    with pytest.raises(InvalidEnvelopeError):
        node.start("<a/>", destination=QUEUE, now=NOW, reply_to=REPLIES)
    assert (node.machine.state, node.request) == (State.INIT, None)
    node.start(envelope(), destination=QUEUE, now=NOW, reply_to=REPLIES)


def test_reply_destination_and_pattern() -> None:
    """Protocol-2050, 2051: a request has a JMSReplyTo, a one-way message has none."""
    with pytest.raises(LocalProtocolError, match="reply_to must be a destination for a request"):
        RequestingNode(endpoint()).start(envelope(), destination=QUEUE, now=NOW)
    with pytest.raises(LocalProtocolError, match="Protocol-2051"):
        RequestingNode(endpoint(), Mep.ONE_WAY).start(envelope(), destination=QUEUE, now=NOW, reply_to=REPLIES)


@pytest.mark.parametrize("mep", list(Mep))
def test_a_node_is_started_once(mep: Mep) -> None:
    """A second start is refused, and changes nothing."""
    node, _ = started(mep=mep)
    request = node.request
    with pytest.raises(LocalProtocolError, match="started before"):
        node.start(envelope(), destination=QUEUE, now=NOW, reply_to=None if mep is Mep.ONE_WAY else REPLIES)
    assert node.request is request


def test_a_failed_node_is_not_started() -> None:
    """An exchange that failed before its start is over."""
    node = RequestingNode(endpoint())
    node.send_failed("no connection")
    with pytest.raises(LocalProtocolError, match="it is in state Fail"):
        node.start(envelope(), destination=QUEUE, now=NOW, reply_to=REPLIES)


# The response


@pytest.mark.parametrize("by", ["correlation id", "message id", "message id of the request itself"])
def test_the_correlated_response(by: str) -> None:
    """A response is taken by our JMSCorrelationID (REC) or by our JMSMessageID (CR), where the broker told it."""
    node, request = started()
    node.sent()
    assert node.request is not None
    if by == "correlation id":
        event = node.receive(answer(request))
    elif by == "message id":
        event = node.receive(answer(request, correlation_id=request.message_id), message_id=request.message_id)
    else:
        node.request = request
        event = node.receive(answer(request, correlation_id=request.message_id))
    assert isinstance(event, ResponseReceived)
    assert event.fault is None
    assert event.envelope.version is SoapVersion.SOAP_11
    assert (node.machine.state, node.machine.failure_reason) == (State.SUCCESS, None)


@pytest.mark.parametrize("profile", [CR_2009, REC_2012], ids=lambda each: each.name)
@pytest.mark.parametrize("written_by", [CR_2009, REC_2012], ids=lambda each: each.name)
@pytest.mark.parametrize("version", list(SoapVersion))
def test_faults_are_responses(profile: Any, written_by: Any, version: SoapVersion) -> None:
    """A fault ends the exchange in Success, and is understood whichever edition the peer writes."""
    node, request = started(endpoint(profile=profile), version=version)
    fault = build_fault(version, "why", profile=written_by, subcode=Subcode.MISSING_REQUEST_URI)
    event = node.receive(answer(request, body=serialize(fault)))
    assert isinstance(event, ResponseReceived)
    assert event.fault is not None
    assert event.fault.subcode == "missingRequestURI"
    assert node.machine.state is State.SUCCESS


@pytest.mark.parametrize(
    "broken",
    [
        {"body": b"<a/>"},
        {"body": b"not XML"},
        {"body": None, "message_type": MessageType.TEXT},
        {"body": properties({"a": 1}), "message_type": MessageType.MAP},
    ],
)
def test_a_broken_response(broken: dict[str, Any]) -> None:
    """SOAP/JMS 2.6.1.3: a correlated response that is no envelope ends the exchange in Fail, receptionFailure."""
    node, request = started()
    response = answer(request, **broken)
    event = node.receive(response)
    assert isinstance(event, ExchangeFailed)
    assert (event.reason, event.message) == (FailureReason.RECEPTION_FAILURE, response)
    assert "no SOAP envelope" in event.text
    assert (node.machine.state, node.machine.failure_reason) == (State.FAIL, FailureReason.RECEPTION_FAILURE)


@pytest.mark.parametrize("correlation_id", [None, "", "another"])
def test_foreign_responses_are_ignored(correlation_id: str | None) -> None:
    """A message with another correlation id, or none, moves nothing; the right one is still awaited."""
    node, request = started()
    event = node.receive(answer(request, correlation_id=correlation_id))
    assert isinstance(event, ResponseIgnored)
    assert "of another exchange" in event.text
    assert node.machine.state is State.REQUESTING
    assert isinstance(node.receive(answer(request)), ResponseReceived)


def test_a_request_without_ids_has_no_response() -> None:
    """Without any id nothing correlates, least of all a message that has none either."""
    node, request = started(correlation_id=None)
    assert isinstance(node.receive(answer(request, correlation_id=None)), ResponseIgnored)


def test_late_and_duplicate_responses_are_ignored() -> None:
    """After Success or Fail nothing moves any more; before the start nothing is awaited."""
    node, request = started()
    assert isinstance(RequestingNode(endpoint()).receive(answer(request)), ResponseIgnored)
    node.receive(answer(request))
    duplicate = node.receive(answer(request))
    assert isinstance(duplicate, ResponseIgnored)
    assert duplicate.text == "the exchange is in state Success"
    late, request = started()
    late.handle_timeout(NOW + 1000)
    assert isinstance(late.receive(answer(request)), ResponseIgnored)
    assert late.machine.state is State.FAIL


# Time and failure


def test_timeout() -> None:
    """At its deadline, and not before, the exchange ends in Fail, receptionFailure; once."""
    node, _ = started()
    assert node.handle_timeout(NOW + 999) is None
    event = node.handle_timeout(NOW + 1000)
    assert isinstance(event, ExchangeFailed)
    assert event.reason is FailureReason.RECEPTION_FAILURE
    assert node.machine.failure_reason is FailureReason.RECEPTION_FAILURE
    assert node.handle_timeout(NOW + 2000) is None


def test_no_deadline() -> None:
    """Without a timeout nothing but the driver ends the wait."""
    node, _ = started(timeout=None)
    assert node.deadline is None
    assert node.handle_timeout(NOW * 2) is None


def test_a_response_that_cannot_come() -> None:
    """The driver tells that the connection is gone: Fail; after the end it is nothing new."""
    node, _ = started()
    event = node.receive_failed("connection lost")
    assert isinstance(event, ExchangeFailed)
    assert (event.reason, event.text) == (FailureReason.RECEPTION_FAILURE, "connection lost")
    assert node.receive_failed("connection lost") is None


@pytest.mark.parametrize("mep", list(Mep))
def test_a_message_that_cannot_be_sent(mep: Mep) -> None:
    """A failure to send ends either pattern in Fail, transmissionFailure."""
    node, _ = started(mep=mep)
    event = node.send_failed("refused")
    assert (event.reason, event.text) == (FailureReason.TRANSMISSION_FAILURE, "refused")
    assert (node.machine.state, node.machine.failure_reason) == (State.FAIL, FailureReason.TRANSMISSION_FAILURE)


def test_one_way() -> None:
    """SOAP/JMS 2.7.1: no JMSReplyTo, no deadline; the exchange ends when the message was sent."""
    node, message = started(endpoint("jms:queue:in?targetService=s"), Mep.ONE_WAY)
    assert (message.reply_to, node.deadline) == (None, None)
    assert message.properties.text("SOAPJMS_targetService") == "s"
    node.sent()
    assert node.machine.state is State.SUCCESS
    assert isinstance(node.receive(message), ResponseIgnored)


# Findings of a live exchange


def test_findings_of_a_live_exchange() -> None:
    """A live exchange is judged as a captured one: what was broken comes back with its assertion."""
    _, request = started()
    right = answer(request, properties=request.properties)
    assert findings(request, right, Setting()) == ()
    wrong = replace(
        right, correlation_id="x", properties=properties([Property("SOAPJMS_isFault", PropertyType.INT, 1)])
    )
    broken = {each.assertion: each.outcome for each in findings(request, wrong, Setting())}
    assert broken["Protocol-2038"] is VerdictOutcome.FAILED
    assert broken["Protocol-2010"] is VerdictOutcome.FAILED
    assert findings(replace(request, reply_to=None), None, Setting()) == ()


@pytest.mark.parametrize(
    ("encoding", "kind", "profile", "accepted"),
    [
        ("gzip", MessageType.TEXT, REC_2012, "must be identity for"),
        ("deflate", MessageType.BYTES, REC_2012, "must be gzip, identity for"),
        ("gzip", MessageType.BYTES, CR_2009, "must be identity for"),
    ],
)
def test_content_encodings_that_there_are_not(
    encoding: str, kind: MessageType, profile: Profile, accepted: str
) -> None:
    """What the edition does not have, or a text cannot be, is the caller's mistake, and said at once."""
    with pytest.raises(InvalidPropertyError, match=accepted):
        endpoint(profile=profile, message_type=kind, contentEncoding=encoding)


def test_a_compressed_request() -> None:
    """With contentEncoding the body is compressed, and the property says so."""
    request = started(endpoint(contentEncoding="GZIP"))[1]
    assert gzip.decompress(request.body) == envelope()
    assert request.properties.value("SOAPJMS_contentEncoding") == "gzip"


def test_another_attempt() -> None:
    """A node for another attempt makes the same message."""
    node, request = started(endpoint(SUPPLIED))
    again = node.another()
    made = again.start(
        envelope(),
        destination=QUEUE,
        now=NOW,
        correlation_id=request.correlation_id,
        reply_to=REPLIES,
        timeout=1000,
    )
    assert made == node.request
