"""Replay on Spark gives what replay without Spark gives: the same rows, the same summary, the same report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from replay_logs import (
    BUCKETS,
    CXF,
    at,
    bad_logs,
    fault,
    request,
    response,
    rows,
    summary,
    three_observers,
    torn_log,
    without_origin,
    write_log,
)

from brokers.message import queue
from soapjms.generate import generate
from soapjms.progress import Phase
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import CR_2009, REC_2012
from soapjms.protocol.record import Direction, capture, to_json
from soapjms.replay import NoInputError, SparkFailedError, Summary, replay, spark_logs, spark_plan
from soapjms.replay.engines import EngineName
from soapjms.replay.inputs import LogFile, LogForm, split_size, splits
from soapjms.replay.parquet import REJECTED, VERDICTS
from soapjms.wsdl import read_wsdl

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("one_spark")]


def both(logs: Any, folder: Path, profile: str = "rec-2012", **options: Any) -> tuple[Summary, Summary]:
    """Replay with both engines and assert that the results are the same."""
    confs: dict[EngineName, dict[str, str] | None] = {"spark": BUCKETS, "local": None}
    results = [replay(logs, folder / engine, profile, engine, conf=conf, **options) for engine, conf in confs.items()]
    for name in ("verdicts", "rejected"):
        assert rows(folder / "spark", name) == rows(folder / "local", name)
    assert [path.name for path in (folder / "spark" / "verdicts").iterdir() if path.suffix != ".parquet"] == []
    assert results[0] == results[1]
    for name in ("summary.json", "report.json", "report.html", "junit.xml"):
        assert without_origin(folder / "spark" / name) == without_origin(folder / "local" / name)
    return results[0], results[1]


@pytest.mark.parametrize("profile", ["rec-2012", "cr-2009"])
def test_the_traffic_of_another_stack(tmp_path: Path, profile: str) -> None:
    """The CXF log gives the same rows on both engines, under both profiles."""
    result, _ = both(CXF, tmp_path, profile)
    assert result.exit_status == 1
    assert rows(tmp_path / "spark", "verdicts")
    assert pq.read_table(tmp_path / "spark" / "verdicts").schema.equals(VERDICTS)
    assert pq.read_table(tmp_path / "spark" / "rejected").schema.equals(REJECTED)
    assert SparkContext._active_spark_context is not None  # it was ours, not replay's


def test_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each phase is told, and while it lasts how many tasks of Spark are done, and of how many."""
    monkeypatch.setattr("soapjms.replay.spark_session.POLL_SECONDS", 0.01)
    told: list[str] = []
    replay(CXF, tmp_path / "out", engine="spark", progress=told.append)
    phases = list(dict.fromkeys(map(str, told)))
    assert phases == ["starting Spark", "reading 1 file", "counting", "judging", "writing the report"]
    parts = [(each.done, each.total) for each in told if isinstance(each, Phase)]
    assert parts
    assert all(0 <= done <= (total or 0) for done, total in parts)


