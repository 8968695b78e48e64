"""Makes calls one after another, and orders their captures as the lines of a log, with labels and expected totals.

This file decides who captured a message, when and by whose clock, what each of them knew, and what a replay must find.
It holds in memory the lines of some seconds, and late answers.

Spec: capture record, version 1, "Verdicts".
"""

from __future__ import annotations

import json
from base64 import b64encode
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from heapq import heappop, heappush
from itertools import accumulate
from random import Random
from typing import Any, Final, NamedTuple

from soapjms.generate.calls import Caller, GeneratedCall
from soapjms.generate.shapes import AnswerKind, CaptureSides, draw
from soapjms.generate.table import VIOLATIONS
from soapjms.generate.violations import Members, Violation
from soapjms.protocol.assertions import ASSERTIONS, Level, VerdictOutcome
from soapjms.protocol.exchange import DEFAULT_WINDOW
from soapjms.protocol.names import Profile, profile
from soapjms.protocol.record import Direction, Node

SECOND_MICROSECONDS: Final = 1_000_000
"""Microseconds in a second; all times in this file are in microseconds."""
LATENCY: Final = 0.08 * SECOND_MICROSECONDS
SERVICE_CLOCK_MICROSECONDS: Final = -4_000
"""Skew of the service's clock: it is behind, so the service seems to capture some requests before their client."""
TRANSIT_MICROSECONDS: Final = 3_000
WINDOW: Final = DEFAULT_WINDOW.total_seconds() * SECOND_MICROSECONDS


class WrittenMessage:
    """The part of a message that all its captures share.

    Attributes:
        members: the members of the capture record.
        body: the body as octets or text; None if only `members` has it, as for a map.
    """

    __slots__ = ("_text", "body", "members")

    def __init__(self, message: Members) -> None:
        body = message["body"]
        self.members = message
        self.body: bytes | str | None = body if isinstance(body, bytes | str) else None
        if self.body is not None:
            octets = self.body.encode() if isinstance(self.body, str) else self.body
            self.members = {**message, "sha256": sha256(octets).hexdigest()}
        self._text: str | None = None

    @property
    def text(self) -> str:
        """The members as JSON, without the opening brace."""
        if self._text is None:
            body = {"body": b64encode(self.body).decode("ascii")} if isinstance(self.body, bytes) else {}
            self._text = _ENCODER.encode({**self.members, **body})[1:]
        return self._text


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class TrafficLine(NamedTuple):
    """One capture of a message: its time, the node that captured it, and the direction if that node knew it."""

    time: int
    node: Node
    direction: Direction | None
    message: WrittenMessage

    def to_json(self) -> str:
        """Return the line of the log, without its line break."""
        stated = f'"direction":"{self.direction}",' if self.direction else ""
        return f'{{"v":1,"time":"{format_microseconds(self.time)}",{stated}"node":"{self.node}",{self.message.text}'


class _View(NamedTuple):
    """How a node captures messages: its delay, and whether it knows their direction and speaks STOMP."""

    delay: int
    node: Node
    knows_direction: bool = True
    over_stomp: bool = False


_CLIENT: Final = _View(0, Node.REQUESTING)
_TAP: Final = _View(1_000, Node.TAP, knows_direction=False)
_SERVICE: Final = _View(TRANSIT_MICROSECONDS + SERVICE_CLOCK_MICROSECONDS, Node.RESPONDING)
_STOMP_CLIENT: Final = _View(0, Node.REQUESTING, over_stomp=True)

VIEWS: Final = {
    CaptureSides.TAP: (_TAP,),
    CaptureSides.NODES: (_CLIENT, _SERVICE),
    CaptureSides.ALL: (_CLIENT, _TAP, _SERVICE),
    CaptureSides.STOMP: (_STOMP_CLIENT, _SERVICE),
}
ONE_WAY_NODES: Final = {Node.REQUESTING: Node.SENDING, Node.RESPONDING: Node.RECEIVING, Node.TAP: Node.TAP}


