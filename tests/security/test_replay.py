"""Capture logs of strangers: a small file is small work, in whatever engine and tool."""

from __future__ import annotations

import gzip
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import process_time

import pytest
from cli_kit import command, environment
from replay_logs import at, request, rows, summary

from brokers import properties
from soapjms import Recorder
from soapjms.protocol.errors import InvalidRecordError, UsageError
from soapjms.protocol.record import Direction, capture, to_json
from soapjms.replay import replay
from soapjms.replay.engines import EngineName
from soapjms.replay.follower import follow
from soapjms.replay.inputs import Split, expand, whole
from soapjms.replay.records import OCTETS_OF_LINE, SPARE_LINES, CapturedRecord, RejectedRow, read, read_columns
from soapjms.replay.report.files import rewrite
from soapjms.testing.traffic import read_log

RECORD = to_json(capture(request(1), at(1), Direction.REQUEST)).encode()
SECRET = "s3cret-of-ann"
LINES = 32 << 20
SECONDS = 8.0
"""Of the processor, on a busy machine; without a bound it is 24 for blank lines, and minutes for others."""


def bomb(folder: Path, line: bytes, *, compressed: bool = True) -> Path:
    """Write a record, 32 MiB of lines that are none, and another record."""
    path = folder / ("log.jsonl.gz" if compressed else "log.jsonl")
    octets = RECORD + b"\n" + line * (LINES // len(line)) + RECORD + b"\n"
    path.write_bytes(gzip.compress(octets, 9) if compressed else octets)
    return path


def part(path: Path) -> Split:
    """Return a log as one part."""
    return whole(expand([path]).logs[0])


@pytest.mark.parametrize("line", [b"\n", b" \t\r\n", b"0\n", b"{\n", b"\xff\n"])
@pytest.mark.parametrize("reader", [read, read_columns])
def test_lines_that_are_no_records(reader: object, line: bytes, tmp_path: Path) -> None:
    """They are read up to a limit that goes by the file as it is stored; that the rest is not read is told."""
    path = bomb(tmp_path, line)
    assert path.stat().st_size < 100_000
    before, found, told = process_time(), 0, ""
    for each in (read if reader is read else read_columns)(part(path)):
        found += not isinstance(each, RejectedRow)
        told = each.reason if isinstance(each, RejectedRow) else told
    assert process_time() - before < SECONDS
    limit = SPARE_LINES + path.stat().st_size // OCTETS_OF_LINE
    assert (found, told) == (1, f"more than {limit} lines are blank or no records; those from here on are not read")


def test_replay(tmp_path: Path) -> None:
    """A replay judges what was read, says what was not, and ends as one with a rejected record."""
    before = process_time()
    replay([bomb(tmp_path, b"\n")], tmp_path / "out", engine="local")
    assert process_time() - before < SECONDS
    [told] = rows(tmp_path / "out", "rejected")
    assert "lines are blank or no records" in told["reason"]
    assert (summary(tmp_path / "out")["records"], summary(tmp_path / "out")["rejected"]) == (1, 1)


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
def test_replay_on_spark(tmp_path: Path) -> None:
    """So it is on Spark."""
    replay([bomb(tmp_path, b"\n")], tmp_path / "out", engine="spark")
    [told] = rows(tmp_path / "out", "rejected")
    assert "lines are blank or no records" in told["reason"]


def test_following(engine: EngineName, tmp_path: Path) -> None:
    """Nor does a run that follows a folder read more of such a log; another log in it is judged."""
    logs = tmp_path / "logs"
    logs.mkdir()
    bomb(logs, b"\n")
    (logs / "sound.jsonl").write_bytes(RECORD + b"\n")
    before = process_time()
    follow(logs, tmp_path / "out", engine=engine, until_idle=timedelta(0), every=timedelta(milliseconds=50))
    assert process_time() - before < SECONDS
    [told] = rows(tmp_path / "out", "rejected")
    assert "lines are blank or no records; those from here on are not read" in told["reason"]
    assert (summary(tmp_path / "out")["records"], summary(tmp_path / "out")["rejected"]) == (2, 1)


def test_plain(tmp_path: Path) -> None:
    """What is large as it is stored has a limit that grows with it, in each part of it too."""
    path = bomb(tmp_path, b"\n", compressed=False)
    found = list(read(part(path)))
    assert [type(each) for each in found] == [CapturedRecord, RejectedRow]


def test_blank_lines_of_a_log(tmp_path: Path) -> None:
    """A log with a blank line behind each record is one, compressed too."""
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress((RECORD + b"\n\n") * 20_000))
    assert sum(isinstance(each, CapturedRecord) for each in read(part(path))) == 20_000


def test_traffic_of_tests(tmp_path: Path) -> None:
    """The reader of `soapjms.testing` has a limit too, and holds one line at a time."""
    before = process_time()
    with pytest.raises(InvalidRecordError, match="more than 100000 lines are blank"):
        read_log(bomb(tmp_path, b"\n"))
    assert process_time() - before < SECONDS
    with pytest.raises(InvalidRecordError, match="line 2:"):
        read_log(bomb(tmp_path, b"0\n"))
    path = tmp_path / "sound.jsonl"
    path.write_bytes(RECORD + b"\r\n\n" + RECORD + os.linesep.encode())
    assert len(read_log(path)) == 2


