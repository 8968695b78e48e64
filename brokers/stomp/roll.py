"""Detection of subscriptions that ActiveMQ Classic has ended, by its advisory topics, the only place that reports them.

With `abortSlowConsumerStrategy` and the like it ends a consumer that it finds slow, or idle, and writes nothing to a
STOMP client. But the advisory topic of a destination reports which consumers come and go there, by the name of their
session and a number: the first SUBSCRIBE of a session is 1. So a session subscribes to that topic for each destination
that it consumes from, and recognises its own subscriptions.

If no advisory arrives for a new subscription, the log says that ends are not reported: advisories are switched off,
the user may not read them, the broker lacks the library that encodes them for STOMP (jettison), or it does not tell
the name of this session. This holds for each destination separately, until an advisory arrives after all, for example
from a broker that was paused.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from brokers import events
from brokers.adapter.advisories import advisory_topic
from brokers.errors import BrokerError
from brokers.message import Destination, DestinationKind, topic
from brokers.stomp.acknowledge import StompSubscription
from brokers.stomp.codec import pack
from brokers.stomp.frames import spell
from brokers.stomp.session import SUBSCRIBE, StompSession, SubscriptionRoute
from brokers.threads.timer import Later

ADVISORY_SECONDS: Final = 10.0
"""Time after which a missing advisory is reported, and after which no more are asked for when they are not needed."""

PREFETCH_ADVISORIES: Final = 1000
"""Prefetch of advisories, which are handled as they arrive."""

SENDER: Final = re.compile(r"(ID:.+):-1:1:\d+")
"""Matches the JMSMessageID of a message sent over STOMP: the session's name, and a number."""

ENDED: Final = "the broker says that it ended the consumer, which it may do if consumers are slow"


@dataclass(slots=True, eq=False)
class AdvisedDestination:
    """A destination with a subscription to its advisories.

    Attributes:
        name: name of the advisory topic.
        is_heard: whether an advisory arrived for a subscription of ours.
        silence: why no advisories arrive, for the log; empty if they may arrive.
        is_watched: whether a caller wants to know of the end of a subscription.
        subscription: the `id` of the subscription to its advisories.
        is_leaving: whether that is ended soon, unless one of ours is there then.
    """

    name: str
    is_heard: bool = False
    silence: str = ""
    is_watched: bool = False
    subscription: str = ""
    is_leaving: bool = False


class RollEntry(NamedTuple):
    """A subscription, and the function to call with the reason of its end. The reading thread calls it: no blocking."""

    subscription: StompSubscription
    place: AdvisedDestination
    doubt: Callable[[str], None]


class Advisory(NamedTuple):
    """An advisory: its place, ConsumerInfo or RemoveInfo, the session that it is about, and the number there."""

    place: AdvisedDestination
    what: str
    session: str
    number: int


