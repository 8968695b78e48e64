"""Which files a run reads, what they are, and the parts that they are read in.

What cannot be opened is a `Rejected`, never an exception and never left out.

Spec: capture record, version 1.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from soapjms.replay.columns import schema_problem

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".parquet")
GZIP_MAGIC: Final = b"\x1f\x8b"
PARQUET_MAGIC: Final = b"PAR1"
MARK: Final = codecs.BOM_UTF8
CHUNK: Final = 1 << 18
GZIP_RATIO: Final = 8
"""What capture logs grow to at the least when they are decompressed."""
START: Final = 1 << 12
"""Octets at the beginning of a file that tell what it is."""


class Form(StrEnum):
    """The forms of a capture log."""

    LINES = "JSON Lines"
    GZIP = "JSON Lines, compressed"
    PARQUET = "Parquet"


class LogFile(NamedTuple):
    """One capture log.

    Attributes:
        number: its place in the run.
        name: as the user wrote it.
        path: where it is.
        size: in octets.
        form: how it is to be read.
        marked: it begins with a byte order mark, which is passed over.
        groups: of Parquet the rows and octets of each row group.
    """

    number: int
    name: str
    path: str
    size: int
    form: Form
    marked: bool = False
    groups: tuple[tuple[int, int], ...] = ()

    @property
    def gzipped(self) -> bool:
        """It is compressed as a whole, so that it cannot be read in parts."""
        return self.form is Form.GZIP


class Split(NamedTuple):
    """A part of a log that one task reads.

    Attributes:
        log: the log.
        start, end: the lines that begin in these octets (`end` exclusive, None for the end of the file); of Parquet
            these row groups, and of gzip whole members with whole lines in them.
        first_line: the number of the first line; 1 where that is not known, and its numbers count from `start`.
        octets: how much there is to read.
    """

    log: LogFile
    start: int
    end: int | None
    first_line: int = 1
    octets: int = 0

    @property
    def is_counted_anew(self) -> bool:
        """Its lines count from its start, as nobody knows how many are before it."""
        return self.log.form is Form.LINES and (self.start > 0 or self.end is not None)


class Rejected(NamedTuple):
    """Something that could not be read, as a row of rejected/.

    `line` is None where it is the whole file. In `raw`, octets that are not UTF-8 show as backslash escapes.
    """

    file: str
    line: int | None
    reason: str
    raw: str | None = None


# Which files


URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_elsewhere(argument: str) -> bool:
    """Say whether an argument is a URI, for Hadoop to find, and no name of a file."""
    return URI.match(argument) is not None


def expand(
    logs: Iterable[str | os.PathLike[str]], leave_out: Path | None = None
) -> tuple[list[LogFile], list[Rejected]]:
    """Find the files that arguments mean: files, folders (their .jsonl, .jsonl.gz and .parquet) and globs.

    Folders are searched with all that is in them. A file that is meant twice is read once. Anything that cannot be
    opened, and an argument that means no file, is among the rejected.

    Args:
        logs: the arguments.
        leave_out: a folder whose files are no input: the output of this run.
    """
    found: dict[str, LogFile] = {}
    rejected: list[Rejected] = []
    for each in logs:
        argument = os.fspath(each)
        before = len(rejected)
        names = _names(argument, leave_out, rejected)
        if not names and len(rejected) == before:
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
            return opened(stream, number, _file_name(name), path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return Rejected(_file_name(name), None, f"cannot be opened: {getattr(error, 'strerror', None) or error}")


def form_of(start: bytes, name: str) -> Form:
    """Say what form a log has, by its first octets, else by its name."""
    if start.startswith(PARQUET_MAGIC) or name.endswith(".parquet"):
        return Form.PARQUET
    return Form.GZIP if start.startswith(GZIP_MAGIC) or name.endswith(".gz") else Form.LINES


def opened(stream: BinaryIO, number: int, name: str, path: str) -> LogFile | Rejected:
    """Look at the beginning of a log, of Parquet at its end, to see what it is."""
    start = stream.read(START)
    size = stream.seek(0, os.SEEK_END)
    form = form_of(start, name)
    if form is Form.PARQUET:
        try:
            found = parquet.ParquetFile(stream)
        except (pa.ArrowException, OSError) as error:
            return Rejected(name, None, f"cannot be read as Parquet: {error}")
        problem = schema_problem(found.schema_arrow)
        if problem is not None:
            return Rejected(name, None, problem)
        groups = (found.metadata.row_group(number) for number in range(found.metadata.num_row_groups))
        rows = tuple((each.num_rows, each.total_byte_size) for each in groups)
        return LogFile(number, name, path, size, form, groups=rows)
    marked = (_first_inflated(start) if form is Form.GZIP else start).startswith(MARK)
    return LogFile(number, name, path, size, form, marked)


def _first_inflated(start: bytes) -> bytes:
    """Return the first octets in the beginning of a gzip file, none if it is broken: reading it says how."""
    try:
        return zlib.decompressobj(wbits=31).decompress(start, len(MARK))
    except zlib.error:
        return b""


def _file_name(name: str) -> str:
    """Show a file's name; octets in it that are not UTF-8 as backslash escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _names(argument: str, leave_out: Path | None, rejected: list[Rejected]) -> list[str]:
    is_name = os.path.lexists(argument) or not glob.has_magic(argument)
    found: list[str] = []
    for match in [argument] if is_name else sorted(glob.glob(argument, recursive=True)):
        if os.path.isdir(match):
            paths, refused = logs_below(match)
            rejected.extend(refused)
            inside = (path for path in paths if leave_out is None or not path.resolve().is_relative_to(leave_out))
            found.extend(map(str, inside))
        else:
            found.append(match)
    return found