def lines(call: GeneratedCall, random: Random) -> Iterator[TrafficLine]:
    """Yield all captures of a call's messages."""
    shape = call.shape
    one_way = shape.answer is AnswerKind.NONE
    views = VIEWS[CaptureSides.NODES if one_way and shape.seen is CaptureSides.STOMP else shape.seen]
    direction = Direction.ONE_WAY if one_way else Direction.REQUEST
    if call.earlier is not None:
        early = call.sent - int((5 + 20 * random.random()) * SECOND_MICROSECONDS)
        yield from _captured(call.earlier, early, direction, [_TAP if shape.seen is CaptureSides.TAP else _CLIENT])
    yield from _captured(call.request, call.sent, direction, views)
    answered = call.sent + int(2_000 + random.expovariate(1 / LATENCY))
    if shape.redelivered and _SERVICE in views:
        again = call.sent + int((1 + 4 * random.random()) * SECOND_MICROSECONDS)
        answered += again - call.sent
        message = {**call.request, "jms": {**call.request["jms"], "redelivered": True}}
        yield from _captured(message, again, direction, [_SERVICE])
    if call.response is not None:
        if shape.answer is AnswerKind.LATE:
            answered += int(WINDOW) + 60 * SECOND_MICROSECONDS
        yield from _captured(call.response, answered, Direction.RESPONSE, _of_response(views))


def _of_response(views: tuple[_View, ...]) -> list[_View]:
    """Return the views of a response; a client over STOMP knows its message id."""
    return [each._replace(delay=TRANSIT_MICROSECONDS - each.delay, over_stomp=False) for each in views]


def _captured(
    message: Members, time: int, direction: Direction, views: tuple[_View, ...] | list[_View]
) -> Iterator[TrafficLine]:
    written = WrittenMessage(message)
    for view in views:
        node = ONE_WAY_NODES[view.node] if direction is Direction.ONE_WAY else view.node
        known = direction if view.knows_direction else None
        hidden = view.over_stomp and "correlation_id" in message["jms"]
        yield TrafficLine(time + view.delay, node, known, WrittenMessage(_over_stomp(message)) if hidden else written)


def _over_stomp(message: Members) -> Members:
    """Return a message as its STOMP sender sees it: without JMSMessageID, and with strings as properties."""
    properties = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in message["properties"].items()
    }
    jms = {name: value for name, value in message["jms"].items() if name != "message_id"}
    return {**message, "jms": jms, "properties": properties, "untyped": True}


def format_microseconds(time: int) -> str:
    """Write a time in microseconds since 1970 as RFC 3339."""
    seconds, rest = divmod(time, SECOND_MICROSECONDS)
    return f"{_second(seconds)}.{rest:06}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


START: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)
MESSAGES_OF_A_CALL: Final = 1.85
EARLIEST: Final = 30 * SECOND_MICROSECONDS
"""Maximum time by which a line may precede its call: that of the earlier request that the call repeats."""


