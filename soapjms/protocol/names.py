"""The words and wire spellings of SOAP over JMS 1.0, and the profiles as data: two editions, and dialects of stacks.

Only names and tables: nothing here decides anything.

Spec: SOAP/JMS 1.4.1, 2.2, 2.6, 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, Self, TypeAlias

CR_NAMESPACE: Final = "http://www.w3.org/2008/07/soap/bindings/JMS/"
REC_NAMESPACE: Final = "http://www.w3.org/2010/soapjms/"

BINDING_VERSION_VALUE: Final = "1.0"

REQUEST_URI: Final = "SOAPJMS_requestURI"
BINDING_VERSION: Final = "SOAPJMS_bindingVersion"
CONTENT_TYPE: Final = "SOAPJMS_contentType"
CONTENT_ENCODING: Final = "SOAPJMS_contentEncoding"
SOAP_ACTION: Final = "SOAPJMS_soapAction"
TARGET_SERVICE: Final = "SOAPJMS_targetService"
IS_FAULT: Final = "SOAPJMS_isFault"


class SoapVersion(StrEnum):
    """SOAP 1.1 and 1.2; the value is the version as people write it.

    Attributes:
        namespace: the namespace of the envelope.
        media_type: the media type of an envelope without attachments (SOAP/JMS 2.4).
    """

    namespace: str
    media_type: str

    SOAP_11 = "1.1", "http://schemas.xmlsoap.org/soap/envelope/", "text/xml"
    SOAP_12 = "1.2", "http://www.w3.org/2003/05/soap-envelope", "application/soap+xml"

    def __new__(cls, value: str, namespace: str = "", media_type: str = "") -> Self:
        """Make a member of its text, with its namespace and media type."""
        version = str.__new__(cls, value)
        version._value_ = value
        version.namespace, version.media_type = namespace, media_type
        return version


SoapVersionName: TypeAlias = Literal["1.1", "1.2"]

SOAP_MEDIA_TYPES: Final[Mapping[SoapVersion, str]] = {version: version.media_type for version in SoapVersion}
VERSION_OF_MEDIA_TYPE: Final[Mapping[str, SoapVersion]] = {kind: version for version, kind in SOAP_MEDIA_TYPES.items()}
MULTIPART: Final = "multipart/related"
XOP: Final = "application/xop+xml"
KNOWN_MEDIA_TYPES: Final = frozenset({*VERSION_OF_MEDIA_TYPE, MULTIPART})


class Subcode(StrEnum):
    """The fault subcodes: local names in the profile's namespace.

    Spec: SOAP/JMS 2.8.
    """

    UNSUPPORTED_LOOKUP_VARIANT = "unsupportedLookupVariant"
    UNRECOGNIZED_BINDING_VERSION = "unrecognizedBindingVersion"
    CONTENT_TYPE_MISMATCH = "contentTypeMismatch"
    MISSING_CONTENT_TYPE = "missingContentType"
    MISMATCHED_SOAP_ACTION = "mismatchedSoapAction"
    MISSING_REQUEST_URI = "missingRequestURI"
    MALFORMED_REQUEST_URI = "malformedRequestURI"
    TARGET_SERVICE_NOT_ALLOWED = "targetServiceNotAllowedInRequestURI"
    UNSUPPORTED_MESSAGE_FORMAT = "unsupportedJMSMessageFormat"
    MISSING_SOAP_ACTION = "missingSoapAction"
    CONTENT_ENCODING_NOT_SUPPORTED = "contentEncodingNotSupported"


SubcodeName: TypeAlias = Literal[
    "unsupportedLookupVariant",
    "unrecognizedBindingVersion",
    "contentTypeMismatch",
    "missingContentType",
    "mismatchedSoapAction",
    "missingRequestURI",
    "malformedRequestURI",
    "targetServiceNotAllowedInRequestURI",
    "unsupportedJMSMessageFormat",
    "missingSoapAction",
    "contentEncodingNotSupported",
]

CR_SUBCODES: Final = frozenset(Subcode) - {Subcode.MISSING_SOAP_ACTION, Subcode.CONTENT_ENCODING_NOT_SUPPORTED}


class FailureReason(StrEnum):
    """Why an exchange ended in the state Fail.

    Spec: SOAP 1.2 Part 2 6.2; SOAP/JMS 2.6.
    """

    TRANSMISSION_FAILURE = "transmissionFailure"
    RECEPTION_FAILURE = "receptionFailure"


class Mep(StrEnum):
    """The message exchange patterns, by their URIs.

    Spec: SOAP/JMS 2.5, 2.6, 2.7.
    """

    REQUEST_RESPONSE = "http://www.w3.org/2003/05/soap/mep/request-response/"
    ONE_WAY = "http://www.w3.org/2006/08/soap/mep/one-way/"


class Level(StrEnum):
    """The RFC 2119 level of an assertion, as written; NONE for one without a keyword, which is judged as a MUST."""

    MUST = "MUST"
    MUST_NOT = "MUST NOT"
    SHOULD = "SHOULD"
    NONE = "none"


class Role(StrEnum):
    """The role of a node in one exchange.

    Spec: SOAP/JMS 2.6, 2.7 (bindingFramework/ExchangeContext/Role).
    """

    REQUESTING = "RequestingSOAPNode"
    RESPONDING = "RespondingSOAPNode"
    SENDING = "SendingSOAPNode"
    RECEIVING = "ReceivingSOAPNode"


class CorrelationRule(StrEnum):
    """Which header of the request the response's JMSCorrelationID repeats (Protocol-2038)."""

    MESSAGE_ID = "JMSMessageID"
    CORRELATION_ID_ELSE_MESSAGE_ID = "JMSCorrelationID, else JMSMessageID"


