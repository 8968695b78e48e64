"""The requesting node, and the sending node of one-way messages: one object for each exchange.

`start` makes the message; the driver of the node sends it, reports the outcome, and passes on what arrives. Time is an
argument; the peer's mistakes are returned as events.

Spec: SOAP/JMS 2.6.1, 2.7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from lxml import etree

from brokers.message import Destination, Message, MessageDraft, MessageType, Properties
from soapjms.protocol import names
from soapjms.protocol.assertions import Setting, Verdict, judge, violations
from soapjms.protocol.attachments import Attachment, Attachments
from soapjms.protocol.envelope import Envelope, Fault, read_envelope, read_fault
from soapjms.protocol.errors import InvalidPropertyError, LocalProtocolError
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.mep import Input, State, StateMachine
from soapjms.protocol.message_parts import message_properties, written_body
from soapjms.protocol.names import FailureReason, Mep, Profile, Role
from soapjms.protocol.properties import Carrier, Effective, request_uri
from soapjms.protocol.received_message import NO_ATTACHMENTS, Reading
from soapjms.protocol.record import EPOCH, Direction, Record
from soapjms.protocol.text import shown
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import LONGEST_LIFETIME_MILLISECONDS, Value

NO_OTHERS: Final = Properties()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of requests, worked out once: the URI, the effective binding properties, and values derived of them.

    Attributes:
        uri: the URI, as supplied.
        properties: the effective properties, each with its origin.
        profile: the profile to write by.
        message_type: BYTES or TEXT.
        request_uri: the value of SOAPJMS_requestURI.
        delivery_mode: JMSDeliveryMode if it was set; None to leave it to the provider.
        priority: JMSPriority if it was set; None to leave it to the provider.
        soap_action: SOAPJMS_soapAction of requests without their own; None if it was not set, or is empty.
        target_service: the value of SOAPJMS_targetService; None if it was not set, or is empty.
        time_to_live: milliseconds until a message expires, 0 for never; None if it was not set.
        content_encoding: the content encoding of a body of one part; None for identity.
        limits: the limits for reading a response.
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
    time_to_live: int | None
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
        """Make an endpoint of a URI and its effective properties.

        Raises:
            InvalidPropertyError: the profile or the message type does not have the contentEncoding.
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
            time_to_live=_number(properties.stated("timeToLive")),
            content_encoding=_content_encoding(properties, profile, message_type),
            limits=limits,
        )

    def expiration(self, now: int, time_to_live: int | None) -> int | None:
        """Return JMSExpiration of a message that is sent `now`; a timeToLive that was set takes precedence."""
        lifetime = time_to_live if self.time_to_live is None else self.time_to_live
        return now + min(lifetime, LONGEST_LIFETIME_MILLISECONDS) if lifetime else None


def _number(value: Value | None) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Value | None) -> str | None:
    return None if value is None else str(value) or None


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
        f"contentEncoding must be {accepted} for a {message_type} message of {profile.name}, got {encoding!r}"
    )


# Events


class ResponseReceived(NamedTuple):
    """The correlated response was received, and is a SOAP envelope.

    Attributes:
        message: the message, as it was received.
        envelope: the SOAP envelope, parsed.
        fault: the fault in the envelope; None for a plain response.
        attachments: the attachments of the response.
    """

    message: Message
    envelope: Envelope
    fault: Fault | None
    attachments: Attachments


_new_response: Final[Callable[[tuple[Any, ...]], ResponseReceived]] = partial(tuple.__new__, ResponseReceived)
"""Make the event of its parts, in half the time of `ResponseReceived`."""


@dataclass(frozen=True, slots=True)
class ExchangeFailed:
    """The exchange ended in Fail.

    Attributes:
        reason: the failure reason.
        text: the text for people.
        message: the message that was received, or None.
    """

    reason: FailureReason
    text: str
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class ResponseIgnored:
    """A message is not the response of this exchange: it is another's, too late, or a duplicate. No state moved."""

    message: Message
    text: str


