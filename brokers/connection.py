"""The interface that every broker adapter offers, and the way to get one: `connect(url)`.

Adapters implement the abstract classes below; the SOAP side uses nothing else of a broker. Everything is
thread-safe. Five rules hold for every adapter, and the contract tests check them:

* A consumer calls `on_delivery` for one delivery at a time, in order, and not always on the same thread; on the one
  that reads the socket only with `inline`, `quick` or `lazy`. But for `inline` and `lazy` it may block, send, wait for
  futures, and open further consumers.
* A `Future` may be completed by any thread, but its callbacks run on the connection's executor (see `Completion`).
* A delivery is the consumer's until `accept`, `release` or `reject`, or until its consumer or connection ends; then
  the broker delivers it again.
* A message that is released again and again becomes a dead letter after some deliveries; none goes round for ever.
* A subscription that the broker ends is made again, or its consumer says that it has ended: none is deaf in silence.

No adapter is imported before its URL scheme is asked for.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from brokers.errors import BrokerError, SendFailedError, UnsupportedError
from brokers.message import Destination, DestinationKind, Message
from brokers.threads.futures import Completion

log = logging.getLogger("brokers")

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds that connecting, subscribing and committing may take before the adapter gives up."""


class ConnectionState(StrEnum):
    """Where a connection is in its life, as it reports to those who `watch` it.

    LOST may become CONNECTED again: consumers go on then, but for those of temporary destinations, and the connection
    has another generation. What was under way when it was lost has failed. CLOSED is the end.
    """

    CONNECTED = "connected"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a broker, seen through this adapter, can do. Code asks here, never for a broker's name.

    Attributes:
        broker: what it is, for people to read (`embedded`, `ActiveMQ/6.1.8`).
        dialect: the row of the adapter's table that it is spoken to by (`artemis`), else the adapter's name.
        typed_properties: properties arrive with the JMS type they were sent with; else all arrive as strings.
        message_types: a received message tells which of the JMS message types it was; else some are `unknown`.
        transactions: `begin` works: sends and accepts happen together or not at all.
        stable_message_id: a redelivered message keeps its JMSMessageID, so that it can serve as a key.
        tells_message_id: `SendResult.message_id` is known to the sender.
        delivery_count: `Delivery.delivery_count` is known.
        tells_redelivery: a message that was delivered before says so; else it may say nothing.
        accepts_in_transactions: the accepts of a transaction happen together with its sends; else right after them, so
            that after a crash in between a message is delivered again that was answered.
        tells_gone: a send to a temporary destination that is gone fails; else the message vanishes.
        release: `Delivery.release` gives one message back; else it gives back all that the consumer holds.
        cumulative_accept: accepting a delivery accepts all that came before it on the same consumer.
        selectors: `consume` takes a JMS message selector.
        durable_topics: `consume` takes a `durable_name`.
    """

    broker: str
    dialect: str
    typed_properties: bool
    message_types: bool
    transactions: bool
    stable_message_id: bool
    tells_message_id: bool
    delivery_count: bool
    tells_redelivery: bool
    accepts_in_transactions: bool
    tells_gone: bool
    release: bool
    cumulative_accept: bool
    selectors: bool
    durable_topics: bool


@dataclass(frozen=True, slots=True)
class SendResult:
    """The broker has the message. `message_id` is its JMSMessageID where the broker tells it, else None."""

    message_id: str | None = None


class Delivery(ABC):
    """One message as it reached one consumer.

    Attributes:
        message: what arrived.
        delivery_count: 1 for the first delivery, counting up; None where the broker does not tell.
        generation: the generation of the connection that it came by; it ends with that generation.
        read_at: when it was read, in seconds since 1970, where it may be late for that: of a lazy consumer; else None.
    """

    __slots__ = ("delivery_count", "generation", "message", "read_at")

    def __init__(self, message: Message, delivery_count: int | None, generation: int) -> None:
        self.message = message
        self.delivery_count = delivery_count
        self.generation = generation
        self.read_at: float | None = None

    @abstractmethod
    def accept(self) -> None:
        """Acknowledge: the broker may forget the message.

        A second call, or one after the connection was lost, does nothing.
        """

    @abstractmethod
    def release(self) -> None:
        """Give the message back to be delivered again, to this consumer or another, marked as redelivered.

        That may take a moment. A message that comes back too often becomes a dead letter instead.
        """

    @abstractmethod
    def reject(self, reason: str) -> None:
        """Refuse the message for good: the broker puts it on its dead-letter destination, with the reason if it can."""


OnDelivery: TypeAlias = Callable[[Delivery], None]
OnRefused: TypeAlias = Callable[[Message, str], None]
"""Told of a message that was refused unread: what it says besides its body, which is None, and why."""
OnProblem: TypeAlias = Callable[[str], None]
"""Told why a subscription has ended at the broker, and an empty text once it lives again."""
OnState: TypeAlias = Callable[[ConnectionState], None]


class Consumer(ABC):
    """A subscription to one destination. Usable in a `with` statement.

    One that the broker ends, as when an operator deletes its queue, is made again for as long as it and the connection
    live. That of a temporary destination has ended for good with that; so it has when the connection is lost.
    """

    @property
    def problem(self) -> str:
        """Why the broker has no such subscription although there is a connection; empty while all is well.

        While the connection is lost its state says so, and this need not.
        """
        return ""

    @abstractmethod
    def close(self) -> None:
        """End the subscription; what was delivered and not accepted goes back to the broker. Idempotent.

        Returns when no further `on_delivery` will start. Called from `on_delivery` itself it returns at once.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RefusedSend(NamedTuple):
    """A message of a transaction that the broker would not take, though it carried out the rest.

    `position` counts the transaction's sends from 0.
    """

    position: int
    message: Message
    error: SendFailedError


