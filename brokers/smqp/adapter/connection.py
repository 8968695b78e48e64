"""SMQP as a `brokers.Connection`: one session for sending, and one for each consumer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from secrets import token_hex
from time import monotonic, time
from typing import Final

from brokers import events
from brokers.adapter.connection import FAREWELL_SHARE, AdapterConnection
from brokers.adapter.consumer import temporary_kind
from brokers.adapter.redelivery import REASON_PROPERTY, carried_reason
from brokers.arguments import end_of, time_to_close
from brokers.connection import (
    Capabilities,
    ConnectionState,
    Consumer,
    OnDelivery,
    SendResult,
    SubscribeOptions,
    Transaction,
    check_destination,
)
from brokers.errors import (
    BrokerError,
    DestinationGoneError,
    NotSentError,
    SendFailedError,
    StaleDestinationError,
    UnsupportedError,
    UsageError,
)
from brokers.message import Destination, DestinationKind, Message, check_message, queue, typed
from brokers.smqp.adapter.consumer import SmqpConsumer
from brokers.smqp.adapter.messages import is_raw, to_content, topic_of
from brokers.smqp.client.commands import number_in
from brokers.smqp.client.connection import Address, KeptConnection
from brokers.smqp.client.listener import Hearer
from brokers.smqp.client.options import ClientOptions
from brokers.smqp.protocol.commands import Command, CommandKind
from brokers.smqp.protocol.dialect import SmqpDialect
from brokers.smqp.protocol.replies import RefusedError, ReplyCode
from brokers.threads.futures import Completion

CAPABILITIES: Final = Capabilities(
    broker="SMQP",
    dialect="smqp",
    typed_properties=True,
    message_types=False,
    transactions=False,
    stable_message_id=True,
    tells_message_id=True,
    delivery_count=True,
    tells_redelivery=True,
    accepts_in_transactions=False,
    tells_gone=True,
    release=True,
    cumulative_accept=False,
    selectors=False,
    durable_topics=False,
    tells_time=False,
)
NAME_OCTETS: Final = 16
"""Random octets in the name of a temporary destination; anyone who knows the name may send there."""


class SmqpConnection(AdapterConnection):
    """A connection to an SMQP server.

    Args:
        address: the address of the server.
        account: the account to log in to, once for sending and once for each consumer.
        password: the password of the account.
        options: the options of each session.
    """

    def __init__(self, address: Address, account: str, password: str, options: ClientOptions) -> None:
        super().__init__("smqp")
        self._address, self._account, self._password, self._options = address, account, password, options
        self._consumers: set[SmqpConsumer] = set()
        self._temporaries: dict[str, int] = {}
        self._numbers = 0
        self._sender = self.session(None)
        self._life.become(ConnectionState.CONNECTED)
        self._sender.watch(self._changed)

    def session(self, hearer: Hearer | None) -> KeptConnection:
        """Open a further session.

        Raises:
            ConnectionFailedError: the server does not answer, or refused the login.
        """
        return KeptConnection(
            self._address, self._account, self._password, self._options, hearer, takes_login_topic=False
        )

    @property
    def dialect(self) -> SmqpDialect:
        """The dialect of the server."""
        return self._options.dialect

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities: no transactions, selectors or durable topics; messages are text or bytes."""
        return CAPABILITIES

    @property
    def generation(self) -> int:
        """The number of logins of the sending session."""
        return self._sender.generation

    def _changed(self, is_connected: bool) -> None:
        self._life.become(
            ConnectionState.CONNECTED if is_connected else ConnectionState.LOST, "the connection to the server was lost"
        )

    def send(
        self, message: Message, transaction: Transaction | None = None, *, timeout: float | None = None
    ) -> Completion[SendResult]:
        """Send a message; the future is done when this returns, with the message id. A missing queue is created.

        The future raises DestinationGoneError for a temporary destination that has ended, SendFailedError if the server
        refuses the message, NotSentError if other commands kept the session busy for `timeout` seconds, and
        ConnectionLostError if it is not known whether the server has the message. That includes an answer that did not
        come in time: then the session cannot be used any more, and is re-established.
        """
        check_message(message)
        until = end_of(timeout)
        self._require_open()
        if transaction is not None:
            raise UnsupportedError("SMQP has no transactions (capability `transactions`)")
        if message.destination is None:
            raise UsageError("message must have a destination, got None")
        try:
            content = to_content(message, time(), self.dialect).written() + b"\r\n"
            topic = topic_of(message.destination)
        except UnicodeEncodeError as error:
            raise UsageError(f"SMQP cannot carry a text of this message: {error}") from error
        future: Completion[SendResult] = self.completion()
        try:
            number = self._publish(topic, content, message.destination, until)
        except BrokerError as error:
            future.set_exception(error)
        else:
            future.set_result(SendResult(f"ID:{self._sender.welcome.context}/{number}"))
        return future

    def _publish(self, topic: str, content: bytes, destination: Destination, until: float = inf) -> int:
        with self._lock:
            self._numbers += 1
            command = Command(kind=CommandKind.PUBLISH_MESSAGE, topic=topic, cmuid=str(self._numbers))
        try:
            return self.created(topic, destination, lambda: self._taken(command, content, until), until)
        except RefusedError as error:
            if error.code is ReplyCode.NOT_FOUND and destination.kind.is_temporary:
                raise DestinationGoneError(f"{destination} does not exist any more") from error
            raise SendFailedError(f"the server refused a message for {destination}: {error}") from error

    def _taken(self, command: Command, content: bytes, until: float) -> int:
        if until <= monotonic():  # the session would be lost, as it has no time for an answer
            raise NotSentError("the message was not sent in time")
        return number_in(self._sender.ask(command, content, until), place=1)

    def created(self, topic: str, destination: Destination, do: Callable[[], int], until: float = inf) -> int:
        """Call `do`, which uses a topic; if the topic is missing and may be created, create it and call `do` again.

        Raises:
            RefusedError: the server refused `do` or the creation of the topic.
        """
        try:
            return do()
        except RefusedError as error:
            if error.code is not ReplyCode.NOT_FOUND or is_raw(destination) or destination.kind.is_temporary:
                raise
        self._create(topic, until)
        return do()

    def _create(self, topic: str, until: float = inf) -> None:
        try:
            self._sender.ask(Command(kind=CommandKind.CREATE_TOPIC, topic=topic), until=until)
        except RefusedError as error:
            if error.code is not ReplyCode.CONFLICT:  # a conflict: another client has just created it
                raise

    def _consume(self, options: SubscribeOptions, on_delivery: OnDelivery) -> Consumer:
        """Subscribe, in a separate session. A consumer holds one message at a time, whatever the prefetch.

        Limits of messages are not checked here: the server accepts no message that exceeds them.

        Raises:
            StaleDestinationError: the temporary destination belongs to another connection or an earlier login.
        """
        self._require_open()
        destination = options.destination
        topic = topic_of(destination)
        if destination.kind.is_temporary and self._temporaries.get(topic) != self.generation:
            raise StaleDestinationError(f"{destination} belongs to another connection, or ended with an earlier login")
        consumer = SmqpConsumer(self, options, on_delivery)
        with self._lock:
            self._consumers.add(consumer)  # first, so that `close` ends it even while it subscribes
        try:
            self._require_not_closing()
            consumer.begin()
            self._require_not_closing()
        except BaseException:
            consumer.close()
            raise
        return consumer

    def unsubscribe(self, topic: Destination, durable_name: str) -> None:
        """Raise UnsupportedError: there are no named durable subscriptions."""
        self._require_open()
        SubscribeOptions(destination=topic, durable_name=durable_name).check(CAPABILITIES)

    def begin(self) -> Transaction:
        """Raise UnsupportedError: there are no transactions."""
        self._require_open()
        raise UnsupportedError("SMQP has no transactions (capability `transactions`); ActiveMQ has")

    def temporary(
        self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, *, fresh: bool = True, ends: bool = False
    ) -> Destination:
        """Create a temporary destination, always a fresh one; the server removes it when this login ends.

        Raises:
            UsageError: `kind` is not temporary.
            BrokerError: the server refused to create it.
        """
        self._require_open()
        destination = Destination(temporary_kind(kind), token_hex(NAME_OCTETS))
        topic = topic_of(destination)
        generation = self.generation
        self._create(topic)
        self._temporaries[topic] = generation
        return destination

    def end_temporary(self, destination: Destination) -> None:
        """End a temporary destination; messages to it are refused from now on."""
        check_destination(destination)
        topic = topic_of(destination)
        if self._temporaries.pop(topic, None) == self.generation and self.state is ConnectionState.CONNECTED:
            with suppress(BrokerError):  # then it has ended already, or will end with the login
                self._sender.ask(Command(kind=CommandKind.REMOVE_TOPIC, topic=topic))

    def close(self, deadline: float = 5.0) -> None:
        """Close within `deadline` seconds: consumers, then the sessions. Idempotent."""
        seconds = time_to_close(deadline)
        until = monotonic() + seconds
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            consumers = list(self._consumers)
        for consumer in consumers:
            consumer.stop()
        for consumer in consumers:
            consumer.join(until - seconds * FAREWELL_SHARE)
        for consumer in consumers:
            consumer.leave(until)
        self._life.become(ConnectionState.CLOSED, "the connection was closed")
        self._sender.leave(until)
        self._callbacks.close(until)

    # For consumers

    def bury(self, message: Message, reason: str) -> bool:
        """Send a copy of a message to its dead letter queue; say whether that worked."""
        assert message.destination is not None
        letter = replace(
            message,
            destination=queue(f"DLQ.{message.destination.name}"),
            properties=message.properties.merged([typed(REASON_PROPERTY, carried_reason(reason))]),
            expiration=0,
        )
        assert letter.destination is not None
        try:
            content = to_content(letter, time(), self.dialect).written() + b"\r\n"
            self._publish(topic_of(letter.destination), content, letter.destination)
        except (BrokerError, ValueError):
            events.SMQP_DEAD_LETTER_FAILED.log(message.message_id)
            return False
        return True

    def forget(self, consumer: SmqpConsumer, destination: Destination, until: float) -> None:
        """Forget a consumer that has ended, and remove its subscription, which could outlive it."""
        with self._lock:
            self._consumers.discard(consumer)
        with suppress(BrokerError):
            consumer.session.unsubscribed(
                CommandKind.UNSUBSCRIBE_MESSAGE, CommandKind.SUBSCRIBE_MESSAGE, topic_of(destination), until
            )
