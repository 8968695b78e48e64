"""JMS messages to AMQP messages and back: pure functions, tested without a broker.

JMS headers are in AMQP's header and properties sections, properties in the application properties with their types,
and data that AMQP lacks (message type, kinds of destinations) in message annotations. The typed values of JMS are
properties, the entries of a map and the elements of a stream.

AMQP has four types for message and correlation ids, JMS has strings. An id of another type on the wire gets a prefix
for its type, and an id with that prefix is sent in its original type. So the JMSMessageID of a request is a
JMSCorrelationID that its sender recognises, whatever the type of its ids.

Spec: AMQP JMS Mapping 1.0, JMSMessageID and JMSCorrelationID; AMQP JMS Mapping 1.0, message properties; AMQP 1.0
part 1, primitive types; AMQP JMS Mapping 1.0; AMQP 1.0 part 3, section 3.2.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from operator import index, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID

from proton import byte, char, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort

from brokers.adapter.wait import epoch_milliseconds, expiration_here
from brokers.amqp.dialect import PLAIN, AmqpDialect, node_kind, read_address, spell
from brokers.amqp.primitives import (
    LIST,
    MAP,
    SHORT_TEXT,
    TIME_CODE,
    WRITERS,
    WRONG,
    write_compound,
    write_text,
    write_time,
)
from brokers.amqp.sections import (
    BEGINNINGS,
    BODIES,
    SMALL_MESSAGE_OCTETS,
    AmqpSection,
    MalformedError,
    SectionValue,
    decode,
    encode,
    encode_data,
    sole_data,
)
from brokers.amqp.shapes import Leaf, SectionShape, SectionShapes
from brokers.errors import UsageError
from brokers.message import (
    DEFAULT_PRIORITY,
    FIELDS,
    FLOAT_FORMATS,
    Body,
    DeliveryMode,
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageDraft,
    MessageType,
    Properties,
    Property,
    PropertyType,
    PropertyValue,
    as_float,
    changed,
    field_problem,
    fits,
    new_property,
)

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

SHOWN_PREFIX: Final = "JMS_AMQP_MA_"
"""Prefix of the name of a message annotation that becomes a property."""

KINDS: Final = (
    DestinationKind.QUEUE,
    DestinationKind.TOPIC,
    DestinationKind.TEMPORARY_QUEUE,
    DestinationKind.TEMPORARY_TOPIC,
)
"""Kinds of destination by their number in the annotations."""

OCTETS: Final = "application/octet-stream"
JAVA_OBJECT: Final = "application/x-java-serialized-object"
CONTENT_TYPES: Final = {MessageType.BYTES: symbol(OCTETS), MessageType.OBJECT: symbol(JAVA_OBJECT)}

BYTES_AND_NO_ENCODING: Final = WRITERS[symbol](CONTENT_TYPES[MessageType.BYTES]) + b"\x40"
"""The fields `content-type` and `content-encoding` of a message of bytes."""

GROUP, GROUP_SEQUENCE, USER = "JMSXGroupID", "JMSXGroupSeq", "JMSXUserID"
IN_SECTIONS: Final = frozenset({GROUP, GROUP_SEQUENCE, USER, "JMSXDeliveryCount"})
"""JMS properties with a separate field in AMQP; the last is set by the broker and never sent."""

MAX_REPEATED_NAMES_CHARACTERS: Final = 4096
"""Maximum number of characters of the names of properties that are kept."""

MAX_REPEATED_OCTETS: Final = 512
"""Maximum size of a part of a message that is kept for further messages, in octets."""

UINT: Final = 0xFFFF_FFFF
UINTS: Final = 0, UINT
LONGS: Final = -(1 << 63), (1 << 63) - 1
PRIORITIES: Final = range(10)

SHAPES: Final[Mapping[AmqpSection, type[list[Any]] | type[dict[Any, Any]]]] = {
    AmqpSection.HEADER: list,
    AmqpSection.MESSAGE_ANNOTATIONS: dict,
    AmqpSection.PROPERTIES: list,
    AmqpSection.APPLICATION_PROPERTIES: dict,
}
"""The types of the sections before the body that are read."""

_name_of: Final = itemgetter(0)

Pieces: TypeAlias = list[bytes | memoryview]


class ReceivedMessage(NamedTuple):
    """A message that arrived, and the number of its deliveries including this one."""

    message: Message
    delivery_count: int


# To AMQP


def to_amqp_message(message: Message, dialect: AmqpDialect = PLAIN, *, with_header: bool = True) -> bytes:
    """Return the octets of the AMQP message that carries `message`.

    Message id and timestamp are sent unchanged. The expiration is sent as the time to live, from the timestamp on, as
    the receiver's clock may differ; as a time only if there is no header or no timestamp, if it has passed, or if it is
    further away than a time to live can say. `redelivered` has no meaning in a sent message.

    Raises:
        UsageError: the message has no destination (or one without name and address), an unknown type, a body that does
            not fit its type, a property that does not fit its own, or text that UTF-8 cannot encode.
    """
    stamp = message.message_id, message.timestamp
    return _plain_message(message, *stamp, dialect, with_header=with_header) or _any_message(
        message, dialect, with_header=with_header
    )


def to_stamped_message(message: Message, message_id: str | None, timestamp: int, dialect: AmqpDialect) -> bytes:
    """Return the octets of the AMQP message that carries `message` with another id and timestamp.

    Raises:
        UsageError: as for `to_amqp_message`.
    """
    return _plain_message(message, message_id, timestamp, dialect, with_header=True) or _any_message(
        changed(message, message_id=message_id, timestamp=timestamp), dialect, with_header=True
    )


def _plain_message(
    message: Message, message_id: str | None, timestamp: int | None, dialect: AmqpDialect, *, with_header: bool
) -> bytes | None:
    """Return the octets of a message of bytes with plain ids and properties; None for any other, even an invalid one.

    Its sections are put together from parts that many messages share.

    Args:
        message: the message.
        message_id, timestamp: used instead of those of the message.
        dialect: dialect of the broker.
        with_header: whether the octets begin with a header.
    """
    body, destination = message.body, message.destination
    if message.message_type is not MessageType.BYTES or type(body) is not bytes or destination is None:
        return None
    try:
        header = _header(message, timestamp) if with_header else b""
        annotations, addresses = _encoded_addresses(destination, message.reply_to, message.type, dialect)
        return b"".join(
            (
                header,
                annotations,
                _plain_properties(
                    message_id,
                    addresses,
                    message.correlation_id,
                    _absolute_expiry(message, timestamp, with_header=with_header),
                    timestamp,
                ),
                _plain_application(message.properties),
                *encode_data(body),
            )
        )
    except UNCARRIED:
        return None


@lru_cache(maxsize=256)
def _encoded_addresses(
    destination: Destination, reply_to: Destination | None, subject: str | None, dialect: AmqpDialect
) -> tuple[bytes, bytes]:
    """Return the annotations of a message of bytes, and the fields of its properties from `user-id` to `reply-to`.

    Raises:
        ValueError: a destination has neither name nor address, or it is long, as are few.
    """
    if subject is not None and type(subject) is not str:
        raise ValueError("the type of a message is text")
    fields = [None, spell(destination, dialect), subject, None if reply_to is None else spell(reply_to, dialect)]
    octets = b"".join([WRITERS[type(each)](each) for each in fields])
    if len(octets) > MAX_REPEATED_OCTETS:
        raise ValueError("these addresses are not kept")
    return _annotations(MessageType.BYTES, destination, reply_to, dialect), octets


def _plain_properties(
    message_id: str | None, addresses: bytes, correlation_id: str | None, expiration: int | None, timestamp: int | None
) -> bytes:
    """Return the properties section of a message that needs no conversion of ids and has no JMSXUserID or the like.

    Raises:
        WRONG: an id is not plain text.
    """
    if (message_id or "").startswith(ENCODED) or (correlation_id or "").startswith(ENCODED):
        raise ValueError("ids of other types are not handled here")
    octets = b"".join(
        (
            b"\x40" if message_id is None else write_text(message_id),
            addresses,
            b"\x40" if correlation_id is None else write_text(correlation_id),
            BYTES_AND_NO_ENCODING,
            write_time(expiration) if expiration else b"\x40",
            b"\x40" if timestamp is None else write_time(timestamp),
        )
    )
    return BEGINNINGS[AmqpSection.PROPERTIES] + write_compound(LIST, octets, 10)


def _plain_application(properties: Properties) -> bytes:
    """Return the section of properties, each of which is encoded once if it comes often.

    Raises:
        WRONG: a name comes twice, or a property belongs into another section or is not kept.
    """
    if not properties:
        return b""
    if not _are_keys(tuple(map(_name_of, properties))):
        raise ValueError("these properties are not handled here")
    return BEGINNINGS[AmqpSection.APPLICATION_PROPERTIES] + write_compound(
        MAP, b"".join(map(_entry, properties)), 2 * len(properties)
    )


@lru_cache(maxsize=256)
def _are_keys(names: tuple[str, ...]) -> bool:
    """Return whether properties of these names are all application properties, each with a name of its own.

    Raises:
        ValueError: the names are long, as are few.
    """
    if sum(map(len, names)) > MAX_REPEATED_NAMES_CHARACTERS:
        raise ValueError("these names are not kept")
    return len(set(names)) == len(names) and IN_SECTIONS.isdisjoint(names)


@lru_cache(maxsize=1024)
def _entry(entry: Property) -> bytes:
    """Return the encoded name and value of a property.

    Raises:
        WRONG: it is large, or equal to another one that is encoded differently, such as 0.0 to -0.0.
    """
    name, kind, value = entry
    if kind in FLOAT_FORMATS or (kind is PropertyType.STRING and type(value) is not str):
        raise ValueError("this property is not kept")
    typed = to_amqp(kind, value)
    octets = WRITERS[str](name) + WRITERS[type(typed)](typed)
    if len(octets) > MAX_REPEATED_OCTETS:
        raise ValueError("this property is not kept")
    return octets


def _any_message(message: Message, dialect: AmqpDialect, *, with_header: bool) -> bytes:
    """Return the octets of a message, section by section. Raises UsageError as `to_amqp_message` does."""
    try:
        return b"".join(_sections(message, dialect, with_header=with_header))
    except UsageError:
        raise
    except UNCARRIED as error:
        raise UsageError(f"AMQP cannot carry this message: {field_problem(message) or error}") from error


def _sections(message: Message, dialect: AmqpDialect, *, with_header: bool) -> Pieces:
    """Return the octets of the sections of a message. Raises UNCARRIED."""
    if message.destination is None:
        raise UsageError("the message has no destination")
    if message.message_type not in MESSAGE_TYPES:
        raise UsageError(f"over AMQP a message must be of a JMS message type, got {message.message_type}")
    pieces: Pieces = [
        _header(message, message.timestamp) if with_header else b"",
        _annotations(message.message_type, message.destination, message.reply_to, dialect),
        encode(
            AmqpSection.PROPERTIES,
            _properties(
                message,
                spell(message.destination, dialect),
                dialect,
                _absolute_expiry(message, message.timestamp, with_header=with_header),
            ),
        ),
    ]
    application = _map_of(each for each in message.properties if each.name not in IN_SECTIONS)
    if application:
        pieces.append(encode(AmqpSection.APPLICATION_PROPERTIES, application))
    return pieces + _body(message)


def _map_of(entries: Iterable[Property]) -> dict[str, object]:
    """Return properties, or the entries of a map, for proton. Raises TypeError if a name is not text."""
    return {str.__str__(name): to_amqp(kind, value) for name, kind, value in entries}


def _header(message: Message, timestamp: int | None) -> bytes:
    priority, time_to_live = DEFAULT_PRIORITY if message.priority is None else message.priority, None
    if priority not in PRIORITIES:
        raise UsageError(f"priority must be from 0 to 9, got {priority}")
    if message.expiration and timestamp is not None:
        time_to_live = min(max(1, message.expiration - timestamp), UINT)
    return _encoded_header(message.delivery_mode != DeliveryMode.NON_PERSISTENT, priority, time_to_live)


def _absolute_expiry(message: Message, timestamp: int | None, *, with_header: bool) -> int | None:
    """Return the time at which a message expires, if the time to live in its header does not say it."""
    expiration = message.expiration
    if expiration and with_header and timestamp is not None and 0 < expiration - timestamp <= UINT:
        return None
    return expiration


@lru_cache(maxsize=256)
def _encoded_header(is_durable: bool, priority: int, time_to_live: int | None) -> bytes:
    fields = [is_durable, ubyte(priority)]
    return encode(AmqpSection.HEADER, fields if time_to_live is None else [*fields, uint(time_to_live)])


def _annotations(
    message_type: MessageType, destination: Destination, reply_to: Destination | None, dialect: AmqpDialect
) -> bytes:
    return _encoded_annotations(
        message_type,
        None if destination.kind in dialect.unannotated else destination.kind,
        None if reply_to is None else node_kind(reply_to, dialect),
    )


@lru_cache(maxsize=256)
def _encoded_annotations(
    message_type: MessageType, destination: DestinationKind | None, reply_to: DestinationKind | None
) -> bytes:
    annotations = {symbol(TYPE_ANNOTATION): byte(MESSAGE_TYPES.index(message_type))}
    if destination is not None:
        annotations[symbol(DESTINATION_ANNOTATION)] = byte(KINDS.index(destination))
    if reply_to is not None:
        annotations[symbol(REPLY_TO_ANNOTATION)] = byte(KINDS.index(reply_to))
    return encode(AmqpSection.MESSAGE_ANNOTATIONS, annotations)


def _properties(message: Message, to: str, dialect: AmqpDialect, expiration: int | None) -> list[object]:
    user = message.properties.text(USER)
    fields = [
        None if message.message_id is None else to_wire(message.message_id),
        None if user is None else _user_id(user),
        to,
        None if message.type is None else str.__str__(message.type),
        None if message.reply_to is None else spell(message.reply_to, dialect),
        None if message.correlation_id is None else to_wire(message.correlation_id),
        CONTENT_TYPES.get(message.message_type),
        None,
        timestamp(expiration) if expiration else None,
        None if message.timestamp is None else timestamp(message.timestamp),
    ]
    group, sequence = message.properties.text(GROUP), message.properties.value(GROUP_SEQUENCE)
    if sequence is not None and not (isinstance(sequence, int) and fits(sequence, PropertyType.INT)):
        raise UsageError(f"{GROUP_SEQUENCE} must be a JMS int, got {sequence!r}")
    if sequence is not None:
        fields += [group, uint(sequence & UINT)]
    elif group is not None:
        fields.append(group)
    return fields


def _user_id(user: str) -> bytes:
    try:
        return user.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"AMQP cannot carry {USER} of this message: {error}") from error


def _body(message: Message) -> Pieces:
    match message.message_type, message.body:
        case _, None:
            return [encode(AmqpSection.VALUE, None)]
        case ((MessageType.BYTES | MessageType.OBJECT), (bytes() | memoryview()) as octets):
            return [*encode_data(octets)]
        case MessageType.TEXT, str() as text:
            return [encode(AmqpSection.VALUE, text)]
        case MessageType.MAP, Properties() as entries:
            return [encode(AmqpSection.VALUE, _map_of(entries))]
        case MessageType.STREAM, tuple() as elements if not isinstance(elements, Properties):
            return [encode(AmqpSection.SEQUENCE, [to_amqp(kind, value) for kind, value in elements])]
    raise UsageError(f"the body of a message of type {message.message_type} cannot be {type(message.body).__name__}")


# From AMQP


def from_amqp_message(
    octets: bytes | bytearray,
    dialect: AmqpDialect = PLAIN,
    source: Destination | None = None,
    shapes: SectionShapes | None = None,
    received: int | None = None,
) -> ReceivedMessage:
    """Return the message that the octets carry; never raises, whatever they contain.

    Without the annotations of the JMS mapping the message type follows from the body: data is bytes, a string is text.
    Properties of types that JMS lacks are dropped, and so are content encoding, group of the reply, footer and all
    annotations except those that the dialect shows. Octets that are not an AMQP message, or have a body without a JMS
    message type, become the body of a message of type `unknown`.

    Args:
        octets: the whole transfer.
        dialect: dialect of the broker.
        source: destination of the link, used if the message does not name one.
        shapes: shapes of the heads that arrived earlier from the same broker and source; None to decode every section.
        received: when the octets arrived, in milliseconds since 1970; None for now. A time to live counts from it.

    Raises:
        MemoryError: there is not enough memory for the message.
    """
    received = epoch_milliseconds() if received is None else received
    if shapes is not None and len(octets) <= SMALL_MESSAGE_OCTETS:
        octets = bytes(octets)
        known = shapes.match(octets)
        if known is None:
            shapes.learn(octets)
        elif (arrived := _shaped(octets, *known, dialect, source, received)) is not None:
            return arrived
    try:
        found = list(decode(octets))
    except MalformedError:
        return ReceivedMessage(Message(message_type=MessageType.UNKNOWN, body=bytes(octets), destination=source), 1)
    return from_sections(found, dialect, source, received)


def _shaped(
    octets: bytes,
    shape: SectionShape,
    found: re.Match[bytes],
    dialect: AmqpDialect,
    source: Destination | None,
    received: int,
) -> ReceivedMessage | None:
    """Return the message whose head matched the pattern of a shape, or None if it must be decoded by section."""
    plan: ArrivalPlan | None = shape.plan
    if plan is None:
        plan = shape.plan = ArrivalPlan(shape, dialect, source)
    if not plan.works:
        return None
    try:
        return plan.read_all(found, octets, received)
    except ValueError:  # for example malformed octets
        return None


def from_amqp_head(
    octets: bytes | bytearray, dialect: AmqpDialect = PLAIN, source: Destination | None = None
) -> ReceivedMessage:
    """Return the message without its body, from its first octets; never raises, whatever they contain.

    Truncated parts count as absent. This takes little memory. Otherwise it is like `from_amqp_message`.
    """
    found: list[SectionValue] = []
    with suppress(MalformedError):
        found.extend(decode(octets, with_body=False))
    head = [each for each in found if each.section not in BODIES]
    declared = _row(MESSAGE_TYPES, _heads(head)[AmqpSection.MESSAGE_ANNOTATIONS].get(TYPE_ANNOTATION))
    arrived = from_sections(head, dialect, source, epoch_milliseconds())
    kind = MessageType.UNKNOWN if declared is None else declared
    return arrived._replace(message=changed(arrived.message, message_type=kind, body=None))


def from_sections(
    found: list[SectionValue], dialect: AmqpDialect, source: Destination | None, received: int
) -> ReceivedMessage:
    """Return the message with these sections; otherwise like `from_amqp_message`."""
    heads = _message_heads(found, dialect, source, received)
    draft = MessageDraft(*_content(found, heads.declared, heads.content_type))
    for field, read in FIELDS_OF_HEADS.items():
        setattr(draft, field, read(heads))
    return ReceivedMessage(draft.frozen(), heads.failures + 1)


def _message_heads(
    found: list[SectionValue], dialect: AmqpDialect, source: Destination | None, received: int
) -> MessageHeads:
    sections = _heads(found)
    return MessageHeads(
        _fields(sections, AmqpSection.HEADER, 5),
        sections[AmqpSection.MESSAGE_ANNOTATIONS],
        _fields(sections, AmqpSection.PROPERTIES, 12),
        sections[AmqpSection.APPLICATION_PROPERTIES],
        dialect,
        source,
        received,
    )


class MessageHeads(NamedTuple):
    """The sections before the body, with the dialect and the source that they are interpreted by.

    Attributes:
        header: the five fields of the header section.
        annotations: message annotations.
        stated: the first twelve fields of the properties section.
        application: application properties.
        dialect: dialect of the broker.
        source: destination of the link; None if unknown.
        received: when the message arrived, in milliseconds since 1970.
    """

    header: list[Any]
    annotations: Mapping[Any, Any]
    stated: list[Any]
    application: Mapping[Any, Any]
    dialect: AmqpDialect
    source: Destination | None
    received: int

    @property
    def declared(self) -> MessageType | None:
        """The message type that the annotation states; None if it is missing or invalid."""
        return cast("MessageType | None", _row(MESSAGE_TYPES, self.annotations.get(TYPE_ANNOTATION)))

    @property
    def content_type(self) -> str | None:
        """The content type of the body; None if it is missing or not text."""
        return _text(self.stated[6])

    @property
    def failures(self) -> int:
        """Number of unsuccessful earlier deliveries."""
        return _number(self.header[4], UINTS) or 0


def _read_properties(heads: MessageHeads) -> Properties:
    own = _jms_properties(heads.stated, heads.application, heads.dialect.id_property)
    return Properties((*own, *_shown(heads.annotations, heads.dialect.shown)))


def _read_destination(heads: MessageHeads) -> Destination | None:
    annotation = heads.annotations.get(DESTINATION_ANNOTATION)
    return _destination(_text(heads.stated[2]), annotation, heads.dialect, heads.source)


def _read_reply_to(heads: MessageHeads) -> Destination | None:
    return _destination(_text(heads.stated[4]), heads.annotations.get(REPLY_TO_ANNOTATION), heads.dialect, None)


def _read_priority(heads: MessageHeads) -> int:
    stated = _integer(heads.header[1])
    return DEFAULT_PRIORITY if stated is None else stated


def _read_expiration(heads: MessageHeads) -> int:
    """Return when a message expires by this machine's clock, or 0 for never."""
    lifetime, is_left = _number(heads.header[TIME_TO_LIVE], UINTS), heads.dialect.counts_down
    stated, created = _number(heads.stated[8], LONGS), _number(heads.stated[9], LONGS)
    if not lifetime or (stated is not None and lifetime == UINT):  # the most that it can be
        return stated or 0
    if stated is None and created is not None and not is_left:
        stated = created + lifetime
    return expiration_here(stated, lifetime, heads.received, is_left=is_left)


