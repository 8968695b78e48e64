"""The embedded broker as a `brokers.Connection`: deliveries, threads, futures and life cycle around the `EmbeddedCore`.

`core.py` decides which consumer gets which message, and in what order; here each consumer gets a thread. The consumers
of a connection share a crew of threads; see `brokers/threads/pool.py`. It is woken once for many messages: by a sender
that usually waits for futures when it does so, by any other sender at once. Whoever waits for what a thread of the crew
completes is woken when that has no more to do. An `inline` consumer runs on the thread that sends to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final, TypeAlias, TypeGuard, TypeVar

from brokers import events
from brokers.adapter.connection import AdapterConnection
from brokers.adapter.consumer import temporary_kind
from brokers.adapter.transaction import OwnedTransaction, own_delivery, own_transaction
from brokers.adapter.wait import epoch_milliseconds
from brokers.arguments import time_to_close
from brokers.connection import (
    Capabilities,
    ConnectionState,
    Consumer,
    Delivery,
    OnDelivery,
    OnSent,
    RefusedSend,
    SendResult,
    SubscribeOptions,
    Transaction,
    check_destination,
)
from brokers.embedded.core import EmbeddedCore
from brokers.embedded.queues import Batch, Handover, OutletSubscription, SubscribeTerms
from brokers.errors import BrokerError, SendFailedError
from brokers.message import Destination, DestinationKind, Message, check_message
from brokers.selector import Selector
from brokers.threads.bursts import after_burst
from brokers.threads.futures import Completion, DoneCompletion
from brokers.threads.pool import Crew

T = TypeVar("T")

GENERATION: Final = 1
"""The only generation: a connection within one process is never lost."""


class EmbeddedDelivery(Delivery):
    """A delivery by the embedded broker."""

    __slots__ = ("_batch", "_core", "holding")

    def __init__(self, core: EmbeddedCore, holding: Handover, batch: Batch | None = None) -> None:
        """Wrap a hand-over; with a `batch`, it is settled at the commit of that transaction."""
        self.message = holding.message  # as `Delivery` does
        self.delivery_count = holding.delivery_count
        self.generation = GENERATION
        self.read_at = None
        self._core = core
        self._batch = batch
        self.holding = holding

    def within(self, batch: Batch) -> EmbeddedDelivery:
        """Return this delivery as part of a transaction; it raises ClosedError once the transaction has ended."""
        return EmbeddedDelivery(self._core, self.holding, batch)

    def accept(self) -> None:
        """Acknowledge. Does nothing if the delivery was settled, is in a transaction, or went back."""
        self._core.accept(self.holding, self._batch)

    def release(self) -> None:
        """Give the message back, or to the dead letters if that was its last delivery. Otherwise like `accept`."""
        self._core.release(self.holding, self._batch)

    def give_back(self) -> None:
        """Release a message that the program has not seen: it does not count as delivered."""
        self._core.release(self.holding, self._batch, counts=False)

    def reject(self, reason: str) -> None:
        """Send the message to the dead letters; otherwise like `accept`.

        Its property `dead_letter_reason` has the reason, at most 1,000 characters of it.
        """
        self._core.reject(self.holding, reason, self._batch)


BURST_DELIVERIES: Final = 8
"""Number of deliveries after which a consumer lets others use its thread."""

INLINE_DELIVERIES: Final = 64
"""Number of deliveries after which an inline consumer lets the sender go; a transaction often sends some dozens."""

Submit: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a function soon, on another thread or on this one; raises RuntimeError if it cannot."""


