"""How texts for people quote a peer: on one line, without control characters for a terminal, and not too long.

Texts for people have words of theirs, not those of a programming language, and say times as people write them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from brokers.redaction import visible

MAX_SHOWN_CHARACTERS: Final = 300

MONTHS: Final = tuple("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())
"""The names of the months, whatever the locale of the machine."""
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000))
"""Units of time longer than a second, in milliseconds."""
TIME_PATTERN: Final = re.compile(
    rf"\d{{1,2}} (?:{'|'.join(MONTHS)}) \d{{4}}, [\d:.]+ UTC|"
    r"-?(?:\d+ d|\d+ h|\d+ min|\d+(?:\.\d+)? s|\d+ ms)(?: (?:\d+ h|\d+ min|\d+(?:\.\d+)? s))*\b"
)
"""Finds what `moment` and `lasting` write."""


def shown(value: object) -> str:
    """Return a peer's value for a text for people: text and octets quoted, on one line, and cut if it is long."""
    if isinstance(value, str):
        return _cut(repr(str(value)))
    if isinstance(value, bytes):
        return _cut(repr(value)[1:])
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    return "nothing" if value is None else _cut(repr(value))


def named(value: object) -> str:
    """Return a text with a peer's words, without quotes: unprintable characters escaped, and cut if it is long."""
    return visible(_cut(str(value)))


def with_article(kind: type) -> str:
    """Return the name of a class behind its article: `a str`, `an int`."""
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def reason_of(error: Exception) -> str:
    """Return the words of an error, without what only a programmer reads.

    An error of the system has a number and a path, which the caller names; one of zlib has a number; one of octets that
    do not decode has the name of a codec.
    """
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at octet {error.start}"
    return getattr(error, "strerror", None) or ZLIB_ERROR.sub("", str(error))


ZLIB_ERROR: Final = re.compile(r"^Error -?\d+ while decompressing data: ")


def counted(count: int, what: str) -> str:
    """Write a number of things, of which `what` names one: `1 record`, `2,000 records`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def moment(milliseconds: int) -> str:
    """Write a time of JMS, in milliseconds since 1970: `1 Jan 2026, 12:00:05 UTC`.

    A time that no calendar has is left as it is.
    """
    try:
        time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms after 1970"
    clock = time.isoformat(timespec="milliseconds" if time.microsecond else "seconds")[11:].removesuffix("+00:00")
    return f"{time.day} {MONTHS[time.month - 1]} {time.year}, {clock} UTC"


def lasting(milliseconds: int) -> str:
    """Write a duration exactly: `60 ms`, `1.5 s`, `1 h 30 min`."""
    if milliseconds < 0:
        return f"-{lasting(-milliseconds)}"
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    parts, left = [], milliseconds
    for unit, size in UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    if left:
        parts.append(f"{left // 1000}{f'.{left % 1000:03}'.rstrip('0') if left % 1000 else ''} s")
    return " ".join(parts)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
