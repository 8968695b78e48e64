"""Checks of one message: type, SOAPJMS_ properties, media type, JMS headers, requestURI, precedence, SOAP action.

The checks of headers and requestURI are for requests and one-way messages. Those of precedence compare the sender's
settings with the message, to see which source of a binding property counted. Those of the SOAP 1.2 action compare the
action in content types with SOAPJMS_soapAction. Checks of a body are in `body_checks.py`, checks of a response against
its request in `response_checks.py`.

Spec: SOAP/JMS 2.2, 3.4.4, 3.4.5; SOAP/JMS 2.2.3 soapAction; RFC 3902 2; XOP 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from brokers.message import DeliveryMode, MessageType, PropertyType
from soapjms.protocol import names
from soapjms.protocol.assertions.model import Case, Fact, by_plain_document, reads
from soapjms.protocol.assertions.spots import (
    MESSAGE_TYPE,
    Reason,
    Spot,
    SpotKind,
    header,
    in_body,
    in_property,
    missing_property,
)
from soapjms.protocol.content import ContentType, parse_content_type, with_media_type
from soapjms.protocol.names import Mep, SoapVersion, Subcode
from soapjms.protocol.properties import BINDING_PROPERTIES, EXCLUDED, MUST_EXCLUDE, Carrier, Origin, row_of
from soapjms.protocol.record import Direction
from soapjms.protocol.text import lasting, named, shown
from soapjms.protocol.uri import Severity
from soapjms.protocol.values import LONGEST_LIFETIME_MILLISECONDS

PAYLOAD_TYPES = (MessageType.BYTES, MessageType.TEXT)
SOAP_11, SOAP_12 = SoapVersion.SOAP_11.media_type, SoapVersion.SOAP_12.media_type

# Properties and their names


def missing(case: Case, name: str, accepted: str, *, is_value: bool = False) -> str | None:
    """Say that a property is missing, and which stack's name was read in its place; None if it is present.

    Args:
        case: the message under judgement.
        name: the property.
        accepted: the value, or a description of the values, that would be right.
        is_value: True if it is the value.
    """
    if not case.message.misses(name):
        return None
    alias = case.message.alias_of(name)
    if alias is None:
        return Reason(f"{name} is missing or empty", missing_property(name, accepted, is_value=is_value))
    right = missing_property(name, case.message.text(name) or "")
    return Reason(f"{name} is missing or empty; {alias} was read in its place", right)


# Binding version


@reads(Fact.PROPERTIES)
def binding_version(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 bindingVersion; Protocol-2010."""
    seen = case.message.text(names.BINDING_VERSION)
    if seen == names.BINDING_VERSION_VALUE:
        return None
    right = names.BINDING_VERSION_VALUE
    if not seen:
        return missing(case, names.BINDING_VERSION, right, is_value=True)
    return Reason(
        f"{names.BINDING_VERSION} is {shown(seen)}, not {right}",
        in_property(case.message, names.BINDING_VERSION, right),
    )


@reads(Fact.PROPERTIES)
def version_is_refused(case: Case) -> bool:
    """Say whether to refuse: a wrong version always, a missing one only if strict, as some stacks never send it."""
    return case.setting.strict or case.message.text(names.BINDING_VERSION) is not None


# Message type


@reads(Fact.MESSAGE_TYPE, Fact.BODY_KIND, Fact.TRUNCATED)
def message_format(case: Case) -> str | None:
    """Say why the message type does not fit, or None.

    An empty message of unknown type is what STOMP makes of a Map, Stream, Object, plain or null-text message.

    Spec: SOAP/JMS 2.4; Protocol-2027, Protocol-2034, Protocol-2040.
    """
    message = case.message.message
    if message.message_type not in PAYLOAD_TYPES:
        return Reason(
            f"the message is of type {message.message_type}; accepted are BytesMessage and TextMessage",
            header(MESSAGE_TYPE, " or ".join(PAYLOAD_TYPES), is_value=False),
        )
    if message.body is None and not case.message.truncated:
        return Reason(f"the body of the {message.message_type} message is null", in_body("the SOAP envelope"))
    return None


# Content type


