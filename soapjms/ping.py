"""Pings: messages sent through the broker and back. They show that it passes messages on, and what time it is there."""

from __future__ import annotations

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from math import inf
from secrets import token_hex
from threading import Event, Lock, current_thread
from typing import Final, NamedTuple

from brokers.adapter.wait import epoch_milliseconds
from brokers.arguments import finite
from brokers.connection import Connection, Consumer, Delivery, SendResult, end_temporary, ended_on_failure, stop
from brokers.errors import BrokerError, ClosedError
from brokers.message import DeliveryMode, Destination, Message, MessageType
from brokers.threads.thread import Thread, future_of
from brokers.threads.timer import left
from soapjms import events
from soapjms.protocol.errors import PingFailedError

DEFAULT_TIMEOUT: Final = 5.0

MAX_SKEW_SECONDS: Final = 1.0
"""Clock skew, in seconds, that is not logged: clocks that are synchronised at all are closer."""

CLOCK_PATIENCE: Final = 1.0
"""Seconds that the first call, or the start of a dispatcher, waits until the clocks are compared."""

CLOCK_RETRY_SECONDS: Final = 60.0
"""Seconds after which the clocks are compared again if that failed, as with a broker that has just started."""

MAX_STEP: Final = 100.0
"""Milliseconds by which this machine's time of day may leave its steady clock before both are compared again."""

PING_PREFIX: Final = "soapjms-ping-"
"""Prefix of the correlation ids of pings, so that observers of the broker can recognise them."""


def new_ping_id() -> str:
    """Return a correlation id that no other ping has."""
    return PING_PREFIX + token_hex(8)


def ping_message(correlation_id: str, destination: Destination, expiration: int | None = None) -> Message:
    """Return a ping; `expiration` is in milliseconds since 1970."""
    return Message(
        message_type=MessageType.BYTES,
        body=b"",
        destination=destination,
        correlation_id=correlation_id,
        delivery_mode=DeliveryMode.NON_PERSISTENT,
        expiration=expiration,
    )


def is_ping(message: Message) -> bool:
    """Say whether a message is a ping."""
    return (message.correlation_id or "").startswith(PING_PREFIX)


class Skew(NamedTuple):
    """How far the broker's clock is ahead of this machine's.

    Attributes:
        seconds: the difference; negative if the broker's clock is behind.
        doubt: the most that the measurement may be wrong by, in seconds.
    """

    seconds: float
    doubt: float

    @classmethod
    def of(cls, sent: float, back: float, timestamp: int) -> Skew:
        """Compute the skew from a ping.

        Args:
            sent: time at which it was sent, in seconds since 1970 by this machine's clock.
            back: time at which it was back.
            timestamp: its JMSTimestamp, in milliseconds since 1970, set by the broker.
        """
        return cls(timestamp / 1000 - (sent + back) / 2, (back - sent) / 2)

    @property
    def certain(self) -> float:
        """The seconds by which the clocks differ for certain."""
        return max(0.0, abs(self.seconds) - self.doubt)

    def __str__(self) -> str:
        where = "ahead of" if self.seconds > 0 else "behind"
        return f"the broker's clock is {abs(self.seconds):.1f} s {where} this machine's"


class Arrival:
    """A ping under way, and what is seen of it.

    Attributes:
        event: set when it is back.
        sent: time at which it was sent, in seconds since 1970.
        back: time at which it was back.
        timestamp: its JMSTimestamp.
    """

    def __init__(self) -> None:
        self.event = Event()
        self.sent = self.back = 0.0
        self.timestamp: int | None = None


