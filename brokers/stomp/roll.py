"""Which subscriptions of a session ActiveMQ Classic has ended: it says so on its advisory topics, and nowhere else.

With `abortSlowConsumerStrategy` and its like it ends a consumer that it finds slow, or idle, and writes nothing to a
STOMP client. But it tells all who listen to the advisory topic of a destination which consumers come and go there, by
the name of their session and a number: the first SUBSCRIBE of a session is 1. So a session listens there, one more
subscription for each destination that it consumes from, and knows its own.

Where nothing is heard of a subscription that was made, nothing will be: advisories are switched off, the user may not
read them, or the broker lacks the library that writes them down for STOMP (jettison). Then it is left alone until there
is another session.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from brokers.deadlines import Later
from brokers.errors import BrokerError
from brokers.message import Destination, DestinationKind, topic
from brokers.stomp.acceptance import Subscription
from brokers.stomp.frames import spell
from brokers.stomp.link import SUBSCRIBE, Link, Route, pack

log = logging.getLogger(__name__)

ADVISORIES: Final = {
    DestinationKind.QUEUE: "ActiveMQ.Advisory.Consumer.Queue.",
    DestinationKind.TOPIC: "ActiveMQ.Advisory.Consumer.Topic.",
}
"""What precedes the name of a destination in that of the topic where it is told who consumes from it."""

PATTERN: Final = re.compile(r"[*>,?]")
"""What is in a name that means several destinations, or holds options: of those the broker tells in another way."""

PATIENCE: Final = 10.0
"""Seconds after which what is not heard by then is not told at all."""

PREFETCH: Final = 1000
"""Advisories that may be on the way. They are taken as they come."""

SENDER: Final = re.compile(r"(ID:.+):-1:1:\d+")
"""The JMSMessageID of what is sent over STOMP: the session's name, and a number."""

ENDED: Final = "the broker says that it ended the consumer, as it may where consumers are slow"


class Enrolled(NamedTuple):
    """A subscription, and who is told why it has ended; by the thread that reads, so that must not block."""

    subscription: Subscription
    doubt: Callable[[str], None]


class Roll:
    """The subscriptions of one session. All is called with `link.writing` held, but by the thread that reads.

    Args:
        link: the session.
        new_id: makes identifiers that are used for nothing else.
        later: runs a function after some seconds, where it may block.
    """

    def __init__(self, link: Link, new_id: Callable[[str], str], later: Later) -> None:
        self._link = link
        self._new_id = new_id
        self._later = later
        self._count = 0  # of all that this session ever subscribed to
        self._enrolled: dict[int, Enrolled] = {}
        self._heard: dict[str, bool] = {}  # by the destination: whether anything of ours was
        self._listening: list[str] = []
        self._is_deaf = not link.session  # ActiveMQ always has one
        self._own = link.session if link.login.client_id is None else ""

    def enrol(self, subscription: Subscription, source: Destination, doubt: Callable[[str], None]) -> None:
        """Take note of a SUBSCRIBE that is written next, so that its end is told."""
        name, prefix = source.name or "", ADVISORIES.get(source.kind)
        if prefix is not None and not self._is_deaf and not PATTERN.search(name):
            if not self._own and not self._heard:
                self._ask_own_name()
            if name not in self._heard:
                self._heard[name] = False
                self._listen(topic(prefix + name), partial(self._note, name), PREFETCH)
                self._plan(PATIENCE, partial(self._give_up_unless_heard, name))
            self._enrolled[self._count + 1] = Enrolled(subscription, doubt)
        self._count += 1

    def _listen(self, source: Destination, receive: Callable[[Mapping[str, str], bytes], None], prefetch: int) -> None:
        self._count += 1
        subscription, receipt = self._new_id("roll"), self._new_id(SUBSCRIBE)
        address = spell(source, self._link.dialect)
        self._listening.append(subscription)
        self._link.route(subscription, Route(address, receive, lambda _: None))
        headers = {"id": subscription, "ack": "auto", "destination": address, "receipt": receipt}
        headers[self._link.dialect.prefetch_header] = str(prefetch)
        self._link.request(pack("SUBSCRIBE", headers), {receipt: self._note_answer})

    def _ask_own_name(self) -> None:
        """Learn what the broker calls this session, where CONNECTED tells the client id instead: from a message."""
        source = Destination(DestinationKind.TEMPORARY_QUEUE, None, address=f"/temp-queue/{self._new_id('roll')}")
        self._listen(source, self._note_own_name, 1)
        self._link.write(pack("SEND", {"destination": source.address or ""}, b"?"))

    # What the thread that reads calls.

    def _note_own_name(self, headers: Mapping[str, str], body: bytes) -> None:
        found = SENDER.fullmatch(headers.get("message-id", ""))
        self._own = "" if found is None else found[1]

    def _note_answer(self, error: BrokerError | None) -> None:
        if error is not None and self._link.is_up:
            self._give_up(f"{error}")

    def _note(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """Read an advisory: somebody subscribed, or a subscription has ended."""
        what, session, number = read_advisory(body)
        if self._own not in ("", session):
            return
        self._heard[name] |= number in self._enrolled
        if not self._own:  # it is learned in a moment
            return
        if what == "RemoveInfo" and (ended := self._enrolled.pop(number, None)) is not None:
            ended.doubt(ENDED)

    def _give_up_unless_heard(self, name: str) -> None:
        if not self._heard[name] and self._link.is_up:
            self._give_up(f"nothing was heard of the consumers of {name}")

    def _give_up(self, why: str) -> None:
        if self._is_deaf:
            return
        self._is_deaf = True
        self._enrolled.clear()
        log.info("%s does not tell whether it ends consumers: %s", self._link, why)
        self._plan(0, self._stop)

    def _plan(self, seconds: float, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the connection was closed meanwhile
            self._later(seconds, function)

    def _stop(self) -> None:
        """Listen no more; on another thread."""
        with self._link.writing:
            for subscription in self._listening:
                self._link.unroute(subscription)
                receipt = self._new_id("receipt")
                self._link.request(
                    pack("UNSUBSCRIBE", {"id": subscription, "receipt": receipt}), {receipt: lambda _: None}
                )


def read_advisory(body: bytes) -> tuple[str, str, int]:
    """Return what an advisory says of a consumer: ConsumerInfo or RemoveInfo, the session's name, the number there.

    Empty where it says nothing that can be read. Never raises for what arrived.
    """
    try:
        ((what, said),) = json.loads(body).items()
        consumer: dict[str, Any] = said["consumerId" if what == "ConsumerInfo" else "objectId"]
        return what, str(consumer["connectionId"]), int(consumer["value"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", "", 0