class Soap11FaultShape(StrEnum):
    """Where a SOAP 1.1 fault carries the subcode (SOAP/JMS 2.8)."""

    DETAIL = "the only child of detail"
    FAULTCODE = "faultcode"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile:
    """One edition of the specification, or the dialect of a stack based on an edition, as data.

    Attributes:
        name: the name by which users choose the profile.
        edition: the name of the edition that the profile is, or that it is a dialect of.
        namespace: the namespace of subcodes and WSDL elements, and the transport URI.
        correlation: the header of the request that a response correlates by.
        soap11_fault: where a SOAP 1.1 fault carries its subcode.
        subcodes: the subcodes that the edition defines.
        content_encodings: values of SOAPJMS_contentEncoding that a receiver decodes; None if the edition does not know
            the property, so that it has no effect.
        addressing_redirects: WS-Addressing in the request may redirect the response from JMSReplyTo (WG-29).
        text_encoding_ignored: the encoding in the XML declaration of a TextMessage is ignored (REC 2.4.1).
        refuses_variants: an unsupported lookup variant must be refused; if False, the edition only defines the subcode
            for a node that refuses it (WG-9).
        levels: assertion id of the CR to its level in this profile, if that differs.
        assertion_ids: assertion id of the CR to the id in this edition, None if the edition dropped it; an absent id is
            the same in both.
        spelling: SOAPJMS_ property to its name in the dialect; None if the dialect neither writes the property nor
            misses it.
        media_types: the media type of an envelope without attachments, by SOAP version.
        quotes_action: SOAP versions with which SOAPJMS_soapAction is written in quotes, as in the HTTP header.
        also_on: binding property to further messages that carry it, beside those of the specification.
        constants: further message properties that every message carries.
        tolerated: ids of assertions whose breach is a warning and not a fault.
    """

    name: str
    edition: str
    namespace: str
    correlation: CorrelationRule
    soap11_fault: Soap11FaultShape
    subcodes: frozenset[Subcode]
    content_encodings: frozenset[str] | None
    addressing_redirects: bool
    text_encoding_ignored: bool
    refuses_variants: bool
    levels: Mapping[str, Level] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    assertion_ids: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    spelling: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    media_types: Mapping[SoapVersion, str] = field(default_factory=lambda: SOAP_MEDIA_TYPES, hash=False)
    quotes_action: frozenset[SoapVersion] = frozenset()
    also_on: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    constants: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    tolerated: frozenset[str] = frozenset()

    def spelled(self, name: str) -> str | None:
        """Return the name of a SOAPJMS_ property in this profile; None if the profile does not have it."""
        return self.spelling.get(name, name)

    def assertion_id(self, cr_id: str) -> str | None:
        """Return the id of an assertion of the CR in this edition; None if the edition does not have it."""
        return self.assertion_ids.get(cr_id, cr_id)

    def __repr__(self) -> str:
        return f"<soapjms profile {self.name}>"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return profile, (self.name,)


