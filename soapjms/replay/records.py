"""Reading the records of capture logs, numbered, one by one; a damaged part does not affect the others.

One reader for every engine. Anything that cannot be read becomes a `RejectedRow` with its file and line, never an
exception, and is never left out: a line that is not a record, octets that are not UTF-8, a torn gzip member. In
Parquet, the number of a row counts as its line.

Spec: capture record, version 1.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import lru_cache, partial, reduce
from itertools import count
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import Record, from_json
from soapjms.protocol.text import reason_of
from soapjms.replay.columns import (
    ColumnReader,
    ColumnWriter,
    FlatRow,
    RecordRow,
    RefusedRow,
    columns_of_rows,
    flat_row,
    row_of,
)
from soapjms.replay.errors import NoInputError, memory_told
from soapjms.replay.flat_records import FlatRecord, Unpacker
from soapjms.replay.gzip_members import GzipStream
from soapjms.replay.inputs import CHUNK_OCTETS, MARK, LogFile, LogForm, RejectedRow, Split, open_log
from soapjms.replay.json_lines import usual_row
from soapjms.replay.parquet import RECORDS, as_records, check_text

T = TypeVar("T")
Parse: TypeAlias = Callable[..., T | RejectedRow | None]

MAX_LINE_OCTETS: Final = 128 << 20
"""Maximum length of a line, in octets; a longer line is an attack or a damaged file, not a record."""
SHOWN_OF_LONG_LINE: Final = 1 << 16
SPARE_LINES: Final = 100_000
OCTETS_OF_LINE: Final = 16
"""Lines of a log that may be blank or not records: `SPARE_LINES`, plus one for each `OCTETS_OF_LINE` octets of its
stored file. 32 KiB of gzip can hold 32 million lines."""
MAX_HELD_ROWS: Final = 10_000
MAX_BATCH_OCTETS: Final = 4 << 20
"""Maximum number of rows in a batch, and about how large they may be together."""

MAX_TEXT_OCTETS: Final = 4 * MAX_BATCH_OCTETS
"""About how large the texts of a part of a batch of Parquet may be together, if they are more than one row's."""
ENTRY_OCTETS: Final = 16
"""About how much memory a value of a column takes beside its text."""
ENTRIES_OF_ROW: Final = 1000
MAX_ROW_ENTRIES: Final = 16 << 20
"""A row group is not read that has more entries in a column than the former for each row and the latter beside them."""


class CapturedRecord(NamedTuple):
    """A record and its position."""

    file: int
    line: int
    record: Record


# Records


def read(split: Split, stream: BinaryIO | None = None) -> Iterator[CapturedRecord | RejectedRow]:
    """Read the records of one part of a log. Blank lines are skipped.

    Args:
        split: the part.
        stream: its octets, if the log is open already, or not a file on this machine.
    """
    return _opened(split, READERS[split.log.form], stream)


class LineEnds:
    """How many lines end within a part of a log that others follow.

    Attributes:
        number: None until the part has been read to its end, or if its lines are not counted.
    """

    number: int | None = None


def read_columns(
    split: Split, stream: BinaryIO | None = None, ends: LineEnds | None = None
) -> Iterator[pa.RecordBatch | RejectedRow]:
    """Read the records of one part of a log as batches of `COLUMNS`.

    All texts in them are UTF-8. Whether a row is a record remains to be seen, for Parquet.

    Args:
        split: the part.
        stream: its octets, if the log is open already, or not a file on this machine.
        ends: is told how many lines end in the part, if it is one of a file of lines.
    """
    lines = LINE_READERS.get(split.log.form)
    if lines is None:
        yield from _in_columns(split, stream)
        return
    writer = ColumnWriter()
    for found in _opened(split, partial(lines, parse=_parsed_row, ends=ends), stream):
        if isinstance(found, RejectedRow):
            yield found
            continue
        writer.add(found)
        if len(writer) >= MAX_HELD_ROWS or writer.octets >= MAX_BATCH_OCTETS:
            yield writer.batch()
            writer = ColumnWriter()
    if len(writer):
        yield writer.batch()


