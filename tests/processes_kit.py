"""Programs of the tests' own as child processes, ended by their id."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


class Child:
    """A Python program that runs until it is killed.

    Args:
        program: its file.
        arguments: of it.
        says: the line that it prints once it is up; this waits for it.
    """

    def __init__(self, program: Path, *arguments: str, says: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != f"{says}\n":
            self.kill()
            raise RuntimeError(f"{program.name} said {said!r} instead of {says!r}")

    def kill(self) -> None:
        """End it at once, with SIGKILL. Idempotent."""
        self._process.kill()
        self._process.communicate(timeout=30)