CR_2009: Final = Profile(
    name="cr-2009",
    edition="cr-2009",
    namespace=CR_NAMESPACE,
    correlation=CorrelationRule.MESSAGE_ID,
    soap11_fault=Soap11FaultShape.DETAIL,
    subcodes=CR_SUBCODES,
    content_encodings=None,
    addressing_redirects=False,
    text_encoding_ignored=False,
    refuses_variants=False,
    assertion_ids=MappingProxyType(
        {
            "Local-2.2.3-missingSoapAction": None,
            "Local-2.2.3-contentEncoding": None,
            "Local-2.4.1-textEncoding": None,
            "Local-2.6.2.3-copied": None,  # Protocol-2039 asserts it
            "Local-2.2.3-isFaultStated": None,  # a SHOULD: Local-2.2.3-isFault
            "Local-2.2.3-isFaultType": None,  # the text has numbers, its example a boolean
            "Local-2.4-writeBytes": None,
            "Local-2.4-bothTypes": None,
            "Local-3.4.2-location": None,
        }
    ),
)
REC_2012: Final = Profile(
    name="rec-2012",
    edition="rec-2012",
    namespace=REC_NAMESPACE,
    correlation=CorrelationRule.CORRELATION_ID_ELSE_MESSAGE_ID,
    soap11_fault=Soap11FaultShape.FAULTCODE,
    subcodes=frozenset(Subcode),
    content_encodings=frozenset({"identity", "gzip"}),
    addressing_redirects=True,
    text_encoding_ignored=True,
    refuses_variants=True,
    levels=MappingProxyType(
        {
            **dict.fromkeys(("Protocol-2025", "Protocol-2026", "Protocol-2028", "Protocol-2071"), Level.MUST),  # WG-9
            # Merged into the MUST that they react to: WG-1, WG-2, WG-3, WG-10
            **dict.fromkeys(("Protocol-2013", "Protocol-2017", "Protocol-2020", "Protocol-2023"), Level.MUST),
            "Local-2.2.2-replyDestination": Level.NONE,  # WG-46
            "Local-3.4.2-transport": Level.MUST,  # WG-14, WG-56
            "WSDLUsage-3004": Level.MUST,  # WG-20
        }
    ),
    assertion_ids=MappingProxyType(
        {
            "Protocol-2013": "Protocol-2012",  # merged: WG-1, WG-36
            "Protocol-2017": "Protocol-2016",  # merged: WG-10
            "Protocol-2020": "Protocol-2019",  # merged: WG-2
            "Protocol-2023": "Protocol-2022",  # merged: WG-3
            "Protocol-2034": None,  # redundant with 2027: WG-51
            "Protocol-2040": None,
            "Protocol-2035": None,  # tables shown, no longer asserted: WG-5, WG-6, WG-7
            "Protocol-2039": None,
            "Protocol-2041": None,
            "Conformance-1004": None,  # WSDL 2.0 became a non-normative appendix
            "WSDLUsage-3003": "WSDLUsage-3002",  # one list of URI, port, service, binding: WG-19
            "Local-3.4.2-transport": "WSDLUsage-3003",  # WG-14, WG-56: the number of another assertion of the CR
            "Local-3.4.2-location": "WSDLUsage-3004",  # WG-14, WG-57: likewise
            "WSDLUsage-3004": "Local-3.6-elements",  # WG-20, its new number is not known
            "Local-2.2-processed": None,  # WG-43
            "Local-2.2.3-isFault": None,  # a MUST: WG-31
        }
    ),
)
EDITIONS: Final[Mapping[str, Profile]] = {each.name: each for each in (CR_2009, REC_2012)}
EDITION_OF_NAMESPACE: Final[Mapping[str, Profile]] = {each.namespace: each for each in EDITIONS.values()}

# Dialects: the spellings of real stacks. docs/dialects.md says what is known about each, and how reliably.

CXF: Final = replace(
    REC_2012,
    name="cxf",
    quotes_action=frozenset({SoapVersion.SOAP_11}),
    also_on=MappingProxyType({"isFault": frozenset({"request", "one-way"})}),
)
WEBSPHERE: Final = replace(
    CR_2009,
    name="websphere",
    spelling=MappingProxyType({REQUEST_URI: "SOAPJMS_requestIRI"}),
    quotes_action=frozenset(SoapVersion),
    tolerated=frozenset({"Protocol-2021", "Protocol-2024"}),  # its URI keeps all parameters, targetService too
)
SPRING_WS: Final = replace(
    REC_2012,
    name="spring-ws",
    spelling=MappingProxyType({REQUEST_URI: None, BINDING_VERSION: None, IS_FAULT: None}),
    quotes_action=frozenset(SoapVersion),
    tolerated=frozenset({"Local-2.2.3-missingSoapAction"}),  # with SOAP 1.2 the action is in the content type only
)
TIBCO: Final = replace(
    CR_2009,
    name="tibco",
    spelling=MappingProxyType(
        {
            CONTENT_TYPE: "Content_Type",
            SOAP_ACTION: "SoapAction",
            REQUEST_URI: None,
            BINDING_VERSION: None,
            TARGET_SERVICE: None,
            IS_FAULT: None,
        }
    ),
    media_types=MappingProxyType(dict.fromkeys(SoapVersion, "application/xml")),
    constants=MappingProxyType({"Mime_Version": "1.0"}),
)
DIALECTS: Final[Mapping[str, Profile]] = {each.name: each for each in (CXF, WEBSPHERE, SPRING_WS, TIBCO)}

PROFILES: Final[Mapping[str, Profile]] = {**EDITIONS, **DIALECTS}
DEFAULT_PROFILE: Final = REC_2012

EditionName: TypeAlias = Literal["cr-2009", "rec-2012"]
ProfileName: TypeAlias = Literal[EditionName, "cxf", "websphere", "spring-ws", "tibco"]

Auto: TypeAlias = Literal["auto"]
AUTO: Final = "auto"
"""Given in place of a profile's name to find the profile by a namespace that shows the edition."""

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(alias)
    for name in (REQUEST_URI, CONTENT_TYPE, SOAP_ACTION)
    if (alias := [other for each in DIALECTS.values() if (other := each.spelled(name)) not in (name, None)])
}
"""SOAPJMS_ property to its names in the dialects, which are read under every profile."""


def profile(name: str) -> Profile:
    """Return the profile called `name`.

    Raises:
        ValueError: there is no such profile; the message lists the known ones.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise ValueError(f"unknown profile {name!r}; known are: {', '.join(PROFILES)}") from None
