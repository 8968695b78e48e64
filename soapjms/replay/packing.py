"""Records on their way between the steps of one run: as octets that are made and read in little time.

Nobody keeps them: both ends are the same program on the same Python. What most messages repeat, their properties and
destinations, is packed and unpacked once.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from brokers.message import (
    Body,
    Destination,
    DestinationKind,
    Element,
    Message,
    MessageType,
    Properties,
    Property,
    PropertyType,
)
from soapjms.protocol.record import Direction, Node, Record

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MOST: Final = 8192
"""Things on a page of what is remembered: traffic of weeks has some ten thousand different properties."""
SHORT: Final = 4096
"""Octets or characters of what is remembered."""

PLAIN: Final = 2
"""The version of marshal's form in which the same values always make the same octets."""

DIRECTIONS: Final[Mapping[str | None, Direction | None]] = {None: None, **{str(each): each for each in Direction}}
NODES: Final[Mapping[str | None, Node | None]] = {None: None, **{str(each): each for each in Node}}
MESSAGE_TYPES: Final[Mapping[str, MessageType]] = {str(each): each for each in MessageType}
PROPERTY_TYPES: Final[Mapping[str, PropertyType]] = {str(each): each for each in PropertyType}
KINDS: Final[Mapping[str, DestinationKind]] = {str(each): each for each in DestinationKind}


def microseconds(time: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (time - EPOCH) // MICROSECOND


def pack(record: Record) -> bytes:
    """Make octets of a record."""
    message = record.message
    return pack_members(
        microseconds(record.time),
        _text(record.direction),
        _text(record.node),
        record.truncated,
        record.sha256,
        pack_json(record.meta),
        pack_json(record.extra),
        str(message.message_type),
        *_body_members(message.body),
        pack_properties(message.properties),
        _pack_destination(message.destination),
        _pack_destination(message.reply_to),
        message.message_id,
        message.correlation_id,
        message.delivery_mode,
        message.priority,
        message.expiration,
        message.timestamp,
        message.type,
        message.redelivered,
        message.untyped,
    )


def pack_members(*members: Any) -> bytes:
    """Make octets of the members of a record, in the order that `pack` has."""
    return marshal.dumps(members, PLAIN)


def pack_properties(properties: Properties) -> bytes:
    """Make octets of properties."""
    return marshal.dumps([(each.name, str(each.type), each.value) for each in properties], PLAIN)


def pack_destination(kind: str, name: str | None) -> bytes:
    """Make octets of a destination."""
    return marshal.dumps((kind, name), PLAIN)


def _pack_destination(destination: Destination | None) -> bytes | None:
    return None if destination is None else pack_destination(str(destination.kind), destination.name)


def _text(value: str | None) -> str | None:
    return None if value is None else str(value)


def pack_json(value: Mapping[str, Any]) -> str | None:
    """Make JSON of an object, None of one that is empty."""
    return json.dumps(dict(value)) if value else None


MAP, STREAM = "map", "stream"


def _body_members(body: Body) -> tuple[str | None, Any]:
    """Return the shape of a body that is neither octets nor text, and the body as marshal takes it."""
    if isinstance(body, Properties):
        return MAP, pack_properties(body)
    if isinstance(body, tuple):
        return STREAM, [(str(each.type), each.value) for each in body]
    return None, bytes(body) if isinstance(body, memoryview) else body


class Memory(Generic[K, T]):
    """What was worked out of late for what is short.

    Args:
        work: works it out.
        size: says how long something is.
        most: how many things fit on a page. When it is full the next one is begun; from the one before, what comes
            again is taken over, and the rest is forgotten with the page after.
    """

    def __init__(self, work: Callable[[K], T], size: Callable[[K], int], most: int = MOST) -> None:
        self._work, self._size, self._most = work, size, most
        self._known: dict[K, T] = {}
        self._before: dict[K, T] = {}

    def __call__(self, given: K) -> T:
        """Return what the work gives; the same object again for what it gave of late."""
        found = self._known.get(given)
        if found is None:
            found = self._before.get(given)
            if found is None:
                found = self._work(given)
            if self._size(given) <= SHORT:
                if len(self._known) >= self._most:
                    self._before, self._known = self._known, {}
                self._known[given] = found
        return found


class Unpacker:
    """Makes records of octets, and remembers what many have in common. Not thread-safe."""

    def __init__(self) -> None:
        self._properties = Memory(_unpack_properties, len)
        self._destination = Memory(_unpack_destination, len)
        self._json: Memory[str, dict[str, Any]] = Memory(json.loads, len)

    def unpack(self, octets: bytes) -> Record:
        """Return the record that was packed."""
        (
            time, direction, node, truncated, sha256, meta, extra,
            message_type, shape, body, properties, destination, reply_to,
            message_id, correlation_id, delivery_mode, priority, expiration, timestamp, type_, redelivered, untyped,
        ) = marshal.loads(octets)  # fmt: skip  # noqa: S302  # this program packed it a moment ago
        message = Message(
            message_type=MESSAGE_TYPES[message_type],
            body=body if shape is None else self._body(shape, body),
            properties=self._properties(properties),
            destination=None if destination is None else self._destination(destination),
            reply_to=None if reply_to is None else self._destination(reply_to),
            message_id=message_id,
            correlation_id=correlation_id,
            delivery_mode=delivery_mode,
            priority=priority,
            expiration=expiration,
            timestamp=timestamp,
            type=type_,
            redelivered=redelivered,
            untyped=untyped,
        )
        return Record(
            message=message,
            time=EPOCH + timedelta(microseconds=time),
            direction=DIRECTIONS[direction],
            node=NODES[node],
            truncated=truncated,
            sha256=sha256,
            meta={} if meta is None else self._json(meta),
            extra={} if extra is None else self._json(extra),
        )

    def _body(self, shape: str, body: Any) -> Body:
        if shape == MAP:
            return self._properties(body)
        return tuple(Element(PROPERTY_TYPES[kind], value) for kind, value in body)


def _unpack_properties(octets: bytes) -> Properties:
    found = marshal.loads(octets)  # noqa: S302  # see above
    return Properties([Property(name, PROPERTY_TYPES[kind], value) for name, kind, value in found])


def _unpack_destination(octets: bytes) -> Destination:
    kind, name = marshal.loads(octets)  # noqa: S302  # see above
    return Destination(KINDS[kind], name)
