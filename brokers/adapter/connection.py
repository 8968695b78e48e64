"""The connection that broker adapters extend: its state, and how it goes on in one session after the other.

The state changes in one place, is told to those who watch it, and can be waited for. Consumers, generations and
temporary destinations are handled here for any protocol. What a session is, and how a message is sent over it,
belongs in the adapter: see `brokers.stomp` and `brokers.amqp`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Condition, Lock
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from brokers.adapter.consumer import LastingConsumer, SessionT, temporary_kind
from brokers.adapter.endpoints import BrokerEndpoints, Reconnect, Reconnector
from brokers.connection import Connection, ConnectionState, Consumer, OnDelivery, OnState, SubscribeOptions
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, StaleDestinationError
from brokers.message import Destination, DestinationKind
from brokers.threads.futures import Callbacks, Completion
from brokers.threads.pool import Crew, Turns
from brokers.threads.timer import Deadlines

WHY: Final = {ConnectionState.LOST: ConnectionLostError, ConnectionState.CLOSED: ClosedError}


class ConnectionLife:
    """Where a connection is in its life. CLOSED is the end. Thread-safe.

    Args:
        callbacks: where watchers are called, one change at a time and in order.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self.cause = "the connection was not opened"
        self._state = ConnectionState.LOST
        self._changed = Condition()
        self._watchers: list[OnState] = []
        self._news: Turns[tuple[OnState, ConnectionState]] = Turns(callbacks.call, _tell)

    @property
    def state(self) -> ConnectionState:
        """What it is now."""
        return self._state

    def become(self, state: ConnectionState, cause: str = "") -> bool:
        """Change the state and tell who watches; False if it was so before, or if it is CLOSED.

        Args:
            state: the new one.
            cause: of an end, as it stands in the error of those who wait or call.
        """
        with self._changed:
            if self._state in (state, ConnectionState.CLOSED):
                return False
            self._state = state
            self.cause = cause
            self._changed.notify_all()
            for watcher in self._watchers:
                self._news.put((watcher, state))
            return True

    def watch(self, on_state: OnState) -> None:
        """Tell `on_state` of every change from now on.

        Raises:
            ClosedError: there will be none.
        """
        with self._changed:
            if self._state is ConnectionState.CLOSED:
                raise self.failure()
            self._watchers.append(on_state)

    def unwatch(self, on_state: OnState) -> None:
        """Tell it no more, but for what is on its way. Does nothing if it did not watch."""
        with self._changed, suppress(ValueError):
            self._watchers.remove(on_state)

    def wait_connected(self, timeout: float | None) -> None:
        """Return once it is CONNECTED.

        Raises:
            ConnectionLostError: it is not within `timeout` seconds.
            ClosedError: it never will be.
        """
        if self.state is ConnectionState.CONNECTED:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._state is not ConnectionState.LOST, timeout)
            if self._state is not ConnectionState.CONNECTED:
                raise self.failure()

    def failure(self) -> BrokerError:
        """Make the error that says why the connection cannot be used."""
        return WHY[self._state](self.cause)


def _tell(news: tuple[OnState, ConnectionState]) -> None:
    on_state, state = news
    on_state(state)


log = logging.getLogger(__name__)

ATTEMPT_SECONDS: Final = 20.0
"""Seconds that one attempt to reconnect may take, with all the brokers together."""

FIRST_ATTEMPT_SECONDS: Final = 3.0
"""Seconds that the first attempts may take for each broker: one that is being started may accept, and never answer."""

ATTEMPT_SHARE: Final = 0.25
"""The part of the time since the connection was lost that an attempt may take, so that a slow broker is waited for."""

FAREWELL_SHARE: Final = 0.25
"""The part of `close`'s deadline that is kept for taking leave of the broker."""

THREAD_RETRY_SECONDS: Final = 1.0
"""Seconds after which who found no thread looks for one again."""

T = TypeVar("T")


ConsumerT = TypeVar("ConsumerT", bound=LastingConsumer[Any, Any, Any])


