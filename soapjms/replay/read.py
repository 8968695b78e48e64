"""Reading capture logs: which files a command line means, and their lines, numbered, one by one.

One reader for every engine. What cannot be read is a `Rejected`, with its file and line, never an exception and never
left out: a missing file, a line that is no record, octets that are not UTF-8, a gzip stream that breaks off.

Spec: capture record, version 1, "JSON Lines".
"""

from __future__ import annotations

import codecs
import glob
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import Record, from_json
from soapjms.replay.schema import check_text

SUFFIXES: Final = (".jsonl", ".jsonl.gz")
MAX_LINE: Final = 128 << 20
"""Octets; a longer line is no record but an attack or a damaged file."""
SHOWN_OF_LONG_LINE: Final = 1 << 16
GZIP_MAGIC: Final = b"\x1f\x8b"
MARK: Final = codecs.BOM_UTF8
CHUNK: Final = 1 << 18
START: Final = 1 << 12
"""Octets at the beginning of a file that tell what it is."""


class LogFile(NamedTuple):
    """One capture log: its place in the run, its name as the user wrote it, where it is, its size in octets.

    `marked` says that it begins with a byte order mark, which is passed over.
    """

    number: int
    name: str
    path: str
    size: int
    gzipped: bool
    marked: bool = False


class Split(NamedTuple):
    """A part of a log that one task reads: the lines that begin in octets `start` to `end` (exclusive)."""

    log: LogFile
    start: int
    end: int | None
    first_line: int = 1


class Rejected(NamedTuple):
    """Something that could not be read, as a row of rejected/.

    `line` is None where it is the whole file. In `raw`, octets that are not UTF-8 show as backslash escapes.
    """

    file: str
    line: int | None
    reason: str
    raw: str | None = None


class Captured(NamedTuple):
    """A record, where it stood, and its text."""

    file: int
    line: int
    record: Record
    text: str


# Which files


def expand(
    logs: Iterable[str | os.PathLike[str]], leave_out: Path | None = None
) -> tuple[list[LogFile], list[Rejected]]:
    """Find the files that arguments mean: files, folders (their .jsonl and .jsonl.gz, recursively) and globs.

    A file that is meant twice is read once. Anything that cannot be opened, and an argument that means no file, is
    among the rejected.

    Args:
        logs: the arguments.
        leave_out: a folder whose files are no input: the output of this run.
    """
    found: dict[str, LogFile] = {}
    rejected: list[Rejected] = []
    for each in logs:
        argument = os.fspath(each)
        names = _names(argument, leave_out)
        if not names:
            rejected.append(Rejected(_file_name(argument), None, _why_nothing(argument)))
        for name in names:
            path = os.path.realpath(name)
            if path in found:
                continue
            log = _open(len(found), name, path)
            if isinstance(log, Rejected):
                rejected.append(log)
            else:
                found[path] = log
    return list(found.values()), rejected


def _open(number: int, name: str, path: str) -> LogFile | Rejected:
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its writer
            return Rejected(_file_name(name), None, "cannot be read: it is no regular file")
        with open(path, "rb") as stream:
            start = stream.read(START)
            gzipped = start.startswith(GZIP_MAGIC) or name.endswith(".gz")
            marked = (_first_inflated(start) if gzipped else start).startswith(MARK)
            return LogFile(number, _file_name(name), path, os.fstat(stream.fileno()).st_size, gzipped, marked)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return Rejected(_file_name(name), None, f"cannot be opened: {getattr(error, 'strerror', None) or error}")


def _first_inflated(start: bytes) -> bytes:
    """Return the first octets in the beginning of a gzip file, none if it is broken: reading it says how."""
    try:
        return zlib.decompressobj(wbits=31).decompress(start, len(MARK))
    except zlib.error:
        return b""


def _file_name(name: str) -> str:
    """Show a file's name; octets in it that are not UTF-8 as backslash escapes."""
    return _shown(os.fsencode(name))


def _names(argument: str, leave_out: Path | None) -> list[str]:
    if os.path.isdir(argument):
        return _below(argument, leave_out)
    if os.path.lexists(argument) or not glob.has_magic(argument):
        return [argument]
    matches = sorted(glob.glob(argument, recursive=True))
    return [name for match in matches for name in (_below(match, leave_out) if os.path.isdir(match) else [match])]


def _below(folder: str, leave_out: Path | None) -> list[str]:
    paths = sorted(path for path in Path(folder).rglob("*") if path.name.endswith(SUFFIXES) and not path.is_dir())
    return [str(path) for path in paths if leave_out is None or not path.resolve().is_relative_to(leave_out)]


def _why_nothing(argument: str) -> str:
    if os.path.isdir(argument):
        return "the folder holds no .jsonl or .jsonl.gz file"
    return "no file matches"


# Splits