FIELDS_OF_HEADS: Final[Mapping[str, Callable[[MessageHeads], Any]]] = {
    "properties": _read_properties,
    "destination": _read_destination,
    "message_id": lambda heads: _id_of_sender(heads.application, heads.dialect) or message_id_of(heads.stated[0]),
    "correlation_id": lambda heads: correlation_id_of(heads.stated[5]),
    "reply_to": _read_reply_to,
    "delivery_mode": lambda heads: (DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT)[heads.header[0] is True],
    "priority": _read_priority,
    "expiration": _read_expiration,
    "timestamp": lambda heads: _number(heads.stated[9], LONGS),
    "type": lambda heads: _text(heads.stated[3]),
    "redelivered": lambda heads: heads.failures > 0,
}
"""How each field of a message is read from the sections before the body."""

FIELDS_OF_STATED: Final[Mapping[int | str, tuple[str, ...]]] = {
    0: ("message_id",),
    2: ("destination",),
    3: ("type",),
    4: ("reply_to",),
    5: ("correlation_id",),
    8: ("expiration",),
    9: ("expiration", "timestamp"),
}
"""The fields of a message that depend on each field of the properties section, by its index.

A shape in which another field of that section differs is not used. Of the header the time to live may differ: brokers
that count it down write another one into each message.
"""

