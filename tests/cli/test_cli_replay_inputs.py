"""`soapjms replay` on bad input, as a user types it: what is judged, what is rejected, how it ends, in what memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_kit import command, environment
from replay_logs import assert_equal, assert_same, at, request, response, rows, summary, write_log

from soapjms.protocol.record import Direction, Record, capture, to_json
from soapjms.replay.parquet import RECORDS, to_batch, to_row

MEBIBYTE = 1 << 20


def calls(*numbers: int) -> list[Record]:
    """Capture calls that keep the rules, one a second."""
    return [
        each
        for n in numbers
        for each in (
            capture(request(n), at(n), Direction.REQUEST),
            capture(response(n), at(n + 0.5), Direction.RESPONSE),
        )
    ]


def octets(*records: Record) -> bytes:
    """Return records as lines."""
    return "".join(to_json(each) + "\n" for each in records).encode()


def truncated_gzip(logs: Path) -> None:
    """A recorder was killed while it wrote: the last quarter is missing."""
    whole = gzip.compress(octets(*calls(*range(200))))
    (logs / "log.jsonl.gz").write_bytes(whole[: len(whole) * 3 // 4])


def foreign_files(logs: Path) -> None:
    """Files of other names are left alone; those with the names of logs are rejected for what they hold."""
    (logs / "deep").mkdir()
    write_log(logs / "deep" / "log.jsonl", *calls(1, 2))
    (logs / "notes.txt").write_text("not a log")
    (logs / "service.log").write_bytes(os.urandom(4096))
    (logs / "picture.jsonl").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 100)
    (logs / "list.jsonl").write_text("[1, 2, 3]\n")
    (logs / "table.parquet").write_text("no, thanks")
    (logs / "page.jsonl.gz").write_text("<html>not found</html>\n")


def mixed_versions(logs: Path) -> None:
    """Records of a version that is not known yet stand among those that are."""
    lines = octets(*calls(*range(10))).splitlines()
    for number in (3, 8):
        lines[number] = json.dumps({**json.loads(lines[number]), "v": 2}).encode()
    lines.append(b'{"v": 99, "shape": "all new"}')
    (logs / "log.jsonl").write_bytes(b"\n".join(lines))


def an_empty_log(logs: Path) -> None:
    """Nothing was captured: in lines, and in columns."""
    (logs / "log.jsonl").touch()
    pq.write_table(RECORDS.empty_table(), logs / "log.parquet")


def backward_clocks(logs: Path) -> None:
    """The service's clock is behind: responses are captured before their requests, and the log runs backwards."""
    records = [each for n in range(20) for each in calls(20 - n)]
    early = [capture(response(n), at(n - 2), Direction.RESPONSE) for n in range(30, 40)]
    late = [capture(request(n), at(n), Direction.REQUEST) for n in range(30, 40)]
    write_log(logs / "log.jsonl", *late, *early, *records)


def has_broken_off(found: dict[str, Any], refused: list[dict[str, Any]]) -> None:
    """What is before the break is judged; that something is missing is said once, with the file."""
    assert 100 < found["records"] < 400
    assert found["rejected"] <= 2  # the break, and half a line before it
    assert any("gzip" in each["reason"] for each in refused)


def has_left_out_others(found: dict[str, Any], refused: list[dict[str, Any]]) -> None:
    """Only what is called a log is read."""
    assert found["exchanges"] == 2
    names = {Path(each["file"]).name for each in refused}
    assert names == {"picture.jsonl", "list.jsonl", "table.parquet", "page.jsonl.gz"}


def has_named_versions(found: dict[str, Any], refused: list[dict[str, Any]]) -> None:
    """Each is rejected with its line and its version; the others are judged."""
    assert (found["records"], found["exchanges"], found["rejected"]) == (18, 8, 3)
    assert [each["line"] for each in refused] == [4, 9, 21]
    assert all("version" in each["reason"] for each in refused)


def has_nothing(found: dict[str, Any], refused: list[dict[str, Any]]) -> None:
    """It does not pass, and nothing failed."""
    assert (found["verdict"], found["records"], found["rejected"]) == ("nothingToJudge", 0, 0)


def has_paired_all(found: dict[str, Any], refused: list[dict[str, Any]]) -> None:
    """Each call is one; how long those took whose clocks disagree is not counted, and said."""
    assert (found["exchanges"], found["rejected"], sum(found["unpaired"].values())) == (30, 0, 0)
    assert (found["latency"]["measured"], found["latency"]["backwards"]) == (20, 10)


CASES: tuple[tuple[Callable[[Path], None], Callable[[dict[str, Any], list[dict[str, Any]]], None], int], ...] = (
    (truncated_gzip, has_broken_off, 1),
    (foreign_files, has_left_out_others, 1),
    (mixed_versions, has_named_versions, 1),
    (an_empty_log, has_nothing, 0),
    (backward_clocks, has_paired_all, 0),
)


