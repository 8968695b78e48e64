"""How far long work is: bars on a terminal, lines of text elsewhere, nothing for what is soon done."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from cli_kit import on_terminal, process, run

from soapjms.cli.progress import progress
from soapjms.progress import Phase
from soapjms.replay import replay

BAR = re.compile(r"━+.* ?\d+%")


def plain(shown: str) -> str:
    """Take away what moves the cursor and colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


class TestOnATerminal:
    """Where somebody looks on."""

    def test_generate(self, tmp_path: Path) -> None:
        """How many messages there will be is known: a bar, its part, and how long it takes."""
        status, shown = on_terminal("generate", "logs", "--messages", 30_000, cwd=tmp_path)
        assert status == 0, shown
        assert re.search(r"\d+ of 30000 messages ━+.* \d+% ", plain(shown)), shown

    def test_replay(self, tmp_path: Path) -> None:
        """Reading one log has a counter, judging a bar; the bar is gone when the result is there."""
        made = run("generate", tmp_path / "logs", "--messages", 6_000)
        assert made.exit_code == 0, made.stderr
        status, shown = on_terminal("replay", "logs/logs", "--out", "report", "--local", cwd=tmp_path)
        assert status == 1, shown
        said = plain(shown)
        assert re.search(r"judging: \d+ of \d+ records ━+.* \d+% ", said), said
        assert "writing the report" in said
        assert not BAR.search(said[said.index("FAILED") :])

    def test_hostile_names(self, tmp_path: Path) -> None:
        """What is in the name of a file neither colours nor moves anything."""
        name = "[bold]x\x1b[2J.jsonl"
        (tmp_path / name).write_text('{"v": 1}\n')
        status, shown = on_terminal("replay", name, "--out", "report", "--local", cwd=tmp_path)
        assert status == 1
        assert "\x1b[2J" not in shown


class TestWithoutOne:
    """Where standard error is a file or a pipe."""

    def test_what_is_soon_done_says_nothing(self, tmp_path: Path) -> None:
        """So scripts stay quiet."""
        done = process("generate", "logs", "--messages", 5000, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")

    def test_lines(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Text and part that is done, no more often than is wanted."""
        with progress(every=0) as tell:
            tell("starting")
            tell(Phase("judging\x1b[2J", 1, 4))
        with progress() as tell:
            tell("nobody reads this")
        assert capsys.readouterr().err == "starting\njudging\\x1b[2J (25 %)\n"

    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log of standard error that is full ends no work: a capture waits until there is room for its messages."""
        with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:
            monkeypatch.setattr("sys.stderr", full)
            with progress(every=0) as tell:
                tell("nobody reads this")
            monkeypatch.undo()
            with suppress(OSError):
                full.close()


def test_a_program_is_told(tmp_path: Path) -> None:
    """Words, which know their part where it is known."""
    assert run("generate", tmp_path / "logs", "--messages", 6_000).exit_code == 0
    told: list[str] = []
    replay(tmp_path / "logs" / "logs", tmp_path / "report", engine="local", progress=told.append)
    judging = [each for each in told if isinstance(each, Phase) and each.startswith("judging")]
    done = [each.done for each in judging]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, judging[0].total)
    assert len(done) > 2
    assert told[-1] == "writing the report"
