"""Removal of accepted messages from a queue that cannot be acknowledged to ActiveMQ Classic.

The broker finds the message of an ACK by the JMSMessageID, which it parses in its own form: `ID:…:1:1:1:7`. If a sender
over AMQP chose the id, as Qpid JMS does (`ID:…:1:1:1-1`), an ACK or NACK ends the connection with a
NumberFormatException; an id that only looks like the broker's own is refused. Such a message can only go back, when its
subscription ends. So the subscription is ended, and a *collection* takes the message: a subscription of the highest
priority that selects returned messages of this id and sends no ACKs, because the broker counts messages as accepted
when it writes them there. Other messages that it writes there are put back: see `brokers.stomp.strays`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

from brokers.errors import BrokerError, ConnectionLostError, NoAnswerError
from brokers.stomp.acknowledge import StompArrival
from brokers.stomp.codec import pack
from brokers.stomp.frames import Headers
from brokers.stomp.session import SUBSCRIBE, Settle, StompSession, SubscriptionRoute

COLLECTION_SECONDS: Final = 10.0
"""Maximum duration of a collection, in seconds; messages that have not come by then are elsewhere, or expired."""

MAX_ID_CHARACTERS: Final = 500
"""Maximum number of characters of a JMSMessageID in a selector: the broker reads no line above 10 KiB."""

MAX_SELECTOR_CHARACTERS: Final = 1500
"""Number of characters of ids after which a selector takes no more of them."""

WILD: Final = re.compile(r"[%_!]")
"""The special characters of a LIKE pattern."""

FIRST: Final = "127"
"""The highest priority of a consumer."""


class AcceptedMessage(NamedTuple):
    """An accepted message; `settle` is called once, with None when it was taken, or with the error."""

    arrival: StompArrival
    settle: Settle


class Collection:
    """One subscription that takes messages, until all have come or for `COLLECTION_SECONDS` seconds.

    Args:
        link: the session.
        new_id: returns unused identifiers.
        address: address of the queue.
        wanted: the messages to take; all go back with the subscription that is ended next.
        submit: runs a function on a thread where it may block.
        begin: records the start of an operation, and returns a function to call at its end.
        put_back: called with headers and body of other messages; the body is None if it was skipped.
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
        """Return the SUBSCRIBE frame to write next, and callbacks for its receipt and for the end of the session."""
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
        """End the subscription; messages that arrive before the broker confirms that still count."""
        with self._lock:
            was_leaving, self._is_leaving = self._is_leaving, True
        if not was_leaving:
            receipt = self._new_id("receipt")
            self._link.request(pack("UNSUBSCRIBE", {"id": self.id, "receipt": receipt}), {receipt: self._end})

    # Called by the reading thread

    def _note_answer(self, error: BrokerError | None) -> None:
        if error is not None:
            self._end(error)

    def _receive(self, headers: Mapping[str, str], body: bytes | None) -> None:
        """Take a message; its body is None if it was skipped."""
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
    """Return the error that says that a message was accepted but may come again."""
    if isinstance(why, ConnectionLostError) or not arrival.subscription.link.is_up:
        return arrival.subscription.link.lost()
    return NoAnswerError(f"message {arrival.headers.get('message-id')} was accepted, and may come again: {why}")


def groups(wanted: Sequence[AcceptedMessage]) -> Iterator[list[AcceptedMessage]]:
    """Split messages into groups that one subscription can select."""
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
    """Return whether a message is the same as an earlier arrival."""
    is_same = all(arrival.headers.get(name) == headers.get(name) for name in ("message-id", "timestamp"))
    return is_same and (arrival.mark is None or arrival.mark == hash(body or b""))


def _selected(headers: Mapping[str, str]) -> str:
    """Return a selector for a message: by id and timestamp, because several senders may use the same id."""
    text = headers.get("message-id", "")
    found = f"= {_quoted(text)}"
    if len(text) > MAX_ID_CHARACTERS:
        found = f"LIKE {_quoted(WILD.sub(lambda wild: '!' + wild[0], text[:MAX_ID_CHARACTERS]) + '%')} ESCAPE '!'"
    stamp = headers.get("timestamp", "")
    when = f" AND JMSTimestamp = {int(stamp)}" if stamp.isascii() and stamp.isdigit() and len(stamp) < 19 else ""
    return f"(JMSMessageID {found}{when})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
