"""Records in bundles: Spark moves many of them as one row, as a row by itself costs it more than it takes to judge.

Keys fall into buckets by their hash. Spark brings the bundles of a bucket together, and here their records are put in
order: in memory, or on the disk if there are very many, as where one correlation id is on all messages. What a bundle
is made of is the business of this file alone; both ends are the same program on the same Python. It is compressed:
messages repeat each other, and Java copies what it hands on a dozen times.
"""

from __future__ import annotations

import marshal
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import pyarrow as pa

MOST_HELD: Final = 32 << 20
"""Octets of records that wait to be bundled."""
MOST_IN_MEMORY: Final = 64 << 20
"""Octets of the bundles of one bucket that are put in order in memory."""

CODEC: Final = "zstd"
"""Makes a tenth of the octets of captured messages, in less time than Java takes to copy the rest."""
LEVEL: Final = 1
SIZE: Final = 8
"""Octets before what is compressed, which say how much it was."""

Entry: TypeAlias = tuple[str, int, int, int, int, bytes]
"""A record on its way: its key, its time, where it stood (log, part of the log, line), and the whole of it, packed."""


def bucket_of(key: str, buckets: int) -> int:
    """Return the bucket that a key falls into: the same one in every process."""
    return crc32(key.encode("utf-8", "surrogatepass")) % buckets


def compressed(octets: bytes) -> bytes:
    """Make fewer octets of octets."""
    packed: bytes = pa.Codec(CODEC, LEVEL).compress(octets, asbytes=True)
    return len(octets).to_bytes(SIZE, "little") + packed


def inflated(octets: bytes) -> bytes:
    """Return the octets that `compressed` was given."""
    found: bytes = pa.Codec(CODEC).decompress(memoryview(octets)[SIZE:], size_of(octets), asbytes=True)
    return found


def squeezed(value: Any) -> bytes:
    """Make few octets of a value of Python's own types."""
    return compressed(marshal.dumps(value))


def unsqueezed(octets: bytes) -> Any:
    """Return the value that `squeezed` was given."""
    return marshal.loads(inflated(octets))  # noqa: S302  # this program packed it a moment ago


def size_of(octets: bytes) -> int:
    """Return how many octets there were before they were squeezed."""
    return int.from_bytes(octets[:SIZE], "little")


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
        return self._octets >= MOST_HELD

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
        if octets > MOST_IN_MEMORY:
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
