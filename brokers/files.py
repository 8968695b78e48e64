"""Checks of files that a user names: FIFOs and devices are refused, because opening them might never return."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from os import PathLike
from typing import Final

OPEN_ALREADY: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/", "/dev/null")
"""Prefixes of names for files that the program has open already, such as `<(…)` of a shell, and of /dev/null."""

_KINDS: Final[Mapping[int, str]] = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def reason_of(error: OSError) -> str:
    """Say why the operating system refused something, with the file if it is one, and without the number."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"


def check_files(*paths: str | PathLike[str] | None) -> None:
    """Refuse a FIFO, device or socket: reading from it might never return.

    Accepted are None, pipes that a shell opened for the program, such as `<(command)`, and /dev/null.

    Raises:
        OSError: a path is a FIFO, device, socket or folder, or does not exist.
    """
    for name in (os.fspath(each) for each in paths if each is not None):
        if not name.startswith(OPEN_ALREADY):
            _check(name)


def _check(name: str) -> None:
    kind = stat.S_IFMT(os.stat(name).st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if kind in _KINDS:
        raise OSError(f"{name!r} is {_KINDS[kind]}; accepted are files, and <(command) of a shell")
