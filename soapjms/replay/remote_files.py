"""Files on other machines, through fsspec: s3://, gs://, abfs://, https://, webhdfs:// and others.

fsspec reads any octets of a file, so logs are read in parts like those of this machine, and may have any size. The
packages and logins for a file system are the user's; fsspec says which package is missing.

fsspec's own `walk` and `glob` leave out what they cannot list, so folders are listed one by one here; those of buckets,
which are but the beginnings of names, all at once.
"""

from __future__ import annotations

import glob
import io
import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from posixpath import basename
from typing import Any, BinaryIO, Final, NamedTuple

from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]  # it ships no types
from fsspec.core import url_to_fs  # type: ignore[import-untyped]

from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri.redact import without_user_info
from soapjms.replay.marks import without_own
from soapjms.replay.uris import scheme_of, shown, without_query

BUFFER_OCTETS: Final = 1 << 16
MAX_REASON_CHARACTERS: Final = 300
QUERY: Final = re.compile(r"\?\S+")
"""What follows a question mark in an address, which may have a login."""
CHAIN: Final = "::"
"""What joins URIs of an archive and of the file that it is in."""


@contextmanager
def failing_as_os_error() -> Iterator[None]:
    """Turn exceptions of file systems, each of which has its own, into OSError, but for a file that is not there."""
    try:
        yield
    except UsageError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no such file: {why(error)}") from error
    except Exception as error:
        raise OSError(why(error)) from error


def why(error: Exception) -> str:
    """Return the reason why a file system failed, in one line, without logins."""
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    return without_user_info(QUERY.sub("?…", text)[:MAX_REASON_CHARACTERS])


