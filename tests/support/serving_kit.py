"""Runs `soapjms serve` as a program of its own, for tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

from calling_kit import PATIENCE, eventually
from places import ROOT

SERVICES: Final = ROOT / "tests" / "data" / "services"


class Served:
    """A running `soapjms serve`, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            Thread(target=self.out.extend, args=[process.stdout], daemon=True),
            Thread(target=self.err.extend, args=[process.stderr], daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def pids(self) -> list[int]:
        """List the processes that ever said that they serve."""
        return [int(line.rpartition(" ")[2]) for line in self.out if line.startswith("serving ")]

    def until_serving(self, processes: int = 1) -> None:
        """Wait until so many have said that they serve."""
        eventually(lambda: len(self.pids()) >= processes or self.process.poll() is not None, "it serves")
        assert len(self.pids()) >= processes, "".join(self.err)

    def ended(self) -> int:
        """Wait for its end, and return the status."""
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return status


def asked(port: int, path: str) -> tuple[int, Any]:
    """Ask for health; return the status and what it says."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
        return error.code, json.loads(body) if error.headers["Content-Type"] == "application/json" else None


def port_of(served: Served) -> int:
    """Return the port where a program tells its health."""
    found = re.search(r"health(?: and metrics)? at port (\d+)", "".join(served.out))
    assert found is not None
    return int(found[1])


COMMAND: Final = ("-m", "soapjms.cli")

STALE: Final = 4.0
IMPATIENT: Final = (
    "-c",
    "from soapjms.cli import main; from soapjms.serving import status_page; "
    f"status_page.STALE_SECONDS = {STALE}; main()",
)
"""The same command, to which a process counts as hung after so few seconds."""


@contextmanager
def serving(
    target: str, *options: str, marks: Path, command: Sequence[str] = COMMAND, **environment: str
) -> Iterator[Served]:
    """Run it from the folder of the tests' services; whatever runs of it at the end is told to end."""
    with started("serve", target, *options, command=command, BANK_MARKS=str(marks), **environment) as served:
        yield served


@contextmanager
def started(*words: str, command: Sequence[str] = COMMAND, **environment: str) -> Iterator[Served]:
    """Run a command that serves until it is told to end, from the same folder."""
    process = subprocess.Popen(
        [sys.executable, *command, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment},
        cwd=SERVICES,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    served = Served(process)
    try:
        yield served
    except BaseException:
        print("".join(served.err), file=sys.stderr)  # pytest shows it with the failure
        raise
    finally:
        process.terminate()
        try:
            served.ended()
        except subprocess.TimeoutExpired:
            process.kill()  # those that it started end when it is gone
            served.ended()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