def read_rows(split: Split, lines: Iterable[int], stream: BinaryIO | None = None) -> Iterator[FlatRecord]:
    """Read some records again, in the order of their lines; others are passed over.

    Args:
        split: the part of a log that they are in.
        lines: their lines, which were records before, in order.
        stream: its octets, if the log is not a file on this machine.

    Raises:
        NoInputError: the log was changed, and one of them is no record now.
    """
    wanted, number = WantedLines(lines), 0
    read = _rows_of_parquet if split.log.form is LogForm.PARQUET else _rows_of_lines
    for found in _opened(split, partial(read, wanted=wanted), stream):
        if not isinstance(found, RejectedRow):
            number += 1
            yield found.record
        elif found.line is None:
            raise NoInputError(f"{found.file}: {found.reason}, though it could be before")
    if wanted.next is not None or number < wanted.met:
        line = wanted.last if wanted.next is None else wanted.next
        where = f" (counted from octet {split.start} on)" if split.is_counted_anew and split.start else ""
        raise NoInputError(f"{split.log.name}: line {line}{where} is no record now: the log was changed meanwhile")


class WantedLines:
    """Numbers of lines, in order, as far as they were not met.

    Attributes:
        next: the next of them; None if there are no more.
        met: how many were met.
        last: the last of those; 0 if there is none.
    """

    def __init__(self, lines: Iterable[int]) -> None:
        self._lines = iter(lines)
        self.met = self.last = 0
        self.next = next(self._lines, None)

    def before(self, end: int) -> Iterator[int]:
        """Meet all of them that come before a line, and yield them."""
        while (line := self.next) is not None and line < end:
            self.meet(line)
            yield line

    def meet(self, line: int) -> bool:
        """Say whether a line is the next."""
        if line != self.next:
            return False
        self.last, self.next = line, next(self._lines, None)
        self.met += 1
        return True


def _opened(
    split: Split, reader: Callable[[Split, BinaryIO], Iterator[T]], stream: BinaryIO | None
) -> Iterator[T | RejectedRow]:
    with memory_told(split.log.name):
        yield from _read(split, reader, stream)


def _read(
    split: Split, reader: Callable[[Split, BinaryIO], Iterator[T]], stream: BinaryIO | None
) -> Iterator[T | RejectedRow]:
    try:
        with open_log(split.log) if stream is None else nullcontext(stream) as octets:
            yield from reader(split, octets)
    except OSError as error:
        yield RejectedRow(split.log.name, None, f"cannot be read: {error.strerror or error}")


# Lines


def _rows_of_lines(split: Split, stream: BinaryIO, wanted: WantedLines) -> Iterator[FlatRow]:
    for found in LINE_READERS[split.log.form](split, stream, _parsed, wanted):
        if isinstance(found, CapturedRecord):
            yield flat_row(found.record)


def _read_plain(
    split: Split,
    stream: BinaryIO,
    parse: Parse[T],
    wanted: WantedLines | None = None,
    ends: LineEnds | None = None,
) -> Iterator[T | RejectedRow]:
    """Read lines: all, or some."""
    number, spare = _go_to_first_line(split, stream), _spare(split)
    position = stream.tell()
    while (split.end is None or position < split.end) and not (wanted is not None and wanted.next is None):
        line = _next_line(stream)
        if not line.length:
            break
        if wanted is None or wanted.meet(number):
            found = parse(split.log, number, line, at_start=position == 0)
            spare -= found is None or isinstance(found, RejectedRow)
            if spare < 0:
                yield _no_log(split, number)
                return
            if found is not None:
                yield found
        position += line.length
        number += 1
    if ends is not None:  # the last line may end in the next part
        ends.number = number - split.first_line - (split.end is not None and position > split.end)


def _spare(split: Split) -> int:
    end = split.log.size if split.end is None else split.end
    return SPARE_LINES + (end - split.start) // OCTETS_OF_LINE


