"""Published messages: attributes, sections of data, and reading both from octets as they arrive. No I/O.

Values of attributes that SMQP defines are read in every form and kept in the form that is written; all others stay
unchanged. A message consists of its header, its sections with their Content-Length, and a line with a dot. A faulty
message is still read to its end, so that the command after it is understood. `SmqpLimits` bounds the memory.

Spec: SMQP 2.4, 4.1.8.1, 4.1.12.1; 7; SMQP 4.1.8.1, with Content-Length above the end mark: see Deviation.

Deviation: by the glossary data ends with CRLF.CRLF, by 4.1.8.1 with its length. The length decides; lines with just a
dot are not escaped. If length and data do not agree, everything up to the next CRLF.CRLF is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.errors import UsageError
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
    """A name as spelled, and its value as one line of text."""

    name: str
    value: str


class Attributes(tuple[Attribute, ...]):
    """Attributes in order, with a lookup that ignores case."""

    __slots__ = ()

    def value(self, name: str) -> str | None:
        """Return the first value of a name, or None."""
        wanted = name.lower()
        return next((each.value for each in self if each.name.lower() == wanted), None)

    def without(self, *names: str) -> Attributes:
        """Return all attributes except those with the given names."""
        dropped = {name.lower() for name in names}
        return Attributes(each for each in self if each.name.lower() not in dropped)

    def written(self) -> bytes:
        """Write the attributes, one on each line."""
        return "".join(f"{name}: {value}\r\n" for name, value in self).encode()

    def text(self, name: str) -> str:
        """Return a value, empty if it is missing."""
        return self.value(name) or ""

    def flag(self, name: str) -> bool:
        """Return a Boolean, False if it is missing."""
        return TRUTH.get(self.text(name).upper()) == "YES"


def _name(value: str, dialect: SmqpDialect) -> str:
    if len(value) > MAX_NAME_CHARACTERS:
        raise bad(f"a Name must have at most {MAX_NAME_CHARACTERS} characters, got {len(value)}")
    return value


def _positive(value: str, dialect: SmqpDialect) -> str:
    number = parse_number(value, "a Priority or Sequence")
    if number < 1:
        raise bad("a Priority or Sequence must be greater than 0, got 0")
    return str(number)


def _date(value: str, dialect: SmqpDialect) -> str:
    return format_date(parse_date(value, dialect), dialect)


def _truth(value: str, dialect: SmqpDialect) -> str:
    try:
        return TRUTH[value.upper()]
    except KeyError:
        raise bad(f"a Boolean must be YES, NO, 1 or 0, got {value[:80]!r}") from None


def _timeout(value: str, dialect: SmqpDialect) -> str:
    return format_timeout(parse_timeout(value))


def _depth(value: str, dialect: SmqpDialect) -> str:
    return value if value == "-1" else str(parse_number(value, "a Depth other than -1"))


def _mime_version(value: str, dialect: SmqpDialect) -> str:
    if re.fullmatch(r"[0-9]+\.[0-9]+", value, re.ASCII) is None:
        raise bad(f"a MIME-Version must be two numbers with a dot between, got {value[:80]!r}")
    return value


def _smuid(value: str, dialect: SmqpDialect) -> str:
    return str(parse_smuid(value))


def _cmuid(value: str, dialect: SmqpDialect) -> str:
    return str(parse_cmuid(value))


def _media_type(value: str, dialect: SmqpDialect) -> str:
    if re.match(r"[^\s/;]+/[^\s/;]+\s*(;|$)", value) is None:
        raise bad(f"a Content-Type must be a media type, such as text/plain, got {value[:80]!r}")
    return value


def _length(value: str, dialect: SmqpDialect) -> str:
    return str(parse_number(value, "a Content-Length"))


def _any(value: str, dialect: SmqpDialect) -> str:
    return value


class AttributeRule(NamedTuple):
    """The spelling of a known attribute, and the function that normalizes its value or refuses it."""

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
"""The beginning of a line that belongs to data, even if the empty line before the data is missing."""


def parse_line(line: str) -> Attribute:
    """Read `name: value`; blanks around the value are ignored.

    Raises:
        RefusedError: 400.
    """
    name, colon, value = line.partition(":")
    name = name.rstrip(BLANKS)
    if not colon or NAME.fullmatch(name) is None:
        raise bad(f"an attribute must be a name, a colon and a value, got {line[:80]!r}")
    return Attribute(name, value.strip(BLANKS))


def checked(lines: list[Attribute], rules: Mapping[str, AttributeRule], dialect: SmqpDialect = STRICT) -> Attributes:
    """Return the attributes with the values of known ones normalized.

    Raises:
        RefusedError: 400: a known attribute is malformed, or there twice.
    """
    seen: set[str] = set()
    out: list[Attribute] = []
    for name, value in lines:
        rule = rules.get(name.lower())
        if rule is None:
            out.append(Attribute(name, value))
            continue
        if rule.name in seen:
            raise bad(f"{rule.name} must be there only once")
        seen.add(rule.name)
        out.append(Attribute(rule.name, rule.read(value, dialect)))
    return Attributes(out)


def attribute(name: str, value: str) -> Attribute:
    """Make an attribute to send.

    Raises:
        UsageError: the name or the value does not fit into a line.
    """
    if NAME.fullmatch(name) is None or any(octet < " " and octet != "\t" for octet in name + value) or "\x7f" in value:
        raise UsageError(f"an attribute must have a plain name and a value of one line, got {name!r}: {value[:80]!r}")
    return Attribute(name, value.strip(BLANKS))


END: Final = b".\r\n"


@dataclass(frozen=True, slots=True)
class SmqpSection:
    """One part of a message's data: its media type, its octets, and the other attributes of its header."""

    content_type: str
    data: bytes
    attributes: Attributes = Attributes()  # noqa: RUF009 - a tuple, which nothing changes

    def written(self) -> bytes:
        """Write header, empty line and data. Content-Length counts the octets of the data only."""
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
    """An SMQP message: header attributes, and sections, if there are any."""

    attributes: Attributes
    sections: tuple[SmqpSection, ...] = ()

    @property
    def size(self) -> int:
        """The number of octets of all data."""
        return sum(len(section.data) for section in self.sections)

    def written(self) -> bytes:
        """Write the message, up to the line with the dot."""
        return self.attributes.written() + b"\r\n" + written_sections(self.sections) + END


