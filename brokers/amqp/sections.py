"""The sections of an AMQP message: octets to values and back, with proton's codec except where that is slow.

proton's own message class does not distinguish an absent field from a zero, which JMS requires; it also joins sections,
and copies a body several times, which matters for large attachments.

Spec: AMQP 1.0 part 3, section 3.2 (message format).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeGuard, cast

from proton import Data, DataException, Described, ulong

from brokers.amqp.primitives import read_value, write_value
from brokers.amqp.stack import is_shallow, with_stack
from brokers.errors import UsageError


class AmqpSection(IntEnum):
    """The descriptors of the sections."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78


SYMBOLS: Final = {
    "amqp:header:list": AmqpSection.HEADER,
    "amqp:delivery-annotations:map": AmqpSection.DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": AmqpSection.MESSAGE_ANNOTATIONS,
    "amqp:properties:list": AmqpSection.PROPERTIES,
    "amqp:application-properties:map": AmqpSection.APPLICATION_PROPERTIES,
    "amqp:data:binary": AmqpSection.DATA,
    "amqp:amqp-sequence:list": AmqpSection.SEQUENCE,
    "amqp:amqp-value:*": AmqpSection.VALUE,
    "amqp:footer:map": AmqpSection.FOOTER,
}

BODIES: Final = frozenset({AmqpSection.DATA, AmqpSection.SEQUENCE, AmqpSection.VALUE})

DATA_8: Final = b"\x00\x53\x75\xa0"
DATA_32: Final = b"\x00\x53\x75\xb0"
"""The beginning of a data section: its descriptor, and the constructor of a short or long binary."""


PLAIN: Final = {bytes((0x00, 0x53, section)): section for section in AmqpSection}
"""The sections by their usual first octets."""

BEGINNINGS: Final = {section: octets for octets, section in PLAIN.items()}
"""The usual first octets of the sections."""

REPEATED: Final = frozenset({AmqpSection.HEADER, AmqpSection.MESSAGE_ANNOTATIONS, AmqpSection.APPLICATION_PROPERTIES})
"""Sections that are often the same in many messages."""

SHORT_COMPOUNDS: Final = frozenset({0xC0, 0xC1})
"""Constructors of a list or map whose size is one octet."""

SMALL_MESSAGE_OCTETS: Final = 65_536
"""Maximum size of a message that is copied, because that is faster than reading mutable octets."""

MAX_SECTIONS: Final = 10_000
"""Maximum number of sections of a message. A section takes far more memory than its octets."""


class MalformedError(ValueError):
    """The octets are not a valid AMQP message."""


class SectionValue(NamedTuple):
    """One section: its kind, its value, and its octets."""

    section: AmqpSection
    value: Any
    octets: memoryview


