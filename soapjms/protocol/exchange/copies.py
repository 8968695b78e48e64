"""Copies of one message: finding them within a stretch of time, and merging them into one record as they come in.

The look-ups prevent quadratic time if many messages share a value, such as a correlation id that never changes.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from brokers.message import Body, Destination, Message, MessageType, Properties
from soapjms.protocol.exchange.model import exchange_id, is_request
from soapjms.protocol.record import Direction, Record, body_digest

Mark: TypeAlias = tuple[str, bool, str]
"""Correlation id, whether it is a request, and a hash of the body."""


def copy_mark(record: Record) -> Mark | None:
    """Return what copies of a message share if one lacks the message id; None if it cannot be determined.

    Being a request is part of it, to keep an echo's response apart from its request.
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
    """Merge two copies of one message: the earlier one, completed by the better information of the other.

    Typed properties win over untyped ones, a whole body over a cut one, a known message type over `unknown`, and a
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
    """Rank a copy by what it lacks: the rest of a cut body, the body, the type that says how to read the body."""
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
    """Read a body of unknown type as the type that another copy knew; unknown if the body does not fit that type."""
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


Kin: TypeAlias = tuple[Mark, Direction | None, bool]
"""The look-up key of copies: their mark, their direction, and whether there is a message id."""
DIRECTIONS: Final = (None, *Direction)


@dataclass(slots=True, eq=False)
class Sighting:
    """One message under construction.

    Attributes:
        record: the record, merged from the copies seen so far.
        number: the number of the message within its stretch.
        records: the number of copies.
        times: the time of its first copy, and of each copy that came more than a window after the last of these.
        partner: its request or response, or None.
        is_answer: True if it is the response to `partner`.
        misdirected: see `Exchange`.
        mark: see `copy_mark`.
        kin: the look-up key under which it is listed.
    """

    record: Record
    number: int
    records: int = 1
    times: list[datetime] = field(default_factory=list)
    partner: Sighting | None = None
    is_answer: bool = False
    misdirected: bool = False
    mark: Mark | None = None
    kin: Kin | None = None

    @property
    def message_id(self) -> str | None:
        """The message id; None if no copy has it."""
        return self.record.message.message_id or None

    @property
    def rank(self) -> tuple[str, int]:
        """The order of messages that are equally near."""
        return exchange_id(self.record), self.number


class Sightings:
    """The messages of one stretch, in the order in which they were first seen.

    Copies are found by message id, at any distance in time; if one lacks the message id, by direction, correlation id
    and body, and the latest within the window is taken.
    """

    def __init__(self, window: timedelta) -> None:
        self.messages: list[Sighting] = []
        self._window = window
        self._named: dict[str, Sighting] = {}
        self._kin: dict[Kin, list[tuple[int, Sighting]]] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._named

    def add(self, record: Record) -> Sighting:
        """Merge a record into the message that it is a copy of, or begin a new message; call in order of time.

        Return the message.
        """
        mark = copy_mark(record)
        found = self._named.get(record.message.message_id or "") or self._kin_of(record, mark)
        if found is None:
            new = Sighting(record, 0, times=[record.time], mark=mark)
            self.begin(new)
            return new
        found.record = merge(found.record, record)
        found.records += 1
        found.mark = found.mark or mark
        if record.time - found.times[-1] > self._window:
            found.times.append(record.time)
        self._index(found)
        return found

    def begin(self, sighting: Sighting) -> None:
        """Add a message that is new to this stretch."""
        sighting.number = len(self.messages)
        self.messages.append(sighting)
        self._index(sighting)

    def _kin_of(self, record: Record, mark: Mark | None) -> Sighting | None:
        """Find the latest message of which a record may be a copy, if either of them lacks the message id."""
        if mark is None:
            return None
        directions = DIRECTIONS if record.direction is None else (None, record.direction)
        named = (False,) if record.message.message_id else (False, True)
        found = (self._latest((mark, direction, each), record.time) for direction in directions for each in named)
        return max(filter(None, found), key=lambda each: each.number, default=None)

    def _latest(self, kin: Kin, time: datetime) -> Sighting | None:
        """Find the latest message under a look-up key; remove entries that have another key now or left the window."""
        known = self._kin.get(kin, [])
        while known:
            sighting = known[0][1]
            if sighting.kin == kin and time - sighting.record.time <= self._window:
                return sighting
            heappop(known)
        return None

    def _index(self, sighting: Sighting) -> None:
        if sighting.message_id is not None:
            self._named[sighting.message_id] = sighting
        if sighting.mark is None:
            return
        kin = sighting.mark, sighting.record.direction, sighting.message_id is not None
        if kin != sighting.kin:
            sighting.kin = kin
            heappush(self._kin.setdefault(kin, []), (-sighting.number, sighting))
