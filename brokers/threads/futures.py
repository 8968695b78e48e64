"""Futures for the operations of a broker, and the executor that runs the callbacks of futures and watchers.

Callbacks run on threads where they may call the connection again. The executor is created on first use, and closes
within a deadline.
"""

from __future__ import annotations

from _thread import LockType, RLock, allocate_lock
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, InvalidStateError
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from functools import partial
from threading import Lock, current_thread
from time import monotonic
from typing import Any, Final, TypeVar

from brokers import events
from brokers.threads.bursts import SUBMITTERS, after_burst
from brokers.threads.thread import Pool, Thread

CALLBACK_THREADS: Final = 4


class Callbacks:
    """A thread pool that is created on first use. Most connections never need it: callers wait or consume instead."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._pool: Pool | None = None
        self._is_closed = False

    def executor(self) -> Executor:
        """Return the pool.

        Raises:
            RuntimeError: it was closed, as `submit` of a closed pool raises; the caller then runs the callback itself.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the connection is closed")
            if self._pool is None:
                self._pool = Pool(CALLBACK_THREADS, f"{self._name}-callback")
            return self._pool

    def call(self, function: Callable[[], object]) -> None:
        """Call `function` on the pool; an exception that leaves it is logged."""
        self.executor().submit(_call_logged, function)

    def close(self, deadline: float) -> None:
        """Accept no new callbacks; wait for running ones until the monotonic clock shows `deadline`."""
        with self._lock:
            self._is_closed = True
            pool = self._pool
        if pool is None:
            return
        pool.shutdown(wait=False)
        left = deadline - monotonic()
        if left > 0 and current_thread() not in pool.threads:  # a worker cannot wait for itself
            # `shutdown` has no time limit, so a thread waits in it, and that thread is joined with one.
            waiter = Thread(target=pool.shutdown, name=f"{self._name}-close", daemon=True)
            waiter.start()
            waiter.join(left)


def _call_logged(function: Callable[[], object]) -> None:
    try:
        function()
    except Exception:
        events.CALLBACK_FAILED.log()


T = TypeVar("T")

UNDONE: Final = (PENDING, RUNNING)


