"""Exchanges of one shape: what no rule tells apart is judged once, and then only counted.

The *shape* of an exchange is all that rules read of it: a value for each `Fact` that a row of the table of assertions
reads. The first exchange of a shape goes through the whole judge. If that finds nothing, the others of the shape are
counted without being judged. Everything else goes the whole way, as does all that this file does not know: it knows a
plain call and a one-way message, each captured several times within the window.

`judge_all` defines what is right; with shapes it has to return the same. `--engine exact` judges without them.

Spec: capture record, version 1, "Copies and pairing" and "Verdicts".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from brokers.message import Properties
from soapjms.protocol import names
from soapjms.protocol.assertions import ASSERTIONS, STACK_MARKS, Fact, stack_marks_of
from soapjms.protocol.assertions.markup import DocumentFacts, document_facts
from soapjms.protocol.names import Profile
from soapjms.protocol.properties import PROPERTY_NAMES
from soapjms.protocol.received_message import TRUE_TEXTS, describe
from soapjms.protocol.record import Direction
from soapjms.replay.bundles import (
    MICROSECOND,
    FlatRecord,
    Unpacker,
    ValueCache,
    destination_of,
    only_properties,
    unpacked_destination,
    unpacked_properties,
)
from soapjms.replay.counts import RECORDS, ShapeCounts
from soapjms.replay.findings import service_place
from soapjms.replay.summary import RunTally
from soapjms.replay.terms import ReplayTerms

MAX_RECORDS: Final = 12
"""Number of records of one key above which they go the whole way."""
MAX_SHAPES: Final = 50_000
"""Number of shapes on a page of those that are remembered; there are two pages, and the older one is forgotten."""

REQUEST, RESPONSE, ONE_WAY = str(Direction.REQUEST), str(Direction.RESPONSE), str(Direction.ONE_WAY)


def short_digest(text: str) -> str:
    """Return a text of 40 characters that is the same for the same text only."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


class PropertyFacts(NamedTuple):
    """What the properties of a message tell.

    Attributes:
        rules: a digest of all in them that a rule, or the guess of the sender's stack, depends on.
        request_uri: the requestURI.
        is_jndi: whether its lookup variant is jndi.
        states_headers: whether headers may be compared with values that the sender is known to have set.
        charset: the charset of the content type, in lower case.
        is_fault: whether a message that nothing else tells apart is a fault.
    """

    rules: str
    request_uri: str | None
    is_jndi: bool
    states_headers: bool
    charset: str | None
    is_fault: bool


def told_by(properties: Properties, profile: Profile, *, knows_senders: bool) -> PropertyFacts | None:
    """Return what properties tell; None if their message must be judged by itself.

    Args:
        properties: properties of a message.
        profile: the edition to read them by.
        knows_senders: whether something is known of senders, which messages are compared with.
    """
    described = describe(properties, profile)
    if not described.is_short or described.is_multipart or described.content_encoding is not None:
        return None
    uri, charset = described.request_uri, described.charset
    depends_on: Any = tuple(map(tuple, described.properties)) if knows_senders else described.shape.key
    return PropertyFacts(
        rules=short_digest(repr((depends_on, sorted(stack_marks_of(properties))))),
        request_uri=described.text(names.REQUEST_URI),
        is_jndi=uri is not None and uri.variant == "jndi",
        states_headers=knows_senders or (uri is not None and bool(uri.parameters)),
        charset=None if charset is None else charset.lower(),
        is_fault=properties.text(names.IS_FAULT) in TRUE_TEXTS,
    )


WHOLE_WAY: Final = PropertyFacts("", None, False, False, None, False)
"""Stands for properties whose messages go the whole way: long ones, and those of a body in parts or encoded."""

Part: TypeAlias = Callable[[FlatRecord, PropertyFacts], Hashable]
PairPart: TypeAlias = Callable[..., Hashable]


def _lifetime(flat: FlatRecord, told: PropertyFacts) -> Hashable:
    if not told.states_headers:
        return flat.expiration is None, bool(flat.timestamp)
    lifetime = flat.expiration - flat.timestamp if flat.expiration and flat.timestamp else None
    return flat.expiration if not flat.expiration else True, bool(flat.timestamp), lifetime


def _reply_to(flat: FlatRecord, told: PropertyFacts) -> Hashable:
    if flat.reply_to is None or told.states_headers:
        return flat.reply_to
    kind, name = unpacked_destination(flat.reply_to)
    return kind, name is None