class Pinger:
    """Sends itself messages through the broker, over a temporary queue of the connection. Thread-safe.

    The queue is made at the first ping and kept, as brokers delete it only with its connection. Requests to the broker
    run on a separate thread, so that a broker that stops reading or answering delays no caller beyond the timeout.

    Args:
        connection: the connection to the broker.

    Attributes:
        skew: the skew of the broker's clock, measured by the latest ping; None if the broker does not tell its time.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = Lock()  # one at a time, so that only one thread waits for a broker that hangs
        self._lock = Lock()
        self._place: tuple[int, Destination, Consumer] | None = None
        self._is_closed = False
        self._waiting: dict[str, Arrival] = {}
        self.skew: Skew | None = None

    def ping(self, timeout: float = DEFAULT_TIMEOUT) -> float:
        """Send a message through the broker and back, and return the seconds that it took.

        Raises:
            PingFailedError: the message did not come back within `timeout` seconds, or there is no connection.
            UsageError: `timeout` is not a positive, finite number.
        """
        seconds, started = finite(timeout), time.monotonic()
        until = started + seconds
        name, came = new_ping_id(), Arrival()
        self._waiting[name] = came
        try:
            self._send(name, until).result(left(until)).result(left(until))
            if not came.event.wait(left(until)):
                raise PingFailedError(f"a message through the broker did not come back within {seconds:g} s")
            if came.timestamp and self._connection.capabilities.tells_time:
                self.skew = Skew.of(came.sent, came.back, came.timestamp)
        except (BrokerError, FutureTimeoutError) as error:
            why = str(error) or f"the broker did not accept it within {seconds:g} s"
            raise PingFailedError(f"no message could be sent through the broker: {why}") from error
        finally:
            del self._waiting[name]
        return time.monotonic() - started

    def _send(self, name: str, until: float) -> Future[Future[SendResult]]:
        """Send a message on another thread; the future is done once the connection has accepted the message.

        Raises:
            TimeoutError: the message before this one has not been accepted yet.
            PingFailedError: no thread could be started.
        """
        if not self._sending.acquire(timeout=left(until)):
            raise FutureTimeoutError

        def send() -> Future[SendResult]:
            try:
                message = ping_message(name, self._destination())
                if (waiting := self._waiting.get(name)) is not None:
                    waiting.sent = time.time()
                return self._connection.send(message, timeout=left(until))
            finally:
                self._sending.release()

        try:
            return future_of(send, "soapjms-ping")
        except BaseException as error:
            self._sending.release()
            if isinstance(error, RuntimeError | MemoryError):
                raise PingFailedError(f"no message could be sent through the broker: {error or 'no memory'}") from error
            raise

    def _destination(self) -> Destination:
        """Return the queue of the connection's current generation. Not thread-safe."""
        generation, place = self._connection.generation, self._place
        if place is None or place[0] != generation or place[2].problem:
            destination = self._connection.temporary(fresh=False)  # the correlation id shows which messages are ours
            with ended_on_failure(self._connection, destination):
                consumer = self._connection.consume(destination, self._on_delivery, auto_accept=True, inline=True)
            place = generation, destination, consumer
            with self._lock:
                self._place = place
                is_closed = self._is_closed
            if is_closed:  # meanwhile
                self.close()
                raise ClosedError("it was closed meanwhile")
        return place[1]

    def _on_delivery(self, delivery: Delivery) -> None:
        came = self._waiting.get(delivery.message.correlation_id or "")
        if came is not None:
            came.back, came.timestamp = time.time(), delivery.message.timestamp
            came.event.set()

    def close(self) -> None:
        """Stop listening. Idempotent."""
        with self._lock:
            self._is_closed = True
            place, self._place = self._place, None
        if place is not None:
            stop(place[2])
            end_temporary(self._connection, place[1])


def _between(now: int) -> float:
    """Return this machine's time of day less its steady clock, in milliseconds."""
    return now - time.monotonic() * 1000


class BrokerClock:
    """The broker's clock, by which messages expire. Thread-safe.

    The difference from this machine's clock is measured on a separate thread, in each generation of the connection, and
    again after one of the clocks of this machine was set, or if that failed. It is made up for, and logged if it is
    more than `MAX_SKEW_SECONDS`. Until it is known, and if the broker does not tell its time, this machine's clock
    counts.

    Args:
        connection: the connection to the broker.

    Attributes:
        lead: milliseconds that the broker's clock was ahead when it was last measured, which after a reconnect may have
            been another broker's; 0 if they are not known, or fewer than can be measured.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = Lock()
        self._generation = -1
        self._set = 0.0  # this machine's time of day less its steady clock, in milliseconds
        self._until = inf  # when it is to be measured again, by the monotonic clock, after that failed
        self._thread: Thread | None = None  # while it measures
        self.lead = 0

    @property
    def is_measured_now(self) -> bool:
        """Whether the difference is being measured, so that nothing should be thrown away by this clock yet."""
        return self._thread is not None

    @property
    def is_known(self) -> bool:
        """Whether `now` returns at once with what is known: it was measured, or cannot be."""
        return self._thread is None and self._holds(_between(epoch_milliseconds()))

    def now(self, until: float | None = None) -> int:
        """Return the broker's time, in milliseconds since 1970.

        Args:
            until: time of the monotonic clock. If the difference is being measured, half of the time until then may
                pass, and at most `CLOCK_PATIENCE`; nothing by default, as on the thread that reads the connection.
        """
        now = epoch_milliseconds()
        if not self._holds(_between(now)):
            self._measure(_between(now))
        if until is not None and (thread := self._thread) is not None:
            thread.join(min(CLOCK_PATIENCE, left(until) / 2))
            now = epoch_milliseconds()
        return now + self.lead

    def _holds(self, between: float) -> bool:
        """Whether the connection is the one that was measured, and no clock of this machine was set since.

        If measuring failed, that holds for a while.
        """
        is_same = self._generation == self._connection.generation and abs(between - self._set) <= MAX_STEP
        return is_same and time.monotonic() < self._until

    def _measure(self, between: float) -> None:
        """Measure the difference on a separate thread, as the connection is another one, or a clock was set."""
        with self._lock:
            if self._holds(between):
                return  # another thread was faster
            self._generation, self._set, self._until = self._connection.generation, between, inf
            if not self._connection.capabilities.tells_time:
                return
            thread = Thread(target=self._compare, name="soapjms-clock", daemon=True)
            with suppress(RuntimeError, MemoryError):  # no thread could be started: the clocks are not compared
                thread.start()
                self._thread = thread

    def _compare(self) -> None:
        pinger = Pinger(self._connection)
        try:
            pinger.ping()
            skew = pinger.skew
            self.lead = round(skew.seconds * 1000) if skew is not None and skew.certain else 0
            if skew is not None and skew.certain > MAX_SKEW_SECONDS:
                events.CLOCK_SKEWED.log(skew)
        except PingFailedError as error:
            events.CLOCK_UNKNOWN.log(error)
            self._until = time.monotonic() + CLOCK_RETRY_SECONDS
        finally:
            pinger.close()
            with self._lock:  # which `_measure` holds until it has set the thread
                if self._thread is current_thread():  # else the connection is another one meanwhile
                    self._thread = None
