"""Records in bundles, and their form on the way between the steps of one run.

Spark moves many records as one row, as a row by itself costs it more than it takes to judge. Keys fall into buckets
by their hash. Spark brings the bundles of a bucket together, and here their records are put in order: in memory, or
on the disk if there are very many, as where one correlation id is on all messages.

Nobody keeps the octets of a record or a bundle, which are made and read in little time: both ends are the same
program on the same Python, so their form is the business of this file alone. What most messages repeat, their
properties and destinations, is packed and unpacked once. A bundle is compressed: messages repeat each other, and
Java copies what it hands on a dozen times.
"""

from __future__ import annotations

import json
import marshal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
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
"""Octets of records that wait to be bundled."""
MAX_SORTED_OCTETS: Final = 64 << 20
"""Octets of the bundles of one bucket that are put in order in memory."""

CODEC: Final = "zstd"
"""Makes a tenth of the octets of captured messages, in less time than Java takes to copy the rest."""
COMPRESSION_LEVEL: Final = 1
SIZE_OCTETS: Final = 8
"""Octets before what is compressed, which say how much it was."""

Entry: TypeAlias = tuple[str, int, int, int, int, bytes]
"""A record on its way: its key, its time, where it stood (log, part of the log, line), and the whole of it, packed."""


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket that a key falls into: the same one in every process."""
    return crc32(key.encode("utf-8", "surrogatepass")) % buckets


def compressed(octets: bytes) -> bytes:
    """Make fewer octets of octets."""
    packed: bytes = pa.Codec(CODEC, COMPRESSION_LEVEL).compress(octets, asbytes=True)
    return len(octets).to_bytes(SIZE_OCTETS, "little") + packed


def inflated(octets: bytes) -> bytes:
    """Return the octets that `compressed` was given."""
    found: bytes = pa.Codec(CODEC).decompress(memoryview(octets)[SIZE_OCTETS:], size_of(octets), asbytes=True)
    return found


def squeezed(value: Any) -> bytes:
    """Make few octets of a value of Python's own types."""
    return compressed(marshal.dumps(value))


def unsqueezed(octets: bytes) -> Any:
    """Return the value that `squeezed` was given."""
    return marshal.loads(inflated(octets))  # noqa: S302  # this program packed it a moment ago


def size_of(octets: bytes) -> int:
    """Return how many octets there were before they were squeezed."""
    return int.from_bytes(octets[:SIZE_OCTETS], "little")


class Bundle(NamedTuple):
    """A row of records of one bucket, or of what is known of its ids.

    Attributes:
        bucket: the bucket.
        answers: its records may answer: their keys may be message ids of requests that have other keys.
        records: the records; None where there are only announcements.
        ids: of answers their keys; without records the message ids that requests announce, with the requests' keys.
    """

    bucket: int
    answers: bool
    records: bytes | None
    ids: bytes | None


class Bundler:
    """Gathers the records of each bucket; not those of answers and of others together. Not thread-safe."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._octets = 0
        self._records: defaultdict[tuple[int, bool], list[Entry]] = defaultdict(list)
        self._announced: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)

    @property
    def is_full(self) -> bool:
        """It is time to take out what was gathered."""
        return self._octets >= MAX_HELD_OCTETS

    def add(self, entry: Entry, answers: bool, announces: str | None = None) -> None:
        """Put in a record, and the message id that it announces."""
        self._records[bucket_of(entry[0], self._buckets), answers].append(entry)
        if announces is not None:
            self._announced[bucket_of(announces, self._buckets)].append((announces, entry[0]))
        self._octets += len(entry[-1])

    def take(self) -> Iterator[Bundle]:
        """Take out everything."""
        for (bucket, answers), entries in self._records.items():
            ids = squeezed(list({entry[0] for entry in entries})) if answers else None
            yield Bundle(bucket, answers, squeezed(entries), ids)
        for bucket, announced in self._announced.items():
            yield Bundle(bucket, False, None, squeezed(announced))
        self._records.clear()
        self._announced.clear()
        self._octets = 0


def used_aliases(ids: Iterable[tuple[bool, bytes]]) -> dict[str, str]:
    """Return the announced message ids of a bucket that answers have for their key, with the keys of the requests.

    Args:
        ids: of all bundles of the bucket that have any; whether they are those of answers.
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
    """Make octets of aliases."""
    return squeezed(dict(aliases))


def rekeyed(bundles: Iterable[tuple[int, bytes, bytes | None]], buckets: int) -> Iterator[tuple[int, bytes]]:
    """Give answers the keys of their requests: bundles of bucket, records and packed aliases in, such without out."""
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
    """Give out the records of a bucket: those of a key together, in order of time, else of where they stood."""
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
    with closing(sqlite3.connect("")) as database:  # a file that nobody sees and that goes with its process
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
"""Things on a page of what is remembered: traffic of weeks has some ten thousand different properties."""
MAX_CACHED_LENGTH: Final = 4096
"""Octets or characters of what is remembered."""

MARSHAL_VERSION: Final = 2
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
    return marshal.dumps(members, MARSHAL_VERSION)


def pack_properties(properties: Properties) -> bytes:
    """Make octets of properties."""
    return marshal.dumps([(each.name, str(each.type), each.value) for each in properties], MARSHAL_VERSION)


def pack_destination(kind: str, name: str | None) -> bytes:
    """Make octets of a destination."""
    return marshal.dumps((kind, name), MARSHAL_VERSION)


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


class ValueCache(Generic[K, T]):
    """What was worked out of late for what is short.

    Args:
        work: works it out.
        size: says how long something is.
        most: how many things fit on a page. When it is full the next one is begun; from the one before, what comes
            again is taken over, and the rest is forgotten with the page after.
    """

    def __init__(self, work: Callable[[K], T], size: Callable[[K], int], most: int = MAX_CACHED_VALUES) -> None:
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
            if self._size(given) <= MAX_CACHED_LENGTH:
                if len(self._known) >= self._most:
                    self._before, self._known = self._known, {}
                self._known[given] = found
        return found


class Unpacker:
    """Makes records of octets, and remembers what many have in common. Not thread-safe."""

    def __init__(self) -> None:
        self._properties = ValueCache(_unpack_properties, len)
        self._destination = ValueCache(_unpack_destination, len)
        self._json: ValueCache[str, dict[str, Any]] = ValueCache(json.loads, len)

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
