"""Consumers and deliveries over AMQP: whose turn it is, and what the program decides.

A consumer has one receiving link in each generation of the connection; see `brokers.amqp.receive`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from proton import Condition
from proton import Delivery as Transfer

from brokers.adapter.consumer import ConsumerOwner, LastingConsumer, why_of
from brokers.amqp.message import ReceivedMessage, from_amqp_head, from_amqp_message
from brokers.amqp.outcomes import RedirectedError, StolenError
from brokers.amqp.receive import AmqpArrival, Inlet
from brokers.amqp.session import AmqpSession
from brokers.connection import Consumer, Delivery, OnDelivery, SubscribeOptions
from brokers.errors import BrokerError, ConnectionLostError
from brokers.message import TOO_LARGE, DestinationKind, Message
from brokers.threads.pool import Crew
from brokers.threads.timer import Later

log = logging.getLogger(__name__)

MAX_DELIVERIES: Final = 6
"""A message that comes back from this many deliveries is a dead letter, as with the embedded broker."""

FIRST_PAUSE_SECONDS: Final = 0.05
"""Seconds before a message is given back for the first time; they double each time."""

MAX_PAUSE_DELIVERIES: Final = 10
"""After so many deliveries the pause is as long as it gets."""

FIRST_RETREAT_SECONDS: Final = 4.0
"""Seconds at most before a durable subscription is taken back from who took it; they double each time."""

MAX_RETREAT_SECONDS: Final = 120.0
"""Seconds that no such pause exceeds. Who had the subscription for longer begins with the first pause again."""


class AmqpDeliveryState(Enum):
    """What became of a delivery on this side."""

    HELD = auto()
    ACCEPTED = auto()
    RETURNED = auto()


class AmqpDelivery(Delivery):
    """One message as it reached one consumer. `fate` changes only while the engine's lock is held.

    Attributes:
        owner: the connection whose consumer it came to, whichever connection that consumer was redirected to.
    """

    __slots__ = ("consumer", "fate", "inlet", "is_settled", "number", "owner")

    def __init__(self, consumer: AmqpConsumer, arrival: AmqpArrival, arrived: ReceivedMessage) -> None:
        super().__init__(arrived.message, arrived.delivery_count, arrival.inlet.generation)
        self.consumer = consumer
        self.owner = consumer.owner
        self.inlet = arrival.inlet
        self.number = arrival.number
        self.is_settled = arrival.is_settled
        self.read_at = arrival.read_at
        self.fate = AmqpDeliveryState.ACCEPTED if consumer.options.auto_accept else AmqpDeliveryState.HELD

    @property
    def is_from_elsewhere(self) -> bool:
        """Whether its consumer was redirected, so that it belongs to no transaction of its owner's broker."""
        return self.owner is not self.consumer.owner

    @property
    def is_held(self) -> bool:
        """Whether the message is still this consumer's to settle. With the engine's lock held."""
        return self.fate is AmqpDeliveryState.HELD and self.inlet.is_holding(self.number)

    @property
    def is_accepted(self) -> bool:
        """Whether the broker was told so; what it was told before the connection was lost, it may not have heard."""
        return self.fate is AmqpDeliveryState.ACCEPTED and self.inlet.engine.is_up

    def accept(self) -> None:
        """Acknowledge. Does nothing if this was settled before, or if the message went back with its link."""
        self._settle(AmqpDeliveryState.ACCEPTED, Transfer.ACCEPTED)

    def release(self) -> None:
        """Give this message back, after a pause that is longer each time; the last time it becomes a dead letter.

        At Qpid that is for its queue to say, as with `reject`.
        """
        deliveries = self.delivery_count or 1
        if deliveries >= MAX_DELIVERIES:
            reason = f"delivered {deliveries} times and not accepted"
            if self._dispose(reason):
                rest = " goes back, until its queue has had enough of it" if self._returns else " is a dead letter"
                log.error("message %s%s: %s", self.message.message_id, rest, reason)
            return
        self._settle_later(Transfer.MODIFIED)

    def reject(self, reason: str) -> None:
        """Have the broker make a dead letter of it; it is told the reason, and may keep it.

        Qpid delivers it again nevertheless, until `maximumDeliveryAttempts` of its queue is reached.
        """
        if self._dispose(reason):
            log.warning("message %s was rejected: %s", self.message.message_id, reason)

    @property
    def _returns(self) -> bool:
        return self.inlet.dialect.returns_rejected

    def _dispose(self, reason: str) -> bool:
        if self._returns:
            return self._settle_later(Transfer.REJECTED, reason)
        return self._settle(AmqpDeliveryState.RETURNED, Transfer.REJECTED, reason)

    def _settle_later(self, state: int, reason: str | None = None) -> bool:
        """Give it back after a pause, so that what nobody can use does not go round as fast as it can."""
        with self.inlet.engine.lock:
            if not self.is_held:
                return False
            self.fate = AmqpDeliveryState.RETURNED
        pause = FIRST_PAUSE_SECONDS * 2.0 ** (min(self.delivery_count or 1, MAX_PAUSE_DELIVERIES) - 1)
        self.consumer.later(pause, partial(self._give_back, state, reason))
        return True

    def accept_in(self, transaction: bytes) -> None:
        """Acknowledge within a transaction. With the engine's lock held."""
        self.inlet.settle(self.number, Transfer.ACCEPTED, transaction=transaction)

    def conclude(self) -> None:
        """Acknowledge what is taken for accepted once `on_delivery` ended."""
        if self.is_settled:
            self.inlet.note_done()
            return
        with suppress(ConnectionLostError), self.inlet.engine.held():  # when lost, the broker delivers it again
            self.inlet.settle(self.number, Transfer.ACCEPTED)

    def _give_back(self, state: int, reason: str | None) -> None:
        with suppress(ConnectionLostError), self.inlet.engine.working():
            self.inlet.settle(self.number, state, error=_condition(reason))

    def _settle(self, fate: AmqpDeliveryState, state: int, reason: str | None = None) -> bool:
        with suppress(ConnectionLostError), self.inlet.engine.working():  # when lost, the broker delivers it again
            if not self.is_held:
                return False
            self.fate = fate
            self.inlet.settle(self.number, state, error=_condition(reason))
            return True
        return False


