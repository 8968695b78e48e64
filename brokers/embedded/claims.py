"""Who is to be the only one at a broker, whichever way clients come: a connection, or the consumer of a subscription.

The broker has one `Claims`; the listeners that it has for clients of other protocols ask it. What a client or a
subscription is called is theirs to say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock
from typing import TypeVar

T = TypeVar("T")


class Claims:
    """All that there are. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._succeeding = Lock()  # held outside the other
        self._connections: dict[Hashable, dict[object, bool]] = {}
        self._holders: dict[str, tuple[object, Callable[[], None]]] = {}

    def admit(self, client: Hashable, connection: object, *, is_sole: bool) -> bool:
        """Note a connection of a client; False, and it is not noted, where one of several is to be the only one.

        Args:
            client: by which connections belong together.
            connection: one of them.
            is_sole: it is to be the only one.
        """
        with self._lock:
            others = self._connections.setdefault(client, {})
            if others and (is_sole or any(others.values())):
                return False
            others[connection] = is_sole
            return True

    def leave(self, client: Hashable, connection: object) -> None:
        """Forget a connection, so that another may come. Does nothing where it was not admitted."""
        with self._lock:
            others = self._connections.get(client, {})
            others.pop(connection, None)
            if not others:
                self._connections.pop(client, None)

    def succeed(self, subscription: str, make: Callable[[], T], end: Callable[[T], None]) -> T:
        """Make the one consumer of a named subscription, once the one that there is has been ended.

        Args:
            subscription: its name.
            make: makes the consumer; what it raises is raised, and then there is none.
            end: ends what was made, when another one takes its place. It must not wait for who makes consumers.
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
        """Forget the consumer of a subscription, if it is this one still."""
        with self._lock:
            held = self._holders.get(subscription)
            if held is not None and held[0] is consumer:
                del self._holders[subscription]