class Roll:
    """The subscriptions of one session. Everything is called with `link.writing` held, except by the reading thread.

    Args:
        link: the session.
        new_id: returns unused identifiers.
        later: runs a function after some seconds, where it may block.
    """

    def __init__(self, link: StompSession, new_id: Callable[[str], str], later: Later) -> None:
        self._link = link
        self._new_id = new_id
        self._later = later
        self._count = 0  # number of SUBSCRIBE frames of this session so far
        self._enrolled: dict[int, RollEntry] = {}
        self._places: dict[str, AdvisedDestination] = {}
        self._own = link.session if link.login.client_id is None else ""
        self._early: list[Advisory] = []  # advisories that arrived before the name of our session
        self._why_nameless = "the broker's name of this session is not known"

    def enrol(
        self, subscription: StompSubscription, source: Destination, doubt: Callable[[str], None], *, is_watched: bool
    ) -> None:
        """Record a SUBSCRIBE that is written next, so that its end is detected.

        Args:
            subscription: the subscription that is about to begin.
            source: its destination.
            doubt: called with the reason of its end.
            is_watched: whether to log a warning if its end cannot be detected.
        """
        name = advisory_topic(source)
        if name is not None and self._link.session:  # ActiveMQ always names a session
            place = self._place(name, is_watched)
            if place.silence:
                self._forget_ended(place)
            if is_watched and not place.is_watched:
                place.is_watched = True
                if place.silence:
                    self._say_silent(place)
            self._enrolled[self._count + 1] = RollEntry(subscription, place, doubt)
        self._count += 1

    def _place(self, name: str, is_watched: bool) -> AdvisedDestination:
        if not self._own and not self._places:
            self._ask_own_name()
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = AdvisedDestination(name)
            place.is_watched = is_watched  # first, as the broker may refuse at once
            place.subscription = self._listen(
                topic(name), partial(self._note, place), PREFETCH_ADVISORIES, partial(self._fall_silent, place)
            )
            self._later(ADVISORY_SECONDS, partial(self._require_heard, place))
        return place

    def _forget_ended(self, place: AdvisedDestination) -> None:
        """Forget subscriptions that we ended ourselves: without advisories, the broker does not confirm that."""
        gone = [
            number for number, each in self._enrolled.items() if each.place is place and not each.subscription.is_live
        ]
        for number in gone:
            del self._enrolled[number]

    def _listen(
        self,
        source: Destination,
        receive: Callable[[Mapping[str, str], bytes], None],
        prefetch: int,
        refuse: Callable[[str], None],
    ) -> str:
        """Subscribe to what the broker sends about us, and return the `id`."""
        self._count += 1
        subscription, receipt = self._new_id("roll"), self._new_id(SUBSCRIBE)
        address = spell(source, self._link.dialect)
        self._link.route(subscription, SubscriptionRoute(address, receive, lambda _: None))
        headers = {"id": subscription, "ack": "auto", "destination": address, "receipt": receipt}
        headers[self._link.dialect.prefetch_header] = str(prefetch)

        def note_answer(error: BrokerError | None) -> None:
            if error is not None and self._link.is_up:
                self._link.unroute(subscription)
                refuse(f"{error}")

        self._link.request(pack("SUBSCRIBE", headers), {receipt: note_answer})
        return subscription

    def _ask_own_name(self) -> None:
        """Learn the name of this session from a message, because CONNECTED has the client id instead."""
        source = Destination(DestinationKind.TEMPORARY_QUEUE, None, address=f"/temp-queue/{self._new_id('roll')}")
        self._listen(source, self._note_own_name, 1, self._note_nameless)
        self._link.write(pack("SEND", {"destination": source.address or ""}, b"?"))

    # Called by the reading thread.

    def _note_own_name(self, headers: Mapping[str, str], body: bytes) -> None:
        found = SENDER.fullmatch(headers.get("message-id", ""))
        self._own = "" if found is None else found[1]
        early, self._early = self._early, []
        for each in early:
            self._hear(each)

    def _note_nameless(self, why: str) -> None:
        self._why_nameless = f"{self._why_nameless}: {why}"

    def _note(self, place: AdvisedDestination, headers: Mapping[str, str], body: bytes) -> None:
        """Handle an advisory: a new subscription, or the end of one."""
        self._hear(Advisory(place, *read_advisory(body)))

    def _hear(self, advisory: Advisory) -> None:
        place, what, session, number = advisory
        if not self._own:  # the name is learned soon; until then a number may belong to any session
            if len(self._early) < PREFETCH_ADVISORIES:
                self._early.append(advisory)
            return
        enrolled = self._enrolled.get(number)
        if session != self._own or enrolled is None:
            return
        place.is_heard = True
        if place.silence:
            place.silence = ""
            events.STOMP_ENDS_REPORTED.log(self._link, place.name)
        if what == "RemoveInfo":
            del self._enrolled[number]
            enrolled.doubt(ENDED)
            if not place.is_leaving:
                place.is_leaving = True
                self._later(ADVISORY_SECONDS, partial(self._leave, place))

    def _fall_silent(self, place: AdvisedDestination, why: str) -> None:
        if not place.silence:
            place.silence = why
            self._say_silent(place)

    def _say_silent(self, place: AdvisedDestination) -> None:
        level = logging.WARNING if place.is_watched else logging.INFO
        events.STOMP_ENDS_NOT_REPORTED.log(self._link, place.name, place.silence, level=level)

    # Called later, by another thread.

    def _leave(self, place: AdvisedDestination) -> None:
        """End the subscription to the advisories of a destination that has no subscription of ours any more."""
        with self._link.writing:
            place.is_leaving = False
            is_used = any(each.place is place for each in list(self._enrolled.values()))
            if is_used or not self._link.is_up:
                return
            del self._places[place.name]
            self._link.unroute(place.subscription)
            self._link.request(pack("UNSUBSCRIBE", {"id": place.subscription}), {})

    def _require_heard(self, place: AdvisedDestination) -> None:
        with self._link.writing:
            if not place.is_heard and self._link.is_up:
                self._fall_silent(place, "no advisory arrived for our consumers" if self._own else self._why_nameless)


def read_advisory(body: bytes) -> tuple[str, str, int]:
    """Return the contents of an advisory: ConsumerInfo or RemoveInfo, the session's name, and the number there.

    The values are empty if it cannot be parsed. Never raises, whatever arrived.
    """
    try:
        ((what, said),) = json.loads(body).items()
        consumer: dict[str, Any] = said["consumerId" if what == "ConsumerInfo" else "objectId"]
        return what, str(consumer["connectionId"]), int(consumer["value"])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return "", "", 0
