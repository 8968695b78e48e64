"""The plan of a replay in SQL: from the facts of records to exchanges, counted by shape.

The *shape* of an exchange is all that rules read of it: a value for each `Fact` that a row of the table of assertions
reads. Each query makes a table, or a view, from those before it:

- `facts`: one row a record (`facts.py`).
- `aliases`: the message ids of requests that have another key, as far as others have them as their keys.
- `placed`: the records by place: the key that they share with all their copies and their partner.
- `sides`: the records of a place that ask for a response, and those that do not, and whether they certainly are copies
  of one message.
- `unlike`: the places at which they are not after all.
- `exchanges`: the places that certainly hold one call, or one one-way message, with their shapes.
- `entries`: the records by place again, with the shape of their exchange; one of them also has what is counted of it.
- `shapes_here`: their shapes, each with the place of one of its exchanges.
- `shapes`: the most frequent shapes, each with the place of one exchange, which Python judges.
- `sound`: the shapes whose example broke nothing, and so stands for all of its shape, which are `counted`.

Then Python judges the records of the other places, `REST`. The plan only has to be right where it is certain: whatever
it leaves out is judged the whole way.

DuckDB runs all queries: on Spark in each task for its own places, and for `aliases` its own keys; without Spark once
for all. Spark itself adds up the shapes; so that query keeps to what it and DuckDB share.

Spec: capture record, version 1, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from brokers.message import TEMPORARY_KINDS
from soapjms.protocol.assertions import Fact
from soapjms.protocol.assertions.request_checks import CLOCK_TOLERANCE_MILLISECONDS
from soapjms.protocol.record import Direction

MAX_SHAPES: Final = 50_000
"""Number of shapes of which one exchange is judged; exchanges of others are judged by themselves."""

ALIASES: Final = """
SELECT announces, min(key) AS key FROM facts
WHERE announces IS NOT NULL AND announces IN (SELECT key FROM facts WHERE by_alias) GROUP BY announces
"""
PLACED: Final = """
SELECT facts.*, key AS place FROM facts WHERE NOT by_alias
UNION ALL SELECT facts.*, coalesce(aliases.key, facts.key) AS place
FROM facts LEFT JOIN aliases ON aliases.announces = facts.key WHERE by_alias
"""

_NAMED: Final = "FILTER (message_id IS NOT NULL)"


def sides(window: int) -> str:
    """Return the query for `sides`.

    It is certain that the records are copies of one message if they differ in nothing but who captured them. One of
    several may lack the message id: that of a sender that did not know it; `unlike` has those that are no copy.

    Args:
        window: see `ReplayTerms.window`, in microseconds.
    """
    return f"""
SELECT place, coalesce(asks, false) AS asks, count(*) AS records, min(time) AS time, max(time) AS latest,
    max(direction) AS direction, min(row) {_NAMED} AS rich, min(row) FILTER (message_id IS NULL) AS poor,
    bool_and(is_plain) AND max(time) - min(time) <= {window}
        AND coalesce(min(own) {_NAMED} = max(own) {_NAMED}, true)
        AND count(*) - count(message_id) <= 1
        AND coalesce(min(direction) = max(direction), true)
        AND NOT (count(message_id) > 1 AND bool_or(truncated))
        AND count(*) IN (count(message_id), count(direction)) AS is_certain
FROM placed GROUP BY place, coalesce(asks, false)
"""


_SAME: Final = ("delivery_mode", "priority", "expiration", "timestamp", "type")
"""Headers that a node may not know of the message that it sends."""
UNLIKE: Final = f"""
SELECT place FROM sides JOIN facts AS known ON known.row = rich JOIN facts AS sent ON sent.row = poor
WHERE is_certain AND NOT coalesce(
    sent.untyped AND NOT known.untyped AND NOT sent.truncated AND NOT known.truncated
    AND sent.states_digest AND known.states_digest AND sent.correlation_id = known.correlation_id
    AND sent.message_type = known.message_type AND sent.digest IS NOT DISTINCT FROM known.digest
    AND (NOT sent.has_destination OR (known.has_destination AND sent.kind = known.kind
        AND sent.name IS NOT DISTINCT FROM known.name))
    AND (NOT sent.has_reply_to OR (known.has_reply_to AND sent.reply_kind = known.reply_kind
        AND sent.reply_name IS NOT DISTINCT FROM known.reply_name))
    AND {" AND ".join(f"(sent.{each} IS NULL OR sent.{each} = known.{each})" for each in _SAME)}, false)
