"""Paths that do not exist or cannot be used: one line with the path, what was expected, and the option.

The options are those that click has, so that a new one is tested, too.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from calling_kit import envelope
from cli_kit import commands, environment, run
from places import ROOT

from soapjms.cli.paths import InputFile, InputFolder, OutputFile, OutputFolder, PathType, error_text

ECHO = ROOT / "tests" / "data" / "wsdl" / "echo-soap11.wsdl"
NOT_PATHS = {
    "config ()": "of the group, which is checked in its function; tested below",
    "wsdl (bridge http)": "[PATH=]FILE[#PORT]; tested below",
    "logs (replay)": "many kinds; tested in test_replay_foreign.py",
    "words (call)": "a WSDL or an envelope; tested below",
    "target (explain)": "a WSDL or a URI; tested below",
    "folder (doctor)": "that it cannot be written is a finding, with its remedy",
}
"""Parameters whose placeholder names a file or folder, and which click does not check."""
LOOKS_LIKE_A_PATH = re.compile(r"\b(FILE|DIR|OUT|WSDL|LOG|NEW|ENVELOPE)\b")


EVERY = [(words, each) for words, command in commands() for each in command.params]
PATHS = [(words, each) for words, each in EVERY if isinstance(each.type, PathType)]


def titled(value: object) -> str | None:
    """Name a case after its option."""
    return value.opts[0] if isinstance(value, click.Parameter) else None


def test_every_path_is_checked() -> None:
    """What looks like a path in the help has a type that checks it."""
    unchecked = {
        f"{each.name} ({' '.join(words)})"
        for words, each in EVERY
        if not isinstance(each.type, PathType) and LOOKS_LIKE_A_PATH.search(each.metavar or "")
    }
    assert unchecked == NOT_PATHS.keys()
    assert len(PATHS) > 30


def bad_paths(kind: PathType, folder: Path) -> Iterator[str]:
    """Yield paths that cannot be used for a parameter."""
    (folder / "file").touch()
    (folder / "loop").symlink_to("loop")
    yield "file/below"
    yield "n" * 300
    yield ""
    if isinstance(kind, InputFile | InputFolder):
        yield "missing"
        yield "missing/below"
        yield "loop"
    if isinstance(kind, InputFile | OutputFile):
        yield "."
    if isinstance(kind, OutputFile):
        yield "missing/below"
    if isinstance(kind, InputFolder | OutputFolder):
        yield "file"


def before(words: tuple[str, ...], parameter: click.Parameter) -> list[str]:
    """Return paths that can be used, for the arguments before one."""
    arguments = [each for other, each in EVERY if other == words and isinstance(each, click.Argument)]
    return ["."] * arguments.index(parameter)


@pytest.mark.parametrize(("words", "parameter"), PATHS, ids=titled)
def test_a_path_that_cannot_be_used(
    words: tuple[str, ...], parameter: click.Parameter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with 2, and does nothing."""
    monkeypatch.chdir(tmp_path)
    assert isinstance(parameter.type, PathType)
    for path in bad_paths(parameter.type, tmp_path):
        given = [parameter.opts[0], path] if isinstance(parameter, click.Option) else [*before(words, parameter), path]
        done = run(*words, *given)
        (line,) = done.stderr.splitlines()
        assert (done.exit_code, done.stdout) == (2, ""), line
        named = parameter.opts[0] if isinstance(parameter, click.Option) else str(parameter.metavar).strip("[]")
        assert named in line
        assert f"it must be {parameter.type.what}, got '{path[:60]}" in line
        assert "Errno" not in line
    assert {each.name for each in tmp_path.iterdir()} == {"file", "loop"}


AT = ["--connection", "embedded:", "--uri", "jms:queue:a"]
HTTP = ["bridge", "http", "--listen", "localhost:0", "--connection", "embedded:", "--wsdl"]


