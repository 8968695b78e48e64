"""Processes that share a store, stopped and killed at any moment: each request is finished once, with its effects."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from calling_kit import PATIENCE
from places import ROOT

from soapjms import SqliteStore
from soapjms.service.store.base import FinishedBefore

REQUESTS: Final = 600
PROCESSES: Final = 3
DISTURBED: Final = 15.0
"""Seconds for which processes are stopped and killed; the rest is finished in peace."""


def start(path: Path, seed: int) -> subprocess.Popen[bytes]:
    """Start a process that works on all requests."""
    program = str(ROOT / "tests" / "data" / "store_worker.py")
    return subprocess.Popen(
        [sys.executable, program, str(path), str(REQUESTS), str(seed)],
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_once(seed: int, tmp_path: Path) -> None:
    """A request has its effect if and only if its response says so, and then once; all are finished."""
    path, chance = tmp_path / "requests.db", random.Random(seed)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE effects (number INTEGER)")
    processes = [start(path, seed * 1000 + number) for number in range(PROCESSES)]
    kills, until = 0, time.monotonic() + DISTURBED
    try:
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.0, 0.3))
            at = chance.randrange(PROCESSES)
            process = processes[at]
            if chance.random() < 0.25:
                process.kill()
                process.wait(PATIENCE)
            else:
                process.send_signal(signal.SIGSTOP)
                time.sleep(chance.choice((0.05, 0.4, 0.8)))
                process.send_signal(signal.SIGCONT)
            if process.poll() is not None or chance.random() < 0.2:
                process.kill()
                process.wait(PATIENCE)
                kills += 1
                processes[at] = start(path, seed * 1000 + PROCESSES + kills)
        assert all(process.wait(6 * PATIENCE) == 0 for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait(PATIENCE)
    assert kills
    with SqliteStore(path) as store:
        found = [store.begin(b"%d" % number) for number in range(REQUESTS)]
    said = [each.response.body for each in found if isinstance(each, FinishedBefore) and each.response is not None]
    assert len(said) == REQUESTS
    with closing(sqlite3.connect(path)) as database:
        effects = sorted(number for (number,) in database.execute("SELECT number FROM effects"))
    assert effects == [number for number, each in enumerate(said) if each == "effects"]
    assert {"effects", "none"} == set(said)