class Chances:
    """Draws violations by their shares."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rows = [VIOLATIONS[name] for name in rates]
        self._bounds = list(accumulate(rates.values()))

    def draw(self, random: Random) -> Violation | None:
        """Draw a violation; in most cases return None."""
        place = bisect(self._bounds, random.random())
        return self._rows[place] if place < len(self._rows) else None


def calls(caller: Caller, random: Random, chances: Chances, messages: int, pace: float) -> Iterator[GeneratedCall]:
    """Make calls with `messages` messages in total, at `pace` messages per second."""
    sent, left = int(START.timestamp()) * SECOND_MICROSECONDS, messages
    while left > 0:
        violation = chances.draw(random) if left > 1 else None
        wanted: dict[str, Any] = {"answer": AnswerKind.NONE} if left == 1 else {}
        if violation is not None:
            wanted = {"redelivered": False, **violation.wants}
        if violation is not None or left < 3:
            wanted["retried"] = False
        call = caller.call(draw(random, wanted), sent, violation)
        left -= len(call.messages)
        sent += int(random.expovariate(pace / MESSAGES_OF_A_CALL / SECOND_MICROSECONDS)) + 1
        yield call


class TrafficQueue:
    """The lines that are still to be written, in the order of writing.

    Args:
        random: the source of random numbers.
        disorder: maximum delay, in seconds, of a line in the log relative to its time.
    """

    def __init__(self, random: Random, disorder: float) -> None:
        self._random = random
        self._disorder = disorder * SECOND_MICROSECONDS
        self._waiting: list[tuple[int, int, TrafficLine]] = []
        self._count = 0

    def add(self, call: GeneratedCall) -> Iterator[TrafficLine]:
        """Add a call, and yield the lines that are written before it."""
        for line in lines(call, self._random):
            self._count += 1
            written = line.time + int(self._random.random() * self._disorder)
            heappush(self._waiting, (written, self._count, line))
        while self._waiting and self._waiting[0][0] < call.sent - EARLIEST:
            yield heappop(self._waiting)[2]

    def rest(self) -> Iterator[TrafficLine]:
        """Yield the remaining lines."""
        while self._waiting:
            yield heappop(self._waiting)[2]


MISSING: Final = "missingResponse"
"""The event of a request without a response, or without one within the window."""


@dataclass(slots=True)
class Totals:
    """The expected counts, named as in the summary of a replay.

    Attributes:
        violations: the number of exchanges with each violation of the table.
        assertions: the number of expected failed verdicts and warnings for each assertion.
    """

    records: int = 0
    messages: int = 0
    exchanges: int = 0
    one_way: int = 0
    missing: int = 0
    without_request: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    assertions: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, call: GeneratedCall) -> None:
        """Count the messages of a call."""
        answered = call.response is not None and call.shape.answer is not AnswerKind.LATE
        self.messages += len(call.messages)
        self.exchanges += answered
        self.one_way += call.shape.answer is AnswerKind.NONE
        self.missing += call.shape.answer in (AnswerKind.MISSING, AnswerKind.LATE)
        self.missing += call.earlier is not None
        self.without_request += call.shape.answer is AnswerKind.LATE

    def members(self) -> dict[str, Any]:
        """Return the members of expected.json."""
        assertions: dict[str, dict[str, int]] = {}
        for (name, verdict), number in sorted(self.assertions.items()):
            assertions.setdefault(name, {})[verdict] = number
        return {
            "records": self.records,
            "messages": self.messages,
            "copies": self.records - self.messages,
            "exchanges": self.exchanges,
            "one_way": self.one_way,
            "unpaired": {"missingResponses": self.missing, "responsesWithoutRequest": self.without_request},
            "violations": dict(sorted(self.violations.items())),
            "assertions": assertions,
        }


def labels(call: GeneratedCall, totals: Totals) -> list[str]:
    """Count and return the labels of a call as lines; a call without a violation that is answered has none."""
    found: list[dict[str, Any]] = []
    if call.violation is not None:
        broken = [_broken(call, *each, totals) for each in call.violation.broken(call.profile)]
        totals.violations[call.violation.name] += 1
        found.append({"exchange_id": call.id, "violation": call.violation.name, "broken": broken})
    if call.earlier is not None:
        found.append({"exchange_id": call.earlier["jms"]["message_id"], "event": MISSING})
    if call.shape.answer in (AnswerKind.MISSING, AnswerKind.LATE):
        found.append({"exchange_id": call.id, "event": MISSING})
    return [json.dumps(each, ensure_ascii=False) for each in found]


def _broken(call: GeneratedCall, carrier: str, assertion: str, totals: Totals) -> dict[str, str]:
    verdict = verdict_of(call.profile.name, assertion)
    totals.assertions[assertion, verdict] += 1
    message_id = call.message(carrier)["jms"]["message_id"]
    return {"message_id": message_id, "assertion": assertion, "verdict": verdict}


@lru_cache
def verdict_of(profile_name: str, assertion: str) -> str:
    """Return the verdict on a violation, by the profile's id of the assertion: a warning for a SHOULD, else failed."""
    return str(
        VerdictOutcome.WARNING if _level(profile(profile_name), assertion) is Level.SHOULD else VerdictOutcome.FAILED
    )


def _level(edition: Profile, assertion: str) -> Level:
    return next(row.level_in(edition) for row in ASSERTIONS if edition.assertion_id(row.id) == assertion)
