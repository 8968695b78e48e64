"""One replay: arguments become a job, an engine runs it, and its results become a folder or a URI.

Spec: capture record, version 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

try:
    import duckdb as _duckdb  # noqa: F401  # so that a missing package is explained here
    import jinja2 as _jinja2  # noqa: F401
    import msgspec as _msgspec  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as _error:
    _why = f"soapjms.replay needs {_error.name} ({_error}): pip install 'soapjms[replay]'"
    raise ImportError(_why, name=_error.name) from _error

from soapjms.protocol.assertions import Setting
from soapjms.protocol.errors import UsageError
from soapjms.protocol.exchange import DEFAULT_WINDOW
from soapjms.protocol.names import AUTO, DEFAULT_PROFILE, Auto, Profile, ProfileName
from soapjms.protocol.names import profile as profile_of
from soapjms.protocol.senders import editions_of, senders_of
from soapjms.protocol.uri import KNOWN_VARIANTS, JmsUri, parse
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Description, Port
from soapjms.replay import report
from soapjms.replay.engines import (
    ENGINES,
    EXACT,
    LOCAL,
    SPARK,
    EngineChoice,
    EngineName,
    choose_engine,
    why_spark,
)
from soapjms.replay.errors import importing_spark
from soapjms.replay.inputs import RejectedRow, expand, octets_of
from soapjms.replay.output import staging, temporary_result
from soapjms.replay.summary import RunTally, Summary, summarise
from soapjms.replay.terms import Job, ProfileChoice, Progress, ReplayTerms
from soapjms.replay.uris import is_elsewhere, shown, without_here

LogArgument: TypeAlias = str | os.PathLike[str]
SenderArgument: TypeAlias = str | JmsUri | Port | Description


def replay(
    logs: LogArgument | Iterable[LogArgument],
    out: str | os.PathLike[str],
    profile: Profile | ProfileName | Auto = DEFAULT_PROFILE,
    engine: EngineName | None = None,
    *,
    senders: SenderArgument | Iterable[SenderArgument] = (),
    properties: Mapping[str, Value] = MappingProxyType({}),
    variants: str | Iterable[str] = (),
    window: timedelta = DEFAULT_WINDOW,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    against: str | os.PathLike[str] | None = None,
    progress: Progress = lambda text: None,
) -> Summary:
    """Judge the exchanges of capture logs and write the results as a folder.

    The folder is written as a whole or not at all; one from an earlier run is replaced. Records that cannot be read are
    counted and kept under rejected/, and the rest is judged.

    Args:
        logs: files, folders (all their .jsonl, .jsonl.gz and .parquet files), globs, or URIs of these.
        out: the folder for the results, or its URI, where they are put in place in the end, the summary last.
        profile: the edition to judge by; "auto" for that of the WSDLs among `senders`, else of most faults in the logs.
        engine: one of `ENGINES`; None for the one that suits the logs and arguments, see `engines.choose_engine`.
        senders: the addresses that senders used: jms: URIs, ports of WSDLs, WSDLs for all their SOAP/JMS ports; which
            source of a property counts is judged for the messages to them only, see `Senders.find`.
        properties: binding properties that the programs of all these senders set; they override all others.
        variants: lookup variants that the responding nodes support besides jndi, queue and topic.
        window: how far apart in time the copies of a message, or a request and its response, may be.
        master, conf: where Spark runs (by default local[2]) and its further settings; no other engine heeds them.
        against: the results of an earlier replay, which the page compares these with; it may be `out`.
        progress: called with a short text whenever there is progress: a `Phase`, or the `EngineChoice` that was made.

    Raises:
        UsageError: an argument is invalid, or the output folder holds other files; see `senders_of` too.
        NoInputError: none of the logs can be read.
        ProcessLostError, StoreFailedError, SparkFailedError, SparkMissingError: memory, the disk or Spark fails.
    """
    terms = make_terms(profile, senders, properties, variants, window, exact=engine == EXACT)
    earlier = earlier_results(against, terms)
    arguments = [os.fspath(each) for each in ([logs] if isinstance(logs, str | os.PathLike) else logs)]
    needs_spark = None if engine else why_spark([os.fspath(out), *arguments], has_settings=bool(master or conf))
    job = _job(arguments, os.fspath(out), terms, progress, is_hadoop=needs_spark is not None or engine == SPARK)
    run = _engine(engine or _chosen(needs_spark, job, progress), master, conf)
    with _built(job) as result, run(job, result, progress) as (tally, rejects):
        summary = summarise(tally, rejects, terms.decided(tally.counts), job.names)
        progress("writing the report")
        report.write(summary, result, earlier)
    return summary


def earlier_results(folder: LogArgument | None, terms: ReplayTerms) -> Summary | None:
    """Read the results of an earlier replay, if there is one.

    Raises:
        UsageError: there are none, or they were judged by another profile than these will be.
    """
    if folder is None:
        return None
    place = without_here(os.fspath(folder))
    earlier = _remote_results(place) if is_elsewhere(place) else report.load(Path(place))
    if not terms.is_open:
        report.check_comparable(earlier.members["profile"], terms.setting.profile.name)
    return earlier


def _remote_results(uri: str) -> Summary:
    """Read the results of an earlier replay that are at a URI; see `report.load`."""
    from soapjms.replay import remote_results

    with remote_results.fetched(uri) as folder:
        return report.load(folder)


Engine: TypeAlias = Callable[[Job, Path, Progress], AbstractContextManager[tuple[RunTally, list[RejectedRow]]]]


@contextmanager
def _built(job: Job) -> Iterator[Path]:
    """Yield the folder that results are built in: one that takes the place of `out`, or that is moved to its URI."""
    if not is_elsewhere(job.out):
        with staging(Path(job.out).resolve()) as result:
            yield result
    elif job.is_hadoop:
        with temporary_result() as result:
            yield result
    else:
        from soapjms.replay import remote_results

        with remote_results.staging(job.out) as result:
            yield result


def make_terms(
    profile: Profile | ProfileName | Auto,
    senders: SenderArgument | Iterable[SenderArgument],
    properties: Mapping[str, Value],
    variants: str | Iterable[str],
    window: timedelta,
    *,
    exact: bool,
) -> ReplayTerms:
    """Make the terms of a run from the arguments of `replay`, and from whether the engine is to judge each exchange.

    Raises:
        UsageError: an argument is invalid.
    """
    given = [senders] if isinstance(senders, str | JmsUri | Port | Description) else list(senders)
    if window <= timedelta(0):
        raise UsageError(f"window must be longer than 0 seconds, got {window.total_seconds():g}")
    edition, choice = _profile(profile, given)
    setting = Setting(profile=edition, variants=KNOWN_VARIANTS | _variants(variants))
    known = senders_of(given, properties)
    return ReplayTerms(setting=setting, window=window, senders=known, choice=choice, exact=exact)


def _variants(given: str | Iterable[str]) -> frozenset[str]:
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if not isinstance(name, str) or parse(f"jms:{name}:x").variant != name:
            raise UsageError(
                f"a lookup variant must be a name that can follow jms:, as in jms:vnd.example:orders, got {name!r}"
            )
    return frozenset(names)


def _job(arguments: Sequence[str], out: str, terms: ReplayTerms, progress: Progress, *, is_hadoop: bool) -> Job:
    if is_hadoop:
        near = [each for each in arguments if not is_elsewhere(each)]
        elsewhere = [each for each in arguments if is_elsewhere(each)]
    else:
        out, *near = map(without_here, (out, *arguments))
        elsewhere = []
        if any(map(is_elsewhere, near)):
            progress("looking for the logs")
    found, refused, others = expand(near, leave_out=out)
    job = Job(
        out=out,
        is_hadoop=is_hadoop,
        logs=tuple(found),
        elsewhere=tuple(elsewhere),
        rejected=tuple(refused),
        others=tuple(others),
        terms=terms,
    )
    job.require_logs(len(elsewhere))
    return job


def _profile(
    profile: Profile | ProfileName | Auto, senders: Iterable[SenderArgument]
) -> tuple[Profile, ProfileChoice | None]:
    """Return the profile and what chose it; the default profile for now if the logs are to show it."""
    if isinstance(profile, Profile):
        return profile, None
    if profile != AUTO:
        try:
            return profile_of(profile), None
        except ValueError as error:
            raise UsageError(f"{error}; or {AUTO}") from None
    editions = editions_of(senders)
    if len(editions) > 1:
        raise UsageError(
            f"the WSDLs follow {' and '.join(each.name for each in editions)}; name the profile to judge by, or leave "
            "one out"
        )
    return (editions[0], ProfileChoice.WSDL) if editions else (DEFAULT_PROFILE, ProfileChoice.OPEN)


def _chosen(needs_spark: EngineChoice | None, job: Job, progress: Progress) -> str:
    """Choose the engine for a job by its size, unless it needs Spark, and tell which it is; return its name."""
    choice = needs_spark
    if choice is None and is_elsewhere(job.out):  # which Spark's tasks cannot write
        choice = EngineChoice(LOCAL, f"fsspec writes {shown(job.out)}")
    choice = choice or choose_engine(octets_of(job.logs))
    progress(choice)
    return choice.engine


def _engine(name: str, master: str | None, conf: Mapping[str, str] | None) -> Engine:
    """Import an engine by name, so that the packages of the other need not be installed; see `replay`."""
    if name in (LOCAL, EXACT):
        from soapjms.replay import local

        return local.run
    if name == SPARK:
        with importing_spark():
            from soapjms.replay import spark
        return partial(spark.run, master=master, conf=conf)
    raise UsageError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
