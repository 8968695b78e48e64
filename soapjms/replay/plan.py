"""The plan of a replay in SQL: from the columns of records to exchanges, counted by shape.

The *shape* of an exchange is all that rules read of it: a value for each `Fact` that a row of the table of assertions
reads. Each statement makes a table from those before it:

- `kinds`: the different properties of messages, as far as rules read them; Python says of each what they tell (`told`).
- `facts`: one row a record, with its keys, and with digests in place of long values. A row that is not *plain*, as it
  may not be a record, or is an unusual one, is read by Python.
- `markups`: the different bodies, without texts and values of attributes; Python says of each what rules may read of it
  (`documents`).
- `placed`: the records by place: the key that they share with all their copies and their partner.
- `sides`: for each place the records that ask, and those that do not, each merged into one message.
- `exchanges`: the places that certainly hold one call, or one one-way message, with their shapes.

Python judges one exchange of each of the most frequent shapes; all of those that break nothing are `counted`. Then it
judges the records of the other places. The plan only has to be right where it is certain: whatever it leaves out is
judged the whole way.

Spec: capture record, version 1, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from brokers.message import TEMPORARY_KINDS, DestinationKind, PropertyType
from soapjms.protocol.assertions import Fact
from soapjms.protocol.assertions.markup import MAX_MARKUP_OCTETS
from soapjms.protocol.assertions.response_checks import WSA_ANONYMOUS
from soapjms.protocol.record import VERSION, Direction, Node
from soapjms.replay.columns import COLUMNS, EARLIEST, LATEST, SIMPLE
from soapjms.replay.shapes import MAX_SHAPES, ONE_WAY, READ, READ_NAMES, REQUEST, RESPONSE


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"'{each}'" for each in sorted(words))


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

KINDS: Final = f"""
CREATE OR REPLACE TABLE kinds AS
SELECT row_number() OVER () AS kind_number, stated FROM (SELECT DISTINCT {STATED} AS stated FROM records)
"""

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
    AND told.is_valid, false)
"""
"""Whether a row certainly is a record of the usual kind."""

SPECIAL: Final = """
(contains(text, 'Fault') OR contains(text, '<!') OR strpos(substr(text, 3), '<?') > 0 OR contains(text, chr(1)))
"""
"""Whether more may be read of a body than its markup."""
PROLOGUE: Final = "(CASE WHEN strpos(text, '<?') BETWEEN 1 AND 2 THEN strpos(text, '?>') + 1 ELSE 0 END)"
"""The length of the XML declaration."""
REMAINDER: Final = f"substr(text, {PROLOGUE} + 1)"
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


def facts(*, with_markup: bool) -> str:
    """Return the statement for `facts`; exchanges are told apart by the markups."""
    markup = f"unhex(sha256({MARKUP}))" if with_markup else "NULL::BLOB"
    return f"""
CREATE OR REPLACE TABLE facts AS
WITH seen AS (
    SELECT *, CASE WHEN message_type IN ({_words(SIMPLE)}) THEN try(decode(body)) END AS text,
        unhex(sha256(body)) AS digest, {STATED} AS stated
    FROM records
), read AS (
    SELECT seen.*, kinds.kind_number, told.* EXCLUDE (kind_number, is_valid), {PLAIN} AS is_plain,
        coalesce(CASE WHEN direction IS NULL THEN has_reply_to ELSE direction = '{REQUEST}' END, false) AS asks,
        octet_length(body) = length(text) AS is_ascii
    FROM seen LEFT JOIN kinds ON kinds.stated IS NOT DISTINCT FROM seen.stated
        LEFT JOIN told ON told.kind_number = kinds.kind_number
)
SELECT row, CASE WHEN is_plain THEN time END AS time, direction, has_destination, kind, name, message_id,
    correlation_id, has_reply_to, reply_kind, reply_name, delivery_mode, priority, expiration, timestamp, type,
    coalesce(untyped, false) AS untyped, message_type, coalesce(truncated, false) AS truncated, digest,
    sha256 IS NOT NULL AS states_digest, is_plain, asks, is_ascii, is_usual, number, request_uri, is_jndi,
    states_headers, charset, is_fault, octet_length(body) = 0 AS is_empty,
    CASE WHEN is_plain AND is_usual AND octet_length(body) <= {MAX_MARKUP_OCTETS}
            AND (message_type = 'bytes' OR is_ascii OR 4 * length(text) <= {MAX_MARKUP_OCTETS})
        THEN {markup} END AS markup,
    unhex(sha256(to_json(struct_pack(
        message_type, digest := hex(digest), properties, has_destination, kind, name, has_reply_to, reply_kind,
        reply_name, message_id, correlation_id, delivery_mode, priority, expiration, timestamp, type, untyped
    )))) AS own
FROM read
"""


