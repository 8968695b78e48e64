"""Heads of frames that differ in a few lines: the shared lines are parsed once. No I/O.

A broker sends thousands of messages whose heads have the same names in the same order and mostly the same values: only
ids, times and the like differ. Such heads have a *shape*: a pattern in which the lines that differ are groups and all
other lines are fixed. A head that matches a shape is read by that match, in half the time; `codec.read` parses any
other head line by line, with the same result, and the shape is extended to match that head too.

Spec: STOMP 1.2, augmented BNF; repeated header entries.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from brokers.stomp.codec import Frame, WholeFrame, new_frame, read, unescape

MAX_HEAD_OCTETS: Final = 4096
"""Maximum size of a head that can have a shape, in octets."""

MAX_SHAPES: Final = 64
"""Maximum number of shapes that are remembered; beyond it, other heads are parsed line by line."""

MAX_AT_HAND: Final = 8
"""Number of shapes that a head is compared with, most recent first."""

MAX_PATTERNS: Final = 256
"""Maximum number of patterns that are compiled for one session, even if its heads have nothing in common."""


class ShapedHeaders(dict[str, str]):
    """Headers of a frame whose head has a shape.

    Attributes:
        shape: the shape of the head.
    """

    __slots__ = ("shape",)

    shape: HeadShape


class HeadShape:
    """The common part of heads that have the same names in the same order.

    Attributes:
        differing: names of the headers whose values differ from head to head, in the order of the pattern's groups.
        plan: data kept by the reader of the headers. It is dropped when the shape changes.
    """

    __slots__ = ("_first", "_headers", "_known", "differing", "plan")

    def __init__(self, lines: list[str], headers: dict[str, str]) -> None:
        self.differing: tuple[str, ...] = ()
        self.plan: Any = None
        self._first = lines
        self._known: list[str | None] = list(lines)  # None where they differ
        self._headers = headers

    def learn(self, lines: list[str]) -> re.Pattern[str]:
        """Return a pattern that matches all heads learned so far and one more."""
        written, names = [], []
        for position, line in enumerate(lines):
            if self._known[position] == line:
                written.append(re.escape(line))
                continue
            self._known[position] = None
            raw = line.partition(":")[0]
            name = unescape(raw)
            is_first = name not in names and not self._is_repeated(position, name)
            written.append(f"{re.escape(raw)}:{'(' if is_first else '(?:'}[^\n\r]*)")
            names += [name] * is_first
        self.differing = tuple(names)
        self.plan = None
        return re.compile("\n".join(written))

    def _is_repeated(self, position: int, name: str) -> bool:
        """Return whether an earlier line has the same name, so that this one does not count."""
        return any(unescape(line.partition(":")[0]) == name for line in self._first[1:position])

    def frame(self, found: re.Match[str], body: bytes) -> Frame:
        """Return the frame whose head the pattern of the shape matched."""
        headers = ShapedHeaders(self._headers)
        headers.shape = self
        for name, value in zip(self.differing, found.groups(), strict=True):
            if "\\" in value:  # mostly colons alone are escaped
                plain = value.replace("\\c", ":")
                value = plain if "\\" not in plain else unescape(value)
            headers[name] = value
        return new_frame((self._first[0], headers, body, 0, ""))


class ShapePattern(NamedTuple):
    """The pattern that matches all heads of a shape, and the shape."""

    pattern: re.Pattern[str]
    shape: HeadShape


class HeadReader:
    """Parses the frames of one session. Not thread-safe."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], HeadShape] = {}
        self._at_hand: list[ShapePattern] = []
        self._patterns = 0

    def read(self, frame: WholeFrame) -> Frame | None:
        """Parse a complete frame, with the same result as `codec.read`."""
        if len(frame.head) > MAX_HEAD_OCTETS + 2 or not frame.head.endswith(b"\n\n"):
            return read(frame)
        head = frame.head[:-2].decode("utf-8", "replace")
        for pattern, shape in self._at_hand:
            found = pattern.fullmatch(head)
            if found is not None:
                return shape.frame(found, frame.body)
        made = read(frame)
        if made is not None and self._patterns < MAX_PATTERNS:
            self._learn(head.split("\n"), made.headers)
        return made

    def _learn(self, lines: list[str], headers: dict[str, str]) -> None:
        """Let the next head like this one match a shape."""
        names = tuple(line.partition(":")[0] + ":" * (":" in line) for line in lines[1:])
        if not all(name.rstrip(":") and name.endswith(":") for name in names):
            return  # a line without a colon or a name
        key = (lines[0], *names)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) < MAX_SHAPES:
                self._shapes[key] = HeadShape(lines, headers)
            return
        self._patterns += 1
        latest = ShapePattern(shape.learn(lines), shape)
        self._at_hand = [latest, *(each for each in self._at_hand if each.shape is not shape)][:MAX_AT_HAND]
