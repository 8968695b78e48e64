"""A program that calls for long holds no more than one that began: a short form of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_brokers import STARTERS
from soak import ROOT, STEPS, Step, run_all
from soak_kit import grows, soak


def test_a_step_that_fails_holds_up_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    """`make soak` runs all of them, says when each begins, and how it ended."""
    steps = [Step("bad", ("-c", "raise SystemExit(3)"), ()), Step("good", ("-c", "print('there')"), ("small",))]
    assert [each.status for each in run_all(steps, small=True)] == [3, 0]
    told = capfd.readouterr()
    assert told.out == "there\n"
    lines = [line.rpartition(" in ")[0] or line for line in told.err.splitlines()]
    assert lines == ["[1/2] bad", "[1/2] bad: FAILED with 3", "[2/2] good", "[2/2] good: passed"]


def test_steps_are_there() -> None:
    """Each program that it runs is."""
    programs = [step.words[0] for step in STEPS if not step.words[0].startswith("-")]
    assert len(programs) > len(STARTERS)
    assert [each for each in programs if not (ROOT / each).is_file()] == []


@pytest.mark.broker
@pytest.mark.parametrize("name", STARTERS)
def test_nothing_grows(name: str, tmp_path: Path) -> None:
    """Threads, files, destinations of the broker and objects do not grow with the number of calls.

    The broker is the test's own: what others left in it would come and go.
    """
    with STARTERS[name]() as broker:
        before, after = soak(broker, 2_000, 1_000, tmp_path / "requests.db")
    assert not grows(before, after), (before, after)
