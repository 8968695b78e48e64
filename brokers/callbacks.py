"""The executor on which a connection's futures and watchers call back: made when first needed, closed by a deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from threading import Lock, current_thread
from time import monotonic
from typing import Final

from brokers.threads import Pool, Thread

log = logging.getLogger(__name__)

WORKERS: Final = 4


class Callbacks:
    """A lazily made thread pool. Most connections never need it: their callers wait for futures, or consume."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._pool: Pool | None = None
        self._is_closed = False

    def executor(self) -> Executor:
        """Return the pool.

        Raises:
            RuntimeError: it was closed, as a closed pool says too; the caller runs the callback itself.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the connection is closed")
            if self._pool is None:
                self._pool = Pool(WORKERS, f"{self._name}-callback")
            return self._pool

    def call(self, function: Callable[[], object]) -> None:
        """Call `function` on the pool; an exception that leaves it is logged."""
        self.executor().submit(_call_logged, function)

    def close(self, deadline: float) -> None:
        """Let callbacks that are under way finish until the monotonic clock shows `deadline`; take no new ones."""
        with self._lock:
            self._is_closed = True
            pool = self._pool
        if pool is None:
            return
        pool.shutdown(wait=False)
        left = deadline - monotonic()
        if left > 0 and current_thread() not in pool.threads:  # a worker cannot wait for itself
            # The pool can wait for its threads, but knows no deadline: so a thread waits for it, and that is joined.
            waiter = Thread(target=pool.shutdown, name=f"{self._name}-close", daemon=True)
            waiter.start()
            waiter.join(left)


def _call_logged(function: Callable[[], object]) -> None:
    try:
        function()
    except Exception:
        log.exception("a callback of the connection failed")
