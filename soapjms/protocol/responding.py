"""The responding node, and the receiving node of one-way messages: one object for each exchange.

`receive` judges the request by the same assertions as the replay; the first broken assertion with a subcode becomes the
fault. `respond` makes the response. The driver of the node sends it and reports the outcome.

Spec: SOAP/JMS 2.6.2, 2.7.2, 2.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from lxml import etree

from brokers.message import Message, MessageDraft, MessageType, Properties, changed
from soapjms.protocol import names
from soapjms.protocol.assertions import (
    Setting,
    Verdict,
    habits_of,
    judge_request,
    readings,
)
from soapjms.protocol.attachments import Attachment, Attachments
from soapjms.protocol.envelope import Envelope, build_fault, enclosed, read_envelope, read_fault
from soapjms.protocol.errors import Blame, LocalProtocolError
from soapjms.protocol.exchange import Exchange, Pattern
from soapjms.protocol.limits import Excess
from soapjms.protocol.mep import Input, State, StateMachine
from soapjms.protocol.message_parts import content_type, message_properties, written_body
from soapjms.protocol.names import FailureReason, Role, SoapVersion, Subcode
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import NO_ATTACHMENTS, MessageDescription, Reading
from soapjms.protocol.record import Direction

NO_OTHERS: Final = Properties()

NO_ENVELOPE: Final = frozenset({"Protocol-2014", "Protocol-2029", "Protocol-2030", "Local-2.4-partEnvelope"})
"""The assertions on reading a body: their breach has no subcode, and there is no envelope then."""


class RequestAccepted(NamedTuple):
    """The request follows the rules, and is a SOAP envelope.

    Attributes:
        message: the message, as it was received.
        one_way: True if nobody waits for a response.
        tolerated: the verdicts of assertions that were broken and tolerated.
        envelope: the SOAP envelope, parsed.
        soap_action: SOAPJMS_soapAction without the quotes that some stacks put around it, or None.
        target_service: SOAPJMS_targetService, or None.
        attachments: the attachments of the request.
        reading: the message, read for judging.
    """

    message: Message
    one_way: bool
    tolerated: tuple[Verdict, ...]
    envelope: Envelope
    soap_action: str | None
    target_service: str | None
    attachments: Attachments
    reading: Reading

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """The code and text of each habit of real stacks that the message shows."""
        return tuple(habits_of(self.reading, Carrier.ONE_WAY if self.one_way else Carrier.REQUEST))


_accepted: Final[Callable[[tuple[Any, ...]], RequestAccepted]] = partial(tuple.__new__, RequestAccepted)
"""Make the event of its parts, in half the time of `RequestAccepted`."""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The request breaks a rule.

    Attributes:
        message: the message, as it was received.
        one_way: True if there is no destination for the fault.
        subcode: the subcode of the fault; None for a body that is not a SOAP envelope, as the binding has none for it.
        reason: the text for people, also in the fault.
        fault: the envelope with the fault.
        verdict: the verdict of the broken assertion; None if no assertion covers the problem.
        excess: the limit that the body exceeds, or None.
    """

    message: Message
    one_way: bool
    subcode: Subcode | None
    reason: str
    fault: etree._Element
    verdict: Verdict | None
    excess: Excess | None = None


