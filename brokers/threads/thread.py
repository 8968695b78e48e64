"""Threads whose start cannot hang. Every thread of `brokers` and `soapjms` is one of these.

Python's `Thread.start` waits until the new thread reports that it runs. A thread without memory for its first step
never reports, so its starter would wait forever, and with it all threads that wait for a lock that the starter holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Call: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"

START_SECONDS: Final = 5.0
"""Time within which a thread must begin, in seconds, even on a busy machine; otherwise its start has failed."""


class Thread(threading.Thread):
    """A thread that begins within `START_SECONDS`, or not at all: then `start` raises RuntimeError."""

    def __init__(self, **options: Any) -> None:
        """Create a thread without starting it; see `threading.Thread` for the options."""
        super().__init__(**options)
        self._started = self._beginning = _Beginning()

    def run(self) -> None:
        """Call the target, unless `start` gave up."""
        if self._beginning.begin():
            super().run()


class _Beginning(threading.Event):
    """Replaces the event that `threading.Thread` waits for at its start; the first of thread and starter decides.

    Unlike waiting for an Event, waiting for this takes no memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._decided = threading.Lock()
        self._told = threading.Lock()
        self._told.acquire()

    def begin(self) -> bool:
        """Record that the thread begins; return False if the starter has given up."""
        is_first = self._decided.acquire(blocking=False)
        self._told.release()
        return is_first

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the thread to begin."""
        if not self._told.acquire(timeout=START_SECONDS) and self._decided.acquire(blocking=False):
            raise RuntimeError(f"a new thread did not begin within {START_SECONDS:g} s; memory may be short")
        return True


def future_of(function: Callable[[], T], name: str) -> Future[T]:
    """Call a function on a daemon thread of its own, called `name`, and return the future of its result.

    Raises:
        RuntimeError, MemoryError: the thread could not be started.
    """
    future: Future[T] = Future()
    Thread(target=_carry_out, args=(future, function), name=name, daemon=True).start()
    return future


class Pool(Executor):
    """A few daemon threads that call functions, started when needed. They end with the program, even during a call.

    Args:
        most: maximum number of threads.
        name: prefix of each thread's name, followed by its number.

    Attributes:
        threads: the threads that have begun.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self.threads: list[Thread] = []
        self._is_closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function soon, on an existing thread if no further one can be started.

        Raises:
            RuntimeError: the pool was shut down, or has no thread and can start none.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"{self._name} was shut down")
            self._calls.put((future, partial(fn, *args, **kwargs)))  # first, as a thread that finds nothing is idle
            if not self._idle.acquire(blocking=False) and len(self.threads) < self._most:
                self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; finish the submitted ones, or cancel them; with `wait` return once that is done."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for _ in self.threads:
                    self._calls.put(None)
        if cancel_futures:
            self._cancel()
        if wait:
            for thread in self.threads:
                thread.join()

    def _begin(self) -> None:
        thread = Thread(target=self._work, name=f"{self._name}_{len(self.threads)}", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            if not self.threads:
                self._calls.get()
                raise
        else:
            self.threads.append(thread)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            _carry_out(*call)
            del call  # it may hold large objects, and the next one may take long to arrive

    def _next(self) -> _Call | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            self._idle.release()
            return self._calls.get()

    def _cancel(self) -> None:
        ends = 0
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    call[0].cancel()
                ends += call is None
        for _ in range(ends):
            self._calls.put(None)


def _carry_out(future: Future[Any], function: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
