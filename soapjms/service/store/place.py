"""Facts about a SQLite file from the operating system: is it on a network file system, which process writes to it,
and which of its files this process may not write to.

The first two are known on Linux only. Nothing here opens a SQLite file, as closing it would release our own locks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
LOCKS: Final = Path("/proc/locks")

NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "gfs2"}
    | {"ocfs2", "coda", "ncpfs", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fuse.sshfs", "fuse.glusterfs"}
    | {"fuse.ceph-fuse", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.vmhgfs-fuse", "fuse.grpcfuse"}
)
"""Types of file systems that several machines share, including a virtual machine and its host."""

WRITE_LOCK: Final = 120
"""The octet of the index of a write-ahead log (`-shm`) that a writer locks."""


def network_of(folder: Path) -> str | None:
    """Return the type of a folder's file system if other machines may share it, else None."""
    try:
        device = folder.stat().st_dev
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux, or no such folder, which opening the file will report
        return None
    meant = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts:
        words, _, rest = line.partition(" - ")
        kind = rest.partition(" ")[0]
        if words.split()[2:3] == [meant] and kind in NETWORK:
            return kind
    return None


def writer_of(path: Path) -> int | None:
    """Return the process that has a transaction in a file with a write-ahead log; None if that is not known."""
    try:
        inode = str(path.with_name(f"{path.name}-shm").stat().st_ino)
        locks = LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in locks:
        words = line.split()  # such as 1: POSIX ADVISORY WRITE 4711 fe:00:1234 120 120
        if len(words) == 8 and words[3] == "WRITE" and words[5].rpartition(":")[2] == inode:
            first, last, pid = words[6], words[7], words[4]
            if first.isdigit() and int(first) <= WRITE_LOCK and (last == "EOF" or int(last) >= WRITE_LOCK):
                return int(pid) if pid.isdigit() and pid != "0" else None
    return None


def barred_of(path: Path) -> Path | None:
    """Return a file that SQLite needs for an existing file and this process may not read and write, or their folder.

    Programs that an administrator ran as another user may have left such files behind. SQLite itself opens a file that
    it may only read, and fails when it writes.
    """
    files = (path, *(path.with_name(f"{path.name}{each}") for each in ("-wal", "-shm")))
    there = [each for each in files if each.exists()]
    for each in there:
        if not os.access(each, os.R_OK | os.W_OK):
            return each
    is_open = len(there) == len(files) or os.access(path.parent, os.W_OK | os.X_OK)
    return None if is_open else path.parent