def test_results_of_more_tasks_than_are_asked_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts and shapes of all tasks arrive, however few of them are sent together."""
    monkeypatch.setattr("soapjms.replay.spark_plan.RESULTS_OF_TASKS", 2)
    both(CXF, tmp_path)


def test_what_senders_were_given(tmp_path: Path) -> None:
    """A WSDL, URIs and what programs set give the same rows on both engines."""
    records = [capture(request(n, priority=4 + n % 2), at(n), Direction.REQUEST) for n in range(20)]
    senders = [read_wsdl(CXF.parent / "wsdl" / "echo-soap11.wsdl"), "jms:queue:greeter?priority=5&timeToLive=9"]
    log = write_log(tmp_path / "log.jsonl", *records)
    both([log, CXF], tmp_path, senders=senders, properties={"timeToLive": 0})
    found = summary(tmp_path / "spark")
    assert [each["messages"] for each in found["senders"]] == [0, 20]
    assert found["assertions"]["Protocol-2007"]["failed"] == 10
    assert found["assertions"]["Protocol-2001"]["passed"] == 20


def test_bad_input(tmp_path: Path) -> None:
    """What cannot be read is rejected alike: lines, versions, bodies, surrogates, octets, gzip, a missing file."""
    both(bad_logs(tmp_path), tmp_path)
    assert summary(tmp_path / "spark")["rejected"] == 8


def test_torn_gzip(tmp_path: Path) -> None:
    """Members behind a torn one are read alike, from files of this machine and from those that Hadoop finds."""
    (tmp_path / "logs").mkdir()
    log = torn_log(tmp_path / "logs")
    both([log], tmp_path)
    assert (summary(tmp_path / "spark")["rejected"], summary(tmp_path / "spark")["messages"] > 130) == (3, True)
    replay([f"file://{log}"], tmp_path / "hadoop", engine="spark")
    said = [
        [(each["line"], each["reason"]) for each in rows(tmp_path / name, "rejected")] for name in ("hadoop", "local")
    ]
    assert said[0] == said[1]
    assert summary(tmp_path / "hadoop")["messages"] == summary(tmp_path / "local")["messages"]


def test_copies_and_aliases_across_files(tmp_path: Path) -> None:
    """Records of one call meet, whichever file they came in and whichever id they know."""
    (tmp_path / "logs").mkdir()
    for number, record in enumerate(three_observers()):
        write_log(tmp_path / "logs" / f"{number}.jsonl", record)
    both(tmp_path / "logs", tmp_path)
    assert summary(tmp_path / "spark")["exchanges"] == 4
    assert summary(tmp_path / "spark")["copies"] == 5


def test_late_and_misdirected_messages(tmp_path: Path) -> None:
    """What is remembered of a key over its silences is the same on both engines."""
    ask, answer = Direction.REQUEST, Direction.RESPONSE
    records = [capture(request(n % 3), at(900 * n), ask) for n in range(9)]
    records += [capture(response(0), at(1), answer), capture(response(1), at(3601), answer)]
    records += [capture(response(2, message_id="ID:x", destination=queue("x")), at(1801), answer)]
    both(write_log(tmp_path / "log.jsonl", *records), tmp_path)
    found = summary(tmp_path / "spark")
    assert (found["messages"], found["copies"], found["lateCopies"], found["exchanges"]) == (6, 6, 3, 2)
    assert list(found["notes"]["misdirectedResponse"]) == ["text", "count"]


@pytest.mark.parametrize(("number", "profile"), [(3, "cr-2009"), (1, "rec-2012")])
def test_the_profile_that_the_log_shows(tmp_path: Path, number: int, profile: str) -> None:
    """Both engines count the same faults, over all parts of the log, and judge by the same edition."""
    faults = [fault(n, CR_2009 if n < number else REC_2012) for n in range(5)]
    records = [capture(each, at(n)) for n in range(10) for each in (request(n), response(n))]
    logs = [write_log(tmp_path / "1.jsonl", *records, *faults[:2]), write_log(tmp_path / "2.jsonl", *faults[2:])]
    found, _ = both(logs, tmp_path, "auto")
    assert found.members["profile"] == profile
    assert found.members["profileChosen"]["faults"] == {"cr-2009": number, "rec-2012": 5 - number}


def test_a_file_read_in_parts_has_right_line_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log larger than a part is read by several tasks; what they reject has the line of the file."""
    log = tmp_path / "log.jsonl"
    records = [capture(request(n), at(n), Direction.REQUEST) for n in range(40)]
    records += [capture(response(n), at(n + 0.5), Direction.RESPONSE) for n in range(40)]
    write_log(log, *records)
    lines = log.read_bytes().splitlines(keepends=True)
    lines[1:1] = [b"first\n", b"\n"]
    lines[70:70] = [b"seventieth\n"]
    log.write_bytes(b"".join(lines))
    monkeypatch.setattr(spark_logs, "split_size", lambda *_: 5000)
    both(log, tmp_path)
    assert [row["line"] for row in rows(tmp_path / "spark", "rejected")] == [2, 71]
    assert summary(tmp_path / "spark")["exchanges"] == 40


@pytest.mark.parametrize("phase", ["counting", "judging"])
def test_a_log_that_is_cut_while_it_is_replayed(tmp_path: Path, phase: str) -> None:
    """The run says so, and leaves no results."""
    generate(tmp_path / "made", 300)
    (log,) = (tmp_path / "made" / "logs").iterdir()

    def cut(said: str) -> None:
        if said.startswith(phase):
            log.write_bytes(log.read_bytes()[:5000])

    with pytest.raises(NoInputError, match=r"^\S+: line \d+ is no record now: the log was changed meanwhile$"):
        replay(log, tmp_path / "out", engine="spark", progress=cut)
    assert [each.name for each in tmp_path.iterdir()] == ["made"]


