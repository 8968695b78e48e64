"""Which response belongs to which request: the nearest in time first, in n log n.

A response may belong to a request whose correlation id or message id its correlation id equals; where both are known,
its destination has to be the request's reply destination. The nearest two that are both free become a pair, and so on.

Requests and responses of which every one may belong to every other stand in a lane, in order of time. There the nearest
two are neighbours; when they are gone, those left and right of them become neighbours. So a heap of neighbours is
enough, and it need not be told what was paired in another lane: an entry that is out of date is replaced when it comes
up, as neighbours only move apart.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import TypeAlias

from brokers.message import Destination
from soapjms.protocol.exchange.keys import is_request
from soapjms.protocol.exchange.sightings import Sighting
from soapjms.protocol.record import Direction

Lane: TypeAlias = tuple[list[Sighting], list[Sighting]]
"""Requests and responses."""


def nearest_pairs(
    messages: Iterable[Sighting], window: timedelta, *, any_place: bool = False
) -> Iterator[tuple[Sighting, Sighting]]:
    """Yield requests with their responses, the nearest first; of several that are equally near the earliest.

    Args:
        messages: those to pair. One without direction may be either, if its headers allow.
        window: how far apart they may be.
        any_place: let the response have come to whatever destination.
    """
    free = list(messages)
    asking = [each for each in free if is_request(each.record)]
    answering = [each for each in free if may_answer(each)]
    matching = _Matching(window)
    for requests, answers in _lanes(asking, answering, any_place):
        matching.add(requests, answers)
    return matching.pairs()


def may_answer(sighting: Sighting) -> bool:
    """Say whether a message may be a response to something."""
    record = sighting.record
    return record.direction in (None, Direction.RESPONSE) and bool(record.message.correlation_id)


# Lanes


def _lanes(asking: list[Sighting], answering: list[Sighting], any_place: bool) -> Iterator[Lane]:
    """Sort messages into lanes: each request and response that may belong together meet in one of them at least.

    A lane has an id, and a place in a tuple, which is empty for everywhere: there a response whose destination is
    unknown meets all requests. One whose destination is known meets those that want it there or do not say where.
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
    """Split a lane in which a message may be the same request, sent again: one without direction and with its reply_to.

    Two different reply destinations have numbers that differ in some bit, so a lane for each bit and each value of it
    brings together what differs, and nothing else.
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
    """The messages of a lane that were seen at one time, the best of each side last."""

    __slots__ = ("after", "answers", "before", "closed", "requests", "time")

    def __init__(self, time: datetime) -> None:
        self.time = time
        self.requests: list[Sighting] = []
        self.answers: list[Sighting] = []
        self.before: _Spot | None = None
        self.after: _Spot | None = None
        self.closed = False


Order: TypeAlias = tuple[timedelta, datetime, datetime, tuple[str, int], tuple[str, int]]
"""How far apart, when the request and the response were seen, and their ranks."""


class _Matching:
    """Pairs the messages of any number of lanes. A message that is paired in one is gone from all."""

    def __init__(self, window: timedelta) -> None:
        self._window = window
        self._taken: set[Sighting] = set()
        self._heap: list[tuple[Order, int, _Spot, Sighting, _Spot, Sighting]] = []
        self._entries = count()

    def add(self, requests: list[Sighting], answers: list[Sighting]) -> None:
        """Take in a lane, in which every request may belong to every answer."""
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
        """Remember the best request of one spot with the best answer of another, if both have one."""
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
        """Make two spots neighbours; None is the end of the lane."""
        if left is not None:
            left.after = right
        if right is not None:
            right.before = left
        if left is not None and right is not None:
            self._push(left, right)
            self._push(right, left)

    def _close(self, spot: _Spot) -> None:
        """Take an empty spot out of its lane, and those beside it that are empty: new neighbours meet.

        Each spot is passed over once: nothing that stays points to one that is closed.
        """
        spot.closed = True
        left, right = spot.before, spot.after
        while left is not None and self._is_empty(left):
            left.closed, left = True, left.before
        while right is not None and self._is_empty(right):
            right.closed, right = True, right.after
        self._join(left, right)
