"""The members of a gzip file, read one by one; a torn or damaged one does not affect the others.

The standard library's reader raises at the first damage, and loses what comes before and after it.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from soapjms.protocol.text import reason_of

GZIP_BITS: Final = 31
"""zlib's window bits for gzip."""
GZIP_CHUNK_OCTETS: Final = 1 << 16
"""Octets of a file that are read at a time, and octets of content that are unpacked at a time."""
MAX_HELD_OCTETS: Final = 1 << 20
"""Size of content up to which a member is yielded only after all of it was read; `CaptureLog` writes smaller ones."""
PROBE_OCTETS: Final = 1 << 7
"""Number of octets that must be sound at the beginning of a possible member."""
FIRST_READ_OCTETS: Final = 1 << 12
"""Octets of the first read of a member, or of a search for one: torn members are often small, and the next is near."""
REREAD_FACTOR: Final = 4
SPARE_REREAD_OCTETS: Final = 16 << 20
"""Octets that may be read again to find members behind damage: these, plus `REREAD_FACTOR` times the file's size."""
REREAD_RATIO: Final = 32
"""Octets of content that count as one octet read again: capture logs compress less, and a gzip bomb far more."""

HEADER: Final = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
"""The beginning of a member: the magic number, the only compression method, and no reserved flag."""
HEADER_LENGTH: Final = 4

ENDS: Final = "the gzip stream breaks off here: the file ends before the stream does"
ANOTHER: Final = "the gzip stream breaks off here: another begins before it ends"
SPENT: Final = "; too much is damaged to look for what may follow"


class GzipPiece(NamedTuple):
    """A piece of a gzip file's content.

    Attributes:
        octets: octets of the content.
        end: position in the file where their member ends, if they are its last; for a torn one, where the next begins.
        problem: why the content breaks off after them, or None.
    """

    octets: bytes
    end: int | None = None
    problem: str | None = None


def pieces(stream: BinaryIO, end: int | None = None) -> Iterator[GzipPiece]:
    """Read the members of a gzip file from the stream's position on; after a torn one, go on with the next.

    Of a torn member, the content before the damage is yielded. Nothing shows where it should have ended, so the next
    member could be taken for a part of it: members of the usual size are held until their end was read, and a torn one
    ends where another begins. The work is bounded, even for a file that was made to be reread again and again.

    Args:
        stream: the open file.
        end: members that begin there or later are not read; None to read all.
    """
    position: int | None = stream.tell()
    walk = _Walk(stream)
    while position is not None:
        position = walk.past_padding(position)
        if position is None or (end is not None and position >= end):
            return
        for piece in walk.member(position):
            yield piece
            position = piece.end


