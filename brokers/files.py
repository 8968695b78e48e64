"""Files that a user names: what is none is refused before anybody opens it, and waits there for ever."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from os import PathLike
from typing import Final

OPEN_ALREADY: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/", "/dev/null")
"""How names begin of what the program has open already, as `<(…)` of a shell, and of what is empty."""

_KINDS: Final[Mapping[int, str]] = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_files(*paths: str | PathLike[str] | None) -> None:
    """Refuse a FIFO, device or socket, of which nobody knows whether it is ever written to, or ends.

    Let pass are None, the ends of pipes that a shell made for the program, as for `<(command)`, and /dev/null.

    Raises:
        OSError: it is one, or a folder, or is not there.
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
