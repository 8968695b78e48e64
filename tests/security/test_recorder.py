"""Capture logs and who may read them: no password is in one unless that was wanted."""

from __future__ import annotations

import gzip
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calling_kit import request_message
from security_kit import secured, token

from brokers import properties
from soapjms import Recorder, UsageError
from soapjms.capture.mask import Mask

SECRET = "s3cret-of-ann"
MESSAGE = replace(
    request_message("bank", None, secured(token(password=SECRET))), properties=properties({"password": SECRET})
)


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_files_are_their_owners(tmp_path: Path, name: str) -> None:
    """Nobody else reads a file that was made, nor one that followed it."""
    with Recorder(tmp_path / name, rotation=1) as recorder:
        for _ in range(2):
            recorder.record(MESSAGE)
            recorder.flush()
        assert len(recorder.files) == 2
    assert [each.stat().st_mode & 0o777 for each in recorder.files] == [0o600, 0o600]


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_a_log_that_is_there_becomes_its_owners(tmp_path: Path, name: str) -> None:
    """Whatever its mode was: from now on nobody else reads it."""
    path = tmp_path / name
    with Recorder(path) as recorder:
        recorder.record(MESSAGE)
    path.chmod(0o666)
    before = path.stat().st_size
    with Recorder(path) as recorder:
        assert path.stat().st_mode & 0o777 == 0o600
        recorder.record(MESSAGE)
    assert path.stat().st_size > before


def test_a_log_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to it, who could read that: it may have been put there for this."""
    path = tmp_path / "log.jsonl"
    path.touch(mode=0o666)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        Recorder(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bank.wsdl", b"<definitions/>"),
        ("settings.json", b'{\n  "a": 1\n}\n'),
        ("log.jsonl", gzip.compress(b'{"v":1}\n')),
        ("log.jsonl.gz", b'{"v":1}\n'),
        ("bank.wsdl.gz", b"<definitions/>"),
    ],
)
def test_a_file_of_something_else(tmp_path: Path, name: str, content: bytes) -> None:
    """Neither its content nor its mode is changed, and the error does not show what is in it."""
    path = tmp_path / name
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(UsageError, match=r": it is no capture log in JSON Lines.*; write to another file$"):
        Recorder(path)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (content, 0o644)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """To wherever it leads; the file there stays as it is."""
    target = tmp_path / "target"
    target.write_text("x")
    (tmp_path / "log.jsonl").symlink_to(target)
    with pytest.raises(UsageError, match="symbolic link"):
        Recorder(tmp_path / "log.jsonl")
    (tmp_path / "none.jsonl").symlink_to(tmp_path / "made")
    with pytest.raises(UsageError, match="symbolic link"):
        Recorder(tmp_path / "none.jsonl")
    assert target.read_text() == "x"
    assert not (tmp_path / "made").exists()


def test_passwords_are_hidden(tmp_path: Path) -> None:
    """PasswordText in the body, and a property that is called as a secret is; the record says so."""
    with Recorder(tmp_path / "log.jsonl") as recorder:
        recorder.record(MESSAGE)
    written = recorder.path.read_text()
    assert SECRET not in written
    assert json.loads(written)["meta"]["masked"] == ["property password", "element Password"]


def test_more_is_hidden(tmp_path: Path) -> None:
    """A mask of one's own hides what it names besides; a body that cannot be looked into is left out."""
    with Recorder(tmp_path / "log.jsonl", mask=Mask(elements=["Username"])) as recorder:
        recorder.record(MESSAGE)
        recorder.record(replace(MESSAGE, properties=properties({"SOAPJMS_contentEncoding": "unknown"})))
    first, second = (json.loads(line) for line in recorder.path.read_text().splitlines())
    assert "element Username" in first["meta"]["masked"]
    assert second["truncated"] is True


@pytest.mark.parametrize("mask", [["Username"], "Username", 5, False, Mask])
def test_what_is_no_mask(tmp_path: Path, mask: Any) -> None:
    """It is refused before there is a log, in which nothing would be recorded."""
    with pytest.raises(UsageError, match=r"mask must be a soapjms\.capture\.Mask, such as .*, or None, got an? "):
        Recorder(tmp_path / "log.jsonl", mask=mask)
    assert not list(tmp_path.iterdir())


def test_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who wants them has them, and is told: by the log of the program, and by the first record."""
    with caplog.at_level(logging.INFO), Recorder(tmp_path / "log.jsonl", mask=None) as recorder:
        recorder.record(MESSAGE)
        recorder.record(MESSAGE)
    first, second = (json.loads(line) for line in recorder.path.read_text().splitlines())
    assert first["meta"] == {"unmasked": "this log has passwords and other secrets as they are"}
    assert "meta" not in second
    assert "mask=None hides nothing" in caplog.text
