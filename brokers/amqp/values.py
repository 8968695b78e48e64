"""What JMS and AMQP call the same things: ids, typed values, types of messages and kinds of destinations.

AMQP has four types for message and correlation ids, JMS has strings. An id of another type on the wire gets a prefix
for its type, and an id with that prefix is sent in its original type. So the JMSMessageID of a request is a
JMSCorrelationID that its sender recognises, whatever the type of its ids.

The typed values of JMS are properties, the entries of a map and the elements of a stream.

Spec: AMQP JMS Mapping 1.0, JMSMessageID and JMSCorrelationID, message properties; AMQP 1.0 part 1, primitive types.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import index
from typing import Any, Final, NamedTuple
from uuid import UUID

from proton import byte, char, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort

from brokers.amqp.primitives import WRONG
from brokers.errors import UsageError
from brokers.message import DestinationKind, MessageType, PropertyType, PropertyValue, as_float, fits

# Ids

JMS_PREFIX: Final = "ID:"
ENCODED: Final = "ID:AMQP_"
NO_PREFIX: Final = "ID:AMQP_NO_PREFIX:"
STRING: Final = "ID:AMQP_STRING:"

DECODERS: Final[Mapping[str, Callable[[str], object]]] = {
    "ID:AMQP_ULONG:": lambda text: _ulong(text),
    "ID:AMQP_UUID:": UUID,
    "ID:AMQP_BINARY:": bytes.fromhex,
}


def to_wire(text: str) -> object:
    """Return an id for the wire: in the type that its prefix names if it is the text of that value, otherwise as text.

    Two ids that differ, such as `ID:AMQP_ULONG:7` and `ID:AMQP_ULONG:07`, differ on the wire too.
    """
    if not text.startswith(ENCODED):
        return text
    for prefix in (NO_PREFIX, STRING):
        if text.startswith(prefix):
            return text.removeprefix(prefix)
    for prefix, decoder in DECODERS.items():
        if text.startswith(prefix):
            with suppress(ValueError):  # it only looks like an encoded id
                value = decoder(text.removeprefix(prefix))
                return value if correlation_id_of(value) == text else text
    return text


def message_id_of(value: object) -> str | None:
    """Return a message-id of the wire as JMSMessageID, which begins with `ID:`; None if it has another type."""
    if isinstance(value, str) and not value.startswith(JMS_PREFIX):
        return NO_PREFIX + value
    return correlation_id_of(value)


def correlation_id_of(value: object) -> str | None:
    """Return a correlation-id of the wire as JMSCorrelationID, text unchanged; None if it has another type."""
    if type(value) is str:
        return STRING + value if value.startswith(ENCODED) else value
    match value:
        case UUID():
            return f"ID:AMQP_UUID:{value}"
        case bytes() | memoryview():
            return f"ID:AMQP_BINARY:{bytes(value).hex().upper()}"
        case bool():
            return None
        case int():
            return f"ID:AMQP_ULONG:{int(value)}"
    return None


def _ulong(text: str) -> Any:
    if not (text.isascii() and text.isdigit() and int(text[:21]) < 1 << 64):
        raise ValueError(f"not an unsigned 64-bit number: {text!r}")
    return ulong(int(text))


# Typed values


class TypedValue(NamedTuple):
    """A value with its JMS type."""

    type: PropertyType
    value: PropertyValue


TO_AMQP: Final[Mapping[PropertyType, Callable[[Any], object]]] = {
    PropertyType.BOOLEAN: int.__bool__,
    PropertyType.BYTE: lambda value: byte(index(value)),
    PropertyType.SHORT: lambda value: short(index(value)),
    PropertyType.INT: lambda value: int32(index(value)),
    PropertyType.LONG: index,
    PropertyType.FLOAT: lambda value: float32(as_float(value, PropertyType.FLOAT)),
    PropertyType.DOUBLE: partial(as_float, kind=PropertyType.DOUBLE),
    PropertyType.STRING: str.__str__,
    PropertyType.BYTES: partial(b64decode, validate=True),
}
"""What makes the AMQP value of each JMS type; it raises an error for a value of another type, and changes none."""

UNCARRIED: Final = (*WRONG, AttributeError, OverflowError, TypeError)
"""Exceptions from encoding values that no message can have."""

FROM_AMQP: Final[Mapping[type, Callable[[Any], TypedValue]]] = {
    type(None): lambda value: TypedValue(PropertyType.STRING, None),
    bool: lambda value: TypedValue(PropertyType.BOOLEAN, value),
    byte: lambda value: TypedValue(PropertyType.BYTE, int(value)),
    ubyte: lambda value: TypedValue(PropertyType.SHORT, int(value)),
    short: lambda value: TypedValue(PropertyType.SHORT, int(value)),
    ushort: lambda value: TypedValue(PropertyType.INT, int(value)),
    int32: lambda value: TypedValue(PropertyType.INT, int(value)),
    uint: lambda value: TypedValue(PropertyType.LONG, int(value)),
    int: lambda value: TypedValue(PropertyType.LONG, value),
    ulong: lambda value: _long_or_text(int(value)),
    timestamp: lambda value: TypedValue(PropertyType.LONG, int(value)),
    float32: lambda value: TypedValue(PropertyType.FLOAT, float(value)),
    float: lambda value: TypedValue(PropertyType.DOUBLE, value),
    str: lambda value: TypedValue(PropertyType.STRING, value),
    symbol: lambda value: TypedValue(PropertyType.STRING, str(value)),
    char: lambda value: TypedValue(PropertyType.STRING, str(value)),
    UUID: lambda value: TypedValue(PropertyType.STRING, str(value)),
    bytes: lambda value: TypedValue(PropertyType.BYTES, b64encode(value).decode("ascii")),
    memoryview: lambda value: TypedValue(PropertyType.BYTES, b64encode(value).decode("ascii")),
}
"""The JMS types of AMQP's types: unsigned numbers get the next larger type, all kinds of text are strings."""


