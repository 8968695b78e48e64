"""The connection that broker adapters extend: its state, and its succession of sessions with the broker.

The state changes in one place; callers can watch it and wait for it. Consumers, generations and temporary
destinations are handled here for every protocol. Sessions and the sending of messages belong in the adapter: see
`brokers.stomp` and `brokers.amqp`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Condition, Lock
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from brokers import events
from brokers.adapter.consumer import THREAD_RETRY_SECONDS, LastingConsumer, SessionT, temporary_kind
from brokers.adapter.endpoints import BrokerEndpoints, Reconnect, Reconnector
from brokers.arguments import check_callback, time_to_close
from brokers.connection import (
    Connection,
    ConnectionState,
    Consumer,
    OnDelivery,
    OnState,
    SubscribeOptions,
    check_destination,
)
from brokers.errors import BrokerError, ClosedError, ConnectionLostError, StaleDestinationError
from brokers.message import Destination, DestinationKind
from brokers.threads.fork import after_fork
from brokers.threads.futures import Callbacks, Completion, NearCompletion
from brokers.threads.pool import Crew, Turns
from brokers.threads.timer import Deadlines, left

FORKED: Final = "the connection belongs to the process that this one was forked from: connect after the fork"
"""Why a connection is closed in a forked process."""

WHY: Final = {ConnectionState.LOST: ConnectionLostError, ConnectionState.CLOSED: ClosedError}


class ConnectionLife:
    """The state of a connection. CLOSED is final. Thread-safe.

    Args:
        callbacks: executor that calls the watchers, one change at a time and in order.

    Attributes:
        cause: why the connection ended.
        state: the current state.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        self.cause = "the connection was not opened"
        self.state: ConnectionState = ConnectionState.LOST
        self._changed = Condition()
        self._watchers: list[OnState] = []
        self._news: Turns[tuple[OnState, ConnectionState]] = Turns(callbacks.call, _tell)

    def become(self, state: ConnectionState, cause: str = "") -> bool:
        """Change the state and notify the watchers; return False if the state was the same already, or CLOSED.

        Args:
            state: the new state.
            cause: why the connection ended; the text of the error that waiting and later calls raise.
        """
        with self._changed:
            if self.state in (state, ConnectionState.CLOSED):
                return False
            self.state = state
            self.cause = cause
            self._changed.notify_all()
            for watcher in self._watchers:
                with suppress(RuntimeError, MemoryError):  # there is no thread: it is told with the next change
                    self._news.put((watcher, state))
            return True

    def watch(self, on_state: OnState) -> None:
        """Call `on_state` for every change from now on.

        Raises:
            ClosedError: the connection is closed, so its state no longer changes.
        """
        with self._changed:
            if self.state is ConnectionState.CLOSED:
                raise self.failure()
            self._watchers.append(on_state)

    def unwatch(self, on_state: OnState) -> None:
        """Stop calling `on_state`, except for changes already queued. Does nothing if it was not registered."""
        with self._changed, suppress(ValueError):
            self._watchers.remove(on_state)

    def wait_connected(self, timeout: float | None) -> None:
        """Return once the state is CONNECTED.

        Raises:
            ConnectionLostError: it did not become CONNECTED within `timeout` seconds.
            ClosedError: the connection is closed.
        """
        found = self.state
        if found is ConnectionState.CONNECTED:
            return
        with self._changed:
            self._changed.wait_for(lambda: self.state is not ConnectionState.LOST, timeout)
            if self.state is not ConnectionState.CONNECTED:
                raise self.failure()

    def end_by_fork(self) -> None:
        """Become CLOSED in a forked process, where no other thread is left to release the lock that it may hold."""
        self._changed = Condition()
        self.state, self.cause = ConnectionState.CLOSED, FORKED

    def failure(self) -> BrokerError:
        """Return the error that says why the connection cannot be used."""
        return WHY[self.state](self.cause)


def _tell(news: tuple[OnState, ConnectionState]) -> None:
    on_state, state = news
    on_state(state)


T = TypeVar("T")


