"""Every engine gives what `exact` gives, which judges each exchange by itself: the same rows, summary and reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hostile_log import GIVEN, twice, vectors, write_hostile_log
from replay_logs import BUCKETS, CXF, assert_same, assert_same_reports, at, request, write_log

from soapjms.generate import VIOLATIONS, generate
from soapjms.protocol.record import capture
from soapjms.replay import replay
from soapjms.replay.engines import EngineName
from soapjms.replay.follower import follow

pytestmark = pytest.mark.timeout(600)

LONG = timedelta(days=2)


class Judged(NamedTuple):
    """A log, and what it comes to.

    Attributes:
        logs: the folder of the log.
        exact: the results.
        later: the results with a record that comes much later.
    """

    logs: Path
    exact: Path
    later: Path


def write_later(logs: Path) -> Path:
    """Write a record that comes so late that all before it is over."""
    return write_log(logs / "later.jsonl", capture(request(1), at(5 * 86_400)))


def judged(folder: Path, write: Callable[[Path], object]) -> Judged:
    """Write a log, and judge it."""
    logs = folder / "logs"
    logs.mkdir()
    write(logs)
    found = Judged(logs, folder / "exact", folder / "later")
    replay(logs, found.exact, engine="exact", senders=[GIVEN])
    path = write_later(logs)
    replay(logs, found.later, engine="exact", senders=[GIVEN])
    path.unlink()
    return found


def hostile(seed: int, lines: int) -> Callable[[Path], object]:
    """Return how a hostile log is written."""
    return lambda logs: write_hostile_log(logs / "hostile.jsonl", seed, lines)


LOGS: dict[str, Callable[[Path], object]] = {
    "vectors": lambda logs: twice(logs / "vectors.jsonl", vectors()),
    "CXF twice": lambda logs: twice(
        logs / "cxf.jsonl", [[json.loads(line) for line in CXF.read_text("utf-8").splitlines()]]
    ),
    "generated": lambda logs: (
        generate(logs.parent / "made", 1000, broken=0.3, rotation=400_000).files[0].parent.rename(logs / "made")
    ),
    "hostile": hostile(6, 1000),
}
SEEDS = range(200, 210)


def write_million(logs: Path) -> None:
    """Write a million messages, with each violation that a log can be generated with."""
    made = logs.parent / "made"
    generate(made, 1_000_000, form="parquet")
    used = json.loads((made / "expected.json").read_text("utf-8"))["violations"]
    assert set(used) == {name for name, row in VIOLATIONS.items() if "rec-2012" in row.editions}
    (made / "logs").rename(logs / "made")


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param(write, id=name) for name, write in LOGS.items()),
        *(pytest.param(hostile(seed, 20_000), id=f"hostile {seed}", marks=pytest.mark.soak) for seed in SEEDS),
        pytest.param(write_million, id="a million", marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Judge each log once for all engines."""
    return judged(tmp_path_factory.mktemp("judged"), request.param)


def test_a_replay(log: Judged, tmp_path: Path, engine: EngineName) -> None:
    """Of the whole log at once."""
    replay(log.logs, tmp_path / "out", engine=engine, senders=[GIVEN], conf=BUCKETS if engine == "spark" else None)
    assert_same_reports(log.exact, tmp_path / "out")


def test_following(log: Judged, tmp_path: Path, engine: EngineName) -> None:
    """First nothing is over; then a record that comes much later ends all calls before it, in a step."""
    later = None
    try:
        for exact, held in ((log.exact, True), (log.later, False)):
            said: list[str] = []
            follow(
                log.logs, tmp_path / "out", engine=engine, senders=[GIVEN],
                disorder=LONG, remember=LONG, until_idle=timedelta(0), progress=said.append,
            )  # fmt: skip
            assert ("; 0 messages judged" in said[-1]) is held
            assert_same(tmp_path / "out", exact)
            later = write_later(log.logs)
    finally:
        if later is not None:
            later.unlink()
