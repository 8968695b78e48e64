"""Calls go on while all around them fails: none is lost, none is carried out twice; see `kill_kit`.

A small part of what `make soak` runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from call_checker import Verdict
from kill_kit import WORKLOADS, Result, is_good, table
from kill_schedule import DECK, schedule
from places import ROOT, SUPPORT

KIT = SUPPORT / "kill_kit.py"
SEED = 2650
"""Has kills of broker, services and callers, a stop beyond the lease of the store, restarts, a proxy that swallows."""
CALLS = 300


@pytest.mark.broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workload", ["stomp/activemq/transactions", "amqp/artemis/without"])
def test_nothing_is_lost_or_doubled(workload: str) -> None:
    """Every call has its one answer or an error that says what is not known; afterwards nothing is left."""
    nothing_is_lost(workload)


@pytest.mark.broker
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_over_tls_and_to_a_topic() -> None:
    """The same over TLS, with a durable subscription to a topic."""
    nothing_is_lost("amqps/artemis/topic")


def nothing_is_lost(workload: str) -> None:
    """Run the kit; it says what it found."""
    done = subprocess.run(
        [sys.executable, str(KIT), "--only", workload, "--seed", str(SEED), "--calls", str(CALLS)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}"},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(workload), done.stdout


def test_the_same_seed_is_the_same_schedule() -> None:
    """Each fault comes before any comes again, in the order of its moment."""
    found, again, other = (schedule(seed, 5000, services=3, callers=3) for seed in (7, 7, 8))
    assert found == again != other
    assert [each.moment for each in found] == sorted(each.moment for each in found)
    wanted = Counter((kind, target) for kind, target, _ in DECK)
    first = Counter((each.kind, each.target.split()[0]) for each in found[: len(DECK)])
    assert first == wanted


def test_table() -> None:
    """A line for each workload, with what all of its seeds found; one that found something is not good."""
    good, bad = Verdict(calls=10, kills=2, answered=10), Verdict(calls=10, kills=1, answered=9, lost=["call 3"])
    results = [Result(WORKLOADS[0], seed, 20.0, each.counts()) for seed, each in ((1, good), (2, bad))]
    lines = [line.split() for line in table(results).splitlines()]
    assert lines[1] == ["stomp/activemq/transactions", "1,2", "20", "3", "1", *["0"] * 7, "40"]
    assert list(map(is_good, results)) == [True, False]


def test_too_little_to_say() -> None:
    """A run in which most calls failed shows nothing."""
    assert not is_good(Result(WORKLOADS[0], 1, 20.0, Verdict(calls=10, answered=4, unknown=[1] * 6).counts()))
