"""A bucket: a server of the S3 protocol, which `make brokers` fetches, as a child process."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from places import ROOT

JAR: Final = ROOT / "build/s3proxy/s3proxy.jar"
SETTINGS: Final = """
s3proxy.endpoint=http://127.0.0.1:0
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=somebody
s3proxy.credential=a-secret
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.identity=none
jclouds.credential=none
jclouds.filesystem.basedir={folder}
"""
STARTED: Final = re.compile(r"Started ServerConnector.*\{(127\.0\.0\.1:\d+)\}")


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

    def login(self, patched: pytest.MonkeyPatch, secret: str = "a-secret") -> None:
        """Set the environment by which its clients find and enter it."""
        for name, value in {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # the server has no newer checksums
        }.items():
            patched.setenv(name, value)


@contextmanager
def running_bucket(folder: Path) -> Iterator[Bucket]:
    """Run a server with one bucket, which is empty."""
    assert JAR.exists(), f"there is no {JAR.relative_to(ROOT)}: run `make brokers` first"
    place = folder / "buckets" / "captures"
    place.mkdir(parents=True)
    settings = folder / "s3proxy.conf"
    settings.write_text(SETTINGS.format(folder=place.parent))
    words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-jar", str(JAR), "--properties", str(settings)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as java:
        try:
            assert java.stdout is not None
            said: list[str] = []
            for line in java.stdout:
                said.append(line)
                if started := STARTED.search(line):
                    break
            else:
                raise AssertionError("".join(said)[-4000:])
            yield Bucket("s3://captures", f"http://{started[1]}", place)
        finally:
            java.kill()
