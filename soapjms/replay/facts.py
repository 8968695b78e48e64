"""What rules read of records, as narrow columns: keys, what tells copies apart, and a digest of the message's shape.

Each batch of records goes through some statements, in an engine of columns without files; no body leaves them. Python
is asked about once for each different set of properties, and for each outline of a body. What is no record, unusual or
large is read by Python, one by one; exchanges with it are judged by themselves.

Spec: capture record, version 1, "Copies and pairing".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from brokers.message import DestinationKind, PropertyType
from soapjms.protocol.assertions import Fact
from soapjms.protocol.assertions.markup import MAX_MARKUP_OCTETS, MultipartFacts, document_facts, multipart_facts
from soapjms.protocol.assertions.response_checks import WSA_ANONYMOUS
from soapjms.protocol.content import parse_content_type
from soapjms.protocol.errors import InvalidRecordError
from soapjms.protocol.record import VERSION, Direction, Node
from soapjms.replay.column_store import ColumnStore, WaitingRows
from soapjms.replay.columns import (
    COLUMNS,
    EARLIEST,
    LATEST,
    SIMPLE,
    Entries,
    RefusedRow,
    are_larger,
)
from soapjms.replay.flat_records import Unpacker, ValueCache
from soapjms.replay.inputs import RejectedRow, Split, count_lines
from soapjms.replay.parquet import to_batch
from soapjms.replay.records import LineEnds, column_reader, read_columns
from soapjms.replay.shapes import READ_NAMES, PropertyReader, Stated, short_digest
from soapjms.replay.terms import ReplayTerms

READ_OCTETS: Final = 96 << 20
"""Size of the rows whose facts are found together."""
MAX_KEY_OCTETS: Final = 1024
"""Size of an id above which it is no usual one."""
LINE_BITS: Final = 40
"""A record is numbered by its part of the logs, and in the low bits its line: numbers are in the order of positions if
those of parts are."""

DIGEST: Final = pa.binary()
OF_MESSAGE: Final = pa.schema(
    [
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("has_destination", pa.bool_()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("has_reply_to", pa.bool_()),
        ("reply_kind", pa.string()),
        ("reply_name", pa.string()),
        ("delivery_mode", pa.int64()),
        ("priority", pa.int64()),
        ("expiration", pa.int64()),
        ("timestamp", pa.int64()),
        ("type", pa.string()),
        ("untyped", pa.bool_()),
        ("message_type", pa.string()),
        ("truncated", pa.bool_()),
        ("digest", DIGEST),
        ("states_digest", pa.bool_()),
        ("request_uri", pa.string()),
        ("is_jndi", pa.bool_()),
        ("is_fault", pa.bool_()),
        ("shape", DIGEST),
    ]
)
"""All of a plain record's message that pairing, and comparing copies, depend on. `shape` is a digest of all that rules
read of the message alone, but for its direction; null if it must be judged by itself."""
FACTS: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("key", pa.string()),
        ("by_alias", pa.bool_()),
        ("announces", pa.string()),
        ("is_plain", pa.bool_()),
        ("time", pa.int64()),
        ("asks", pa.bool_()),
        ("direction", pa.string()),
        ("own", DIGEST),
        *OF_MESSAGE,
    ]
)
"""A record: its number, its keys (see `soapjms.protocol.exchange.keys`), its time; if it is plain, whether its message
asks for a response, a digest of what copies have in common, and its message."""


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"'{each}'" for each in sorted(words))


# Properties

STATED: Final = f"list_filter(coalesce(properties, []), lambda each: each.name IN ({_words(READ_NAMES)}))"
"""The properties that rules read."""
OTHERS: Final = f"""
list_filter(properties, lambda each: NOT coalesce(
    each.name IN ({_words(READ_NAMES)}) OR (each.type = '{PropertyType.STRING}' AND each.value IS NOT NULL), false))
"""
"""Properties that no rule reads, but that may be invalid."""
ODD_META: Final = r"""
list_filter(meta, lambda each: NOT coalesce(
    regexp_full_match(each.value, '"[^"\\\x00-\x1f]*"|-?[1-9][0-9]{0,15}|0|true|false|null'), false))
"""
"""Entries of meta that may be invalid."""

KINDS: Final = f"SELECT {STATED} AS stated, told.* EXCLUDE (kind_number) FROM given, told LIMIT 0"
NEW_KINDS: Final = f"""
SELECT row_number() OVER () AS kind_number, stated FROM (
    SELECT DISTINCT found.stated FROM (SELECT {STATED} AS stated FROM (SELECT DISTINCT properties FROM given)) AS found
    LEFT JOIN kinds ON kinds.stated IS NOT DISTINCT FROM found.stated WHERE is_valid IS NULL)
