"""What is read of a folder, and what is said of all else in it: nothing is passed over in silence, nothing waits."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from replay_logs import at, request, write_log

from soapjms.protocol.record import Direction, capture
from soapjms.replay import NoInputError, Summary, replay
from soapjms.replay.follower import follow
from soapjms.replay.inputs import FolderContents, expand, files_below


def log(path: Path, number: int) -> Path:
    """Write a log of one message."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_log(path, capture(request(number), at(number), Direction.REQUEST))


def below(folder: Path) -> list[str]:
    """List the logs of a folder."""
    return [str(path.relative_to(folder)) for path in found(folder).logs]


def found(folder: Path) -> FolderContents:
    """Look into a folder."""
    return files_below(folder, lambda path: False)


def judged(folder: Path, out: Path) -> Summary:
    """Replay without Spark."""
    return replay(folder, out, engine="local")


# Links


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    """Wherever they lead, and through several of them."""
    logs = tmp_path / "logs"
    log(logs / "a.jsonl", 1)
    log(tmp_path / "disk" / "b.jsonl", 2)
    log(tmp_path / "other" / "deep" / "c.jsonl", 3)
    (logs / "disk").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "more").symlink_to("../other")
    assert below(logs) == ["a.jsonl", "disk/b.jsonl", "disk/more/deep/c.jsonl"]
    assert judged(logs, tmp_path / "out").members["messages"] == 3


def test_links_may_lead_in_circles(tmp_path: Path) -> None:
    """To the folder itself, to what is above it, to each other: each log is read once, and the search ends."""
    logs = tmp_path / "logs"
    log(logs / "day" / "a.jsonl", 1)
    log(tmp_path / "beside.jsonl", 2)
    for name in "abcdefgh":
        (logs / name).symlink_to(logs)
        (logs / "day" / name).symlink_to("..")
        (logs / "day" / f"up-{name}").symlink_to(tmp_path)
    assert below(logs) == ["day/a.jsonl", "day/up-a/beside.jsonl"]


def test_a_name_of_its_own_goes_before_links(tmp_path: Path) -> None:
    """A link that comes later, with an earlier name, makes no other log of it."""
    log(tmp_path / "week" / "m.jsonl", 1)
    (tmp_path / "current").symlink_to("week")
    (tmp_path / "week" / "a.jsonl").symlink_to("m.jsonl")
    assert below(tmp_path) == ["week/m.jsonl"]


def test_a_linked_folder_that_is_named_too_is_read_once(tmp_path: Path) -> None:
    """Through the link and as an argument it is the same."""
    log(tmp_path / "disk" / "a.jsonl", 1)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "disk").symlink_to(tmp_path / "disk")
    logs, rejected, _ = expand([tmp_path / "disk", tmp_path / "logs"])
    assert ([Path(each.name) for each in logs], rejected) == ([tmp_path / "disk" / "a.jsonl"], [])


@pytest.mark.parametrize("target", ["nowhere", "dead.jsonl"])
def test_a_log_that_is_a_dead_link_is_rejected(tmp_path: Path, target: str) -> None:
    """It leads nowhere, or to itself."""
    log(tmp_path / "a.jsonl", 1)
    (tmp_path / "dead.jsonl").symlink_to(target)
    (rejected,) = expand([tmp_path]).rejected
    assert rejected.file == str(tmp_path / "dead.jsonl")
    assert rejected.reason.startswith("cannot be opened: ")


# What is no file


