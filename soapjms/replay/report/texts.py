"""The report's form of numbers, spans of time, and texts of peers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from soapjms.protocol import uri
from soapjms.protocol.text import counted
from soapjms.replay.flat_records import EPOCH

MAX_TEXT_CHARACTERS: Final = 600
"""Maximum length of one text in the report, in characters."""
MAX_BODY_LINES: Final = 40
"""Maximum number of lines of a body in the report."""

MILLISECOND: Final = timedelta(milliseconds=1)
UNITS: Final = (
    ("week", timedelta(weeks=1)),
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
    ("millisecond", MILLISECOND),
)


def visible(text: object) -> str:
    """Return a log's text with control and bidirectional formatting characters escaped, and cut if it is long."""
    characters = str(text)
    shown = uri.visible(characters[:MAX_TEXT_CHARACTERS])
    return (
        shown
        if len(characters) <= MAX_TEXT_CHARACTERS
        else f"{shown}… ({len(characters) - MAX_TEXT_CHARACTERS} more characters)"
    )


def visible_lines(text: str) -> str:
    """Return a body likewise, with its line ends."""
    lines = text.splitlines()
    shown = [uri.visible(line.replace("\t", "    ")) for line in lines[:MAX_BODY_LINES]]
    return "\n".join(
        shown if len(lines) <= MAX_BODY_LINES else [*shown, f"… ({len(lines) - MAX_BODY_LINES} more lines)"]
    )


def number(value: int) -> str:
    """Write a number with commas between groups of three digits."""
    return f"{value:,}"


def duration(taken: timedelta) -> str:
    """Write a duration to two digits, which is its precision: `12 ms`, `1.2 s`, `2 min 5 s`."""
    seconds = taken.total_seconds()
    if seconds >= 60:
        minutes, rest = divmod(round(seconds), 60)
        return f"{number(minutes)} min {rest} s"
    value, unit = (seconds, "s") if seconds >= 1 else (1000 * seconds, "ms")
    rounded = float(f"{value:.2g}")
    return f"{rounded:g} {unit}" if rounded < 1000 else "1 s"


def clock_time(text: str) -> str:
    """Write a captured time in UTC, to the second: `24 Nov 2026, 12:00:05 UTC`."""
    return f"{datetime.fromisoformat(text).astimezone(UTC):%-d %b %Y, %H:%M:%S} UTC"


def width(span: timedelta) -> str:
    """Write a span in the largest unit that measures it: `10 minutes`, `1 hour`."""
    for name, unit in UNITS:
        if span >= unit and not span % unit:
            count = span // unit
            return f"{count} {name}{'' if count == 1 else 's'}"
    return duration(span)


def moment(time: datetime, span: timedelta, *, in_full: bool) -> str:
    """Write when a span begins, in UTC, as precisely as its width demands.

    Args:
        time: the time.
        span: the width of the spans.
        in_full: whether to write the day, and the year where spans are days, too.
    """
    if span >= timedelta(days=1):
        return f"{time:%-d %b %Y}" if in_full else f"{time:%-d %b}"
    clock = f"{time:%H:%M}" if not span % timedelta(minutes=1) else f"{time:%H:%M:%S}"
    if span % timedelta(seconds=1):
        clock += f".{time.microsecond // 10000:02}"
    return f"{time:%-d %b} {clock}" if in_full else clock


def since_1970(time: datetime) -> int:
    """Return a time as scripts have it, in milliseconds."""
    return (time - EPOCH) // MILLISECOND


def length(span: timedelta) -> str:
    """Write how long something lasted, in a unit that gives a number of two digits: `24 hours`, `20 milliseconds`."""
    for name, unit in UNITS[1:]:
        count = round(span / unit)
        if span >= 2 * unit or (span >= unit and abs(span - count * unit) <= unit / 20):
            return counted(count, name)
    return "less than 1 millisecond" if span < UNITS[-1][1] else "1 millisecond"
