"""The consumer that broker adapters extend: its subscription in each session, and the order of its deliveries.

Subscribing and acknowledging on the wire belong in the adapter.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from brokers import events
from brokers.adapter.endpoints import Openable, Reconnect, ShortLives
from brokers.connection import Consumer, Delivery, OnDelivery, SubscribeOptions
from brokers.errors import ClosedError, ConnectionLostError, NoAnswerError, UsageError
from brokers.message import DestinationKind
from brokers.threads.pool import Crew, Turns, at_once

# Limits of the connection of a `lazy` consumer, for every protocol

GATHER_SECONDS: Final = 0.01
"""Time during which octets collect in the socket before they are read, in seconds."""

HOLD_SECONDS: Final = 0.1
"""Maximum time for which octets that were read are held, so that they are handled together, in seconds."""

MAX_HELD_OCTETS: Final = 1 << 18
"""Number of held octets that are handled without further waiting."""


def temporary_kind(kind: DestinationKind) -> DestinationKind:
    """Return `kind`, having checked that it is temporary.

    Raises:
        UsageError: it is not temporary.
    """
    if not isinstance(kind, DestinationKind) or not kind.is_temporary:
        what = "that of a temporary destination, such as DestinationKind.TEMPORARY_QUEUE"
        raise UsageError(f"kind must be {what}, got {kind!r}")
    return kind


THREAD_RETRY_SECONDS: Final = 1.0
"""Pause before a task is submitted again after no thread could be started, in seconds."""

RENEWAL: Final = Reconnect()
"""Pauses between attempts to renew a subscription that the broker ended."""


def why_of(error: Exception) -> str:
    """Return the text of an error, or its repr if the text is empty."""
    return f"{error}" or repr(error)


class AdapterSession(Openable, Protocol):
    """The session that one generation of a connection uses."""

    @property
    def is_up(self) -> bool:
        """Whether the session has not ended."""

    def lost(self) -> ConnectionLostError:
        """Return the error that says why the session has ended."""


SessionT = TypeVar("SessionT", bound=AdapterSession)
ArrivalT = TypeVar("ArrivalT")
DeliveryT = TypeVar("DeliveryT", bound=Delivery)


class DeliveryState(Enum):
    """The state of a delivery on this side; RETURNED if it was released or rejected."""

    HELD = auto()
    ACCEPTED = auto()
    RETURNED = auto()


class ConsumerOwner(Protocol):
    """The part of a connection that its consumers use."""

    is_forked: bool

    def usable_session(self) -> tuple[Any, int]:
        """Return the session and its generation; raise BrokerError if there is none or the connection is closed."""

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run a function after `seconds` on a thread where it may block; never once the connection is closed.

        If no thread can be started, the function runs as soon as there is one.
        """

    def forget(self, consumer: Any) -> None:
        """Do not resume this consumer in later sessions."""

    def tell(self, function: Callable[[], object]) -> None:
        """Call a callback of the user on the connection's executor; raise RuntimeError once that is closed."""