class RespondingNode:
    """One exchange at the responding or receiving side. Not thread-safe: one driver at a time.

    Attributes:
        setting: profile, supported variants, strictness, limits.
        machine: the state and the failure reason; its role is known once a message was received.
        default_version: the SOAP version of a fault for a request that does not show its version.
        is_fault: True if the response that was made holds a fault.
    """

    def __init__(self, setting: Setting, default_version: SoapVersion = SoapVersion.SOAP_11) -> None:
        self.setting = setting
        self.default_version = default_version
        self.machine = StateMachine(Role.RESPONDING)
        self.is_fault = False
        self._reading: Reading | None = None
        self._encoding: str | None = None

    def receive(self, message: Message) -> RequestAccepted | RequestRefused:
        """Take a request or a one-way message. Never raises for the content of the message.

        Raises:
            LocalProtocolError: the node has received a message before.

        Spec: SOAP/JMS 2.6.2.2, 2.8.
        """
        direction = Direction.ONE_WAY if message.reply_to is None else Direction.REQUEST
        return self.take(Reading(message, self.setting.profile, self.setting.limits, direction=direction))

    def take(self, reading: Reading) -> RequestAccepted | RequestRefused:
        """Take a message that was read before, by the profile and the limits of this node; see `receive`."""
        if self.machine.state is not State.INIT:
            raise LocalProtocolError("a node is for one exchange, and this one has received its message; make another")
        message = reading.message
        one_way = message.reply_to is None
        if one_way:
            self.machine = StateMachine(Role.RECEIVING)
        self.machine.step(Input.REQUEST_ARRIVED)
        carrier = Carrier.ONE_WAY if one_way else Carrier.REQUEST
        self._reading = reading
        tolerated: list[Verdict] = []
        for verdict in judge_request(reading, carrier, self.setting):
            if verdict.expected_subcodes:
                return self._refuse(reading, verdict.expected_subcodes[0], verdict.reason or "", verdict)
            tolerated.append(verdict)
        envelope, described = reading.envelope, reading.described
        if envelope is None:
            broken_body = next((each for each in tolerated if each.assertion in NO_ENVELOPE), None)
            return self._refuse(reading, None, reading.envelope_problem or "", broken_body)
        if one_way:
            self.machine.step(Input.MESSAGE_READ)
        self._encoding = described.content_encoding
        attachments = reading.attachments if described.is_multipart else NO_ATTACHMENTS
        action, target = described.soap_action, described.target_service
        return _accepted((message, one_way, tuple(tolerated), envelope, action, target, attachments, reading))

    def _refuse(
        self, reading: Reading, subcode: Subcode | None, reason: str, verdict: Verdict | None
    ) -> RequestRefused:
        one_way = self.machine.role is Role.RECEIVING
        if one_way:
            self.machine.step(Input.RECEIVING_FAILED)
        version = reading.soap_version or self.default_version
        blame = Blame.SENDER if subcode is not None else reading.envelope_blame
        fault = build_fault(version, reason, profile=self.setting.profile, subcode=subcode, blame=blame)
        excess = reading.excess if subcode is None else None
        return RequestRefused(reading.message, one_way, subcode, reason, fault, verdict, excess)

    def respond(
        self,
        envelope: bytes | str | etree._Element,
        attachments: Sequence[Attachment] = (),
        others: Properties = NO_OTHERS,
    ) -> Message:
        """Make the response from an envelope: a plain one or a fault.

        The response has the message type, priority, delivery mode and expiration of the request, goes to its
        JMSReplyTo, and repeats its JMSCorrelationID (CR: its JMSMessageID) and requestURI. Without attachments it has
        the content encoding of the request, if that was accepted: a sender of gzip can read it too. `others` are
        properties beside those of the binding.

        Raises:
            InvalidEnvelopeError: `envelope` is not a SOAP envelope.
            UsageError, OSError: an attachment does not fit the envelope or the others, or could not be read.
            LocalProtocolError: there is no request to respond to, or it was one-way.

        Spec: SOAP/JMS 2.6.2.3; Protocol-2036 to 2039.
        """
        parsed, octets = read_envelope(envelope, self.setting.limits)
        profile = self.setting.profile
        reading = self._unanswered()
        message_type = MessageType.TEXT if reading.message.message_type is MessageType.TEXT else MessageType.BYTES
        body, kind, encoding = written_body(parsed, octets, message_type, None, profile, attachments, self._encoding)
        self.is_fault = read_fault(parsed) is not None
        of_binding = self._properties(reading.described, kind, encoding)
        return self._response(reading.message, message_type, body, others.merged(of_binding) if others else of_binding)

    def respond_with(self, content: etree._Element, version: SoapVersion) -> Message:
        """Make the response from the element for its body, which is neither an envelope nor a fault; see `respond`.

        Raises:
            LocalProtocolError: there is no request to respond to, or it was one-way.
        """
        reading, octets = self._unanswered(), enclosed(content, version)
        if self._encoding is not None or reading.message.message_type is not MessageType.BYTES:
            return self.respond(octets)
        self.is_fault = False
        described, profile = reading.described, self.setting.profile
        key = profile.name, version
        of_binding = described.answers.get(key)
        if of_binding is None:
            kind = content_type(profile.media_types[version], "utf-8")
            of_binding = self._properties(described, kind, None)
            described.answers[key] = of_binding
        return self._response(reading.message, MessageType.BYTES, octets, of_binding)

    def _properties(self, described: MessageDescription, kind: str, encoding: str | None) -> Properties:
        """Return the binding's properties of the response to a request with these properties."""
        make_properties = message_properties if described.is_short else message_properties.__wrapped__
        uri, profile = described.text(names.REQUEST_URI), self.setting.profile
        return make_properties(Carrier.RESPONSE, profile.name, uri, kind, encoding, self.is_fault)

    def _response(
        self, request: Message, message_type: MessageType, body: bytes | str, properties: Properties
    ) -> Message:
        self.machine.step(Input.RESPONSE_READY)
        self._reading = None
        return MessageDraft(
            message_type=message_type,
            body=body,
            destination=request.reply_to,
            correlation_id=self._correlation_id(request),
            delivery_mode=request.delivery_mode,
            priority=request.priority,
            expiration=request.expiration or None,
            properties=properties,
        ).frozen()

    def respond_again(self, response: Message) -> Message:
        """Address a response that was made for an earlier delivery of the same request, or for an earlier try.

        It has the priority, delivery mode and expiration of this one, as a response that was made now: that of a try
        whose caller stopped waiting would have expired. The rest is unchanged.

        Raises:
            LocalProtocolError: there is no request to respond to, or it was one-way.

        Spec: SOAP/JMS 2.6.2.3; Protocol-2038.
        """
        request, setting = self._unanswered().message, self.setting
        self.machine.step(Input.RESPONSE_READY)
        again = Reading(response, setting.profile, setting.limits, direction=Direction.RESPONSE)
        self.is_fault = again.fault is not None
        return changed(
            response,
            destination=request.reply_to,
            correlation_id=self._correlation_id(request),
            delivery_mode=request.delivery_mode,
            priority=request.priority,
            expiration=request.expiration or None,
        )

    def _unanswered(self) -> Reading:
        if self._reading is None or not self.machine.allows(Input.RESPONSE_READY):
            raise LocalProtocolError(f"there is no request to respond to in state {self.machine.state}")
        return self._reading

    def _correlation_id(self, request: Message) -> str | None:
        """Return the JMSCorrelationID of the response: the id that the rule requires, or the other if that is absent.

        Over AMQP, Artemis has no JMSMessageID for messages sent over STOMP. Spec: SOAP/JMS 2.6.2.3; Protocol-2038.
        """
        if self.setting.profile.correlation is names.CorrelationRule.MESSAGE_ID:
            return request.message_id or request.correlation_id
        return request.correlation_id or request.message_id

    def sent(self) -> None:
        """Report that the broker has the response. Ends the exchange."""
        self.machine.step(Input.RESPONSE_SENT)

    def send_failed(self) -> FailureReason:
        """Report that the response could not be sent. Ends the exchange."""
        self.machine.step(Input.SENDING_FAILED)
        return FailureReason.TRANSMISSION_FAILURE


