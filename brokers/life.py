"""The state of a connection: changed in one place, told to those who watch it, and waited for."""

from __future__ import annotations

from contextlib import suppress
from threading import Condition
from typing import Final

from brokers.callbacks import Callbacks
from brokers.connection import ConnectionState, OnState
from brokers.crew import Turns
from brokers.errors import BrokerError, ClosedError, ConnectionLostError

WHY: Final = {ConnectionState.LOST: ConnectionLostError, ConnectionState.CLOSED: ClosedError}


class Life:
    """Where a connection is in its life. CLOSED is the end. Thread-safe.

    Args:
        callbacks: where watchers are called, one change at a time and in order.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self.cause = "the connection was not opened"
        self._state = ConnectionState.LOST
        self._changed = Condition()
        self._watchers: list[OnState] = []
        self._news: Turns[tuple[OnState, ConnectionState]] = Turns(callbacks.call, _tell)

    @property
    def state(self) -> ConnectionState:
        """What it is now."""
        return self._state

    def become(self, state: ConnectionState, cause: str = "") -> bool:
        """Change the state and tell who watches; False if it was so before, or if it is CLOSED.

        Args:
            state: the new one.
            cause: of an end, as it stands in the error of those who wait or call.
        """
        with self._changed:
            if self._state in (state, ConnectionState.CLOSED):
                return False
            self._state = state
            self.cause = cause
            self._changed.notify_all()
            for watcher in self._watchers:
                self._news.put((watcher, state))
            return True

    def watch(self, on_state: OnState) -> None:
        """Tell `on_state` of every change from now on.

        Raises:
            ClosedError: there will be none.
        """
        with self._changed:
            if self._state is ConnectionState.CLOSED:
                raise self.failure()
            self._watchers.append(on_state)

    def unwatch(self, on_state: OnState) -> None:
        """Tell it no more, but for what is on its way. Does nothing if it did not watch."""
        with self._changed, suppress(ValueError):
            self._watchers.remove(on_state)

    def wait_connected(self, timeout: float | None) -> None:
        """Return once it is CONNECTED.

        Raises:
            ConnectionLostError: it is not within `timeout` seconds.
            ClosedError: it never will be.
        """
        if self.state is ConnectionState.CONNECTED:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._state is not ConnectionState.LOST, timeout)
            if self._state is not ConnectionState.CONNECTED:
                raise self.failure()

    def failure(self) -> BrokerError:
        """Make the error that says why the connection cannot be used."""
        return WHY[self._state](self.cause)


def _tell(news: tuple[OnState, ConnectionState]) -> None:
    on_state, state = news
    on_state(state)