def reached(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, which remembers no folder as it was listed before, and the path there.

    Raises:
        UsageError: it is a chain of URIs.
        Exception: of any kind, as the file system makes it.
    """
    if CHAIN in uri:
        raise UsageError(f"{shown(uri)}: files within archives ({CHAIN}) are not read; unpack them")
    system, path = url_to_fs(uri)
    system.invalidate_cache()
    return system, path


def found_at(system: Any, path: str) -> Mapping[str, Any] | None:
    """Return what a file system tells of a file or folder; None if there is none."""
    try:
        info: Mapping[str, Any] = system.info(path)
    except FileNotFoundError:
        return None
    return info


# Reading


class _RemoteFile(io.RawIOBase):
    """A remote file, which raises nothing but OSError, also where it ends before the size that it was said to have."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._size = getattr(file, "size", None)

    def readinto(self, buffer: Any) -> int:
        """Read octets into a buffer; return their number, 0 at the end."""
        with failing_as_os_error():
            octets = self._file.read(len(buffer))
            if not octets and self._size is not None and self._file.tell() < self._size:
                raise OSError(f"it ends after {self._file.tell()} of {self._size} octets")
            buffer[: len(octets)] = octets
            return len(octets)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, and return it."""
        with failing_as_os_error():
            position: int = self._file.seek(offset, whence)
            return position

    def tell(self) -> int:
        """Return the position."""
        with failing_as_os_error():
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


# Finding


class RemoteFile(NamedTuple):
    """A file that a URI leads to.

    Attributes:
        name: its URI.
        path: its path in the file system.
        place: what tells it from all others, whatever URI leads to it.
    """

    name: str
    path: str
    place: Hashable


class RemoteMatch(NamedTuple):
    """A file or folder that a URI, or a URI with wildcards, leads to.

    Attributes:
        name: its URI.
        is_folder: whether it is a folder.
        files: the file, or all in the folder, but for what replays wrote.
        results: the folders in the folder that a replay wrote into.
    """

    name: str
    is_folder: bool
    files: list[RemoteFile]
    results: list[RemoteFile]

    def without(self, folder: str) -> RemoteMatch:
        """Return it without what is in a folder, by how paths there begin."""
        kept = [
            [each for each in some if not f"{each.path}/".startswith(folder)] for some in (self.files, self.results)
        ]
        return self._replace(files=kept[0], results=kept[1])


class RemoteMatches(NamedTuple):
    """What a URI leads to.

    Attributes:
        matches: files and folders.
        problems: why folders cannot be listed, by their URIs.
        has_many_connections: whether files can be opened at the same time.
    """

    matches: list[RemoteMatch]
    problems: dict[str, str]
    has_many_connections: bool


def find(uri: str, leave_out: str | None = None) -> RemoteMatches:
    """Find the files that a URI refers to: a file, a folder (recursively), or a glob.

    Args:
        uri: the URI.
        leave_out: a folder, or its URI, whose files are not input: the output of this run.

    Raises:
        OSError: the file system cannot be reached, or there is no such file.
        UsageError: it has a wildcard that is none there, or is a chain of URIs.
    """
    with failing_as_os_error():
        system, start = reached(uri)
        if "?" in uri and "?" not in start:
            raise UsageError(f"{shown(uri.partition('?')[0])}?…: a ? begins a query here; write * in its place")
        search = _Search(system, lambda path: name_of(uri, start, path))
        is_pattern = glob.has_magic(without_query(start))
        info = found_at(system, start) if is_pattern else system.info(start)
        if info is not None:
            infos = [_named(system, info, is_folder=uri.endswith("/"))]
        elif "//" in start.partition("://")[2 if "://" in start else 0]:
            raise UsageError(f"{shown(uri)}: a path with wildcards has no //; name the folder above")
        else:
            infos = sorted(search.matches(start), key=lambda info: str(info["name"]))
        matches = [search.match(info) for info in infos]
    output = None if leave_out is None else _prefix(leave_out, system)
    if output is not None:
        matches = [each.without(output) for each in matches]
    return RemoteMatches(matches, search.problems, bool(system.async_impl))


def _prefix(folder: str, system: Any) -> str | None:
    """Return how paths in a folder begin, if it is in a file system."""
    if scheme_of(folder) in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol):
        other, path = url_to_fs(folder)
        if other == system:
            return f"{path.rstrip('/')}/"
    return None


def _named(system: Any, info: Mapping[str, Any], *, is_folder: bool) -> Mapping[str, Any]:
    """Return what a file system tells of a place; in a bucket there may be an object and a folder of one name."""
    if is_folder and lists_all(system) and info["type"] != "directory":
        return {"name": info["name"], "type": "directory"}
    return info


def files_in(system: Any, folder: str) -> list[str]:
    """Return the paths of all files in a folder and the folders below.

    Raises:
        OSError: a folder cannot be listed.
    """
    search = _Search(system, str)
    found = search.files(folder)
    if search.problems:
        raise OSError("; ".join(f"{path}: {problem}" for path, problem in search.problems.items()))
    return found


class _Search:
    """Finds files in a file system.

    Args:
        system: the file system.
        name: returns the URI of a path.

    Attributes:
        problems: why folders cannot be listed, by their URIs.
    """

    def __init__(self, system: Any, name: Callable[[str], str]) -> None:
        self._system = system
        self._name = name
        self.problems: dict[str, str] = {}

    def matches(self, pattern: str) -> Iterator[Mapping[str, Any]]:
        """Yield what a path with wildcards stands for, as `glob` does on this machine, each once."""
        parts = pattern.split("/")
        first = next(number for number, part in enumerate(parts) if glob.has_magic(part))
        seen = set[tuple[str, str]]()
        for info in self._below("/".join(parts[:first]), parts[first:]):
            if (info["name"], info["type"]) not in seen:
                seen.add((info["name"], info["type"]))
                yield info

    def _below(self, folder: str, parts: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        part, rest = parts[0], parts[1:]
        if not glob.has_magic(part):
            path = f"{folder}/{part}"
            if rest:
                yield from self._below(path, rest)
            elif (info := found_at(self._system, path)) is not None:
                yield info
            return
        if part == "**" and rest:
            yield from self._below(folder, rest)
        elif part == "**" and (info := found_at(self._system, folder)) is not None:
            yield info
        for info in self._inside(folder, part):
            is_folder = info["type"] == "directory"
            if not rest:
                yield info
            if is_folder and part == "**":
                yield from self._below(info["name"], parts)
            elif is_folder and rest:
                yield from self._below(info["name"], rest)

    def match(self, info: Mapping[str, Any]) -> RemoteMatch:
        """Return the file or folder that the file system tells of, with all files in it."""
        path: str = info["name"]
        match = RemoteMatch(self._name(path), info["type"] == "directory", [], [])
        paths = [path]
        if match.is_folder:
            paths = self.files(path)
        elif lists_all(self._system) and not info.get("size"):  # it may be a folder too
            paths = _Search(self._system, str).files(path) or paths
        listed = without_own(path, paths, self._octets)
        files, results = (
            [RemoteFile(self._name(each), each, (self._system, each)) for each in some] for some in listed
        )
        return match._replace(files=files, results=results)

    def _octets(self, path: str) -> bytes:
        with failing_as_os_error():
            octets: bytes = self._system.cat_file(path)
            return octets

    def files(self, folder: str) -> list[str]:
        """Return the files in a folder and all folders below, in the order of their paths."""
        found: list[str] = []
        if lists_all(self._system):
            try:
                found += [each for each in self._system.find(folder) if not each.endswith("/")]
            except Exception as error:
                self.problems[self._name(folder)] = why(error)
        else:
            folders = [folder]
            while folders:
                for info in self._inside(folders.pop()):
                    (folders if info["type"] == "directory" else found).append(info["name"])
        return sorted(found, key=lambda path: path.split("/"))

    def _inside(self, folder: str, part: str = "") -> list[Mapping[str, Any]]:
        """List what is in a folder: all, or what a part of a path with wildcards stands for.

        Links to folders are refused, since they may lead anywhere, and in circles.
        """
        try:
            listed = sorted(self._system.ls(folder, detail=True), key=lambda info: str(info["name"]))
        except FileNotFoundError:
            return []
        except Exception as error:
            self.problems[self._name(folder)] = why(error)
            return []
        return [
            info for info in listed if (not part or _stands_for(part, info["name"])) and self._is_sound(info, folder)
        ]

    def _is_sound(self, info: Mapping[str, Any], folder: str) -> bool:
        """Say whether an entry is a file or another folder; if not, note what it is."""
        path, kind = info["name"], info["type"]
        if path.rstrip("/") == folder.rstrip("/"):  # it may be a file, which marks a folder in a bucket
            if kind == "directory":
                self.problems[self._name(path)] = "it has no name, as of // in a path"
            return False
        if kind in ("directory", "file"):
            return True
        if self._system.isfile(path):
            return True
        problem = "it is a link to a folder, which is not followed; name it by itself"
        self.problems[self._name(path)] = problem if self._system.isdir(path) else "it is no regular file"
        return False


def _stands_for(part: str, path: str) -> bool:
    """Say whether a part of a path with wildcards stands for the name of a file; a wildcard stands for no first dot."""
    name = basename(path.rstrip("/"))
    if name.startswith(".") and not part.startswith("."):
        return False
    return part == "**" or fnmatchcase(name, part)


def lists_all(system: Any) -> bool:
    """Say whether folders are but the beginnings of names, as in a bucket, so that all below is listed at once."""
    return isinstance(system, AsyncFileSystem) and type(system)._find is not AsyncFileSystem._find


def name_of(uri: str, start: str, path: str) -> str:
    """Return the URI of a path.

    Args:
        uri: another URI of its file system.
        start: the path of that.
        path: the path.
    """
    for text in (uri, uri.rstrip("/")):
        if start and text.endswith(start):
            return text.removesuffix(start) + path
    scheme, _, rest = uri.partition("://")
    authority = rest.partition("/")[0].partition("?")[0]
    container, has_container, _ = authority.partition("@")
    if has_container and path.startswith(f"{container}/"):  # as in abfs://container@account/
        return f"{scheme}://{authority}{path.removeprefix(container)}"
    return f"{scheme}://{authority}/{path.lstrip('/')}"