TIME_TO_LIVE: Final = 2
"""Index of the time to live in the header."""


_VALUES, _STATED, _PROPERTIES, _HEADER = range(4)
"""What an `ArrivalPlan` fills in: fields of the message, the properties section, application properties, the header."""

_unpacked_long: Final = struct.Struct(">q").unpack


def _read_id(octets: bytes) -> str | None:
    """Return the JMSMessageID for a message-id of type string."""
    text = octets.decode()
    return text if text.startswith(JMS_PREFIX) and not text.startswith(ENCODED) else message_id_of(text)


def _read_correlation_id(octets: bytes) -> str | None:
    text = octets.decode()
    return correlation_id_of(text) if text.startswith(ENCODED) else text


def _read_time(octets: bytes) -> int:
    return int(_unpacked_long(octets)[0])


FIELD_OF_LEAF: Final[Mapping[tuple[int | str, int], tuple[str, Callable[[bytes], Any]]]] = {
    (0, SHORT_TEXT): ("message_id", _read_id),
    (5, SHORT_TEXT): ("correlation_id", _read_correlation_id),
    (8, TIME_CODE): ("expiration", _read_time),
    (9, TIME_CODE): ("timestamp", _read_time),
}
"""The field that mostly depends on one value of the properties section alone, and what reads it from the octets of that
value; by the index and the constructor of the value.
"""


