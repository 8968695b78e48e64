"""Consumers and deliveries over AMQP: whose turn it is, and what the program decides.

A consumer has one receiving link in each generation of the connection; see `brokers.amqp.receiving`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from proton import Condition
from proton import Delivery as Transfer

from brokers.amqp.dialect import Dialect
from brokers.amqp.engine import Engine
from brokers.amqp.mapping import Arrived, from_amqp_message
from brokers.amqp.receiving import Arrival, Inlet, Wishes
from brokers.connection import Consumer, Delivery, OnDelivery
from brokers.crew import Crew, Turns, at_once
from brokers.errors import ConnectionLostError

log = logging.getLogger(__name__)

Later: TypeAlias = Callable[[float, Callable[[], None]], None]
"""Has a function run after so many seconds, where it may block; not at all once the connection is closed."""

MAX_DELIVERIES: Final = 6
"""A message that comes back from this many deliveries is a dead letter, as with the embedded broker."""

FIRST_PAUSE: Final = 0.05
"""Seconds before a message is given back for the first time; they double each time."""


class Fate(Enum):
    """What became of a delivery on this side."""

    HELD = auto()
    ACCEPTED = auto()
    RETURNED = auto()


class AmqpDelivery(Delivery):
    """One message as it reached one consumer. `fate` changes only while the engine's lock is held."""

    __slots__ = ("consumer", "fate", "inlet", "number")

    def __init__(self, consumer: AmqpConsumer, arrival: Arrival, arrived: Arrived) -> None:
        super().__init__(arrived.message, arrived.delivery_count, arrival.inlet.generation)
        self.consumer = consumer
        self.inlet = arrival.inlet
        self.number = arrival.number
        self.fate = Fate.ACCEPTED if consumer.wishes.auto_accept else Fate.HELD

    @property
    def is_held(self) -> bool:
        """Whether the message is still this consumer's to settle. With the engine's lock held."""
        return self.fate is Fate.HELD and self.inlet.is_holding(self.number)

    @property
    def is_accepted(self) -> bool:
        """Whether the broker was told so; what it was told before the connection was lost, it may not have heard."""
        return self.fate is Fate.ACCEPTED and self.inlet.engine.is_up

    def accept(self) -> None:
        """Acknowledge. Does nothing if this was settled before, or if the message went back with its link."""
        self._settle(Fate.ACCEPTED, Transfer.ACCEPTED)

    def release(self) -> None:
        """Give this message back, after a pause that is longer each time; the last time it becomes a dead letter."""
        deliveries = self.delivery_count or 1
        if deliveries >= MAX_DELIVERIES:
            reason = f"delivered {deliveries} times and not accepted"
            if self._settle(Fate.RETURNED, Transfer.REJECTED, reason):
                log.error("message %s is a dead letter: %s", self.message.message_id, reason)
            return
        with self.inlet.engine.lock:
            if not self.is_held:
                return
            self.fate = Fate.RETURNED
        pause = FIRST_PAUSE * 2.0 ** (deliveries - 1)
        self.consumer.later(pause, self._give_back)

    def reject(self, reason: str) -> None:
        """Have the broker make a dead letter of it; it is told the reason, and may keep it."""
        if self._settle(Fate.RETURNED, Transfer.REJECTED, reason):
            log.warning("message %s was rejected: %s", self.message.message_id, reason)

    def accept_in(self, transaction: bytes) -> None:
        """Acknowledge within a transaction. With the engine's lock held."""
        self.inlet.settle(self.number, Transfer.ACCEPTED, transaction=transaction)

    def conclude(self) -> None:
        """Acknowledge what is taken for accepted once `on_delivery` ended."""
        with suppress(ConnectionLostError), self.inlet.engine.working():  # when lost, the broker delivers it again
            self.inlet.settle(self.number, Transfer.ACCEPTED)

    def _give_back(self) -> None:
        with suppress(ConnectionLostError), self.inlet.engine.working():
            self.inlet.settle(self.number, Transfer.MODIFIED)

    def _settle(self, fate: Fate, state: int, reason: str | None = None) -> bool:
        error = None if reason is None else Condition("amqp:precondition-failed", reason)
        with suppress(ConnectionLostError), self.inlet.engine.working():  # when lost, the broker delivers it again
            if not self.is_held:
                return False
            self.fate = fate
            self.inlet.settle(self.number, state, error=error)
            return True
        return False


