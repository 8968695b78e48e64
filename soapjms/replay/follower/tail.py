"""Plans for the new lines in a folder of logs: parts of whole lines to be read together, the oldest records first.

Files are read side by side in the order of their times, as if they were one: a client's log of last week never makes
the service's log of last week late. A plan holds the read positions, so the last plan is enough to resume from.

A file is known by what was read of it, whatever its name is now: a log that was renamed is read on, and one that was
written anew under its name is read from its beginning.

A recorder appends lines, or gzip members with whole lines, so the file itself shows what is whole. The rest, a line or
member without its end, is left for later; a torn member is recognised by another that follows it. A Parquet file is
whole when its end is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC
from hashlib import blake2b
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import format_time, parse_time
from soapjms.replay.errors import memory_told
from soapjms.replay.gzip_members import pieces
from soapjms.replay.inputs import (
    HEAD_OCTETS,
    MARK,
    SUFFIXES,
    FolderContents,
    LogFile,
    LogForm,
    RejectedRow,
    Split,
    files_below,
    form_of,
    open_file,
    opened,
    whole,
    why_closed,
)
from soapjms.replay.uris import shown

READ_OCTETS: Final = 1 << 18


class WholePart(NamedTuple):
    """The whole lines of a log from a position on.

    Attributes:
        end: position of the next read, in octets of the file.
        lines: the number of lines before that.
        octets: their size, uncompressed.
    """

    end: int
    lines: int
    octets: int = 0


class Chunk(NamedTuple):
    """A part of a log that consists of whole lines.

    Attributes:
        path: path of the file.
        form: form of the file.
        start, end: positions in the file, in octets.
        first_line: the number of the first line.
        rest: whether it is all the rest of the file, whole or not.
        marked: whether it begins with a byte order mark.
        problem: why it is rejected instead of read, or None.
        digest: that of the file up to `end`, or up to `start` if it is the rest, see `digest_of`; empty to read
            whatever is there now.
    """

    path: str
    form: LogForm
    start: int
    end: int
    first_line: int
    rest: bool = False
    marked: bool = False
    problem: str | None = None
    digest: str = ""

    @property
    def name(self) -> str:
        """The file's name for display; octets that are not UTF-8 as backslash escapes."""
        return shown(self.path)


def form_at(path: str) -> LogForm:
    """Return the form of the log at a path.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    with open_file(path) as stream:
        return form_of(stream.read(HEAD_OCTETS), path)


SEEN_OCTETS: Final = 1 << 12
"""Number of octets at the beginning and at the end of what was read of a file that show whether it is still there."""
DIGEST_OCTETS: Final = 16


def digest_of(stream: BinaryIO, end: int) -> str:
    """Return a digest of the first and the last octets before a position of a file."""
    digest = blake2b(digest_size=DIGEST_OCTETS)
    for start in (0, max(0, end - SEEN_OCTETS)):
        stream.seek(start)
        digest.update(stream.read(min(SEEN_OCTETS, end)))
    return digest.hexdigest()


def _whole_rows(stream: BinaryIO, limit: int) -> WholePart:
    """Take a Parquet file as a whole, once its end is there."""
    try:
        with memory_told(stream.name):
            rows = parquet.ParquetFile(stream).metadata.num_rows
    except (pa.ArrowException, OSError):
        return WholePart(0, 0)
    size = stream.seek(0, os.SEEK_END)
    return WholePart(size, rows, size)


def _whole_lines(stream: BinaryIO, limit: int) -> WholePart:
    position = start = end = stream.tell()
    lines = 0
    while (octets := stream.read(READ_OCTETS)) and (end == start or position - start < limit):
        last = octets.rfind(b"\n") + 1
        if last:
            end, lines = position + last, lines + octets.count(b"\n")
        position += len(octets)
    return WholePart(end, lines, end - start)


def _whole_members(stream: BinaryIO, limit: int) -> WholePart:
    """Find whole members, with torn ones between them; a torn member at the end may still be growing."""
    found = WholePart(stream.tell(), 0)
    inflated = lines = 0
    last = b"\n"
    for octets, end, problem in pieces(stream):
        inflated += len(octets)
        lines += octets.count(b"\n")
        last = octets[-1:] or last
        if problem is not None:
            lines, last = lines + 1, b"\n"  # the line with the damage counts as one
        if end is not None and last == b"\n":
            found = WholePart(end, lines, inflated)
            if inflated >= limit:
                break
    return found


FINDERS: Final = {LogForm.LINES: _whole_lines, LogForm.GZIP: _whole_members, LogForm.PARQUET: _whole_rows}


def next_record(path: str, form: LogForm, start: int) -> tuple[str, bool]:
    """Return the time of the record at a position of a file, and whether a byte order mark stands before it.

    The time is text that sorts in order of time; it is empty if there is no record, so that it comes first.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as stream:
        if form is LogForm.PARQUET:
            return _first_time(stream), False
        stream.seek(start)
        line = _first_line(stream) if form is LogForm.GZIP else stream.readline(READ_OCTETS)
    marked = start == 0 and line.startswith(MARK)
    return _time_of(line.removeprefix(MARK) if marked else line), marked


