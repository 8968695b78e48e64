"""Codec of lists and maps of primitive values, the content of the sections before a message's body.

proton's codec handles everything, but needs several calls into its library for each value, which is most of the time
for a small message. Arrays, decimals, characters, nested values, invalid octets and values that AMQP cannot carry are
left to proton, so only proton reports errors.

Spec: AMQP 1.0 part 1, sections 1.2 (encoding) and 1.6 (primitive types).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

from proton import Described, byte, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort

Octets: TypeAlias = bytes | bytearray

MAX_VALUES: Final = 1000
"""Maximum number of values in a list or map that is handled here; proton has its own limit for larger ones."""


def _number(kind: type[int], signed: bool = False) -> Callable[[Octets], int]:
    """Return what reads an integer as a value of proton's type, whose own constructor would check it again."""
    make, read = partial(int.__new__, kind), int.from_bytes
    return lambda octets: make(read(octets, "big", signed=signed))


def _real(form: str, kind: type[float]) -> Callable[[Octets], float]:
    unpack = struct.Struct(form).unpack
    return lambda octets: kind(unpack(octets)[0])


def _text(octets: Octets) -> str:
    return octets.decode()


def _symbol(octets: Octets) -> symbol:
    return symbol(octets.decode("ascii"))


CONSTANTS: Final[Mapping[int, Any]] = {
    0x41: True,
    0x42: False,
    0x43: uint(0),
    0x44: ulong(0),
}

FIXED: Final[Mapping[int, tuple[int, Callable[[Octets], Any]]]] = {
    0x50: (1, _number(ubyte)),
    0x51: (1, _number(byte, signed=True)),
    0x52: (1, _number(uint)),
    0x53: (1, _number(ulong)),
    0x54: (1, _number(int32, signed=True)),
    0x55: (1, _number(int, signed=True)),
    0x56: (1, lambda octets: (False, True)[octets[0]]),
    0x60: (2, _number(ushort)),
    0x61: (2, _number(short, signed=True)),
    0x70: (4, _number(uint)),
    0x71: (4, _number(int32, signed=True)),
    0x72: (4, _real(">f", float32)),
    0x80: (8, _number(ulong)),
    0x81: (8, _number(int, signed=True)),
    0x82: (8, _real(">d", float)),
    0x83: (8, _number(timestamp, signed=True)),
    0x98: (16, lambda octets: UUID(bytes=bytes(octets))),
}
"""How many octets a value has, and what reads them, by its constructor."""

SIZED: Final[Mapping[int, tuple[int, Callable[[Octets], Any]]]] = {
    0xA0: (1, bytes),
    0xA1: (1, _text),
    0xA3: (1, _symbol),
    0xB0: (4, bytes),
    0xB1: (4, _text),
    0xB3: (4, _symbol),
}
"""How many octets the size of a value has, and what reads the value, by its constructor."""

COMPOUND: Final = {0xC0: (1, False), 0xC1: (1, True), 0xD0: (4, False), 0xD1: (4, True)}
"""How many octets the size and the count of a list or map have, and whether it is a map, by its constructor."""

EMPTY_LIST: Final = 0x45
LIST, MAP = 0xC0, 0xC1
SHORT_TEXT: Final = 0xA1
TIME_CODE: Final = 0x83
NULL: Final = 0x40

WRONG: Final = (LookupError, ValueError, struct.error)
"""Exceptions from decoding octets of another form."""


def read_value(octets: Octets, at: int) -> tuple[int, Any] | None:
    """Read the value that begins there; return where it ends, and the value as proton would have it.

    None for what is not read here, and for a list or map that has such in it.
    """
    try:
        end, value = _value(octets, at)
    except WRONG:
        return None
    return (end, value) if end <= len(octets) else None


def _value(octets: Octets, at: int) -> tuple[int, Any]:
    """Read a value. Raises WRONG."""
    code = octets[at]
    if code == EMPTY_LIST:
        return at + 1, []
    if code not in COMPOUND:
        end, values = _values(octets, at, 1)
        return end, values[0]
    width, is_map = COMPOUND[code]
    begin = at + 1 + width
    end = begin + int.from_bytes(octets[at + 1 : begin], "big")
    count = int.from_bytes(octets[begin : begin + width], "big")
    if count > MAX_VALUES:
        raise ValueError("too many values")
    found, values = _values(octets, begin + width, count)
    if found != end:
        raise ValueError("the size is not that of the values")
    return end, dict(zip(values[::2], values[1::2], strict=True)) if is_map else values


