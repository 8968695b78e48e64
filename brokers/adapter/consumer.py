"""The consumer that broker adapters extend: its subscription in each session, and whose turn it is.

How a subscription is made and a message is acknowledged on the wire belongs in the adapter.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from brokers.adapter.endpoints import Openable, Reconnect
from brokers.connection import Consumer, Delivery, OnDelivery, SubscribeOptions
from brokers.errors import ClosedError, ConnectionLostError, NoAnswerError
from brokers.message import DestinationKind
from brokers.threads.pool import Crew, Turns, at_once

# What a `lazy` consumer's connection does, over each protocol

GATHER_SECONDS: Final = 0.01
"""Seconds in which octets gather in the socket before they are read."""

HOLD_SECONDS: Final = 0.1
"""Seconds for which what was read is held, to handle it together."""

MAX_HELD_OCTETS: Final = 1 << 18
"""Octets after which it is handled anyway."""


def temporary_kind(kind: DestinationKind) -> DestinationKind:
    """Return the kind of a temporary destination.

    Raises:
        ValueError: it is not temporary.
    """
    if not kind.is_temporary:
        raise ValueError(f"{kind} is no temporary kind of destination")
    return kind


log = logging.getLogger(__name__)

RENEWAL: Final = Reconnect()
"""Pauses before each attempt to make a subscription again that the broker ended."""


def why_of(error: Exception) -> str:
    """Say what an error says, or at least its name."""
    return f"{error}" or repr(error)


class AdapterSession(Openable, Protocol):
    """What one generation of a connection works with."""

    @property
    def is_up(self) -> bool:
        """Whether it has not ended."""

    def lost(self) -> ConnectionLostError:
        """Make the error that says that it has ended."""


SessionT = TypeVar("SessionT", bound=AdapterSession)
ArrivalT = TypeVar("ArrivalT")
DeliveryT = TypeVar("DeliveryT", bound=Delivery)


class ConsumerOwner(Protocol):
    """What a consumer needs of its connection."""

    def usable_session(self) -> tuple[Any, int]:
        """Return the session and its generation; raise a BrokerError if there is none, or the connection is closed."""

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run a function after some seconds, where it may block; not at all once the connection is closed.

        Where no thread is to be had it runs once there is one.
        """

    def forget(self, consumer: Any) -> None:
        """Have no other session make this consumer go on."""

    def tell(self, function: Callable[[], object]) -> None:
        """Call a function of the user's on the connection's executor; raise RuntimeError once that is closed."""


