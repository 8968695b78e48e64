"""Pings: messages sent through the broker and back, to show that it passes messages on."""

from __future__ import annotations

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from secrets import token_hex
from threading import Event, Lock
from typing import Final

from brokers.adapter.wait import left
from brokers.connection import Connection, Consumer, Delivery, SendResult, end_temporary, stop
from brokers.errors import BrokerError, ClosedError
from brokers.message import DeliveryMode, Destination, Message, MessageType
from brokers.threads.thread import Thread
from soapjms.protocol.errors import PingFailedError
from soapjms.validation import finite

DEFAULT_TIMEOUT: Final = 5.0

PING_PREFIX: Final = "soapjms-ping-"
"""Prefix of the correlation ids of pings, so that observers of the broker can recognise them."""


class Pinger:
    """Sends itself messages through the broker, over a temporary queue of the connection. Thread-safe.

    The queue is made at the first ping and kept, as brokers delete it only with its connection. Requests to the broker
    run on a separate thread, so that a broker that stops reading or answering delays no caller beyond the timeout.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = Lock()  # one at a time, so that only one thread waits for a broker that hangs
        self._lock = Lock()
        self._place: tuple[int, Destination, Consumer] | None = None
        self._is_closed = False
        self._waiting: dict[str, Event] = {}

    def ping(self, timeout: float = DEFAULT_TIMEOUT) -> float:
        """Send a message through the broker and back, and return the seconds that it took.

        Raises:
            PingFailedError: the message did not come back within `timeout` seconds, or there is no connection.
            UsageError: `timeout` is not a positive, finite number.
        """
        seconds, started = finite(timeout), time.monotonic()
        until = started + seconds
        name, came = PING_PREFIX + token_hex(8), Event()
        self._waiting[name] = came
        try:
            self._send(name, until).result(left(until)).result(left(until))
            if not came.wait(left(until)):
                raise PingFailedError(f"a message through the broker did not come back within {seconds:g} s")
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
        taken: Future[Future[SendResult]] = Future()

        def send() -> None:
            try:
                message = _message(name, self._destination())
                taken.set_result(self._connection.send(message, timeout=left(until)))
            except BaseException as error:
                taken.set_exception(error)
            finally:
                self._sending.release()

        try:
            Thread(target=send, name="soapjms-ping", daemon=True).start()
        except BaseException as error:
            self._sending.release()
            if isinstance(error, RuntimeError | MemoryError):
                raise PingFailedError(f"no message could be sent through the broker: {error or 'no memory'}") from error
            raise
        return taken

    def _destination(self) -> Destination:
        """Return the queue of the connection's current generation. Not thread-safe."""
        generation, place = self._connection.generation, self._place
        if place is None or place[0] != generation or place[2].problem:
            destination = self._connection.temporary(fresh=False)  # the correlation id shows whether a message is ours
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
            came.set()

    def close(self) -> None:
        """Stop listening. Idempotent."""
        with self._lock:
            self._is_closed = True
            place, self._place = self._place, None
        if place is not None:
            stop(place[2])
            end_temporary(self._connection, place[1])


def _message(name: str, destination: Destination) -> Message:
    return Message(
        message_type=MessageType.BYTES,
        body=b"",
        destination=destination,
        correlation_id=name,
        delivery_mode=DeliveryMode.NON_PERSISTENT,
    )
