"""File systems of fsspec that fail, and that are unlike that of this machine: nothing is lost without a word."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec  # type: ignore[import-untyped]
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from replay_logs import CXF, assert_same_reports, rows

from soapjms.protocol.errors import UsageError
from soapjms.replay import Summary, engines, inputs, local, remote_files, remote_results, replay, run
from soapjms.replay.inputs import expand
from soapjms.replay.remote_files import name_of
from soapjms.replay.uris import shown, without_here


class WeakFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory, in which some operations fail.

    Attributes:
        failing: names of methods with the beginning of a path, for which they fail; and how often, if not always.
    """

    protocol = "weak"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failing: ClassVar[dict[tuple[str, str], float]] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace("weak://", "memory://"))

    def _may_fail(self, method: str, path: str) -> None:
        for (name, beginning), times in self.failing.items():
            if name == method and self._strip_protocol(path).startswith(beginning) and times > 0:
                self.failing[name, beginning] = times - 1
                raise PermissionError("not for you, see http://u:S3CRET@h/?sig=S3CRET")

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """List a folder."""
        self._may_fail("ls", path)
        return super().ls(path, detail, **options)

    def info(self, path: str, **options: Any) -> Any:
        """Tell of a file."""
        self._may_fail("info", path)
        return super().info(path, **options)

    def put_file(self, local: str, path: str, **options: Any) -> None:
        """Copy a file from this machine."""
        self._may_fail("put_file", path)
        super().put_file(local, path, **options)


ALWAYS = float("inf")


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> Iterator[WeakFileSystem]:
    """Register the file system, which is empty."""
    fsspec.register_implementation("weak", WeakFileSystem, clobber=True)
    monkeypatch.setattr(WeakFileSystem, "store", {})
    monkeypatch.setattr(WeakFileSystem, "pseudo_dirs", [""])
    monkeypatch.setattr(WeakFileSystem, "failing", {})
    yield fsspec.filesystem("weak")
    WeakFileSystem.clear_instance_cache()


def put(system: WeakFileSystem, *paths: str) -> None:
    """Write logs with one record each."""
    for number, path in enumerate(paths):
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        system.pipe_file(path, CXF.read_bytes().splitlines(keepends=True)[number % 6])


def names(*uris: str, **options: Any) -> list[str]:
    """Return the names of the logs that URIs lead to, and of what is rejected, with the reason, in order."""
    found = expand(uris, **options)
    assert "S3CRET" not in repr(found)
    return sorted([each.name for each in found.logs] + [f"{each.file}: {each.reason}" for each in found.rejected])


DENIED = f"{inputs.CLOSED}: not for you, see http://***@h/?…"


@pytest.mark.parametrize(
    "uri", ["weak:///l", "weak:///l/**", "weak:///l/**/*.jsonl", "weak:///l/*/*.jsonl", "weak:///l/*"]
)
def test_a_folder_that_cannot_be_listed(weak: WeakFileSystem, uri: str) -> None:
    """However deep it is, and however it was come by, it is among the rejected."""
    put(weak, "/l/good/a.jsonl", "/l/bad/b.jsonl")
    weak.failing["ls", "/l/bad"] = ALWAYS
    assert names(uri) == [f"weak:///l/bad: {DENIED}", "weak:///l/good/a.jsonl"]


def test_globs_are_those_of_this_machine(weak: WeakFileSystem, tmp_path: Path) -> None:
    """Wildcards stand for no dot, in no part of a path; `**` stands for any number of folders."""
    paths = [
        *(
            "a.jsonl",
            ".b.jsonl",
            "deep/c.jsonl",
            "deep/er/d.jsonl",
            ".hidden/e.jsonl",
            "deep/.hidden/f.jsonl",
            "x/g.txt",
        ),
        *("[1]/h.jsonl", "a b/i.jsonl", "ä/j.jsonl", "x/_k.jsonl"),
    ]
    put(weak, *(f"/l/{each}" for each in paths))
    for each in paths:
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CXF, tmp_path / each)
    for pattern in (
        *("", "/", "/*", "/*.jsonl", "/**/*.jsonl", "/**", "/*/*", "/d*/**/d.jsonl", "/deep/**", "/.*", "/.h*/*"),
        *("/[[]1]/*", "/[1]", "/? ?/*.jsonl", "/**/[!a]*.jsonl", "/none", "/none/*", "/*/none", "/**/er/*", "/x/_*"),
    ):
        here, there = expand([f"{tmp_path}{pattern}"]), expand([f"weak:///l{pattern}"])
        assert [each.name.replace("weak:///l", "") for each in there.logs] == [
            each.name.replace(str(tmp_path), "") for each in here.logs
        ], pattern
        assert len(here.rejected) == len(there.rejected)
        assert sorted(here.others) == sorted(there.others)


