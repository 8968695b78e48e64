"""A consumer: a separate session that acknowledges a message only when the program has done so.

A session has one message at a time under way, so a consumer holds one message at a time, whatever its prefetch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from threading import Condition, Event, current_thread
from time import monotonic
from typing import Final, Protocol

from brokers import events
from brokers.adapter.wait import epoch_milliseconds
from brokers.connection import Consumer, Delivery, OnDelivery, SubscribeOptions
from brokers.errors import BrokerError, ClosedError
from brokers.message import Destination, Message
from brokers.smqp.adapter.messages import delivery_count, to_message, topic_of
from brokers.smqp.client.connection import KeptConnection
from brokers.smqp.client.inbox import Received
from brokers.smqp.client.listener import Hearer
from brokers.smqp.protocol.commands import Command, CommandKind
from brokers.smqp.protocol.dialect import SmqpDialect
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.replies import RefusedError
from brokers.threads.pool import Turns
from brokers.threads.thread import Thread
from brokers.threads.timer import left

SETTLE_SECONDS: Final = 5.0
"""Maximum time, in seconds, that closing waits for the server's part of an acknowledgement."""

MAX_DELIVERIES: Final = 5
"""Deliveries after which a released message becomes a dead letter.

One fewer than with other adapters, and than the server's default number: the server drops a message that its last
delivery gives back, which would lose one whose dead letter could not be sent.
"""


class SmqpConsumerOwner(Protocol):
    """The part of the connection that a consumer needs."""

    is_forked: bool

    @property
    def dialect(self) -> SmqpDialect:
        """The dialect of the server."""

    @property
    def generation(self) -> int:
        """The number of times that the connection was established."""

    def session(self, hearer: Hearer | None) -> KeptConnection:
        """Open a session for the consumer."""

    def created(self, topic: str, destination: Destination, do: Callable[[], int], until: float = inf) -> int:
        """Call `do`, which uses a topic; create the topic if it is missing."""

    def tell(self, function: Callable[[], object]) -> None:
        """Run a callback on the connection's executor."""

    def bury(self, message: Message, reason: str) -> bool:
        """Send a copy of a message to its dead letter queue; say whether that worked."""

    def forget(self, consumer: SmqpConsumer, destination: Destination, until: float) -> None:
        """Forget a consumer that has ended; wait for the server until the monotonic clock shows `until`."""


class SmqpDelivery(Delivery):
    """A message that is under way until it is settled."""

    __slots__ = ("_decided", "_owner", "taken")

    def __init__(self, message: Message, count: int, generation: int, owner: SmqpConsumerOwner) -> None:
        super().__init__(message, count, generation)
        self._owner = owner
        self._decided = Event()
        self.taken = False

    def accept(self) -> None:
        """Acknowledge the message. Does nothing if it was settled before, or given back with its consumer."""
        self._settle(taken=True)

    def release(self) -> None:
        """Give the message back, or reject it if this was its last delivery. Otherwise as `accept`."""
        if not self._decided.is_set():
            if (self.delivery_count or 1) >= MAX_DELIVERIES:
                self.reject(f"the message was delivered {self.delivery_count} times, and released each time")
            else:
                self._settle(taken=False)

    def reject(self, reason: str) -> None:
        """Send a copy to the queue `DLQ.NAME`, with the reason in its property `dead_letter_reason`, and acknowledge.

        If the copy cannot be sent, the message is given back. Otherwise as `accept`.
        """
        if not self._decided.is_set():
            self._settle(taken=self._owner.bury(self.message, reason))

    def void(self) -> None:
        """Give the message back because its consumer or connection has ended; later decisions are ignored."""
        self._settle(taken=False)

    def wait(self) -> bool:
        """Wait until the message is settled; return whether it was taken."""
        self._decided.wait()
        return self.taken

    def _settle(self, *, taken: bool) -> None:
        if not self._decided.is_set():
            self.taken = taken
            self._decided.set()


class ConsumerHearer:
    """The `Hearer` of a consumer's session."""

    def __init__(
        self,
        make: Callable[[ReceivedCommand], SmqpDelivery],
        hand_over: Callable[[SmqpDelivery], None],
        *,
        auto_accept: bool,
    ) -> None:
        self._make = make
        self._hand_over = hand_over
        self._auto_accept = auto_accept
        self._changed = Condition()
        self._is_stopped = False
        self._current: SmqpDelivery | None = None
        self._is_settling = False

    def take(self, heard: ReceivedCommand) -> bool:
        """Hand over a message, and wait until the program has settled it."""
        delivery = self._make(heard)
        with self._changed:
            if self._is_stopped:
                return False
            self._current, self._is_settling = delivery, True
        if 0 < (delivery.message.expiration or 0) <= epoch_milliseconds():
            delivery.accept()
        else:
            if self._auto_accept:
                delivery.accept()
            self._hand_over(delivery)
        taken = delivery.wait()
        with self._changed:
            self._current = None
            if not taken:
                self._settled()
        return taken

    def confirmed(self, heard: ReceivedCommand) -> None:
        """Note that the server has confirmed the acknowledgement."""
        with self._changed:
            self._settled()

    def doubted(self, heard: ReceivedCommand) -> None:
        """Note that it is not known whether the server got the acknowledgement; if not, it sends the message again."""
        with self._changed:
            self._settled()

    def notice(self, heard: ReceivedCommand) -> None:
        """Ignore the notice: none was subscribed to."""

    def ended(self) -> None:
        """Void the held message: it comes again on another connection."""
        with self._changed:
            current = self._current
        if current is not None:
            current.void()

    def stop(self) -> None:
        """Refuse further messages."""
        with self._changed:
            self._is_stopped = True

    def leave(self, until: float) -> None:
        """Give back the held message, and wait until the server knows what was settled."""
        self.ended()
        with self._changed:
            self._changed.wait_for(lambda: not self._is_settling, left(until))

    def _settled(self) -> None:
        self._is_settling = False
        self._changed.notify_all()


