"""What a call comes back with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from lxml import etree

from brokers.message import Message
from soapjms.protocol.assertions import Setting, Verdict, habits_of
from soapjms.protocol.attachments import Attachments
from soapjms.protocol.envelope import Envelope, Fault
from soapjms.protocol.properties import Carrier
from soapjms.protocol.reading import Reading
from soapjms.protocol.record import Direction
from soapjms.protocol.requesting import Endpoint, ResponseReceived, findings

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