def _no_log(split: Split, number: int) -> RejectedRow:
    return RejectedRow(
        split.log.name,
        number,
        f"more than {_spare(split)} lines are blank or no records; those from here on are not read",
    )


def _go_to_first_line(split: Split, stream: BinaryIO) -> int:
    """Go to the first line that begins in the part, and return its number; a line that began before is skipped."""
    if split.start == 0:
        return split.first_line
    stream.seek(split.start - 1)
    if stream.read(1) == b"\n":
        return split.first_line
    while (octets := stream.readline(CHUNK_OCTETS)) and not octets.endswith(b"\n"):
        pass
    return split.first_line + 1


class _Line(NamedTuple):
    octets: bytes  # only the beginning of a line beyond the limit
    length: int
    ended: bool  # by a line end, not by the end of the file


def _next_line(stream: BinaryIO) -> _Line:
    octets = rest = stream.readline(MAX_LINE_OCTETS)
    length = len(octets)
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(CHUNK_OCTETS)
        length += len(rest)
    return _Line(octets, length, rest.endswith(b"\n"))


def _parsed(log: LogFile, number: int, line: _Line, *, at_start: bool) -> CapturedRecord | RejectedRow | None:
    """Read the record of a line; return None for a blank line."""
    if line.length > MAX_LINE_OCTETS:
        reason = f"a line of {line.length} octets; at most {MAX_LINE_OCTETS} are read"
        return RejectedRow(log.name, number, reason, _shown(line.octets[:SHOWN_OF_LONG_LINE]))
    octets = line.octets.rstrip(b"\r\n")
    if at_start:
        octets = octets.removeprefix(MARK)
    if not octets.strip():
        return None
    try:
        text = octets.decode()
        record = from_json(text)
        if "\\u" in text:  # the octets were UTF-8, so only an escape can make a lone surrogate
            check_text(record)
    except UnicodeDecodeError as error:
        return RejectedRow(log.name, number, f"not UTF-8: {reason_of(error)}", _shown(octets))
    except InvalidRecordError as error:
        return RejectedRow(log.name, number, _shown(str(error).encode("utf-8", "backslashreplace")), text)
    return CapturedRecord(log.number, number, record)


def _shown(octets: bytes) -> str:
    return octets.decode("utf-8", "backslashreplace")


def _parsed_row(log: LogFile, number: int, line: _Line, *, at_start: bool) -> RecordRow | RejectedRow | None:
    """Read the record of a line into a row of columns."""
    row = usual_row(number, line.octets) if line.length <= MAX_LINE_OCTETS else None
    if row is not None:
        return row
    found = _parsed(log, number, line, at_start=at_start)
    return row_of(number, found.record, line.length) if isinstance(found, CapturedRecord) else found


def _read_gzipped(
    split: Split,
    stream: BinaryIO,
    parse: Parse[T],
    wanted: WantedLines | None = None,
    ends: LineEnds | None = None,  # never asked for: a gzip file is one part
) -> Iterator[T | RejectedRow]:
    """Read the lines of a gzip file, all or some; where a torn member breaks off, reject the line, and go on with the
    next member."""
    stream.seek(split.start)
    log, inflated, spare = split.log, GzipStream(stream, split.end), _spare(split)
    lines = cast(BinaryIO, io.BufferedReader(inflated, CHUNK_OCTETS))
    for number in count(split.first_line):
        if wanted is not None and wanted.next is None:
            return
        line = _next_line(lines)
        if inflated.problem is not None and not line.ended:
            yield RejectedRow(log.name, number, inflated.problem, _shown(line.octets[:SHOWN_OF_LONG_LINE]))
            inflated.problem = None
            continue
        if not line.length:
            return
        if not (wanted is None or wanted.meet(number)):
            continue
        found = parse(log, number, line, at_start=number == 1)
        spare -= found is None or isinstance(found, RejectedRow)
        if spare < 0:
            yield _no_log(split, number)
            return
        if found is not None:
            yield found


# Rows


@lru_cache(maxsize=1)
def column_reader() -> ColumnReader:
    """Return the reader of this process, so that no part of a log begins with an empty cache."""
    return ColumnReader()


