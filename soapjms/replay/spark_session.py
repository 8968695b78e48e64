"""A Spark session for a replay: quiet, without a web page, with this Python in its workers; and Spark's progress.

Progress is Spark's own: how many tasks of the running stages are done.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from threading import Event, Thread
from typing import Any, BinaryIO, Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from brokers import message
from soapjms import events
from soapjms.progress import Phase
from soapjms.protocol import names
from soapjms.protocol.errors import UsageError
from soapjms.replay.engines import SUBMITTED, java_problem
from soapjms.replay.errors import WITHOUT_SPARK, SparkMissingError
from soapjms.replay.processes import SETTINGS as PROCESS_SETTINGS
from soapjms.replay.terms import Progress

POLL_SECONDS: Final = 0.5
"""Poll interval for the progress, in seconds."""

JOIN_SECONDS: Final = 2.0


@contextmanager
def watched(spark: SparkSession, progress: Progress) -> Iterator[Progress]:
    """Yield a function to report phases; a thread reports the current one again with its progress."""
    words, stop = [""], Event()

    def tell(text: str) -> None:
        words[0] = text
        progress(text)

    def look() -> None:
        while not stop.wait(POLL_SECONDS):
            try:
                done, total = tasks(spark)
            except (Py4JError, OSError):  # Spark is ending, which is reported elsewhere
                events.REPLAY_PROGRESS_UNKNOWN.log()
                return
            if total:
                progress(Phase(words[0], done, total))

    thread = Thread(target=look, name="soapjms-spark-progress", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        stop.set()
        thread.join(JOIN_SECONDS)


def tasks(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the running stages are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for each in tracker.getActiveStageIds() if (info := tracker.getStageInfo(each)) is not None]
    return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)


PY4J_LOGGERS: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""None is the root logger."""

DEFAULT_MASTER: Final = "local[2]"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "soapjms replay",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # A laptop's host name often resolves to nothing, or to an interface that is down.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Python does the work, and Java only passes data on: optimising compilation and concurrent garbage collection cost
    # a run of a million messages more processor time than they save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
}
SQL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # persisted rows are read twice, and lie on disk
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
}

WORKER_ENVIRONMENT: Final[Mapping[str, str]] = {
    # Spark starts `python -m pyspark.daemon`, which would look for modules in the current folder before all others.
    "PYTHONSAFEPATH": "1",
    **PROCESS_SETTINGS,
}


@contextmanager
def session(master: str | None, conf: Mapping[str, str], scratch: Path) -> Iterator[SparkSession]:
    """Yield a session: of the Spark that already runs in this process, else of one that is stopped at the end.

    Args:
        master: where to run; by default local[2], or the master of spark-submit.
        conf: further settings; they override this module's.
        scratch: a folder for Spark's temporary files, which hold captured messages; only its owner can enter it.

    Raises:
        SparkMissingError: there is no Java, or Spark did not start.
        UsageError: a Spark with another master runs already, or Spark refuses a setting.
    """
    running = SparkContext._active_spark_context
    if running is not None and master not in (None, running.master):
        raise UsageError(f"a Spark with master {running.master} already runs in this process; stop it first")
    if running is not None:
        yield _own_session(conf)
        return
    with _quiet_gateway():
        _start(master, conf, scratch)
        try:
            yield _own_session(conf)
        finally:
            SparkSession.builder.getOrCreate().stop()


def _own_session(conf: Mapping[str, str]) -> SparkSession:
    """Make a session with separate settings, so that those of the user's session stay."""
    spark = SparkSession.builder.getOrCreate().newSession()
    for name, value in {**SQL_SETTINGS, **conf}.items():
        _set(spark, name, value)
    return spark


@contextmanager
def _quiet_gateway() -> Iterator[None]:
    """Keep py4j from logging tracebacks of exceptions that it also raises: each Ctrl-C, and the end of Java."""
    loggers = [logging.getLogger(name) for name in PY4J_LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_news)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, Py4JNetworkError | ConnectionError) or was_interrupted(error))


def _unheard(*_: object) -> None:
    """Stay silent when Java ends while Spark listens for its counters: callers of Java get the error."""


