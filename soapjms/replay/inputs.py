"""The files that a run reads, their forms, and the parts that they are read in.

A file that cannot be opened becomes a `RejectedRow`, never an exception, and is never left out.

Spec: capture record, version 1.
"""

from __future__ import annotations

import codecs
import errno
import glob
import os
import re
import stat
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from soapjms.protocol.text import shown as quoted
from soapjms.replay.errors import NoInputError, memory_told
from soapjms.replay.marks import HIDING, SUMMARY, own_names
from soapjms.replay.parquet import schema_problem
from soapjms.replay.uris import is_elsewhere, shown, without_query

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".parquet")
GZIP_MAGIC: Final = b"\x1f\x8b"
PARQUET_MAGIC: Final = b"PAR1"
MARK: Final = codecs.BOM_UTF8
CHUNK_OCTETS: Final = 1 << 18
GZIP_RATIO: Final = 8
"""The least factor by which capture logs grow when they are decompressed."""
HEAD_OCTETS: Final = 1 << 12
"""Number of octets at the beginning of a file that show its form."""
TORN_LINES: Final = 2
"""Number of lines, the first and the last that were read, which may be the end and the beginning of a record."""
BINARY: Final = frozenset({*range(1, 9), *range(14, 32)})
"""Octets that no text has. Zeros are left out: after a failure of power a log may have them in place of its end."""
RECORD: Final = re.compile(rb'\s*\{.*"v"')
"""A line that may be a record, whole or damaged: an object, and a member for the version of its form."""
SEEN_OCTETS: Final = 16
"""Number of octets of a file of something else that its error shows."""
NO_LOG: Final = "no capture log"
A_LOG: Final = (
    "a capture log has a JSON object with a member v in each line, plain or compressed with gzip, or is Parquet: "
    "soapjms capture and soapjms.Recorder write them"
)


class LogForm(StrEnum):
    """The forms of a capture log."""

    LINES = "JSON Lines"
    GZIP = "JSON Lines, compressed"
    PARQUET = "Parquet"


class LogFile(NamedTuple):
    """One capture log.

    Attributes:
        number: its number in the run.
        name: its name as the user wrote it.
        path: its real path; that in its file system for fsspec, a URI for Hadoop.
        size: its size in octets.
        form: its form.
        marked: whether it begins with a byte order mark, which is skipped.
        groups: for Parquet, the number of rows and octets of each row group.
        problem: why it seems to be no capture log, by its first octets; None if it does not.
        uri: a URI of its file system for fsspec; empty on this machine, and if Hadoop opens it.
    """

    number: int
    name: str
    path: str
    size: int
    form: LogForm
    marked: bool = False
    groups: tuple[tuple[int, int], ...] = ()
    problem: str | None = None
    uri: str = ""

    @property
    def gzipped(self) -> bool:
        """Whether it is compressed as a whole, so that it cannot be read in parts."""
        return self.form is LogForm.GZIP


class Split(NamedTuple):
    """A part of a log that one task reads.

    Attributes:
        log: the log.
        start, end: the octets in which its lines begin (`end` exclusive, None for the end of the file); for Parquet,
            the row groups; for gzip, the octets in which its members begin, which hold whole lines.
        first_line: the number of the first line; 1 if unknown, and then lines are counted from `start`.
        octets: the approximate size of its content.
    """

    log: LogFile
    start: int
    end: int | None
    first_line: int = 1
    octets: int = 0

    @property
    def without_groups(self) -> Split:
        """The same without the row groups of the whole log, which only serve to split it."""
        return self._replace(log=self.log._replace(groups=()))

    @property
    def is_counted_anew(self) -> bool:
        """Whether its lines are counted from its start, as the number of lines before it is unknown."""
        return self.log.form is LogForm.LINES and (self.start > 0 or self.end is not None)


class RejectedRow(NamedTuple):
    """Something that could not be read, as a row of rejected/.

    `line` is None for a whole file. In `raw`, octets that are not UTF-8 are shown as backslash escapes.
    """

    file: str
    line: int | None
    reason: str
    raw: str | None = None


class ExpandedInputs(NamedTuple):
    """The files that arguments refer to.

    Attributes:
        logs: the logs.
        rejected: files and folders that cannot be read.
        others: the names of what is ignored in folders: files that are not named like logs, and folders that a replay
            wrote into.
    """

    logs: list[LogFile]
    rejected: list[RejectedRow]
    others: list[str]


