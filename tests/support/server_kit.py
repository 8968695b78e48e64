"""A server as a child process, which says in its output that it is ready."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

LIMIT = 120.0
"""Seconds in which a server says that it is ready."""


@contextmanager
def running_server(
    words: Sequence[str], ready: str, said: Path, environment: Mapping[str, str] | None = None
) -> Iterator[re.Match[str]]:
    """Run a server until the end of the block, and yield where its output matches first.

    Args:
        words: its command.
        ready: the pattern of what it says once it is ready.
        said: the file for its output, in which a server, unlike in a pipe, can write as much as it likes.
        environment: its environment; None means that of this process.
    """
    with (
        said.open("wb") as output,
        subprocess.Popen(
            words, cwd=said.parent, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        ) as server,
    ):
        try:
            ends = time.monotonic() + LIMIT
            while (found := re.search(ready, said.read_text("utf-8", "replace"))) is None:
                is_awaited = server.poll() is None and time.monotonic() < ends
                assert is_awaited, said.read_text("utf-8", "replace")[-4000:]
                time.sleep(0.05)
            yield found
        finally:
            server.kill()
