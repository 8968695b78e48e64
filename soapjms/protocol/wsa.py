"""WS-Addressing: header blocks that say what a message means, what it relates to, and where its answer goes.

Requests are written in the edition of 2005/08; headers of 2004/08 are read too, and answered in that edition. Received
headers may be hostile: an invalid one becomes an `AddressingFault`, and nothing is raised. Nothing is sent from here.

Spec: WS-Addressing 1.0 Core 2, 3; SOAP Binding 3, 6; the member submission of August 2004.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Final, NamedTuple

from lxml import etree

from brokers.message import MAX_ADDRESS_CHARACTERS
from soapjms.protocol.envelope import Envelope, blocks_for, build_fault
from soapjms.protocol.errors import Blame
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.text import named

MAX_RELATIONS: Final = 20
"""Most RelatesTo headers; a message with more is refused."""


@dataclass(frozen=True, slots=True)
class Edition:
    """The differences between the editions.

    Attributes:
        namespace: the namespace of the header blocks.
        anonymous: the address for the reply channel of the transport, here JMSReplyTo.
        none: the address to which nothing is sent; empty if the edition has none.
        reply: the relationship type of a RelatesTo that names the request; also the default type.
        unspecified: the id in a RelatesTo if the request had none.
        invalid, required: the codes for an invalid and for a missing header.
        says_more: True if a fault has a second subcode and names the header.
        fault_action, soap_fault_action: Action of faults of WS-Addressing, and of other faults.
    """

    namespace: str
    anonymous: str
    none: str
    reply: str
    unspecified: str
    invalid: str
    required: str
    says_more: bool
    fault_action: str
    soap_fault_action: str

    def tag(self, name: str) -> str:
        """Return the name of a header block in Clark notation."""
        return f"{{{self.namespace}}}{name}"

    def block(self, name: str, text: str | None = None) -> etree._Element:
        """Make a header block, or an element inside one."""
        element = etree.Element(self.tag(name), nsmap={"wsa": self.namespace})
        element.text = text
        return element


_2005, _2004 = "http://www.w3.org/2005/08/addressing", "http://schemas.xmlsoap.org/ws/2004/08/addressing"
WSA_2005: Final = Edition(
    namespace=_2005,
    anonymous=f"{_2005}/anonymous",
    none=f"{_2005}/none",
    reply=f"{_2005}/reply",
    unspecified=f"{_2005}/unspecified",
    invalid="InvalidAddressingHeader",
    required="MessageAddressingHeaderRequired",
    says_more=True,
    fault_action=f"{_2005}/fault",
    soap_fault_action=f"{_2005}/soap/fault",
)
WSA_2004: Final = Edition(
    namespace=_2004,
    anonymous=f"{_2004}/role/anonymous",
    none="",
    reply="wsa:Reply",
    unspecified=f"{_2004}/id/unspecified",
    invalid="InvalidMessageInformationHeader",
    required="MessageInformationHeaderRequired",
    says_more=False,
    fault_action=f"{_2004}/fault",
    soap_fault_action=f"{_2004}/fault",
)
EDITIONS: Final = (WSA_2005, WSA_2004)
"""In order of precedence, for a message with headers of both editions."""

SINGLE: Final = ("Action", "MessageID", "To", "From", "ReplyTo", "FaultTo")
BLOCKS: Final = (*SINGLE, "RelatesTo")


class EndpointReference(NamedTuple):
    """An address to send to, and the header blocks to send with the message."""

    address: str
    parameters: tuple[etree._Element, ...] = ()


@dataclass(frozen=True, slots=True)
class Addressing:
    """The addressing headers of one message.

    Attributes:
        edition: the edition of the headers.
        action: Action, the meaning of the message.
        message_id: MessageID, or None.
        to: To; the anonymous address if absent.
        source: From, or None.
        reply_to, fault_to: ReplyTo and FaultTo, the destinations of an answer and of a fault, or None.
        relates_to: RelatesTo, as pairs of relationship type and id.
    """

    edition: Edition
    action: str
    message_id: str | None
    to: str
    source: EndpointReference | None = None
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None
    relates_to: tuple[tuple[str, str], ...] = ()

    @property
    def understood(self) -> frozenset[str]:
        """The names of the header blocks that were read."""
        return frozenset(self.edition.tag(name) for name in BLOCKS)

    def endpoint(self, *, is_fault: bool) -> EndpointReference:
        """Return the endpoint of the answer.

        Spec: Core 3.4.
        """
        chosen = (self.fault_to if is_fault else None) or self.reply_to
        return chosen or EndpointReference(self.edition.anonymous)


@dataclass(frozen=True, slots=True)
class AddressingFault:
    """Why the addressing headers of a message are refused.

    Attributes:
        edition: the edition of the headers.
        code: the subcode.
        reason: the text for people.
        header: the name of the header block.
        more: the second subcode, or empty.
        message_id: the id of the refused message; None if it has none that can be read.
    """

    edition: Edition
    code: str
    reason: str
    header: str
    more: str = ""
    message_id: str | None = None

    def build(self, version: SoapVersion) -> etree._Element:
        """Build the envelope with the fault, without addressing headers; in SOAP 1.1 it may have a FaultDetail header.

        Spec: SOAP Binding 6.1, 6.2, 6.4.
        """
        names = [self.code] + [self.more] * bool(self.more and self.edition.says_more)
        problem = None
        if self.edition.says_more:
            problem = self.edition.block("ProblemHeaderQName", f"wsa:{self.header}")
        is_12 = version is SoapVersion.SOAP_12
        root = build_fault(
            version,
            self.reason,
            blame=Blame.SENDER,
            subcodes=[self.edition.tag(each) for each in names],
            detail=problem if is_12 else None,
        )
        if problem is not None and not is_12:
            detail = self.edition.block("FaultDetail")
            detail.append(problem)
            header = etree.Element(f"{{{version.namespace}}}Header")
            header.append(detail)
            root.insert(0, header)
        return root


class _WrongError(Exception):
    """A header is invalid: its name, the second subcode, and the reason. Never leaves this module."""

    def __init__(self, header: str, more: str, reason: str) -> None:
        super().__init__(header, more, reason)
        self.header, self.more, self.reason = header, more, reason


# Reading


def stated_action(envelope: Envelope) -> str | None:
    """Return the first Action header of a message, even if other headers are invalid; None if it has none."""
    if envelope.header is None:
        return None
    for edition in EDITIONS:
        found = envelope.header.find(edition.tag("Action"))
        if found is not None:
            return (found.text or "").strip() or None
    return None


def read_addressing(envelope: Envelope, roles: Collection[str] = ()) -> Addressing | AddressingFault | None:
    """Read the addressing headers that are for this node; None if there are none.

    Args:
        envelope: the envelope of the message.
        roles: the roles of this node; see `not_understood` in `soapjms.protocol.envelope`.

    Spec: Core 3.2, 3.3; SOAP Binding 6.4.1, 6.4.2.
    """
    for edition in EDITIONS:
        found = {name: blocks_for(envelope, edition.tag(name), roles) for name in BLOCKS}
        if any(found.values()):
            return _read(edition, found)
    return None


def _read(edition: Edition, found: Mapping[str, list[etree._Element]]) -> Addressing | AddressingFault:
    message_id = _readable_id(found["MessageID"])
    try:
        made = _made(edition, found)
    except _WrongError as wrong:
        return AddressingFault(edition, edition.invalid, wrong.reason, wrong.header, wrong.more, message_id)
    if made is None:
        return missing(edition, "Action", message_id)
    return made


def missing(edition: Edition, header: str, message_id: str | None = None) -> AddressingFault:
    """Make the fault for a required header that is missing. Spec: SOAP Binding 6.4.2."""
    reason = f"the addressing header {header} is missing"
    return AddressingFault(edition, edition.required, reason, header, message_id=message_id)


def _readable_id(blocks: list[etree._Element]) -> str | None:
    try:
        return _text("MessageID", blocks[0]) if len(blocks) == 1 else None
    except _WrongError:
        return None


def _made(edition: Edition, found: Mapping[str, list[etree._Element]]) -> Addressing | None:
    for name in SINGLE:
        if len(found[name]) > 1:
            raise _WrongError(
                name, "InvalidCardinality", f"there are {len(found[name])} headers {name}; there may be one"
            )
    if len(found["RelatesTo"]) > MAX_RELATIONS:
        raise _WrongError("RelatesTo", "", f"there are more than {MAX_RELATIONS} headers RelatesTo")
    texts = {name: _text(name, block) for name in ("Action", "MessageID", "To") for block in found[name]}
    ends = {name: _reference(edition, name, block) for name in ("From", "ReplyTo", "FaultTo") for block in found[name]}
    relations = tuple(
        (block.get("RelationshipType", edition.reply), _text("RelatesTo", block)) for block in found["RelatesTo"]
    )
    if "Action" not in texts:
        return None
    return Addressing(
        edition,
        texts["Action"],
        texts.get("MessageID"),
        texts.get("To", edition.anonymous),
        ends.get("From"),
        ends.get("ReplyTo"),
        ends.get("FaultTo"),
        relations,
    )


def _text(name: str, element: etree._Element) -> str:
    text = (element.text or "").strip()
    if not text or len(element) or len(text) > MAX_ADDRESS_CHARACTERS:
        why = f"{name} is no address of 1 to {MAX_ADDRESS_CHARACTERS} characters: {named(text) or '(empty)'}"
        raise _WrongError(name, "InvalidAddress", why)
    return text


def _reference(edition: Edition, name: str, element: etree._Element) -> EndpointReference:
    """Read an endpoint reference.

    Its parameters become header blocks of the answer, so names of SOAP and WS-Addressing are refused. Spec: Core 2.2.
    """
    addresses = element.findall(edition.tag("Address"))
    if not addresses:
        raise _WrongError(name, "MissingAddressInEPR", f"{name} has no Address")
    if len(addresses) > 1:
        raise _WrongError(name, "InvalidEPR", f"{name} has {len(addresses)} elements Address; there is one")
    _text(name, addresses[0])
    parameters = tuple(
        each
        for holder in ("ReferenceProperties", "ReferenceParameters")
        for parent in element.iterchildren(edition.tag(holder))
        for each in parent.iterchildren(etree.Element)
    )
    for each in parameters:
        space = etree.QName(each).namespace or ""
        if space in _OURS:
            raise _WrongError(name, "InvalidEPR", f"{name} has a reference parameter {named(each.tag)}")
    return EndpointReference(_text(name, addresses[0]), parameters)


_OURS: Final = frozenset({*(each.namespace for each in EDITIONS), *(each.namespace for each in SoapVersion), ""})


def mismatch(addressing: Addressing, soap_action: str | None) -> AddressingFault | None:
    """Return the fault for a SOAPJMS_soapAction that differs from the Action header; None if it is absent or equal.

    Spec: SOAP Binding 6.4.1.6.
    """
    if not soap_action or soap_action == addressing.action:
        return None
    reason = f"the soapAction is {named(soap_action)}, and Action is {named(addressing.action)}"
    return invalid(addressing, "Action", "ActionMismatch", reason)


def invalid(addressing: Addressing, header: str, more: str, reason: str) -> AddressingFault:
    """Make the fault for a header whose content cannot be used. Spec: SOAP Binding 6.4.1."""
    edition = addressing.edition
    return AddressingFault(edition, edition.invalid, reason, header, more, addressing.message_id)


# Writing


def request_headers(
    envelope: Envelope, action: str, message_id: str, to: str, *, one_way: bool
) -> list[etree._Element]:
    """Make the headers of a request that its envelope does not have yet. ReplyTo says: to JMSReplyTo, or none.

    Spec: Core 3.2.
    """
    edition = WSA_2005
    reply = edition.block("ReplyTo")
    etree.SubElement(reply, edition.tag("Address")).text = edition.none if one_way else edition.anonymous
    made = [
        edition.block("Action", action),
        edition.block("MessageID", message_id),
        edition.block("To", to),
        reply,
    ]
    there = set() if envelope.header is None else {each.tag for each in envelope.header}
    return [each for each in made if each.tag not in there]


def answer_headers(
    edition: Edition, action: str, message_id: str, request_id: str | None, endpoint: EndpointReference
) -> Iterator[etree._Element]:
    """Yield the headers of an answer.

    Args:
        edition: the edition of the request.
        action: the Action of the answer.
        message_id: the MessageID of the answer.
        request_id: the MessageID of the request; None if it had none that could be read.
        endpoint: the endpoint of the answer; its parameters become headers.

    Spec: Core 3.3, 3.4; SOAP Binding 4.
    """
    yield edition.block("Action", action)
    yield edition.block("MessageID", message_id)
    yield edition.block("To", endpoint.address)
    yield edition.block("RelatesTo", request_id or edition.unspecified)
    for each in endpoint.parameters:
        parameter = deepcopy(each)
        parameter.tail = None
        if edition.says_more:
            parameter.set(edition.tag("IsReferenceParameter"), "true")
        yield parameter


def unrelated(envelope: Envelope, message_id: str) -> str | None:
    """Say why a response does not belong to the request with an id; None if it does, or has no RelatesTo.

    Spec: Core 3.4.
    """
    if envelope.header is None:
        return None
    related = [
        (each.text or "").strip()
        for edition in EDITIONS
        for each in envelope.header.iterchildren(edition.tag("RelatesTo"))
        if each.get("RelationshipType", edition.reply) in (edition.reply, "")
    ]
    if not related or not {message_id, *(edition.unspecified for edition in EDITIONS)}.isdisjoint(related):
        return None
    return f"the response relates to {named(related[0])}, and the request was {message_id}"
