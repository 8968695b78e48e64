"""Clocks, and waiting for a connection that is lost and being made again, before something is sent over it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from brokers.connection import Connection, ConnectionState
from brokers.errors import BrokerError, ConnectionLostError, StaleDestinationError

log = logging.getLogger("soapjms.waiting")

T = TypeVar("T")


def epoch_milliseconds() -> int:
    """Return what the clock of this machine shows, as JMS counts time."""
    return time.time_ns() // 1_000_000


def when_connected(connection: Connection, until: float, attempt: Callable[[], T]) -> T:
    """Do what needs the connection as soon as it can be used; again, if it was lost before anything was sent.

    Args:
        connection: to the broker.
        until: what the monotonic clock shows when waiting ends.
        attempt: does it. When it raises ConnectionLostError or StaleDestinationError, nothing was sent.

    Raises:
        ConnectionLostError: the connection cannot be used in time.
        ClosedError: it never will.
    """
    while True:
        connection.wait_connected(max(0.0, until - time.monotonic()))
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
