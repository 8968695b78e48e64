"""Copies of one message: what they share, and one record made of them.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from brokers.message import Body, Destination, Message, MessageType, Properties
from soapjms.protocol.exchange.keys import is_request
from soapjms.protocol.record import Record, body_digest

Mark: TypeAlias = tuple[str, bool, str]
"""Correlation id, whether it is a request, and a hash of the body."""


def copy_mark(record: Record) -> Mark | None:
    """Return what the copies of a message share where one lacks the message id, None if it cannot be told.

    Being a request is part of it: that keeps an echo's response apart from its request.
    """
    if not record.message.correlation_id:
        return None
    digest = _digest(record)
    return None if digest is None else (record.message.correlation_id, is_request(record), digest)


def _digest(record: Record) -> str | None:
    if record.sha256 is not None:
        return record.sha256.lower()
    if record.truncated:
        return None
    return body_digest(record.message.body) or body_digest(repr(record.message.body))


def merge(one: Record, other: Record) -> Record:
    """Merge two copies of one message: the earlier one, completed by what the other knows better.

    Typed properties win over untyped ones, a whole body over a cut one, a known message type over `unknown`, a
    destination with a name over one without.
    """
    base, rest = (one, other) if one.time <= other.time else (other, one)
    better = rest.message if base.message.untyped and not rest.message.untyped else base.message
    whole = rest if _lack(rest) < _lack(base) else base
    return replace(
        base,
        message=_merge_messages(base.message, rest.message, better, whole.message),
        direction=base.direction or rest.direction,
        node=base.node or rest.node,
        truncated=whole.truncated,
        sha256=base.sha256 or rest.sha256,
        meta={**rest.meta, **base.meta},
        extra={**rest.extra, **base.extra},
    )


def _lack(record: Record) -> tuple[bool, bool, bool]:
    """Rank a copy by what it lacks: the rest of a body that was cut, a body, the type that says how to read it."""
    message = record.message
    return record.truncated, message.body is None, message.message_type is MessageType.UNKNOWN


MERGED_HEADERS: Final = ("message_id", "correlation_id", "delivery_mode", "priority", "expiration", "timestamp", "type")


def _merge_messages(base: Message, rest: Message, typed: Message, whole: Message) -> Message:
    known: dict[str, Any] = {name: _known(getattr(base, name), getattr(rest, name)) for name in MERGED_HEADERS}
    kind, body = whole.message_type, whole.body
    if kind is MessageType.UNKNOWN:
        kind, body = _read_as((rest if whole is base else base).message_type, body)
    return Message(
        message_type=kind,
        body=body,
        properties=typed.properties,
        untyped=typed.untyped,
        destination=_better(base.destination, rest.destination),
        reply_to=_better(base.reply_to, rest.reply_to),
        redelivered=base.redelivered or rest.redelivered or _known(base.redelivered, rest.redelivered),
        **known,
    )


def _read_as(kind: MessageType, body: Body) -> tuple[MessageType, Body]:
    """Read a body whose capture did not know the type as the type that another copy knew; unknown if it is none."""
    if kind is MessageType.TEXT and isinstance(body, bytes):
        try:
            return kind, body.decode("utf-8")
        except UnicodeDecodeError:
            return MessageType.UNKNOWN, body
    fits = body is None or isinstance(body, BODY_FORMS.get(kind, ()))
    return (kind if fits else MessageType.UNKNOWN), body


BODY_FORMS: Final[Mapping[MessageType, type]] = {
    MessageType.BYTES: bytes,
    MessageType.OBJECT: bytes,
    MessageType.TEXT: str,
    MessageType.MAP: Properties,
    MessageType.STREAM: tuple,
}


def _known(one: Any, other: Any) -> Any:
    return other if one is None or one == "" else one


def _better(one: Destination | None, other: Destination | None) -> Destination | None:
    if one is None or (one.name is None and other is not None):
        return other
    return one
