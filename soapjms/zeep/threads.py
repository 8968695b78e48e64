"""Sending from asyncio: on threads, as a broker may hold up who sends, and within the time that a call has.

The threads are the transport's own: those of the loop are everybody's, who look up host names with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final, TypeVar

from brokers.threads import Pool
from soapjms.protocol.errors import CallFailedError, CallTimeoutError, SendOutcome, UsageError
from soapjms.protocol.names import FailureReason

T = TypeVar("T")

THREADS: Final = 32
"""How many messages of one transport are being sent at a time; others wait for their turn."""

PATIENCE: Final = 0.5
"""Seconds after which who sends and should have given up by itself is not waited for any more."""


class SendingThreads:
    """Threads of one transport, begun when they are needed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._executor: Pool | None = None
        self._closed = False

    async def run(
        self, send: Callable[[float], T], seconds: float, forget: Callable[[T], object] = lambda _: None
    ) -> T:
        """Send something without holding up the loop, and return what `send` returns.

        Args:
            send: gets the seconds that are left when its turn comes, and lasts no longer unless the broker holds it up.
            seconds: for the turn and the sending together.
            forget: gets what `send` returns where nobody waits for it any more.

        Raises:
            CallTimeoutError: nothing was sent in time, or the broker holds up who sends.
            CallFailedError: the transport was closed before.
            UsageError: the transport is closed.
        """
        promised: Future[T] = Future()
        self._queue(partial(self._run, send, monotonic() + seconds, promised))
        try:
            async with asyncio.timeout(seconds + PATIENCE) as limit:
                return await asyncio.wrap_future(promised)
        except BaseException as error:
            promised.add_done_callback(lambda done: _forget(done, forget))  # a thread may be at it
            if isinstance(error, TimeoutError) and limit.expired():
                raise CallTimeoutError(
                    f"the broker took nothing within {seconds:g} s; whether it has the message is not known",
                    FailureReason.RECEPTION_FAILURE,
                ) from None
            raise

    def close(self) -> None:
        """Send nothing more: what waits for its turn fails. Idempotent."""
        with self._lock:
            self._closed = True
            if self._executor is not None:
                self._executor.shutdown(wait=False)

    def _queue(self, run: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise UsageError("the transport is closed; make another")
            if self._executor is None:
                self._executor = Pool(THREADS, "soapjms-zeep")
            self._executor.submit(run)

    def _run(self, send: Callable[[float], T], due: float, promised: Future[T]) -> None:
        if not promised.set_running_or_notify_cancel():
            return
        try:
            left = due - monotonic()
            if self._closed or left <= 0:
                why = "the transport was closed" if self._closed else "those before it took all the time"
                kind = CallFailedError if self._closed else CallTimeoutError
                raise kind(f"nothing was sent: {why}", FailureReason.TRANSMISSION_FAILURE, SendOutcome.NOT_SENT)
            result = send(left)
        except BaseException as error:
            promised.set_exception(error)
        else:
            promised.set_result(result)


def _forget(done: Future[T], forget: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        forget(done.result())
