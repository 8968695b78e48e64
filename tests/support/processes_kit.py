"""Programs of the tests' own as child processes, signalled and ended by their id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from places import ROOT, SUPPORT

TELLING_SECONDS: Final = 2.0
TELLING_CHARACTERS: Final = 20_000


class Child:
    """A Python program that runs until it ends or is ended.

    Args:
        program: its file.
        arguments: of it.
        log: the file that gets what it writes.
    """

    def __init__(self, program: Path, *arguments: str, log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def pause(self) -> None:
        """Stop it, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def end(self, patience: float) -> int | None:
        """Ask it to end, with SIGTERM, and return its exit status; None if it runs on, so many seconds later."""
        self._process.terminate()
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def tell(self) -> str:
        """Have it write what its threads do, with SIGUSR1, and return the end of its log."""
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(TELLING_SECONDS)
        return self.log.read_text("utf-8", "replace")[-TELLING_CHARACTERS:]

    def kill(self) -> None:
        """End it at once, with SIGKILL. Idempotent."""
        self._process.kill()
        self._process.wait(30)
