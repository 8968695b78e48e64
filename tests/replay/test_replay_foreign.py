"""Files that are no capture logs: each is told in one line, with its name and what a log is."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import run
from places import ROOT
from replay_logs import CXF, rows, summary

import soapjms
from soapjms.generate import generate
from soapjms.replay import NoInputError, replay

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 40
WSDL = (ROOT / "examples" / "greeter.wsdl").read_bytes()
CSV = b"time,queue,id\n" + b"12:00,orders,7\n" * 1000
LOG = CXF.read_bytes()
A_LOG = "a capture log has a JSON object with a member v in each line, plain or compressed with gzip, or is Parquet"

FOREIGN = {
    "photo.png": (PNG, r"it begins with '\x89PNG\r\n"),
    "bank.wsdl": (WSDL, "it begins with '<"),
    "one-line.xml": (b"<log>" + b"x" * 10_000 + b"</log>", "it begins with '<log>"),
    "table.csv": (CSV, "it begins with 'time,queue,id"),
    "word.txt": (b"hello", "it begins with 'hello'"),
    "table.csv.gz": (gzip.compress(CSV), "its compressed content begins with 'time,queue,id"),
    "word.gz": (gzip.compress(b"hello"), "its compressed content begins with 'hello'"),
    "object.jsonl": (b'{"a":1}', "it begins with '{\"a\":1}'"),
    "settings.json": (b'{\n  "a": 1\n}\n', "it begins with '{\\n"),
    "other.jsonl": (b'{"level": "INFO", "text": "started"}\n' * 1000, 'it begins with \'{"level": "INFO'),
    "other.jsonl.gz": (gzip.compress(b'{"a":1}\n'), 'its compressed content begins with \'{"a":1}'),
    "photo.gz": (gzip.compress(PNG), r"its compressed content begins with '\x89PNG"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_something_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a mistake in the usage; nothing is written."""
    monkeypatch.chdir(tmp_path)
    octets, seen = FOREIGN[name]
    Path(name).write_bytes(octets)
    done = run("replay", name, "--out", "out")
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("Error: ")]
    assert line.startswith(f"Error: no input can be read: {name}: no capture log: {seen}")
    assert f"; {A_LOG}" in line
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_folder_without_logs(tmp_path: Path) -> None:
    """It says which files would be read."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "photo.png").write_bytes(PNG)
    done = run("replay", tmp_path / "logs", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "logs: the folder holds no .jsonl, .jsonl.gz or .parquet file; a capture log has" in done.stderr


def test_parquet_of_something_else(tmp_path: Path) -> None:
    """It says which columns are missing."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "table.parquet")
    done = run("replay", tmp_path / "table.parquet", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "table.parquet: a Parquet file of something else: it has no column" in done.stderr


def test_beside_logs(tmp_path: Path) -> None:
    """If it was named, it is one rejected row, and the rest is judged; an empty log among others is fine."""
    for name, (octets, _) in FOREIGN.items():
        (tmp_path / name).write_bytes(octets)
    (tmp_path / "empty.jsonl").touch()
    replay([CXF, *(tmp_path / name for name in [*FOREIGN, "empty.jsonl"])], tmp_path / "out", engine="local")
    refused = rows(tmp_path / "out", "rejected")
    assert {Path(each["file"]).name for each in refused} == FOREIGN.keys()
    assert len(refused) == len(FOREIGN)
    assert summary(tmp_path / "out")["messages"] == 26


def test_in_a_folder_of_logs(tmp_path: Path) -> None:
    """Its lines are rejected one by one, as by --follow, which cannot know how a file goes on; alone it is no log."""
    (tmp_path / "table.jsonl").write_bytes(CSV)
    with pytest.raises(NoInputError, match=r"table\.jsonl: no capture log: it begins with 'time,queue,id"):
        replay(tmp_path, tmp_path / "out", engine="local")
    (tmp_path / "log.jsonl").write_bytes(LOG)
    replay(tmp_path, tmp_path / "out", engine="local")
    assert summary(tmp_path / "out")["rejected"] == CSV.count(b"\n")


def test_a_torn_log_is_a_log(tmp_path: Path) -> None:
    """Its first lines are no whole records; they may be longer than what is looked at first. So may be a blank log, or
    what stands before the version."""
    whole, _, rest = LOG.partition(b"\n")
    late = b'{"meta": {"note": "' + b"x" * 9000 + b'"}, ' + whole.lstrip()[1:] + b"\n" + rest
    begun = whole[50:] + b"\n" + rest, b"x" * 9000 + b"\n" + LOG, b"\n" * 9000 + LOG, b'{"a":1}\n' * 2 + late, late
    for number, torn in enumerate(begun):
        (tmp_path / "torn.jsonl").write_bytes(torn)
        replay(tmp_path / "torn.jsonl", tmp_path / f"{number}", engine="local")
        assert summary(tmp_path / f"{number}")["messages"] >= 25
    (tmp_path / "blank.jsonl").write_bytes(b"\n")
    assert replay(tmp_path / "blank.jsonl", tmp_path / "blank", engine="local").members["verdict"] == "nothingToJudge"


def record_nothing(path: Path) -> None:
    """Write the log of a recorder that saw no message."""
    with soapjms.Recorder(path):
        pass


EMPTY_LOGS: dict[str, Callable[[Path], object]] = {
    "none.jsonl": record_nothing,
    "none.jsonl.gz": record_nothing,
    "made": lambda path: generate(path.parent / "jsonl", 0).files[0].parent.rename(path),
    "made-gzip": lambda path: generate(path.parent / "gzip", 0, form="gzip").files[0].parent.rename(path),
    "made-parquet": lambda path: generate(path.parent / "parquet", 0, form="parquet").files[0].parent.rename(path),
}


@pytest.mark.parametrize("engine", ["local", "exact"])
@pytest.mark.parametrize("name", EMPTY_LOGS)
def test_a_log_without_messages(name: str, engine: str, tmp_path: Path) -> None:
    """There is nothing to judge in what we write if no message comes; a note says so."""
    EMPTY_LOGS[name](tmp_path / name)
    done = run("replay", tmp_path / name, "--engine", engine, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert done.stdout.startswith("NOTHING TO JUDGE")
    assert "note: the logs have no records: no message was captured (once)" in done.stdout
    assert summary(tmp_path / "out")["verdict"] == "nothingToJudge"


def test_an_empty_log_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    """What was rejected counts."""
    (tmp_path / "none.jsonl").touch()
    done = replay([tmp_path / "none.jsonl", tmp_path / "missing.jsonl"], tmp_path / "out", engine="local")
    assert (done.exit_status, len(done.rejects), "noRecords" in done.members["notes"]) == (1, 1, False)


@pytest.mark.parametrize("text", ['{"a": 1}\n', '{"a": 1}\n' * 20, '{"a": 1}'])
def test_json_of_something_else(tmp_path: Path, text: str) -> None:
    """Objects without the member v are no records: one line says so, and nothing is judged."""
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(NoInputError, match="no capture log: it begins with"):
        replay(tmp_path / "x.jsonl", tmp_path / "out", engine="local")
    assert not (tmp_path / "out").exists()
