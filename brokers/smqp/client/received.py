"""What a client hands over: messages as they came, and what else it was told."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.smqp.attributes import Attributes
from brokers.smqp.content import Content, Section
from brokers.smqp.times import Timeout


@dataclass(frozen=True, slots=True)
class Received:
    """One message.

    Attributes:
        topic: that it came by: the name that was subscribed to; the name of another server may stand before it.
        content: its attributes and data.
    """

    topic: str
    content: Content

    @property
    def attributes(self) -> Attributes:
        """The header attributes."""
        return self.content.attributes

    @property
    def smuid(self) -> str:
        """The server's name for it."""
        return self.attributes.text("Smuid")

    @property
    def cmuid(self) -> str:
        """Its publisher's name for it."""
        return self.attributes.text("Cmuid")

    @property
    def wants_reply(self) -> bool:
        """Whether its publisher waits for a reply; without the attribute it does not."""
        return self.attributes.flag("Reply")

    @property
    def sections(self) -> tuple[Section, ...]:
        """Its data; there may be none."""
        return self.content.sections

    @property
    def data(self) -> bytes:
        """The octets of its first section, none if there is none."""
        return self.content.sections[0].data if self.content.sections else b""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Something was done to a topic: ADDED, RENAME, DELETED or KEYWORDS, with the new name or keywords."""

    topic: str
    action: str
    value: str


@dataclass(frozen=True, slots=True)
class SubscriberCount:
    """So many subscribe to a topic now. With none, a publisher may save itself the trouble."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class DefaultTimeout:
    """The server's default timeout changed."""

    timeout: Timeout


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The server will not be there after so many seconds; 0 is now."""

    seconds: Timeout


Told = TopicChange | SubscriberCount | DefaultTimeout | Goodbye
"""A notification that is no message."""
