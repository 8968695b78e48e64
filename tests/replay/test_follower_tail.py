"""What is new in a folder of logs: whole lines only, the oldest first, each of them once."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import BinaryIO

import pyarrow as pa
import pytest
from pyarrow import parquet
from replay_logs import at, request, write_log, write_parquet

from soapjms.generate import generate
from soapjms.protocol.record import Direction, capture, parse_time, to_json
from soapjms.replay import replay
from soapjms.replay.follower import tail as follower_tail
from soapjms.replay.follower.tail import Chunk, Plan, Tail, opened_chunk
from soapjms.replay.inputs import FolderContents, RejectedRow, expand, files_below, open_file, whole
from soapjms.replay.parquet import RECORDS, to_row
from soapjms.replay.records import CapturedRecord, read


def line(number: int) -> bytes:
    """Return a line of a log, of its second."""
    return to_json(capture(request(number), at(number), Direction.REQUEST)).encode() + b"\n"


def tail(folder: Path, last: Plan | None = None, octets: int = 1 << 20) -> Tail:
    """Watch a folder in which nothing is left out."""
    return Tail(folder, lambda path: False, last, octets)


def read_chunk(chunk: Chunk) -> list[CapturedRecord | RejectedRow]:
    """Read the records of a chunk."""
    with opened_chunk(chunk) as part:
        return [part] if isinstance(part, RejectedRow) else list(read(*part))


def found(chunks: tuple[Chunk, ...] | list[Chunk]) -> list[tuple[int | None, str]]:
    """Read chunks: lines, with the correlation id of a record or the reason why there is none."""
    records = [each for chunk in chunks for each in read_chunk(chunk)]
    return [
        (each.line, each.reason if isinstance(each, RejectedRow) else str(each.record.message.correlation_id))
        for each in records
    ]


def append(path: Path, octets: bytes) -> None:
    """Write at the end of a file."""
    with path.open("ab") as file:
        file.write(octets)


def compressed(octets: bytes) -> bytes:
    """Make a gzip member."""
    return gzip.compress(octets, mtime=0)


def as_it_is(octets: bytes) -> bytes:
    """Change nothing."""
    return octets


def test_what_replays_wrote_is_not_followed(tmp_path: Path) -> None:
    """Earlier results beside the logs are noted, not read."""
    append(tmp_path / "log.jsonl", line(1))
    replay(tmp_path, tmp_path / "report", engine="local")
    watched = tail(tmp_path)
    plan = watched.plan()
    assert plan is not None
    assert [Path(each.path).name for each in plan.chunks] == ["log.jsonl"]
    assert (watched.rests(), watched.others()) == ([], ["report"])


@pytest.mark.parametrize(("name", "pack"), [("log.jsonl", as_it_is), ("log.jsonl.gz", compressed)])
def test_what_is_not_whole_is_left_for_later(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    """Half a line, or half a gzip member, is read when the other half is there."""
    watched, path = tail(tmp_path), tmp_path / name
    second = pack(line(2))
    append(path, pack(line(1)) + second[:40])
    plan = watched.plan()
    assert plan is not None
    assert found(plan.chunks) == [(1, "call-1")]
    assert watched.plan() is None
    assert found(watched.rests())[0][0] == 2
    append(path, second[40:])
    plans = [watched.plan() for _ in range(2)]  # it may wait until the file stops growing
    (plan,) = filter(None, plans)
    assert found(plan.chunks) == [(2, "call-2")]
    assert watched.rests() == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "pack"), [("log.jsonl", as_it_is), ("log.jsonl.gz", compressed)])
def test_a_file_that_grows_anyhow_is_read_as_a_replay_reads_it(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], seed: int
) -> None:
    """In whatever pieces it is written, and whenever it is looked at: each line once, with its number."""
    random, path = Random(seed), tmp_path / name
    lines = [random.choice([line(n), line(n), b"\n", b"no record\n", b"\xff\xfe\n", line(n) * 3]) for n in range(60)]
    cuts = sorted(random.choices(range(len(lines)), k=12))
    parts = [b"".join(lines[a:b]) for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    packed = [pack(part) for part in parts]
    if pack is compressed:  # some were torn, as by a process that was killed
        packed = [each[: random.randrange(1, len(each))] if random.random() < 0.2 else each for each in packed]
    octets = b"".join(packed) + random.choice([b"", line(99)[:50]])
    last: Plan | None = None
    chunks: list[Chunk] = []
    while octets:
        size = random.randrange(1, 3000)
        append(path, octets[:size])
        octets = octets[size:]
        last = Plan.from_json(last.to_json()) if last else None
        watched = tail(tmp_path, last, random.randrange(1, 5000))
        while (plan := watched.plan()) is not None:
            chunks.extend(plan.chunks)
            last = plan
    watched = tail(tmp_path, last)
    (log,), *_ = expand([tmp_path])
    assert [each for chunk in [*chunks, *watched.rests()] for each in read_chunk(chunk)] == list(read(whole(log)))


def test_files_are_read_side_by_side(tmp_path: Path) -> None:
    """However many files there are, none is far ahead of another; what is left is no earlier than the plan says."""
    for name, first in (("a", 0), ("b", 1), ("c", 2)):
        records = [capture(request(n), at(n), Direction.REQUEST) for n in range(first, 3000, 3)]
        write_log(tmp_path / f"{name}.jsonl", *records)
    watched = tail(tmp_path, octets=400_000)
    seen, unread = 0, 0.0
    while (plan := watched.plan()) is not None:
        numbers = [int(text.removeprefix("call-")) for _, text in found(plan.chunks)]
        assert min(numbers) >= unread
        seen += len(numbers)
        if plan.unread is not None:
            unread = (parse_time(plan.unread) - at(0)).total_seconds()
            assert max(numbers) - unread < 3000 / 2
    assert seen == 3000


def numbers(watched: Tail) -> list[int]:
    """Read all that is new, also behind the last whole line; return the calls."""
    chunks = list[Chunk]()
    while (plan := watched.plan()) is not None:
        chunks += Plan.from_json(plan.to_json()).chunks
    return [int(text.removeprefix("call-")) for _, text in found([*chunks, *watched.rests()])]


def resumed(watched: Tail) -> Tail:
    """Watch the same folder in another process."""
    places = {path: replace(place) for path, place in watched._places.items()}
    return tail(watched._folder, Plan.from_json(Plan(9, (), places, None).to_json()))


def same(watched: Tail) -> Tail:
    """Go on in the same process."""
    return watched


@pytest.mark.parametrize("go_on", [same, resumed])
@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize(("name", "pack"), [("log.jsonl", as_it_is), ("log.jsonl.gz", compressed)])
def test_a_log_is_renamed_and_another_begins_under_its_name(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], count: int, go_on: Callable[[Tail], Tail]
) -> None:
    """Smaller, of the same size or larger: each line is read once, also those that came before the change of names."""
    path = tmp_path / name
    append(path, b"".join(pack(line(n)) for n in range(3)))
    watched = tail(tmp_path)
    assert numbers(watched) == [0, 1, 2]
    for first in (10, 40):
        append(path, pack(line(first - 1)))
        for old in sorted(tmp_path.glob("log*"), reverse=True):
            old.rename(tmp_path / f"log-{first}{old.name.removeprefix('log')}")
        append(path, b"".join(pack(line(n)) for n in range(first, first + count)))
        watched = go_on(watched)
        assert sorted(numbers(watched)) == [*range(first - 1, first + count)]
        assert numbers(watched) == []


@pytest.mark.parametrize("go_on", [same, resumed])
@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_written_anew_is_read_from_its_beginning(
    tmp_path: Path, count: int, go_on: Callable[[Tail], Tail], *, replaced: bool
) -> None:
    """In its place, as by logrotate's copytruncate, or by another file."""
    path = tmp_path / "log.jsonl"
    append(path, b"".join(map(line, range(3))))
    watched = tail(tmp_path)
    assert numbers(watched) == [0, 1, 2]
    if replaced:
        path.unlink()
    path.write_bytes(b"".join(map(line, range(10, 10 + count))))
    os.utime(path, ns=(count, count))
    watched = go_on(watched)
    assert numbers(watched) == [*range(10, 10 + count)]
    append(path, line(50))
    assert numbers(watched) == [50]


