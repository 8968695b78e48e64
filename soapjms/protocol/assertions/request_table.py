"""The assertions on one message.

A responding node judges by PROPERTY_ASSERTIONS and BODY_ASSERTIONS, which have faults, in this order: if a request
calls for several faults, the first counts, and properties are checked before the body is read. Replay and
`Response.findings` also judge by HEADER_ASSERTIONS and PRECEDENCE_ASSERTIONS. A new row has its check in
`request_checks.py` or `body_checks.py`, its vector in `tests/vectors`, a change that breaks it in
`soapjms/generate/table.py`, and its id in the editions of `names.py`.

Spec: SOAP/JMS 2.2, 2.4, 2.6.1, 2.7, 3.4.
"""

from __future__ import annotations

from typing import Final

from soapjms.protocol.assertions import body_checks, request_checks
from soapjms.protocol.assertions.model import Assertion, Binds, Need, Sees
from soapjms.protocol.names import Level, Subcode

MUST, SHOULD, NONE = Level.MUST, Level.SHOULD, Level.NONE

# Judged on one message

PROPERTY_ASSERTIONS: Final = (
    Assertion(
        id="Protocol-2010", section="2.2.3", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="SOAPJMS_bindingVersion is present and 1.0",
        check=request_checks.binding_version,
        subcode=Subcode.UNRECOGNIZED_BINDING_VERSION, faults_when=request_checks.version_is_refused,
    ),
    Assertion(
        id="Protocol-2027", section="2.4", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="the message is a BytesMessage or TextMessage with the SOAP payload",
        check=request_checks.message_format, needs=(Need.MESSAGE_TYPE,),
        subcode=Subcode.UNSUPPORTED_MESSAGE_FORMAT,
    ),
    Assertion(
        id="Protocol-2034", section="2.6.1.1", level=MUST, binds=Binds.REQUESTING, sees=Sees.REQUEST,
        title="a request is a BytesMessage or TextMessage",
        check=request_checks.message_format, needs=(Need.MESSAGE_TYPE,),
        subcode=Subcode.UNSUPPORTED_MESSAGE_FORMAT,
    ),
    Assertion(
        id="Protocol-2040", section="2.7.1", level=MUST, binds=Binds.ONE_WAY_SENDER, sees=Sees.ONE_WAY,
        title="a one-way message is a BytesMessage or TextMessage",
        check=request_checks.message_format, needs=(Need.MESSAGE_TYPE,),
        subcode=Subcode.UNSUPPORTED_MESSAGE_FORMAT,
    ),
    Assertion(
        id="Protocol-2016", section="2.2.3", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="SOAPJMS_contentType is present",
        check=request_checks.content_type_present,
        subcode=Subcode.MISSING_CONTENT_TYPE, faults_when=request_checks.content_type_is_refused,
        blocks=request_checks.content_type_is_unknown,
    ),
    Assertion(
        id="Local-2.4-mediaType", section="2.4", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="the content type is text/xml, application/soap+xml or multipart/related",
        check=request_checks.media_type_known, after=("Protocol-2016",),
        subcode=Subcode.CONTENT_TYPE_MISMATCH,
    ),
    Assertion(
        id="Local-2.2.3-contentEncoding", section="REC 2.2.3", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="SOAPJMS_contentEncoding is one that the receiver decodes, on a BytesMessage with one part",
        check=request_checks.content_encoding_supported, applies=request_checks.has_content_encoding,
        subcode=Subcode.CONTENT_ENCODING_NOT_SUPPORTED,
    ),
    Assertion(
        id="Protocol-2022", section="2.2.3", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="SOAPJMS_requestURI is present",
        check=request_checks.request_uri_present, applies=request_checks.owes_request_uri,
        subcode=Subcode.MISSING_REQUEST_URI, faults_when=request_checks.request_uri_is_refused,
        blocks=request_checks.request_uri_is_unknown,
    ),
    Assertion(
        id="Local-2.2.4-syntax", section="2.2.4", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the requestURI fits the grammar of JMS URIs",
        check=request_checks.well_formed, applies=request_checks.shows_request_uri, after=("Protocol-2022",),
        subcode=Subcode.MALFORMED_REQUEST_URI,
    ),
    Assertion(
        id="Protocol-2003", section="2.2.1", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the JMS URI gives the lookup variant",
        check=request_checks.variant_present, applies=request_checks.shows_request_uri, after=("Protocol-2022",),
        subcode=Subcode.MALFORMED_REQUEST_URI,
    ),
    Assertion(
        id="Protocol-2004", section="2.2.1", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the JMS URI gives the destination name",
        check=request_checks.destination_present, applies=request_checks.shows_request_uri, after=("Protocol-2022",),
        subcode=Subcode.MALFORMED_REQUEST_URI,
    ),
    Assertion(
        id="Protocol-2021", section="2.2.3", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the requestURI does not hold targetService",
        check=request_checks.has_target_service, applies=request_checks.shows_request_uri, after=("Protocol-2022",),
        subcode=Subcode.TARGET_SERVICE_NOT_ALLOWED,
    ),
    Assertion(
        id="Protocol-2024", section="2.2.4", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the requestURI holds neither targetService nor replyToName",
        check=request_checks.must_be_excluded, applies=request_checks.shows_request_uri, after=("Protocol-2022",),
        subcode=Subcode.TARGET_SERVICE_NOT_ALLOWED, faults_when=request_checks.leaves_target_service,
    ),
    Assertion(
        id="Local-2.2.1-supported", section="2.2.1", level=SHOULD, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the lookup variant is one that the responding node supports",
        check=request_checks.variant_supported, applies=request_checks.shows_request_uri,
        after=("Protocol-2003", "Local-2.2.4-syntax"),
        subcode=Subcode.UNSUPPORTED_LOOKUP_VARIANT,
    ),
    Assertion(
        id="Local-2.2.3-missingSoapAction", section="REC 2.2.3", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="SOAPJMS_soapAction is present where the SOAP 1.2 content type has an action parameter",
        check=request_checks.soap_action_present, applies=request_checks.is_soap12_with_action,
        subcode=Subcode.MISSING_SOAP_ACTION, faults_when=request_checks.soap_action_is_refused,
    ),
    Assertion(
        id="Protocol-2019", section="2.2.3", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the SOAP 1.2 action parameter of the content type equals SOAPJMS_soapAction",
        check=request_checks.actions_match, applies=request_checks.has_both_actions,
        subcode=Subcode.MISMATCHED_SOAP_ACTION,
    ),
)  # fmt: skip