@pytest.mark.spark
@pytest.mark.usefixtures("one_spark")
@pytest.mark.parametrize("uri", ["s3a://u:S3CRET@127.0.0.1:1/log.jsonl", "hdfs://u:S3CRET@127.0.0.1:1/log.jsonl"])
def test_login_of_a_uri(uri: str, tmp_path: Path) -> None:
    """What is said of a URI that cannot be read has no password in it, in no file either."""
    (tmp_path / "log.jsonl").write_bytes(RECORD + b"\n")
    replay([tmp_path / "log.jsonl", uri], tmp_path / "out", engine="spark")
    assert rows(tmp_path / "out", "rejected")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file() and b"S3CRET" in path.read_bytes()]
    assert "S3CRET" not in str(rows(tmp_path / "out", "rejected"))


@pytest.mark.parametrize(
    "name",
    ["ftp://u:S3CRET@127.0.0.1:1/x", "nowhere://u:S3CRET@x", "http://127.0.0.1:1/x.jsonl?Signature=S3CRET"],
)
def test_login_of_a_name(name: str, tmp_path: Path) -> None:
    """Without Spark likewise, whatever the file system says; an address of the web may have its login at its end."""
    with pytest.raises(UsageError, match="cannot be opened: ") as error:
        replay([name], tmp_path / "out", engine="local")
    assert "S3CRET" not in str(error.value)


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """Have files that are made be everybody's, unless the program says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def unmasked(tmp_path: Path) -> Path:
    """A folder with a log of which nothing was hidden: its request fails, and the report quotes a password."""
    logs = tmp_path / "logs"
    logs.mkdir()
    bad = replace(request(1), properties=properties({"SOAPJMS_bindingVersion": SECRET}))
    with Recorder(logs / "log.jsonl", mask=None) as recorder:
        recorder.record(bad)
    return logs


def check_is_its_owners(out: Path) -> None:
    """See that nobody else reads results, and that they hold something that is not for others."""
    found = [out, *out.rglob("*")]
    assert {each.name: oct(each.stat().st_mode & 0o777) for each in found} == {
        each.name: oct(0o700 if each.is_dir() else 0o600) for each in found
    }
    assert SECRET in (out / "report.html").read_text("utf-8")
    assert list(out.rglob("*.parquet"))


@pytest.mark.usefixtures("open_to_all")
def test_results_are_their_owners(engine: EngineName, unmasked: Path, tmp_path: Path) -> None:
    """A new folder, one that takes the place of an earlier one that was open to all, and a page that is made again."""
    out = tmp_path / "out"
    replay([unmasked], out, engine=engine)
    check_is_its_owners(out)
    for each in (out, *out.rglob("*")):
        each.chmod(0o777)
    rewrite(out)
    assert (out / "report.html").stat().st_mode & 0o777 == 0o600
    replay([unmasked], out, engine="local")
    check_is_its_owners(out)


@pytest.mark.spark
@pytest.mark.usefixtures("open_to_all")
@pytest.mark.parametrize("where", [None, pytest.param("elsewhere", marks=pytest.mark.soak)])
def test_what_spark_moves_is_its_owners(where: str | None, unmasked: Path, tmp_path: Path) -> None:
    """Also while it is on the way, in files of Spark: in the folder beside the results, and where the user wants it."""
    variables = {"SPARK_LOCAL_DIRS": str(tmp_path / where)} if where else {}
    words = command("replay", unmasked, "--engine", "spark", "--out", tmp_path / "out")
    modes = dict[Path, int]()
    with subprocess.Popen(words, env=environment(**variables), stdout=subprocess.DEVNULL) as run:
        while run.poll() is None:
            with suppress(FileNotFoundError):  # it was removed meanwhile
                found = (*tmp_path.rglob("shuffle_*"), *tmp_path.rglob("rdd_*"))
                modes |= {each: each.stat().st_mode & 0o777 for each in found}
            time.sleep(0.02)
    assert run.returncode == 1  # for what it found
    assert {each.relative_to(tmp_path).parts[0] == where for each in modes} == {where is not None}
    assert set(modes.values()) == {0o600}
    assert [*tmp_path.rglob("blockmgr-*")] == []


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_each_run_of_a_process_keeps_its_own(unmasked: Path, tmp_path: Path) -> None:
    """A run does not use the folder of the one before, which is gone."""
    for name in ("first", "second"):
        seen: list[Path] = []
        look = partial(look_for_blocks, tmp_path, seen)
        replay([unmasked], tmp_path / name / "out", engine="spark", progress=look)
        assert {each.relative_to(tmp_path).parts[0] for each in seen} == {name}


def look_for_blocks(folder: Path, seen: list[Path], _: str) -> None:
    """Note where Spark keeps what it moves."""
    seen.extend(folder.rglob("blockmgr-*"))


@pytest.mark.usefixtures("open_to_all")
def test_what_following_keeps_is_its_owners(engine: EngineName, unmasked: Path, tmp_path: Path) -> None:
    """Likewise; and nobody else enters the checkpoint, also one that is there and was open to all."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    checkpoint.mkdir()
    follow(
        unmasked, out, engine=engine, checkpoint=checkpoint, until_idle=timedelta(0), every=timedelta(milliseconds=50)
    )
    check_is_its_owners(out)
    assert checkpoint.stat().st_mode & 0o777 == 0o700
    assert not (checkpoint / "temporary").exists()
