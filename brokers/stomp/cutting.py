"""Cutting what a socket brings into whole frames, in time that grows with its length and no faster.

stomp.py cuts too, but begins anew with each piece that holds a NUL, and copies what it holds for each frame: a message
of 40 MiB with NULs in it took five seconds. So it is given whole frames, one at a time. No I/O in here, and no header
is read but the one that says how long the body is.

Spec: STOMP 1.2, augmented BNF; content-length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from brokers.errors import ConnectionLostError

HEAD_ENDS: Final = re.compile(rb"\n\r?\n")
"""The end of the headers."""

LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r?\n")
NUL: Final = 0
ENDS_OF_LINES: Final = b"\r\n"
LONGEST_END: Final = 3
"""Octets that the end of the headers has at most."""


class Cutter:
    """Whole frames, out of octets that come in any pieces."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._start = 0
        self._looked = 0  # before this the next thing to look for is not
        self._end = 0  # of the frame that begins at `start`, where its content-length told it
        self._has_head = False

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Take octets, and yield the frames that are whole with them, each with its NUL.

        Ends of lines between frames, which are signs of life, are dropped.

        Raises:
            ConnectionLostError: no NUL follows a body; where the next frame begins is not known then.
        """
        self._held += data
        while self._is_whole():
            yield bytes(memoryview(self._held)[self._start : self._end])  # one copy, not two
            self._start = self._looked = self._end
            self._end, self._has_head = 0, False
        del self._held[: self._start]
        self._looked -= self._start
        self._end -= self._start if self._end else 0
        self._start = 0

    def _is_whole(self) -> bool:
        """Look for the end of the frame that begins at `start`, and say whether it is there."""
        if not self._has_head and not self._find_head():
            return False
        if not self._end:
            found = self._held.find(NUL, self._looked)
            self._looked = len(self._held)
            self._end = found + 1
        elif self._end <= len(self._held) and self._held[self._end - 1] != NUL:
            raise ConnectionLostError("the broker sent a frame that does not end where its content-length says")
        return 0 < self._end <= len(self._held)

    def _find_head(self) -> bool:
        """Look for the end of the headers, and for what they say of the end of the frame."""
        held = self._held
        while self._start < len(held) and held[self._start] in ENDS_OF_LINES:
            self._start += 1
        since = max(self._start, self._looked - LONGEST_END)
        found = HEAD_ENDS.search(held, since)
        end = len(held) if found is None else found.end()
        nul = held.find(NUL, since, end)  # a frame that is not even as long as its headers
        if nul >= 0:
            self._has_head, self._looked = True, nul
            return True
        self._looked = end
        if found is None:
            return False
        self._has_head = True
        length = LENGTH.search(held, self._start, end)
        if length is not None:
            self._end = end + int(length[1]) + 1
        return True