def splits(logs: Sequence[LogFile], size: int) -> list[Split]:
    """Cut logs into parts of about `size` octets; a gzipped log is one part.

    The first line's number is known for a file's first part only: `count_lines` tells the others'.
    """
    parts: list[Split] = []
    for log in logs:
        if log.gzipped or log.size <= size:
            parts.append(Split(log, 0, None))
        else:
            starts = range(0, log.size, size)
            parts.extend(Split(log, start, start + size if start + size < log.size else None) for start in starts)
    return parts


def count_lines(split: Split) -> int:
    """Count the line ends in a part's octets; 0 where the file cannot be read, which `read` then reports."""
    try:
        with open(split.log.path, "rb") as stream:
            stream.seek(split.start)
            left = (split.end if split.end is not None else split.log.size) - split.start
            lines = 0
            while left > 0 and (octets := stream.read(min(CHUNK, left))):
                lines += octets.count(b"\n")
                left -= len(octets)
            return lines
    except OSError:
        return 0


# Lines


def read(split: Split) -> Iterator[Captured | Rejected]:
    """Read the records of one part of a log. Blank lines are no records and are passed over."""
    log = split.log
    try:
        with open(log.path, "rb") as stream:
            yield from _read_gzipped(log, stream) if log.gzipped else _read_plain(split, stream)
    except OSError as error:
        yield Rejected(log.name, None, f"cannot be read: {error.strerror or error}")


def _read_plain(split: Split, stream: BinaryIO) -> Iterator[Captured | Rejected]:
    number = _go_to_first_line(split, stream)
    position = stream.tell()
    while split.end is None or position < split.end:
        line = _next_line(stream)
        if not line.length:
            return
        yield from _parsed(split.log, number, line)
        position += line.length
        number += 1


def _go_to_first_line(split: Split, stream: BinaryIO) -> int:
    """Go to the first line that begins in the part and return its number; a line that reaches into it is not its."""
    if split.start == 0:
        return split.first_line
    stream.seek(split.start - 1)
    if stream.read(1) == b"\n":
        return split.first_line
    while (octets := stream.readline(CHUNK)) and not octets.endswith(b"\n"):
        pass
    return split.first_line + 1


class _Line(NamedTuple):
    octets: bytes  # of a line beyond the limit only the beginning
    length: int
    ended: bool  # by a line end, not by the end of the file


def _next_line(stream: BinaryIO) -> _Line:
    octets = rest = stream.readline(MAX_LINE)
    length = len(octets)
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(CHUNK)
        length += len(rest)
    return _Line(octets, length, rest.endswith(b"\n"))


def _parsed(log: LogFile, number: int, line: _Line) -> Iterator[Captured | Rejected]:
    if line.length > MAX_LINE:
        reason = f"a line of {line.length} octets; at most {MAX_LINE} are read"
        yield Rejected(log.name, number, reason, _shown(line.octets[:SHOWN_OF_LONG_LINE]))
        return
    octets = line.octets.rstrip(b"\r\n")
    if number == 1:
        octets = octets.removeprefix(MARK)
    if not octets.strip():
        return
    try:
        text = octets.decode()
        record = from_json(text)
        if "\\u" in text:  # only an escape can bring in half of a pair: the octets were UTF-8
            check_text(record)
    except UnicodeDecodeError as error:
        yield Rejected(log.name, number, f"not UTF-8: {error.reason} at octet {error.start}", _shown(octets))
    except InvalidRecordError as error:
        yield Rejected(log.name, number, _shown(str(error).encode("utf-8", "backslashreplace")), text)
    else:
        yield Captured(log.number, number, record, text)


def _shown(octets: bytes) -> str:
    return octets.decode("utf-8", "backslashreplace")


# Gzip


def _read_gzipped(log: LogFile, stream: BinaryIO) -> Iterator[Captured | Rejected]:
    """Read what a gzip file gives; where it breaks off, reject the line that it broke in and say how much is lost."""
    inflated = _Inflated(stream)
    lines = cast(BinaryIO, io.BufferedReader(inflated, CHUNK))
    number = 1
    while True:
        line = _next_line(lines)
        if inflated.problem is not None and not line.ended:
            yield Rejected(log.name, number, inflated.problem, _shown(line.octets[:SHOWN_OF_LONG_LINE]))
            return
        if not line.length:
            return
        yield from _parsed(log, number, line)
        number += 1


class _Inflated(io.RawIOBase):
    """The content of a gzip file of one or more members, up to where it breaks: then `problem` says why.

    The standard library's reader raises, and the octets before the break are lost with it.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.problem: str | None = None
        self._stream = stream
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
            self._input = memoryview(self._stream.read(CHUNK))
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
        left = len(self._input) + os.fstat(self._stream.fileno()).st_size - self._stream.tell()
        self.problem = f"the gzip stream is damaged here ({error}); the {left} octets that follow are not read"
