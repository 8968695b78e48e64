"""What grows with a log on Spark, and what does not: from a million messages to 10^9, by counters.

    python benchmarks/replay_scale.py [--messages 1000000 10000000 …] [--cores 64] [--file-mebibytes 64] [--judged 0.05]

Nothing of this size is read. Octets of a message and of its facts are those of a small generated log; parts, tasks
and closures are made by the functions that a run uses, for files of that many octets that do not exist.

A task that reads holds some batches of its parts at a time, whatever the log. A task that finds what is within places,
or counts, holds at most a gibibyte, and puts what is beyond on its disk. A task that judges streams.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT)]

import pyarrow as pa  # noqa: E402
from pyspark import cloudpickle  # noqa: E402

from soapjms.generate import generate  # noqa: E402
from soapjms.protocol.assertions import Setting  # noqa: E402
from soapjms.protocol.senders import Senders  # noqa: E402
from soapjms.replay import facts, plan, spark_logs, spark_plan  # noqa: E402
from soapjms.replay.column_store import ColumnStore  # noqa: E402
from soapjms.replay.inputs import LogFile, LogForm, expand, split_size, splits, whole  # noqa: E402
from soapjms.replay.terms import ReplayTerms  # noqa: E402

MIB = 1 << 20
TERMS = ReplayTerms(setting=Setting(), window=timedelta(minutes=10), senders=Senders())


class Sample(NamedTuple):
    """A generated log: its messages, records, octets of its lines, and its facts."""

    messages: int
    records: int
    octets: int
    facts: pa.Table

    def sent(self, buckets: int) -> float:
        """Return the octets of the facts of a message, as they are sent to buckets."""
        with tempfile.TemporaryDirectory() as folder, closing(ColumnStore(Path(folder), in_memory=True)) as store:
            store.lend("facts", self.facts)
            return sum(len(rows) for each in spark_plan.READ for *_, rows in each.sent(store, buckets)) / self.messages


def sample(messages: int) -> Sample:
    """Make a log, and read it."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder, "made"), messages)
        (Path(folder) / "store").mkdir()
        tables: list[pa.Table] = []
        with closing(ColumnStore(Path(folder, "store"))) as store:
            reader = facts.FactReader(TERMS, store)
            logs = expand([Path(folder, "made", "logs")]).logs
            for found in reader.read(facts.GivenPart(part, whole(log)) for part, log in enumerate(logs)):
                assert isinstance(found, pa.Table)
                tables.append(found)
        facts_found = pa.concat_tables(tables)
        return Sample(messages, facts_found.num_rows, sum(log.size for log in logs), facts_found)


def row(messages: int, each: Sample, options: argparse.Namespace) -> list[str]:
    """Return the counters for a log of some size."""
    size = options.file_mebibytes * MIB
    count = max(1, round(messages * each.octets / each.messages / size))
    paths = (f"/data/captures/2026-11/node-{number % 40:02}/capture-{number:06}.jsonl" for number in range(count))
    logs = [LogFile(number, path, path, size, LogForm.LINES) for number, path in enumerate(paths)]
    parts = splits(logs, split_size(logs, options.cores))
    reading, shuffling = spark_logs.reading_tasks(parts, options.cores), spark_logs.shuffle_tasks(logs, options.cores)
    few = spark_plan.few_of(shuffling)
    counting = spark_plan.counting_tasks(shuffling, options.cores)
    fetching = spark_plan.few_of(reading)
    closure = len(cloudpickle.dumps(partial(spark_logs._read, terms=spark_logs.TaskTerms(TERMS, shuffling))))
    told = sum(len(octets) for _, octets in spark_logs.rows_of_parts(parts))
    return [
        f"{messages:,}",
        f"{count:,}",
        f"{len(parts):,}",
        f"{reading:,}",
        f"{closure / 1024:.1f} KiB",
        f"{told / MIB:.2f} MiB",
        f"{shuffling:,}",
        f"{(2 * reading + shuffling) * shuffling:,}",
        f"{few * shuffling + 2 * fetching * (counting + few):,}",
        f"{messages * each.sent(shuffling) / shuffling / MIB:,.0f} MiB",
        f"{counting:,}",
        f"{messages / counting:,.0f}",
        f"{few:,}",
        f"{messages * each.records / each.messages * options.judged / few:,.0f}",
        f"{plan.MAX_SHAPES:,}",
    ]


HEADS = (
    "messages",
    "files",
    "parts",
    "reading tasks",
    "a task's closure",
    "parts, sent to each executor",
    "shuffle tasks",
    "blocks of the shuffles of facts",
    "of all others",
    "facts of a shuffle task",
    "counting tasks",
    "messages of a counting task",
    "judging tasks, files of verdicts",
    "records of a judging task",
    "shapes in the driver, at most",
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, nargs="*", default=[10**power for power in range(6, 10)])
    parser.add_argument(
        "--sample",
        type=int,
        default=87_000,
        help="messages of the log that is measured; of some fewer records facts are sent together",
    )
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--file-mebibytes", type=int, default=64)
    parser.add_argument("--judged", type=float, default=0.05, help="share of the records that are judged one by one")
    options = parser.parse_args()
    each = sample(options.sample)
    print(f"a message: {each.records / each.messages:.2f} records, {each.octets / each.messages:.0f} octets of lines")
    columns = [row(messages, each, options) for messages in options.messages]
    for head, *values in zip(HEADS, *columns, strict=True):
        print(f"{head:34}" + "".join(f"{value:>16}" for value in values))


if __name__ == "__main__":
    main()