def test_an_equal_file_in_place_of_a_log_is_the_log(tmp_path: Path) -> None:
    """As rsync writes it: only what is new in it is read."""
    path = tmp_path / "log.jsonl"
    append(path, line(1))
    watched = tail(tmp_path)
    assert numbers(watched) == [1]
    append(tmp_path / ".part", line(1) + line(2))
    (tmp_path / ".part").rename(path)
    assert numbers(watched) == [2]


def test_parquet_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    """Its rows are copies, or new; a file that was only touched is the same."""
    path = tmp_path / "log.parquet"
    write_parquet(path, [capture(request(n), at(n)) for n in range(3)])
    watched = tail(tmp_path)
    assert numbers(watched) == [0, 1, 2]
    os.utime(path, ns=(1, 1))
    assert numbers(watched) == []
    write_parquet(path, [capture(request(n), at(n)) for n in range(4)])
    assert numbers(watched) == [0, 1, 2, 3]
    path.rename(tmp_path / "other.parquet")
    assert numbers(watched) == []


def test_a_log_that_is_renamed_before_its_plan_is_carried_out(tmp_path: Path) -> None:
    """It is read under its other name; what was written over is rejected, not passed over in silence."""
    path = tmp_path / "log.jsonl"
    append(path, line(1))
    plan = tail(tmp_path).plan()
    assert plan is not None
    path.rename(tmp_path / "old.jsonl")
    append(path, line(2) * 9)
    assert found(plan.chunks) == [(1, "call-1")]
    (tmp_path / "old.jsonl").unlink()
    ((number, reason),) = found(plan.chunks)
    assert number is None
    assert "were not read in time" in reason


