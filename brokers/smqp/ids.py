"""Identifiers of messages: Smuid, Cmuid, and sets of numbers as in GET and LIST. No I/O.

Spec: SMQP 4.1.3.2, 4.1.12.1, 4.1.13.1, 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from brokers.smqp.words import bad

NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
MAX_RANGES: Final = 1000

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last number of each range, both within it."""

EVERY: Final[Ranges] = ((0, 10**18),)


class Smuid(NamedTuple):
    """The server's name for a message; in attributes with the context of the server that first had it."""

    host: str
    number: int

    def __str__(self) -> str:
        return f"{self.host}/{self.number}"


class Cmuid(NamedTuple):
    """The publisher's name for a message, with who published it, in which session."""

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
        raise bad(f"{what} is a number of up to 18 digits: {text[:80]!r}")
    return int(text)


def parse_smuid(text: str) -> Smuid:
    """Read host and number; the number follows the last slash, as a context may have slashes.

    Raises:
        RefusedError: 400.
    """
    host, slash, number = text.rpartition("/")
    if not (host and slash):
        raise bad(f"a Smuid is a host, a slash and a number: {text[:80]!r}")
    return Smuid(host, parse_number(number, "what follows the last slash of a Smuid"))


def parse_cmuid(text: str) -> Cmuid:
    """Read account, guid and the publisher's own identifier, which may have slashes.

    Raises:
        RefusedError: 400.
    """
    parts = text.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise bad(f"a Cmuid is an account, a guid and an identifier with slashes between: {text[:80]!r}")
    return Cmuid(*parts)


def parse_smuid_argument(text: str) -> int:
    """Read the number of a message in a command, where a host may stand before it.

    Raises:
        RefusedError: 400.
    """
    return parse_number(text.rpartition("/")[2], "a smuid")


def parse_ranges(text: str) -> Ranges:
    """Read `*`, or numbers and ranges between commas.

    Raises:
        RefusedError: 400.
    """
    if text == "*":
        return EVERY
    parts = [part for part in text.split(",") if part]
    if not parts or len(parts) > MAX_RANGES:
        raise bad(f"messages are '*' or up to {MAX_RANGES} numbers and ranges, as 1-3,7: {text[:80]!r}")
    return tuple(_parse_range(part) for part in parts)


def _parse_range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    begin = parse_smuid_argument(first)
    end = parse_number(last, "the end of a range") if dash else begin
    if end < begin:
        raise bad(f"a range ends before it begins: {text[:80]!r}")
    return begin, end


def format_ranges(ranges: Ranges) -> str:
    """Write ranges; one of a single number as that."""
    if ranges == EVERY:
        return "*"
    return ",".join(f"{begin}" if begin == end else f"{begin}-{end}" for begin, end in ranges)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Gather rising numbers into ranges."""
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