def test_an_empty_log_gives_empty_rows_with_their_columns(tmp_path: Path) -> None:
    """Parquet without rows is still Parquet."""
    (tmp_path / "log.jsonl").write_bytes(b"\n")
    both(tmp_path / "log.jsonl", tmp_path)
    assert summary(tmp_path / "spark")["verdict"] == "nothingToJudge"
    assert pq.read_table(tmp_path / "spark" / "verdicts").schema.equals(VERDICTS)


def test_byte_order_marks_and_digests(tmp_path: Path) -> None:
    """A mark at the start of a log is read over, a body that was changed is rejected."""
    lines = [to_json(capture(request(n), at(n), Direction.REQUEST)) for n in range(3)]
    lines[1] = lines[1].replace('"sha256":"', '"sha256":"0')
    (tmp_path / "log.jsonl").write_text("\ufeff" + "\n".join(lines), "utf-8")
    both(tmp_path / "log.jsonl", tmp_path)
    members = summary(tmp_path / "spark")
    assert (members["records"], members["rejected"], list(members["notes"])) == (
        2,
        1,
        ["byteOrderMark", "quotedSoapAction"],
    )


def test_a_setting_that_spark_refuses_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    """The error names the setting."""
    with pytest.raises(UsageError, match=r"refuses the setting spark\.sql\.parquet\.compression\.codec=zip"):
        replay(CXF, tmp_path / "out", engine="spark", conf={"spark.sql.parquet.compression.codec": "zip"})


@pytest.mark.parametrize("groups", [(), ((10_000, 20 << 20),) * 60_000], ids=["lines", "Parquet"])
def test_what_a_task_is_told_of_large_logs(groups: tuple[tuple[int, int], ...]) -> None:
    """It has the same size however many files and row groups there are, and the number of tasks has a limit."""
    form = LogForm.PARQUET if groups else LogForm.LINES
    logs = [
        LogFile(n, f"logs/{n}", f"/logs/{n}", 64 << 20, form, groups=groups) for n in range(1 if groups else 30_000)
    ]
    parts = splits(logs, split_size(logs, 64))
    assert len(parts) >= 30_000
    assert max(len(octets) for _, octets in spark_logs.rows_of_parts(parts)) < 400
    assert spark_logs.reading_tasks(parts, 64) == spark_logs.shuffle_tasks(logs, 64) == spark_logs.MAX_TASKS


@pytest.mark.parametrize(
    ("buckets", "cores", "expected"), [(1, 2, 1), (8, 2, 8), (9, 2, 8), (40, 2, 8), (400, 2, 25), (4000, 64, 256)]
)
def test_how_many_tasks_count(buckets: int, cores: int, expected: int) -> None:
    """One for sixteen buckets, but four for each core if there are as many buckets."""
    assert spark_plan.counting_tasks(buckets, cores) == expected


def test_tasks_that_count_several_buckets(tmp_path: Path) -> None:
    """Nine buckets in eight tasks are counted as one bucket in one task is."""
    generate(tmp_path / "made", 100, broken=0.2)
    results = [
        replay(
            tmp_path / "made" / "logs",
            tmp_path / buckets,
            engine="spark",
            conf={"spark.sql.shuffle.partitions": buckets},
        )
        for buckets in ("1", "9")
    ]
    assert results[0] == results[1]
    assert rows(tmp_path / "1", "verdicts") == rows(tmp_path / "9", "verdicts")


def test_a_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A codec that this Spark lacks fails while rejected/ is written: the run ends with what Spark said."""
    bad = bad_logs(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SparkFailedError, match="the Spark job failed"):
        replay(bad, tmp_path / "out", engine="spark", conf={"spark.sql.parquet.compression.codec": "lzo"})
    assert sorted(tmp_path.iterdir()) == before


def test_another_master_than_the_running_one_is_refused(tmp_path: Path) -> None:
    """One process has one Spark; the error names the one that runs, and nothing is written."""
    with pytest.raises(UsageError, match=r"master local\[2\] already runs in this process"):
        replay(CXF, tmp_path / "out", engine="spark", master="local[1]")
    assert list(tmp_path.iterdir()) == []