def test_a_log_that_is_renamed_while_the_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its position is not lost, though it is missed under either name."""
    path = tmp_path / "log.jsonl"
    append(path, line(1))
    watched = tail(tmp_path)
    assert numbers(watched) == [1]
    append(path, line(2))

    def rotated(folder: Path, leave_out: Callable[[Path], bool]) -> FolderContents:
        contents = files_below(folder, leave_out)
        if not (tmp_path / "old.jsonl").exists():
            path.rename(tmp_path / "old.jsonl")
            append(path, line(3))
        return contents

    monkeypatch.setattr(follower_tail, "files_below", rotated)
    assert sorted(numbers(watched)) == [2, 3]
    assert numbers(watched) == []


def test_logs_that_are_renamed_at_each_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as that goes on, none is read from its beginning again, also after a restart."""
    path = tmp_path / "log-9.jsonl"
    append(path, line(1))
    watched = tail(tmp_path)
    assert numbers(watched) == [1]
    count = [9]

    def rotated(folder: Path, leave_out: Callable[[Path], bool]) -> FolderContents:
        contents = files_below(folder, leave_out)
        (tmp_path / f"log-{count[0]}.jsonl").rename(tmp_path / f"log-{count[0] - 1}.jsonl")
        append(tmp_path / f"log-{count[0]}.jsonl", line(100 - count[0]))
        count[0] -= 1
        return contents

    with monkeypatch.context() as patch:
        patch.setattr(follower_tail, "MAX_LOOKS", 2)
        patch.setattr(follower_tail, "files_below", rotated)
        first = watched.plan()
    assert first is not None
    watched = tail(tmp_path, Plan.from_json(first.to_json()))
    read = [int(text.removeprefix("call-")) for _, text in found(first.chunks)]
    assert sorted([*read, *numbers(watched)]) == [*range(91, 100 - count[0])]
    assert numbers(watched) == []


def test_another_log_in_place_of_one_that_is_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for the other, though nothing was read of that one, and read on from where it was."""
    append(tmp_path / "log.jsonl", line(1))
    watched = tail(tmp_path)
    assert numbers(watched) == [1]
    append(tmp_path / "new.jsonl", line(2))
    looked = watched._source

    def renamed(path: str) -> object:
        found = looked(path)
        if path.endswith("new.jsonl") and (tmp_path / "log.jsonl").exists():
            (tmp_path / "new.jsonl").rename(tmp_path / "newer.jsonl")
            (tmp_path / "log.jsonl").rename(tmp_path / "new.jsonl")
        return found

    monkeypatch.setattr(watched, "_source", renamed)
    assert watched.plan() is None
    assert numbers(watched) == [2]


def test_positions_of_files_that_are_gone_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first, as each rotation of logs may leave one."""
    monkeypatch.setattr(follower_tail, "MAX_GONE", 1)
    watched = tail(tmp_path)
    for number in range(9):
        append(tmp_path / ".part", line(number) * (9 - number))
        (tmp_path / ".part").rename(tmp_path / "log.jsonl")
        assert set(numbers(watched)) == {number}
    assert len(watched._places) <= 1 + 1


