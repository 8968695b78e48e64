"""Records as tuples of built-in values, which cost little to make and to compare, and their packed form.

The octets of a packed record are short-lived: the same program on the same Python writes and reads them, so their form
concerns this file alone. Properties and destinations, which most messages repeat, are packed and unpacked once.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

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
MAX_CACHED_VALUES: Final = 8192
"""Number of values on a page of a cache: traffic of weeks has some ten thousand different properties."""
MAX_CACHED_LENGTH: Final = 4096
"""Maximum length of cached values, in octets or characters."""

MARSHAL_VERSION: Final = 2
"""The version of marshal's format in which equal values always make the same octets."""

DIRECTIONS: Final[Mapping[str | None, Direction | None]] = {None: None, **{str(each): each for each in Direction}}
NODES: Final[Mapping[str | None, Node | None]] = {None: None, **{str(each): each for each in Node}}
MESSAGE_TYPES: Final[Mapping[str, MessageType]] = {str(each): each for each in MessageType}
PROPERTY_TYPES: Final[Mapping[str, PropertyType]] = {str(each): each for each in PropertyType}
KINDS: Final[Mapping[str, DestinationKind]] = {str(each): each for each in DestinationKind}


def microseconds(time: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return (time - EPOCH) // MICROSECOND


class FlatRecord(NamedTuple):
    """A record as a tuple of built-in values, which costs little to make, to move and to compare.

    Attributes:
        time: the time of capture, in microseconds since 1970.
        direction, node, truncated, sha256: as in `Record`.
        meta, extra: as JSON; None if they are empty.
        message_type: as in `Message`, as all that follow.
        form: what `body` is made of if it is neither octets nor text, else None.
        body: octets or text, or the packed values of a map or a stream.
        properties: packed; equal properties have equal octets.
        destination, reply_to: packed likewise.
    """

    time: int
    direction: str | None
    node: str | None
    truncated: bool
    sha256: str | None
    meta: str | None
    extra: str | None
    message_type: str
    form: str | None
    body: Any
    properties: bytes
    destination: bytes | None
    reply_to: bytes | None
    message_id: str | None
    correlation_id: str | None
    delivery_mode: int | None
    priority: int | None
    expiration: int | None
    timestamp: int | None
    type: str | None
    redelivered: bool | None
    untyped: bool


def flattened(record: Record) -> FlatRecord:
    """Return a record as a tuple."""
    message = record.message
    return FlatRecord(
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


def pack(flat: FlatRecord) -> bytes:
    """Pack a record that was made into a tuple."""
    return marshal.dumps(tuple(flat), MARSHAL_VERSION)


_flat: Final[Callable[[tuple[Any, ...]], FlatRecord]] = partial(tuple.__new__, FlatRecord)


def flat_of(octets: bytes) -> FlatRecord:
    """Return the record that was packed, as a tuple."""
    return _flat(marshal.loads(octets))  # noqa: S302  # this program packed it a moment ago


def pack_properties(properties: Properties) -> bytes:
    """Pack properties."""
    return marshal.dumps([(each.name, str(each.type), each.value) for each in properties], MARSHAL_VERSION)


def pack_destination(kind: str, name: str | None) -> bytes:
    """Pack a destination."""
    return marshal.dumps((kind, name), MARSHAL_VERSION)


def _pack_destination(destination: Destination | None) -> bytes | None:
    return None if destination is None else pack_destination(str(destination.kind), destination.name)


def _text(value: str | None) -> str | None:
    return None if value is None else str(value)


def pack_json(value: Mapping[str, Any]) -> str | None:
    """Return an object as JSON, or None if it is empty."""
    return json.dumps(dict(value)) if value else None


MAP, STREAM = "map", "stream"


def _body_members(body: Body) -> tuple[str | None, Any]:
    """Return the form of a body that is neither octets nor text, else None, and the body as marshal can write it."""
    if isinstance(body, Properties):
        return MAP, pack_properties(body)
    if isinstance(body, tuple):
        return STREAM, [(str(each.type), each.value) for each in body]
    return None, bytes(body) if isinstance(body, memoryview) else body


class ValueCache(Generic[K, T]):
    """A cache of recent results for short arguments.

    Args:
        work: computes a result.
        size: returns the length of an argument.
        most: how many results fit on a page. When it is full, the next page is begun; results of the previous page
            that are used again move over, and the rest is forgotten with the page after.
    """

    def __init__(self, work: Callable[[K], T], size: Callable[[K], int], most: int = MAX_CACHED_VALUES) -> None:
        self._work, self._size, self._most = work, size, most
        self._known: dict[K, T] = {}
        self._before: dict[K, T] = {}

    def __call__(self, given: K) -> T:
        """Return the result for an argument; the same object again for recent arguments."""
        found = self._known.get(given)
        if found is None:
            found = self._before.get(given)
            if found is None:
                found = self._work(given)
            if self._size(given) <= MAX_CACHED_LENGTH:
                if len(self._known) >= self._most:
                    self._before, self._known = self._known, {}
                self._known[given] = found
        return found


class Unpacker:
    """Unpacks records, and caches what many have in common. Not thread-safe."""

    def __init__(self) -> None:
        self._properties = ValueCache(unpacked_properties, len)
        self._destination = ValueCache(destination_of, len)
        self._json: ValueCache[str, dict[str, Any]] = ValueCache(json.loads, len)

    def record(self, flat: FlatRecord) -> Record:
        """Return the record that was made into a tuple."""
        (
            time, direction, node, truncated, sha256, meta, extra,
            message_type, form, body, properties, destination, reply_to,
            message_id, correlation_id, delivery_mode, priority, expiration, timestamp, type_, redelivered, untyped,
        ) = flat  # fmt: skip
        message = Message(
            message_type=MESSAGE_TYPES[message_type],
            body=body if form is None else self._body(form, body),
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

    def _body(self, form: str, body: Any) -> Body:
        if form == MAP:
            return self._properties(body)
        return tuple(Element(PROPERTY_TYPES[kind], value) for kind, value in body)


def unpacked_properties(octets: bytes) -> Properties:
    """Return the properties that were packed."""
    found = marshal.loads(octets)  # noqa: S302  # see above
    return Properties([Property(name, PROPERTY_TYPES[kind], value) for name, kind, value in found])


def destination_of(octets: bytes) -> Destination:
    """Return the destination that was packed."""
    kind, name = marshal.loads(octets)  # noqa: S302  # see above
    return Destination(KINDS[kind], name)