def _condition(reason: str | None) -> Condition | None:
    return None if reason is None else Condition("amqp:precondition-failed", reason)


class Retreat:
    """How long a consumer leaves a durable subscription to another one that took it.

    A broker gives it to whoever attaches last: two that attached again at once would take it from each other for ever.
    """

    def __init__(self) -> None:
        self._bound = FIRST_RETREAT_SECONDS

    def pause(self, held: float) -> float:
        """Return the seconds to stay away, between the half and the whole of a bound that doubles.

        Args:
            held: seconds for which this consumer had the subscription before it was taken.
        """
        if held > MAX_RETREAT_SECONDS:
            self._bound = FIRST_RETREAT_SECONDS
        bound, self._bound = self._bound, min(self._bound * 2, MAX_RETREAT_SECONDS)
        return random.uniform(bound / 2, bound)  # noqa: S311  # no secret


Elsewhere: TypeAlias = Callable[[RedirectedError, SubscribeOptions, OnDelivery], Consumer]
"""Subscribes where a redirect leads; raises BrokerError if one may not go there, or nobody lets us in."""


class AmqpConsumerContext(NamedTuple):
    """What the consumers of a connection share.

    `note_asked` is told which message came by which other connection, `on_close` when one has no more to do with it.
    """

    timeout: float
    crew: Crew
    later: Later
    max_message: int
    elsewhere: Elsewhere
    note_asked: Callable[[Message, object], None]
    on_close: Callable[[AmqpConsumer], None]