@reads(Fact.PROPERTIES)
def content_type_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 contentType; Protocol-2016. An empty value counts as missing."""
    return missing(
        case, names.CONTENT_TYPE, f"{SOAP_11} for SOAP 1.1, {SOAP_12} for SOAP 1.2, {names.MULTIPART} with attachments"
    )


@reads(Fact.PROPERTIES)
def content_type_is_unknown(case: Case) -> bool:
    """Say whether no known name has a content type, so that assertions that depend on it cannot be judged."""
    return case.message.content_type is None


@reads(Fact.PROPERTIES)
def content_type_is_refused(case: Case) -> bool:
    """Say whether to refuse: the name of another stack is refused only if strict."""
    return case.setting.strict or case.message.content_type is None


@reads(Fact.PROPERTIES)
def media_type_known(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.4."""
    kind = case.message.content_type
    assert kind is not None
    if kind.problem:
        form = in_property(case.message, names.CONTENT_TYPE, "type/subtype; name=value", is_value=False)
        return Reason(f"{names.CONTENT_TYPE}: {kind.problem}", form)
    if case.message.is_simple or kind.media_type == names.MULTIPART:
        return None
    known = ", ".join(sorted({*names.KNOWN_MEDIA_TYPES, *case.setting.profile.media_types.values()}))
    return Reason(
        f"the media type is {shown(kind.media_type)}; accepted are {known}",
        in_property(case.message, names.CONTENT_TYPE, known, is_value=False),
    )


@reads(Fact.PROPERTIES)
def is_simple(case: Case) -> bool:
    """Say whether the payload is an envelope without attachments."""
    return case.message.is_simple


@reads(Fact.PROPERTIES)
def is_multipart(case: Case) -> bool:
    """Say whether the payload has attachments."""
    return case.message.is_multipart


