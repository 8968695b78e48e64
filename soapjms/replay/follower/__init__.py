"""Following logs: the verdicts of a replay on logs that are still being written, with Spark's Structured Streaming.

New lines in a folder become a plan (`tail.py`: whole lines only), a small file that Spark streams. Each plan is a
step (`steps.py`), which holds unfinished calls and judges the others. `checkpoint.py` keeps the state needed to
resume. Whenever results are written, they equal those of a replay of all records so far.

Spec: capture record, version 1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from soapjms.protocol.errors import UsageError
from soapjms.protocol.exchange import DEFAULT_WINDOW
from soapjms.protocol.names import DEFAULT_PROFILE, Auto, Profile, ProfileName
from soapjms.protocol.record import format_time
from soapjms.protocol.senders import SenderProfiles
from soapjms.protocol.text import counted
from soapjms.protocol.values import Value
from soapjms.replay import report
from soapjms.replay.engines import is_elsewhere
from soapjms.replay.errors import NoInputError
from soapjms.replay.follower.checkpoint import RESULTS, Checkpoint, FollowResults
from soapjms.replay.follower.steps import FollowSteps, Patience
from soapjms.replay.follower.tail import Plan, Tail
from soapjms.replay.inputs import shown
from soapjms.replay.output import check_replaceable, staging
from soapjms.replay.run import SenderArgument, earlier_results, make_terms
from soapjms.replay.spark import failing_as_ours
from soapjms.replay.spark_session import session
from soapjms.replay.summary import Summary, note_others, summarise
from soapjms.replay.terms import ProfileChoice, Progress, ReplayTerms

__all__ = ["DISORDER", "EVERY", "follow"]

DISORDER: Final = timedelta(seconds=60)
EVERY: Final = timedelta(seconds=5)
REPORT_SECONDS: Final = 60.0
"""Seconds between two reports, while there are new records."""
LIVE_REPORT_SECONDS: Final = 3.0
"""The same for reports that somebody watches, at least."""
LIVE_REPORT_FACTOR: Final = 4.0
"""How many times as long as the last report took to wait for the next one, if somebody watches."""
SETTINGS: Final = MappingProxyType({"spark.sql.streaming.pollingDelay": "200"})
"""Settings of Spark: the poll interval for plans, in milliseconds."""


def follow(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    profile: Profile | ProfileName | Auto = DEFAULT_PROFILE,
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

    The results equal those of a replay of all records so far. They are rewritten each minute, with `on_report` sooner.

    Args:
        folder: the folder with the logs, as for `replay`; they may grow, and others may be added.
        out: the folder for the results: those of a replay, and late/.
        profile, senders, properties, variants, window, against, master, conf: as for `replay`; "auto" needs a WSDL.
        disorder: how much later than its time a record may come; later ones are kept under late/ and not judged.
        remember: how long a call is held after its last record, by default the window; a later copy is another message.
        checkpoint: a folder for the state needed to resume; by default beside `out`.
        every: the interval between two looks for new records.
        until_idle, stop: stop when nothing new has come for this time (None: go on), or when the event is set.
        progress, on_report: called after each step, and with the summary whenever the results were written.

    Raises:
        UsageError, NoInputError: an argument is invalid, or a folder holds other files or does not exist.
        SparkMissingError, SparkFailedError: Spark did not start, or failed; the next run resumes.
    """
    terms = make_terms(profile, senders, properties, variants, window)
    patience = Patience(disorder=disorder, remember=window if remember is None else remember)
    source, target = Path(folder), _target(os.fspath(out))
    _check(source, target, terms, patience)
    kept = Checkpoint(Path(checkpoint or f"{target}.checkpoint").resolve())
    settings = {**SETTINGS, **(conf or {})}
    with kept.opened(_said(source, terms, patience)), _spark(master, settings, kept.temporary) as spark:
        steps = FollowSteps(spark, kept, terms, patience)
        following = _Following(kept, steps, terms, source, target, earlier_results(against, terms), progress, on_report)
        return following.run(spark, stop or Event(), every.total_seconds(), until_idle)


def _target(out: str) -> Path:
    if is_elsewhere(out):
        raise UsageError(f"{shown(out)} is a URI; the results of following are written to a folder")
    return Path(out).resolve()