MARKUPS: Final = f"""
CREATE OR REPLACE TABLE markups AS
WITH found AS (
    SELECT markup, message_type, is_ascii, charset, min(row) AS row
    FROM facts WHERE markup IS NOT NULL GROUP BY markup, message_type, is_ascii, charset
), texts AS (SELECT found.*, decode(body) AS text FROM found JOIN records USING (row)),
parts AS (SELECT *, substr(text, 1, {PROLOGUE}) AS prologue, {BARE} AS bare FROM texts)
SELECT markup, message_type, is_ascii, charset, row,
    min(row) OVER (PARTITION BY sha256({OUTLINE}), message_type, is_ascii, charset) AS example
FROM parts
"""
"""Values of attributes are left out here, and not for each record, as they seldom make a difference."""
EXAMPLES: Final = """
SELECT row, records.message_type, charset, body FROM markups JOIN records USING (row) WHERE row = example
"""

KEYED: Final = """
CREATE TABLE keyed AS
SELECT row, true AS is_plain, coalesce(correlation_id, message_id) AS key,
    correlation_id IS NOT NULL AND NOT asks AS by_alias,
    CASE WHEN asks AND message_id <> correlation_id THEN message_id END AS announces
FROM facts WHERE is_plain
UNION ALL SELECT row, false, key, by_alias, announces FROM others
"""
PLACED: Final = """
CREATE TABLE placed AS
WITH aliases AS (SELECT announces, min(key) AS key FROM keyed WHERE announces IS NOT NULL GROUP BY announces)
SELECT keyed.row, keyed.is_plain, coalesce(aliases.key, keyed.key) AS place
FROM keyed LEFT JOIN aliases ON keyed.by_alias AND aliases.announces = keyed.key
"""

_NAMED: Final = "FILTER (WHERE message_id IS NOT NULL)"
_NAMELESS: Final = "FILTER (WHERE message_id IS NULL)"

SIDES: Final = f"""
CREATE TABLE sides AS
WITH certain AS (
    SELECT place FROM placed JOIN facts USING (row) GROUP BY place
    HAVING bool_and(placed.is_plain) AND max(time) - min(time) <= $window
), merged AS (
    SELECT place, asks, count(*) AS records, min(facts.time) AS time, max(direction) AS direction,
        min(row) {_NAMED} AS row, min(row) {_NAMELESS} AS poor_row,
        min(message_id) IS NOT DISTINCT FROM max(message_id)
        AND (count(message_id) < 2 OR (min(own) {_NAMED} = max(own) {_NAMED} AND NOT bool_or(truncated) {_NAMED}))
        AND min(direction) IS NOT DISTINCT FROM max(direction)
        AND (count(message_id) = count(*) OR count(direction) = count(*))
        AND count(*) - count(message_id) <= 1 AS is_one
    FROM placed JOIN certain USING (place) JOIN facts USING (row) GROUP BY place, asks
)
SELECT merged.place, merged.asks, records, merged.time, merged.direction,
    is_one AND (poor.row IS NULL OR rich.row IS NULL OR coalesce(
        poor.untyped AND NOT rich.untyped AND NOT poor.truncated AND NOT rich.truncated
        AND poor.states_digest AND rich.states_digest AND poor.correlation_id = rich.correlation_id
        AND poor.message_type = rich.message_type AND poor.digest IS NOT DISTINCT FROM rich.digest
        AND (NOT poor.has_destination OR (rich.has_destination AND poor.kind = rich.kind
            AND poor.name IS NOT DISTINCT FROM rich.name))
        AND (NOT poor.has_reply_to OR (rich.has_reply_to AND poor.reply_kind = rich.reply_kind
            AND poor.reply_name IS NOT DISTINCT FROM rich.reply_name))
        AND (poor.delivery_mode IS NULL OR poor.delivery_mode = rich.delivery_mode)
        AND (poor.priority IS NULL OR poor.priority = rich.priority)
        AND (poor.expiration IS NULL OR poor.expiration = rich.expiration)
        AND (poor.timestamp IS NULL OR poor.timestamp = rich.timestamp)
        AND (poor.type IS NULL OR poor.type = rich.type), false)) AS is_one,
    coalesce(merged.row, merged.poor_row) AS row
FROM merged LEFT JOIN facts AS rich ON rich.row = merged.row LEFT JOIN facts AS poor ON poor.row = merged.poor_row
"""
"""Copies with one message id differ in nothing but who captured them; a copy of a sender that did not know the id is
like the other, as far as it knows. A sender is known to write its messages without types."""