def _read_parquet(split: Split, stream: BinaryIO) -> Iterator[CapturedRecord | RejectedRow]:
    log, reader, unpack = split.log, column_reader(), Unpacker()
    for batch in _batches(split, stream):
        if isinstance(batch, RejectedRow):
            yield batch
            continue
        for line, row in zip(batch.column("line").to_pylist(), reader.rows(batch), strict=True):
            yield (
                RejectedRow(log.name, line, *row)
                if isinstance(row, RefusedRow)
                else CapturedRecord(log.number, line, unpack.record(row.record))
            )


def _rows_of_parquet(split: Split, stream: BinaryIO, wanted: WantedLines) -> Iterator[FlatRow]:
    for batch in _batches(split, stream, wanted):
        if isinstance(batch, RejectedRow):
            continue
        first = batch.column("line")[0].as_py() if batch.num_rows else 0
        if wanted.next is not None and wanted.next < first:
            return  # it is in a row group that cannot be read now
        at = pa.array([line - first for line in wanted.before(first + batch.num_rows)], pa.int64())
        for row in column_reader().rows(batch.take(at)) if len(at) else ():
            if not isinstance(row, FlatRow):
                return
            yield row


def _in_columns(split: Split, stream: BinaryIO | None) -> Iterator[pa.RecordBatch | RejectedRow]:
    """Read rows of Parquet, and reject those that hold what is no text."""
    log = split.log
    for batch in _opened(split, _batches, stream):
        if isinstance(batch, RejectedRow) or _is_sound(batch):
            yield batch
            continue
        for index in range(batch.num_rows):
            row = batch.take(pa.array([index]))  # a slice would keep the lists of all rows, and be checked with them
            if _is_sound(row):
                yield row
                continue
            found = column_reader().by_itself(row, 0)
            line = row.column("line")[0].as_py()
            assert isinstance(found, RefusedRow)
            yield RejectedRow(log.name, line, *found)


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Say whether all texts are UTF-8, which Arrow does not check when it reads."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


