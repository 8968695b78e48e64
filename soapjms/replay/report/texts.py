"""How the report writes numbers, spans of time, and what a peer wrote."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from soapjms.protocol import uri

MAX_TEXT_CHARACTERS: Final = 600
"""Characters of one text that the report shows."""
MAX_BODY_LINES: Final = 40
"""Lines of a body that the report shows."""

UNITS: Final = (
    ("week", timedelta(weeks=1)),
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", timedelta(milliseconds=1)),
)


def visible(text: object) -> str:
    """Show a text of a log: control characters and those that turn the direction of writing as escapes; cut if long."""
    characters = str(text)
    shown = uri.visible(characters[:MAX_TEXT_CHARACTERS])
    return (
        shown
        if len(characters) <= MAX_TEXT_CHARACTERS
        else f"{shown}… ({len(characters) - MAX_TEXT_CHARACTERS} more characters)"
    )


def visible_lines(text: str) -> str:
    """Show a body likewise, with its line ends."""
    lines = text.splitlines()
    shown = [uri.visible(line.replace("\t", "    ")) for line in lines[:MAX_BODY_LINES]]
    return "\n".join(
        shown if len(lines) <= MAX_BODY_LINES else [*shown, f"… ({len(lines) - MAX_BODY_LINES} more lines)"]
    )


def number(value: int) -> str:
    """Write a number with a comma before each group of three digits."""
    return f"{value:,}"


def duration(taken: timedelta) -> str:
    """Write how long something took, to two digits, as it is not known better: `12 ms`, `1.2 s`, `2 min 5 s`."""
    seconds = taken.total_seconds()
    if seconds >= 60:
        minutes, rest = divmod(round(seconds), 60)
        return f"{number(minutes)} min {rest} s"
    value, unit = (seconds, "s") if seconds >= 1 else (1000 * seconds, "ms")
    rounded = float(f"{value:.2g}")
    return f"{rounded:g} {unit}" if rounded < 1000 else "1 s"


def width(span: timedelta) -> str:
    """Write a span in the largest unit that measures it: `10 minutes`, `1 hour`."""
    for name, unit in UNITS:
        if span >= unit and not span % unit:
            count = span // unit
            return f"{count} {name}{'' if count == 1 else 's'}"
    return duration(span)


def moment(time: datetime, span: timedelta, *, with_day: bool) -> str:
    """Write a time in UTC as exactly as spans of some width need it."""
    if span >= timedelta(days=1):
        return f"{time:%d %b %Y}"
    clock = f"{time:%H:%M}" if not span % timedelta(minutes=1) else f"{time:%H:%M:%S}"
    if span % timedelta(seconds=1):
        clock += f".{time.microsecond // 10000:02}"
    return f"{time:%d %b} {clock}" if with_day else clock