class EmbeddedConsumer(Consumer):
    """A subscription, and the calls of `on_delivery` on threads that it does not own.

    Args:
        core: the broker.
        subscribe: makes the subscription, given the function that wakes it.
        on_delivery: called for one delivery at a time, in order.
        submit: gives the consumer a thread when there are messages.
        begin: gives it one for the messages that are there already, and whenever it lets others go first.
        on_end: called when the consumer has ended and uses no thread.
        most: number of deliveries after which it lets others go first.

    Raises:
        BrokerError: no thread could be started; the subscription has ended.
    """

    def __init__(
        self,
        core: EmbeddedCore,
        subscribe: Callable[[Callable[[], None]], OutletSubscription],
        on_delivery: OnDelivery,
        submit: Submit,
        begin: Submit,
        on_end: Callable[[EmbeddedConsumer], None],
        most: int = BURST_DELIVERIES,
    ) -> None:
        self._core = core
        self._on_delivery = on_delivery
        self._submit = submit
        self._begin = begin
        self._on_end = on_end
        self._most = most
        self._subscription = subscribe(partial(self._wake, submit))
        try:
            begin(self._run)
        except RuntimeError as error:
            core.stop(self._subscription)
            core.leave(self._subscription)
            raise BrokerError(f"cannot consume from {self._subscription.node.destination}: {error}") from error

    def close(self) -> None:
        """End the subscription; deliveries that are not accepted go back at once, even during `on_delivery`."""
        self.stop()
        self.leave()

    def stop(self) -> None:
        """Start no further `on_delivery`; held deliveries may still be settled."""
        if not self._core.stop(self._subscription):
            self._on_end(self)

    def allow(self, prefetch: int) -> None:
        """Set how many deliveries a consumer on credit may get from now on."""
        self._core.allow(self._subscription, prefetch)

    @property
    def is_idle(self) -> bool:
        """Whether there is no message to take, or none may be taken."""
        return self._core.is_idle(self._subscription)

    def join(self, until: float) -> None:
        """Wait for the running `on_delivery` until the monotonic clock shows `until`; return at once inside it."""
        self._core.await_rest(self._subscription, until)

    def leave(self, seen: Iterable[EmbeddedDelivery] | None = None) -> None:
        """Give back the held deliveries; only those in `seen` count as delivered, or all if it is None."""
        holdings = None if seen is None else {each.holding for each in seen}
        self._core.leave(self._subscription, holdings)

    def _wake(self, submit: Submit) -> None:
        try:
            submit(self._run)
        except (RuntimeError, MemoryError):  # the connection was closed, or the next message wakes the consumer
            self._core.put_off(self._subscription)

    def _run(self) -> None:
        """Deliver until there is nothing to take, or others should go first."""
        core, subscription = self._core, self._subscription
        try:
            for number in range(self._most):
                holding = core.take(subscription) if number else core.begin(subscription)
                if holding is None:
                    break
                self._deliver(EmbeddedDelivery(core, holding))
            else:
                self._go_on_later()
        except BaseException:
            self._go_on_later()
            raise
        if not self._subscription.is_open:
            self._on_end(self)

    def _go_on_later(self) -> None:
        self._core.pause(self._subscription)
        self._wake(self._begin)

    def _deliver(self, delivery: EmbeddedDelivery) -> None:
        try:
            self._on_delivery(delivery)
        except BaseException as error:  # SystemExit too: it must not end the thread and leave the message held
            delivery.release()  # first, because logging may fail for lack of memory
            with suppress(MemoryError):
                events.EMBEDDED_DELIVERY_FAILED.log(delivery.message.message_id)
            if isinstance(error, KeyboardInterrupt):  # meant for the program, whose thread this is
                raise


CAPABILITIES: Final = Capabilities(
    broker="embedded",
    dialect="embedded",
    typed_properties=True,
    message_types=True,
    transactions=True,
    stable_message_id=True,
    tells_message_id=True,
    delivery_count=True,
    tells_redelivery=True,
    accepts_in_transactions=True,
    tells_gone=True,
    release=True,
    cumulative_accept=False,
    selectors=True,
    durable_topics=True,
    tells_time=False,
)

TELLS_TIME: Final = replace(CAPABILITIES, tells_time=True)
"""The same, for a broker that was given a clock of its own."""


class EmbeddedTransaction(OwnedTransaction):
    """Sends and accepts that happen together."""

    owner: EmbeddedConnection

    def __init__(
        self, core: EmbeddedCore, owner: EmbeddedConnection, on_end: Callable[[EmbeddedTransaction], None]
    ) -> None:
        self._core = core
        self._batch = Batch(owner.place)
        self._on_end = on_end
        self.owner = owner

    def send(self, message: Message) -> None:
        """Add a message; it gets its message id and timestamp now, and its place in the order at the commit.

        Raises:
            UsageError: the message has no destination, or a body that does not fit its type.
            ClosedError: the transaction was committed or aborted before.
        """
        self.add(message)

    def add(self, message: Message) -> SendResult:
        """Add a message like `send`, and return its message id."""
        stamped = self._core.stamp(message)
        self._core.add(self._batch, stamped)
        return SendResult(stamped.message_id)

    def accept(self, delivery: Delivery) -> None:
        """Add the acknowledgement of a delivery, unless it was settled or went back; its consumer may end meanwhile.

        Raises:
            UsageError: the delivery belongs to another connection.
            ClosedError: the transaction was committed or aborted before.
        """
        self._core.accept(own_delivery(delivery, self.owner).holding, self._batch)

    def taking(self, delivery: EmbeddedDelivery) -> EmbeddedDelivery:
        """Return a delivery of this connection as part of this transaction, however it is settled."""
        return delivery.within(self._batch)

    def commit(self) -> Completion[tuple[RefusedSend, ...]]:
        """Carry out the transaction before this returns.

        A send to a temporary destination that has ended is refused; the rest is carried out. If a destination is full,
        the future raises SendFailedError, and the transaction is aborted.

        Raises:
            ClosedError: the transaction was committed or aborted before.
        """
        refused: tuple[RefusedSend, ...] | None = None
        failed = None
        try:
            refused = self._core.commit(self._batch)
        except SendFailedError as error:
            failed = error
        self._on_end(self)
        return self.owner.completed(refused, failed)

    def abort(self) -> None:
        """Drop the sends; the deliveries are held as before, or go back if their consumer has ended. Idempotent."""
        self._core.abort(self._batch)
        self._on_end(self)


