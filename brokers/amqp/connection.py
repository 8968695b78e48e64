"""An AMQP broker as a `brokers.Connection`: state, life cycle and capabilities around one `Engine` after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Lock
from time import monotonic
from typing import Final, TypeVar
from uuid import uuid4

from brokers.amqp.consumer import AmqpConsumer, AmqpDelivery, Shared
from brokers.amqp.detours import AmqpEndpoints
from brokers.amqp.dialect import PLAIN, Dialect, capabilities_of, dialect_of
from brokers.amqp.engine import Engine
from brokers.amqp.login import Login
from brokers.amqp.mapping import to_amqp_message
from brokers.amqp.receiving import Wishes
from brokers.amqp.sending import Outboxes, Posting, settle
from brokers.amqp.temporary import TemporaryNode
from brokers.amqp.transaction import AmqpTransaction, Coordinator, Session
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
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, StaleDestinationError, UnsupportedError
from brokers.life import Life
from brokers.message import Destination, DestinationKind, Message
from brokers.reconnect import Reconnect, Reconnector

log = logging.getLogger(__name__)

T = TypeVar("T")

ATTEMPT: Final = 20.0
"""Seconds that one attempt to reconnect may take, with all the brokers together."""

FAREWELL_SHARE: Final = 0.25
"""The part of `close`'s deadline that is kept for taking leave of the broker."""


