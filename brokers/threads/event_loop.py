"""Awaiting futures in asyncio: the results of many reach their event loop in one step.

asyncio's own way hands each result over by itself, and writes to a pipe for each. This file is imported when the first
future is awaited, as asyncio takes a while to import.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any
from weakref import WeakKeyDictionary, ref

from brokers.threads.bursts import Submitter, after_burst


class LoopInbox:
    """The futures that are done and whose tasks their event loop has to wake. `put` is thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # as `INBOXES` keeps this as long as the loop
        self._done: deque[asyncio.Future[None]] = deque()
        self._is_called = False
        self._is_waiting = False

    def about_to_wait(self, submitter: Submitter) -> None:
        """Do what was left to the thread of the loop, once the tasks that are ready have run."""
        if not self._is_waiting:
            self._is_waiting = True
            asyncio.get_running_loop().call_soon(self._wait, submitter)

    def _wait(self, submitter: Submitter) -> None:
        self._is_waiting = False
        submitter.about_to_wait()

    def put(self, waiter: asyncio.Future[None], _: Future[Any]) -> None:
        """Have a task woken: the one that waits for a future that is done."""
        self._done.append(waiter)
        if not self._is_called:
            self._is_called = True
            after_burst(self._call)

    def _call(self) -> None:
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._wake_all)
        except RuntimeError:  # the loop was closed: nobody waits any more
            self._done.clear()  # they know their loop

    def _wake_all(self) -> None:
        self._is_called = False
        while self._done:
            waiter = self._done.popleft()
            if not waiter.done():
                waiter.set_result(None)


INBOXES: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopInbox] = WeakKeyDictionary()


def inbox_of_loop() -> tuple[LoopInbox, asyncio.Future[None]]:
    """Return the inbox of the running event loop, and a new future to wait for."""
    loop = asyncio.get_running_loop()
    inbox = INBOXES.get(loop)
    if inbox is None:
        inbox = INBOXES[loop] = LoopInbox(loop)
    return inbox, loop.create_future()
