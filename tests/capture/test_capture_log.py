"""The files of a capture log: when another is begun, what is in them at any time, what a full disk does."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest
from capture_kit import no_file_beyond

from soapjms.capture.log import CHUNK_OCTETS, CaptureLog
from soapjms.protocol.errors import UsageError

AT = datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)


def lines_of(paths: list[Path]) -> list[bytes]:
    """Read all lines."""
    return [line for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_what_was_flushed_is_there_at_any_time(tmp_path: Path) -> None:
    """Each flush ends a member, so a log that is still being written, or was left behind, reads to its end."""
    with CaptureLog(tmp_path / "new" / "folder", clock=lambda: AT) as log:
        assert lines_of(log.files) == []
        log.add(b"one\n")
        assert log.waiting == 1
        assert log.flush() == 1
        assert [path.name for path in log.files] == ["capture-20261121T010203Z-0001.jsonl.gz"]
        assert lines_of(log.files) == [b"one"]
        log.add(b"two\n")
        assert lines_of(log.files) == [b"one"]
        assert (log.flush(), log.flush()) == (1, 0)
        assert lines_of(log.files) == [b"one", b"two"]


def test_much_asks_for_a_flush(tmp_path: Path) -> None:
    """Nothing waits without end in memory."""
    with CaptureLog(tmp_path) as log:
        assert not log.add(b"x" * (CHUNK_OCTETS - 1))
        assert log.add(b"x")


@pytest.mark.parametrize("compress", [True, False])
def test_rotation(tmp_path: Path, compress: bool) -> None:
    """A file that is large enough is followed by another; no line is lost or torn between them."""
    with CaptureLog(tmp_path, rotation=100, compress=compress, clock=lambda: AT) as log:
        for number in range(10):
            log.add(f"{number} {'x' * 200}\n".encode())
            log.flush()
    names = [path.name for path in log.files]
    assert names == sorted(names)
    assert len(names) >= 3
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    if not compress:
        assert [path.read_bytes()[:1] for path in log.files] == [str(number).encode() for number in range(10)]
    else:
        assert [line[:1] for line in lines_of(log.files)] == [str(number).encode() for number in range(10)]


def test_an_empty_log_leaves_no_file(tmp_path: Path) -> None:
    """Nor does closing twice matter."""
    log = CaptureLog(tmp_path)
    log.close()
    log.close()
    assert (list(tmp_path.iterdir()), log.files) == ([], [])


def test_another_capture_in_the_same_second(tmp_path: Path) -> None:
    """It has files of its own."""
    with CaptureLog(tmp_path, clock=lambda: AT) as one, CaptureLog(tmp_path, clock=lambda: AT) as other:
        for log, line in ((one, b"1\n"), (other, b"2\n")):
            log.add(line)
            log.flush()
    assert (lines_of(one.files), lines_of(other.files)) == ([b"1"], [b"2"])


def test_a_full_disk_tears_nothing(tmp_path: Path) -> None:
    """What could not be written is lost; what was written before stays readable, and what comes later follows it."""
    with CaptureLog(tmp_path, compress=False) as log:
        log.add(b"before\n")
        log.flush()
        log.add(b"x" * 4096 + b"\n")
        with no_file_beyond(1000), pytest.raises(OSError, match="large"):
            log.flush()
        assert log.files[0].read_bytes() == b"before\n"
        log.add(b"after\n")
        assert log.flush() == 1
    assert log.files[0].read_bytes() == b"before\nafter\n"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """It is said at once; so is a size that is none."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        CaptureLog(tmp_path / "file")
    with pytest.raises(UsageError, match="rotation must be a number of octets"):
        CaptureLog(tmp_path, rotation=0)