BODY_ASSERTIONS: Final = (
    Assertion(
        id="Protocol-2012", section="2.2.3", level=MUST, binds=Binds.RECEIVER, sees=Sees.ANY,
        title="the charset parameter and the encoding of the XML agree",
        check=body_checks.charset_matches_encoding, applies=body_checks.has_charset,
        needs=(Need.BODY,), after=("Protocol-2016", "Protocol-2027"),
        subcode=Subcode.CONTENT_TYPE_MISMATCH,
    ),
    Assertion(
        id="Protocol-2014", section="2.2.3", level=MUST, binds=Binds.RECEIVER, sees=Sees.ANY,
        title="without a charset parameter the document can be decoded in the encoding that its octets show",
        check=body_checks.reads_as_inferred, applies=body_checks.has_no_charset,
        needs=(Need.BODY,), after=("Protocol-2016", "Protocol-2027"),
        subcode=Subcode.CONTENT_TYPE_MISMATCH, faults_when=body_checks.contradicts_itself,
    ),
    Assertion(
        id="Protocol-2029", section="2.4", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="a multipart body begins with the boundary of its first part",
        check=body_checks.multipart_start, applies=request_checks.is_multipart,
        needs=(Need.BODY,), after=("Protocol-2027", "Local-2.2.3-contentEncoding"),
    ),
    Assertion(
        id="Protocol-2015", section="2.2.3", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="the type parameter of a multipart content type is the media type of the first part",
        check=body_checks.multipart_type, applies=request_checks.is_multipart,
        needs=(Need.BODY,), after=("Protocol-2027", "Protocol-2029"),
        subcode=Subcode.CONTENT_TYPE_MISMATCH,
    ),
    Assertion(
        id="Local-2.4-soapPart", section="2.4", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="the SOAP part of a multipart body has the charset and the SOAP version that its Content-Type says",
        check=body_checks.soap_part_fits, applies=request_checks.is_multipart,
        needs=(Need.BODY,), after=("Protocol-2027", "Protocol-2029", "Protocol-2015"),
        subcode=Subcode.CONTENT_TYPE_MISMATCH,
    ),
    Assertion(
        id="Local-2.4-partEnvelope", section="2.4", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="the SOAP part of a multipart body is a SOAP envelope, a well-formed XML document",
        check=body_checks.part_is_envelope, applies=request_checks.is_multipart,
        needs=(Need.BODY,), after=("Protocol-2027", "Protocol-2029", "Local-2.4-soapPart"),
    ),
    Assertion(
        id="Local-2.2.3-partAction", section="2.2.3", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the SOAP 1.2 action parameter of the SOAP part, if it has one, equals SOAPJMS_soapAction",
        check=request_checks.part_action_matches, applies=request_checks.is_multipart_with_action,
        needs=(Need.BODY,), after=("Protocol-2027", "Protocol-2029"),
        subcode=Subcode.MISMATCHED_SOAP_ACTION,
    ),
    Assertion(
        id="Protocol-2030", section="2.4", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="a simple body begins with a well-formed XML document, a SOAP envelope",
        check=body_checks.first_is_xml, applies=request_checks.is_simple,
        needs=(Need.BODY,), after=("Protocol-2027", "Protocol-2012", "Protocol-2014", "Local-2.2.3-contentEncoding"),
    ),
    Assertion(
        id="Local-2.4-version", section="2.4", level=MUST, binds=Binds.SENDER, sees=Sees.ANY,
        title="text/xml goes with SOAP 1.1, application/soap+xml with SOAP 1.2",
        check=request_checks.media_type_fits_envelope, applies=request_checks.is_simple,
        needs=(Need.BODY,), after=("Protocol-2030",),
        subcode=Subcode.CONTENT_TYPE_MISMATCH,
    ),
    Assertion(
        id="Local-2.4.1-textEncoding", section="REC 2.4.1", level=SHOULD, binds=Binds.SENDER, sees=Sees.ANY,
        title="the XML declaration of a TextMessage, which has no meaning, does not contradict the charset",
        check=body_checks.text_charset_disagreement, applies=body_checks.is_text_with_charset,
        needs=(Need.BODY,), after=("Protocol-2016",),
    ),
)  # fmt: skip

