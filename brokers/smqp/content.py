"""What is published: a message of header attributes and sections of data. No I/O.

Spec: SMQP 2.4, 4.1.8.1, 4.1.12.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokers.smqp.attributes import Attribute, Attributes, attribute

END: Final = b".\r\n"


@dataclass(frozen=True, slots=True)
class Section:
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
class Content:
    """A message as SMQP knows it: header attributes, and sections, of which there may be none."""

    attributes: Attributes
    sections: tuple[Section, ...] = ()

    @property
    def size(self) -> int:
        """The octets of all data."""
        return sum(len(section.data) for section in self.sections)

    def written(self) -> bytes:
        """Write it all, up to the line with the dot."""
        return self.attributes.written() + b"\r\n" + written_sections(self.sections) + END


def written_sections(sections: tuple[Section, ...]) -> bytes:
    """Write sections with an empty line between them."""
    return b"\r\n".join(section.written() for section in sections)