def was_interrupted(error: BaseException | None) -> bool:
    """Say whether an error is Ctrl-C, or was raised while Spark was stopped because of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _set(spark: SparkSession, name: str, value: str) -> None:
    try:
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    except PySparkException as error:
        raise UsageError(f"Spark refuses the setting {name}={value}: {error}") from None


def _start(master: str | None, conf: Mapping[str, str], scratch: Path) -> None:
    """Start a Spark whose output goes to a file: there is no other way to keep its start, and the JVM's, quiet."""
    submitted = SUBMITTED in os.environ
    if not submitted:
        _find_java()
    settings = _settings(master if submitted else master or conf.get("spark.master", DEFAULT_MASTER), conf, scratch)
    log = scratch / "spark.log"
    on_interrupt = signal.getsignal(signal.SIGINT)
    with _worker_python(settings), open(log, "wb") as stream:
        try:
            gateway = _gateway(settings, stream)
            context = SparkContext(conf=settings, gateway=gateway)
        except (PySparkException, Py4JError, OSError, ValueError) as error:
            raise SparkMissingError("\n".join([f"Spark did not start: {error}", *_said(log), WITHOUT_SPARK])) from error
    if on_interrupt is not None and signal.getsignal(signal.SIGINT) is not on_interrupt:
        # Spark's handler asks the JVM to cancel jobs in the middle of another call to it, and fails with a traceback.
        signal.signal(signal.SIGINT, on_interrupt)
    for name, value in WORKER_ENVIRONMENT.items():  # what spark.executorEnv sets is there by now, and stays
        context.environment.setdefault(name, value)
    context.setLogLevel("ERROR")
    if (listening := getattr(context, "_accumulatorServer", None)) is not None:
        listening.handle_error = _unheard


def _gateway(settings: SparkConf, stream: BinaryIO) -> Any:
    """Return the gateway to a JVM: one that an earlier session left running, else a new one.

    Ctrl-C waits some seconds until a new JVM has started: one that loses its parent before that never ends.
    """
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    with _interrupts_later() as interrupted:
        gateway: Any = launch_gateway(  # type: ignore[no-untyped-call]  # it has no types
            settings, {"stdout": stream, "stderr": stream, "umask": 0o077}
        )
    if interrupted:
        if (java := getattr(gateway, "proc", None)) is not None:
            java.stdin.close()  # this ends it
        raise KeyboardInterrupt
    return gateway


@contextmanager
def _interrupts_later() -> Iterator[list[int]]:
    """Yield a list that Ctrl-C within the block is noted in."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _said(log: Path) -> list[str]:
    """Return the last lines that Spark printed while it started, without stack traces."""
    lines = log.read_text("utf-8", "replace").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("at ")][-5:]


def _settings(master: str | None, conf: Mapping[str, str], scratch: Path) -> SparkConf:
    settings = SparkConf()
    if master is not None:
        settings.setMaster(master)
    if _is_local(settings):
        settings.setAll(list(LOCAL_SETTINGS.items()))
        settings.set("spark.executorEnv.PYTHONPATH", os.pathsep.join(_roots()))
        # That of spark-submit stays; without it, what is set is the folder of the run that started this Java.
        if SUBMITTED not in os.environ or not settings.contains("spark.local.dir"):
            # A comma would divide it into two folders.
            settings.set("spark.local.dir", gettempdir() if "," in str(scratch) else str(scratch / "spark"))
    settings.set("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    settings.setAll([*SETTINGS.items(), *conf.items()])
    return settings


def _is_local(settings: SparkConf) -> bool:
    return (settings.get("spark.master", None) or "").startswith("local")


def _roots() -> list[str]:
    """Return the folders that our packages were imported from, as the workers must find the same ones."""
    files = (message.__file__, 1), (names.__file__, 2)  # with the number of packages that each is in
    return list(dict.fromkeys(str(Path(file).resolve().parents[depth]) for file, depth in files))


@contextmanager
def _worker_python(settings: SparkConf) -> Iterator[None]:
    """Let the workers run this Python: always on this machine, on a cluster unless the environment names another."""
    before = os.environ.get(WORKER_PYTHON)
    if before is None or _is_local(settings):
        os.environ[WORKER_PYTHON] = sys.executable
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(WORKER_PYTHON, None)
        else:
            os.environ[WORKER_PYTHON] = before


def _find_java() -> None:
    problem = java_problem()
    if problem is not None:
        raise SparkMissingError(f"Spark needs Java 17 or later, but {problem}\n{WITHOUT_SPARK}")


WORKER_PYTHON: Final = "PYSPARK_PYTHON"
