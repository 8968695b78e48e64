"""Other connections, to where a broker sends single links on: an `amqp:link:redirect`.

The first connection stays, for all other links. Where it may lead is what `redirected` says: by the same transport, so
never out of TLS, and only to hosts that are allowed.

Spec: AMQP 1.0 part 2, 2.8.18; WebSocket binding 3.2 (WS-26, WS-27).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from brokers.amqp.detours import MAX_DETOURS, redirected
from brokers.amqp.login import Login
from brokers.connection import ConnectionState

if TYPE_CHECKING:
    from brokers.amqp.connection import AmqpConnection

MAX_BRANCHES: Final = 10
"""Places that the links of one connection are followed to."""


class Branches:
    """The connections that were made because of redirects; they last as long as the one that they branch off.

    Args:
        make: opens a connection.
    """

    def __init__(self, make: Callable[[Login], AmqpConnection]) -> None:
        self._make = make
        self._connecting = Lock()  # so that who is sent to the same place takes the same connection
        self._lock = Lock()
        self._made: dict[str, AmqpConnection] = {}
        self._is_closed = False

    def to(self, login: Login, info: Any) -> tuple[AmqpConnection, str] | None:
        """Return the connection to the place that a redirect names, and the address to use there.

        None if it names no place or no address, leads to a host that is not allowed, or there were too many.

        Args:
            login: of the connection that was told so.
            info: of the error.

        Raises:
            BrokerError: nobody lets us in there.
        """
        there = redirected(login, info)
        address = info.get("address") if isinstance(info, dict) else None
        if there is None or not isinstance(address, str) or there.hops > MAX_DETOURS:
            return None
        key = f"{there} {there.virtual_host} {there.path}"
        with self._connecting:
            found = self._find(key)
            if found is None and self._has_room:
                found = self._keep(key, self._make(there))
            return None if found is None else (found, str(address))

    def close(self, until: float) -> None:
        """Close them, before the monotonic clock shows `until`; one that is being made closes itself."""
        with self._lock:
            self._is_closed = True
            made = list(self._made.values())
        for each in made:
            each.close(max(0.0, until - monotonic()))

    @property
    def _has_room(self) -> bool:
        with self._lock:
            return not self._is_closed and len(self._made) < MAX_BRANCHES

    def _find(self, key: str) -> AmqpConnection | None:
        with self._lock:
            found = self._made.get(key)
            if found is not None and found.state is ConnectionState.CLOSED:
                del self._made[key]
                return None
            return found

    def _keep(self, key: str, made: AmqpConnection) -> AmqpConnection | None:
        with self._lock:
            if not self._is_closed:
                self._made[key] = made
                return made
        made.close(0.0)
        return None
