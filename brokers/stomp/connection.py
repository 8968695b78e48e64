"""A STOMP broker as a `brokers.Connection`: state, life cycle and capabilities around one `Link` after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from secrets import token_hex
from threading import Lock
from time import monotonic
from typing import Final, TypeVar

from brokers.callbacks import Callbacks
from brokers.connection import (
    Capabilities,
    Completion,
    Connection,
    ConnectionState,
    Consumer,
    Delivery,
    OnDelivery,
    OnState,
    SendResult,
    Transaction,
)
from brokers.crew import Crew
from brokers.deadlines import Deadlines
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, StaleDestinationError
from brokers.life import Life
from brokers.message import DeliveryMode, Destination, DestinationKind, Message
from brokers.reconnect import Reconnect, Reconnector
from brokers.stomp.consumer import Shared, StompConsumer, StompDelivery
from brokers.stomp.dialect import capabilities_of
from brokers.stomp.endpoints import StompEndpoints
from brokers.stomp.frames import Headers, to_frame
from brokers.stomp.link import Link, Settle, pack
from brokers.stomp.login import Login
from brokers.stomp.releases import Releases
from brokers.stomp.transaction import Names, StompTransaction
from brokers.stomp.wishes import Wishes

log = logging.getLogger(__name__)

T = TypeVar("T")

SENT: Final = SendResult()
"""STOMP never tells a sender the JMSMessageID."""

ATTEMPT: Final = 20.0
"""Seconds that one attempt to reconnect may take, with all the brokers together."""

FAREWELL_SHARE: Final = 0.25
"""The part of `close`'s deadline that is kept for taking leave of the broker."""


