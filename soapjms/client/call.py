"""What a client sends, as middleware sees it and as it goes on to the broker, and what a call comes back with.

How it is sent is in `client.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

from lxml import etree

from brokers.message import Destination, Message, Properties, PropertyValue, queue
from soapjms.destinations import VARIANTS
from soapjms.middleware import properties_of
from soapjms.observing import NOTHING
from soapjms.protocol.assertions import Setting, Verdict, habits_of
from soapjms.protocol.attachments import Attachment, Attachments
from soapjms.protocol.envelope import Envelope, Fault, as_envelope, header_of, read_envelope
from soapjms.protocol.errors import CallFailedError, UsageError
from soapjms.protocol.limits import Limits
from soapjms.protocol.properties import Carrier
from soapjms.protocol.received_message import Reading
from soapjms.protocol.record import Direction
from soapjms.protocol.requesting import Endpoint, RequestingNode, ResponseReceived, findings
from soapjms.protocol.responding import RespondingNode
from soapjms.reply import Answer, prepared
from soapjms.validation import finite

UNPARSED: Final = "Couldn't parse stream"
"""How CXF begins to say of a message that its body is no XML."""

UNPARSED_HINT: Final = (
    "if the request went to ActiveMQ over AMQP, that connector has to have transport.transformer=jms, or others get a "
    "whole AMQP message as the body; `soapjms doctor` sees whether it has"
)


@dataclass(frozen=True, slots=True)
class Response:
    """What a call came back with.

    Attributes:
        envelope: the SOAP envelope, parsed.
        fault: the SOAP fault that it holds, None if it holds none.
        message: the JMS message.
        request: the request as it was sent.
        endpoint: where it was sent.
        attachments: the parts that came along.
    """

    envelope: Envelope
    fault: Fault | None
    message: Message
    request: Message
    endpoint: Endpoint
    attachments: Attachments

    @classmethod
    def of(cls, event: ResponseReceived, request: Message, endpoint: Endpoint) -> Self:
        """Put what a node received together with what was sent."""
        return cls(event.envelope, event.fault, event.message, request, endpoint, event.attachments)

    @property
    def element(self) -> etree._Element | None:
        """The first element of the SOAP body; None if the body is empty."""
        return self.envelope.content

    def raise_for_fault(self) -> Self:
        """Return the response itself if it holds no fault.

        Raises:
            SoapFaultError: it holds one.
        """
        if self.fault is None:
            return self
        error = self.fault.as_error()
        if self.unparsed:
            error.add_note(UNPARSED_HINT)
        raise error

    @property
    def unparsed(self) -> bool:
        """Whether it is the fault of a service that could not parse what the broker made of the request."""
        return self.fault is not None and self.fault.reason.startswith(UNPARSED)

    def findings(self) -> tuple[Verdict, ...]:
        """Judge the exchange by every assertion, and return those that were broken."""
        setting = Setting(
            profile=self.endpoint.profile, properties=self.endpoint.properties, limits=self.endpoint.limits
        )
        return findings(self.request, self.message, setting)

    def notes(self) -> tuple[tuple[str, str], ...]:
        """Name the habits of real stacks that the response shows, which break nothing: each a code and a text."""
        reading = Reading(self.message, self.endpoint.profile, self.endpoint.limits, direction=Direction.RESPONSE)
        return tuple(habits_of(reading, Carrier.RESPONSE))


NOWHERE: Final = queue("nowhere")
"""JMSReplyTo of a request that is not sent; nobody sees it."""

NUMBER: Final = "ID:unsent"


class CallContent(NamedTuple):
    """What is sent, checked.

    Attributes:
        envelope: octets, text or element.
        action: SOAPJMS_soapAction, None for what the properties give.
        attachments: what goes along.
        seconds: to wait.
        others: properties beside the binding's.
        retry_of: how the try before this failed; None for the first.
    """

    envelope: bytes | str | etree._Element
    action: str | None
    attachments: Sequence[Attachment]
    seconds: float
    others: Properties = NOTHING
    retry_of: CallFailedError | None = None

    def own_envelope(self, limits: Limits) -> etree._Element:
        """Return the envelope to be changed: a copy of an element, which is the caller's.

        Raises:
            InvalidEnvelopeError: it is no SOAP envelope.
        """
        root = read_envelope(self.envelope, limits)[0].root
        return deepcopy(root) if root is self.envelope else root


@dataclass(slots=True, kw_only=True)
class OutgoingCall:
    """A call or one-way message on its way out, for middleware to look at and to change.

    Attributes:
        envelope: the SOAP envelope; a copy, so change it as you like.
        soap_action: SOAPJMS_soapAction, None for what the properties give.
        operation: the name of the WSDL's operation, where the caller said one, or zeep did.
        one_way: nobody answers, and `call_next` returns None.
        timeout: seconds to wait, each time that `call_next` is called.
        attachments: what goes along.
        properties: properties of the JMS message, beside those of the binding.
        context: what middleware hands on to what comes after it.
        retry_of: how the try before this failed, so that a service with a store sees the same request; None for the
            first.
        endpoint: where the call goes: its URI, and its effective properties.
        destination: the same for the broker.
    """

    envelope: etree._Element
    soap_action: str | None
    operation: str | None
    one_way: bool
    timeout: float
    attachments: list[Attachment]
    endpoint: Endpoint
    destination: Destination
    properties: dict[str, PropertyValue] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    retry_of: CallFailedError | None = None

    @classmethod
    def of(
        cls, content: CallContent, endpoint: Endpoint, destination: Destination, operation: str | None, *, one_way: bool
    ) -> OutgoingCall:
        """Make it of what is to be sent.

        Raises:
            InvalidEnvelopeError: that is no SOAP envelope.
        """
        return cls(
            envelope=content.own_envelope(endpoint.limits),
            soap_action=content.action,
            operation=operation,
            one_way=one_way,
            timeout=content.seconds,
            attachments=list(content.attachments),
            endpoint=endpoint,
            destination=destination,
            retry_of=content.retry_of,
        )

    @property
    def element(self) -> etree._Element | None:
        """The first element of the SOAP body; None if the body is empty."""
        return as_envelope(self.envelope).content

    def add_header(self, block: etree._Element) -> None:
        """Add a SOAP header block."""
        header_of(self.envelope).append(block)

    def content(self) -> CallContent:
        """Return what is to be sent now.

        Raises:
            UsageError: a property is not as JMS has it.
        """
        others = properties_of(self.properties) if self.properties else NOTHING
        return CallContent(self.envelope, self.soap_action, self.attachments, self.timeout, others, self.retry_of)

    def answer(self, answer: Answer) -> Response:
        """Make a response without asking the service: of what a function of a service may return.

        Raises:
            UsageError: the message is one-way.
            TypeError, ValueError: it is no answer.
        """
        if self.one_way:
            raise UsageError("a one-way message has no response; return None to send nothing")
        version = as_envelope(self.envelope).version
        root, attachments, properties = prepared(version, answer)
        content = self.content()
        asking = RequestingNode(self.endpoint, others=content.others)
        request = asking.start(
            content.envelope,
            destination=self.destination,
            now=0,
            soap_action=self.soap_action,
            correlation_id=NUMBER,
            reply_to=NOWHERE,
            attachments=self.attachments,
        )
        answering = RespondingNode(
            Setting(profile=self.endpoint.profile, variants=frozenset(VARIANTS), limits=self.endpoint.limits), version
        )
        answering.receive(replace(request, message_id=NUMBER))
        event = asking.receive(answering.respond(root, attachments, properties_of(properties)), NUMBER)
        assert isinstance(event, ResponseReceived), "we wrote it"
        return Response.of(event, request, self.endpoint)


def checked_call(call: object) -> OutgoingCall:
    """Return what middleware went on with.

    Raises:
        UsageError: it is something else than the call, or its time-out is none.
    """
    if not isinstance(call, OutgoingCall):
        raise UsageError(f"middleware went on with {call!r}; call_next takes the call")
    finite(call.timeout)
    return call


def checked_response(response: Response | None, *, one_way: bool) -> Response | None:
    """Return what middleware returned.

    Raises:
        UsageError: it is no response, or one to a one-way message.
    """
    if one_way is (response is None) and (response is None or isinstance(response, Response)):
        return response
    wanted = "None, as the message is one-way" if one_way else "a Response: that of call_next, or call.answer(…)"
    raise UsageError(f"middleware returned {response!r}; it returns {wanted}")
