"""Records are read again by their lines, and a run takes large bodies and other rows that columns do not suit."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile_log import write_hostile_log
from replay_logs import ENVELOPE, assert_same_results, at, request, response, summary

from soapjms.generate import generate
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import Record, capture, from_json, to_json
from soapjms.replay import replay
from soapjms.replay.errors import NoInputError
from soapjms.replay.flat_records import Unpacker
from soapjms.replay.inputs import Split, expand, splits, whole
from soapjms.replay.parquet import RECORDS, to_row
from soapjms.replay.records import CapturedRecord, read, read_rows


def log_of(form: str, folder: Path) -> Path:
    """Write a log with lines that are no records, in a form; rows of Parquet in many groups."""
    lines = write_hostile_log(folder / "hostile.jsonl", 5, 300)
    if form == "jsonl":
        return lines
    octets = lines.read_bytes()
    if form == "jsonl.gz":
        path = folder / "hostile.jsonl.gz"
        path.write_bytes(gzip.compress(octets[:100_000]) + gzip.compress(octets[100_000:]))
        return path
    path = folder / "hostile.parquet"
    rows = [to_row(each) for line in octets.splitlines() if (each := record_of(line)) is not None]
    pq.write_table(pa.Table.from_pylist(rows, RECORDS), path, row_group_size=37)
    return path


def record_of(line: bytes) -> Record | None:
    """Read a line; return None for what is no record."""
    try:
        return from_json(line.decode())
    except (UnicodeDecodeError, InvalidRecordError):
        return None


def parts_of(path: Path) -> list[Split]:
    """Return the parts of a log, and the whole of it as one."""
    (log,) = expand([path]).logs
    return [whole(log), *splits([log], max(1, log.size // 3))]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet"])
def test_some_records_are_read_again(tmp_path: Path, form: str, share: float) -> None:
    """They are those that were read at these lines, whatever is beside them, in all of a log or in a part."""
    random, unpack, number = Random(7), Unpacker(), 0
    for part in parts_of(log_of(form, tmp_path)):
        found = [each for each in read(part) if isinstance(each, CapturedRecord)]
        number += len(found)
        some = [each for each in found if random.random() < share]
        again = [*read_rows(part, (each.line for each in some))]
        assert [unpack.record(flat) for flat in again] == [each.record for each in some]
    assert number > 200


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet"])
def test_a_line_that_is_no_record_any_more(tmp_path: Path, form: str) -> None:
    """A log that was cut meanwhile ends the run, as its records can no longer be judged."""
    part, *_ = parts_of(log_of(form, tmp_path))
    with pytest.raises(NoInputError, match="is no record now: the log was changed meanwhile"):
        [*read_rows(part, [1_000_000])]


@pytest.mark.parametrize("engine", ["local", "exact"])
def test_a_log_that_is_cut_while_it_is_replayed(tmp_path: Path, engine: str) -> None:
    """The run says so, and leaves no results."""
    generate(tmp_path / "made", 300)
    (log,) = (tmp_path / "made" / "logs").iterdir()

    def cut(said: str) -> None:
        if not said.startswith("reading"):
            log.write_bytes(log.read_bytes()[:5000])

    with pytest.raises(NoInputError, match="the log was changed meanwhile"):
        replay(log, tmp_path / "out", engine=engine, progress=cut)
    assert not (tmp_path / "out").exists()


def test_bodies_of_all_sizes(tmp_path: Path) -> None:
    """Large ones are judged by themselves, and nothing is lost or different."""
    sizes = [10, 1 << 10, (1 << 16) - 300, (1 << 16) + 1, 1 << 18, 1 << 20]
    log = tmp_path / "a.jsonl"
    with log.open("w", encoding="utf-8") as out:
        for number, size in enumerate(sizes * 3):
            body = ENVELOPE.format("x" * size).encode()
            for make in (request, response):
                out.write(to_json(capture(make(number, body=body), at(number))) + "\n")
    assert_same_results(tmp_path, log)
    assert summary(tmp_path / "local")["exchanges"] == len(sizes) * 3
