"""Heads of frames that differ in a few lines: what they share is read once. No I/O.

A broker sends thousands of messages whose heads have the same names in the same order, and of whose values most are
the same: only ids, times and the like differ. Such heads have a *shape*: a pattern in which the lines that differ are
groups and all others stand as they came. A head that a shape matches is read by that match, in half the time; any other
is read line by line by `codec.read`, to the same result, and teaches its shape one line more.

Spec: STOMP 1.2, augmented BNF; repeated header entries.
"""

from __future__ import annotations

import re
from typing import Any, Final

from brokers.stomp.codec import Frame, read, unescape

MAX_HEAD_OCTETS: Final = 4096
"""Octets of a head that may have a shape."""

MAX_SHAPES: Final = 64
"""Shapes that are known at a time, each a sequence of names."""

MAX_AT_HAND: Final = 8
"""Shapes that a head is held against, the latest first."""

MAX_PATTERNS: Final = 256
"""Patterns that are compiled for one session; a peer whose heads have no shape costs no more."""


class ShapedHeaders(dict[str, str]):
    """Headers of a frame whose head has a shape.

    Attributes:
        shape: the head's.
    """

    __slots__ = ("shape",)

    shape: HeadShape


class HeadShape:
    """What heads have in common that have the same names in the same order.

    Attributes:
        pattern: matches such heads; None until there was a second one.
        differing: names of headers whose values differ from head to head; all others have always the same.
        plan: what the reader of the headers keeps with their shape. It ends when the shape changes.
    """

    __slots__ = ("_first", "_headers", "_known", "differing", "pattern", "plan")

    def __init__(self, lines: list[str], headers: dict[str, str]) -> None:
        self.pattern: re.Pattern[str] | None = None
        self.differing: tuple[str, ...] = ()
        self.plan: Any = None
        self._first = lines
        self._known: list[str | None] = list(lines)  # None where they differ
        self._headers = headers

    def learn(self, lines: list[str]) -> None:
        """Make a pattern that matches one more head."""
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
        self.pattern = re.compile("\n".join(written))
        self.differing = tuple(names)
        self.plan = None

    def _is_repeated(self, position: int, name: str) -> bool:
        """Say whether the header stands further up too, where its value counts."""
        return any(unescape(line.partition(":")[0]) == name for line in self._first[1:position])

    def frame(self, found: re.Match[str], body: bytes) -> Frame:
        """Return the frame whose head the pattern matched."""
        headers = ShapedHeaders(self._headers)
        for name, value in zip(self.differing, found.groups(), strict=True):
            headers[name] = unescape(value) if "\\" in value else value
        headers.shape = self
        return Frame(self._first[0], headers, body)


class HeadReader:
    """Reads the frames of one session. Not thread-safe."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], HeadShape] = {}
        self._at_hand: list[HeadShape] = []
        self._patterns = 0

    def read(self, frame: bytes) -> Frame | None:
        """Read a whole frame with its NUL, as `codec.read` does and to the same result."""
        end = frame.find(b"\n\n")
        if not 0 <= end <= MAX_HEAD_OCTETS:
            return read(frame)
        head = frame[:end].decode("utf-8", "replace")
        for shape in self._at_hand:
            found = shape.pattern.fullmatch(head)  # type: ignore[union-attr]
            if found is not None:
                return shape.frame(found, frame[end + 2 : -1])
        made = read(frame)
        if made is not None and self._patterns < MAX_PATTERNS:
            self._learn(head.split("\n"), made.headers)
        return made

    def _learn(self, lines: list[str], headers: dict[str, str]) -> None:
        """Have the next head like this match a shape."""
        names = tuple(line.partition(":")[0] + ":" * (":" in line) for line in lines[1:])
        if not all(name.rstrip(":") and name.endswith(":") for name in names):
            return  # a line that is no header
        key = (lines[0], *names)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) < MAX_SHAPES:
                self._shapes[key] = HeadShape(lines, headers)
            return
        self._patterns += 1
        shape.learn(lines)
        if shape in self._at_hand:
            self._at_hand.remove(shape)
        self._at_hand.insert(0, shape)
        del self._at_hand[MAX_AT_HAND:]
