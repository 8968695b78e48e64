"""From captured records to exchanges: merging the copies of one message, pairing responses with requests.

The same functions serve every engine. An engine gives each record a key (`correlation_key`, with the `aliases` that
requests announce), brings the records of one key together in order of time, and streams them through `pair`. Nothing
here knows a profile: that a response matched by the wrong id is for the assertions to say.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from brokers.message import Body, Destination, Message, MessageType, Properties
from soapjms.protocol.names import IS_FAULT
from soapjms.protocol.record import Direction, Record, body_digest, to_json

DEFAULT_WINDOW: Final = timedelta(minutes=10)
"""How far apart in time the copies of a message, or a request and its response, may be."""


class Pattern(StrEnum):
    """What an exchange turned out to be."""

    REQUEST_RESPONSE = "request-response"
    ONE_WAY = "one-way"
    RESPONSE_ONLY = "response without request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its response, a one-way message, or a response whose request was not captured.

    Attributes:
        id: the request's message id, else its correlation id, else a hash of the record.
        pattern: what it is; a request-response exchange without `response` is one whose response is missing.
        request: the request or the one-way message, merged from its copies.
        response: the response, merged from its copies.
        records: how many records went into it.
    """

    id: str
    pattern: Pattern
    request: Record | None = None
    response: Record | None = None
    records: int = 1

    @property
    def messages(self) -> tuple[Record, ...]:
        """The messages that were captured, request first."""
        return tuple(each for each in (self.request, self.response) if each is not None)

    @property
    def unpaired(self) -> bool:
        """True where one half of a request-response exchange is missing."""
        return self.pattern is not Pattern.ONE_WAY and len(self.messages) == 1


# Keys: what an engine partitions by


def alias(record: Record) -> tuple[str, str] | None:
    """Return (message id, correlation id) of a request that has both: a response may answer with either.

    An engine collects these, and `correlation_key` sends a response that names the message id to the request's key.
    """
    message = record.message
    if message.message_id and message.correlation_id and _is_request(record):
        return message.message_id, message.correlation_id
    return None


def correlation_key(record: Record, aliases: Mapping[str, str]) -> str:
    """Return the key under which a record meets its copies and its partner: never the queue.

    Args:
        record: the record.
        aliases: message id to correlation id, of all requests of the log (see `alias`).
    """
    message = record.message
    if message.correlation_id:
        return (
            message.correlation_id
            if _is_request(record)
            else aliases.get(message.correlation_id, message.correlation_id)
        )
    return message.message_id or record_hash(record)


def record_hash(record: Record) -> str:
    """Return a hash of the whole record: the key and id of one that has no id of its own."""
    return sha256(to_json(record).encode("utf-8", "surrogatepass")).hexdigest()


def _is_request(record: Record) -> bool:
    if record.direction is None:
        return record.message.reply_to is not None
    return record.direction is Direction.REQUEST


# Merging copies


def same_message(one: Record, other: Record) -> bool:
    """Say whether two records show the same message: by message id, else by direction, correlation id and body."""
    first, second = one.message, other.message
    if first.message_id and second.message_id:
        return first.message_id == second.message_id
    if one.direction is not None and other.direction is not None and one.direction is not other.direction:
        return False
    mark = _copy_mark(one)
    return mark is not None and mark == _copy_mark(other)


def _copy_mark(record: Record) -> tuple[str, bool, str] | None:
    """Return what the copies of a message share where one lacks the message id, None if it cannot be told.

    Being a request is part of it: that keeps an echo's response apart from its request.
    """
    if not record.message.correlation_id:
        return None
    digest = _digest(record)
    return None if digest is None else (record.message.correlation_id, _is_request(record), digest)


def _digest(record: Record) -> str | None:
    if record.sha256 is not None:
        return record.sha256.lower()
    if record.truncated:
        return None
    return body_digest(record.message.body) or body_digest(repr(record.message.body))