_OF_MARKUP: Final = """
LEFT JOIN markups ON markups.markup = facts.markup AND markups.message_type = facts.message_type
    AND markups.is_ascii = facts.is_ascii AND markups.charset IS NOT DISTINCT FROM facts.charset
LEFT JOIN documents ON documents.row = markups.example
"""

MESSAGES: Final = f"""
CREATE TABLE messages AS
SELECT sides.place, sides.asks, sides.records, sides.time, sides.direction, documents.document,
    facts.* EXCLUDE (asks, time, direction)
FROM sides JOIN facts USING (row)
    {_OF_MARKUP}
WHERE is_one
"""

LIFETIME: Final = """
CASE WHEN one.states_headers THEN [
    coalesce((one.expiration <> 0)::BIGINT, 2), (coalesce(one.timestamp, 0) <> 0)::BIGINT,
    CASE WHEN one.expiration <> 0 AND one.timestamp <> 0 THEN one.expiration::HUGEINT - one.timestamp END]
ELSE [(one.expiration IS NULL)::BIGINT, (coalesce(one.timestamp, 0) <> 0)::BIGINT] END
"""

MESSAGE_PARTS: Final[Mapping[Fact, str]] = {
    Fact.PROPERTIES: "one.number",
    Fact.MESSAGE_TYPE: "one.message_type",
    Fact.BODY_KIND: "one.is_empty",
    Fact.BODY: "one.document",
    Fact.TRUNCATED: "one.truncated",
    Fact.UNTYPED: "one.untyped",
    Fact.DIRECTION: "one.direction",
    Fact.ASKS: "one.has_reply_to",
    Fact.DELIVERY_MODE: "one.delivery_mode",
    Fact.PRIORITY: "one.priority",
    Fact.LIFETIME: LIFETIME,
    Fact.REPLY_TO: "[one.reply_kind, (one.reply_name IS NULL)::VARCHAR, "
    "CASE WHEN one.states_headers THEN one.reply_name END]",
}
"""The facts of one message."""

PAIR_PARTS: Final[Mapping[Fact, str]] = {
    Fact.JNDI: "asked.is_jndi",
    Fact.CORRELATION: "[answered.correlation_id IS NOT DISTINCT FROM asked.correlation_id, "
    "answered.correlation_id = asked.message_id, asked.correlation_id IS NULL]",
    Fact.REPLY_PLACE: "[NOT asked.has_reply_to, NOT answered.has_destination, asked.reply_name IS NULL, "
    "answered.name IS NULL, asked.reply_name = answered.name, suffix(asked.reply_kind, 'topic'), "
    "suffix(answered.kind, 'topic')]",
    Fact.REPEATED_URI: "[asked.request_uri IS NULL, answered.request_uri IS NULL, "
    "asked.request_uri = answered.request_uri]",
    Fact.EXPIRY: "coalesce(asked.expiration, 0) = 0 OR answered.expiration IS NULL "
    "OR (answered.expiration > 0 AND answered.expiration <= asked.expiration)",
}
"""The facts of a request and its response."""


def exchanges(*, by_destination: bool) -> str:
    """Return the statement for `exchanges`.

    Args:
        by_destination: whether shapes have the destination of the service, as its senders may be known.
    """
    place = "[one.kind, one.name]" if by_destination else "NULL"
    parts = [place, *(part for fact, part in MESSAGE_PARTS.items() if fact in READ)]
    of_request, of_response = (_struct(parts, side) for side in ("asked", "answered"))
    of_both = _struct([part for fact, part in PAIR_PARTS.items() if fact in READ], "")
    return f"""
CREATE TABLE exchanges AS
SELECT asked.place, asked.records + answered.records AS records, asked.time, answered.time AS answered,
    asked.kind, asked.name, struct_pack(of_request := {of_request}, of_response := {of_response},
        of_both := {of_both}) AS shape
FROM messages AS asked JOIN messages AS answered
    ON asked.asks AND NOT answered.asks AND answered.place = asked.place
WHERE asked.document IS NOT NULL AND answered.document IS NOT NULL
    AND answered.direction IS DISTINCT FROM '{ONE_WAY}' AND answered.message_id <> asked.message_id
    AND (answered.correlation_id = asked.correlation_id OR answered.correlation_id = asked.message_id)
    AND coalesce(asked.reply_name = answered.name, true)
    AND abs(answered.time - asked.time) <= $window
UNION ALL
SELECT place, records, time, NULL, kind, name, struct_pack(of_request := {of_request.replace("asked.", "sent.")},
    of_response := NULL, of_both := NULL)
FROM messages AS sent JOIN (SELECT place FROM sides GROUP BY place HAVING count(*) = 1) USING (place)
WHERE NOT asks AND document IS NOT NULL AND (direction = '{ONE_WAY}' OR (
    direction IS NULL AND NOT has_reply_to AND correlation_id IS NULL AND NOT is_fault))
"""


