"""A server as a child process, which prints a line when it is ready."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 120.0
"""The longest time in which a server gets ready."""
POLL_SECONDS = 0.05


@contextmanager
def running_server(
    words: Sequence[str], ready: str, said: Path, environment: Mapping[str, str] | None = None
) -> Iterator[re.Match[str]]:
    """Run a server until the end of the block, and yield where its output matches first.

    Args:
        words: its command.
        ready: the pattern within the line that it prints when it is ready.
        said: the file for its output, which, unlike a pipe, never fills up.
        environment: its environment; None means that of this process.
    """
    with (
        said.open("wb") as output,
        subprocess.Popen(
            words, cwd=said.parent, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        ) as server,
    ):
        try:
            yield wait_until_ready(server, ready, said, START_SECONDS)
        finally:
            server.kill()


def wait_until_ready(server: subprocess.Popen[bytes], ready: str, said: Path, seconds: float) -> re.Match[str]:
    """Wait until the output of a server has a line, and return where that matches; see `running_server`."""
    ends = time.monotonic() + seconds
    while (found := re.search(f"{ready}.*\n", text := said.read_text("utf-8", "replace"))) is None:
        assert server.poll() is None, f"it ended: {text[-4000:]}"
        assert time.monotonic() < ends, f"it did not start: {text[-4000:]}"
        time.sleep(POLL_SECONDS)
    return found
