"""The exit statuses of commands, besides 0."""

from __future__ import annotations

from typing import Final

FINDINGS_STATUS: Final = 1
"""The status of a command that found what it looks for: a fault, a broken rule, a failed check, a loss."""

FAILED_STATUS: Final = 1
"""The status of a command that serves, if requests failed or were left unfinished."""

USAGE_STATUS: Final = 2
UNKNOWN_STATUS: Final = 3
INTERRUPTED_STATUS: Final = 130
"""The status of a command that Ctrl-C ended: 128 plus the signal's number, as in shells."""