MESSAGE_PARTS: Final[Mapping[Fact, Part]] = {
    Fact.PROPERTIES: lambda flat, told: told.rules,
    Fact.MESSAGE_TYPE: lambda flat, told: flat.message_type,
    Fact.BODY_KIND: lambda flat, told: (type(flat.body), not flat.body),
    Fact.TRUNCATED: lambda flat, told: flat.truncated,
    Fact.UNTYPED: lambda flat, told: flat.untyped,
    Fact.DIRECTION: lambda flat, told: flat.direction,
    Fact.ASKS: lambda flat, told: flat.reply_to is None,
    Fact.DELIVERY_MODE: lambda flat, told: flat.delivery_mode,
    Fact.PRIORITY: lambda flat, told: flat.priority,
    Fact.LIFETIME: _lifetime,
    Fact.REPLY_TO: _reply_to,
}
"""How the facts of one message are found; `Shapes` itself finds the body."""


def _correlation(asked: FlatRecord, answered: FlatRecord, *_: PropertyFacts) -> Hashable:
    seen = answered.correlation_id
    return (
        seen == asked.correlation_id,
        seen == asked.message_id,
        seen is None,
        not asked.correlation_id,
        asked.correlation_id is None,
        asked.message_id is None,
    )


def _reply_place(asked: FlatRecord, answered: FlatRecord, *_: PropertyFacts) -> Hashable:
    if asked.reply_to is None or answered.destination is None:
        return asked.reply_to is None, answered.destination is None
    (kind, name), (other_kind, other_name) = map(unpacked_destination, (asked.reply_to, answered.destination))
    return name is None, other_name is None, name == other_name, kind.endswith("topic"), other_kind.endswith("topic")


def _repeated_uri(asked: FlatRecord, answered: FlatRecord, *facts: PropertyFacts) -> Hashable:
    one, other = (each.request_uri for each in facts)
    return one is None, other is None, one == other


def _expiry(asked: FlatRecord, answered: FlatRecord, *_: PropertyFacts) -> Hashable:
    wanted, seen = asked.expiration, answered.expiration
    return not wanted or seen is None or 0 < seen <= wanted


PAIR_PARTS: Final[Mapping[Fact, PairPart]] = {
    Fact.JNDI: lambda asked, answered, *facts: facts[0].is_jndi,
    Fact.CORRELATION: _correlation,
    Fact.REPLY_PLACE: _reply_place,
    Fact.REPEATED_URI: _repeated_uri,
    Fact.EXPIRY: _expiry,
}
"""How the facts of a request and its response are found."""

OTHERWISE_READ: Final = frozenset({Fact.PROPERTIES, Fact.BODY, Fact.UNTYPED, Fact.DIRECTION, Fact.DESTINATION})
"""What habits, the guess of a sender's stack, and counts by destination read."""

READ: Final = frozenset[Fact]().union(*(row.reads for row in ASSERTIONS)) | OTHERWISE_READ

OF_MESSAGE: Final = tuple(part for fact, part in MESSAGE_PARTS.items() if fact in READ)
OF_PAIR: Final = tuple(part for fact, part in PAIR_PARTS.items() if fact in READ)


Page: TypeAlias = dict[Hashable, ShapeCounts | None]


class Shapes:
    """Counts the exchanges of one part of a run whose shape is known to break nothing.

    Args:
        memory: what is known of shapes.
        tally: the counts.
    """

    def __init__(self, memory: ShapeMemory, tally: RunTally) -> None:
        self._memory = memory
        self._tally = tally
        self._counted: defaultdict[ShapeCounts, Counter[str]] = defaultdict(Counter)

    def take(self, records: Sequence[FlatRecord]) -> Hashable:
        """Count the records of one key, in order of time, if they are an exchange that breaks nothing.

        Return COUNTED then. Otherwise nothing was counted, and they must be judged the whole way; if nothing is known
        of their shape, return it, so that `learn` gets the result; else None.
        """
        memory = self._memory
        messages = merged(records, memory.window)
        if messages is None:
            return None
        asked, answered = messages[0], None
        if len(messages) == 2:
            answered, asked = messages if is_request(messages[1]) else reversed(messages)
        shape = memory.shape_of(asked, answered)
        if shape is None:
            return None
        counts = memory.known(shape)
        if counts is None:
            return None if shape in memory else shape
        tally, place = self._tally, memory.place_of(asked.destination)
        self._counted[counts][place] += 1
        tally.counts[RECORDS] += len(records)
        tally.timeline.message(asked.time)
        if answered is not None:
            tally.timeline.message(answered.time)
            tally.latency(place, asked.time, answered.time)
        return COUNTED

    def learn(self, shape: Hashable, found: RunTally, *, is_broken: bool) -> None:
        """Remember what the first exchange of a shape showed.

        Args:
            shape: the shape.
            found: the counts of that exchange alone.
            is_broken: whether a verdict had a row.
        """
        self._memory.note(shape, None if is_broken else ShapeCounts(found))

    def add_up(self) -> None:
        """Add the counts of all exchanges to those of the run."""
        for counts, times in self._counted.items():
            self._tally.add_times(counts.tally, counts.at_place, times)
        self._counted.clear()


