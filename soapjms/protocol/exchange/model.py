"""What an exchange is.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from soapjms.protocol.exchange.keys import record_hash
from soapjms.protocol.names import IS_FAULT
from soapjms.protocol.record import Direction, Record

DEFAULT_WINDOW: Final = timedelta(minutes=10)
"""How far apart in time the copies of a message that lack its id, or a request and its response, may be."""


class Pattern(StrEnum):
    """What an exchange turned out to be."""

    REQUEST_RESPONSE = "request-response"
    ONE_WAY = "one-way"
    RESPONSE_ONLY = "response without request"
    LATE_COPY = "late copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its response, a one-way message, or a response whose request was not captured.

    Attributes:
        id: the request's message id, else its correlation id, else a hash of the record.
        pattern: what it is; a request-response exchange without `response` is one whose response is missing, and a
            late copy has no messages: its message was given out before, in the exchange that it belongs to.
        request: the request or the one-way message, merged from its copies.
        response: the response, merged from its copies.
        records: how many records went into it.
        misdirected: a request and a response that are alone correlate, but the response came to another destination
            than the request's reply_to; this is one of the two.
    """

    id: str
    pattern: Pattern
    request: Record | None = None
    response: Record | None = None
    records: int = 1
    misdirected: bool = False

    @property
    def messages(self) -> tuple[Record, ...]:
        """The messages that were captured, request first."""
        return tuple(each for each in (self.request, self.response) if each is not None)

    @property
    def unpaired(self) -> bool:
        """True where one half of a request-response exchange is missing."""
        return self.pattern is not Pattern.ONE_WAY and len(self.messages) == 1


def pattern_alone(record: Record) -> Pattern:
    """Say what a message without a partner is: by its direction, else by what its headers suggest."""
    if record.direction is not None:
        return PATTERN_OF[record.direction]
    if record.message.reply_to is not None:
        return Pattern.REQUEST_RESPONSE
    if record.message.correlation_id or record.message.properties.text(IS_FAULT) in ("true", "1"):
        return Pattern.RESPONSE_ONLY
    return Pattern.ONE_WAY


PATTERN_OF: Final[Mapping[Direction, Pattern]] = {
    Direction.REQUEST: Pattern.REQUEST_RESPONSE,
    Direction.RESPONSE: Pattern.RESPONSE_ONLY,
    Direction.ONE_WAY: Pattern.ONE_WAY,
}


def exchange_id(record: Record) -> str:
    """Return the id of an exchange by its first message."""
    return record.message.message_id or record.message.correlation_id or record_hash(record)
