"""What a run that follows logs keeps: whole steps only, each of them once, and never many files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from soapjms.replay.follower import checkpoint
from soapjms.replay.follower.checkpoint import DONE, RESULTS, Checkpoint, FollowResults


def do_step(kept: Checkpoint, number: int) -> None:
    """Do a step whose results are one row each: its number."""
    folder = kept.begin(number)
    for name in RESULTS:
        (folder / name).mkdir()
        pq.write_table(pa.table({"number": [number]}), folder / name / "part-00000.parquet")
    kept.commit(folder, FollowResults(number=number))


def numbers(kept: Checkpoint, name: str) -> list[int]:
    """Return the rows of all results."""
    found = [row["number"] for path in kept.results(name) for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(found)


def test_many_steps_are_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their results are put together, in order; the state is that after the last one."""
    monkeypatch.setattr(checkpoint, "MAX_STEP_RESULTS", 10)
    kept = Checkpoint(tmp_path / "kept")
    with kept.opened({}):
        for number in range(95):
            do_step(kept, number)
            kept.merge()
            assert len(kept.results("verdicts")) <= 10 + number // 10
        for name in RESULTS:
            assert numbers(kept, name) == list(range(95))
    assert kept.done().number == 94


def test_a_kill_while_steps_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the new file is whole it is made again; after that the steps in it are removed. No row is there twice."""
    monkeypatch.setattr(checkpoint, "MAX_STEP_RESULTS", 5)
    kept = Checkpoint(tmp_path / "kept")
    with kept.opened({}):
        for number in range(6):
            do_step(kept, number)
    half = tmp_path / "kept" / "merged" / ".0000000004" / "verdicts"
    half.mkdir(parents=True)
    (half / "merged.parquet").write_bytes(b"PAR1 and then nothing")
    shutil.copytree(tmp_path / "kept" / "steps", tmp_path / "steps")
    with kept.opened({}):
        assert numbers(kept, "verdicts") == list(range(6))
        kept.merge()
    shutil.rmtree(tmp_path / "kept" / "steps")
    (tmp_path / "steps").rename(tmp_path / "kept" / "steps")  # as if none of them had been removed yet
    with kept.opened({}):
        assert numbers(kept, "verdicts") == list(range(6))
        assert kept.done().number == 5


def test_a_step_that_was_not_finished_is_none(tmp_path: Path) -> None:
    """What a killed run left of it goes."""
    kept = Checkpoint(tmp_path / "kept")
    with kept.opened({}):
        do_step(kept, 0)
        (kept.begin(1) / "verdicts").mkdir()
    with kept.opened({}):
        assert kept.done().number == 0
        assert not list((tmp_path / "kept").glob(f"steps/.*/{DONE}"))
        assert [each.name for each in (tmp_path / "kept" / "steps").iterdir()] == ["0000000000"]
