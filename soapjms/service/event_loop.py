"""Running the `async` functions of services: on the event loop of the program, or on one on its own thread.

This module is imported when it is needed, as asyncio is slow to import.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import CancelledError as FutureCancelledError
from threading import current_thread
from time import monotonic, sleep
from typing import Any, Final

from brokers.threads.thread import Thread
from soapjms import events
from soapjms.protocol.errors import RequestExpiredError, UsageError

CANCEL_SECONDS: Final = 1.0
"""Seconds that functions have to clean up after they were cancelled."""

CLOSE_SECONDS: Final = 330.0
"""Seconds to wait for a loop to be closed, once all its tasks were cancelled; `asyncio.run` waits 300 for threads."""

CLOSE_POLL_SECONDS: Final = 0.01
"""Poll interval, in seconds, for a loop that may be closed soon."""

LOOP_POLL_SECONDS: Final = 1.0
"""Poll interval, in seconds, for a loop that was closed while it had something to run."""

JOIN_SECONDS: Final = 2.0
"""Seconds to wait for the thread to end."""


class LoopTasks:
    """Runs awaitables for other threads on an event loop.

    Args:
        loop: the loop, which runs on a thread.
        on_end: called once the loop was closed without `cancel`, and that ended an awaitable, under way or new; None
            for a loop that is never closed while it is used.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], object] | None = None) -> None:
        self._loop = loop
        self._on_end = on_end
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def run(self, awaitable: Awaitable[Any], seconds: float | None) -> Any:
        """Await an awaitable on the loop, in the calling thread's context; return its result or raise its error.

        Args:
            awaitable: the awaitable, such as a coroutine.
            seconds: seconds after which it is cancelled; None for never.

        Raises:
            RequestExpiredError: it took longer.
            CancelledError: it was cancelled, or the loop has ended; see `was_cancelled`.
        """
        outcome = self._outcome(awaitable, seconds)
        try:
            if self._is_closed:
                raise RuntimeError
            running = asyncio.run_coroutine_threadsafe(outcome, self._loop)
        except RuntimeError:  # the loop is closed
            raise self._ended(outcome, awaitable) from None
        while True:
            try:
                result, error = running.result(LOOP_POLL_SECONDS)
                break
            except TimeoutError:
                if self._loop.is_closed() and not running.done():
                    raise self._ended(outcome, awaitable) from None
            except FutureCancelledError:
                raise self._ended(outcome, awaitable, is_closed=self._is_ended()) from None
        if error is not None:
            raise error
        return result

    async def _outcome(self, awaitable: Awaitable[Any], seconds: float | None) -> tuple[Any, BaseException | None]:
        """Return the result or the error. A SystemExit raised by a task would end the loop for all others.

        Raises:
            CancelledError: the loop may be ending: `asyncio.run` cancels every task then.
        """
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
            is_cancelled = self._on_end is not None and isinstance(error, asyncio.CancelledError)
            if is_cancelled and all(each.cancelling() for each in asyncio.all_tasks()):
                raise
            return None, error
        finally:
            self._tasks.discard(task)

    async def cancel(self) -> None:
        """Cancel what is running, and wait a moment until it has ended; called on the loop."""
        self._is_closed = True
        await _cancel(self._tasks.copy())

    def _is_ended(self) -> bool:
        """Say whether the loop is closed now that all its tasks were cancelled; that may take minutes."""
        until = monotonic() + CLOSE_SECONDS
        while self._on_end is not None and not self._is_closed and monotonic() < until:
            if self._loop.is_closed():
                return True
            sleep(CLOSE_POLL_SECONDS)
        return False

    def _ended(
        self, outcome: Awaitable[Any], awaitable: Awaitable[Any], *, is_closed: bool = True
    ) -> asyncio.CancelledError:
        """Close what has not begun, note whether the loop is closed, and make the error for what it does not finish."""
        for each in (outcome, awaitable):
            if inspect.iscoroutine(each) and inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
                each.close()
        if is_closed and not self._is_closed:
            self._is_closed = True
            if self._on_end is not None:
                self._on_end()
        return asyncio.CancelledError()

    def was_cancelled(self, error: BaseException | None) -> bool:
        """Say whether an error is that of an awaitable that `cancel`, or the end of the loop, ended."""
        return self._is_closed and isinstance(error, asyncio.CancelledError)


class OwnLoop(LoopTasks):
    """Runs awaitables for other threads, on a thread that ends with this object."""

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self._end = end = self._loop.create_future()
        thread = Thread(target=_serve, args=[self._loop, end], name="soapjms-loop", daemon=True)
        thread.start()
        weakref.finalize(self, _end, self._loop, end, thread)

    def run(self, awaitable: Awaitable[Any], seconds: float | None) -> Any:
        """Await an awaitable; see `LoopTasks.run`.

        Raises:
            RuntimeError: it was cancelled because the interpreter is shutting down, which ends the loop.
        """
        try:
            return super().run(awaitable, seconds)
        except asyncio.CancelledError:
            if self._end.done():
                raise RuntimeError("async functions are cancelled at interpreter shutdown") from None
            raise


def _serve(loop: asyncio.AbstractEventLoop, end: asyncio.Future[None]) -> None:
    """Run the loop until `end` is done, whatever a function stops it with, such as SystemExit in a task of its own."""
    try:
        while not end.done():
            try:
                loop.run_until_complete(end)
            except BaseException:
                events.LOOP_STOPPED.log()
        loop.run_until_complete(_cancel(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks and (left := (await asyncio.wait(tasks, timeout=CANCEL_SECONDS))[1]):
        events.FUNCTIONS_LEFT.log(len(left))


def _end(loop: asyncio.AbstractEventLoop, end: asyncio.Future[None], thread: Thread) -> None:
    loop.call_soon_threadsafe(end.set_result, None)
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
