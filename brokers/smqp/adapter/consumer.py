"""One consumer: a session of its own, whose acknowledgement of a message waits for the program's.

A session has one message at a time on its way, so a consumer holds one at a time, whatever its prefetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from threading import Condition, Event, current_thread
from time import monotonic, time
from typing import Final, Protocol

from brokers.connection import Consumer, Delivery, OnDelivery, SubscribeOptions
from brokers.errors import BrokerError
from brokers.message import Destination, Message
from brokers.smqp.adapter.messages import COUNT, to_message, topic_of
from brokers.smqp.client.connection import KeptConnection
from brokers.smqp.client.inbox import Received
from brokers.smqp.client.listener import Hearer
from brokers.smqp.protocol.commands import Command, CommandKind
from brokers.smqp.protocol.dialect import SmqpDialect
from brokers.smqp.protocol.dialogue import ReceivedCommand
from brokers.smqp.protocol.replies import RefusedError
from brokers.threads.pool import Turns
from brokers.threads.thread import Thread

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 5.0
"""Seconds that closing waits for the server's part of an acknowledgement."""


class SmqpConsumerOwner(Protocol):
    """What a consumer needs of its connection."""

    max_deliveries: int

    @property
    def dialect(self) -> SmqpDialect:
        """The dialect of the server."""

    @property
    def generation(self) -> int:
        """How often the connection was made."""

    def session(self, hearer: Hearer | None) -> KeptConnection:
        """Make a session of the consumer's own."""

    def created(self, topic: str, destination: Destination, do: Callable[[], int], until: float = inf) -> int:
        """Do what needs a topic, which is made if it is not there."""

    def tell(self, function: Callable[[], object]) -> None:
        """Run a callback on the connection's executor."""

    def bury(self, message: Message, reason: str) -> bool:
        """Send a message to the dead letters; say whether they took it."""

    def forget(self, consumer: SmqpConsumer, destination: Destination) -> None:
        """The consumer has ended."""


class SmqpDelivery(Delivery):
    """One message, on its way until it is settled."""

    __slots__ = ("_decided", "_owner", "taken")

    def __init__(self, message: Message, count: int, generation: int, owner: SmqpConsumerOwner) -> None:
        super().__init__(message, count, generation)
        self._owner = owner
        self._decided = Event()
        self.taken = False

    def accept(self) -> None:
        """Acknowledge. Does nothing if it was settled before, or went back with its consumer."""
        self._settle(taken=True)

    def release(self) -> None:
        """Give the message back, or to the dead letters if that was its last delivery. Else as `accept`."""
        if not self._decided.is_set():
            if (self.delivery_count or 1) >= self._owner.max_deliveries:
                self.reject(f"it was delivered {self.delivery_count} times, and released each time")
            else:
                self._settle(taken=False)

    def reject(self, reason: str) -> None:
        """Send a copy to the queue `DLQ.NAME`, the reason in its property `dead_letter_reason`, and acknowledge.

        If the copy cannot be sent, the message is given back. Else as `accept`.
        """
        if not self._decided.is_set():
            self._settle(taken=self._owner.bury(self.message, reason))

    def void(self) -> None:
        """Its consumer or connection ended, so it is given back, whatever is said of it later."""
        self._settle(taken=False)

    def wait(self) -> bool:
        """Wait until it is settled; say whether it was taken."""
        self._decided.wait()
        return self.taken

    def _settle(self, *, taken: bool) -> None:
        if not self._decided.is_set():
            self.taken = taken
            self._decided.set()


class ConsumerHearer:
    """What a consumer's session hears: a `Hearer`."""

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
        """Hand a message over, and wait for what the program says of it."""
        delivery = self._make(heard)
        with self._changed:
            if self._is_stopped:
                return False
            self._current, self._is_settling = delivery, True
        if delivery.message.expiration and delivery.message.expiration < time() * 1000:
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
        """The server knows."""
        with self._changed:
            self._settled()

    def doubted(self, heard: ReceivedCommand) -> None:
        """The server may know; if not, the message comes again."""
        with self._changed:
            self._settled()

    def notice(self, heard: ReceivedCommand) -> None:
        """Nothing else was asked for."""

    def ended(self) -> None:
        """What is held is void: it comes again by another connection."""
        with self._changed:
            current = self._current
        if current is not None:
            current.void()

    def stop(self) -> None:
        """Take nothing more."""
        with self._changed:
            self._is_stopped = True

    def leave(self, until: float) -> None:
        """Give back what is held, and wait until the server knows what was settled."""
        self.ended()
        with self._changed:
            self._changed.wait_for(lambda: not self._is_settling, max(0.0, until - monotonic()))

    def _settled(self) -> None:
        self._is_settling = False
        self._changed.notify_all()


