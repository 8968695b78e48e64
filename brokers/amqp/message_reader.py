"""AMQP messages to JMS messages: pure functions, tested without a broker. `message_writer.py` says what is where.

Messages whose heads have a shape that came before are read by an `ArrivalPlan`, all others section by section.

Spec: AMQP JMS Mapping 1.0; AMQP 1.0 part 3, section 3.2.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar, cast

from brokers.adapter.wait import epoch_milliseconds, expiration_here
from brokers.amqp.dialect import PLAIN, AmqpDialect, read_address
from brokers.amqp.primitives import SHORT_TEXT, TIME_CODE, WRONG
from brokers.amqp.sections import (
    BODIES,
    SMALL_MESSAGE_OCTETS,
    AmqpSection,
    MalformedError,
    SectionValue,
    decode,
    sole_data,
)
from brokers.amqp.shapes import Leaf, SectionShape, SectionShapes
from brokers.amqp.values import (
    DESTINATION_ANNOTATION,
    ENCODED,
    GROUP,
    GROUP_SEQUENCE,
    IN_SECTIONS,
    JAVA_OBJECT,
    JMS_PREFIX,
    KINDS,
    MESSAGE_TYPES,
    REPLY_TO_ANNOTATION,
    TYPE_ANNOTATION,
    UINT,
    USER,
    TypedValue,
    correlation_id_of,
    from_amqp,
    message_id_of,
)
from brokers.message import (
    DEFAULT_PRIORITY,
    FIELDS,
    Body,
    DeliveryMode,
    Destination,
    Element,
    Message,
    MessageDraft,
    MessageType,
    Properties,
    Property,
    PropertyType,
    changed,
    new_property,
)

UINTS: Final = 0, UINT
LONGS: Final = -(1 << 63), (1 << 63) - 1

SHOWN_PREFIX: Final = "JMS_AMQP_MA_"
"""Prefix of the name of a message annotation that becomes a property."""

SHAPES: Final[Mapping[AmqpSection, type[list[Any]] | type[dict[Any, Any]]]] = {
    AmqpSection.HEADER: list,
    AmqpSection.MESSAGE_ANNOTATIONS: dict,
    AmqpSection.PROPERTIES: list,
    AmqpSection.APPLICATION_PROPERTIES: dict,
}
"""The types of the sections before the body that are read."""


class ReceivedMessage(NamedTuple):
    """A message that arrived, and the number of its deliveries including this one."""

    message: Message
    delivery_count: int


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
    if len(octets) > SMALL_MESSAGE_OCTETS:
        shapes = None
    known = None
    if shapes is not None:
        octets = bytes(octets)
        known = shapes.match(octets)
        if known is not None and (arrived := _shaped(octets, *known, dialect, source, received)) is not None:
            return arrived
    try:
        found = list(decode(octets))
    except MalformedError:
        return ReceivedMessage(Message(message_type=MessageType.UNKNOWN, body=bytes(octets), destination=source), 1)
    if shapes is not None and known is None:  # only from a head that can be read
        shapes.learn(bytes(octets))
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
    except WRONG:  # for example malformed octets
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
    "redelivered": lambda heads: heads.failures > 0 or (heads.dialect.has_management and heads.header[3] is False),
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
            WRONG: a value cannot be decoded.
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
