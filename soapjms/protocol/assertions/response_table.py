"""ASSERTIONS: every assertion of the specification once, and its requirements without an id.

The rows on one message are in `request_table.py`, which says why their order counts. This file has the rows on a
response, alone and with its request, and those that no log can show, each with the reason.

Spec: SOAP/JMS 1.6, 2.5, 2.6.2.3, 2.8, 3.4, 3.6; SOAP/JMS appendix E, and the sections named in the rows.
"""

from __future__ import annotations

from typing import Final

from soapjms.protocol.assertions import request_checks, response_checks
from soapjms.protocol.assertions.model import Assertion, Binds, Need, Sees
from soapjms.protocol.assertions.request_table import (
    BODY_ASSERTIONS,
    HEADER_ASSERTIONS,
    PRECEDENCE_ASSERTIONS,
    PROPERTY_ASSERTIONS,
)
from soapjms.protocol.names import Level, Subcode

MUST, SHOULD, NONE = Level.MUST, Level.SHOULD, Level.NONE


def _unseen(name: str, section: str, level: Level, binds: Binds, title: str, why_not: str) -> Assertion:
    return Assertion(
        id=name, section=section, level=level, binds=binds, sees=Sees.NOTHING, title=title, why_not=why_not
    )


_CAPABILITY: Final = "a capability of an implementation: messages can refute it, none can show it"
_BY_WSDL: Final = "decidable from the WSDL alone: `soapjms wsdl lint` does"
_BUT: Final = "; not that of JMSDestination, as mirrors and virtual topics show a message under another name"
_INSIDE: Final = "internal to a node: no message shows it"

UNSEEN: Final = (
    _unseen("Conformance-1000", "1.6", MUST, Binds.IMPLEMENTATION, "works with JMS 1.1", _CAPABILITY),
    _unseen("Conformance-1001", "1.6", MUST, Binds.IMPLEMENTATION, "implements all of section 2", _CAPABILITY),
    _unseen("Conformance-1002", "1.6", MUST, Binds.IMPLEMENTATION, "implements all of the URI scheme", _CAPABILITY),
    _unseen("Conformance-1003", "1.6", MUST, Binds.IMPLEMENTATION, "WSDL 1.1: all of it or none", _CAPABILITY),
    _unseen("Conformance-1004", "1.6", MUST, Binds.IMPLEMENTATION, "WSDL 2.0: all of it or none", _CAPABILITY),
    _unseen("Protocol-2031", "2.5", MUST, Binds.IMPLEMENTATION, "both exchange patterns", _CAPABILITY),
    _unseen("Protocol-2032", "2.5", MUST, Binds.IMPLEMENTATION, "the patterns of SOAP 1.2", _CAPABILITY),
    _unseen("Protocol-2033", "2.5", MUST, Binds.IMPLEMENTATION, "both patterns with SOAP 1.1", _CAPABILITY),
    _unseen(
        "Protocol-2035", "2.6.1.1", NONE, Binds.REQUESTING, "the table of a request's values",
        f"its rows are judged one by one: Protocol-2005 to 2010, 2016, 2018, 2022, 2050{_BUT}",
    ),
    _unseen(
        "Protocol-2041", "2.7.1", NONE, Binds.ONE_WAY_SENDER, "the table of a one-way message's values",
        f"its rows are judged one by one: Protocol-2005 to 2010, 2016, 2018, 2022, 2051{_BUT}",
    ),
    _unseen("WSDLUsage-3004", "3.6", NONE, Binds.WSDL, "which properties may be declared where", _BY_WSDL),
    _unseen(
        "Local-2.2-processed", "2.2", MUST, Binds.CLIENT, "a property that is present is processed as specified",
        "property by property: Protocol-2005 to 2010, 2016, 2018, 2022, 2070",
    ),
    _unseen(
        "Local-2.2.1-contextParameter", "2.2.1", MUST, Binds.CLIENT,
        "a jndi- parameter is stored as a String, by its name",
        "between the sender and its naming service: no message shows it",
    ),
    _unseen(
        "Local-2.2.2-replyDestination", "2.2.2", SHOULD, Binds.RESPONDING, "the response goes where replyToName says",
        "Protocol-2008, 2070 and 2037 judge the two halves of it",
    ),
    _unseen(
        "Local-2.2.3-isFaultRead", "2.2.3", NONE, Binds.RECEIVER, "isFault is false unless the property says 1 or true",
        _INSIDE,
    ),
    _unseen(
        "Local-2.4-writeBytes", "REC 2.4", MUST, Binds.SENDER, "a BytesMessage is written with writeBytes",
        "the octets are the same whichever method wrote them",
    ),
    _unseen(
        "Local-2.4-bothTypes", "REC 2.4", MUST, Binds.RESPONDING, "supports BytesMessage and TextMessage", _CAPABILITY
    ),
    _unseen(
        "Local-2.6.1.2-correlated", "2.6.1.2", NONE, Binds.REQUESTING, "which response is the correlated one",
        "Protocol-2038 judges the sender of the response; what its receiver makes of it shows in no message",
    ),
    _unseen(
        "Local-3.4.2-transport", "3.4.2", NONE, Binds.WSDL, "the transport attribute names the binding", _BY_WSDL
    ),
    _unseen(
        "Local-3.4.2-location", "REC 3.3", MUST, Binds.WSDL, "the location is a URI of a JMS destination", _BY_WSDL
    ),
    _unseen(
        "Local-3.4.3-soapAction", "3.4.3", NONE, Binds.WSDL, "soapAction may stand on a SOAP operation",
        "a permission: nothing can break it",
    ),
)  # fmt: skip


