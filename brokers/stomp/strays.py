"""Messages that were taken from their queue by mistake, until the broker confirms that they are there again.

A collection may receive more messages than it wants: others of the same id and time, see `brokers.stomp.collection`.
The broker forgets those when it writes them, so the copy here is the only one. It is sent to its queue with a receipt,
if necessary over several sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final

from brokers import events
from brokers.errors import BrokerError, ConnectionLostError
from brokers.stomp.codec import pack
from brokers.stomp.frames import sent_again
from brokers.stomp.session import StompSession
from brokers.threads.timer import Later

FIRST_RETRY_SECONDS: Final = 1.0
"""Pause before a refused message is sent again, in seconds; it doubles each time."""

LONGEST_RETRY_SECONDS: Final = 300.0
"""Maximum of that pause, in seconds."""


@dataclass(slots=True, eq=False)
class Stray:
    """A message that is on no queue.

    Attributes:
        headers: headers of the MESSAGE frame.
        body: body of the message.
        came_by: the session that received it.
        is_bound: whether its queue ends with that session.
        sent_over: the session over which it was sent last; None if it must be sent again over the same.
        pause: seconds before it is sent again.
    """

    headers: Mapping[str, str]
    body: bytes
    came_by: StompSession
    is_bound: bool
    sent_over: StompSession | None = None
    pause: float = 0.0

    def __str__(self) -> str:
        return f"message {self.headers.get('message-id')} of {self.headers.get('destination')}"


class Strays:
    """The strays of a connection. Thread-safe.

    Args:
        new_id: returns unused identifiers.
        later: runs a function after some seconds, on a thread where it may block.
    """

    def __init__(self, new_id: Callable[[str], str], later: Later) -> None:
        self._new_id = new_id
        self._later = later
        self._lock = Lock()
        self._kept: dict[Stray, None] = {}
        self._link: StompSession | None = None
        self._is_over = False

    def keep(self, stray: Stray, done: Callable[[], None]) -> None:
        """Keep a message until it is on its queue again, and send it there soon. Does not block.

        Args:
            stray: the message.
            done: called once the first session over which it is sent has answered, or ended.
        """
        events.STOMP_STRAY_RETURNED.log(stray)
        with self._lock:
            is_over = self._is_over
            if not is_over:
                self._kept[stray] = None
        if is_over:
            _lose(stray)
            done()
        else:
            self._later(0.0, partial(self._send, stray, done))

    def go_on(self, link: StompSession) -> None:
        """Send the kept messages over another session."""
        with self._lock:
            self._link = link
            kept = list(self._kept)
        for each in kept:
            self._send(each)

    def give_up(self) -> None:
        """Log the messages that may be lost, because there is no further session."""
        with self._lock:
            self._is_over = True
            kept, self._kept = self._kept, {}
        for each in kept:
            _lose(each)

    def _send(self, stray: Stray, done: Callable[[], None] = lambda: None) -> None:
        """Send a stray, once over each session; only to a broker with the dialect of the one that it came from."""
        with self._lock:
            link = stray.came_by if stray.is_bound else self._link
            is_due = stray in self._kept and stray.sent_over is not link
            if link is None or not is_due or link.dialect is not stray.came_by.dialect:
                link = None
            else:
                stray.sent_over = link
        if link is None:
            done()
            return
        receipt = self._new_id("receipt")
        try:
            headers = sent_again(stray.headers, stray.body, link.dialect) | {"receipt": receipt}
            frame = pack("SEND", headers, stray.body, link.dialect.version)
        except (MemoryError, ValueError) as error:
            self._settle(stray, link, done, BrokerError(f"it cannot be written: {error!r}"))
        else:
            link.request(frame, {receipt: partial(self._settle, stray, link, done)})

    def _settle(self, stray: Stray, link: StompSession, done: Callable[[], None], error: BrokerError | None) -> None:
        """Record the outcome of a send. For the reading thread."""
        is_lost = isinstance(error, ConnectionLostError)
        with self._lock:
            if error is None or (is_lost and stray.is_bound):
                self._kept.pop(stray, None)
            elif not is_lost and stray.sent_over is link:
                stray.sent_over = None
                stray.pause = min(LONGEST_RETRY_SECONDS, 2 * stray.pause or FIRST_RETRY_SECONDS)
            is_kept, is_past = stray in self._kept, self._link is not link
        if is_kept and not is_lost:
            events.STOMP_STRAY_WAITS.log(stray, stray.pause, error)
            self._later(stray.pause, partial(self._send, stray))
        elif is_kept:
            events.STOMP_STRAY_DOUBTED.log(stray, error)
            if is_past:
                self._later(0.0, partial(self._send, stray))
        done()


def _lose(stray: Stray) -> None:
    events.STOMP_STRAY_LOST.log(stray)
