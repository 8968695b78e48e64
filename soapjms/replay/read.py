"""Reading capture logs: their records, numbered, one by one.

One reader for every engine. What cannot be read is a `Rejected`, with its file and line, never an exception and never
left out: a line that is no record, octets that are not UTF-8, a gzip member that is torn. Of Parquet the number of a
row counts as its line.

Spec: capture record, version 1.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from typing import BinaryIO, Final, NamedTuple, cast

import pyarrow as pa
from pyarrow import parquet

from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import Record, from_json
from soapjms.replay.columns import PackedRow, Packer, RefusedRow, as_records, packed_row
from soapjms.replay.gzipped import Inflated
from soapjms.replay.inputs import CHUNK, MARK, Form, LogFile, Rejected, Split
from soapjms.replay.packing import Unpacker
from soapjms.replay.schema import check_text

MAX_LINE: Final = 128 << 20
"""Octets; a longer line is no record but an attack or a damaged file."""
SHOWN_OF_LONG_LINE: Final = 1 << 16
SPARE_LINES: Final = 100_000
OCTETS_OF_LINE: Final = 16
"""Lines of a log that may be blank or no records: `SPARE_LINES`, and one for each of so many octets of its file, as it
is stored. 32 KiB of gzip hold 32 million."""
ROWS: Final = 1000
"""Of Parquet, that are held at a time."""


class Captured(NamedTuple):
    """A record, and where it stood."""

    file: int
    line: int
    record: Record


class Packed(NamedTuple):
    """A record as engines move it, and where it stood."""

    file: int
    line: int
    row: PackedRow


# Records


def read(split: Split) -> Iterator[Captured | Rejected]:
    """Read the records of one part of a log. Blank lines are no records and are passed over."""
    unpack = Unpacker().unpack
    for found in _read(split):
        yield found if not isinstance(found, Packed) else Captured(found.file, found.line, unpack(found.row.packed))


def read_packed(split: Split, stream: BinaryIO | None = None) -> Iterator[Packed | Rejected]:
    """Read the records of one part of a log as engines move them.

    Args:
        split: the part.
        stream: its octets, if it is no file of this machine.
    """
    for found in _read(split, stream):
        yield found if not isinstance(found, Captured) else Packed(found.file, found.line, packed_row(found.record))


def _read(split: Split, stream: BinaryIO | None = None) -> Iterator[Captured | Packed | Rejected]:
    log = split.log
    reader = READERS[log.form]
    try:
        if stream is not None:
            yield from reader(split, stream)
            return
        with open(log.path, "rb") as stream:
            yield from reader(split, stream)
    except OSError as error:
        yield Rejected(log.name, None, f"cannot be read: {error.strerror or error}")


# Lines


def _read_plain(split: Split, stream: BinaryIO) -> Iterator[Captured | Rejected]:
    number, spare = _go_to_first_line(split, stream), _spare(split.log)
    position = stream.tell()
    while split.end is None or position < split.end:
        line = _next_line(stream)
        if not line.length:
            return
        found = _parsed(split.log, number, line, at_start=position == 0)
        spare -= not isinstance(found, Captured)
        if spare < 0:
            yield _no_log(split.log, number)
            return
        if found is not None:
            yield found
        position += line.length
        number += 1


def _spare(log: LogFile) -> int:
    return SPARE_LINES + log.size // OCTETS_OF_LINE


def _no_log(log: LogFile, number: int) -> Rejected:
    return Rejected(
        log.name, number, f"more than {_spare(log)} lines are blank or no records; those from here on are not read"
    )


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


def _parsed(log: LogFile, number: int, line: _Line, *, at_start: bool) -> Captured | Rejected | None:
    """Read the record of a line, None of one that is blank."""
    if line.length > MAX_LINE:
        reason = f"a line of {line.length} octets; at most {MAX_LINE} are read"
        return Rejected(log.name, number, reason, _shown(line.octets[:SHOWN_OF_LONG_LINE]))
    octets = line.octets.rstrip(b"\r\n")
    if at_start:
        octets = octets.removeprefix(MARK)
    if not octets.strip():
        return None
    try:
        text = octets.decode()
        record = from_json(text)
        if "\\u" in text:  # only an escape can bring in half of a pair: the octets were UTF-8
            check_text(record)
    except UnicodeDecodeError as error:
        return Rejected(log.name, number, f"not UTF-8: {error.reason} at octet {error.start}", _shown(octets))
    except InvalidRecordError as error:
        return Rejected(log.name, number, _shown(str(error).encode("utf-8", "backslashreplace")), text)
    return Captured(log.number, number, record)


def _shown(octets: bytes) -> str:
    return octets.decode("utf-8", "backslashreplace")


def _read_gzipped(split: Split, stream: BinaryIO) -> Iterator[Captured | Rejected]:
    """Read what a gzip file gives; reject the line that a torn member broke in, and go on with the next member."""
    stream.seek(split.start)
    log, inflated, spare = split.log, Inflated(stream, split.end), _spare(split.log)
    lines = cast(BinaryIO, io.BufferedReader(inflated, CHUNK))
    for number in count(split.first_line):
        line = _next_line(lines)
        if inflated.problem is not None and not line.ended:
            yield Rejected(log.name, number, inflated.problem, _shown(line.octets[:SHOWN_OF_LONG_LINE]))
            inflated.problem = None
            continue
        if not line.length:
            return
        found = _parsed(log, number, line, at_start=number == 1)
        spare -= not isinstance(found, Captured)
        if spare < 0:
            yield _no_log(log, number)
            return
        if found is not None:
            yield found


# Rows


@lru_cache(maxsize=1)
def _packer() -> Packer:
    """Return that of this process: a log is read in parts, and none has to begin with an empty memory."""
    return Packer()


def _read_parquet(split: Split, stream: BinaryIO) -> Iterator[Packed | Rejected]:
    log, packer = split.log, _packer()
    line, groups = split.first_line, range(split.start, len(log.groups) if split.end is None else split.end)
    try:
        found = parquet.ParquetFile(stream)
        for group in groups:  # one by one: of several at a time, nothing is left if the last one is damaged
            for batch in found.iter_batches(ROWS, [group]):
                for row in packer.rows(as_records(batch)):
                    yield _of_row(log, line, row)
                    line += 1
    except (pa.ArrowException, InvalidRecordError) as error:
        yield Rejected(log.name, line, f"cannot be read from here on: {error}")


def _of_row(log: LogFile, line: int, row: PackedRow | RefusedRow) -> Packed | Rejected:
    return Packed(log.number, line, row) if isinstance(row, PackedRow) else Rejected(log.name, line, *row)


READERS: Final[Mapping[Form, Callable[[Split, BinaryIO], Iterator[Captured | Packed | Rejected]]]] = {
    Form.LINES: _read_plain,
    Form.GZIP: _read_gzipped,
    Form.PARQUET: _read_parquet,
}
