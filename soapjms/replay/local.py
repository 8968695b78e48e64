"""The engine without Spark: this machine, with a process on each core if there is much to read.

The processes read parts of the logs, and judge. This one puts the facts together in a file, over which it runs the
queries of `plan.py`. No body is stored, but those of records that are judged by themselves: these are read again, and
put into files in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Final

import pyarrow as pa

from soapjms.progress import Phase
from soapjms.replay.column_store import ColumnStore, WaitingRows, cores, failures_told, memory_of_run
from soapjms.replay.facts import FACTS, GivenPart, line_of, part_of
from soapjms.replay.inputs import RejectedRow, octets_of, small_together, split_size, splits
from soapjms.replay.processes import Processes
from soapjms.replay.stored_facts import StoredFacts
from soapjms.replay.summary import RunTally, note_files
from soapjms.replay.tasks import (
    PartLines,
    fetch,
    forget_reader,
    read_parts,
    taken_rows,
    write_rejected,
)
from soapjms.replay.terms import SHOWN, Job, Progress

SMALL_OCTETS: Final = 32 << 20
"""Size of the logs, uncompressed, below which processes are not worth their start, which takes half a second."""
MAX_PROCESSES: Final = 8
"""Maximum number of processes: more would wait for this one, which puts together what they read."""


@contextmanager
def run(job: Job, result: Path, progress: Progress) -> Iterator[tuple[RunTally, list[RejectedRow]]]:
    """Judge a job's logs and write verdicts/ and rejected/ under `result`.

    Yields:
        the counts, and the first rejected records.

    Raises:
        NoInputError: a log was changed meanwhile.
        ProcessLostError: a process ended, as memory ran out.
        StoreFailedError: memory or disk space ran out.
    """
    for name in ("rejected", "verdicts"):
        (result / name).mkdir()
    is_small = octets_of(job.logs) < SMALL_OCTETS
    number = 1 if is_small else min(cores(), MAX_PROCESSES)
    try:
        with (
            failures_told(),
            # Small logs stay in memory, as each statement waits for a file.
            closing(ColumnStore(result.parent, in_memory=is_small, memory=memory_of_run())) as store,
            Processes(number) as processes,
        ):
            local = LocalRun(job, store, processes, result, progress)
            tally, first = local.read()
            local.judge(tally)
    finally:
        forget_reader()
    note_files(tally, job.logs, job.others)
    yield tally, first


class LocalRun:
    """One run.

    Args:
        job: the logs and the terms.
        store: for what the queries find.
        processes: do the tasks.
        result: the folder for verdicts/ and rejected/; that around it is for files in between.
        progress: called with each phase.
    """

    def __init__(self, job: Job, store: ColumnStore, processes: Processes, result: Path, progress: Progress) -> None:
        self._job, self._terms = job, job.terms
        self._store, self._processes = store, processes
        self._result, self._folder, self._progress = result, result.parent, progress
        self._facts = str(self._folder / "facts")
        self._parts = [each.without_groups for each in splits(job.logs, split_size(job.logs, processes.number))]

    # Reading

    def read(self) -> tuple[RunTally, list[RejectedRow]]:
        """Find the facts of all records, and write rejected/; return the counts, and the first rejected records."""
        tally = RunTally()
        rejected, first = write_rejected(chain(self._job.rejected, self._read_parts(tally)), self._result / "rejected")
        tally.count("rejected", by=rejected)
        self._terms = self._job.terms.decided(tally.counts)
        if self._terms.setting.profile != self._job.terms.setting.profile:  # not the one that was supposed
            for _ in self._read_parts(RunTally()):
                pass  # it was reported
        return tally, first

    def _read_parts(self, tally: RunTally) -> Iterator[RejectedRow]:
        """Write the facts of all records into a file; yield what is no record."""
        logs = self._job.logs
        octets, total = 0, sum(part.octets for part in self._parts) if len(self._parts) > 1 else None
        records = lines = 0
        lost = set[tuple[str, str]]()
        groups = [[GivenPart(number, self._parts[number]) for number in each] for each in small_together(self._parts)]
        task = partial(read_parts, folder=self._folder, terms=self._terms)
        self._progress(Phase(_reading(logs[0].name, 0, len(logs)), octets, total))
        with pa.ipc.new_file(self._facts, FACTS) as facts:
            waiting = WaitingRows()  # as each batch of the file needs some memory, however few rows it has
            for group, found in zip(groups, self._processes.map(task, groups), strict=True):
                for batch in taken_rows([found.facts], FACTS).to_batches():
                    for some in waiting.add(batch):
                        facts.write_table(some.combine_chunks())
                split = group[-1].split
                lines = lines if split.start else 0
                for refused in found.take_refused(lines):
                    why = refused.file, refused.reason
                    if refused.line is not None or why not in lost:  # a log that is gone is so for each part
                        yield refused
                    if refused.line is None:
                        lost.add(why)
                lines += found.lines
                records, octets = records + found.records, octets + sum(each.split.octets for each in group)
                for edition, number in found.shown.items():
                    tally.count(SHOWN, edition, by=number)
                what = _reading(split.log.name, split.log.number, len(logs))
                self._progress(Phase(f"{what}: {records} records", octets, total))
            for some in waiting.rest():
                facts.write_table(some.combine_chunks())

    # Judging

    def judge(self, tally: RunTally) -> None:
        """Pair and judge the records, write verdicts/, and count."""
        with pa.memory_map(self._facts) as file:  # the store reads it where it is
            self._store.lend("facts", pa.ipc.open_file(file).read_all())
        facts = StoredFacts(self._store, self._terms, self._processes, self._folder, self._fetch, self._progress)
        facts.judge(self._result / "verdicts", tally)

    def _fetch(self, rows: Iterator[int]) -> Iterator[pa.RecordBatch]:
        """Read records again; see `stored_facts.FetchIntoFiles`."""
        return self._processes.map(partial(fetch, folder=self._folder), self._wanted(rows))

    def _wanted(self, rows: Iterator[int]) -> Iterator[PartLines]:
        for part, group in groupby(rows, key=part_of):
            yield PartLines(part, self._parts[part], array("q", map(line_of, group)))


def _reading(name: str, log: int, logs: int) -> str:
    return f"reading {name} ({log + 1} of {logs})"
