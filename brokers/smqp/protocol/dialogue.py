"""What each side hears, as events: commands with their messages, notifications, replies. No I/O.

Spec: SMQP 4 (the server's first line), 4.1 (commands), 4.1.12 (notifications), Appendix A (replies).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from brokers.smqp.protocol.commands import (
    FROM_CLIENTS,
    FROM_SERVERS,
    WITH_ATTRIBUTES,
    WITH_MESSAGE,
    BadCommandError,
    Branch,
    Command,
    parse_command,
)
from brokers.smqp.protocol.dialect import STRICT, SmqpDialect
from brokers.smqp.protocol.lines import Octets, TooLongError
from brokers.smqp.protocol.messages import Attribute, Attributes, MessageReader, SmqpLimits, SmqpMessage, parse_line
from brokers.smqp.protocol.replies import ProtocolError, RefusedError, ReplyCode, ReplyLines, SmqpReply, WrongReplyError
from brokers.smqp.protocol.words import text_of

MAX_NOTICE_ATTRIBUTES: Final = 16
PASSED_OVER: Final = RefusedError(ReplyCode.UNAUTHORIZED, "messages are not taken from who is not logged in")


@dataclass(frozen=True, slots=True)
class ReceivedCommand:
    """One command or notification, with what followed it; `refusal` says why it cannot be carried out, if so.

    `command` is None where even its words were not understood.
    """

    command: Command | None
    content: SmqpMessage | None = None
    attributes: Attributes = Attributes()  # noqa: RUF009 - a tuple, which nothing changes
    refusal: RefusedError | None = None


class CommandReader:
    """Turns octets into what was heard, one at a time; empty lines between commands are passed over.

    Attributes:
        takes_messages: what follows a command is read; else it is passed over to its end, and nothing of it is kept:
            `ReceivedCommand.content` is None then.
    """

    def __init__(
        self, limits: SmqpLimits | None = None, dialect: SmqpDialect = STRICT, *, tree: Branch = FROM_CLIENTS
    ) -> None:
        self.takes_messages = True
        self._limits = limits or SmqpLimits()
        self._dialect = dialect
        self._tree = tree
        self._octets = Octets(dialect, self._limits.line)
        self._message: MessageReader | None = None
        self._block: list[Attribute] | None = None
        self._command: Command | None = None
        self._refusal: RefusedError | None = None

    def __len__(self) -> int:
        """Count the octets that wait to be read."""
        return len(self._octets)

    @property
    def is_between(self) -> bool:
        """Whether the next line would be the first of something."""
        return self._message is None and self._block is None

    def feed(self, data: bytes) -> None:
        """Add octets."""
        self._octets.feed(data)

    def line(self) -> str | None:
        """Take a line that is neither command nor empty, such as `310 ACK`; None if it is not whole yet.

        Raises:
            RefusedError: it cannot be read.
        """
        while self.is_between:
            try:
                line = self._octets.line()
            except TooLongError as error:
                raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, str(error)) from None
            if line is None:
                return None
            if text := text_of(line):
                return text
        return None

    def next(self) -> ReceivedCommand | None:
        """Take what was heard next; None if it is not whole yet."""
        while True:
            if self._message is not None:
                return self._after_message()
            if self._block is not None:
                return self._after_block()
            try:
                text = self.line()
            except RefusedError as error:
                return ReceivedCommand(None, refusal=error)
            if text is None:
                return None
            if (heard := self.begin(text)) is not None:
                return heard

    def begin(self, text: str) -> ReceivedCommand | None:
        """Take a line as the first of something; return what was heard, or None if more belongs to it."""
        self._command = self._refusal = None
        kind = None
        try:
            self._command = parse_command(text, self._dialect, tree=self._tree)
            kind = self._command.kind
        except BadCommandError as error:
            kind, self._refusal = error.kind, error
        except RefusedError as error:
            self._refusal = error
        if kind in WITH_MESSAGE:
            refusal = None if self.takes_messages else PASSED_OVER
            self._message = MessageReader(self._octets, self._limits, self._dialect, refusal)
        elif kind in WITH_ATTRIBUTES:
            self._block = []
        else:
            return ReceivedCommand(self._command, refusal=self._refusal)
        return None

    def _after_message(self) -> ReceivedCommand | None:
        assert self._message is not None
        if not self._message.advance():
            return None
        outcome = self._message.outcome
        self._message = None
        if isinstance(outcome, SmqpMessage):
            return ReceivedCommand(self._command, outcome, refusal=self._refusal)
        return ReceivedCommand(self._command, refusal=self._refusal or (None if outcome is PASSED_OVER else outcome))

    def _after_block(self) -> ReceivedCommand | None:
        assert self._block is not None
        while True:
            try:
                line = self._octets.line()
                if line is None:
                    return None
                text = text_of(line)
                if text:
                    if len(self._block) >= MAX_NOTICE_ATTRIBUTES:
                        raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, "a notification with too many attributes")
                    self._block.append(parse_line(text))
                    continue
            except TooLongError as error:
                self._refusal = self._refusal or RefusedError(ReplyCode.RESOURCE_TOO_LARGE, str(error))
                continue
            except RefusedError as error:
                self._refusal = self._refusal or error
                continue
            attributes, self._block = Attributes(self._block), None
            return ReceivedCommand(self._command, attributes=attributes, refusal=self._refusal)


def notice_reader(limits: SmqpLimits, dialect: SmqpDialect) -> CommandReader:
    """Make the reader of what a server sends on a notify connection."""
    return CommandReader(limits, dialect, tree=FROM_SERVERS)


BANNER: Final = re.compile(
    r"SMQP/([0-9]{1,9})\.([0-9]{1,9})(?: +(Ready|Not Available)\.(?: +(.*))?|.*)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class Banner:
    """The server's first line. What follows the version is optional, and text that is no status is ignored."""

    major: int
    minor: int
    is_available: bool
    server: str


