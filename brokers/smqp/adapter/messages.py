"""Converts JMS messages to SMQP messages and back, and destinations to topics. Pure functions.

A queue `orders` is the topic `/queue/orders`, a topic `news` is `/topic/news`; a name that begins with a slash is
itself a topic of SMQP. Headers that only JMS has become attributes `X-JMS-…`, and each property becomes an attribute
`X-JMS-Property-NAME: TYPE VALUE`, so that a subscriber without JMS gets just the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

from brokers.adapter.wait import expiration_here
from brokers.errors import UsageError
from brokers.message import (
    DEFAULT_PRIORITY,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    PropertyValue,
    as_text,
    field_problem,
)
from brokers.smqp.client.inbox import Received
from brokers.smqp.protocol.dialect import SmqpDialect
from brokers.smqp.protocol.ids import NUMBER, format_date, format_timeout, parse_date
from brokers.smqp.protocol.messages import DELIVERY_COUNT, Attribute, Attributes, SmqpMessage, SmqpSection
from brokers.smqp.protocol.replies import RefusedError
from brokers.smqp.protocol.topics import segment_for

PREFIXES: Final[Mapping[DestinationKind, str]] = {
    DestinationKind.QUEUE: "/queue/",
    DestinationKind.TOPIC: "/topic/",
    DestinationKind.TEMPORARY_QUEUE: "/temporary/queue/",
    DestinationKind.TEMPORARY_TOPIC: "/temporary/topic/",
}
TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"
PROPERTY: Final = "X-JMS-Property-"
CORRELATION: Final = "X-JMS-Correlation-ID"
REPLY_TO: Final = "X-JMS-Reply-To"
TYPE: Final = "X-JMS-Type"
MESSAGE_TYPE: Final = "X-JMS-Message-Type"
DELIVERY_MODE: Final = "X-JMS-Delivery-Mode"
EXPIRATION: Final = "X-JMS-Expiration"
USER: Final = "JMSXUserID"
LOWEST_PRIORITY: Final = 10
"""SMQP's priority for JMS's 0; JMS sends higher numbers first, SMQP lower ones."""

NOT_AS_IS: Final = re.compile(r"[\x00-\x1f\x7f%]|^ | $")
NOT_IN_NAMES: Final = re.compile(r"[\s\x00-\x1f\x7f%:]")


def topic_of(destination: Destination) -> str:
    """Return the topic of a destination.

    Raises:
        UsageError: the destination has no name.
    """
    if not destination.name:
        raise UsageError(f"a destination of SMQP must have a name, got {destination}")
    if destination.name.startswith("/"):
        return destination.name
    return PREFIXES[destination.kind] + segment_for(destination.name)


def is_raw(destination: Destination) -> bool:
    """Say whether a destination's name is itself a topic of SMQP, which is not created by sending to it."""
    return (destination.name or "").startswith("/")


def to_content(message: Message, now: float, dialect: SmqpDialect) -> SmqpMessage:
    """Convert a JMS message to an SMQP message.

    Args:
        message: the message; it must have a destination.
        now: the current time, in seconds since 1970.
        dialect: the dialect of the server.

    Raises:
        UsageError: SMQP cannot carry the message type or a value, or a field has a value of a wrong type.
    """
    problem = field_problem(message)
    if problem is not None:
        raise UsageError(f"SMQP cannot carry this message: {problem}")
    try:
        return SmqpMessage(Attributes(_attributes(message, now, dialect)), (_section(message),))
    except UnicodeEncodeError as error:
        raise UsageError(f"SMQP cannot carry a text of this message: {error}") from error


def _section(message: Message) -> SmqpSection:
    body = message.body
    if message.message_type is MessageType.TEXT and isinstance(body, str | None):
        return SmqpSection(TEXT, (body or "").encode())
    if message.message_type is MessageType.BYTES and isinstance(body, bytes | memoryview | None):
        return SmqpSection(BYTES, bytes(body or b""))
    kind = type(body).__name__
    raise UsageError(
        f"SMQP cannot carry a {message.message_type} message with a body of type {kind}, only str text or bytes"
    )


def _attributes(message: Message, now: float, dialect: SmqpDialect) -> Iterator[Attribute]:
    assert message.destination is not None
    priority = DEFAULT_PRIORITY if message.priority is None else message.priority
    yield Attribute("Created", format_date(datetime.fromtimestamp(now, UTC), dialect))
    yield Attribute("Priority", str(LOWEST_PRIORITY - priority))
    yield Attribute("Timeout", format_timeout(_timeout(message, now)))
    yield Attribute(MESSAGE_TYPE, str(message.message_type))
    if message.body is None:
        yield Attribute("X-JMS-Null", "YES")
    mode = DeliveryMode.PERSISTENT if message.delivery_mode is None else message.delivery_mode
    yield Attribute(DELIVERY_MODE, str(int(mode)))
    if message.expiration:
        yield Attribute(EXPIRATION, str(message.expiration))
    if message.reply_to is not None:
        yield Attribute(REPLY_TO, _escaped(str(message.reply_to)))
    for name, value in ((CORRELATION, message.correlation_id), (TYPE, message.type)):
        if value is not None:
            yield Attribute(name, _escaped(value))
    for name, kind, given in message.properties:
        text = as_text(given)
        escaped = "null" if text is None else f"{kind} {_escaped(text)}"
        yield Attribute(PROPERTY + NOT_IN_NAMES.sub(_percent, name), escaped)


