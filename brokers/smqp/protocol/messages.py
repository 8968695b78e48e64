"""Published messages: attributes, sections of data, and reading both from octets as they come. No I/O.

Attribute values that SMQP defines are read in every form and kept in the one that is written; all others pass
unchanged. A message is read as its header, its sections by their Content-Length, and the line with the dot. Whatever
is wrong with a message, reading goes on to its end, so that what follows it is understood. Memory is bounded by
`SmqpLimits`.

Spec: SMQP 2.4, 4.1.8.1, 4.1.12.1; 7; SMQP 4.1.8.1, with Content-Length above the end mark: see Deviation.

Deviation: the glossary ends data with CRLF.CRLF, 4.1.8.1 with its length. The length decides; there is no escape for
lines of a dot. Where length and data do not agree, all is dropped up to the next CRLF.CRLF.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.ids import (
    NUMBER,
    format_date,
    format_timeout,
    parse_cmuid,
    parse_date,
    parse_number,
    parse_smuid,
    parse_timeout,
)
from brokers.smqp.protocol.lines import MAX_LINE_OCTETS, Octets, TooLongError
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.smqp.protocol.words import BLANKS, bad, text_of

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


def _name(value: str, dialect: SmqpDialect) -> str:
    if len(value) > MAX_NAME_CHARACTERS:
        raise bad(f"a Name has up to {MAX_NAME_CHARACTERS} characters, not {len(value)}")
    return value


def _positive(value: str, dialect: SmqpDialect) -> str:
    number = parse_number(value, "a Priority or Sequence")
    if number < 1:
        raise bad("a Priority or Sequence is greater than 0")
    return str(number)


def _date(value: str, dialect: SmqpDialect) -> str:
    return format_date(parse_date(value, dialect), dialect)


def _truth(value: str, dialect: SmqpDialect) -> str:
    try:
        return TRUTH[value.upper()]
    except KeyError:
        raise bad(f"a Boolean is YES, NO, 1 or 0, not {value[:80]!r}") from None


def _timeout(value: str, dialect: SmqpDialect) -> str:
    return format_timeout(parse_timeout(value))


def _depth(value: str, dialect: SmqpDialect) -> str:
    return value if value == "-1" else str(parse_number(value, "a Depth that is not -1"))


def _mime_version(value: str, dialect: SmqpDialect) -> str:
    if re.fullmatch(r"[0-9]+\.[0-9]+", value, re.ASCII) is None:
        raise bad(f"a MIME-Version is two numbers with a dot between, not {value[:80]!r}")
    return value


def _smuid(value: str, dialect: SmqpDialect) -> str:
    return str(parse_smuid(value))


def _cmuid(value: str, dialect: SmqpDialect) -> str:
    return str(parse_cmuid(value))


def _media_type(value: str, dialect: SmqpDialect) -> str:
    if re.match(r"[^\s/;]+/[^\s/;]+\s*(;|$)", value) is None:
        raise bad(f"a Content-Type is a media type, as text/plain: {value[:80]!r}")
    return value


def _length(value: str, dialect: SmqpDialect) -> str:
    return str(parse_number(value, "a Content-Length"))


def _any(value: str, dialect: SmqpDialect) -> str:
    return value


class AttributeRule(NamedTuple):
    """How a known attribute is spelled, and what puts its value into the form that is written, or refuses it."""

    name: str
    read: Callable[[str, SmqpDialect], str]


HEADER: Final[Mapping[str, AttributeRule]] = {
    "name": AttributeRule("Name", _name),
    "priority": AttributeRule("Priority", _positive),
    "pri": AttributeRule("Priority", _positive),
    "created": AttributeRule("Created", _date),
    "receipt": AttributeRule("Receipt", _truth),
    "reply": AttributeRule("Reply", _truth),
    "timeout": AttributeRule("Timeout", _timeout),
    "depth": AttributeRule("Depth", _depth),
    "sequence": AttributeRule("Sequence", _positive),
    "seq": AttributeRule("Sequence", _positive),
    "mime-version": AttributeRule("MIME-Version", _mime_version),
    "smuid": AttributeRule("Smuid", _smuid),
    "cmuid": AttributeRule("Cmuid", _cmuid),
    "topic": AttributeRule("Topic", _any),
}
DATA: Final[Mapping[str, AttributeRule]] = {
    "content-type": AttributeRule("Content-Type", _media_type),
    "content-length": AttributeRule("Content-Length", _length),
    "content-encoding": AttributeRule("Content-Encoding", _any),
    "encryption": AttributeRule("Encryption", _any),
    "mime-version": AttributeRule("MIME-Version", _mime_version),
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


def checked(lines: list[Attribute], rules: Mapping[str, AttributeRule], dialect: SmqpDialect = STRICT) -> Attributes:
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


END: Final = b".\r\n"


@dataclass(frozen=True, slots=True)
class SmqpSection:
    """One part of a message's data: its media type, its octets, and what else its header says."""

    content_type: str
    data: bytes
    attributes: Attributes = Attributes()  # noqa: RUF009 - a tuple, which nothing changes

    def written(self) -> bytes:
        """Write header, empty line and data. Content-Length counts the octets of the data alone."""
        head = Attributes(
            (
                attribute("Content-Type", self.content_type),
                Attribute("Content-Length", str(len(self.data))),
                *self.attributes,
            )
        )
        return head.written() + b"\r\n" + self.data + b"\r\n"


