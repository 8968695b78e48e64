"""Files on other machines, through fsspec: s3://, gs://, abfs://, https://, webhdfs:// and others.

fsspec reads any octets of a file, so logs are read in parts like those of this machine, and may have any size. The
packages and logins for a file system are the user's; fsspec says which package is missing.
"""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from posixpath import basename
from typing import Any, BinaryIO, Final, NamedTuple

from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # it ships no types

from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri.redact import without_user_info
from soapjms.replay.uris import without_query

BUFFER_OCTETS: Final = 1 << 16
CONCURRENT_OPENINGS: Final = 16
MAX_REASON_CHARACTERS: Final = 300
QUERY: Final = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\"]*")
"""An address of the web with its query, which may have a login."""


@contextmanager
def failing_as_os_error() -> Iterator[None]:
    """Turn exceptions of file systems, each of which has its own, into OSError."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise OSError(why(error)) from error


def reached(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, which remembers no folder as it was listed before, and the path there."""
    system, path = url_to_fs(uri)
    system.invalidate_cache()
    return system, path


def why(error: Exception) -> str:
    """Return the reason why a file system failed, in one line, without logins."""
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return without_user_info(QUERY.sub(r"\1", text)[:MAX_REASON_CHARACTERS])


# Logs


class _RemoteFile(io.RawIOBase):
    """A remote file, which raises nothing but OSError."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readinto(self, buffer: Any) -> int:
        """Read octets into a buffer; return their number, 0 at the end."""
        with failing_as_os_error():
            octets = self._file.read(len(buffer))
        buffer[: len(octets)] = octets
        return len(octets)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, and return it."""
        with failing_as_os_error():
            position: int = self._file.seek(offset, whence)
        return position

    def tell(self) -> int:
        """Return the position."""
        position: int = self._file.tell()
        return position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: a file that is not fails when it is opened, which needs its size."""
        return True

    def close(self) -> None:
        """Close it. Idempotent."""
        if not self.closed:
            with suppress(Exception):  # it was only read
                self._file.close()
        super().close()


def open_remote(uri: str, path: str, ahead: int) -> BinaryIO:
    """Open a file for reading.

    Args:
        uri: any URI of its file system.
        path: its path there.
        ahead: how many octets are fetched beyond those that are read, as the next read is seldom elsewhere.

    Raises:
        OSError: it cannot be opened.
    """
    with failing_as_os_error():
        system, _ = url_to_fs(uri)
        return io.BufferedReader(_RemoteFile(system.open(path, "rb", block_size=ahead)), BUFFER_OCTETS)


def openings(uri: str) -> int:
    """Return how many files of a file system may be opened at the same time: each takes a few round trips.

    Raises:
        OSError: there is no such file system.
    """
    with failing_as_os_error():
        return CONCURRENT_OPENINGS if url_to_fs(uri)[0].async_impl else 1  # others may have one connection


class RemoteMatch(NamedTuple):
    """What a URI, or a URI with wildcards, leads to.

    Attributes:
        name: the URI of a file or folder.
        files: their URIs, with their paths in the file system: the file itself, or all in the folder.
        problems: why folders cannot be listed.
    """

    name: str
    files: dict[str, str]
    problems: list[str]


def find(uri: str) -> list[RemoteMatch]:
    """Find the files that a URI refers to: a file, a folder (recursively), or a glob.

    Raises:
        OSError: the file system cannot be reached, or there is no such file.
        UsageError: it has a wildcard that is none there.
    """
    with failing_as_os_error():
        system, path = reached(uri)
        if "?" in uri and "?" not in path:
            name = without_user_info(uri)
            raise UsageError(f"{name}: in URIs of this scheme a ? begins a query; write * in its place")
        is_name = not glob.has_magic(without_query(path)) or system.exists(path)
        found = {path: system.info(path)} if is_name else system.glob(path, detail=True)
        root = root_of(uri, path)
        return [
            _match(system, root, each, is_folder=info["type"] == "directory")
            for each, info in sorted(found.items())
            # a wildcard of this machine does not stand for the dot, either
            if is_name or basename(path).startswith(".") or not basename(each).startswith(".")
        ]


def _match(system: Any, root: str, path: str, *, is_folder: bool) -> RemoteMatch:
    match = RemoteMatch(root + path, {}, [])
    if not is_folder:
        match.files[match.name] = path
        return match
    for _, _, files in system.walk(path, detail=True, on_error=lambda error: match.problems.append(why(error))):
        for info in files.values():
            if not info["name"].endswith("/"):  # which marks a folder in a bucket
                match.files[root + info["name"]] = info["name"]
    return match


def root_of(uri: str, path: str) -> str:
    """Return what comes before the paths of a file system in its URIs, with the host if the paths lack it."""
    for text in (uri, uri.rstrip("/")):
        if text.endswith(path):
            return text.removesuffix(path)
    return f"{uri.partition('://')[0]}://"
