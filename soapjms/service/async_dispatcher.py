"""`AsyncDispatcher`: a dispatcher in an asyncio program, whose `async def` functions run on the program's own loop."""

from __future__ import annotations

from functools import partial
from typing import Final, Self, Unpack

from brokers.arguments import time_to_close
from brokers.connection import Connection
from brokers.threads.thread import Thread
from soapjms import events
from soapjms.event_loop import elsewhere, running_loop
from soapjms.observing import Health
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port
from soapjms.service.dispatcher import START_TIMEOUT, Dispatcher, DispatcherArguments
from soapjms.service.event_loop import LoopTasks
from soapjms.service.operations import Operations

CLOSE_DEADLINE: Final = 10.0
"""Seconds that `aclose` gives to the functions that are running."""


class AsyncDispatcher:
    """Serves the requests that come to a `jms:` URI or a WSDL's port, in an asyncio program.

    `async with` starts and closes it. `async def` functions of the service run on the event loop that it was started
    on, so they can use what belongs to that loop, such as a pool of database connections. Plain functions run on
    threads, and may block. `workers` bounds how many of both are under way; each takes a thread meanwhile.

    Args:
        connection: the connection to the broker, of `connect_async` or `connect`; the caller closes it.
        uri: see `soapjms.Dispatcher`.
        service: the service that answers the requests.
        options: see `soapjms.Dispatcher`.

    Attributes:
        dispatcher: the `soapjms.Dispatcher` beneath; `dispatcher.counts` and `dispatcher.under_way` are there.

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError, StoreError: see `soapjms.Dispatcher`.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        service: Operations,
        **options: Unpack[DispatcherArguments],
    ) -> None:
        self.dispatcher = Dispatcher(connection, uri, service, **options)
        self._tasks: LoopTasks | None = None

    async def start(self, timeout: float = START_TIMEOUT) -> Self:
        """Subscribe, and return once requests are being taken; see `soapjms.Dispatcher.start`.

        Raises:
            UsageError: no asyncio event loop runs here, or the dispatcher was started before.
        """
        tasks = LoopTasks(running_loop(), self._close_without_loop)
        start = partial(self.dispatcher.start, timeout, tasks=tasks)
        await elsewhere(start, forget=lambda dispatcher: dispatcher.close())
        self._tasks = tasks
        return self

    async def aclose(self, deadline: float = CLOSE_DEADLINE) -> bool:
        """Take no more requests, finish the open ones within `deadline` seconds, and unsubscribe. Idempotent.

        `async def` functions that are not finished then are cancelled, and have a second to clean up; the broker
        delivers their requests again. If this is cancelled itself, they are cancelled at once. Return whether all open
        requests were finished.

        Raises:
            UsageError: `deadline` is not a finite number; nothing is closed then.
        """
        time_to_close(deadline)
        try:
            return await elsewhere(partial(self.dispatcher.close, deadline))
        finally:
            if self._tasks is not None:
                await self._tasks.cancel()

    def _close_without_loop(self) -> None:
        """Close, on another thread, as the program's loop has ended: nothing can be run any more."""
        events.DISPATCHER_WITHOUT_LOOP.log(self.dispatcher.destination)
        Thread(target=self.dispatcher.close, name="soapjms-leaving", daemon=True).start()

    async def health(self, timeout: float = 5.0) -> Health:
        """Return the health of the dispatcher; see `soapjms.Dispatcher.health`."""
        return await elsewhere(partial(self.dispatcher.health, timeout))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<soapjms.AsyncDispatcher of {self.dispatcher!r}>"
