"""The exchanges of one key, from a stream of its records.

Memory holds the messages of a window and those that depend on them, however long the stream is.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final

from soapjms.protocol.exchange.copies import Sighting, Sightings
from soapjms.protocol.exchange.model import (
    DEFAULT_WINDOW,
    Exchange,
    Pattern,
    exchange_id,
    is_request,
    keys,
    pattern_alone,
)
from soapjms.protocol.exchange.pairs import Order, nearest_pairs, unsettled
from soapjms.protocol.record import Direction, Record

MAX_KNOWN_MESSAGES: Final = 100_000
"""Maximum number of message ids remembered per key after their messages were yielded, to recognize late copies."""
MAX_KEPT_REQUESTS: Final = 100
"""Maximum number of unanswered requests held per key, for redelivery."""
MIN_SLIDE_MESSAGES: Final = 10_000
"""Number of messages of a stretch from which on those that are settled are yielded before its end."""


def exchanges_of(records: Iterable[Record], window: timedelta = DEFAULT_WINDOW) -> Iterator[Exchange]:
    """Merge and pair records in memory, in any order, as an engine does with the records of a log.

    Args:
        records: all captured records.
        window: see `pair`.

    Yields:
        the exchanges, in the order of their keys.
    """
    for _, group in groupby(keyed(records), key=itemgetter(0)):
        yield from pair((record for _, record in group), window)


def keyed(records: Iterable[Record]) -> list[tuple[str, Record]]:
    """Return records with the keys that they share with their copies and partners, in order of key and time."""
    found = [(keys(record), record) for record in records]
    aliases: dict[str, str] = {}
    for each, _ in found:
        if each.announces is not None:
            aliases[each.announces] = min(each.key, aliases.get(each.announces, each.key))
    placed = [(aliases.get(each.key, each.key) if each.by_alias else each.key, record) for each, record in found]
    return sorted(placed, key=lambda each: (each[0], each[1].time))


def pair(records: Iterable[Record], window: timedelta = DEFAULT_WINDOW) -> Iterator[Exchange]:
    """Merge and pair the records of one key.

    Args:
        records: the records, in order of time. A silence longer than the window ends a stretch, and its exchanges are
            yielded. In a stretch of many messages, those of which no later one can change anything are yielded too. So
            a key that recurs for weeks needs the memory of a window only. The ids of yielded messages are remembered,
            and a few requests without response are kept back, so that a message that is captured again does not count
            as a new one, unless `MAX_KNOWN_MESSAGES` were yielded since.
        window: the longest time between a request and its response, and between copies of which one lacks the message
            id.

    Yields:
        every message once, in an exchange, and each late copy of a message that was yielded before. No record is
        dropped: the `records` of all exchanges add up to the number of records.
    """
    coming = iter(records)
    first = list(islice(coming, 3))
    if len(first) == 2 and is_plain_call(first[0], first[1], window):
        request, response = first
        yield Exchange(
            id=exchange_id(request),
            pattern=Pattern.REQUEST_RESPONSE,
            request=request,
            response=response,
            records=2,
        )
        return
    group = _Group(window)
    for record in chain(first, coming):
        yield from group.add(record)
    yield from group.end()


def is_plain_call(request: Record, response: Record, window: timedelta) -> bool:
    """Say whether two messages that are alone with their key are certainly a request and its response.

    Nearly all are. `nearest_pairs` has the same result, but takes longer.
    """
    asked, answered = request.message, response.message
    if not is_request(request) or is_request(response) or response.direction is Direction.ONE_WAY:
        return False
    if not asked.message_id or not answered.message_id or asked.message_id == answered.message_id:
        return False  # they may be copies
    wanted, seen = asked.reply_to, answered.destination
    return (
        bool(answered.correlation_id)
        and answered.correlation_id in (asked.correlation_id, asked.message_id)
        and (wanted is None or seen is None or None in (wanted.name, seen.name) or wanted.name == seen.name)
        and timedelta(0) <= response.time - request.time <= window
    )


class _Group:
    """The records of one key: the present stretch, and what is remembered of earlier ones."""

    def __init__(self, window: timedelta) -> None:
        self._window = window
        self._newest: datetime | None = None
        self._stretch = Sightings(window)
        self._enough = MIN_SLIDE_MESSAGES
        self._kept_back: OrderedDict[str, Sighting] = OrderedDict()
        self._given_out: OrderedDict[bytes, None] = OrderedDict()

    def add(self, record: Record) -> Iterator[Exchange]:
        """Add a record, and yield the exchanges of a stretch that it ends, or that are settled."""
        newest = self._newest
        if newest is not None:
            if record.time - newest > self._window:
                yield from self._settle(self._paired())
            elif len(self._stretch.messages) >= self._enough and self._is_long(newest):
                yield from self._settle(self._slide(newest))
        self._newest = record.time if newest is None else max(record.time, newest)
        message_id = record.message.message_id
        if message_id and message_id not in self._stretch:
            if (waiting := self._kept_back.pop(message_id, None)) is not None:
                self._stretch.begin(waiting)
            elif self._given_out and _short(message_id) in self._given_out:
                yield Exchange(id=message_id, pattern=Pattern.LATE_COPY)
                return
        self._stretch.add(record)

    def end(self) -> Iterator[Exchange]:
        """Return all remaining exchanges."""
        messages = [*self._kept_back.values(), *self._paired()]
        return (_exchange(each) for each in messages if not each.is_answer)

    def _settle(self, messages: Iterable[Sighting]) -> Iterator[Exchange]:
        """Yield the exchanges of messages in the order of the first of them, and remember their ids."""
        for each in messages:
            if each.message_id and each.partner is None and pattern_alone(each.record) is Pattern.REQUEST_RESPONSE:
                self._kept_back[each.message_id] = each
                continue
            self._remember(each)
            if not each.is_answer:
                yield _exchange(each)
        while len(self._kept_back) > MAX_KEPT_REQUESTS:
            _, oldest = self._kept_back.popitem(last=False)
            self._remember(oldest)
            yield _exchange(oldest)

    def _paired(self) -> list[Sighting]:
        """Pair the messages of the stretch, return them, and begin the next stretch."""
        messages, self._stretch = self._stretch.messages, Sightings(self._window)
        if len(messages) == 2 and self._are_plain_call(*messages):
            request, answer = messages
            request.partner, answer.partner, answer.is_answer = answer, request, True
        else:
            _find_partners(messages, self._window)
        return messages

    def _is_long(self, newest: datetime) -> bool:
        """Say whether the stretch may have settled messages: one without a partner waits two windows."""
        return newest - self._stretch.messages[0].times[0] > 2 * self._window

    def _slide(self, newest: datetime) -> list[Sighting]:
        """Pair the messages of the stretch, return those that no later message can change, and keep the others."""
        messages, self._stretch = self._stretch.messages, Sightings(self._window)
        strayed = {each for each in messages if each.misdirected}  # before they were kept back for redelivery
        since = newest - self._window  # a message of this time may still have copies of which one lacks the id
        kept = _find_unsettled(messages, self._window, since)
        for each in messages:
            if each in kept:
                each.partner, each.is_answer, each.misdirected, each.kin = None, False, each in strayed, None
                self._stretch.begin(each)
        self._enough = max(MIN_SLIDE_MESSAGES, 2 * len(self._stretch.messages))
        return [each for each in messages if each not in kept]

    def _are_plain_call(self, request: Sighting, answer: Sighting) -> bool:
        seen_once = len(request.times) == len(answer.times) == 1
        return seen_once and is_plain_call(request.record, answer.record, self._window)

    def _remember(self, sighting: Sighting) -> None:
        if sighting.message_id is not None:
            self._given_out[_short(sighting.message_id)] = None
            if len(self._given_out) > MAX_KNOWN_MESSAGES:
                self._given_out.popitem(last=False)


def settled(records: Iterable[Record], window: timedelta, since: datetime) -> list[int]:
    """Find those records of one key that can be paired and judged without the others, whatever comes later.

    Args:
        records: the records so far, in order of time.
        window: see `pair`.
        since: records of this time or later may still come, and so may copies of those of this time or later.

    Returns:
        the numbers of the records, in order, counted from 0.
    """
    stretch = Sightings(window)
    numbers: dict[Sighting, list[int]] = {}
    announced: dict[str, set[Sighting]] = {}
    by_alias: dict[str, set[Sighting]] = {}
    for number, record in enumerate(records):
        sighting, found = stretch.add(record), keys(record)
        numbers.setdefault(sighting, []).append(number)
        if found.announces is not None:
            announced.setdefault(found.announces, set()).add(sighting)
        if found.by_alias:
            by_alias.setdefault(found.key, set()).add(sighting)
    # What repeats the message id of a request has its key only together with the request.
    ties = [each | by_alias[name] for name, each in announced.items() if name in by_alias]
    kept: set[Sighting] = set()
    while True:
        kept = _find_unsettled(stretch.messages, window, since, kept)
        torn = [each for each in ties if not kept.isdisjoint(each) and not kept.issuperset(each)]
        if not torn:
            return sorted(number for each, some in numbers.items() if each not in kept for number in some)
        kept.update(*torn)


HALVES: Final = frozenset({Pattern.REQUEST_RESPONSE, Pattern.RESPONSE_ONLY})


def _find_partners(messages: list[Sighting], window: timedelta) -> tuple[dict[Sighting, Order], dict[Sighting, Order]]:
    """Set the partners of messages, and mark those without one that have one but for its destination.

    Return the order of the former pairs by message, and that of the latter.
    """
    reach, reach_of_strays = dict[Sighting, Order](), dict[Sighting, Order]()
    for request, answer, order in nearest_pairs(messages, window):
        request.partner, answer.partner, answer.is_answer = answer, request, True
        reach[request] = reach[answer] = order
    alone = [*filter(_is_alone, messages)]
    for request, answer, order in nearest_pairs(alone, window, any_place=True) if len(alone) > 1 else ():
        request.misdirected = answer.misdirected = True
        reach_of_strays[request] = reach_of_strays[answer] = order
    return reach, reach_of_strays


def _find_unsettled(
    messages: list[Sighting], window: timedelta, since: datetime, known: Iterable[Sighting] = ()
) -> set[Sighting]:
    """Pair messages; return those that a message of some time or later can change, and those that depend on them."""
    reach, reach_of_strays = _find_partners(messages, window)
    kept = unsettled(messages, reach, window, since, known=known)
    strays = [each for each in messages if each in kept or _is_alone(each)]
    return unsettled(strays, reach_of_strays, window, since, known=kept, any_place=True)


def _is_alone(message: Sighting) -> bool:
    """Say whether a message is a request or a response without a partner."""
    return message.partner is None and pattern_alone(message.record) in HALVES


def _short(message_id: str) -> bytes:
    """Return a digest of an id, which may be of any length."""
    return sha256(message_id.encode("utf-8", "surrogatepass")).digest()


def _exchange(sighting: Sighting) -> Exchange:
    record, partner = sighting.record, sighting.partner
    if partner is not None:
        return Exchange(
            id=exchange_id(record),
            pattern=Pattern.REQUEST_RESPONSE,
            request=record,
            response=partner.record,
            records=sighting.records + partner.records,
        )
    pattern = pattern_alone(record)
    answers = pattern is Pattern.RESPONSE_ONLY
    return Exchange(
        id=exchange_id(record),
        pattern=pattern,
        request=None if answers else record,
        response=record if answers else None,
        records=sighting.records,
        misdirected=sighting.misdirected,
    )
