"""Requests whose commit was lost together with the connection, and how often that happened in a row.

A broker that restarts takes commits along; that passes. An answer that the broker will not read, as one above its limit
for a frame, makes it end the connection each time; that does not pass by itself, and takes along all that is under way.
The two look the same from here, so only the count tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any, Final

from brokers.completion import Completion
from brokers.errors import ConnectionLostError
from brokers.message import Message
from soapjms.idempotency import key_of

REMEMBERED: Final = 10_000
"""Requests that are known at a time; the oldest are forgotten first."""


class Losses:
    """How often the commit of each request was lost with its connection. Thread-safe; nearly always empty.

    Requests that nothing tells from others (see `key_of`) are not counted.

    Args:
        stable_message_id: tells the capability of the broker that there is now: the next may be of another kind.
    """

    def __init__(self, stable_message_id: Callable[[], bool]) -> None:
        self._stable_message_id = stable_message_id
        self._lock = Lock()
        self._times: OrderedDict[bytes, int] = OrderedDict()

    def watch(self, settling: Completion[Any], requests: Sequence[Message]) -> None:
        """Count one more loss for each of these if the connection is lost before `settling` is done.

        That is counted before anybody can make the connection again, so before the broker delivers any of them again.
        """
        settling.on_settled(partial(self._heard_of, requests))

    def _heard_of(self, requests: Sequence[Message], settling: Future[Any]) -> None:
        if not settling.cancelled() and isinstance(settling.exception(), ConnectionLostError):
            self.note(requests)

    def note(self, requests: Sequence[Message]) -> None:
        """Count one more loss for each of these."""
        keys = [key for each in requests if (key := self.key(each)) is not None]
        with self._lock:
            for key in keys:
                self._times[key] = self._times.pop(key, 0) + 1
                if len(self._times) > REMEMBERED:
                    self._times.popitem(last=False)

    def times(self, request: Message) -> int:
        """Say how often a request was lost so."""
        if not self._times:
            return 0
        key = self.key(request)
        return 0 if key is None else self._times.get(key, 0)

    def forget(self, request: Message) -> None:
        """Forget a request that was settled."""
        if self._times and (key := self.key(request)) is not None:
            with self._lock:
                self._times.pop(key, None)

    def key(self, request: Message) -> bytes | None:
        """Name a request; see `key_of`."""
        return key_of(request, stable_message_id=self._stable_message_id())
