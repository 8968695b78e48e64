"""WS-Addressing at a service: where its answers go, and the headers that they carry.

The headers themselves are defined in `soapjms.protocol.wsa`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from uuid import uuid4

from lxml import etree

from brokers.message import Destination, Message
from brokers.naming import Names
from soapjms.destinations import ReplyRule, destination_of
from soapjms.protocol.envelope import as_envelope, header_of, read_fault
from soapjms.protocol.errors import UsageError
from soapjms.protocol.text import named
from soapjms.protocol.wsa import (
    Addressing,
    AddressingFault,
    EndpointReference,
    answer_headers,
    invalid,
    missing,
)
from soapjms.protocol.wsdl.model import read_uri


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the addressing headers of one request say about its answer.

    Attributes:
        addressing: the headers.
        reply_to: the destination of an answer; None if it is not sent.
        fault_to: the destination of a fault; None if it is not sent.
        reply_action: Action of an answer; None to derive it from the Action of the request.
    """

    addressing: Addressing
    reply_to: Destination | None
    fault_to: Destination | None
    reply_action: str | None

    def applied(self, message: Message) -> Message:
        """Return the request with a JMSReplyTo that agrees with its addressing headers."""
        place = self.reply_to or self.fault_to
        return message if place == message.reply_to else replace(message, reply_to=place)

    def related(self, root: etree._Element) -> etree._Element:
        """Return a copy of an answer with addressing headers; an answer with its own RelatesTo stays unchanged."""
        addressing, edition = self.addressing, self.addressing.edition
        if root.find(f"{{*}}Header/{edition.tag('RelatesTo')}") is not None:
            return root
        made = deepcopy(root)
        fault = read_fault(as_envelope(made))
        action = self.reply_action or f"{addressing.action}Response"
        if fault is not None:
            is_ours = any(each.startswith(f"{{{edition.namespace}}}") for each in fault.subcodes)
            action = edition.fault_action if is_ours else edition.soap_fault_action
        endpoint = addressing.endpoint(is_fault=fault is not None)
        header_of(made).extend(answer_headers(edition, action, uuid4().urn, addressing.message_id, endpoint))
        return made

    def sent(self, response: Message | None, *, is_fault: bool) -> Message | None:
        """Return a response with its destination; None if it is not sent."""
        place = self.fault_to if is_fault else self.reply_to
        if response is None or place is None:
            return None
        return response if place == response.destination else replace(response, destination=place)


def conversation(
    addressing: Addressing, message: Message, rule: ReplyRule, reply_action: str | None
) -> Conversation | AddressingFault:
    """Return where the answer to a request goes, or the fault for an address that is invalid or not allowed.

    An anonymous address stands for JMSReplyTo, and a `jms:` URI of the variants queue and topic for that destination,
    as far as `rule` allows it as JMSReplyTo. A request that is answered must have a MessageID.

    Spec: Core 3.4.
    """
    places: dict[bool, Destination | None] = {}
    for is_fault, header in ((False, "ReplyTo"), (True, "FaultTo")):
        endpoint = addressing.endpoint(is_fault=is_fault)
        found = _place(addressing, endpoint, message)
        if isinstance(found, Destination) and found != message.reply_to:
            found = rule.refusal(replace(message, reply_to=found)) or found
        if isinstance(found, str):
            return invalid(addressing, header, "InvalidAddress", f"{header}: {found}")
        places[is_fault] = found
    if addressing.message_id is None and any(places.values()):
        return missing(addressing.edition, "MessageID")
    return Conversation(addressing, places[False], places[True], reply_action)


def _place(addressing: Addressing, endpoint: EndpointReference, message: Message) -> Destination | str | None:
    """Return the destination of an address, None for the address `none`, or why the address has no destination."""
    edition, address = addressing.edition, endpoint.address
    if address == edition.anonymous:
        return message.reply_to
    if address == edition.none:
        return None
    try:
        uri, properties = read_uri(address, {})
        if uri.variant in ("queue", "topic"):
            return destination_of(uri, Names(), properties)
    except UsageError:  # the peer's mistake
        pass
    return f"{named(address)} is none of: the anonymous address, none, jms:queue:NAME, jms:topic:NAME"


def refused(fault: AddressingFault, root: etree._Element) -> etree._Element:
    """Add addressing headers to the fault for refused headers; the fault goes to JMSReplyTo."""
    edition = fault.edition
    back = EndpointReference(edition.anonymous)
    header_of(root).extend(answer_headers(edition, edition.fault_action, uuid4().urn, fault.message_id, back))
    return root
