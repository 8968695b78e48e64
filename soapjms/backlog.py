"""What a tap keeps while it waits to be written, and which messages it wants. No broker and no file in here."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from datetime import datetime
from threading import Condition
from time import sleep
from typing import Final, NamedTuple

from brokers.message import Destination, Message

MESSAGES: Final = 100_000
OCTETS: Final = 64 << 20
"""What may wait; of octets only those of bodies are counted."""

GATHER_SECONDS: Final = 0.1
"""How long copies gather before they are written."""

REMEMBERED: Final = 100_000
"""Reply destinations that are known at a time, and ids of requests to others that share them."""

BINDING: Final = "SOAPJMS_"


class Arrived(NamedTuple):
    """A copy, when it came, and how many were dropped before it since the one before."""

    message: Message
    time: datetime
    dropped: int


class Wanted:
    """Which messages are recorded. Not thread-safe.

    Args:
        queues: names of the destinations of requests; with none, all that have a property of the binding.
        everything: record all messages instead.
    """

    def __init__(self, queues: Collection[str], everything: bool) -> None:
        self._queues = frozenset(queues)
        self._everything = everything
        self._replies: OrderedDict[str, None] = OrderedDict()
        self._others: OrderedDict[str, None] = OrderedDict()

    def wants(self, message: Message) -> bool:
        """Say whether a message is to be recorded: it itself, or as the answer to one that is."""
        if self._everything:
            return True
        replies = _name(message.reply_to)
        if not self._is_first(message):
            if replies in self._replies:  # a destination of replies may serve other requests, too
                _remember(self._others, message.correlation_id, message.message_id)
            return _name(message.destination) in self._replies and message.correlation_id not in self._others
        _remember(self._replies, replies)
        return True

    def _is_first(self, message: Message) -> bool:
        if self._queues:
            return _name(message.destination) in self._queues
        return any(each.name.startswith(BINDING) for each in message.properties)


def _remember(known: OrderedDict[str, None], *names: str | None) -> None:
    """Add names as the newest, and forget the oldest where there are too many."""
    for name in filter(None, names):
        known[name] = None
        known.move_to_end(name)
        if len(known) > REMEMBERED:
            known.popitem(last=False)


def _name(destination: Destination | None) -> str | None:
    return None if destination is None else destination.name


class Backlog:
    """Copies that wait to be written: so many and so much, and no more. Thread-safe.

    Args:
        messages: how many.
        octets: of bodies; a single message may have more.
    """

    def __init__(self, messages: int = MESSAGES, octets: int = OCTETS) -> None:
        self._most = messages
        self._most_octets = octets
        self._changed = Condition()
        self._waiting: deque[Arrived] = deque()
        self._octets = 0
        self._dropped = 0
        self._is_closed = False

    def put(self, message: Message, time: datetime) -> bool:
        """Add a copy, or drop it where there is no room; say whether it was added."""
        size = message.size
        with self._changed:
            is_full = len(self._waiting) >= self._most or self._octets + size > self._most_octets
            if is_full and self._waiting:
                self._dropped += 1
                return False
            self._waiting.append(Arrived(message, time, self._dropped))
            self._octets += size
            self._dropped = 0
            if len(self._waiting) == 1:
                self._changed.notify()
            return True

    def take(self, seconds: float) -> Arrived | None:
        """Return the next copy, or None if none came in so many seconds, or none will come any more.

        One that had to be waited for is returned a moment later: so others gather behind it, as a change of threads for
        each of them would cost more than to write it.
        """
        with self._changed:
            is_late = not self._waiting
            if is_late:
                self._changed.wait_for(lambda: self._waiting or self._is_closed, seconds)
            if not self._waiting:
                return None
            arrived = self._waiting.popleft()
            self._octets -= arrived.message.size
        if is_late and seconds:
            sleep(GATHER_SECONDS)
        return arrived

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until nothing will come any more, so long at most; say whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, seconds)

    @property
    def is_over(self) -> bool:
        """Nothing waits, and nothing will."""
        with self._changed:
            return self._is_closed and not self._waiting

    def close(self) -> None:
        """Say that nothing will come any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