HEADER_ASSERTIONS: Final = (
    Assertion(
        id="Protocol-2005", section="2.2.2", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="JMSDeliveryMode is 1 or 2, and what deliveryMode was set to",
        check=request_checks.delivery_mode, needs=(Need.DELIVERY_MODE,),
    ),
    Assertion(
        id="Protocol-2006", section="2.2.2", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="JMSExpiration follows from timeToLive",
        check=request_checks.expiration, applies=request_checks.states_time_to_live,
        needs=(Need.EXPIRATION, Need.TIMESTAMP),
    ),
    Assertion(
        id="Protocol-2007", section="2.2.2", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="JMSPriority is 0 to 9, and what priority was set to",
        check=request_checks.priority, needs=(Need.PRIORITY,),
    ),
    Assertion(
        id="Protocol-2008", section="2.2.2", level=MUST, binds=Binds.REQUESTING, sees=Sees.REQUEST,
        title="JMSReplyTo derives from replyToName",
        check=request_checks.reply_queue, applies=request_checks.states_reply_queue, needs=(Need.REPLY_NAME,),
    ),
    Assertion(
        id="Protocol-2070", section="2.2.2", level=MUST, binds=Binds.REQUESTING, sees=Sees.REQUEST,
        title="JMSReplyTo derives from topicReplyToName where that is relevant",
        check=request_checks.reply_topic, applies=request_checks.states_reply_topic, needs=(Need.REPLY_NAME,),
    ),
    Assertion(
        id="Protocol-2009", section="2.2.3", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="SOAPJMS_targetService is what targetService was set to",
        check=request_checks.target_service, applies=request_checks.states_target_service,
    ),
    Assertion(
        id="Protocol-2018", section="2.2.3", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="SOAPJMS_soapAction is what soapAction was set to",
        check=request_checks.soap_action, applies=request_checks.states_soap_action,
    ),
    Assertion(
        id="Protocol-2050", section="2.6.1.2", level=MUST, binds=Binds.REQUESTING, sees=Sees.SENT,
        title="JMSReplyTo is set on a request",
        check=request_checks.reply_to_present, applies=request_checks.is_request,
    ),
    Assertion(
        id="Protocol-2051", section="2.7.1", level=Level.MUST_NOT, binds=Binds.ONE_WAY_SENDER, sees=Sees.SENT,
        title="JMSReplyTo is not set on a one-way message",
        check=request_checks.reply_to_absent, applies=request_checks.is_one_way,
    ),
    Assertion(
        id="Local-2.2.4-shouldExclude", section="2.2.4", level=SHOULD, binds=Binds.CLIENT, sees=Sees.SENT,
        title="the requestURI holds no parameters of JMS headers or of JNDI",
        check=request_checks.should_be_excluded, applies=request_checks.shows_request_uri, after=("Protocol-2022",),
    ),
    Assertion(
        id="Local-2.2.2-topicReplyToName", section="2.2.2", level=MUST, binds=Binds.REQUESTING, sees=Sees.REQUEST,
        title="topicReplyToName is ignored for the variant jndi, and where there is a replyToName",
        check=request_checks.reply_topic_ignored, applies=request_checks.ignores_reply_topic, needs=(Need.REPLY_NAME,),
    ),
    Assertion(
        id="Local-2.2.3-isFaultType", section="REC 2.2.3", level=SHOULD, binds=Binds.SENDER, sees=Sees.ANY,
        title="SOAPJMS_isFault is a JMS boolean",
        check=request_checks.fault_flag_type, applies=request_checks.has_fault_flag, needs=(Need.TYPES,),
    ),
)  # fmt: skip