class _Walk:
    """Walks through the members of a file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = stream.seek(0, io.SEEK_END)
        self._again = 0

    def past_padding(self, position: int) -> int | None:
        """Return where the next member begins, after the zeros that may stand between members; None at the end."""
        if position == 0:  # an empty file is not valid gzip, and must be reported
            return 0
        self._stream.seek(position)
        while octets := self._stream.read(GZIP_CHUNK_OCTETS):
            left = octets.lstrip(b"\0")
            if left:
                return position + len(octets) - len(left)
            position += len(octets)
        return None

    def member(self, start: int) -> Iterator[GzipPiece]:
        """Read one member; the last piece says where it ends, or why it breaks off."""
        held: list[bytes] = []
        size, position, rest, step = 0, start, b"", FIRST_READ_OCTETS
        before = inflater = zlib.decompressobj(GZIP_BITS)
        self._stream.seek(start)
        while rest := rest or self._stream.read(step):
            before = inflater.copy()
            try:
                octets = inflater.decompress(rest, GZIP_CHUNK_OCTETS)
            except zlib.error:
                break
            size += len(octets)
            held.append(octets)
            if inflater.eof:
                yield GzipPiece(b"".join(held), self._stream.tell() - len(inflater.unused_data))
                return
            position += len(rest) - len(inflater.unconsumed_tail)
            rest, step = inflater.unconsumed_tail, min(2 * step, GZIP_CHUNK_OCTETS)
            if size > MAX_HELD_OCTETS:
                yield GzipPiece(b"".join(held))
                held.clear()
        else:
            before = inflater
        seen = position + len(rest)
        following = self._next(start)
        if following is not None:
            self._again += max(0, seen - following) + size // REREAD_RATIO
        if size <= MAX_HELD_OCTETS:
            yield from self._torn(zlib.decompressobj(GZIP_BITS), start, following)
        else:
            yield GzipPiece(b"".join(held))
            yield from self._torn(before, position, following)

    def _torn(self, inflater: Any, position: int, following: int | None) -> Iterator[GzipPiece]:
        """Yield the content of a torn member from a position up to the damage, or up to the next member."""
        step, problem = GZIP_CHUNK_OCTETS, ENDS if following is None else ANOTHER
        while True:
            self._stream.seek(position)
            piece = self._stream.read(step if following is None else max(0, min(step, following - position)))
            attempt = inflater.copy()
            try:
                octets = attempt.decompress(piece, GZIP_CHUNK_OCTETS)
            except zlib.error as error:  # a piece with damage yields nothing: approach the damage in smaller steps
                step = len(piece) // 2
                if step:
                    continue
                left = (self._size if following is None else following) - position
                problem = (
                    f"the gzip stream is damaged here ({reason_of(error)}); the {left} octets that follow are not read"
                )
                break
            if not (piece or octets):
                break
            inflater, position = attempt, position + len(piece) - len(attempt.unconsumed_tail)
            yield GzipPiece(octets)
        yield GzipPiece(b"", following, problem + SPENT if following is None and self._is_spent else problem)

    @property
    def _is_spent(self) -> bool:
        """Whether so much was read again that no further member is searched for."""
        return self._again > SPARE_REREAD_OCTETS + REREAD_FACTOR * self._size

    def _next(self, start: int) -> int | None:
        """Return the position of the member after a torn one that begins at `start`, or None."""
        position: int | None = start + 1
        while position is not None and not self._is_spent:
            position = self._find(position)
            if position is not None and self._is_sound(position):
                return position
            position = None if position is None else position + 1
        return None

    def _find(self, position: int) -> int | None:
        """Return the next position that looks like the beginning of a member, or None."""
        self._stream.seek(position)
        size, window = FIRST_READ_OCTETS, b""
        self._again += size
        while octets := self._stream.read(size):
            window += octets
            found = HEADER.search(window)
            if found is not None:
                return position + found.start()
            position += max(0, len(window) - HEADER_LENGTH + 1)
            window = window[1 - HEADER_LENGTH :]
            size = GZIP_CHUNK_OCTETS
        return None

    def _is_sound(self, position: int) -> bool:
        """Say whether at least the first octets of a possible member can be unpacked."""
        self._stream.seek(position)
        try:
            zlib.decompressobj(GZIP_BITS).decompress(self._stream.read(PROBE_OCTETS), GZIP_CHUNK_OCTETS)
        except zlib.error:
            return False
        return True


class GzipStream(io.RawIOBase):
    """The content of a gzip file as a stream, which ends at each damaged place; `problem` then says why.

    Attributes:
        problem: why the content breaks off here; set it to None to read on behind the damage.

    Args:
        stream: the file, at the beginning of a member.
        end: members that begin there or later are not read; None to read all.
    """

    def __init__(self, stream: BinaryIO, end: int | None = None) -> None:
        self.problem: str | None = None
        self._pieces = pieces(stream, end)
        self._left = memoryview(b"")
        self._coming: str | None = None

    def readable(self) -> bool:
        """Return True, as BufferedReader demands."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next octets; return 0 at the end and at a problem."""
        while not self._left and self.problem is None:
            self.problem, self._coming = self._coming, None
            if self.problem is None:
                piece = next(self._pieces, None)
                if piece is None:
                    return 0
                self._left, self._coming = memoryview(piece.octets), piece.problem
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
