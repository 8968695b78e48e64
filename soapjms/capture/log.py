"""Writing the files of a capture log: each of limited size, and readable at any time, even when the disk is full.

`Recorder`, `soapjms capture` and `soapjms generate` all write through this module. Nothing here knows of messages.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from brokers.files import OPEN_ALREADY
from soapjms import events
from soapjms.protocol.errors import UsageError

DEFAULT_ROTATION_OCTETS: Final = 64 << 20
"""Size at which a capture log's file is full, in octets."""

CHUNK_OCTETS: Final = 1 << 18
"""Octets that are compressed and written together."""

GZIP_LEVEL: Final = 3
"""Compression level: capture logs shrink to a few hundredths anyway, and a broker's machine has other work to do."""

NOTHING: Final = gzip.compress(b"", mtime=0)
"""The content of a compressed file without lines: a file without any member would not be valid gzip."""


HEAD_OCTETS: Final = 1 << 12
"""Number of octets at the beginning of an existing file that are looked at."""

LINES: Final = "JSON Lines"
COMPRESSED: Final = "JSON Lines compressed with gzip"

BEGINNINGS: Final[Mapping[str, re.Pattern[bytes]]] = {
    LINES: re.compile(rb'(?:\xef\xbb\xbf)?[\s\0]*(?:\{[ \t]*"|\{?\Z)'),
    COMPRESSED: re.compile(rb"\x1f\x8b|\x1f?\Z|\0+\Z"),
}
"""The beginning of a log by its form: the first member of an object, or the magic number of gzip.

Whoever wrote it may have been killed before that, and after a failure of power a log may have zeros.
"""


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def file_name(begun: datetime, number: int, suffix: str) -> str:
    """Name a file of a log by the time the log was begun, in UTC, and the number of the file."""
    return f"capture-{begun:%Y%m%dT%H%M%SZ}-{number:04}{suffix}"


