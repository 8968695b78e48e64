"""The interface that every broker adapter implements.

Adapters implement the abstract classes below; the SOAP side uses nothing else of a broker. Everything is thread-safe.
Five rules hold for every adapter, and the contract tests check them:

* A consumer calls `on_delivery` for one delivery at a time, in order, but not always on the same thread. It runs on the
  thread that reads the socket only with `inline`, `quick` or `lazy`; in the embedded broker, on the thread that sends
  only with `inline`. Except with `inline` and `lazy`, it may block,
  send, wait for futures, and open further consumers.
* A `Future` may be completed by any thread, but its callbacks run on the connection's executor (see `Completion`).
* A delivery belongs to its consumer until `accept`, `release` or `reject`, or until its consumer or connection ends;
  then the broker delivers it again.
* A message that is released repeatedly becomes a dead letter after some deliveries; none circulates forever.
* A subscription that the broker ends is renewed, or its consumer reports the end: none stops silently.

An adapter is imported only when its URL scheme is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

from brokers import events
from brokers.arguments import check_callback, is_count
from brokers.errors import BrokerError, NotSentError, SendFailedError, UnsupportedError, UsageError
from brokers.message import Destination, DestinationKind, Message
from brokers.threads.futures import Completion

MAX_PREFETCH: Final = (1 << 31) - 1
"""Maximum `prefetch` of a consumer: all brokers read so many messages, some no larger number."""

DEFAULT_TIMEOUT: Final = 30.0
"""Default time limit for connecting, subscribing and committing, in seconds."""


class ConnectionState(StrEnum):
    """The state of a connection, as reported to callbacks of `watch`.

    LOST may become CONNECTED again: the connection then has another generation, and its consumers resume, except those
    of temporary destinations. Operations that were running at the loss have failed. CLOSED is final.
    """

    CONNECTED = "connected"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The features of a broker, as seen through this adapter. Code checks these, never a broker's name.

    Attributes:
        broker: name and version, for people to read (`embedded`, `ActiveMQ/6.1.8`).
        dialect: the row used of the adapter's table of dialects (`artemis`), or the adapter's name.
        typed_properties: properties arrive with the JMS type they were sent with; otherwise all arrive as strings.
        message_types: a received message has its JMS message type; otherwise some are `unknown`.
        transactions: `begin` works: sends and accepts happen together or not at all.
        stable_message_id: a redelivered message keeps its JMSMessageID, so that it can serve as a key.
        tells_message_id: `SendResult.message_id` is known to the sender.
        delivery_count: `Delivery.delivery_count` is known.
        tells_redelivery: a message that was delivered before is marked as redelivered; otherwise it may not be.
        accepts_in_transactions: the accepts of a transaction happen together with its sends; otherwise right after
            them, so that a crash in between leads to a redelivery of an answered message.
        tells_gone: a send to a temporary destination that is gone fails; otherwise the message is lost.
        release: `Delivery.release` gives back one message; otherwise all that the consumer holds.
        cumulative_accept: accepting a delivery accepts all earlier ones of the same consumer.
        selectors: `consume` supports JMS message selectors.
        durable_topics: `consume` supports a `durable_name`.
        tells_time: JMSTimestamp of a received message is the time at which the broker took it, by a clock that may
            differ from this machine's; otherwise it is the sender's, or this process's.
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
    tells_time: bool


@dataclass(frozen=True, slots=True)
class SendResult:
    """The broker has the message. `message_id` is its JMSMessageID, or None if the broker does not report it."""

    message_id: str | None = None


class Delivery(ABC):
    """One delivery of a message to a consumer.

    Attributes:
        message: the message.
        delivery_count: number of deliveries including this one; None if the broker does not report it.
        generation: the generation of the connection that it belongs to and ends with.
        read_at: for a lazy consumer, when the message was read from the socket, in seconds since 1970; otherwise None.
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

        The redelivery may take a moment. A message that is released too often becomes a dead letter instead.
        """

    @abstractmethod
    def reject(self, reason: str) -> None:
        """Refuse the message: the broker makes it a dead letter, with the reason if it supports that."""


class OnSent(Protocol):
    """Called with what became of a message: the error, or None and the JMSMessageID if the broker reports it.

    The error is CancelledError for a message whose sender gave up.
    """

    def __call__(self, error: BaseException | None, message_id: str | None = None, /) -> None:
        """Take note."""


def report(on_sent: OnSent, sent: Future[SendResult]) -> None:
    """Tell the caller of `begin_send` what the future of a message says."""
    error = CancelledError("the send was cancelled") if sent.cancelled() else sent.exception()
    on_sent(error, None if error is not None else sent.result().message_id)


def _report_near(sent: Completion[SendResult], on_sent: OnSent, _: Future[SendResult]) -> None:
    if sent.cancelled():
        return
    if sent.exception() is None:
        sent.call_back(partial(report, on_sent))
    else:
        report(on_sent, sent)


OnDelivery: TypeAlias = Callable[[Delivery], None]
OnRefused: TypeAlias = Callable[[Message, str], None]
"""Called for a message that was refused unread, with the message (its body is None) and the reason."""
OnProblem: TypeAlias = Callable[[str], None]
"""Called with the reason when a subscription has ended at the broker, and with an empty text once it is renewed."""
OnState: TypeAlias = Callable[[ConnectionState], None]


class Consumer(ABC):
    """A subscription to one destination. Usable in a `with` statement.

    A subscription that the broker ends, for example because an operator deletes its queue, is renewed as long as the
    consumer and the connection live. One to a temporary destination is not renewed, and ends when the connection is
    lost.
    """

    @property
    def problem(self) -> str:
        """Why the broker has no subscription although there is a connection; empty while it has one.

        It may be empty while the connection is lost, which the connection's state shows.
        """
        return ""

    @abstractmethod
    def close(self) -> None:
        """End the subscription; deliveries that were not accepted go back to the broker. Idempotent.

        Once this has returned and no `on_delivery` runs, no other begins; one that a thread is about to call counts
        as running, so its first line may come later. `Connection.close` waits for both. There is one exception: with
        `auto_accept`, over SMQP, and over AMQP after a redirect, messages that were handed over before are still
        delivered, as they count as accepted. Called from `on_delivery` itself it returns at once.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RefusedSend(NamedTuple):
    """A message of a transaction that the broker refused, although it carried out the rest.

    `position` counts the transaction's sends from 0.
    """

    position: int
    message: Message
    error: SendFailedError


