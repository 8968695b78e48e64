"""Reading gzip with damage in it: members are read one by one, and a torn one takes nothing of the others with it.

The standard library's reader raises at the first damage, and what comes before and after it is lost.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

GZIP_BITS: Final = 31
"""The window bits that have zlib read gzip."""
CHUNK: Final = 1 << 16
"""Octets of a file that are read at a time, and of content that are unpacked at a time."""
HELD: Final = 1 << 20
"""Octets of content up to which a member is given out only when it was seen whole; `CaptureLog` writes smaller ones."""
PROBE: Final = 1 << 7
"""Octets at the beginning of what may be a member that have to be sound."""
LOOK: Final = 1 << 12
"""Octets that are read first of a member, and to find one: a torn one is often small, and the next near."""
AGAIN: Final = 4
SPARE: Final = 16 << 20
"""Octets that may be gone through again to find members behind damage: these, and `AGAIN` for each of the file."""
RATIO: Final = 32
"""Octets of content that count as one gone through again: more than a capture log has, and a bomb has a thousand."""

HEADER: Final = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
"""How a member begins: the magic number, the one method that there is, and no flag that is reserved."""
HEADER_LENGTH: Final = 4

ENDS: Final = "the gzip stream breaks off here: the file ends before the stream does"
ANOTHER: Final = "the gzip stream breaks off here: another begins before it ends"
SPENT: Final = "; too much is damaged to look for what may follow"


class Piece(NamedTuple):
    """Some of what a gzip file holds.

    Attributes:
        octets: of the content.
        end: where in the file their member ends, if they are the last of it; of a torn one, where the next begins.
        problem: why its content breaks off after them.
    """

    octets: bytes
    end: int | None = None
    problem: str | None = None


def pieces(stream: BinaryIO, end: int | None = None) -> Iterator[Piece]:
    """Read the members of a gzip file from where a stream is; behind a torn one go on with the next.

    Of a torn member what comes before the damage is given out. Nothing tells where it was to end, so that the next may
    be taken for a part of it: members of the usual size are held until their end was seen, and a torn one ends where
    another begins. The work is bounded, also with a file that was made to be gone through again and again.

    Args:
        stream: of a file.
        end: members that begin there or later are not read; None for all.
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
    """Goes through the members of a file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = stream.seek(0, io.SEEK_END)
        self._again = 0

    def past_padding(self, position: int) -> int | None:
        """Return where the next member begins, behind the zeros that may stand between members; None at the end."""
        if position == 0:  # of nothing no gzip is made
            return 0
        self._stream.seek(position)
        while octets := self._stream.read(CHUNK):
            left = octets.lstrip(b"\0")
            if left:
                return position + len(octets) - len(left)
            position += len(octets)
        return None

    def member(self, start: int) -> Iterator[Piece]:
        """Read one member; the last piece says where it ends, or why it has no end."""
        held: list[bytes] = []
        size, position, rest, step = 0, start, b"", LOOK
        before = inflater = zlib.decompressobj(GZIP_BITS)
        self._stream.seek(start)
        while rest := rest or self._stream.read(step):
            before = inflater.copy()
            try:
                octets = inflater.decompress(rest, CHUNK)
            except zlib.error:
                break
            size += len(octets)
            held.append(octets)
            if inflater.eof:
                yield Piece(b"".join(held), self._stream.tell() - len(inflater.unused_data))
                return
            position += len(rest) - len(inflater.unconsumed_tail)
            rest, step = inflater.unconsumed_tail, min(2 * step, CHUNK)
            if size > HELD:
                yield Piece(b"".join(held))
                held.clear()
        else:
            before = inflater
        seen = position + len(rest)
        following = self._next(start)
        if following is not None:
            self._again += max(0, seen - following) + size // RATIO
        if size <= HELD:
            yield from self._torn(zlib.decompressobj(GZIP_BITS), start, following)
        else:
            yield Piece(b"".join(held))
            yield from self._torn(before, position, following)

    def _torn(self, inflater: Any, position: int, following: int | None) -> Iterator[Piece]:
        """Give out what a torn member holds from a position up to the damage, or to where the next begins."""
        step, problem = CHUNK, ENDS if following is None else ANOTHER
        while True:
            self._stream.seek(position)
            piece = self._stream.read(step if following is None else max(0, min(step, following - position)))
            attempt = inflater.copy()
            try:
                octets = attempt.decompress(piece, CHUNK)
            except zlib.error as error:  # nothing is given out of a piece with damage in it: go nearer to it
                step = len(piece) // 2
                if step:
                    continue
                left = (self._size if following is None else following) - position
                problem = f"the gzip stream is damaged here ({error}); the {left} octets that follow are not read"
                break
            if not (piece or octets):
                break
            inflater, position = attempt, position + len(piece) - len(attempt.unconsumed_tail)
            yield Piece(octets)
        yield Piece(b"", following, problem + SPENT if following is None and self._is_spent else problem)

    @property
    def _is_spent(self) -> bool:
        """So much was gone through again that no member is looked for any more."""
        return self._again > SPARE + AGAIN * self._size

    def _next(self, start: int) -> int | None:
        """Find the member that follows the one at a position, which is torn; None for none."""
        position: int | None = start + 1
        while position is not None and not self._is_spent:
            position = self._find(position)
            if position is not None and self._is_sound(position):
                return position
            position = None if position is None else position + 1
        return None

    def _find(self, position: int) -> int | None:
        """Find what looks as a member begins, from a position on."""
        self._stream.seek(position)
        size, window = LOOK, b""
        self._again += size
        while octets := self._stream.read(size):
            window += octets
            found = HEADER.search(window)
            if found is not None:
                return position + found.start()
            position += max(0, len(window) - HEADER_LENGTH + 1)
            window = window[1 - HEADER_LENGTH :]
            size = CHUNK
        return None

    def _is_sound(self, position: int) -> bool:
        """Say whether what looks as a member begins can be unpacked, its first octets at least."""
        self._stream.seek(position)
        try:
            zlib.decompressobj(GZIP_BITS).decompress(self._stream.read(PROBE), CHUNK)
        except zlib.error:
            return False
        return True


class Inflated(io.RawIOBase):
    """The content of a gzip file as a stream, which ends at each damage: then `problem` says why.

    Attributes:
        problem: why the content breaks off here; what is behind the damage follows once it was set to None.

    Args:
        stream: the file, from the beginning of a member on.
        end: members that begin there or later are not read; None for all.
    """

    def __init__(self, stream: BinaryIO, end: int | None = None) -> None:
        self.problem: str | None = None
        self._pieces = pieces(stream, end)
        self._left = memoryview(b"")
        self._coming: str | None = None

    def readable(self) -> bool:
        """Say yes, as BufferedReader asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what comes next; 0 at the end and at a problem."""
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