class AdapterConnection(Connection):
    """The state of every adapter's connection, and the executor that calls the program. It begins as LOST.

    Args:
        name: of the connection, for its threads and logs.

    Attributes:
        is_forked: whether it belongs to the process that this one was forked from.
    """

    is_forked = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._callbacks = Callbacks(name)
        self._life = ConnectionLife(self._callbacks)
        self._lock = Lock()
        self._is_closing = False
        after_fork(self, AdapterConnection._end_by_fork)

    def _end_by_fork(self) -> None:
        """Close in a forked process, without a word to the broker, which knows only the process before."""
        self._lock = Lock()
        self._is_closing = self.is_forked = True
        self._life.end_by_fork()

    @property
    def state(self) -> ConnectionState:
        """The current state of the connection."""
        return self._life.state

    def watch(self, on_state: OnState) -> None:
        """Call `on_state` on the executor for every change, one at a time and in order."""
        check_callback(on_state, "on_state")
        self._life.watch(on_state)

    def unwatch(self, on_state: OnState) -> None:
        """Stop calling `on_state`."""
        self._life.unwatch(on_state)

    def wait_connected(self, timeout: float | None = None) -> None:
        """Return once the connection can be used."""
        self._life.wait_connected(timeout)

    def completion(self) -> Completion[T]:
        """Return a new future whose callbacks run on this connection's executor."""
        return Completion(self._callbacks.executor)

    def tell(self, function: Callable[[], object]) -> None:
        """Call `function` on the executor; raise RuntimeError once that is closed."""
        self._callbacks.call(function)

    def _require_not_closing(self) -> None:
        if self._is_closing:
            is_over = self.state is ConnectionState.CLOSED
            raise self._life.failure() if is_over else ClosedError("the connection is being closed")

    def _require_open(self) -> None:
        if self._is_closing or self.state is not ConnectionState.CONNECTED:
            self._require_not_closing()
            raise self._life.failure()


ATTEMPT_SECONDS: Final = 20.0
"""Maximum duration of one attempt to reconnect, over all brokers, in seconds."""

FIRST_ATTEMPT_SECONDS: Final = 3.0
"""Maximum duration of the first attempts, in seconds per broker: a starting broker may accept and never answer."""

ATTEMPT_SHARE: Final = 0.25
"""Share of the time since the connection was lost that an attempt may take: slow brokers get longer each time."""

FAREWELL_SHARE: Final = 0.25
"""Share of the deadline of `close` that is reserved for ending the session with the broker."""

ConsumerT = TypeVar("ConsumerT", bound=LastingConsumer[Any, Any, Any])