"""
NEW_KIND: Final = pa.schema([("kind_number", pa.int64()), COLUMNS.field("properties").with_name("stated")])
"""A row of `NEW_KINDS`."""
TOLD_KINDS: Final = "SELECT stated, told.* EXCLUDE (kind_number) FROM new_kinds JOIN told USING (kind_number)"
TOLD: Final = pa.schema(
    [
        ("kind_number", pa.int64()),
        ("is_valid", pa.bool_()),
        ("is_usual", pa.bool_()),
        ("stated_digest", pa.string()),
        ("rules", pa.string()),
        ("request_uri", pa.string()),
        ("is_jndi", pa.bool_()),
        ("states_headers", pa.bool_()),
        ("charset", pa.string()),
        ("is_fault", pa.bool_()),
        ("multipart", pa.string()),
    ]
)
"""What Python tells of the properties of a kind; the last seven are the members of `PropertyFacts`."""

# Records

PLAIN: Final = f"""
coalesce(
    v = {VERSION} AND extra IS NULL AND time BETWEEN {EARLIEST} AND {LATEST}
    AND message_type IN ({_words(SIMPLE)})
    AND (direction IS NULL OR direction IN ({_words(Direction)})) AND (node IS NULL OR node IN ({_words(Node)}))
    AND (NOT has_destination OR kind IN ({_words(DestinationKind)}))
    AND (NOT has_reply_to OR reply_kind IN ({_words(DestinationKind)}))
    AND (message_type <> 'text' OR body IS NULL OR text IS NOT NULL)
    AND (sha256 IS NULL OR body IS NULL OR coalesce(truncated, false) OR hex(digest) = upper(sha256))
    AND coalesce(len({OTHERS}), 0) = 0 AND coalesce(len({ODD_META}), 0) = 0
    AND coalesce(message_id, correlation_id) IS NOT NULL
    AND (message_id IS NULL OR message_id <> '') AND (correlation_id IS NULL OR correlation_id <> '')
    AND kinds.is_valid, false)
"""
"""Whether a row certainly is a record of the usual kind."""

DECLARED: Final = "contains(left(text, 3), '<?')"
SPECIAL: Final = f"""
(contains(text, 'Fault') OR contains(text, '<!') OR contains(text, chr(1))
    OR CASE WHEN {DECLARED} THEN contains(substr(text, 3), '<?') ELSE contains(text, '<?') END)
"""
"""Whether more may be read of a body than its markup."""
PROLOGUE: Final = f"(CASE WHEN {DECLARED} THEN strpos(text, '?>') + 1 ELSE 0 END)"
"""The length of the XML declaration."""
REMAINDER: Final = f"CASE WHEN {DECLARED} THEN substr(text, {PROLOGUE} + 1) ELSE text END"
UNSAFE: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}"
_NAME: Final = r"[A-Za-z_][\w.:-]*"
_VALUE: Final = rf"""(?:"[^"<>&{UNSAFE}]*"|''[^''<>&{UNSAFE}]*'')"""
_ORDERLY: Final = rf"""(?:[^"''<>]*<(?:/{_NAME}\s*|{_NAME}(?:\s+{_NAME}={_VALUE})*\s*/?)>)*[^"''<>]*"""
"""Tags in which each quote certainly begins or ends the value of an attribute."""
_TEXTS: Final = rf"'>[^<>&\x01{UNSAFE}]+<', '><', 'g'"
_VALUES: Final = rf"""'(\s[xX][\w.:-]*={_VALUE})|(\s[A-WYZa-wyz_][\w.:-]*=){_VALUE}', '\1\2"', 'g'"""
_MARKED: Final = f"replace({REMAINDER}, '>{WSA_ANONYMOUS}<', '>' || chr(1) || '<')"
BARE: Final = f"regexp_replace({_MARKED}, {_TEXTS})"
MARKUP: Final = f"""
CASE WHEN {SPECIAL} THEN 'special' || text ELSE 'other' || substr(text, 1, {PROLOGUE}) || {BARE} END
"""
"""A body without its texts, but for the address that a rule reads."""
OUTLINE: Final = f"""
CASE WHEN {SPECIAL} THEN 'special' || text
    WHEN regexp_full_match(bare, '{_ORDERLY}') THEN 'orderly' || prologue || regexp_replace(bare, {_VALUES})
    ELSE 'other' || prologue || bare END
"""
"""A markup without values of attributes, but for those whose names begin with x: they may declare a namespace."""