class SmqpConsumer(Consumer):
    """A subscription, with its session and the thread that calls `on_delivery`."""

    def __init__(self, owner: SmqpConsumerOwner, options: SubscribeOptions, on_delivery: OnDelivery) -> None:
        self._owner = owner
        self._destination = destination = options.destination
        self._topic = topic_of(destination)
        self._on_delivery = on_delivery
        self._auto_accept = options.auto_accept
        self._dialect: SmqpDialect = owner.dialect
        self._deliveries: SimpleQueue[SmqpDelivery | None] = SimpleQueue()
        self._holding = ConsumerHearer(self._delivery, self._deliveries.put, auto_accept=options.auto_accept)
        self._is_stopped = False
        self._is_closed = False
        self._problem = ""
        self._news = None if options.on_problem is None else Turns(owner.tell, options.on_problem)
        self.session: KeptConnection = owner.session(self._holding)
        self._thread = Thread(target=self._run, name=f"smqp {destination}", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """The reason why no messages come from the server; empty if there is no problem."""
        return self._problem

    def begin(self) -> None:
        """Subscribe, and check regularly that the subscription still exists: the server does not report its end.

        Raises:
            BrokerError: the server refused.
        """
        self._owner.created(self._topic, self._destination, self._subscribe)
        self.session.watch(self._note_session)
        self.session.check_with(self._look)

    def _subscribe(self) -> int:
        with self.session.lock:  # so that `leave` ends the subscription, or prevents it
            if self._is_closed:
                raise ClosedError("the consumer was closed")
            return len(self.session.subscribed(Command(kind=CommandKind.SUBSCRIBE_MESSAGE, topic=self._topic)))

    def _look(self) -> None:
        """Subscribe again, which changes nothing unless the subscription has ended. For the session's thread."""
        with self.session.lock:
            if self._is_closed:
                return
            try:
                self._subscribe()
            except RefusedError as error:
                self._have(f"{error}")
                if self._destination.kind.is_temporary:
                    return
                try:
                    self._owner.created(self._topic, self._destination, self._subscribe)
                except RefusedError as refused:
                    events.SMQP_CONSUMER_NOT_RENEWED.log(self._destination, refused)
                    return
            self._have("")

    def _note_session(self, is_connected: bool) -> None:
        if not is_connected:
            self._have("the session that notifies it was lost")

    def _have(self, problem: str) -> None:
        """Note and report a problem, or that it is over."""
        if self._is_closed or bool(problem) == bool(self._problem):
            return
        self._problem = problem
        if not problem:
            events.SMQP_CONSUMER_RENEWED.log(self._destination)
        elif self._destination.kind.is_temporary:
            events.SMQP_CONSUMER_ENDED.log(self._destination, problem)
        else:
            events.SMQP_CONSUMER_INTERRUPTED.log(self._destination, problem)
        if self._news is not None:
            with suppress(RuntimeError):  # the connection was closed meanwhile
                self._news.put(problem)

    def close(self) -> None:
        """End the subscription; messages that were not accepted are given back. In a forked process, do nothing."""
        if self._owner.is_forked:
            return
        self.stop()
        self.join(monotonic() + SETTLE_SECONDS)
        self.leave(monotonic() + SETTLE_SECONDS)

    def stop(self) -> None:
        """Start no further `on_delivery`, but for messages that were accepted; the held one may still be settled."""
        self._is_stopped = True
        self._holding.stop()
        self._deliveries.put(None)

    def join(self, until: float) -> None:
        """Wait for the running `on_delivery`, unless called by it."""
        if self._thread is not current_thread():
            self._thread.join(left(until))

    def leave(self, until: float) -> None:
        """Give back the held message, and end the session."""
        if self._is_closed:
            return
        self._is_closed = True
        self._owner.forget(self, self._destination, until)
        self._holding.leave(until)
        self.session.leave(until)

    def _delivery(self, heard: ReceivedCommand) -> SmqpDelivery:
        received = Received(heard.known.topic, heard.message)
        message = to_message(received, self._destination, self._dialect, epoch_milliseconds())
        number = delivery_count(received.attributes)
        return SmqpDelivery(message, number, self._owner.generation, self._owner)

    def _run(self) -> None:
        while (delivery := self._deliveries.get()) is not None:
            if self._is_stopped and not self._auto_accept:  # otherwise it was accepted, and would be lost
                delivery.void()
                continue
            try:
                self._on_delivery(delivery)
            except BaseException:  # including SystemExit: it must not end the thread and leave the message held
                try:
                    delivery.release()  # before logging, for which there may not be enough memory
                except BrokerError:
                    events.SMQP_NOT_RELEASED.log(delivery.message.message_id)
                with suppress(MemoryError):
                    events.SMQP_DELIVERY_FAILED.log(delivery.message.message_id)