class LastingConsumer(Consumer, Generic[SessionT, ArrivalT, DeliveryT]):
    """A consumer that subscribes again in each session, and renews a subscription that the broker ended.

    `on_delivery` runs for one delivery at a time, on threads shared by all consumers of the connection.
    """

    def __init__(self, options: SubscribeOptions, on_delivery: OnDelivery, owner: ConsumerOwner, crew: Crew) -> None:
        self.owner = owner
        self.options = options
        self._on_delivery = on_delivery
        submit = at_once if options.inline or options.lazy else crew.run if options.quick else crew.submit
        self._turns: Turns[ArrivalT] = Turns(submit, self._take_or_drop, partial(owner.later, THREAD_RETRY_SECONDS))
        self._is_stopped = False
        self._changing = Lock()
        self._attempting = Lock()
        self._problem = ""
        self._since = 0.0
        self._endings = 0  # number of times the broker ended the subscription
        self._lives = ShortLives()
        self._news = None if options.on_problem is None else Turns(owner.tell, options.on_problem)

    @property
    def problem(self) -> str:
        """Why the broker has no subscription although there is a connection; empty while it has one."""
        return self._problem

    @property
    def is_temporary(self) -> bool:
        """Whether the consumer ends with the session, as its destination does."""
        return self.options.destination.kind.is_temporary

    def start(self, session: SessionT, generation: int) -> None:
        """Subscribe, wait for the broker's answer, and begin to call `on_delivery`.

        Raises:
            BrokerError: the broker refused, for example a selector that it cannot parse.
            ConnectionLostError: the connection was lost meanwhile.
        """
        if not self.resume(session, generation):
            raise ConnectionLostError(f"the connection to {session} was lost")

    @abstractmethod
    def resume(self, session: SessionT, generation: int, *, again: bool = False) -> bool:
        """Subscribe in a session and wait for the answer; False if the consumer was closed or already subscribed.

        Args:
            session: the current session.
            generation: its number.
            again: whether the broker may have ended an earlier subscription in this session.

        Raises:
            BrokerError: as for `start`.
        """

    def go_on(self, session: SessionT, generation: int) -> None:
        """Subscribe in another session. A refused subscription is retried later and does not delay other consumers.

        Raises:
            BrokerError: the session cannot be used: it ended, or the broker does not answer.
        """
        try:
            self._attempt(session, generation)
        except NoAnswerError:
            raise
        except Exception as error:  # for example, a redirect may time out, or find no thread
            if not session.is_up:
                raise
            self._note_ended(why_of(error))

    def end_for_good(self, why: str) -> None:
        """Record that the subscription has ended and cannot be renewed."""
        self._have_problem(why)

    def _note_ended(self, why: str, pause: float | None = None) -> None:
        """Record that the broker ended the subscription, and renew it. Any thread may call this; it never blocks.

        Args:
            why: the reason that the broker gave.
            pause: seconds before the first attempt; None for the pause of `RENEWAL`.
        """
        with self._changing:
            self._endings += 1
        if not self._have_problem(why):
            return
        where = self.options.destination
        if self.is_temporary:
            events.CONSUMER_ENDED.log(where, why)
            self.owner.forget(self)
        else:
            events.CONSUMER_INTERRUPTED.log(where, why)
            self._plan(self._lives.end(), why, pause)

    def _have_problem(self, why: str) -> bool:
        with self._changing:
            if self._problem or self._is_stopped:
                return False
            self._problem, self._since = why, monotonic()
            self._tell(why)
            return True

    def _tell(self, problem: str) -> None:
        if self._news is not None:
            with suppress(RuntimeError):  # the connection was closed meanwhile
                self._news.put(problem)

    def _plan(self, failed: int, why: str, pause: float | None = None) -> None:
        seconds = RENEWAL.pause(failed, is_silent=False) if pause is None else pause
        self.owner.later(seconds, partial(self._try_again, failed, why))

    def _try_again(self, failed: int, before: str) -> None:
        """Make one attempt, which may block, and schedule the next if the problem remains."""
        why = before
        try:
            self._attempt(*self.owner.usable_session())
        except ClosedError:
            return
        except Exception as error:  # the next attempt may succeed, for example after a time-out or lack of memory
            why = why_of(error)
            level = logging.DEBUG if why == before or isinstance(error, ConnectionLostError) else logging.WARNING
            events.CONSUMER_NOT_RENEWED.log(self.options.destination, why, level=level)
        if self._problem and not self._is_stopped:
            self._plan(failed + 1, why)

    def _attempt(self, session: SessionT, generation: int) -> None:
        """Subscribe in a session, because it is new or the subscription ended; one attempt at a time.

        Raises:
            BrokerError: as for `start`.
        """
        with self._attempting:
            endings = self._endings
            self._lives.begin()
            is_there = self.resume(session, generation, again=bool(self._problem))
            with self._changing:
                if not self._problem or not is_there or self._endings != endings:
                    return
                self._problem = ""
                self._tell("")
                seconds = monotonic() - self._since
        events.CONSUMER_RENEWED.log(self.options.destination, seconds)

    def close(self) -> None:
        """End the subscription; deliveries that are not accepted go back at once, even during `on_delivery`.

        In a forked process it does nothing: the subscription is that of the process before.
        """
        if not self.owner.is_forked:
            self._close()

    @abstractmethod
    def _close(self) -> None:
        """End the subscription."""

    def stop(self) -> None:
        """Start no further `on_delivery`; held deliveries may still be settled."""
        self._is_stopped = True
        self._turns.stop()

    @property
    def _is_reader(self) -> bool:
        """Whether `on_delivery` calls on the thread that reads the socket, which would wait for itself."""
        return (self.options.inline or self.options.lazy) and self._turns.is_inside

    def join(self, until: float) -> None:
        """Wait for the running `on_delivery` until the monotonic clock shows `until`; return at once inside it."""
        self._turns.join(until)

    def _take_or_drop(self, arrival: ArrivalT) -> None:
        """Deliver an arrival; if it can be neither delivered nor released, end its session.

        Otherwise the message would be held forever, and this consumer would receive no more.
        """
        try:
            self._take(arrival)
        except BaseException:
            self._drop_session(arrival)
            raise

    @abstractmethod
    def _take(self, arrival: ArrivalT) -> None:
        """Deliver an arrival, unless its session or this consumer has ended since."""

    @abstractmethod
    def _drop_session(self, arrival: ArrivalT) -> None:
        """End the session of an arrival, so that the broker delivers the message again."""

    def _deliver(self, delivery: DeliveryT) -> None:
        if self._is_stopped:  # while the message was read: it goes back with its subscription
            return
        try:
            self._on_delivery(delivery)
        except BaseException:  # SystemExit too: it must not end the thread and leave the message held
            delivery.release()  # first, because logging may fail for lack of memory
            events.DELIVERY_FAILED.log(delivery.message.message_id)
        if self.options.auto_accept:
            self._conclude(delivery)

    def _release_unread(self, delivery: DeliveryT, octets: int) -> None:
        """Release a message whose body does not fit in memory; refuse it if it cannot be released."""
        if self.options.auto_accept:
            self._refuse(delivery, f"it has {octets} octets, and there is no memory to read it")
        else:
            events.DELIVERY_OUT_OF_MEMORY.log(octets)
            delivery.release()

    def _refuse(self, delivery: DeliveryT, reason: str) -> None:
        """Refuse a message whose body was not read, and call `on_refused` if there is one."""
        where, message = self.options.destination, delivery.message
        if self.options.auto_accept:
            events.DELIVERY_REFUSED.log(message.message_id, where, reason)
            self._conclude(delivery)
        else:
            delivery.reject(reason)
        if self.options.on_refused is not None:
            try:
                self.options.on_refused(message, reason)
            except Exception:
                events.DELIVERY_REFUSAL_FAILED.log(message.message_id)

    @abstractmethod
    def _conclude(self, delivery: DeliveryT) -> None:
        """Acknowledge a delivery that counts as accepted once `on_delivery` has returned."""
