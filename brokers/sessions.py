"""One session after the other under one connection, and what a consumer does in each of them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from brokers.connection import Consumer, Delivery, OnDelivery
from brokers.crew import Crew, Turns, at_once
from brokers.endpoints import Opening
from brokers.errors import ConnectionLostError
from brokers.wishes import Wishes

log = logging.getLogger(__name__)


class Session(Opening, Protocol):
    """What one generation of a connection works with."""

    @property
    def is_up(self) -> bool:
        """Whether it has not ended."""

    def lost(self) -> ConnectionLostError:
        """Make the error that says that it has ended."""


SessionT = TypeVar("SessionT", bound=Session)
ArrivalT = TypeVar("ArrivalT")
DeliveryT = TypeVar("DeliveryT", bound=Delivery)


class LastingConsumer(Consumer, Generic[SessionT, ArrivalT, DeliveryT]):
    """A subscription in each session, and whose turn it is.

    `on_delivery` runs for one delivery at a time, on threads shared by all.
    """

    def __init__(self, wishes: Wishes, on_delivery: OnDelivery, owner: object, crew: Crew) -> None:
        self.owner = owner
        self.wishes = wishes
        self._on_delivery = on_delivery
        submit = at_once if wishes.inline else crew.run if wishes.quick else crew.submit
        self._turns: Turns[ArrivalT] = Turns(submit, self._take)
        self._is_stopped = False

    @property
    def is_temporary(self) -> bool:
        """Whether it ends with the session, as its destination does."""
        return self.wishes.destination.kind.is_temporary

    def start(self, session: SessionT, generation: int) -> None:
        """Subscribe, wait for the broker's answer, and begin to call `on_delivery`.

        Raises:
            BrokerError: the broker refused, as it does a selector that it cannot read.
            ConnectionLostError: the connection was lost meanwhile.
        """
        if not self.resume(session, generation):
            raise ConnectionLostError(f"the connection to {session} was lost")

    @abstractmethod
    def resume(self, session: SessionT, generation: int) -> bool:
        """Subscribe in a session and wait for the broker's answer; False if this was closed, or subscribed by then.

        Raises:
            BrokerError: as `start` has it.
        """

    def stop(self) -> None:
        """Start no further `on_delivery`; what is held may still be settled."""
        self._is_stopped = True
        self._turns.stop()

    def join(self, until: float) -> None:
        """Wait for the `on_delivery` under way, until the monotonic clock shows `until`; not for one's own."""
        self._turns.join(until)

    @abstractmethod
    def _take(self, arrival: ArrivalT) -> None:
        """Deliver what has arrived, unless its session or this consumer has ended since."""

    def _deliver(self, delivery: DeliveryT) -> None:
        try:
            self._on_delivery(delivery)
        except BaseException:  # SystemExit too: it must not end the thread and leave the message held
            log.exception("on_delivery failed, so message %s is released", delivery.message.message_id)
            delivery.release()
        if self.wishes.auto_accept:
            self._conclude(delivery)

    @abstractmethod
    def _conclude(self, delivery: DeliveryT) -> None:
        """Acknowledge what is taken for accepted once `on_delivery` ended."""
