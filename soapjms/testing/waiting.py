"""Waiting for a broker that was started, and saying why there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from brokers.connecting import connect
from brokers.errors import BrokerError
from brokers.urls import without_login
from soapjms.protocol.errors import SoapJmsError

POLL: Final = 0.1
LOG_LINES: Final = 30


class BrokerNotAvailableError(SoapJmsError):
    """The broker that the tests ask for cannot be had; the message says why and what to do."""


def wait_for(url: str, timeout: float, log: Callable[[], str], is_running: Callable[[], bool] = lambda: True) -> None:
    """Return once a broker lets us in.

    Args:
        url: of the broker.
        timeout: seconds that it may take.
        log: returns what it has written, whose end goes into the error.
        is_running: says whether there is still something to wait for.

    Raises:
        BrokerNotAvailableError: it did not in time, or has ended.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connect(url, timeout=5).close()
            return
        except BrokerError as error:
            has_ended = not is_running()  # asked before the log is read, which then is whole
            named, told = without_login(url), "\n".join(log().splitlines()[-LOG_LINES:])
            if has_ended:
                raise BrokerNotAvailableError(f"the broker for {named} ended before it was ready\n{told}") from error
            if time.monotonic() > deadline:
                raise BrokerNotAvailableError(
                    f"the broker at {named} was not ready after {timeout:g} s: {error}\n{told}"
                ) from error
        time.sleep(POLL)
