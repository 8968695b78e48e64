"""Reading gzip up to where it breaks: the standard library's reader raises, and what came before is lost with it."""

from __future__ import annotations

import io
import zlib
from typing import Any, BinaryIO, Final

CHUNK: Final = 1 << 18


class Inflated(io.RawIOBase):
    """The content of a gzip file of one or more members, up to where it breaks: then `problem` says why.

    Args:
        stream: the file, from the beginning of a member on.
        end: octets of the file that are read; None for all.
    """

    def __init__(self, stream: BinaryIO, end: int | None = None) -> None:
        self.problem: str | None = None
        self._stream = stream
        self._end = end
        self._input = memoryview(b"")
        self._step = CHUNK  # octets of input for the inflater at a time
        self._inflater = zlib.decompressobj(wbits=31)
        self._within_member = False
        self._members = 0

    def readable(self) -> bool:
        """Say yes, as BufferedReader asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what comes next; 0 at the end or where the stream breaks."""
        while self.problem is None and self._begin_member():
            octets = self._inflate(len(buffer))
            if octets:
                buffer[: len(octets)] = octets
                return len(octets)
        return 0

    def _begin_member(self) -> bool:
        """Stay in the member or go to the next; False after the last one and its padding of zeros, if it has one."""
        while not self._within_member:
            if not self._fill() and self._members:
                return False
            self._input = memoryview(bytes(self._input).lstrip(b"\0")) if self._members else self._input
            if self._input or not self._members:
                self._members += 1
                self._within_member = True
                self._inflater = zlib.decompressobj(wbits=31)
        return True

    def _fill(self) -> bool:
        if not self._input:
            left = CHUNK if self._end is None else max(0, self._end - self._stream.tell())
            self._input = memoryview(self._stream.read(min(CHUNK, left)))
        return bool(self._input)

    def _inflate(self, room: int) -> bytes:
        """Return some octets; none where more input is needed, the member has ended, or `problem` was found."""
        at_end = not self._fill()
        before = self._inflater.copy()
        piece = self._input[: self._step]
        try:
            octets = self._inflater.decompress(piece, room)
        except zlib.error as error:
            self._recover(before, error)
            return b""
        if at_end and not octets:
            self.problem = "the gzip stream breaks off here: the file ends before the stream does"
        unused = len(self._inflater.unused_data or self._inflater.unconsumed_tail)
        self._input = self._input[len(piece) - unused :]
        self._within_member = not self._inflater.eof
        return octets

    def _recover(self, before: Any, error: zlib.error) -> None:
        """Go back and feed octet by octet: the inflater gives out nothing of a piece that has damage in it."""
        if self._step > 1:
            self._inflater, self._step = before, 1
            return
        here = self._stream.tell()
        left = len(self._input) + self._stream.seek(0, io.SEEK_END) - here
        self.problem = f"the gzip stream is damaged here ({error}); the {left} octets that follow are not read"
