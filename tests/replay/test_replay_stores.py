"""Replay of logs in stores of other kinds than folders, and of results there.

Each has a real server, which the test starts; `make stores` fetches what `make setup` and `make brokers` do not.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from getpass import getuser
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import fsspec
import pyspark
import pytest
import s3fs
from bucket_kit import running_bucket
from cli_kit import process
from places import ROOT
from ports import free_ports
from replay_logs import CXF, assert_same_reports, bad_logs, rows, summary
from server_kit import running_server

from soapjms.generate import generate
from soapjms.replay import hadoop, remote_results, replay
from soapjms.replay.uris import shown

QUIET = "ignore:Sending a large body"
"""A filter of warnings, for clients that upload a file at once."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.spark,
    pytest.mark.filterwarnings(QUIET),
]

BUILD = ROOT / "build"
JARS = Path(pyspark.__file__).parent / "jars"


RESULTS = {"verdicts", "rejected", "summary.json", "report.json", "report.html", "junit.xml"}


class Store(NamedTuple):
    """A store.

    Attributes:
        uri: its URI for a replay.
        by_fsspec: its URI for fsspec, through which a test looks at it.
        settings: those of Spark that it needs.
        variables: those of the environment that its clients need.
    """

    uri: str
    by_fsspec: str
    settings: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}


@contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    """HDFS, with a name node and two data nodes, by Hadoop's client."""
    servers = BUILD / "hdfs/lib"
    assert servers.exists(), "there is no build/hdfs: run `make stores` first"
    words = [
        "java",
        "-Xmx512m",
        "-cp",
        f"{servers}/*:{JARS}/*",
        str(ROOT / "tests/peers/hdfs/Cluster.java"),
        str(folder),
    ]
    with running_server(words, r"at (hdfs://\S+) (\d+)", folder / "hdfs.log") as at:
        yield Store(at[1], f"webhdfs://{getuser()}@127.0.0.1:{at[2]}")


@contextmanager
def webhdfs(folder: Path) -> Iterator[Store]:
    """HDFS over HTTP."""
    with hdfs(folder) as store:
        yield Store(store.by_fsspec, store.by_fsspec)


@contextmanager
def s3a(folder: Path) -> Iterator[Store]:
    """A bucket, by Hadoop's client."""
    jars = sorted((BUILD / "s3a/lib").glob("*.jar"))
    assert jars, "there is no build/s3a: run `make stores` first"
    with running_bucket(folder, "transient") as bucket:
        settings = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.hadoop.fs.s3a.endpoint": bucket.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
        variables = bucket.variables()
        with patch.dict(os.environ, variables):
            s3fs.S3FileSystem(skip_instance_cache=True).call_s3("create_bucket", Bucket="captures")
        yield Store("s3a://captures", "s3://captures", settings, variables)


@contextmanager
def abfs(folder: Path) -> Iterator[Store]:
    """A container of Azure."""
    program = BUILD / "azurite/node_modules/azurite/dist/src/blob/main.js"
    assert program.exists(), "there is no build/azurite: run `make stores` first"
    words = [
        "node",
        str(program),
        "--blobPort",
        "0",
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--disableTelemetry",
    ]
    key = "c2VjcmV0"
    with running_server(
        words, r"listens on (http://\S+)", folder / "azurite.log", {**os.environ, "AZURITE_ACCOUNTS": f"somebody:{key}"}
    ) as at:
        login = f"DefaultEndpointsProtocol=http;AccountName=somebody;AccountKey={key};BlobEndpoint={at[1]}/somebody;"
        yield container("abfs", {"AZURE_STORAGE_CONNECTION_STRING": login})


