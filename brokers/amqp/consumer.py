"""Consumers and deliveries over AMQP: the order of deliveries, and how the program settles them.

A consumer has one receiving link in each generation of the connection; see `brokers.amqp.receive`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from proton import Condition
from proton import Delivery as Outcome

from brokers import events
from brokers.adapter.consumer import ConsumerOwner, DeliveryState, LastingConsumer, why_of
from brokers.adapter.redelivery import MAX_DELIVERIES, Releases, carried_reason, pause_after
from brokers.amqp.dialect import spell
from brokers.amqp.message_reader import ReceivedMessage, from_amqp_head, from_amqp_message
from brokers.amqp.outcomes import PRECONDITION, RedirectedError, StolenError
from brokers.amqp.receive import AmqpArrival, Inlet
from brokers.amqp.session import AmqpSession
from brokers.connection import Consumer, Delivery, OnDelivery, SubscribeOptions
from brokers.errors import BrokerError, ConnectionLostError
from brokers.message import TOO_LARGE, DestinationKind, Message
from brokers.threads.pool import Crew
from brokers.threads.timer import Later

FIRST_RETREAT_SECONDS: Final = 4.0
"""Upper bound of the first pause before a stolen durable subscription is taken back, in seconds; it doubles."""

MAX_RETREAT_SECONDS: Final = 120.0
"""Maximum of that pause, in seconds. A consumer that had the subscription for longer starts over at the first pause."""


class AmqpDelivery(Delivery):
    """A delivery over AMQP. `state` changes only while the engine's lock is held.

    Attributes:
        owner: the connection of the program's consumer, even if that consumer was redirected to another connection.
    """

    __slots__ = ("consumer", "inlet", "is_settled", "number", "owner", "state")

    def __init__(self, consumer: AmqpConsumer, arrival: AmqpArrival, arrived: ReceivedMessage) -> None:
        self.message, self.delivery_count = arrived
        self.generation = arrival.inlet.generation
        self.consumer = consumer
        self.owner = consumer.owner
        self.inlet = arrival.inlet
        self.number = arrival.number
        self.is_settled = arrival.is_settled
        self.read_at = arrival.read_at
        self.state = DeliveryState.ACCEPTED if consumer.options.auto_accept else DeliveryState.HELD

    @property
    def is_from_elsewhere(self) -> bool:
        """Whether its consumer was redirected, so that no transaction of its owner's broker can include it."""
        return self.owner is not self.consumer.owner

    @property
    def is_held(self) -> bool:
        """Whether the message is still this consumer's to settle. With the engine's lock held."""
        return self.state is DeliveryState.HELD and self.inlet.is_holding(self.number)

    @property
    def is_accepted(self) -> bool:
        """Whether it was accepted in this generation; the broker may have missed it if the connection was lost."""
        return self.state is DeliveryState.ACCEPTED and self.inlet.engine.is_up

    def accept(self) -> None:
        """Acknowledge. Does nothing if the delivery was settled before, or went back with its link."""
        self._settle(DeliveryState.ACCEPTED, Outcome.ACCEPTED)

    def release(self) -> None:
        """Give the message back, after a pause that grows each time; the last time it becomes a dead letter.

        At Qpid, its queue decides on dead letters; see `reject`.
        """
        deliveries = self._count()
        if deliveries >= MAX_DELIVERIES:
            reason = f"delivered {deliveries} times and not accepted"
            if self._dispose(reason):
                rest = " goes back, until the limit of its queue" if self._returns else " is a dead letter"
                events.AMQP_TOO_MANY_DELIVERIES.log(self.message.message_id, rest, reason)
            return
        self._settle_later(Outcome.MODIFIED, deliveries)

    def _count(self) -> int:
        """Return how often the message was delivered: at a queue that does not count, how often this side released it.

        Without a JMSMessageID nobody can tell.
        """
        told = self.delivery_count or 1
        if not self.inlet.dialect.has_management or self.message.message_id is None:
            return told
        with self.inlet.engine.lock:
            return max(told, self.consumer.releases.count(self._key)) if self.is_held else told

    @property
    def _key(self) -> Hashable:
        return hash((self.consumer.options.destination, self.message.message_id))

    def reject(self, reason: str) -> None:
        """Have the broker make the message a dead letter. It gets 1,000 characters of the reason, and may keep them.

        Qpid nevertheless delivers it again, until `maximumDeliveryAttempts` of its queue is reached.
        """
        if self._dispose(carried_reason(reason)):
            events.DELIVERY_REJECTED.log(self.message.message_id, reason)

    @property
    def _returns(self) -> bool:
        return self.inlet.dialect.returns_rejected

    def _dispose(self, reason: str) -> bool:
        if self._returns:
            return self._settle_later(Outcome.REJECTED, self.delivery_count or 1, reason)
        return self._settle(DeliveryState.RETURNED, Outcome.REJECTED, reason)

    def _settle_later(self, outcome: int, deliveries: int, reason: str | None = None) -> bool:
        """Give the message back after a pause, so that an unusable message does not circulate at full speed."""
        with self.inlet.engine.lock:
            if not self.is_held:
                return False
            self.state = DeliveryState.RETURNED
        self.consumer.later(pause_after(deliveries), partial(self._give_back, outcome, reason))
        return True

    def accept_in(self, transaction: bytes) -> None:
        """Acknowledge within a transaction. With the engine's lock held."""
        self.inlet.settle(self.number, Outcome.ACCEPTED, transaction=transaction)

    def conclude(self) -> None:
        """Acknowledge a delivery that counts as accepted once `on_delivery` has returned."""
        if self.is_settled:
            self.inlet.note_done()
            return
        self.inlet.conclude(self.number)

    def _give_back(self, outcome: int, reason: str | None) -> None:
        with suppress(ConnectionLostError), self.inlet.engine.held():
            self.inlet.settle(self.number, outcome, error=_condition(reason))

    def _settle(self, state: DeliveryState, outcome: int, reason: str | None = None) -> bool:
        inlet = self.inlet
        try:
            with inlet.engine.held():
                error = None if reason is None else _condition(reason)
                if self.state is not DeliveryState.HELD or not inlet.settle(self.number, outcome, error=error):
                    return False
                self.state = state
                if self.consumer.releases.counts:
                    self.consumer.releases.forget(self._key)
                return True
        except ConnectionLostError:  # the broker delivers it again
            return False


