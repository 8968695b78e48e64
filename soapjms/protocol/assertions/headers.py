"""Checks of the JMS headers of a request or one-way message, and of its requestURI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.message import DeliveryMode
from soapjms.protocol import names
from soapjms.protocol.assertions.messages import missing
from soapjms.protocol.assertions.model import Case
from soapjms.protocol.names import Mep
from soapjms.protocol.properties import BINDING_PROPERTIES, EXCLUDED, MUST_EXCLUDE, Carrier, row_of
from soapjms.protocol.record import Direction
from soapjms.protocol.showing import named, shown
from soapjms.protocol.uri import Severity

CLOCK_TOLERANCE: Final = 2000
"""Milliseconds by which JMSExpiration may differ from JMSTimestamp plus timeToLive: provider clocks vary."""

DELIVERY_MODES: Final = tuple(DeliveryMode)

# Headers


def delivery_mode(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 deliveryMode; Protocol-2005."""
    seen = case.message.message.delivery_mode
    if seen not in DELIVERY_MODES:
        return f"JMSDeliveryMode is {seen}; it is 1 or 2"
    wanted = _read(case, "deliveryMode")
    return None if wanted in (None, seen) else f"deliveryMode was set to {wanted}, JMSDeliveryMode is {seen}"


def priority(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 priority; Protocol-2007."""
    seen = case.message.message.priority
    if seen is None or not 0 <= seen <= 9:
        return f"JMSPriority is {seen}; it is 0 to 9"
    wanted = _read(case, "priority")
    return None if wanted in (None, seen) else f"priority was set to {wanted}, JMSPriority is {seen}"


def expiration(case: Case) -> str | None:
    """JMSExpiration is JMSTimestamp plus timeToLive, 0 for a timeToLive of 0. Spec: SOAP/JMS 2.2.2; Protocol-2006."""
    wanted, seen, sent = _read(case, "timeToLive"), case.message.message.expiration, case.message.message.timestamp
    assert isinstance(wanted, int)
    assert seen is not None
    assert sent is not None
    right = sent + wanted if wanted else 0
    if abs(seen - right) <= (CLOCK_TOLERANCE if wanted else 0):
        return None
    return f"timeToLive was set to {wanted}, JMSExpiration is {seen} where {right} follows"


def states_time_to_live(case: Case) -> bool:
    """A timeToLive is known to have been set."""
    return _read(case, "timeToLive") is not None


def _read(case: Case, name: str) -> object | None:
    """Return a property that the sender is known to have set, as its type; None if its value is no such thing."""
    return read_as_type(name, case.stated(name))


def read_as_type(name: str, value: object | None) -> object | None:
    """Return the value of a property as its type; None if it is no such thing."""
    if not isinstance(value, str):
        return value
    try:
        return BINDING_PROPERTIES[name].type.read(value)
    except (ValueError, KeyError):
        return None


def reply_queue(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 replyToName; Protocol-2008."""
    return _reply_shows(case, "replyToName", is_topic=False)


def reply_topic(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 topicReplyToName; Protocol-2070."""
    return _reply_shows(case, "topicReplyToName", is_topic=True)


def _reply_shows(case: Case, name: str, *, is_topic: bool) -> str | None:
    wanted, reply = case.stated(name), case.message.message.reply_to
    if reply is not None and reply.name == wanted and reply.kind.is_topic is is_topic:
        return None
    return f"{name} was set to {shown(wanted)}, JMSReplyTo is {named(reply)}"


def states_reply_queue(case: Case) -> bool:
    """A replyToName is known, and it is the name of a queue itself (for jndi it is a name to be looked up)."""
    return case.stated("replyToName") is not None and _variant(case) != "jndi"


def states_reply_topic(case: Case) -> bool:
    """A topicReplyToName is known, and relevant."""
    return (
        case.stated("topicReplyToName") is not None and case.stated("replyToName") is None and _variant(case) != "jndi"
    )


def ignores_reply_topic(case: Case) -> bool:
    """A topicReplyToName is known to have been given where it means nothing."""
    return ignored_reply_topic(case) is not None


def reply_topic_ignored(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.2 topicReplyToName: ignored for the variant jndi, and where there is a replyToName."""
    ignored, reply = ignored_reply_topic(case), case.message.message.reply_to
    if reply is None or not reply.kind.is_topic or reply.name != ignored:
        return None
    return f"topicReplyToName {shown(ignored)} means nothing here, and JMSReplyTo is {named(reply)}"


def ignored_reply_topic(case: Case) -> object | None:
    """Return the topicReplyToName that was given and does not count, None if there was none or it counts."""
    known = case.setting.properties
    if known is not None:
        given = known.overridden.get("topicReplyToName", ())
        return given[0].value if given and "topicReplyToName" not in known else None
    counts = _variant(case) != "jndi" and case.stated("replyToName") is None
    return None if counts else case.stated("topicReplyToName")


def _variant(case: Case) -> str | None:
    return None if case.message.request_uri is None else case.message.request_uri.variant


def reply_to_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.6.1.2; Protocol-2050."""
    return None if case.message.message.reply_to is not None else "JMSReplyTo is not set on a request"


def reply_to_absent(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.7.1; Protocol-2051."""
    reply = case.message.message.reply_to
    return None if reply is None else f"JMSReplyTo is {named(reply)} on a one-way message"


def _pattern(case: Case) -> Mep | None:
    """The pattern, where more than the presence of JMSReplyTo tells it: the setting, else who captured the message."""
    return case.setting.mep or PATTERNS.get(case.message.record.direction)


PATTERNS: Final[Mapping[Direction | None, Mep]] = {
    Direction.REQUEST: Mep.REQUEST_RESPONSE,
    Direction.ONE_WAY: Mep.ONE_WAY,
}


def is_request(case: Case) -> bool:
    """The pattern is known, and it is request-response."""
    return _pattern(case) is Mep.REQUEST_RESPONSE


def is_one_way(case: Case) -> bool:
    """The pattern is known, and it is one-way."""
    return _pattern(case) is Mep.ONE_WAY


# requestURI

_MOST_NAMED: Final = 20


def request_uri_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 requestURI; Protocol-2022."""
    return missing(case, names.REQUEST_URI)


def request_uri_is_unknown(case: Case) -> bool:
    """There is none under any name, so nothing that rests on it can be judged."""
    return case.message.request_uri is None


def request_uri_is_refused(case: Case) -> bool:
    """A name of another stack is refused only by a strict reader."""
    return case.setting.strict or case.message.request_uri is None


def shows_request_uri(case: Case) -> bool:
    """There is one, or the profile has the property, so that there ought to be."""
    return case.message.request_uri is not None or case.setting.profile.spelled(names.REQUEST_URI) is not None


def owes_request_uri(case: Case) -> bool:
    """A response to a request without one has nothing to copy."""
    if case.carrier is not Carrier.RESPONSE or case.request is None:
        return True
    return case.request.request_uri is not None


def variant_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.1 lookupVariant; Protocol-2003."""
    uri = case.message.request_uri
    assert uri is not None
    return None if uri.variant else f"{shown(uri.redacted)} has no lookup variant"


def destination_present(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.1 destinationName; Protocol-2004."""
    uri = case.message.request_uri
    assert uri is not None
    return None if uri.destination else f"{shown(uri.redacted)} has no destination name"


def well_formed(case: Case) -> str | None:
    """The requestURI fits the grammar, read leniently. Spec: SOAP/JMS 2.2.4; RFC 6167 3; Protocol-2025."""
    uri = case.message.request_uri
    assert uri is not None
    broken = [finding for finding in uri.findings if finding.severity is Severity.SYNTAX]
    return f"{shown(uri.redacted)} at {broken[0].position}: {broken[0].text}" if broken else None


def variant_supported(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.1 lookupVariant; Protocol-2071."""
    uri = case.message.request_uri
    assert uri is not None
    if uri.variant in case.setting.variants:
        return None
    return f"the lookup variant is {shown(uri.variant)}; supported are {', '.join(sorted(case.setting.variants))}"


def has_target_service(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 requestURI; Protocol-2021."""
    return _left_in(case, frozenset({"targetService"}))


def must_be_excluded(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.4; Protocol-2024."""
    return _left_in(case, MUST_EXCLUDE)


def should_be_excluded(case: Case) -> str | None:
    """Spec: SOAP/JMS 2.2.3 requestURI, 2.2.4."""
    return _left_in(case, EXCLUDED - MUST_EXCLUDE)


def _left_in(case: Case, excluded: frozenset[str]) -> str | None:
    uri = case.message.request_uri
    assert uri is not None
    left = [each.name for each in uri.parameters if (row := row_of(each.name)) is not None and row.name in excluded]
    more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
    return f"the requestURI still holds {', '.join(map(named, left[:_MOST_NAMED]))}{more}" if left else None


def leaves_target_service(case: Case) -> bool:
    """The breach of the table is the one that has a subcode."""
    uri = case.message.request_uri
    return uri is not None and any(each.name == "targetService" for each in uri.parameters)
