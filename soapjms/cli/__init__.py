"""The command `soapjms`: a group whose commands are imported when they are run.

Only code that turns the words of a command line into arguments, and results into terminal output, belongs here.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Final

from soapjms.cli.status import INTERRUPTED_STATUS, USAGE_STATUS

MISSING: Final = "soapjms: {name} is not installed. Type: pip install 'soapjms[cli]'"


def main() -> None:
    """Run the command line; exit with its status: 0, 1 for findings, 2 for usage or missing parts, 130 for Ctrl-C."""
    try:
        from soapjms.cli.commands import soapjms
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        print(MISSING.format(name=error.name), file=sys.stderr)
        sys.exit(USAGE_STATUS)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_STATUS)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it: an encoding may lack a character
    soapjms(prog_name="soapjms")
