"""The engine on Spark: it reads logs in parts, and judges by the plan of `spark_plan`.

Spark only reads in parts, joins, sorts and writes. Only counts, a few samples and the list of files reach the driver,
so a log may be larger than any machine. Bodies stay in the logs: the few records that are judged are read again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation names it

from soapjms.protocol.text import counted
from soapjms.replay import hadoop
from soapjms.replay.buckets import BUCKETED
from soapjms.replay.errors import NoInputError, SparkFailedError
from soapjms.replay.inputs import RejectedRow, expand
from soapjms.replay.parquet import REJECTED
from soapjms.replay.spark_logs import Logs, shuffle_tasks
from soapjms.replay.spark_plan import (
    SHUFFLE,
    frame,
    judge,
    kept,
    write,
)
from soapjms.replay.spark_session import session, was_interrupted, watched
from soapjms.replay.summary import REJECTS_SHOWN, RunTally, note_files
from soapjms.replay.terms import SHOWN, Job, Progress
from soapjms.replay.uris import is_elsewhere

MAX_ERROR_CHARACTERS: Final = 4000
JAVA_ENDED: Final = (
    "Spark's Java process ended unexpectedly; very large messages need more memory than its default: "
    "--conf spark.driver.memory=4g gives it 4 GiB"
)

CHANGED: Final = re.compile(rf"^[\w.]*{NoInputError.__name__}: (.*)$", re.MULTILINE)
"""What a task says that did not find a record again."""


@contextmanager
def failing_as_ours() -> Iterator[None]:
    """Turn Spark's exceptions into ours.

    Raises:
        SparkFailedError: Spark failed, or its Java process ended.
        NoInputError: a log was changed meanwhile.
        KeyboardInterrupt: Spark failed because of Ctrl-C.
    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        if isinstance(error, Py4JNetworkError | ConnectionError):
            raise SparkFailedError(JAVA_ENDED) from error
        if changed := CHANGED.search(str(error)):
            raise NoInputError(changed[1]) from error
        raise SparkFailedError(f"the Spark job failed: {str(error)[:MAX_ERROR_CHARACTERS]}") from error


def first_rejected(refused: DataFrame) -> list[RejectedRow]:
    """Return the first of the rows of rejected/."""
    ordered = refused.orderBy("file", F.col("line").asc_nulls_first(), "reason")
    return [RejectedRow(*row) for row in ordered.limit(REJECTS_SHOWN).collect()]


@contextmanager
def run(
    job: Job,
    result: Path,
    progress: Progress,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[tuple[RunTally, list[RejectedRow]]]:
    """Judge a job's logs and write verdicts/ and rejected/.

    Args:
        job: the logs and the terms. If the folder for all results is a URI, it takes its place when the block ends
            without an error; otherwise they are written into `result`, which all machines of a cluster must see.
        result: a folder of this machine, which the block may write other results into.
        progress: called with each phase.
        master: Spark's master; local[2] by default.
        conf: further settings of Spark.

    Yields:
        the counts, and the first rejected records.

    Raises:
        SparkMissingError: there is no Java, or Spark did not start.
        SparkFailedError: Spark failed.
        NoInputError: there is nothing to read at the URIs.
        UsageError: there are other files at `out`.
    """
    settings = dict(conf or {})
    progress("starting Spark")
    with ExitStack() as stack:
        stack.enter_context(failing_as_ours())
        spark = stack.enter_context(session(master, settings, result.parent))
        out = job.out if job.is_hadoop and is_elsewhere(job.out) else None
        folder = str(result) if out is None else stack.enter_context(hadoop.staging(spark, out, result))
        unknown = dict.fromkeys(each for each in job.elsewhere if not hadoop.knows(spark, each))
        job = _with_logs_of_fsspec(job, unknown)
        far, refused, others = hadoop.find(spark, job.elsewhere, len(job.logs), leave_out=out)
        job = replace(job, rejected=(*job.rejected, *refused), others=(*job.others, *others))
        job.require_logs(len(far))
        if SHUFFLE not in settings:
            spark.conf.set(SHUFFLE, shuffle_tasks([*job.logs, *far], spark.sparkContext.defaultParallelism))
        with watched(spark, progress) as tell:
            tally, first = _run(job, Logs(spark, job.logs, far), folder, tell, spark)
        note_files(tally, job.logs, job.others)
        yield tally, first


def _with_logs_of_fsspec(job: Job, uris: Collection[str]) -> Job:
    """Add the logs of URIs that Hadoop does not know: tasks read them in parts, like those on this machine."""
    found, refused, others = expand(uris, leave_out=job.out)
    return replace(
        job,
        logs=tuple(log._replace(number=number) for number, log in enumerate((*job.logs, *found))),
        elsewhere=tuple(each for each in job.elsewhere if each not in uris),
        rejected=(*job.rejected, *refused),
        others=(*job.others, *others),
    )


def _run(
    job: Job, logs: Logs, folder: str, progress: Progress, spark: SparkSession
) -> tuple[RunTally, list[RejectedRow]]:
    progress(f"reading {counted(logs.number, 'file')}")
    with ExitStack() as stack:
        found = stack.enter_context(kept(logs.facts(job.terms)))
        tally, lines, octets = _census(found)
        job = replace(job, rejected=(*job.rejected, *logs.passed_over(octets)))
        refused = frame(spark, job.rejected, REJECTED)
        if tally.counts["rejected",]:
            refused = refused.union(_rejected(found, logs.first_lines(lines)))
        write(refused, f"{folder}/rejected")
        tally.count("rejected", by=len(job.rejected))
        first = first_rejected(refused) if tally.counts["rejected",] else []
        terms = job.terms.decided(tally.counts)
        if terms.setting.profile != job.terms.setting.profile:
            found = stack.enter_context(kept(logs.facts(terms)))
        facts = found.where("told IS NULL").select(BUCKETED.names)
        logs.require_unchanged()
        tally.add(judge(spark, facts, terms, logs.fetch, folder, progress))
        logs.require_unchanged()
        return tally, first


def _census(found: DataFrame) -> tuple[RunTally, dict[int, int], dict[int, int]]:
    """Count rejected rows and shown editions; also return the lines of parts and their octets, as far as counted."""
    tally = RunTally()
    lines: dict[int, int] = {}
    octets: dict[int, int] = {}
    counts = [F.count("reason").alias("rejected"), F.sum("records").alias("records")]
    counts += [F.max(each).alias(each) for each in ("lines", "octets")]
    for row in (
        found.where("told IS NOT NULL")
        .select("part", "told.*")
        .groupBy("part", "edition")
        .agg(*counts)
        .toLocalIterator()
    ):
        if row.rejected:
            tally.count("rejected", by=row.rejected)
        if row.edition is not None:
            tally.count(SHOWN, row.edition, by=row.records)
        if row.lines is not None:
            lines[row.part] = row.lines
        if row.octets is not None:
            octets[row.part] = row.octets
    return tally, lines, octets


def _rejected(found: DataFrame, lines: DataFrame) -> DataFrame:
    """Select the rejected rows, with lines counted from the beginning of the log."""
    refused = found.where("told.reason IS NOT NULL").select("part", "told.*").join(F.broadcast(lines), "part", "left")
    line = (F.col("line") + F.coalesce("before", F.lit(0))).alias("line")
    return refused.select("file", line, "reason", "raw")