def parse_banner(line: str) -> Banner:
    """Read the server's first line.

    Raises:
        ProtocolError: it is no server of SMQP, or one of another major version.
    """
    found = BANNER.fullmatch(line)
    if found is None:
        raise ProtocolError(f"a server of SMQP begins with 'SMQP/1.0 Ready.'; seen: {line[:80]!r}")
    major, minor, status, server = found.groups()
    if int(major) != 1:
        raise ProtocolError(f"the server speaks SMQP {major}.{minor}, and this side 1.0")
    return Banner(int(major), int(minor), (status or "ready").lower() == "ready", server or "")


def format_banner(*, is_available: bool, server: str) -> bytes:
    """Write the server's first line."""
    status = "Ready" if is_available else "Not Available"
    return f"SMQP/1.0 {status}. {server}".rstrip().encode() + b"\r\n"


class ReplyReader:
    """Turns octets into replies, and into the messages that follow some of them."""

    def __init__(self, limits: SmqpLimits | None = None, dialect: SmqpDialect = STRICT) -> None:
        self._limits = limits or SmqpLimits()
        self._dialect = dialect
        self._octets = Octets(dialect, self._limits.line)
        self._lines = ReplyLines()
        self._message: MessageReader | None = None

    def feed(self, data: bytes) -> None:
        """Add octets."""
        self._octets.feed(data)

    def line(self) -> str | None:
        """Take a line that is not empty; None if it is not whole yet.

        Raises:
            ProtocolError: it cannot be read.
        """
        while True:
            try:
                line = self._octets.line()
                if line is None:
                    return None
                if text := text_of(line):
                    return text
            except (TooLongError, RefusedError) as error:
                raise ProtocolError(f"the server sent a line that cannot be read: {error}") from None

    def reply(self) -> SmqpReply | None:
        """Take a reply; None if it is not whole yet.

        Raises:
            ProtocolError: what came is no reply.
        """
        while (line := self.line()) is not None:
            try:
                if (reply := self._lines.add(line)) is not None:
                    return reply
            except WrongReplyError as error:
                raise ProtocolError(str(error)) from None
        return None

    def content(self) -> SmqpMessage | None:
        """Take a message that follows a reply; None if it is not whole yet.

        Raises:
            ProtocolError: what came is no message.
        """
        if self._message is None:
            self._message = MessageReader(self._octets, self._limits, self._dialect)
        if not self._message.advance():
            return None
        outcome, self._message = self._message.outcome, None
        if isinstance(outcome, SmqpMessage):
            return outcome
        raise ProtocolError(f"the server sent a message that cannot be read: {outcome}")
