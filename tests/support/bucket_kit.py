"""A bucket: a server of the S3 protocol, which `make brokers` fetches, as a child process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from places import ROOT
from server_kit import running_server

JAR: Final = ROOT / "build/s3proxy/s3proxy.jar"
SETTINGS: Final = """
s3proxy.endpoint=http://127.0.0.1:0
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=somebody
s3proxy.credential=a-secret
s3proxy.ignore-unknown-headers=true
s3proxy.v4-max-non-chunked-request-size=268435456
jclouds.provider={provider}
jclouds.identity=none
jclouds.credential=none
jclouds.filesystem.basedir={folder}
"""
STARTED: Final = r"Started ServerConnector.*\{(127\.0\.0\.1:\d+)\}"


class Bucket(NamedTuple):
    """A bucket.

    Attributes:
        uri: its URI for fsspec.
        endpoint: the address of its server.
        folder: the folder of this machine that its objects are in.
    """

    uri: str
    endpoint: str
    folder: Path

    def variables(self, secret: str = "a-secret") -> dict[str, str]:
        """Return the variables of the environment by which its clients find and enter it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # the server has no newer checksums
        }

    def login(self, patched: pytest.MonkeyPatch, secret: str = "a-secret") -> None:
        """Set these variables."""
        for name, value in self.variables(secret).items():
            patched.setenv(name, value)


@contextmanager
def running_bucket(folder: Path, provider: str = "filesystem-nio2") -> Iterator[Bucket]:
    """Run a server with one bucket, which is empty.

    Args:
        folder: the folder of its files.
        provider: where it keeps objects. In a folder, a hidden one is a file at the same time; `transient`, its memory,
            knows only objects, as S3 does, but no bucket to begin with.
    """
    assert JAR.exists(), f"there is no {JAR.relative_to(ROOT)}: run `make brokers` first"
    place = folder / "buckets" / "captures"
    place.mkdir(parents=True)
    settings = folder / "s3proxy.conf"
    settings.write_text(SETTINGS.format(folder=place.parent, provider=provider))
    words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx2g", "-jar", str(JAR), "--properties", str(settings)]
    with running_server(words, STARTED, folder / "s3proxy.log") as started:
        yield Bucket("s3://captures", f"http://{started[1]}", place)
