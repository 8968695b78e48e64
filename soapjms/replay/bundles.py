"""Records in bundles, and their packed form between the steps of one run.

Spark moves many records as one row, since moving a single row costs more than judging it. Keys are hashed into
buckets. Spark brings the bundles of a bucket together, and this module sorts their records: in memory, or on disk if
there are very many, for example if all messages have the same correlation id.

The octets of a record or a bundle are short-lived: the same program on the same Python writes and reads them, so
their form concerns this file alone. Properties and destinations, which most messages repeat, are packed and unpacked
once. A bundle is compressed: messages repeat each other, and Java copies its data a dozen times.
"""

from __future__ import annotations

import json
import marshal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar
from zlib import crc32

import pyarrow as pa

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

MAX_HELD_OCTETS: Final = 32 << 20
"""Maximum size of the records that wait to be bundled."""
MAX_SORTED_OCTETS: Final = 64 << 20
"""Maximum size of the bundles of one bucket that are sorted in memory."""

CODEC: Final = "zstd"
"""Reduces captured messages to a tenth, in less time than Java takes to copy the rest."""
COMPRESSION_LEVEL: Final = 1
SIZE_OCTETS: Final = 8
"""Number of octets before compressed data that hold its original size."""

Entry: TypeAlias = tuple[str, int, int, int, int, bytes]
"""A packed record with its key, its time in microseconds, and its position (log, part of the log, line)."""


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket of a key; it is the same in every process."""
    return crc32(key.encode("utf-8", "surrogatepass")) % buckets


def compressed(octets: bytes) -> bytes:
    """Compress octets, with their size in front."""
    packed: bytes = pa.Codec(CODEC, COMPRESSION_LEVEL).compress(octets, asbytes=True)
    return len(octets).to_bytes(SIZE_OCTETS, "little") + packed


def inflated(octets: bytes) -> bytes:
    """Return the octets that `compressed` was given."""
    found: bytes = pa.Codec(CODEC).decompress(memoryview(octets)[SIZE_OCTETS:], size_of(octets), asbytes=True)
    return found


def squeezed(value: Any) -> bytes:
    """Serialise and compress a value of built-in types."""
    return compressed(marshal.dumps(value))


def unsqueezed(octets: bytes) -> Any:
    """Return the value that `squeezed` was given."""
    return marshal.loads(inflated(octets))  # noqa: S302  # this program packed it a moment ago


def size_of(octets: bytes) -> int:
    """Return the original size of compressed octets."""
    return int.from_bytes(octets[:SIZE_OCTETS], "little")


class Bundle(NamedTuple):
    """A row with records of one bucket, or with ids that its requests announce.

    Attributes:
        bucket: the bucket.
        answers: whether its records may be answers: their keys may be message ids of requests that have other keys.
        records: the records; None if there are only announcements.
        ids: for answers, their keys; without records, announced message ids with the keys of their requests.
    """

    bucket: int
    answers: bool
    records: bytes | None
    ids: bytes | None


class Bundler:
    """Collects the records of each bucket, with answers and other records apart. Not thread-safe."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._octets = 0
        self._records: defaultdict[tuple[int, bool], list[Entry]] = defaultdict(list)
        self._announced: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)

    @property
    def is_full(self) -> bool:
        """Whether the collected records should be taken out."""
        return self._octets >= MAX_HELD_OCTETS

    def add(self, entry: Entry, answers: bool, announces: str | None = None) -> None:
        """Add a record, and the message id that it announces."""
        self._records[bucket_of(entry[0], self._buckets), answers].append(entry)
        if announces is not None:
            self._announced[bucket_of(announces, self._buckets)].append((announces, entry[0]))
        self._octets += len(entry[-1])

    def take(self) -> Iterator[Bundle]:
        """Yield everything as bundles, and forget it."""
        for (bucket, answers), entries in self._records.items():
            ids = squeezed(list({entry[0] for entry in entries})) if answers else None
            yield Bundle(bucket, answers, squeezed(entries), ids)
        for bucket, announced in self._announced.items():
            yield Bundle(bucket, False, None, squeezed(announced))
        self._records.clear()
        self._announced.clear()
        self._octets = 0


