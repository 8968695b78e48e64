"""The messages, destinations and typed properties of JMS 1.1, as frozen, picklable values.

All other parts of this project pass these around: nodes, brokers, the capture log, test vectors, Spark.
I/O, brokers and SOAP do not belong here.

Spec: JMS 1.1 chapters 2.4 (destinations) and 3 (message model).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from functools import partial
from math import isfinite
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from brokers.errors import UsageError

MAX_MESSAGE_OCTETS: Final = 100 << 20
"""Default maximum size of a message that is read, in octets (100 MiB), for all adapters and nodes."""

MAX_CACHED_CHARACTERS: Final = 256
"""Maximum number of characters of a destination that is cached after parsing."""

MAX_ADDRESS_CHARACTERS: Final = 2048
"""Maximum number of characters of the name or address of a destination where it must fit into one frame or header."""

TOO_LARGE: Final = "it has {} octets, and a message may have {} here: max_message of the connection raises that"
"""The reason for refusing a message unread: its size in octets, and the limit."""

PropertyValue: TypeAlias = bool | int | float | str | None
"""A property's value; None is JMS's null string."""


class PropertyType(StrEnum):
    """The JMS types of message properties, map entries and stream elements."""

    BOOLEAN = "boolean"
    BYTE = "byte"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"  # only in the body of a MapMessage or StreamMessage, as base64 text


INTEGER_BITS: Final[Mapping[PropertyType, int]] = {
    PropertyType.BYTE: 8,
    PropertyType.SHORT: 16,
    PropertyType.INT: 32,
    PropertyType.LONG: 64,
}


FLOAT_FORMATS: Final[Mapping[PropertyType, str]] = {PropertyType.FLOAT: "<f", PropertyType.DOUBLE: "<d"}
"""The formats of the floating-point types in `struct`."""


class DestinationKind(StrEnum):
    """The four kinds of JMS destination."""

    QUEUE = "queue"
    TOPIC = "topic"
    TEMPORARY_QUEUE = "temporary-queue"
    TEMPORARY_TOPIC = "temporary-topic"

    @property
    def is_temporary(self) -> bool:
        """Whether the destination lives only as long as the connection that created it."""
        return self in TEMPORARY_KINDS

    @property
    def is_topic(self) -> bool:
        """Whether each subscriber gets its own copy of a message."""
        return self in (DestinationKind.TOPIC, DestinationKind.TEMPORARY_TOPIC)


TEMPORARY_KINDS: Final = frozenset({DestinationKind.TEMPORARY_QUEUE, DestinationKind.TEMPORARY_TOPIC})


class MessageType(StrEnum):
    """The JMS message types; `UNKNOWN` if the wire protocol does not carry the type."""

    BYTES = "bytes"
    TEXT = "text"
    MAP = "map"
    OBJECT = "object"
    STREAM = "stream"
    MESSAGE = "message"
    UNKNOWN = "unknown"


class DeliveryMode(IntEnum):
    """JMSDeliveryMode, with its numbers in JMS."""

    NON_PERSISTENT = 1
    PERSISTENT = 2


DEFAULT_PRIORITY: Final = 4


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue or topic.

    `name` is the broker's own name without a wire protocol's prefix, or None if this side cannot know it (such as the
    owner of a temporary queue over STOMP). `address` is its spelling on an adapter's wire, if that cannot be derived
    from kind and name; it is valid only for the connection that created it.
    """

    kind: DestinationKind
    name: str | None
    address: str | None = None

    def __str__(self) -> str:
        name = self.name if self.name is not None else self.address
        return str(self.kind) if name is None else f"{self.kind}:{name}"


def queue(name: str) -> Destination:
    """Return the queue called `name`."""
    return Destination(DestinationKind.QUEUE, name)


def topic(name: str) -> Destination:
    """Return the topic called `name`."""
    return Destination(DestinationKind.TOPIC, name)


class Property(NamedTuple):
    """One property: its name, its JMS type, and its value as a Python object."""

    name: str
    type: PropertyType
    value: PropertyValue


new_property: Final[Callable[[tuple[str, PropertyType, PropertyValue]], Property]] = partial(tuple.__new__, Property)
"""Create a property from its three parts, in half the time of `Property`, for the many that arrive."""