@dataclass(frozen=True, slots=True)
class SmqpMessage:
    """A message as SMQP knows it: header attributes, and sections, of which there may be none."""

    attributes: Attributes
    sections: tuple[SmqpSection, ...] = ()

    @property
    def size(self) -> int:
        """The octets of all data."""
        return sum(len(section.data) for section in self.sections)

    def written(self) -> bytes:
        """Write it all, up to the line with the dot."""
        return self.attributes.written() + b"\r\n" + written_sections(self.sections) + END


def written_sections(sections: tuple[SmqpSection, ...]) -> bytes:
    """Write sections with an empty line between them."""
    return b"\r\n".join(section.written() for section in sections)


LENGTH: Final = "content-length"
UNREADABLE: Final = "X-Unreadable: yes"
"""Stands in for a line that was refused, so that reading goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmqpLimits:
    """What one message or line may have: octets of a line, of all attributes, of all data, and how many sections."""

    line: int = MAX_LINE_OCTETS
    attributes: int = 1024 * 1024
    message: int = 16 * 1024 * 1024
    sections: int = 100


class MessageReader:
    """Reads one message; `outcome` is set once its end was reached: the message, or why it is refused.

    Of a message that is refused nothing is kept but what tells where it ends.

    Args:
        octets: where it comes from.
        limits: what it may have.
        dialect: how it is read.
        refusal: why it is refused, whatever it says; None to see.
    """

    def __init__(
        self, octets: Octets, limits: SmqpLimits, dialect: SmqpDialect = STRICT, refusal: RefusedError | None = None
    ) -> None:
        self.outcome: SmqpMessage | RefusedError | None = None
        self._octets = octets
        self._limits = limits
        self._dialect = dialect
        self._refusal = refusal
        self._step: Callable[[], bool] = self._header
        self._lines: list[Attribute] = []
        self._line_count = 0
        self._header_attributes: Attributes | None = None
        self._sections: list[SmqpSection] = []
        self._section_attributes = Attributes()
        self._data = bytearray()
        self._left = 0
        self._total = 0
        self._attribute_octets = 0

    def advance(self) -> bool:
        """Read on; True once `outcome` is set, False if more octets are needed."""
        while self.outcome is None:
            if not self._step():
                return False
        return True

    # One step each: True if it got on, False if it needs octets

    def _header(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if line == "":
            self._step = self._between if self._line_count else self._header  # one may stand before the first attribute
        elif line == ".":
            self._finish()
        elif BEGINS_DATA.match(line):
            self._step = self._data_header
            self._keep_header()
            self._add(line)
        else:
            self._add(line)
        return True

    def _between(self) -> bool:
        """Read the line after an empty one: the dot, or the first of a data header."""
        line = self._line()
        if line is None:
            return False
        self._keep_header()
        if line == ".":
            self._finish()
        elif line:
            self._step = self._data_header
            self._add(line)
        return True

    def _data_header(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if line == ".":
            self._refuse(bad("a message ends within the header of its data"))
            self._finish()
        elif line:
            self._add(line)
        else:
            self._begin_data()
        return True

    def _in_data(self) -> bool:
        if self._left:
            taken = self._octets.some(self._left)
            if not taken:
                return False
            self._left -= len(taken)
            if self._refusal is None:
                self._data += taken
            return True
        return self._after_data()

    def _after_data(self) -> bool:
        """See that the data is followed by the end of its line."""
        following = self._octets.peek()
        if not following:
            return False
        if following not in (b"\r", b"\n") and self._dialect.wrong_lengths:
            self._step = self._rest_of_line
            return True
        self._step = self._end_of_data
        return True

    def _end_of_data(self) -> bool:
        line = self._raw_line()
        if line is None:
            return False
        if line:
            self._lose(bad("data goes on after as many octets as its Content-Length says"), line)
            return True
        self._keep_section()
        self._step = self._after_section
        return True

    def _rest_of_line(self) -> bool:
        line = self._raw_line()
        if line is None:
            return False
        if self._refusal is None:
            self._data += line
        self._keep_section()
        self._step = self._after_section
        return True

    def _after_section(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if line == ".":
            self._finish()
        elif line == "":
            self._step = self._between
        else:
            self._lose(bad("data is followed by '.' or by an empty line"), line.encode())
        return True

    def _skip(self) -> bool:
        line = self._raw_line()
        if line == b".":
            self._finish()
        return line is not None

    # What steps are made of

    def _line(self) -> str | None:
        line = self._raw_line()
        if line is None:
            return None
        try:
            return text_of(line)
        except RefusedError as error:
            self._refuse(error)
            return UNREADABLE

    def _raw_line(self) -> bytes | None:
        try:
            return self._octets.line()
        except TooLongError as error:
            self._refuse(RefusedError(ReplyCode.RESOURCE_TOO_LARGE, str(error)))
            return UNREADABLE.encode()

    def _add(self, line: str) -> None:
        self._line_count += 1
        if self._line_count > MAX_ATTRIBUTES:
            self._refuse(RefusedError(ReplyCode.RESOURCE_TOO_LARGE, f"more than {MAX_ATTRIBUTES} attributes"))
        self._attribute_octets += len(line)
        if self._attribute_octets > self._limits.attributes:
            self._refuse(
                RefusedError(ReplyCode.ENTITY_TOO_LARGE, f"attributes of over {self._limits.attributes} octets")
            )
        try:
            attribute = parse_line(line)
        except RefusedError as error:
            self._refuse(error)
        else:
            if self._refusal is None or self._tells_the_length(attribute):
                self._lines.append(attribute)

    def _tells_the_length(self, attribute: Attribute) -> bool:
        """Say whether that is the first Content-Length, which is needed even of what is refused."""
        is_length = attribute.name.lower() == LENGTH
        return is_length and all(each.name.lower() != LENGTH for each in self._lines)

    def _keep_header(self) -> None:
        if self._header_attributes is None:
            self._header_attributes = self._checked(is_header=True)

    def _checked(self, *, is_header: bool) -> Attributes:
        lines, self._lines, self._line_count = self._lines, [], 0
        try:
            return checked(lines, HEADER if is_header else DATA, self._dialect)
        except RefusedError as error:
            self._refuse(error)
            return Attributes(lines)

    def _begin_data(self) -> None:
        attributes = self._checked(is_header=False)
        length = attributes.value("Content-Length")
        if length is None or NUMBER.fullmatch(length) is None:
            code = ReplyCode.LENGTH_REQUIRED if length is None else ReplyCode.BAD_REQUEST
            self._lose(RefusedError(code, "each section of data has a Content-Length"), b"")
            return
        if attributes.value("Content-Type") is None:
            self._refuse(bad("each section of data has a Content-Type"))
        self._left = int(length)
        self._total += self._left
        if self._total > self._limits.message:
            why = f"a message has up to {self._limits.message} octets of data"
            self._refuse(RefusedError(ReplyCode.ENTITY_TOO_LARGE, why))
        if len(self._sections) >= self._limits.sections:
            why = f"a message has up to {self._limits.sections} sections"
            self._refuse(RefusedError(ReplyCode.ENTITY_TOO_LARGE, why))
        self._section_attributes = attributes
        self._step = self._in_data

    def _keep_section(self) -> None:
        found = self._section_attributes
        if self._refusal is None:
            rest = found.without("Content-Type", "Content-Length")
            self._sections.append(SmqpSection(found.text("Content-Type"), bytes(self._data), rest))
        self._data = bytearray()

    def _refuse(self, error: RefusedError) -> None:
        """Note the first thing that is wrong; what was gathered is not needed any more."""
        if self._refusal is None:
            self._refusal = error
            self._lines = [each for each in self._lines if each.name.lower() == LENGTH]
            self._sections.clear()
            self._data = bytearray()

    def _lose(self, error: RefusedError, line: bytes) -> None:
        """Give up finding the parts: drop everything to the next line that is a dot, which may be the one just read."""
        self._refuse(error)
        self._step = self._skip
        if line == b".":
            self._finish()

    def _finish(self) -> None:
        self._keep_header()
        if self._refusal is not None:
            self.outcome = self._refusal
            return
        assert self._header_attributes is not None
        # MIME-Version is an attribute of the message; the draft lists it after the empty line.
        version = next((each.attributes.value("MIME-Version") for each in self._sections[:1]), None)
        header = self._header_attributes
        if version is not None:
            if header.value("MIME-Version") is None:
                header = Attributes((*header, Attribute("MIME-Version", version)))
            first = self._sections[0]
            rest = first.attributes.without("MIME-Version")
            self._sections[0] = SmqpSection(first.content_type, first.data, rest)
        self.outcome = SmqpMessage(header, tuple(self._sections))