def test_a_log_that_is_renamed_while_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is looked through again."""
    path = tmp_path / "log.jsonl"
    append(path, line(1))
    plan = tail(tmp_path).plan()
    assert plan is not None
    path.rename(tmp_path / "b.jsonl")
    append(path, line(2))

    def renamed(name: str) -> BinaryIO:
        if name.endswith("b.jsonl"):
            Path(name).rename(tmp_path / "a.jsonl")
        return open_file(name)

    monkeypatch.setattr(follower_tail, "open_file", renamed)
    assert found(plan.chunks) == [(1, "call-1")]


def test_a_log_that_is_renamed_while_it_is_read(tmp_path: Path) -> None:
    """The file that was opened is read."""
    path = tmp_path / "log.jsonl"
    append(path, line(1))
    plan = tail(tmp_path).plan()
    assert plan is not None
    with opened_chunk(plan.chunks[0]) as part:
        path.unlink()
        append(path, line(2) * 9)
        assert not isinstance(part, RejectedRow)
        assert [each.line for each in read(*part)] == [1]


def test_a_log_with_a_line_without_end_is_renamed(tmp_path: Path) -> None:
    """The rest is read under the other name, and not from the log that follows."""
    path = tmp_path / "log.jsonl"
    append(path, line(1) + line(2)[:-1])
    watched = tail(tmp_path)
    assert watched.plan() is not None
    rests = watched.rests()
    path.rename(tmp_path / "old.jsonl")
    append(path, line(3) * 9)
    assert found(rests) == [(2, "call-2")]


def test_positions_of_an_earlier_version(tmp_path: Path) -> None:
    """They have no digests: files are known by their paths, and those that were given up are read again."""
    for name in ("a.jsonl", "b.jsonl"):
        append(tmp_path / name, line(1) + line(2))
    places = {
        str(tmp_path / name): {"octets": len(line(1)), "line": 2, "form": "JSON Lines", "dead": dead, "tried": 0}
        for name, dead in (("a.jsonl", False), ("b.jsonl", True))
    }
    chunk = [str(tmp_path / "a.jsonl"), "JSON Lines", 0, len(line(1)), 1, False, False, None]
    last = Plan.from_json(json.dumps([4, [chunk], places, None]))
    assert found(last.chunks) == [(1, "call-1")]
    assert sorted(numbers(tail(tmp_path, last))) == [1, 2, 2]


def test_damaged_gzip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    """What is before it, and what is rejected, is as in a replay; whether it goes on behind it is still to be seen."""
    whole_part, damaged = compressed(line(1) + line(2)), bytearray(gzip.compress(b"".join(map(line, range(3, 90))), 1))
    half = len(damaged) // 2
    damaged[half:] = bytes(each ^ 0x5A for each in damaged[half:])
    (tmp_path / "log.jsonl.gz").write_bytes(whole_part + damaged)
    watched = tail(tmp_path)
    chunks: list[Chunk] = []
    while (plan := watched.plan()) is not None:
        chunks.extend(plan.chunks)
    (log,), *_ = expand([tmp_path])
    wanted = list(read(whole(log)))
    assert [each for chunk in [*chunks, *watched.rests()] for each in read_chunk(chunk)] == wanted
    assert sum(isinstance(each, CapturedRecord) for each in wanted) > 2
    append(tmp_path / "log.jsonl.gz", compressed(line(91)))
    plan = watched.plan()
    assert plan is not None
    chunks.extend(plan.chunks)
    wanted = list(read(whole(log)))
    assert [each for chunk in chunks for each in read_chunk(chunk)] == wanted
    assert isinstance(wanted[-1], CapturedRecord)
    assert watched.rests() == []


def test_many_small_files_are_several_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with so many parts at most; what is left is no earlier than the plan says."""
    monkeypatch.setattr(follower_tail, "PLAN_CHUNKS", 4)
    for number in range(10):
        append(tmp_path / f"{number}.jsonl", line(number))
    watched = tail(tmp_path)
    plans = [plan for _ in range(4) if (plan := watched.plan()) is not None]
    assert [len(each.chunks) for each in plans] == [4, 4, 2]
    assert [each.unread is None for each in plans] == [False, False, True]


def test_parquet_is_taken_when_its_end_is_there(tmp_path: Path) -> None:
    """A file that is being written is no record yet; a broken one is rejected at the end."""
    octets = generate(tmp_path / "made", 200, form="parquet").files[0].read_bytes()
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "log.parquet"
    path.write_bytes(octets[:-10])
    watched = tail(tmp_path / "logs")
    assert watched.plan() is None
    assert "cannot be read as Parquet" in found(watched.rests())[0][1]
    append(path, octets[-10:])
    plans = [watched.plan() for _ in range(2)]
    (plan,) = filter(None, plans)
    assert len(found(plan.chunks)) > 200
    assert plan.unread is None
    assert watched.plan() is None


