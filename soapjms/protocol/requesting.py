"""The requesting node, and the sending node of one-way messages: one object for each exchange.

`start` makes the message; whoever drives the node sends it, tells how that went, and hands over what arrives. Time
is an argument; what the peer does wrong comes back as an event.

Spec: SOAP/JMS 2.6.1, 2.7.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lxml import etree

from brokers.message import Destination, Message, MessageDraft, MessageType, Properties
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting, Verdict, judge, violations
from soapjms.protocol.attachments import Attachment, Attachments
from soapjms.protocol.envelope import Envelope, Fault, read_envelope
from soapjms.protocol.errors import InvalidPropertyError, LocalProtocolError
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.mep import Input, State, StateMachine
from soapjms.protocol.message_parts import message_properties, written_body
from soapjms.protocol.names import FailureReason, Mep, Profile, Role
from soapjms.protocol.properties import Carrier, Effective, request_uri
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import EPOCH, Direction, Record
from soapjms.protocol.text import shown
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value

NO_OTHERS: Final = Properties()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, worked out once: the URI, the effective binding properties, and what follows from them.

    Attributes:
        uri: as supplied.
        properties: effective values, each with its origin.
        profile: the edition to write by.
        message_type: BYTES or TEXT.
        request_uri: what SOAPJMS_requestURI says.
        delivery_mode: the JMS header if somebody set it, None to leave it to the provider.
        priority: the same.
        soap_action: what requests have that name no other.
        target_service: what SOAPJMS_targetService says, None for nothing.
        time_to_live: milliseconds that a request lives, 0 for no end.
        content_encoding: what a body of one part is sent in, None for identity.
        limits: how much of a response is read.
    """

    uri: JmsUri
    properties: Effective
    profile: Profile
    message_type: MessageType
    request_uri: str
    delivery_mode: int | None
    priority: int | None
    soap_action: str | None
    target_service: str | None
    time_to_live: int
    content_encoding: str | None = None
    limits: Limits = DEFAULT_LIMITS

    @classmethod
    def of(
        cls,
        uri: JmsUri,
        properties: Effective,
        profile: Profile = names.DEFAULT_PROFILE,
        message_type: MessageType = MessageType.BYTES,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Endpoint:
        """Derive the requestURI and put everything together.

        Raises:
            InvalidPropertyError: a contentEncoding that the profile or the message type does not have.
        """
        return cls(
            uri,
            properties,
            profile,
            message_type,
            request_uri(uri),
            delivery_mode=_number(properties.stated("deliveryMode")),
            priority=_number(properties.stated("priority")),
            soap_action=_text(properties.value("soapAction")),
            target_service=_text(properties.value("targetService")),
            time_to_live=_number(properties.value("timeToLive")) or 0,
            content_encoding=_content_encoding(properties, profile, message_type),
            limits=limits,
        )

    def message_properties(
        self,
        carrier: Carrier,
        content_type: str,
        content_encoding: str | None,
        soap_action: str | None,
        others: Properties = NO_OTHERS,
    ) -> Properties:
        """Return the properties of a request or one-way message: the binding's, and others beside them."""
        of_binding = message_properties(
            carrier,
            self.profile.name,
            self.request_uri,
            content_type,
            content_encoding,
            False,
            soap_action,
            self.target_service,
        )
        return others.merged(of_binding) if others else of_binding


def _number(value: Value | None) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Value | None) -> str | None:
    return None if value is None else str(value)


def _content_encoding(properties: Effective, profile: Profile, message_type: MessageType) -> str | None:
    """Spec: REC 2.2.3 contentEncoding (WG-65)."""
    encoding = str(properties.value("contentEncoding") or "identity").lower()
    if encoding == "identity":
        return None
    known = profile.content_encodings or frozenset()
    if encoding in known and message_type is MessageType.BYTES:
        return encoding
    accepted = ", ".join(sorted(known | {"identity"})) if message_type is MessageType.BYTES else "identity"
    raise InvalidPropertyError(
        f"contentEncoding is {encoding!r}; a {message_type} message of {profile.name} has {accepted}"
    )