class AmqpConnection(Connection):
    """One program's way to an AMQP broker. `brokers.connect` makes it."""

    def __init__(self, logins: Sequence[Login], timeout: float, reconnect: Reconnect | None) -> None:
        self._name = name = ",".join(map(str, logins))
        self._endpoints = AmqpEndpoints(
            logins,
            lambda login: Engine(login, self._engine_ended),
            randomize=reconnect is not None and reconnect.randomize,
        )
        self._timeout = timeout
        self._has_client_id = logins[0].client_id is not None
        self._reconnector = None if reconnect is None else Reconnector(name, reconnect, self._resume, self._give_up)
        self._callbacks = Callbacks(name)
        self._life = Life(self._callbacks)
        self._crew = Crew(name)
        self._deadlines = Deadlines(f"{name} pauses")
        self._shared = Shared(timeout, self._crew, self._later, logins[0].max_message, self._forget)
        self._lock = Lock()
        self._consumers: dict[AmqpConsumer, None] = {}  # in the order in which they subscribed
        self._temporaries: dict[str, int] = {}
        self._is_closing = False
        self._generation = 0
        self._session: Session | None = None
        self._dialect: Dialect = PLAIN
        self._message_ids = logins[0].message_ids
        self._id_prefix = f"ID:{uuid4()}-"
        self._sent = count(1)
        self._done: Completion[SendResult] = self.completion()  # of every send that is part of a transaction
        self._done.set_result(SendResult())

    def open(self) -> None:
        """Make the first engine.

        Raises:
            ConnectionFailedError: nobody answers in time, or the broker refused the login.
        """
        engine = self._endpoints.open(self._timeout)
        self._adopt(engine)
        self._be_connected(engine)

    def __repr__(self) -> str:
        return f"<AmqpConnection {self._name} {self.state} generation {self._generation}>"

    @property
    def state(self) -> ConnectionState:
        """Where the connection is in its life."""
        return self._life.state

    @property
    def capabilities(self) -> Capabilities:
        """What the broker can do: over AMQP nearly all that JMS has. Durable topics belong to a `client_id`."""
        engine = self._current().engine
        return capabilities_of(
            self._dialect,
            f"{engine.product or 'AMQP broker'}/{engine.version}",
            has_client_id=self._has_client_id,
            message_ids=self._names_messages,
        )

    @property
    def generation(self) -> int:
        """Counts engines from 1."""
        return self._generation

    def watch(self, on_state: OnState) -> None:
        """Call `on_state` on the executor, for one change at a time and in their order."""
        self._life.watch(on_state)

    def unwatch(self, on_state: OnState) -> None:
        """End `watch`."""
        self._life.unwatch(on_state)

    def wait_connected(self, timeout: float | None = None) -> None:
        """Return once there is an engine; a lost connection that is not made again raises at once."""
        self._life.wait_connected(0.0 if self._reconnector is None else timeout)

    def send(self, message: Message, transaction: Transaction | None = None) -> Completion[SendResult]:
        """Send. The future is done when the broker decided, also for NON_PERSISTENT: AMQP tells it anyway.

        It raises SendFailedError with the broker's condition if the message was rejected, released or modified, or if
        the link was detached because of it; DestinationGoneError if the destination does not exist. The message gets a
        timestamp of its own, and where the broker takes one an id, whatever it has. While the broker gives no credit a
        thousand messages wait; then who sends waits.

        Raises:
            ValueError: no destination, or something that AMQP cannot carry; see `to_amqp_message`.
            StaleDestinationError: a temporary destination of an earlier generation of this connection.
        """
        session = self._usable()
        if transaction is not None:
            self._own(transaction).send(message)
            return self._done
        stamped = self._stamped(message)
        octets = to_amqp_message(stamped, self._dialect)
        future: Completion[SendResult] = self.completion()
        assert stamped.destination is not None
        try:
            with session.engine.working():
                outbox = session.outboxes.to(stamped.destination)
                outbox.post(Posting(octets, settle(future, SendResult(stamped.message_id))))
        except ConnectionLostError as error:
            future.set_exception(error)
        return future

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
        """Subscribe.

        Raises:
            UnsupportedError: a `durable_name` without a `client_id` of `connect`, a selector that the broker lacks.
            StaleDestinationError: a temporary destination that this generation of the connection did not make.
            BrokerError: the broker refused, as it does a selector that it cannot read.
            ValueError: a `prefetch` below 1, or a `durable_name` for anything but a topic.
        """
        self._check_wishes(destination, prefetch, durable_name)
        if selector is not None and not self._dialect.selectors:
            raise UnsupportedError("the embedded broker has no selectors (capability `selectors`); ActiveMQ has")
        if destination.kind.is_temporary:
            self._require_own(destination)
        session = self._usable(to_begin=True)
        wishes = Wishes(destination, prefetch, selector, durable_name, auto_accept)
        consumer = AmqpConsumer(wishes, on_delivery, owner=self, inline=inline, shared=self._shared)
        with self._lock:
            is_late = self._is_closing or session is not self._session
            generation = self._generation
            if not is_late:
                self._consumers[consumer] = None
        if is_late:
            raise self.failure(session) or ClosedError("the connection is being closed")
        try:
            consumer.start(session.engine, generation, self._dialect)
        except BaseException:
            consumer.close()
            raise
        return consumer

    def begin(self) -> Transaction:
        """Begin a transaction; the broker hears of it at the commit."""
        return AmqpTransaction(self, self._usable())

    def temporary(self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE) -> Destination:
        """Have the broker make a temporary destination.

        Raises:
            ValueError: a kind that is not temporary.
            BrokerError: the broker makes none.
        """
        if not kind.is_temporary:
            raise ValueError(f"{kind} is no temporary kind of destination")
        session, generation = self._usable(to_begin=True), self._generation
        made = TemporaryNode(session.engine, kind, self._dialect).make(self._timeout)
        assert made.address is not None
        with self._lock:
            self._temporaries[made.address] = generation
        return made

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
            consumers, session = list(self._consumers), self._session
        if self._reconnector is not None:
            self._reconnector.stop()
            self._endpoints.close()
            self._reconnector.join(until)
        for consumer in consumers:
            consumer.stop()
        for consumer in consumers:
            consumer.join(until - deadline * FAREWELL_SHARE)
        self._life.become(ConnectionState.CLOSED, "the connection was closed")
        if session is not None:
            self._take_leave(session.engine, consumers, until)
        self._callbacks.close(until)
        self._deadlines.close()
        self._crew.close()

    def _take_leave(self, engine: Engine, consumers: Sequence[AmqpConsumer], until: float) -> None:
        try:
            with engine.working():
                for consumer in consumers:
                    consumer.detach()
        except ConnectionLostError:
            log.debug("%s: the connection was lost before it was closed", engine)
        engine.close(until)

    # What transactions need of their connection.

    def encode(self, message: Message) -> bytes:
        """Return the octets of a message with an id of its own."""
        return to_amqp_message(self._stamped(message), self._dialect)

    def failure(self, session: Session) -> BrokerError | None:
        """Say why nothing can be done in a generation any more, or None."""
        if session.engine.is_up and self.state is not ConnectionState.CLOSED:
            return None
        if session is self._session:
            self._engine_ended(session.engine)  # whoever notices first
        if self.state is not ConnectionState.CONNECTED:
            return self._life.failure()
        return ConnectionLostError(f"the connection to {session.engine} was lost, and made again since")

    def completion(self) -> Completion[T]:
        """Make a future whose callbacks run on this connection's executor."""
        return Completion(self._callbacks.executor)

    def owns(self, delivery: Delivery) -> bool:
        """Say whether a delivery came by this connection."""
        return isinstance(delivery, AmqpDelivery) and delivery.consumer.owner is self

    def _stamped(self, message: Message) -> Message:
        """Give a message its id and its time, as JMS leaves it to the provider."""
        for destination in (message.destination, message.reply_to):
            if destination is not None and destination.address in self._temporaries:
                self._require_own(destination)
        message_id = f"{self._id_prefix}{next(self._sent)}" if self._names_messages else None
        return replace(message, message_id=message_id, timestamp=round(time.time() * 1000))

    @property
    def _names_messages(self) -> bool:
        return self._dialect.takes_ids if self._message_ids is None else self._message_ids

    def _check_wishes(self, destination: Destination, prefetch: int, durable_name: str | None) -> None:
        if durable_name is not None and not self._has_client_id:
            raise UnsupportedError(
                "durable subscriptions belong to a client id: connect with client_id=NAME (capability `durable_topics`)"
            )
        if durable_name is not None and destination.kind is not DestinationKind.TOPIC:
            raise ValueError(f"a durable subscription is to a topic, not to {destination}")
        if prefetch < 1:
            raise ValueError(f"a consumer with prefetch {prefetch} would never get a message")

    def _current(self) -> Session:
        assert self._session is not None  # from `open` on
        return self._session

    def _usable(self, *, to_begin: bool = False) -> Session:
        """Return what there is to work with. While consumers are made to go on nothing new is begun."""
        session = self._current()
        if to_begin and self._is_closing:
            raise ClosedError("the connection is being closed, or was")
        if to_begin and self.state is not ConnectionState.CONNECTED:
            raise self._life.failure()
        failure = self.failure(session)
        if failure is not None:
            raise failure
        return session

    def _own(self, transaction: Transaction) -> AmqpTransaction:
        if not isinstance(transaction, AmqpTransaction) or transaction.owner is not self:
            raise ValueError("the transaction belongs to another connection")
        return transaction

    def _require_own(self, destination: Destination) -> None:
        if destination.address is None or self._temporaries.get(destination.address) != self._generation:
            raise StaleDestinationError(
                f"{destination} was not made by this connection, or by an earlier generation of it"
            )

    def _later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` after so many seconds, where it may block; not at all once this is closed."""
        self._deadlines.call_at(monotonic() + seconds, partial(self._crew.submit, function))

    def _forget(self, consumer: AmqpConsumer) -> None:
        with self._lock:
            self._consumers.pop(consumer, None)

    # Engines come and go

    def _adopt(self, engine: Engine) -> list[AmqpConsumer]:
        """Begin a generation, and return the consumers that are to go on in it."""
        dialect = engine.login.dialect or dialect_of(engine.product)
        with self._lock:
            if self._is_closing:
                raise ClosedError("the connection was closed meanwhile")
            self._dialect = dialect
            self._session = Session(engine, Outboxes(engine, dialect), Coordinator(engine))
            self._generation += 1
            return list(self._consumers)

    def _be_connected(self, engine: Engine) -> None:
        self._life.become(ConnectionState.CONNECTED)
        if not engine.is_up:  # it ended before it could be lost
            self._engine_ended(engine)

    def _resume(self) -> None:
        """Make another engine, and have the consumers go on there.

        Raises:
            BrokerError: nobody lets us in, a consumer was refused, or the connection was lost again.
        """
        engine = self._endpoints.open(min(self._timeout, ATTEMPT))
        try:
            for consumer in self._adopt(engine):
                consumer.resume(engine, self._generation, self._dialect)
        except BaseException:
            engine.drop()
            raise
        self._be_connected(engine)

    def _give_up(self, cause: str) -> None:
        log.error("%s, so the connection is closed", cause)
        self._life.become(ConnectionState.CLOSED, cause)
        self.close()

    def _engine_ended(self, engine: Engine) -> None:
        """Note that an engine has ended, by itself or by `close`, while connecting or later; that is known once."""
        with self._lock:
            is_ours = self._session is not None and engine is self._session.engine
            if not is_ours or not self._life.become(ConnectionState.LOST, f"{engine.lost()}"):
                return
            for consumer in [each for each in self._consumers if each.is_temporary]:
                del self._consumers[consumer]
            is_over = self._is_closing or self._reconnector is None
        log.warning("%s%s", engine.lost(), "" if is_over else ", and is made again")
        if self._reconnector is not None and not is_over:
            self._reconnector.start()