COUNTED: Final = "counted"


class ShapeMemory:
    """What is known of shapes, and what shapes are made of. Not thread-safe; for parts of a run with equal terms.

    Attributes:
        knows_senders: whether something is known of senders, which messages are compared with.
        is_used: whether exchanges may be counted by their shapes.
        window: see `ReplayTerms.window`, in microseconds.
        place_of: returns the name by which a destination is counted.
        unpack: makes records of flat ones.
    """

    def __init__(self, terms: ReplayTerms) -> None:
        self._setting = terms.setting
        self.knows_senders = terms.knows_senders
        self.window = terms.window // MICROSECOND
        self.is_used = terms.counts_shapes
        self.unpack = Unpacker()
        self.place_of: ValueCache[bytes | None, str] = ValueCache(_place_of, lambda packed: len(packed or b""))
        self._known: Page = {}
        self._before: Page = {}
        self._told: ValueCache[bytes, PropertyFacts] = ValueCache(self._read, len)
        self._told_by_binding: ValueCache[bytes, PropertyFacts] = ValueCache(self._read_all, len)

    def __contains__(self, shape: Hashable) -> bool:
        """Say whether something is known of a shape."""
        return shape in self._known

    def known(self, shape: Hashable) -> ShapeCounts | None:
        """Return what each exchange of a shape adds to the counts; None if it breaks something, or is not known."""
        found = self._known.get(shape)
        if found is None and shape in self._before:
            found = self._before.pop(shape)
            self.note(shape, found)
        return found

    def note(self, shape: Hashable, counts: ShapeCounts | None) -> None:
        """Remember what each exchange of a shape adds to the counts; None if it breaks something."""
        if len(self._known) >= MAX_SHAPES:
            self._known, self._before = {}, self._known
        self._known[shape] = counts

    def shape_of(self, asked: FlatRecord, answered: FlatRecord | None) -> Hashable:
        """Return the shape of a call, or of a one-way message; None if it must go the whole way."""
        if not self.is_used:
            return None
        return self._shape_of_one_way(asked) if answered is None else self._shape_of_call(asked, answered)

    def _shape_of_call(self, asked: FlatRecord, answered: FlatRecord) -> Hashable:
        if not is_call(asked, answered, self.window):
            return None
        of_request, of_response = self._told(asked.properties), self._told(answered.properties)
        if of_request is WHOLE_WAY or of_response is WHOLE_WAY:
            return None
        one, other = self._document(asked, of_request), self._document(answered, of_response)
        if one is None or other is None:
            return None
        return (
            one,
            other,
            asked.destination if self.knows_senders else None,
            *[part(asked, of_request) for part in OF_MESSAGE],
            *[part(answered, of_response) for part in OF_MESSAGE],
            *[part(asked, answered, of_request, of_response) for part in OF_PAIR],
        )

    def _shape_of_one_way(self, sent: FlatRecord) -> Hashable:
        told = self._told(sent.properties)
        if told is WHOLE_WAY:
            return None
        if sent.direction is None:
            if sent.reply_to is not None or sent.correlation_id or told.is_fault:
                return None
        elif sent.direction != ONE_WAY:
            return None
        facts = self._document(sent, told)
        if facts is None:
            return None
        place = sent.destination if self.knows_senders else None
        return facts, place, *[part(sent, told) for part in OF_MESSAGE]

    def document_of(self, body: bytes | str, charset: str | None) -> DocumentFacts | None:
        """Return what rules may read of a body; None if they may read anything in it."""
        return document_facts(body, charset, self._setting.limits)

    def _document(self, flat: FlatRecord, told: PropertyFacts) -> DocumentFacts | None:
        """Return what rules may read of a body; None if they may read anything in it."""
        body = flat.body
        if flat.form is not None or body is None:
            return None
        return self.document_of(body, told.charset)

    def _read(self, packed: bytes) -> PropertyFacts:
        """Read properties, without those that nobody reads, such as the id of a trace."""
        return self._told_by_binding(only_properties(packed, READ_NAMES))

    def _read_all(self, packed: bytes) -> PropertyFacts:
        return self.facts_of(unpacked_properties(packed))

    def facts_of(self, properties: Properties) -> PropertyFacts:
        """Return what properties tell; `WHOLE_WAY` if their message must be judged by itself."""
        found = told_by(properties, self._setting.profile, knows_senders=self.knows_senders)
        return WHOLE_WAY if found is None else found


