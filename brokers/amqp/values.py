"""JMS's typed values as AMQP's, and back: properties, the entries of a map, the elements of a stream.

Spec: AMQP JMS Mapping 1.0, message properties; AMQP 1.0 part 1, primitive types.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from proton import byte, char, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort

from brokers.message import PropertyType, PropertyValue, fits


class Typed(NamedTuple):
    """A value with its JMS type."""

    type: PropertyType
    value: PropertyValue


TO_AMQP: Final[Mapping[PropertyType, Callable[[Any], object]]] = {
    PropertyType.BOOLEAN: bool,
    PropertyType.BYTE: byte,
    PropertyType.SHORT: short,
    PropertyType.INT: int32,
    PropertyType.LONG: int,
    PropertyType.FLOAT: float32,
    PropertyType.DOUBLE: float,
    PropertyType.STRING: str,
    PropertyType.BYTES: b64decode,
}

FROM_AMQP: Final[Mapping[type, Callable[[Any], Typed]]] = {
    type(None): lambda value: Typed(PropertyType.STRING, None),
    bool: lambda value: Typed(PropertyType.BOOLEAN, value),
    byte: lambda value: Typed(PropertyType.BYTE, int(value)),
    ubyte: lambda value: Typed(PropertyType.SHORT, int(value)),
    short: lambda value: Typed(PropertyType.SHORT, int(value)),
    ushort: lambda value: Typed(PropertyType.INT, int(value)),
    int32: lambda value: Typed(PropertyType.INT, int(value)),
    uint: lambda value: Typed(PropertyType.LONG, int(value)),
    int: lambda value: Typed(PropertyType.LONG, value),
    ulong: lambda value: _long_or_text(int(value)),
    timestamp: lambda value: Typed(PropertyType.LONG, int(value)),
    float32: lambda value: Typed(PropertyType.FLOAT, float(value)),
    float: lambda value: Typed(PropertyType.DOUBLE, value),
    str: lambda value: Typed(PropertyType.STRING, value),
    symbol: lambda value: Typed(PropertyType.STRING, str(value)),
    char: lambda value: Typed(PropertyType.STRING, str(value)),
    UUID: lambda value: Typed(PropertyType.STRING, str(value)),
    bytes: lambda value: Typed(PropertyType.BYTES, b64encode(value).decode("ascii")),
    memoryview: lambda value: Typed(PropertyType.BYTES, b64encode(value).decode("ascii")),
}
"""What AMQP's types are in JMS: unsigned numbers take the next larger type, what is text in some way is a string."""


def to_amqp(kind: PropertyType, value: PropertyValue) -> object:
    """Return a value as proton encodes it in the AMQP type that stands for the JMS type.

    Raises:
        ValueError: octets that are no base64.
    """
    return None if value is None else TO_AMQP[kind](value)


def from_amqp(value: object) -> Typed | None:
    """Return an AMQP value as JMS has it; None for what JMS has no type for: decimals, lists, maps, described."""
    read = FROM_AMQP.get(type(value))
    return None if read is None else read(value)


def _long_or_text(value: int) -> Typed:
    return Typed(PropertyType.LONG, value) if fits(value, PropertyType.LONG) else Typed(PropertyType.STRING, str(value))