def _property_reader(name: str, leaf: Leaf) -> Callable[[bytes], Property]:
    """Return the function that makes a property from the octets of its value."""
    if leaf.code == SHORT_TEXT:
        kind = PropertyType.STRING
        return lambda octets: new_property((name, kind, octets.decode()))
    return lambda octets: new_property((name, *cast("TypedValue", from_amqp(leaf.read(octets)))))


DraftT = TypeVar("DraftT")


class ArrivalPlan:
    """Makes messages from heads of one shape; values that do not differ are read once.

    Args:
        shape: shape of the heads.
        dialect: dialect of the broker.
        source: destination of the link, used if a message does not name one.

    Attributes:
        works: whether all values that differ can be read by shape; otherwise each section is decoded.
    """

    __slots__ = (
        "_content_type",
        "_count",
        "_declared",
        "_fields",
        "_has_own",
        "_heads",
        "_properties",
        "_steps",
        "_type_of_data",
        "_values",
        "works",
    )

    def __init__(self, shape: SectionShape, dialect: AmqpDialect, source: Destination | None) -> None:
        sections = list(decode(shape.octets))
        self._heads = _message_heads(sections, dialect, source, 0)
        message, self._count = from_sections(sections, dialect, source, 0)
        self._declared, self._content_type = self._heads.declared, self._heads.content_type
        of_data = _from_data([b""], self._declared, self._content_type)
        self._type_of_data = None if of_data is None else of_data[0]
        self._values = [getattr(message, name) for name in FIELDS[2:]]
        self._properties = list(message.properties)
        names = [each.name for each in message.properties]
        stated = [each for each in shape.differing if each.section is AmqpSection.PROPERTIES]
        own = [each for each in shape.differing if each.section is AmqpSection.APPLICATION_PROPERTIES]
        lives = [each for each in shape.differing if (each.section, each.key) == (AmqpSection.HEADER, TIME_TO_LIVE)]
        self.works = (
            len(stated) + len(own) + len(lives) == len(shape.differing)
            and all(each.key in FIELDS_OF_STATED for each in stated)
            and all(each.key in names and each.key not in IN_SECTIONS for each in own)
        )
        self._has_own = bool(own)
        self._steps: list[tuple[int, int, Callable[[bytes], Any]]] = []  # for each value: which list, where, its reader
        is_timed = self._heads.header[TIME_TO_LIVE] is not None
        affected = {"expiration"} if is_timed else set[str]()  # fields that are read from the sections
        for leaf in shape.differing if self.works else ():
            if leaf in own:
                place = names.index(str(leaf.key))
                self._steps.append((_PROPERTIES, place, _property_reader(names[place], leaf)))
                continue
            if leaf in lives:
                self._steps.append((_HEADER, TIME_TO_LIVE, leaf.read))
                continue
            fields, known = self._fields_of(leaf), FIELD_OF_LEAF.get((leaf.key, leaf.code))
            if known is not None and fields == {known[0]} and known[0] not in affected:
                self._steps.append((_VALUES, FIELDS.index(known[0]) - 2, known[1]))
            else:
                self._steps.append((_STATED, int(leaf.key), leaf.read))
                affected |= fields
        self._fields = [(FIELDS.index(each) - 2, FIELDS_OF_HEADS[each]) for each in affected]

    def _fields_of(self, leaf: Leaf) -> set[str]:
        """Return the fields that a value of the properties section affects."""
        heads, fields = self._heads, set(FIELDS_OF_STATED[leaf.key])
        if leaf.key == 9 and heads.header[TIME_TO_LIVE] is None:
            fields.discard("expiration")  # it depends on the creation time only if there is a time to live
        if leaf.key == 0 and _id_of_sender(heads.application, heads.dialect) is not None:
            fields.clear()
        return fields

    def read_all(self, found: re.Match[bytes], octets: bytes, received: int) -> ReceivedMessage | None:
        """Return the message with these octets, of which the pattern matched the head; None to decode each section.

        Raises:
            ValueError: a value cannot be decoded.
        """
        draft = self.draft(found, octets, MessageDraft, received)
        return None if draft is None else ReceivedMessage(draft.frozen(), self._count)

    def draft(self, found: re.Match[bytes], octets: bytes, make: Callable[..., DraftT], received: int) -> DraftT | None:
        """Return what `make` makes of the message's fields, in the order of `FIELDS`; otherwise like `read_all`."""
        begin = found.end()
        if self._type_of_data is not None and (body := sole_data(octets, begin)) is not None:
            return self._made(found, make, received, self._type_of_data, body)
        bodies = list(decode(octets, begin=begin))
        if sum([len(each.octets) for each in bodies if each.section in BODIES]) != len(octets) - begin:
            return None  # there is a footer, or a section that AMQP does not know
        return self._made(found, make, received, *_content(bodies, self._declared, self._content_type))

    def _made(
        self, found: re.Match[bytes], make: Callable[..., DraftT], received: int, message_type: MessageType, body: Body
    ) -> DraftT:
        heads = self._heads
        values, stated, properties, header = lists = (
            self._values.copy(),
            heads.stated.copy(),
            self._properties.copy(),
            heads.header.copy(),
        )
        for (which, place, read), octets in zip(self._steps, found.groups(), strict=True):
            lists[which][place] = read(octets)
        if self._fields:
            heads = heads._replace(stated=stated, header=header, received=received)
            for place, read_field in self._fields:
                values[place] = read_field(heads)
        if self._has_own:
            values[0] = Properties(properties)
        return make(message_type, body, *values)