@contextmanager
def gs(folder: Path) -> Iterator[Store]:
    """A bucket of Google."""
    (port,) = free_ports(1)
    words = [str(Path(sys.executable).with_name("gcp-storage-emulator")), "start", "--host=127.0.0.1", f"--port={port}"]
    with running_server([*words, "--in-memory"], "All services started", folder / "gs.log"):
        address = f"http://127.0.0.1:{port}"
        # Whether a bucket has folders is asked over gRPC, which this server does not speak.
        yield container("gs", {"STORAGE_EMULATOR_HOST": address, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"})


def container(scheme: str, variables: Mapping[str, str]) -> Store:
    """Make a place of objects in a store, and return it."""
    with patch.dict(os.environ, variables):
        fsspec.filesystem(scheme, skip_instance_cache=True).mkdir("captures")
    return Store(f"{scheme}://captures", f"{scheme}://captures", {}, variables)


def named(store: Callable[[Path], AbstractContextManager[Store]]) -> str:
    """Return the name of a case."""
    return store.__name__


@pytest.fixture(scope="module", params=[hdfs, webhdfs, s3a, abfs, gs], ids=named)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Start one after another, and enter it."""
    with request.param(tmp_path_factory.mktemp("store")) as running, patch.dict(os.environ, running.variables):
        yield running


def put(store: Store, file: Path, name: str) -> None:
    """Copy a file into a store, at once, since not all of these servers know uploads in parts."""
    system, root = fsspec.core.url_to_fs(store.by_fsspec, skip_instance_cache=True)
    system.makedirs(f"{root}/{Path(name).parent}", exist_ok=True)
    at_once = {"chunksize": 1 << 30} if isinstance(system, s3fs.S3FileSystem) else {}
    system.put_file(str(file), f"{root}/{name}", **at_once)


def fetch(uri: str, folder: Path) -> None:
    """Copy results from a store."""
    with remote_results.fetched(uri) as found:
        shutil.copytree(found, folder)


def judge(logs: Sequence[str], out: str, store: Store, folder: Path) -> bytes:
    """Replay by the command line, in a process of its own, since Java takes settings only when it starts; return what
    it says."""
    settings = [word for item in store.settings.items() for word in ("--conf", "=".join(item))]
    done = process("replay", *logs, "--out", out, *settings, cwd=folder, PYTHONWARNINGS=f"error,{QUIET}")
    assert done.returncode == 1, done.stderr[-4000:]  # something in the logs is broken, or failed
    return done.stdout


def test_logs_and_results(store: Store, tmp_path: Path) -> None:
    """Folders and globs, in all forms, with broken and foreign files, and results, twice at the same place: all is the
    same as with files here, and nothing else is left there."""
    logs = tmp_path / "logs"
    logs.mkdir()
    bad_logs(logs)
    shutil.copy(CXF, logs / "[1] cxf.jsonl")
    (logs / "notes.txt").write_text("of no interest")
    for form in ("jsonl", "gzip", "parquet"):
        generate(tmp_path / form, 600, form=form, seed=len(form))
        shutil.copytree(tmp_path / form / "logs", logs / form)
    replay(logs, tmp_path / "here", engine="local")
    for each in logs.rglob("*"):
        if each.is_file():
            put(store, each, f"whole/{each.relative_to(tmp_path)}")
    place = f"{store.uri}/whole"
    for _ in range(2):
        judge([f"{place}/logs"], f"{place}/out", store, tmp_path)
    judge([f"{place}/logs/*.jsonl*", f"{place}/logs/[gjp]*/*"], str(tmp_path / "globs"), store, tmp_path)
    system, root = fsspec.core.url_to_fs(f"{store.by_fsspec}/whole", skip_instance_cache=True)
    assert {Path(each).name for each in system.ls(root, detail=False)} == {"logs", "out"}
    assert {Path(each).name for each in system.ls(f"{root}/out", detail=False)} == RESULTS
    fetch(f"{store.by_fsspec}/whole/out", tmp_path / "out")
    in_globs = summary(tmp_path / "here")
    in_globs["notes"].pop("otherFile")
    assert summary(tmp_path / "globs") == in_globs
    assert summary(tmp_path / "out") == summary(tmp_path / "here")
    named = (tmp_path / "here/junit.xml").read_text("utf-8").replace(str(logs), f"{shown(place)}/logs")
    assert (tmp_path / "out/junit.xml").read_text("utf-8") == named
    for name in ("out", "globs"):
        assert rows(tmp_path / name, "verdicts") == rows(tmp_path / "here", "verdicts")
        refused = rows(tmp_path / name, "rejected")
        assert all(each["file"].startswith(f"{shown(place)}/logs/") for each in refused)
        assert {(each["line"], each["reason"], each["raw"]) for each in refused} == {
            (each["line"], each["reason"], each["raw"]) for each in rows(tmp_path / "here", "rejected")
        }


def test_results(store: Store, tmp_path: Path) -> None:
    """Of logs here: all are those of a folder here, the reports too."""
    replay(CXF, tmp_path / "here", engine="local")
    judge([str(CXF)], f"{store.uri}/reports/cxf", store, tmp_path)
    fetch(f"{store.by_fsspec}/reports/cxf", tmp_path / "there")
    assert_same_reports(tmp_path / "there", tmp_path / "here")


def test_a_uri_that_leads_nowhere(store: Store, tmp_path: Path) -> None:
    """It is said, and the others are read."""
    put(store, CXF, "one/cxf.jsonl")
    said = judge([f"{store.uri}/one", f"{store.uri}/nowhere"], "out", store, tmp_path)
    assert f"rejected {shown(store.uri)}/nowhere".encode() in said
    replay(CXF, tmp_path / "here", engine="local")
    assert rows(tmp_path / "out", "verdicts") == rows(tmp_path / "here", "verdicts")


@pytest.mark.parametrize("store", [hdfs, s3a], indirect=True, ids=named)
def test_a_large_log(store: Store, tmp_path: Path) -> None:
    """Hadoop reads a file in blocks, which are none of its own, by many tasks."""
    generate(tmp_path / "made", 80_000)
    log = tmp_path / "large.jsonl"
    with log.open("wb") as whole:
        for each in sorted((tmp_path / "made/logs").iterdir()):
            whole.write(each.read_bytes())
    assert log.stat().st_size > hadoop.MAX_LINES_OCTETS
    put(store, log, "large/large.jsonl")
    judge([f"{store.uri}/large"], str(tmp_path / "there"), store, tmp_path)
    replay(log, tmp_path / "here", engine="local")
    assert rows(tmp_path / "there", "verdicts") == rows(tmp_path / "here", "verdicts")
    assert summary(tmp_path / "there") == summary(tmp_path / "here")
