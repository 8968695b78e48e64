"""`Exchange`, and the keys by which engines partition records.

Records with the same key include all copies of a message and its partner. The queue is never a key.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

from soapjms.protocol.names import IS_FAULT
from soapjms.protocol.record import Direction, Record, to_octets


class Keys(NamedTuple):
    """The keys by which an engine groups a record.

    Attributes:
        key: the key that the record shares with its copies and its partner, unless it has an alias.
        by_alias: True for a possible response: `key` may be the message id of a request that has another key.
        announces: the message id as an alias of `key`, for a request that has both ids and may be answered by either.
            If several requests announce the same id, the smallest key counts.
    """

    key: str
    by_alias: bool = False
    announces: str | None = None


def keys(record: Record) -> Keys:
    """Return the keys of one record, without knowledge of the others."""
    message = record.message
    found = keys_of(message.message_id, message.correlation_id, is_request(record))
    return Keys(record_hash(record)) if found is None else found


def keys_of(message_id: str | None, correlation_id: str | None, asks: bool) -> Keys | None:
    """Return the keys of a record with these ids; None if it has no id, so that its hash is the key.

    Args:
        message_id, correlation_id: the ids.
        asks: True for a request, as by `is_request`.
    """
    if not correlation_id:
        return Keys(message_id) if message_id else None
    if not asks:
        return Keys(correlation_id, by_alias=True)
    return Keys(correlation_id, announces=message_id if message_id and message_id != correlation_id else None)


def record_hash(record: Record) -> str:
    """Return a hash of the whole record: the key and id of a record without ids."""
    return sha256(to_octets(record)).hexdigest()


def is_request(record: Record) -> bool:
    """Say whether a record may be answered: by its direction, else by its reply destination."""
    if record.direction is None:
        return record.message.reply_to is not None
    return record.direction is Direction.REQUEST


DEFAULT_WINDOW: Final = timedelta(minutes=10)
"""Longest time between copies of a message that lack its id, or between a request and its response."""


class Pattern(StrEnum):
    """The kind of an exchange."""

    REQUEST_RESPONSE = "request-response"
    ONE_WAY = "one-way"
    RESPONSE_ONLY = "response without request"
    LATE_COPY = "late copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its response, a one-way message, or a response whose request was not captured.

    Attributes:
        id: the request's message id, else its correlation id, else a hash of the record.
        pattern: the kind of exchange. In a request-response exchange without `response` the response is missing; a late
            copy has no messages, as its message was yielded before, in its own exchange.
        request: the request or the one-way message, merged from its copies.
        response: the response, merged from its copies.
        records: the number of records of the exchange.
        misdirected: True for a request or response without a partner that correlates with another one, where the
            response went to another destination than the request's reply_to.
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
        """True if one half of a request-response exchange is missing."""
        return self.pattern is not Pattern.ONE_WAY and len(self.messages) == 1


def pattern_alone(record: Record) -> Pattern:
    """Return the kind of exchange of a message without a partner, by its direction, else by its headers."""
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
