"""Clocks, and waiting for a lost connection to be restored before something is sent over it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from brokers import events
from brokers.connection import Connection, ConnectionState
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, StaleDestinationError

T = TypeVar("T")


def epoch_milliseconds() -> int:
    """Return the time of this machine's clock in milliseconds since 1970, as JMS counts time."""
    return time.time_ns() // 1_000_000


CLOCK_TOLERANCE: Final = 1000
"""Milliseconds by which a clock that agrees with this machine's may seem to differ while a message is on the way."""


def expiration_here(stated: int | None, lifetime: int, received: int, *, is_left: bool) -> int:
    """Return when a message expires by this machine's clock, if it carries its lifetime.

    The broker counted the lifetime, by whatever clock, so the message had not expired when it came. What a sender
    states is exact if it can be true by this clock; otherwise the clocks differ, and the lifetime counts from now on.

    Args:
        stated: the expiration that the message states, in milliseconds since 1970; None if it states none.
        lifetime: in milliseconds.
        received: when the message came, in milliseconds since 1970.
        is_left: whether the lifetime is what was left when the message came; otherwise it is that from its sending on.
    """
    last = received + lifetime
    first = last - CLOCK_TOLERANCE if is_left else received
    return last if stated is None or not first <= stated <= last + CLOCK_TOLERANCE else stated


CANCEL_POLL_SECONDS: Final = 0.2
"""Poll interval, in seconds, for cancelled waits, which the connection does not know of."""

GivenUp: TypeAlias = Callable[[], str]
"""Returns the reason why the wait was cancelled, or an empty text if it was not."""


def await_connected(connection: Connection, until: float, given_up: GivenUp) -> None:
    """Return once the connection can be used, at the latest when the monotonic clock shows `until`.

    Raises:
        ConnectionLostError: the connection was not restored in time, or does not reconnect.
        ClosedError: the connection is closed, or the wait was cancelled.
    """
    while True:
        began = time.monotonic()
        step = max(0.0, min(CANCEL_POLL_SECONDS, until - began))
        try:
            connection.wait_connected(step)
        except ConnectionLostError:
            waited = time.monotonic() - began
            if why := given_up():
                raise ClosedError(f"{why} while the connection was lost") from None
            if began + step >= until or waited < step / 2:  # an early return means that nothing reconnects
                raise
        else:
            if why := given_up():
                raise ClosedError(why)
            return


def when_connected(connection: Connection, until: float, attempt: Callable[[], T], given_up: GivenUp = lambda: "") -> T:
    """Call `attempt` as soon as the connection can be used; repeat it if the connection was lost before the send.

    Args:
        connection: to the broker.
        until: time of the monotonic clock when waiting ends.
        attempt: sends. If it raises ConnectionLostError or StaleDestinationError, nothing was sent.
        given_up: tells whether the wait was cancelled.

    Raises:
        ConnectionLostError: the connection was not restored in time.
        ClosedError: the connection is closed, or the wait was cancelled.
    """
    while True:
        if connection.state is not ConnectionState.CONNECTED:
            await_connected(connection, until, given_up)
        generation = connection.generation
        try:
            return attempt()
        except (ConnectionLostError, StaleDestinationError) as error:
            if connection.state is ConnectionState.CONNECTED and connection.generation == generation:
                raise  # another attempt would fail in the same way
            events.SEND_REPEATED.log(error)


def why_lost(connection: Connection) -> str:
    """Return why a connection was lost; only a general text once there is another session."""
    try:
        connection.wait_connected(0)
    except BrokerError as error:
        return str(error)
    return "the connection was lost"