class Properties(tuple[Property, ...]):
    """The properties of one message, in order, with a lookup by name (names are case-sensitive).

    A tuple, so it is frozen, hashable and picklable. A message has a handful of properties, so the lookup is a scan.
    """

    __slots__ = ()

    def lookup(self, name: str) -> Property | None:
        """Return the property called `name`, or None."""
        for entry in self:
            if entry.name == name:
                return entry
        return None

    def value(self, name: str) -> PropertyValue | None:
        """Return the value of the property called `name`, or None if the message has no such property."""
        for known, _, value in self:
            if known == name:
                return value
        return None

    def text(self, name: str) -> str | None:
        """Return the property as JMS getStringProperty would: any type converts to a string, None stays None."""
        return as_text(self.value(name))

    def merged(self, others: Iterable[Property]) -> Properties:
        """Return these properties with `others` merged in: one of the same name is replaced, new names follow."""
        by_name: dict[str, Property] = {}
        for entry in self:
            by_name[entry[0]] = entry
        for entry in others:
            by_name[entry[0]] = entry
        return Properties(by_name.values())


def as_text(value: PropertyValue) -> str | None:
    """Convert a property's value to a string as JMS getStringProperty does: booleans in lower case, null stays null."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def infer_type(value: PropertyValue) -> PropertyType:
    """Choose the JMS type of a Python value: int is `int` if it fits 32 bits, else `long`; None is a null string.

    Raises:
        UsageError: an integer does not fit 64 bits, the largest JMS type, or the value has another Python type.
    """
    if isinstance(value, bool):
        return PropertyType.BOOLEAN
    if value is None or isinstance(value, str):
        return PropertyType.STRING
    if isinstance(value, float):
        return PropertyType.DOUBLE
    if isinstance(value, int):
        for kind in (PropertyType.INT, PropertyType.LONG):
            if fits(value, kind):
                return kind
        raise UsageError(f"an integer property must fit 64 bits, got {value}")
    raise UsageError(f"a JMS property must be a bool, int, float or str, got {type(value).__name__}")


def fits(value: int, kind: PropertyType) -> bool:
    """Return whether an integer is within the range of a JMS integer type."""
    limit = 1 << (INTEGER_BITS[kind] - 1)
    return -limit <= value < limit


def typed(name: str, value: PropertyValue, kind: PropertyType | None = None) -> Property:
    """Return a property, with its JMS type inferred from the value unless `kind` gives it.

    An integer becomes a float if `kind` is a floating-point type that has this number. A float stays as it is, and is
    rounded to the 32 bits of a JMS float only on a wire that has those, such as AMQP's.

    Raises:
        UsageError: the value has no JMS type, or does not fit `kind`.
    """
    if kind is None:
        return Property(name, infer_type(value), value)
    if kind in INTEGER_BITS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"property {name}: {kind} must be an integer, got {value!r}")
        if not fits(value, kind):
            raise UsageError(f"property {name}: {value} does not fit JMS {kind}")
        return Property(name, kind, value)
    wanted = VALUE_TYPES[kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise UsageError(f"property {name}: {kind} cannot hold {value!r}")
    if isinstance(value, int | float) and kind in FLOAT_FORMATS:
        try:
            return Property(name, kind, as_float(value, kind))
        except (ValueError, OverflowError) as error:
            raise UsageError(f"property {name}: {value!r:.100} does not fit JMS {kind}: {error}") from None
    return Property(name, kind, value)


def as_float(value: float, kind: PropertyType) -> float:
    """Return a number as a float for a floating-point type; an integer is not rounded.

    Raises:
        TypeError: the value is not a number.
        ValueError: it is an integer that the type does not have.
        OverflowError: it is beyond the largest number of the type.
    """
    if not isinstance(value, int | float):
        raise TypeError("it is of another type")
    number, form = float(value), FLOAT_FORMATS[kind]
    (held,) = struct.unpack(form, struct.pack(form, number))
    if isinstance(value, int) and held != value:
        raise ValueError("the nearest number that it has is another one")
    return number


VALUE_TYPES: Final[Mapping[PropertyType, tuple[type, ...]]] = {
    PropertyType.BOOLEAN: (bool,),
    PropertyType.STRING: (str, type(None)),
    PropertyType.BYTES: (str,),
    PropertyType.FLOAT: (float, int),
    PropertyType.DOUBLE: (float, int),
}
"""The Python types of the values of a property, but for integers."""


def properties(values: Mapping[str, PropertyValue] | Iterable[Property] = ()) -> Properties:
    """Return typed properties from a mapping of names to Python values, or from `Property` values as they are.

    Raises:
        UsageError: no JMS type can hold a value.
    """
    if isinstance(values, Mapping):
        return Properties(typed(name, value) for name, value in values.items())
    return Properties(values)


def is_finite(value: PropertyValue) -> bool:
    """Return whether JSON can represent the value: False only for NaN and the infinities."""
    return not isinstance(value, float) or isfinite(value)


class Element(NamedTuple):
    """One element of a StreamMessage."""

    type: PropertyType
    value: PropertyValue


Body: TypeAlias = bytes | memoryview | str | Properties | tuple[Element, ...] | None
"""bytes for a BytesMessage (and the octets of an ObjectMessage, never deserialised), str for a TextMessage,
`Properties` for a MapMessage, elements for a StreamMessage; None for a null or absent body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One JMS message: headers, typed properties, body.

    A header that is None is not set, or not known to this side. Times are milliseconds since 1970; an `expiration` of 0
    means never. `untyped` is True if the wire protocol turned every property into a string, so that their types cannot
    be checked.

    The constructor checks nothing, for speed: most messages come from a broker. Whether the body fits the type is
    checked when a message leaves this program, by `Connection.send`, and when it is recorded.
    """

    message_type: MessageType
    body: Body = None
    properties: Properties = field(default_factory=Properties)
    destination: Destination | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: Destination | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    expiration: int | None = None
    timestamp: int | None = None
    type: str | None = None
    redelivered: bool | None = None
    untyped: bool = False

    @property
    def size(self) -> int:
        """The body's length: octets of bytes, characters of text, elements of a map or stream, 0 without a body."""
        return 0 if self.body is None else len(self.body)

    @property
    def octets(self) -> int:
        """The approximate size of the message for limits: body, properties, ids, reply-to and type, with text as UTF-8.

        Each property, and each element of a map or stream, counts 64 octets plus its text; Python uses more memory.
        """
        body = self.body
        total = _octets_of_all(self.properties)
        reply_to = None if self.reply_to is None else self.reply_to.address or self.reply_to.name
        for text in (self.message_id, self.correlation_id, self.type, reply_to):
            if text is not None:
                total += len(text) if text.isascii() else _octets(text)
        if type(body) is bytes:
            return total + len(body)
        if isinstance(body, tuple):
            return total + _octets_of_all(body)
        return total if body is None else total + _octets(body)