def test_what_is_no_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe, a socket and a device that are called as logs are; none of them is waited for."""
    log(tmp_path / "a.jsonl", 1)
    os.mkfifo(tmp_path / "pipe.jsonl.gz")
    (tmp_path / "device.parquet").symlink_to("/dev/zero")
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        monkeypatch.chdir(tmp_path)  # the path of a socket may not be long
        bound.bind("socket.jsonl")
        done = judged(tmp_path, tmp_path / "out")
    assert {Path(each.file).name: each.reason for each in done.rejects} == dict.fromkeys(
        ("pipe.jsonl.gz", "device.parquet", "socket.jsonl"), "cannot be opened: it is no regular file"
    )
    assert (done.members["messages"], done.exit_status) == (1, 1)


# Other files


def test_files_that_are_no_logs_are_told(tmp_path: Path) -> None:
    """By a note with their number and one of their names; by itself it changes nothing."""
    log(tmp_path / "logs" / "a.jsonl", 1)
    for name in ("b.jsonl.zst", "c.json", "deep/notes.txt"):
        (tmp_path / "logs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "logs" / name).touch()
    done = judged(tmp_path / "logs", tmp_path / "out")
    note = done.members["notes"]["otherFile"]
    assert (note["count"], done.exit_status) == (3, 0)
    assert "(.jsonl, .jsonl.gz, .parquet)" in note["text"]
    assert "such as b.jsonl.zst" in note["text"]


def test_what_programs_keep_for_themselves_is_not_told(tmp_path: Path) -> None:
    """Files and folders with a dot or underscore before their name; a log is one wherever it is."""
    for name in (".hidden", "_SUCCESS", ".git/config", "_temporary/0/part"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    log(tmp_path / ".spool" / "a.jsonl", 1)
    assert found(tmp_path).others == []
    assert below(tmp_path) == [".spool/a.jsonl"]


def test_a_file_that_is_named_is_no_other(tmp_path: Path) -> None:
    """What is an argument itself is read, whatever it is called; the results of this run are none of ours."""
    log(tmp_path / "logs" / "a.jsonl", 1)
    odd = log(tmp_path / "logs" / "b.log", 2)
    (tmp_path / "logs" / "out").mkdir()
    (tmp_path / "logs" / "out" / "summary.json").touch()
    logs, rejected, others = expand([tmp_path / "logs", odd], leave_out=tmp_path / "logs" / "out")
    assert (len(logs), rejected, others) == (2, [], [])


# What replays wrote


@pytest.fixture
def with_results(tmp_path: Path) -> Path:
    """A folder of one log, into which replays wrote: results, a checkpoint, and what a killed run leaves."""
    logs = tmp_path / "logs"
    log(logs / "a.jsonl", 1)
    follow(logs, logs / "out", engine="local", every=timedelta(seconds=0.05), until_idle=timedelta(seconds=0.1))
    judged(logs, logs / "deep" / "report")
    shutil.copytree(logs / "out", logs / ".report.1" / "result")
    (logs / ".report.1" / "result" / "summary.json").unlink()
    (logs / ".report.1" / "lock.sqlite").touch()
    return logs


def test_what_replays_wrote_is_no_input(with_results: Path, tmp_path: Path) -> None:
    """It is passed over, with the note that other files get, wherever it is; only the results of this run are not."""
    done = judged(with_results, tmp_path / "out")
    assert (done.members["messages"], done.exit_status, done.rejects) == (1, 0, ())
    note = done.members["notes"]["otherFile"]
    assert (note["count"], "written by a replay" in note["text"]) == (3, True)
    assert set(found(with_results).others) == {with_results / each for each in ("out", "out.checkpoint", "deep/report")}
    again = judged(with_results, with_results / "deep" / "report")
    assert (again.exit_status, again.members["notes"]["otherFile"]["count"]) == (0, 2)
    shells = replay([*with_results.glob("*"), *with_results.glob(".*")], tmp_path / "shells", engine="local")
    assert (shells.members["messages"], shells.exit_status) == (1, 0)


def test_a_log_among_results_is_a_log(with_results: Path, tmp_path: Path) -> None:
    """Only what a replay wrote is passed over, and only where its own summary says that one did."""
    log(with_results / "out" / "b.jsonl", 2)
    log(with_results / "out.checkpoint" / "c.jsonl", 3)
    log(with_results / "others" / "rejected" / "d.jsonl", 4)
    (with_results / "others" / "summary.json").write_text('{"producer": "something else"}')
    assert judged(with_results, tmp_path / "out").members["messages"] == 4


def test_a_database_called_like_ours(tmp_path: Path) -> None:
    """Its name alone does not make a folder of logs the scratch folder of a run."""
    log(tmp_path / "a.jsonl", 1)
    (tmp_path / "lock.sqlite").touch()
    assert below(tmp_path) == ["a.jsonl"]
    (tmp_path / "result").mkdir()
    assert below(tmp_path) == []


def test_what_is_left_out_is_not_searched(with_results: Path) -> None:
    """Results among it are not those of another run."""
    left_out = ("out", "out.checkpoint", "deep", ".report.1")
    found = files_below(
        with_results, lambda path: any(with_results / each in (path, *path.parents) for each in left_out)
    )
    assert ([each.name for each in found.logs], found.others, found.has_results) == (["a.jsonl"], [], False)


def test_a_summary_that_is_a_pipe(tmp_path: Path) -> None:
    """It is not waited for."""
    log(tmp_path / "a.jsonl", 1)
    os.mkfifo(tmp_path / "summary.json")
    assert below(tmp_path) == ["a.jsonl"]


def test_only_results(with_results: Path, tmp_path: Path) -> None:
    """An error says that this is no folder of logs."""
    for name in ("out", "out.checkpoint", "deep"):
        with pytest.raises(
            NoInputError, match=rf"{name}: the folder holds results of a replay, and no logs; a capture"
        ):
            judged(with_results / name, tmp_path / "new")


def test_results_in_the_folder_of_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By any name of it, they are refused with what would be right; the log stays."""
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "logs" / "day" / "a.jsonl", 1)
    for argument in ("logs", "logs/day", str(tmp_path / "logs"), f"file://{tmp_path}/logs"):
        with pytest.raises(
            NoInputError, match=r"logs.*: results must not go into the folder of the logs; name another"
        ):
            replay(argument, "logs", engine="local")
    assert below(tmp_path) == ["logs/day/a.jsonl"]