def logs_below(folder: str | Path) -> tuple[list[Path], list[Rejected]]:
    """Find the logs of a folder and of all folders in it, and the folders among these that cannot be listed."""
    refused: list[Rejected] = []

    def refuse(error: OSError) -> None:
        refused.append(Rejected(_file_name(error.filename), None, f"the folder cannot be listed: {error.strerror}"))

    walked = ((Path(at), names) for at, _, names in os.walk(folder, onerror=refuse))
    return sorted(at / name for at, names in walked for name in names if name.endswith(SUFFIXES)), refused


def _why_nothing(argument: str) -> str:
    if os.path.isdir(argument):
        return "the folder holds no .jsonl, .jsonl.gz or .parquet file"
    return "no file matches"


# Splits


def splits(logs: Sequence[LogFile], size: int) -> list[Split]:
    """Cut logs into parts of about `size` octets; a gzipped log is one part, and a row group of Parquet at least one.

    The number of the first line is known for the first part of a file, and for all of Parquet: `count_lines` tells the
    others'.
    """
    parts: list[Split] = []
    for log in logs:
        if log.form is Form.PARQUET:
            parts.extend(_row_groups(log, size))
        elif log.gzipped or log.size <= size:
            parts.append(whole(log))
        else:
            starts = range(0, log.size, size)
            ends = [*starts[1:], None]
            parts.extend(Split(log, start, end, octets=size) for start, end in zip(starts, ends, strict=True))
    return parts


def whole(log: LogFile) -> Split:
    """Make a log one part."""
    return Split(log, 0, None, octets=_octets(log))


def _octets(log: LogFile) -> int:
    """Return about how much there is to read when it is unpacked."""
    if log.form is Form.PARQUET:
        return sum(octets for _, octets in log.groups) or GZIP_RATIO * log.size
    return GZIP_RATIO * log.size if log.gzipped else log.size


def _row_groups(log: LogFile, size: int) -> Iterator[Split]:
    start, line, octets, rows = 0, 1, 0, 0
    for number, (more_rows, more_octets) in enumerate(log.groups):
        if number > start and octets + more_octets > size:
            yield Split(log, start, number, line, octets)
            start, line, octets, rows = number, line + rows, 0, 0
        octets, rows = octets + more_octets, rows + more_rows
    yield Split(log, start, len(log.groups), line, octets)


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
