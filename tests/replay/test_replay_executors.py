"""Replay on executors that are processes of their own, as on a cluster: the same results, in bounded memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from places import ROOT
from replay_logs import assert_equal, summary

from soapjms.generate import generate
from soapjms.replay import replay

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(900)]

SPARK = Path(pyspark.__file__).parent
MESSAGES = 100_000
GIBIBYTE = 1 << 30


def children() -> dict[int, list[int]]:
    """Return the processes of this machine, by the one that started them."""
    found = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
            found[parent].append(int(entry.name))
    return found


def memory_of(process: int, below: dict[int, list[int]]) -> int:
    """Return the resident octets of a process and of all below it."""
    try:
        own = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        own = 0
    return own + sum(memory_of(each, below) for each in below.get(process, ()))


def executors(process: int, below: dict[int, list[int]]) -> list[int]:
    """Return the executors below a process."""
    found = [each for inner in below.get(process, ()) for each in executors(inner, below)]
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return found
    return [process, *found] if b"CoarseGrainedExecutorBackend" in words else found


def archive(folder: Path) -> str:
    """Pack the packages as they go to a cluster."""
    for name in ("soapjms", "brokers"):
        shutil.copytree(ROOT / name, folder / "packages" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return shutil.make_archive(str(folder / "packages"), "zip", folder / "packages")


@contextmanager
def submitted(folder: Path, logs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Replay logs into spark/ on two executors of one core, a gibibyte for each one's Java; assert how it ends."""
    words = [
        SPARK / "bin" / "spark-submit", "--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=1g",
        "--conf", "spark.ui.enabled=false", "--py-files", archive(folder), ROOT / "examples" / "replay_on_spark.py",
        "replay", logs, "--out", folder / "spark",
    ]  # fmt: skip
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**known, "SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": sys.executable}
    with (
        (folder / "said").open("wb") as said,
        subprocess.Popen(words, cwd=folder, env=environment, stdout=said, stderr=said) as job,
    ):
        yield job
    assert job.returncode == 1, (folder / "said").read_text("utf-8")[-4000:]  # something failed in that log


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_two_executors(tmp_path: Path, form: str) -> None:
    """With their Python they stay below two gibibytes; the results are right."""
    logs = generate(tmp_path / "made", MESSAGES, form=form, rotation=16 << 20).files[0].parent
    highest: dict[int, int] = defaultdict(int)
    with submitted(tmp_path, logs) as job:
        while job.poll() is None:
            below = children()
            for each in executors(job.pid, below):
                highest[each] = max(highest[each], memory_of(each, below))
            time.sleep(0.1)
    print({each: f"{octets >> 20} MiB" for each, octets in highest.items()})
    assert len(highest) == 2
    assert max(highest.values()) < 2 * GIBIBYTE
    replay(logs, tmp_path / "local", engine="local")
    assert_equal(tmp_path / "spark", tmp_path / "local")
    assert summary(tmp_path / "spark")["messages"] == MESSAGES


def test_an_executor_is_lost(tmp_path: Path) -> None:
    """Killed while it judges: what it had done is done again, and no verdict is there twice, or not at all."""
    logs = generate(tmp_path / "made", 30_000, broken=0.3, rotation=4 << 20).files[0].parent
    with submitted(tmp_path, logs) as job:
        while job.poll() is None and not list(tmp_path.glob(".spark.*/result/verdicts/part-*.parquet")):
            time.sleep(0.01)
        lost = executors(job.pid, children())[0]
        os.kill(lost, signal.SIGKILL)
    replay(logs, tmp_path / "local", engine="local")
    assert_equal(tmp_path / "spark", tmp_path / "local")
    assert {path.suffix for path in (tmp_path / "spark" / "verdicts").iterdir()} == {".parquet"}