class Completion(Future[T]):
    """A future whose callbacks run on an executor, never on the thread that completed it.

    So the thread that reads a socket can complete it, and a callback may call the connection again. An exception from a
    callback is logged, as in `concurrent.futures`.

    Attributes:
        revoke: called when the future is cancelled, on the thread that cancels it: it ends the operation if that has
            not begun, and returns whether it did. None if there is nothing to do.
    """

    _done_callbacks: list[Callable[[Future[T]], object]]
    _gates: list[LockType] | None = None  # what is rarely set, or set at the end, costs nothing before
    _state = PENDING
    _result: Any = None
    _exception: BaseException | None = None
    revoke: Callable[[], bool] | None = None

    def __init__(self, executor: Callable[[], Executor]) -> None:
        # As in `concurrent.futures`, but whoever waits has a lock of its own, which takes fewer steps than a condition.
        self._condition = RLock()  # type: ignore[assignment]  # the library's functions only lock it
        self._waiters: list[Any] = []
        self._done_callbacks = []
        self._executor = executor

    def done(self) -> bool:
        """Return whether the future is done or was cancelled."""
        return self._state not in UNDONE

    def cancelled(self) -> bool:
        """Return whether the future was cancelled."""
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the operation, or None, waiting up to `timeout` seconds for its end."""
        if self._state != FINISHED:
            self._wait(timeout)
        return self._exception if self._state == FINISHED else super().exception(0)

    def result(self, timeout: float | None = None) -> T:
        """Return the result, waiting up to `timeout` seconds for it; see `concurrent.futures.Future`."""
        if self._state != FINISHED:
            self._wait(timeout)
        if self._state == FINISHED and self._exception is None:
            result: T = self._result
            return result
        return super().result(0)

    def _wait(self, timeout: float | None) -> None:
        """Wait until the future is done.

        Raises:
            TimeoutError: it is not after `timeout` seconds.
        """
        SUBMITTERS.own.about_to_wait()
        gate = allocate_lock()
        gate.acquire()
        with self._condition:
            if self._state not in UNDONE:
                return
            if self._gates is None:
                self._gates = []
            gates = self._gates
            gates.append(gate)
        if not gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            with self._condition:
                if self._state in UNDONE:
                    gates.remove(gate)
                    raise TimeoutError

    def set_running_or_notify_cancel(self) -> bool:
        """Record that the operation runs, unless the future was cancelled; return whether it runs."""
        with self._condition:
            if self._state == PENDING:
                self._state = RUNNING
                return True
        return super().set_running_or_notify_cancel()

    def withdraw(self) -> bool:
        """Cancel this future; True if its operation had not begun, so that it never happens."""
        revoke = self.revoke
        is_revoked = revoke is not None and revoke()
        self.cancel()
        return is_revoked

    def cancel(self) -> bool:
        """Cancel the future, unless it is done or its operation runs; return whether it is cancelled.

        An operation that has not begun never will; `withdraw` says whether that is so.
        """
        with self._condition:
            if self._state != PENDING:
                return self.cancelled()
            self._state = CANCELLED
            self._open_gates()
        revoke = self.revoke
        self._invoke_callbacks()
        if revoke is not None:
            revoke()
        return True

    def set_result(self, result: T) -> None:
        """Complete this future with a result.

        Raises:
            InvalidStateError: it is done already.
        """
        if not self._finish(result, None):
            raise InvalidStateError(f"{self._state}: {self!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        """Complete this future with an exception.

        Raises:
            InvalidStateError: it is done already.
        """
        if not self._finish(None, exception):
            raise InvalidStateError(f"{self._state}: {self!r}")

    def settle(self, result: T, error: BaseException | None = None) -> None:
        """Complete this future with `result`, or with `error` if there is one; do nothing if it was cancelled."""
        if not self._finish(result, error):
            self.notify_cancelled()

    def notify_cancelled(self) -> None:
        """Tell `wait` and `as_completed` that this future was cancelled; do nothing if it was not, or if they know."""
        with self._condition:
            if self._state == CANCELLED:
                super().set_running_or_notify_cancel()

    def _finish(self, result: T | None, error: BaseException | None) -> bool:
        """Complete this future; return False if it is done already."""
        with self._condition:
            if self._state not in UNDONE:
                return False
            self._result, self._exception, self._state = result, error, FINISHED
            for waiter in self._waiters:  # of `wait` and `as_completed`
                waiter.add_result(self) if error is None else waiter.add_exception(self)
            has_waiters = self._gates is not None
        if has_waiters:
            after_burst(self._open_gates)
        if self.revoke is not None:
            self.revoke = None
        if self._done_callbacks:
            self._invoke_callbacks()
        return True

    def _open_gates(self) -> None:
        """Wake all who wait; nobody begins to once the future is done."""
        for gate in self._gates or ():
            gate.release()

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(future)` on the executor once this future is done."""
        self.on_settled(partial(self._elsewhere, fn))

    def on_settled(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(future)` on the thread that settles this future: for bookkeeping that never blocks."""
        with self._condition:
            if self._state in UNDONE:
                self._done_callbacks.append(fn)
                return
        self._tell(fn)

    def call_back(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(future)` where callbacks run, for a function of `on_settled` that goes on there."""
        self._elsewhere(fn, self)

    def __await__(self) -> Generator[Any, None, T]:
        """Await the result in asyncio; cancelling the task that awaits it cancels this future."""
        if not self.done():
            from brokers.threads.event_loop import inbox_of_loop

            inbox, waiter = inbox_of_loop()
            inbox.about_to_wait(SUBMITTERS.own)
            self.on_settled(partial(inbox.put, waiter))
            try:
                yield from waiter
            except BaseException:
                self.cancel()
                raise
        return self.result()

    def _invoke_callbacks(self) -> None:
        """Call the callbacks and drop them, unlike the library: most refer to this future, and the cycle would keep its
        result, which may be large, until the garbage collector runs."""
        told, self._done_callbacks, self.revoke = self._done_callbacks, [], None
        for fn in told:
            self._tell(fn)

    def _tell(self, fn: Callable[[Future[T]], object]) -> None:
        try:
            fn(self)
        except Exception:
            events.FUTURE_SETTLED_CALLBACK_FAILED.log(self)

    def _elsewhere(self, fn: Callable[[Future[T]], object], future: Future[T]) -> None:
        try:
            self._executor().submit(_call_back, fn, future)
        except RuntimeError:  # the executor was shut down: the owner is closing, on this thread
            fn(future)


class DoneCompletion(Completion[T]):
    """A completion that is done from the beginning. It costs little, because nobody will ever wait for it."""

    def __init__(self, executor: Callable[[], Executor], result: T | None, error: BaseException | None = None) -> None:
        super().__init__(executor)
        self._state = FINISHED
        self._result = result
        self._exception = error

    def on_settled(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(future)` at once."""
        self._tell(fn)


class NearCompletion(Completion[T]):
    """A completion whose callbacks may run on the threads of `on_delivery`, or at once if it is done already.

    Args:
        run: runs a callback there.
    """

    def __init__(self, run: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(_nowhere)
        self._run = run

    def _elsewhere(self, fn: Callable[[Future[T]], object], future: Future[T]) -> None:
        try:
            self._run(partial(_call_back, fn, future))
        except RuntimeError:  # as above
            fn(future)


def _nowhere() -> Executor:
    raise RuntimeError("there is no executor")


def _call_back(fn: Callable[[Future[T]], object], future: Future[T]) -> None:
    try:
        fn(future)
    except BaseException:  # SystemExit too: on this thread it would end nothing, and nobody would be told
        events.FUTURE_CALLBACK_FAILED.log(future)