class Transaction(ABC):
    """Sends and accepts that happen together at `commit`, or not at all.

    There is one exception, which `commit` reports: a single send that the broker refuses, such as an answer to the
    temporary queue of a client that has left, does not make the other sends fail.
    """

    @abstractmethod
    def send(self, message: Message) -> None:
        """Add a message; it is not delivered before the commit."""

    @abstractmethod
    def accept(self, delivery: Delivery) -> None:
        """Add the acknowledgement of a delivery, of any consumer of the same connection."""

    @abstractmethod
    def commit(self) -> Completion[tuple[RefusedSend, ...]]:
        """Ask the broker to carry out the transaction; the future is done when it has, with the sends that it refused.

        The future raises ConnectionLostError if the connection ended before the answer (the outcome is unknown), and
        SendFailedError if the broker carried out nothing; then the transaction is aborted, or the connection ends and
        the broker redelivers. NoAnswerError means that the sends were carried out, but accepted messages may be
        redelivered.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop the sends and the accepts; the consumers still hold the deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """What to consume, and how: the arguments of `Connection.consume` except `on_delivery`.

    Attributes:
        destination: where to consume from; a topic delivers messages that are sent after `consume` has returned.
        prefetch: number of deliveries that the broker may hand over before one is accepted; at least 1. With
            `auto_accept`, several hundred make it fast.
        selector: a JMS message selector; needs the capability `selectors`.
        durable_name: name of a durable subscription to a topic; needs the capability `durable_topics`.
        auto_accept: deliveries are accepted automatically, at the latest soon after `on_delivery` returns: for messages
            whose redelivery does no harm. Processor time: 0.9 (`benchmarks/scheduling.py`, STOMP, 8 in flight).
        inline: `on_delivery` neither waits for this connection nor blocks, so an adapter may call it on the thread that
            reads the socket or, in the embedded broker, that sends: a sender may hold no lock that it takes.
            Processor time: 0.93 to 0.95 (`benchmarks/scheduling.py`, both protocols, 8 in flight).
        quick: `on_delivery` seldom takes over a few milliseconds, so it may run on the thread that reads the socket. If
            one does, another reads after 0.01 s. Processor time: 0.9 (`benchmarks/scheduling.py`, STOMP, 8 in flight).
        lazy: a delivery may be some tenths of a second late, so an adapter may handle several together.
            A capture takes 68 to 92 µs of processor time a message with it (`benchmarks/capture.py`). Everything that
            the connection reads may be as late, so use a separate connection. `on_delivery` must neither wait for
            this connection nor block, because it may be called on the thread that reads the socket.
            `Delivery.read_at` has the time of reading.
        on_refused: called for each message above the size limit, in its turn, on the threads of `on_delivery`.
        on_problem: called on the connection's executor when `Consumer.problem` changes, in order.
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
        """Check that the broker supports these options.

        Raises:
            UnsupportedError: there is a selector or a durable name, which the broker or this connection lacks.
            UsageError: `destination` is no Destination, there is a durable name for one that is not a topic, `prefetch`
                is no number from 1 to `MAX_PREFETCH`, a name or the selector is no text, UTF-8 cannot encode it, or it
                holds NUL.
        """
        broker = capabilities.broker
        check_destination(self.destination)
        if self.selector is not None and not capabilities.selectors:
            raise UnsupportedError(f"{broker} has no selectors (capability `selectors`); ActiveMQ has")
        if self.durable_name is not None and self.destination.kind is not DestinationKind.TOPIC:
            raise UsageError(f"the destination of a durable subscription must be a topic, got {self.destination}")
        if self.durable_name is not None and not capabilities.durable_topics:
            raise UnsupportedError(
                f"{broker} has no durable subscriptions (capability `durable_topics`); ActiveMQ has them for "
                "connections with a client id: connect with client_id=NAME"
            )
        if not is_count(self.prefetch) or self.prefetch > MAX_PREFETCH:
            raise UsageError(f"prefetch must be a whole number from 1 to {MAX_PREFETCH:,}, got {self.prefetch!r}")
        for text in (self.destination.name, self.destination.address, self.selector, self.durable_name):
            _check_text(text or "")