# Events


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The correlated response came, and is a SOAP envelope.

    Attributes:
        message: as it came.
        envelope: parsed.
        fault: the fault that it holds, None for a plain response.
        attachments: what came along.
    """

    message: Message
    envelope: Envelope
    fault: Fault | None
    attachments: Attachments


@dataclass(frozen=True, slots=True)
class ExchangeFailed:
    """The exchange ended in Fail.

    Attributes:
        reason: the failure reason.
        text: for people.
        message: what came, if something did.
    """

    reason: FailureReason
    text: str
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class ResponseIgnored:
    """Something arrived that is not this exchange's response: another's, a late or a second one. No state moved."""

    message: Message
    text: str


_CARRIERS: Final = (Carrier.REQUEST, Carrier.ONE_WAY)


class RequestingNode:
    """One exchange at the side that asks. Not thread-safe: one driver at a time.

    Args:
        endpoint: where the message goes, and what it says of that.
        mep: the pattern.
        others: message properties that are not of the binding; of one that has a name of the binding's nothing is left.

    Attributes:
        machine: state and failure reason.
        request: the message, once started.
        deadline: epoch milliseconds at which `handle_timeout` ends the exchange; None for a one-way message.
    """

    def __init__(self, endpoint: Endpoint, mep: Mep = Mep.REQUEST_RESPONSE, others: Properties = NO_OTHERS) -> None:
        self.endpoint = endpoint
        self._others = others
        self.machine = StateMachine(Role.REQUESTING if mep is Mep.REQUEST_RESPONSE else Role.SENDING)
        self.request: Message | None = None
        self.deadline: int | None = None

    def start(
        self,
        envelope: bytes | str | etree._Element,
        *,
        destination: Destination,
        now: int,
        soap_action: str | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | None = None,
        timeout: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Message:
        """Make the request, and begin to wait for its response.

        Args:
            envelope: octets, text or element. Octets are sent as they are in a BytesMessage.
            destination: what the URI's destination name resolved to.
            now: epoch milliseconds.
            soap_action: over the effective property soapAction.
            correlation_id: unique; a one-way message needs none.
            reply_to: where the response is to go; request-response only.
            timeout: milliseconds to wait for the response.
            attachments: what goes along. Such a message has no content encoding, as the REC defines none for it.

        Raises:
            InvalidEnvelopeError, UsageError, OSError: no SOAP envelope; attachments that do not fit or cannot be read.
            LocalProtocolError: started before, or JMSReplyTo does not fit the pattern.

        Spec: SOAP/JMS 2.6.1.1, 2.7.1; Protocol-2005 to 2010, 2016 to 2024, 2034, 2040, 2050, 2051.
        """
        one_way, at = self._check_start(reply_to), self.endpoint
        action = soap_action or at.soap_action
        body, kind, encoding = written_body(
            *read_envelope(envelope, at.limits), at.message_type, action, at.profile, attachments, at.content_encoding
        )
        self.request = MessageDraft(
            message_type=at.message_type,
            body=body,
            destination=destination,
            reply_to=reply_to,
            correlation_id=correlation_id,
            delivery_mode=at.delivery_mode,
            priority=at.priority,
            expiration=now + at.time_to_live if at.time_to_live else None,
            properties=at.message_properties(_CARRIERS[one_way], kind, encoding, action, self._others),
        ).frozen()
        if not one_way:
            self.machine.step(Input.REQUEST_STARTED)
            self.deadline = None if timeout is None else now + timeout
        return self.request

    def _check_start(self, reply_to: Destination | None) -> bool:
        """Refuse a start that the state or the pattern does not allow; return whether the pattern is one-way."""
        one_way = self.machine.role is Role.SENDING
        if self.request is not None or self.machine.state is not State.INIT:
            raise LocalProtocolError(f"the exchange was started before, it is in state {self.machine.state}")
        if (reply_to is None) is not one_way:
            rule = "a one-way message has no JMSReplyTo (Protocol-2051)" if one_way else "a request has a JMSReplyTo"
            raise LocalProtocolError(f"{rule}; given was {reply_to}")
        return one_way

    def sent(self) -> None:
        """Tell that the broker has the message. Ends a one-way exchange."""
        if self.machine.role is Role.SENDING:
            self.machine.step(Input.MESSAGE_SENT)

    def send_failed(self, text: str) -> ExchangeFailed:
        """Tell that the message could not be sent. Ends the exchange."""
        self.machine.step(Input.SENDING_FAILED)
        return ExchangeFailed(FailureReason.TRANSMISSION_FAILURE, text)

    def receive(
        self, message: Message, message_id: str | None = None
    ) -> ResponseReceived | ExchangeFailed | ResponseIgnored:
        """Take what arrived on the reply destination.

        Both profiles' correlation is accepted: by our JMSCorrelationID, or by our JMSMessageID where it is known.

        Args:
            message: what arrived.
            message_id: the JMSMessageID that the broker gave the request, where it told.

        Spec: SOAP/JMS 2.6.1.2, 2.6.1.3.
        """
        if not self.machine.allows(Input.RESPONSE_ARRIVED):
            return ResponseIgnored(message, f"the exchange is in state {self.machine.state}")
        assert self.request is not None
        ours = self.request.correlation_id, self.request.message_id, message_id
        if message.correlation_id is None or message.correlation_id not in ours:
            return ResponseIgnored(message, f"JMSCorrelationID {shown(message.correlation_id)} is of another exchange")
        self.machine.step(Input.RESPONSE_ARRIVED)
        reading = Reading(message, self.endpoint.profile, self.endpoint.limits, direction=Direction.RESPONSE)
        if reading.envelope is None:
            self.machine.step(Input.RESPONSE_BROKEN)
            text = f"the response is no SOAP envelope: {reading.envelope_problem}"
            return ExchangeFailed(FailureReason.RECEPTION_FAILURE, text, message)
        self.machine.step(Input.RESPONSE_READ)
        return ResponseReceived(message, reading.envelope, reading.fault, reading.attachments)

    def receive_failed(self, text: str) -> ExchangeFailed | None:
        """Tell that no response can come any more: the connection is gone, the caller gave up.

        None if it was over before.
        """
        if not self.machine.allows(Input.RECEIVING_FAILED):
            return None
        self.machine.step(Input.RECEIVING_FAILED)
        return ExchangeFailed(FailureReason.RECEPTION_FAILURE, text)

    def handle_timeout(self, now: int) -> ExchangeFailed | None:
        """End the exchange if its deadline has passed; None if it has not, or if it was over before.

        Spec: SOAP/JMS 2.6.1.2.
        """
        if self.deadline is None or now < self.deadline:
            return None
        return self.receive_failed("no correlated response came in time")


def capture_of(message: Message, direction: Direction) -> Record:
    """Wrap a live message as the rules look at it; its time of capture plays no part in them."""
    return Record(message=message, time=EPOCH, direction=direction)


def findings(request: Message, response: Message | None, setting: Setting) -> tuple[Verdict, ...]:
    """Judge a live exchange by every assertion that can be judged, and return those that were broken."""
    exchange = Exchange(
        id=request.message_id or request.correlation_id or "",
        pattern=Pattern.REQUEST_RESPONSE if request.reply_to is not None else Pattern.ONE_WAY,
        request=capture_of(request, Direction.REQUEST if request.reply_to is not None else Direction.ONE_WAY),
        response=None if response is None else capture_of(response, Direction.RESPONSE),
    )
    return tuple(violations(judge(exchange, setting)))