def _heads(found: Iterable[SectionValue]) -> dict[AmqpSection, Any]:
    """Return the first valid section (list or map) of each kind before the body; empty ones for missing sections."""
    heads: dict[AmqpSection, Any] = {}
    for section, value, _ in found:
        shape = SHAPES.get(section)
        if shape is not None and section not in heads and isinstance(value, shape):
            heads[section] = value
    for section, shape in SHAPES.items():
        if section not in heads:
            heads[section] = shape()
    return heads


def _fields(heads: Mapping[AmqpSection, Any], section: AmqpSection, count: int) -> list[Any]:
    """Return the first fields of a list section, with None for missing ones."""
    fields: list[Any] = heads[section][:count]
    return fields + [None] * (count - len(fields))


def _text(value: object) -> str | None:
    """Return a string, or a symbol as a string; None for other values."""
    return str(value) if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object, known: tuple[int, int]) -> int | None:
    """Return a number if it is in the range of its field, whatever its type on the wire; otherwise None."""
    number = None if value is None else _integer(value)
    return None if number is None or not known[0] <= number <= known[1] else number


def _row(table: tuple[Any, ...], number: object) -> Any:
    return table[number] if isinstance(number, int) and 0 <= number < len(table) else None


def _destination(
    address: str | None, annotation: object, dialect: AmqpDialect, otherwise: Destination | None
) -> Destination | None:
    if not address:
        return otherwise
    kind = _row(KINDS, annotation) or (otherwise.kind if otherwise is not None else None)
    return read_address(address, kind, dialect)


