"""Runs `soapjms serve` as a program of its own, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from calling_kit import PATIENCE, eventually

ROOT: Final = Path(__file__).parent.parent
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


@contextmanager
def serving(target: str, *options: str, marks: Path, **environment: str) -> Iterator[Served]:
    """Run it from the folder of the tests' services; whatever runs of it at the end is told to end."""
    with started("serve", target, *options, BANK_MARKS=str(marks), **environment) as served:
        yield served


@contextmanager
def started(*words: str, **environment: str) -> Iterator[Served]:
    """Run a command that serves until it is told to end, from the same folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "soapjms.cli", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environment},
        cwd=SERVICES,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    served = Served(process)
    try:
        yield served
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