@pytest.mark.parametrize("bad", ["missing", ".", "file/below"])
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--config", "{}", "explain", str(ECHO)], "--config"),
        (["explain", "{}"], "WSDL|URI"),
        (["call", "{}", "greetMe", *AT], "WSDL"),
        (["call", "{}", *AT], "ENVELOPE-FILE"),
        ([*HTTP, "{}#P"], "--wsdl"),
        ([*HTTP, "/bank={}"], "--wsdl"),
    ],
)
def test_paths_that_the_command_tells_apart(
    words: list[str], option: str, bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are checked in the same way."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = run(*(each.format(bad) for each in words), stdin=envelope())
    (line,) = done.stderr.splitlines()
    assert done.exit_code == 2
    assert f"'{option}': it must be a" in line
    assert f"got '{bad}', which" in line
    assert "Errno" not in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call", "--connection", "stomp+ssl://localhost:1?caFile=missing", "--uri", "jms:queue:a"], "missing"),
        (["call", "--connection", "amqps://localhost:1?certFile=missing", "--uri", "jms:queue:a"], "missing"),
        (["call", "--connection", "stomp://localhost:1?passwordFile=missing", "--uri", "jms:queue:a"], "missing"),
        (["capture", "--connection", "stomp://localhost:1?passwordFile=missing"], "missing"),
        (["doctor", "--connection", "embedded:", "--out", "file/below"], "file cannot be written to: Not a directory"),
        (["broker", "--amqp", "localhost:0", "--store", "/proc/none/store"], "/proc/none"),
        (["call", ECHO, "greetMe", "requestType=@missing", *AT], "there is no file 'missing'"),
    ],
)
def test_files_that_are_named_elsewhere(
    words: list[str | Path], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a URL, or where only writing shows it: the file is named, without the number of an error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = run(*words, stdin=envelope())
    assert done.exit_code in (1, 2)
    assert said in done.output
    assert "Errno" not in done.output
    assert "Traceback" not in done.output


def test_what_the_system_says() -> None:
    """The path comes first, and the number is left out."""
    with pytest.raises(OSError, match="Errno") as error:
        open("/none/a'b")  # noqa: SIM115
    assert error_text(error.value) == '"/none/a\'b": No such file or directory'
    assert (
        error_text("no: [Errno 2] No such file or directory: 'x.pem'; y") == "no: 'x.pem': No such file or directory; y"
    )
    assert error_text("[Errno 111] Connection refused") == "Connection refused"


UNPRIVILEGED = """\
import os, sys
import click
from soapjms.cli.commands import soapjms
list(soapjms.all_commands(click.Context(soapjms)))  # this user may not read the modules, either
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({group}), os.setuid({user})
soapjms()
"""


@pytest.fixture(name="public_path")
def _public_path() -> Iterator[Path]:
    """A folder that every user may read.

    It is not in pytest's own folder, which each pytest that starts on this machine closes to other users.
    """
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wsdl", "lint", "secret/a.wsdl"], "got 'secret/a.wsdl', which cannot be used: Permission denied"),
        (["wsdl", "lint", "closed.wsdl"], "got 'closed.wsdl', which you may not read"),
        (["report", "secret"], "got 'secret', which you may not read"),
        (["generate", "own/new", "-n", "1"], "cannot be made, as you may not write to"),
        (["generate", "own", "-n", "1"], "got 'own', which you may not write to"),
        (["broker", "--smqp", "localhost:0", "--store", "own/a.db"], "cannot be made, as you may not write to"),
    ],
)
def test_rights(words: list[str], said: str, public_path: Path) -> None:
    """For a user who may not."""
    for name, mode in (("secret", 0), ("own", 0o555)):
        (public_path / name).mkdir(mode=0o755)
        (public_path / name / "a.wsdl").write_bytes(ECHO.read_bytes())
        (public_path / name).chmod(mode)
    (public_path / "closed.wsdl").touch(mode=0)
    user = pwd.getpwnam("nobody")
    program = UNPRIVILEGED.format(group=user.pw_gid, user=user.pw_uid)
    where = environment(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=public_path, env=where, capture_output=True, text=True, check=False
    )
    (public_path / "secret").chmod(0o700)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Errno" not in done.stderr
