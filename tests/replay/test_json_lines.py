"""The short way from a line into columns: never another record than the long way reads, and none that it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_kit import captured
from replay_logs import CXF, rows, summary

from brokers.message import MessageType
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import MANY_PARTS, Record, from_json, to_octets
from soapjms.replay import replay
from soapjms.replay.columns import ColumnWriter, RecordRow, row_of
from soapjms.replay.engines import EngineName
from soapjms.replay.inputs import RejectedRow, expand, whole
from soapjms.replay.json_lines import usual_row
from soapjms.replay.parquet import check_text
from soapjms.replay.records import read, read_columns


def as_columns(row: RecordRow) -> pa.RecordBatch:
    """Write one record into columns."""
    writer = ColumnWriter()
    writer.add(row)
    return writer.batch()


def read_long(octets: bytes) -> Record | None:
    """Read a line in the long way; None if it is refused."""
    try:
        record = from_json(octets.decode())
        check_text(record)
    except (UnicodeDecodeError, InvalidRecordError):
        return None
    return record


def is_short(octets: bytes) -> bool:
    """Say whether a line goes the short way, and check that it leads where the long one does."""
    row, record = usual_row(7, octets), read_long(octets)
    if row is None:
        return False
    assert record is not None, "the long way refuses it"
    assert as_columns(row).equals(as_columns(row_of(7, record, 1)))
    return True


USUAL = {MessageType.BYTES, MessageType.TEXT, MessageType.MESSAGE}


@given(captured())
def test_any_record(record: Record) -> None:
    """Records of usual kinds go the short way: no unknown members, and no objects or lists in meta."""
    meta = record.meta.values()
    is_usual = not record.extra and not any(isinstance(each, list) for each in meta)
    has_usual_body = record.message.message_type in USUAL or record.message.body is None
    assert is_short(to_octets(record)) is (is_usual and has_usual_body)


def test_lines_of_another_stack() -> None:
    """Real traffic goes the short way."""
    assert all(is_short(line) for line in CXF.read_bytes().splitlines())


# Hostile lines

BASE: dict[str, Any] = {
    "v": 1,
    "time": "2026-11-20T19:22:01.123456Z",
    "direction": "request",
    "node": "tap",
    "destination": {"kind": "queue", "name": "greeter"},
    "jms": {
        "message_id": "ID:a-1",
        "correlation_id": "c-1",
        "reply_to": {"kind": "temporary-queue", "name": "ID:a-1:1"},
        "delivery_mode": 2,
        "priority": 4,
        "expiration": 0,
        "timestamp": 1795201951945,
        "type": "a",
        "redelivered": False,
    },
    "properties": {"SOAPJMS_requestURI": "jms:queue:greeter", "SOAPJMS_isFault": False, "count": 3},
    "types": {"count": "long"},
    "untyped": False,
    "message_type": "bytes",
    "body": "PGEvPg==",
    "truncated": False,
    "sha256": "29114363F749A0226B6988DDA3CA2492A954117AB6B5F382706C20300DABC079",
    "meta": {"host": "a", "count": 1},
}

ODD = [
    *("null", "true", "false", "0", "-0", "1", "1.0", "1e0", "-0.0", "1e999", "-1e999", "NaN", "Infinity", "01", "+1"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 400, "1" * 5000, "0.1e-400"),
    *(
        '""',
        '"a"',
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '"\\u0000"',
        '"\\udc00\\ud800"',
        '"\x7f"',
        '"\x01"',
        '"\\x"',
        '"\\/"',
    ),
    *('"text"', '"map"', '"object"', '"queue"', '"one-way"', '"NaN"', '"int"', '"bytes"', '"\ufeff"', '"\u2028"'),
    *('"PGEvPg"', '"PGEvPg="', '"PGEvPh=="', '"PGEv\\nPg=="', '"PGEvPg==="', '"=PGEvPg="', '"PGEv-_=="', '"\u00e4"'),
    *('"2026-11-20T19:22:01Z"', '"2026-11-20t19:22:01.1234567z"', '"2026-11-20T19:22:01+01:00"'),
    *('"2026-11-20T19:22:01"', '"2026-11-20 19:22:01Z"', '"0001-01-01T00:00:00+12:00"', '"2026-02-30T00:00:00Z"'),
    *(
        "[]",
        "{}",
        "[1]",
        '{"a":1}',
        '{"a":null}',
        '{"a":[]}',
        '{"a":1e999}',
        '{"kind":"topic"}',
        '{"kind":"topic","x":1}',
    ),
    *('{"a":1,"a":"b"}', '{"a":1e999,"a":"b"}', '{"a":true,"b":1,"c":1.0}', "[" * 70 + "]" * 70, "[" * 3000, ""),
]
PLACES = [
    *((name,) for name in BASE),
    *((name, inner) for name, value in BASE.items() if isinstance(value, dict) for inner in (*value, "other")),
    ("jms", "reply_to", "kind"),
    ("jms", "reply_to", "name"),
]


def changed(path: tuple[str, ...], token: str, *, twice: bool = False) -> bytes:
    """Put any text in the place of a member's value; `twice` leaves the member, which comes again."""

    def written(members: dict[str, Any], path: tuple[str, ...]) -> str:
        name, inner = path[0], path[1:]
        parts = [f'"{each}":{json.dumps(value)}' for each, value in members.items() if each != name or twice]
        value = written(members[name], inner) if inner else token
        parts.insert(0 if twice else len(parts), f'"{name}":{value}')
        return f"{{{','.join(parts)}}}"

    return written(BASE, path).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("twice", [False, True], ids=["instead", "before"])
