"""The table of reply codes, reading and writing of replies, and the errors of SMQP. No I/O.

The errors belong to the tree of `brokers.errors`.

Spec: SMQP Appendix A (codes, replies of several lines), and the code lists of sections 4.1.1 to 4.1.16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from brokers.errors import BrokerError


class ReplyCode(IntEnum):
    """Every reply code that may be sent or received; no others are invented (SM-022)."""

    OK = 200
    ACKNOWLEDGED = 310
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    UNUSED = 402
    FORBIDDEN = 403
    NOT_FOUND = 404
    NOT_ALLOWED = 405
    NOT_ACCEPTABLE = 406
    PROXY_AUTHENTICATION = 407
    TIMED_OUT = 408
    CONFLICT = 409
    LENGTH_REQUIRED = 410
    ENTITY_TOO_LARGE = 413
    RESOURCE_TOO_LARGE = 414
    UNSUPPORTED_MEDIA = 415
    SERVER_ERROR = 500
    NOT_IMPLEMENTED = 501
    BAD_GATEWAY = 502
    UNAVAILABLE = 503
    WRONG_VERSION = 505
    MAXIMUM_EXCEEDED = 510


MEANINGS: Final[Mapping[ReplyCode, str]] = {
    ReplyCode.OK: "OK",
    ReplyCode.ACKNOWLEDGED: "ACK",
    ReplyCode.BAD_REQUEST: "Bad request",
    ReplyCode.UNAUTHORIZED: "Unauthorized",
    ReplyCode.UNUSED: "Unused",
    ReplyCode.FORBIDDEN: "Forbidden",
    ReplyCode.NOT_FOUND: "Not found",
    ReplyCode.NOT_ALLOWED: "Not allowed",
    ReplyCode.NOT_ACCEPTABLE: "Not acceptable",
    ReplyCode.PROXY_AUTHENTICATION: "Proxy authentication required",
    ReplyCode.TIMED_OUT: "Request timeout",
    ReplyCode.CONFLICT: "Conflict",
    ReplyCode.LENGTH_REQUIRED: "Length required",
    ReplyCode.ENTITY_TOO_LARGE: "Entity too large",
    ReplyCode.RESOURCE_TOO_LARGE: "Resource too large",
    ReplyCode.UNSUPPORTED_MEDIA: "Unsupported media type",
    ReplyCode.SERVER_ERROR: "Internal server error",
    ReplyCode.NOT_IMPLEMENTED: "Not implemented",
    ReplyCode.BAD_GATEWAY: "Bad gateway",
    ReplyCode.UNAVAILABLE: "Service unavailable",
    ReplyCode.WRONG_VERSION: "SMQP version not supported",
    ReplyCode.MAXIMUM_EXCEEDED: "Maximum quantity exceeded",
}
"""The text written after the code. Readers use only the code (SM-021)."""

NEVER_SENT: Final = frozenset({ReplyCode.UNUSED, ReplyCode.PROXY_AUTHENTICATION, ReplyCode.WRONG_VERSION})

AGAIN: Final = frozenset({ReplyCode.TIMED_OUT, ReplyCode.UNAVAILABLE})
"""The only codes after which a retry can help.

Deviation: by Appendix A every 4yz code is a reason to try again, but most are taken from HTTP, where they are not.
"""


class ReplyForm(StrEnum):
    """The end of a reply on the wire."""

    PLAIN = "an empty line"
    BARE = "nothing"


@dataclass(frozen=True, slots=True)
class SmqpReply:
    """A reply: its code, and the texts of all its lines in order."""

    code: ReplyCode
    lines: tuple[str, ...]

    @property
    def is_success(self) -> bool:
        """Whether it is 200."""
        return self.code is ReplyCode.OK

    @property
    def data(self) -> tuple[str, ...]:
        """The lines after the first, if there are several: counts, topics, attributes."""
        return self.lines[1:]


def plain(code: ReplyCode) -> SmqpReply:
    """Make the reply of one line for a code."""
    return SmqpReply(code, (MEANINGS[code],))


def listing(lines: tuple[str, ...], first: str = "OK") -> SmqpReply:
    """Make the reply 200 with lines of data; without data it is the plain one."""
    return SmqpReply(ReplyCode.OK, (first, *lines))


def format_reply(reply: SmqpReply, form: ReplyForm = ReplyForm.PLAIN) -> bytes:
    """Write a reply: `code-text` for every line but the last, and `code text` for the last."""
    code = int(reply.code)
    *before, last = reply.lines
    lines = [f"{code}-{text}\r\n" for text in before]
    lines.append(f"{code} {last}\r\n" if last else f"{code} \r\n")
    if form is ReplyForm.PLAIN:
        lines.append("\r\n")
    return "".join(lines).encode()


LINE: Final = re.compile(r"([0-9]{3})(?:([ -])(.*))?", re.DOTALL)


class WrongReplyError(ValueError):
    """A line does not belong to a reply, or not to the current one."""


class ReplyLines:
    """Combines lines into replies, one after the other."""

    MAX_LINES: Final = 100_000

    def __init__(self) -> None:
        self._code: ReplyCode | None = None
        self._lines: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether no reply has begun, so that an empty line may be skipped."""
        return self._code is None

    def add(self, line: str) -> SmqpReply | None:
        """Take a line; return the reply once it is complete, else None.

        A line with only a code is a last line too.

        Raises:
            WrongReplyError: the line is not a reply line, or its code is unknown or differs from the lines before.
        """
        found = LINE.fullmatch(line)
        if found is None:
            raise WrongReplyError(f"a reply line must begin with three digits and a space or '-', got {line[:80]!r}")
        number, separator, text = found.groups()
        try:
            code = ReplyCode(int(number))
        except ValueError:
            raise WrongReplyError(f"SMQP has no reply code {number}") from None
        if self._code not in (None, code):
            raise WrongReplyError(f"all lines of a reply must have one code, got {number} after {int(self._code or 0)}")
        if len(self._lines) >= self.MAX_LINES:
            raise WrongReplyError(f"a reply must have at most {self.MAX_LINES} lines")
        self._code = code
        self._lines.append((text or "").rstrip(" \t"))
        if separator == "-":
            return None
        reply = SmqpReply(code, tuple(self._lines))
        self._code, self._lines = None, []
        return reply


class RefusedError(BrokerError):
    """A line, a command or a message was refused.

    `code` is the server's reply code, `why` the reason for people: in the log, and with `is_told` also in the reply.
    """

    def __init__(self, code: ReplyCode, why: str, *, is_told: bool = False) -> None:
        super().__init__(f"{int(code)} {MEANINGS[code]}: {why}")
        self.code = code
        self.why = why
        self.is_told = is_told

    @property
    def reply(self) -> SmqpReply:
        """The reply to the client."""
        return SmqpReply(self.code, (f"{MEANINGS[self.code]}: {self.why}",)) if self.is_told else plain(self.code)


class ProtocolError(BrokerError):
    """The peer violated SMQP; the connection cannot be used any more."""


class SmqpStoreError(BrokerError):
    """The file of a server's store or a client's inbox cannot be used."""