def written_sections(sections: tuple[SmqpSection, ...]) -> bytes:
    """Write sections with an empty line between them."""
    return b"\r\n".join(section.written() for section in sections)


DELIVERY_COUNT: Final = "X-Delivery-Count"
RECEIPT_SMUID, RECEIPT_CMUID, RECEIPT_COUNT = "X-Receipt-Smuid", "X-Receipt-Cmuid", "X-Receipt-Count"
REPLIED_SMUID, REPLIED_CMUID = "X-In-Reply-To-Smuid", "X-In-Reply-To-Cmuid"
OF_SERVER: Final = (
    *("Created", "Smuid", "Cmuid", "Topic", DELIVERY_COUNT),
    *(RECEIPT_SMUID, RECEIPT_CMUID, RECEIPT_COUNT, REPLIED_SMUID, REPLIED_CMUID),
)
"""Attributes that only the server writes, as its clients believe them; others of a publisher follow unchanged."""

LENGTH: Final = "content-length"
UNREADABLE: Final = "X-Unreadable: yes"
"""Replaces a line that was refused, so that reading can go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmqpLimits:
    """Limits: octets of a line, of all attributes of a message and of all its data, and the number of its sections."""

    line: int = MAX_LINE_OCTETS
    attributes: int = 1024 * 1024
    message: int = 16 * 1024 * 1024
    sections: int = 100


class MessageReader:
    """Reads one message; once its end is reached, `outcome` is the message or the reason for refusing it.

    Of a refused message only the data needed to find its end is kept.

    Args:
        octets: the buffer to read from.
        limits: the limits of the message.
        dialect: the dialect to read.
        refusal: a reason to refuse the message whatever it contains, or None.
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
        """Go on reading; return True once `outcome` is set, False if more octets are needed."""
        while self.outcome is None:
            if not self._step():
                return False
        return True

    # One step each; True if it made progress, False if it needs more octets

    def _header(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if line == "":
            self._step = self._between if self._line_count else self._header  # one may precede the first attribute
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
            self._refuse(bad("a message must not end within the header of its data"))
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
        """Check that the end of a line follows the data."""
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
            # Of one octet too many, the data has the first half of the end of its line.
            self._lose(bad("data must end after as many octets as its Content-Length says"), line.removeprefix(b"\n"))
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
            self._lose(bad("data must be followed by '.' or by an empty line"), line.encode())
        return True

    def _skip(self) -> bool:
        line = self._raw_line()
        if line == b".":
            self._finish()
        return line is not None

    # Parts of steps

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
                RefusedError(ReplyCode.ENTITY_TOO_LARGE, f"attributes of more than {self._limits.attributes} octets")
            )
        try:
            attribute = parse_line(line)
        except RefusedError as error:
            self._refuse(error)
        else:
            if self._refusal is None or self._tells_the_length(attribute):
                self._lines.append(attribute)

    def _tells_the_length(self, attribute: Attribute) -> bool:
        """Say whether this is the first Content-Length, which is needed even for a refused message."""
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
            self._lose(RefusedError(code, "each section of data must have a Content-Length"), b"")
            return
        if attributes.value("Content-Type") is None:
            self._refuse(bad("each section of data must have a Content-Type"))
        self._left = int(length)
        self._total += self._left
        if self._total > self._limits.message:
            why = f"a message must have at most {self._limits.message} octets of data"
            self._refuse(RefusedError(ReplyCode.ENTITY_TOO_LARGE, why))
        if len(self._sections) >= self._limits.sections:
            why = f"a message must have at most {self._limits.sections} sections"
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
        """Keep the first reason for refusing the message, and drop its data, which is not needed any more."""
        if self._refusal is None:
            self._refusal = error
            self._lines = [each for each in self._lines if each.name.lower() == LENGTH]
            self._sections.clear()
            self._data = bytearray()

    def _lose(self, error: RefusedError, line: bytes) -> None:
        """Stop reading parts: skip to the next line that is a dot, which may be the one just read."""
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