"""
"""The places with a side of which one copy is no copy."""

PAIR_PARTS: Final[Mapping[Fact, tuple[str, ...]]] = {
    Fact.DIRECTION: ("asked_direction IS NULL", "answered_direction IS NULL"),
    Fact.JNDI: ("asked.is_jndi",),
    Fact.CORRELATION: (
        "answered.correlation_id IS NOT DISTINCT FROM asked.correlation_id",
        "answered.correlation_id = asked.message_id",
        "asked.correlation_id IS NULL",
    ),
    Fact.REPLY_PLACE: (
        "asked.has_reply_to",
        "answered.has_destination",
        "asked.reply_name IS NULL",
        "answered.name IS NULL",
        "asked.reply_name = answered.name",
        "asked.reply_kind LIKE '%topic'",
        "answered.kind LIKE '%topic'",
    ),
    Fact.REPEATED_URI: (
        "asked.request_uri IS NULL",
        "answered.request_uri IS NULL",
        "asked.request_uri = answered.request_uri",
    ),
    Fact.DELIVERY_MODE: ("asked.delivery_mode = answered.delivery_mode",),
    Fact.PRIORITY: ("asked.priority = answered.priority",),
    Fact.EXPIRY: (
        "coalesce(asked.expiration, 0) = 0 OR answered.expiration IS NULL "
        "OR (answered.expiration > 0 "
        f"AND answered.expiration::HUGEINT - asked.expiration <= {CLOCK_TOLERANCE_MILLISECONDS})",
    ),
}
"""The facts of a request and its response, each as conditions. A direction that is stated follows from the pattern."""


def _marks(conditions: Iterable[str]) -> str:
    """Return the expression for a text with a digit for each condition: 1, 0, or 2 if it is unknown."""
    return " || ".join(f"CASE WHEN {each} THEN '1' WHEN NOT ({each}) THEN '0' ELSE '2' END" for each in conditions)


_PAIR: Final = _marks(condition for conditions in PAIR_PARTS.values() for condition in conditions)


def exchanges(window: int) -> str:
    """Return the query for `exchanges`.

    Args:
        window: see `ReplayTerms.window`, in microseconds.
    """
    return f"""
WITH certain AS (
    SELECT *, coalesce(rich, poor) AS row FROM sides WHERE is_certain AND place NOT IN (FROM unlike)
), calls AS (
    SELECT place, asked.records + answered.records AS records, asked.row AS asked_row, answered.row AS answered_row,
        asked.time AS asked_time, answered.time AS answered_time,
        asked.direction AS asked_direction, answered.direction AS answered_direction
    FROM certain AS asked JOIN certain AS answered USING (place)
    WHERE asked.asks AND NOT answered.asks AND answered.direction IS DISTINCT FROM '{Direction.ONE_WAY}'
        AND greatest(asked.latest, answered.latest) - least(asked.time, answered.time) <= {window}
)
SELECT place, asked_row AS row, records, asked_time AS asked, answered_time AS answered, asked.kind AS kind,
    asked.name AS name, asked.shape || answered.shape || encode({_PAIR}) AS shape
FROM calls JOIN facts AS asked ON asked.row = asked_row JOIN facts AS answered ON answered.row = answered_row
WHERE asked.shape IS NOT NULL AND answered.shape IS NOT NULL AND answered.message_id <> asked.message_id
    AND (answered.correlation_id = asked.correlation_id OR answered.correlation_id = asked.message_id)
    AND coalesce(asked.reply_name = answered.name, true)
UNION ALL
SELECT place, facts.row, records, certain.time, NULL, kind, name,
    shape || encode({_marks(["certain.direction IS NULL"])})
FROM certain JOIN facts USING (row)
WHERE NOT certain.asks AND shape IS NOT NULL AND place NOT IN (SELECT place FROM sides WHERE asks)
    AND (certain.direction = '{Direction.ONE_WAY}' OR (
        certain.direction IS NULL AND NOT has_reply_to AND correlation_id IS NULL AND NOT is_fault))
