"""How many messages a replay judges in a second: without Spark and on it, on one core and on two.

    python benchmarks/replay.py [--messages 100000 1000000] [--traffic mixed] [--forms jsonl parquet]
        [--runs exact-2 spark-2] [--rounds 1] [--logs build/replay-logs] [--results benchmarks/results]

Logs of each kind and size are made first, once; in them every message is captured 1.4 times, as client, service and
taps see the same. Each run is a process of its own, held to its cores. Printed are the rates and their ratios to the
first run, the growth from size to size, the memory of driver, executor and workers at its highest, what each step of a
run takes and who had the processors meanwhile, and what Python spends a record that it judges. `--messages 10000000`
takes an hour and 20 GB of disk. `--results` writes what was measured, for `plot.py` too. `--runs follow-2
follow-spark-2` follow the logs, as if they had just been written; those of `--runs bucket-2` are in a bucket, on a
server of this machine that uses the same cores, without Spark.

`--traffic healthy` has 0.1 % broken exchanges in place of 2 %; in `diverse` each exchange has the id of a trace among
its properties, and an attribute in its bodies, that no other has; in `skewed` nine of ten messages are in one queue; in
`large` each body has a mebibyte, so that `--messages 1000` is enough to see that memory does not grow with bodies; in
`rotated` the logs are many files of 64 KiB.

`--compare 100000` asserts instead that on a log of so many messages the rows of both engines are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby, islice, pairwise, product
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests/support"), str(ROOT)]

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import pytest  # noqa: E402
import s3fs  # noqa: E402
from bucket_kit import running_bucket  # noqa: E402
from comparison import Goal, environment, print_goals, row_of, write  # noqa: E402
from hostile_log import exchange_number, give_attribute, give_body, give_trace, text_of  # noqa: E402

from soapjms.capture.log import DEFAULT_ROTATION_OCTETS  # noqa: E402
from soapjms.generate import generate  # noqa: E402
from soapjms.protocol import exchange  # noqa: E402
from soapjms.protocol.assertions import Judge, Setting, habits, readings  # noqa: E402
from soapjms.protocol.exchange import pair  # noqa: E402
from soapjms.protocol.record import from_members  # noqa: E402
from soapjms.protocol.responding import reaction  # noqa: E402
from soapjms.protocol.senders import Senders  # noqa: E402
from soapjms.replay import replay  # noqa: E402
from soapjms.replay.flat_records import Unpacker, flattened  # noqa: E402
from soapjms.replay.follower import follow  # noqa: E402
from soapjms.replay.inputs import expand, whole  # noqa: E402
from soapjms.replay.parquet import RECORDS, to_row  # noqa: E402
from soapjms.replay.records import CapturedRecord, read  # noqa: E402
from soapjms.replay.summary import RunTally  # noqa: E402
from soapjms.replay.terms import ReplayTerms  # noqa: E402
from soapjms.replay.verdicts import judge_all  # noqa: E402

FORMS = ("jsonl", "parquet")
RUNS = {f"{engine}-{cores}": (engine, cores) for cores in (1, 2) for engine in ("exact", "local", "spark")}
FOLLOWED = {"follow": "local", "follow-spark": "spark"}
"""Runs that follow logs which are all there, up to their end, with their engines."""
BUCKET = "bucket"
"""The run, without Spark, whose logs are in a bucket."""
ALL_RUNS = RUNS | {f"{each}-2": (each, 2) for each in (*FOLLOWED, BUCKET)}
TRAFFIC = {"mixed": 0.02, "healthy": 0.001, "diverse": 0.02, "skewed": 0.02, "large": 0.02, "rotated": 0.02}
"""Kinds of traffic, with the share of broken exchanges."""
SKEW = 0.9
"""The share of one queue in skewed traffic."""
ROTATION_OCTETS = 1 << 16
"""The size of a file of rotated logs."""
RATE = "messages/s"
SHARES = {"healthy": 1.5, "diverse": 0.6, "skewed": 1 / 1.3, "rotated": 0.5, "jsonl": 0.5}
"""Factor of the goal for a kind of traffic or a form, compared with mixed traffic in Parquet."""
MIB = 1 << 20
Change: TypeAlias = Callable[[dict[str, Any], dict[str, int]], dict[str, Any]]
SAMPLE = 30_000
"""Records of which each step in Python is timed by itself."""


def logs_of(folder: Path, messages: int, form: str, traffic: str = "mixed") -> Path:
    """Make logs, unless they were made before."""
    name = f"{messages}-{form}" + (f"-{traffic}" if traffic != "mixed" else "")
    if not (folder / name).exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / name
            if traffic in CHANGES:
                change_logs(logs_of(folder, messages, "jsonl"), made / "logs", form, CHANGES[traffic])
            else:
                skew = SKEW if traffic == "skewed" else 0.0
                size = ROTATION_OCTETS if traffic == "rotated" else DEFAULT_ROTATION_OCTETS
                generate(made, messages, form=form, skew=skew, broken=TRAFFIC[traffic], rotation=size)
            made.rename(folder / name)
    return folder / name / "logs"


def change_logs(source: Path, target: Path, form: str, change: Change) -> None:
    """Copy logs of JSON Lines; change each record."""
    target.mkdir(parents=True)
    numbers: dict[str, int] = {}
    for path in sorted(source.iterdir()):
        with path.open("rb") as lines:
            records = (change(json.loads(line), numbers) for line in lines)
            if form == "jsonl":
                with (target / path.name).open("w", encoding="utf-8") as out:
                    out.writelines(json.dumps(each) + "\n" for each in records)
                continue
            with pq.ParquetWriter(target / f"{path.stem}.parquet", RECORDS) as writer:
                while some := [*islice(records, 10_000 if change is varied else 100)]:
                    rows = [to_row(from_members(each)) for each in some]
                    writer.write_table(pa.Table.from_pylist(rows, RECORDS))


def varied(members: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    """Give a record what no record of another exchange has."""
    number = exchange_number(members, numbers)
    give_trace(number, members)
    give_attribute(number, members)
    return members


def enlarged(members: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    """Give a record a body of a mebibyte."""
    text = text_of(members)
    if text is not None:
        give_body(members, f"{text}<!--{'x' * MIB}-->")
    return members


CHANGES: Final[dict[str, Change]] = {"diverse": varied, "large": enlarged}


# One run, in a process of its own


class Used(NamedTuple):
    """What a process uses: its kind, the memory it has in octets, and the processor time it took in seconds."""

    kind: str
    octets: int
    seconds: float


class Watch(threading.Thread):
    """Looks at this process and at those below it: keeps the highest memory of each kind, and the processor time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._highest: dict[str, int] = {}
        self._took: dict[int, tuple[str, float]] = {}
        self._done = threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        while not self._done.wait(0.25):  # more often would take a hundredth of a core
            now: dict[str, int] = {}
            for number, used in used_below(os.getpid()):
                now[used.kind] = now.get(used.kind, 0) + used.octets
                self._took[number] = used.kind, used.seconds
            self._highest = {kind: max(now.get(kind, 0), self._highest.get(kind, 0)) for kind in now | self._highest}

    def stop(self) -> tuple[dict[str, int], dict[str, float]]:
        """Return the highest memory in MiB and the processor time in seconds of each kind."""
        self._done.set()
        self.join()
        took: dict[str, float] = {}
        for kind, seconds in self._took.values():
            took[kind] = round(took.get(kind, 0) + seconds, 1)
        return {kind: size // MIB for kind, size in sorted(self._highest.items())}, dict(sorted(took.items()))


def used_below(root: int) -> Iterator[tuple[int, Used]]:
    """Yield the number of a process and of all below it, each with what it uses."""
    states: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                states[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
    below = {root}
    while more := {each for each, state in states.items() if int(state[1]) in below} - below:
        below |= more
    for each in below & states.keys():
        state = states[each]
        try:
            name = Path(f"/proc/{each}/comm").read_text().strip()
        except OSError:
            continue
        kind = "driver" if each == root else "jvm" if name == "java" else "workers"
        seconds = (int(state[11]) + int(state[12])) / os.sysconf("SC_CLK_TCK")
        yield each, Used(kind, int(state[21]) * os.sysconf("SC_PAGESIZE"), seconds)


@contextmanager
def in_bucket(logs: str) -> Iterator[str]:
    """Copy logs into a bucket of this machine; yield their URI."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_bucket(Path(folder)) as bucket,
        pytest.MonkeyPatch.context() as environment,
    ):
        bucket.login(environment)
        for each in Path(logs).iterdir():
            s3fs.S3FileSystem().put_file(str(each), f"{bucket.uri.removeprefix('s3://')}/{each.name}")
        yield bucket.uri


def child(engine: str, cores: int, logs: str, out: str) -> None:
    """Replay once and print what it took, as JSON."""
    if engine == BUCKET:
        with in_bucket(logs) as uri:
            child("local", cores, uri, out)
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    marks: list[tuple[str, float]] = []

    def note(text: str) -> None:
        step = text.partition(" ")[0]
        if not marks or marks[-1][0] != step:
            marks.append((step, time.perf_counter()))

    watch = Watch()
    watch.start()
    begun = time.perf_counter()
    name = FOLLOWED.get(engine, engine)
    options: dict[str, Any] = {"master": f"local[{cores}]"} if name == "spark" else {"engine": name}
    if engine in FOLLOWED:
        summary = follow(logs, out, progress=note, until_idle=timedelta(0), **options)
    else:
        summary = replay(logs, out, progress=note, **options)
    ended = time.perf_counter()
    ends = [*(at for _, at in marks[1:]), ended]
    steps = {step: round(end - at, 2) for (step, at), end in zip(marks, ends, strict=True)}
    memory, took = watch.stop()
    found = {"seconds": ended - begun, "steps": steps, "memory": memory, "took": took}
    print(json.dumps(found | {name: summary.members[name] for name in ("records", "messages")}))


def run(engine: str, cores: int, logs: Path) -> dict[str, Any]:
    """Replay in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", engine, str(cores), str(logs), f"{folder}/out"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


# What is printed, and kept


class Log(NamedTuple):
    """A log: the number of its messages, its form, and the kind of its traffic."""

    messages: int
    form: str
    traffic: str

    def __str__(self) -> str:
        return f"{self.messages} messages, {self.form}, {self.traffic}"

    def goals(self, runs: Iterable[str]) -> Iterator[Goal]:
        """Yield what `--local` and Spark are to reach on two cores with a large log."""
        share = SHARES.get(self.traffic, 1.0) * SHARES.get(self.form, 1.0)
        for name in runs if self.messages >= 1_000_000 else ():
            if name == "local-2":
                yield Goal(name, RATE, share * 40_000, by_ratio=False)
            elif name == "spark-2":
                rate = 50_000 if self.messages >= 10_000_000 else 40_000
                yield Goal(name, RATE, min(share, 1.0) * rate, by_ratio=False)


def rates(folder: Path, log: Log, options: argparse.Namespace) -> dict[str, Any]:
    """Time the runs on a log, round after round, print them, and return their row of the results."""
    logs = logs_of(folder, *log)
    done = [{name: run(*ALL_RUNS[name], logs) for name in options.runs} for _ in range(options.rounds)]
    runs = {name: [figures_of(each[name]) for each in done] for name in options.runs}
    row = row_of(str(log), log._asdict(), runs, log.goals(runs))
    whole = {name: [each[name] for each in done] for name in options.runs}
    print(f"\n{log}")
    for name, side in row["sides"].items():
        middle = median_run(whole[name])
        print(
            f"  {name:16} {middle['seconds']:8.1f} s {middle['messages'] / middle['seconds']:8.0f} {RATE}"
            f" {middle['records'] / middle['seconds']:8.0f} records/s"
            f" {side[RATE]['over']['median']:5.2f} x {options.runs[0]}   memory {said(middle['memory'], 'MiB')}"
        )
        print(f"           {said(middle['steps'], 's')}")
        print(f"           processor time: {holding_back(middle, ALL_RUNS[name][1])}", flush=True)
    print_goals(row)
    return row | {"runs": whole}


def median_run(done: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the run of the median time."""
    return sorted(done, key=itemgetter("seconds"))[len(done) // 2]


def figures_of(done: dict[str, Any]) -> dict[str, float]:
    """Return the figures of a run."""
    memory = {f"{kind} MiB": float(size) for kind, size in done["memory"].items()}
    return {
        RATE: done["messages"] / done["seconds"],
        "seconds": done["seconds"],
        "processor s": sum(done["took"].values()),
        **memory,
    }


def holding_back(done: dict[str, Any], cores: int) -> str:
    """Say who had the processors, and how much of them nobody had."""
    took, all_of_it = done["took"], done["seconds"] * cores
    idle = 1 - sum(took.values()) / all_of_it
    shares = (f"{kind} {seconds} s ({seconds / all_of_it:.0%})" for kind, seconds in took.items())
    return f"{', '.join(shares)}, idle {idle:.0%}"


def said(values: dict[str, Any], unit: str) -> str:
    """Write names with their values."""
    return ", ".join(f"{name} {value} {unit}" for name, value in values.items())


def growth(rows: Sequence[dict[str, Any]]) -> None:
    """Print how the time of a message grows with the size of the log, without what a run takes for its start."""
    by_kind: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        messages, *kind = row["setting"].values()
        by_kind.setdefault(tuple(kind), {})[messages] = {name: median_run(done) for name, done in row["runs"].items()}
    for kind, by_size in by_kind.items():
        for small, large in pairwise(sorted(by_size)):
            print(f"\ngrowth from {small} to {large} messages, {', '.join(kind)}: seconds a message, 1 is linear")
            for name in by_size[small]:
                times = [
                    by_size[size][name]["seconds"] - by_size[size][name]["steps"].get("starting", 0)
                    for size in (small, large)
                ]
                print(f"  {name:16} {times[1] / times[0] / (large / small):5.2f}")


def budget(folder: Path, messages: int) -> None:
    """Print what Python spends a record, step by step, on one core."""
    terms = ReplayTerms(setting=Setting(), window=timedelta(minutes=10), senders=Senders())
    rows: list[CapturedRecord] = []
    print(f"\nPython, microseconds a record (of {SAMPLE})")
    for form in FORMS:
        logs, *_ = expand([logs_of(folder, messages, form)])
        rows = timed(f"read {form}, parse", lambda logs=logs: list(first(logs)))  # type: ignore[misc]
    keyed = timed("keys, sort in memory", lambda: list(exchange.keyed(each.record for each in rows)))
    flats = timed("flat", lambda: [(key, flattened(record)) for key, record in keyed])
    unpack = Unpacker().record
    records = timed("unpack", lambda: [(key, unpack(flat)) for key, flat in flats])
    groups = [[record for _, record in group] for _, group in groupby(records, key=itemgetter(0))]
    exchanges = timed("merge copies, pair", lambda: [each for group in groups for each in pair(group)])
    read = timed("readings", lambda: [(each, readings(each, terms.setting)) for each in exchanges])
    timed("replay through a responding node", lambda: [reaction(each, terms.setting, seen) for each, seen in read])
    timed("habits", lambda: [list(habits(each, terms.setting, seen)) for each, seen in read])
    judge = Judge(terms.setting)
    timed("assertions", lambda: [list(judge.findings(seen)) for _, seen in read if seen])
    timed("pair to tally", lambda: list(judge_all(flats, terms, RunTally())))


def first(logs: Sequence[Any]) -> Iterator[CapturedRecord]:
    """Give the first records of some logs."""
    number = 0
    for log in logs:
        for found in read(whole(log)):
            if isinstance(found, CapturedRecord):
                yield found
                number += 1
            if number == SAMPLE:
                return


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Do some work, and print what it takes a record."""
    begun = time.process_time()
    done = work()
    print(f"  {what:36} {(time.process_time() - begun) / SAMPLE * 1e6:7.1f}", flush=True)
    return done


def compare(folder: Path, messages: int) -> None:
    """Assert that both engines have the same rows, from both forms."""
    with tempfile.TemporaryDirectory() as scratch:
        results = []
        for form in FORMS:
            for engine in ("local", "spark"):
                out = Path(scratch) / f"{form}-{engine}"
                replay(logs_of(folder, messages, form), out, engine=engine)
                rows = sorted(map(repr, pq.read_table(out / "verdicts").to_pylist()))
                results.append((rows, (out / "summary.json").read_text("utf-8")))
        assert all(each == results[0] for each in results), "the engines differ"
        print(f"{len(results[0][0])} rows of {messages} messages are the same: without Spark and on it, of both forms")


@contextmanager
def folder_of(name: str | None) -> Iterator[Path]:
    """Give the folder for logs: one to keep, or one that goes."""
    if name is not None:
        Path(name).mkdir(parents=True, exist_ok=True)
        yield Path(name)
        return
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--traffic", nargs="+", choices=TRAFFIC, default=["mixed"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--runs", nargs="+", choices=ALL_RUNS, default=list(RUNS))
    parser.add_argument("--logs", help="folder for the logs, which are kept there")
    parser.add_argument("--results", type=Path, help="folder for the file of results")
    parser.add_argument("--make", action="store_true", help="make the logs and end")
    parser.add_argument("--compare", type=int, help="compare the engines on so many messages, and end")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        engine, cores, logs, out = options.child
        child(engine, int(cores), logs, out)
        return
    with folder_of(options.logs) as folder:
        if options.compare:
            compare(folder, options.compare)
            return
        wanted = [Log(*each) for each in product(options.messages, options.forms, options.traffic)]
        if options.make:
            for log in wanted:
                logs_of(folder, *log)
            return
        rows: list[dict[str, Any]] = []
        name = f"replay-{'-'.join(options.traffic)}"
        results = {"name": name, "pairs": options.rounds, "seconds": 0, "data": "disk"}
        results |= environment(None, ("soapjms", "duckdb", "pyarrow", "pyspark", "lxml")) | {"rows": rows}
        for log in wanted:
            rows.append(rates(folder, log, options))
            if options.results:  # after each, as a run takes hours
                options.results.mkdir(parents=True, exist_ok=True)
                write(options.results / f"{name}.json", results)
        growth(rows)
        if options.messages:
            budget(folder, min(options.messages))


if __name__ == "__main__":
    main()
