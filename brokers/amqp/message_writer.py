"""JMS messages to AMQP messages: pure functions, tested without a broker.

JMS headers are in AMQP's header and properties sections, properties in the application properties with their types,
and data that AMQP lacks (message type, kinds of destinations) in message annotations.

Spec: AMQP JMS Mapping 1.0; AMQP 1.0 part 3, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Final, TypeAlias

from proton import byte, symbol, timestamp, ubyte, uint

from brokers.amqp.dialect import PLAIN, AmqpDialect, node_kind, spell
from brokers.amqp.primitives import LIST, MAP, WRITERS, write_compound, write_text, write_time
from brokers.amqp.sections import BEGINNINGS, AmqpSection, encode, encode_data
from brokers.amqp.values import (
    DESTINATION_ANNOTATION,
    ENCODED,
    GROUP,
    GROUP_SEQUENCE,
    IN_SECTIONS,
    JAVA_OBJECT,
    KINDS,
    MESSAGE_TYPES,
    PRIORITIES,
    REPLY_TO_ANNOTATION,
    TYPE_ANNOTATION,
    UINT,
    UNCARRIED,
    USER,
    to_amqp,
    to_wire,
)
from brokers.errors import UsageError
from brokers.message import (
    DEFAULT_PRIORITY,
    FLOAT_FORMATS,
    DeliveryMode,
    Destination,
    DestinationKind,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
    changed,
    field_problem,
    fits,
)

OCTETS: Final = "application/octet-stream"
CONTENT_TYPES: Final = {MessageType.BYTES: symbol(OCTETS), MessageType.OBJECT: symbol(JAVA_OBJECT)}

BYTES_AND_NO_ENCODING: Final = WRITERS[symbol](CONTENT_TYPES[MessageType.BYTES]) + b"\x40"
"""The fields `content-type` and `content-encoding` of a message of bytes."""

MAX_REPEATED_NAMES_CHARACTERS: Final = 4096
"""Maximum number of characters of the names of properties that are kept."""

MAX_REPEATED_OCTETS: Final = 512
"""Maximum size of a part of a message that is kept for further messages, in octets."""


_name_of: Final = itemgetter(0)

Pieces: TypeAlias = list[bytes | memoryview]


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
