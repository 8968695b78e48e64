"""Turns octets into events for each side: commands with their messages, notifications, replies. No I/O.

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

SERVER_PORT: Final = 720
"""The port of a server for commands."""

CLIENT_PORT: Final = 721
"""The port of a client for notifications, unless it tells the server another one."""

MAX_NOTICE_ATTRIBUTES: Final = 16
PASSED_OVER: Final = RefusedError(ReplyCode.UNAUTHORIZED, "messages are accepted only after a login")


@dataclass(frozen=True, slots=True)
class ReceivedCommand:
    """A command or notification, with the message or attributes after it.

    `refusal` says why it cannot be executed, or is None. `command` is None if its words were not understood.
    """

    command: Command | None
    content: SmqpMessage | None = None
    attributes: Attributes = Attributes()  # noqa: RUF009 - a tuple, which nothing changes
    refusal: RefusedError | None = None

    @property
    def known(self) -> Command:
        """The command, of one that was understood."""
        assert self.command is not None
        return self.command

    @property
    def message(self) -> SmqpMessage:
        """The message after a command that has one, and was read whole."""
        assert self.content is not None
        return self.content


class CommandReader:
    """Turns octets into commands or notifications, one at a time; empty lines between them are skipped.

    Attributes:
        takes_messages: whether messages after commands are read; else they are skipped to their end, and
            `ReceivedCommand.content` is None.
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
        """Return the number of octets that have not been read yet."""
        return len(self._octets)

    @property
    def is_between(self) -> bool:
        """Whether the next line is the first of a command or notification."""
        return self._message is None and self._block is None

    def feed(self, data: bytes) -> None:
        """Add octets."""
        self._octets.feed(data)

    def line(self) -> str | None:
        """Take the next line that is not empty, such as `310 ACK`; return None if it is incomplete.

        Raises:
            RefusedError: the line cannot be read.
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
        """Take the next command or notification; return None if it is incomplete."""
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
        """Take the first line of a command or notification; return it, or None if more lines belong to it."""
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
                        raise RefusedError(ReplyCode.RESOURCE_TOO_LARGE, "a notification has too many attributes")
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
    """Make the reader of a server's notifications."""
    return CommandReader(limits, dialect, tree=FROM_SERVERS)


BANNER: Final = re.compile(
    r"SMQP/([0-9]{1,9})\.([0-9]{1,9})(?: +(Ready|Not Available)\.(?: +(.*))?|.*)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class Banner:
    """The server's first line. The text after the version is optional, and ignored if it is not a status."""

    major: int
    minor: int
    is_available: bool
    server: str


def parse_banner(line: str) -> Banner:
    """Read the server's first line.

    Raises:
        ProtocolError: the peer is not an SMQP server, or has another major version.
    """
    found = BANNER.fullmatch(line)
    if found is None:
        raise ProtocolError(f"an SMQP server must begin with 'SMQP/1.0 Ready.', got {line[:80]!r}")
    major, minor, status, server = found.groups()
    if int(major) != 1:
        raise ProtocolError(f"the server must speak SMQP 1, got {major}.{minor}")
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
        """Take the next line that is not empty; return None if it is incomplete.

        Raises:
            ProtocolError: the line cannot be read.
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
        """Take the next reply; return None if it is incomplete.

        Raises:
            ProtocolError: a line is not part of a reply.
        """
        while (line := self.line()) is not None:
            try:
                if (reply := self._lines.add(line)) is not None:
                    return reply
            except WrongReplyError as error:
                raise ProtocolError(str(error)) from None
        return None

    def content(self) -> SmqpMessage | None:
        """Take the next message that follows a reply; return None if it is incomplete.

        Raises:
            ProtocolError: the message cannot be read.
        """
        if self._message is None:
            self._message = MessageReader(self._octets, self._limits, self._dialect)
        if not self._message.advance():
            return None
        outcome, self._message = self._message.outcome, None
        if isinstance(outcome, SmqpMessage):
            return outcome
        raise ProtocolError(f"the server sent a message that cannot be read: {outcome}")