# Judged on a response

RESPONSE_ASSERTIONS: Final = (
    Assertion(
        id="Protocol-2036", section="2.6.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response has the JMS message type of its request",
        check=response_checks.same_message_type, applies=response_checks.request_is_payload, needs=(Need.MESSAGE_TYPE,),
    ),
    Assertion(
        id="Protocol-2037", section="2.6.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response goes to the request's JMSReplyTo",
        check=response_checks.sent_to_reply_destination, applies=response_checks.nothing_redirects,
        needs=(Need.DESTINATION,),
    ),
    Assertion(
        id="Protocol-2038", section="2.6.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response's JMSCorrelationID repeats the id of the request that the profile says",
        check=response_checks.right_correlation, needs=(Need.REQUEST_ID,),
    ),
    Assertion(
        id="Protocol-2039", section="2.6.2.3", level=NONE, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response repeats the request's JMSPriority and requestURI",
        check=response_checks.copied,
    ),
    Assertion(
        id="Local-2.6.2.3-copied", section="2.6.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response repeats the request's JMSPriority and requestURI (shown, no longer asserted)",
        check=response_checks.copied,
    ),
    Assertion(
        id="Local-2.6.2.3-deliveryMode", section="2.6.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response has the request's JMSDeliveryMode",
        check=response_checks.same_delivery_mode,
    ),
    Assertion(
        id="Local-2.6.2.3-expiration", section="2.6.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response expires no later than its request",
        check=response_checks.expires_with_request,
    ),
    Assertion(
        id="Protocol-2060", section="2.2.1", level=MUST, binds=Binds.IMPLEMENTATION, sees=Sees.PAIR,
        title="the variant jndi is supported: no request with it is refused for its variant",
        check=response_checks.jndi_supported, applies=response_checks.is_jndi, needs=(Need.BODY,),
    ),
    Assertion(
        id="Local-2.2.3-isFault", section="2.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.RESPONSE,
        title="SOAPJMS_isFault is true on a fault, and on nothing else",
        check=request_checks.is_fault_stated, needs=(Need.BODY,),
        after=("Protocol-2029", "Protocol-2030", "Local-2.4-partEnvelope"),
    ),
    Assertion(
        id="Local-2.2.3-isFaultStated", section="REC 2.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.RESPONSE,
        title="SOAPJMS_isFault is true on a fault, and on nothing else (mandatory since WG-31)",
        check=request_checks.is_fault_stated, needs=(Need.BODY,),
        after=("Protocol-2029", "Protocol-2030", "Local-2.4-partEnvelope"),
    ),
    Assertion(
        id="Local-2.8-shape", section="2.8", level=NONE, binds=Binds.RESPONDING, sees=Sees.RESPONSE,
        title="a fault of the binding has the namespace and the shape of the profile",
        check=response_checks.fault_shape, applies=response_checks.is_binding_fault, needs=(Need.BODY,),
    ),
)  # fmt: skip