def test_parquet_of_any_time_is_taken(tmp_path: Path) -> None:
    """Also where the first time in it is one that Python does not know: the row is rejected, the next is read."""
    row = to_row(capture(request(1), at(1), Direction.REQUEST))
    table = pa.Table.from_pylist([row, row], RECORDS)
    times = pa.array([1 << 62, 0]).cast(RECORDS.field("time").type)
    parquet.write_table(table.set_column(1, "time", times), tmp_path / "log.parquet")
    plan = tail(tmp_path).plan()
    assert plan is not None
    (refused, taken) = found(plan.chunks)
    assert "column time cannot be read" in refused[1]
    assert taken == (2, "call-1")


def test_a_folder_that_cannot_be_listed_is_rejected_once(too_deep: Path) -> None:
    """Its logs are not passed over in silence; those beside it are read."""
    (too_deep / "a.jsonl").write_bytes(line(1))
    watched = tail(too_deep)
    plan = watched.plan()
    assert plan is not None
    (refused, taken) = found(plan.chunks)
    assert "the folder cannot be listed: File name too long" in refused[1]
    assert taken == (1, "call-1")
    (too_deep / "b.jsonl").write_bytes(line(2))
    following = Tail(too_deep, lambda path: False, Plan.from_json(plan.to_json())).plan()
    assert following is not None
    assert found(following.chunks) == [(1, "call-2")]


def test_what_is_left_out(tmp_path: Path) -> None:
    """Other files, folders of ours, and second names of a file are no logs."""
    log = write_log(tmp_path / "log.jsonl", capture(request(1), at(1), Direction.REQUEST))
    (tmp_path / "again.jsonl").symlink_to(log)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "out").mkdir()
    write_log(tmp_path / "out" / "log.jsonl", capture(request(2), at(2), Direction.REQUEST))
    plan = Tail(tmp_path, lambda path: path.is_relative_to(tmp_path / "out"), None).plan()
    assert plan is not None
    assert found(plan.chunks) == [(1, "call-1")]


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    """As in a replay; also those that come while the folder is watched, and each log once."""
    logs, disk = tmp_path / "logs", tmp_path / "disk"
    logs.mkdir()
    disk.mkdir()
    (disk / "a.jsonl").write_bytes(line(1))
    watched = tail(logs)
    assert watched.plan() is None
    (logs / "disk").symlink_to(disk)
    (disk / "again").symlink_to(logs)
    plan = watched.plan()
    assert plan is not None
    assert found(plan.chunks) == [(1, "call-1")]
    assert watched.plan() is None
    assert watched.rests() == []


def test_what_is_no_file_is_rejected_at_the_end(tmp_path: Path) -> None:
    """A pipe is not waited for; a link may lead somewhere later. While they are as they are, each report says so."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "dead.jsonl").symlink_to("nowhere")
    (tmp_path / "device.jsonl.gz").symlink_to("/dev/zero")
    watched = tail(tmp_path)
    assert watched.plan() is None
    for _ in range(2):
        assert found(watched.rests()) == [
            (None, "cannot be opened: No such file or directory"),
            (None, "cannot be opened: it is no regular file"),
            (None, "cannot be opened: it is no regular file"),
        ]
    (tmp_path / "nowhere").write_bytes(line(1))
    plan = watched.plan()
    assert plan is not None
    assert found(plan.chunks) == [(1, "call-1")]
    assert len(watched.rests()) == 2


@pytest.mark.parametrize(("name", "reason"), [("a.jsonl", None), ("a.jsonl.gz", "gzip"), ("a.parquet", "Parquet")])
def test_an_empty_file_is_what_it_is_in_a_replay(tmp_path: Path, name: str, reason: str | None) -> None:
    """An empty log without compression is one; of nothing no gzip and no Parquet is made."""
    (tmp_path / name).touch()
    watched = tail(tmp_path)
    assert watched.plan() is None
    refused = found(watched.rests())
    assert len(refused) == (reason is not None)
    assert all(reason in said for _, said in refused if reason)
    logs, rejected, _ = expand([tmp_path])
    assert len([*rejected, *(each for log in logs for each in read(whole(log)))]) == len(refused)


def test_what_is_beside_the_logs_is_named(tmp_path: Path) -> None:
    """Files that are called otherwise than logs, for the note of a report."""
    (tmp_path / "b.jsonl.zst").touch()
    (tmp_path / "a.jsonl").touch()
    assert tail(tmp_path).others() == ["b.jsonl.zst"]
