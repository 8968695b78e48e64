"""Replay as a job of its own: under spark-submit, over file systems of Hadoop, killed and started again."""

from __future__ import annotations

import bz2
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyspark
import pytest
from places import ROOT
from replay_logs import (
    CXF,
    assert_equal,
    assert_same_reports,
    at,
    bad_logs,
    child,
    request,
    response,
    rows,
    summary,
    write_log,
    write_parquet,
)

from soapjms.generate import generate
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, Record, capture, from_json
from soapjms.replay import NoInputError, hadoop, replay, spark_logs
from soapjms.replay.marks import LOCK
from soapjms.replay.output import staging

pytestmark = pytest.mark.spark


# Elsewhere


@pytest.mark.usefixtures("one_spark")
def test_uris_give_what_names_of_files_give(tmp_path: Path) -> None:
    """Folders, globs and files, in all forms, broken and foreign ones too: what Hadoop brings is read as any other."""
    logs = tmp_path / "logs"
    (logs / "deep").mkdir(parents=True)
    shutil.copy(CXF, logs / "deep" / "[1] cxf.jsonl")
    bad_logs(logs)
    write_parquet(logs / "a.parquet", [capture(request(n), at(n), Direction.REQUEST) for n in range(70, 75)], 2)
    (logs / "b.parquet").write_bytes(b"PAR1 is how it begins")
    for number, name in enumerate(("_c.jsonl", "deep/.d.jsonl"), 80):  # which Spark takes for hidden, unless it is told
        write_log(logs / name, capture(request(number), at(number), Direction.REQUEST))
    (logs / "notes.txt").write_text("of no interest")
    replay(logs, tmp_path / "local", engine="local")
    replay([f"file://{logs}"], tmp_path / "spark", engine="spark")
    replay(
        [f"file://{logs}/*.jsonl", f"file://{logs}/deep", *logs.glob("*.gz"), f"file://{logs}/?.parquet"],
        tmp_path / "globs",
        engine="spark",
    )
    found = [rows(tmp_path / name, "verdicts") for name in ("local", "spark", "globs")]
    assert found[0] == found[1] == found[2]
    refused = [
        [
            (Path(each["file"]).name, each["line"], each["reason"], each["raw"])
            for each in rows(tmp_path / name, "rejected")
        ]
        for name in ("local", "spark", "globs")
    ]
    assert sorted(refused[0], key=repr) == sorted(refused[1], key=repr) == sorted(refused[2], key=repr)
    found_in_folder, in_globs = summary(tmp_path / "local"), summary(tmp_path / "globs")
    assert found_in_folder == summary(tmp_path / "spark")
    assert found_in_folder["notes"].pop("otherFile")["text"].endswith("notes.txt")
    assert found_in_folder == in_globs


@pytest.mark.usefixtures("one_spark")
@pytest.mark.parametrize("argument", ["[1]", "[1]/{a}*.jsonl", "?1?"])
def test_a_name_at_a_uri_that_looks_like_a_glob(tmp_path: Path, argument: str) -> None:
    """What exists by that name is meant, as on this machine."""
    (tmp_path / "[1]").mkdir()
    shutil.copy(CXF, tmp_path / "[1]" / "{a}*.jsonl")
    summary = replay(f"file://{tmp_path}/{argument}", tmp_path / "out", engine="spark")
    assert summary.members["rejected"] == 0
    assert summary.members["records"] > 0


@pytest.mark.usefixtures("one_spark")
def test_a_log_of_a_uri_that_spark_passes_over_is_said(tmp_path: Path) -> None:
    """No version of Spark reads a file with such a name: it is among the rejected, and the others are read."""
    name = tmp_path / "copied.jsonl._COPYING_"
    write_log(name, capture(request(1), at(1), Direction.REQUEST))
    shutil.copy(CXF, tmp_path)
    replay([f"file://{name}", f"file://{tmp_path / CXF.name}"], tmp_path / "out", engine="spark")
    (refused,) = rows(tmp_path / "out", "rejected")
    assert refused["file"].endswith(name.name)
    assert refused["reason"] == spark_logs.PASSED_OVER
    assert summary(tmp_path / "out")["rejected"] == 1
    replay(CXF, tmp_path / "local", engine="local")
    assert rows(tmp_path / "out", "verdicts") == rows(tmp_path / "local", "verdicts")