class LastingConsumer(Consumer, Generic[SessionT, ArrivalT, DeliveryT]):
    """A subscription in each session, and whose turn it is; one that the broker ends is made again.

    `on_delivery` runs for one delivery at a time, on threads shared by all.
    """

    def __init__(self, options: SubscribeOptions, on_delivery: OnDelivery, owner: ConsumerOwner, crew: Crew) -> None:
        self.owner = owner
        self.options = options
        self._on_delivery = on_delivery
        submit = at_once if options.inline or options.lazy else crew.run if options.quick else crew.submit
        self._turns: Turns[ArrivalT] = Turns(submit, self._take_or_drop)
        self._is_stopped = False
        self._changing = Lock()
        self._attempting = Lock()
        self._problem = ""
        self._since = 0.0
        self._endings = 0  # how often the broker ended the subscription
        self._news = None if options.on_problem is None else Turns(owner.tell, options.on_problem)

    @property
    def problem(self) -> str:
        """Why the broker has no such subscription although there is a connection; empty while all is well."""
        return self._problem

    @property
    def is_temporary(self) -> bool:
        """Whether it ends with the session, as its destination does."""
        return self.options.destination.kind.is_temporary

    def start(self, session: SessionT, generation: int) -> None:
        """Subscribe, wait for the broker's answer, and begin to call `on_delivery`.

        Raises:
            BrokerError: the broker refused, as it does a selector that it cannot read.
            ConnectionLostError: the connection was lost meanwhile.
        """
        if not self.resume(session, generation):
            raise ConnectionLostError(f"the connection to {session} was lost")

    @abstractmethod
    def resume(self, session: SessionT, generation: int, *, again: bool = False) -> bool:
        """Subscribe in a session and wait for the broker's answer; False if this was closed, or subscribed by then.

        Args:
            session: the current one.
            generation: its number.
            again: the broker may have ended the subscription that there was in this session.

        Raises:
            BrokerError: as `start` has it.
        """

    def go_on(self, session: SessionT, generation: int) -> None:
        """Subscribe in another session. What the broker refuses there is tried again, and holds up nobody else.

        Raises:
            BrokerError: the session is of no use: it ended, or the broker does not answer.
        """
        try:
            self._attempt(session, generation)
        except NoAnswerError:
            raise
        except Exception as error:  # a redirect may time out, or find no thread
            if not session.is_up:
                raise
            self._note_ended(why_of(error))

    def end_for_good(self, why: str) -> None:
        """Note that the subscription has ended and cannot be made again."""
        self._have_problem(why)

    def _note_ended(self, why: str, pause: float | None = None) -> None:
        """Note that the broker ended the subscription, and have it made again. Any thread may call; it never blocks.

        Args:
            why: it did.
            pause: seconds before the first attempt; None for those before any other.
        """
        with self._changing:
            self._endings += 1
        if not self._have_problem(why):
            return
        where = self.options.destination
        if self.is_temporary:
            log.error("the broker ended the consumer of %s, which cannot be made again: %s", where, why)
            self.owner.forget(self)
        else:
            log.error("the broker ended the consumer of %s, which is made again: %s", where, why)
            self._plan(0, why, pause)

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
        """Make one attempt, which may block, and plan the next one, whatever became of it."""
        why = before
        try:
            self._attempt(*self.owner.usable_session())
        except ClosedError:
            return
        except Exception as error:  # the next attempt may fare better, as after a time-out or for want of memory
            why = why_of(error)
            level = logging.DEBUG if why == before or isinstance(error, ConnectionLostError) else logging.WARNING
            log.log(level, "no consumer of %s yet: %s", self.options.destination, why)
        if self._problem and not self._is_stopped:
            self._plan(failed + 1, why)

    def _attempt(self, session: SessionT, generation: int) -> None:
        """Subscribe in a session, after an ending or because it is another one; one attempt at a time.

        Raises:
            BrokerError: as `start` has it.
        """
        with self._attempting:
            endings = self._endings
            is_there = self.resume(session, generation, again=bool(self._problem))
            with self._changing:
                if not self._problem or not is_there or self._endings != endings:
                    return
                self._problem = ""
                self._tell("")
                seconds = monotonic() - self._since
        log.warning("there is a consumer of %s again, after %.1f s", self.options.destination, seconds)

    def stop(self) -> None:
        """Start no further `on_delivery`; what is held may still be settled."""
        self._is_stopped = True
        self._turns.stop()

    def join(self, until: float) -> None:
        """Wait for the `on_delivery` under way, until the monotonic clock shows `until`; not for one's own."""
        self._turns.join(until)

    def _take_or_drop(self, arrival: ArrivalT) -> None:
        """Deliver what has arrived; where it can neither be handed on nor given back, the end of its session does that.

        Else it would be held for ever, and this consumer would get nothing more.
        """
        try:
            self._take(arrival)
        except BaseException:
            self._drop_session(arrival)
            raise

    @abstractmethod
    def _take(self, arrival: ArrivalT) -> None:
        """Deliver what has arrived, unless its session or this consumer has ended since."""

    @abstractmethod
    def _drop_session(self, arrival: ArrivalT) -> None:
        """End the session that something arrived by, so that the broker delivers it again."""

    def _deliver(self, delivery: DeliveryT) -> None:
        try:
            self._on_delivery(delivery)
        except BaseException:  # SystemExit too: it must not end the thread and leave the message held
            delivery.release()  # first, as there may not be the memory to tell of it
            log.exception("on_delivery failed, so message %s is released", delivery.message.message_id)
        if self.options.auto_accept:
            self._conclude(delivery)

    def _release_unread(self, delivery: DeliveryT, octets: int) -> None:
        """Give back what there is no memory for, of which only the head is there; what cannot go back is refused."""
        if self.options.auto_accept:
            self._refuse(delivery, f"it has {octets} octets, and there is no memory to read it")
        else:
            log.error("a message of %d octets goes back: there is no memory to read it", octets)
            delivery.release()

    def _refuse(self, delivery: DeliveryT, reason: str) -> None:
        """Refuse what is above the limit, of which only the head is there, and tell who wants to know."""
        where, message = self.options.destination, delivery.message
        if self.options.auto_accept:
            log.warning("message %s from %s was dropped: %s", message.message_id, where, reason)
            self._conclude(delivery)
        else:
            delivery.reject(reason)
        if self.options.on_refused is not None:
            try:
                self.options.on_refused(message, reason)
            except Exception:
                log.exception("on_refused failed for message %s", message.message_id)

    @abstractmethod
    def _conclude(self, delivery: DeliveryT) -> None:
        """Acknowledge what is taken for accepted once `on_delivery` ended."""
