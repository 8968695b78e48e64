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
from soapjms.replay.marks import FOLDERS, FORMER, LOCK, RESULT, SUMMARY, is_ours, is_result
from soapjms.replay.parquet import BATCH_OCTETS, row_octets, to_batch
from soapjms.replay.uris import shown

BATCH_ROWS: Final = 2000
MADE_NAME: Final = "[a-z0-9_]" * 8
"""Pattern of the end of a name that `tempfile.mkdtemp` makes: another folder's may go on in any other way."""
MAX_PATH_OCTETS: Final = 480
"""Maximum length of the path of a folder, as SQLite takes paths of 512 octets, and files in it have longer ones."""
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
    that of a killed process is removed by the next run. If `out` cannot be replaced at the end, as somebody put files
    into it meanwhile, the results are left in a folder beside it.

    Raises:
        UsageError: `out` holds anything but an earlier run's results, or cannot be made; if that is seen at the end,
            the text names the folder with the results.
    """
    check_replaceable(out)
    with _scratch_folder(out) as scratch:
        result = scratch / RESULT
        result.mkdir()
        yield result
        make_private(result)
        sync_all(result)
        _replace(out, result, scratch / FORMER)
        sync(out.parent)


@contextmanager
def _scratch_folder(out: Path) -> Iterator[Path]:
    """Yield a hidden folder beside `out`, locked until this process ends, however it does; remove those of killed ones.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}: {error.filename}") from None
    try:
        for lock in out.parent.glob(f".{glob.escape(out.name)}.{MADE_NAME}/{LOCK}"):
            with suppress(OSError):  # what cannot be removed is left
                if lock.parent.lstat().st_uid == scratch.stat().st_uid:
                    _clear_up(lock.parent, out)
        with closing(_locked(scratch / LOCK)):
            yield scratch
    finally:
        _remove(scratch)


def _locked(database: Path) -> sqlite3.Connection:
    try:
        lock = sqlite3.connect(database)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        raise UsageError(f"{database} cannot be written: {error}") from None
    return lock


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
        except sqlite3.Error:
            return  # its process is still running, or it is no lock of ours
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
        if {each.name for each in scratch.iterdir()} <= {LOCK}:
            shutil.rmtree(scratch, ignore_errors=True)


def check_path(folder: Path) -> None:
    """Refuse a path of a folder that the databases of a run cannot be in.

    Raises:
        UsageError: it is not UTF-8, or longer than `MAX_PATH_OCTETS`.
    """
    octets = os.fsencode(folder)
    if len(octets) > MAX_PATH_OCTETS:
        said = (
            f"has {len(octets)} octets, and at most {MAX_PATH_OCTETS} are possible; name a folder with a shorter path"
        )
        raise UsageError(f"the path {shown(str(folder))} {said}")
    try:
        octets.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the path {shown(str(folder))} is not UTF-8; name another folder") from None


def check_replaceable(out: Path) -> None:
    """Refuse an output folder that cannot be replaced, or with files that this program did not make.

    Raises:
        UsageError: the folder has such a file, which the text names, `out` is not a folder, or see `check_path`.
    """
    check_path(out)
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise UsageError(f"{out} is not a folder; name one that does not exist yet, or an earlier run's")
    if os.path.ismount(out):
        raise UsageError(f"{out} is a mount point, which results cannot replace; name a folder in it: {out / 'report'}")
    inside = [each.name for each in out.iterdir()]
    below = [f"{each.parent.name}/{each.name}" for name in FOLDERS & {*inside} for each in (out / name).glob("*")]
    check_names(str(out), [*inside, *below], (out / SUMMARY).read_bytes)


def check_names(out: str, names: Iterable[str], summary: Callable[[], bytes]) -> None:
    """Refuse a folder with files that this program did not make.

    Args:
        out: the folder, for the error.
        names: the names of what is in it, and of what is in `FOLDERS` as `folder/name`.
        summary: reads its summary.json.

    Raises:
        UsageError: there is such a file, which the text names.
    """
    inside = sorted(names)
    foreign = [name for name in inside if not is_result(name)]
    if foreign:
        raise UsageError(f"{out} holds {foreign[0]}, which replay did not write; name a new folder")
    if inside and not (SUMMARY in inside and is_ours(summary)):
        raise UsageError(f"{out} does not look like the results of a replay; name a new folder")


def _replace(out: Path, result: Path, former: Path) -> None:
    """Put results in the place of earlier ones; if that fails, beside it.

    Raises:
        UsageError: it failed; the text says why, and where the results are.
    """
    try:
        check_replaceable(out)
        with suppress(FileNotFoundError):
            out.rename(former)
        result.rename(out)
    except (OSError, UsageError) as error:
        if former.exists() and not os.path.lexists(out):
            former.rename(out)
        kept = Path(tempfile.mkdtemp(prefix=f"{out.name}.", dir=out.parent))
        result.rename(kept)
        why = str(error) if isinstance(error, UsageError) else f"{out} cannot be replaced: {error.strerror}"
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            why = f"{out} was written by another run meanwhile"
        raise UsageError(f"{why}; all results are in {kept}") from None
