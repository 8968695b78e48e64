"""The client's methods that consist of a single command.

Spec: SMQP 4.1.2 to 4.1.7, 4.1.9, 4.1.13, 4.1.15.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from brokers.smqp.protocol.commands import Command, CommandKind
from brokers.smqp.protocol.ids import EVERY, Ranges, parse_ranges
from brokers.smqp.protocol.messages import SmqpMessage
from brokers.smqp.protocol.replies import ProtocolError, SmqpReply
from brokers.smqp.protocol.words import parse_keywords


class TopicListing(NamedTuple):
    """A topic, and the target of a virtual one."""

    topic: str
    target: str | None


class TopicKeywords(NamedTuple):
    """A topic and its keywords."""

    topic: str
    keywords: tuple[str, ...]


def number_in(reply: SmqpReply, place: int = 0) -> int:
    """Return a number from the first data line of a reply; `place` is the number of words before it.

    Raises:
        ProtocolError: there is no number at that place.
    """
    words = " ".join(reply.data[:1]).split()[place : place + 1]
    try:
        return int(words[0])
    except (IndexError, ValueError):
        said = " ".join(reply.lines)[:80]
        raise ProtocolError(f"the server's answer has no number where one must be, got {said!r}") from None


class Questions(ABC):
    """The commands whose only result is the reply. Each raises RefusedError for any code other than 200."""

    @abstractmethod
    def ask(self, command: Command, content: bytes = b"") -> SmqpReply:
        """Send a command and return its reply."""

    @abstractmethod
    def fetch(self, command: Command) -> list[SmqpMessage]:
        """Send a GET MESSAGE and return the messages."""

    def noop(self) -> None:
        """Check that the server answers."""
        self.ask(Command(kind=CommandKind.NOOP))

    # Counting and listing

    def count_topics(self, topic: str) -> int:
        """Count the topics directly below one, or all that a wildcard covers."""
        return self._number(CommandKind.COUNT_TOPIC, topic)

    def count_messages(self, topic: str) -> int:
        """Count the messages in a topic, or in its Trash."""
        return self._number(CommandKind.COUNT_MESSAGE, topic)

    def count_subscribers(self, topic: str) -> int:
        """Count the subscribers to the messages of a topic."""
        return self._number(CommandKind.COUNT_SUBSCRIBERS, topic)

    def list_topics(self, topic: str = "/") -> list[TopicListing]:
        """List the topics directly below a topic."""
        lines = self.ask(Command(kind=CommandKind.LIST_TOPIC, topic=topic)).data
        return [
            TopicListing(name.strip(), target.strip() or None)
            for name, _, target in (line.partition(">") for line in lines)
        ]

    def list_messages(self, topic: str) -> Ranges:
        """List the numbers of the messages in a topic, or in its Trash."""
        data = self.ask(Command(kind=CommandKind.LIST_MESSAGE, topic=topic)).data
        return tuple(each for line in data for each in parse_ranges(line))

    def find_topics(self, topic: str, *keywords: str) -> list[TopicKeywords]:
        """Find topics with any of the keywords, which may match in part; without keywords the topic itself."""
        lines = self.ask(Command(kind=CommandKind.FIND_TOPIC, topic=topic, keywords=keywords or None)).data
        split = (line.partition(" (") for line in lines)
        return [TopicKeywords(name, parse_keywords(words.rstrip(")"))) for name, _, words in split]

    def keywords(self, topic: str) -> tuple[str, ...]:
        """Return the keywords of a topic."""
        return parse_keywords(",".join(self.ask(Command(kind=CommandKind.GET_TOPIC_KEYWORDS, topic=topic)).data))

    def messages(self, topic: str, numbers: Ranges = EVERY) -> list[SmqpMessage]:
        """Return messages in a topic, or in its Trash, even if they were delivered before."""
        return self.fetch(Command(kind=CommandKind.GET_MESSAGE, topic=topic, messages=numbers))

    def message(self, topic: str, smuid: int) -> SmqpMessage:
        """Return one message in a topic, or in its Trash."""
        found = self.messages(topic, ((smuid, smuid),))
        if not found:
            raise ProtocolError(f"the server's answer must have the message {smuid}, got none")
        return found[0]

    def _number(self, kind: CommandKind, topic: str) -> int:
        return number_in(self.ask(Command(kind=kind, topic=topic)))

    # Topics

    def create_topic(self, topic: str, *, keywords: tuple[str, ...] = (), target: str | None = None) -> None:
        """Create a topic; with a target, a virtual topic that leads to it."""
        self.ask(Command(kind=CommandKind.CREATE_TOPIC, topic=topic, keywords=keywords or None, target=target))

    def remove_topic(self, topic: str) -> int:
        """Remove a topic, once its messages are delivered; return the number of those that are not."""
        return number_in(self.ask(Command(kind=CommandKind.REMOVE_TOPIC, topic=topic)))

    def rename_topic(self, topic: str, new: str) -> None:
        """Give a topic another name."""
        self.ask(Command(kind=CommandKind.SET_TOPIC_NAME, topic=topic, target=new))

    def set_keywords(self, topic: str, *keywords: str) -> None:
        """Replace the keywords of a topic."""
        self.ask(Command(kind=CommandKind.SET_TOPIC_KEYWORD, topic=topic, keywords=keywords))

    def republish(self, topic: str, smuid: int) -> None:
        """Send a message from Trash again, to all current subscribers."""
        self.ask(Command(kind=CommandKind.REPUBLISH_MESSAGE, topic=topic, smuid=smuid))

    def remove_message(self, topic: str, smuid: int) -> None:
        """Remove a message; the server's dialect must have this command."""
        self.ask(Command(kind=CommandKind.REMOVE_MESSAGE, topic=topic, smuid=smuid))

    # The client's own account

    def set_name(self, name: str) -> None:
        """Set the name of the account's owner."""
        self.ask(Command(kind=CommandKind.SET_LOGIN_NAME, value=name))

    def set_email(self, email: str) -> None:
        """Set the mail address of the account's owner."""
        self.ask(Command(kind=CommandKind.SET_LOGIN_EMAIL, value=email))

    def set_address(self, address: str) -> None:
        """Set the postal address of the account's owner."""
        self.ask(Command(kind=CommandKind.SET_LOGIN_ADDRESS, value=address))

    def set_phone(self, phone: str) -> None:
        """Set the telephone number of the account's owner."""
        self.ask(Command(kind=CommandKind.SET_LOGIN_PHONE, value=phone))

    def suspend(self) -> None:
        """Ask the server to send no messages until `resume`."""
        self.ask(Command(kind=CommandKind.SET_NOTIFY_SUSPEND))

    def resume(self) -> None:
        """Ask the server to send messages again."""
        self.ask(Command(kind=CommandKind.SET_NOTIFY_RESUME))
