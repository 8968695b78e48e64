"""The engine that a replay runs on if the user names none: by what is given, by size, by what is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from replay_logs import CXF

from soapjms.replay import EngineChoice, engines, replay
from soapjms.replay.engines import (
    EXACT,
    LOCAL,
    MAX_LOCAL_OCTETS,
    SPARK,
    choose_engine,
    install_line,
    java_problem,
    why_spark,
)

LARGE = MAX_LOCAL_OCTETS + 1


@pytest.fixture(autouse=True)
def without_spark_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no Spark of another test run in this process, as far as the choice can see."""
    monkeypatch.delenv(engines.SUBMITTED, raising=False)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a Java."""
    (tmp_path / "java" / "bin").mkdir(parents=True)
    (tmp_path / "java" / "bin" / "java").touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))


def test_small_logs_need_no_spark() -> None:
    """The line has the size, and what Spark is for."""
    assert choose_engine(3 << 20).engine == LOCAL
    choice = choose_engine(MAX_LOCAL_OCTETS)
    assert (choice, choice.engine) == (
        "engine local: 32 GiB to read; Spark is for clusters, and for more than 32 GiB", LOCAL,
    )  # fmt: skip


@pytest.mark.usefixtures("java")
def test_large_logs_run_on_spark() -> None:
    """From a size that nobody would begin again."""
    choice = choose_engine(LARGE)
    assert (choice, choice.engine) == ("engine spark: 32 GiB to read; more than 32 GiB are for Spark", SPARK)


def test_large_logs_run_without_spark_where_it_lacks(
    tmp_path: Path, java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java or PySpark; the line says what to install."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    choice = choose_engine(LARGE)
    assert choice.engine == LOCAL
    assert f"but JAVA_HOME is {tmp_path}, which has no bin/java. On Debian or Ubuntu: apt-get" in choice
    assert java_problem() is not None
    monkeypatch.setitem(sys.modules, "pyspark", None)
    choice = choose_engine(LARGE)
    assert choice.engine == LOCAL
    assert choice.endswith("but pyspark is not installed: pip install 'soapjms[spark]'")


def test_what_spark_is_set_up_for_runs_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is installed or not: settings, a program that runs in Spark, and a URI of Hadoop's own."""
    assert why_spark(("a.jsonl",), has_settings=True) == "engine spark: settings of Spark are given"
    choice = why_spark(("a.jsonl", "hdfs://user:password@host/logs"), has_settings=False)
    assert choice == "engine spark: hdfs://***@host/logs is a URI of Hadoop"
    monkeypatch.setenv(engines.SUBMITTED, "1234")
    assert why_spark((), has_settings=False) == "engine spark: this program runs in Spark"


@pytest.mark.parametrize(
    "name", ["a.jsonl", "s3://bucket/logs", "https://host/a.jsonl", "file:///logs", "hdfs", "s3a:x"]
)
def test_what_needs_no_spark(name: str) -> None:
    """Files of this machine, and URIs that fsspec knows."""
    assert why_spark((name,), has_settings=False) is None


def test_the_choice_is_told(tmp_path: Path) -> None:
    """Once, and only if the user left it open."""
    told: list[str] = []
    replay(CXF, tmp_path / "out", progress=told.append)
    (choice,) = [each for each in told if isinstance(each, EngineChoice)]
    assert choice.engine == LOCAL
    assert " KiB to read; Spark is for" in choice
    told.clear()
    replay(CXF, tmp_path / "out", engine=EXACT, progress=told.append)
    assert not [each for each in told if isinstance(each, EngineChoice)]


def test_a_uri_needs_spark(tmp_path: Path) -> None:
    """Without it the error says what to install; no other engine reads it."""
    program = "import sys; sys.modules['pyspark'] = None; import soapjms.replay as r; r.replay('hdfs:///logs', 'out')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "SparkMissingError" in done.stderr
    assert "pip install 'soapjms[spark]'" in done.stderr


def test_what_to_install_for_any_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, if anything is missing."""
    assert install_line() is None
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert install_line() == "pip install 'soapjms[replay]'"
