"""Whole lines of logs that are still being written: where they end, and reading them.

A recorder appends lines, or gzip members with whole lines in them, so what is whole is known from the file itself.
What comes after, a line without its end or a member without its, is left for later; a torn member is known by another
that follows it. A Parquet file is whole when its end is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import format_time, parse_time
from soapjms.replay.gzipped import pieces
from soapjms.replay.inputs import MARK, START, Form, LogFile, Rejected, Split, form_of, open_file, opened, shown, whole
from soapjms.replay.read import Captured, read

STEP: Final = 1 << 18


class Whole(NamedTuple):
    """What is whole of a log from a position on.

    Attributes:
        end: where the next read begins, in octets of the file.
        lines: how many lines end before that.
        octets: how much that is, unpacked.
    """

    end: int
    lines: int
    octets: int = 0


class Chunk(NamedTuple):
    """A part of a log that consists of whole lines.

    Attributes:
        path: of the file.
        form: of the file.
        start, end: octets of the file.
        first_line: the number of the first line.
        rest: it is all from the first line on, whole or not.
        marked: it begins with a byte order mark.
        problem: why there is nothing to read, but something to reject.
    """

    path: str
    form: Form
    start: int
    end: int
    first_line: int
    rest: bool = False
    marked: bool = False
    problem: str | None = None

    @property
    def name(self) -> str:
        """The file as people see it; octets in its name that are not UTF-8 as backslash escapes."""
        return shown(self.path)


def form_at(path: str) -> Form:
    """Say what form the log at a path has.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_file(path) as stream:
        return form_of(stream.read(START), path)


def whole_part(path: str, form: Form, start: int, limit: int) -> Whole:
    """Find the whole lines of a file from `start` on, up to about `limit` octets of them, at least one if there is one.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as stream:
        stream.seek(start)
        return FINDERS[form](stream, limit)


def _whole_rows(stream: BinaryIO, limit: int) -> Whole:
    """A Parquet file is taken as a whole, when its end is there."""
    try:
        rows = parquet.ParquetFile(stream).metadata.num_rows
    except (pa.ArrowException, OSError):
        return Whole(0, 0)
    size = stream.seek(0, os.SEEK_END)
    return Whole(size, rows, size)


def _whole_lines(stream: BinaryIO, limit: int) -> Whole:
    position = start = end = stream.tell()
    lines = 0
    while (octets := stream.read(STEP)) and (end == start or position - start < limit):
        last = octets.rfind(b"\n") + 1
        if last:
            end, lines = position + last, lines + octets.count(b"\n")
        position += len(octets)
    return Whole(end, lines, end - start)


def _whole_members(stream: BinaryIO, limit: int) -> Whole:
    """Find whole members, with torn ones between them; one with nothing behind it may still be growing."""
    found = Whole(stream.tell(), 0)
    inflated = lines = 0
    last = b"\n"
    for octets, end, problem in pieces(stream):
        inflated += len(octets)
        lines += octets.count(b"\n")
        last = octets[-1:] or last
        if problem is not None:
            lines, last = lines + 1, b"\n"  # the line that it broke in is told as one
        if end is not None and last == b"\n":
            found = Whole(end, lines, inflated)
            if inflated >= limit:
                break
    return found


FINDERS: Final = {Form.LINES: _whole_lines, Form.GZIP: _whole_members, Form.PARQUET: _whole_rows}


def next_record(path: str, form: Form, start: int) -> tuple[str, bool]:
    """Return the time of the record at a position of a file, and whether a byte order mark stands before it.

    The time is text that sorts as times do; empty where there is no record, so that it comes first.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as stream:
        if form is Form.PARQUET:
            return _first_time(stream), False
        stream.seek(start)
        line = _first_line(stream) if form is Form.GZIP else stream.readline(STEP)
    marked = start == 0 and line.startswith(MARK)
    return _time_of(line.removeprefix(MARK) if marked else line), marked


def _first_line(stream: BinaryIO) -> bytes:
    found = b""
    for octets, _, problem in pieces(stream):
        found += octets
        if problem is not None or b"\n" in found or len(found) > STEP:
            break
    return found.partition(b"\n")[0]


def _time_of(line: bytes) -> str:
    try:
        return format_time(parse_time(json.loads(line).get("time")))
    except (ValueError, AttributeError, TypeError, InvalidRecordError, RecursionError):
        return ""


def _first_time(stream: BinaryIO) -> str:
    try:
        batch = next(parquet.ParquetFile(stream).iter_batches(1, columns=["time"]), None)
        time = None if batch is None else batch.column(0)[0].as_py()
        return format_time(time if time.tzinfo else time.replace(tzinfo=UTC)) if time is not None else ""
    except (pa.ArrowException, AttributeError, IndexError, ValueError, OverflowError):  # no time, or no such column
        return ""


def read_chunk(chunk: Chunk) -> Iterator[Captured | Rejected]:
    """Read the records of a chunk, as a replay reads those of a whole file."""
    log = LogFile(0, chunk.name, chunk.path, chunk.end, chunk.form)
    if chunk.problem is not None:
        yield Rejected(chunk.name, None, chunk.problem)
    elif chunk.form is Form.PARQUET:
        yield from _read_rows(chunk)
    else:
        yield from read(Split(log, chunk.start, None if chunk.rest else chunk.end, chunk.first_line))


def _read_rows(chunk: Chunk) -> Iterator[Captured | Rejected]:
    try:
        with open(chunk.path, "rb") as stream:
            log = opened(stream, 0, chunk.name, chunk.path)
    except OSError as error:
        log = Rejected(chunk.name, None, f"cannot be read: {error.strerror or error}")
    if isinstance(log, Rejected):
        yield log
    else:
        yield from read(whole(log))
