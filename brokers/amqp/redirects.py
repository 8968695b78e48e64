"""Connections to the targets of redirects of single links (`amqp:link:redirect`).

The first connection stays open for all other links. `redirected` defines the permitted targets: only the same
transport, so never out of TLS, and only allowed hosts.

Spec: AMQP 1.0 part 2, 2.8.18; WebSocket binding 3.2 (WS-26, WS-27).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Final, TypeAlias

from brokers.amqp.endpoints import MAX_DETOURS, redirected
from brokers.amqp.outcomes import RedirectedError
from brokers.amqp.url import AmqpLogin
from brokers.connection import Connection, ConnectionState, SendResult
from brokers.errors import BrokerError, DestinationGoneError, SendFailedError, UnsentError
from brokers.message import Message
from brokers.threads.timer import left

MAX_KNOWN_PLACES: Final = 1000
"""Maximum number of reply destinations whose connection is remembered."""

Way: TypeAlias = Callable[[float], SendResult]
"""Sends a message to another place within a number of seconds, blocking; raises SendFailedError."""

MAX_BRANCHES: Final = 10
"""Maximum number of places to which the links of one connection are redirected."""


class Branches:
    """The connections that were opened because of redirects; they last as long as the first connection.

    Args:
        make: opens a connection.
    """

    def __init__(self, make: Callable[[AmqpLogin], Connection]) -> None:
        self._make = make
        self._connecting = Lock()  # so that all redirects to one place share one connection
        self._lock = Lock()
        self._made: dict[str, Connection] = {}
        self._asking: OrderedDict[str, Connection] = OrderedDict()
        self._is_closed = False

    def to(self, login: AmqpLogin, info: Any) -> tuple[Connection, str] | None:
        """Return the connection to the place that a redirect names, and the address to use there.

        Return None if it names no place or no address, leads to a host that is not allowed, or there were too many.

        Args:
            login: login of the connection that was redirected.
            info: the `info` map of the error.

        Raises:
            BrokerError: the connection to that place failed.
        """
        there = redirected(login, info)
        address = info.get("address") if isinstance(info, dict) else None
        if there is None or not isinstance(address, str) or there.hops > MAX_DETOURS:
            return None
        key = f"{there} {there.host_name} {there.path}"
        with self._connecting:
            found = self._find(key)
            if found is None and self._has_room:
                found = self._keep(key, self._make(there))
            return None if found is None else (found, str(address))

    def note_asked(self, message: Message, by: Connection) -> None:
        """Remember which connection a request came by, for its answer; for the last thousand reply destinations."""
        if message.reply_to is not None:
            with self._lock:
                key = f"{message.reply_to}"
                self._asking[key] = by
                self._asking.move_to_end(key)
                while len(self._asking) > MAX_KNOWN_PLACES:
                    self._asking.popitem(last=False)

    def way_on(self, login: AmqpLogin, message: Message, error: BrokerError | None) -> Way | None:
        """Return a function that sends a refused message to another place, or None if there is no such place.

        The place is the target of a redirect; or for an answer to a missing destination, where the request came from.

        Args:
            login: login of the connection that refused the message.
            message: the message.
            error: why it was refused; None if it was accepted.
        """
        if isinstance(error, RedirectedError):
            return partial(self._send_to, login, message, error)
        if isinstance(error, DestinationGoneError):
            with self._lock:
                asking = self._asking.get(f"{message.destination}")
            return None if asking is None else partial(_send_by, asking, message, error)
        return None

    def _send_to(self, login: AmqpLogin, message: Message, error: RedirectedError, timeout: float) -> SendResult:
        assert message.destination is not None
        try:
            elsewhere = self.to(login, error.info)
        except (BrokerError, TimeoutError) as failed:
            raise SendFailedError(f"{error}; there: {failed or 'no answer in time'}") from failed
        if elsewhere is None:
            raise error
        connection, address = elsewhere
        return _send_by(
            connection, replace(message, destination=replace(message.destination, address=address)), error, timeout
        )

    def close(self, until: float) -> None:
        """Close all connections before the monotonic clock shows `until`; one that is being opened closes itself."""
        with self._lock:
            self._is_closed = True
            made = list(self._made.values())
        for each in made:
            each.close(left(until))

    @property
    def _has_room(self) -> bool:
        with self._lock:
            return not self._is_closed and len(self._made) < MAX_BRANCHES

    def _find(self, key: str) -> Connection | None:
        with self._lock:
            found = self._made.get(key)
            if found is not None and found.state is ConnectionState.CLOSED:
                del self._made[key]
                return None
            return found

    def _keep(self, key: str, made: Connection) -> Connection | None:
        with self._lock:
            if not self._is_closed:
                self._made[key] = made
                return made
        made.close(0.0)
        return None


def _send_by(connection: Connection, message: Message, error: SendFailedError, timeout: float) -> SendResult:
    try:
        return connection.send(message, timeout=timeout).result(timeout)
    except (BrokerError, TimeoutError) as failed:
        kind = DestinationGoneError if isinstance(failed, DestinationGoneError) else SendFailedError
        is_known = failed.is_known if isinstance(failed, SendFailedError) else isinstance(failed, UnsentError)
        raise kind(f"{error}; there: {failed or 'no answer in time'}", is_known=is_known) from failed
