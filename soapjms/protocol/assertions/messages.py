"""Checks of one message: type, SOAPJMS_ properties, media type."""

from __future__ import annotations

from brokers.message import MessageType, PropertyType
from soapjms.protocol import names
from soapjms.protocol.assertions.model import Case
from soapjms.protocol.showing import shown

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
    return f"{names.BINDING_VERSION} is {shown(seen)}, not 1.0" if seen else missing(case, names.BINDING_VERSION)


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
    if message.body is None and not case.message.truncated:
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
    return f"the media type is {shown(kind.media_type)}; accepted are {', '.join(sorted(known))}"


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


# Content encoding


def has_content_encoding(case: Case) -> bool:
    """The property is there and names more than identity."""
    return case.message.content_encoding is not None


def content_encoding_supported(case: Case) -> str | None:
    """Spec: REC 2.2.3 contentEncoding (WG-65): IANA names, not for TextMessage, not for composite bodies."""
    seen = case.message.content_encoding
    known = case.setting.profile.content_encodings or frozenset()
    if seen not in known:
        return f"{names.CONTENT_ENCODING} is {shown(seen)}; supported are {', '.join(sorted(known))}"
    if isinstance(case.message.message.body, str):
        return f"{names.CONTENT_ENCODING} is {seen!r} on a TextMessage"
    return f"{names.CONTENT_ENCODING} is {seen!r} on a multipart body" if is_multipart(case) else None


# isFault


def is_fault_stated(case: Case) -> str | None:
    """A fault says so in SOAPJMS_isFault, and nothing else does. Spec: SOAP/JMS 2.2.3 isFault."""
    stated, fault = case.message.is_fault, case.message.fault
    if stated is None:
        return f"{names.IS_FAULT} is {shown(case.message.text(names.IS_FAULT))}, neither true nor false"
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
    """A soapAction is known to have been set; a URI parameter of that name is none, as it may not be set there."""
    return case.setting.properties is not None and case.stated("soapAction") is not None


def target_service(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 targetService; Protocol-2009."""
    return _shows(case, "targetService", case.message.text(names.TARGET_SERVICE))


def soap_action(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction; Protocol-2018."""
    return missing(case, names.SOAP_ACTION) or _shows(case, "soapAction", case.message.soap_action)


def _shows(case: Case, name: str, seen: str | None) -> str | None:
    wanted = case.stated(name)
    return None if wanted == seen else f"{name} was set to {shown(wanted)}, the message shows {shown(seen)}"
