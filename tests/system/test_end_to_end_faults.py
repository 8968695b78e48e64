"""A fault of every subcode, provoked with hand-made messages and read by hand: subcode and shape, in both profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from calling_kit import (
    PATIENCE,
    SOAP_11,
    SOAP_12,
    OnActiveMQ,
    OnEachBroker,
    arrivals,
    envelope,
    greeter,
    request_message,
)
from lxml import etree
from real_brokers import RealBroker

from brokers import Connection, Message, MessageType
from brokers.embedded import Broker
from soapjms import CR_2009, REC_2012, Dispatcher, Profile, SoapVersion, Subcode
from soapjms.protocol import names

BOTH: Final = (SOAP_11, SOAP_12)


@dataclass(frozen=True)
class Cause:
    """What gives cause for a fault: properties put over the right ones, and a change to the message."""

    subcode: Subcode
    properties: dict[str, str | None] = field(default_factory=dict)
    versions: tuple[SoapVersion, ...] = BOTH
    change: Callable[[Message], Message] = lambda message: message
    profiles: tuple[Profile, ...] = (REC_2012, CR_2009)
    body: bytes | str | None = None

    def request(self, version: SoapVersion, destination: str, reply_to: Any) -> Message:
        """Make the request."""
        body = self.body or envelope("World", version)
        kind = f"{version.media_type}; charset=utf-8"
        return self.change(
            request_message(destination, reply_to, body, properties={names.CONTENT_TYPE: kind} | self.properties)
        )


def without_body(message: Message) -> Message:
    """Make it a message that is neither a BytesMessage nor a TextMessage with a body."""
    return replace(message, message_type=MessageType.MESSAGE, body=None)


UTF_16 = envelope().decode().encode("utf-16")
WITH_ACTION = 'application/soap+xml; charset=utf-8; action="urn:a"'
CAUSES: Final = (
    Cause(Subcode.UNSUPPORTED_LOOKUP_VARIANT, {names.REQUEST_URI: "jms:mail:greeter"}),
    Cause(Subcode.UNRECOGNIZED_BINDING_VERSION, {names.BINDING_VERSION: "0.3"}),
    Cause(Subcode.CONTENT_TYPE_MISMATCH, {names.CONTENT_TYPE: "text/plain"}),
    Cause(Subcode.CONTENT_TYPE_MISMATCH, {names.CONTENT_TYPE: "text/xml; charset=utf-8"}, (SOAP_11,), body=UTF_16),
    Cause(
        Subcode.CONTENT_TYPE_MISMATCH,
        {names.CONTENT_TYPE: "text/xml; charset=utf-8"},
        (SOAP_11,),
        body=envelope("", SOAP_12),
    ),
    Cause(Subcode.MISSING_CONTENT_TYPE, {names.CONTENT_TYPE: None}),
    Cause(Subcode.MISMATCHED_SOAP_ACTION, {names.CONTENT_TYPE: WITH_ACTION, names.SOAP_ACTION: "urn:b"}, (SOAP_12,)),
    Cause(Subcode.MISMATCHED_SOAP_ACTION, {names.CONTENT_TYPE: WITH_ACTION}, (SOAP_12,), profiles=(CR_2009,)),
    Cause(Subcode.MISSING_SOAP_ACTION, {names.CONTENT_TYPE: WITH_ACTION}, (SOAP_12,), profiles=(REC_2012,)),
    Cause(Subcode.MISSING_REQUEST_URI, {names.REQUEST_URI: None}),
    Cause(Subcode.MALFORMED_REQUEST_URI, {names.REQUEST_URI: "jms:queue:greeter%"}),
    Cause(Subcode.TARGET_SERVICE_NOT_ALLOWED, {names.REQUEST_URI: "jms:queue:greeter?targetService=a"}),
    Cause(Subcode.CONTENT_ENCODING_NOT_SUPPORTED, {names.CONTENT_ENCODING: "compress"}, profiles=(REC_2012,)),
)
UNSUPPORTED: Final = Cause(Subcode.UNSUPPORTED_MESSAGE_FORMAT, change=without_body)


def cases() -> Iterator[Any]:
    """Give each cause in each profile and SOAP version that it is one in."""
    for number, cause in enumerate(CAUSES):
        for profile in cause.profiles:
            for version in cause.versions:
                yield pytest.param(cause, profile, version, id=f"{number}-{cause.subcode}-{profile.name}-{version}")


def test_every_subcode() -> None:
    """Both profiles' subcodes are all provoked, in both SOAP versions where the binding lets them be."""
    for profile in (REC_2012, CR_2009):
        found = {cause.subcode for cause in (*CAUSES, UNSUPPORTED) if profile in cause.profiles}
        assert found == profile.subcodes


def assert_fault(body: bytes | str, version: SoapVersion, profile: Profile, subcode: Subcode) -> None:
    """Check that a fault has the shape that the profile gives it (SOAP/JMS 2.8), read without our own reader."""
    root = etree.fromstring(body)
    env = f"{{{version.namespace}}}"
    assert root.tag == f"{env}Envelope"
    (fault,) = root.findall(f"{env}Body/*")
    assert fault.tag == f"{env}Fault"
    if version is SOAP_12:
        assert resolved(fault.find(f"{env}Code/{env}Value")) == f"{env}Sender"
        assert resolved(fault.find(f"{env}Code/{env}Subcode/{env}Value")) == f"{{{profile.namespace}}}{subcode}"
        assert fault.findtext(f"{env}Reason/{env}Text")
        assert fault.find(f"{env}Detail") is None
        return
    assert fault.findtext("faultstring")
    if profile is REC_2012:
        assert resolved(fault.find("faultcode")) == f"{{{profile.namespace}}}{subcode}"
        assert fault.find("detail") is None
    else:
        assert resolved(fault.find("faultcode")) == f"{env}Client"
        assert [each.tag for each in fault.findall("detail/*")] == [f"{{{profile.namespace}}}{subcode}"]


