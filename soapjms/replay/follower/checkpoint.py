"""The checkpoint of a run that follows logs, to resume it after a stop or kill: a folder, written step by step.

| entry | content |
|---|---|
| `terms.json` | the terms of judging, and the folder that is followed: a run with other terms is refused |
| `plans/` | what is to be read, each plan a file, which Spark streams if it is the engine; finished plans are removed |
| `spark/` | Spark's own checkpoint: which plans are finished |
| `steps/` | for each finished plan `verdicts/`, `rejected/`, `late/` |
| `held/` | a database with the records of unfinished calls, and the state after the last step; files of large records |
| `merged/` | the results of many steps in one file each; its name has the numbers of the first and the last of them |
| `temporary/` | files in between, while the process runs |
| `lock` | locked by the running process |

Plans and steps are put in place by a rename, once they are on disk: each exists as a whole or not at all. A step is
done when the database says so; the results of one that it does not know are removed, and it is done again, so that work
interrupted by a kill is done once. Only the owner can enter the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from soapjms.protocol.errors import UsageError
from soapjms.replay.column_store import failures_told, gathered
from soapjms.replay.follower.held_records import FORMAT, HeldRecords
from soapjms.replay.follower.results import FollowResults
from soapjms.replay.follower.tail import Plan
from soapjms.replay.output import check_path, give_name, sync_all, write_text

RESULTS: Final = ("verdicts", "rejected", "late")
TERMS: Final = "terms.json"
LOCK: Final = "lock"
MAX_STEP_RESULTS: Final = 200
"""Number of steps after which their results are merged, and of merged parts that are merged again: steps of a few
seconds make many files in a week."""
JOINED_ROWS: Final = 500
"""Number of rows that are read at a time, as each may be large."""


class Checkpoint:
    """The folder of the checkpoint.

    Args:
        folder: its path; made if it does not exist.

    Attributes:
        folder: see the argument.
        plans, spark, temporary: folders in it; see above.
        held: the records of unfinished calls, while the checkpoint is open.
    """

    held: HeldRecords

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plans = folder / "plans"
        self.spark = folder / "spark"
        self.temporary = folder / "temporary"
        self._steps = folder / "steps"
        self._merged = folder / "merged"

    @contextmanager
    def opened(self, terms: Mapping[str, Any]) -> Iterator[None]:
        """Lock the folder, and remove unfinished parts of a killed run.

        Args:
            terms: the terms that a resumed run must share with those before.

        Raises:
            UsageError: another process uses the folder, it holds other files or cannot be written, the terms differ,
                or see `check_path`.
            StoreFailedError: memory or disk space ran out.
        """
        check_path(self.folder)
        with self._writable():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_names()
            self.folder.chmod(0o700)  # it holds records as they were captured, in files of any mode
            lock = (self.folder / LOCK).open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"another process follows logs with the checkpoint {self.folder}") from None
            self._check(terms)
            with self._writable():
                for made in (self.plans, self._steps, self._merged):
                    made.mkdir(exist_ok=True)
            for each in [*self._steps.glob(".*"), *self._merged.glob(".*"), *self.plans.glob(".*")]:
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.rmtree(self.temporary, ignore_errors=True)  # the Java of a killed run may still write there
            self.temporary.mkdir(exist_ok=True)
            try:
                with failures_told(), closing(HeldRecords(self.folder / "held")) as self.held:
                    self._forget_steps(self.done().number)
                    yield
            finally:
                shutil.rmtree(self.temporary, ignore_errors=True)

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """Raise UsageError if the folder cannot be written."""
        try:
            yield
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be written: {error.strerror}: {error.filename}") from None

    def _check_names(self) -> None:
        """Refuse a folder of something else, as files in it would be removed: the terms come first into a new one."""
        names = sorted(os.listdir(self.folder))
        foreign = [each for each in names if each != LOCK and not each.startswith(f".{TERMS}.")]
        if foreign and TERMS not in names:
            raise UsageError(f"{self.folder} holds {foreign[0]}, and is no checkpoint; name a new folder")

    def _check(self, terms: Mapping[str, Any]) -> None:
        path = self.folder / TERMS
        with self._writable():
            if not path.exists():
                write_text(path, json.dumps(terms))
                return
            before = self._terms_of(path)
        other = [name for name, value in terms.items() if before.get(name) != value]
        if FORMAT in other:
            raise UsageError(
                f"the checkpoint {self.folder} is of another version of soapjms, which holds records in another form; "
                "name another --checkpoint"
            )
        if other:
            raise UsageError(
                f"the checkpoint {self.folder} is of a run with {other[0]} {before.get(other[0])}, but this one has "
                f"{terms[other[0]]}; use the same, or name another --checkpoint"
            )

    def _terms_of(self, path: Path) -> dict[str, Any]:
        with suppress(ValueError, RecursionError):
            found = json.loads(path.read_text("utf-8"))
            if isinstance(found, dict):
                return found
        raise UsageError(f"{path} is not of a checkpoint; name a new folder")

    # Plans

    def all_plans(self) -> list[Plan]:
        """Return the plans that are there, in order."""
        return [Plan.from_json(each.read_text("utf-8")) for each in sorted(self.plans.glob("*.json"))]

    def last_plan(self) -> Plan | None:
        """Return the latest plan, or None."""
        found = self.all_plans()
        return found[-1] if found else None

    def add_plan(self, plan: Plan) -> None:
        """Write a plan, to be carried out."""
        write_text(self.plans / f"{plan.number:010}.json", plan.to_json())

    def forget_plans(self) -> None:
        """Remove all plans but the last, which holds the read positions."""
        for each in sorted(self.plans.glob("*.json"))[:-1]:
            each.unlink()

    # Steps

    def done(self) -> FollowResults:
        """Return the state after the last step."""
        return self.held.done()

    def begin(self, number: int) -> Path:
        """Make a folder to build a step in."""
        folder = self._steps / f".{number:010}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def commit(self, folder: Path, over: pa.Table, done: FollowResults) -> None:
        """Put the results of a step in their place; see `HeldRecords.commit` for the rest."""
        _put_in_place(folder, self._steps / f"{done.number:010}")
        self.held.commit(over, done)

    def merge(self) -> None:
        """Merge the results of steps if there are many, and what was merged if that is in many parts."""
        steps = sorted(self._steps.glob("[0-9]*"))
        if len(steps) < MAX_STEP_RESULTS:
            return
        merged = sorted(self._merged.glob("[0-9]*"))
        parts = [*merged, *steps] if len(merged) >= MAX_STEP_RESULTS else steps
        whole = f"{parts[0].name.partition('-')[0]}-{steps[-1].name}"
        folder = self._merged / f".{whole}"
        for name in RESULTS:
            _join([path for part in parts for path in sorted(part.glob(f"{name}/*.parquet"))], folder / name)
        _put_in_place(folder, self._merged / whole)
        self._forget_steps(self.done().number)

    def _forget_steps(self, done: int) -> None:
        """Remove what was merged, and a step that was not done whole; `done` is the number of the last that was."""
        merged = [_numbers(each) for each in self._merged.glob("[0-9]*")]
        for each in [*self._steps.glob("[0-9]*"), *self._merged.glob("[0-9]*")]:
            first, last = _numbers(each)
            others = [other for other in merged if each.parent == self._steps or other != (first, last)]
            if last > done or any(start <= first and last <= end for start, end in others):
                shutil.rmtree(each)

    def results(self, name: str) -> list[Path]:
        """Return the files of one of `RESULTS`, of all steps."""
        return sorted(path for place in (self._merged, self._steps) for path in place.glob(f"[0-9]*/{name}/*.parquet"))


def _put_in_place(folder: Path, place: Path) -> None:
    """Give a folder its name once everything in it is on disk."""
    sync_all(folder)
    give_name(folder, place)


def _numbers(folder: Path) -> tuple[int, int]:
    """Return the numbers of the first and the last step whose results a folder has, by its name."""
    first, _, last = folder.name.partition("-")
    return int(first), int(last or first)


def _join(files: list[Path], folder: Path) -> None:
    """Write the rows of Parquet files with the same columns into one file."""
    folder.mkdir(parents=True)
    if not files:
        return
    schema = parquet.read_schema(files[0]).remove_metadata()
    with parquet.ParquetWriter(folder / "merged.parquet", schema) as writer:
        for some in gathered(chain.from_iterable(map(_batches, files))):
            writer.write_table(some.cast(schema))


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    with closing(parquet.ParquetFile(file)) as found:
        for batch in found.iter_batches(JOINED_ROWS):
            yield batch.replace_schema_metadata()
