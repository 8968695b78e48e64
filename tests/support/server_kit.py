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
            ends = time.monotonic() + START_SECONDS
            while (found := re.search(f"{ready}.*\n", said.read_text("utf-8", "replace"))) is None:
                is_awaited = server.poll() is None and time.monotonic() < ends
                assert is_awaited, said.read_text("utf-8", "replace")[-4000:]
                time.sleep(0.05)
            yield found
        finally:
            server.kill()