def _first_line(stream: BinaryIO) -> bytes:
    found = b""
    for octets, _, problem in pieces(stream):
        found += octets
        if problem is not None or b"\n" in found or len(found) > READ_OCTETS:
            break
    return found.partition(b"\n")[0]


def _time_of(line: bytes) -> str:
    try:
        return format_time(parse_time(json.loads(line).get("time")))
    except (ValueError, AttributeError, TypeError, InvalidRecordError, RecursionError):
        return ""


def _first_time(stream: BinaryIO) -> str:
    try:
        with memory_told(stream.name):
            batch = next(parquet.ParquetFile(stream).iter_batches(1, columns=["time"]), None)
        time = None if batch is None else batch.column(0)[0].as_py()
        return format_time(time if time.tzinfo else time.replace(tzinfo=UTC)) if time is not None else ""
    except (pa.ArrowException, AttributeError, IndexError, ValueError, OverflowError):  # no time, or no such column
        return ""


MAX_LOOKS: Final = 5
"""How often a folder is looked through for a file, as others may be renamed at the same time."""


@contextmanager
def opened_chunk(chunk: Chunk) -> Iterator[tuple[Split, BinaryIO] | RejectedRow]:
    """Yield a chunk as a part of a log, and its open file, which may be renamed meanwhile; or why it cannot be read."""
    if chunk.problem is not None:
        yield RejectedRow(chunk.name, None, chunk.problem)
        return
    try:
        stream = _open(chunk)
    except OSError as error:
        yield RejectedRow(chunk.name, None, f"cannot be read: {error.strerror or error}")
        return
    if stream is None:
        yield not_in_time(chunk)
        return
    with stream:
        stream.seek(0)
        split = _split_of(chunk, stream)
        stream.seek(0)
        yield split if isinstance(split, RejectedRow) else (split, stream)


def not_in_time(chunk: Chunk) -> RejectedRow:
    """Return the row of rejected/ for a chunk that is gone."""
    said = f"the octets from {chunk.start} to {chunk.end} were not read in time: the file was written anew or moved"
    return RejectedRow(chunk.name, None, said)


def is_still_there(chunk: Chunk, stream: BinaryIO) -> bool:
    """Say whether a file has what a chunk is a part of: all of it, or of the rest of a file, what comes before."""
    with suppress(OSError):
        return not chunk.digest or digest_of(stream, chunk.start if chunk.rest else chunk.end) == chunk.digest
    return False


def _split_of(chunk: Chunk, stream: BinaryIO) -> Split | RejectedRow:
    if chunk.form is LogForm.PARQUET:
        found = opened(stream, 0, chunk.name, chunk.path)
        return found if isinstance(found, RejectedRow) else whole(found).without_groups
    log = LogFile(0, chunk.name, chunk.path, chunk.end, chunk.form)
    return Split(log, chunk.start, None if chunk.rest else chunk.end, chunk.first_line)