class LastingConnection(Connection, Generic[SessionT, ConsumerT]):
    """One program's way to a broker, or to one of several.

    Args:
        name: for people to read.
        endpoints: open sessions, which tell `_session_ended` when they have ended.
        timeout: seconds that connecting and subscribing may take.
        reconnect: make a lost connection again, and how; None for not at all.
    """

    def __init__(
        self, name: str, endpoints: BrokerEndpoints[Any, SessionT], timeout: float, reconnect: Reconnect | None
    ) -> None:
        self._name = name
        self._endpoints = endpoints
        self._timeout = timeout
        self._reconnector = None if reconnect is None else Reconnector(name, reconnect, self._resume, self._give_up)
        self._callbacks = Callbacks(name)
        self._life = ConnectionLife(self._callbacks)
        self._crew = Crew(name)
        self._deadlines = Deadlines(f"{name} pauses")
        self._lock = Lock()
        self._consumers: dict[ConsumerT, None] = {}  # in the order in which they subscribed
        self._temporaries: dict[str, int] = {}  # by address, the generation that made them
        self._is_closing = False
        self._generation = 0
        self._link: SessionT | None = None

    def open(self) -> None:
        """Make the first session.

        Raises:
            ConnectionFailedError: nobody answers in time, or the broker refused the login.
            ValueError: a login that cannot be written.
        """
        link = self._endpoints.open(self._timeout)
        self._adopt(link)
        self._be_connected(link)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name} {self.state} generation {self._generation}>"

    @property
    def backlog(self) -> int:
        """How many deliveries, and other tasks, have arrived and wait for a thread."""
        return self._crew.waiting

    @property
    def state(self) -> ConnectionState:
        """Where the connection is in its life."""
        return self._life.state

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

    def _consume(self, options: SubscribeOptions, on_delivery: OnDelivery) -> Consumer:
        if options.destination.kind.is_temporary:
            self._require_own(options.destination)
        link = self._session_to_consume(options.destination)
        consumer = self._make_consumer(options, on_delivery)
        with self._lock:
            is_late, generation = self._is_closing or link is not self._link, self._generation
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

    def _session_to_consume(self, destination: Destination) -> SessionT:
        """Return the session, and have the thread that calls what is due: else `later` might fail to get it."""
        link = self._usable(to_begin=True)
        try:
            self._deadlines.start()
        except RuntimeError as error:
            raise BrokerError(f"{destination} is not consumed from: {error}") from error
        return link

    def unsubscribe(self, topic: Destination, durable_name: str) -> None:
        """End a durable subscription of this client id. ActiveMQ Classic refuses over STOMP if there is none.

        Raises:
            UnsupportedError: the connection has no client id.
            BrokerError: it has a consumer, or the broker refused.
            ValueError: it is no topic.
        """
        options = SubscribeOptions(destination=topic, durable_name=durable_name)
        options.check(self.capabilities)
        if any(each.options.durable_name == durable_name for each in list(self._consumers)):
            raise BrokerError(f"the durable subscription {durable_name!r} to {topic} has a consumer")
        self._unsubscribe(self._usable(to_begin=True), options)

    def temporary(
        self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, *, fresh: bool = True, ends: bool = False
    ) -> Destination:
        """Make a temporary destination.

        Raises:
            ValueError: a kind that is not temporary.
            BrokerError: the broker makes none.
        """
        temporary_kind(kind)
        link, generation = self._usable(to_begin=True), self._generation
        made = self._make_temporary(link, kind, fresh=fresh, ends=ends)
        assert made.address is not None
        with self._lock:
            self._temporaries[made.address] = generation
        return made

    def end_temporary(self, destination: Destination) -> None:
        """End a temporary destination, as far as the broker can."""
        with self._lock:
            link, made = self._link, self._temporaries.get(destination.address or "")
            if link is None or made != self._generation:
                return
            del self._temporaries[destination.address or ""]
        if link.is_up:
            self._end_temporary(link, destination)

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
            consumers, link = list(self._consumers), self._link
        if self._reconnector is not None:
            self._reconnector.stop()
            self._endpoints.close()
            if self.state is ConnectionState.LOST and link is not None:
                link.drop()  # there consumers may be made to go on
            self._reconnector.join(until)
        for consumer in consumers:
            consumer.stop()
        for consumer in consumers:
            consumer.join(until - deadline * FAREWELL_SHARE)
        self._life.become(ConnectionState.CLOSED, "the connection was closed")
        if link is not None:
            self._take_leave(link, consumers, until)
        self._callbacks.close(until)
        self._deadlines.close()
        self._crew.close()

    def failure(self, link: SessionT) -> BrokerError | None:
        """Say why nothing can be done over a session any more, or None."""
        if link.is_up and self.state is not ConnectionState.CLOSED:
            return None
        if link is self._link:
            self._session_ended(link)  # whoever notices first
        if self.state is not ConnectionState.CONNECTED:
            return self._life.failure()
        return ConnectionLostError(f"the connection to {link} was lost, and made again since")

    def completion(self) -> Completion[T]:
        """Make a future whose callbacks run on this connection's executor."""
        return Completion(self._callbacks.executor)

    # What the protocol decides

    @abstractmethod
    def _make_consumer(self, options: SubscribeOptions, on_delivery: OnDelivery) -> ConsumerT:
        """Make a consumer, which is still to be started."""

    @abstractmethod
    def _make_temporary(self, link: SessionT, kind: DestinationKind, *, fresh: bool, ends: bool) -> Destination:
        """Make a temporary destination, with its address."""

    @abstractmethod
    def _end_temporary(self, link: SessionT, destination: Destination) -> None:
        """End one that was made in this session, which may end meanwhile."""

    @abstractmethod
    def _unsubscribe(self, link: SessionT, options: SubscribeOptions) -> None:
        """Have the broker end a durable subscription, and wait for its answer."""

    @abstractmethod
    def _take_leave(self, link: SessionT, consumers: Sequence[ConsumerT], until: float) -> None:
        """End the consumers and then the session, before the monotonic clock shows `until`."""

    # For use by the protocol

    def _current(self) -> SessionT:
        """Return the session, which may have ended."""
        assert self._link is not None  # from `open` on
        return self._link

    def _usable(self, *, to_begin: bool = False) -> SessionT:
        """Return the session. While consumers are made to go on what they are given may be answered, nothing begun."""
        link = self._current()
        if to_begin and self._is_closing:
            raise ClosedError("the connection is being closed, or was")
        if to_begin and self.state is not ConnectionState.CONNECTED:
            raise self._life.failure()
        failure = self.failure(link)
        if failure is not None:
            raise failure
        return link

    def _require_own(self, destination: Destination) -> None:
        if destination.address is None or self._temporaries.get(destination.address) != self._generation:
            raise StaleDestinationError(
                f"{destination} was not made by this connection, or by an earlier generation of it"
            )

    # What consumers need of their connection

    def usable_session(self) -> tuple[SessionT, int]:
        """Return the session and its generation.

        Raises:
            ConnectionLostError: there is none just now.
            ClosedError: there will be none.
        """
        if self._is_closing:
            raise ClosedError("the connection is being closed, or was")
        with self._lock:
            link, generation = self._current(), self._generation
        failure = self.failure(link)
        if failure is not None:
            raise failure
        return link, generation

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` after so many seconds, where it may block; not at all once this is closed.

        Where no thread is to be had for it, it runs once there is one.
        """
        self._deadlines.call_at(monotonic() + seconds, partial(self._hand_on, function))

    def _hand_on(self, function: Callable[[], None]) -> None:
        """Have the crew do what is due; while it has no thread, later."""
        try:
            self._crew.submit(function)
        except RuntimeError as error:
            log.warning("%s: what is due waits: %s", self._name, error)
            self.later(THREAD_RETRY_SECONDS, function)

    def tell(self, function: Callable[[], object]) -> None:
        """Call `function` on the executor."""
        self._callbacks.call(function)

    def forget(self, consumer: ConsumerT) -> None:
        """Have no other session make this consumer go on."""
        with self._lock:
            self._consumers.pop(consumer, None)

    # Sessions come and go

    def _adopt(self, link: SessionT) -> list[ConsumerT]:
        """Begin a generation, and return the consumers that are to go on in it.

        Of the temporary destinations that have ended only those of the last generation are still known as such.
        """
        with self._lock:
            if self._is_closing:
                raise ClosedError("the connection was closed meanwhile")
            self._temporaries = {
                address: made for address, made in self._temporaries.items() if made == self._generation
            }
            self._link = link
            self._generation += 1
            return list(self._consumers)

    def _be_connected(self, link: SessionT) -> None:
        self._life.become(ConnectionState.CONNECTED)
        if not link.is_up:  # it ended before it could be lost
            self._session_ended(link)

    def _resume(self, lost_for: float) -> None:
        """Make another session, and have the consumers go on there; it was lost so many seconds ago.

        Raises:
            BrokerError: nobody lets us in, or the session was lost again.
        """
        seconds = max(FIRST_ATTEMPT_SECONDS * len(self._endpoints), lost_for * ATTEMPT_SHARE)
        link = self._endpoints.open(min(self._timeout, ATTEMPT_SECONDS, seconds))
        try:
            for consumer in self._adopt(link):
                consumer.go_on(link, self._generation)
        except BaseException:
            link.drop()
            raise
        self._be_connected(link)

    def _give_up(self, cause: str) -> None:
        log.error("%s, so the connection is closed", cause)
        self._life.become(ConnectionState.CLOSED, cause)
        self.close()

    def _session_ended(self, link: SessionT) -> None:
        """Note that a session has ended, by itself or by `close`, while connecting or later; that is known once."""
        with self._lock:
            if link is not self._link or not self._life.become(ConnectionState.LOST, f"{link.lost()}"):
                return
            ended = [each for each in self._consumers if each.is_temporary]
            for consumer in ended:
                del self._consumers[consumer]
            is_over = self._is_closing or self._reconnector is None
        for consumer in ended:
            consumer.end_for_good(f"{link.lost()}, and with it {consumer.options.destination}")
        log.warning("%s%s", link.lost(), "" if is_over else ", and is made again")
        if self._reconnector is not None and not is_over:
            self._reconnector.start()