def used_aliases(ids: Iterable[tuple[bool, bytes]]) -> dict[str, str]:
    """Return the announced message ids of a bucket that are keys of answers, with the keys of their requests.

    Args:
        ids: the `answers` and `ids` of all bundles of the bucket that have ids.
    """
    announced: dict[str, str] = {}
    asked: set[str] = set()
    for answers, octets in ids:
        if answers:
            asked.update(unsqueezed(octets))
            continue
        for alias, key in unsqueezed(octets):
            announced[alias] = min(key, announced.get(alias, key))
    return {alias: announced[alias] for alias in announced.keys() & asked}


def pack_aliases(aliases: Mapping[str, str]) -> bytes:
    """Pack aliases."""
    return squeezed(dict(aliases))


def rekeyed(bundles: Iterable[tuple[int, bytes, bytes | None]], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Give answers the keys of their requests.

    Args:
        bundles: bucket, records and packed aliases of each bundle.
        buckets: the number of buckets.

    Yields:
        bucket and records.
    """
    moved = Bundler(buckets)
    for bucket, octets, packed_aliases in bundles:
        if packed_aliases is None:
            yield bucket, octets
            continue
        aliases: Mapping[str, str] = unsqueezed(packed_aliases)
        stays: list[Entry] = []
        for entry in unsqueezed(octets):
            key = aliases.get(entry[0])
            if key is None:
                stays.append(entry)
            else:
                moved.add((key, *entry[1:]), answers=False)
        if stays:
            yield bucket, squeezed(stays)
        if moved.is_full:
            yield from ((each.bucket, each.records) for each in moved.take() if each.records is not None)
    yield from ((each.bucket, each.records) for each in moved.take() if each.records is not None)


def in_order(bundles: Iterable[bytes]) -> Iterator[Entry]:
    """Yield the records of a bucket: those of a key together, in order of time, then of position."""
    held: list[Entry] = []
    octets = 0
    coming = iter(bundles)
    for bundle in coming:
        held.extend(unsqueezed(bundle))
        octets += size_of(bundle)
        if octets > MAX_SORTED_OCTETS:
            return _in_order_on_disk(chain(held, chain.from_iterable(map(unsqueezed, coming))))
    held.sort()
    return iter(held)


def _in_order_on_disk(entries: Iterable[Entry]) -> Iterator[Entry]:
    with closing(sqlite3.connect("")) as database:  # a hidden file that is deleted with its process
        database.execute("PRAGMA journal_mode=OFF")
        database.execute(
            "CREATE TABLE entries (key TEXT, time INTEGER, log INTEGER, part INTEGER, line INTEGER, packed)"
        )
        database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", entries)
        yield from database.execute("SELECT * FROM entries ORDER BY key, time, log, part, line")


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

    def unpack(self, octets: bytes) -> Record:
        """Return the record that was packed."""
        return self.record(flat_of(octets))

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


def only_properties(octets: bytes, names: Container[str]) -> bytes:
    """Return packed properties without those of other names."""
    entries = marshal.loads(octets)  # noqa: S302  # see above
    kept = [entry for entry in entries if entry[0] in names]
    return octets if len(kept) == len(entries) else marshal.dumps(kept, MARSHAL_VERSION)


@lru_cache(maxsize=MAX_CACHED_VALUES)
def unpacked_destination(octets: bytes) -> tuple[str, str | None]:
    """Return kind and name of the destination that was packed."""
    found: tuple[str, str | None] = marshal.loads(octets)  # noqa: S302  # see above
    return found


def destination_of(octets: bytes) -> Destination:
    """Return the destination that was packed."""
    kind, name = unpacked_destination(octets)
    return Destination(KINDS[kind], name)