READ_NAMES: Final = PROPERTY_NAMES | STACK_MARKS
"""The properties that rules and the guess of a stack read."""


def _place_of(packed: bytes | None) -> str:
    """Return the destination as counts by destination name it."""
    return service_place(None if packed is None else destination_of(packed))


# Copies and pairs


def is_request(flat: FlatRecord) -> bool:
    """Say whether a message may be answered, as `soapjms.protocol.exchange.model.is_request` does."""
    return flat.reply_to is not None if flat.direction is None else flat.direction == REQUEST


def is_call(asked: FlatRecord, answered: FlatRecord, window: int) -> bool:
    """Say whether two messages that are alone with their key are certainly a request and its response."""
    if not is_request(asked) or is_request(answered) or answered.direction == ONE_WAY:
        return False
    if not asked.message_id or not answered.message_id or not answered.correlation_id:
        return False
    if answered.correlation_id not in (asked.correlation_id, asked.message_id):
        return False
    if asked.reply_to is not None and answered.destination is not None:
        wanted, seen = unpacked_destination(asked.reply_to)[1], unpacked_destination(answered.destination)[1]
        if wanted is not None and seen is not None and wanted != seen:
            return False
    return abs(answered.time - asked.time) <= window


def merged(records: Sequence[FlatRecord], window: int) -> list[FlatRecord] | None:
    """Merge the copies of at most two messages, as `soapjms.protocol.exchange.merge` does.

    Args:
        records: the records of one key, in order of time.
        window: see `ReplayTerms.window`, in microseconds.

    Returns:
        the messages, each with its first copy's time; None if the records must go the whole way.
    """
    if records[-1].time - records[0].time > window:
        return None
    messages: list[FlatRecord] = []
    for record in records:
        if record.extra is not None:
            return None
        number = _original(messages, record)
        if number is None:
            messages.append(record)
            continue
        is_twin = messages[number].message_id == record.message_id
        both = (_merged_twins if is_twin else _merged_kin)(messages[number], record)
        if both is None:
            return None
        messages[number] = both
    return messages if len(messages) <= 2 else None


def _original(messages: Sequence[FlatRecord], record: FlatRecord) -> int | None:
    """Return the number of the message that a record may be a copy of: by the message id, which counts most, else by
    the lack of one."""
    for number, message in enumerate(messages):
        if message.message_id == record.message_id:
            return number
    for number, message in enumerate(messages):
        if not (record.message_id and message.message_id) and not _is_answer(message, record):
            return number
    return None


def _merged_twins(message: FlatRecord, record: FlatRecord) -> FlatRecord | None:
    """Merge copies with one message id; return None if they differ in more than who captured them, and when."""
    if not record.message_id or message.truncated or record.truncated or message[OWN] != record[OWN]:
        return None
    if message.untyped != record.untyped or is_request(message) is not is_request(record):
        return None
    if record.direction is None or record.direction == message.direction:
        return message
    return message._replace(direction=record.direction) if message.direction is None else None


OWN: Final = slice(FlatRecord._fields.index("message_type"), FlatRecord._fields.index("redelivered"))
"""What belongs to a message, and not to a capture of it."""

POORER: Final = ("destination", "reply_to", "delivery_mode", "priority", "expiration", "timestamp", "type")
"""What a node may not know of the message that it sends."""


def _is_answer(message: FlatRecord, record: FlatRecord) -> bool:
    """Say whether two messages are a request and a response, and so no copies, by their directions."""
    return {message.direction, record.direction} == {REQUEST, RESPONSE}


def _merged_kin(message: FlatRecord, record: FlatRecord) -> FlatRecord | None:
    """Merge copies of which one lacks the message id, as its sender may not know it; None if they are not certainly."""
    if message.direction is None or message.direction != record.direction:
        return None
    rich, poor = (message, record) if message.message_id else (record, message)
    if rich.untyped or not poor.untyped or rich.truncated or poor.truncated:
        return None
    is_same = (
        rich.sha256 is not None
        and poor.sha256 is not None
        and rich.sha256.lower() == poor.sha256.lower()
        and rich.correlation_id == poor.correlation_id
        and bool(rich.correlation_id)
        and rich.message_type == poor.message_type
        and rich.form is None
        and rich.body == poor.body
        and all(getattr(poor, name) in (None, getattr(rich, name)) for name in POORER)
    )
    if not is_same or not rich.message_id:
        return None
    return rich if rich is message else rich._replace(time=message.time)