def resolved(found: Any) -> str:
    """Resolve the QName in an element's text."""
    prefix, _, local = found.text.partition(":")
    return f"{{{found.nsmap[prefix]}}}{local}"


class TestHandMadeRequests(OnEachBroker):
    """Requests that break one rule each."""

    @pytest.mark.parametrize(("cause", "profile", "version"), list(cases()))
    def test_fault(
        self, connection: Connection, other: Connection, name: str, cause: Cause, profile: Profile, version: SoapVersion
    ) -> None:
        """The fault has the rule's subcode, in the shape of profile and SOAP version, and so has the message."""
        reply_to = connection.temporary()
        request = cause.request(version, name, reply_to)
        with (
            arrivals(connection, reply_to) as replies,
            Dispatcher(other, f"jms:queue:{name}", greeter(), profile=profile),
        ):
            connection.send(request)
            reply = replies.next()
        assert isinstance(reply.body, bytes)
        assert_fault(reply.body, version, profile, cause.subcode)
        assert reply.properties.text(names.IS_FAULT) == "true"
        assert reply.properties.text(names.CONTENT_TYPE) == f"{version.media_type}; charset=utf-8"
        assert reply.properties.text(names.BINDING_VERSION) == "1.0"
        assert reply.properties.text(names.REQUEST_URI) == request.properties.text(names.REQUEST_URI)
        if profile is REC_2012:
            assert reply.correlation_id == request.correlation_id
        elif other.capabilities.stable_message_id:
            assert (reply.correlation_id or "").startswith("ID:")
        else:  # Artemis tells a STOMP client no JMSMessageID, but a number of its own
            assert (reply.correlation_id or "").isdecimal()

    @pytest.mark.parametrize("version", BOTH)
    def test_text_message(self, connection: Connection, other: Connection, name: str, version: SoapVersion) -> None:
        """A TextMessage is answered with a TextMessage."""
        reply_to = connection.temporary()
        cause = Cause(Subcode.MISSING_REQUEST_URI, {names.REQUEST_URI: None}, body=envelope("", version).decode())
        with arrivals(connection, reply_to) as replies, Dispatcher(other, f"jms:queue:{name}", greeter()):
            connection.send(cause.request(version, name, reply_to))
            reply = replies.next()
        assert reply.message_type is MessageType.TEXT
        assert isinstance(reply.body, str)
        assert_fault(reply.body, version, REC_2012, cause.subcode)


@pytest.mark.parametrize("profile", [REC_2012, CR_2009])
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("kind", [MessageType.MAP, MessageType.STREAM, MessageType.OBJECT, MessageType.MESSAGE])
def test_unsupported_format(kind: MessageType, version: SoapVersion, profile: Profile) -> None:
    """On the embedded broker, each other JMS message type is refused as what it is."""
    with Broker().connect() as connection:
        reply_to = connection.temporary()
        request = replace(UNSUPPORTED.request(version, "greeter", reply_to), message_type=kind)
        with (
            arrivals(connection, reply_to) as replies,
            Dispatcher(connection, "jms:queue:greeter", greeter(), profile=profile),
        ):
            connection.send(request)
            reply = replies.next()
    assert isinstance(reply.body, bytes)
    assert_fault(reply.body, version, profile, Subcode.UNSUPPORTED_MESSAGE_FORMAT)
    assert f"of type {kind}" in reply.body.decode()


class TestJavaClient(OnActiveMQ):
    """Real messages of a Java client, which over STOMP show no type."""

    @pytest.fixture
    def served(self, other: Connection, uri: str, profile: Profile) -> Iterator[Dispatcher]:
        with Dispatcher(other, uri, greeter(), profile=profile) as dispatcher:
            yield dispatcher

    @pytest.mark.parametrize(
        ("kind", "profile"),
        [
            *((kind, REC_2012) for kind in ("map", "stream", "object", "message", "null-text")),
            *((kind, CR_2009) for kind in ("map", "null-text")),
        ],
    )
    def test_unsupported_format(
        self, activemq: RealBroker, name: str, served: Dispatcher, kind: str, profile: Profile
    ) -> None:
        """Map, Stream, Object, plain and null-text messages are answered with unsupportedJMSMessageFormat."""
        reply = activemq.send_special(kind, name, reply_to="temporary", wait=PATIENCE)
        assert reply is not None
        assert_fault(reply["body"], SOAP_11, profile, Subcode.UNSUPPORTED_MESSAGE_FORMAT)
        assert reply["correlationId"] == reply["messageId"]
        assert reply["properties"][names.IS_FAULT] == "true"
        assert served.counts["unsupportedJMSMessageFormat"] == 1

    @pytest.mark.parametrize(("kind", "profile"), [("text", REC_2012), ("bytes", REC_2012)])
    def test_supported_format(
        self, activemq: RealBroker, name: str, served: Dispatcher, kind: str, profile: Profile
    ) -> None:
        """The same request as a TextMessage or BytesMessage is accepted, and answered in its own type."""
        reply = activemq.send_special(kind, name, reply_to="temporary", wait=PATIENCE)
        assert reply is not None
        assert reply["type"] == kind
        assert "no operation for the element" in reply["body"]
        assert served.counts["accepted"] == 1
