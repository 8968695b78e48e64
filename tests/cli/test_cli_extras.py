"""The command line where only some extras are installed, and what it says of its version."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_kit import commands, environment, run
from replay_logs import CXF

import soapjms
from soapjms.capture.log import CaptureLog
from soapjms.cli.capture import _judging
from soapjms.cli.commands import COMMANDS

BLOCKED = """\
import sys

class OnlyCli:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in {allowed!r}:
            return None
        raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, OnlyCli())
from soapjms.cli import main
main()
"""
CLI = ("soapjms", "brokers", "lxml", "click", "rich", "markdown_it", "mdurl", "pygments")
"""What `pip install 'soapjms[cli]'` brings."""


def with_cli_alone(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process that can import nothing but the extra `cli`."""
    command = [sys.executable, "-c", BLOCKED.format(allowed=CLI), *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", [words for words, _ in commands()], ids=" ".join)
def test_help_needs_no_other_extra(words: tuple[str, ...], tmp_path: Path) -> None:
    """Each command tells its options before anything else is installed."""
    done = with_cli_alone(*words, "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["replay", CXF, "--out", "out"], "replay"),
        (["report", "."], "replay"),
        (["bridge", "http", "--listen", "localhost:0", "--to", "jms:queue:a", "--connection", "embedded:"], "bridge"),
        (["call", CXF, "greetMe", "--connection", "embedded:"], "zeep"),
        (["generate", "made", "-n", "1", "--form", "parquet"], "replay"),
    ],
)
def test_the_smallest_extra_is_named(words: list[str | Path], extra: str, tmp_path: Path) -> None:
    """In one line, with status 2."""
    done = with_cli_alone(*words, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = [each for each in done.stderr.splitlines() if "pip install" in each]
    assert line.endswith(f"pip install 'soapjms[{extra}]'")
    assert "Traceback" not in done.stderr


def test_a_capture_says_how_it_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command works with what is installed; what is missing for it is said before it."""
    with CaptureLog(tmp_path / "captures", compress=False) as log:
        log.add(CXF.read_bytes())
        log.flush()
    said = _judging(log.files)
    assert said["install"] is None
    assert said["replay"] is not None
    program, *words = said["replay"].split()
    assert program == "soapjms"
    monkeypatch.chdir(tmp_path)
    assert run(*words).exit_code == 1  # it was judged, and rules are broken
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert _judging(log.files) == {"install": "pip install 'soapjms[replay]'", "replay": said["replay"]}
    assert _judging([]) == {"install": None, "replay": None}


def test_python_m_soapjms(tmp_path: Path) -> None:
    """It is the command; without the extra it says in one line what to type."""
    command = [sys.executable, "-m", "soapjms", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout.splitlines()[0]) == (
        0, "", "Usage: soapjms [OPTIONS] COMMAND [ARGS]...",
    )  # fmt: skip
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    block = "import runpy, sys; sys.modules['click'] = None; runpy.run_module('soapjms', run_name='__main__')"
    command = [sys.executable, "-c", block]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        2, "", "soapjms: click is not installed. Type: pip install 'soapjms[cli]'\n",
    )  # fmt: skip


def test_there_is_one_version() -> None:
    """That of the package, which the installation was made from."""
    assert run("--version").stdout == f"soapjms, version {soapjms.__version__}\n"
    assert version("soapjms") == soapjms.__version__