class Shared(NamedTuple):
    """What the consumers of a connection share; `on_close` is told when one has ended."""

    timeout: float
    crew: Crew
    later: Later
    max_message: int
    on_close: Callable[[AmqpConsumer], None]


class AmqpConsumer(Consumer):
    """A subscription, and whose turn it is: `on_delivery` runs for one delivery at a time, on threads shared by all."""

    def __init__(self, wishes: Wishes, on_delivery: OnDelivery, *, owner: object, inline: bool, shared: Shared) -> None:
        self.owner = owner
        self.wishes = wishes
        self.later = shared.later
        self._on_delivery = on_delivery
        self._shared = shared
        self._turns: Turns[Arrival] = Turns(at_once if inline else shared.crew.submit, self._take)
        self._replacing = Lock()
        self._is_stopped = False
        self._inlet: Inlet | None = None

    @property
    def is_temporary(self) -> bool:
        """Whether it ends with the generation, as its destination does."""
        return self.wishes.destination.kind.is_temporary

    def start(self, engine: Engine, generation: int, dialect: Dialect) -> None:
        """Attach a link, wait for the broker's answer, and begin to call `on_delivery`.

        Raises:
            BrokerError: the broker refused, as it does a selector that it cannot read.
            ConnectionLostError: the connection was lost meanwhile.
        """
        if not self.resume(engine, generation, dialect):
            raise ConnectionLostError(f"the connection to {engine} was lost")

    def resume(self, engine: Engine, generation: int, dialect: Dialect) -> bool:
        """Attach a link in a generation; False if this was closed, or has one there by then.

        Raises:
            BrokerError: as `start` has it.
        """
        with self._replacing:
            before = self._inlet
            if self._is_stopped or (before is not None and before.generation >= generation):
                return False
            inlet = self._inlet = Inlet(engine, generation, self.wishes, dialect, self._shared.max_message)
        inlet.attach(self._turns.put, self._note_detached)(self._shared.timeout)
        return True

    def close(self) -> None:
        """End the link; what is not accepted goes back at once, from an `on_delivery` under way too."""
        self.stop()
        inlet = self._inlet
        if inlet is not None and self._detach(inlet):
            inlet.await_detached(self._shared.timeout)
        self._shared.on_close(self)

    @staticmethod
    def _detach(inlet: Inlet) -> bool:
        """End a link; False if it had ended before."""
        with suppress(ConnectionLostError), inlet.engine.working():
            was_live = inlet.is_live
            inlet.detach()
            return was_live
        return False

    def detach(self) -> None:
        """Give back what is held and end the link; with the engine's lock held, and waiting for nothing."""
        if self._inlet is not None:
            self._inlet.detach()

    def stop(self) -> None:
        """Start no further `on_delivery`; what is held may still be settled."""
        self._is_stopped = True
        self._turns.stop()

    def join(self, until: float) -> None:
        """Wait for the `on_delivery` under way, until the monotonic clock shows `until`; not for one's own."""
        self._turns.join(until)

    def _note_detached(self, why: str) -> None:
        log.error("the broker ended the consumer of %s: %s", self.wishes.destination, why)
        self.stop()
        self._shared.on_close(self)

    def _take(self, arrival: Arrival) -> None:
        inlet = arrival.inlet
        if not inlet.is_live or self._is_stopped:
            return
        inlet.note_seen(arrival.number)
        arrived = from_amqp_message(arrival.octets, inlet.dialect, self.wishes.destination)
        self._deliver(AmqpDelivery(self, arrival, arrived))

    def _deliver(self, delivery: AmqpDelivery) -> None:
        try:
            self._on_delivery(delivery)
        except BaseException:  # SystemExit too: it must not end the thread and leave the message held
            log.exception("on_delivery failed, so message %s is released", delivery.message.message_id)
            delivery.release()
        finally:
            if self.wishes.auto_accept:
                delivery.conclude()
