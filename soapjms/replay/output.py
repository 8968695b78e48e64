"""The output of results: built in a folder beside the output folder, then put in its place, as a whole or not at all.

Results quote capture logs, so only their owner can read them, as with capture logs.
Each single file of results, Parquet or text, also exists as a whole or not at all.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from soapjms.protocol.errors import UsageError
from soapjms.replay.marks import FILES, FORMER, LOCK, RESULT, SUMMARY, is_ours
from soapjms.replay.parquet import BATCH_OCTETS, row_octets, to_batch

BATCH_ROWS: Final = 2000
PART: Final = "part-00000.parquet"
"""The file of rows that one process writes."""


def write_text(path: Path, text: str) -> None:
    """Write a file that only its owner can read, and that gets its name, or replaces another, once it is on disk.

    Until then, its name begins with a dot.
    """
    part = _beside(path)
    try:
        part.touch(0o600, exist_ok=False)
        part.write_text(text, "utf-8")
        sync(part)
        give_name(part, path)
    finally:
        part.unlink(missing_ok=True)


def give_name(built: Path, place: Path) -> None:
    """Rename a file or folder whose content is on disk, so that the name is there too when this returns."""
    built.rename(place)
    sync(place.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk when this returns, so that they outlast a power failure."""
    with suppress(PermissionError):  # of other users, which a cluster's tasks may leave
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # from file systems that cannot sync folders
                raise
        finally:
            os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Have all files in a folder and its folders on disk when this returns; see `sync`."""
    for parent, _, files in os.walk(folder):
        for each in (*files, "."):
            sync(Path(parent, each))


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex}")


class Rows:
    """A Parquet file, written in batches; without rows it still has its columns.

    The file gets its name when the block ends without an error, and replaces an existing one, as when a task is tried
    again or runs twice. Until then, its name begins with a dot.

    Args:
        path: the file.
        schema: its columns.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._part = _beside(path)
        self._writer = pq.ParquetWriter(self._part, schema)
        self._waiting: list[tuple[Any, ...]] = []
        self._octets = 0

    def __enter__(self) -> Rows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()
        if kind is None:
            self._part.rename(self._path)
        else:
            self._part.unlink()

    def write_batch(self, rows: pa.RecordBatch) -> None:
        """Write rows; not to be mixed with `write`."""
        self._writer.write_batch(rows)

    def write(self, row: tuple[Any, ...]) -> None:
        """Write one row, its values in the order of the columns."""
        self._waiting.append(row)
        self._octets += row_octets(row)
        if len(self._waiting) >= BATCH_ROWS or self._octets >= BATCH_OCTETS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_batch(to_batch(self._waiting, self._schema))
        self._waiting.clear()
        self._octets = 0


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Yield a folder to build results in; when the block ends without an error, it takes the place of `out`.

    Only the owner can read the results, finished or not, whatever the mode of an earlier run's. If the block raises, or
    the process is killed, `out` stays as it was. The folder around the yielded one is scratch space, and is removed;
    that of a killed process is removed by the next run.

    Raises:
        UsageError: `out` holds anything but an earlier run's results, or cannot be made.
    """
    check_replaceable(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left in out.parent.glob(f".{glob.escape(out.name)}.*/{LOCK}"):
            _clear_up(left.parent, out)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}: {error.filename}") from None
    lock = sqlite3.connect(scratch / LOCK)
    try:
        lock.execute("BEGIN EXCLUSIVE")  # until this process ends, however it does
        result = scratch / RESULT
        result.mkdir()
        yield result
        make_private(result)
        sync_all(result)
        _put_in_place(result, out, scratch / FORMER)
        sync(out.parent)
    finally:
        lock.close()
        _remove(scratch)


@contextmanager
def temporary_result() -> Iterator[Path]:
    """Yield a folder for results that are copied elsewhere; that around it is scratch space, as in `staging`."""
    with tempfile.TemporaryDirectory(prefix="soapjms-replay-") as scratch:
        result = Path(scratch, RESULT)
        result.mkdir()
        yield result


def make_private(folder: Path) -> None:
    """Let only the owner read a folder and everything in it.

    Files of other users, which a cluster's tasks may leave, keep their mode: the folder itself is closed to others.
    """
    folder.chmod(0o700)
    for parent, folders, files in os.walk(folder):
        for names, mode in ((folders, 0o700), (files, 0o600)):
            for name in names:
                with suppress(PermissionError):
                    Path(parent, name).chmod(mode)


def _clear_up(scratch: Path, out: Path) -> None:
    """Remove a killed process's scratch folder; if it had begun to put its results in place, complete that first."""
    with closing(sqlite3.connect(scratch / LOCK, timeout=0)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return  # its process is still running
        if (scratch / FORMER).exists() and not out.exists():
            (scratch / RESULT).rename(out)
        _remove(scratch)


def _remove(scratch: Path) -> None:
    """Remove a scratch folder, its lock last: what cannot be removed now, the next run finds by it."""
    with suppress(OSError):
        for each in scratch.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each, ignore_errors=True)
            elif each.name != LOCK:
                each.unlink(missing_ok=True)
        if [each.name for each in scratch.iterdir()] == [LOCK]:
            shutil.rmtree(scratch, ignore_errors=True)


def check_replaceable(out: Path) -> None:
    """Refuse an output folder with files that this program did not make.

    Raises:
        UsageError: the folder has such a file, which the text names, or `out` is not a folder.
    """
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise UsageError(f"{out} is not a folder; name one that does not exist yet, or an earlier run's")
    check_names(str(out), (each.name for each in out.iterdir()), (out / SUMMARY).read_bytes)


def check_names(out: str, names: Iterable[str], summary: Callable[[], bytes]) -> None:
    """Refuse a folder with files that this program did not make.

    Args:
        out: the folder, for the error.
        names: the names of what is in it.
        summary: reads its summary.json.

    Raises:
        UsageError: there is such a file, which the text names.
    """
    inside = sorted(names)
    foreign = [name for name in inside if name not in FILES]
    if foreign:
        raise UsageError(f"{out} holds {foreign[0]}, which replay did not write; name a new folder")
    if inside and not (SUMMARY in inside and is_ours(summary)):
        raise UsageError(f"{out} does not look like the results of a replay; name a new folder")


def _put_in_place(result: Path, out: Path, former: Path) -> None:
    if out.exists():
        out.rename(former)
    try:
        result.rename(out)
    except OSError:
        if former.exists():
            former.rename(out)
        raise