class LastingConnection(AdapterConnection, Generic[SessionT, ConsumerT]):
    """A connection to a broker, or to one of several, that outlives its sessions.

    Args:
        name: of the connection, for logs and errors.
        endpoints: opens the sessions, which call `_session_ended` when they end.
        timeout: seconds that connecting and subscribing may take.
        reconnect: how to restore a lost connection; None to leave it lost.

    Attributes:
        generation: number of the current session, counted from 1.
    """

    generation: int = 0  # no property: each call reads it several times

    def __init__(
        self, name: str, endpoints: BrokerEndpoints[Any, SessionT], timeout: float, reconnect: Reconnect | None
    ) -> None:
        super().__init__(name)
        self._endpoints = endpoints
        self._timeout = timeout
        self._reconnector = None if reconnect is None else Reconnector(name, reconnect, self._resume, self._give_up)
        self._crew = Crew(name)
        self._deadlines = Deadlines(f"{name} pauses")
        self._consumers: dict[ConsumerT, None] = {}  # in the order in which they subscribed
        self._temporaries: dict[str, int] = {}  # by address, the generation that made them
        self._link: SessionT | None = None

    def open(self) -> None:
        """Open the first session.

        Raises:
            ConnectionFailedError: no broker answered in time, or the broker refused the login.
            UsageError: the login cannot be encoded.
        """
        link = self._endpoints.open(self._timeout)
        self._adopt(link)
        self._be_connected(link)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name} {self.state} generation {self.generation}>"

    def wait_connected(self, timeout: float | None = None) -> None:
        """Return once there is a session; raise at once if the connection was lost and does not reconnect."""
        self._life.wait_connected(0.0 if self._reconnector is None else timeout)

    def _consume(self, options: SubscribeOptions, on_delivery: OnDelivery) -> Consumer:
        if options.destination.kind.is_temporary:
            self._require_own(options.destination)
        link = self._session_to_consume(options.destination)
        consumer = self._make_consumer(options, on_delivery)
        with self._lock:
            is_late, generation = self._is_closing or link is not self._link, self.generation
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
        """Return the session, and start the timer thread now, so that `later` cannot fail for want of a thread."""
        link = self._usable(to_begin=True)
        try:
            self._deadlines.start()
        except RuntimeError as error:
            raise BrokerError(f"cannot consume from {destination}: {error}") from error
        return link

    def unsubscribe(self, topic: Destination, durable_name: str) -> None:
        """Delete a durable subscription of this client id. ActiveMQ Classic over STOMP refuses an unknown one.

        Raises:
            UnsupportedError: the connection has no client id.
            BrokerError: the subscription has a consumer, or the broker refused.
            UsageError: `topic` is not a topic.
        """
        options = SubscribeOptions(destination=topic, durable_name=durable_name)
        options.check(self.capabilities)
        if any(each.options.durable_name == durable_name for each in list(self._consumers)):
            raise BrokerError(f"the durable subscription {durable_name!r} to {topic} has a consumer")
        self._unsubscribe(self._usable(to_begin=True), options)

    def temporary(
        self, kind: DestinationKind = DestinationKind.TEMPORARY_QUEUE, *, fresh: bool = True, ends: bool = False
    ) -> Destination:
        """Create a temporary destination.

        Raises:
            UsageError: `kind` is not temporary.
            BrokerError: the broker refused to create it.
        """
        temporary_kind(kind)
        link, generation = self._usable(to_begin=True), self.generation
        made = self._make_temporary(link, kind, fresh=fresh, ends=ends)
        assert made.address is not None
        with self._lock:
            self._temporaries[made.address] = generation
        return made

    def end_temporary(self, destination: Destination) -> None:
        """Delete a temporary destination, as far as the broker supports that."""
        check_destination(destination)
        with self._lock:
            link, made = self._link, self._temporaries.get(destination.address or "")
            if link is None or made != self.generation:
                return
            del self._temporaries[destination.address or ""]
        if link.is_up:
            self._end_temporary(link, destination)

    def close(self, deadline: float = 5.0) -> None:
        """Close: let running `on_delivery` calls finish, release held deliveries, end the session with the broker.

        Running calls may still send, accept and commit, but not consume. Idempotent; a second call during the first
        returns at once.
        """
        seconds = time_to_close(deadline)
        until = monotonic() + seconds
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            consumers, link = list(self._consumers), self._link
        if self._reconnector is not None:
            self._reconnector.stop()
            self._endpoints.close()
            if self.state is ConnectionState.LOST and link is not None:
                link.drop()  # the reconnector may be resuming consumers in this session
            self._reconnector.join(until)
        for consumer in consumers:
            consumer.stop()
        for consumer in consumers:
            consumer.join(until - seconds * FAREWELL_SHARE)
        self._life.become(ConnectionState.CLOSED, "the connection was closed")
        if link is not None:
            self._take_leave(link, consumers, until)
        self._callbacks.close(until)
        self._deadlines.close(left(until))
        self._crew.close()

    def failure(self, link: SessionT) -> BrokerError | None:
        """Return the error that says why a session can no longer be used, or None if it can."""
        if link.is_up and self._life.state is not ConnectionState.CLOSED:
            return None
        if link is self._link:
            self._session_ended(link)  # this caller may be the first to notice
        if self.state is not ConnectionState.CONNECTED:
            return self._life.failure()
        return ConnectionLostError(f"the connection to {link} was lost, and has been restored since")

    def near_completion(self) -> NearCompletion[T]:
        """Return a new future whose callbacks may run on the threads of `on_delivery`."""
        return NearCompletion(self._crew.run)

    # Implemented for each protocol

    @abstractmethod
    def _make_consumer(self, options: SubscribeOptions, on_delivery: OnDelivery) -> ConsumerT:
        """Return a new consumer, not yet started."""

    @abstractmethod
    def _make_temporary(self, link: SessionT, kind: DestinationKind, *, fresh: bool, ends: bool) -> Destination:
        """Create a temporary destination, and return it with its address."""

    @abstractmethod
    def _end_temporary(self, link: SessionT, destination: Destination) -> None:
        """Delete a temporary destination of this session; the session may end meanwhile."""

    @abstractmethod
    def _unsubscribe(self, link: SessionT, options: SubscribeOptions) -> None:
        """Have the broker delete a durable subscription, and wait for its answer."""

    @abstractmethod
    def _take_leave(self, link: SessionT, consumers: Sequence[ConsumerT], until: float) -> None:
        """End the consumers and then the session, before the monotonic clock shows `until`."""

    # Used by the protocol

    def _current(self) -> SessionT:
        """Return the session, which may have ended."""
        assert self._link is not None  # from `open` on
        return self._link

    def _usable(self, *, to_begin: bool = False) -> SessionT:
        """Return the session. While consumers are being resumed, deliveries can be settled, but nothing new begun."""
        link = self._link
        assert link is not None  # from `open` on
        if not to_begin and link.is_up and self._life.state is not ConnectionState.CLOSED:  # nearly always
            return link
        if to_begin:
            self._require_open()
        failure = self.failure(link)
        if failure is not None:
            raise failure
        return link

    def _require_own(self, destination: Destination) -> None:
        if destination.address is None or self._temporaries.get(destination.address) != self.generation:
            raise StaleDestinationError(f"{destination} was not made by this generation of this connection")

    # Used by the consumers

    def usable_session(self) -> tuple[SessionT, int]:
        """Return the session and its generation.

        Raises:
            ConnectionLostError: there is no session at the moment.
            ClosedError: the connection is closed, or being closed.
        """
        self._require_not_closing()
        with self._lock:
            link, generation = self._current(), self.generation
        failure = self.failure(link)
        if failure is not None:
            raise failure
        return link, generation

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run `function` after `seconds` on a thread where it may block; never once the connection is closed.

        If no thread can be started, the function runs as soon as there is one.
        """
        self._deadlines.call_at(monotonic() + seconds, partial(self._hand_on, function))

    def _hand_on(self, function: Callable[[], None]) -> None:
        """Submit a due function to the crew, or retry later if the crew has no thread."""
        try:
            self._crew.submit(function)
        except RuntimeError as error:
            events.CONNECTION_TASK_DELAYED.log(self._name, error)
            self.later(THREAD_RETRY_SECONDS, function)

    def forget(self, consumer: ConsumerT) -> None:
        """Do not resume this consumer in later sessions."""
        with self._lock:
            self._consumers.pop(consumer, None)

    # Changes of session

    def _adopt(self, link: SessionT) -> list[ConsumerT]:
        """Begin a generation, and return the consumers to resume in it.

        Temporary destinations older than the last generation are forgotten.
        """
        with self._lock:
            if self._is_closing:
                raise ClosedError("the connection was closed while it was being opened")
            self._temporaries = {
                address: made for address, made in self._temporaries.items() if made == self.generation
            }
            self._link = link
            self.generation += 1
            return list(self._consumers)

    def _be_connected(self, link: SessionT) -> None:
        self._life.become(ConnectionState.CONNECTED)
        if not link.is_up:  # the session ended before the state was CONNECTED, when it could not become LOST
            self._session_ended(link)

    def _resume(self, lost_for: float) -> None:
        """Open another session, `lost_for` seconds after the loss, and resume the consumers in it.

        Raises:
            BrokerError: no broker accepted the connection, or the session was lost again.
        """
        seconds = max(FIRST_ATTEMPT_SECONDS * len(self._endpoints), lost_for * ATTEMPT_SHARE)
        link = self._endpoints.open(min(self._timeout, ATTEMPT_SECONDS, seconds))
        try:
            for consumer in self._adopt(link):
                consumer.go_on(link, self.generation)
        except BaseException:
            link.drop()
            raise
        self._be_connected(link)

    def _give_up(self, cause: str) -> None:
        events.CONNECTION_GIVEN_UP.log(cause)
        self._life.become(ConnectionState.CLOSED, cause)
        self.close()

    def _session_ended(self, link: SessionT) -> None:
        """Record that a session has ended, by itself or by `close`. Only the first call for a session counts."""
        with self._lock:
            if link is not self._link or not self._life.become(ConnectionState.LOST, f"{link.lost()}"):
                return
            ended = [each for each in self._consumers if each.is_temporary]
            for consumer in ended:
                del self._consumers[consumer]
            is_over = self._is_closing or self._reconnector is None
        for consumer in ended:
            consumer.end_for_good(f"{link.lost()}, and with it {consumer.options.destination}")
        events.CONNECTION_LOST.log(link.lost(), "" if is_over else "; reconnecting")
        if self._reconnector is not None and not is_over:
            self._reconnector.start()