def digest_of(parts: Iterable[str]) -> str:
    """Return the expression for a digest of values."""
    members = ", ".join(f"m{number} := {part}" for number, part in enumerate(parts))
    return f"unhex(sha256(to_json(struct_pack({members}))))"


OWN: Final = (
    "message_type", "hex(digest)", "stated_digest", "CASE WHEN len(properties) > len(stated) THEN properties END",
    "has_destination", "kind", "name", "has_reply_to", "reply_kind", "reply_name", "message_id", "correlation_id",
    "delivery_mode", "priority", "expiration", "timestamp", "type", "coalesce(untyped, false)",
)  # fmt: skip
"""What belongs to a message, and not to a capture of it."""


def seen(*, with_markup: bool) -> str:
    """Return the query for what a batch shows by itself; exchanges are told apart by the markups of bodies."""
    return f"""
WITH texts AS (
    SELECT *, CASE WHEN message_type IN ({_words(SIMPLE)}) THEN try(decode(body)) END AS text,
        unhex(sha256(body)) AS digest, {STATED} AS stated
    FROM given
), read AS (
    SELECT texts.*, kinds.* EXCLUDE (stated, is_valid), {PLAIN} AS is_plain,
        coalesce(CASE WHEN direction IS NULL THEN has_reply_to ELSE direction = '{Direction.REQUEST}' END, false)
            AS asks,
        octet_length(body) = length(text) AS is_ascii
    FROM texts LEFT JOIN kinds ON kinds.stated IS NOT DISTINCT FROM texts.stated
)
SELECT * EXCLUDE (v, node, redelivered, sha256, meta, extra, text, body, properties, stated, untyped,
    truncated),
    sha256 IS NOT NULL AS states_digest, coalesce(untyped, false) AS untyped, coalesce(truncated, false) AS truncated,
    octet_length(body) = 0 AS is_empty, {digest_of(OWN)} AS own,
    CASE WHEN is_plain AND is_usual AND multipart IS NULL AND octet_length(body) <= {MAX_MARKUP_OCTETS}
            AND (message_type = 'bytes' OR is_ascii OR 4 * length(text) <= {MAX_MARKUP_OCTETS})
        THEN {MARKUP if with_markup else "NULL"} END AS markup
FROM read
"""


def _is_markup_of(rows: str) -> str:
    """Return the condition for a row of `markups` that belongs to one of a relation."""
    return f"""
markups.markup = {rows}.markup AND markups.message_type = {rows}.message_type
AND markups.is_ascii = {rows}.is_ascii AND markups.charset IS NOT DISTINCT FROM {rows}.charset
"""


MARKUPS: Final = "SELECT markup, message_type, is_ascii, charset, document, has_fault FROM seen, documents LIMIT 0"
NEW_MARKUPS: Final = f"""
WITH found AS (
    SELECT markup, message_type, is_ascii, charset, min(row) AS row FROM seen WHERE markup IS NOT NULL
    GROUP BY markup, message_type, is_ascii, charset
), fresh AS (SELECT found.* FROM found LEFT JOIN markups ON {_is_markup_of("found")} WHERE markups.markup IS NULL),
texts AS (SELECT fresh.*, decode(body) AS text FROM fresh JOIN given USING (row)),
parts AS (SELECT *, substr(text, 1, {PROLOGUE}) AS prologue, {BARE} AS bare FROM texts),
outlines AS (SELECT *, sha256({OUTLINE}) AS outline FROM parts)
SELECT markup, message_type, is_ascii, charset, row,
    min(row) OVER (PARTITION BY outline, message_type, is_ascii, charset) AS example
FROM outlines
"""
"""Values of attributes are left out here, and not for each record, as they seldom make a difference."""
EXAMPLES: Final = """
SELECT row, new_markups.message_type, charset, body FROM new_markups JOIN given USING (row)
WHERE row = example
"""
TOLD_MARKUPS: Final = """
SELECT markup, message_type, is_ascii, charset, document, has_fault FROM new_markups JOIN documents USING (example)
"""
OCTETS_OF_MARKUPS: Final = "SELECT coalesce(sum(octet_length(encode(markup))), 0) FROM new_markups"
IN_PARTS: Final = f"""
SELECT row, seen.message_type, multipart, body FROM seen JOIN given USING (row)
WHERE is_plain AND multipart IS NOT NULL AND octet_length(body) <= {MAX_MARKUP_OCTETS}
"""
DOCUMENTS: Final = pa.schema([("example", pa.int64()), ("document", pa.string()), ("has_fault", pa.bool_())])

