"""Limits that keep proton from running out of stack or memory for the values that a peer sends.

If nested lists use up the stack, the process ends. Threads have a stack of `ulimit -s`, on some systems 128 KiB. Each
value takes some 70 octets of memory, even if it has no octets on the wire.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

from brokers.threads.thread import Thread

T = TypeVar("T")

STACK_OCTETS: Final = 8 << 20
"""Stack size of threads that use proton, in octets. Its maximum of 65,535 nested lists needs half of it."""

SHALLOW_LEVELS: Final = 500
"""Number of nested levels that the stack of every thread can hold."""

_COMPOUND: Final = (b"\x00", b"\xc0", b"\xc1", b"\xd0", b"\xd1", b"\xe0", b"\xf0")
"""Constructors of values that contain others: described values, lists, maps and arrays."""

MAX_FRAME_VALUES: Final = 1000
"""Maximum number of values in a frame: proton keeps the values of each link, which could be some 65,000 per field."""

_DESCRIBED_CODE: Final = 0
_NULL_CODE: Final = 0x40
_FIRST_ARRAY: Final = 0xE0

FIRST_SIZED: Final = 0xA0
"""The first constructor of values with a size in octets."""

FIRST_COMPOUND: Final = 0xC0
"""The first constructor of values that contain others."""

WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16, 0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
"""Number of octets after a constructor, by its upper four bits: of the value, or of its size. Spec: 1.2."""

_starting: Final = Lock()


def start(thread: Thread) -> None:
    """Start a thread with a stack of at least `STACK_OCTETS`.

    Raises:
        RuntimeError: the thread could not be started.
    """
    with _starting:
        before = threading.stack_size()
        threading.stack_size(max(before, STACK_OCTETS))
        try:
            thread.start()
        finally:
            threading.stack_size(before)


def is_shallow(octets: memoryview) -> bool:
    """Return whether the first value cannot be nested deeply enough to endanger the stack; False if unknown."""
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
    """Return the end of the value at a position, or None if it is described, of an unknown kind, or truncated.

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
    """Return whether there are more than `MAX_FRAME_VALUES` values, or arrays of arrays or of described values.

    The elements of an array may take no octets, so a few octets may hold tens of thousands of values.

    Args:
        octets: the encoded values.
        at: start of the first value.
        end: end of the last value.
    """
    if end - at <= MAX_FRAME_VALUES and b"\xe0" not in octets[at:end] and b"\xf0" not in octets[at:end]:
        return False  # only the elements of an array may take less than one octet
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
            at = after + width  # the contained values follow
        else:
            at = after + (size if code >= FIRST_SIZED else 0)
    return left < 0


def with_stack(work: Callable[[], T]) -> T:
    """Run `work` on a thread with enough stack, and return its result.

    Raises:
        RuntimeError: the thread could not be started. Any exception of `work` is raised too.
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
        raise errors.pop()  # otherwise it would be in a cycle with this frame, and proton's objects with it
    return results[0]
