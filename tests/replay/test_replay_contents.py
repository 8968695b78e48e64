"""Records that are held for later: a large one lies in a file of its own, whatever makes it large."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from replay_logs import TO_SERVICE, at, disk_watched, request, write_log

from brokers.message import properties
from soapjms.protocol.record import capture
from soapjms.replay.contents import contents_of, records_of
from soapjms.replay.flat_records import flattened
from soapjms.replay.inputs import expand, whole
from soapjms.replay.output import Rows
from soapjms.replay.parquet import REJECTED
from soapjms.replay.records import read_columns

LARGE = "x" * 70_000
MANY = {f"p{number}": "y" * 50 for number in range(1500)}


@pytest.mark.parametrize(
    "changes",
    [
        {"body": LARGE.encode()},
        {"properties": properties({**TO_SERVICE, "other": LARGE})},
        {"properties": properties({**TO_SERVICE, **MANY})},
        {"message_id": f"ID:{LARGE}"},
        {"type": LARGE[:40_000], "correlation_id": LARGE[:40_000]},
    ],
    ids=["body", "a property", "many properties", "an id", "two headers"],
)
def test_a_large_record_has_a_file(tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """No other has one, and all are read as they were, in their order."""
    sent = [request(number, **changes if number in (0, 3, 4, 9) else {}) for number in range(10)]
    records = [capture(each, at(number)) for number, each in enumerate(sent)]
    records[5] = replace(records[5], meta={"note": "é"})
    write_log(tmp_path / "log.jsonl", *records)
    (log,), *_ = expand([tmp_path])
    (batch,) = read_columns(whole(log))
    assert isinstance(batch, pa.RecordBatch)
    given = pa.Table.from_batches([batch]).add_column(0, "row", pa.array(range(10), pa.int64()))
    (tmp_path / "large").mkdir()
    is_on_disk = disk_watched(monkeypatch)
    contents = contents_of(given, tmp_path / "large").sort_by("row")
    assert [is_on_disk(each) for each in (tmp_path / "large").iterdir()] == [True] * 4
    assert max(row.nbytes for row in map(contents.slice, range(10), [1] * 10)) < len(LARGE)
    (found,) = contents.combine_chunks().to_batches()
    assert list(records_of(found, tmp_path / "large")) == [flattened(each) for each in records]


def test_large_rows_do_not_wait(tmp_path: Path) -> None:
    """Rows are written before they are many if they are large, as a line that is no record may be."""
    with Rows(tmp_path / "rejected.parquet", REJECTED) as rows:
        for number in range(20):
            rows.write(("log.jsonl", number, "no record", "x" * (1 << 20)))
    written = pq.ParquetFile(tmp_path / "rejected.parquet")
    assert written.metadata.num_rows == 20
    assert written.num_row_groups > 4
