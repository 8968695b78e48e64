"""Transactions over AMQP: everything is kept here and written at the commit.

So an `abort` sends nothing to the broker, and the deliveries of an aborted transaction are still held. At the commit a
transaction is declared at the broker's coordinator, unless the last commit declared it in advance; messages and accepts
are sent with its id, and the discharge after the last of them. A message that the broker refuses fails alone.

A delivery to a redirected consumer belongs to another broker: it is accepted once the rest is committed. If the commit
is lost, the delivery is given back, so it may come twice but is never lost. Before the accept, messages that this
broker refused because their destination is elsewhere are sent there.

Spec: AMQP 1.0 part 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias

from brokers import events
from brokers.adapter.consumer import DeliveryState
from brokers.adapter.transaction import DeferredTransaction, DeliveryOwner, went_back
from brokers.amqp.consumer import AmqpDelivery
from brokers.amqp.send import OutgoingMessage
from brokers.amqp.session import AmqpSession
from brokers.amqp.url import AmqpLogin
from brokers.connection import RefusedSend
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, SendFailedError
from brokers.message import Destination, Message
from brokers.threads.futures import Completion


class AmqpTransactionOwner(DeliveryOwner[AmqpDelivery], Protocol):
    """The part of a connection that its transactions use."""

    def encode(self, message: Message) -> bytes:
        """Return the octets of a message."""

    def failure(self, session: AmqpSession) -> BrokerError | None:
        """Return the error that says why a session can no longer be used, or None if it can."""

    def near_completion(self) -> Completion[tuple[RefusedSend, ...]]:
        """Return a new future, whose callbacks may run on the threads of `on_delivery`."""

    def send_on(
        self, login: AmqpLogin, refused: Sequence[RefusedSend], then: Callable[[list[RefusedSend]], None]
    ) -> None:
        """Send redirected messages to their new places, and pass the finally refused ones to `then`; never blocks."""


class AmqpTransaction(DeferredTransaction[AmqpDelivery]):
    """Sends and accepts that are carried out together.

    The accept of a delivery to a redirected consumer follows the commit, outside of it.
    """

    owner: AmqpTransactionOwner

    def __init__(self, owner: AmqpTransactionOwner, session: AmqpSession) -> None:
        super().__init__(owner)
        self._session = session
        self._sends: list[tuple[Message, bytes]] = []

    def send(self, message: Message) -> None:
        """Add a message.

        Raises:
            UsageError: the message has no destination, or content that AMQP cannot carry.
            StaleDestinationError: the temporary destination belongs to an earlier generation.
            ClosedError: the transaction was committed or aborted before.
        """
        octets = self.owner.encode(message)
        with self._lock:
            self._require_open()
            self._sends.append((message, octets))

    def commit(self) -> Completion[tuple[RefusedSend, ...]]:
        """Carry out the transaction. A send that the broker refuses fails alone.

        If the broker refuses the commit, the future raises SendFailedError and the connection is closed, so that the
        broker delivers again; if its answer does not say whether it carried out the commit, ConnectionLostError. If a
        delivery has gone back to the broker (its consumer was closed), nothing is carried out and the future raises
        ClosedError.

        Raises:
            ClosedError: the transaction was committed or aborted before.
        """
        future = self.owner.near_completion()
        with self._lock:
            self._require_open()
            self._has_ended = True
        elsewhere = _Elsewhere([each for each in self._deliveries if each.is_from_elsewhere])
        failure = self.owner.failure(self._session) or elsewhere.void()
        here = [each for each in self._deliveries if not each.is_from_elsewhere]
        if failure is None and not here and not self._sends:
            elsewhere.conclude(None)
            future.set_result(())
        elif failure is None:
            try:
                with self._session.held():
                    send_on = partial(self.owner.send_on, self._session.login)
                    failure = _Commit(self._session, self._sends, here, elsewhere, future, send_on).begin()
            except ConnectionLostError as error:
                failure = error
        if failure is not None and not future.done():
            elsewhere.conclude(failure)
            future.set_exception(failure)
        return future

    def abort(self) -> None:
        """Drop everything; the broker never knew of it. Idempotent, and does nothing after a commit."""
        with self._lock:
            self._has_ended = True


def _void(deliveries: list[AmqpDelivery]) -> ClosedError | None:
    """Return an error if a delivery has gone back to the broker, otherwise None."""
    for delivery in deliveries:
        if not delivery.is_held:
            return went_back(delivery)
    return None


class _Elsewhere:
    """The deliveries of a transaction that belong to other brokers. Called without any engine's lock held."""

    def __init__(self, deliveries: list[AmqpDelivery]) -> None:
        self._deliveries = [each for each in dict.fromkeys(deliveries) if not each.is_accepted]

    def void(self) -> ClosedError | None:
        """Return an error if a delivery has gone back, so that nothing can be committed."""
        for delivery in self._deliveries:
            with delivery.inlet.engine.lock:
                void = _void([delivery])
            if void is not None:
                return void
        return None

    def conclude(self, error: BrokerError | None) -> None:
        """Accept the deliveries, or give them back if the commit was lost."""
        for delivery in self._deliveries:
            if error is None:
                delivery.accept()
            elif not isinstance(error, ClosedError):
                delivery.consumer.later(0.0, delivery.release)  # the lock of our own engine may be held here