class LogFiles:
    """Numbered files, to which lines are added. Not thread-safe. Usable in a `with` statement.

    Lines are collected, compressed as one gzip member and written together. So a file consists of whole members: after
    a process is killed, any reader of gzip can read all that was flushed. A partial write, as on a full disk, is cut
    off again. If that fails, or another process was killed while it wrote, the next lines begin a new line or member,
    from which `soapjms replay` reads on.

    When a file is full, another is begun. If that fails, which is logged, the last file grows on.

    Args:
        name: returns the path of the file with a number.
        number: number of the first file.
        rotation: size of a file, in octets, after which another is begun; it exceeds this by one chunk at most.
        compress: write gzip.
        is_shared: append to a file that already exists; else such a file is left alone, and the next number is tried.

    Attributes:
        files: the files that were written, in order.

    Raises:
        UsageError: `rotation` is below 1.
        OSError: the first file cannot be opened.
    """

    def __init__(
        self, name: Callable[[int], Path], number: int = 1, *, rotation: int, compress: bool, is_shared: bool = False
    ) -> None:
        if rotation < 1:
            raise UsageError(f"rotation must be a number of octets, at least 1, got {rotation}")
        self.files: list[Path] = []
        self._name = name
        self._number = number
        self._rotation = rotation
        self._compress = compress
        self._is_shared = is_shared
        self._grows_on = False
        self._is_torn = False
        self._lines: list[bytes] = []
        self._octets = 0
        self._file = self._next(number)

    def forget(self) -> None:
        """Drop the lines that are not written yet."""
        self._lines, self._octets = [], 0

    @property
    def waiting(self) -> int:
        """The number of lines that are not written yet."""
        return len(self._lines)

    def add(self, line: bytes) -> bool:
        """Add a line; return True if enough lines wait that they should be flushed."""
        self._lines.append(line)
        self._octets += len(line)
        return self._octets >= CHUNK_OCTETS

    def flush(self, *, keep: bool = False) -> int:
        """Write the waiting lines and return their number.

        Args:
            keep: keep lines that cannot be written, to try again later; else they are lost.

        Raises:
            OSError: the lines could not be written; the file is as it was before.
        """
        lines, octets = self._lines, self._octets
        if not lines:
            return 0
        self._lines, self._octets = [], 0
        try:
            self._write(b"".join(lines))
        except Exception:
            if keep:
                self._lines, self._octets = lines, octets
            raise
        return len(lines)

    def _write(self, content: bytes) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if size >= self._rotation and not self.is_empty:
            size = self._rotate(size)
        if self._compress:
            octets = gzip.compress(content, GZIP_LEVEL, mtime=0)
        else:
            octets = b"\n" + content if self._is_torn else content
        written = 0
        try:
            while written < len(octets):
                written += self._file.write(memoryview(octets)[written:])
        except OSError:
            self._cut(size, written)
            raise
        self._is_torn = False

    def _cut(self, size: int, written: int) -> None:
        """Remove a partial write from the file, unless others have written after it."""
        if not written:
            return
        try:
            if os.fstat(self._file.fileno()).st_size == size + written:
                self._file.truncate(size)
                return
        except OSError as error:
            events.CAPTURE_PARTIAL_WRITE_LEFT.log(self.files[-1], error)
        self._is_torn = True

    def _rotate(self, size: int) -> int:
        """Go on in the next file, or in this one if no other can be begun; return the size of the file in use."""
        try:
            following = self._next(self._number + 1)
        except OSError as error:
            if not self._grows_on:
                events.CAPTURE_FILE_OVER_LIMIT.log(self.files[-1], error)
            self._grows_on = True
            return size
        full, self._file = self._file, following
        full.close()
        self._grows_on = False
        return os.fstat(following.fileno()).st_size

    def _next(self, number: int) -> FileIO:
        """Begin a file, or go on in an existing one."""
        opener = partial(_appended, form=COMPRESSED if self._compress else LINES)
        while True:
            path = self._name(number)
            try:
                file = open(path, "ab" if self._is_shared else "xb", buffering=0, opener=opener)  # noqa: SIM115
            except FileExistsError:
                number += 1
                continue
            self._is_torn = not self._compress and _ends_within_a_line(path)
            if self._compress and not os.fstat(file.fileno()).st_size:
                with suppress(OSError):  # on a full disk the first lines fail too, and that is reported
                    if file.write(NOTHING) < len(NOTHING):
                        file.truncate(0)
            self.files.append(path)
            self._number = number
            return file

    @property
    def is_empty(self) -> bool:
        """Whether the file that is being written has no lines."""
        return os.fstat(self._file.fileno()).st_size <= (len(NOTHING) if self._compress else 0)

    def close(self) -> None:
        """Close the file. Call `flush` before. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _appended(path: str, flags: int, form: str) -> int:
    """Open a file for appending, with access for its owner only.

    Args:
        path, flags: as for `os.open`.
        form: the form, of `BEGINNINGS`, that the file has if it is not empty.

    Raises:
        OSError: the file cannot be opened, is a symbolic link, has another name too (a hard link), belongs to another
            user, or is something else than a log; or it is a FIFO that nobody reads.
    """
    is_open = path.startswith((*OPEN_ALREADY, "/dev/std"))
    if not is_open:
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK  # else it would wait for the reader of a FIFO
    file = os.open(path, flags | os.O_APPEND, 0o600)
    try:
        os.set_blocking(file, True)
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode):
            if found.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "this log belongs to another user; write to another file", path)
            if found.st_nlink > 1:
                raise PermissionError(errno.EPERM, "this log has another name too; write to another file", path)
            if found.st_size and not is_open and not BEGINNINGS[form].match(_head(path)):
                raise PermissionError(errno.EPERM, f"it is no capture log in {form}; write to another file", path)
            if stat.S_IMODE(found.st_mode) & 0o077:
                os.fchmod(file, 0o600)
    except OSError:
        os.close(file)
        raise
    return file


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEAD_OCTETS)


def _ends_within_a_line(path: Path) -> bool:
    """Say whether a log ends in the middle of a line, as may happen when a process is killed."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


class CaptureLog(LogFiles):
    """Files in a folder, named by the time when the log was begun and their number.

    Args:
        folder: the folder; made if it does not exist.
        rotation: size of a file, in octets, after which another is begun; it exceeds this by one chunk at most.
        compress: write `.jsonl.gz`, else `.jsonl`.
        clock: returns the time.

    Raises:
        UsageError: `rotation` is below 1.
        OSError: the folder cannot be made or written to.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        rotation: int = DEFAULT_ROTATION_OCTETS,
        compress: bool = True,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.folder = Path(folder)
        begun, suffix = clock(), ".jsonl.gz" if compress else ".jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        super().__init__(
            lambda number: self.folder / file_name(begun, number, suffix), rotation=rotation, compress=compress
        )

    def close(self) -> None:
        """Close the file, and remove it if it has no lines. Call `flush` before. Idempotent."""
        if not self._file.closed and self.is_empty:
            self.files.pop().unlink(missing_ok=True)
        super().close()