"""


_COUNTED: Final = ("records", "asked", "answered", "kind", "name")
ENTRIES: Final = f"""
SELECT place, placed.time AS time, placed.row AS row, exchanges.shape AS shape, {
    ", ".join(f"CASE WHEN placed.row = exchanges.row THEN exchanges.{each} END AS {each}" for each in _COUNTED)
}
FROM placed LEFT JOIN exchanges USING (place)
"""


def within_places(window: int) -> dict[str, str]:
    """Return the queries for the relations that need whole places only, by name, in order.

    Args:
        window: see `ReplayTerms.window`, in microseconds.
    """
    return {
        "sides": sides(window),
        "unlike": UNLIKE,
        "exchanges": exchanges(window),
        "entries": ENTRIES,
    }


# Shapes

SHAPES_HERE: Final = """
SELECT shape, min(place) AS example, count(*) AS exchanges FROM entries
WHERE shape IS NOT NULL AND records IS NOT NULL GROUP BY shape
"""
SHAPES: Final = f"""
SELECT shape, min(example) AS example, sum(exchanges) AS exchanges FROM shapes_here
WHERE shape IS NOT NULL GROUP BY shape
HAVING sum(exchanges) > 1 ORDER BY exchanges DESC, example LIMIT {MAX_SHAPES}
"""
COUNTED: Final = """
SELECT place, records, asked, answered, kind, name, example FROM entries JOIN sound USING (shape)
WHERE records IS NOT NULL
"""

# What Python reads

OF_SHAPES: Final = "SELECT place, time, row FROM entries JOIN shapes ON shapes.example = entries.place"
REST: Final = """
SELECT place, time, row FROM entries WHERE NOT EXISTS (SELECT 1 FROM sound WHERE sound.shape = entries.shape)
"""
ALL: Final = "SELECT place, time, row FROM placed"
"""All records, if no shapes are counted."""

# Counts

_TEMPORARY: Final = ", ".join(f"'{each}'" for each in sorted(TEMPORARY_KINDS))
_IN_PLACE: Final = f"kind, CASE WHEN kind IN ({_TEMPORARY}) THEN NULL ELSE name END AS name"
TIMES: Final = f"""
SELECT example, {_IN_PLACE}, count(*) AS exchanges, min(asked), max(asked), min(answered), max(answered)
FROM counted GROUP BY ALL ORDER BY example
"""
"""How many exchanges of each shape there are at each destination, and when the first and the last were."""
ENDS: Final = """
SELECT CAST(sum(records) AS BIGINT), least(min(asked), min(answered)), greatest(max(asked), max(answered)) FROM counted
"""
"""The number of records that were counted, and the first and the last time of their messages."""


def number_of(query: str) -> str:
    """Return the query for the number of rows that a query finds."""
    return f"SELECT count(*) FROM ({query}) AS found"


def spans(width: int) -> str:
    """Return the query for the number of messages by the beginning of their span of time, in microseconds.

    Args:
        width: of a span.
    """
    return f"""
SELECT {_span("time", width)} AS beginning, count(*) AS messages
FROM (SELECT asked AS time FROM counted UNION ALL SELECT answered FROM counted WHERE answered IS NOT NULL)
GROUP BY beginning
"""


def latencies(width: int) -> str:
    """Return the query for the number of responses by span of time and `latency_bin`; null if time ran backwards."""
    return f"""
SELECT {_span("asked", width)} AS beginning, {_LATENCY} AS bin, count(*) AS calls
FROM counted WHERE answered IS NOT NULL GROUP BY ALL
"""


_TAKEN: Final = "(answered - asked)"
_EXPONENT: Final = f"greatest(0, length(bin({_TAKEN})) - 3)"
_LATENCY: Final = f"CASE WHEN answered >= asked THEN 4 * {_EXPONENT} + ({_TAKEN} >> {_EXPONENT}) END"
LATENCIES: Final = f"""
SELECT {_IN_PLACE}, {_LATENCY} AS bin, count(*) AS calls FROM counted WHERE answered >= asked GROUP BY ALL
"""
"""The number of responses by destination of the request, and `latency_bin`."""


def _span(time: str, width: int) -> str:
    return f"({time} - (({time} % {width}) + {width}) % {width})"
