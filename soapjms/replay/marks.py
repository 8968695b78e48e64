"""The marks by which a replay knows what replays wrote: results, checkpoints, and folders that these are built in.

It replaces only its own results, and reads nothing of all these as logs. Nothing is opened here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final, NamedTuple

PRODUCER: Final = "soapjms replay"
"""Marks a folder as made by replay."""
SUMMARY: Final = "summary.json"
FOLDERS: Final = frozenset({"verdicts", "rejected", "late"})
"""The folders of results, which have files of Parquet, and hidden ones of Spark."""
FILES: Final = frozenset({SUMMARY, *FOLDERS, "report.html", "report.json", "junit.xml"})
"""What results consist of."""
HIDING: Final = (".", "_")
"""Prefixes of the names of hidden files, which programs keep for themselves."""
LOCK: Final = "lock.sqlite"
"""A database in the scratch folder of a run, locked by its process."""
RESULT: Final = "result"
FORMER: Final = "former"
"""The folders beside it: the results while they are built, and those that they replace."""
CHECKPOINT_MARKS: Final = frozenset({"terms.json", "plans", "lock"})
CHECKPOINT: Final = CHECKPOINT_MARKS | {"spark", "steps", "held", "merged", "temporary"}
"""What the checkpoint of a run that follows logs consists of."""


def is_result(name: str) -> bool:
    """Say whether results may have a file or folder of a name, which is `folder/name` in one of `FOLDERS`."""
    top, _, below = name.partition("/")
    return top in FILES and (not below or below.startswith(HIDING) or below.endswith(".parquet"))


def is_ours(summary: Callable[[], bytes]) -> bool:
    """Say whether a replay wrote a summary.json, which the function reads."""
    try:
        members = json.loads(summary())
    except (OSError, ValueError, RecursionError):  # nested too deep to be ours
        return False
    return isinstance(members, dict) and members.get("producer") == PRODUCER


def own_names(names: Collection[str], summary: Callable[[], bytes]) -> Collection[str]:
    """Return the names in a folder that are those of what a replay wrote there; none if no replay did.

    Args:
        names: the names of all that is in the folder.
        summary: reads its summary.json.
    """
    if SUMMARY in names and is_ours(summary):
        return FILES
    if CHECKPOINT_MARKS.issubset(names):
        return CHECKPOINT
    return names if LOCK in names and (RESULT in names or FORMER in names) else ()


class FolderListing(NamedTuple):
    """The files of a folder and of all folders below.

    Attributes:
        paths: the paths of files that no replay wrote.
        results: the paths of folders that a replay wrote into.
    """

    paths: list[str]
    results: list[str]


def without_own(folder: str, paths: Collection[str], read: Callable[[str], bytes]) -> FolderListing:
    """Leave out what replays wrote in a folder.

    Args:
        folder: the path of the folder.
        paths: the paths of all files in it and in the folders below.
        read: reads the file at a path.
    """
    inside: dict[str, set[str]] = {}
    for path in paths:
        for parent, child in _steps(folder, path):
            inside.setdefault(parent, set()).add(child)
    own = {at: own_names(names, partial(read, f"{at}/{SUMMARY}")) for at, names in inside.items()}
    left = [path for path in paths if not any(child in own[parent] for parent, child in _steps(folder, path))]
    results = [at for at, names in own.items() if names]
    return FolderListing(left, [at for at in results if not any(child in own[up] for up, child in _steps(folder, at))])


def _steps(folder: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield the folders on the way from one to a path below it, each with the name of the next."""
    at = folder.rstrip("/")
    for name in path.removeprefix(at).strip("/").split("/"):
        if name:
            yield at, name
        at = f"{at}/{name}"
