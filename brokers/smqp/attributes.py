"""Attributes of messages and of their data: names, abbreviations, what their values must be. No I/O.

Values that SMQP defines are read in every form and kept in the one that is written; all others pass unchanged.

Spec: SMQP 4.1.8.1, 4.1.12.1; 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from brokers.smqp.dialect import STRICT, Dialect
from brokers.smqp.ids import parse_cmuid, parse_number, parse_smuid
from brokers.smqp.times import format_date, format_timeout, parse_date, parse_timeout
from brokers.smqp.words import BLANKS, bad

MAX_ATTRIBUTES: Final = 256
NAME: Final = re.compile(r"[^\s:]+")
MAX_NAME_CHARACTERS: Final = 128
TRUTH: Final = {"YES": "YES", "NO": "NO", "1": "YES", "0": "NO"}


class Attribute(NamedTuple):
    """A name as it is spelled, and its value as one line of text."""

    name: str
    value: str


class Attributes(tuple[Attribute, ...]):
    """Attributes in order, with a lookup in which case does not count."""

    __slots__ = ()

    def value(self, name: str) -> str | None:
        """Return the first value of a name, or None."""
        wanted = name.lower()
        return next((each.value for each in self if each.name.lower() == wanted), None)

    def without(self, *names: str) -> Attributes:
        """Return these but for the names given."""
        dropped = {name.lower() for name in names}
        return Attributes(each for each in self if each.name.lower() not in dropped)

    def written(self) -> bytes:
        """Write them, one a line."""
        return "".join(f"{name}: {value}\r\n" for name, value in self).encode()

    def text(self, name: str) -> str:
        """Return a value, empty where there is none."""
        return self.value(name) or ""

    def flag(self, name: str) -> bool:
        """Return a Boolean, false where there is none."""
        return TRUTH.get(self.text(name).upper()) == "YES"


def _name(value: str, dialect: Dialect) -> str:
    if len(value) > MAX_NAME_CHARACTERS:
        raise bad(f"a Name has up to {MAX_NAME_CHARACTERS} characters, not {len(value)}")
    return value


def _positive(value: str, dialect: Dialect) -> str:
    number = parse_number(value, "a Priority or Sequence")
    if number < 1:
        raise bad("a Priority or Sequence is greater than 0")
    return str(number)


def _date(value: str, dialect: Dialect) -> str:
    return format_date(parse_date(value, dialect), dialect)


def _truth(value: str, dialect: Dialect) -> str:
    try:
        return TRUTH[value.upper()]
    except KeyError:
        raise bad(f"a Boolean is YES, NO, 1 or 0, not {value[:80]!r}") from None


def _timeout(value: str, dialect: Dialect) -> str:
    return format_timeout(parse_timeout(value))


def _depth(value: str, dialect: Dialect) -> str:
    return value if value == "-1" else str(parse_number(value, "a Depth that is not -1"))


def _mime_version(value: str, dialect: Dialect) -> str:
    if re.fullmatch(r"[0-9]+\.[0-9]+", value, re.ASCII) is None:
        raise bad(f"a MIME-Version is two numbers with a dot between, not {value[:80]!r}")
    return value


def _smuid(value: str, dialect: Dialect) -> str:
    return str(parse_smuid(value))


def _cmuid(value: str, dialect: Dialect) -> str:
    return str(parse_cmuid(value))


def _media_type(value: str, dialect: Dialect) -> str:
    if re.match(r"[^\s/;]+/[^\s/;]+\s*(;|$)", value) is None:
        raise bad(f"a Content-Type is a media type, as text/plain: {value[:80]!r}")
    return value


def _length(value: str, dialect: Dialect) -> str:
    return str(parse_number(value, "a Content-Length"))


def _any(value: str, dialect: Dialect) -> str:
    return value


class Rule(NamedTuple):
    """How a known attribute is spelled, and what puts its value into the form that is written, or refuses it."""

    name: str
    read: Callable[[str, Dialect], str]


HEADER: Final[Mapping[str, Rule]] = {
    "name": Rule("Name", _name),
    "priority": Rule("Priority", _positive),
    "pri": Rule("Priority", _positive),
    "created": Rule("Created", _date),
    "receipt": Rule("Receipt", _truth),
    "reply": Rule("Reply", _truth),
    "timeout": Rule("Timeout", _timeout),
    "depth": Rule("Depth", _depth),
    "sequence": Rule("Sequence", _positive),
    "seq": Rule("Sequence", _positive),
    "mime-version": Rule("MIME-Version", _mime_version),
    "smuid": Rule("Smuid", _smuid),
    "cmuid": Rule("Cmuid", _cmuid),
    "topic": Rule("Topic", _any),
}
DATA: Final[Mapping[str, Rule]] = {
    "content-type": Rule("Content-Type", _media_type),
    "content-length": Rule("Content-Length", _length),
    "content-encoding": Rule("Content-Encoding", _any),
    "encryption": Rule("Encryption", _any),
    "mime-version": Rule("MIME-Version", _mime_version),
}
BEGINS_DATA: Final = re.compile(r"content-|encryption\s*:", re.IGNORECASE)
"""A line of these belongs to data, even where the empty line before the data was left out."""


def parse_line(line: str) -> Attribute:
    """Read `name: value`; blanks around the value do not count.

    Raises:
        RefusedError: 400.
    """
    name, colon, value = line.partition(":")
    name = name.rstrip(BLANKS)
    if not colon or NAME.fullmatch(name) is None:
        raise bad(f"an attribute is a name, a colon and a value: {line[:80]!r}")
    return Attribute(name, value.strip(BLANKS))


def checked(lines: list[Attribute], rules: Mapping[str, Rule], dialect: Dialect = STRICT) -> Attributes:
    """See that what is known is there once and well formed, and put it into the form that is written.

    Raises:
        RefusedError: 400.
    """
    seen: set[str] = set()
    out: list[Attribute] = []
    for name, value in lines:
        rule = rules.get(name.lower())
        if rule is None:
            out.append(Attribute(name, value))
            continue
        if rule.name in seen:
            raise bad(f"{rule.name} is there twice")
        seen.add(rule.name)
        out.append(Attribute(rule.name, rule.read(value, dialect)))
    return Attributes(out)


def attribute(name: str, value: str) -> Attribute:
    """Make an attribute to send.

    Raises:
        ValueError: a name or a value that no line carries.
    """
    if NAME.fullmatch(name) is None or any(octet < " " and octet != "\t" for octet in name + value) or "\x7f" in value:
        raise ValueError(f"no attribute of SMQP: {name!r}: {value[:80]!r}")
    return Attribute(name, value.strip(BLANKS))
