"""The checkpoint of a run that follows logs, to resume it after a stop or kill: a folder, written step by step.

| entry | content |
|---|---|
| `terms.json` | the terms of judging, and the folder that is followed: a run with other terms is refused |
| `plans/` | what is to be read, each plan a file that Spark streams; finished plans are removed |
| `spark/` | Spark's own checkpoint: which plans are finished |
| `steps/` | for each finished plan `verdicts/`, `rejected/`, `late/`; for the last one also `done.json` and `held/`, |
| | the records of unfinished calls |
| `merged/` | the results of many steps in one file each; it covers all steps up to its number, which are removed |
| `temporary/` | Spark's temporary files, while the process runs |
| `lock` | locked by the running process |

Plans and steps are put in place by a rename: each exists as a whole or not at all. A step whose folder exists is never
done again, so that work interrupted by a kill is done once. Only the owner can enter the folder.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet

from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import format_time, parse_time
from soapjms.replay.follower.tail import Plan
from soapjms.replay.inputs import RejectedRow
from soapjms.replay.output import write_text
from soapjms.replay.summary import LATE_SHOWN, REJECTS_SHOWN, RunTally
from soapjms.replay.terms import LateRecord, place

DONE: Final = "done.json"
RESULTS: Final = ("verdicts", "rejected", "late")
HELD: Final = "held"
MAX_STEP_RESULTS: Final = 200
"""Number of steps after which their results are merged: steps of a few seconds make many files in a week."""
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowResults:
    """The state after a step, over all steps so far.

    Attributes:
        number: number of the step and its plan; -1 before the first.
        newest: the time of the newest record so far.
        watermark: records with an earlier time are no longer accepted.
        late: how many records came with an earlier time.
        held: how many records are held.
        tally: counts of everything that is judged.
        rejects: the first records that could not be read.
        first_late: the first records that came with an earlier time.
    """

    number: int = -1
    newest: datetime | None = None
    watermark: datetime | None = None
    late: int = 0
    held: int = 0
    tally: RunTally = field(default_factory=RunTally)
    rejects: tuple[RejectedRow, ...] = ()
    first_late: tuple[LateRecord, ...] = ()

    def after(
        self, number: int, newest: datetime | None, unread: datetime | None, disorder: timedelta
    ) -> FollowResults:
        """Return the state after another step, whose counts are still to be added; time never runs backwards.

        Args:
            number: number of the step.
            newest: the time of the newest record in it, or None.
            unread: the time of the earliest record that exists but was not read, or None.
            disorder: how much later than its time a record may come.
        """
        seen = max(filter(None, (self.newest, newest)), default=None)
        marks = [self.watermark] if self.watermark else []
        if seen is not None:
            marks.append(earlier(seen if unread is None else min(seen, unread), disorder))
        return replace(self, number=number, newest=seen, watermark=max(marks, default=None))

    def to_json(self) -> str:
        """Write the state as JSON."""
        return json.dumps(
            {
                "number": self.number,
                "newest": None if self.newest is None else format_time(self.newest),
                "watermark": None if self.watermark is None else format_time(self.watermark),
                "late": self.late,
                "held": self.held,
                "tally": self.tally.to_json(),
                "rejects": self.rejects,
                "first_late": self.first_late,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> FollowResults:
        """Read what `to_json` wrote."""
        members = json.loads(text)
        times = {name: parse_time(text) if (text := members[name]) else None for name in ("newest", "watermark")}
        tally, rejects = RunTally.from_json(members["tally"]), tuple(RejectedRow(*each) for each in members["rejects"])
        late = tuple(LateRecord(*each) for each in members["first_late"])
        return cls(**{**members, **times, "tally": tally, "rejects": rejects, "first_late": late})


class Checkpoint:
    """The folder of the checkpoint.

    Args:
        folder: its path; made if it does not exist.

    Attributes:
        folder: see the argument.
        plans, spark, temporary: folders in it; see above.
    """

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
            UsageError: another process uses the folder, it cannot be written, or the terms differ.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)  # it holds records as they were captured, in files of any mode
            for each in (self.plans, self._steps, self._merged):
                each.mkdir(exist_ok=True)
            lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be written: {error.strerror}: {error.filename}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"another process follows logs with the checkpoint {self.folder}") from None
            self._check(terms)
            for each in [*self._steps.glob(".*"), *self._merged.glob(".*"), *self.plans.glob(".*")]:
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            self._forget_merged()
            shutil.rmtree(self.temporary, ignore_errors=True)  # the Java of a killed run may still write there
            self.temporary.mkdir(exist_ok=True)
            try:
                yield
            finally:
                shutil.rmtree(self.temporary, ignore_errors=True)

    def _check(self, terms: Mapping[str, Any]) -> None:
        path = self.folder / "terms.json"
        if not path.exists():
            write_text(path, json.dumps(terms))
            return
        before = json.loads(path.read_text("utf-8"))
        other = [name for name, value in terms.items() if before.get(name) != value]
        if other:
            raise UsageError(
                f"the checkpoint {self.folder} is of a run with {other[0]} {before.get(other[0])}, but this one has "
                f"{terms[other[0]]}; use the same, or name another --checkpoint"
            )

    # Plans

    def last_plan(self) -> Plan | None:
        """Return the latest plan, or None."""
        found = sorted(self.plans.glob("*.json"))
        return Plan.from_json(found[-1].read_text("utf-8")) if found else None

    def add_plan(self, plan: Plan) -> None:
        """Write a plan for Spark to find."""
        write_text(self.plans / f"{plan.number:010}.json", plan.to_json())

    def forget_plans(self) -> None:
        """Remove all plans but the last, which holds the read positions."""
        for each in sorted(self.plans.glob("*.json"))[:-1]:
            each.unlink()

    # Steps

    def done(self) -> FollowResults:
        """Return the state after the last step."""
        found = sorted(self._steps.glob(f"[0-9]*/{DONE}"))
        return FollowResults.from_json(found[-1].read_text("utf-8")) if found else FollowResults()

    def held(self, number: int) -> Path | None:
        """Return the folder with the records that a step holds; None if there was no such step."""
        found = self._steps / f"{number:010}" / HELD
        return found if found.is_dir() else None

    def begin(self, number: int) -> Path:
        """Make a folder to build a step in."""
        folder = self._steps / f".{number:010}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def commit(self, folder: Path, done: FollowResults) -> None:
        """Put a step in its place, and remove the records that the previous one held."""
        write_text(folder / DONE, done.to_json())
        folder.rename(self._steps / f"{done.number:010}")
        for each in sorted(self._steps.glob("[0-9]*"))[:-1]:
            shutil.rmtree(each / HELD, ignore_errors=True)
            (each / DONE).unlink(missing_ok=True)

    def merge(self) -> None:
        """Merge the results of steps if there are many; the last step stays as it is."""
        steps = sorted(self._steps.glob("[0-9]*"))[:-1]
        if len(steps) < MAX_STEP_RESULTS:
            return
        folder = self._merged / f".{steps[-1].name}"
        for name in RESULTS:
            _join([path for step in steps for path in sorted(step.glob(f"{name}/*.parquet"))], folder / name)
        folder.rename(self._merged / steps[-1].name)
        self._forget_merged()

    def _forget_merged(self) -> None:
        """Remove the steps whose results were merged."""
        last = max((each.name for each in self._merged.glob("[0-9]*")), default="")
        for each in self._steps.glob("[0-9]*"):
            if each.name <= last:
                shutil.rmtree(each)

    def results(self, name: str) -> list[Path]:
        """Return the files of one of `RESULTS`, of all steps."""
        return sorted(path for place in (self._merged, self._steps) for path in place.glob(f"[0-9]*/{name}/*.parquet"))


def earlier(time: datetime, span: timedelta) -> datetime:
    """Return the time that is earlier by `span`, but no earlier than `EARLIEST`."""
    return max(time - EARLIEST, span) - span + EARLIEST


def first_rejects(*parts: tuple[RejectedRow, ...]) -> tuple[RejectedRow, ...]:
    """Return the first rejected records of several parts."""
    return tuple(nsmallest(REJECTS_SHOWN, (each for part in parts for each in part), key=place))


def first_late(*parts: tuple[LateRecord, ...]) -> tuple[LateRecord, ...]:
    """Return the first late records of several parts."""
    return tuple(nsmallest(LATE_SHOWN, (each for part in parts for each in part)))


def _join(files: list[Path], folder: Path) -> None:
    """Write the rows of Parquet files with the same columns into one file."""
    folder.mkdir(parents=True)
    if not files:
        return
    schema = parquet.read_schema(files[0]).remove_metadata()
    with parquet.ParquetWriter(folder / "merged.parquet", schema) as writer:
        for path in files:
            writer.write_table(parquet.ParquetFile(path).read().cast(schema))
