"""Logs that grow in several files at once, out of order: followed, they come to what a replay of them comes to."""

from __future__ import annotations

from datetime import datetime, timedelta
from gzip import compress
from pathlib import Path
from random import Random
from typing import TypeAlias

import pyarrow.parquet as pq
import pytest
from cli_kit import records_in
from replay_logs import OWN, assert_same, rows, summary

from soapjms.generate import generate
from soapjms.protocol.record import to_json
from soapjms.replay import replay
from soapjms.replay.engines import EngineName
from soapjms.replay.follower import checkpoint, follow

NAMES = ("client.jsonl", "deep/service.jsonl.gz", "tap.jsonl")
Line: TypeAlias = tuple[datetime, bytes]


def arriving(folder: Path, random: Random, disorder: float, messages: int = 600) -> list[Line]:
    """Make the lines of a log of half an hour, each written up to `disorder` seconds after its time."""
    generate(folder, messages, broken=0.3, pace=messages / 1800, seed=random.randrange(1000))
    lines = [(each.time, to_json(each).encode() + b"\n") for each in records_in(folder / "logs")]
    return sorted(lines, key=lambda each: each[0] + timedelta(seconds=random.random() * disorder))


class Growing:
    """Files that grow together, each line in any of them.

    Args:
        logs: the folder.
        random: chooses.
        parts: the lines that come between two looks.
    """

    def __init__(self, logs: Path, random: Random, parts: list[list[bytes]]) -> None:
        self._random = random
        self._parts: dict[Path, list[list[bytes]]] = {logs / name: [[] for _ in parts] for name in NAMES}
        for number, lines in enumerate(parts):
            for line in lines:
                self._parts[logs / random.choice(NAMES)][number].append(line)

    def grow(self, number: int) -> None:
        """Write all parts up to one, and some of what follows it, but nothing whole."""
        for path, parts in self._parts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            packs = path.suffix == ".gz"
            written = [compress(b"".join(part), mtime=0) if packs else b"".join(part) for part in parts]
            following = next(filter(None, written[number + 1 :]), b"")
            first = len(following) if packs else following.find(b"\n") + 1
            path.write_bytes(b"".join(written[: number + 1]) + following[: self._random.randrange(first or 1)])


def caught_up(logs: Path, out: Path, engine: EngineName, disorder: float) -> None:
    """Follow until there is nothing new."""
    follow(logs, out, engine=engine, disorder=timedelta(seconds=disorder), until_idle=timedelta(0))


def cuts(random: Random, number: int, parts: int) -> list[tuple[int, int]]:
    """Cut a number of things anywhere."""
    at = sorted(random.sample(range(number // 3, number), parts - 1))
    return list(zip([0, *at], [*at, number], strict=True))


def check_within_the_watermark(folder: Path, engine: EngineName, seed: int, looks: int) -> None:
    """Assert that disorder up to the limit makes nothing late, and changes nothing."""
    random = Random(seed)
    lines = arriving(folder / "made", random, 60)
    parts = [[line for _, line in lines[start:end]] for start, end in cuts(random, len(lines), looks)]
    logs = Growing(folder / "logs", random, parts)
    for number in range(looks):
        logs.grow(number)
        caught_up(folder / "logs", folder / "out", engine, 60)
    replay(folder / "logs", folder / "batch", engine="local")
    assert summary(folder / "out")["late"] == 0
    assert_same(folder / "out", folder / "batch")


def check_beyond_the_watermark(folder: Path, engine: EngineName, seed: int, looks: int) -> None:
    """Assert which records are late, and that the results are those of a replay of all others."""
    random = Random(seed)
    lines = arriving(folder / "made", random, 200)
    at = cuts(random, len(lines), looks)
    logs = Growing(folder / "logs", random, [[line for _, line in lines[start:end]] for start, end in at])
    timely, late = list(lines[: at[0][1]]), []
    for number, (_, end) in enumerate(at):
        logs.grow(number)
        caught_up(folder / "logs", folder / "out", engine, 30)
        watermark = max(time for time, _ in lines[:end]) - timedelta(seconds=30)
        for each in lines[end : at[number + 1][1]] if number + 1 < looks else []:
            (timely if each[0] >= watermark else late).append(each)
    found = pq.read_table(folder / "out" / "late").to_pylist()
    assert late
    assert sorted(each["raw"].encode() + b"\n" for each in found) == sorted(line for _, line in late)
    assert all(each["line"] and Path(each["file"]).is_file() for each in found)
    followed = summary(folder / "out")
    assert followed["late"] == followed["notes"].pop("lateRecord")["count"] == len(late)
    Growing(folder / "timely", random, [[line for _, line in timely]]).grow(0)
    replay(folder / "timely", folder / "batch", engine="local")
    assert rows(folder / "out", "verdicts") == rows(folder / "batch", "verdicts")
    assert {name: value for name, value in followed.items() if name not in OWN} == summary(folder / "batch")


def test_disorder_within_the_watermark(tmp_path: Path, engine: EngineName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written to several files out of order, and looked at in between: the results are those of a replay.

    Those of the steps are put together as soon as may be.
    """
    monkeypatch.setattr(checkpoint, "MAX_STEP_RESULTS", 1)
    check_within_the_watermark(tmp_path, engine, 1, 3)
    assert not list((tmp_path / "out.checkpoint" / "steps").iterdir())
    (merged,) = (tmp_path / "out.checkpoint" / "merged").iterdir()
    assert merged.name == "0000000000-0000000002"


def test_disorder_beyond_the_watermark(tmp_path: Path, engine: EngineName) -> None:
    """What comes after its time is listed as late, and all else is judged as if it had never come."""
    check_beyond_the_watermark(tmp_path, engine, 2, 3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_much_disorder(tmp_path: Path, engine: EngineName, seed: int) -> None:
    """Both, with other logs and more looks."""
    check_within_the_watermark(tmp_path / "within", engine, seed, 5)
    check_beyond_the_watermark(tmp_path / "beyond", engine, seed, 5)