def check_destination(given: object) -> None:
    """Check the class of a destination.

    Raises:
        UsageError: it is no Destination.
    """
    if not isinstance(given, Destination):
        raise UsageError(f"destination must be one such as brokers.queue('orders'), got {given!r}")


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"names and selector of a subscription must be str, got {text!r}")
    if "\0" in text:
        raise UsageError(f"a subscription cannot name {text!r}, which holds NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"a subscription cannot name {text!r}, which UTF-8 cannot encode") from error


class Connection(ABC):
    """A connection to a broker. Usable in a `with` statement, which closes it.

    Attributes:
        is_local: whether all brokers of the connection are on this machine, by their URLs.

    Raises (every method): ClosedError after `close`, ConnectionLostError while the connection is lost.
    """

    is_local: bool = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.capabilities.broker}, {self.state}>"

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The features of this broker through this adapter."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Number of the current session with the broker, from 1; a temporary destination or delivery belongs to one."""

    @property
    @abstractmethod
    def state(self) -> ConnectionState:
        """The current state of the connection."""

    def after_arrivals(self, function: Callable[[], None]) -> None:
        """Call `function`, which must not block, once the messages that arrived together are delivered.

        That is at once, unless the caller is the thread that reads the socket, or in the embedded broker one that calls
        `on_delivery`, and more messages wait: then it is called after the last of them, or some milliseconds later.
        """
        function()

    @abstractmethod
    def watch(self, on_state: OnState) -> None:
        """Call `on_state` at every change of the connection's state, in order, on the connection's executor.

        Raises:
            UsageError: `on_state` is no plain function.
        """

    @abstractmethod
    def unwatch(self, on_state: OnState) -> None:
        """Stop calling `on_state`, and drop the reference. A change that is being reported may still call it once."""

    @abstractmethod
    def wait_connected(self, timeout: float | None = None) -> None:
        """Return once the connection can be used: at once, or when it is restored after a loss.

        Raises:
            ConnectionLostError: it was not restored within `timeout` seconds, or does not reconnect.
            ClosedError: the connection is closed.
        """

    @abstractmethod
    def send(
        self, message: Message, transaction: Transaction | None = None, *, timeout: float | None = None
    ) -> Completion[SendResult]:
        """Send `message` to its `destination`.

        The future is done when the broker has the message if its delivery mode is persistent, otherwise when it is
        written. Within a transaction it is done at once. Headers that are None get JMS's default (such as persistent);
        brokers that set `message_id` and `timestamp` override those of the message.

        Args:
            message: the message to send.
            transaction: the transaction that it belongs to, if any.
            timeout: seconds to wait while the broker does not read, or accepts no more; then NotSentError is raised,
                here or by the future, but never after a part was written. None to wait without limit.

        If this raises, nothing was sent. If the future raises SendFailedError, the broker refused the message, unless
        its `is_known` is False; with NotSentError or ClosedError nothing was sent; with any other error the outcome is
        unknown. A caller that gives up cancels the future, or the task that awaits it: a message that still waits, over
        AMQP for credit, is then never sent. `withdraw` does the same, and says whether the message was not sent.

        Raises:
            NotSentError: see `timeout`.
            UsageError: `message` is no message, or has no destination, or a body or a field that the adapter cannot
                carry.
        """

    def begin_send(
        self,
        message: Message,
        on_sent: OnSent,
        *,
        timeout: float | None = None,
        gather: bool = False,
        wait: bool = True,
    ) -> Callable[[], bool]:
        """Send like `send`, for a caller that waits for something else: `on_sent` is called at the end.

        It is called once at most, on the thread that settles the future of `send`, so it must not block.

        Args:
            message: the message to send.
            on_sent: called at the end.
            timeout: as for `send`.
            gather: the message may be sent together with others of this thread, when it waits for a future. An adapter
                does so if the thread did the last time; if it does not this time, the message is some milliseconds
                late. Over STOMP, with 8 calls in flight, a client then needs two thirds of the processor time.
            wait: False for a caller that must not wait, such as an event loop: NotSentError is raised where `send`
                would wait for the broker to read, or might, as far as the adapter knows.

        Returns:
            A function that gives up, and says whether the message will never be sent. `on_sent` may be called after it.

        Raises:
            NotSentError, UsageError: see `send`.
        """
        if not wait:
            raise NotSentError("sending might wait for the broker")
        sent = self.send(message, timeout=timeout)
        sent.on_settled(partial(report, on_sent))
        return sent.withdraw

    def answer(self, delivery: Delivery, message: Message) -> Completion[SendResult]:
        """Send the answer to a delivery; the caller accepts the delivery once the future is done.

        This does not wait for a broker that does not read: deliveries in hand bound the number of answers. An adapter
        that needs no confirmation may write both together; then `accept` does nothing more. Callbacks of the future may
        run on the threads of `on_delivery`, which saves a change of threads. Over STOMP, with 8 in flight, a call then
        needs about 0.93 of the processor time (`benchmarks/scheduling.py`).
        """
        return self.send(message)

    def begin_answer(self, delivery: Delivery, message: Message, on_sent: OnSent) -> Callable[[], object]:
        """Send like `answer`, for a caller that waits for something else; see `begin_send`.

        `on_sent` must not block. It is called with an error on the thread that notices it, before the connection can be
        restored; otherwise on the threads of `on_delivery`, or on the thread that reads the socket.

        Returns:
            A function that gives up. `on_sent` may be called after it only with what became of the message before.
        """
        sent = self.answer(delivery, message)
        if sent.done():
            report(on_sent, sent)
        else:
            sent.on_settled(partial(_report_near, sent, on_sent))
        return sent.cancel

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
        """Subscribe, and return once the broker has confirmed.

        A message above the adapter's size limit never reaches `on_delivery`: its body is dropped as it arrives, and the
        message is logged and rejected with the reason (with `auto_accept` it is accepted, and so lost).

        `on_delivery` is called with one delivery at a time, in order; it may block. An exception from it is logged, and
        the delivery released. `SubscribeOptions` describes the other arguments.

        Raises:
            UnsupportedError: the broker lacks a required capability.
            NoDestinationError: the destination does not exist, and the broker does not create it on request.
            StaleDestinationError: the temporary destination belongs to an earlier generation or another connection.
            BrokerError: the broker refused, for example an invalid selector; or no thread could be started.
            UsageError: a function is no plain function; or see `SubscribeOptions.check`.
        """
        check_callback(on_delivery, "on_delivery")
        if on_refused is not None:
            check_callback(on_refused, "on_refused")
        if on_problem is not None:
            check_callback(on_problem, "on_problem")
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
        """Subscribe for `consume`, which has checked the options."""

    @abstractmethod
    def unsubscribe(self, topic: Destination, durable_name: str) -> None:
        """Delete a durable subscription. Raises UnsupportedError, or BrokerError if it has a consumer."""

    @abstractmethod
    def begin(self) -> Transaction:
        """Begin a transaction.

        Raises:
            UnsupportedError: the broker has no transactions.
        """

    @abstractmethod
    def temporary(
        self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, *, fresh: bool = True, ends: bool = False
    ) -> Destination:
        """Create a destination that only this connection may consume from, and that ends with its current generation.

        Args:
            kind: a temporary kind.
            fresh: whether it must be new; otherwise it may be one that was ended and that the broker still has, as
                ActiveMQ Classic over STOMP has until the session ends.
            ends: whether it must disappear from the broker when it is ended. Over STOMP to ActiveMQ Classic that takes
                one more session for every 50 destinations. Its consumers must use `auto_accept`.
        """

    @abstractmethod
    def end_temporary(self, destination: Destination) -> None:
        """End a temporary destination whose consumers are closed; do nothing if it has ended or is not our own."""

    @abstractmethod
    def close(self, deadline: float = 5.0) -> None:
        """Close within `deadline` seconds: end the consumers, write pending data, then disconnect. Idempotent.

        Raises:
            UsageError: `deadline` is not a finite number; nothing is closed then.
        """

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
        events.CONSUMER_GONE_BEFORE.log(error)


@contextmanager
def ended_on_failure(connection: Connection, destination: Destination) -> Iterator[None]:
    """End a temporary destination, which was made for what the block does, if the block fails."""
    try:
        yield
    except BaseException:
        end_temporary(connection, destination)
        raise


def end_temporary(connection: Connection, destination: Destination) -> None:
    """End a temporary destination, which may have ended with its connection."""
    try:
        connection.end_temporary(destination)
    except BrokerError as error:
        events.DESTINATION_GONE_BEFORE.log(destination, error)