class ParquetColumns:
    """The columns of a file that are read, and how.

    Equal texts of a column are read once for many rows, as a dictionary, unless an encoding of the file forbids that.

    Attributes:
        names: names of the columns; those that records do not have are not read.
        shared: paths of the texts, also within other columns, that are read as dictionaries.
    """

    def __init__(self, metadata: parquet.FileMetaData) -> None:
        self._metadata = metadata
        paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
        self._read = [number for number, path in enumerate(paths) if path.partition(".")[0] in RECORDS.names]
        self.names = list(dict.fromkeys(paths[number].partition(".")[0] for number in self._read))
        groups = range(metadata.num_row_groups)
        self.shared = [
            paths[number]
            for number in self._read
            if metadata.schema.column(number).physical_type == "BYTE_ARRAY"
            and not any(_is_delta(metadata.row_group(group).column(number)) for group in groups)
        ]

    def rows_at_a_time(self, group: int) -> int:
        """Return how many rows of a group make a batch, so that the batch takes about `MAX_BATCH_OCTETS`.

        A text that repeats others, and is in no dictionary, may be as long as all that its column has in the file.
        """
        about = self._metadata.row_group(group)
        columns = [about.column(number) for number in self._read]
        octets = max(about.total_byte_size, ENTRY_OCTETS * sum(each.num_values for each in columns))
        repeated = [each for each in columns if _is_delta(each) and not REPEATING.isdisjoint(each.encodings)]
        longest: int = max((each.total_uncompressed_size for each in repeated), default=1)
        rows: int = MAX_BATCH_OCTETS * about.num_rows // max(1, octets)
        return max(1, min(MAX_HELD_ROWS, rows, MAX_TEXT_OCTETS // max(1, longest)))

    def has_long_rows(self, group: int) -> bool:
        """Say whether rows of a group must have more entries, of properties for example, than fit into memory.

        Entries that are null or repeat others take no room in a file.
        """
        about = self._metadata.row_group(group)
        most = ENTRIES_OF_ROW * about.num_rows + MAX_ROW_ENTRIES
        return any(about.column(number).num_values > most for number in self._read)


REPEATING: Final = frozenset({"DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "PLAIN_DICTIONARY"})
"""Encodings of texts that take less room than their length, as they repeat others."""


def _is_delta(column: parquet.ColumnChunkMetaData) -> bool:
    """Say whether texts of a column chunk are encoded by their differences, which Arrow reads as no dictionary."""
    return column.physical_type == "BYTE_ARRAY" and any(each.startswith("DELTA") for each in column.encodings)


def _in_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch, so that the texts of a part are not much larger than `MAX_TEXT_OCTETS`: a text that many rows have
    is there once, and takes its place in each of them when they are records."""
    octets = _sum(map(_shared_octets, batch.columns), batch.num_rows)
    if (pc.sum(octets).as_py() or 0) <= MAX_TEXT_OCTETS:
        yield batch
        return
    start = size = 0
    for row, more in enumerate([*octets.to_pylist(), MAX_TEXT_OCTETS + 1]):
        if row > start and size + more > MAX_TEXT_OCTETS:
            yield batch.take(pa.array(range(start, row)))  # a slice would keep the lists of all rows
            start, size = row, 0
        size += more


def _shared_octets(column: pa.Array) -> pa.Array:
    """Return how many octets the texts of each row take, of those that were read as dictionaries."""
    if pa.types.is_dictionary(column.type):
        return pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices).fill_null(0)
    if pa.types.is_struct(column.type):
        return _sum(map(_shared_octets, column.flatten()), len(column))
    if pa.types.is_map(column.type):
        entries = pc.add(_shared_octets(column.keys), _shared_octets(column.items))
        sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(entries)])
        return pc.subtract(sums.take(column.offsets[1:]), sums.take(column.offsets[:-1]))
    return _sum((), len(column))


def _sum(octets: Iterable[pa.Array], rows: int) -> pa.Array:
    return reduce(pc.add, octets, pa.repeat(pa.scalar(0, pa.int64()), rows))


def _batches(
    split: Split, stream: BinaryIO, wanted: WantedLines | None = None
) -> Iterator[pa.RecordBatch | RejectedRow]:
    """Read row groups: all, or those with wanted lines."""
    log = split.log
    line = split.first_line
    try:
        with memory_told(log.name):
            metadata = parquet.read_metadata(stream)
            columns = ParquetColumns(metadata)
            found = parquet.ParquetFile(stream, metadata=metadata, read_dictionary=columns.shared)
        groups = range(split.start, found.metadata.num_row_groups if split.end is None else split.end)
    except (pa.ArrowException, InvalidRecordError) as error:
        yield RejectedRow(log.name, line, f"cannot be read from here on: {error}")
        return
    for group in groups:  # one by one, as damage in one of several would lose them all
        end = line + metadata.row_group(group).num_rows
        if wanted is None or (wanted.next is not None and wanted.next < end):
            try:
                if columns.has_long_rows(group):
                    raise InvalidRecordError("rows have too many entries")
                with memory_told(log.name):
                    for batch in found.iter_batches(columns.rows_at_a_time(group), [group], columns.names):
                        for part in _in_parts(batch):
                            yield columns_of_rows(as_records(part), line)
                            line += part.num_rows
            except (pa.ArrowException, InvalidRecordError, OSError) as error:
                yield RejectedRow(log.name, line, f"rows {line} to {end - 1} cannot be read: {error}")
        line = end


LINE_READERS: Final[Mapping[LogForm, Callable[..., Iterator[Any]]]] = {
    LogForm.LINES: _read_plain,
    LogForm.GZIP: _read_gzipped,
}
READERS: Final[Mapping[LogForm, Callable[[Split, BinaryIO], Iterator[CapturedRecord | RejectedRow]]]] = {
    **{form: partial(reader, parse=_parsed) for form, reader in LINE_READERS.items()},
    LogForm.PARQUET: _read_parquet,
}
