"""What the embedded broker hands to a program: deliveries, and the thread that calls with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import current_thread
from time import monotonic
from typing import Final

from brokers.connection import Consumer, Delivery, OnDelivery
from brokers.embedded.core import Core
from brokers.embedded.model import Batch, Holding, Subscription
from brokers.errors import BrokerError
from brokers.threads import Thread

log = logging.getLogger(__name__)

GENERATION: Final = 1
"""A connection within one process is never lost, so it never has a second generation."""


class EmbeddedDelivery(Delivery):
    """One message as it reached one consumer of the embedded broker."""

    __slots__ = ("_batch", "_core", "holding")

    def __init__(self, core: Core, holding: Holding, batch: Batch | None = None) -> None:
        """Take what is held; with a `batch` all that is done here is done at its commit."""
        super().__init__(holding.message, holding.delivery_count, GENERATION)
        self._core = core
        self._batch = batch
        self.holding = holding

    def within(self, batch: Batch) -> EmbeddedDelivery:
        """Return what decides within a transaction; that raises ClosedError once the transaction has ended."""
        return EmbeddedDelivery(self._core, self.holding, batch)

    def accept(self) -> None:
        """Acknowledge. Does nothing if this was settled, is in a transaction, or went back with its consumer."""
        self._core.accept(self.holding, self._batch)

    def release(self) -> None:
        """Give the message back, or to the dead letters if that was its last delivery. Else as `accept`."""
        self._core.release(self.holding, self._batch)

    def give_back(self) -> None:
        """Do as `release`, of what nobody has seen: it does not count as a delivery."""
        self._core.release(self.holding, self._batch, counts=False)

    def reject(self, reason: str) -> None:
        """Put the message on the dead-letter queue, `reason` in its property `dead_letter_reason`. Else as `accept`."""
        self._core.reject(self.holding, reason, self._batch)


class EmbeddedConsumer(Consumer):
    """A subscription and the thread that calls `on_delivery`; `on_end` is told when that thread ends.

    Raises:
        BrokerError: there is no thread to be had; the subscription has ended.
    """

    def __init__(
        self,
        core: Core,
        subscription: Subscription,
        on_delivery: OnDelivery,
        name: str,
        on_end: Callable[[EmbeddedConsumer], None],
    ) -> None:
        self._core = core
        self._subscription = subscription
        self._on_delivery = on_delivery
        self._on_end = on_end
        # A daemon, so that a program that forgets to close still ends.
        self._thread = Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.close()
            raise BrokerError(f"{subscription.node.destination} is not consumed from: {error}") from error

    def close(self) -> None:
        """End the subscription; what is not accepted goes back at once, from an `on_delivery` under way too."""
        self.stop()
        self.leave()

    def stop(self) -> None:
        """Start no further `on_delivery`; what is held may still be settled."""
        self._core.stop(self._subscription)

    def allow(self, prefetch: int) -> None:
        """Hold so many from now on; 0 to pause."""
        self._core.allow(self._subscription, prefetch)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to take, or nothing may be taken."""
        return self._core.is_idle(self._subscription)

    def join(self, deadline: float) -> None:
        """Wait for the `on_delivery` under way, until the monotonic clock shows `deadline`; not for one's own."""
        if self._thread is not current_thread():
            self._thread.join(max(0.0, deadline - monotonic()))

    def leave(self, seen: Iterable[EmbeddedDelivery] | None = None) -> None:
        """Give back what is held; of this only what was `seen` counts as delivered, None for all of it."""
        holdings = None if seen is None else {each.holding for each in seen}
        self._core.leave(self._subscription, holdings)

    def _run(self) -> None:
        while (holding := self._core.take(self._subscription)) is not None:
            delivery = EmbeddedDelivery(self._core, holding)
            try:
                self._on_delivery(delivery)
            except BaseException:  # SystemExit too: it must not end the thread and leave the message held
                delivery.release()  # first, as there may not be the memory to tell of it
                with suppress(MemoryError):
                    log.exception("on_delivery failed, so message %s is released", delivery.message.message_id)
        self._on_end(self)