def test_a_log_is_read_once(weak: WeakFileSystem) -> None:
    """However it is named."""
    put(weak, "/l/a.jsonl", "/l/b.jsonl")
    assert len(names("weak:///l", "weak://l", "weak:///l/a.jsonl", "weak:///l/*", "weak:///l/")) == 2


def test_what_is_no_log_is_told(weak: WeakFileSystem) -> None:
    """A folder without any, a foreign file that is named, a chain of URIs, and a scheme that nobody knows."""
    weak.makedirs("/empty")
    weak.pipe_file("/a.png", b"\x89PNG\r\n\x1a\n")
    found = names("weak:///empty", "weak:///a.png", "nonsense://a/x")
    assert found[0] == "nonsense://a/x: cannot be opened: Protocol not known: nonsense"
    assert found[1].startswith(f"weak:///a.png: {inputs.NO_LOG}: it begins with ")
    assert found[2] == f"weak:///empty: {inputs.NO_LOGS}"
    with pytest.raises(UsageError, match=r"^zip://.*: files within archives \(::\) are not read"):
        expand(["zip://a.jsonl::weak:///a.zip"])


def test_what_replays_wrote_is_no_input(weak: WeakFileSystem, tmp_path: Path) -> None:
    """It is passed over with a note, as on this machine, and an error says if there is nothing else."""
    put(weak, "/l/a.jsonl", "/l/deep/b.jsonl")
    replay("weak:///l", "weak:///l/out", engine="local")
    replay("weak:///l", "weak:///l/deep/.out", engine="local")
    log = weak.cat_file("/l/a.jsonl")
    weak.pipe_file("/l/out/c.jsonl", log)
    assert names("weak:///l") == [f"weak:///l/{each}" for each in ("a.jsonl", "deep/b.jsonl", "out/c.jsonl")]
    assert expand(["weak:///l"]).others == ["out"]
    weak.rm_file("/l/out/c.jsonl")
    assert names("weak:///l/*") == ["weak:///l/a.jsonl", "weak:///l/deep/b.jsonl"]
    assert names("weak:///l/out") == [f"weak:///l/out: {inputs.ONLY_RESULTS}"]
    assert names("weak:///l", leave_out="weak:///l/out") == ["weak:///l/a.jsonl", "weak:///l/deep/b.jsonl"]
    assert expand(["weak:///l"], leave_out="weak:///l/out").others == []
    assert names("weak:///l/deep", leave_out="weak:///l") == [f"weak:///l/deep: {inputs.OUTPUT}"]


def test_links_to_folders(tmp_path: Path) -> None:
    """They may lead in circles, so they are told, and not followed; links to files are read."""
    shutil.copy(CXF, tmp_path / "cxf.jsonl")
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "circle").symlink_to(tmp_path / "l")
    (tmp_path / "l" / "a.jsonl").symlink_to(tmp_path / "cxf.jsonl")
    os.mkfifo(tmp_path / "l" / "p.jsonl")
    assert len(names(f"local://{tmp_path}/l/a*")) == 1
    found = names(f"local://{tmp_path}/l")
    assert found.pop().endswith(f"/l/p.jsonl: {inputs.CLOSED}: it is no regular file")
    assert found[0].endswith("/l/a.jsonl")
    assert found[1].endswith(
        "/l/circle: the folder cannot be listed: it is a link to a folder, which is not followed; name it by itself"
    )


@pytest.mark.parametrize(
    ("uri", "start", "path", "name"),
    [
        ("s3://b/logs/", "b/logs", "b/logs/a", "s3://b/logs/a"),
        ("ftp://u@h/logs", "/logs", "/logs/a", "ftp://u@h/logs/a"),
        ("https://h/a.jsonl?x", "https://h/a.jsonl?x", "https://h/a.jsonl?x", "https://h/a.jsonl?x"),
        ("abfs://c@one.dfs.net/x", "c/x", "c/x/a", "abfs://c@one.dfs.net/x/a"),
        ("webhdfs://h:1", "", "/x/a", "webhdfs://h:1/x/a"),
    ],
)
def test_names_have_the_host(uri: str, start: str, path: str, name: str) -> None:
    """So that files of two hosts are not taken for one."""
    assert name_of(uri, start, path) == name


