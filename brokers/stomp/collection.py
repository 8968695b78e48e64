"""Taking from a queue what ActiveMQ Classic cannot be told the acceptance of.

It finds the message of an ACK by the JMSMessageID, which it reads as its own are: `ID:…:1:1:1:7`. Where a sender over
AMQP chose the id, as Qpid JMS does (`ID:…:1:1:1-1`), the ACK ends the connection with a NumberFormatException, and so
does a NACK; an id that only looks like its own is refused. What such a message can do is go back, when its subscription
ends. So that ends, and a *collection* takes the message: a subscription before all others of the queue, that selects
what came back with this id, and that is told nothing, as the broker takes for accepted what it writes there. What it
writes there beside that is put back: see `brokers.stomp.strays`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

from brokers.errors import BrokerError, ConnectionLostError, NoAnswerError
from brokers.stomp.acknowledge import StompArrival
from brokers.stomp.frames import Headers
from brokers.stomp.session import SUBSCRIBE, Settle, StompSession, SubscriptionRoute, pack

COLLECTION_SECONDS: Final = 10.0
"""Seconds that a collection may take: what has not come by then is another consumer's, or expired."""

MAX_ID_CHARACTERS: Final = 500
"""Characters of a JMSMessageID that are asked for: the broker reads no line above 10 KiB."""

MAX_SELECTOR_CHARACTERS: Final = 1500
"""Characters of ids after which no more is asked for by the same subscription."""

WILD: Final = re.compile(r"[%_!]")
"""What has a meaning in a pattern of LIKE."""

FIRST: Final = "127"
"""The highest priority of a consumer."""


class AcceptedMessage(NamedTuple):
    """A message that is accepted; `settle` is told once that it was taken, or why that is not so or not known."""

    arrival: StompArrival
    settle: Settle


class Collection:
    """One subscription that takes messages, until all have come or for `COLLECTION_SECONDS` seconds.

    Args:
        link: the session.
        new_id: makes identifiers that are used for nothing else.
        address: of the queue.
        wanted: what to take; all of it goes back when a subscription ends that is ended next.
        submit: runs a function on a thread that may block.
        begin: notes that something is under way, and returns what is to be called at its end.
        put_back: takes what came beside that, with its headers; without its body where that was passed over.
    """

    def __init__(
        self,
        link: StompSession,
        new_id: Callable[[str], str],
        address: str,
        wanted: Sequence[AcceptedMessage],
        submit: Callable[[Callable[[], None]], None],
        begin: Callable[[], Callable[[], None]],
        put_back: Callable[[Mapping[str, str], bytes | None], None],
    ) -> None:
        self._link = link
        self._new_id = new_id
        self._address = address
        self._wanted = list(wanted)
        self._submit = submit
        self._done = begin()
        self._put_back = put_back
        self._lock = Lock()
        self._is_leaving = self._has_ended = False
        self.id = new_id("collection")

    def begin(self) -> tuple[bytes, dict[str, Settle]]:
        """Return the SUBSCRIBE frame to write next, and who waits for its receipt, and for the end of the session."""
        route = SubscriptionRoute(
            self._address, self._receive, lambda _: None, lambda headers, *_: self._receive(headers, None)
        )
        self._link.route(self.id, route)
        receipt = self._new_id(SUBSCRIBE)
        each = " OR ".join(_selected(wanted.arrival.headers) for wanted in self._wanted)
        headers: Headers = {
            "id": self.id,
            "destination": self._address,
            "ack": "auto",
            "activemq.priority": FIRST,
            "selector": f"JMSRedelivered = TRUE AND ({each})",
            "receipt": receipt,
        }
        return pack("SUBSCRIBE", headers), {receipt: self._note_answer, self.id: self._end}

    def leave(self) -> None:
        """Wait for nothing more: end the subscription; what came until the broker confirms that still counts."""
        with self._lock:
            was_leaving, self._is_leaving = self._is_leaving, True
        if not was_leaving:
            receipt = self._new_id("receipt")
            self._link.request(pack("UNSUBSCRIBE", {"id": self.id, "receipt": receipt}), {receipt: self._end})

    # For the thread that reads

    def _note_answer(self, error: BrokerError | None) -> None:
        if error is not None:
            self._end(error)

    def _receive(self, headers: Mapping[str, str], body: bytes | None) -> None:
        """Take a message, without its body where that was passed over."""
        with self._lock:
            found = next((each for each in self._wanted if _is_same(each.arrival, headers, body)), None)
            if found is not None:
                self._wanted.remove(found)
            is_last = not self._wanted
        if found is not None:
            found.settle(None)
        else:
            self._put_back(headers, body)
        if is_last:
            self._submit(self.leave)

    def _end(self, error: BrokerError | None) -> None:
        with self._lock:
            had_ended, self._has_ended = self._has_ended, True
            missing, self._wanted = self._wanted, []
        if had_ended:
            return
        self._link.unroute(self.id)
        self._link.forget(self.id)
        why = f"it did not come within {COLLECTION_SECONDS:.0f} s" if error is None else error
        for each in missing:
            each.settle(uncollected(each.arrival, why))
        self._done()


def uncollected(arrival: StompArrival, why: BrokerError | str) -> BrokerError:
    """Return what says that a message was accepted and may come again."""
    if isinstance(why, ConnectionLostError) or not arrival.subscription.link.is_up:
        return arrival.subscription.link.lost()
    return NoAnswerError(f"message {arrival.headers.get('message-id')} was accepted, and may come again: {why}")


def groups(wanted: Sequence[AcceptedMessage]) -> Iterator[list[AcceptedMessage]]:
    """Cut what is wanted into what one subscription can ask for."""
    group: list[AcceptedMessage] = []
    octets = 0
    for each in wanted:
        octets += min(MAX_ID_CHARACTERS, len(each.arrival.headers.get("message-id", "")))
        group.append(each)
        if octets > MAX_SELECTOR_CHARACTERS:
            yield group
            group, octets = [], 0
    if group:
        yield group


def _is_same(arrival: StompArrival, headers: Mapping[str, str], body: bytes | None) -> bool:
    """Say whether a message is one that came before."""
    is_same = all(arrival.headers.get(name) == headers.get(name) for name in ("message-id", "timestamp"))
    return is_same and (arrival.mark is None or arrival.mark == hash(body or b""))


def _selected(headers: Mapping[str, str]) -> str:
    """Select a message: an id may be several messages' where senders number theirs, so its time counts too."""
    text = headers.get("message-id", "")
    found = f"= {_quoted(text)}"
    if len(text) > MAX_ID_CHARACTERS:
        found = f"LIKE {_quoted(WILD.sub(lambda wild: '!' + wild[0], text[:MAX_ID_CHARACTERS]) + '%')} ESCAPE '!'"
    stamp = headers.get("timestamp", "")
    when = f" AND JMSTimestamp = {int(stamp)}" if stamp.isascii() and stamp.isdigit() and len(stamp) < 19 else ""
    return f"(JMSMessageID {found}{when})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