def _struct(parts: Iterable[str], side: str) -> str:
    members = (f"m{number} := {part.replace('one.', f'{side}.')}" for number, part in enumerate(parts))
    return f"struct_pack({', '.join(members)})"


SHAPES: Final = f"""
CREATE TABLE shapes AS
SELECT row_number() OVER () AS shape_number, shape, place
FROM (SELECT shape, min(place) AS place, count(*) AS exchanges FROM exchanges GROUP BY shape)
WHERE exchanges > 1 ORDER BY exchanges DESC LIMIT {MAX_SHAPES}
"""
COUNTED: Final = """
CREATE OR REPLACE TABLE counted AS
SELECT exchanges.* EXCLUDE (shape), shape_number
FROM exchanges JOIN shapes ON shapes.shape = exchanges.shape JOIN sound USING (shape_number)
"""

NONE_COUNTED: Final = "CREATE OR REPLACE TABLE counted (place VARCHAR)"

# What Python reads

CONTENT: Final = ", ".join(f"records.{name}" for name in COLUMNS.names)
_RECORDS: Final = f"SELECT placed.place, {CONTENT} FROM placed JOIN records USING (row)"
_ORDER: Final = "ORDER BY placed.place, records.time, records.file, records.line"
OF_SHAPES: Final = f"{_RECORDS} WHERE placed.place IN (SELECT place FROM shapes) {_ORDER}"
REST: Final = f"{_RECORDS} WHERE placed.place NOT IN (SELECT place FROM counted) {_ORDER}"
UNPLAIN: Final = f"SELECT records.row, {CONTENT} FROM records JOIN facts USING (row) WHERE NOT is_plain"
MAY_SHOW_FAULTS: Final = f"""
SELECT '' AS place, {CONTENT} FROM records JOIN others USING (row)
UNION ALL SELECT '', {CONTENT} FROM records JOIN facts USING (row) {_OF_MARKUP}
WHERE is_plain AND (facts.direction IS NULL OR facts.direction = '{RESPONSE}') AND coalesce(has_fault, true)
"""
"""The records that are not known to hold no fault."""

_IN_PLACE: Final = f"kind, CASE WHEN kind IN ({_words(TEMPORARY_KINDS)}) THEN NULL ELSE name END AS name"
TIMES_OF_SHAPES: Final = f"""
SELECT shape_number, {_IN_PLACE}, count(*) FROM counted GROUP BY ALL ORDER BY shape_number
"""
ENDS: Final = """
SELECT sum(records)::BIGINT, least(min(time), min(answered)), greatest(max(time), max(answered)) FROM counted
"""


def spans(width: int) -> str:
    """Return the query for the number of messages by the number of their span of time, as `Timeline` has them."""
    return f"""
SELECT {_span("time", width)} AS number, count(*) FROM (
    SELECT time FROM counted UNION ALL SELECT answered FROM counted WHERE answered IS NOT NULL) GROUP BY number
"""


def latencies(width: int) -> str:
    """Return the query for the number of responses by span of time, `latency_bin` (null if time ran backwards), and
    destination of the request."""
    taken = "(answered - time)"
    exponent = f"greatest(0, length(bin({taken})) - 3)"
    return f"""
SELECT {_span("time", width)} AS number,
    CASE WHEN answered >= time THEN 4 * {exponent} + ({taken} >> {exponent}) END AS bin, {_IN_PLACE}, count(*)
FROM counted WHERE answered IS NOT NULL GROUP BY ALL
"""


def _span(time: str, width: int) -> str:
    return f"({time} - (({time} % {width}) + {width}) % {width}) // {width}"
