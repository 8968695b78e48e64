"""Following logs: the verdicts of a replay on logs that are still being written.

New lines in a folder become a plan (`tail.py`: whole lines only), a small file, which Spark streams where it runs. Each
plan is a step (`steps.py`), which holds unfinished calls and judges the others. `checkpoint.py` keeps the state needed
to resume. Whenever results are written, they equal those of a replay of all records so far.

Spec: capture record, version 1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from soapjms.protocol.errors import UsageError
from soapjms.protocol.exchange import DEFAULT_WINDOW
from soapjms.protocol.names import DEFAULT_PROFILE, Auto, Profile, ProfileName
from soapjms.protocol.record import format_time
from soapjms.protocol.senders import SenderProfiles
from soapjms.protocol.text import counted
from soapjms.protocol.values import Value
from soapjms.replay import report
from soapjms.replay.column_store import cores
from soapjms.replay.engines import ENGINES, EXACT, SPARK, EngineName, choose_engine, why_spark
from soapjms.replay.errors import NoInputError, importing_spark
from soapjms.replay.follower.checkpoint import RESULTS, Checkpoint
from soapjms.replay.follower.held_records import FORMAT, HELD
from soapjms.replay.follower.results import FollowResults
from soapjms.replay.follower.steps import FollowSteps, Patience
from soapjms.replay.follower.tail import Plan, Tail
from soapjms.replay.local import MAX_PROCESSES
from soapjms.replay.output import check_replaceable, staging
from soapjms.replay.processes import Processes
from soapjms.replay.run import SenderArgument, earlier_results, make_terms
from soapjms.replay.summary import Summary, note_others, summarise
from soapjms.replay.terms import ProfileChoice, Progress, ReplayTerms
from soapjms.replay.uris import is_elsewhere, shown

__all__ = ["DISORDER", "EVERY", "follow"]

DISORDER: Final = timedelta(seconds=60)
EVERY: Final = timedelta(seconds=5)
REPORT_SECONDS: Final = 60.0
"""Seconds between two reports, while there are new records."""
LIVE_REPORT_SECONDS: Final = 3.0
"""The same for reports that somebody watches, at least."""
LIVE_REPORT_FACTOR: Final = 4.0
"""How many times as long as the last report took to wait for the next one, if somebody watches."""


def follow(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    profile: Profile | ProfileName | Auto = DEFAULT_PROFILE,
    engine: EngineName | None = None,
    *,
    senders: SenderArgument | Iterable[SenderArgument] = (),
    properties: Mapping[str, Value] = MappingProxyType({}),
    variants: str | Iterable[str] = (),
    window: timedelta = DEFAULT_WINDOW,
    disorder: timedelta = DISORDER,
    remember: timedelta | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: timedelta = EVERY,
    until_idle: timedelta | None = None,
    against: str | os.PathLike[str] | None = None,
    stop: Event | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = lambda text: None,
    on_report: Callable[[Summary], None] | None = None,
) -> Summary:
    """Judge capture logs as they are written, until told to stop; resume where the last run stopped or was killed.

    The results equal those of a replay of all records so far, and are written each minute, with `on_report` sooner.

    Args:
        folder: the folder with the logs, as for `replay`; they may grow, and others may be added.
        out: the folder for the results: those of a replay, and late/.
        profile, engine, senders, properties, variants, window, against, master, conf: see `replay`; auto needs a WSDL.
        disorder: how much later than its time a record may come; later ones are kept under late/ and not judged.
        remember: how long a call is held after its last record, by default the window; a later copy is another message.
        checkpoint: a folder for the state needed to resume; by default beside `out`.
        every, until_idle: the interval between two looks for new records; how long none may come, None to go on.
        stop, progress, on_report: ends the run if set; called after each step; and with each summary that was written.

    Raises:
        UsageError, NoInputError: an argument is invalid, or a folder holds other files or does not exist.
        ProcessLostError, StoreFailedError, SparkFailedError, SparkMissingError: see `replay`; the next run resumes.
    """
    chosen = _engine(engine, has_settings=bool(master or conf))
    terms = make_terms(profile, senders, properties, variants, window, exact=chosen == EXACT)
    patience = _patience(terms, disorder, window if remember is None else remember)
    source, target = _source(Path(folder)), _target(os.fspath(out))
    kept = _checkpoint(Path(checkpoint or f"{target}.checkpoint").resolve(), source.resolve(), target)
    with kept.opened(_said(source, terms, patience)), _steps(chosen, kept, terms, patience, master, conf) as steps:
        following = _Following(
            kept, *steps, terms, source, target, earlier_results(against, terms), progress, on_report
        )
        return following.run(stop or Event(), every.total_seconds(), until_idle)


def _engine(name: EngineName | None, *, has_settings: bool) -> str:
    if name is None:
        return (why_spark((), has_settings=has_settings) or choose_engine(0)).engine  # what is to come has no size
    if name not in ENGINES:
        raise UsageError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    return name


@contextmanager
def _steps(
    engine: str,
    checkpoint: Checkpoint,
    terms: ReplayTerms,
    patience: Patience,
    master: str | None,
    conf: Mapping[str, str] | None,
) -> Iterator[tuple[FollowSteps, Callable[[], object]]]:
    """Yield the steps on an engine, and a function that carries out all plans in the checkpoint."""
    if engine == SPARK:
        with importing_spark():
            from soapjms.replay.follower import spark
        with spark.steps(checkpoint, terms, patience, master, conf) as found:
            yield found
        return
    with (
        Processes(min(cores(), MAX_PROCESSES)) as processes,
        closing(FollowSteps(processes, checkpoint, terms, patience)) as steps,
    ):
        yield steps, lambda: steps.carry_out(checkpoint.all_plans())


def _patience(terms: ReplayTerms, disorder: timedelta, remember: timedelta) -> Patience:
    if terms.choice is ProfileChoice.OPEN:
        raise UsageError("the profile auto depends on faults that are still to come; name a profile, or give a WSDL")
    if disorder < timedelta(0):
        raise UsageError(f"disorder must be at least 0 seconds, got {disorder.total_seconds():g}")
    if remember < terms.window:
        raise UsageError(
            f"remember must be at least the window of {terms.window.total_seconds():g} seconds, got "
            f"{remember.total_seconds():g}"
        )
    return Patience(disorder=disorder, remember=remember)


def _source(folder: Path) -> Path:
    if not folder.is_dir():
        raise NoInputError(f"{folder} is not a folder; following needs a folder that logs are written to")
    return folder


def _target(out: str) -> Path:
    if is_elsewhere(out):
        raise UsageError(f"{shown(out)} is a URI; the results of following are written to a folder")
    target = Path(out).resolve()
    check_replaceable(target)
    return target


def _checkpoint(folder: Path, source: Path, target: Path) -> Checkpoint:
    """Return the checkpoint in a folder.

    Raises:
        UsageError: the logs are in the folder of the results or of the checkpoint, or one of these is in the other.
    """
    for name, each in (("results", target), ("checkpoint", folder)):
        if source.is_relative_to(each):
            raise UsageError(f"the {name} must not go into {each}, which holds the logs; name another folder")
    if target.is_relative_to(folder) or folder.is_relative_to(target):
        raise UsageError(f"the folders of the results and of the checkpoint must be apart, got {target} and {folder}")
    return Checkpoint(folder)


def _said(source: Path, terms: ReplayTerms, patience: Patience) -> dict[str, Any]:
    """Return, as JSON, the terms that a resumed run must share with the last one."""
    return {
        "folder": str(source.resolve()),
        "profile": terms.setting.profile.name,
        "window": str(terms.window),
        "disorder": str(patience.disorder),
        "remember": str(patience.remember),
        "variants": sorted(terms.setting.variants),
        FORMAT: ", ".join(HELD.names),
        "counts": "by party",
        "senders": [_said_of(each) for each in terms.senders.all],
    }


def _said_of(sender: SenderProfiles) -> list[Any]:
    given = {name: str(found.value) for name, found in sorted(sender.properties.items())}
    return [sender.address, sender.target_service, sender.source, given]


def _is_ours(path: Path, *folders: Path) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder) for folder in folders)


class _Following:
    """One run."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        steps: FollowSteps,
        carry_out: Callable[[], object],
        terms: ReplayTerms,
        source: Path,
        target: Path,
        earlier: Summary | None,
        progress: Progress,
        on_report: Callable[[Summary], None] | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._steps = steps
        self._carry_out = carry_out
        self._tail = Tail(source, lambda path: _is_ours(path, target, checkpoint.folder), checkpoint.last_plan())
        self._terms = terms
        self._target = target
        self._source = source
        self._earlier = earlier
        self._progress = progress
        self._on_report = on_report

    def run(self, stop: Event, every: float, until_idle: timedelta | None) -> Summary:
        """Follow until told to stop, and write the results."""
        self._carry_out()  # what an interrupted run left
        self._follow(stop, every, None if until_idle is None else until_idle.total_seconds())
        return self._report()

    def _follow(self, stop: Event, every: float, patience: float | None) -> None:
        news = due = monotonic()
        told = False
        if self._on_report is None:
            due, told = news + REPORT_SECONDS, True
        while not stop.is_set():
            begun, plan = monotonic(), self._tail.plan()
            if plan is not None:
                self._do(plan)
                news, told = monotonic(), False
            elif patience is not None and monotonic() - news >= patience:
                return
            if not told and (now := monotonic()) >= due and not stop.is_set():
                told = self._try_to_report()
                due = self._due(now, monotonic())
            if plan is None or plan.unread is None:  # else there is more to read at once
                rest = every - (monotonic() - begun)
                stop.wait(max(0.0, rest if patience is None else min(rest, patience)))

    def _due(self, begun: float, ended: float) -> float:
        """Return when the report may be written again."""
        if self._on_report is None:
            return ended + REPORT_SECONDS
        return ended + max(LIVE_REPORT_SECONDS, LIVE_REPORT_FACTOR * (ended - begun))

    def _do(self, plan: Plan) -> None:
        self._checkpoint.add_plan(plan)
        self._carry_out()
        self._checkpoint.forget_plans()
        self._progress(_told(plan, self._checkpoint.done()))

    def _try_to_report(self) -> bool:
        """Write the results; if others put files there, tell it, and return False: they may be gone next time."""
        try:
            self._report()
        except UsageError as error:
            self._progress(f"the report was not written: {error}")
            return False
        return True

    def _report(self) -> Summary:
        """Write the results as if no more records followed."""
        with staging(self._target) as result:
            done = self._steps.as_of_now(self._tail.rests(), result)
            for name in RESULTS:
                for path in self._checkpoint.results(name):
                    shutil.copyfile(path, result / name / f"{path.parents[1].name}-{path.name}")
            note_others(done.tally, self._tail.others())
            summary = summarise(done.tally, done.rejects, self._terms, [str(self._source)])
            watermark = None if done.watermark is None else format_time(done.watermark)
            members = {**summary.members, "late": done.late, "watermark": watermark}
            summary = replace(summary, members=members, late=done.first_late)
            report.write(summary, result, self._earlier)
        if self._on_report is not None:
            self._on_report(summary)
        return summary


def _told(plan: Plan, done: FollowResults) -> str:
    """Describe the result of a step."""
    files = len({chunk.name for chunk in plan.chunks})
    counts = done.tally.counts
    failed = sum(number for path, number in counts.items() if path[0] == "assertion" and path[2] == "failed")
    watermark = "none yet" if done.watermark is None else format_time(done.watermark)
    return (
        f"step {plan.number}: {counted(files, 'file')}; watermark {watermark}; "
        f"{counted(counts['messages',], 'message')} judged, {counted(failed, 'verdict')} failed, "
        f"{counted(done.held, 'record')} held, {done.late} late, {counts['rejected',]} rejected"
    )
