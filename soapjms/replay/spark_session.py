"""A Spark session for a replay: quiet, without a web page, with this Python in its workers; and how far Spark is.

Progress is what Spark says itself: how many tasks of the stages under way are done.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO, Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it ships no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from brokers import message
from soapjms.progress import Phase
from soapjms.protocol import names
from soapjms.protocol.errors import UsageError
from soapjms.replay.errors import WITHOUT_SPARK, SparkMissingError
from soapjms.replay.terms import Progress

log = logging.getLogger("soapjms.replay")

POLL_SECONDS: Final = 0.5
"""Seconds between two looks."""

JOIN_SECONDS: Final = 2.0


@contextmanager
def watched(spark: SparkSession, progress: Progress) -> Iterator[Progress]:
    """Give what is to be told of the phases; on a thread, each is told again with its part that is done."""
    words, stop = [""], Event()

    def tell(text: str) -> None:
        words[0] = text
        progress(text)

    def look() -> None:
        while not stop.wait(POLL_SECONDS):
            try:
                done, total = tasks(spark)
            except (Py4JError, OSError):  # Spark is ending, which is told otherwise
                log.debug("Spark does not say how far it is", exc_info=True)
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
    """Return how many tasks of the stages under way are done, and how many there are."""
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
    # A laptop's host name often leads nowhere, or to an interface that is down.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Python works, Java only hands on: compiling its code well, and collecting garbage while others work, cost a run of
    # a million messages more processor time than they save.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
}
SQL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # what is kept is read twice, and on the disk
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}


@contextmanager
def session(master: str | None, conf: Mapping[str, str], scratch: Path) -> Iterator[SparkSession]:
    """Give a session: of the Spark that runs in this process already, else of one that is stopped at the end.

    Args:
        master: where to run; local[2] by default, or what spark-submit said.
        conf: further settings; they win over this module's.
        scratch: a folder for what Spark leaves behind.

    Raises:
        SparkMissingError: there is no Java, or Spark did not start.
        UsageError: a master was given, and a Spark with another one runs already; a setting that Spark refuses.
    """
    running = SparkContext._active_spark_context
    if running is not None and master not in (None, running.master):
        raise UsageError(f"a Spark with master {running.master} runs in this process already; stop it first")
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
    """Make a session with settings of its own: those of the user's session stay."""
    spark = SparkSession.builder.getOrCreate().newSession()
    for name, value in {**SQL_SETTINGS, **conf}.items():
        _set(spark, name, value)
    return spark


@contextmanager
def _quiet_gateway() -> Iterator[None]:
    """Keep py4j from logging with its stack what it raises as well: each Ctrl-C, and that Java has ended."""
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
    """Say nothing where Java ends while Spark listens for its counters: who waits for Java is told."""


def was_interrupted(error: BaseException | None) -> bool:
    """Say whether an error is Ctrl-C, or came up while Spark was put away after it: what it is asked then may fail."""
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
    """Start a Spark whose words go to a file: of its start, and of the JVM's, there is no other way to be quiet."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which chose the master and runs the JVM
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
        # Spark's asks the JVM to cancel the jobs in the middle of another question to it, and fails with a long story.
        signal.signal(signal.SIGINT, on_interrupt)
    context.setLogLevel("ERROR")
    if (listening := getattr(context, "_accumulatorServer", None)) is not None:
        listening.handle_error = _unheard


def _gateway(settings: SparkConf, stream: BinaryIO) -> Any:
    """Return the way to a JVM: one that an earlier session left running serves again.

    Ctrl-C waits until a new one is there, some seconds: one that loses its parent before that never ends.
    """
    if SparkContext._gateway is not None:
        return SparkContext._gateway
    with _interrupts_later() as interrupted:
        gateway: Any = launch_gateway(  # type: ignore[no-untyped-call]  # it has no types
            settings, {"stdout": stream, "stderr": stream}
        )
    if interrupted:
        if (java := getattr(gateway, "proc", None)) is not None:
            java.stdin.close()  # which ends it
        raise KeyboardInterrupt
    return gateway


@contextmanager
def _interrupts_later() -> Iterator[list[int]]:
    """Note Ctrl-C within the block in the list that this gives."""
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
    """Return the last of what Spark said while it started, without the lines of stack traces."""
    lines = log.read_text("utf-8", "replace").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("at ")][-5:]


def _settings(master: str | None, conf: Mapping[str, str], scratch: Path) -> SparkConf:
    settings = SparkConf()
    if master is not None:
        settings.setMaster(master)
    if _is_local(settings):
        settings.setAll(list(LOCAL_SETTINGS.items()))
        settings.set("spark.executorEnv.PYTHONPATH", os.pathsep.join(_roots()))
    settings.set("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    settings.setAll([*SETTINGS.items(), *conf.items()])
    return settings


def _is_local(settings: SparkConf) -> bool:
    return (settings.get("spark.master", None) or "").startswith("local")


def _roots() -> list[str]:
    """Return the folders that the packages were imported from: the workers must find the same ones."""
    return list(dict.fromkeys(str(Path(each).resolve().parents[1]) for each in (message.__file__, names.__file__)))


@contextmanager
def _worker_python(settings: SparkConf) -> Iterator[None]:
    """Have the workers run this Python: always on this machine, on a cluster unless the environment names another."""
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
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java"):
        return
    where = f"JAVA_HOME is {home}, which holds no bin/java" if home else "there is no java on the PATH"
    raise SparkMissingError(f"Spark needs Java 17 or later, and {where}. {INSTALL_JAVA}\n{WITHOUT_SPARK}")


WORKER_PYTHON: Final = "PYSPARK_PYTHON"
INSTALL_JAVA: Final = "On Debian or Ubuntu: apt-get install openjdk-17-jre-headless"