def long_logs(folder: Path) -> None:
    """Write logs of many blocks: with lines of all kinds, whole and torn, beside some that are read as a whole."""
    generate(folder / "made", 300, seed=3)
    made = b"".join(each.read_bytes() for each in sorted((folder / "made" / "logs").glob("*.jsonl")))
    shutil.rmtree(folder / "made")
    lines = made.splitlines(keepends=True)
    bad_logs(folder)
    bad = (folder / "bad.jsonl").read_bytes()
    half = len(lines) // 2
    first = [*lines[:50], b"\r\n", bad, *lines[50:half]]
    (folder / "[1] a log.jsonl").write_bytes(b"\xef\xbb\xbf" + b"".join(first) + b'{"v":1,"torn')
    second = [*lines[half : half + 90], b"\n" * 500, *[b"\xef\xbb\xbf" + each for each in lines[half + 90 :]]]
    (folder / "2%20.jsonl").write_bytes(b"".join(each.replace(b"\n", b"\r\n") for each in second) + bad)
    shutil.copy(CXF, folder / "_cxf.jsonl")


@pytest.mark.usefixtures("one_spark")
@pytest.mark.parametrize(
    ("profile", "sent", "tasks"), [("auto", spark_logs.MAX_SENT, spark_logs.MAX_TASKS), ("rec-2012", 0, 3)]
)
def test_large_logs_of_a_uri_are_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, sent: int, tasks: int
) -> None:
    """Many tasks read one file: results, and what could not be read, are those of the same files here."""
    logs = tmp_path / "logs"
    logs.mkdir()
    long_logs(logs)
    replay(logs, tmp_path / "here", engine="local", profile=profile)
    monkeypatch.setattr(spark_logs, "MAX_SENT", sent)
    monkeypatch.setattr(spark_logs, "MAX_TASKS", tasks)
    monkeypatch.setattr(hadoop, "MAX_LINES_OCTETS", 100_000)
    monkeypatch.setattr(hadoop, "BLOCK_OCTETS", 20_000)
    assert sum(each.stat().st_size > 100_000 for each in logs.iterdir()) == 2
    replay(f"file://{logs}", tmp_path / "there", profile, "spark")
    assert rows(tmp_path / "there", "verdicts") == rows(tmp_path / "here", "verdicts")
    refused = [
        [(Path(each.pop("file")).name, *each.values()) for each in rows(tmp_path / name, "rejected")]
        for name in ("here", "there")
    ]
    assert sorted(refused[0], key=repr) == sorted(refused[1], key=repr)
    in_here = summary(tmp_path / "here")
    in_here["notes"].pop("byteOrderMark")  # of files on other machines only tasks see the beginning
    assert summary(tmp_path / "there") == in_here