def _open(chunk: Chunk) -> BinaryIO | None:
    """Open a chunk's file, which may have been renamed in its folder since; return None if it is gone.

    Raises:
        OSError: it cannot be opened, and nothing is known of its content.
    """
    if not chunk.digest:
        return open_file(chunk.path)
    for _ in range(MAX_LOOKS):
        beside: list[Path] = []
        with suppress(OSError):
            beside = sorted(each for each in Path(chunk.path).parent.iterdir() if each.name.endswith(SUFFIXES))
        for path in (chunk.path, *map(str, beside)):
            with suppress(OSError):
                stream = open_file(path)
                if is_still_there(chunk, stream):
                    return stream
                stream.close()
    return None


GONE: Final = "\0"
"""What follows the former path in the name of the position of a file that is not there any more, or was missed."""
MAX_GONE: Final = 1000
"""Number of such positions that are kept, in case that their files are found under other names."""
PLAN_OCTETS: Final = 64 << 20
"""Approximate size of the lines in a plan."""
PLAN_PARTS: Final = 16
"""Approximate number of parts of files in a plan; each file gets its turn after one part."""
PLAN_CHUNKS: Final = 1000
"""Maximum number of parts in a plan, about: there may be many small files."""
GROWTH_FACTOR: Final = 1.2
"""Factor by which an unfinished part must grow before it is examined again, while the file is growing."""
MIN_GROWTH_OCTETS: Final = 1 << 20
"""Size in octets up to which an unfinished part is examined whenever it has grown."""


@dataclass(slots=True)
class FilePosition:
    """The read position of a file.

    Attributes:
        octets: how many octets of the file were read.
        line: number of the next line.
        form: form of the file; None while it is unknown.
        dead: whether it is a folder that was rejected.
        tried: its size when it was last examined in vain.
        inode: the number of the file in its file system; 0 while it is unknown.
        digest: that of the octets that were read, see `digest_of`; empty if an earlier version read them.
    """

    octets: int = 0
    line: int = 1
    form: LogForm | None = None
    dead: bool = False
    tried: int = 0
    inode: int = 0
    digest: str = ""

    def is_read(self, stream: BinaryIO) -> bool:
        """Say whether a file begins with what was read."""
        if not self.digest:  # by an earlier version, which gave up files that were written anew
            return self.form is LogForm.PARQUET or not self.dead
        return digest_of(stream, self.octets) == self.digest


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts that are to be read next.

    Attributes:
        number: counts the plans, from 0.
        chunks: the parts.
        places: the read positions after them, by path; that of a file that is gone by its former path and `GONE`.
        unread: the time of the earliest record that was left for the next plan, empty if that record has no time; None
            if all records are in this plan.
    """

    number: int
    chunks: tuple[Chunk, ...]
    places: dict[str, FilePosition]
    unread: str | None

    def to_json(self) -> str:
        """Write the plan as one line of JSON."""
        places = {name: asdict(place) for name, place in self.places.items()}
        return json.dumps([self.number, self.chunks, places, self.unread])

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote."""
        number, chunks, places, unread = json.loads(text)
        return cls(
            number,
            tuple(Chunk(path, LogForm(form), *rest) for path, form, *rest in chunks),
            {name: _place(each) for name, each in places.items()},
            unread,
        )


def _place(members: dict[str, Any]) -> FilePosition:
    form = members["form"]
    return FilePosition(**{**members, "form": None if form is None else LogForm(form)})


@dataclass(order=True, slots=True)
class _Source:
    """A file with unread content, the time of its next record, and its size when that was read."""

    time: str
    path: str
    place: FilePosition = field(compare=False)
    size: int = field(compare=False)
    marked: bool = field(compare=False)


