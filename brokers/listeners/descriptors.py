"""The limit of open files of this process (RLIMIT_NOFILE), of which each client of a listener uses some."""

from __future__ import annotations

import errno
import sys
from typing import Final

from brokers import events

if sys.platform != "win32":
    import resource


OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` while no file can be opened. It fails again and again, and the client keeps waiting."""

RESERVED_FILES: Final = 128
"""Number of files reserved for the rest of the process."""


def bounded(wanted: int, each: int, what: str) -> int:
    """Return the number of clients that the file limit allows, at most `wanted`; log a warning if it is fewer.

    Args:
        wanted: number of clients.
        each: number of files for one client.
        what: name of the clients, for the log.
    """
    limit = _limit()
    if limit is None or wanted * each + RESERVED_FILES <= limit:
        return wanted
    most = max(1, (limit - RESERVED_FILES) // each)

    events.FILES_FEW.log(what, most, wanted, limit)
    return most


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard limit; only for commands, which own their process."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # for example, the system has a lower limit
            events.FILES_LIMIT_KEPT.log(soft)


def _limit() -> int | None:
    """Return the limit of open files; None for no limit."""
    if sys.platform == "win32":  # Windows does not count sockets
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
