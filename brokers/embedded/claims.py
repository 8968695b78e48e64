"""Exclusive claims at a broker, across all protocols: a client's only connection, a subscription's only consumer.

Each broker has one `Claims`, which its listeners for clients of other protocols share. The listeners define how clients
and subscriptions are named.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock
from typing import TypeVar

T = TypeVar("T")


class Claims:
    """The exclusive claims at one broker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._succeeding = Lock()  # acquired before the other lock
        self._connections: dict[Hashable, dict[object, bool]] = {}
        self._holders: dict[str, tuple[object, Callable[[], None]]] = {}

    def admit(self, client: Hashable, connection: object, *, is_sole: bool) -> bool:
        """Admit a connection of a client; return False, and do not admit it, if an exclusive claim is in conflict.

        Args:
            client: identifies the client, which may have several connections.
            connection: one of its connections.
            is_sole: whether the connection must be the client's only one.
        """
        with self._lock:
            others = self._connections.setdefault(client, {})
            if others and (is_sole or any(others.values())):
                return False
            others[connection] = is_sole
            return True

    def leave(self, client: Hashable, connection: object) -> None:
        """Forget a connection, so that another can be admitted. Does nothing if it was not admitted."""
        with self._lock:
            others = self._connections.get(client, {})
            others.pop(connection, None)
            if not others:
                self._connections.pop(client, None)

    def succeed(self, subscription: str, make: Callable[[], T], end: Callable[[T], None]) -> T:
        """Create the only consumer of a named subscription, after ending the previous one.

        Args:
            subscription: name of the subscription.
            make: creates the consumer. If it raises, so does this, and the subscription has no consumer.
            end: ends the consumer when another one replaces it. It must not wait for callers of this method.
        """
        with self._succeeding:
            with self._lock:
                before = self._holders.pop(subscription, None)
            if before is not None:
                before[1]()
            consumer = make()
            with self._lock:
                self._holders[subscription] = consumer, partial(end, consumer)
            return consumer

    def let_go(self, subscription: str, consumer: object) -> None:
        """Forget the consumer of a subscription, if it is still `consumer`."""
        with self._lock:
            held = self._holders.get(subscription)
            if held is not None and held[0] is consumer:
                del self._holders[subscription]