# Which files


def expand(logs: Iterable[str | os.PathLike[str]], leave_out: str | os.PathLike[str] | None = None) -> ExpandedInputs:
    """Find the files that arguments refer to: files, folders (their .jsonl, .jsonl.gz and .parquet files) and globs.

    Each may be a URI for fsspec. Folders are searched recursively. A file that is named twice is read once. Files that
    cannot be opened, arguments without any file, and files of something else that an argument names, are among the
    rejected. The lines of such a file that was found in a folder, or by a glob, are rejected one by one when it is
    read.

    Args:
        logs: the arguments.
        leave_out: a folder, or its URI, whose files are not input: the output of this run.
    """
    output = None if leave_out is None else os.fspath(leave_out)
    others: dict[Hashable, str] = {}
    places = set[Hashable]()
    entries: list[RejectedRow | _Candidate] = []
    for each in logs:
        argument, refused = os.fspath(each), list[RejectedRow]()
        names = (_remote_names if is_elsewhere(argument) else _names)(argument, output, refused, others)
        if not names and not refused:
            refused.append(RejectedRow(shown(argument), None, "no file matches"))
        entries += refused
        for candidate in names:
            if candidate.place not in places:
                places.add(candidate.place)
                entries.append(candidate)
    found: list[LogFile] = []
    rejected: list[RejectedRow] = []
    for log in _open_all(entries):
        if isinstance(log, RejectedRow):
            rejected.append(log)
        else:
            found.append(log._replace(number=len(found)))
    if found:  # a wildcard of the shell names results too; they are noted
        rejected = [each for each in rejected if each.reason != ONLY_RESULTS]
    return ExpandedInputs(found, rejected, [name for place, name in others.items() if place not in places])


class _Candidate(NamedTuple):
    """A file that may be a log.

    Attributes:
        name: its name.
        path, uri: see `LogFile`.
        place: what tells it from all other files, whatever name leads to it.
        is_named: whether the user named it, and not a folder or a glob.
        is_distant: whether it is on another machine, to which there may be many connections.
    """

    name: str
    path: str
    uri: str
    place: Hashable
    is_named: bool
    is_distant: bool = False


