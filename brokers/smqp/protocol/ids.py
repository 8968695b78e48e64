"""Identifiers of messages (Smuid, Cmuid, sets of numbers as in GET and LIST), dates, timeouts. No I/O, no clock.

Dates and timeouts are read in every form that the draft shows. A date is an aware `datetime` in UTC; a timeout is in
seconds, or None if it never ends (for a state message).

Spec: SMQP 4.1.3.2, 4.1.12.1, 4.1.13.1, 7; SMQP 7 (date-time, timeout), 4.1.8.1; what the examples show instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from brokers.smqp.protocol.dialect import STRICT, DateForm, SmqpDialect
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.protocol.words import bad

NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
MAX_RANGES: Final = 1000

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last number of each range, both within it."""

EVERY: Final[Ranges] = ((0, 10**18),)


class Smuid(NamedTuple):
    """The server's name for a message; in attributes with the context of the server that had it first."""

    host: str
    number: int

    def __str__(self) -> str:
        return f"{self.host}/{self.number}"


class Cmuid(NamedTuple):
    """The publisher's name for a message, with the account and the session that published it."""

    account: str
    guid: str
    uid: str

    def __str__(self) -> str:
        return f"{self.account}/{self.guid}/{self.uid}"


def parse_number(text: str, what: str) -> int:
    """Read a number.

    Raises:
        RefusedError: 400.
    """
    if NUMBER.fullmatch(text) is None:
        raise bad(f"{what} must be a number of up to 18 digits, got {text[:80]!r}")
    return int(text)


def parse_smuid(text: str) -> Smuid:
    """Read host and number; the number follows the last slash, as a context may have slashes.

    Raises:
        RefusedError: 400.
    """
    host, slash, number = text.rpartition("/")
    if not (host and slash):
        raise bad(f"a Smuid must be a host, a slash and a number, got {text[:80]!r}")
    return Smuid(host, parse_number(number, "the part of a Smuid after its last slash"))


def parse_cmuid(text: str) -> Cmuid:
    """Read account, guid and the publisher's own identifier, which may have slashes.

    Raises:
        RefusedError: 400.
    """
    parts = text.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise bad(f"a Cmuid must be an account, a guid and an identifier, with slashes between, got {text[:80]!r}")
    return Cmuid(*parts)


def parse_smuid_argument(text: str) -> int:
    """Read the number of a message in a command; a host may precede it.

    Raises:
        RefusedError: 400.
    """
    return parse_number(text.rpartition("/")[2], "a smuid")


def parse_ranges(text: str) -> Ranges:
    """Read `*`, or numbers and ranges separated by commas.

    Raises:
        RefusedError: 400.
    """
    if text == "*":
        return EVERY
    parts = [part for part in text.split(",") if part]
    if not parts or len(parts) > MAX_RANGES:
        raise bad(f"messages must be '*' or up to {MAX_RANGES} numbers and ranges, such as 1-3,7, got {text[:80]!r}")
    return tuple(_parse_range(part) for part in parts)


def _parse_range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    begin = parse_smuid_argument(first)
    end = parse_number(last, "the end of a range") if dash else begin
    if end < begin:
        raise bad(f"a range must not end before it begins, got {text[:80]!r}")
    return begin, end