class Tail:
    """Watches a folder.

    Args:
        folder: the folder with the logs, searched recursively.
        leave_out: says of a path that it is not a log.
        last: the last plan, to resume from; None to begin.
        octets: approximate size of the lines in a plan.
    """

    def __init__(
        self, folder: Path, leave_out: Callable[[Path], bool], last: Plan | None, octets: int = PLAN_OCTETS
    ) -> None:
        self._folder = folder
        self._leave_out = leave_out
        self._octets = octets
        self._next = 0 if last is None else last.number + 1
        self._places = {} if last is None else {name: replace(place, tried=0) for name, place in last.places.items()}
        self._seen: dict[str, _Look] = {}
        self._sizes: dict[str, int] = {}
        self._examined: dict[str, tuple[int, int, str, bool]] = {}

    def plan(self) -> Plan | None:
        """Plan what to read next; None if there is nothing new."""
        chunks: list[Chunk] = []
        below = self._recognised()
        for each in below.refused:
            self._refuse(each, chunks)
        sources = [source for path in map(str, below.logs) if (source := self._source(path)) is not None]
        heapify(sources)
        left = self._octets
        while sources and left > 0 and len(chunks) < PLAN_CHUNKS:
            source = sources[0]
            octets = self._take(source, chunks)
            left -= octets
            following = self._source(source.path) if octets else None
            if following is None:
                heappop(sources)
            else:
                heapreplace(sources, following)
        if not chunks:
            return None
        places = {path: replace(place) for path, place in self._places.items()}
        plan = Plan(self._next, tuple(chunks), places, sources[0].time if sources else None)
        self._next += 1
        return plan

    def rests(self) -> list[Chunk]:
        """Return the parts behind the whole lines of all files, as if nothing followed."""
        found = []
        for path in map(str, self._recognised().logs):
            place = self._places.get(path, FilePosition())
            try:
                size, form = os.stat(path).st_size, place.form or form_at(path)
                if size < place.octets or (size == place.octets and (size or form is LogForm.LINES)):
                    continue  # but an empty file is neither valid gzip nor valid Parquet
                marked = place.octets == 0 and next_record(path, form, 0)[1]
            except OSError as error:
                if os.path.lexists(path):  # else it was deleted
                    found.append(Chunk(path, LogForm.LINES, 0, 0, 0, problem=why_closed(error)))
                continue
            chunk = Chunk(path, form, place.octets, size, place.line, rest=True, marked=marked, digest=place.digest)
            found.append(chunk)
        return found

    def others(self) -> list[str]:
        """Return the names of what is ignored: files that are not named like logs, and what replays wrote."""
        return [shown(path.name) for path in self._below().others]

    def _below(self) -> FolderContents:
        return files_below(self._folder, self._leave_out)

    def _refuse(self, folder: RejectedRow, chunks: list[Chunk]) -> None:
        """Reject a folder, once; if it can be listed later, its logs are read."""
        place = self._places.setdefault(folder.file, FilePosition())
        if not place.dead:
            chunks.append(Chunk(folder.file, LogForm.LINES, 0, 0, 0, problem=folder.reason))
            place.dead = True

    def _recognised(self) -> FolderContents:
        """List the folder, and find the positions of files that were renamed or written anew since the last look.

        A file that is renamed during a look may be missed, or seen twice: what looks new is looked at again. The
        position of a file that is missed all the same is kept until it is found.
        """
        for _ in range(MAX_LOOKS):
            below = self._below()
            looks = _looks(below)
            strange = {
                path for path, look in looks.items() if self._seen.get(path) != look and not self._knows(path, look)
            }
            former = self._former(strange, looks)
            if not strange or _inodes(_looks(self._below())) == _inodes(looks):
                break
        self._seen, places = looks, self._places
        renamed = {path: places[name] for path, name in former.items()}
        for path in strange.union(former.values()):
            place = places.pop(path, None)
            self._examined.pop(path, None)
            if place is not None and place.octets and path not in former.values():
                places[f"{path}{GONE}{place.inode}"] = place
        places.update({path: renamed.get(path) or FilePosition(inode=looks[path].inode) for path in strange})
        for path in [path for path in places if GONE in path][:-MAX_GONE]:
            del places[path]
        return below

    def _former(self, strange: AbstractSet[str], looks: Mapping[str, _Look]) -> dict[str, str]:
        """Return the former paths of files that were renamed, as their positions have them."""
        left: dict[int, list[str]] = {}
        for path, place in sorted(self._places.items(), key=lambda each: -each[1].octets):
            if path not in looks or path in strange:
                left.setdefault(place.inode, []).append(path)
        found = {
            path: next((name for name in left.get(look.inode, ()) if _fits(path, self._places[name], look)), None)
            for path, look in looks.items()
            if path in strange
        }
        return {path: name for path, name in found.items() if name is not None}

    def _knows(self, path: str, look: _Look) -> bool:
        """Say whether the file at a path is the one whose position is known."""
        place = self._places.get(path)
        if place is None or not _fits(path, place, look):
            return False
        place.inode = look.inode  # another if an equal file took its place
        return True

    def _source(self, path: str) -> _Source | None:
        """Examine a file; return None if there is nothing to read from it now."""
        place, look = self._places.setdefault(path, FilePosition()), _look(path)
        if look is None or look.size <= place.octets:
            return None
        size = look.size
        if not self._worth_a_look(path, place, size):
            return None
        known = self._examined.get(path)
        if known is None or known[:2] != (place.octets, size):
            try:
                place.form = place.form or form_at(path)
                known = self._examined[path] = (place.octets, size, *next_record(path, place.form, place.octets))
            except OSError:  # the file was deleted, or cannot be read yet
                return None
        _, _, time, marked = known
        return _Source(time, path, place, size, marked)

    def _worth_a_look(self, path: str, place: FilePosition, size: int) -> bool:
        """Say whether an unfinished end may be whole by now: the file grew by much, or stopped growing."""
        quiet = self._sizes.get(path) == size
        self._sizes[path] = size
        before, now = place.tried - place.octets, size - place.octets
        return before <= 0 or (now != before and (quiet or now < MIN_GROWTH_OCTETS or now > GROWTH_FACTOR * before))

    def _take(self, source: _Source, chunks: list[Chunk]) -> int:
        """Take a part of a file, and return its approximate size; 0 if nothing is whole."""
        path, place = source.path, source.place
        assert place.form is not None
        start, line = place.octets, place.line
        try:
            with open_file(path) as stream:
                inode = os.fstat(stream.fileno()).st_ino
                if not (place.is_read(stream) if start else place.inode == inode):  # another since the look at it
                    self._seen.pop(path, None)
                    return 0
                stream.seek(start)
                found = FINDERS[place.form](stream, max(1, self._octets // PLAN_PARTS))
                digest = digest_of(stream, found.end)
        except OSError:
            return 0
        if found.end > start:
            place.octets, place.line, place.tried = found.end, line + found.lines, 0
            place.digest, place.inode = digest, inode
            chunks.append(Chunk(path, place.form, start, found.end, line, marked=source.marked, digest=digest))
            return max(found.octets, 1)
        place.tried = source.size
        return 0


class _Look(NamedTuple):
    """What shows that a file was changed: with `changed` in nanoseconds since 1970."""

    inode: int
    size: int
    changed: int


def _looks(below: FolderContents) -> dict[str, _Look]:
    return {path: look for path in map(str, below.logs) if (look := _look(path)) is not None}


def _inodes(looks: Mapping[str, _Look]) -> dict[str, int]:
    return {path: look.inode for path, look in looks.items()}


def _look(path: str) -> _Look | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Look(found.st_ino, found.st_size, found.st_mtime_ns)


def _fits(path: str, place: FilePosition, look: _Look) -> bool:
    """Say whether a position is that of the file at a path."""
    if not place.octets:
        return place.inode == look.inode
    if look.size < place.octets or (place.form is LogForm.PARQUET and look.size != place.octets):
        return False
    try:
        with open_file(path) as stream:
            return place.is_read(stream)
    except OSError:
        return place.inode == look.inode
