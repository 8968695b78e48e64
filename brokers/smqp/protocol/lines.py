"""A buffer of octets as they arrive, taken out as lines or blocks; its memory is limited. No I/O."""

from __future__ import annotations

from typing import Final

from brokers.smqp.protocol.dialect import STRICT, SmqpDialect

MAX_LINE_OCTETS: Final = 8 * 1024
"""Maximum length of a line without its end, in octets."""


class TooLongError(ValueError):
    """A line exceeds the maximum length; it was skipped to its end."""


class Octets:
    """A buffer that is filled at its end and emptied at its beginning.

    Args:
        dialect: decides whether LF alone ends a line.
        max_line: maximum length of a line, in octets.
    """

    def __init__(self, dialect: SmqpDialect = STRICT, max_line: int = MAX_LINE_OCTETS) -> None:
        self._end = b"\n" if dialect.bare_line_feeds else b"\r\n"
        self._max_line = max_line
        self._held = bytearray()
        self._at = 0
        self._searched = 0
        self._is_skipping = False

    def __len__(self) -> int:
        """Return the number of octets that were not taken out."""
        return len(self._held) - self._at

    def feed(self, data: bytes) -> None:
        """Add octets."""
        self._let_go()
        self._held += data

    def _let_go(self) -> None:
        """Free the octets that were taken out."""
        if self._at:
            del self._held[: self._at]
            self._searched = max(0, self._searched - self._at)
            self._at = 0

    def line(self) -> bytes | None:
        """Take a line without its end; return None if it is incomplete.

        Raises:
            TooLongError: the line was too long; it was skipped, and the next line can be taken.
        """
        found = self._held.find(self._end, max(self._at, self._searched - 1))
        if found < 0:
            self._searched = len(self._held)
            if len(self) > self._max_line + len(self._end):
                self._is_skipping = True
                del self._held[: len(self._held) - 1]  # the last octet may be the first of the line's end
                self._at = self._searched = 0
            self._let_go()
            return None
        line = bytes(memoryview(self._held)[self._at : found]) if not self._is_skipping else b""
        too_long = self._is_skipping or found - self._at > self._max_line
        self._at = self._searched = found + len(self._end)
        self._is_skipping = False
        if too_long:
            raise TooLongError(f"a line must have at most {self._max_line} octets")
        return line.removesuffix(b"\r") if self._end == b"\n" else line

    def some(self, limit: int) -> bytes:
        """Take all available octets, up to `limit`."""
        taken = bytes(memoryview(self._held)[self._at : self._at + limit])
        self._at += len(taken)
        if self._at == len(self._held):
            self._let_go()
        return taken

    def peek(self) -> bytes:
        """Return the next octet without taking it; empty if there is none."""
        return bytes(self._held[self._at : self._at + 1])