def _values(octets: Octets, at: int, count: int) -> tuple[int, list[Any]]:
    """Read so many values that are neither lists nor maps; return where they end, and them. Raises WRONG."""
    values: list[Any] = []
    add = values.append
    for _ in range(count):
        code = octets[at]
        at += 1
        if code == SHORT_TEXT:  # most are such, or null
            begin = at + 1
            at = begin + octets[at]
            add(octets[begin:at].decode())
            continue
        if code == NULL:
            add(None)
            continue
        if code in SIZED:
            width, read = SIZED[code]
            size = octets[at] if width == 1 else int.from_bytes(octets[at : at + width], "big")
            at += width
        elif code in CONSTANTS:
            add(CONSTANTS[code])
            continue
        else:
            size, read = FIXED[code]
        add(read(octets[at : at + size]))
        at += size
    return at, values


def _small(short_code: int, bits: int, code: int, *, signed: bool) -> Callable[[int], bytes]:
    """Return what writes an integer in one octet if it fits, otherwise in `bits`."""
    low, high = (-128, 127) if signed else (0, 255)
    short_form, long_form = struct.Struct(">Bb" if signed else ">BB"), _fixed(code, bits, signed=signed)
    return lambda value: short_form.pack(short_code, value) if low <= value <= high else long_form(value)


def _fixed(code: int, bits: int, *, signed: bool) -> Callable[[int], bytes]:
    form = {8: "b", 16: "h", 32: "i", 64: "q"}[bits]
    return partial(struct.Struct(f">B{form if signed else form.upper()}").pack, code)


def write_text(value: str) -> bytes:
    """Encode a string. Raises ValueError for lone surrogates."""
    octets = value.encode()
    return b"\xa1%c%b" % (len(octets), octets) if len(octets) < 256 else _sized(0xA1, octets)


def _sized(short_code: int, octets: bytes) -> bytes:
    size = len(octets)
    if size < 256:
        return b"%c%c%b" % (short_code, size, octets)
    return struct.pack(">BI", short_code | 0x10, size) + octets


write_time: Final = _fixed(TIME_CODE, 64, signed=True)
"""Encodes milliseconds since 1970. Raises struct.error for a number of more than 64 bits."""

WRITERS: Final[Mapping[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    str: write_text,
    symbol: lambda value: _sized(0xA3, value.encode("ascii")),
    bytes: partial(_sized, 0xA0),
    byte: _fixed(0x51, 8, signed=True),
    ubyte: _fixed(0x50, 8, signed=False),
    short: _fixed(0x61, 16, signed=True),
    ushort: _fixed(0x60, 16, signed=False),
    int32: _small(0x54, 32, 0x71, signed=True),
    uint: _small(0x52, 32, 0x70, signed=False),
    int: _small(0x55, 64, 0x81, signed=True),
    ulong: _small(0x53, 64, 0x80, signed=False),
    timestamp: write_time,
    float32: partial(struct.Struct(">Bf").pack, 0x72),
    float: partial(struct.Struct(">Bd").pack, 0x82),
    UUID: lambda value: b"\x98" + value.bytes,
}
"""How a primitive value is encoded, by its type; a subclass has none of these encodings."""


def write_value(value: Any) -> bytes | None:
    """Encode a value; None if it is not handled here, or if a list or map contains such a value."""
    try:
        return _written(value)
    except WRONG:
        return None


def _written(value: Any) -> bytes:
    """Encode a value. Raises WRONG."""
    match value:
        case list():
            return _compound(LIST, value)
        case dict():
            return _compound(MAP, [each for entry in value.items() for each in entry])
        case Described():
            return b"\x00" + WRITERS[type(value.descriptor)](value.descriptor) + _written(value.value)
    return WRITERS[type(value)](value)


def _compound(short_code: int, values: list[Any]) -> bytes:
    """Encode the values of a list, or the keys and values of a map. Raises WRONG."""
    count = len(values)
    if count > MAX_VALUES:
        raise ValueError("too many values")
    return write_compound(short_code, b"".join([WRITERS[type(each)](each) for each in values]), count)


def write_compound(short_code: int, octets: bytes, count: int) -> bytes:
    """Encode a list or map whose values are encoded; `count` includes the keys of a map."""
    size = len(octets) + 1
    if size < 256 and count < 256:
        return b"%c%c%c%b" % (short_code, size, count, octets)
    return struct.pack(">BII", short_code | 0x10, size + 3, count) + octets
