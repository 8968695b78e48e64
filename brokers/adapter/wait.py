"""Clocks, and waiting for a connection that is lost and being made again, before something is sent over it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from brokers.connection import Connection, ConnectionState
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, StaleDestinationError

log = logging.getLogger("brokers")

T = TypeVar("T")


def epoch_milliseconds() -> int:
    """Return what the clock of this machine shows, as JMS counts time."""
    return time.time_ns() // 1_000_000


def left(until: float) -> float:
    """Return the seconds until the monotonic clock shows `until`, 0 once it does."""
    return max(0.0, until - time.monotonic())


CANCEL_POLL_SECONDS: Final = 0.2
"""Seconds after which who waits looks whether that was given up, which a connection knows nothing of."""

GivenUp: TypeAlias = Callable[[], str]
"""Says why nobody wants any more what is waited for, an empty text while somebody does."""


def await_connected(connection: Connection, until: float, given_up: GivenUp) -> None:
    """Return once the connection can be used; `until` as the monotonic clock shows it.

    Raises:
        ConnectionLostError: that is not so in time, or nobody makes it again.
        ClosedError: it never will be, or it was given up.
    """
    while True:
        began = time.monotonic()
        step = max(0.0, min(CANCEL_POLL_SECONDS, until - began))
        try:
            return connection.wait_connected(step)
        except ConnectionLostError:
            waited = time.monotonic() - began
            why = given_up()
            if why:
                raise ClosedError(f"{why} while the connection was lost") from None
            if began + step >= until or waited < step / 2:  # then nobody makes it again
                raise


def when_connected(connection: Connection, until: float, attempt: Callable[[], T], given_up: GivenUp = lambda: "") -> T:
    """Do what needs the connection as soon as it can be used; again, if it was lost before anything was sent.

    Args:
        connection: to the broker.
        until: what the monotonic clock shows when waiting ends.
        attempt: does it. When it raises ConnectionLostError or StaleDestinationError, nothing was sent.
        given_up: ends waiting.

    Raises:
        ConnectionLostError: the connection cannot be used in time.
        ClosedError: it never will, or it was given up.
    """
    while True:
        await_connected(connection, until, given_up)
        generation = connection.generation
        try:
            return attempt()
        except (ConnectionLostError, StaleDestinationError) as error:
            if connection.state is ConnectionState.CONNECTED and connection.generation == generation:
                raise  # it would be so again
            log.debug("nothing was sent: %s", error)


def why_lost(connection: Connection) -> str:
    """Say why a connection was lost, as far as that is still known: nothing more once there is another session."""
    try:
        connection.wait_connected(0)
    except BrokerError as error:
        return str(error)
    return "the connection was lost"
