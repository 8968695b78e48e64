"""What a run that follows logs needs to go on after it was stopped or killed: a folder, written step by step.

| in it | what |
|---|---|
| `terms.json` | what it judges by, and which folder it follows: another run with other terms is refused |
| `plans/` | what is to be read, each plan a file that Spark streams; those that are done are removed |
| `spark/` | Spark's own checkpoint: which plans are done |
| `steps/` | of each plan that is done `verdicts/`, `rejected/`, `late/`; of the last one also `done.json`, `held/`: |
| | the records of calls that are not over |
| `merged/` | the results of many steps in a file each; it covers all steps up to its number, and these are removed |
| `lock` | held by the process that runs |

A plan and a step are put in their place by a rename: each is there as a whole or not at all. A step whose folder is
there is never done again, so that whatever a kill interrupts is done once. Nobody but the owner enters the folder.
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
"""So many steps have their results put together: steps of a few seconds come to many files in a week."""
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowResults:
    """What is known after a step: of all steps up to it.

    Attributes:
        number: of the step and its plan; -1 before the first.
        newest: the time of the newest record so far.
        watermark: no record with an earlier time is taken any more.
        late: how many records came with an earlier time.
        held: how many records are held.
        tally: counts of what is settled.
        rejects: the first of what could not be read.
        first_late: the first of the records that came with an earlier time.
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
            number: of the step.
            newest: the time of the newest record in it, None if it had none.
            unread: the time of the earliest record that is there and was not read.
            disorder: how much later than its time a record may come.
        """
        seen = max(filter(None, (self.newest, newest)), default=None)
        marks = [self.watermark] if self.watermark else []
        if seen is not None:
            marks.append(earlier(seen if unread is None else min(seen, unread), disorder))
        return replace(self, number=number, newest=seen, watermark=max(marks, default=None))

    def to_json(self) -> str:
        """Write it."""
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
    """The folder.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plans = folder / "plans"
        self.spark = folder / "spark"
        self._steps = folder / "steps"
        self._merged = folder / "merged"

    @contextmanager
    def opened(self, terms: Mapping[str, Any]) -> Iterator[None]:
        """Take the folder, and remove what a killed run left half done.

        Args:
            terms: what a run that goes on here must have in common with those before.

        Raises:
            UsageError: another process has it, it holds something else, or the terms are others.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)  # it holds records as they were captured; what is in it has any mode
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
            yield

    def _check(self, terms: Mapping[str, Any]) -> None:
        path = self.folder / "terms.json"
        if not path.exists():
            write_text(path, json.dumps(terms))
            return
        before = json.loads(path.read_text("utf-8"))
        other = [name for name, value in terms.items() if before.get(name) != value]
        if other:
            raise UsageError(
                f"the checkpoint {self.folder} is of a run with {other[0]} {before.get(other[0])}, and this one has "
                f"{terms[other[0]]}; go on with the same, or name another --checkpoint"
            )

    # Plans

    def last_plan(self) -> Plan | None:
        """Return the plan that was made last."""
        found = sorted(self.plans.glob("*.json"))
        return Plan.from_json(found[-1].read_text("utf-8")) if found else None

    def add_plan(self, plan: Plan) -> None:
        """Write a plan for Spark to find."""
        write_text(self.plans / f"{plan.number:010}.json", plan.to_json())

    def forget_plans(self) -> None:
        """Remove all plans but the last: where reading has got to is in it."""
        for each in sorted(self.plans.glob("*.json"))[:-1]:
            each.unlink()

    # Steps

    def done(self) -> FollowResults:
        """Return the state after the last step."""
        found = sorted(self._steps.glob(f"[0-9]*/{DONE}"))
        return FollowResults.from_json(found[-1].read_text("utf-8")) if found else FollowResults()

    def held(self, number: int) -> Path | None:
        """Return where the records are that a step holds; None if there was no such step."""
        found = self._steps / f"{number:010}" / HELD
        return found if found.is_dir() else None

    def begin(self, number: int) -> Path:
        """Give a folder to build a step in."""
        folder = self._steps / f".{number:010}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def commit(self, folder: Path, done: FollowResults) -> None:
        """Put a step in its place; what the one before held is not needed any more."""
        write_text(folder / DONE, done.to_json())
        folder.rename(self._steps / f"{done.number:010}")
        for each in sorted(self._steps.glob("[0-9]*"))[:-1]:
            shutil.rmtree(each / HELD, ignore_errors=True)
            (each / DONE).unlink(missing_ok=True)

    def merge(self) -> None:
        """Put the results of steps together where they have become many; the last step stays as it is."""
        steps = sorted(self._steps.glob("[0-9]*"))[:-1]
        if len(steps) < MAX_STEP_RESULTS:
            return
        folder = self._merged / f".{steps[-1].name}"
        for name in RESULTS:
            _join([path for step in steps for path in sorted(step.glob(f"{name}/*.parquet"))], folder / name)
        folder.rename(self._merged / steps[-1].name)
        self._forget_merged()

    def _forget_merged(self) -> None:
        """Remove the steps whose results were put together."""
        last = max((each.name for each in self._merged.glob("[0-9]*")), default="")
        for each in self._steps.glob("[0-9]*"):
            if each.name <= last:
                shutil.rmtree(each)

    def results(self, name: str) -> list[Path]:
        """Return the files of `RESULTS` of all steps."""
        return sorted(path for place in (self._merged, self._steps) for path in place.glob(f"[0-9]*/{name}/*.parquet"))


def earlier(time: datetime, span: timedelta) -> datetime:
    """Return the time that is so much earlier, but none before the first that there is."""
    return max(time - EARLIEST, span) - span + EARLIEST


def first_rejects(*parts: tuple[RejectedRow, ...]) -> tuple[RejectedRow, ...]:
    """Return the first of what several parts could not read."""
    return tuple(nsmallest(REJECTS_SHOWN, (each for part in parts for each in part), key=place))


def first_late(*parts: tuple[LateRecord, ...]) -> tuple[LateRecord, ...]:
    """Return the first of the records that came late in several parts."""
    return tuple(nsmallest(LATE_SHOWN, (each for part in parts for each in part)))


def _join(files: list[Path], folder: Path) -> None:
    """Put the rows of Parquet files with the same columns into one file."""
    folder.mkdir(parents=True)
    if not files:
        return
    schema = parquet.read_schema(files[0]).remove_metadata()
    with parquet.ParquetWriter(folder / "merged.parquet", schema) as writer:
        for path in files:
            writer.write_table(parquet.ParquetFile(path).read().cast(schema))
