"""Replay on a standalone cluster, `spark://`: the same results, also if a worker is lost, and by our packages only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_log import GIVEN, write_hostile_log
from places import ROOT
from replay_logs import CXF, assert_same_reports, summary
from spark_cluster import SETTINGS, WORKERS, Server, SparkCluster, spark_cluster

from soapjms.generate import generate
from soapjms.progress import Phase
from soapjms.replay import replay
from soapjms.replay.spark_session import session

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_spark"), pytest.mark.timeout(600)]

MESSAGES = 1500
HOSTILE_LINES = 1000
CONF = {**SETTINGS, "spark.sql.shuffle.partitions": "4"}
"""More tasks than such small logs would have."""


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with packages that have our names and cannot be imported."""
    folder = tmp_path_factory.mktemp("strange")
    for name in ("soapjms", "brokers"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('imported from the current folder')\n")
    return folder


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, strange: Path) -> Iterator[SparkCluster]:
    """Run a cluster whose current folder is the one with the strange packages."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), strange) as running:
        yield running
    assert [each.session() for each in running.servers] == [{}] * len(running.servers)


@pytest.fixture
def cluster(servers: SparkCluster) -> SparkCluster:
    """Return the cluster, with two workers, whatever a test before did to them."""
    servers.start_workers(WORKERS - len(servers.workers))
    return servers


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make ordinary logs and a hostile one."""
    folder = tmp_path_factory.mktemp("logs")
    made = generate(folder / "made", MESSAGES, broken=0.2, rotation=1 << 20)
    return [made.files[0].parent, write_hostile_log(folder / "hostile.jsonl", 5, HOSTILE_LINES)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, logs: list[Path]) -> Path:
    """Judge the logs without Spark."""
    out = tmp_path_factory.mktemp("expected") / "out"
    replay(logs, out, engine="local", senders=[GIVEN])
    return out


def command(current: Path, out: Path, *words: str) -> None:
    """Run `soapjms replay` as it is installed, in a folder."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    program = Path(sys.executable).with_name("soapjms")
    done = subprocess.run(
        [program, "replay", *words, "--out", out], cwd=current, env=known, capture_output=True, text=True, check=False,
        timeout=500,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # something in the logs failed


def test_two_workers(tmp_path: Path, cluster: SparkCluster, strange: Path, logs: list[Path], expected: Path) -> None:
    """Each has an executor, and the results are those of one process, whatever the current folders have."""
    settings = [f"--conf={name}={value}" for name, value in CONF.items()]
    command(strange, tmp_path / "out", *map(str, logs), f"--uri={GIVEN}", f"--master={cluster.url}", *settings)
    assert_same_reports(tmp_path / "out", expected)
    assert summary(expected)["messages"] > MESSAGES
    assert [len(list(each.folder.glob("work/app-*/*/stderr"))) for each in cluster.workers] == [1, 1]


def test_a_worker_is_lost(
    tmp_path: Path, cluster: SparkCluster, logs: list[Path], expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it judges: the other one does its work again, and no verdict is there twice, or not at all."""
    monkeypatch.setattr("soapjms.replay.spark_session.POLL_SECONDS", 0.02)
    lost: list[tuple[Server, str, Phase]] = []

    def kill(text: str) -> None:
        verdicts = ".out.*/result/verdicts/_temporary/**/part-*.parquet"
        if not lost and text == "judging" and list(tmp_path.glob(verdicts)):
            assert isinstance(text, Phase)
            worker = cluster.workers[0]
            lost.append((worker, " ".join(worker.session().values()), text))
            worker.kill()

    replay(logs, tmp_path / "out", engine="spark", senders=[GIVEN], master=cluster.url, conf=CONF, progress=kill)
    [(worker, ran, phase)] = lost
    assert phase.done < (phase.total or 0)
    assert "CoarseGrainedExecutorBackend" in ran
    assert "pyspark.daemon" in ran
    assert worker.session() == {}
    assert_same_reports(tmp_path / "out", expected)
    assert {path.suffix for path in (tmp_path / "out" / "verdicts").iterdir()} == {".parquet"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200, 210))
def test_many_hostile_logs(tmp_path: Path, cluster: SparkCluster, seed: int) -> None:
    """Each of 20,000 lines comes to what the whole judge says, who judges each exchange by itself."""
    log = write_hostile_log(tmp_path / "hostile.jsonl", seed, 20_000)
    replay(log, tmp_path / "exact", engine="exact", senders=[GIVEN])
    replay(log, tmp_path / "out", engine="spark", senders=[GIVEN], master=cluster.url, conf=CONF)
    assert_same_reports(tmp_path / "out", tmp_path / "exact")


# The current folder


def test_packages_of_the_current_folder(tmp_path: Path, strange: Path) -> None:
    """On one machine the workers are in the folder of the driver: what is there is not imported, whatever its name."""
    command(strange, tmp_path / "out", str(CXF), "--engine=spark")
    replay(CXF, tmp_path / "expected", engine="local")
    assert_same_reports(tmp_path / "out", tmp_path / "expected")


def test_the_environment_of_workers(tmp_path: Path) -> None:
    """Our packages' folder and none within it; Python's safe path, unless a user says otherwise; what users add."""
    given = {"spark.executorEnv.PYTHONSAFEPATH": "", "spark.executorEnv.GREETING": "hello"}
    for conf, expected in (({}, ("1", None)), (given, ("", "hello"))):
        with session(None, conf, tmp_path) as running:
            environment = running.sparkContext.environment
            assert environment["PYTHONPATH"] == str(ROOT)
            assert (environment["PYTHONSAFEPATH"], environment.get("GREETING")) == expected
