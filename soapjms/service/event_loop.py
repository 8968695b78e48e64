"""Running the `async` functions of services: on the event loop of the program, or on one on its own thread.

This module is imported when it is needed, as asyncio is slow to import.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Collection
from threading import current_thread
from typing import Any, Final

from brokers.threads.thread import Thread
from soapjms.protocol.errors import RequestExpiredError, UsageError

JOIN_SECONDS: Final = 1.0
"""Seconds to wait for the thread to end."""


class LoopTasks:
    """Runs awaitables for other threads on an event loop.

    Args:
        loop: the loop, which runs on a thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def run(self, awaitable: Awaitable[Any], seconds: float | None) -> Any:
        """Await an awaitable on the loop, in the calling thread's context; return its result or raise its error.

        Args:
            awaitable: the awaitable, such as a coroutine.
            seconds: seconds after which it is cancelled; None for never.

        Raises:
            RequestExpiredError: it took longer.
        """
        result, error = asyncio.run_coroutine_threadsafe(self._outcome(awaitable, seconds), self._loop).result()
        if error is not None:
            raise error
        return result

    async def _outcome(self, awaitable: Awaitable[Any], seconds: float | None) -> tuple[Any, BaseException | None]:
        """Return the result or the error: a SystemExit raised by a task would end the loop for all others."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await awaitable, None
        except BaseException as error:
            if limit.expired() and isinstance(error, TimeoutError):
                return None, RequestExpiredError("its request has expired")
            return None, error
        finally:
            self._tasks.discard(task)

    async def cancel(self) -> None:
        """Cancel what is running, and wait until it has ended; called on the loop."""
        self._is_closed = True
        await _cancel(self._tasks.copy())

    def was_cancelled(self, error: BaseException | None) -> bool:
        """Say whether an error is that of an awaitable that `cancel` ended."""
        return self._is_closed and isinstance(error, asyncio.CancelledError)


class OwnLoop(LoopTasks):
    """Runs awaitables for other threads, on a thread that ends with this object."""

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        thread = Thread(target=_serve, args=[self._loop], name="soapjms-loop", daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._loop, thread)


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