_CARRIERS: Final = (Carrier.REQUEST, Carrier.ONE_WAY)


class RequestingNode:
    """One exchange at the requesting or sending side. Not thread-safe: one driver at a time.

    Args:
        endpoint: the endpoint of the message.
        mep: the message exchange pattern.
        others: further message properties; the binding's own property replaces one of the same name.

    Attributes:
        machine: the state and the failure reason.
        request: the message, once `start` has made it.
        deadline: epoch milliseconds at which `handle_timeout` ends the exchange; None for a one-way message.
    """

    def __init__(self, endpoint: Endpoint, mep: Mep = Mep.REQUEST_RESPONSE, others: Properties = NO_OTHERS) -> None:
        self.endpoint = endpoint
        self._mep = mep
        self._others = others
        self.machine = StateMachine(Role.REQUESTING if mep is Mep.REQUEST_RESPONSE else Role.SENDING)
        self.request: Message | None = None
        self.deadline: int | None = None

    def another(self) -> RequestingNode:
        """Return a node for another attempt to send the same message."""
        return RequestingNode(self.endpoint, self._mep, self._others)

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
        time_to_live: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Message:
        """Make the request, and begin to wait for its response.

        Args:
            envelope: the SOAP envelope as octets, text or element. A BytesMessage carries octets as they are.
            destination: the destination that the URI's destination name resolved to.
            now: the present time, in epoch milliseconds.
            soap_action: SOAPJMS_soapAction; takes precedence over the effective property soapAction.
            correlation_id: a unique JMSCorrelationID; a one-way message needs none.
            reply_to: JMSReplyTo; for request-response only.
            timeout: milliseconds to wait for the response; None for no deadline.
            time_to_live: milliseconds until the message expires if the properties do not say; None or 0 for never.
            attachments: the attachments to send. Such a message has no content encoding, as the REC defines none.

        Raises:
            InvalidEnvelopeError, UsageError: the envelope or an attachment is not valid or cannot be read.
            LocalProtocolError: the node was started before, or `reply_to` does not fit the pattern.

        Spec: SOAP/JMS 2.6.1.1, 2.7.1; Protocol-2005 to 2010, 2016 to 2024, 2034, 2040, 2050, 2051.
        """
        at, one_way = self.endpoint, self._mep is Mep.ONE_WAY
        self._check_start(reply_to, one_way)
        body, properties = self._written(envelope, soap_action or at.soap_action, attachments)
        self.request = MessageDraft(
            message_type=at.message_type,
            body=body,
            destination=destination,
            reply_to=reply_to,
            correlation_id=correlation_id,
            delivery_mode=at.delivery_mode,
            priority=at.priority,
            expiration=at.expiration(now, time_to_live),
            properties=properties,
        ).frozen()
        if not one_way:
            self.machine.step(Input.REQUEST_STARTED)
            self.deadline = None if timeout is None else now + timeout
        return self.request

    def _written(
        self, envelope: bytes | str | etree._Element, action: str | None, attachments: Sequence[Attachment]
    ) -> tuple[bytes | str, Properties]:
        """Return the body and the properties of the request."""
        at, carrier = self.endpoint, _CARRIERS[self._mep is Mep.ONE_WAY]
        read = read_envelope(envelope, at.limits)
        body, kind, encoding = written_body(
            *read, at.message_type, action, at.profile, attachments, at.content_encoding
        )
        of_binding = message_properties(
            carrier, at.profile.name, at.request_uri, kind, encoding, False, action, at.target_service
        )
        return body, self._others.merged(of_binding) if self._others else of_binding

    def _check_start(self, reply_to: Destination | None, one_way: bool) -> None:
        """Raise LocalProtocolError if the state or the pattern does not allow a start."""
        if self.request is not None or self.machine.state is not State.INIT:
            raise LocalProtocolError(f"the exchange was started before; it is in state {self.machine.state}")
        if (reply_to is None) is not one_way:
            rule = "be None for a one-way message (Protocol-2051)" if one_way else "be a destination for a request"
            raise LocalProtocolError(f"reply_to must {rule}, got {reply_to}")

    def sent(self) -> None:
        """Report that the broker has the message. Ends a one-way exchange."""
        if self.machine.role is Role.SENDING:
            self.machine.step(Input.MESSAGE_SENT)

    def send_failed(self, text: str) -> ExchangeFailed:
        """Report that the message could not be sent. Ends the exchange."""
        self.machine.step(Input.SENDING_FAILED)
        return ExchangeFailed(FailureReason.TRANSMISSION_FAILURE, text)

    def receive(
        self, message: Message, message_id: str | None = None
    ) -> ResponseReceived | ExchangeFailed | ResponseIgnored:
        """Take a message from the reply destination.

        The correlation of both editions is accepted: by the request's JMSCorrelationID, or by its JMSMessageID if that
        is known.

        Args:
            message: the message.
            message_id: the JMSMessageID of the request, if the broker reported it.

        Spec: SOAP/JMS 2.6.1.2, 2.6.1.3.
        """
        request, correlation_id = self.request, message.correlation_id
        if request is None or not self.machine.allows(Input.RESPONSE_ARRIVED):
            return ResponseIgnored(message, f"the exchange is in state {self.machine.state}")
        if correlation_id is None or correlation_id not in (request.correlation_id, request.message_id, message_id):
            return ResponseIgnored(message, f"JMSCorrelationID {shown(correlation_id)} is of another exchange")
        self.machine.step(Input.RESPONSE_ARRIVED)
        reading = Reading(message, self.endpoint.profile, self.endpoint.limits, direction=Direction.RESPONSE)
        envelope = reading.envelope
        if envelope is None:
            self.machine.step(Input.RESPONSE_BROKEN)
            text = f"the response is no SOAP envelope: {reading.envelope_problem}"
            return ExchangeFailed(FailureReason.RECEPTION_FAILURE, text, message)
        self.machine.step(Input.RESPONSE_READ)
        attachments = reading.attachments if reading.described.is_multipart else NO_ATTACHMENTS
        return _new_response((message, envelope, read_fault(envelope), attachments))

    def receive_failed(self, text: str) -> ExchangeFailed | None:
        """Report that no response can come any more, as the connection is gone or the caller gave up.

        Return None if the exchange was over before.
        """
        if not self.machine.allows(Input.RECEIVING_FAILED):
            return None
        self.machine.step(Input.RECEIVING_FAILED)
        return ExchangeFailed(FailureReason.RECEPTION_FAILURE, text)

    def handle_timeout(self, now: int) -> ExchangeFailed | None:
        """End the exchange if its deadline has passed; return None if it has not, or the exchange was over before.

        Spec: SOAP/JMS 2.6.1.2.
        """
        if self.deadline is None or now < self.deadline:
            return None
        return self.receive_failed("no correlated response came in time")


def capture_of(message: Message, direction: Direction) -> Record:
    """Wrap a live message in a record for judging; no rule uses its time of capture."""
    return Record(message=message, time=EPOCH, direction=direction)


def findings(request: Message, response: Message | None, setting: Setting) -> tuple[Verdict, ...]:
    """Judge a live exchange by every assertion that can be judged, and return the verdicts of the broken ones."""
    exchange = Exchange(
        id=request.message_id or request.correlation_id or "",
        pattern=Pattern.REQUEST_RESPONSE if request.reply_to is not None else Pattern.ONE_WAY,
        request=capture_of(request, Direction.REQUEST if request.reply_to is not None else Direction.ONE_WAY),
        response=None if response is None else capture_of(response, Direction.RESPONSE),
    )
    return tuple(violations(judge(exchange, setting)))