@pytest.mark.usefixtures("one_spark")
def test_large_logs_of_a_uri_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the limit is said, wherever it is; a file of another form is not cut; a change ends the run."""
    monkeypatch.setattr(hadoop, "MAX_LINES_OCTETS", 10_000)
    monkeypatch.setattr(hadoop, "MAX_FILE_OCTETS", 20_000)
    monkeypatch.setattr(hadoop, "BLOCK_OCTETS", 20_000)
    for module in (hadoop, spark_logs):
        monkeypatch.setattr(module, "MAX_LINE_OCTETS", 30_000)
    whole = CXF.read_bytes()
    log = tmp_path / "long.jsonl"
    log.write_bytes(whole + b"x" * 90_000 + b"\n" + whole.replace(b'"message_id":"', b'"message_id":"other-'))
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(os.urandom(30_000)))
    found = replay(f"file://{tmp_path}", tmp_path / "out", engine="spark")
    refused = sorted((Path(each["file"]).name, each["reason"]) for each in rows(tmp_path / "out", "rejected"))
    packed = (tmp_path / "packed.jsonl").stat().st_size
    assert refused[0] == (
        "long.jsonl",
        "59998 octets are in lines of more than 30000; they are not read, nor counted as lines",
    )
    assert "not JSON" in refused[1][1]  # what is left of the line
    assert refused[2:] == [
        (
            "packed.jsonl",
            f"JSON Lines, compressed, of {packed} octets; at most 20000 are read from another machine by Hadoop: cut "
            "it into several, or have fsspec open it, with --local or by another scheme, such as s3 for s3a",
        )
    ]
    assert found.members["records"] == 2 * len(whole.splitlines())
    (tmp_path / "x.jsonl.bz2").write_bytes(bz2.compress(os.urandom(30_000)))  # Hadoop would decompress it
    replay([f"file://{log}", f"file://{tmp_path}/*.bz2"], tmp_path / "out", engine="spark")
    assert [each["reason"] for each in rows(tmp_path / "out", "rejected") if each["file"].endswith(".bz2")] == [
        f"JSON Lines, of {(tmp_path / 'x.jsonl.bz2').stat().st_size} octets; at most 20000 are read from another "
        "machine by Hadoop: cut it into several, or have fsspec open it, with --local or by another scheme, such as s3 "
        "for s3a"
    ]


@pytest.mark.usefixtures("one_spark")
@pytest.mark.parametrize("after", [1, 2])
def test_a_large_log_of_a_uri_that_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Before the judging, or in between: the run ends, as records would be others."""
    monkeypatch.setattr(hadoop, "MAX_LINES_OCTETS", 10_000)
    log = tmp_path / "log.jsonl"
    shutil.copy(CXF, log)
    asked, state_of = 0, hadoop.state_of

    def touched(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == after + 1:
            os.utime(log, (1, 1))
        return state_of(*arguments)

    monkeypatch.setattr(hadoop, "state_of", touched)
    with pytest.raises(NoInputError, match=r"log\.jsonl: its size or time is another now"):
        replay(f"file://{log}", tmp_path / "out", engine="spark")
    assert asked == after + 1


@pytest.mark.usefixtures("one_spark")
def test_uris_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is rejected with its reason; where there is nothing else, nothing is written."""
    (tmp_path / "empty").mkdir()
    nowhere = [f"file://{tmp_path}/none.jsonl", f"file://{tmp_path}/empty", "nonsense://a/b"]
    with pytest.raises(NoInputError, match=r"nonsense://a/b: cannot be opened.*none\.jsonl: no \.jsonl.*empty: no"):
        replay(nowhere, tmp_path / "out", engine="spark")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(hadoop, "MAX_FILE_OCTETS", 10)
    replay([CXF, *nowhere, f"file://{CXF}"], tmp_path / "out", engine="spark")
    reasons = [each["reason"] for each in rows(tmp_path / "out", "rejected")]
    assert len(reasons) == 4
    assert any("at most 10 are read from another machine by Hadoop" in each for each in reasons)


@pytest.mark.usefixtures("one_spark")
def test_results_at_a_uri(tmp_path: Path) -> None:
    """They are those of a folder, only their owner can read them, and they replace an earlier run's alone."""
    out = tmp_path / "there"
    replay(CXF, tmp_path / "here", engine="local")
    for logs in (bad_logs(tmp_path), [CXF]):
        replay(logs, f"file://{out}", engine="spark")
    assert_same_reports(out, tmp_path / "here")
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith((".", "there"))) == ["there"]
    assert out.stat().st_mode & 0o777 == 0o700
    assert {each.suffix for each in out.rglob("*") if each.is_file()} == {".html", ".json", ".xml", ".parquet"}
    (out / "mine.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    for uri, why in (
        (f"file://{out}", r"there holds mine\.txt, which replay did not write"),
        (f"file://{CXF}", "is not a folder"),
        ("file:///", "name a folder in it"),
        (f"file://{CXF}/x", "cannot be written"),
        ("nonsense://a/b", "nonsense://a/b cannot be written"),
    ):
        with pytest.raises(UsageError, match=why):
            replay(CXF, uri, engine="spark")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("one_spark")
def test_results_among_the_logs_of_a_uri(tmp_path: Path) -> None:
    """The Parquet files of an earlier run are no logs of the next."""
    shutil.copy(CXF, tmp_path)
    found = [replay(f"file://{tmp_path}", f"file://{tmp_path}/report", engine="spark") for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].members["rejected"] == 0


@pytest.mark.usefixtures("one_spark")
def test_what_replays_wrote_is_no_input_at_a_uri(tmp_path: Path) -> None:
    """As in a folder of this machine: it is noted and passed over, a log among it is read, and alone it is an error."""
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copy(CXF, logs)
    replay(CXF, logs / "deep" / "report", engine="local")
    shutil.copytree(logs / "deep" / "report", logs / ".report.1" / "result")
    (logs / ".report.1" / LOCK).touch()
    write_log(logs / "deep" / "report" / "b.jsonl", capture(request(70), at(70), Direction.REQUEST))
    here = replay(logs, tmp_path / "here", engine="local")
    for uri in (f"file://{logs}", f"file://{logs}/*"):
        there = replay(uri, tmp_path / "there", engine="spark")
        assert (there.exit_status, there.members["rejected"]) == (here.exit_status, 0)
        assert there.members["messages"] == here.members["messages"]
        assert there.members["notes"]["otherFile"]["count"] == 1
    assert here.members["notes"]["otherFile"]["count"] == 1
    (logs / "deep" / "report" / "b.jsonl").unlink()
    with pytest.raises(NoInputError, match="the folder holds results of a replay, and no logs"):
        replay(f"file://{logs}/deep", tmp_path / "there", engine="spark")


