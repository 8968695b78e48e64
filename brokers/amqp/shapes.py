"""Heads of messages that differ in few values: the shared values are decoded once. No I/O.

A broker sends thousands of messages whose sections before the body (the *head*) differ only in ids, times and the
like, which mostly have the same length. Such heads have a *shape*: a pattern in which the values that differ are groups
and all other octets are fixed. A head that matches a shape is decoded by that match; any other head is decoded section
by section, and starts a shape or extends one.

Spec: AMQP 1.0 part 1, sections 1.2 (encoding) and 1.6 (primitive types); part 3, section 3.2 (message format).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from brokers.amqp.primitives import COMPOUND, CONSTANTS, EMPTY_LIST, FIXED, NULL, SIZED, WRONG
from brokers.amqp.sections import BODIES, PLAIN, AmqpSection

MAX_HEAD_OCTETS: Final = 4096
"""Maximum size of a head that can have a shape, in octets."""

MAX_SHAPES: Final = 256
"""Maximum number of layouts that are remembered; beyond it, other heads are decoded section by section."""

MAX_AT_HAND: Final = 16
"""Number of shapes that a head is compared with, most recent first."""

MAX_PATTERNS: Final = 256
"""Maximum number of patterns that are compiled for one link, even if its heads have nothing in common."""

TEXTS: Final = frozenset({0xA1, 0xA3})
"""Constructors of the keys of a map."""


class Leaf(NamedTuple):
    """A primitive value of a head.

    Attributes:
        section: section that contains the value.
        key: index in a list, or key in a map.
        code: constructor of the value.
        begin: index of the first octet after the constructor and the size.
        end: index after the last octet.
    """

    section: AmqpSection
    key: int | str
    code: int
    begin: int
    end: int

    @property
    def read(self) -> Callable[[Any], Any]:
        """The function that decodes the octets of the value."""
        return (SIZED.get(self.code) or FIXED[self.code])[1]


def leaves_of(octets: bytes) -> tuple[int, tuple[Leaf, ...]]:
    """Return the size of the head that the octets begin with, and its values.

    Raises:
        LookupError, ValueError: the head contains anything but lists and maps of primitive values, repeats a section or
            a key, or has no body after it.
    """
    at, leaves, sections = 0, list[Leaf](), set[AmqpSection]()
    while (section := PLAIN[octets[at : at + 3]]) not in BODIES:
        if section in sections:
            raise ValueError("a section is repeated")
        sections.add(section)
        at = _add_leaves(octets, at + 3, section, leaves)
    if len({(each.section, each.key) for each in leaves}) != len(leaves):
        raise ValueError("a key is repeated")
    return at, tuple(leaves)


def _add_leaves(octets: bytes, at: int, section: AmqpSection, leaves: list[Leaf]) -> int:
    """Add the values of one section, and return the index after it."""
    if octets[at] == EMPTY_LIST:
        return at + 1
    width, is_map = COMPOUND[octets[at]]
    begin = at + 1 + width
    end = begin + int.from_bytes(octets[at + 1 : begin], "big")
    count = int.from_bytes(octets[begin : begin + width], "big")
    at, key = begin + width, ""
    for number in range(count):
        code = octets[at]
        at += 1
        if code in SIZED:
            size_width = SIZED[code][0]
            size = int.from_bytes(octets[at : at + size_width], "big")
            at += size_width
        else:
            size = 0 if code == NULL or code in CONSTANTS else FIXED[code][0]
        if not is_map or number % 2:
            leaves.append(Leaf(section, key if is_map else number, code, at, at + size))
        elif code in TEXTS:
            key = octets[at : at + size].decode()
        else:
            raise ValueError("a key is not text")
        at += size
    if at != end:
        raise ValueError("the size of a section does not match its values")
    return end


class SectionShape:
    """The common part of heads with the same layout: values of the same sections, keys, types and sizes.

    Attributes:
        octets: the first head of the shape.
        differing: the values that differ from head to head, in the order of the pattern's groups.
        plan: data kept by the reader of the heads. It is dropped when the shape changes.
    """

    __slots__ = ("differing", "octets", "plan")

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self.differing: tuple[Leaf, ...] = ()
        self.plan: Any = None

    def learn(self, octets: bytes, leaves: tuple[Leaf, ...]) -> re.Pattern[bytes]:
        """Return the pattern of the heads learned so far and of one more. Not all match if more than values differ."""
        self.differing = tuple(
            each
            for each in leaves
            if each in self.differing or octets[each.begin : each.end] != self.octets[each.begin : each.end]
        )
        written, at = b"", 0
        for leaf in self.differing:
            written += re.escape(octets[at : leaf.begin]) + b"(.{%d})" % (leaf.end - leaf.begin)
            at = leaf.end
        self.plan = None
        return re.compile(written + re.escape(octets[at:]), re.DOTALL)


class SectionShapes:
    """The shapes of the heads that arrive at one link. Not thread-safe.

    Args:
        max_shapes: maximum number of layouts that are remembered.
        max_head: maximum size of a head that can have a shape, in octets.
    """

    def __init__(self, max_shapes: int = MAX_SHAPES, max_head: int = MAX_HEAD_OCTETS) -> None:
        self._max_shapes = max_shapes
        self._max_head = max_head
        self._shapes: dict[tuple[Leaf, ...], SectionShape] = {}
        self._at_hand: list[tuple[re.Pattern[bytes], SectionShape]] = []
        self._patterns = 0

    def match(self, octets: bytes) -> tuple[SectionShape, re.Match[bytes]] | None:
        """Return the shape of the head that the octets begin with, and its match; None if no shape at hand matches."""
        for pattern, shape in self._at_hand:
            found = pattern.match(octets)
            if found is not None:
                return shape, found
        return None

    def learn(self, octets: bytes) -> None:
        """Let the next head of this layout match a shape."""
        if self._patterns >= MAX_PATTERNS:
            return
        try:
            size, leaves = leaves_of(octets[: self._max_head])
        except WRONG:
            return
        head, shape = octets[:size], self._shapes.get(leaves)
        if shape is None:
            if len(self._shapes) < self._max_shapes:
                self._shapes[leaves] = SectionShape(head)
            return
        self._patterns += 1
        self._at_hand = [each for each in self._at_hand if each[1] is not shape]
        pattern = shape.learn(head, leaves)
        if pattern.match(shape.octets) is not None:  # otherwise more than values differ
            self._at_hand.insert(0, (pattern, shape))
            del self._at_hand[MAX_AT_HAND:]
