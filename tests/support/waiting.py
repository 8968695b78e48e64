"""Waiting for what another thread, another process or a broker does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 60.0
"""Seconds after which something that should happen counts as not happening, on a machine with much else to do too."""


def eventually(condition: Callable[[], object], what: str = "it is so", patience: float = PATIENCE) -> None:
    """Wait until `condition` holds, for so many seconds at most; what takes long to find out is asked less often."""
    until = time.monotonic() + patience
    while True:
        began = time.monotonic()
        if condition():
            return
        asked = time.monotonic()
        assert asked < until, f"not within {patience} s: {what}"
        time.sleep(min(max(0.002, asked - began), 0.05))
