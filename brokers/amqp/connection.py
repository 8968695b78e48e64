"""An AMQP broker as a `brokers.Connection`: how messages, consumers and transactions go over an `AmqpSession`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from typing import TypeGuard
from uuid import uuid4

from brokers import events
from brokers.adapter.connection import LastingConnection
from brokers.adapter.consumer import why_of
from brokers.adapter.endpoints import Reconnect
from brokers.adapter.redelivery import Releases
from brokers.adapter.transaction import own_transaction
from brokers.adapter.wait import epoch_milliseconds
from brokers.amqp.consumer import AmqpConsumer, AmqpConsumerContext, AmqpDelivery
from brokers.amqp.dialect import AmqpDialect, capabilities_of, spell
from brokers.amqp.endpoints import AmqpEndpoints
from brokers.amqp.message_writer import to_stamped_message
from brokers.amqp.outcomes import RedirectedError, ReleasedError
from brokers.amqp.receive import Inlet
from brokers.amqp.redirects import Branches, Way
from brokers.amqp.send import Outbox, OutgoingMessage
from brokers.amqp.session import AmqpSession
from brokers.amqp.temporary import topic_as_queue
from brokers.amqp.transaction import AmqpTransaction
from brokers.amqp.url import AmqpLogin, TemporaryQueues
from brokers.arguments import end_of
from brokers.connection import (
    Capabilities,
    Consumer,
    Delivery,
    OnDelivery,
    OnSent,
    RefusedSend,
    SendResult,
    SubscribeOptions,
    Transaction,
    report,
)
from brokers.errors import (
    BrokerError,
    ConnectionLostError,
    DestinationGoneError,
    NotSentError,
    SendFailedError,
    UnsupportedError,
)
from brokers.message import Destination, DestinationKind, Message, check_message
from brokers.threads.futures import Completion


class AmqpConnection(LastingConnection[AmqpSession, AmqpConsumer]):
    """A connection to an AMQP broker, as returned by `brokers.connect`. Durable topics need a `client_id`."""

    def __init__(self, logins: Sequence[AmqpLogin], timeout: float, reconnect: Reconnect | None) -> None:
        endpoints = AmqpEndpoints(
            logins,
            lambda login: AmqpSession(login, self._session_ended),
            randomize=reconnect is not None and reconnect.randomize,
        )
        super().__init__(",".join(map(str, logins)), endpoints, timeout, reconnect)
        self._has_client_id = logins[0].client_id is not None
        self._branches = Branches(partial(_opened, timeout=timeout, reconnect=reconnect))
        self._shared = AmqpConsumerContext(
            timeout,
            self._crew,
            Releases(),
            self.later,
            logins[0].max_message,
            self._consume_elsewhere,
            self._note_asked,
            self.forget,
        )
        self._message_ids = logins[0].message_ids
        self._id_prefix = f"ID:{uuid4()}-"
        self._sent = count(1)
        self._done: Completion[SendResult] = self.completion()  # of every send that is part of a transaction
        self._done.set_result(SendResult())

    @property
    def capabilities(self) -> Capabilities:
        """The features of the broker: over AMQP nearly all of JMS. Durable topics need a `client_id`."""
        session = self._current()
        return capabilities_of(
            session.dialect,
            f"{session.product or 'AMQP broker'}/{session.version}",
            has_client_id=self._has_client_id,
            message_ids=self._names_messages(session.dialect),
        )

    def send(
        self, message: Message, transaction: Transaction | None = None, *, timeout: float | None = None
    ) -> Completion[SendResult]:
        """Send. The future is done when the broker has decided, even for NON_PERSISTENT: AMQP always reports it.

        The future raises SendFailedError with the broker's condition if the message was rejected, released or modified,
        or if the link was detached because of it, and DestinationGoneError if the destination does not exist. The
        message gets a new timestamp and, if the broker accepts one, a new id. While the broker gives no credit, up to a
        thousand messages wait, and then the senders; a message that waited for `timeout` seconds is not sent, and the
        future raises NotSentError.

        Raises:
            NotSentError: a thousand messages still waited after `timeout` seconds; or there is no credit, and no thread
                could be started that ends the wait in time.
            UsageError: the message has no destination, or content that AMQP cannot carry; see `to_amqp_message`.
            StaleDestinationError: the temporary destination belongs to an earlier generation of this connection.
        """
        if transaction is not None:
            check_message(message)
            self._usable()
            own_transaction(transaction, self, AmqpTransaction).send(message)
            return self._done
        return self._send(message, end_of(timeout), self.completion())

    def begin_send(
        self,
        message: Message,
        on_sent: OnSent,
        *,
        timeout: float | None = None,
        gather: bool = False,
        wait: bool = True,
    ) -> Callable[[], bool]:
        """Send as `send` does."""
        sent = self._send(message, end_of(timeout), self.completion(), wait=wait)
        sent.on_settled(partial(report, on_sent))
        return sent.withdraw

    def consumers(self, destination: Destination) -> int:
        """Return the number of consumers of a queue, those of other connections included, at RabbitMQ.

        Raises:
            NoDestinationError: there is no such queue.
            UnsupportedError: the broker has no management node, or `destination` is no queue.
        """
        session = self._usable(to_begin=True)
        if not session.dialect.has_management or destination.kind is not DestinationKind.QUEUE:
            raise UnsupportedError(f"{session.product} does not tell how many consumers {destination} has")
        return session.management.consumers(spell(destination, session.dialect), self._timeout)

    def after_arrivals(self, function: Callable[[], None]) -> None:
        """Call `function` after the last message that was read together with the current one; see the base class."""
        self._current().after_arrivals(function)

    def answer(self, delivery: Delivery, message: Message) -> Completion[SendResult]:
        """Send; the message waits for credit, however many others wait."""
        return self._send(message, None, self.near_completion())

    def _send(
        self, message: Message, until: float | None, future: Completion[SendResult], *, wait: bool = True
    ) -> Completion[SendResult]:
        session = self._usable()
        message_id, timestamp = self._stamp(message, session.dialect)
        octets = to_stamped_message(message, message_id, timestamp, session.dialect)
        posting = OutgoingMessage(octets, partial(self._settle, session, message, message_id, future))
        assert message.destination is not None
        with session.held():
            outbox = session.outboxes.to(message.destination)
            if outbox.post(posting, until=until, wait=wait):
                return future
        future.revoke = partial(_withdrawn, session, outbox, posting)
        if until is not None and until < inf:
            try:
                deadline = self._deadlines.call_at(until, partial(outbox.give_up, posting))
            except RuntimeError as error:
                if _withdrawn(session, outbox, posting):  # otherwise it was sent meanwhile
                    raise NotSentError(f"not sent, as its time limit cannot be kept: {error}") from error
            else:
                future.on_settled(lambda _: self._deadlines.forget(deadline))
        return future

    def _consume_elsewhere(
        self, error: RedirectedError, options: SubscribeOptions, on_delivery: OnDelivery
    ) -> Consumer:
        """Subscribe at the place that a redirect names; transactions accept its deliveries after all others.

        Raises:
            RedirectedError: the redirect names no place, or one that is not allowed.
            BrokerError: the connection there failed.
        """
        elsewhere = self._branches.to(self._current().login, error.info)
        if elsewhere is None:
            raise error
        connection, address = elsewhere
        there = replace(options, destination=replace(options.destination, address=address))
        there.check(connection.capabilities)
        return connection._consume(there, on_delivery)

    def _settle(
        self,
        session: AmqpSession,
        message: Message,
        message_id: str | None,
        future: Completion[SendResult],
        error: BrokerError | None,
    ) -> None:
        """Complete a send; a redirected message is first sent to its new place."""
        if session.dialect.has_management and isinstance(error, ReleasedError):
            error = _unrouted(message)
        way = None if error is None else self._branches.way_on(session.login, message, error)
        if way is not None:
            with suppress(RuntimeError):  # the connection was closed meanwhile
                self._crew.submit(lambda: future.settle(*self._sent_by(way)))
                return
        future.settle(SendResult(message_id), error)

    def _sent_by(self, way: Way) -> tuple[SendResult, SendFailedError | None]:
        try:
            return way(self._timeout), None
        except SendFailedError as error:
            return SendResult(), error
        except Exception as error:  # such as one of the program's own source of the login; somebody waits for the end
            failed = SendFailedError(f"the message could not be sent on: {why_of(error)}", is_known=False)
            failed.__cause__ = error
            return SendResult(), failed

    def _note_asked(self, message: Message, by: object) -> None:
        if isinstance(by, AmqpConnection):
            self._branches.note_asked(message, by)

    def begin(self) -> Transaction:
        """Begin a transaction; the broker learns of it only at the commit.

        Raises:
            UnsupportedError: the broker has no transactions.
        """
        session = self._usable()
        if not session.dialect.transactions:
            raise UnsupportedError(f"{session.product} has no transactions (capability `transactions`)")
        return AmqpTransaction(self, session)

    def _make_consumer(self, options: SubscribeOptions, on_delivery: OnDelivery) -> AmqpConsumer:
        return AmqpConsumer(options, on_delivery, owner=self, shared=self._shared)

    def _make_temporary(self, link: AmqpSession, kind: DestinationKind, *, fresh: bool, ends: bool) -> Destination:
        if kind is DestinationKind.TEMPORARY_QUEUE and link.login.temporary_queues is TemporaryQueues.TOPICS:
            return topic_as_queue(link, link.dialect)
        node = link.new_temporary(kind)
        made = node.make(self._timeout)
        link.temporaries[made.address or ""] = node
        return made

    def _end_temporary(self, link: AmqpSession, destination: Destination) -> None:
        node = link.temporaries.pop(destination.address or "", None)
        if node is not None:
            node.end()

    def _unsubscribe(self, link: AmqpSession, options: SubscribeOptions) -> None:
        """End a subscription by closing its link, which is attached for that purpose."""
        Inlet(link, self.generation, options, link.dialect, 0).unsubscribe(self._timeout)

    def _take_leave(self, link: AmqpSession, consumers: Sequence[AmqpConsumer], until: float) -> None:
        self._branches.close(until)
        try:
            with link.held():
                for consumer in consumers:
                    consumer.detach()
        except ConnectionLostError:
            events.AMQP_LOST_AT_CLOSE.log(link)
        link.close(until)

    # Used by transactions.

    def encode(self, message: Message) -> bytes:
        """Return the octets of a message, with a new id."""
        dialect = self._current().dialect
        return to_stamped_message(message, *self._stamp(message, dialect), dialect)

    def send_on(
        self, login: AmqpLogin, refused: Sequence[RefusedSend], then: Callable[[list[RefusedSend]], None]
    ) -> None:
        """Send redirected messages of a commit to their new places, and pass the rest to `then`; never blocks."""
        ways = [self._branches.way_on(login, each.message, each.error) for each in refused]

        def send() -> None:
            rest = []
            for each, way in zip(refused, ways, strict=True):
                error = each.error if way is None else self._sent_by(way)[1]
                rest += [] if error is None else [each._replace(error=error)]
            then(rest)

        try:
            if any(ways):
                self._crew.submit(send)
                return
        except RuntimeError:
            events.AMQP_CLOSED_WITH_REFUSED.log(self)
        then(list(refused))

    def owns(self, delivery: Delivery) -> TypeGuard[AmqpDelivery]:
        """Return whether a delivery belongs to a consumer of this connection, even to a redirected one."""
        return isinstance(delivery, AmqpDelivery) and delivery.owner is self

    def _stamp(self, message: Message, dialect: AmqpDialect) -> tuple[str | None, int]:
        """Return id and timestamp of a message to be sent, which JMS leaves to the provider.

        Raises:
            UsageError: it is no message.
        """
        try:
            places = message.destination, message.reply_to
        except AttributeError:
            check_message(message)
            raise
        for destination in places:
            if isinstance(destination, Destination) and destination.address in self._temporaries:
                self._require_own(destination)
        message_id = f"{self._id_prefix}{next(self._sent)}" if self._names_messages(dialect) else None
        return message_id, epoch_milliseconds()

    def _names_messages(self, dialect: AmqpDialect) -> bool:
        return dialect.takes_ids if self._message_ids is None else self._message_ids


def _unrouted(message: Message) -> BrokerError | None:
    """Return the error for a message that no queue takes; a topic without subscribers takes all."""
    destination = message.destination
    if destination is not None and destination.kind is DestinationKind.TOPIC:
        return None
    return DestinationGoneError(f"there is no {destination}: the broker gave the message back")


def _withdrawn(session: AmqpSession, outbox: Outbox, posting: OutgoingMessage) -> bool:
    with session.lock:
        return outbox.withdraw(posting)


def _opened(login: AmqpLogin, *, timeout: float, reconnect: Reconnect | None) -> AmqpConnection:
    made = AmqpConnection([login], timeout, reconnect)
    made.open()
    return made
