"""The request of a call, as middleware sees it and as it is sent, and the response of a call.

Sending is in `client.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from lxml import etree

from brokers.arguments import finite
from brokers.message import Destination, Message, Properties, PropertyValue, queue
from soapjms.destinations import VARIANTS
from soapjms.middleware import properties_of
from soapjms.observing import NOTHING
from soapjms.protocol.assertions import Setting, Verdict, habits_of
from soapjms.protocol.attachments import Attachment, Attachments
from soapjms.protocol.envelope import Envelope, Fault, as_envelope, body_value, header_of, read_envelope
from soapjms.protocol.errors import CallFailedError, UsageError
from soapjms.protocol.limits import Limits
from soapjms.protocol.properties import Carrier, EffectiveValue, Origin
from soapjms.protocol.received_message import Reading, describe
from soapjms.protocol.record import Direction
from soapjms.protocol.requesting import Endpoint, RequestingNode, ResponseReceived, findings
from soapjms.protocol.responding import RespondingNode
from soapjms.reply import Answer, prepared

UNPARSED: Final = "Couldn't parse stream"
"""Start of CXF's fault reason for a message whose body is not XML."""

UNPARSED_HINT: Final = (
    "if the request went to ActiveMQ over AMQP, that connector must be set to transport.transformer=jms, or receivers "
    "over other protocols get a whole AMQP message as the body; `soapjms doctor` checks this setting"
)


@dataclass(frozen=True)
class Response:
    """The response to a call.

    Attributes:
        envelope: the SOAP envelope, parsed.
        fault: the SOAP fault in the envelope, or None.
        message: the JMS message.
        request: the request as it was sent.
        endpoint: the endpoint the request was sent to.
        attachments: the attachments of the response.
    """

    envelope: Envelope
    fault: Fault | None
    message: Message
    request: Message
    endpoint: Endpoint
    attachments: Attachments

    @classmethod
    def of(cls, event: ResponseReceived, request: Message, endpoint: Endpoint) -> Self:
        """Make a response of what a node received, the request, and the endpoint it was sent to."""
        response = cls.__new__(cls)  # and its values at once: a third of the time of its constructor
        response.__dict__.update(
            envelope=event.envelope,
            fault=event.fault,
            message=event.message,
            request=request,
            endpoint=endpoint,
            attachments=event.attachments,
        )
        return response

    @property
    def element(self) -> etree._Element | None:
        """The first element of the SOAP body; None if the body is empty."""
        return self.envelope.content

    def body_value(self) -> Any:
        """Return the content of the response's element as plain Python, as `Request.body_value` does.

        Raises:
            SoapFaultError: the response holds a fault.
            UsageError: something would be lost.
        """
        return body_value(self.raise_for_fault().envelope)

    def raise_for_fault(self) -> Self:
        """Return the response itself if it holds no fault.

        Raises:
            SoapFaultError: the response holds a fault.
        """
        if self.fault is None:
            return self
        error = self.fault.as_error()
        if self.unparsed:
            error.add_note(UNPARSED_HINT)
        raise error

    @property
    def unparsed(self) -> bool:
        """True if it is the fault of a service that could not parse the request as the broker delivered it."""
        return self.fault is not None and self.fault.reason.startswith(UNPARSED)

    def findings(self) -> tuple[Verdict, ...]:
        """Judge the exchange by every assertion, and return the verdicts of those that were broken.

        The SOAP action of the call takes the place of the one that the properties give to calls without their own.
        """
        profile, properties = self.endpoint.profile, copy(self.endpoint.properties)
        action = describe(self.request.properties, profile).soap_action
        if action is not None:
            properties["soapAction"] = EffectiveValue(action, Origin.ENVIRONMENT)
        setting = Setting(profile=profile, properties=properties, limits=self.endpoint.limits)
        return findings(self.request, self.message, setting)

    def notes(self) -> tuple[tuple[str, str], ...]:
        """Return the code and text of each habit of real stacks that the response shows; habits break no assertion."""
        reading = Reading(self.message, self.endpoint.profile, self.endpoint.limits, direction=Direction.RESPONSE)
        return tuple(habits_of(reading, Carrier.RESPONSE))


Expiry: TypeAlias = float | Literal["timeout"] | None
"""When a request expires, in seconds; "timeout": when its caller stops waiting; None: never."""

NOWHERE: Final = queue("nowhere")
"""JMSReplyTo of a request that is built but never sent."""

UNSENT_MESSAGE_ID: Final = "ID:unsent"


class CallContent(NamedTuple):
    """The checked content of a request or one-way message.

    Attributes:
        envelope: the SOAP envelope, as octets, text or element.
        action: SOAPJMS_soapAction; None to use the one of the properties.
        attachments: the attachments to send.
        seconds: seconds to wait.
        others: message properties beside those of the binding.
        retry_of: the error of the previous try; None for the first.
        expires: when the request expires, unless timeToLive is set.
    """

    envelope: bytes | str | etree._Element
    action: str | None
    attachments: Sequence[Attachment]
    seconds: float
    others: Properties = NOTHING
    retry_of: CallFailedError | None = None
    expires: Expiry = "timeout"

    def own_envelope(self, limits: Limits) -> etree._Element:
        """Return the envelope as an element that may be changed: an element of the caller's is copied.

        Raises:
            InvalidEnvelopeError: the content is not a SOAP envelope.
        """
        root = read_envelope(self.envelope, limits)[0].root
        return deepcopy(root) if root is self.envelope else root


