"""Results of a replay on another machine, through fsspec: built here, then put in place there."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from posixpath import basename, dirname
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

from soapjms.protocol.errors import UsageError
from soapjms.protocol.uri.redact import without_user_info
from soapjms.replay.output import FILES, check_names
from soapjms.replay.remote_files import failing_as_os_error, reached, root_of

SUMMARY: Final = "summary.json"


@contextmanager
def fetched(uri: str) -> Iterator[Path]:
    """Yield a folder of this machine with a copy of the results at a URI, whose name errors of the block have instead.

    Raises:
        UsageError: they cannot be read.
    """
    name = without_user_info(uri)
    with TemporaryDirectory(prefix="soapjms-replay-") as folder:
        try:
            with failing_as_os_error():
                system, place = reached(uri)
                for each in system.find(place):
                    parts = PurePosixPath(each.removeprefix(place).lstrip("/")).parts
                    if parts and parts[0] in FILES and ".." not in parts:
                        copy = Path(folder, *parts)
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        system.get_file(each, str(copy))
        except OSError as error:
            raise UsageError(f"{name} cannot be read: {error}") from None
        try:
            yield Path(folder)
        except UsageError as error:
            raise UsageError(f"{error}".replace(folder, name)) from None


@contextmanager
def staging(out: str) -> Iterator[Path]:
    """Yield a folder of this machine to build results in; when the block ends without an error, they are put at `out`.

    They are first copied to a hidden folder beside it. Then each file takes its place, as few file systems could rename
    a folder in one step; `summary.json` goes first and comes last, so that only a whole folder has one.

    Args:
        out: the URI of the folder for the results.

    Raises:
        UsageError: `out` holds anything but an earlier run's results, or cannot be written.
    """
    name = without_user_info(out)
    try:
        with failing_as_os_error():
            system, place = reached(out)
            scratch = _checked(system, place, name)
            system.makedirs(scratch, exist_ok=True)
            system.pipe_file(f"{scratch}/{SUMMARY}", b"")  # before a long run, not after it
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error}") from None
    with TemporaryDirectory(prefix="soapjms-replay-") as folder:
        result = Path(folder, "result")
        result.mkdir()
        try:
            yield result
            files = [each.relative_to(result).as_posix() for each in result.rglob("*") if each.is_file()]
            with failing_as_os_error():
                for each in files:
                    system.makedirs(dirname(f"{scratch}/{each}"), exist_ok=True)
                    system.put_file(str(result / each), f"{scratch}/{each}")
        except BaseException:
            _remove(system, scratch)
            raise
    try:
        with failing_as_os_error():
            system.invalidate_cache()
            _put_in_place(system, scratch, place, files)
    except OSError as error:
        whole = f"{root_of(out, place)}{scratch}"
        raise UsageError(f"{name} cannot be written: {error}; the results are in {without_user_info(whole)}") from None


def _checked(system: Any, place: str, name: str) -> str:
    """Return a new hidden path beside one, which holds nothing but an earlier run's results."""
    if glob.has_magic(place):
        raise UsageError(f"{name} has wildcards; name a folder without any of *, ? and [")
    if not basename(place) or "/" not in place:
        raise UsageError(f"{name} is no place for results; name a folder in it")
    if system.exists(place):
        if not system.isdir(place):
            raise UsageError(f"{name} is not a folder; name one that does not exist yet, or an earlier run's")
        names = [basename(each["name"].rstrip("/")) for each in system.ls(place, detail=True) if each["name"] != place]
        check_names(name, names, lambda: system.cat_file(f"{place}/{SUMMARY}"))
    return f"{dirname(place).rstrip('/')}/.{basename(place)}.{uuid4().hex}"


def _put_in_place(system: Any, scratch: str, place: str, files: Sequence[str]) -> None:
    former = system.find(place) if system.exists(place) else []
    for each in sorted(former, key=lambda path: not path.endswith(f"/{SUMMARY}")):
        system.rm_file(each)
    for each in sorted(files, key=SUMMARY.__eq__):
        system.makedirs(dirname(f"{place}/{each}"), exist_ok=True)
        system.mv(f"{scratch}/{each}", f"{place}/{each}")
    _remove(system, scratch)


def _remove(system: Any, scratch: str) -> None:
    with suppress(Exception):
        for each in system.find(scratch):
            system.rm_file(each)
        system.rm(scratch, recursive=True)  # in a bucket it is gone with the last file