def merge(one: Record, other: Record) -> Record:
    """Merge two copies of one message: the earlier one, completed by what the other knows better.

    Typed properties win over untyped ones, a whole body over a cut one, a known message type over `unknown`, a
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
    """Rank a copy by what it lacks: the rest of a body that was cut, a body, the type that says how to read it."""
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
    """Read a body whose capture did not know the type as the type that another copy knew; unknown if it is none."""
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


# Pairing


def pair(records: Iterable[Record], window: timedelta = DEFAULT_WINDOW) -> Iterator[Exchange]:
    """Merge and pair the records of one correlation key.

    Args:
        records: in order of time. A silence longer than the window ends a stretch, whose exchanges are given out,
            so that a key that recurs for weeks needs the memory of one stretch.
        window: how far apart copies, and a request and its response, may be.

    Yields:
        every message once, in an exchange. Nothing is dropped.
    """
    stretch = _Stretch(window)
    for record in records:
        if stretch.newest is not None and record.time - stretch.newest > window:
            yield from stretch.settle()
            stretch = _Stretch(window)
        stretch.add(record)
    yield from stretch.settle()


@dataclass(slots=True, eq=False)
class _Sighting:
    """One message under construction: merged from the copies seen so far."""

    record: Record
    records: int = 1
    mark: tuple[str, bool, str] | None = None
    partner: _Sighting | None = None
    is_answer: bool = False

    @property
    def time(self) -> datetime:
        return self.record.time

    @property
    def message_id(self) -> str | None:
        return self.record.message.message_id or None


class _Stretch:
    """The messages of one stretch of time, each found again by its id or by what its copies share.

    The look-ups keep a key that many messages share, such as a correlation id that never changes, from taking
    quadratic time.
    """

    def __init__(self, window: timedelta) -> None:
        self.newest: datetime | None = None
        self._window = window
        self._sightings: list[_Sighting] = []
        self._named: dict[str, _Sighting] = {}
        self._marked: dict[tuple[str, bool, str], list[_Sighting]] = {}
        self._nameless: dict[tuple[str, bool, str], list[_Sighting]] = {}

    def add(self, record: Record) -> None:
        """Merge a record into the message that it is a copy of, the nearest in time, or begin a new one."""
        self.newest = record.time if self.newest is None else max(self.newest, record.time)
        for sighting in self._candidates(record):
            if same_message(sighting.record, record) and abs(record.time - sighting.time) <= self._window:
                sighting.record = merge(sighting.record, record)
                sighting.records += 1
                break
        else:
            sighting = _Sighting(record)
            self._sightings.append(sighting)
        self._index(sighting)

    def _candidates(self, record: Record) -> Iterator[_Sighting]:
        message_id, mark = record.message.message_id, _copy_mark(record)
        if message_id and message_id in self._named:
            yield self._named[message_id]
        if mark is not None:
            yield from reversed((self._nameless if message_id else self._marked).get(mark, []))

    def _index(self, sighting: _Sighting) -> None:
        if sighting.mark is None and (mark := _copy_mark(sighting.record)) is not None:
            sighting.mark = mark
            self._marked.setdefault(mark, []).append(sighting)
            if sighting.message_id is None:
                self._nameless.setdefault(mark, []).append(sighting)
        if sighting.message_id is not None and self._named.get(sighting.message_id) is not sighting:
            self._named[sighting.message_id] = sighting
            if sighting.mark is not None and sighting in (nameless := self._nameless.get(sighting.mark, [])):
                nameless.remove(sighting)

    def settle(self) -> Iterator[Exchange]:
        """Pair the messages and give out their exchanges in order of time."""
        candidates = [each for each in self._answers() if each[0] <= self._window]
        candidates.sort(
            key=lambda each: (each[0], each[1].time, each[2].time, _id(each[1].record), _id(each[2].record))
        )
        for _, request, answer in candidates:
            if request.partner is None and answer.partner is None:
                request.partner, answer.partner = answer, request
                answer.is_answer = True
        return (_exchange(sighting) for sighting in self._sightings if not sighting.is_answer)

    def _answers(self) -> Iterator[tuple[timedelta, _Sighting, _Sighting]]:
        """Yield each request with each message that may answer it, and how far apart they are."""
        by_id: dict[str, list[_Sighting]] = {}
        by_place: dict[tuple[str, str | None], list[_Sighting]] = {}
        for each in self._sightings:
            if _may_be_request(each.record):
                for name in {each.record.message.correlation_id or "", each.message_id or ""}:
                    by_id.setdefault(name, []).append(each)
                    by_place.setdefault((name, _name(each.record.message.reply_to)), []).append(each)
        for answer in self._sightings:
            if _may_be_response(answer.record):
                wanted, place = answer.record.message.correlation_id or "", _name(answer.record.message.destination)
                requests = [*by_place.get((wanted, place), ()), *by_place.get((wanted, None), ())]
                for request in requests if place is not None else by_id.get(wanted, ()):
                    if request is not answer and answers_to(request.record, answer.record):
                        yield abs(answer.time - request.time), request, answer


def _name(destination: Destination | None) -> str | None:
    return None if destination is None else destination.name


def _may_be_request(record: Record) -> bool:
    return record.direction in (None, Direction.REQUEST)


def _may_be_response(record: Record) -> bool:
    return record.direction in (None, Direction.RESPONSE)


def answers_to(request: Record, answer: Record) -> bool:
    """Say whether `answer` correlates with `request`, by either id, and came to where the request wanted it."""
    sent, came = request.message, answer.message
    if not came.correlation_id or came.correlation_id not in (sent.correlation_id, sent.message_id):
        return False
    if request.direction is None and sent.reply_to is None:
        return False
    if answer.direction is None and came.reply_to is not None and came.reply_to == sent.reply_to:
        return False  # the same request, sent again
    wanted, seen = _name(sent.reply_to), _name(came.destination)
    return wanted is None or seen is None or wanted == seen


def _exchange(sighting: _Sighting) -> Exchange:
    record, partner = sighting.record, sighting.partner
    if partner is not None:
        return Exchange(
            id=_id(record),
            pattern=Pattern.REQUEST_RESPONSE,
            request=record,
            response=partner.record,
            records=sighting.records + partner.records,
        )
    pattern = _alone(record)
    if pattern is Pattern.RESPONSE_ONLY:
        return Exchange(id=_id(record), pattern=pattern, response=record, records=sighting.records)
    return Exchange(id=_id(record), pattern=pattern, request=record, records=sighting.records)


def _alone(record: Record) -> Pattern:
    """Say what a message without a partner is: by its direction, else by what its headers suggest."""
    if record.direction is not None:
        return PATTERN_OF[record.direction]
    if record.message.reply_to is not None:
        return Pattern.REQUEST_RESPONSE
    if record.message.correlation_id or record.message.properties.text(IS_FAULT) in ("true", "1"):
        return Pattern.RESPONSE_ONLY
    return Pattern.ONE_WAY


PATTERN_OF: Final[Mapping[Direction, Pattern]] = {
    Direction.REQUEST: Pattern.REQUEST_RESPONSE,
    Direction.RESPONSE: Pattern.RESPONSE_ONLY,
    Direction.ONE_WAY: Pattern.ONE_WAY,
}


def _id(record: Record) -> str:
    return record.message.message_id or record.message.correlation_id or record_hash(record)
