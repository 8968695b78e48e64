"""The statuses that commands exit with, beside 0, and 1 for findings."""

from __future__ import annotations

from typing import Final

FAILED_STATUS: Final = 1
"""Of a command that serves: something failed, or was left undone."""

USAGE_STATUS: Final = 2
UNKNOWN_STATUS: Final = 3
INTERRUPTED_STATUS: Final = 130
"""The status of a command that Ctrl-C ended, as shells have it: 128 and the number of the signal."""
