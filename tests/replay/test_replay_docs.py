"""What docs/ says of the files that replay reads and writes is what they are."""

from __future__ import annotations

import json
import re
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from places import ROOT
from replay_logs import BUCKETS, CXF, summary

from soapjms.protocol.record import JMS, MAX_DEPTH, MEMBERS, VERSION, from_json, to_members
from soapjms.replay import replay
from soapjms.replay.follower.steps import LATE
from soapjms.replay.marks import FILES
from soapjms.replay.parquet import RECORDS, REJECTED, VERDICTS
from soapjms.replay.records import MAX_LINE_OCTETS

DOCS = ROOT / "docs"
FORMAT = (DOCS / "capture-format.md").read_text("utf-8")
REPLAY = (DOCS / "replay.md").read_text("utf-8")
DESIGN = (DOCS / "replay-design.md").read_text("utf-8")


def listed(page: str, heading: str) -> set[str]:
    """Return the names in the first column of a table."""
    rows = page.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_example_of_a_record_is_one() -> None:
    """Put into one line it is read, and all of it is understood."""
    (example,) = re.findall(r"```json\n(.*?)```", FORMAT, re.DOTALL)
    line = " ".join(example.split("\n"))
    assert to_members(from_json(line)) == json.loads(line)


def test_every_member_of_a_record_is_described() -> None:
    """In JSON Lines and in Parquet, with the version and the limits."""
    assert listed(FORMAT, "member") == MEMBERS
    assert listed(FORMAT, "column") == set(RECORDS.names)
    assert all(f"`{name}`" in FORMAT for name in JMS)
    assert f"The version is {VERSION}." in FORMAT
    assert f"longer than {MAX_LINE_OCTETS >> 20} MiB" in FORMAT
    assert re.search(rf"deeper than {MAX_DEPTH}\s", FORMAT)


def test_every_member_of_a_summary_is_described(tmp_path: Path) -> None:
    """And no other."""
    replay(CXF, tmp_path / "out", engine="local")
    assert listed(REPLAY, "in `summary.json`") == {*summary(tmp_path / "out"), "late", "watermark"}


@pytest.mark.parametrize(("name", "schema"), [("verdicts/", VERDICTS), ("rejected/", REJECTED), ("late/", LATE)])
def test_every_column_is_described(name: str, schema: pa.Schema) -> None:
    """In the row of its file."""
    (row,) = re.findall(rf"^\| `{name}` \|(.*)$", REPLAY, re.MULTILINE)
    assert [each for each in schema.names if f"`{each}`" not in row] == []


def test_every_file_is_described() -> None:
    """Those that a replay replaces."""
    files = listed(REPLAY, "in `DIR`") | {"report.json"}
    assert {name.rstrip("/") for name in files} == FILES


OMITTED_STEPS = {
    "AdaptiveSparkPlan", "BroadcastExchange", "BroadcastQueryStage", "Filter", "InMemoryRelation", "Project",
    "ResultQueryStage",
}  # fmt: skip
"""Steps of Spark's plans that the page leaves out."""


def steps(plan: str) -> list[str]:
    """Return the names of the steps of a plan, from the last to the first; a relation's only where it is first read."""
    found: list[str] = []
    read: set[str] = set()
    left_out: float = inf
    for line in plan.splitlines():
        indent, step, rest = re.findall(r"^([ :+-]*)(?:\*\(\d+\) )?(== Initial Plan|\w*)(.*)", line)[0]
        if len(indent) >= left_out:
            continue
        left_out = inf
        columns = re.sub(r"#\d+L?", "", rest)
        if step == "== Initial Plan":
            left_out = len(indent)
        elif step == "InMemoryRelation" and columns in read:
            left_out = len(indent) + 1
        elif step == "InMemoryRelation":
            read.add(columns)
        elif step and step not in OMITTED_STEPS:
            found.append(step)
    return found


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
def test_the_plan_of_spark_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the shapes. Tasks of Python take and give batches of Arrow: no step calls Python for each row."""
    from pyspark.sql import DataFrame, SparkSession

    explained: list[str] = []

    def watched(self: SparkSession, query: str, sql: Any = SparkSession.sql) -> DataFrame:
        found: DataFrame = sql(self, query)
        explained.append(found._jdf.queryExecution().executedPlan().toString())
        return found

    monkeypatch.setattr(SparkSession, "sql", watched)
    replay(CXF, tmp_path / "out", engine="spark", conf=BUCKETS)
    (page,) = re.findall(r"^The plan of Spark up to the shapes.*?```text\n(.*?)```", DESIGN, re.DOTALL | re.MULTILINE)
    (plan,) = explained
    assert steps(plan) == steps(page)
    assert "Python" not in plan