def to_amqp(kind: PropertyType, value: PropertyValue) -> object:
    """Return a value that proton encodes in the AMQP type for a JMS type.

    Raises:
        UsageError: there is no such type, it has no such value, or octets are not valid base64.
    """
    try:
        if value is None:
            return None
        if (type(value) is bool) is not (kind == PropertyType.BOOLEAN):
            raise TypeError("it is of another type")
        return TO_AMQP[kind](value)
    except UNCARRIED as error:
        raise UsageError(f"AMQP cannot carry {value!r:.100} as a JMS {kind}: {error}") from error


def from_amqp(value: object) -> TypedValue | None:
    """Return an AMQP value with its JMS type; None if JMS has no such type: decimals, lists, maps, described values."""
    read = FROM_AMQP.get(type(value))
    return None if read is None else read(value)


def _long_or_text(value: int) -> TypedValue:
    return (
        TypedValue(PropertyType.LONG, value)
        if fits(value, PropertyType.LONG)
        else TypedValue(PropertyType.STRING, str(value))
    )


# Messages

TYPE_ANNOTATION: Final = "x-opt-jms-msg-type"
DESTINATION_ANNOTATION: Final = "x-opt-jms-dest"
REPLY_TO_ANNOTATION: Final = "x-opt-jms-reply-to"

MESSAGE_TYPES: Final = (
    MessageType.MESSAGE,
    MessageType.OBJECT,
    MessageType.MAP,
    MessageType.BYTES,
    MessageType.STREAM,
    MessageType.TEXT,
)
"""Message types by their number in the annotation."""

KINDS: Final = (
    DestinationKind.QUEUE,
    DestinationKind.TOPIC,
    DestinationKind.TEMPORARY_QUEUE,
    DestinationKind.TEMPORARY_TOPIC,
)
"""Kinds of destination by their number in the annotations."""

JAVA_OBJECT: Final = "application/x-java-serialized-object"
GROUP, GROUP_SEQUENCE, USER = "JMSXGroupID", "JMSXGroupSeq", "JMSXUserID"
IN_SECTIONS: Final = frozenset({GROUP, GROUP_SEQUENCE, USER, "JMSXDeliveryCount"})
"""JMS properties with a separate field in AMQP; the last is set by the broker and never sent."""

UINT: Final = 0xFFFF_FFFF
PRIORITIES: Final = range(10)
