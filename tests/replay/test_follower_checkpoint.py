"""What a run that follows logs keeps: whole steps only, each of them once, and never many files."""

from __future__ import annotations

import os
import resource
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from replay_logs import at, disk_watched, request, write_log

from soapjms.protocol.errors import UsageError
from soapjms.protocol.record import capture
from soapjms.replay.errors import StoreFailedError
from soapjms.replay.facts import FACTS
from soapjms.replay.follower import checkpoint, follow, held_records
from soapjms.replay.follower.checkpoint import RESULTS, Checkpoint
from soapjms.replay.follower.held_records import HELD, ROWS
from soapjms.replay.follower.results import FollowResults


def do_step(kept: Checkpoint, number: int) -> None:
    """Do a step whose results are one row each: its number."""
    folder = kept.begin(number)
    for name in RESULTS:
        (folder / name).mkdir()
        pq.write_table(pa.table({"number": [number]}), folder / name / "part-00000.parquet")
    kept.commit(folder, ROWS.empty_table(), FollowResults(number=number))


def numbers(kept: Checkpoint, name: str) -> list[int]:
    """Return the rows of all results."""
    found = [row["number"] for path in kept.results(name) for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("name", ["notes.txt", "temporary/notes.txt", "plans/.notes", "steps/notes", "merged/0/notes"])
def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    """Nothing in it is removed, though some folders in it have the names of those of a checkpoint."""
    folder = tmp_path / "kept"
    notes = folder / name
    notes.parent.mkdir(parents=True)
    notes.write_text("mine", "utf-8")
    folder.chmod(0o755)
    with pytest.raises(UsageError, match=rf"kept holds {name.partition('/')[0]}, and is no checkpoint"):
        follow(tmp_path, tmp_path / "out", engine="local", checkpoint=folder, until_idle=timedelta(0))
    assert [each for each in folder.rglob("*") if each.is_file()] == [notes]
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("terms", ["", "[]", "[" * 100_000])
def test_terms_that_are_none(tmp_path: Path, terms: str) -> None:
    """A file with the name of a checkpoint's terms is named if it is something else."""
    (tmp_path / "terms.json").write_text(terms, "utf-8")
    with pytest.raises(UsageError, match=r"terms\.json is not of a checkpoint"), Checkpoint(tmp_path).opened({}):
        pass


def test_a_kill_before_the_terms_are_written(tmp_path: Path) -> None:
    """What is left of the first file of a checkpoint is in the way of nothing."""
    (tmp_path / "lock").touch()
    (tmp_path / ".terms.json.0123").write_text("{", "utf-8")
    with Checkpoint(tmp_path).opened({}):
        pass


def test_many_steps_are_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their results are put together, in order; the state is that after the last one."""
    monkeypatch.setattr(checkpoint, "MAX_STEP_RESULTS", 4)
    kept = Checkpoint(tmp_path / "kept")
    with kept.opened({}):
        for number in range(95):
            do_step(kept, number)
            kept.merge()
            assert len(kept.results("verdicts")) <= 8
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
    """What a killed run left of it goes, wherever it was: also if its results were in place, but not its records."""
    kept = Checkpoint(tmp_path / "kept")
    for left in (".0000000001", "0000000001"):
        with kept.opened({}):
            do_step(kept, 0)
            (kept.begin(1) / "verdicts").mkdir()
            (tmp_path / "kept" / "steps" / ".0000000001").rename(tmp_path / "kept" / "steps" / left)
        with kept.opened({}):
            assert kept.done().number == 0
            assert [each.name for each in (tmp_path / "kept" / "steps").iterdir()] == ["0000000000"]
            shutil.rmtree(tmp_path / "kept" / "steps" / "0000000000")


def test_what_counts_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure loses no result: its files are written to disk whole before anything relies on them."""
    monkeypatch.setattr(checkpoint, "MAX_STEP_RESULTS", 2)
    is_on_disk = disk_watched(monkeypatch)
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    for number in range(3):
        write_log(logs / f"{number}.jsonl", capture(request(number), at(2000 * number)))
        follow(logs, out, engine="local", until_idle=timedelta(0))
        kept = tmp_path / "out.checkpoint"
        found = [path for folder in ("steps", "merged", "plans") for path in (kept / folder).rglob("*")]
        assert [path for path in (*found, out, *out.rglob("*")) if not is_on_disk(path)] == []


def records(*rows: int) -> tuple[pa.Table, pa.Table]:
    """Make the facts and the contents of records, one a minute, with these numbers."""
    facts = [{"row": row, "key": f"c-{row}", "by_alias": False, "time": row * 60_000_000} for row in rows]
    contents = [{"row": row, "line": row, "body": b"<a/>", "log": "log.jsonl"} for row in rows]
    return pa.Table.from_pylist(facts, FACTS), pa.Table.from_pylist(contents, HELD)


def held(kept: Checkpoint) -> list[int]:
    """Return the numbers of the records that are held, which must be the same in all tables."""
    facts = sorted(row for batch in kept.held.facts(None) for row in batch.column("row").to_pylist())
    wanted = pa.table([facts], ROWS)
    contents = sorted(row for batch in kept.held.contents(wanted) for row in batch.column("row").to_pylist())
    assert contents == facts
    assert len(facts) == kept.held.number()
    return facts


def test_records_are_held_until_they_are_over(tmp_path: Path) -> None:
    """Also across restarts; those of a step that was not finished are read again."""
    kept = Checkpoint(tmp_path / "kept")
    with kept.opened({}):
        kept.held.add(*records(1, 2, 3))
        kept.commit(kept.begin(0), ROWS.empty_table(), FollowResults(number=0))
    with kept.opened({}):
        assert held(kept) == [1, 2, 3]
        kept.held.add(*records(4, 5))
        over = kept.held.over(datetime(1970, 1, 1, 0, 4, tzinfo=UTC))
        assert sorted(over.column("row").to_pylist()) == [1, 2, 3]
    with kept.opened({}):
        assert held(kept) == [1, 2, 3]
        kept.held.add(*records(4, 5))
        kept.commit(kept.begin(1), over, FollowResults(number=1))
        assert held(kept) == [4, 5]
    with kept.opened({}):
        assert (held(kept), kept.done().number, kept.held.parts()) == ([4, 5], 1, {0})


def do_large_steps(kept: Checkpoint) -> None:
    """Do ten steps that hold 8 MB each."""
    with kept.opened({}):
        for number in range(10):
            facts, contents = records(*range(number * 2000, number * 2000 + 2000))
            bodies = pa.array([os.urandom(4000) for _ in range(2000)], pa.binary())
            kept.held.add(facts, contents.set_column(contents.column_names.index("body"), "body", bodies))
            kept.commit(kept.begin(number), ROWS.empty_table(), FollowResults(number=number))


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Whatever cannot be written, it is an error of ours; with room again it goes on behind the last whole step."""
    kept, limits = Checkpoint(tmp_path / "kept"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (22 << 20, limits[1]))
    try:
        with pytest.raises(StoreFailedError, match="cannot be stored"):
            do_large_steps(kept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with kept.opened({}):
        assert 0 < kept.done().number < 9
        assert held(kept) == list(range(2000 * (kept.done().number + 1)))


def test_records_that_another_version_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are judged by themselves, as rules of this version may read more of them."""
    kept = Checkpoint(tmp_path / "kept")
    with kept.opened({}):
        facts, contents = records(1, 2)
        is_plain = pa.array([True, True])
        kept.held.add(facts.set_column(facts.column_names.index("is_plain"), "is_plain", is_plain), contents)
        kept.commit(kept.begin(0), ROWS.empty_table(), FollowResults(number=0))
    with kept.opened({}):
        assert [each for batch in kept.held.facts(None) for each in batch.column("is_plain").to_pylist()] == [True] * 2
    monkeypatch.setattr(held_records, "FACTS_DIGEST", "another")
    with kept.opened({}):
        assert held(kept) == [1, 2]
        (found,) = kept.held.facts(None)
        assert (found.column("is_plain").to_pylist(), found.column("key").to_pylist()) == ([False] * 2, ["c-1", "c-2"])


def test_records_that_cannot_be_read(tmp_path: Path) -> None:
    """A database that is none is named, and what to do."""
    kept = Checkpoint(tmp_path / "kept")
    (tmp_path / "kept" / "held").mkdir(parents=True)
    (tmp_path / "kept" / "terms.json").write_text("{}", "utf-8")
    (tmp_path / "kept" / "held" / "columns.duckdb").write_bytes(b"no database" * 1000)
    said = r"the records in .*/held cannot be read: .*; name another --checkpoint"
    with pytest.raises(UsageError, match=said), kept.opened({}):
        pass
