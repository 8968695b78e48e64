"""Who captured a message, when by whose clock, and what each of them knew: from a call to the lines of a log.

Spec: capture record, version 1.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import Final, NamedTuple

from soapjms.generate.calls import Call
from soapjms.generate.shapes import Answer, Seen
from soapjms.generate.violations import Members
from soapjms.protocol.exchange import DEFAULT_WINDOW
from soapjms.protocol.record import Direction, Node

SECOND: Final = 1_000_000
"""Microseconds, as all times in here."""
LATENCY: Final = 0.08 * SECOND
SERVICE_CLOCK: Final = -4_000
"""The service's clock is behind: it captures some requests before their client does."""
ON_THE_WAY: Final = 3_000
WINDOW: Final = DEFAULT_WINDOW.total_seconds() * SECOND


class Written:
    """A message as all its captures have it.

    Attributes:
        members: of the capture record, but for the body.
        body: None where it is in `members`, as that of a map is.
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
        """The members as JSON, without the brace before them."""
        if self._text is None:
            body = {"body": b64encode(self.body).decode("ascii")} if isinstance(self.body, bytes) else {}
            self._text = _ENCODER.encode({**self.members, **body})[1:]
        return self._text


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Line(NamedTuple):
    """One capture of a message: when, who captured it, what it is, where that was known."""

    time: int
    node: Node
    direction: Direction | None
    message: Written

    def to_json(self) -> str:
        """Write it as a line of a log, without its end."""
        stated = f'"direction":"{self.direction}",' if self.direction else ""
        return f'{{"v":1,"time":"{format_microseconds(self.time)}",{stated}"node":"{self.node}",{self.message.text}'


class _View(NamedTuple):
    """One capture of a message: how much later than it passed, by whom, and whether direction and id were known."""

    delay: int
    node: Node
    knows_direction: bool = True
    over_stomp: bool = False


_CLIENT: Final = _View(0, Node.REQUESTING)
_TAP: Final = _View(1_000, Node.TAP, knows_direction=False)
_SERVICE: Final = _View(ON_THE_WAY + SERVICE_CLOCK, Node.RESPONDING)
_STOMP_CLIENT: Final = _View(0, Node.REQUESTING, over_stomp=True)

VIEWS: Final = {
    Seen.TAP: (_TAP,),
    Seen.NODES: (_CLIENT, _SERVICE),
    Seen.ALL: (_CLIENT, _TAP, _SERVICE),
    Seen.STOMP: (_STOMP_CLIENT, _SERVICE),
}
ONE_WAY_NODES: Final = {Node.REQUESTING: Node.SENDING, Node.RESPONDING: Node.RECEIVING, Node.TAP: Node.TAP}


def lines(call: Call, random: Random) -> Iterator[Line]:
    """Give out all captures of a call's messages."""
    shape = call.shape
    one_way = shape.answer is Answer.NONE
    views = VIEWS[Seen.NODES if one_way and shape.seen is Seen.STOMP else shape.seen]
    direction = Direction.ONE_WAY if one_way else Direction.REQUEST
    if call.earlier is not None:
        early = call.sent - int((5 + 20 * random.random()) * SECOND)
        yield from _captured(call.earlier, early, direction, [_TAP if shape.seen is Seen.TAP else _CLIENT])
    yield from _captured(call.request, call.sent, direction, views)
    answered = call.sent + int(2_000 + random.expovariate(1 / LATENCY))
    if shape.redelivered and _SERVICE in views:
        again = call.sent + int((1 + 4 * random.random()) * SECOND)
        answered += again - call.sent
        message = {**call.request, "jms": {**call.request["jms"], "redelivered": True}}
        yield from _captured(message, again, direction, [_SERVICE])
    if call.response is not None:
        if shape.answer is Answer.LATE:
            answered += int(WINDOW) + 60 * SECOND
        yield from _captured(call.response, answered, Direction.RESPONSE, _of_response(views))


def _of_response(views: tuple[_View, ...]) -> list[_View]:
    """Of a response the client knows the id."""
    return [each._replace(delay=ON_THE_WAY - each.delay, over_stomp=False) for each in views]


def _captured(
    message: Members, time: int, direction: Direction, views: tuple[_View, ...] | list[_View]
) -> Iterator[Line]:
    written = Written(message)
    for view in views:
        node = ONE_WAY_NODES[view.node] if direction is Direction.ONE_WAY else view.node
        known = direction if view.knows_direction else None
        hidden = view.over_stomp and "correlation_id" in message["jms"]
        yield Line(time + view.delay, node, known, Written(_over_stomp(message)) if hidden else written)


def _over_stomp(message: Members) -> Members:
    """A STOMP sender never learns the JMSMessageID, and properties are strings to it."""
    properties = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in message["properties"].items()
    }
    jms = {name: value for name, value in message["jms"].items() if name != "message_id"}
    return {**message, "jms": jms, "properties": properties, "untyped": True}


def format_microseconds(time: int) -> str:
    """Write a time in microseconds since 1970 as RFC 3339."""
    seconds, rest = divmod(time, SECOND)
    return f"{_second(seconds)}.{rest:06}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
