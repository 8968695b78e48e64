"""Capture logs that somebody damaged or made up: what is left of them is read, in time, whatever is around it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from random import Random
from typing import Final

from fuzz_kit import BASES

from fuzz.row import MIB, Case, Row
from soapjms.protocol.record import capture, to_json
from soapjms.replay.inputs import RejectedRow, opened, splits
from soapjms.replay.records import read_columns

TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
JUNK: Final = (
    *(b"", b" ", b"{}", b"[]", b"null", b"\xff\xfe", b"\0" * 500, b'{"v": 1}', b"[" * 100_000, b'"' + b"x" * 9000),
    *(b"\x1f\x8b\x08\0\0\0\0\0", b"PAR1", b'{"v": 1, "v": 2}', b"1e999", b'{"v": ' + b"9" * 5000, b"\n" * 2_000),
)  # fmt: skip
VALUES: Final = (
    *("null", "[]", "{}", "1e999", "-1", "9" * 30, '""', '"\\ud800"', '"' + "x" * 3000 + '"', '"2026-13-01"'),
    *("[" * 200 + "]" * 200, "NaN", '"////"', '"\\u0000"', '{"type": "long", "value": "x"}'),
)  # fmt: skip


def line(number: int, chance: Random) -> bytes:
    """Write a record that is right."""
    message = replace(chance.choice(BASES), message_id=f"ID:{number}")
    return to_json(capture(message, TIME)).encode()


def damaged(octets: bytes, chance: Random) -> bytes:
    """Put another value in, or cut octets out and put others in."""
    if chance.random() < 0.5:
        members = json.loads(octets)
        inner = chance.choice([members, members["jms"], members["properties"]])
        if inner:
            inner[chance.choice(list(inner))] = "HERE"
        return json.dumps(members).encode().replace(b'"HERE"', chance.choice(VALUES).encode(), 1)
    at = chance.randrange(len(octets))
    return octets[:at] + chance.choice(JUNK) + octets[at + chance.choice((0, 1, 50)) :]


class Logs:
    """Whoever reads logs for a replay."""

    def make(self, chance: Random) -> Case:
        """Write a log, of lines or of gzip members, with damage; what has none is to be found."""
        groups: list[bytes] = []
        wanted, is_packed = set[str](), chance.random() < 0.4
        for number in range(chance.choice((1, 3, 10, 40))):
            is_good = chance.random() < 0.7
            octets = line(number, chance)
            if not is_good:
                octets = damaged(octets, chance) if chance.random() < 0.5 else chance.choice(JUNK)
            octets += b"\n"
            if is_packed:
                octets = gzip.compress(octets, chance.choice((0, 1, 9)), mtime=0)
                if chance.random() < 0.2:
                    at = chance.randrange(len(octets))
                    octets = octets[:at] + chance.randbytes(chance.choice((0, 1, 30))) + octets[at + 1 :]
                    is_good = False
            if is_good:
                wanted.add(f"ID:{number}")
            groups.append(octets)
        if not is_packed and not groups[0].startswith(b'{"v": 1, '):
            wanted = set()  # it says that it is something else
        log, size = b"".join(groups), chance.choice((100, 5000, 1 << 30))
        name = "x.jsonl.gz" if is_packed else chance.choice(["x.jsonl", "x.jsonl", "x.parquet", "x"])
        return Case(len(log), lambda: self.read(log, name, size, wanted))

    def read(self, octets: bytes, name: str, size: int, wanted: set[str]) -> str:
        """Read all parts of it."""
        log = opened(BytesIO(octets), 0, name, name)
        if isinstance(log, RejectedRow):
            return "rejected"
        found, rejected = set[str | None](), 0
        for part in splits([log], size):
            for each in read_columns(part, BytesIO(octets)):
                if isinstance(each, RejectedRow):
                    assert each.reason
                    rejected += 1
                else:
                    found.update(each.column("message_id").to_pylist())
        assert wanted <= found, f"{sorted(wanted - found)} of {len(wanted)} undamaged records are not read"
        return "all" if not rejected else "what is undamaged"

    def look(self) -> None:
        """There is nobody else."""


@contextmanager
def logs() -> Iterator[Logs]:
    """Nothing has to be there, but what is imported at first use would count as memory of the first case."""
    log = line(0, Random(0))
    Logs().read(log, "x.jsonl", len(log), {"ID:0"})
    yield Logs()


ROW: Final = Row(
    name="captures",
    holds="whatever is in a log, what is undamaged is read, and the rest is rejected with a reason",
    opens=logs,
    cases=40_000,
    gate=100,
    slack=32 * MIB,
)
