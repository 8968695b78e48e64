"""Reading gzip with damage in it: what is whole is read, whatever is beside it, and in bounded time."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from random import Random
from time import process_time

import pytest
from replay_logs import rows, summary, torn_log

from soapjms.replay import replay
from soapjms.replay.gzip_members import pieces

HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def stored(size: int) -> bytes:
    """Begin a block of so many octets that are not compressed."""
    return b"\0" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little")


def test_a_torn_member_takes_nothing_of_the_others(tmp_path: Path) -> None:
    """At the beginning and in the middle: all whole ones are read, of the torn what is there; each is told once."""
    replay([torn_log(tmp_path)], tmp_path / "out", engine="local")
    found = rows(tmp_path / "out", "rejected")
    assert len(found) == summary(tmp_path / "out")["rejected"] == 3
    assert all("another begins before it ends" in each["reason"] or "damaged" in each["reason"] for each in found)
    assert 6 * 20 + 3 * 5 <= summary(tmp_path / "out")["records"] < 9 * 20


@pytest.mark.parametrize("seed", range(300))
def test_whatever_is_torn_or_damaged(seed: int) -> None:
    """Every line of a member that is whole is read, at any level of compression."""
    random = Random(seed)
    octets, wanted = b"", set()
    for number in range(random.randrange(1, 9)):
        count = random.randrange(1, random.choice([3, 60, 600]))
        lines = [f"{number} {n} {random.randbytes(random.randrange(80)).hex()}\n".encode() for n in range(count)]
        member = gzip.compress(b"".join(lines), random.choice([0, 1, 3, 9]), mtime=random.choice([0, 1]))
        fate = random.random()
        if fate < 0.3:
            member = member[: random.randrange(1, len(member))]
        elif fate < 0.4:
            at = random.randrange(len(member))
            member = member[:at] + bytes([member[at] ^ 1 << random.randrange(8)]) + member[at + 1 :]
        else:
            wanted.update(lines)
        octets += member
    found = b"".join(each.octets + b"\n" * (each.problem is not None) for each in pieces(io.BytesIO(octets)))
    assert wanted - set(found.splitlines(keepends=True)) == set()


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(HEADER[:4] * (1 << 21), id="headers"),
        pytest.param((HEADER + bytes(10)) * (1 << 18), id="headers, then zeros"),
        pytest.param((HEADER + stored(10)) * (1 << 19), id="members within members"),
        pytest.param(
            (HEADER + stored(10)) * 20_000 + HEADER + zlib.compress(bytes(1 << 26), 9, -15)[:-9] + b"\xff" * 20,
            id="a bomb within members",
        ),
    ],
)
def test_a_file_made_to_be_gone_through_again_and_again(octets: bytes) -> None:
    """It is given up after some times: the work grows with the file, not with its square."""
    begun = process_time()
    found = [each.problem for each in pieces(io.BytesIO(octets)) if each.problem is not None]
    assert process_time() - begun < 20
    assert found[-1].endswith("; too much is damaged to look for what may follow")