def _check(source: Path, target: Path, terms: ReplayTerms, patience: Patience) -> None:
    check_replaceable(target)
    if not source.is_dir():
        raise NoInputError(f"{source} is not a folder; following needs a folder that logs are written to")
    if terms.choice is ProfileChoice.OPEN:
        raise UsageError("the profile auto depends on faults that are still to come; name a profile, or give a WSDL")
    if patience.disorder < timedelta(0):
        raise UsageError(f"disorder must be at least 0 seconds, got {patience.disorder.total_seconds():g}")
    if patience.remember < terms.window:
        raise UsageError(
            f"remember must be at least the window of {terms.window.total_seconds():g} seconds, got "
            f"{patience.remember.total_seconds():g}"
        )


def _said(source: Path, terms: ReplayTerms, patience: Patience) -> dict[str, Any]:
    """Return, as JSON, the terms that a resumed run must share with the last one."""
    return {
        "folder": str(source.resolve()),
        "profile": terms.setting.profile.name,
        "window": str(terms.window),
        "disorder": str(patience.disorder),
        "remember": str(patience.remember),
        "variants": sorted(terms.setting.variants),
        "held records": "compressed",
        "counts": "by party",
        "senders": [_said_of(each) for each in terms.senders.all],
    }


def _said_of(sender: SenderProfiles) -> list[Any]:
    given = {name: str(found.value) for name, found in sorted(sender.properties.items())}
    return [sender.address, sender.target_service, sender.source, given]


def _is_ours(path: Path, *folders: Path) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder) for folder in folders)


@contextmanager
def _spark(master: str | None, settings: Mapping[str, str], scratch: Path) -> Iterator[SparkSession]:
    with failing_as_ours(), session(master, settings, scratch) as spark:
        if "spark.sql.shuffle.partitions" not in settings:
            spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
        yield spark


class _Following:
    """One run."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        steps: FollowSteps,
        terms: ReplayTerms,
        source: Path,
        target: Path,
        earlier: Summary | None,
        progress: Progress,
        on_report: Callable[[Summary], None] | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._steps = steps
        self._tail = Tail(source, lambda path: _is_ours(path, target, checkpoint.folder), checkpoint.last_plan())
        self._terms = terms
        self._target = target
        self._source = source
        self._earlier = earlier
        self._progress = progress
        self._on_report = on_report

    def run(self, spark: SparkSession, stop: Event, every: float, until_idle: timedelta | None) -> Summary:
        """Follow until told to stop, and write the results."""
        patience = None if until_idle is None else until_idle.total_seconds()
        query = self._query(spark)
        try:
            query.processAllAvailable()  # plans left over from an interrupted run
            self._follow(query, stop, every, patience)
        finally:
            query.stop()
        return self._report()

    def _query(self, spark: SparkSession) -> StreamingQuery:
        plans = spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._checkpoint.plans), wholetext=True)
        writer = plans.writeStream.foreachBatch(self._steps.take)
        return writer.option("checkpointLocation", str(self._checkpoint.spark)).start()

    def _follow(self, query: StreamingQuery, stop: Event, every: float, patience: float | None) -> None:
        news = due = monotonic()
        told = False
        if self._on_report is None:
            due, told = news + REPORT_SECONDS, True
        while not stop.is_set():
            plan = self._tail.plan()
            if plan is not None:
                self._do(plan, query)
                news, told = monotonic(), False
            elif patience is not None and monotonic() - news >= patience:
                return
            else:
                stop.wait(every)
            if not told and (begun := monotonic()) >= due:
                self._report()
                due, told = self._due(begun, monotonic()), True

    def _due(self, begun: float, ended: float) -> float:
        """Return when the report may be written again."""
        if self._on_report is None:
            return ended + REPORT_SECONDS
        return ended + max(LIVE_REPORT_SECONDS, LIVE_REPORT_FACTOR * (ended - begun))

    def _do(self, plan: Plan, query: StreamingQuery) -> None:
        self._checkpoint.add_plan(plan)
        query.processAllAvailable()
        self._checkpoint.forget_plans()
        self._progress(_told(plan, self._checkpoint.done()))

    def _report(self) -> Summary:
        """Write the results as if no more records followed."""
        with staging(self._target) as result:
            done = self._steps.as_of_now(self._tail.rests(), result)
            for name in RESULTS:
                for path in self._checkpoint.results(name):
                    _link(path, result / name / f"{path.parents[1].name}-{path.name}")
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


def _link(path: Path, place: Path) -> None:
    """Link a file, which never changes, to another place; on file systems without links, copy it."""
    try:
        place.hardlink_to(path)
    except OSError:
        shutil.copyfile(path, place)
