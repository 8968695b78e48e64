"""An event loop on its own thread, which runs the `async` functions of one service.

This module is imported when it is needed, as asyncio is slow to import.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Collection
from threading import current_thread
from typing import Any, Final

from brokers.threads.thread import Thread
from soapjms.protocol.errors import UsageError

JOIN_SECONDS: Final = 1.0
"""Seconds to wait for the thread to end."""


class Loop:
    """Runs awaitables for other threads, on a thread that ends with this object."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = Thread(target=_serve, args=[self._loop], name="soapjms-loop", daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._loop, thread)

    def run(self, awaitable: Awaitable[Any], seconds: float | None) -> Any:
        """Await an awaitable on the loop, in the calling thread's context; return its result or raise its error.

        Args:
            awaitable: the awaitable, such as a coroutine.
            seconds: seconds after which it is cancelled; None for never.

        Raises:
            TimeoutError: it took longer.
        """
        result, error = asyncio.run_coroutine_threadsafe(_outcome(awaitable, seconds), self._loop).result()
        if error is not None:
            raise error
        return result


async def _outcome(awaitable: Awaitable[Any], seconds: float | None) -> tuple[Any, BaseException | None]:
    """Return the result or the error: a SystemExit raised by a task would end the loop for all others."""
    try:
        async with asyncio.timeout(seconds):
            return await awaitable, None
    except BaseException as error:
        return None, error


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _end(loop: asyncio.AbstractEventLoop, thread: Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not current_thread():
        thread.join(JOIN_SECONDS)


def refuse_in_a_loop(what: str) -> None:
    """Refuse a blocking operation in an `async` function, as it would block the event loop for all functions.

    Raises:
        UsageError: an event loop runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        f"{what} waits for other threads and would block the event loop; use it in a function that is not async"
    )
