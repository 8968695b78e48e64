"""What the tests of the command line share: running it in this process and in one of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from select import select
from typing import Any

import click
from click.testing import CliRunner, Result
from places import ROOT

from soapjms.cli.commands import soapjms
from soapjms.protocol.record import Record
from soapjms.replay.inputs import expand, splits
from soapjms.replay.records import CapturedRecord, read


def commands(command: click.Command = soapjms, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and those below it, each with its words."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, *words, name)


def run(*arguments: object, stdin: bytes | None = None, **environment: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(soapjms, list(map(str, arguments)), input=stdin, env=environment)


def said(*arguments: object, status: int = 0, stdin: bytes | None = None) -> Any:
    """Run a command with --json and return what it printed: one object, and nothing on standard error."""
    done = run(*arguments, "--json", stdin=stdin)
    assert (done.exit_code, done.stderr) == (status, "")
    return json.loads(done.stdout)


def command(*arguments: object) -> list[str]:
    """Return the words that start it as a process."""
    return [sys.executable, "-m", "soapjms.cli", *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of such a process."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **variables}


def process(*arguments: object, cwd: Path, stdin: bytes = b"", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run it in a process of its own, without a terminal."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        timeout=500,
        check=False,
    )


def on_terminal(*arguments: object, cwd: Path) -> tuple[int, str]:
    """Run it on a terminal, and return its status and all that it wrote there."""
    terminal, other_end = pty.openpty()
    child = subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(TERM="xterm", COLUMNS="120"),
        stdin=subprocess.DEVNULL,
        stdout=other_end,
        stderr=other_end,
    )
    written = b""
    while select([terminal], [], [], 0.2)[0] or child.poll() is None:
        if select([terminal], [], [], 0)[0]:
            written += os.read(terminal, 4096)
    os.close(terminal)
    os.close(other_end)
    return child.wait(60), written.decode("utf-8", "replace")


def records_in(folder: Path) -> list[Record]:
    """Read the logs in a folder as the replay does; each line has to be a record."""
    logs, rejected, _ = expand([folder])
    assert not rejected
    found = [each for split in splits(logs, 1 << 30) for each in read(split)]
    assert all(isinstance(each, CapturedRecord) for each in found), found
    return [each.record for each in found if isinstance(each, CapturedRecord)]
