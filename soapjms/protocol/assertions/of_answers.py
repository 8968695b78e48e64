"""The assertions on a response, alone and beside its request.

Spec: SOAP/JMS 2.6.2.3, 2.8.
"""

from __future__ import annotations

from typing import Final

from soapjms.protocol.assertions import messages, pairs
from soapjms.protocol.assertions.model import Assertion, Binds, Need, Sees
from soapjms.protocol.names import Level, Subcode

MUST, SHOULD, NONE = Level.MUST, Level.SHOULD, Level.NONE

# Judged on a response

RESPONSE_ASSERTIONS: Final = (
    Assertion(
        id="Protocol-2036", section="2.6.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response has the JMS message type of its request",
        check=pairs.same_message_type, applies=pairs.request_is_payload, needs=(Need.MESSAGE_TYPE,),
    ),
    Assertion(
        id="Protocol-2037", section="2.6.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response goes to the request's JMSReplyTo",
        check=pairs.sent_to_reply_destination, applies=pairs.nothing_redirects, needs=(Need.DESTINATION,),
    ),
    Assertion(
        id="Protocol-2038", section="2.6.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response's JMSCorrelationID repeats the id of the request that the profile says",
        check=pairs.right_correlation, needs=(Need.REQUEST_ID,),
    ),
    Assertion(
        id="Protocol-2039", section="2.6.2.3", level=NONE, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response repeats the request's JMSPriority and requestURI",
        check=pairs.copied,
    ),
    Assertion(
        id="Local-2.6.2.3-copied", section="2.6.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response repeats the request's JMSPriority and requestURI (shown, no longer asserted)",
        check=pairs.copied,
    ),
    Assertion(
        id="Local-2.6.2.3-deliveryMode", section="2.6.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response has the request's JMSDeliveryMode",
        check=pairs.same_delivery_mode,
    ),
    Assertion(
        id="Local-2.6.2.3-expiration", section="2.6.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="the response expires no later than its request",
        check=pairs.expires_with_request,
    ),
    Assertion(
        id="Protocol-2060", section="2.2.1", level=MUST, binds=Binds.IMPLEMENTATION, sees=Sees.PAIR,
        title="the variant jndi is supported: no request with it is refused for its variant",
        check=pairs.jndi_supported, applies=pairs.is_jndi, needs=(Need.BODY,),
    ),
    Assertion(
        id="Local-2.2.3-isFault", section="2.2.3", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.RESPONSE,
        title="SOAPJMS_isFault is true on a fault, and on nothing else",
        check=messages.is_fault_stated, needs=(Need.BODY,), after=("Protocol-2029", "Protocol-2030"),
    ),
    Assertion(
        id="Local-2.2.3-isFaultStated", section="REC 2.2.3", level=MUST, binds=Binds.RESPONDING, sees=Sees.RESPONSE,
        title="SOAPJMS_isFault is true on a fault, and on nothing else (mandatory since WG-31)",
        check=messages.is_fault_stated, needs=(Need.BODY,), after=("Protocol-2029", "Protocol-2030"),
    ),
    Assertion(
        id="Local-2.8-shape", section="2.8", level=NONE, binds=Binds.RESPONDING, sees=Sees.RESPONSE,
        title="a fault of the binding has the namespace and the shape of the profile",
        check=pairs.fault_shape, applies=pairs.is_binding_fault, needs=(Need.BODY,),
    ),
)  # fmt: skip


def _reaction(number: str, section: str, level: Level, subcode: Subcode, title: str, *answers: str) -> Assertion:
    """Make the row of an assertion that a breach of others is answered with a certain fault."""
    return Assertion(
        id=f"Protocol-{number}", section=section, level=level, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title=f"{title} is answered with {subcode}",
        check=pairs.right_reaction, needs=(Need.BODY,), subcode=subcode, reaction_to=answers,
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
        check=pairs.right_reaction, applies=pairs.is_refusal_or_due, needs=(Need.BODY,),
        subcode=Subcode.UNSUPPORTED_LOOKUP_VARIANT, reaction_to=("Local-2.2.1-supported",),
    ),
    Assertion(
        id="Local-2.8-otherReaction", section="2.8", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="a media type, SOAP version, action or content encoding that does not fit is answered with its fault",
        check=pairs.right_reaction, needs=(Need.BODY,),
        reaction_to=(
            "Local-2.4-mediaType", "Local-2.4-version", "Local-2.4-soapPart", "Protocol-2014", "Protocol-2015",
            "Local-2.2.3-missingSoapAction", "Local-2.2.3-contentEncoding",
        ),
    ),
    Assertion(
        id="Local-2.8-cause", section="2.8", level=SHOULD, binds=Binds.RESPONDING, sees=Sees.PAIR,
        title="a fault of the binding answers a request that breaks one of its rules",
        check=pairs.fault_has_cause, applies=pairs.is_binding_fault, needs=(Need.BODY,),
    ),
)  # fmt: skip
