"""How a text for people repeats what a peer wrote: on one line, nothing that a terminal acts on, nothing endless."""

from __future__ import annotations

from typing import Final

LONGEST_SHOWN: Final = 300
LONGEST_NAMED: Final = 80


def shown(value: object) -> str:
    """Return what a peer wrote as a reason shows it: quoted, on one line, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def named(value: object) -> str:
    """Return a name that a peer wrote as it stands, or as `shown` has it where it is long or does not print."""
    text = str(value)
    return text if len(text) <= LONGEST_NAMED and text.isprintable() else shown(text)
