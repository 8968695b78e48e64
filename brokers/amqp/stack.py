"""Stack and memory enough for proton, which takes some of them for each value that a peer sends.

Where the stack is used up by lists within lists, the process ends. Threads have as much as `ulimit -s` says, and on
some systems 128 KiB. Of the memory a value takes some 70 octets, though it may have been none on the way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

from brokers.threads.thread import Thread

T = TypeVar("T")

STACK_OCTETS: Final = 8 << 20
"""Octets. As many lists within each other as proton takes, 65,535, need half of it."""

SHALLOW_LEVELS: Final = 500
"""Levels that any thread has stack for."""

_COMPOUND: Final = (b"\x00", b"\xc0", b"\xc1", b"\xd0", b"\xd1", b"\xe0", b"\xf0")
"""How values begin that others are in: what is described, lists, maps and arrays."""

MAX_FRAME_VALUES: Final = 1000
"""Values that a frame may have: proton keeps those of each link, which otherwise has room for some 65,000 a field."""

_DESCRIBED_CODE: Final = 0
_NULL_CODE: Final = 0x40
_FIRST_ARRAY: Final = 0xE0

FIRST_SIZED: Final = 0xA0
"""The first constructor of values that say how many octets they have."""

FIRST_COMPOUND: Final = 0xC0
"""The first constructor of values that others are in."""

WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16, 0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
"""Octets that follow the constructor of a value, by its first half: of the value, or of its size. Spec: 1.2."""

_starting: Final = Lock()


def start(thread: Thread) -> None:
    """Start a thread that has stack enough.

    Raises:
        RuntimeError: there is none to be had.
    """
    with _starting:
        before = threading.stack_size()
        threading.stack_size(max(before, STACK_OCTETS))
        try:
            thread.start()
        finally:
            threading.stack_size(before)


def is_shallow(octets: memoryview) -> bool:
    """Say whether the value at the beginning cannot have others so deep within that stack matters; False if unknown."""
    at = 0
    if octets and octets[0] == _DESCRIBED_CODE:
        found = _end(octets, 1)
        if found is None:
            return False
        at = found
    end = _end(octets, at)
    if end is None:
        return False
    if octets[at] < FIRST_COMPOUND:
        return True
    held = bytes(octets[:end])
    return sum(held.count(each) for each in _COMPOUND) <= SHALLOW_LEVELS


def _end(octets: memoryview, at: int) -> int | None:
    """Return where the value at a place ends; None if it is described, of no known kind, or cut off.

    Spec: AMQP 1.0 part 1, 1.2.
    """
    if at >= len(octets):
        return None
    width = WIDTHS.get(octets[at] >> 4)
    if width is None:
        return None
    end = at + 1 + width
    if octets[at] >= FIRST_SIZED:
        end += int.from_bytes(octets[at + 1 : at + 1 + width], "big")
    return end if end <= len(octets) else None


def has_many_values(octets: bytes, at: int, end: int) -> bool:
    """Say whether values have more within them than `MAX_FRAME_VALUES`, or arrays of arrays or of described values.

    The elements of an array may take no octets, so that a few are tens of thousands.

    Args:
        octets: what they are in.
        at: where the first begins.
        end: where the last ends.
    """
    if end - at <= MAX_FRAME_VALUES and b"\xe0" not in octets[at:end] and b"\xf0" not in octets[at:end]:
        return False  # nothing but an element of an array has less than an octet
    left = MAX_FRAME_VALUES
    while at < end and left >= 0:
        code = octets[at]
        width = WIDTHS.get(code >> 4, 0)
        after = at + 1 + width
        size = int.from_bytes(octets[at + 1 : after], "big")
        left -= 1
        if code >= _FIRST_ARRAY:
            element = octets[after + width] if after + width < end else _NULL_CODE
            count = int.from_bytes(octets[after : after + width], "big")
            is_flat = _DESCRIBED_CODE < element < _FIRST_ARRAY
            left -= (count if element < FIRST_COMPOUND else count + size) if is_flat else MAX_FRAME_VALUES + 1
            at = after + size
        elif code >= FIRST_COMPOUND:
            at = after + width  # what is within follows
        else:
            at = after + (size if code >= FIRST_SIZED else 0)
    return left < 0


def with_stack(work: Callable[[], T]) -> T:
    """Do something on a thread that has stack enough, and wait for it.

    Raises:
        RuntimeError: there is no thread to be had; else what the work raised.
    """
    results, errors = list[T](), list[BaseException]()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, name="amqp values", daemon=True)
    start(thread)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
