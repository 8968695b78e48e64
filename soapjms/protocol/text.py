"""How a text for people repeats what a peer wrote: on one line, nothing that a terminal acts on, nothing endless."""

from __future__ import annotations

from typing import Final

from brokers.redaction import visible

MAX_SHOWN_CHARACTERS: Final = 300


def shown(value: object) -> str:
    """Return a value that a peer wrote as a reason shows it: quoted, on one line, and cut where it is long."""
    return _cut(repr(value))


def named(value: object) -> str:
    """Return what has a peer's words in it without quotes: what does not print as escapes, and cut where it is long."""
    return visible(_cut(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