@by_plain_document
@reads(Fact.PROPERTIES, Fact.BODY)
def media_type_fits_envelope(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.4: text/xml for SOAP 1.1, application/soap+xml for SOAP 1.2."""
    kind, envelope = case.message.content_type, case.message.envelope
    assert kind is not None
    assert envelope is not None
    wanted = case.setting.profile.media_types[envelope.version]
    if kind.media_type in (envelope.version.media_type, wanted):
        return None
    right = with_media_type(case.message.text(names.CONTENT_TYPE) or "", wanted)
    return Reason(
        f"the media type is {kind.media_type}, the envelope is SOAP {envelope.version}",
        in_property(case.message, names.CONTENT_TYPE, right),
    )


# Content encoding


@reads(Fact.PROPERTIES)
def has_content_encoding(case: Case) -> bool:
    """Say whether the property is present and not identity."""
    return case.message.content_encoding is not None


@reads(Fact.PROPERTIES, Fact.BODY_KIND)
def content_encoding_supported(case: Case) -> str | None:
    """Spec: REC 2.2.3 contentEncoding (WG-65): IANA names, not for TextMessage, not for composite bodies."""
    seen = case.message.content_encoding
    known = case.setting.profile.content_encodings or frozenset()
    if seen not in known:
        supported = ", ".join(sorted(known))
        return Reason(
            f"{names.CONTENT_ENCODING} is {shown(seen)}; supported are {supported}",
            in_property(case.message, names.CONTENT_ENCODING, supported, is_value=False),
        )
    if isinstance(case.message.message.body, str):
        what = "a TextMessage"
    elif is_multipart(case):
        what = "a multipart body"
    else:
        return None
    identity = in_property(case.message, names.CONTENT_ENCODING, "identity")
    return Reason(f"{names.CONTENT_ENCODING} is {shown(seen)} on {what}", identity)


# isFault


@reads(Fact.PROPERTIES, Fact.BODY)
def is_fault_stated(case: Case) -> str | None:
    """Say why SOAPJMS_isFault and the body disagree, or None. Spec: SOAP/JMS 2.2.3 isFault."""
    stated, fault = case.message.is_fault, case.message.fault
    if stated is None:
        said = f"{names.IS_FAULT} is {shown(case.message.text(names.IS_FAULT))}, neither true nor false"
    elif fault is not None and not stated and case.setting.profile.spelled(names.IS_FAULT) is not None:
        said = f"the body is a fault, {names.IS_FAULT} does not say so"
    elif fault is None and stated:
        said = f"{names.IS_FAULT} is true, the body is no fault"
    else:
        return None
    return Reason(said, in_property(case.message, names.IS_FAULT, "false" if fault is None else "true"))


@reads(Fact.PROPERTIES)
def has_fault_flag(case: Case) -> bool:
    """Say whether SOAPJMS_isFault is present."""
    return case.message.message.properties.lookup(names.IS_FAULT) is not None


@reads(Fact.PROPERTIES)
def fault_flag_type(case: Case) -> str | None:
    """Spec: REC 2.2.3 isFault (WG-31): a boolean; getBooleanProperty of a number is an exception."""
    flag = case.message.message.properties.lookup(names.IS_FAULT)
    assert flag is not None
    if flag.type is PropertyType.BOOLEAN:
        return None
    return Reason(
        f"{names.IS_FAULT} is a JMS {flag.type}, not a boolean",
        Spot(SpotKind.PROPERTY_TYPE, names.IS_FAULT, PropertyType.BOOLEAN),
    )


# Properties that the sender is known to have set


@reads(Fact.PROPERTIES)
def states_target_service(case: Case) -> bool:
    """Say whether targetService is known to have been set, and the dialect has a property for it."""
    return case.setting.profile.spelled(names.TARGET_SERVICE) is not None and case.stated("targetService") is not None


@reads(Fact.PROPERTIES)
def states_soap_action(case: Case) -> bool:
    """Say whether soapAction is known to have been set; a URI parameter of that name does not count."""
    return case.setting.properties is not None and case.stated("soapAction") is not None


@reads(Fact.PROPERTIES)
def target_service(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 targetService; Protocol-2009."""
    return _shows(case, "targetService", names.TARGET_SERVICE, case.message.text(names.TARGET_SERVICE))


@reads(Fact.PROPERTIES)
def soap_action(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction; Protocol-2018."""
    wanted = str(case.stated("soapAction"))
    return missing(case, names.SOAP_ACTION, wanted, is_value=True) or _shows(
        case, "soapAction", names.SOAP_ACTION, case.message.soap_action
    )


def _shows(case: Case, name: str, property_name: str, seen: str | None) -> str | None:
    wanted = case.stated(name)
    if wanted == seen:
        return None
    has = f"has no {property_name}" if seen is None else f"shows {shown(seen)}"
    return Reason(
        f"{name} was set to {shown(wanted)}, the message {has}", in_property(case.message, property_name, wanted)
    )


CLOCK_TOLERANCE_MILLISECONDS: Final = 2000
"""Milliseconds by which JMSExpiration may differ from JMSTimestamp plus timeToLive, or a response's exceed the
request's, as providers add the time to live to the time at which they send."""

DELIVERY_MODES: Final = tuple(DeliveryMode)

# Headers


@reads(Fact.PROPERTIES, Fact.DELIVERY_MODE)
def delivery_mode(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 deliveryMode; Protocol-2005."""
    seen = case.message.message.delivery_mode
    if seen not in DELIVERY_MODES:
        return Reason(
            f"JMSDeliveryMode is {seen}; it must be 1 or 2", header("JMSDeliveryMode", "1 or 2", is_value=False)
        )
    wanted = _read(case, "deliveryMode")
    if wanted in (None, seen):
        return None
    return Reason(
        f"deliveryMode was set to {wanted}, JMSDeliveryMode is {seen}", _shown_as("deliveryMode", wanted, case)
    )


@reads(Fact.PROPERTIES, Fact.PRIORITY)
def priority(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 priority; Protocol-2007."""
    seen = case.message.message.priority
    assert seen is not None
    if not 0 <= seen <= 9:
        return Reason(f"JMSPriority is {seen}; it must be 0 to 9", header("JMSPriority", "0 to 9", is_value=False))
    wanted = _read(case, "priority")
    if wanted in (None, seen):
        return None
    return Reason(f"priority was set to {wanted}, JMSPriority is {seen}", _shown_as("priority", wanted, case))


@reads(Fact.PROPERTIES, Fact.LIFETIME)
def expiration(case: Case) -> str | None:
    """Say why JMSExpiration is not JMSTimestamp plus timeToLive (0 for 0). Spec: SOAP/JMS 2.2.2; Protocol-2006."""
    wanted, seen, sent = _read(case, "timeToLive"), case.message.message.expiration, case.message.message.timestamp
    assert isinstance(wanted, int)
    assert seen is not None
    assert sent is not None
    right = sent + min(wanted, LONGEST_LIFETIME_MILLISECONDS) if wanted else 0
    counted = min(seen, sent + LONGEST_LIFETIME_MILLISECONDS)
    if bool(seen) is bool(right) and abs(counted - right) <= (CLOCK_TOLERANCE_MILLISECONDS if wanted else 0):
        return None
    return Reason(
        f"timeToLive was set to {_lifetime_text(wanted)}, JMSExpiration is {_expiry_text(seen, sent)}",
        header("JMSExpiration", right),
    )


def _expiry_text(expiration: int, sent: int) -> str:
    """Say when a message expires, for people, from JMSTimestamp on."""
    if not expiration:
        return "0 (never)"
    after = expiration - sent
    return f"{lasting(abs(after))} {'before' if after < 0 else 'after'} JMSTimestamp"


def _lifetime_text(milliseconds: int) -> str:
    return lasting(milliseconds) if milliseconds else "0 (for ever)"


@reads(Fact.PROPERTIES)
def states_time_to_live(case: Case) -> bool:
    """Say whether timeToLive is known to have been set."""
    return _read(case, "timeToLive") is not None


def _read(case: Case, name: str) -> object | None:
    """Return a property that the sender is known to have set, in its type; None if its value is not valid."""
    return read_as_type(name, case.stated(name))


def read_as_type(name: str, value: object | None) -> object | None:
    """Return the value of a property in its type; None if it is not valid."""
    if not isinstance(value, str):
        return value
    try:
        return BINDING_PROPERTIES[name].type.read(value)
    except (ValueError, KeyError):
        return None


@reads(Fact.PROPERTIES, Fact.REPLY_TO)
def reply_queue(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 replyToName; Protocol-2008."""
    return _reply_shows(case, "replyToName", is_topic=False)


@reads(Fact.PROPERTIES, Fact.REPLY_TO)
def reply_topic(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 topicReplyToName; Protocol-2070."""
    return _reply_shows(case, "topicReplyToName", is_topic=True)


def _reply_shows(case: Case, name: str, *, is_topic: bool) -> str | None:
    wanted, reply = case.stated(name), case.message.message.reply_to
    if reply is not None and reply.name == wanted and reply.kind.is_topic is is_topic:
        return None
    right = header("JMSReplyTo", f"{'topic' if is_topic else 'queue'}:{wanted}")
    has = "the message has no JMSReplyTo" if reply is None else f"JMSReplyTo is {named(reply)}"
    return Reason(f"{name} was set to {shown(wanted)}, {has}", right)


@reads(Fact.PROPERTIES)
def states_reply_queue(case: Case) -> bool:
    """Say whether replyToName is known and names a queue directly (for jndi it is a name to be looked up)."""
    return case.stated("replyToName") is not None and _variant(case) != "jndi"


@reads(Fact.PROPERTIES)
def states_reply_topic(case: Case) -> bool:
    """Say whether topicReplyToName is known, and effective."""
    return (
        case.stated("topicReplyToName") is not None and case.stated("replyToName") is None and _variant(case) != "jndi"
    )


@reads(Fact.PROPERTIES)
def ignores_reply_topic(case: Case) -> bool:
    """Say whether topicReplyToName is known to have been set where it has no effect."""
    return ignored_reply_topic(case) is not None


@reads(Fact.PROPERTIES, Fact.REPLY_TO)
def reply_topic_ignored(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 topicReplyToName: ignored for the variant jndi, and if there is a replyToName."""
    ignored, reply = ignored_reply_topic(case), case.message.message.reply_to
    if reply is None or not reply.kind.is_topic or reply.name != ignored:
        return None
    return Reason(
        f"topicReplyToName {shown(ignored)} means nothing here, and JMSReplyTo is {named(reply)}",
        header("JMSReplyTo", "a destination that does not come from topicReplyToName", is_value=False),
    )


def ignored_reply_topic(case: Case) -> object | None:
    """Return the topicReplyToName that was set without effect; None if there was none, or it is effective."""
    known = case.setting.properties
    if known is not None:
        given = known.overridden.get("topicReplyToName", ())
        return given[0].value if given and "topicReplyToName" not in known else None
    counts = _variant(case) != "jndi" and case.stated("replyToName") is None
    return None if counts else case.stated("topicReplyToName")


def _variant(case: Case) -> object | None:
    """Return the lookup variant of the sender's URI if that is known, else of the requestURI."""
    known, uri = case.setting.properties, case.message.request_uri
    variant = None if known is None else known.value("lookupVariant")
    return uri.variant if variant is None and uri is not None else variant


@reads(Fact.ASKS)
def reply_to_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.6.1.2; Protocol-2050."""
    if case.message.message.reply_to is not None:
        return None
    right = header("JMSReplyTo", "the queue or topic, possibly temporary, for the response", is_value=False)
    return Reason("JMSReplyTo is not set on a request", right)


@reads(Fact.REPLY_TO)
def reply_to_absent(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.7.1; Protocol-2051."""
    reply = case.message.message.reply_to
    if reply is None:
        return None
    return Reason(f"JMSReplyTo is {named(reply)} on a one-way message", header("JMSReplyTo", "nothing", is_value=False))


def _pattern(case: Case) -> Mep | None:
    """Return the pattern if more than the presence of JMSReplyTo shows it: the setting, or the capture's direction."""
    return case.setting.mep or PATTERNS.get(case.message.record.direction)


PATTERNS: Final[Mapping[Direction | None, Mep]] = {
    Direction.REQUEST: Mep.REQUEST_RESPONSE,
    Direction.ONE_WAY: Mep.ONE_WAY,
}


@reads(Fact.DIRECTION)
def is_request(case: Case) -> bool:
    """Say whether the pattern is known to be request-response."""
    return _pattern(case) is Mep.REQUEST_RESPONSE


@reads(Fact.DIRECTION)
def is_one_way(case: Case) -> bool:
    """Say whether the pattern is known to be one-way."""
    return _pattern(case) is Mep.ONE_WAY


# requestURI

_MAX_NAMED: Final = 20


@reads(Fact.PROPERTIES)
def request_uri_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 requestURI; Protocol-2022."""
    return missing(case, names.REQUEST_URI, URI_FORM)


URI_FORM: Final = "jms:VARIANT:NAME with the variant jndi, queue or topic, such as jms:queue:orders"
"""What a requestURI has to look like, for people."""


@reads(Fact.PROPERTIES)
def request_uri_is_unknown(case: Case) -> bool:
    """Say whether no known name has a requestURI, so that assertions that depend on it cannot be judged."""
    return case.message.request_uri is None


@reads(Fact.PROPERTIES)
def request_uri_is_refused(case: Case) -> bool:
    """Say whether to refuse: the name of another stack is refused only if strict."""
    return case.setting.strict or case.message.request_uri is None


@reads(Fact.PROPERTIES)
def shows_request_uri(case: Case) -> bool:
    """Say whether there is a requestURI, or there should be, as the profile has the property."""
    return case.message.request_uri is not None or case.setting.profile.spelled(names.REQUEST_URI) is not None


@reads(Fact.PROPERTIES)
def owes_request_uri(case: Case) -> bool:
    """Say whether the message must have a requestURI: a response to a request without one has nothing to repeat."""
    if case.carrier is not Carrier.RESPONSE or case.request is None:
        return True
    return case.request.request_uri is not None


@reads(Fact.PROPERTIES)
def variant_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.1 lookupVariant; Protocol-2003."""
    uri = case.message.request_uri
    assert uri is not None
    return None if uri.variant else Reason(f"{shown(uri.redacted)} has no lookup variant", _uri_form(case))


@reads(Fact.PROPERTIES)
def destination_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.1 destinationName; Protocol-2004."""
    uri = case.message.request_uri
    assert uri is not None
    return None if uri.destination else Reason(f"{shown(uri.redacted)} has no destination name", _uri_form(case))


def _uri_form(case: Case, position: int | None = None) -> Spot:
    marked = (
        None if position is None else (position, min(position + 1, len(case.message.text(names.REQUEST_URI) or "")))
    )
    return in_property(case.message, names.REQUEST_URI, URI_FORM, is_value=False, span=marked)


@reads(Fact.PROPERTIES)
def well_formed(case: Case) -> str | None:
    """Say why the requestURI breaks the lenient grammar, or None. Spec: SOAP/JMS 2.2.4; RFC 6167 3; Protocol-2025."""
    uri = case.message.request_uri
    assert uri is not None
    broken = [finding for finding in uri.findings if finding.severity is Severity.SYNTAX]
    if not broken:
        return None
    text = f"{shown(uri.redacted)} at {broken[0].position}: {broken[0].text}"
    return Reason(text, _uri_form(case, broken[0].position))


@reads(Fact.PROPERTIES)
def variant_supported(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.1 lookupVariant; Protocol-2071."""
    uri = case.message.request_uri
    assert uri is not None
    if uri.variant in case.setting.variants:
        return None
    supported = ", ".join(sorted(case.setting.variants))
    begin = len("jms:")
    spot = in_property(
        case.message,
        names.REQUEST_URI,
        f"jms:VARIANT:NAME with a variant of {supported}",
        is_value=False,
        span=(begin, max(begin, uri.text.find(":", begin))),
    )
    return Reason(f"the lookup variant is {shown(uri.variant)}; supported are {supported}", spot)


@reads(Fact.PROPERTIES)
def has_target_service(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 requestURI; Protocol-2021."""
    return _left_in(case, frozenset({"targetService"}))


@reads(Fact.PROPERTIES)
def must_be_excluded(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.4; Protocol-2024."""
    return _left_in(case, MUST_EXCLUDE)


@reads(Fact.PROPERTIES)
def should_be_excluded(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 requestURI, 2.2.4."""
    return _left_in(case, EXCLUDED - MUST_EXCLUDE)


def _left_in(case: Case, excluded: frozenset[str]) -> str | None:
    uri = case.message.request_uri
    assert uri is not None
    left = [each.name for each in uri.parameters if (row := row_of(each.name)) is not None and row.name in excluded]
    if not left:
        return None
    counts = Counter(left)
    held = [named(name) + (f" ({count} times)" if count > 1 else "") for name, count in counts.items()]
    more = f" and {len(held) - _MAX_NAMED} more" if len(held) > _MAX_NAMED else ""
    return Reason(
        f"the requestURI still holds {', '.join(held[:_MAX_NAMED])}{more}",
        in_property(case.message, names.REQUEST_URI, uri.without(excluded)),
    )


@reads(Fact.PROPERTIES)
def leaves_target_service(case: Case) -> bool:
    """Say whether targetService is left in the requestURI, the breach that has a subcode."""
    uri = case.message.request_uri
    return uri is not None and any(each.name == "targetService" for each in uri.parameters)


def _lifetime(case: Case) -> object | None:
    message = case.message.message
    if not message.expiration:
        return message.expiration
    return message.expiration - message.timestamp if message.timestamp else None


def _reply_name(case: Case) -> object | None:
    """Return the name of the reply destination; None for the variant jndi, where replyToName is to be looked up."""
    reply = case.message.message.reply_to
    return None if reply is None or _variant(case) in (None, "jndi") else reply.name


SHOWN: Final[Mapping[str, Callable[[Case], object | None]]] = {
    "deliveryMode": lambda case: case.message.message.delivery_mode,
    "timeToLive": _lifetime,
    "priority": lambda case: case.message.message.priority,
    "replyToName": _reply_name,
    "targetService": lambda case: case.message.text(names.TARGET_SERVICE),
}
"""For each binding property that a message shows, the function that returns its value; None if the capture lacks it."""

SPOTS: Final[Mapping[str, str]] = {
    "deliveryMode": "JMSDeliveryMode",
    "timeToLive": "JMSExpiration",
    "priority": "JMSPriority",
    "replyToName": "JMSReplyTo",
    "targetService": names.TARGET_SERVICE,
}
"""The header or property that shows each of them."""


def _shown_as(name: str, wanted: object, case: Case) -> Spot:
    """Return the spot at which a message should show the value of a binding property."""
    if name == "targetService":
        return in_property(case.message, SPOTS[name], wanted)
    if name == "timeToLive":
        return header(SPOTS[name], f"{wanted} ms after JMSTimestamp" if wanted else "0", is_value=not wanted)
    if name == "replyToName":
        return header(SPOTS[name], f"the destination with the name {named(wanted)}", is_value=False)
    return header(SPOTS[name], int(wanted) if isinstance(wanted, int) else wanted)


def _value_text(name: str, value: object) -> str:
    """Return the value of a binding property for people."""
    return _lifetime_text(value) if name == "timeToLive" and isinstance(value, int) else shown(value)


SHOWN_FACTS: Final = (Fact.PROPERTIES, Fact.DELIVERY_MODE, Fact.PRIORITY, Fact.LIFETIME, Fact.REPLY_TO)
"""What those functions read."""

Rule = tuple[Callable[[Case], bool], Callable[[Case], str | None]]

MARKUP: Final = (Origin.PORT, Origin.SERVICE, Origin.BINDING)


def _agrees(name: str, wanted: object, seen: object) -> bool:
    if name == "timeToLive" and isinstance(wanted, int) and isinstance(seen, int) and wanted:
        longest = LONGEST_LIFETIME_MILLISECONDS
        return abs(min(wanted, longest) - min(seen, longest)) <= CLOCK_TOLERANCE_MILLISECONDS
    return wanted == seen


def _won(case: Case, winners: tuple[Origin, ...], losers: tuple[Origin, ...]) -> Iterator[tuple[str, object, object]]:
    """Yield name, value and observed value of each property whose value is from one of `winners`.

    Only properties that one of `losers` set too are yielded, unless `losers` is empty. An empty text counts as not set.
    """
    properties = case.setting.properties
    assert properties is not None
    for name, show in SHOWN.items():
        found, seen = properties.get(name), show(case)
        if found is None or found.value == "" or found.origin not in winners or seen is None:
            continue
        if not losers or any(each.origin in losers for each in properties.overridden.get(name, ())):
            yield name, found.value, seen


def _disagreement(
    found: Iterable[tuple[str, object, object]], case: Case, before: str = "", at: str = ""
) -> Reason | None:
    """Say which of the values that should count the message does not show; None if it shows all."""
    wrong = [each for each in found if not _agrees(*each)]
    if not wrong:
        return None
    said = (
        f"{name} is {_value_text(name, wanted)}{at}, the message shows {_value_text(name, seen)}"
        for name, wanted, seen in wrong
    )
    return Reason(before + "; ".join(said), *(_shown_as(name, wanted, case) for name, wanted, _ in wrong))


def _rule(winners: tuple[Origin, ...], losers: tuple[Origin, ...]) -> Rule:
    """Make the test and the check of a row: whether a source overrides another, and whether the message shows that."""
    over = f", over {' and '.join(losers)}" if losers else ""
    before = f"by {' or '.join(winners)}{over}: "

    @reads(*SHOWN_FACTS)
    def applies(case: Case) -> bool:
        return any(_won(case, winners, losers))

    @reads(*SHOWN_FACTS)
    def check(case: Case) -> str | None:
        return _disagreement(_won(case, winners, losers), case, before)

    return applies, check


ENVIRONMENT_FIRST: Final = _rule((Origin.ENVIRONMENT,), (Origin.URI, *MARKUP))
"""Spec: SOAP/JMS 2.2; Protocol-2001."""
MARKUP_REACHES: Final = _rule(MARKUP, ())
"""Spec: SOAP/JMS 3.4.4; WSDLUsage-3001."""
PORT_FIRST: Final = _rule((Origin.PORT, Origin.SERVICE), (Origin.SERVICE, Origin.BINDING))
"""Spec: SOAP/JMS 3.4.4; WSDLUsage-3002."""
URI_BEFORE_MARKUP: Final = _rule((Origin.URI,), MARKUP)
"""Spec: SOAP/JMS 3.4.5; WSDLUsage-3003."""


def _repeated(case: Case) -> Iterator[tuple[str, object, object]]:
    """Yield name, last value and observed value of each property that the requestURI has with several values.

    Properties whose value the sender is known to have taken from elsewhere are left out.
    """
    uri, properties = case.message.request_uri, case.setting.properties
    for name, show in SHOWN.items() if uri is not None else ():
        assert uri is not None
        values = [each.value for each in uri.parameters if each.name == name]
        known = None if properties is None else properties.get(name)
        if len(set(values)) < 2 or (known is not None and known.origin is not Origin.URI):
            continue
        last, seen = read_as_type(name, values[-1]), show(case)
        if last is not None and seen is not None:
            yield name, last, seen


@reads(*SHOWN_FACTS)
def repeats_a_parameter(case: Case) -> bool:
    """Say whether the requestURI still has a property more than once, with different values."""
    uri = case.message.request_uri
    return uri is not None and len(uri.parameters) > 1 and any(_repeated(case))


@reads(*SHOWN_FACTS)
def last_one_counts(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2; Protocol-2002."""
    return _disagreement(_repeated(case), case, at=" at last")


STATING = (SOAP_12, names.MULTIPART, names.XOP)
"""The media types that may state an action; all but the first have the envelope's media type in a parameter."""


def stated_actions(kind: ContentType | None) -> list[str]:
    """Return the actions that a content type states for SOAP 1.2; several if it contradicts itself.

    The content type of a multipart body or of MTOM has the action as its own parameter, or within `start-info` or
    `type`, beside the media type of the envelope. SOAP 1.1 does not have this parameter.
    """
    if kind is None or kind.media_type not in STATING:
        return []
    stating = [kind]
    if kind.media_type != SOAP_12:
        inner = [parse_content_type(kind.parameters.get(name, "")) for name in ("start-info", "type")]
        if any(each.media_type == SOAP_11 for each in inner):
            return []
        stating += [each for each in inner if each.media_type == SOAP_12]
    return list(dict.fromkeys(each.parameters["action"] for each in stating if "action" in each.parameters))


@reads(Fact.PROPERTIES)
def is_soap12_with_action(case: Case) -> bool:
    """Say whether a SOAP 1.2 content type has an action; an empty one does not count, as for the property."""
    return any(stated_actions(case.message.content_type))


@reads(Fact.PROPERTIES)
def has_both_actions(case: Case) -> bool:
    """Say whether both actions are present; under the CR a missing property is a mismatch too."""
    if case.message.soap_action is not None:
        return bool(stated_actions(case.message.content_type))
    return is_soap12_with_action(case) and Subcode.MISSING_SOAP_ACTION not in case.setting.profile.subcodes


@reads(Fact.PROPERTIES)
def actions_match(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction; Protocol-2019. Quotes around the property alone are read as a habit."""
    return _differing(case, case.message.content_type, "the action parameter")


def _differing(case: Case, kind: ContentType | None, what: str) -> str | None:
    seen = case.message.soap_action
    wrong = [action for action in stated_actions(kind) if action not in (seen, case.message.text(names.SOAP_ACTION))]
    if not wrong:
        return None
    right = wrong[0] if len(stated_actions(kind)) == 1 else ""
    spot = in_property(case.message, names.SOAP_ACTION, right or ONE_ACTION, is_value=bool(right))
    has = f"the message has no {names.SOAP_ACTION}" if seen is None else f"{names.SOAP_ACTION} is {shown(seen)}"
    return Reason(f"{what} is {shown(wrong[0])}, {has}", spot)


ONE_ACTION: Final = "the same action here and wherever the content type states one"


@reads(Fact.PROPERTIES)
def soap_action_present(case: Case) -> str | None:
    """Spec: REC 2.2.3 soapAction (WG-63)."""
    return missing(case, names.SOAP_ACTION, stated_actions(case.message.content_type)[0], is_value=True)


@reads(Fact.PROPERTIES)
def soap_action_is_refused(case: Case) -> bool:
    """Say whether to refuse: the name of another stack is refused only if strict."""
    return case.setting.strict or case.message.soap_action is None


@reads(Fact.PROPERTIES)
def is_multipart_with_action(case: Case) -> bool:
    """Say whether there are attachments and SOAPJMS_soapAction; only the body shows the action of the SOAP part."""
    return case.message.is_multipart and case.message.soap_action is not None


@reads(Fact.PROPERTIES, Fact.BODY)
def part_action_matches(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 soapAction, for the content type in which SOAP over HTTP has the action of MTOM too."""
    part = case.message.soap_part
    assert part is not None
    return _differing(case, part.content_type, "the action parameter of the SOAP part")