class Transaction(ABC):
    """Sends and accepts that happen together at `commit`, or not at all.

    With one exception, which commit reports: a send that the broker refuses by itself, such as an answer to the
    temporary queue of a client that left, takes nobody else's answer down with it.
    """

    @abstractmethod
    def send(self, message: Message) -> None:
        """Add a message; it is delivered to nobody before the commit."""

    @abstractmethod
    def accept(self, delivery: Delivery) -> None:
        """Add the acknowledgement of a delivery, of any consumer of the same connection."""

    @abstractmethod
    def commit(self) -> Completion[tuple[RefusedSend, ...]]:
        """Ask the broker to carry out everything; the future is done when it said so, with the sends that it refused.

        The future raises ConnectionLostError if the connection ended before the answer (whether it was carried out is
        not known), SendFailedError if the broker carried out nothing; then all is as after `abort`, or the connection
        ends and the broker delivers again. NoAnswerError says that the sends were carried out, and something that was
        accepted may come again all the same.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop the sends; the deliveries are as if they had not been accepted, and the consumer still holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """What is to be consumed, and how: the arguments of `Connection.consume` but for `on_delivery`.

    Attributes:
        destination: where from; a topic delivers what is sent after `consume` returned.
        prefetch: how many deliveries the broker may hand over before one is accepted.
        selector: a JMS message selector; needs the capability `selectors`.
        durable_name: name of a durable topic subscription; needs the capability `durable_topics`.
        auto_accept: each delivery is accepted without being told, at the latest soon after `on_delivery` ended, and
            `accept` does nothing: for replies, and what else may come a second time. The broker never has more on the
            way than `prefetch`, of which some hundreds make it quick.
        inline: `on_delivery` neither waits for this connection nor blocks, so an adapter may call it on the thread that
            reads the socket. Over AMQP, with 8 calls in flight, a client takes about 0.8 of the processor time with it.
        quick: `on_delivery` is seldom at one message for more than a few milliseconds, so an adapter may call it on the
            thread that reads the socket. It may do what others may: where it takes longer, another thread reads within
            0.01 s, and the next are called elsewhere for a while. Over STOMP, with 8 in flight, a call takes about 0.9
            of the processor time with it (`benchmarks/scheduling.py`).
        lazy: a delivery may come some tenths of a second late. So an adapter may let messages gather and handle them
            together, which takes less of the processor than to be woken for each; `Delivery.read_at` says when it was
            read. All that the connection reads may be as late: it is for one that does nothing else. And `on_delivery`
            neither waits for this connection nor blocks, as it may be called on the thread that reads the socket.
        on_refused: told of each message that was above the limit, in its turn, where `on_delivery` is called.
        on_problem: told on the connection's executor when `Consumer.problem` changes, in order.
    """

    destination: Destination
    prefetch: int = 1
    selector: str | None = None
    durable_name: str | None = None
    auto_accept: bool = False
    inline: bool = False
    quick: bool = False
    lazy: bool = False
    on_refused: OnRefused | None = None
    on_problem: OnProblem | None = None

    def check(self, capabilities: Capabilities) -> None:
        """See that this can be asked of the broker.

        Raises:
            UnsupportedError: a selector, or a durable name, and the broker has none (through this connection).
            ValueError: a durable name for anything but a topic, or no room for a message.
        """
        broker = capabilities.broker
        if self.selector is not None and not capabilities.selectors:
            raise UnsupportedError(f"{broker} has no selectors (capability `selectors`); ActiveMQ has")
        if self.durable_name is not None and self.destination.kind is not DestinationKind.TOPIC:
            raise ValueError(f"a durable subscription needs a topic, and {self.destination} is none")
        if self.durable_name is not None and not capabilities.durable_topics:
            raise UnsupportedError(
                f"no durable subscriptions at {broker} (capability `durable_topics`): ActiveMQ has them, where they "
                "belong to a client id: connect with client_id=NAME"
            )
        if self.prefetch < 1:
            raise ValueError(f"a consumer with prefetch {self.prefetch} would never get a message")


class Connection(ABC):
    """A connection to a broker. Usable in a `with` statement, which closes it.

    Attributes:
        is_local: the broker is on this machine, by what its URL says; of several brokers, all of them.

    Raises (every method): ClosedError after `close`, ConnectionLostError while the connection is lost.
    """

    is_local: bool = True

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What this broker can do through this adapter."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Counts connections made under this object, from 1; a temporary destination and a delivery belong to one."""

    @property
    @abstractmethod
    def state(self) -> ConnectionState:
        """Where the connection is in its life."""

    @property
    def backlog(self) -> int:
        """How many deliveries have arrived and wait for a thread, roughly; 0 where that is not known."""
        return 0

    @abstractmethod
    def watch(self, on_state: OnState) -> None:
        """Call `on_state` at every change of the connection's state, in order, on the connection's executor."""

    @abstractmethod
    def unwatch(self, on_state: OnState) -> None:
        """End `watch`: nothing refers to `on_state` any more. It may be called once more, by a change under way."""

    @abstractmethod
    def wait_connected(self, timeout: float | None = None) -> None:
        """Return once the connection can be used: at once, or when it was made again after it was lost.

        Raises:
            ConnectionLostError: that did not happen within `timeout` seconds, or nobody makes it again.
            ClosedError: it never will.
        """

    @abstractmethod
    def send(
        self, message: Message, transaction: Transaction | None = None, *, timeout: float | None = None
    ) -> Completion[SendResult]:
        """Send `message` to its `destination`.

        The future is done when the broker has the message if its delivery mode is persistent, else when it is
        written. Within a transaction it is done at once. What is None in the message has JMS's default (persistent);
        `message_id` and `timestamp` are the broker's to set where it does so.

        Args:
            message: what to send.
            transaction: what it is part of.
            timeout: seconds that it may wait while the broker reads nothing, or takes no more; then NotSentError,
                raised here or by the future, and never once some of it is written. None for as long as it takes.

        What this itself raises says that nothing was sent. What the future raises says what became of the message:
        SendFailedError that the broker refused it, but for one that is not `is_known`; NotSentError and ClosedError
        that nothing was sent; any other error that it is not known. Who gives up may `withdraw` the future.

        Raises:
            NotSentError: see `timeout`.
            ValueError: the message has no destination, or a body that the adapter cannot carry.
        """

    def answer(self, delivery: Delivery, message: Message) -> Completion[SendResult]:
        """Send what answers a delivery; the caller accepts that once the future is done.

        Does not wait for a broker that reads nothing: what is answered is bounded by what it handed over.
        An adapter may write both at once where it asks the broker to confirm nothing; then `accept` does nothing more.
        Callbacks of the future may run where `on_delivery` is called, which saves a change of threads.
        Over STOMP, with 8 in flight, a call takes about 0.93 of the processor time (`benchmarks/scheduling.py`).
        """
        return self.send(message)

    def consume(
        self,
        destination: Destination,
        on_delivery: OnDelivery,
        *,
        prefetch: int = 1,
        selector: str | None = None,
        durable_name: str | None = None,
        auto_accept: bool = False,
        inline: bool = False,
        quick: bool = False,
        lazy: bool = False,
        on_refused: OnRefused | None = None,
        on_problem: OnProblem | None = None,
    ) -> Consumer:
        """Subscribe, and return once the broker confirmed it.

        A message above the adapter's limit never reaches `on_delivery`: its body is dropped as it arrives, it is
        rejected with the reason (with `auto_accept` accepted, and so gone), logged, and the next one follows.

        `on_delivery` is called with one delivery at a time, in order; it may block. An exception that leaves it is
        logged and the delivery released. The other arguments are described with `SubscribeOptions`.

        Raises:
            UnsupportedError: the broker lacks a capability asked for.
            NoDestinationError: there is no such destination, and the broker makes none for who asks.
            StaleDestinationError: a temporary destination of an earlier generation, or of another connection.
            BrokerError: the broker refused, as it does a selector that it cannot read; or no thread is to be had.
            ValueError: a `prefetch` below 1, or a `durable_name` for anything but a topic.
        """
        options = SubscribeOptions(
            destination=destination,
            prefetch=prefetch,
            selector=selector,
            durable_name=durable_name,
            auto_accept=auto_accept,
            inline=inline,
            quick=quick,
            lazy=lazy,
            on_refused=on_refused,
            on_problem=on_problem,
        )
        options.check(self.capabilities)
        return self._consume(options, on_delivery)

    @abstractmethod
    def _consume(self, options: SubscribeOptions, on_delivery: OnDelivery) -> Consumer:
        """Subscribe as `consume` says, which has checked the options."""

    @abstractmethod
    def unsubscribe(self, topic: Destination, durable_name: str) -> None:
        """End a durable subscription for good. Raises UnsupportedError, or BrokerError if it has a consumer."""

    @abstractmethod
    def begin(self) -> Transaction:
        """Begin a transaction.

        Raises:
            UnsupportedError: the broker has none.
        """

    @abstractmethod
    def temporary(
        self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, *, fresh: bool = True, ends: bool = False
    ) -> Destination:
        """Make a destination that only this connection may consume from, and that ends with this generation of it.

        Args:
            kind: a temporary kind.
            fresh: nobody sent to it before; else it may be one that was ended and that the broker still has.
            ends: it will be ended, and gone from the broker then, also where that takes another session (STOMP to
                ActiveMQ Classic). Its consumers have `auto_accept`.
        """

    @abstractmethod
    def end_temporary(self, destination: Destination) -> None:
        """End a temporary destination, whose consumers are closed; nothing for one that has ended, or is not ours."""

    @abstractmethod
    def close(self, deadline: float = 5.0) -> None:
        """Close within `deadline` seconds: consumers, then what is to be written, then the connection. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def stop(consumer: Consumer) -> None:
    """Close a consumer, which may have ended with its connection."""
    try:
        consumer.close()
    except BrokerError as error:
        log.debug("the consumer was gone before: %s", error)


def end_temporary(connection: Connection, destination: Destination) -> None:
    """End a temporary destination, which may have ended with its connection."""
    try:
        connection.end_temporary(destination)
    except BrokerError as error:
        log.debug("%s was gone before: %s", destination, error)