class StompConnection(Connection):
    """One program's way to a STOMP broker. `brokers.connect` makes it."""

    def __init__(self, logins: Sequence[Login], timeout: float, reconnect: Reconnect | None) -> None:
        self._name = name = ",".join(map(str, logins))
        self._endpoints = StompEndpoints(
            logins, self._session_ended, randomize=reconnect is not None and reconnect.randomize
        )
        self._timeout = timeout
        self._reconnector = None if reconnect is None else Reconnector(name, reconnect, self._resume, self._give_up)
        self._callbacks = Callbacks(name)
        self._life = Life(self._callbacks)
        self._crew = Crew(name)
        self._deadlines = Deadlines(f"{name} pauses")
        self._ids = count(1)
        self.names = Names()
        self._shared = Shared(self.new_id, timeout, self._crew, Releases(), self._later, self._forget)
        self._lock = Lock()
        self._consumers: dict[StompConsumer, None] = {}  # in the order in which they subscribed
        self._temporaries: set[str] = set()
        self._mark = token_hex(8)  # in the address of each temporary destination of this connection
        self._is_closing = False
        self._generation = 0
        self._link = Link(logins[0], self._session_ended)  # never opened: before the first, there is none
        self._written: Completion[SendResult] = self.completion()  # of every send that waits for no answer
        self._written.set_result(SENT)

    def open(self) -> None:
        """Make the first session.

        Raises:
            ConnectionFailedError: nobody answers in time, or the broker refused the login.
            ValueError: a login that cannot be put in a frame.
        """
        link = self._endpoints.open(self._timeout)
        self._adopt(link)
        self._be_connected(link)

    def __repr__(self) -> str:
        return f"<StompConnection {self._name} {self.state} generation {self._generation}>"

    @property
    def state(self) -> ConnectionState:
        """Where the connection is in its life."""
        return self._life.state

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do: `release` gives back all that a consumer holds, empty text arrives as `unknown`."""
        link = self._link
        return capabilities_of(link.dialect, link.server, has_client_id=link.login.client_id is not None)

    @property
    def generation(self) -> int:
        """Counts sessions from 1."""
        return self._generation

    def watch(self, on_state: OnState) -> None:
        """Call `on_state` on the executor, for one change at a time and in their order."""
        self._life.watch(on_state)

    def unwatch(self, on_state: OnState) -> None:
        """End `watch`."""
        self._life.unwatch(on_state)

    def wait_connected(self, timeout: float | None = None) -> None:
        """Return once there is a session; a lost connection that is not made again raises at once."""
        self._life.wait_connected(0.0 if self._reconnector is None else timeout)

    def send(self, message: Message, transaction: Transaction | None = None) -> Completion[SendResult]:
        """Send. The broker is asked for a receipt unless the message is NON_PERSISTENT; then a refusal is only logged.

        Raises:
            ValueError: no destination, or something that STOMP cannot carry; see `to_frame`.
            StaleDestinationError: a temporary destination that this generation of the connection did not make.
        """
        link = self._session()
        if transaction is not None:
            self._own(transaction).send(message)
            return self._written
        headers, body = self.frame(message)
        if message.delivery_mode != DeliveryMode.NON_PERSISTENT:
            future: Completion[SendResult] = self.completion()
            headers["receipt"] = receipt = self.new_id("receipt")
            future.on_settled(lambda _: link.forget(receipt))
            link.request(pack("SEND", headers, body, link.dialect.version), {receipt: settle(future, SENT)})
            return future
        try:
            link.write(pack("SEND", headers, body, link.dialect.version))
        except ConnectionLostError as error:
            future = self.completion()
            future.set_exception(error)
            return future
        return self._written

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
    ) -> Consumer:
        """Subscribe. With a `prefetch` above 1, transactions get slower with every message (ActiveMQ Classic).

        With `auto_accept` the broker is told in chunks, see `brokers.stomp.acceptance`.

        Raises:
            UnsupportedError: a `durable_name`, and the connection has no client id.
            StaleDestinationError: a temporary destination that this generation of the connection did not make.
            BrokerError: the broker refused, as it does a selector that it cannot read.
            ValueError: a `prefetch` below 1, or a `durable_name` for anything but a topic.
        """
        wishes = Wishes(
            destination=destination,
            prefetch=prefetch,
            selector=selector,
            durable_name=durable_name,
            auto_accept=auto_accept,
            inline=inline,
        )
        wishes.check(self.capabilities)
        if destination.kind.is_temporary:
            self._require_own(destination)
        link = self._session(to_begin=True)
        consumer = StompConsumer(wishes, on_delivery, owner=self, shared=self._shared)
        with self._lock:
            is_late = self._is_closing or link is not self._link
            generation = self._generation
            if not is_late:
                self._consumers[consumer] = None
        if is_late:
            raise self.failure(link) or ClosedError("the connection is being closed")
        try:
            consumer.start(link, generation)
        except BaseException:
            consumer.close()
            raise
        return consumer

    def begin(self) -> Transaction:
        """Begin a transaction; the broker hears of it at the commit."""
        return StompTransaction(self, self._session())

    def temporary(self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE) -> Destination:
        """Make a temporary destination; the broker makes it when it is first consumed from or named as a reply-to.

        Raises:
            ValueError: a kind that is not temporary.
        """
        if not kind.is_temporary:
            raise ValueError(f"{kind} is no temporary kind of destination")
        link = self._session(to_begin=True)
        address = f"{link.dialect.own_prefixes[kind]}{self._mark}-{token_hex(16)}"
        with self._lock:
            self._temporaries.add(address)
        return Destination(kind, None, address=address)

    def close(self, deadline: float = 5.0) -> None:
        """Close: let each `on_delivery` under way finish, give back what is held, take leave of the broker.

        While those finish they may still send, accept and commit, but not consume. Idempotent; a second call while the
        first is under way returns at once.
        """
        until = monotonic() + deadline
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            consumers = list(self._consumers)
        if self._reconnector is not None:
            self._reconnector.stop()
            self._endpoints.close()
            if self.state is ConnectionState.LOST:
                self._link.drop()
            self._reconnector.join(until)
        for consumer in consumers:
            consumer.stop()
        for consumer in consumers:
            consumer.join(until - deadline * FAREWELL_SHARE)
        self._life.become(ConnectionState.CLOSED, "the connection was closed")
        self._link.close(until, lambda: b"".join(consumer.end() for consumer in consumers))
        self._callbacks.close(until)
        self._deadlines.close()
        self._crew.close()

    # What transactions need of their connection.

    def frame(self, message: Message) -> tuple[Headers, bytes]:
        """Return headers and body of the SEND frame, having checked that its temporary destinations are of today."""
        for destination in (message.destination, message.reply_to):
            if destination is not None and self._is_own_form(destination):
                self._require_own(destination)
        return to_frame(message, self._link.dialect)

    def failure(self, link: Link) -> BrokerError | None:
        """Say why nothing can be done over a session any more, or None."""
        if link.is_up and self.state is not ConnectionState.CLOSED:
            return None
        if link is self._link:
            self._session_ended(link)  # whoever notices first
        if self.state is not ConnectionState.CONNECTED:
            return self._life.failure()
        return ConnectionLostError(f"the connection to {link} was lost, and made again since")

    def new_id(self, what: str) -> str:
        """Make an identifier that this connection used for nothing else."""
        return f"{what}-{next(self._ids)}"

    def completion(self) -> Completion[T]:
        """Make a future whose callbacks run on this connection's executor."""
        return Completion(self._callbacks.executor)

    def owns(self, delivery: Delivery) -> bool:
        """Say whether a delivery came by this connection."""
        return isinstance(delivery, StompDelivery) and delivery.consumer.owner is self

    def _session(self, *, to_begin: bool = False) -> Link:
        """Return the session. While consumers are made to go on what they are given may be answered, nothing begun."""
        link = self._link
        if to_begin and self._is_closing:
            raise ClosedError("the connection is being closed, or was")
        if to_begin and self.state is not ConnectionState.CONNECTED:
            raise self._life.failure()
        failure = self.failure(link)
        if failure is not None:
            raise failure
        return link

    def _own(self, transaction: Transaction) -> StompTransaction:
        if not isinstance(transaction, StompTransaction) or transaction.owner is not self:
            raise ValueError("the transaction belongs to another connection")
        return transaction

    def _is_own_form(self, destination: Destination) -> bool:
        dialect = self._link.dialect
        prefix = dialect.own_prefixes.get(destination.kind)
        if prefix is None or destination.address is None:
            return False
        return destination.address.startswith(prefix if dialect.own_is_private else prefix + self._mark)

    def _require_own(self, destination: Destination) -> None:
        if destination.address not in self._temporaries:
            raise StaleDestinationError(
                f"{destination} was not made by this connection, or by an earlier generation of it"
            )

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` on another thread, where it may write."""
        self._crew.submit(function)

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` after so many seconds, where it may block; not at all once this is closed."""
        self._deadlines.call_at(monotonic() + seconds, partial(self._crew.submit, function))

    def _forget(self, consumer: StompConsumer) -> None:
        with self._lock:
            self._consumers.pop(consumer, None)

    # Sessions come and go

    def _adopt(self, link: Link) -> list[StompConsumer]:
        """Begin a generation, and return the consumers that are to go on in it."""
        with self._lock:
            if self._is_closing:
                raise ClosedError("the connection was closed meanwhile")
            self._link = link
            self._generation += 1
            self._temporaries.clear()
            return list(self._consumers)

    def _be_connected(self, link: Link) -> None:
        self._life.become(ConnectionState.CONNECTED)
        if not link.is_up:  # it ended before it could be lost
            self._session_ended(link)

    def _resume(self) -> None:
        """Make another session, and have the consumers go on there.

        Raises:
            BrokerError: nobody lets us in, a consumer was refused, or the session was lost again.
        """
        link = self._endpoints.open(min(self._timeout, ATTEMPT))
        try:
            for consumer in self._adopt(link):
                consumer.resume(link, self._generation)
        except BaseException:
            link.drop()
            raise
        self._be_connected(link)

    def _give_up(self, cause: str) -> None:
        log.error("%s, so the connection is closed", cause)
        self._life.become(ConnectionState.CLOSED, cause)
        self.close()

    def _session_ended(self, link: Link) -> None:
        """Note that a session has ended, by itself or by `close`, while connecting or later; that is known once."""
        with self._lock:
            if link is not self._link or not self._life.become(ConnectionState.LOST, f"{link.lost()}"):
                return
            for consumer in [each for each in self._consumers if each.is_temporary]:
                del self._consumers[consumer]
            is_over = self._is_closing or self._reconnector is None
        log.warning("the connection to %s was lost%s", link, "" if is_over else ", and is made again")
        if self._reconnector is not None and not is_over:
            self._reconnector.start()


def settle(future: Completion[T], result: T) -> Settle:
    """Return what completes `future` with `result`, or with an error if there is one; a cancelled one is left alone."""

    def complete(error: BrokerError | None) -> None:
        if future.set_running_or_notify_cancel():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    return complete