# Facts

LIFETIME: Final = """
CASE WHEN states_headers THEN [
    coalesce((expiration <> 0)::BIGINT, 2), (coalesce(timestamp, 0) <> 0)::BIGINT,
    CASE WHEN expiration <> 0 AND timestamp <> 0 THEN expiration::HUGEINT - timestamp END]
ELSE [(expiration IS NULL)::BIGINT, (coalesce(timestamp, 0) <> 0)::BIGINT] END
"""
REPLY_TO: Final = """
[reply_kind, (reply_name IS NULL)::VARCHAR, CASE WHEN states_headers THEN reply_name END]
"""


def _within(header: str, least: int, most: int) -> str:
    """Return the expression for what rules read of a header of one message: whether its value is valid, and the value
    if it is not, or if it is known what was set. That of its partner is among `plan.PAIR_PARTS`."""
    is_valid = f"{header} BETWEEN {least} AND {most}"
    return f"[({is_valid})::BIGINT, CASE WHEN states_headers OR NOT ({is_valid}) THEN {header} END]"


MESSAGE_PARTS: Final[Mapping[Fact, str]] = {
    Fact.PROPERTIES: "rules",
    Fact.MESSAGE_TYPE: "message_type",
    Fact.BODY_KIND: "is_empty",
    Fact.BODY: "document",
    Fact.TRUNCATED: "truncated",
    Fact.UNTYPED: "untyped",
    Fact.ASKS: "has_reply_to",
    Fact.DELIVERY_MODE: _within("delivery_mode", 1, 2),
    Fact.PRIORITY: _within("priority", 0, 9),
    Fact.LIFETIME: LIFETIME,
    Fact.REPLY_TO: REPLY_TO,
}
"""The facts of one message. Its direction, which copies state for each other, is among `plan.PAIR_PARTS`."""


READ: Final = f"""
WITH read AS (
    SELECT seen.*, coalesce(in_parts.document, markups.document) AS document,
        coalesce(in_parts.has_fault, markups.has_fault) AS has_fault
    FROM seen LEFT JOIN in_parts ON in_parts.example = seen.row
    LEFT JOIN markups ON {_is_markup_of("seen")}
    WHERE is_plain
)
"""
MAY_SHOW_FAULTS: Final = f"""
{READ} SELECT row FROM read
WHERE (direction IS NULL OR direction = '{Direction.RESPONSE}') AND coalesce(has_fault, true)
"""
"""The records that are not known to hold no fault."""


def found(*, with_shapes: bool, by_destination: bool) -> str:
    """Return the query for the facts of a batch.

    Args:
        with_shapes: whether exchanges may be counted by their shapes.
        by_destination: whether shapes have the destination of the service, as its senders may be known.
    """
    parts = [*MESSAGE_PARTS.values(), *(["kind", "name"] if by_destination else [])]
    shape = f"CASE WHEN document IS NOT NULL THEN {digest_of(parts)} END" if with_shapes else "NULL::BLOB"
    members = ", ".join(name for name in OF_MESSAGE.names if name != "shape")
    return f"""
{READ}
SELECT row, coalesce(correlation_id, message_id) AS key, correlation_id IS NOT NULL AND NOT asks AS by_alias,
    CASE WHEN asks AND message_id <> correlation_id THEN message_id END AS announces, is_plain, time, asks, direction,
    own, {members}, {shape} AS shape
FROM read
"""


UNPLAIN: Final = "SELECT row FROM seen WHERE NOT is_plain"

Document: TypeAlias = tuple[str | None, bool | None]

PartTold: TypeAlias = tuple[int, RejectedRow | int]
"""The number of a part, and what is no record in it, or its number of lines."""


class GivenPart(NamedTuple):
    """A part of a log that is to be read.

    Attributes:
        number: its number among all parts.
        split: the part.
        stream: its octets, if the log is open already, or not a file on this machine.
    """

    number: int
    split: Split
    stream: BinaryIO | None = None


