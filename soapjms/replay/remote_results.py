"""Results of a replay on another machine, through fsspec: built here, then put in place there."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from posixpath import basename, dirname
from typing import Any, Final
from uuid import uuid4

from soapjms.protocol.errors import UsageError
from soapjms.replay.marks import FILES, SUMMARY, is_result
from soapjms.replay.output import check_names, temporary_result
from soapjms.replay.remote_files import failing_as_os_error, files_in, found_at, lists_all, name_of, reached
from soapjms.replay.uris import shown

MARK: Final = ".soapjms-replay"
"""A file in a folder whose results are not whole: a run is putting them in place, or was ended while it did."""


@contextmanager
def fetched(uri: str) -> Iterator[Path]:
    """Yield a folder of this machine with a copy of the results at a URI, whose name errors of the block have instead.

    Raises:
        UsageError: they cannot be read.
    """
    name = shown(uri)
    with temporary_result() as folder:
        with _failing_as_ours(f"{name} cannot be read"):
            system, place = reached(uri)
            for each in _results_at(system, place):
                copy = folder / each.removeprefix(f"{place}/")
                copy.parent.mkdir(parents=True, exist_ok=True)
                system.get_file(each, str(copy))
        try:
            yield folder
        except UsageError as error:
            raise UsageError(f"{error}".replace(str(folder), name)) from None


def _results_at(system: Any, place: str) -> list[str]:
    """Return the paths of the files in a folder that are named like results."""
    if found_at(system, place) is None:
        return []
    return [each for each in files_in(system, place) if _names_result(each.removeprefix(f"{place}/").split("/"))]


def _names_result(parts: Sequence[str]) -> bool:
    return parts[0] in FILES and not {"", ".."} & set(parts)


@contextmanager
def staging(out: str) -> Iterator[Path]:
    """Yield a folder of this machine to build results in; when the block ends without an error, they are put at `out`.

    They are first copied to a hidden folder beside it. Then each file takes its place, as few file systems could rename
    a folder in one step; `summary.json` goes first and comes last, so that only a whole folder has one. If that fails,
    the hidden folder stays.

    Args:
        out: the URI of the folder for the results.

    Raises:
        UsageError: `out` holds anything but an earlier run's results, or cannot be written.
    """
    name = shown(out)
    failure = f"{name} cannot be written"
    with temporary_result() as result:
        with _failing_as_ours(failure):
            system, place = reached(out)
            scratch = _checked(system, place, name)
        try:
            with _failing_as_ours(failure):
                _make_folder(system, scratch)
                system.pipe_file(f"{scratch}/{SUMMARY}", b"")  # before a long run, not after it
            yield result
            files = [each.relative_to(result).as_posix() for each in result.rglob("*") if each.is_file()]
            with _failing_as_ours(failure):
                _put(system, result, scratch, files)
        except BaseException:
            _remove(system, scratch)
            raise
        whole = shown(name_of(out, place, scratch))
        with _failing_as_ours(failure, f"; all results are in {whole}"), ThreadPoolExecutor(1) as thread:
            system.invalidate_cache()
            _checked(system, place, name)  # again, as others may have written there meanwhile
            # The thread goes on to its end if this one is interrupted
            thread.submit(_replace, system, result, place, scratch, files).result()


@contextmanager
def _failing_as_ours(what: str, hint: str = "") -> Iterator[None]:
    """Turn exceptions of a file system into UsageError, which begins with what cannot be done and ends with a hint."""
    try:
        with failing_as_os_error():
            yield
    except OSError as error:
        raise UsageError(f"{what}: {error}{hint}") from None
    except UsageError as error:
        raise UsageError(f"{error}{hint}") from None


def _checked(system: Any, place: str, name: str) -> str:
    """Return a new hidden path beside one, which holds nothing but an earlier run's results, or a part of them."""
    if glob.has_magic(place):
        raise UsageError(f"{name} has wildcards; name a folder without any of *, ? and [")
    if not basename(place) or "/" not in place:
        raise UsageError(f"{name} is no place for results; name a folder in it")
    info = found_at(system, place)
    if info is not None and info["type"] != "directory":
        raise UsageError(f"{name} is not a folder; name one that does not exist yet, or an earlier run's")
    if info is not None:
        listed = [(each["name"].rstrip("/"), each["type"]) for each in system.ls(place, detail=True)]
        names = {basename(each.removeprefix(place)) for each, kind in listed if each != place or kind == "directory"}
        below = {each.removeprefix(f"{place}/") for each in _results_at(system, place)}
        if MARK in names:
            check_names(name, {each for each in names | below if each != MARK and not is_result(each)}, bytes)
        else:
            check_names(name, names | below, lambda: system.cat_file(f"{place}/{SUMMARY}"))
    return f"{dirname(place).rstrip('/')}/.{basename(place)}.{uuid4().hex}"


def _replace(system: Any, result: Path, place: str, scratch: str, files: Sequence[str]) -> None:
    mark, own = f"{place}/{MARK}", basename(scratch).encode()
    _make_folder(system, place)
    system.pipe_file(mark, own)
    for each in sorted(_results_at(system, place), key=lambda path: path != f"{place}/{SUMMARY}"):
        system.rm_file(each)
    _put(system, result, place, [each for each in files if each != SUMMARY])
    if found_at(system, mark) is None or system.cat_file(mark) != own:
        raise OSError("another run has put its results there meanwhile")
    _put(system, result, place, [SUMMARY])
    with suppress(Exception):  # it does no harm
        system.rm_file(mark)
    _remove(system, scratch)


def _put(system: Any, result: Path, place: str, files: Sequence[str]) -> None:
    for each in files:
        _make_folder(system, dirname(f"{place}/{each}"))
        system.put_file(str(result / each), f"{place}/{each}")


def _make_folder(system: Any, path: str) -> None:
    if not lists_all(system):  # as there are none in a bucket, and the bucket itself should not be made
        system.makedirs(path, exist_ok=True)


def _remove(system: Any, scratch: str) -> None:
    with suppress(Exception):
        for each in system.find(scratch):
            system.rm_file(each)
        system.rm(scratch, recursive=True)  # in a bucket it is gone with the last file
