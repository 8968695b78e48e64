"""Replay of logs that are in HDFS: a real name node and two data nodes, which the test starts.

`make hdfs` fetches their servers.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from getpass import getuser
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest
from cli_kit import process
from places import ROOT
from pyspark.sql import SparkSession
from replay_logs import CXF, assert_same_reports, bad_logs, rows, summary

from soapjms.generate import generate
from soapjms.protocol.errors import UsageError
from soapjms.replay import hadoop, replay
from soapjms.replay.spark_session import session

pytestmark = [pytest.mark.soak, pytest.mark.spark]

SERVERS = ROOT / "build/hdfs/lib"
JARS = Path(pyspark.__file__).parent / "jars"


class Hdfs(NamedTuple):
    """Where HDFS is.

    Attributes:
        uri: its URI for Hadoop.
        web: its URI over HTTP, for the user that Spark is.
    """

    uri: str
    web: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Start HDFS."""
    assert SERVERS.exists(), f"there is no {SERVERS.relative_to(ROOT)}: run `make hdfs` first"
    folder = tmp_path_factory.mktemp("hdfs")
    words = [
        "java",
        "-Xmx512m",
        "-cp",
        f"{SERVERS}/*:{JARS}/*",
        str(ROOT / "tests/peers/hdfs/Cluster.java"),
        str(folder),
    ]
    with (
        (folder / "said").open("wb") as said,
        subprocess.Popen(
            words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as java,
    ):
        try:
            assert java.stdout is not None
            first = next((line for line in iter(java.stdout.readline, "") if line.startswith("at hdfs://")), None)
            assert first is not None, (folder / "said").read_text("utf-8")[-4000:]
            _, uri, port = first.split()
            yield Hdfs(uri, f"webhdfs://{getuser()}@127.0.0.1:{port}")
        finally:
            java.kill()


@pytest.fixture
def hdfs(running: Hdfs) -> str:
    """Give its URI for Hadoop."""
    return running.uri


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    """Start a Spark, which knows HDFS by itself."""
    with session(None, {}, tmp_path) as running:
        yield running


def put(spark: SparkSession, folder: Path, uri: str) -> None:
    """Copy a folder into HDFS, as `hdfs dfs -put` does."""
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
    place = hadoop(uri)
    system = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    system.copyFromLocalFile(hadoop(folder.as_uri()), place)


def test_logs_in_hdfs(hdfs: str, spark: SparkSession, tmp_path: Path) -> None:
    """Folders and globs, in all forms, with broken and foreign files: the results are those of the same files here."""
    logs = tmp_path / "logs"
    logs.mkdir()
    bad_logs(logs)
    shutil.copy(CXF, logs / "[1] cxf.jsonl")
    (logs / "notes.txt").write_text("of no interest")
    for form in ("jsonl", "gzip", "parquet"):
        generate(tmp_path / form, 600, form=form, seed=len(form))
        shutil.copytree(tmp_path / form / "logs", logs / form)
    put(spark, logs, f"{hdfs}/captures")
    replay(logs, tmp_path / "here", engine="local")
    replay(f"{hdfs}/captures", tmp_path / "there")
    replay([f"{hdfs}/captures/*.jsonl*", f"{hdfs}/captures/???*/*"], tmp_path / "globs")
    assert summary(tmp_path / "there") == summary(tmp_path / "here")
    in_globs = summary(tmp_path / "here")
    in_globs["notes"].pop("otherFile")
    assert summary(tmp_path / "globs") == in_globs
    for name in ("there", "globs"):
        assert rows(tmp_path / name, "verdicts") == rows(tmp_path / "here", "verdicts")
        refused = rows(tmp_path / name, "rejected")
        assert all(each["file"].startswith(f"{hdfs}/captures/") for each in refused)
        assert {(each["line"], each["reason"], each["raw"]) for each in refused} == {
            (each["line"], each["reason"], each["raw"]) for each in rows(tmp_path / "here", "rejected")
        }


def test_large_logs_in_hdfs(hdfs: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tasks read one file, in blocks that are none of HDFS's own."""
    logs = tmp_path / "logs"
    generate(tmp_path / "made", 5000)
    shutil.copytree(tmp_path / "made" / "logs", logs)
    put(spark, logs, f"{hdfs}/large")
    monkeypatch.setattr(hadoop, "MAX_LINES_OCTETS", 1 << 20)
    monkeypatch.setattr(hadoop, "BLOCK_OCTETS", 700_001)
    replay(logs, tmp_path / "here", engine="local")
    replay(f"{hdfs}/large", tmp_path / "there")
    assert rows(tmp_path / "there", "verdicts") == rows(tmp_path / "here", "verdicts")
    assert summary(tmp_path / "there") == summary(tmp_path / "here")


def test_the_command_line(hdfs: str, spark: SparkSession, tmp_path: Path) -> None:
    """A URI is given as any file; one that leads nowhere is said."""
    (tmp_path / "logs").mkdir()
    shutil.copy(CXF, tmp_path / "logs")
    put(spark, tmp_path / "logs", f"{hdfs}/cxf")
    done = process("replay", f"{hdfs}/cxf", f"{hdfs}/nowhere", "--out", "out", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"rejected {hdfs}/nowhere".encode() in done.stdout
    replay(CXF, tmp_path / "here", engine="local")
    assert rows(tmp_path / "out", "verdicts") == rows(tmp_path / "here", "verdicts")


def test_results_in_hdfs(hdfs: str, spark: SparkSession, tmp_path: Path) -> None:
    """They are those of a folder here, twice at the same place, and nothing is left beside them."""
    replay(CXF, tmp_path / "here", engine="local")
    for _ in range(2):
        replay(CXF, f"{hdfs}/reports/cxf")
    system, place = hadoop.place_of(spark, f"{hdfs}/reports")
    assert [each.getPath().getName() for each in system.listStatus(place)] == ["cxf"]
    here, there = (hadoop.place_of(spark, uri)[1] for uri in (tmp_path.as_uri(), f"{hdfs}/reports/cxf"))
    system.copyToLocalFile(there, here)
    assert_same_reports(tmp_path / "cxf", tmp_path / "here")


def test_without_spark(running: Hdfs, spark: SparkSession, tmp_path: Path) -> None:
    """Over HTTP, through fsspec: logs in all forms, and results, twice at the same place."""
    logs = tmp_path / "logs"
    logs.mkdir()
    bad_logs(logs)
    for form in ("jsonl", "gzip", "parquet"):
        generate(tmp_path / form, 600, form=form, seed=len(form))
        shutil.copytree(tmp_path / form / "logs", logs / form)
    put(spark, logs, f"{running.uri}/web")
    replay(logs, tmp_path / "here", engine="local")
    replay([f"{running.web}/web/*.jsonl*", f"{running.web}/web/[gjp]*/*"], tmp_path / "globs", engine="local")
    for _ in range(2):
        replay(f"{running.web}/web", f"{running.web}/reports/web", engine="local")
    system, place = hadoop.place_of(spark, f"{running.uri}/reports")
    assert "web" in [each.getPath().getName() for each in system.listStatus(place)]
    assert not [each for each in system.listStatus(place) if each.getPath().getName().startswith(".")]
    here, there = (hadoop.place_of(spark, uri)[1] for uri in (tmp_path.as_uri(), f"{running.uri}/reports/web"))
    system.copyToLocalFile(there, here)
    for name in ("web", "globs"):
        assert rows(tmp_path / name, "verdicts") == rows(tmp_path / "here", "verdicts")
        assert len(rows(tmp_path / name, "rejected")) == len(rows(tmp_path / "here", "rejected"))
    assert summary(tmp_path / "web") == summary(tmp_path / "here") == summary(tmp_path / "globs")
    with pytest.raises(UsageError, match=r"^webhdfs://.*/web/\?…: a \? begins a query here"):
        replay(f"{running.web}/web/?.jsonl", tmp_path / "none", engine="local")