@pytest.mark.parametrize("path", PLACES, ids=".".join)
def test_odd_values(path: tuple[str, ...], twice: bool) -> None:
    """Whatever stands in the place of a value, or of one that comes again, both ways agree."""
    for token in ODD:
        is_short(changed(path, token, twice=twice))


def test_the_base_is_usual() -> None:
    """So the short way is what the tests above ask."""
    assert is_short(json.dumps(BASE).encode())


def test_wide_lines_are_few_in_a_batch(tmp_path: Path) -> None:
    """How many records are held together depends on their lines, not on their bodies only."""
    wide = changed(("jms", "message_id"), json.dumps("i" * 100_000))
    assert is_short(wide)
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join([wide + b"\n", changed(("meta",), '{"a":[]}') + b"\n"] * 200))
    (found,) = expand([log]).logs
    batches = list(read_columns(whole(found)))
    assert sum(each.num_rows for each in batches) == 400
    assert max(each.num_rows for each in batches) < 100


@pytest.mark.parametrize("engine", ["exact", "local"])
def test_a_lone_surrogate_in_the_name_of_a_member(tmp_path: Path, engine: EngineName) -> None:
    """It makes the line no record; the others are judged."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(changed(("meta",), '{},"x\\ud800":1') + b"\n" + json.dumps(BASE).encode() + b"\n")
    replay(log, tmp_path / "out", engine=engine)
    (refused,) = rows(tmp_path / "out", "rejected")
    assert (refused["line"], refused["reason"]) == (
        1,
        "the name of a member holds a lone surrogate, which UTF-8 cannot carry",
    )
    assert summary(tmp_path / "out")["records"] == 1


OCTETS = [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\0", b"\n", b"\r\n", b" \t", b"\x0b", b"\xc2\xa0"]


@given(st.integers(0, 900), st.sampled_from([0, 1, 5, 1000]), st.sampled_from([*OCTETS, *map(str.encode, ODD[:20])]))
def test_odd_octets(start: int, length: int, octets: bytes) -> None:
    """Whatever octets stand within a line, both ways agree."""
    line = json.dumps(BASE, ensure_ascii=False).encode()
    is_short(line[:start] + octets + line[start + length :])


@pytest.mark.parametrize(
    ("change", "rejected"),
    [
        (lambda line: b"\xef\xbb\xbf" + line, {3}),
        (lambda line: line + b" " * 100, set()),
        (lambda line: line.replace(b"PGEvPg==", b"PGIvPg=="), {1, 3}),
        (lambda line: line.replace(b'"tap"', b'"\\ud800"'), {1, 3}),
        (lambda line: line.replace(b'"host": "a"', b'"host": {"name": "a"}'), set()),
        (lambda line: line.replace(b'"meta"', b'"more"'), set()),
    ],
    ids=["mark, which may begin a file", "spaces", "another body", "surrogate", "nested", "unknown member"],
)
def test_whatever_the_way_a_line_is_read(tmp_path: Path, change: Callable[[bytes], bytes], rejected: set[int]) -> None:
    """A log is read line by line in the way that each allows, and in order; a rejected line is shown as it is."""
    line = json.dumps(BASE).encode()
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"\n".join((change(line), line, change(line), line)) + b"\n")
    (found,) = expand([log]).logs
    *refused, batch = read_columns(whole(found))
    assert batch.column("line").to_pylist() == [each for each in (1, 2, 3, 4) if each not in rejected]
    assert {each.line: each.raw for each in refused} == dict.fromkeys(rejected, change(line).decode())


def test_a_line_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    """Wherever they are; the next line is read, and so is a large body full of commas."""
    text = {**{name: value for name, value in BASE.items() if name != "sha256"}, "message_type": "text"}
    plain, body = json.dumps(BASE), json.dumps({**text, "body": "," * (9 << 17)})
    members = '"x":[' + "{}," * (1 << 19) + "0],"
    properties = '"properties":{' + '"a":1,' * (1 << 19) + '"b":1},'
    lines = ["{" + members + plain[1:], "{" + properties + plain[1:], plain, body]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (log,) = expand([tmp_path]).logs
    for found in (list(read(whole(log))), list(read_columns(whole(log)))):
        refused = [each for each in found if isinstance(each, RejectedRow)]
        assert [(each.line, each.reason) for each in refused] == [(1, MANY_PARTS), (2, MANY_PARTS)]
    assert [each.line for each in read(whole(log))] == [1, 2, 3, 4]