FIELDS: Final = tuple(each.name for each in fields(Message))
_NAMES: Final = frozenset(FIELDS)
_values_of: Final = attrgetter(*FIELDS)


class MessageDraft:
    """A message whose fields can still be set. To make one and freeze it takes a third of the time of `Message(...)`.

    Its arguments and attributes are those of `Message`.
    """

    __slots__ = FIELDS

    def __init__(
        self,
        message_type: MessageType,
        body: Body = None,
        properties: Properties = Properties(),  # noqa: B008  # a tuple
        destination: Destination | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        expiration: int | None = None,
        timestamp: int | None = None,
        type: str | None = None,  # noqa: A002  # as in `Message`
        redelivered: bool | None = None,
        untyped: bool = False,
    ) -> None:
        self.message_type = message_type
        self.body = body
        self.properties = properties
        self.destination = destination
        self.message_id = message_id
        self.correlation_id = correlation_id
        self.reply_to = reply_to
        self.delivery_mode = delivery_mode
        self.priority = priority
        self.expiration = expiration
        self.timestamp = timestamp
        self.type = type
        self.redelivered = redelivered
        self.untyped = untyped

    def frozen(self) -> Message:
        """Make this object a `Message`, for ever: both classes have the same slots."""
        made: Any = self
        made.__class__ = Message
        message: Message = made  # without a call of `cast`: there are two of these for each call
        return message


