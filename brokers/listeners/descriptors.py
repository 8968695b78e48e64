"""Files that this process may have open (RLIMIT_NOFILE), of which each client of a listener takes some."""

from __future__ import annotations

import errno
import logging
import sys
from typing import Final

if sys.platform != "win32":
    import resource

log = logging.getLogger(__name__)

OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What `accept` fails with, again and again, while there are no files to be had. The client waits all the while."""

RESERVED_FILES: Final = 128
"""Files that are left to the rest of the process."""


def bounded(wanted: int, each: int, what: str) -> int:
    """Return how many clients there are files for, at most as many as wanted; the log says where that is fewer.

    Args:
        wanted: clients.
        each: files of one.
        what: the clients are, for the log.
    """
    limit = _limit()
    if limit is None or wanted * each + RESERVED_FILES <= limit:
        return wanted
    most = max(1, (limit - RESERVED_FILES) // each)
    said = "%s: at most %d, not %d, as this process may have no more than %d files open; see ulimit -n"
    log.warning(said, what, most, wanted, limit)
    return most


def raise_limit() -> None:
    """Have as many files as this process may give itself, for a command, whose process is its own."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # as where a system has a lower limit of its own
            log.debug("the limit of files stays at %d", soft)


def _limit() -> int | None:
    """Return how many files may be open; None for any number."""
    if sys.platform == "win32":  # which counts no sockets
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