def _condition(reason: str | None) -> Condition | None:
    return None if reason is None else Condition(PRECONDITION, reason)


class Retreat:
    """The pauses during which a consumer leaves a durable subscription to another one that took it.

    A broker gives it to the last consumer that attaches: two that re-attached at once would steal it back forever.
    """

    def __init__(self) -> None:
        self._bound = FIRST_RETREAT_SECONDS

    def pause(self, held: float) -> float:
        """Return the pause in seconds: random between half of a bound and the bound, which doubles.

        Args:
            held: seconds for which this consumer had the subscription before it was taken.
        """
        if held > MAX_RETREAT_SECONDS:
            self._bound = FIRST_RETREAT_SECONDS
        bound, self._bound = self._bound, min(self._bound * 2, MAX_RETREAT_SECONDS)
        return random.uniform(bound / 2, bound)  # noqa: S311  # no secret


Elsewhere: TypeAlias = Callable[[RedirectedError, SubscribeOptions, OnDelivery], Consumer]
"""Subscribes at the place of a redirect; raises BrokerError if it is not allowed or the connection fails."""


class AmqpConsumerContext(NamedTuple):
    """The context that the consumers of a connection share.

    `note_asked` is called with each message that came by another connection, and that connection; `on_close` is called
    when a consumer has left this connection.
    """

    timeout: float
    crew: Crew
    releases: Releases
    later: Later
    max_message: int
    elsewhere: Elsewhere
    note_asked: Callable[[Message, object], None]
    on_close: Callable[[AmqpConsumer], None]