SendOn: TypeAlias = Callable[[Sequence[RefusedSend], Callable[[list[RefusedSend]], None]], None]


class _Commit:
    """One commit in progress. Everything here runs with the engine's lock held."""

    def __init__(
        self,
        session: AmqpSession,
        sends: list[tuple[Message, bytes]],
        deliveries: list[AmqpDelivery],
        elsewhere: _Elsewhere,
        future: Completion[tuple[RefusedSend, ...]],
        send_on: SendOn,
    ) -> None:
        self._send_on = send_on
        self._session = session
        self._sends = sends
        self._deliveries = [each for each in dict.fromkeys(deliveries) if not each.is_accepted]
        self._elsewhere = elsewhere
        self._future = future
        self._refused: list[RefusedSend] = []
        self._unsent = len(sends)

    def begin(self) -> BrokerError | None:
        """Declare the transaction; return the error if it cannot be committed."""
        void = _void(self._deliveries)
        if void is not None:
            return void
        for delivery in self._deliveries:
            delivery.state = DeliveryState.ACCEPTED
        self._session.coordinator.declare(self._declared)
        return None

    def _declared(self, transaction: bytes | None, error: BrokerError | None) -> None:
        for delivery in self._deliveries:
            delivery.state = DeliveryState.HELD
        if error is None and transaction is not None:
            error = _void(self._deliveries)
        if transaction is None or error is not None:
            if transaction is not None:
                self._session.coordinator.discharge(transaction, lambda _, __: None, fail=True)
            self._conclude(error or SendFailedError("the broker declared no transaction"))
            return
        for delivery in self._deliveries:
            delivery.state = DeliveryState.ACCEPTED
            delivery.accept_in(transaction)
        self._transaction = transaction
        for position, (message, octets) in enumerate(self._sends):
            assert message.destination is not None
            self._post(position, message, message.destination, octets)
        if not self._sends:
            self._discharge()

    def _post(self, position: int, message: Message, destination: Destination, octets: bytes) -> None:
        posting = OutgoingMessage(
            octets, partial(self._note_refusal, position, message), self._transaction, when_sent=self._one_sent
        )
        with suppress(ConnectionLostError):  # the coordinator reports it
            self._session.outboxes.to(destination).post(posting)

    def _one_sent(self) -> None:
        self._unsent -= 1
        if not self._unsent:
            self._discharge()

    def _discharge(self) -> None:
        self._session.coordinator.discharge(self._transaction, lambda _, error: self._conclude(error, discharged=True))
        self._session.coordinator.prepare()

    def _note_refusal(self, position: int, message: Message, error: BrokerError | None) -> None:
        if isinstance(error, SendFailedError):
            self._refused.append(RefusedSend(position, message, error))
        elif error is not None:  # the connection was lost, perhaps before the discharge was asked for
            self._settle(error, discharged=False)

    def _conclude(self, error: BrokerError | None, *, discharged: bool = False) -> None:
        self._session.later(partial(self._settle, error, discharged=discharged))

    def _settle(self, error: BrokerError | None, *, discharged: bool) -> None:
        if error is None and self._refused:
            self._send_on(self._refused, self._end)
        elif discharged and isinstance(error, SendFailedError):
            self._end([], error if error.is_known else ConnectionLostError(f"{error}"))
            events.TRANSACTION_REFUSED.log(error)
            self._session.drop()
        else:
            self._end([], error)

    def _end(self, refused: list[RefusedSend], error: BrokerError | None = None) -> None:
        if not self._future.done():
            self._elsewhere.conclude(error)
            self._future.settle(tuple(sorted(refused, key=lambda each: each.position)), error)