# Which source counted


def _precedence(
    name: str, section: str, level: Level, binds: Binds, rule: request_checks.Rule, title: str, why_not: str
) -> Assertion:
    """Make the row of an assertion that is judged only if the setting has the sender's properties."""
    applies, check = rule
    return Assertion(
        id=name, section=section, level=level, binds=binds, sees=Sees.SENT, title=title,
        applies=applies, check=check, by_properties=True, why_not=why_not,
    )  # fmt: skip


_WINNER: Final = "a message shows only the value that won, and its sender's settings are not known"
_BY_WSDL: Final = "decidable from a WSDL and the message, and no WSDL was given"

PRECEDENCE_ASSERTIONS: Final = (
    _precedence(
        "Protocol-2001", "2.2", MUST, Binds.CLIENT, request_checks.ENVIRONMENT_FIRST,
        "the environment wins over URI and WSDL", _WINNER,
    ),
    Assertion(
        id="Protocol-2002", section="2.2", level=MUST, binds=Binds.CLIENT, sees=Sees.SENT,
        title="of a repeated URI parameter the last counts",
        applies=request_checks.repeats_a_parameter, check=request_checks.last_one_counts,
    ),
    _precedence(
        "WSDLUsage-3001", "3.4.4", NONE, Binds.WSDL, request_checks.MARKUP_REACHES,
        "properties on binding, service and port reach the message", _BY_WSDL,
    ),
    _precedence(
        "WSDLUsage-3002", "3.4.4", MUST, Binds.WSDL, request_checks.PORT_FIRST,
        "port wins over service, service over binding", _BY_WSDL,
    ),
    _precedence(
        "WSDLUsage-3003", "3.4.5", MUST, Binds.WSDL, request_checks.URI_BEFORE_MARKUP,
        "the URI overrides the markup", _BY_WSDL,
    ),
)  # fmt: skip