def _id_of_sender(application: Mapping[Any, Any], dialect: AmqpDialect) -> str | None:
    value = None if dialect.id_property is None else application.get(dialect.id_property)
    return str(value) if isinstance(value, str) and value.startswith(JMS_PREFIX) else None


def _jms_properties(stated: list[Any], application: Mapping[Any, Any], hidden: str | None) -> list[Property]:
    found: list[Property] = []
    text, octets = PropertyType.STRING, PropertyType.BYTES
    for name, value in application.items():
        if not isinstance(name, str) or name in IN_SECTIONS or name == hidden:
            continue
        if type(value) is str:
            found.append(new_property((str(name), text, value)))  # some clients send names as symbols
        elif (typed := from_amqp(value)) is not None and typed.type is not octets:
            found.append(new_property((str(name), *typed)))
    user, group, sequence = stated[1], _text(stated[10]), _number(stated[11], UINTS)
    if isinstance(user, bytes):
        found.append(Property(USER, PropertyType.STRING, user.decode("utf-8", "replace")))
    if group is not None:
        found.append(Property(GROUP, PropertyType.STRING, group))
    if sequence is not None:
        number = sequence - ((UINT + 1) if sequence > UINT >> 1 else 0)
        found.append(Property(GROUP_SEQUENCE, PropertyType.INT, number))
    return found


