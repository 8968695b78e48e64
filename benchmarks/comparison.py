"""Runs sides beside each other and reports: interleaved rounds, medians with spread, goals, a table, and a JSON file.

What the sides do is in `sides/`; what is compared, and the goals, are in `calls.py` and `safety.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/support"))

from broker_recipes import Artemis, Classic  # noqa: E402 - after the line above
from ports import free_ports  # noqa: E402
from real_brokers import ChildBroker  # noqa: E402
from sides import Setting  # noqa: E402

MEMORY_DISK = Path("/dev/shm")
RECIPES = {"activemq": partial(Classic, store="8gb"), "artemis": Artemis}
"""Classic clears its store twice a minute; by then a run with bodies of a mebibyte has filled the usual one."""


class Side(NamedTuple):
    """What calls, what serves (None for nothing), and what is different from the row's setting."""

    client: str
    service: str | None = None
    changes: Mapping[str, Any] = {}


class Goal(NamedTuple):
    """A bound for a figure of a side, or for its ratio over that of the row's first side.

    Attributes:
        by_ratio: the bound is for the ratio.
        is_most: the bound is an upper one.
    """

    side: str
    figure: str
    bound: float
    by_ratio: bool = True
    is_most: bool = False

    def is_met(self, side: Mapping[str, Any]) -> bool:
        """Say whether the median is within the bound."""
        found = side[self.figure]["over"] if self.by_ratio else side[self.figure]
        return bool(found["median"] <= self.bound if self.is_most else found["median"] >= self.bound)

    def __str__(self) -> str:
        over = "ratio of " if self.by_ratio else ""
        return f"{self.side}: {over}{self.figure} at {'most' if self.is_most else 'least'} {self.bound:g}"


class Row(NamedTuple):
    """Sides that are compared, each with the same setting but for its changes; ratios are over the first side.

    Attributes:
        protocol: `stomp` or `amqp` for the URL of the broker; None if the run needs none.
        at_half_rate: call at half of the highest rate of the slowest side.
    """

    title: str
    sides: Mapping[str, Side]
    goals: Sequence[Goal] = ()
    setting: Mapping[str, Any] = {}
    protocol: str | None = "stomp"
    at_half_rate: bool = False


OURS = Side("ours:Client", "ours:service")

# Runs


@contextmanager
def started(recipe: Any, seconds: float, *, is_on_disk: bool = False) -> Iterator[ChildBroker]:
    """Start a broker as a child process, and warm it up by longer runs than the measured ones.

    It and the services keep their files in memory where the system can.
    """
    if MEMORY_DISK.is_dir() and not is_on_disk:
        tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY_DISK)
    with ChildBroker(recipe, is_measured=True) as broker:
        for is_transactional in (False, True):  # Java compiles what runs often
            warm_up = Setting(broker.stomp_url, "bench.warm-up", 32, 2.5 * seconds, transactional=is_transactional)
            run(OURS, warm_up, broker)
        yield broker


def command(where: str, setting: Setting) -> dict[str, Any]:
    """Return what starts a process of a side, which compiles modules only once."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    words = [sys.executable, "-m", "sides", where, json.dumps(asdict(setting))]
    return {"args": words, "cwd": HERE, "env": environment, "stdout": subprocess.PIPE}


@contextmanager
def serving(where: str, setting: Setting) -> Iterator[int]:
    """Run a service process, and yield its id."""
    with subprocess.Popen(**command(where, setting), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != b"ready":
                raise RuntimeError(f"{where} did not start")
            yield process.pid
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            finally:
                process.kill()


def run(side: Side, setting: Setting, broker: ChildBroker | None = None) -> dict[str, float]:
    """Run a side once and return its figures."""
    is_at_broker = "@" in setting.url  # our listener lets anybody in
    with ExitStack() as stack:
        if setting.store:
            setting = replace(setting, store=f"{stack.enter_context(tempfile.TemporaryDirectory())}/{setting.store}")
        services = setting.processes if side.service else 0
        processes = {"service": [stack.enter_context(serving(str(side.service), setting)) for _ in range(services)]}
        if broker is not None and is_at_broker:
            processes["broker"] = [broker.pid or 0]
        measured = replace(setting, processes_of={role: ids for role, ids in processes.items() if ids})
        timeout = setting.seconds + 900
        done = subprocess.run(**command(side.client, measured), timeout=timeout, check=True)
    if broker is not None and is_at_broker:
        broker.delete_queue(setting.queue)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def settings_of(row: Row, seconds: float, broker: ChildBroker | None) -> Iterator[dict[str, Setting]]:
    """Yield the settings of the sides for one round after the other, each with a queue and a port of its own."""
    url = "" if broker is None or row.protocol is None else getattr(broker, f"{row.protocol}_url")
    number = 0
    while True:
        found = {}
        for name, side in row.sides.items():
            number += 1
            made = Setting(**{"url": url, "seconds": seconds, **row.setting, **side.changes})
            port = free_ports(1)[0]
            queue = f"bench.{number}.{os.urandom(4).hex()}"
            made = replace(made, queue=queue, url=made.url.replace("PORT", str(port)))
            found[name] = made
        yield found


def measure(row: Row, pairs: int, seconds: float, broker: ChildBroker | None) -> dict[str, Any]:
    """Run the rounds of a row and return its part of the results."""
    rounds = settings_of(row, seconds, broker)
    rate = 0.0
    if row.at_half_rate:
        highest = [run(row.sides[name], setting, broker)["rate"] for name, setting in next(rounds).items()]
        rate = min(highest) / 2
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in row.sides}
    for _ in range(pairs):
        for name, setting in next(rounds).items():
            runs[name].append(run(row.sides[name], replace(setting, rate=rate), broker))
    return row_of(row.title, {**row.setting, "rate": rate}, runs, row.goals)


def row_of(
    title: str, setting: Mapping[str, Any], runs: Mapping[str, list[dict[str, float]]], goals: Iterable[Goal]
) -> dict[str, Any]:
    """Return a row of the results: the figures of all runs by side, what they come to, and whether goals are met."""
    first = next(iter(runs.values()))
    sides = {name: summarized(found, first) for name, found in runs.items()}
    judged = [{"goal": str(goal), **goal._asdict(), "met": goal.is_met(sides[goal.side])} for goal in goals]
    return {"row": title, "setting": setting, "sides": sides, "goals": judged, "runs": runs}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and largest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summarized(runs: Sequence[Mapping[str, float]], first: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the spread of each figure, and of its ratio over the first side's in the same round."""
    found: dict[str, Any] = {}
    for figure in runs[0]:
        found[figure] = spread([each.get(figure, 0.0) for each in runs])
        if all(each.get(figure) for each in first):
            found[figure]["over"] = spread(
                [mine.get(figure, 0.0) / its[figure] for mine, its in zip(runs, first, strict=True)]
            )
    return found