def changed(message: Message, **changes: Any) -> Message:
    """Return a message with some values changed, in a fifth of the time of `dataclasses.replace`.

    Fields of a subclass of `Message` are lost.

    Raises:
        TypeError: a message has no field of that name.
    """
    if not changes.keys() <= _NAMES:
        raise TypeError(f"a message has no {', '.join(sorted(changes.keys() - _NAMES))}")
    draft = MessageDraft(*_values_of(message))
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft.frozen()


ENTRY_OCTETS: Final = 64


def _octets(value: bytes | memoryview | str) -> int:
    if isinstance(value, memoryview):
        return value.nbytes
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode("utf-8", "surrogatepass"))


def _octets_of_all(values: Iterable[Property | Element]) -> int:
    total = 0
    for each in values:
        total += ENTRY_OCTETS
        for part in (each[0], each[-1]):  # the first part of an element is its type
            if type(part) is str and part.isascii():
                total += len(part)
            elif isinstance(part, str) and not isinstance(part, PropertyType):
                total += _octets(part)
    return total


BODY_TYPES: Final[Mapping[MessageType, tuple[type, ...]]] = {
    MessageType.BYTES: (bytes, memoryview),
    MessageType.TEXT: (str,),
    MessageType.MAP: (Properties,),
    MessageType.OBJECT: (bytes, memoryview),
    MessageType.STREAM: (tuple,),
    MessageType.MESSAGE: (),
    MessageType.UNKNOWN: (bytes, memoryview, str, Properties, tuple),
}
"""The Python types of the body of each message type, unless it is null."""


def body_problem(message: Message) -> str | None:
    """Return why the body does not fit the message type, and what would; None if it fits or is null."""
    body, accepted = message.body, BODY_TYPES[message.message_type]
    is_map = isinstance(body, Properties)  # a tuple too, like the elements of a stream
    if body is None or (Properties in accepted if is_map else isinstance(body, accepted)):
        return None
    known = " or ".join(each.__name__ for each in accepted) or "none"
    return f"a {message.message_type} message cannot carry a body of type {type(body).__name__}; accepted is {known}"


def check_message(given: object) -> None:
    """Check that a caller gives a message.

    Raises:
        UsageError: it is something else, such as a body.
    """
    if not isinstance(given, Message):
        raise UsageError(f"message must be a brokers.Message, got {type(given).__name__}")


FIELD_TYPES: Final[Mapping[str, type]] = {
    "properties": Properties,
    "destination": Destination,
    "message_id": str,
    "correlation_id": str,
    "reply_to": Destination,
    "delivery_mode": int,
    "priority": int,
    "expiration": int,
    "timestamp": int,
    "type": str,
}
"""The Python types of the fields of a message beside its type and body; all but the properties may be None."""


MAKERS: Final[Mapping[str, str]] = {
    "properties": "; brokers.properties({name: value}) makes them",
    "destination": "; brokers.queue(name) makes one",
    "reply_to": "; brokers.queue(name) makes one",
}
"""What makes the value of a field, as the end of an error."""


def field_problem(message: Message) -> str | None:
    """Return which field, or which part of one, has a value of a wrong Python type, and what is accepted; or None.

    The type and the body are left to `body_problem`.
    """
    given: Any = message
    for name, accepted in FIELD_TYPES.items():
        value = getattr(given, name)
        if not isinstance(value, accepted) and (value is not None or accepted is Properties):
            or_none = "" if accepted is Properties else " or None"
            return f"{name} of a message must be {accepted.__name__}{or_none}, got {value!r:.100}{MAKERS.get(name, '')}"
    for place in (given.destination, given.reply_to):
        if place is not None and not isinstance(place.name, str | None):
            return f"name of a destination must be str or None, got {place.name!r:.100}"
    for each in given.properties:
        fits_all = isinstance(each, Property) and isinstance(each.name, str) and isinstance(each.value, PropertyValue)
        if not fits_all:
            return (
                f"a property must have a str name, and a bool, int, float, str or None as its value, got {each!r:.100}"
            )
    return None