new_content: Final[Callable[[tuple[Any, ...]], CallContent]] = partial(tuple.__new__, CallContent)
"""Make the content of its seven parts, in half the time of `CallContent`."""


@dataclass(slots=True, kw_only=True)
class OutgoingCall:
    """A call or one-way message on its way out, for middleware to look at and to change.

    Attributes:
        envelope: the SOAP envelope; a copy, so change it as you like.
        soap_action: SOAPJMS_soapAction; None to use the one of the properties.
        operation: the name of the WSDL operation, if the caller or zeep gave one.
        one_way: True for a one-way message: it has no response, and `call_next` returns None.
        timeout: seconds to wait, each time `call_next` is called.
        attachments: the attachments to send.
        properties: properties of the JMS message, beside those of the binding.
        context: values for the middleware further in.
        retry_of: the error of the previous try, by which a service with a store recognizes the request; None for the
            first.
        expires: seconds until the request expires, counted from now on; "timeout" for the seconds to wait; None for
            never. A timeToLive of the properties takes precedence. A one-way message expires only by timeToLive.
        endpoint: the endpoint of the call: its URI and its effective properties.
        destination: the JMS destination of the call.
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
    expires: Expiry = "timeout"

    @classmethod
    def of(
        cls, content: CallContent, endpoint: Endpoint, destination: Destination, operation: str | None, *, one_way: bool
    ) -> OutgoingCall:
        """Make the call of its content.

        Raises:
            InvalidEnvelopeError: the content is not a SOAP envelope.
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
            expires=content.expires,
        )

    @property
    def element(self) -> etree._Element | None:
        """The first element of the SOAP body; None if the body is empty."""
        return as_envelope(self.envelope).content

    def add_header(self, block: etree._Element) -> None:
        """Add a SOAP header block."""
        header_of(self.envelope).append(block)

    def content(self) -> CallContent:
        """Return the content to send, with the changes made so far.

        Raises:
            UsageError: a property has a name or value that JMS does not allow.
        """
        others = properties_of(self.properties) if self.properties else NOTHING
        return CallContent(
            self.envelope, self.soap_action, self.attachments, self.timeout, others, self.retry_of, self.expires
        )

    def answer(self, answer: Answer) -> Response:
        """Make a response without asking the service, of an answer such as a service's function may return.

        Raises:
            UsageError: the message is one-way.
            TypeError, ValueError: `answer` is nothing that a service's function may return.
        """
        if self.one_way:
            raise UsageError("a one-way message has no response; return None to send nothing")
        version = as_envelope(self.envelope).version
        made = prepared(version, answer)
        content = self.content()
        asking = RequestingNode(self.endpoint, others=content.others)
        request = asking.start(
            content.envelope,
            destination=self.destination,
            now=0,
            soap_action=self.soap_action,
            correlation_id=UNSENT_MESSAGE_ID,
            reply_to=NOWHERE,
            attachments=self.attachments,
        )
        answering = RespondingNode(
            Setting(profile=self.endpoint.profile, variants=frozenset(VARIANTS), limits=self.endpoint.limits), version
        )
        answering.receive(replace(request, message_id=UNSENT_MESSAGE_ID))
        answered = answering.respond(made.envelope, made.attachments, properties_of(made.properties))
        event = asking.receive(answered, UNSENT_MESSAGE_ID)
        assert isinstance(event, ResponseReceived), "we wrote it"
        return Response.of(event, request, self.endpoint)


def checked_call(call: object) -> OutgoingCall:
    """Return the call that middleware passed to `call_next`.

    Raises:
        UsageError: the argument is not a call, its timeout is not a positive, finite number, or see `check_expiry`.
    """
    if not isinstance(call, OutgoingCall):
        raise UsageError(f"call_next must be given the call, got {call!r}")
    finite(call.timeout)
    check_expiry(call.expires)
    return call


def check_expiry(expires: float | str | None) -> None:
    """Check when a request is to expire.

    Raises:
        UsageError: it is not a positive, finite number of seconds, "timeout" or None.
    """
    if isinstance(expires, str):
        if expires != "timeout":
            raise UsageError(f"expires must be seconds, 'timeout' or None, got {expires!r}")
    elif expires is not None:
        finite(expires, "expires")


def checked_response(response: Response | None, *, one_way: bool) -> Response | None:
    """Return the response that middleware returned; None for a one-way message.

    Raises:
        UsageError: the value is not a response, or is not None for a one-way message.
    """
    if one_way is (response is None) and (response is None or isinstance(response, Response)):
        return response
    wanted = "None, as the message is one-way" if one_way else "a Response, of call_next or of call.answer(…)"
    raise UsageError(f"middleware must return {wanted}, got {response!r}")