def _too_late() -> bool:
    """Give up an answer: it is sent too soon for that."""
    return False


class EmbeddedConnection(AdapterConnection):
    """A connection to an embedded broker, as returned by `Broker.connect` and `brokers.connect`. It is never lost."""

    def __init__(self, core: EmbeddedCore, name: str, on_close: Callable[[], None], limit: int | None) -> None:
        super().__init__(name)
        self._core = core
        self.place = core.attach(limit)
        self._on_close = on_close
        self._life.become(ConnectionState.CONNECTED)
        self._crew = Crew(name)
        self._consumers: set[EmbeddedConsumer] = set()
        self._transactions: set[EmbeddedTransaction] = set()
        self._answers: deque[tuple[Message, OnSent]] = deque()  # stamped, in this order

    @property
    def capabilities(self) -> Capabilities:
        """All capabilities except cumulative acceptance."""
        return CAPABILITIES if self._core.clock is epoch_milliseconds else TELLS_TIME

    @property
    def generation(self) -> int:
        """Always 1."""
        return GENERATION

    def send(
        self, message: Message, transaction: Transaction | None = None, *, timeout: float | None = None
    ) -> Completion[SendResult]:
        """Send; the future is done when this returns, with the message id. Never waits, so `timeout` is ignored.

        The future raises DestinationGoneError if a temporary destination has ended, SendFailedError if one is full.
        """
        if self._life.state is not ConnectionState.CONNECTED:
            self._require_connected()
        if transaction is not None:
            check_message(message)
            return self.completed(own_transaction(transaction, self, EmbeddedTransaction).add(message))
        stamped = self._core.stamp(message)
        try:
            self._core.send(stamped, self.place)
        except SendFailedError as error:
            return self.completed(None, error)
        return DoneCompletion(self._callbacks.executor, SendResult(stamped.message_id))

    def begin_send(
        self,
        message: Message,
        on_sent: OnSent,
        *,
        timeout: float | None = None,
        gather: bool = False,
        wait: bool = True,
    ) -> Callable[[], bool]:
        """Send as `send` does, which never waits."""
        return super().begin_send(message, on_sent)

    def begin_answer(self, delivery: Delivery, message: Message, on_sent: OnSent) -> Callable[[], object]:
        """Send together with other answers of this thread's burst; see `after_arrivals`."""
        if self._life.state is not ConnectionState.CONNECTED:
            self._require_connected()
        self._answers.append((self._core.stamp(message), on_sent))
        after_burst(self._send_answers)
        return _too_late

    def _send_answers(self) -> None:
        """Send the answers that wait; another thread may do so at the same time."""
        messages, listeners, waiting = list[Message](), list[OnSent](), self._answers
        with suppress(IndexError):  # the other thread took the last one
            while waiting:
                stamped, on_sent = waiting.popleft()
                messages.append(stamped)
                listeners.append(on_sent)
        errors = self._core.send_all(messages, self.place) if messages else ()
        for stamped, on_sent, error in zip(messages, listeners, errors, strict=True):
            on_sent(error, None if error is not None else stamped.message_id)

    def consumers(self, destination: Destination) -> int:
        """Return the number of consumers of a destination, those of other connections included."""
        return self._core.consumers(destination)

    def new_message_id(self) -> str:
        """Return the id of a new message, for `put`."""
        return self._core.new_message_id()

    def put(self, stored: Message) -> None:
        """Send a message that is already as the broker stores it: with id, time of receipt and defaults.

        Raises:
            DestinationGoneError: its temporary destination has ended.
            SendFailedError: a limit is reached.
        """
        self._require_connected()
        self._core.send(stored, self.place)

    def completed(self, result: T | None, error: BaseException | None = None) -> Completion[T]:
        """Return a future that is done, whose callbacks run on this connection's executor."""
        return DoneCompletion(self._callbacks.executor, result, error)

    def after_arrivals(self, function: Callable[[], None]) -> None:
        """Call `function` once the deliveries that wait for this thread of `on_delivery` are handled, or soon."""
        after_burst(function)

    def _consume(self, options: SubscribeOptions, on_delivery: OnDelivery) -> Consumer:
        """Subscribe. Messages stay in the broker until `on_delivery` is called, so no consumer hoards them.

        No message is above a limit here, and only its owner ends a subscription.

        Consumers with the same `durable_name` on one topic share that subscription. With another selector it is
        replaced, and the messages that were kept for it are dropped.

        Raises:
            InvalidSelectorError: the selector is invalid.
            StaleDestinationError: the temporary destination belongs to another connection, or has ended.
            BrokerError: there are too many destinations or durable subscriptions, one of that name has a consumer with
                another selector, or no thread could be started.
        """
        chosen = Selector(options.selector) if options.selector and options.selector.strip() else None
        wants, label = (None, None) if chosen is None else (chosen.wants, chosen.text)
        terms = SubscribeTerms(prefetch=options.prefetch, name=options.durable_name, wants=wants, label=label)
        submit = self._core.own_thread.submit if options.inline else None
        return self.subscribe(options.destination, on_delivery, terms, submit, accepts=options.auto_accept)

    def subscribe(
        self,
        destination: Destination,
        on_delivery: OnDelivery,
        terms: SubscribeTerms,
        submit: Submit | None = None,
        begin: Submit | None = None,
        *,
        accepts: bool = False,
    ) -> EmbeddedConsumer:
        """Subscribe on any terms, as a listener does for its clients.

        Args:
            destination: the queue or topic.
            on_delivery: called for each delivery.
            terms: the terms.
            submit: runs the consumer when there are messages; None for the threads of this connection.
            begin: does so at the beginning, and whenever the consumer lets others go first; likewise.
            accepts: whether deliveries are accepted before `on_delivery` is called.

        Raises:
            StaleDestinationError: the temporary destination belongs to another connection, or has ended.
            BrokerError: as for `consume`.
        """
        with self._lock:
            self._require_not_closing()
            subscribe = partial(self._core.subscribe, destination, self.place, terms, accepts=accepts)
            submit, begin = submit or self._crew.submit_soon, begin or self._crew.submit
            most = INLINE_DELIVERIES if submit == self._core.own_thread.submit else BURST_DELIVERIES
            consumer = EmbeddedConsumer(self._core, subscribe, on_delivery, submit, begin, self._forget_consumer, most)
            self._consumers.add(consumer)
            return consumer

    def unsubscribe(self, topic: Destination, durable_name: str) -> None:
        """Delete a durable subscription, if it exists; raise BrokerError if it has a consumer."""
        self._require_connected()
        SubscribeOptions(destination=topic, durable_name=durable_name).check(self.capabilities)
        self._core.forget_durable(topic, durable_name)

    def begin(self) -> EmbeddedTransaction:
        """Begin a transaction; it is aborted if it is still open when the connection closes."""
        with self._lock:
            self._require_connected()
            transaction = EmbeddedTransaction(self._core, self, self._forget_transaction)
            self._transactions.add(transaction)
            return transaction

    def temporary(
        self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, *, fresh: bool = True, ends: bool = False
    ) -> Destination:
        """Create a new temporary destination; every connection of the same broker can send to it by its name.

        Raises:
            UsageError: `kind` is not temporary.
        """
        with self._lock:
            self._require_not_closing()
            return self._core.temporary(temporary_kind(kind), self.place)

    def end_temporary(self, destination: Destination) -> None:
        """Delete a temporary destination: later sends to it are refused."""
        check_destination(destination)
        self._core.end_temporary(destination, self.place)

    def close(self, deadline: float = 5.0) -> None:
        """Close: let running `on_delivery` calls finish within `deadline` seconds, and release held deliveries.

        Running calls may still send, accept and commit, but not consume. Idempotent; a second call during the first
        returns at once.
        """
        until = monotonic() + time_to_close(deadline)
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            consumers = list(self._consumers)
        for consumer in consumers:
            consumer.stop()
        for consumer in consumers:
            consumer.join(until)
        self._send_answers()
        with self._lock:
            self._life.become(ConnectionState.CLOSED, "the connection was closed")
            transactions = list(self._transactions)
        for transaction in transactions:
            transaction.abort()
        for consumer in consumers:
            consumer.close()
        self._core.detach(self.place)
        self._callbacks.close(until)
        self._crew.close(until)
        self._on_close()

    def owns(self, delivery: Delivery) -> TypeGuard[EmbeddedDelivery]:
        """Return whether a delivery belongs to this connection."""
        return isinstance(delivery, EmbeddedDelivery) and delivery.holding.subscription.owner is self.place

    def _require_connected(self) -> None:
        if self.state is not ConnectionState.CONNECTED:
            raise self._life.failure()

    def _forget_consumer(self, consumer: EmbeddedConsumer) -> None:
        with self._lock:
            self._consumers.discard(consumer)

    def _forget_transaction(self, transaction: EmbeddedTransaction) -> None:
        with self._lock:
            self._transactions.discard(transaction)
