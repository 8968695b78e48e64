"""Messages read from octets as they come: header, sections by their Content-Length, the line with the dot. No I/O.

Whatever is wrong with a message, reading goes on to its end, so that what follows it is understood. Memory is bounded
by `Limits`.

Spec: SMQP 4.1.8.1, with Content-Length above the end mark: see Deviation.

Deviation: the glossary ends data with CRLF.CRLF, 4.1.8.1 with its length. The length decides; there is no escape for
lines of a dot. Where length and data do not agree, all is dropped up to the next CRLF.CRLF.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from brokers.smqp.attributes import (
    BEGINS_DATA,
    DATA,
    HEADER,
    MAX_ATTRIBUTES,
    Attribute,
    Attributes,
    checked,
    parse_line,
)
from brokers.smqp.content import Content, Section
from brokers.smqp.dialect import STRICT, Dialect
from brokers.smqp.errors import RefusedError
from brokers.smqp.ids import NUMBER
from brokers.smqp.lines import MAX_LINE, Octets, TooLongError
from brokers.smqp.replies import Code
from brokers.smqp.words import bad, text_of

LENGTH: Final = "content-length"
UNREADABLE: Final = "X-Unreadable: yes"
"""Stands in for a line that was refused, so that reading goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one message or line may have: octets of a line, of all attributes, of all data, and how many sections."""

    line: int = MAX_LINE
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
        self, octets: Octets, limits: Limits, dialect: Dialect = STRICT, refusal: RefusedError | None = None
    ) -> None:
        self.outcome: Content | RefusedError | None = None
        self._octets = octets
        self._limits = limits
        self._dialect = dialect
        self._refusal = refusal
        self._step: Callable[[], bool] = self._header
        self._lines: list[Attribute] = []
        self._line_count = 0
        self._header_attributes: Attributes | None = None
        self._sections: list[Section] = []
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
            self._refuse(RefusedError(Code.RESOURCE_TOO_LARGE, str(error)))
            return UNREADABLE.encode()

    def _add(self, line: str) -> None:
        self._line_count += 1
        if self._line_count > MAX_ATTRIBUTES:
            self._refuse(RefusedError(Code.RESOURCE_TOO_LARGE, f"more than {MAX_ATTRIBUTES} attributes"))
        self._attribute_octets += len(line)
        if self._attribute_octets > self._limits.attributes:
            self._refuse(RefusedError(Code.ENTITY_TOO_LARGE, f"attributes of over {self._limits.attributes} octets"))
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
            code = Code.LENGTH_REQUIRED if length is None else Code.BAD_REQUEST
            self._lose(RefusedError(code, "each section of data has a Content-Length"), b"")
            return
        if attributes.value("Content-Type") is None:
            self._refuse(bad("each section of data has a Content-Type"))
        self._left = int(length)
        self._total += self._left
        if self._total > self._limits.message:
            why = f"a message has up to {self._limits.message} octets of data"
            self._refuse(RefusedError(Code.ENTITY_TOO_LARGE, why))
        if len(self._sections) >= self._limits.sections:
            why = f"a message has up to {self._limits.sections} sections"
            self._refuse(RefusedError(Code.ENTITY_TOO_LARGE, why))
        self._section_attributes = attributes
        self._step = self._in_data

    def _keep_section(self) -> None:
        found = self._section_attributes
        if self._refusal is None:
            rest = found.without("Content-Type", "Content-Length")
            self._sections.append(Section(found.text("Content-Type"), bytes(self._data), rest))
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
            self._sections[0] = Section(first.content_type, first.data, rest)
        self.outcome = Content(header, tuple(self._sections))
