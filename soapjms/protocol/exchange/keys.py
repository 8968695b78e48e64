"""Keys: what an engine partitions by, so that a record meets its copies and its partner; never the queue.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from soapjms.protocol.record import Direction, Record, to_octets


class Keys(NamedTuple):
    """What an engine sorts and joins by.

    Attributes:
        key: where the record meets its copies and its partner, unless an alias sends it elsewhere.
        by_alias: True for a record that may answer: `key` may be a message id of a request that has another key.
        announces: the message id that is an alias of `key`, on a request that has both ids: it may be answered by
            either. Of several requests that announce one id the smallest key counts.
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
    """Return the keys of a record with these ids, None if there is none: then its hash is the key.

    Args:
        message_id, correlation_id: the ids.
        asks: it is a request, as `is_request` says.
    """
    if not correlation_id:
        return Keys(message_id) if message_id else None
    if not asks:
        return Keys(correlation_id, by_alias=True)
    return Keys(correlation_id, announces=message_id if message_id and message_id != correlation_id else None)


def record_hash(record: Record) -> str:
    """Return a hash of the whole record: the key and id of one that has no id of its own."""
    return sha256(to_octets(record)).hexdigest()


def is_request(record: Record) -> bool:
    """Say whether a record may be answered: by its direction, else by its reply destination."""
    if record.direction is None:
        return record.message.reply_to is not None
    return record.direction is Direction.REQUEST