def _reaction(number: str, section: str, level: Level, subcode: Subcode, title: str, *answers: str) -> Assertion:
    """Make the row of an assertion by which a breach of other assertions is answered with a certain fault."""
    return Assertion(
        id=f"Protocol-{number}", section=section, level=level, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title=f"{title} is answered with {subcode}",
        check=response_checks.right_reaction, needs=(Need.BODY,), subcode=subcode, reaction_to=answers,
    )  # fmt: skip


REACTIONS: Final = (
    _reaction(
        "2011", "2.2.3", MUST, Subcode.UNRECOGNIZED_BINDING_VERSION, "another bindingVersion than 1.0", "Protocol-2010"
    ),
    _reaction(
        "2013", "2.2.3", NONE, Subcode.CONTENT_TYPE_MISMATCH, "a charset that the XML contradicts", "Protocol-2012"
    ),
    _reaction("2017", "2.2.3", NONE, Subcode.MISSING_CONTENT_TYPE, "a missing contentType", "Protocol-2016"),
    _reaction(
        "2020", "2.2.3", NONE, Subcode.MISMATCHED_SOAP_ACTION, "an action mismatch",
        "Protocol-2019", "Local-2.2.3-partAction",
    ),
    _reaction("2023", "2.2.3", NONE, Subcode.MISSING_REQUEST_URI, "a missing requestURI", "Protocol-2022"),
    _reaction(
        "2025", "2.2.4", NONE, Subcode.MALFORMED_REQUEST_URI, "a requestURI that breaks the syntax",
        "Local-2.2.4-syntax", "Protocol-2003", "Protocol-2004",
    ),
    _reaction(
        "2026", "2.2.4", NONE, Subcode.TARGET_SERVICE_NOT_ALLOWED, "targetService in the requestURI",
        "Protocol-2021", "Protocol-2024",
    ),
    _reaction(
        "2028", "2.4", NONE, Subcode.UNSUPPORTED_MESSAGE_FORMAT, "another message type",
        "Protocol-2027", "Protocol-2034",
    ),
    Assertion(
        id="Protocol-2071", section="2.2.1", level=NONE, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="a lookup variant that is not supported is refused (cr-2009: if it is) with unsupportedLookupVariant",
        check=response_checks.right_reaction, applies=response_checks.is_refusal_or_due, needs=(Need.BODY,),
        subcode=Subcode.UNSUPPORTED_LOOKUP_VARIANT, reaction_to=("Local-2.2.1-supported",),
    ),
    Assertion(
        id="Local-2.8-otherReaction", section="2.8", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="a media type, SOAP version, action or content encoding that does not fit is answered with its fault",
        check=response_checks.right_reaction, needs=(Need.BODY,),
        reaction_to=(
            "Local-2.4-mediaType", "Local-2.4-version", "Local-2.4-soapPart", "Protocol-2014", "Protocol-2015",
            "Local-2.2.3-missingSoapAction", "Local-2.2.3-contentEncoding",
        ),
    ),
    Assertion(
        id="Local-2.8-cause", section="2.8", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="a fault of the binding answers a request that breaks one of its rules",
        check=response_checks.fault_has_cause, applies=response_checks.is_binding_fault, needs=(Need.BODY,),
    ),
)  # fmt: skip


REQUEST_FAULTS: Final = PROPERTY_ASSERTIONS + BODY_ASSERTIONS
"""The rows that a responding node judges by: those with a fault, and those that they depend on."""

ASSERTIONS: Final = (
    *PROPERTY_ASSERTIONS,
    *BODY_ASSERTIONS,
    *HEADER_ASSERTIONS,
    *PRECEDENCE_ASSERTIONS,
    *RESPONSE_ASSERTIONS,
    *REACTIONS,
    *UNSEEN,
)
