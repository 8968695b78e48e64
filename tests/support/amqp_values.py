"""Values of AMQP as proton encodes and decodes them, to compare with."""

from __future__ import annotations

from typing import Any

from proton import Data


def encoded(value: Any) -> bytes:
    """Encode a value as proton does."""
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def by_proton(octets: bytes) -> tuple[int, Any]:
    """Decode the first value as proton does, with octets that are views of its memory as octets."""
    data = Data()
    size = data.decode(octets)
    data.rewind()
    data.next()
    return size, owned(data.get_object())


def owned(value: Any) -> Any:
    """Return a value with octets of its own."""
    match value:
        case memoryview():
            return bytes(value)
        case list():
            return [owned(each) for each in value]
        case dict():
            return {owned(key): owned(each) for key, each in value.items()}
    return value


def typed(value: Any) -> Any:
    """Show a value with the types of all that is in it: to Python a ubyte equals a ulong, and -0.0 equals 0.0."""
    match value:
        case list():
            return [typed(each) for each in value]
        case dict():
            return [(typed(key), typed(each)) for key, each in value.items()]
    return type(value), repr(value)