class FactReader:
    """Reads the facts of records. Not thread-safe.

    The facts of small parts are found together, as statements have their price however few rows they are for.

    Attributes:
        shown: how many records of the last reading show each edition, if the profile is open.

    Args:
        terms: how to judge.
        store: for temporary tables.
    """

    def __init__(self, terms: ReplayTerms, store: ColumnStore) -> None:
        self.shown = Counter[str]()
        self._logs: dict[int, str] = {}  # the names of the logs, by part
        self._terms = terms
        self._store = store
        self._kinds = MAX_KINDS
        self._octets_of_markups = MAX_MARKUPS_OCTETS
        self._properties = PropertyReader(terms.setting.profile, knows_senders=terms.knows_senders)
        self._parts_told: ValueCache[MultipartFacts, Document] = ValueCache(_parts_told, lambda facts: 0)
        self._unpack = Unpacker()

    def read(
        self, parts: Iterable[GivenPart], keep: Callable[[pa.Table], object] | None = None
    ) -> Iterator[pa.Table | PartTold]:
        """Yield the facts of the records of parts of logs as tables of `FACTS`, and what is no record.

        The number of lines follows each part whose lines are counted anew, unless its rows are kept.

        Args:
            parts: the parts.
            keep: called with all rows that may be records: their numbers, and `COLUMNS`.

        Raises:
            NoInputError: a part was not read to its end, and can no longer be read.
        """
        self.shown.clear()
        self._logs.clear()
        waiting = WaitingRows(READ_OCTETS)
        for part, split, stream in parts:
            self._logs[part] = split.log.name
            is_lost, ends = False, LineEnds()
            for batch in read_columns(split, stream, ends):
                if isinstance(batch, RejectedRow):
                    is_lost = is_lost or batch.line is None
                    yield part, batch
                    continue
                if keep is not None and batch.num_rows:
                    keep(_numbered(batch, part))
                usual, large = _by_size(batch)
                if large.num_rows:
                    yield from self._read_by_python(_numbered(large, part))
                for rows in waiting.add(_numbered(usual, part)):
                    yield from self._read_facts(rows)
            if split.is_counted_anew and keep is None:
                yield part, count_lines(split, was_read=not is_lost) if ends.number is None else ends.number
        for rows in waiting.rest():
            yield from self._read_facts(rows)

    def _read_facts(self, given: pa.Table) -> Iterator[pa.Table | PartTold]:
        store, terms = self._store, self._terms
        store.lend("given", given)
        self._store_kinds()
        with_bodies = terms.is_open or terms.counts_shapes
        store.define("seen", seen(with_markup=with_bodies), TEMPORARY)
        self._store_markups()
        in_parts = [(row, *self._in_parts(*each)) for row, *each in store.fetch(IN_PARTS)] if with_bodies else []
        store.lend("in_parts", to_batch(in_parts, DOCUMENTS))
        yield store.table(found(with_shapes=terms.counts_shapes, by_destination=terms.knows_senders), FACTS)
        if terms.is_open:
            for row in self._records(_taken(given, store.fetch(MAY_SHOW_FAULTS))):
                self._see_edition(row.record)
        unplain = store.fetch(UNPLAIN)
        if unplain:
            yield from self._read_by_python(_taken(given, unplain))

    def _read_by_python(self, given: pa.Table) -> Iterator[pa.Table | PartTold]:
        """Read rows one by one."""
        rows: list[tuple[Any, ...]] = []
        numbers, lines = given.column("row").to_pylist(), given.column("line").to_pylist()
        for number, line, row in zip(numbers, lines, self._records(given), strict=True):
            if isinstance(row, RefusedRow):
                part = part_of(number)
                yield part, RejectedRow(self._logs[part], line, *row)
                continue
            key, by_alias, announces = row.keys
            found = number, _short(key), by_alias, _short(announces), False, row.record.time
            rows.append((*found, *(None,) * (3 + len(OF_MESSAGE))))
            if self._terms.is_open:
                self._see_edition(row.record)
        yield pa.Table.from_batches([to_batch(rows, FACTS)])

    def _records(self, given: pa.Table) -> Iterator[Any]:
        for batch in given.select(COLUMNS.names).to_batches(MAX_PYTHON_ROWS):
            yield from column_reader().rows(batch)

    # What rules read

    def _store_kinds(self) -> None:
        """Store what the properties tell that are new in this batch."""
        if self._kinds >= MAX_KINDS:
            self._store.lend("told", to_batch([], TOLD))
            self._store.define("kinds", KINDS, TEMPORARY)
            self._kinds = 0
        self._store.define("new_kinds", NEW_KINDS, TEMPORARY)
        new = self._store.table("FROM new_kinds", NEW_KIND)
        numbers = new.column(0).to_pylist()
        entries = chain.from_iterable(map(Entries, new.column(1).chunks))
        told = [(number, *self._tell(stated)) for number, stated in zip(numbers, entries, strict=True)]
        self._store.lend("told", to_batch(told, TOLD))
        self._store.insert_from("kinds", TOLD_KINDS)
        self._kinds += len(told)

    def _tell(self, stated: Stated) -> tuple[Any, ...]:
        """Return what properties tell as a row of `TOLD`, without its number."""
        try:
            told = self._properties.read(stated)
        except InvalidRecordError:
            return False, *(None,) * 9
        digest = short_digest(repr(stated))
        return (True, False, digest, *(None,) * 7) if told is None else (True, True, digest, *told)

    def _store_markups(self) -> None:
        """Store what rules may read of the documents whose markups are new in this batch."""
        store = self._store
        if self._octets_of_markups >= MAX_MARKUPS_OCTETS:
            store.lend("documents", to_batch([], DOCUMENTS))
            store.define("markups", MARKUPS, TEMPORARY)
            self._octets_of_markups = 0
        store.define("new_markups", NEW_MARKUPS, TEMPORARY)
        documents = [(row, *self._document(*each)) for row, *each in store.fetch(EXAMPLES)]
        store.lend("documents", to_batch(documents, DOCUMENTS))
        store.insert_from("markups", TOLD_MARKUPS)
        ((octets,),) = store.fetch(OCTETS_OF_MARKUPS)
        self._octets_of_markups += octets

    def _document(self, kind: str, charset: str | None, body: bytes) -> Document:
        """Return a digest of what rules may read of a body (None: anything), and whether it has a fault."""
        facts = document_facts(body.decode() if kind == "text" else body, charset, self._terms.setting.limits)
        return (None, None) if facts is None else (short_digest(repr(facts)), facts.fault is not None)

    def _in_parts(self, kind: str, content_type: str, body: bytes) -> Document:
        """Return the same of a body in parts."""
        given = body.decode() if kind == "text" else body
        facts = multipart_facts(given, parse_content_type(content_type), self._terms.setting.limits)
        return (None, None) if facts is None else self._parts_told(facts)

    def _see_edition(self, flat: Any) -> None:
        edition = self._terms.edition_shown(self._unpack.record(flat))
        if edition is not None:
            self.shown[edition] += 1