# Replay


@dataclass(frozen=True, slots=True)
class Reaction:
    """The reaction of a responding node to a captured request, compared with the captured response.

    Attributes:
        accepted: True if the node accepts the request.
        expected: the subcode of the node's fault; None if it accepts, or the binding has no subcode.
        fits: every subcode that would be right.
        answered: True if a response was captured.
        observed: the subcode of the captured fault; None if it has none, or there is no fault.
        is_fault: True if the captured response is a fault of any kind.
    """

    accepted: bool
    expected: str | None
    fits: tuple[str, ...]
    answered: bool
    observed: str | None
    is_fault: bool

    @property
    def agrees(self) -> bool | None:
        """True if node and capture agree; None if no response was captured.

        A fault of the application does not contradict a request that is accepted.
        """
        if not self.answered:
            return None
        if self.accepted:
            return self.observed is None
        return self.observed in self.fits if self.fits else self.is_fault


def reaction(
    exchange: Exchange, setting: Setting, messages: Mapping[Carrier, Reading] | None = None
) -> Reaction | None:
    """Run a captured request through a responding node; None if there is no request, or its body was cut.

    Args:
        exchange: the captured exchange.
        setting: the setting of the node.
        messages: the messages of the exchange as `readings` returns them; None to read them.
    """
    if exchange.request is None or exchange.request.truncated or exchange.pattern is Pattern.ONE_WAY:
        return None
    messages = messages or readings(exchange, setting)
    request, response = messages[Carrier.REQUEST], messages.get(Carrier.RESPONSE)
    event = RespondingNode(setting).take(request)
    fault = None if response is None else response.fault
    refused = event.subcode if isinstance(event, RequestRefused) else None
    return Reaction(
        accepted=isinstance(event, RequestAccepted),
        expected=None if refused is None else str(refused),
        fits=() if refused is None else _fitting(request, setting),
        answered=response is not None,
        observed=None if fault is None else fault.subcode,
        is_fault=fault is not None,
    )


def _fitting(request: Reading, setting: Setting) -> tuple[str, ...]:
    verdicts = judge_request(request, Carrier.REQUEST, setting)
    return tuple(dict.fromkeys(str(each) for verdict in verdicts for each in verdict.expected_subcodes))
