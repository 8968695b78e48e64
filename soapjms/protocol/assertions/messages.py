"""Checks of one message: type, SOAPJMS_ properties, body."""

from __future__ import annotations

from brokers.message import MessageType, PropertyType
from soapjms.protocol import names
from soapjms.protocol.assertions.model import Case
from soapjms.protocol.charsets import agree, decode, is_ebcdic
from soapjms.protocol.content import (
    ContentType,
    charset_disagreement,
    contradiction,
    declared_encoding,
    detect_encoding,
    document_encoding,
    parse_content_type,
)
from soapjms.protocol.names import SoapVersion, Subcode

PAYLOAD_TYPES = (MessageType.BYTES, MessageType.TEXT)

# Properties and their names


def missing(case: Case, name: str) -> str | None:
    """Say that a property is missing, and which name of another stack was read in its place; None if it is there."""
    if not case.message.misses(name):
        return None
    alias = case.message.alias_of(name)
    return f"{name} is missing or empty" + (f"; {alias} was read in its place" if alias else "")


# Binding version


def binding_version(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 bindingVersion; Protocol-2010."""
    seen = case.message.text(names.BINDING_VERSION)
    if seen == names.BINDING_VERSION_VALUE:
        return None
    return f"{names.BINDING_VERSION} is {seen!r}, not 1.0" if seen else missing(case, names.BINDING_VERSION)


def version_is_refused(case: Case) -> bool:
    """A wrong version is always refused, a missing one only by a strict reader (some stacks never send it)."""
    return case.setting.strict or case.message.text(names.BINDING_VERSION) is not None


# Message type


def message_format(case: Case) -> str | None:
    """An empty message of unknown type is a Map, Stream, Object, plain or null-text message as STOMP shows it.

    Spec: SOAP/JMS 2.4; Protocol-2027, Protocol-2034, Protocol-2040.
    """
    message = case.message.message
    if message.message_type not in PAYLOAD_TYPES:
        return f"the message is of type {message.message_type}; accepted are BytesMessage and TextMessage"
    if message.body is None and not case.message.record.truncated:
        return f"the body of the {message.message_type} message is null"
    return None


# Content type


def content_type_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 contentType; Protocol-2016. An empty value counts as missing."""
    return missing(case, names.CONTENT_TYPE)


def content_type_is_unknown(case: Case) -> bool:
    """There is none under any name, so nothing that rests on it can be judged."""
    return case.message.content_type is None


def content_type_is_refused(case: Case) -> bool:
    """A name of another stack is refused only by a strict reader."""
    return case.setting.strict or case.message.content_type is None


def media_type_known(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.4."""
    kind = case.message.content_type
    assert kind is not None
    if kind.problem:
        return f"{names.CONTENT_TYPE}: {kind.problem}"
    if case.message.is_simple or kind.media_type == names.MULTIPART:
        return None
    known = {*names.KNOWN_MEDIA_TYPES, *case.setting.profile.media_types.values()}
    return f"the media type is {kind.media_type}; accepted are {', '.join(sorted(known))}"


def is_simple(case: Case) -> bool:
    """An envelope without attachments."""
    return case.message.is_simple


def is_multipart(case: Case) -> bool:
    """A payload with attachments."""
    return case.message.is_multipart


def media_type_fits_envelope(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.4: text/xml for SOAP 1.1, application/soap+xml for SOAP 1.2."""
    kind, envelope = case.message.content_type, case.message.envelope
    assert kind is not None
    assert envelope is not None
    if kind.media_type in (envelope.version.media_type, case.setting.profile.media_types[envelope.version]):
        return None
    return f"the media type is {kind.media_type}, the envelope is SOAP {envelope.version}"


def has_charset(case: Case) -> bool:
    """A charset that can be compared: under the REC the declaration of a TextMessage says nothing."""
    kind = case.message.content_type
    if kind is None or kind.charset is None or not is_simple(case) or not starts_as_xml(case.message.body):
        return False
    return isinstance(case.message.body, bytes) or not case.setting.profile.text_encoding_ignored


def charset_matches_encoding(case: Case) -> str | None:
    """Say why the charset parameter and the encoding of the XML disagree, or None.

    Spec: SOAP/JMS 2.2.3 contentType; Protocol-2012, Protocol-2013.
    """
    kind, body = case.message.content_type, case.message.body
    assert kind is not None
    assert kind.charset is not None
    if isinstance(body, bytes):
        return charset_disagreement(kind.charset, body)
    return text_charset_disagreement(case)


def text_charset_disagreement(case: Case) -> str | None:
    """Say why the charset and the XML declaration of a TextMessage disagree, or None.

    Spec: SOAP/JMS 2.2.3 contentType; REC 2.4.1 (WG-49) has the declaration ignored.
    """
    kind, body = case.message.content_type, case.message.body
    declared = declared_encoding(body) if isinstance(body, str) else None
    if kind is None or kind.charset is None or declared is None:
        return None
    if agree(kind.charset, declared):
        return None
    return f"charset is {kind.charset}, the XML declaration says {declared}"


def is_text_with_charset(case: Case) -> bool:
    """A TextMessage whose content type names a charset."""
    kind = case.message.content_type
    return isinstance(case.message.body, str) and is_simple(case) and kind is not None and kind.charset is not None


def has_no_charset(case: Case) -> bool:
    """Octets of an XML document whose encoding has to be inferred."""
    kind, body = case.message.content_type, case.message.body
    return (
        is_simple(case)
        and kind is not None
        and kind.charset is None
        and isinstance(body, bytes)
        and starts_as_xml(body)
    )


def reads_as_inferred(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 contentType; XML 1.0 4.3.3, appendix F; Protocol-2014."""
    body = case.message.body
    assert isinstance(body, bytes)
    try:
        decode(body, document_encoding(body))
    except ValueError as error:
        return f"there is no charset, and the document does not read in the encoding that its octets tell: {error}"
    return None


def contradicts_itself(case: Case) -> bool:
    """Its byte order mark or first octets say another encoding than its declaration, which is a mismatch too."""
    body = case.message.body
    assert isinstance(body, bytes)
    return contradiction(detect_encoding(body)) is not None


def first_is_xml(case: Case) -> str | None:
    """The first octet or character starts a conforming XML document; a byte order mark belongs to it.

    Spec: SOAP/JMS 2.4; Protocol-2030.
    """
    body = case.message.body
    if body is None:
        return case.message.body_problem
    if not starts_as_xml(body) and not has_ebcdic_charset(case):
        return f"the body begins with {body[:20]!r}, not with an XML document"
    return case.message.envelope_problem


def has_ebcdic_charset(case: Case) -> bool:
    """The charset is a code page of EBCDIC, in which a document without declaration begins as nothing else does."""
    kind = case.message.content_type
    return kind is not None and kind.charset is not None and is_ebcdic(kind.charset)


def starts_as_xml(body: bytes | str | None) -> bool:
    """Say whether a body begins as an XML document may, in any encoding that its first octets can tell."""
    if isinstance(body, str):
        return body.startswith(("<", "\ufeff<"))
    return body is not None and body[:6].startswith(XML_STARTS)


XML_STARTS = (
    b"<",
    b"\xef\xbb\xbf<",
    b"\xfe\xff\x00<",
    b"\xff\xfe<\x00",
    b"\x00<\x00",
    b"\x00\x00\xfe\xff",
    b"\xff\xfe\x00\x00<",
    b"\x00\x00\x00<",
    b"\x00\x00<\x00",  # an unusual order of octets, as the next two: refused by name
    b"\xfe\xff\x00\x00",
    b"\x00\x00\xff\xfe",
    b"\x4c\x6f\xa7\x94",
)


def multipart_type(case: Case) -> str | None:
    """The `type` parameter names the media type of the first part. Spec: SOAP/JMS 2.2.3; Protocol-2015."""
    kind, part = case.message.content_type, case.message.first_part
    assert kind is not None
    assert part is not None
    stated = kind.parameters.get("type")
    inner = None if part.content_type is None else part.content_type.media_type
    if stated is not None and inner is not None and stated.lower() == inner:
        return None
    return f"the type parameter is {stated!r}, the first part's Content-Type is {inner!r}"


def soap_part_fits(case: Case) -> str | None:
    """Say why the SOAP part's Content-Type and its XML disagree, or None; of XML that cannot be read others tell.

    Spec: SOAP/JMS 2.4; RFC 3023 3.1; XOP 5 (the `type` of application/xop+xml).
    """
    part = case.message.soap_part
    assert part is not None
    kind = part.content_type or ContentType("")
    try:
        document = part.document
    except ValueError:
        return None
    if isinstance(document, bytes):
        charset = kind.charset
        problem = charset_disagreement(charset, document) if charset else contradiction(detect_encoding(document))
        if problem is not None:
            return f"in the SOAP part {problem}"
    said = kind.parameters.get("type", "") if kind.media_type == names.XOP else kind.media_type
    version = names.VERSION_OF_MEDIA_TYPE.get(parse_content_type(said).media_type)
    envelope = case.message.envelope
    if version is None or envelope is None or version is envelope.version:
        return None
    return f"the media type of the SOAP part is {said}, its envelope is SOAP {envelope.version}"


def multipart_start(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.4; Protocol-2029."""
    return case.message.multipart_problem or case.message.body_problem


# SOAP action


def is_soap12_with_action(case: Case) -> bool:
    """A SOAP 1.2 content type with an action parameter."""
    kind = case.message.content_type
    return kind is not None and kind.media_type == SoapVersion.SOAP_12.media_type and "action" in kind.parameters


def has_both_actions(case: Case) -> bool:
    """Both actions are there; under the CR the one that is missing is a mismatch too."""
    if not is_soap12_with_action(case):
        return False
    return case.message.soap_action is not None or Subcode.MISSING_SOAP_ACTION not in case.setting.profile.subcodes


def actions_match(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction; Protocol-2019. Quotes around the property are read as a habit."""
    kind = case.message.content_type
    assert kind is not None
    action = kind.parameters["action"]
    if action == case.message.soap_action:
        return None
    return f"the action parameter is {action!r}, {names.SOAP_ACTION} is {case.message.soap_action!r}"


def soap_action_present(case: Case) -> str | None:
    """Spec: REC 2.2.3 soapAction (WG-63)."""
    return missing(case, names.SOAP_ACTION)


def soap_action_is_refused(case: Case) -> bool:
    """A name of another stack is refused only by a strict reader."""
    return case.setting.strict or case.message.soap_action is None


# Content encoding


def has_content_encoding(case: Case) -> bool:
    """The property is there and names more than identity."""
    return case.message.content_encoding is not None


def content_encoding_supported(case: Case) -> str | None:
    """Spec: REC 2.2.3 contentEncoding (WG-65): IANA names, not for TextMessage, not for composite bodies."""
    seen = case.message.content_encoding
    known = case.setting.profile.content_encodings or frozenset()
    if seen not in known:
        return f"{names.CONTENT_ENCODING} is {seen!r}; supported are {', '.join(sorted(known))}"
    if isinstance(case.message.message.body, str):
        return f"{names.CONTENT_ENCODING} is {seen!r} on a TextMessage"
    return f"{names.CONTENT_ENCODING} is {seen!r} on a multipart body" if is_multipart(case) else None


# isFault


def is_fault_stated(case: Case) -> str | None:
    """A fault says so in SOAPJMS_isFault, and nothing else does. Spec: SOAP/JMS 2.2.3 isFault."""
    stated, fault = case.message.is_fault, case.message.fault
    if stated is None:
        return f"{names.IS_FAULT} is {case.message.text(names.IS_FAULT)!r}, neither true nor false"
    if fault is not None and not stated and case.setting.profile.spelled(names.IS_FAULT) is not None:
        return f"the body is a fault, {names.IS_FAULT} does not say so"
    if fault is None and stated:
        return f"{names.IS_FAULT} is true, the body is no fault"
    return None


def has_fault_flag(case: Case) -> bool:
    """SOAPJMS_isFault is there."""
    return case.message.message.properties.lookup(names.IS_FAULT) is not None


def fault_flag_type(case: Case) -> str | None:
    """Spec: REC 2.2.3 isFault (WG-31): a boolean; getBooleanProperty of a number is an exception."""
    flag = case.message.message.properties.lookup(names.IS_FAULT)
    assert flag is not None
    return None if flag.type is PropertyType.BOOLEAN else f"{names.IS_FAULT} is a JMS {flag.type}, not a boolean"


# What the sender is known to have set


def states_target_service(case: Case) -> bool:
    """A targetService is known to have been set, and the dialect has a property for it."""
    return case.setting.profile.spelled(names.TARGET_SERVICE) is not None and case.stated("targetService") is not None


def states_soap_action(case: Case) -> bool:
    """A soapAction is known to have been set."""
    return case.stated("soapAction") is not None


def target_service(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 targetService; Protocol-2009."""
    return _shows(case, "targetService", case.message.text(names.TARGET_SERVICE))


def soap_action(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction; Protocol-2018."""
    return missing(case, names.SOAP_ACTION) or _shows(case, "soapAction", case.message.soap_action)


def _shows(case: Case, name: str, seen: str | None) -> str | None:
    wanted = case.stated(name)
    return None if wanted == seen else f"{name} was set to {wanted!r}, the message shows {seen!r}"
