"""How texts for people quote a peer: on one line, without control characters for a terminal, and not too long."""

from __future__ import annotations

from typing import Final

from brokers.redaction import visible

MAX_SHOWN_CHARACTERS: Final = 300


def shown(value: object) -> str:
    """Return a peer's value for a text for people: quoted, on one line, and cut if it is long."""
    return _cut(repr(value))


def named(value: object) -> str:
    """Return a text with a peer's words, without quotes: unprintable characters escaped, and cut if it is long."""
    return visible(_cut(str(value)))


def reason_of(error: Exception) -> str:
    """Return the words of an error: of one of the system without its number and path, which the caller names."""
    return getattr(error, "strerror", None) or str(error)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