class AmqpConsumer(LastingConsumer[AmqpSession, AmqpArrival, AmqpDelivery]):
    """One receiving link in each generation of the connection, or a consumer elsewhere after a redirect."""

    def __init__(
        self, options: SubscribeOptions, on_delivery: OnDelivery, *, owner: ConsumerOwner, shared: AmqpConsumerContext
    ) -> None:
        super().__init__(options, on_delivery, owner, shared.crew)
        self.later, self.releases = shared.later, shared.releases
        self._shared = shared
        self._replacing = Lock()
        self._inlet: Inlet | None = None
        self._retreat = Retreat()
        self._attached = monotonic()
        self._in_turn = Lock()  # a delivery here must end before one from elsewhere begins
        self._is_closed = False
        self._elsewhere: Consumer | None = None

    @property
    def problem(self) -> str:
        """Why there is no link; for a redirected consumer, the problem at its new place."""
        return self._problem if self._elsewhere is None else self._elsewhere.problem

    def resume(self, session: AmqpSession, generation: int, *, again: bool = False) -> bool:
        """Attach a link in a generation; return False if the consumer was closed, or has a link there already.

        An ended link to a queue is replaced only once `on_delivery` has returned.

        Raises:
            BrokerError: as for `start`.
        """
        with self._replacing:
            before = self._inlet
            if self._is_stopped:
                return False
            if before is not None and before.generation >= generation:
                if not again or before.generation > generation:
                    return False
                if before.is_live:
                    return True
                if self._turns.is_busy and self.options.destination.kind is DestinationKind.QUEUE:
                    return False  # the next message would wait here, though other consumers may be free
            inlet = self._inlet = Inlet(session, generation, self.options, session.dialect, self._shared.max_message)
            self._attached = monotonic()
        if self.options.quick:
            session.lead(self._shared.crew)
        try:
            return self._attach(inlet, session)
        except RedirectedError as error:
            self._go(error)
        return True

    def _attach(self, inlet: Inlet, session: AmqpSession) -> bool:
        """Attach a link, and wait for the answer; return False if the consumer was closed meanwhile."""
        inlet.options = session.consumable(self.options, self._shared.timeout)
        is_attached = False
        try:
            wait = inlet.attach(self._turns.put, partial(self._note_detached, inlet))
            if wait is not None:
                wait(self._shared.timeout)
                is_attached = True
        finally:
            if not is_attached and inlet.options is not self.options:
                session.management.delete(spell(inlet.options.destination, session.dialect))
        return is_attached

    def _close(self) -> None:
        self.stop()
        with self._replacing:
            self._is_closed = True
            inlet, elsewhere = self._inlet, self._elsewhere
        if elsewhere is not None:
            elsewhere.close()
        if inlet is not None and self._detach(inlet) and not self._is_reader:
            inlet.await_detached(self._shared.timeout)
        self._shared.on_close(self)

    @staticmethod
    def _detach(inlet: Inlet) -> bool:
        """End a link; return False if it had ended before."""
        with suppress(ConnectionLostError), inlet.engine.held():
            was_live = inlet.is_live
            inlet.detach()
            return was_live
        return False

    def detach(self) -> None:
        """Give back held deliveries and end the link, without waiting. With the engine's lock held."""
        if self._inlet is not None:
            self._inlet.detach()

    def _note_detached(self, inlet: Inlet, error: BrokerError) -> None:
        if inlet is not self._inlet:
            return
        if isinstance(error, RedirectedError) and not self._is_closed:
            with suppress(RuntimeError):  # the connection was closed meanwhile, or has no thread
                self._shared.crew.submit(partial(self._follow, error))
                return
        if isinstance(error, StolenError):
            self._note_stolen(inlet, error)
        else:
            self._note_ended(f"{error}")

    def _note_stolen(self, inlet: Inlet, error: StolenError) -> None:
        """Leave a stolen subscription to the other consumer for a pause."""
        pause = self._retreat.pause(monotonic() - self._attached)
        who = f"another consumer of client id {inlet.engine.login.container!r}"
        what = f"the durable subscription {self.options.durable_name!r}"
        self._note_ended(f"{who} took {what}, which is requested again in {pause:.0f} s: {error}", pause)

    def _follow(self, error: RedirectedError) -> None:
        """Follow a redirect of a link that the broker had accepted at first; may block."""
        try:
            self._go(error)
        except Exception as failed:  # whatever the reason, the next attempt may succeed
            self._note_ended(f"{error}" if failed is error else f"{error}; there: {why_of(failed)}")

    def _go(self, error: RedirectedError) -> None:
        """Subscribe elsewhere, and leave this connection. Spec: WS-26, WS-27."""
        elsewhere = self._shared.elsewhere(error, self.options, self._deliver_from_elsewhere)
        self.stop()
        with self._replacing:
            self._elsewhere = elsewhere
            is_closed = self._is_closed
        if is_closed:
            elsewhere.close()
        self._shared.on_close(self)

    def _deliver_from_elsewhere(self, delivery: Delivery) -> None:
        if isinstance(delivery, AmqpDelivery):
            self._shared.note_asked(delivery.message, delivery.owner)
            delivery.owner = self.owner
        with self._in_turn:
            if not self._is_closed or self.options.auto_accept:  # in which case it was accepted, and would be lost
                self._on_delivery(delivery)

    def _take(self, arrival: AmqpArrival) -> None:
        inlet = arrival.inlet
        if not inlet.is_live or self._is_stopped:
            return
        if not arrival.is_settled:
            inlet.last_seen = arrival.number
        if arrival.size > inlet.limit:
            head = from_amqp_head(arrival.octets, inlet.dialect, self.options.destination)
            self._refuse(AmqpDelivery(self, arrival, head), TOO_LARGE.format(arrival.size, inlet.limit))
            return
        if len(arrival.octets) < arrival.size:
            self._give_back_unread(arrival)
            return
        delivery = self._read(arrival)
        arrival.octets = b""  # otherwise they would stay in memory beside the body during `on_delivery`
        if delivery is not None:
            with self._in_turn:
                self._deliver(delivery)

    def _read(self, arrival: AmqpArrival) -> AmqpDelivery | None:
        """Return the delivery for an arrival, or None if there was no memory for its body and it was given back."""
        inlet, destination = arrival.inlet, self.options.destination
        try:
            received = None if arrival.read_at is None else round(arrival.read_at * 1000)
            message = from_amqp_message(arrival.octets, inlet.dialect, destination, inlet.shapes, received)
            return AmqpDelivery(self, arrival, message)
        except MemoryError:
            pass  # give back outside the block, after the partial result is freed
        self._give_back_unread(arrival)
        return None

    def _give_back_unread(self, arrival: AmqpArrival) -> None:
        """Give back a message that does not fit in memory; the broker counts that, and it may become a dead letter."""
        unread = from_amqp_head(arrival.octets, arrival.inlet.dialect, self.options.destination)
        arrival.octets = b""
        self._release_unread(AmqpDelivery(self, arrival, unread), arrival.size)

    def _drop_session(self, arrival: AmqpArrival) -> None:
        arrival.inlet.engine.drop()

    def _conclude(self, delivery: AmqpDelivery) -> None:
        delivery.conclude()
