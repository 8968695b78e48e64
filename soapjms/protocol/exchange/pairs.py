"""Pairing: turns a stream of the records of one key into exchanges.

Responses are matched to requests by time, the nearest first, in n log n steps. A response may belong to a request if
its correlation id equals the request's correlation id or message id and, if both are known, its destination equals the
request's reply destination. The nearest request and response that are both free become a pair, and so on.

Requests and responses that may all belong to each other form a lane, in order of time. In a lane the nearest two are
neighbours; once they are paired, the messages left and right of them become neighbours. So a heap of neighbours is
enough. Pairs made in other lanes need not be removed from it: an outdated entry is replaced when it comes up, as
neighbours only move apart.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from heapq import heappop, heappush
from itertools import chain, count, groupby, islice, pairwise
from operator import itemgetter
from typing import Final, TypeAlias

from brokers.message import Destination
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
from soapjms.protocol.record import Direction, Record

Lane: TypeAlias = tuple[list[Sighting], list[Sighting]]
"""Requests and responses."""


def nearest_pairs(
    messages: Iterable[Sighting], window: timedelta, *, any_place: bool = False
) -> Iterator[tuple[Sighting, Sighting]]:
    """Yield requests with their responses, the nearest first; of several equally near pairs the earliest.

    Args:
        messages: the messages to pair. One without direction may be either, if its headers allow it.
        window: the longest time between a request and its response.
        any_place: True to ignore the destination of the response.
    """
    free = list(messages)
    asking = [each for each in free if is_request(each.record)]
    answering = [each for each in free if may_answer(each)]
    matching = _Matching(window)
    for requests, answers in _lanes(asking, answering, any_place):
        matching.add(requests, answers)
    return matching.pairs()


def may_answer(sighting: Sighting) -> bool:
    """Say whether a message may be a response."""
    record = sighting.record
    return record.direction in (None, Direction.RESPONSE) and bool(record.message.correlation_id)


# Lanes


def _lanes(asking: list[Sighting], answering: list[Sighting], any_place: bool) -> Iterator[Lane]:
    """Sort messages into lanes: a request and a response that may belong together share at least one lane.

    The key of a lane is an id and a place in a tuple. An empty tuple stands for every place: there a response with an
    unknown destination meets all requests. A response with a known destination meets the requests that name it as their
    reply destination or name none.
    """
    lanes: dict[tuple[str, tuple[str | None, ...]], Lane] = {}
    for answer in answering:
        seen = _name(answer.record.message.destination)
        for place in [()] if any_place or seen is None else [(seen,), (None,)]:
            lanes.setdefault((answer.record.message.correlation_id or "", place), ([], []))[1].append(answer)
    for request in asking:
        sent = request.record.message
        for name in {sent.correlation_id, sent.message_id}:
            for place in ((), (_name(sent.reply_to),)):
                if name and (lane := lanes.get((name, place))) is not None:
                    lane[0].append(request)
    for requests, answers in lanes.values():
        yield from _told_apart(requests, answers)


def _name(destination: Destination | None) -> str | None:
    return None if destination is None else destination.name


def _told_apart(requests: list[Sighting], answers: list[Sighting]) -> Iterator[Lane]:
    """Split a lane in which a response may be a repeated request: a message without direction, with the same reply_to.

    The numbers of two different reply destinations differ in some bit, so one lane for each bit and each of its values
    brings together all messages with different reply destinations, and no others.
    """
    unlike = [each for each in answers if _may_repeat(each)]
    yield requests, [each for each in answers if not _may_repeat(each)] if unlike else answers
    if not unlike:
        return
    numbers: dict[Destination | None, int] = {}
    for each in (*requests, *unlike):
        numbers.setdefault(each.record.message.reply_to, len(numbers))
    for bit in range((len(numbers) - 1).bit_length()):
        for value in (0, 1):
            yield (
                [each for each in requests if numbers[each.record.message.reply_to] >> bit & 1 == value],
                [each for each in unlike if numbers[each.record.message.reply_to] >> bit & 1 != value],
            )


def _may_repeat(answer: Sighting) -> bool:
    return answer.record.direction is None and answer.record.message.reply_to is not None


# Neighbours


class _Spot:
    """The messages of a lane with the same time, the best of each side last."""

    __slots__ = ("after", "answers", "before", "closed", "requests", "time")

    def __init__(self, time: datetime) -> None:
        self.time = time
        self.requests: list[Sighting] = []
        self.answers: list[Sighting] = []
        self.before: _Spot | None = None
        self.after: _Spot | None = None
        self.closed = False


Order: TypeAlias = tuple[timedelta, datetime, datetime, tuple[str, int], tuple[str, int]]
"""The distance in time, the times of the request and the response, and their ranks."""


class _Matching:
    """Pairs the messages of any number of lanes. A message that is paired in one lane is removed from all."""

    def __init__(self, window: timedelta) -> None:
        self._window = window
        self._taken: set[Sighting] = set()
        self._heap: list[tuple[Order, int, _Spot, Sighting, _Spot, Sighting]] = []
        self._entries = count()

    def add(self, requests: list[Sighting], answers: list[Sighting]) -> None:
        """Add a lane, in which every request may belong to every answer."""
        if not requests or not answers:
            return
        spots: dict[datetime, _Spot] = {}
        for request in requests:
            for time in request.times:
                spots.setdefault(time, _Spot(time)).requests.append(request)
        for answer in answers:
            for time in answer.times:
                spots.setdefault(time, _Spot(time)).answers.append(answer)
        ordered = [spots[time] for time in sorted(spots)]
        for spot in ordered:
            spot.requests.sort(key=lambda each: each.rank, reverse=True)
            spot.answers.sort(key=lambda each: each.rank, reverse=True)
            self._push(spot, spot)
        for left, right in pairwise(ordered):
            self._join(left, right)

    def pairs(self) -> Iterator[tuple[Sighting, Sighting]]:
        """Yield the pairs, the nearest first."""
        while self._heap:
            _, _, wants, request, has, answer = heappop(self._heap)
            if request not in self._taken and answer not in self._taken:
                self._taken.update((request, answer))
                yield request, answer
            self._push(wants, has)
            for spot in (wants, has):
                if not spot.closed and self._is_empty(spot):
                    self._close(spot)

    def _push(self, wants: _Spot, has: _Spot) -> None:
        """Push the best request of one spot with the best answer of another, if both exist within the window."""
        request, answer = self._best(wants.requests), self._best(has.answers)
        apart = abs(has.time - wants.time)
        if request is not None and answer is not None and apart <= self._window:
            order = apart, wants.time, has.time, request.rank, answer.rank
            heappush(self._heap, (order, next(self._entries), wants, request, has, answer))

    def _best(self, side: list[Sighting]) -> Sighting | None:
        while side and side[-1] in self._taken:
            side.pop()
        return side[-1] if side else None

    def _is_empty(self, spot: _Spot) -> bool:
        return self._best(spot.requests) is None and self._best(spot.answers) is None

    def _join(self, left: _Spot | None, right: _Spot | None) -> None:
        """Make two spots neighbours; None stands for the end of the lane."""
        if left is not None:
            left.after = right
        if right is not None:
            right.before = left
        if left is not None and right is not None:
            self._push(left, right)
            self._push(right, left)

    def _close(self, spot: _Spot) -> None:
        """Remove an empty spot and the empty spots beside it from their lane, and join the new neighbours.

        Each spot is passed over once, as no remaining spot points to a closed one.
        """
        spot.closed = True
        left, right = spot.before, spot.after
        while left is not None and self._is_empty(left):
            left.closed, left = True, left.before
        while right is not None and self._is_empty(right):
            right.closed, right = True, right.after
        self._join(left, right)


MAX_KNOWN_MESSAGES: Final = 100_000
"""Maximum number of message ids remembered per key after their messages were yielded, to recognize late copies."""
MAX_KEPT_REQUESTS: Final = 100
"""Maximum number of unanswered requests held per key, for redelivery."""


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
            yielded, so that a key that recurs for weeks needs the memory of one stretch only. The ids of yielded
            messages are remembered, and a few requests without response are kept back, so that a message that is
            captured again after a silence does not count as a new one.
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
        self._kept_back: OrderedDict[str, Sighting] = OrderedDict()
        self._given_out: OrderedDict[bytes, None] = OrderedDict()

    def add(self, record: Record) -> Iterator[Exchange]:
        """Add a record, and yield the exchanges of a stretch that it ends."""
        if self._newest is not None and record.time - self._newest > self._window:
            yield from self._settle()
        self._newest = record.time if self._newest is None else max(record.time, self._newest)
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

    def _settle(self) -> Iterator[Exchange]:
        """End the stretch: yield its exchanges in the order of their first messages, and remember their ids."""
        for each in self._paired():
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
            return messages
        for request, answer in nearest_pairs(messages, self._window):
            request.partner, answer.partner, answer.is_answer = answer, request, True
        alone = [each for each in messages if each.partner is None and pattern_alone(each.record) in HALVES]
        for request, answer in nearest_pairs(alone, self._window, any_place=True) if len(alone) > 1 else ():
            request.misdirected = answer.misdirected = True
        return messages

    def _are_plain_call(self, request: Sighting, answer: Sighting) -> bool:
        seen_once = len(request.times) == len(answer.times) == 1
        return seen_once and is_plain_call(request.record, answer.record, self._window)

    def _remember(self, sighting: Sighting) -> None:
        if sighting.message_id is not None:
            self._given_out[_short(sighting.message_id)] = None
            if len(self._given_out) > MAX_KNOWN_MESSAGES:
                self._given_out.popitem(last=False)


HALVES: Final = frozenset({Pattern.REQUEST_RESPONSE, Pattern.RESPONSE_ONLY})


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