class AmqpConsumer(LastingConsumer[AmqpSession, AmqpArrival, AmqpDelivery]):
    """One receiving link in each generation of the connection; or a consumer elsewhere, if the broker says so."""

    def __init__(
        self, options: SubscribeOptions, on_delivery: OnDelivery, *, owner: ConsumerOwner, shared: AmqpConsumerContext
    ) -> None:
        super().__init__(options, on_delivery, owner, shared.crew)
        self.later = shared.later
        self._shared = shared
        self._replacing = Lock()
        self._inlet: Inlet | None = None
        self._retreat = Retreat()
        self._attached = monotonic()
        self._in_turn = Lock()  # what is under way here ends before something is delivered from elsewhere
        self._is_closed = False
        self._elsewhere: Consumer | None = None

    @property
    def problem(self) -> str:
        """Why there is no link; of a consumer that was redirected, there."""
        return self._problem if self._elsewhere is None else self._elsewhere.problem

    def resume(self, session: AmqpSession, generation: int, *, again: bool = False) -> bool:
        """Attach a link in a generation; False if this was closed, or has one there by then.

        In the place of one that was ended there is another to a queue only once `on_delivery` has returned.

        Raises:
            BrokerError: as `start` has it.
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
                    return False  # what came next would wait behind that, though others have the time
            inlet = self._inlet = Inlet(session, generation, self.options, session.dialect, self._shared.max_message)
            self._attached = monotonic()
        try:
            inlet.attach(self._turns.put, partial(self._note_detached, inlet))(self._shared.timeout)
        except RedirectedError as error:
            self._go(error)
        return True

    def close(self) -> None:
        """End the link; what is not accepted goes back at once, from an `on_delivery` under way too."""
        self.stop()
        with self._replacing:
            self._is_closed = True
            inlet, elsewhere = self._inlet, self._elsewhere
        if elsewhere is not None:
            elsewhere.close()
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
        """Leave the subscription to who took it, for some seconds at least."""
        pause = self._retreat.pause(monotonic() - self._attached)
        who = f"another consumer of client id {inlet.engine.login.container!r}"
        what = f"the durable subscription {self.options.durable_name!r}"
        self._note_ended(f"{who} has {what} now, which is asked for again in {pause:.0f} s: {error}", pause)

    def _follow(self, error: RedirectedError) -> None:
        """Go where the broker sends us that let us in at first; may block."""
        try:
            self._go(error)
        except Exception as failed:  # whatever it is, the next attempt may fare better
            self._note_ended(f"{error}" if failed is error else f"{error}; there: {why_of(failed)}")

    def _go(self, error: RedirectedError) -> None:
        """Subscribe elsewhere, and have nothing more to do with this connection. Spec: WS-26, WS-27."""
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
            self._on_delivery(delivery)

    def _take(self, arrival: AmqpArrival) -> None:
        inlet = arrival.inlet
        if not inlet.is_live or self._is_stopped:
            return
        if not arrival.is_settled:
            inlet.note_seen(arrival.number)
        if arrival.size > inlet.limit:
            head = from_amqp_head(arrival.octets, inlet.dialect, self.options.destination)
            self._refuse(AmqpDelivery(self, arrival, head), TOO_LARGE.format(arrival.size, inlet.limit))
            return
        if len(arrival.octets) < arrival.size:
            self._give_back_unread(arrival)
            return
        delivery = self._read(arrival)
        arrival.octets = b""  # else they would be held, beside the body, as long as it is worked on
        if delivery is not None:
            with self._in_turn:
                self._deliver(delivery)

    def _read(self, arrival: AmqpArrival) -> AmqpDelivery | None:
        """Make a delivery of what arrived; None if there is no memory for its body, and it was given back."""
        inlet, destination = arrival.inlet, self.options.destination
        try:
            return AmqpDelivery(self, arrival, from_amqp_message(arrival.octets, inlet.dialect, destination))
        except MemoryError:
            pass  # what there is of it is let go first
        self._give_back_unread(arrival)
        return None

    def _give_back_unread(self, arrival: AmqpArrival) -> None:
        """Give back what there is no memory for; the broker counts that, and the last time it is a dead letter."""
        unread = from_amqp_head(arrival.octets, arrival.inlet.dialect, self.options.destination)
        arrival.octets = b""
        self._release_unread(AmqpDelivery(self, arrival, unread), arrival.size)

    def _drop_session(self, arrival: AmqpArrival) -> None:
        arrival.inlet.engine.drop()

    def _conclude(self, delivery: AmqpDelivery) -> None:
        delivery.conclude()
