"""Following logs on Spark: its Structured Streaming carries out the plans, and its workers do the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from soapjms.replay.follower.checkpoint import Checkpoint
from soapjms.replay.follower.steps import FollowSteps, Patience
from soapjms.replay.follower.tail import Plan
from soapjms.replay.spark import failing_as_ours
from soapjms.replay.spark_plan import run_task
from soapjms.replay.spark_session import session
from soapjms.replay.terms import ReplayTerms

Item = TypeVar("Item")
Result = TypeVar("Result")

SETTINGS: Final = MappingProxyType({"spark.sql.streaming.pollingDelay": "200"})
"""Settings of Spark: the poll interval for plans, in milliseconds."""
TASKS_AT_A_TIME: Final = 2
"""Number of tasks for each core that Spark is given at a time, as the driver has all their results at once."""


class SparkTasks:
    """Does tasks in Spark's workers.

    Attributes:
        number: how many tasks are done at a time.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self.number = self._context.defaultParallelism

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Do a task for each item, and yield the results in the order of the items."""
        rest = iter(items)
        while some := [*islice(rest, TASKS_AT_A_TIME * self.number)]:
            yield from self._context.parallelize(some, len(some)).map(partial(run_task, task=task)).collect()


@contextmanager
def steps(
    checkpoint: Checkpoint, terms: ReplayTerms, patience: Patience, master: str | None, conf: Mapping[str, str] | None
) -> Iterator[tuple[FollowSteps, Callable[[], object]]]:
    """Start Spark, if it does not run.

    Args:
        checkpoint: what is kept of earlier steps; it is open.
        terms: how to judge.
        patience: how long to wait.
        master, conf: see `replay`.

    Yields:
        the steps, and a function that carries out all plans in the checkpoint.

    Raises:
        SparkMissingError, SparkFailedError: Spark did not start, or failed.
    """
    settings = {**SETTINGS, **(conf or {})}
    with (
        failing_as_ours(),
        session(master, settings, checkpoint.temporary) as spark,
        closing(FollowSteps(SparkTasks(spark), checkpoint, terms, patience)) as found,
    ):

        def take(plans: DataFrame, batch: int) -> None:
            found.carry_out(Plan.from_json(row.value) for row in plans.collect())

        plans = spark.readStream.option("maxFilesPerTrigger", 1).text(str(checkpoint.plans), wholetext=True)
        writer = plans.writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", str(checkpoint.spark)).start()
        try:
            yield found, query.processAllAvailable
        finally:
            query.stop()