# Input that is out of the ordinary


@pytest.mark.usefixtures("one_spark")
def test_large_bodies_clocks_and_versions(tmp_path: Path) -> None:
    """Bodies larger than a batch of Arrow, responses before their requests, an empty log, a later version."""
    large = b"<a>" + b"x" * (4 << 20) + b"</a>"
    records = [capture(request(1, body=large), at(1), Direction.REQUEST)]
    records += [capture(request(n), at(n), Direction.REQUEST) for n in range(2, 9)]
    records += [capture(response(n), at(n - 0.5), Direction.RESPONSE) for n in range(2, 9)]
    logs = tmp_path / "logs"
    logs.mkdir()
    write_log(logs / "log.jsonl", *records)
    (logs / "empty.jsonl").touch()
    (logs / "later.jsonl").write_text('{"v":2,"time":"2026-11-20T12:00:00Z","message_type":"dream"}\n')
    write_parquet(logs / "large.parquet", [capture(request(30, body=large), at(30), Direction.REQUEST)])
    for engine in ("spark", "local"):
        replay(logs, tmp_path / engine, engine=engine)
    assert_equal(tmp_path / "spark", tmp_path / "local")
    members = summary(tmp_path / "spark")
    assert (members["exchanges"], members["unpaired"]["missingResponses"], members["rejected"]) == (7, 2, 1)


# A process of its own


def test_spark_submit(tmp_path: Path) -> None:
    """The packages go along as an archive; the results are those of a run without Spark."""
    archive = tmp_path / "packages"
    for name in ("soapjms", "brokers"):
        shutil.copytree(ROOT / name, archive / name, ignore=shutil.ignore_patterns("__pycache__"))
    packages = shutil.make_archive(str(tmp_path / "packages"), "zip", archive)
    shutil.rmtree(archive)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--py-files", packages]
    job = [str(ROOT / "examples" / "replay_on_spark.py"), "replay", str(CXF), "--out", str(tmp_path / "spark")]
    with child(str(submit), *options, *job, PYSPARK_PYTHON=sys.executable) as process:
        said, _ = process.communicate(timeout=500)
    assert process.returncode == 1, said  # something in that log failed
    replay(CXF, tmp_path / "local", engine="local")
    assert_equal(tmp_path / "spark", tmp_path / "local")


@pytest.mark.parametrize(
    ("engine", "step"),
    [
        pytest.param("spark", "reading 1 file", marks=pytest.mark.soak),
        ("spark", "judging"),
        pytest.param("spark", "writing the report", marks=pytest.mark.soak),
        ("local", "reading {log} (1 of 1)"),
        ("local", "writing the report"),
    ],
)
def test_a_killed_job(tmp_path: Path, engine: str, step: str) -> None:
    """It leaves the results of the run before; started again, it gives what a run that nobody killed gives."""
    members = [from_json(line) for line in CXF.read_text("utf-8").splitlines()]
    log = write_log(
        tmp_path / "log.jsonl", *members, *[capture(request(n), at(n), Direction.REQUEST) for n in range(300)]
    )
    out, whole = tmp_path / "out", tmp_path / "whole"
    replay(CXF, out, engine="local")
    before = summary(out)
    script = (
        "import sys; from soapjms.replay import replay\n"
        f"stop = lambda text: text == {step.format(log=log)!r} and (print('now', flush=True), sys.stdin.read())\n"
        f"replay({str(log)!r}, {str(out)!r}, engine={engine!r}, progress=stop)"
    )
    with child(sys.executable, "-c", script, PYTHONPATH=str(ROOT)) as process:
        assert process.stdout is not None
        assert "now\n" in iter(process.stdout.readline, "")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    assert summary(out) == before
    assert rows(out, "verdicts")
    wait_for_no_java_of(process.pid)
    replay(log, out, engine="local")
    replay(log, whole, engine="local")
    assert_equal(out, whole)
    assert summary(out)["records"] == len(members) + 300
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".out.")] == []