class SmqpConsumer(Consumer):
    """A subscription: a session, and the thread that calls `on_delivery`."""

    def __init__(self, owner: SmqpConsumerOwner, options: SubscribeOptions, on_delivery: OnDelivery) -> None:
        self._owner = owner
        self._destination = destination = options.destination
        self._topic = topic_of(destination)
        self._on_delivery = on_delivery
        self._dialect: SmqpDialect = owner.dialect
        self._deliveries: SimpleQueue[SmqpDelivery | None] = SimpleQueue()
        self._holding = ConsumerHearer(self._delivery, self._deliveries.put, auto_accept=options.auto_accept)
        self._is_closed = False
        self._problem = ""
        self._news = None if options.on_problem is None else Turns(owner.tell, options.on_problem)
        self.session: KeptConnection = owner.session(self._holding)
        self._thread = Thread(target=self._run, name=f"smqp {destination}", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why nothing comes from the server; empty while all is well."""
        return self._problem

    def begin(self) -> None:
        """Subscribe, and look every so often whether that is so still: the server tells nobody that it ended.

        Raises:
            BrokerError: the server refused.
        """
        self._owner.created(self._topic, self._destination, self._subscribe)
        self.session.watch(self._note_session)
        self.session.check_with(self._look)

    def _subscribe(self) -> int:
        return len(self.session.subscribed(Command(kind=CommandKind.SUBSCRIBE_MESSAGE, topic=self._topic)))

    def _look(self) -> None:
        """Subscribe once more, which changes nothing unless it has ended. For the thread that keeps the session."""
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
                    log.debug("no consumer of %s yet: %s", self._destination, refused)
                    return
            self._have("")

    def _note_session(self, is_connected: bool) -> None:
        if not is_connected:
            self._have("the session by which it is notified was lost")

    def _have(self, problem: str) -> None:
        """Note a problem and tell of it, or that there is none any more."""
        if self._is_closed or bool(problem) == bool(self._problem):
            return
        self._problem = problem
        if not problem:
            log.warning("there is a consumer of %s again", self._destination)
        elif self._destination.kind.is_temporary:
            log.error("the consumer of %s has ended: %s", self._destination, problem)
        else:
            log.error("the consumer of %s has ended, and is made again: %s", self._destination, problem)
        if self._news is not None:
            with suppress(RuntimeError):  # the connection was closed meanwhile
                self._news.put(problem)

    def close(self) -> None:
        """End the subscription; what was not accepted goes back."""
        self.stop()
        self.join(monotonic() + SETTLE_SECONDS)
        self.leave(monotonic() + SETTLE_SECONDS)

    def stop(self) -> None:
        """Start no further `on_delivery`; what is held may still be settled."""
        self._holding.stop()
        self._deliveries.put(None)

    def join(self, until: float) -> None:
        """Wait for the `on_delivery` under way; not for one's own."""
        if self._thread is not current_thread():
            self._thread.join(max(0.0, until - monotonic()))

    def leave(self, until: float) -> None:
        """Give back what is held, and end the session."""
        if self._is_closed:
            return
        self._is_closed = True
        self._owner.forget(self, self._destination)
        self._holding.leave(until)
        self.session.close()

    def _delivery(self, heard: ReceivedCommand) -> SmqpDelivery:
        assert heard.command is not None
        assert heard.content is not None
        received = Received(heard.command.topic, heard.content)
        count = received.attributes.text(COUNT)
        message = to_message(received, self._destination, self._dialect)
        number = int(count) if count.isascii() and count.isdecimal() else 1
        return SmqpDelivery(message, number, self._owner.generation, self._owner)

    def _run(self) -> None:
        while (delivery := self._deliveries.get()) is not None:
            try:
                self._on_delivery(delivery)
            except BaseException:  # SystemExit too: it must not end the thread and leave the message held
                try:
                    delivery.release()  # first, as there may not be the memory to tell of it
                except BrokerError:
                    log.exception("message %s could not be released", delivery.message.message_id)
                with suppress(MemoryError):
                    log.exception("on_delivery failed, so message %s is released", delivery.message.message_id)