def format_ranges(ranges: Ranges) -> str:
    """Write ranges; a range of one number is written as the number."""
    if ranges == EVERY:
        return "*"
    return ",".join(f"{begin}" if begin == end else f"{begin}-{end}" for begin, end in ranges)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Combine ascending numbers into ranges."""
    return tuple(_gathered(numbers))


def _gathered(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    begin = end = None
    for number in numbers:
        if begin is not None and end is not None and number == end + 1:
            end = number
            continue
        if begin is not None and end is not None:
            yield begin, end
        begin = end = number
    if begin is not None and end is not None:
        yield begin, end


Timeout: TypeAlias = float | None
"""Seconds, or None for no limit."""

DATE: Final = re.compile(r"D([0-9]{8})T([0-9]{6,9})Z?", re.IGNORECASE | re.ASCII)
TIMEOUT: Final = re.compile(r"(-?)([0-9]{1,4}(?::[0-9]{1,4}){2,4})", re.ASCII)
FOREVER: Final = frozenset({"INFINITE", "INF"})
WRITTEN_FOREVER: Final = "-0000:00:00:00:01"
FACTORS: Final = (86_400_00, 3_600_00, 60_00, 1_00, 1)
"""Hundredths of a second in a day, an hour, a minute, a second and a hundredth."""
MAX_DURATION_SECONDS: Final = 9_999 * 86_400.0
"""Longest timeout that can be written, in seconds."""


def parse_date(text: str, dialect: SmqpDialect = STRICT) -> datetime:
    """Read a date in any form; the dialect decides between day and month in ambiguous dates.

    A second has at most three further digits; hour 24 is the end of the day, and only valid as 240000.

    Raises:
        RefusedError: 400.
    """
    found = DATE.fullmatch(text)
    if found is None:
        raise _bad_date(text)
    digits, time = found.groups()
    try:
        year, month, day = _year_month_day(digits, dialect)
        return datetime(year, month, day, tzinfo=UTC) + _time_of_day(time)
    except (ValueError, OverflowError):
        raise _bad_date(text) from None


def _year_month_day(digits: str, dialect: SmqpDialect) -> tuple[int, int, int]:
    if digits[:2] in ("19", "20"):
        iso = int(digits[:4]), int(digits[4:6]), int(digits[6:])
        if 1 <= iso[1] <= 12 and 1 <= iso[2] <= 31:
            return iso
    first, second, year = int(digits[:2]), int(digits[2:4]), int(digits[4:])
    day_first = first > 12 or (second <= 12 and dialect.dates is DateForm.GRAMMAR)
    return (year, second, first) if day_first else (year, first, second)


def _time_of_day(digits: str) -> timedelta:
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    fraction = digits[6:]
    if hours == 24 and (minutes, seconds, int(fraction or "0")) == (0, 0, 0):
        return timedelta(days=1)
    if hours > 23 or minutes > 59 or seconds > 60:
        raise ValueError(digits)
    microseconds = int(fraction.ljust(6, "0")) if fraction else 0
    return timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=microseconds)


def format_date(date: datetime, dialect: SmqpDialect = STRICT) -> str:
    """Write a date in the dialect's form, with hundredths of a second (which the grammar does not have)."""
    date = date.astimezone(UTC)
    year, month, day = f"{date.year:04d}", f"{date.month:02d}", f"{date.day:02d}"
    digits = {
        DateForm.EXAMPLES: month + day + year,
        DateForm.GRAMMAR: day + month + year,
        DateForm.ISO: year + month + day,
    }[dialect.dates]
    return f"D{digits}T{date:%H%M%S}{date.microsecond // 10_000:02d}Z"


def _bad_date(text: str) -> RefusedError:
    why = f"a date must be D, month, day, year, T, hours, minutes, seconds, hundredths, Z, got {text!r}"
    return RefusedError(ReplyCode.BAD_REQUEST, why)


def parse_timeout(text: str) -> Timeout:
    """Read a timeout of three, four or five fields; one that begins with '-', INFINITE and INF never end.

    Three fields are hours, minutes, seconds; four begin with days; five also end with hundredths.

    Raises:
        RefusedError: 400.
    """
    if text.upper() in FOREVER:
        return None
    found = TIMEOUT.fullmatch(text)
    if found is None:
        why = f"a timeout must be days:hours:minutes:seconds:hundredths, such as 0001:00:00:00:00, got {text!r}"
        raise RefusedError(ReplyCode.BAD_REQUEST, why)
    sign, fields = found.groups()
    if sign:
        return None
    numbers = [int(field) for field in fields.split(":")]
    factors = {3: FACTORS[1:4], 4: FACTORS[:4], 5: FACTORS}[len(numbers)]
    return sum(number * factor for number, factor in zip(numbers, factors, strict=True)) / 100


def format_timeout(timeout: Timeout) -> str:
    """Write a timeout as five fields; it is limited to 9999 days, and a negative one is 0."""
    if timeout is None:
        return WRITTEN_FOREVER
    left = round(min(max(timeout, 0.0), MAX_DURATION_SECONDS) * 100)
    fields = []
    for factor in FACTORS:
        number, left = divmod(left, factor)
        fields.append(number)
    return "{:04d}:{:02d}:{:02d}:{:02d}:{:02d}".format(*fields)