def test_a_file_that_ends_too_early(weak: WeakFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is told, as if it could not be read."""
    weak.pipe_file("/a.jsonl", CXF.read_bytes())
    was = remote_files._RemoteFile.__init__

    def longer(self: Any, file: Any) -> None:
        was(self, file)
        self._size = 10**6

    monkeypatch.setattr(remote_files._RemoteFile, "__init__", longer)
    replay("weak:///a.jsonl", tmp_path / "out", engine="local")
    (found,) = rows(tmp_path / "out", "rejected")
    assert found["reason"].startswith("cannot be read: it ends after ")


def test_a_log_that_is_lost_in_between(weak: WeakFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reading, of what is judged by itself, fails: the run ends with the reason."""
    weak.pipe_file("/a.jsonl", CXF.read_bytes())
    opened: list[str] = []
    was = remote_files.open_remote

    def once(uri: str, path: str, ahead: int) -> Any:
        opened.append(path)
        if len(opened) > 2:
            raise OSError("the network is down")
        return was(uri, path, ahead)

    monkeypatch.setattr(remote_files, "open_remote", once)
    with pytest.raises(UsageError, match=r"a\.jsonl: cannot be read: the network is down, though it could be before"):
        replay("weak:///a.jsonl", tmp_path / "out", engine="local")


def test_lines_after_a_part_that_is_lost(weak: WeakFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep their numbers, if it can be read again to be counted."""
    lines = CXF.read_bytes().splitlines(keepends=True)
    weak.pipe_file("/a.jsonl", b"".join(lines) + b"no record\n")
    monkeypatch.setattr(local, "split_size", lambda logs, cores: sum(map(len, lines)) // 3)
    opened: list[str] = []
    was = remote_files.open_remote

    def once(uri: str, path: str, ahead: int) -> Any:
        opened.append(path)
        if len(opened) == 3:  # the look, the first part, and the second part
            raise OSError("the network is down")
        return was(uri, path, ahead)

    monkeypatch.setattr(remote_files, "open_remote", once)
    replay("weak:///a.jsonl", tmp_path / "out", engine="local")
    whole, line = sorted(rows(tmp_path / "out", "rejected"), key=lambda row: row["line"] or 0)
    assert (whole["line"], whole["reason"]) == (None, "cannot be read: the network is down")
    assert (line["line"], line["raw"]) == (len(lines) + 1, "no record")


# Results


def test_a_place_that_cannot_be_looked_at(weak: WeakFileSystem) -> None:
    """Nothing is written where something may be, and nothing is deleted that no replay wrote."""
    put(weak, "/r/out/thesis.doc")
    weak.failing["info", "/r/out"] = 1
    with pytest.raises(UsageError, match=r"weak:///r/out cannot be written: not for you, see http://\*\*\*@h/\?…"):
        replay(CXF, "weak:///r/out", engine="local")
    with pytest.raises(UsageError, match=r"holds thesis\.doc, which replay did not write"):
        replay(CXF, "weak:///r/out", engine="local")
    assert weak.find("/r") == ["/r/out/thesis.doc"]


def test_a_place_that_others_write_to_meanwhile(weak: WeakFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their file stays, also among the verdicts, and the results are beside it."""
    write = run.report.write

    def written(summary: Summary, *others: Any) -> None:
        write(summary, *others)
        put(weak, "/r/out/verdicts/thesis.doc")

    monkeypatch.setattr(run.report, "write", written)
    with pytest.raises(UsageError, match=r"holds verdicts/thesis\.doc, which .*; all results are in weak:///r/\.out\."):
        replay(CXF, "weak:///r/out", engine="local")
    assert weak.find("/r/out") == ["/r/out/verdicts/thesis.doc"]
    assert len(weak.glob("/r/.out.*/summary.json")) == 1


def test_two_runs_to_one_place(weak: WeakFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of one of them are there, and the other says so."""
    replay(CXF, "weak:///r/out", engine="local")
    put_all = remote_results._put

    def while_another_runs(system: Any, result: Path, place: str, files: Any) -> None:
        put_all(system, result, place, files)
        if place == "/r/out":
            monkeypatch.setattr(remote_results, "_put", put_all)
            replay(CXF, "weak:///r/out", engine="local", profile="cr-2009")

    monkeypatch.setattr(remote_results, "_put", while_another_runs)
    with pytest.raises(UsageError, match=r"another run has put its results there meanwhile; all results are in"):
        replay(CXF, "weak:///r/out", engine="local")
    assert b'"cr-2009"' in weak.cat_file("/r/out/summary.json")


def test_earlier_results_that_cannot_be_listed(weak: WeakFileSystem) -> None:
    """No part of them is left among the new ones, or out of what these are compared with."""
    replay(CXF, "weak:///r/out", engine="local")
    weak.failing["ls", "/r/out/verdicts"] = ALWAYS
    with pytest.raises(UsageError, match=r"weak:///r/out cannot be written: .*/verdicts: not for you"):
        replay(CXF, "weak:///r/out", engine="local")
    with pytest.raises(UsageError, match=r"weak:///r/out cannot be read: .*/verdicts: not for you"):
        replay(CXF, "weak:///r/other", engine="local", against="weak:///r/out")


@pytest.mark.parametrize("times", [1, 3])
def test_results_that_fail_to_get_in_place(weak: WeakFileSystem, tmp_path: Path, times: int) -> None:
    """They are whole beside it; the next run replaces what there is of them."""
    replay(CXF, tmp_path / "here", engine="local")
    weak.makedirs("/r")
    for _ in range(2):
        replay(CXF, "weak:///r/out", engine="local")
    weak.failing["put_file", "/r/out"] = times
    with pytest.raises(UsageError, match=r"weak:///r/out cannot be written: .*; all results are in weak:///r/\.out\."):
        replay(CXF, "weak:///r/out", engine="local")
    weak.failing.clear()
    (whole,) = [each for each in weak.ls("/r", detail=False) if each.startswith("/r/.out.")]
    weak.get(whole, str(tmp_path / "whole"), recursive=True)
    assert_same_reports(tmp_path / "whole", tmp_path / "here")
    weak.rm(whole, recursive=True)
    replay(CXF, "weak:///r/out", engine="local")
    weak.get("/r/out", str(tmp_path / "out"), recursive=True)
    assert_same_reports(tmp_path / "out", tmp_path / "here")
    assert [each["name"] for each in weak.ls("/r")] == ["/r/out"]


def test_results_among_the_logs(weak: WeakFileSystem) -> None:
    """Those of an earlier run are no logs of the next, however their folder is named."""
    weak.pipe_file("/l/cxf.jsonl", CXF.read_bytes())
    found = [replay("weak:///l", out, engine="local") for out in ("weak:///l/out", "weak://l/out/", "weak:///l/out")]
    assert found[0] == found[1] == found[2]
    assert found[0].members["rejected"] == 0


def test_results_at_a_uri_of_many_logs(weak: WeakFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark, which a size would choose, cannot write them."""
    monkeypatch.setattr(engines, "MAX_LOCAL_OCTETS", 1)
    monkeypatch.setattr(engines, "is_spark_here", lambda: False)
    told: list[str] = []
    replay(CXF, "weak:///r/out", progress=told.append)
    assert "engine local: fsspec writes weak:///r/out" in told


def test_hostile_names_of_earlier_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file leaves the folder that they are copied to."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    system = fsspec.filesystem("memory")
    for name in ("summary.json", "../evil", "verdicts/../../evil", "other", "verdicts/a.parquet"):
        system.pipe_file(f"/results/{name}", b"x")
    with remote_results.fetched("memory://results") as folder:
        assert sorted(str(each.relative_to(folder)) for each in folder.rglob("*.*")) == [
            "summary.json", "verdicts/a.parquet",
        ]  # fmt: skip
        assert not list(tmp_path.rglob("*evil*"))


def test_files_of_this_machine_by_uri(tmp_path: Path) -> None:
    """They need neither Spark nor another way than by their names."""
    replay(CXF, tmp_path / "here", engine="local")
    replay(f"file://{CXF}", f"file://{tmp_path}/there", engine="local")
    assert_same_reports(tmp_path / "there", tmp_path / "here")


def test_uris_of_this_machine() -> None:
    """They have a whole path, and perhaps this machine's name."""
    assert without_here("file:///a/b") == without_here("file://localhost/a/b") == without_here("FILE:///a/b") == "/a/b"
    assert without_here("s3://a/file:///b") == "s3://a/file:///b"
    with pytest.raises(UsageError, match=r"^file://a/b: a URI of a file on this machine begins with file:/// and its"):
        without_here("file://a/b")


def test_signed_addresses_are_not_shown() -> None:
    """In whatever letters, in names and in reasons."""
    assert shown("HTTPS://h/a.jsonl?sig=S3CRET") == "HTTPS://h/a.jsonl"
    for text in (
        "no /webhdfs/v1/x?delegation=S3CRET&op=GET here",
        "http://h/a b?sig=S3CRET",
        "http://h/a'b?sig=S3CRET'",
    ):
        assert "S3CRET" not in remote_files.why(OSError(text))


def test_a_wildcard_that_begins_a_query(tmp_path: Path) -> None:
    """It is refused where it would be lost."""
    with pytest.raises(UsageError, match=r"^webhdfs://.*/web/\?…: a \? begins a query here"):
        replay("webhdfs://somebody@127.0.0.1:1/web/?.jsonl", tmp_path / "none", engine="local")
