"""How far Spark is, as it says itself: how many tasks of the stages under way are done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import SparkSession

from soapjms.progress import Phase
from soapjms.replay.job import Progress

log = logging.getLogger("soapjms.replay")

LOOK: Final = 0.5
"""Seconds between two looks."""

LEAVE: Final = 2.0


@contextmanager
def watched(spark: SparkSession, progress: Progress) -> Iterator[Progress]:
    """Give what is to be told of the phases; on a thread, each is told again with its part that is done."""
    words, stop = [""], Event()

    def tell(text: str) -> None:
        words[0] = text
        progress(text)

    def look() -> None:
        while not stop.wait(LOOK):
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
        thread.join(LEAVE)


def tasks(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the stages under way are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for each in tracker.getActiveStageIds() if (info := tracker.getStageInfo(each)) is not None]
    return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)
