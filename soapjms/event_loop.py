"""What the classes for asyncio share: the loop they run on, and work on other threads that a task can wait for.

This module is imported when it is needed, as asyncio takes a while to import.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from threading import get_ident
from typing import Final, TypeVar, Unpack

from brokers.connection import DEFAULT_TIMEOUT, Connection
from brokers.schemes import ConnectArguments, connect
from brokers.threads.thread import Thread, future_of
from soapjms.protocol.errors import UsageError

T = TypeVar("T")

NO_LOOP: Final = (
    "this runs on asyncio, and no asyncio event loop runs in this thread: use asyncio.run, uvloop, or anyio on "
    "asyncio. Under trio, call soapjms.Client in trio.to_thread.run_sync"
)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs in this thread.

    Raises:
        UsageError: there is none of asyncio.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(NO_LOOP) from None


async def elsewhere(function: Callable[[], T], forget: Callable[[T], object] | None = None) -> T:
    """Call a function on a thread of its own without blocking the event loop, and return its result.

    Args:
        function: the function.
        forget: called with the result, on another thread, if the task is cancelled before it has it.

    Raises:
        UsageError: no asyncio event loop runs here.
    """
    running_loop()
    return await result_of(future_of(function, "soapjms-task"), forget)


async def result_of(promised: Future[T], forget: Callable[[T], object] | None = None) -> T:
    """Await what another thread does; see `elsewhere` for `forget`."""
    try:
        return await asyncio.wrap_future(promised)
    except BaseException:
        if forget is not None:
            promised.add_done_callback(partial(_forget, forget, get_ident()))  # the thread may still be at it
        raise


def _forget(forget: Callable[[T], object], loop: int, done: Future[T]) -> None:
    """Forget a result, never on the thread of the event loop, `loop`, which must not be blocked."""
    if done.cancelled() or done.exception() is not None:
        return
    if get_ident() == loop:
        Thread(target=forget, args=[done.result()], name="soapjms-forget", daemon=True).start()
    else:
        forget(done.result())


@asynccontextmanager
async def connect_async(
    url: str, *, timeout: float = DEFAULT_TIMEOUT, **options: Unpack[ConnectArguments]
) -> AsyncIterator[Connection]:
    """Connect to the broker at `url` without blocking the event loop; `async with` closes the connection at its end.

    `async with soapjms.connect_async("stomp://localhost:61613") as connection:`. The connection is the same as that of
    `connect`: clients, services and threads may share it. If the task is cancelled while it connects, a thread
    goes on until `timeout` at the latest, and closes what it gets.

    Args:
        url, timeout, options: see `connect`, whose errors this raises.

    Raises:
        UsageError: no asyncio event loop runs here.
    """
    connect_now = partial(connect, url, timeout=timeout, **options)
    connection = await elsewhere(connect_now, forget=lambda late: late.close())
    try:
        yield connection
    finally:
        await elsewhere(connection.close)
