"""Pairing: a stream of the records of one key in, exchanges out.

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

from soapjms.protocol.exchange.keys import is_request, keys
from soapjms.protocol.exchange.matching import nearest_pairs
from soapjms.protocol.exchange.model import DEFAULT_WINDOW, Exchange, Pattern, exchange_id, pattern_alone
from soapjms.protocol.exchange.sightings import Sighting, Sightings
from soapjms.protocol.record import Direction, Record

REMEMBERED: Final = 100_000
"""Messages of one key of which the id is remembered after they were given out, to know their late copies."""
KEPT_BACK: Final = 100
"""Requests of one key that are kept back without their response, in case they are delivered again and answered."""


def exchanges_of(records: Iterable[Record], window: timedelta = DEFAULT_WINDOW) -> Iterator[Exchange]:
    """Merge and pair records in memory, in whatever order they are: what an engine does with those of a log.

    Args:
        records: what was captured, all of it.
        window: see `pair`.

    Yields:
        the exchanges, in the order of their keys.
    """
    found = [(keys(record), record) for record in records]
    aliases: dict[str, str] = {}
    for each, _ in found:
        if each.announces is not None:
            aliases[each.announces] = min(each.key, aliases.get(each.announces, each.key))
    keyed = [(aliases.get(each.key, each.key) if each.by_alias else each.key, record) for each, record in found]
    keyed.sort(key=lambda each: (each[0], each[1].time))
    for _, group in groupby(keyed, key=itemgetter(0)):
        yield from pair((record for _, record in group), window)


def pair(records: Iterable[Record], window: timedelta = DEFAULT_WINDOW) -> Iterator[Exchange]:
    """Merge and pair the records of one key.

    Args:
        records: in order of time. A silence longer than the window ends a stretch, whose exchanges are given out,
            so that a key that recurs for weeks needs the memory of one stretch. Of what was given out the message
            ids are remembered, and a few requests without response are kept back: a message that is captured again
            after a silence is no new one.
        window: how far apart a request and its response may be, and copies of which one lacks the message id.

    Yields:
        every message once, in an exchange, and late copies of what was given out before, one by one. Nothing is
        dropped: the `records` of all add up to those that came in.
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
    """Say whether two messages that are alone with their key are, beyond doubt, a request and its response.

    Nearly all are. `nearest_pairs` says the same of them, and takes its time for it.
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
    """The records of one key: a stretch under construction, and what is remembered of those before."""

    def __init__(self, window: timedelta) -> None:
        self._window = window
        self._newest: datetime | None = None
        self._stretch = Sightings(window)
        self._kept_back: OrderedDict[str, Sighting] = OrderedDict()
        self._given_out: OrderedDict[bytes, None] = OrderedDict()

    def add(self, record: Record) -> Iterator[Exchange]:
        """Take in a record and give out what it ends."""
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
        """Give out everything."""
        messages = [*self._kept_back.values(), *self._paired()]
        return (_exchange(each) for each in messages if not each.is_answer)

    def _settle(self) -> Iterator[Exchange]:
        """End the stretch: give out its exchanges in the order of their first messages, remember their ids."""
        for each in self._paired():
            if each.message_id and each.partner is None and pattern_alone(each.record) is Pattern.REQUEST_RESPONSE:
                self._kept_back[each.message_id] = each
                continue
            self._remember(each)
            if not each.is_answer:
                yield _exchange(each)
        while len(self._kept_back) > KEPT_BACK:
            _, oldest = self._kept_back.popitem(last=False)
            self._remember(oldest)
            yield _exchange(oldest)

    def _paired(self) -> list[Sighting]:
        """Pair the messages of the stretch and begin the next one."""
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
            if len(self._given_out) > REMEMBERED:
                self._given_out.popitem(last=False)


HALVES: Final = frozenset({Pattern.REQUEST_RESPONSE, Pattern.RESPONSE_ONLY})


def _short(message_id: str) -> bytes:
    """Shorten an id, which may be of any length."""
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
