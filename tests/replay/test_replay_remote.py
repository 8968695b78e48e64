"""Replay of logs in a bucket, without Spark: through fsspec, which a real server of the S3 protocol answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs
from bucket_kit import Bucket, running_bucket
from cli_kit import process
from replay_logs import CXF, assert_same_reports, at, bad_logs, request, rows, summary, write_log, write_parquet

from soapjms.generate import generate
from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import Direction, capture
from soapjms.replay import NoInputError, inputs, local, remote_files, replay, spark_logs

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Start the server."""
    with running_bucket(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def bucket(server: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Enter the bucket, which is empty."""
    server.login(monkeypatch)
    s3fs.S3FileSystem.clear_instance_cache()
    yield server
    s3fs.S3FileSystem.clear_instance_cache()
    for each in server.folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def upload(folder: Path, uri: str) -> None:
    """Copy a folder into the bucket."""
    system = s3fs.S3FileSystem()
    for each in folder.rglob("*"):
        if each.is_file():
            system.put_file(str(each), f"{uri.removeprefix('s3://')}/{each.relative_to(folder)}")


def all_logs(folder: Path) -> Path:
    """Write logs in all forms, with broken and foreign ones."""
    generate(folder, 200, seed=5)
    logs = folder / "logs"
    bad_logs(logs)
    shutil.copy(CXF, logs / "[1] cxf.jsonl")
    (logs / "deep").mkdir()
    for number, name in enumerate(("_c.jsonl", "deep/.d.jsonl"), 80):
        write_log(logs / name, capture(request(number), at(number), Direction.REQUEST))
    write_parquet(logs / "a.parquet", [capture(request(n), at(n), Direction.REQUEST) for n in range(70, 75)], 2)
    (logs / "b.parquet").write_bytes(b"PAR1 is how it begins")
    (logs / "notes.txt").write_text("of no interest")
    (logs / ".notes").write_text("of even less")
    return logs


def refused(out: Path) -> list[tuple[Any, ...]]:
    """Return what was rejected, without the folders."""
    return sorted(
        [(Path(each["file"]).name, each["line"], each["reason"], each["raw"]) for each in rows(out, "rejected")],
        key=repr,
    )


@pytest.mark.parametrize(("engine", "small"), [("local", 1 << 30), ("local", 0), ("exact", 0)])
def test_logs_in_a_bucket(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any, small: int
) -> None:
    """A folder, globs and files, read here or by processes, in parts: the results are those of the same files here."""
    monkeypatch.setattr(local, "SMALL_OCTETS", small)
    monkeypatch.setattr(local, "cores", lambda: 2)
    monkeypatch.setattr(local, "split_size", lambda logs, cores: 1 << 16)
    logs = all_logs(tmp_path)
    upload(logs, f"{bucket.uri}/logs")
    replay(logs, tmp_path / "here", engine="local")
    replay(f"{bucket.uri}/logs/", tmp_path / "folder", engine=engine)
    globs = [f"{bucket.uri}/logs/*.jsonl", f"{bucket.uri}/logs/deep", *logs.glob("*.gz"), f"{bucket.uri}/**/?.parquet"]
    replay([*globs, f"{bucket.uri}/logs/[1] cxf.jsonl"], tmp_path / "globs", engine=engine)
    for name in ("folder", "globs"):
        assert rows(tmp_path / name, "verdicts") == rows(tmp_path / "here", "verdicts")
        assert refused(tmp_path / name) == refused(tmp_path / "here")
    here, in_globs = summary(tmp_path / "here"), summary(tmp_path / "globs")
    assert here == summary(tmp_path / "folder")
    assert here["notes"].pop("otherFile")["text"].endswith("notes.txt")
    assert here == in_globs
    assert {each["file"].partition("/logs")[0] for each in rows(tmp_path / "folder", "rejected")} == {bucket.uri}


@pytest.mark.spark
@pytest.mark.usefixtures("own_spark")
def test_logs_in_a_bucket_on_spark(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a scheme that Hadoop does not know, tasks read the parts of logs by themselves; the results are the same."""
    monkeypatch.setattr(spark_logs, "split_size", lambda logs, cores: 1 << 16)
    logs = all_logs(tmp_path)
    upload(logs, f"{bucket.uri}/logs")
    replay([logs, CXF], tmp_path / "here", engine="local")
    login = {f"spark.executorEnv.{name}": value for name, value in os.environ.items() if name.startswith("AWS_")}
    given = [CXF, f"file://{logs}/deep", f"{bucket.uri}/logs"]
    replay(given, tmp_path / "there", engine="spark", conf=login)  # Java may have been started before, without it
    assert rows(tmp_path / "there", "verdicts") == rows(tmp_path / "here", "verdicts")
    assert refused(tmp_path / "there") == refused(tmp_path / "here")


def test_results_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    """They are those of a folder; they replace an earlier run's and nothing else, and are no logs of the next run."""
    logs = all_logs(tmp_path)
    upload(logs, bucket.uri)
    replay(logs, tmp_path / "here", engine="local")
    for given in (CXF, bucket.uri, bucket.uri):
        replay(given, f"{bucket.uri}/reports/today", engine="local")
    there = bucket.folder / "reports" / "today"
    assert rows(there, "verdicts") == rows(tmp_path / "here", "verdicts")
    assert summary(there) == summary(tmp_path / "here")
    assert [each.name for each in there.parent.iterdir()] == ["today"]
    s3fs.S3FileSystem().pipe_file("captures/reports/today/mine.txt", b"")
    before = sorted(bucket.folder.rglob("*"))
    for uri, why in (
        (f"{bucket.uri}/reports/today", r"today holds mine\.txt, which replay did not write"),
        (f"{bucket.uri}/a.parquet", "is not a folder"),
        (bucket.uri, "name a folder in it"),
        (f"{bucket.uri}/[a]", "has wildcards"),
        ("s3://nowhere/a", "s3://nowhere/a cannot be written: "),
        ("nonsense://a/b", "nonsense://a/b cannot be written: Protocol not known: nonsense"),
        ("oci://a/b", "oci://a/b cannot be written: .*ocifs"),
        ("https://u:S3CRET@127.0.0.1:1/b/c", "https://.*@127.0.0.1:1/b/c cannot be written: "),
    ):
        with pytest.raises(UsageError, match=why) as caught:
            replay(CXF, uri, engine="local")
        assert "S3CRET" not in str(caught.value)
    assert sorted(bucket.folder.rglob("*")) == before
    assert [each.name for each in bucket.folder.parent.iterdir()] == ["captures"]


def test_a_run_that_fails_leaves_earlier_results(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the later run is in the bucket either; where it fails at the very end, its results are told."""
    replay(CXF, f"{bucket.uri}/reports/today", engine="local")
    there = bucket.folder / "reports" / "today"
    shutil.copytree(there, tmp_path / "before")
    with pytest.raises(NoInputError):
        replay(f"{bucket.uri}/nothing", f"{bucket.uri}/reports/today", engine="local")

    async def failing(*_: object, **__: object) -> None:
        raise ConnectionError("the network is down")

    with monkeypatch.context() as patched:
        patched.setattr(s3fs.S3FileSystem, "_put_file", failing)
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(UsageError, match="s3://captures/reports/today cannot be written: the network is down"):
            replay(CXF, f"{bucket.uri}/reports/today", engine="local")
    assert_same_reports(there, tmp_path / "before")
    assert [each.name for each in there.parent.iterdir()] == ["today"]
    with monkeypatch.context() as patched:
        patched.setattr(s3fs.S3FileSystem, "_rm_file", failing)
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(
            UsageError, match=r"the network is down; all results are in s3://captures/reports/\.today\."
        ):
            replay(CXF, f"{bucket.uri}/reports/today", engine="local")
    (whole,) = [each for each in there.parent.iterdir() if each.name.startswith(".today.")]
    assert_same_reports(whole, tmp_path / "before")
    s3fs.S3FileSystem.clear_instance_cache()
    replay(CXF, f"{bucket.uri}/reports/today", engine="local")  # whose folder has a mark, and a part of the results
    assert_same_reports(there, tmp_path / "before")


def test_what_cannot_be_read_is_told(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each argument with the reason, and the others are read; if there are none, the error has all reasons."""
    reasons = {
        f"{bucket.uri}/none.jsonl": "cannot be opened: ",
        f"{bucket.uri}/*.none": "no file matches",
        "s3://nowhere/a.jsonl": "cannot be opened: ",
        "nonsense://a/b": "cannot be opened: Protocol not known: nonsense",
        "oci://a/b": "cannot be opened: Install ocifs",
        "http://u:S3CRET@127.0.0.1:1/a.jsonl?X-Signature=S3CRET": "cannot be opened: ",
    }
    with pytest.raises(NoInputError) as caught:
        replay(list(reasons), tmp_path / "out", engine="local")
    assert "S3CRET" not in str(caught.value)
    replay([CXF, *reasons], tmp_path / "out", engine="local")
    found = {each["file"]: each["reason"] for each in rows(tmp_path / "out", "rejected")}
    assert len(found) == len(reasons)
    assert "S3CRET" not in repr(found)
    for uri, reason in reasons.items():
        assert found[inputs.shown(uri)].startswith(reason)
    bucket.login(monkeypatch, secret="another")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(NoInputError, match=r"s3://captures/x\.jsonl: cannot be opened: "):
        replay(f"{bucket.uri}/x.jsonl", tmp_path / "none", engine="local")


def test_a_log_that_cannot_be_read_to_its_end(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file system raises, whatever it is, is a reason in rejected/, and other logs are read."""
    shutil.copy(CXF, tmp_path / "cxf.jsonl")
    upload(tmp_path, bucket.uri)
    opened: list[object] = []
    was = remote_files._RemoteFile.readinto

    def failing(self: remote_files._RemoteFile, buffer: Any) -> int:
        if self not in opened:
            opened.append(self)
        if len(opened) > 1:
            self._file = None
        return was(self, buffer)

    monkeypatch.setattr(remote_files._RemoteFile, "readinto", failing)
    replay([CXF, f"{bucket.uri}/cxf.jsonl"], tmp_path / "out", engine="local")
    (found,) = rows(tmp_path / "out", "rejected")
    assert (found["file"], found["line"]) == (f"{bucket.uri}/cxf.jsonl", None)
    assert found["reason"] == "cannot be read: 'NoneType' object has no attribute 'read'"
    replay(CXF, tmp_path / "here", engine="local")
    assert rows(tmp_path / "out", "verdicts") == rows(tmp_path / "here", "verdicts")


def test_earlier_results_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    """A replay is compared with them, also with those that it replaces."""
    bad = bad_logs(tmp_path)
    replay(bad, tmp_path / "earlier", engine="local")
    replay(CXF, tmp_path / "later", engine="local", against=tmp_path / "earlier")
    replay(bad, f"{bucket.uri}/reports/a", engine="local")
    words = ["replay", str(CXF), "--out", f"{bucket.uri}/reports/a", "--against", f"{bucket.uri}/reports/a"]
    done = process(*words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr  # as CXF breaks rules
    assert "Compared with" in (bucket.folder / "reports/a/report.html").read_text("utf-8")
    assert_same_reports(bucket.folder / "reports" / "a", tmp_path / "later")
    with pytest.raises(UsageError, match=r"s3://captures/none/summary\.json cannot be read"):
        replay(CXF, tmp_path / "later", engine="local", against=f"{bucket.uri}/none")


def test_a_signed_address(bucket: Bucket, tmp_path: Path) -> None:
    """Over HTTP, with a login in the address: no result has it."""
    upload(all_logs(tmp_path), bucket.uri)
    signed = s3fs.S3FileSystem().sign("captures/a.parquet", expiration=600)
    assert "Signature" in signed
    replay(signed, tmp_path / "out", engine="local")
    replay(f"{bucket.uri}/a.parquet", tmp_path / "same", engine="local")
    assert rows(tmp_path / "out", "verdicts") == rows(tmp_path / "same", "verdicts")
    assert summary(tmp_path / "out")["records"] == 5
    assert not any(b"Signature" in each.read_bytes() for each in (tmp_path / "out").rglob("*") if each.is_file())


def test_a_program_that_replays_again_sees_what_came_meanwhile(bucket: Bucket, tmp_path: Path) -> None:
    """Another program has written it, and fsspec remembers what a folder held."""
    log = write_log(tmp_path / "a.jsonl", capture(request(1), at(1), Direction.REQUEST))
    upload(tmp_path, bucket.uri)
    assert replay(bucket.uri, tmp_path / "out", engine="local").members["records"] == 1
    other = s3fs.S3FileSystem(skip_instance_cache=True)
    write_log(log, capture(request(2), at(2), Direction.REQUEST))
    other.put_file(str(log), "captures/b.jsonl")
    assert replay(bucket.uri, tmp_path / "out", engine="local").members["records"] == 2