def _timeout(message: Message, now: float) -> float | None:
    """Return the timeout: messages of a queue stay until they are taken or expire; those of a topic are not kept."""
    assert message.destination is not None
    if message.destination.kind.is_topic and not is_raw(message.destination):
        return 0.0
    return max(0.01, message.expiration / 1000 - now) if message.expiration else None


def to_message(received: Received, destination: Destination, dialect: SmqpDialect, now: int) -> Message:
    """Convert an SMQP message to a JMS message; attributes that cannot be understood are ignored.

    Args:
        received: the message.
        destination: where it was received.
        dialect: dialect of the server.
        now: milliseconds since 1970.
    """
    attributes = received.attributes
    body, kind = _body(received)
    return Message(
        message_type=kind,
        body=body,
        properties=Properties(each for each in _properties(attributes) if not _is_forged(each, received.cmuid)),
        destination=destination,
        message_id=f"ID:{received.smuid}",
        correlation_id=_optional(attributes, CORRELATION),
        reply_to=_destination(attributes),
        delivery_mode=_number(attributes, DELIVERY_MODE),
        priority=_priority(attributes),
        expiration=_expiration(attributes, dialect, now),
        timestamp=_timestamp(attributes, dialect),
        type=_optional(attributes, TYPE),
        redelivered=delivery_count(attributes) > 1,
    )


def _body(received: Received) -> tuple[bytes | str | None, MessageType]:
    section = received.sections[0] if received.sections else None
    kind = received.attributes.value(MESSAGE_TYPE)
    is_text = kind == MessageType.TEXT if kind else bool(section and section.content_type.lower().startswith("text/"))
    if received.attributes.flag("X-JMS-Null") or section is None:
        return None, MessageType.TEXT if is_text else MessageType.BYTES
    if is_text:
        try:
            return section.data.decode(), MessageType.TEXT
        except UnicodeDecodeError:
            pass
    return section.data, MessageType.BYTES


def _properties(attributes: Attributes) -> Iterator[Property]:
    for name, value in attributes:
        if not name.lower().startswith(PROPERTY.lower()):
            continue
        kind, _, text = value.partition(" ")
        name = unquote(name[len(PROPERTY) :])
        if value == "null":
            yield Property(name, PropertyType.STRING, None)
            continue
        try:
            yield Property(name, PropertyType(kind), READ[PropertyType(kind)](unquote(text)))
        except (ValueError, KeyError):
            yield Property(name, PropertyType.STRING, unquote(value))


def _is_forged(each: Property, cmuid: str) -> bool:
    """Say whether a property names another user than the Cmuid, which the server writes."""
    return each.name == USER and each.value != cmuid.partition("/")[0]


READ: Final[Mapping[PropertyType, Callable[[str], PropertyValue]]] = {
    PropertyType.BOOLEAN: lambda text: text == "true",
    PropertyType.BYTE: int,
    PropertyType.SHORT: int,
    PropertyType.INT: int,
    PropertyType.LONG: int,
    PropertyType.FLOAT: float,
    PropertyType.DOUBLE: float,
    PropertyType.STRING: str,
}


def _destination(attributes: Attributes) -> Destination | None:
    kind, colon, name = (_optional(attributes, REPLY_TO) or "").partition(":")
    try:
        return Destination(DestinationKind(kind), name) if colon and name else None
    except ValueError:
        return None


def delivery_count(attributes: Attributes) -> int:
    """Return how often a message was delivered, this time included."""
    return _number(attributes, DELIVERY_COUNT) or 1


def _number(attributes: Attributes, name: str) -> int | None:
    text = attributes.text(name)
    return int(text) if NUMBER.fullmatch(text) else None


def _priority(attributes: Attributes) -> int:
    found = _number(attributes, "Priority")
    return DEFAULT_PRIORITY if found is None else min(9, max(0, LOWEST_PRIORITY - found))


def _expiration(attributes: Attributes, dialect: SmqpDialect, now: int) -> int:
    """Return when a message expires by this machine's clock, or 0 for never."""
    stated, created = _number(attributes, EXPIRATION), _timestamp(attributes, dialect)
    if not stated or created is None or stated <= created:
        return stated or 0
    return expiration_here(stated, stated - created, now, is_left=False)


def _timestamp(attributes: Attributes, dialect: SmqpDialect) -> int | None:
    try:
        return round(parse_date(attributes.text("Created"), dialect).timestamp() * 1000)
    except RefusedError:
        return None


def _optional(attributes: Attributes, name: str) -> str | None:
    found = attributes.value(name)
    return None if found is None else unquote(found)


def _escaped(text: str) -> str:
    return NOT_AS_IS.sub(_percent, text)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in found[0].encode())
