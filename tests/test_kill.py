"""Broker and services are killed while calls go on: none is lost, none is carried out twice; see `kill_kit`.

A tenth of what `make soak` runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes_kit import ROOT

KIT = Path(__file__).parent / "kill_kit.py"
SEED = 20090223


@pytest.mark.broker
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("broker", "words"),
    [
        pytest.param("activemq", "--requests 200 --broker-kills 1 --service-kills 2", id="activemq"),
        pytest.param("artemis", "--requests 200 --broker-kills 1 --service-kills 2", id="artemis"),
        pytest.param(
            "activemq",
            "--no-transactions --requests 80 --broker-kills 1 --service-kills 1",
            id="activemq-no-transactions",
        ),
    ],
)
def test_nothing_is_lost_or_doubled(broker: str, words: str) -> None:
    """Every call has its one answer or an error that says what is not known; afterwards nothing is left."""
    sizes = [*words.split(), "--seed", str(SEED)]
    done = subprocess.run(
        [sys.executable, str(KIT), "--broker", broker, *sizes],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{broker}: lost 0, doubled 0, unexpected 0, "), done.stdout