# Reports


def printed(result: Mapping[str, Any]) -> None:
    """Print a row: a line for each side, and one for each goal."""
    sides = result["sides"]
    figures = list(dict.fromkeys(figure for side in sides.values() for figure in side))
    print(f"\n{result['row']:<24}" + "".join(f"{figure:>22}" for figure in figures))
    for at, (name, side) in enumerate(sides.items()):
        cells = (cell(side.get(figure), with_ratio=at > 0) for figure in figures)
        print(f"  {name:<22}" + "".join(f"{each:>22}" for each in cells))
    print_goals(result)


def print_goals(result: Mapping[str, Any]) -> None:
    """Print the goals of a row, with what was reached."""
    for goal in result["goals"]:
        figure = result["sides"][goal["side"]][goal["figure"]]
        found = figure["over"] if goal["by_ratio"] else figure
        low, median, high = (number(found[each]) for each in ("low", "median", "high"))
        print(f"  goal: {goal['goal']}; {median} ({low} to {high}): {'met' if goal['met'] else 'NOT MET'}")
    sys.stdout.flush()


def cell(figure: Mapping[str, Any] | None, *, with_ratio: bool) -> str:
    """Write a median and its ratio."""
    if figure is None:
        return ""
    ratio = f" ×{figure['over']['median']:.2f}" if with_ratio and "over" in figure else ""
    return number(figure["median"]) + ratio


def number(value: float) -> str:
    """Write a figure with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value < 10 else f"{value:.1f}"


def environment(
    broker: ChildBroker | None, packages: Sequence[str] = ("soapjms", "stomp.py", "python-qpid-proton", "lxml")
) -> dict[str, Any]:
    """Return on which machine, and with which versions, this runs."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    versions = {name: version(name) for name in packages}
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, cwd=HERE, capture_output=True, text=True, check=False)
    if commit.returncode == 0:
        versions["commit"] = commit.stdout.strip()
    if broker is not None:
        versions["broker"] = broker.recipe.image.rpartition("/")[2]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "machine": {
            "processor": ", ".join(sorted(models)),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "versions": versions,
    }


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write a file of results."""
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def report(tables: Mapping[str, Sequence[Row]], defaults: Sequence[str], description: str | None) -> None:
    """Be the command: measure the tables that are asked for, print them, and write each as a file of results."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(tables), default=list(defaults))
    parser.add_argument("--in-flight", type=int, nargs="+", help="only the rows with so many calls in flight")
    parser.add_argument("--pairs", type=int, default=5, help="rounds in which each side runs once; default 5")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a run; default 2")
    parser.add_argument("--data", choices=["memory", "disk"], default="memory", help="for the broker and for stores")
    parser.add_argument("--broker", choices=list(RECIPES), default="activemq", help="Artemis is for our sides only")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder for the files of results")
    options = parser.parse_args()
    wanted = options.in_flight
    rows = {
        name: [row for row in tables[name] if not wanted or row.setting.get("in_flight") in wanted]
        for name in options.rows
    }
    options.results.mkdir(parents=True, exist_ok=True)
    suffix = f"-{options.broker}" * (options.broker != "activemq") + "-disk" * (options.data == "disk")
    with ExitStack() as stack:
        broker, recipe, is_on_disk = None, RECIPES[options.broker](), options.data == "disk"
        if any(row.protocol for table in rows.values() for row in table):
            broker = stack.enter_context(started(recipe, options.seconds, is_on_disk=is_on_disk))
        for name, table in rows.items():
            results = []
            for row in table:
                results.append(measure(row, options.pairs, options.seconds, broker))
                printed(results[-1])
            said = {"name": name, "pairs": options.pairs, "seconds": options.seconds, "data": options.data}
            write(options.results / f"{name}{suffix}.json", said | environment(broker) | {"rows": results})
