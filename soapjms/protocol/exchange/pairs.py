"""Pairing messages: which response belongs to which request.

Responses are matched to requests by time, the nearest first, in n log n steps. A response may belong to a request if
its correlation id equals the request's correlation id or message id and, if both are known, its destination equals the
request's reply destination. The nearest request and response that are both free become a pair, and so on.

Requests and responses that may all belong to each other form a lane, in order of time. In a lane the nearest two are
neighbours; once they are paired, the messages left and right of them become neighbours. So a heap of neighbours is
enough. Pairs made in other lanes need not be removed from it: an outdated entry is replaced when it comes up, as
neighbours only move apart.

So a message looks for its partner no farther than the one it has, or than the window. If no message that may still
change is within this reach, its partner is settled, whatever comes later.

Spec: capture record, "Copies and pairing".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Any, Final, TypeAlias

from brokers.message import Destination
from soapjms.protocol.exchange.copies import Sighting
from soapjms.protocol.exchange.model import is_request
from soapjms.protocol.record import Direction

Lane: TypeAlias = tuple[list[Sighting], list[Sighting]]
"""Requests and responses."""
Order: TypeAlias = tuple[timedelta, datetime, datetime, tuple[str, int], tuple[str, int]]
"""Of a request and a response: the distance in time, their times, and their ranks. The least is paired first."""


def nearest_pairs(
    messages: Iterable[Sighting], window: timedelta, *, any_place: bool = False
) -> Iterator[tuple[Sighting, Sighting, Order]]:
    """Yield requests with their responses, and their order: the nearest first, of equally near ones the earliest.

    Args:
        messages: the messages to pair. One without direction may be either, if its headers allow it.
        window: the longest time between a request and its response.
        any_place: True to ignore the destination of the response.
    """
    matching = _Matching(window)
    for requests, answers in _lanes(messages, any_place):
        matching.add(requests, answers)
    return matching.pairs()


def _may_answer(sighting: Sighting) -> bool:
    """Say whether a message may be a response."""
    record = sighting.record
    return record.direction in (None, Direction.RESPONSE) and bool(record.message.correlation_id)


# Lanes


def _lanes(messages: Iterable[Sighting], any_place: bool) -> Iterator[Lane]:
    """Sort messages into lanes: a request and a response that may belong together share at least one lane.

    The key of a lane is an id and a place in a tuple. An empty tuple stands for every place: there a response with an
    unknown destination meets all requests. A response with a known destination meets the requests that name it as their
    reply destination or name none.
    """
    lanes: dict[tuple[str, tuple[str | None, ...]], Lane] = {}
    free = list(messages)
    for answer in filter(_may_answer, free):
        seen = _name(answer.record.message.destination)
        for place in [()] if any_place or seen is None else [(seen,), (None,)]:
            lanes.setdefault((answer.record.message.correlation_id or "", place), ([], []))[1].append(answer)
    for request in free:
        if not is_request(request.record):
            continue
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

    def pairs(self) -> Iterator[tuple[Sighting, Sighting, Order]]:
        """Yield the pairs, the nearest first."""
        while self._heap:
            order, _, wants, request, has, answer = heappop(self._heap)
            if request not in self._taken and answer not in self._taken:
                self._taken.update((request, answer))
                yield request, answer, order
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


# What is settled

MAX_SWEEPS: Final = 10
"""Number of times that all messages are looked at for those that depend on others."""


def unsettled(
    messages: Iterable[Sighting],
    reach: Mapping[Sighting, Order],
    window: timedelta,
    since: datetime,
    *,
    known: Iterable[Sighting] = (),
    any_place: bool = False,
) -> set[Sighting]:
    """Return the messages that may yet get another partner, or one at all.

    Args:
        messages, window, any_place: as for `nearest_pairs`.
        reach: the messages that have a partner, with the order that the pair was found in.
        since: messages of this time or later may still change, and others may come.
        known: messages that are known to be unsettled.
    """
    free = list(messages)
    lanes = [*_lanes(free, any_place)]
    farthest = (window + timedelta.resolution,)  # after all pairs within the window
    within: dict[Sighting, tuple[Any, ...]] = {each: reach.get(each, farthest) for each in free}
    found = {*known, *(each for each in free if since - each.times[-1] <= within[each][0])}
    for _ in range(MAX_SWEEPS):
        before = len(found)
        for requests, answers in lanes:
            for side, others in ((answers, requests), (requests, answers)):
                ranks = _ranks(others, found)
                times = sorted(ranks)
                for each in side if times else ():
                    if each not in found:
                        near = _nearest(each, times, ranks, asks=side is requests)
                        if any(order <= within[each] for order in near):
                            found.add(each)
        if len(found) == before:
            return found
    return {*free, *found}


def _ranks(side: Iterable[Sighting], among: set[Sighting]) -> dict[datetime, tuple[str, int]]:
    """Return the times of some messages of a side, each with the least rank of those that have it."""
    found: dict[datetime, tuple[str, int]] = {}
    for each in side:
        if each in among:
            rank = each.rank
            found.update((time, min(rank, found.get(time, rank))) for time in each.times)
    return found


def _nearest(
    message: Sighting, times: Sequence[datetime], ranks: Mapping[datetime, tuple[str, int]], *, asks: bool
) -> Iterator[Order]:
    """Yield the orders of a message with its nearest partners of the other side: those just before it and after.

    Args:
        message: the message.
        times: the times of the other side, in order.
        ranks: the least rank at each of them.
        asks: True if the message is the request.
    """
    for time in message.times:
        at = bisect_left(times, time)
        for other in times[max(0, at - 1) : at + 1]:
            if asks:
                yield abs(time - other), time, other, message.rank, ranks[other]
            else:
                yield abs(time - other), other, time, ranks[other], message.rank