MEASURED = (
    "import resource, subprocess, sys\n"
    "status = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode\n"
    "print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)
"""A process is told the memory of those below it only where it is small itself: they begin with what it has."""


FOLLOWED = ("--follow", "logs", "--until-idle", "0")


def replayed(cwd: Path, *options: str, logs: tuple[str, ...] = ("logs",)) -> tuple[int, int]:
    """Replay logs/ into out/ in a process of its own; return how it ended, and its memory at its highest in KiB."""
    words = [sys.executable, "-c", MEASURED, *command("replay", *logs, "--out", "out", *options)]
    with (cwd / "said").open("wb") as said:
        done = subprocess.run(words, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=said, check=True)
    assert b"Traceback" not in (cwd / "said").read_bytes()
    status, memory = map(int, done.stdout.split())
    return status, memory


@pytest.mark.parametrize(("write", "check", "status"), CASES, ids=[each[0].__name__ for each in CASES])
def test_bad_input(
    tmp_path: Path,
    write: Callable[[Path], None],
    check: Callable[[dict[str, Any], list[dict[str, Any]]], None],
    status: int,
) -> None:
    """Nothing of it ends the run, and nothing is lost in silence: what is not judged is in rejected/."""
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs")
    assert replayed(tmp_path, "--local")[0] == status, (tmp_path / "said").read_text("utf-8")
    refused = sorted(rows(tmp_path / "out", "rejected"), key=lambda each: (each["file"], each["line"] or 0))
    check(summary(tmp_path / "out"), refused)


@pytest.mark.spark
def test_bad_input_on_spark(tmp_path: Path) -> None:
    """All of it in one run has the results that it has without Spark."""
    for write, _, _ in CASES:
        (tmp_path / "logs" / write.__name__).mkdir(parents=True)
        write(tmp_path / "logs" / write.__name__)
    assert replayed(tmp_path, "--engine", "spark")[0] == 1, (tmp_path / "said").read_text("utf-8")
    (tmp_path / "out").rename(tmp_path / "spark")
    assert replayed(tmp_path, "--local")[0] == 1
    assert_equal(tmp_path / "spark", tmp_path / "out")


@pytest.mark.soak
@pytest.mark.spark
def test_bad_input_that_is_followed(tmp_path: Path) -> None:
    """Nothing of it ends the run; what is judged and what is rejected are those of a replay."""
    for write, _, _ in CASES:
        (tmp_path / "logs" / write.__name__).mkdir(parents=True)
        write(tmp_path / "logs" / write.__name__)
    assert replayed(tmp_path, "--engine", "spark", logs=FOLLOWED)[0] == 1, (tmp_path / "said").read_text("utf-8")
    (tmp_path / "out").rename(tmp_path / "followed")
    assert replayed(tmp_path, "--local")[0] == 1
    assert_same(tmp_path / "followed", tmp_path / "out")


def write_large(logs: Path, form: str) -> None:
    """Write six calls whose requests have bodies of 50 MiB each."""
    body = "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body><a>{}</a></s:Body></s:Envelope>"
    large = [capture(request(n, body=body.format("x" * (50 * MEBIBYTE)).encode()), at(n)) for n in range(6)]
    answers = [capture(response(n), at(n + 0.5), Direction.RESPONSE) for n in range(6)]
    if form == "parquet":
        with pq.ParquetWriter(logs / "log.parquet", RECORDS) as writer:
            for each in (*large, *answers):
                writer.write_batch(to_batch([tuple(to_row(each).values())], RECORDS))
    else:
        write_log(logs / "log.jsonl", *large, *answers)


@pytest.mark.soak
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_bodies_of_50_mib(tmp_path: Path, form: str) -> None:
    """They are judged one after the other: six take no more memory than a few copies of one."""
    (tmp_path / "logs").mkdir()
    write_large(tmp_path / "logs", form)
    status, memory = replayed(tmp_path, "--local")
    assert (status, summary(tmp_path / "out")["exchanges"]) == (0, 6), (tmp_path / "said").read_text("utf-8")
    print(f"{form}: {memory >> 10} MiB")
    assert memory < 1200 << 10


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_bodies_of_50_mib_on_spark(tmp_path: Path, form: str) -> None:
    """A gibibyte for Java, and one for each of the two workers, is enough."""
    (tmp_path / "logs").mkdir()
    write_large(tmp_path / "logs", form)
    limits = ("spark.driver.memory=1g", "spark.executor.pyspark.memory=2g")
    status, _ = replayed(tmp_path, *(word for each in limits for word in ("--conf", each)))
    assert (status, summary(tmp_path / "out")["exchanges"]) == (0, 6), (tmp_path / "said").read_text("utf-8")


@pytest.mark.soak
@pytest.mark.spark
def test_bodies_of_50_mib_that_are_followed(tmp_path: Path) -> None:
    """A gibibyte for Java is enough here too: what is held is compressed."""
    (tmp_path / "logs").mkdir()
    write_large(tmp_path / "logs", "jsonl")
    status, _ = replayed(tmp_path, "--conf", "spark.driver.memory=1g", logs=FOLLOWED)
    assert (status, summary(tmp_path / "out")["exchanges"]) == (0, 6), (tmp_path / "said").read_text("utf-8")
