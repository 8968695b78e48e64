"""A capture log in several files: each of a limited size, compressed, and readable at any time.

Nothing here knows of messages; see `soapjms.capture`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from soapjms.protocol.errors import UsageError
from soapjms.recorder import DEFAULT_ROTATION, utc_now

__all__ = ["CHUNK", "DEFAULT_ROTATION", "CaptureLog", "file_name"]

CHUNK: Final = 1 << 18
"""Octets that are compressed and written together."""

LEVEL: Final = 3
"""Of gzip: capture logs shrink to a few hundredths anyway, and a broker's machine has other things to do."""


def file_name(begun: datetime, number: int, suffix: str) -> str:
    """Name a file of a log: by when that was begun, in UTC, and the number of the file in it."""
    return f"capture-{begun:%Y%m%dT%H%M%SZ}-{number:04}{suffix}"


class CaptureLog:
    """Files in a folder, named by the time when the log was begun and their number. One thread at a time.

    Lines are collected, compressed as a gzip member of their own and written together. So a file consists of whole
    members: who is killed leaves behind all that was flushed, for any reader of gzip.

    Args:
        folder: made if it is not there.
        rotation: octets of a file after which another is begun; it has a chunk more at most.
        compress: write `.jsonl.gz`, else `.jsonl`.
        clock: returns the time.

    Attributes:
        files: those that were written, in order.

    Raises:
        UsageError: a `rotation` below 1.
        OSError: the folder cannot be made or written in.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        rotation: int = DEFAULT_ROTATION,
        compress: bool = True,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if rotation < 1:
            raise UsageError(f"rotation is {rotation}; it is a number of octets, at least 1")
        self.folder = Path(folder)
        self.files: list[Path] = []
        self._rotation = rotation
        self._suffix = ".jsonl.gz" if compress else ".jsonl"
        self._compress = compress
        self._begin = gzip.compress(b"", mtime=0) if compress else b""
        self._begun = clock()
        self._number = 0
        self._size = 0
        self._lines: list[bytes] = []
        self._octets = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = self._next()

    @property
    def waiting(self) -> int:
        """How many lines are not written yet."""
        return len(self._lines)

    def add(self, line: bytes) -> bool:
        """Take a line; say whether so much waits that it is to be flushed."""
        self._lines.append(line)
        self._octets += len(line)
        return self._octets >= CHUNK

    def flush(self) -> int:
        """Write what waits and return how many lines that were.

        Raises:
            OSError: they could not be written, and are lost; the file is as it was before.
        """
        lines, self._lines, self._octets = self._lines, [], 0
        if not lines:
            return 0
        if self._size >= self._rotation:
            full, self._file = self._file, self._next()
            full.close()
        octets = b"".join(lines)
        self._write(gzip.compress(octets, LEVEL, mtime=0) if self._compress else octets)
        return len(lines)

    def _write(self, octets: bytes) -> None:
        rest = memoryview(octets)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            raise
        self._size += len(octets)

    def _next(self) -> FileIO:
        """Begin a file; one that is there already, of another capture in the same second, is left alone."""
        while True:
            self._number += 1
            path = self.folder / file_name(self._begun, self._number, self._suffix)
            try:
                file = path.open("xb", buffering=0)
            except FileExistsError:
                continue
            self.files.append(path)
            self._size = file.write(self._begin)  # a file without any member would not be one of gzip
            return file

    def close(self) -> None:
        """Close the file, and remove it if nothing is in it. Call `flush` before. Idempotent."""
        if not self._file.closed:
            self._file.close()
            if self._size == len(self._begin):
                self.files.pop().unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