def encode(section: AmqpSection, value: Any) -> bytes:
    """Encode a section, which is a described value.

    Raises:
        UsageError: AMQP cannot carry the value: lone surrogates, more entries than proton encodes, too deep nesting.
    """
    try:
        written = write_value(value)
        if written is not None:
            return BEGINNINGS[section] + written
        data = Data()
        data.put_object(Described(ulong(section), value))
        return bytes(data.encode())
    except (DataException, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise UsageError(f"AMQP cannot carry the {section.name.lower()} of this message: {error}") from error


def encode_data(body: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    """Encode a data section in two pieces, of which the second is the body itself, not copied."""
    if len(body) < 256:
        return DATA_8 + bytes([len(body)]), body
    return DATA_32 + len(body).to_bytes(4, "big"), body


def sole_data(octets: bytes, begin: int) -> bytes | None:
    """Return the content of the data section that begins there and ends the message; None if there is another section,
    or more than one.
    """
    kind = octets[begin : begin + 4]
    if kind not in (DATA_8, DATA_32):
        return None
    at = begin + (5 if kind == DATA_8 else 8)
    is_sole = at + int.from_bytes(octets[begin + 4 : at], "big") == len(octets)
    return octets[at:] if is_sole else None


def decode(octets: bytes | bytearray, *, begin: int = 0, with_body: bool = True) -> Iterator[SectionValue]:
    """Yield the sections of a message, those that no version of AMQP knows left out; or those before its body.

    Args:
        octets: of the message.
        begin: index of the first section to yield.
        with_body: False to end before the body.

    Raises:
        MalformedError: no AMQP message, or one that cannot be held: nested too deep, too many entries or sections.
    """
    if len(octets) <= SMALL_MESSAGE_OCTETS:
        octets = bytes(octets)
    view = memoryview(octets)
    at, seen = begin, 0
    while at < len(octets):
        section = PLAIN.get(bytes(octets[at : at + 3]))  # None if that is not known by three octets
        if not with_body and section in BODIES:
            return
        seen += 1
        if seen > MAX_SECTIONS:
            raise MalformedError(f"a message has at most {MAX_SECTIONS} sections here")
        size, found = (None if section is None else _plain(section, octets, view, at)) or _decode_one(view[at:])
        if found is not None:
            yield found
        at += size


def _plain(
    section: AmqpSection, octets: bytes | bytearray, view: memoryview, at: int
) -> tuple[int, SectionValue | None] | None:
    """Read a section of primitive values, which proton would take longer for; None if it is another one."""
    begin = at + 3
    if section is AmqpSection.DATA:
        return _data(view[at:])
    if section in REPEATED and begin + 2 <= len(octets) and octets[begin] in SHORT_COMPOUNDS:
        read = _repeated(bytes(view[begin : begin + 2 + octets[begin + 1]]))
    else:
        read = read_value(octets, begin)
        if read is not None:
            read = read[0] - begin, read[1]
    if read is None:
        return None
    end = begin + read[0]
    return end - at, SectionValue(section, read[1], view[at:end])


@lru_cache(maxsize=256)
def _repeated(octets: bytes) -> tuple[int, Any] | None:
    """Read a value that is shared by all who read the same octets: nobody changes what is in a section."""
    return read_value(octets, 0)


def _data(view: memoryview) -> tuple[int, SectionValue | None] | None:
    """Read a data section without a copy by proton; None if there is another section, or it is cut off."""
    match bytes(view[:4]):
        case head if head == DATA_8 and len(view) > 4:
            begin, length = 5, view[4]
        case head if head == DATA_32 and len(view) > 7:
            begin, length = 8, int.from_bytes(view[4:8], "big")
        case _:
            return None
    end = begin + length
    return (end, SectionValue(AmqpSection.DATA, view[begin:end], view[:end])) if end <= len(view) else None


def _decode_one(view: memoryview) -> tuple[int, SectionValue | None]:
    return _decoded(view) if is_shallow(view) else with_stack(partial(_decoded, view))


def _decoded(view: memoryview) -> tuple[int, SectionValue | None]:
    data = Data()
    try:
        size = data.decode(cast("bytes", view))  # any buffer will do, and the rest of a large message is not copied
        data.rewind()
        data.next()
        value = data.get_object()
    except (DataException, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedError(f"no AMQP message: {error}") from error
    if not isinstance(value, Described):
        raise MalformedError(f"no AMQP message: a section is described, not {type(value).__name__}")
    section = _section(value.descriptor)
    return size, None if section is None else SectionValue(
        section, _owned(value.value), view[:size]
    )  # while `data` lives


def _section(descriptor: object) -> AmqpSection | None:
    if isinstance(descriptor, int):
        return AmqpSection(descriptor) if descriptor in AmqpSection.__members__.values() else None
    return SYMBOLS.get(descriptor) if isinstance(descriptor, str) else None


def is_described(value: object, descriptors: Container[object]) -> TypeGuard[Described]:
    """Return whether a value has one of these descriptors. A peer may send anything as a descriptor, even a list."""
    return isinstance(value, Described) and isinstance(value.descriptor, int | str) and value.descriptor in descriptors


def _owned(value: Any) -> Any:
    """Return a value whose octets are its own: proton's are a view of memory that it frees."""
    match value:
        case memoryview():
            return bytes(value)
        case Described():
            return Described(value.descriptor, _owned(value.value))
        case list():
            return [_owned(each) for each in value]
        case dict():
            return {_owned(key): _owned(each) for key, each in value.items()}
    return value