def _open_all(entries: Iterable[RejectedRow | _Candidate]) -> Iterator[LogFile | RejectedRow]:
    """Open files and see what each is; remote ones together where that is possible, as each takes some round trips."""
    threads = ThreadPoolExecutor(CONCURRENT_LOOKS)
    try:
        opening = [
            threads.submit(_open, each) if isinstance(each, _Candidate) and each.is_distant else each
            for each in entries
        ]
        yield from (each.result() if isinstance(each, Future) else _open(each) for each in opening)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _open(entry: RejectedRow | _Candidate) -> LogFile | RejectedRow:
    if isinstance(entry, RejectedRow):
        return entry
    log = LogFile(0, shown(entry.name), entry.path, 0, LogForm.LINES, uri=entry.uri)
    try:
        with open_log(log, LOOK_AHEAD_OCTETS) as stream:
            found = opened(stream, log.number, log.name, log.path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return RejectedRow(log.name, None, why_closed(error))
    if isinstance(found, RejectedRow):
        return found
    if found.problem is not None and entry.is_named:
        return RejectedRow(log.name, None, found.problem)
    return found._replace(uri=log.uri)


def open_file(path: str) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: the file cannot be opened, or is not a regular file: opening a pipe would wait for its writer.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return open(path, "rb")


def _content(path: str) -> bytes:
    with open_file(path) as stream:
        return stream.read()


READ_AHEAD_OCTETS: Final = 4 << 20
LOOK_AHEAD_OCTETS: Final = 1 << 16
"""How many octets are fetched beyond those that are read of a remote log: if all of it is read, or its form seen."""
CONCURRENT_LOOKS: Final = 16
"""Number of remote logs whose form is seen at the same time."""


def open_log(log: LogFile, ahead: int = READ_AHEAD_OCTETS) -> BinaryIO:
    """Open a log for reading; `ahead` is for remote ones.

    Raises:
        OSError: it cannot be opened.
    """
    if not log.uri:
        return open_file(log.path)
    from soapjms.replay.remote_files import open_remote

    return open_remote(log.uri, log.path, ahead)


def why_closed(error: OSError | ValueError) -> str:
    """Return the reason for rejecting a file that could not be opened."""
    return f"cannot be opened: {getattr(error, 'strerror', None) or error}"


def form_of(start: bytes, name: str) -> LogForm:
    """Return the form of a log, by its first octets, else by its name."""
    if start.startswith(PARQUET_MAGIC) or name.endswith(".parquet"):
        return LogForm.PARQUET
    return LogForm.GZIP if start.startswith(GZIP_MAGIC) or name.endswith(".gz") else LogForm.LINES


def opened(stream: BinaryIO, number: int, name: str, path: str) -> LogFile | RejectedRow:
    """Examine the beginning of a log, or the end of a Parquet file, and describe the log."""
    start = stream.read(HEAD_OCTETS)
    size = stream.seek(0, os.SEEK_END)
    form = form_of(start, name)
    if form is LogForm.PARQUET:
        try:
            with memory_told(name):
                found = parquet.ParquetFile(stream)
        except (pa.ArrowException, OSError) as error:
            return RejectedRow(name, None, f"cannot be read as Parquet: {error}")
        problem = schema_problem(found.schema_arrow)
        if problem is not None:
            return RejectedRow(name, None, problem)
        groups = (found.metadata.row_group(number) for number in range(found.metadata.num_row_groups))
        rows = tuple((each.num_rows, each.total_byte_size) for each in groups)
        return LogFile(number, name, path, size, form, groups=rows)
    head, is_all = _first_inflated(start, size) if form is LogForm.GZIP else (start, len(start) == size)
    problem = None
    if _is_foreign(head.removeprefix(MARK), is_all=is_all):
        inside = "its compressed content" if form is LogForm.GZIP else "it"
        problem = f"{NO_LOG}: {inside} begins with {quoted(head[:SEEN_OCTETS])}; {A_LOG}"
    return LogFile(number, name, path, size, form, head.startswith(MARK), problem=problem)


def _first_inflated(start: bytes, size: int) -> tuple[bytes, bool]:
    """Decompress the first octets of a gzip file, and say whether they are all of it.

    Return b"" if it is damaged, which reading it will report.
    """
    stream = zlib.decompressobj(wbits=31)
    try:
        head = stream.decompress(start, HEAD_OCTETS)
    except zlib.error:
        return b"", False
    return head, stream.eof and not stream.unused_data and len(start) == size


def _is_foreign(head: bytes, *, is_all: bool) -> bool:
    """Say whether the beginning of a file shows that it is something else than records in JSON Lines.

    A torn log may begin in the middle of a record, so one line that is no record shows nothing, but by its first
    characters. An object that goes on beyond the head may yet have the member that shows a record.

    Args:
        head: the first octets of the file, decompressed.
        is_all: whether that is the whole file.
    """
    lines = [line for line in head.split(b"\n") if line.strip()]
    if not lines or any(map(RECORD.match, lines)):
        return False
    objects = [line.lstrip().startswith(b"{") for line in lines]
    if is_all or len(lines) - objects[-1] > TORN_LINES:
        return True
    return not any(objects) and (lines[0].lstrip().startswith(b"<") or not BINARY.isdisjoint(head))


def _remote_names(
    uri: str, leave_out: str | None, rejected: list[RejectedRow], others: dict[Hashable, str]
) -> list[_Candidate]:
    """Find the files that a URI refers to: see `_names`."""
    from soapjms.replay import remote_files

    try:
        matches, problems, is_distant = remote_files.find(uri, leave_out)
    except OSError as error:
        rejected.append(RejectedRow(shown(uri), None, why_closed(error)))
        return []
    found: list[_Candidate] = []
    rejected.extend(RejectedRow(shown(name), None, f"{CLOSED}: {why}") for name, why in problems.items())
    for match in matches:
        ignored = []
        for name, path, place in match.files:
            if without_query(name).endswith(SUFFIXES) or name == match.name:
                found.append(_Candidate(name, path, uri, place, name.rstrip("/") == uri.rstrip("/"), is_distant))
            else:
                ignored.append((name, path, place))
        for name, _, place in [*ignored, *match.results]:
            if not is_hidden(name.removeprefix(match.name).split("/")):
                others[place] = shown(name).rpartition("/")[2]
    if not found and any(match.is_folder for match in matches) and not problems:
        has_results = any(match.results for match in matches)
        rejected.append(RejectedRow(shown(uri), None, _why_no_logs(uri, leave_out, has_results=has_results)))
    return found


CLOSED: Final = "the folder cannot be listed"
NO_LOGS: Final = f"the folder holds no .jsonl, .jsonl.gz or .parquet file; {A_LOG}"
ONLY_RESULTS: Final = f"the folder holds results of a replay, and no logs; {A_LOG}"
OUTPUT: Final = "results must not go into the folder of the logs; name another folder for them"


def _names(
    argument: str, leave_out: str | None, rejected: list[RejectedRow], others: dict[Hashable, str]
) -> list[_Candidate]:
    """Find the files that an argument refers to; add rejected folders, and what else is beside the logs in folders."""
    output = None if leave_out is None or is_elsewhere(leave_out) else Path(leave_out).resolve()
    is_name = os.path.lexists(argument) or not glob.has_magic(argument)
    found: list[str] = []
    has_results = False
    for match in [argument] if is_name else sorted(glob.glob(argument, recursive=True)):
        if os.path.isdir(match):
            below = files_below(match, lambda path: output is not None and path.resolve().is_relative_to(output))
            rejected.extend(below.refused)
            others.update((os.path.realpath(path), shown(path.name)) for path in below.others)
            found.extend(map(str, below.logs))
            has_results |= below.has_results
        else:
            found.append(match)
    if not found and not rejected and os.path.isdir(argument):
        rejected.append(RejectedRow(shown(argument), None, _why_no_logs(argument, leave_out, has_results=has_results)))
    paths = [(name, os.path.realpath(name)) for name in found]
    return [_Candidate(name, path, "", path, is_named=name == argument) for name, path in paths]


def _why_no_logs(folder: str, leave_out: str | None, *, has_results: bool) -> str:
    """Return why a folder, or its URI, has no logs, and what would be right."""
    if leave_out is not None and _is_within(folder, leave_out):
        return OUTPUT
    return ONLY_RESULTS if has_results else NO_LOGS


def _is_within(folder: str, other: str) -> bool:
    if is_elsewhere(folder) or is_elsewhere(other):
        return f"{folder.rstrip('/')}/".startswith(f"{other.rstrip('/')}/")
    return Path(folder).resolve().is_relative_to(Path(other).resolve())


class FolderContents(NamedTuple):
    """The files in a folder and all folders below.

    Attributes:
        logs: files with the names of logs, each once, in order of the paths.
        refused: folders that cannot be listed.
        others: files with other names, and folders that a replay wrote into, except those that begin with a dot or
            underscore, such as Spark's own files.
        has_results: whether a replay wrote into one of the folders; what it wrote is not among the files.
    """

    logs: list[Path]
    refused: list[RejectedRow]
    others: list[Path]
    has_results: bool


def files_below(folder: str | Path, leave_out: Callable[[Path], bool]) -> FolderContents:
    """Find the files in a folder and all folders below, including those behind links.

    No folder is searched twice, so links may form cycles. If a log has several names, a name without links is
    preferred.

    Args:
        folder: the folder to search.
        leave_out: says of a path that it is not input.
    """
    refused: list[RejectedRow] = []
    logs: dict[str, Path] = {}
    others: list[Path] = []
    results: list[Path] = []
    for at, names in _folders(folder, leave_out, refused, results):
        inside = at.relative_to(folder).parts
        for path in sorted((at / name for name in names), key=lambda path: (path.is_symlink(), path)):
            if path.name.endswith(SUFFIXES):
                if not leave_out(path):
                    logs.setdefault(os.path.realpath(path), path)
            elif not (is_hidden((*inside, path.name)) or leave_out(path)):
                others.append(path)
    others += (each for each in results if not is_hidden(each.relative_to(folder).parts))
    return FolderContents(sorted(logs.values()), refused, others, bool(results))


def is_hidden(names: Iterable[str]) -> bool:
    """Say whether one of the names on the path to a file is that of a hidden file or folder."""
    return any(name.startswith(HIDING) for name in names)


def _folders(
    folder: str | Path, leave_out: Callable[[Path], bool], refused: list[RejectedRow], results: list[Path]
) -> Iterator[tuple[Path, list[str]]]:
    """Walk a folder, then the targets of its links, and so on; yield each folder once, with the names of its files.

    Folders to leave out are not searched, and what a replay wrote is left out of others; the folders that it wrote into
    are added to `results`.
    """

    def refuse(error: OSError) -> None:
        refused.append(RejectedRow(shown(error.filename), None, f"{CLOSED}: {error.strerror}"))

    seen: set[str] = set()
    tops = [os.fspath(folder)]
    while tops:
        links: list[str] = []
        for top in tops:
            for at, folders, names in os.walk(top, onerror=refuse):
                real = os.path.realpath(at)
                if real in seen or leave_out(Path(at)):
                    folders.clear()
                    continue
                seen.add(real)
                own = own_names([*folders, *names], partial(_content, os.path.join(at, SUMMARY)))
                if own:
                    results.append(Path(at))
                    folders[:], names = ([each for each in some if each not in own] for some in (folders, names))
                links.extend(path for name in folders if os.path.islink(path := os.path.join(at, name)))
                yield Path(at), names
        tops = sorted(links)


# Splits

SPLIT_OCTETS: Final = 32 << 20
"""Maximum size of the part of a log that one task reads, if it can be read in parts."""
MIN_SPLIT_OCTETS: Final = 4 << 20
"""Minimum size of a part, for logs that are small for the number of cores."""
TASKS_OF_CORE: Final = 8
"""Minimum number of reading tasks per core, if there is enough work."""


def split_size(logs: Iterable[LogFile], cores: int) -> int:
    """Choose the size of the parts that logs are read in: several for each core, so that all end at about one time."""
    return min(SPLIT_OCTETS, max(MIN_SPLIT_OCTETS, octets_of(logs) // (TASKS_OF_CORE * cores)))


def splits(logs: Sequence[LogFile], size: int) -> list[Split]:
    """Split logs into parts of about `size` octets; a gzipped log is one part, and row groups of Parquet stay whole.

    The number of the first line is known for the first part of a file, and for all parts of Parquet. Lines of others
    are counted from the beginning of their part; `FactReader.read` says how many lines each has.
    """
    parts: list[Split] = []
    for log in logs:
        if log.form is LogForm.PARQUET:
            parts.extend(_row_groups(log, size))
        elif log.gzipped or log.size <= size:
            parts.append(whole(log))
        else:
            starts = range(0, log.size, size)
            ends = [*starts[1:], None]
            parts.extend(Split(log, start, end, octets=size) for start, end in zip(starts, ends, strict=True))
    return parts


GATHERED_PARTS: Final = 256
"""Maximum number of small parts that are read together."""


def small_together(parts: Sequence[Split]) -> list[range]:
    """Return the numbers of the parts that are read together: small ones that follow each other.

    Reading has its price however little it reads. A part whose lines are counted anew stays by itself.
    """
    groups: list[range] = []
    octets = start = 0
    for number, part in enumerate(parts):
        is_apart = part.is_counted_anew or parts[start].is_counted_anew
        is_full = octets + part.octets > MIN_SPLIT_OCTETS or number - start == GATHERED_PARTS
        if number > start and (is_apart or is_full):
            groups.append(range(start, number))
            octets, start = 0, number
        octets += part.octets
    return [*groups, range(start, len(parts))] if parts else []


def whole(log: LogFile) -> Split:
    """Return a whole log as one part."""
    return Split(log, 0, None, octets=_octets(log))


def octets_of(logs: Iterable[LogFile]) -> int:
    """Return the approximate size of the uncompressed content of logs."""
    return sum(map(_octets, logs))


def _octets(log: LogFile) -> int:
    """Return the approximate size of a log's uncompressed content."""
    if log.form is LogForm.PARQUET:
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


def count_lines(split: Split, *, was_read: bool) -> int:
    """Count the line ends in the octets of a part that was not read to its end; 0 if it still cannot be read.

    Raises:
        NoInputError: it was read, and can be no more.
    """
    try:
        with open_log(split.log) as stream:
            stream.seek(split.start)
            left = (split.end if split.end is not None else split.log.size) - split.start
            lines = 0
            while left > 0 and (octets := stream.read(min(CHUNK_OCTETS, left))):
                lines += octets.count(b"\n")
                left -= len(octets)
            return lines
    except OSError as error:
        if not was_read:
            return 0
        raise NoInputError(f"{split.log.name}: {why_closed(error)}, though it could be before") from None