def _shown(annotations: Mapping[Any, Any], prefix: str | None) -> Iterable[Property]:
    if prefix is None:
        return
    for name, value in annotations.items():
        if str(name).startswith(prefix):
            typed = from_amqp(value)
            if typed is not None and typed.type is not PropertyType.BYTES:
                yield Property(f"{SHOWN_PREFIX}{name}", *typed)


def _content(
    found: list[SectionValue], declared: MessageType | None, content_type: str | None
) -> tuple[MessageType, Body]:
    bodies = [each for each in found if each[0] in BODIES]
    kinds = {section for section, _, _ in bodies} or {AmqpSection.VALUE}
    read = None
    if len(kinds) == 1:
        read = _READERS[kinds.pop()]([value for _, value, _ in bodies], declared, content_type)
    return read or (MessageType.UNKNOWN, b"".join(octets for _, _, octets in bodies))


def _from_data(
    values: list[Any], declared: MessageType | None, content_type: str | None
) -> tuple[MessageType, Body] | None:
    is_object = declared is MessageType.OBJECT or content_type == JAVA_OBJECT
    if declared not in (None, MessageType.OBJECT, MessageType.BYTES):
        return None
    if not all(isinstance(each, bytes | memoryview) for each in values):  # a data section that holds another value
        return None
    return MessageType.OBJECT if is_object else MessageType.BYTES, b"".join(values)


