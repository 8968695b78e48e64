"""What looks after a link of an engine."""

from __future__ import annotations

from typing import Any, Protocol

from proton import Condition, Delivery, Receiver, Sender

from brokers.errors import BrokerError


def discard(delivery: Any) -> None:
    """Take what came of a delivery, and drop it: for links that nobody takes from any more, as proton would keep it."""
    link = delivery.link
    if delivery.pending and not delivery.aborted:
        link.recv(delivery.pending)
    if delivery.aborted or not delivery.partial:
        link.advance()
        delivery.settle()


class Link(Protocol):
    """What looks after one link. Called with the engine's lock held; it must not block."""

    def opened(self, link: Sender | Receiver) -> None:
        """The peer attached its end, or refuses to: then it has neither source nor target, and closes at once."""

    def flowed(self, link: Sender | Receiver) -> None:
        """There is credit, or less of it."""

    def delivered(self, delivery: Delivery) -> None:
        """Something arrived, or the state of what was sent has changed."""

    def let_go(self) -> bool:
        """Let go what came of a message, for want of memory; False if there is nothing to let go."""
        return False

    def closed(self, link: Sender | Receiver, condition: Condition | None) -> None:
        """The peer detached its end, or the answer to our detaching came."""

    def lost(self, error: BrokerError) -> None:
        """The connection has ended. Called without the lock, by any thread, once."""