def _parts_told(facts: MultipartFacts) -> Document:
    return short_digest(repr(facts)), facts.document.fault is not None


TEMPORARY: Final = "TEMP TABLE"
MAX_KINDS: Final = 50_000
MAX_MARKUPS_OCTETS: Final = 32 << 20
"""Size of the markups that are kept from batch to batch, from which on they are forgotten before the next."""
MAX_PYTHON_ROWS: Final = 1000


def _by_size(given: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Divide rows into those of usual size and large ones."""
    is_large = are_larger(given, MAX_MARKUP_OCTETS)
    for name in ("message_id", "correlation_id"):
        is_large = pc.or_(
            is_large, pc.fill_null(pc.greater(pc.binary_length(given.column(name)), MAX_KEY_OCTETS), False)
        )
    if not pc.any(is_large).as_py():
        return given, given.slice(0, 0)
    return given.filter(pc.invert(is_large)), given.filter(is_large)


def _short(key: str | None) -> str | None:
    """Return a key, or for a large one a text that stands for no other."""
    if key is None or len(octets := key.encode()) <= MAX_KEY_OCTETS:
        return key
    return f"{octets[:MAX_KEY_OCTETS].decode('utf-8', 'ignore')}{sha256(octets).hexdigest()}"


def part_of(number: int) -> int:
    """Return the part of the logs that a record is in."""
    return number >> LINE_BITS


def line_of(number: int) -> int:
    """Return the line of a record in its part."""
    return number & ((1 << LINE_BITS) - 1)


def _numbered(rows: pa.RecordBatch, part: int) -> pa.Table:
    """Return rows with their numbers."""
    table = pa.Table.from_batches([rows])
    return table.add_column(0, "row", pc.add(table.column("line"), part << LINE_BITS))


def _taken(given: pa.Table, numbers: list[tuple[int]]) -> pa.Table:
    """Return the rows of some numbers."""
    wanted = pa.array([number for (number,) in numbers], pa.int64())
    return given.filter(pc.is_in(given.column("row"), wanted))  # `take` copies all chunks first