def _from_sequence(
    values: list[Any], declared: MessageType | None, content_type: str | None
) -> tuple[MessageType, Body] | None:
    elements = [from_amqp(each) for value in values if isinstance(value, list) for each in value]
    if declared not in (None, MessageType.STREAM) or None in elements:
        return None
    return MessageType.STREAM, tuple(Element(*each) for each in elements if each is not None)


def _from_value(
    values: list[Any], declared: MessageType | None, content_type: str | None
) -> tuple[MessageType, Body] | None:
    value = values[0] if values else None
    match value:
        case None:
            return declared or MessageType.MESSAGE, None
        case str() if type(value) is str and declared in (None, MessageType.TEXT):
            return MessageType.TEXT, value
        case dict() if declared in (None, MessageType.MAP):
            return _map_body(value)
        case list():
            return _from_sequence(values, declared, content_type)
        case bytes():
            return _from_data(values, declared, content_type)
    return None


def _map_body(value: Mapping[Any, Any]) -> tuple[MessageType, Body] | None:
    entries = {name: from_amqp(each) for name, each in value.items()}
    if not all(isinstance(name, str) for name in entries) or None in entries.values():
        return None
    return MessageType.MAP, Properties(Property(str(name), *each) for name, each in entries.items() if each is not None)


_READERS: Final[
    Mapping[AmqpSection, Callable[[list[Any], MessageType | None, str | None], tuple[MessageType, Body] | None]]
] = {AmqpSection.DATA: _from_data, AmqpSection.SEQUENCE: _from_sequence, AmqpSection.VALUE: _from_value}