def test_a_java_that_ends_is_said(tmp_path: Path) -> None:
    """As it does where it has not the memory for very large messages: what may help is named, and no stack shown."""
    script = (
        "import sys; from pyspark import SparkContext; import soapjms.replay.run as batch\n"
        "from soapjms.cli.replay import command\n"
        "run = batch.replay\n"
        "end = lambda text: text == 'judging' and SparkContext._gateway.proc.kill()\n"
        "batch.replay = lambda *words, **options: run(*words, **{**options, 'progress': end})\n"
        f"command([{str(CXF)!r}, '--engine', 'spark', '--out', {str(tmp_path / 'out')!r}])"
    )
    with child(sys.executable, "-c", script, PYTHONPATH=str(ROOT)) as process:
        said, _ = process.communicate(timeout=500)
    assert process.returncode == 2, said
    assert said.startswith("Error: Spark's Java process ended unexpectedly"), said
    assert "--conf spark.driver.memory=4g" in said
    assert said.endswith("Nothing was written.\n"), said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["--local", "--conf=spark.sql.shuffle.partitions=2"])
def test_killed_at_any_moment(tmp_path: Path, engine: str) -> None:
    """What is there afterwards is whole: the results before, or the new ones; the last run has those of any other."""
    log, whole, out = write_log(tmp_path / "log.jsonl", *some_thousand_calls()), tmp_path / "whole", tmp_path / "out"
    replay(CXF, out, engine="local")
    replay(log, whole, engine="local")
    begun = time.monotonic()
    words = [sys.executable, "-m", "soapjms.cli", "replay", str(log), "--out", str(out), engine]
    assert subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode in (0, 1)
    took = time.monotonic() - begun
    for number in range(8):
        replay(CXF, out, engine="local")
        with child(*words, PYTHONPATH=str(ROOT)) as process, suppress(subprocess.TimeoutExpired):
            process.wait(took * (number + 1) / 8)
        process.wait(30)
        wait_for_no_java_of(process.pid)
        results = summary(out) if out.exists() else summary(next(tmp_path.glob(".out.*/former")))
        assert results["records"] in (len(CXF.read_text("utf-8").splitlines()), 8000)
    assert subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode in (0, 1)
    assert_equal(out, whole)
    assert list(tmp_path.glob(".out.*")) == []


def some_thousand_calls() -> list[Record]:
    """Capture calls enough that judging takes seconds."""
    return [
        capture(make(n), at(n), direction)
        for n in range(4000)
        for make, direction in ((request, Direction.REQUEST), (response, Direction.RESPONSE))
    ]


def test_killed_while_results_are_put_in_place(tmp_path: Path) -> None:
    """The former results are out of the way and the new ones not yet there: the next run finishes that first."""
    out = tmp_path / "out"
    replay(CXF, out, engine="local")
    script = (
        "import os, sys; from pathlib import Path; from soapjms.replay import replay\n"
        "rename = Path.rename\n"
        "def slowly(self, target):\n"
        "    if self.name == 'result': print('now', flush=True); sys.stdin.read()\n"
        "    return rename(self, target)\n"
        "Path.rename = slowly\n"
        f"replay({str(CXF)!r}, {str(out)!r}, 'cr-2009', 'local')"
    )
    with child(sys.executable, "-c", script, PYTHONPATH=str(ROOT)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        assert not out.exists()
        assert given_up(out) is None  # one that is at work is left alone
        assert len(list(tmp_path.glob(".out.*/former"))) == 1
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    assert given_up(out) == "cr-2009"
    assert summary(out)["profile"] == "cr-2009"
    assert list(tmp_path.glob(".out.*")) == []


def test_killed_while_its_java_still_writes(tmp_path: Path) -> None:
    """What cannot be removed yet of a run is removed by a later one."""
    for number in range(20):
        left, over = tmp_path / f".out.{number:08}", Event()
        (left / "spark").mkdir(parents=True)
        for name in (LOCK, *(f"spark/{each}.old" for each in range(300))):
            (left / name).touch()
        writer = Thread(target=write_files, args=(left / "spark", over))
        writer.start()
        given_up(tmp_path / "out")
        over.set()
        writer.join()
        given_up(tmp_path / "out")
        assert [*tmp_path.iterdir()] == []


def write_files(folder: Path, over: Event) -> None:
    """Write files into a folder for as long as it is there, or until it is over."""
    number = 0
    with suppress(FileNotFoundError):
        while not over.is_set():
            (folder / str(number)).touch()
            number += 1


def given_up(out: Path) -> str | None:
    """Begin a run and give it up; return by which profile the results that it found were judged."""
    with suppress(ZeroDivisionError), staging(out):
        found = summary(out)["profile"] if out.exists() else None
        raise ZeroDivisionError
    return found


def wait_for_no_java_of(session_id: int) -> None:
    """Wait until the processes of a session that was killed are gone."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(session_id, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("a killed job goes on")
