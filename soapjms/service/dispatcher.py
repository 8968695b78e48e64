"""`Dispatcher`: takes requests from a connection, has them run, and has them accepted and answered together.

Each worker has its own subscription, so a slow request does not hold up the others. Workers are in `worker.py`, commits
in `committer.py`; this file has the life of a dispatcher: counting open requests, taking no more once it closes, and
waiting for the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Condition, Lock
from time import monotonic
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self, TypedDict

from brokers.adapter.redelivery import MAX_DELIVERIES
from brokers.adapter.wait import when_connected
from brokers.arguments import at_least_one, destination_name, finite, switch, time_to_close
from brokers.connection import Connection, ConnectionState, Delivery, SendResult, stop
from brokers.errors import ClosedError
from brokers.message import Destination, Message, queue
from brokers.naming import Names
from brokers.threads.thread import Thread
from brokers.threads.timer import left
from soapjms import events
from soapjms.capture.recorder import Recorder
from soapjms.destinations import VARIANTS, ReplyRule, destination_of, require_carried
from soapjms.observing import Health, Observer, Observers, Outcome, Place, Side
from soapjms.ping import DEFAULT_TIMEOUT, BrokerClock, Pinger
from soapjms.protocol.assertions import Setting
from soapjms.protocol.errors import PingFailedError, UsageError
from soapjms.protocol.limits import DEFAULT_LIMITS, Limits
from soapjms.protocol.names import DEFAULT_PROFILE, Auto, Profile, ProfileName
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.values import Value
from soapjms.protocol.wsdl import Port
from soapjms.protocol.wsdl.model import read_uri
from soapjms.security import Verify
from soapjms.service.committer import Committer
from soapjms.service.multiplex import surrounded
from soapjms.service.operations import Middleware, Operations, service_to_run
from soapjms.service.store.base import Store
from soapjms.service.store.sqlite import SqliteStore
from soapjms.service.work import Subscription
from soapjms.service.worker import Worker
from soapjms.tally import Tally
from soapjms.validation import connection_to, durable_on, edition, option

if TYPE_CHECKING:
    from soapjms.service.event_loop import LoopTasks


class OpenRequests:
    """Counts requests from their delivery until they are settled. Thread-safe.

    Attributes:
        number: the number of open requests.
        is_closing: True if no more are taken.
        is_over: True once those that are left are given up.
    """

    def __init__(self) -> None:
        self.number = 0
        self.is_closing = self.is_over = False
        self._lock = Lock()
        self._ended = Condition(self._lock)
        self._since = 0.0
        self._given_up = 0

    def begin(self, subscription: Subscription) -> bool:
        """Count one more; return False if no more are taken."""
        with self._lock:
            if not self.is_closing:
                if not self.number:
                    self._since = monotonic()
                self.number += 1
                subscription.open += 1
            return not self.is_closing

    def end(self, subscriptions: Iterable[Subscription]) -> None:
        """Count requests that were settled or left to the broker, by their subscriptions."""
        with self._lock:
            for subscription in subscriptions:
                self.number -= 1
                subscription.open -= 1
            self._since = monotonic()
            if self.is_closing:
                self._ended.notify_all()

    @property
    def stalled(self) -> float:
        """Seconds since a request last ended while others are open; 0 while none is."""
        with self._lock:
            return monotonic() - self._since if self.number else 0.0

    def close(self) -> bool:
        """Take no more; return False if it was closed before."""
        with self._lock:
            was_closing, self.is_closing = self.is_closing, True
            return not was_closing

    def wait(self, seconds: float) -> bool:
        """Wait up to so many seconds, after `close`, for all requests to end; say whether they did before `give_up`."""
        with self._ended:
            self._ended.wait_for(lambda: self.is_over or not self.number, seconds)
            return not (self._given_up if self.is_over else self.number)

    def give_up(self) -> None:
        """End all waits."""
        with self._ended:
            self.is_over, self._given_up = True, self.number
            self._ended.notify_all()

    def next_idle(self, subscriptions: Collection[Subscription]) -> list[Subscription]:
        """Wait, after `close`, until some of these have no open request, and return them; all of them if given up."""
        with self._ended:
            self._ended.wait_for(lambda: self.is_over or not all(each.open for each in subscriptions))
            return [each for each in subscriptions if self.is_over or not each.open]


SUPPORTED: Final = frozenset(VARIANTS)


STALLED_SECONDS: Final = 60.0

START_TIMEOUT: Final = 30.0
"""Seconds that `Dispatcher.start` waits for a lost connection."""


class DispatcherArguments(TypedDict, total=False):
    """The options of a `Dispatcher`, for those that make one; see there."""

    workers: int
    prefetch: int
    transactional: bool
    store: Store | str | Path | None
    max_deliveries: int
    dead_letters: str | None
    reply_queues: bool | Collection[str]
    reply_topics: bool | Collection[str]
    durable: str | None
    middleware: Iterable[Middleware]
    verify: Verify | None
    profile: Profile | ProfileName | Auto
    strict: bool
    properties: Mapping[str, Value]
    names: Names | None
    recorder: Recorder | None
    observer: Observer | Iterable[Observer] | None
    limits: Limits
    stalled_after: float


class Dispatcher:
    """Serves the requests that come to a `jms:` URI or a WSDL's port. A `with` statement starts and closes it.

    `with soapjms.Dispatcher(connection, "jms:queue:greeter", service): …` serves until the block ends.

    Args:
        connection: the connection to the broker; the caller closes it.
        uri: the URI that requests come to, with any binding properties as parameters, or a WSDL's port.
        service: the service that answers the requests.
        workers: number of requests run at a time, each with its own subscription. A topic has one worker, as each
            subscription would get, and answer, a copy of every request.
        prefetch: requests that the broker may hand to a worker before the first is accepted. More than 1 makes
            requests wait behind a slow one, and over STOMP makes each commit slower than the one before.
        transactional: accept a request and send its answer in one transaction, if the broker has transactions. False
            accepts it once the broker has the answer: faster, but a process that dies in between leaves the request
            unaccepted, so that it is answered twice.
        store: remembers finished requests, so that a request that is delivered again is answered and not run again: a
            `SqliteStore`, which the caller closes, or the path of its file. Without a store it is run again.
        max_deliveries: a request that was delivered this often and never finished becomes a dead letter. The store
            counts the deliveries, or else the broker; without either they are not counted. A request also becomes a
            dead letter if its answer ended the connection this often, as an answer above a limit of the broker may.
        dead_letters: the queue for requests that cannot be run, with the reason as properties. None for the broker's
            own dead-letter destination; over STOMP the reason is only logged then.
        reply_queues: the queues that a request may name as its JMSReplyTo: True for any queue, or a list of names.
            Temporary destinations are always allowed; the broker's own queues and the served one never.
        reply_topics: likewise the topics (Protocol-2070); none by default. A request with a JMSReplyTo that is not
            allowed becomes a dead letter.
        durable: the name of a durable subscription, for a topic: messages sent while no dispatcher runs are delivered
            later. It belongs to the client id of the connection, and ends with `connection.unsubscribe`.
        middleware: functions `(request, call_next)` around the service and its own middleware, the outermost first.
        verify: says who sent a request, before all middleware; see `Service`.
        profile: the edition of the specification to follow; "auto" for that of a WSDL's port.
        strict: refuse deviations that a liberal reader tolerates.
        properties: binding properties that take precedence over those of the URI.
        names: JNDI names, for the variant jndi.
        recorder: writes every message to a capture log.
        observer: one observer or several, told what happens; see docs/observing.md.
        limits: the limits for reading a request.
        stalled_after: seconds after which `health` is not ready if all workers are busy and none has finished a
            request. Choose it longer than the longest function takes.

    Attributes:
        counts: counts of what happened; see docs/serving.md.

    Raises:
        InvalidUriError, InvalidPropertyError, UsageError: the URI or another argument is not valid.
        StoreError: the file of the store cannot be used.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        service: Operations,
        *,
        workers: int = 4,
        prefetch: int = 1,
        transactional: bool = True,
        store: Store | str | Path | None = None,
        max_deliveries: int = MAX_DELIVERIES,
        dead_letters: str | None = None,
        reply_queues: bool | Collection[str] = True,
        reply_topics: bool | Collection[str] = False,
        durable: str | None = None,
        middleware: Iterable[Middleware] = (),
        verify: Verify | None = None,
        profile: Profile | ProfileName | Auto = DEFAULT_PROFILE,
        strict: bool = False,
        properties: Mapping[str, Value] = MappingProxyType({}),
        names: Names | None = None,
        recorder: Recorder | None = None,
        observer: Observer | Iterable[Observer] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        stalled_after: float = STALLED_SECONDS,
    ) -> None:
        self._connection, wanted = connection_to(connection), at_least_one(workers, "workers")
        parsed, effective = read_uri(uri, option(properties, "properties", Mapping))
        self.destination: Destination = destination_of(parsed, option(names, "names", Names) or Names(), effective)
        self._stalled_after, limits = finite(stalled_after, "stalled_after"), option(limits, "limits", Limits)
        strict, transactional = switch(strict, "strict"), switch(transactional, "transactional")
        self.setting = Setting(profile=edition(profile, uri), variants=SUPPORTED, strict=strict, limits=limits)
        self._durable = durable_on(self._connection, self.destination, durable)
        self._workers = 1 if self.destination.kind.is_topic else wanted
        self._service = to_run = surrounded(service_to_run(service), middleware, verify)
        replies = ReplyRule.of(reply_queues, reply_topics)
        letters, recorder = dead_letter_queue(dead_letters, self.destination), option(recorder, "recorder", Recorder)
        self._prefetch, deliveries = at_least_one(prefetch, "prefetch"), at_least_one(max_deliveries, "max_deliveries")
        self._observers = Observers.of(observer, Place(Side.SERVICE, self.destination))
        self.counts = (tally := Tally(self._observers)).counts
        self._under_way = OpenRequests()
        self._committer = Committer(
            connection, tally, recorder, letters, self._under_way.end, transactional=transactional
        )
        self._own_store = SqliteStore(store) if isinstance(store, str | Path) else None  # last: it must be closed
        self._store = self._own_store or store_to_use(store)
        self._pinger, self._clock = Pinger(connection), BrokerClock(connection)
        self._worker = Worker(to_run, self.setting, self._committer, self._store, replies, self._clock, deliveries)
        self._subscriptions: list[Subscription] = []
        self._telling, self._told, self._is_started = Lock(), 0, False  # `_told`: subscriptions the observers know

    @property
    def under_way(self) -> int:
        """Number of requests that are being run or wait for their commit."""
        return self._under_way.number

    @property
    def subscriptions(self) -> tuple[int, int]:
        """Number of subscriptions at the broker, and the number there should be: one for each worker."""
        if self._connection.state is not ConnectionState.CONNECTED or self._under_way.is_closing:
            return 0, self._workers
        return sum(not each.consumer.problem for each in self._subscriptions), self._workers

    def start(self, timeout: float = START_TIMEOUT, *, tasks: LoopTasks | None = None) -> Self:
        """Subscribe, and return once requests are being taken. Waits for a lost connection to be restored.

        Args:
            timeout: seconds to wait for the connection to be restored.
            tasks: runs `async` functions, for `AsyncDispatcher`; None for the loop of each service.

        Raises:
            UsageError: the dispatcher was started before.
            ClosedError: the dispatcher was closed meanwhile.
            ConnectionLostError: the connection was not restored in time, or never will be.
            BrokerError: a subscription was refused.
        """
        until = monotonic() + finite(timeout)
        if self._subscriptions or self._under_way.is_closing:
            raise UsageError("a dispatcher must be started only once; make a new one")
        if isinstance(self._store, SqliteStore) and not self._connection.is_local:
            events.STORE_ONE_MACHINE.log(self._store.path)
        if missing := self._service.missing:
            events.SERVICE_INCOMPLETE.log(self.destination, ", ".join(missing))
        self._worker.tasks = tasks
        self._worker.on_shutdown = self._close_at_shutdown
        self._committer.start()
        try:
            self._connection.watch(self._on_state)
            self._clock.now(until)  # compared before the first request comes
            for _ in range(self._workers):
                subscription = when_connected(self._connection, until, self._subscribe, self._given_up)
                self._subscriptions.append(subscription)
                if self._given_up():  # `close` may have listed the subscriptions before this one was added
                    stop(subscription.consumer)
                    raise ClosedError("the dispatcher was closed while it started")
        except BaseException:
            self.close()
            raise
        self._is_started = True
        if self._observers is not None:
            self._observers.started()
            self._tell_subscriptions()
        return self

    def _given_up(self) -> str:
        return "the dispatcher was closed" if self._under_way.is_closing else ""

    def _subscribe(self) -> Subscription:
        subscription = Subscription()
        subscription.consumer = self._connection.consume(
            self.destination,
            partial(self._on_delivery, subscription),
            prefetch=self._prefetch,
            durable_name=self._durable,
            quick=True,
            on_refused=self._on_refused,
            on_problem=self._on_problem,
        )
        return subscription

    def ping(self, timeout: float = DEFAULT_TIMEOUT) -> float:
        """Send a message through the broker and back, and return the seconds that it took.

        Raises:
            PingFailedError: the message did not come back within `timeout` seconds, or there is no connection.
        """
        return self._pinger.ping(timeout)

    def health(self, timeout: float = DEFAULT_TIMEOUT) -> Health:
        """Return the health of the dispatcher, after a ping that may take `timeout` seconds."""
        problem, round_trip = self._problem(), None
        if not problem:
            try:
                round_trip = self.ping(timeout)
            except PingFailedError as error:
                problem = str(error)
        live = self._connection.state is not ConnectionState.CLOSED and (
            self._committer.is_alive or not self._is_started or self._under_way.is_closing
        )
        stalled = round(self._under_way.stalled, 1)
        health = Health(live, not problem, problem, self.under_way, round_trip, *self.subscriptions, stalled)
        if self._observers is not None:
            self._observers.health_checked(health)
        return health

    def _problem(self) -> str:
        """Say why the dispatcher takes no requests, without asking the broker; empty if it does."""
        if self._under_way.is_closing or not self._is_started:
            return "it was closed" if self._under_way.is_closing else "it was not started"
        state = self._connection.state
        if state is not ConnectionState.CONNECTED:
            return f"the connection is {state}"
        gone = [each.consumer.problem for each in self._subscriptions if each.consumer.problem]
        if gone:
            return f"{len(gone)} of {self._workers} subscriptions to {self.destination} have ended: {gone[0]}"
        stalled = self._under_way.stalled
        if self.under_way >= self._workers and stalled > self._stalled_after:
            return f"all {self._workers} workers are at work, and none has finished anything for {stalled:.0f} s"
        return self._worker.problem

    def close(self, deadline: float = 10.0) -> bool:
        """Take no more requests, finish the open ones within `deadline` seconds, and unsubscribe. Idempotent.

        Each worker unsubscribes once it has no open request, so that the broker gives what comes to others. The broker
        delivers unfinished requests again, also those that wait to be tried again. Return whether all open requests
        were finished. Returns in time even if the broker does not answer; the remaining subscriptions end when it does,
        or with the connection. A second call waits likewise, or returns what the first one did.

        Raises:
            UsageError: `deadline` is not a finite number; nothing is closed then.
        """
        seconds = time_to_close(deadline)
        until = monotonic() + seconds
        if not self._under_way.close():
            return self._under_way.wait(seconds)
        self._worker.closing.set()
        leaving = Thread(target=self._leave, name="soapjms-leaving", daemon=True)
        leaving.start()
        try:
            self._under_way.wait(seconds)
        finally:  # even after a KeyboardInterrupt
            self._under_way.give_up()
            self._committer.too_late = True
            self._connection.unwatch(self._on_state)
            leaving.join(left(until))
            self._committer.close(left(until))
            if self._own_store is not None:
                self._own_store.close()
        return self._under_way.wait(0)

    def _close_at_shutdown(self) -> None:
        """Close, on another thread, as the interpreter is shutting down: functions fail that would not otherwise."""
        events.DISPATCHER_SHUTDOWN.log(self.destination)
        Thread(target=self.close, name="soapjms-leaving", daemon=True).start()

    def _leave(self) -> None:
        """Unsubscribe, each worker once it has no open request."""
        if self._observers is not None:
            self._tell_subscriptions("the dispatcher was closed")
        subscribed = self._subscriptions.copy()
        while subscribed:
            for subscription in self._under_way.next_idle(subscribed):
                subscribed.remove(subscription)
                stop(subscription.consumer)
        self._committer.comebacks.close()
        self._pinger.close()

    def _on_state(self, state: ConnectionState) -> None:
        if self._under_way.is_closing:
            return
        if self._observers is not None:
            self._observers.connection_changed(state)
            self._tell_subscriptions(f"the connection is {state}")
        if state is ConnectionState.CLOSED:
            events.DISPATCHER_CLOSED.log(self.destination)
        elif state is ConnectionState.LOST:
            events.DISPATCHER_LOST.log(self.destination)
        else:
            self._committer.comebacks.note_connected()
            events.DISPATCHER_RESTORED.log(self.destination)

    def _on_problem(self, problem: str) -> None:
        """Log that the broker ended a subscription, or that one was restored."""
        if self._under_way.is_closing:
            return
        if self._observers is not None:
            self._tell_subscriptions(problem)
        live, wanted = self.subscriptions
        if problem:
            events.DISPATCHER_SUBSCRIPTIONS_LOST.log(live, wanted, self.destination, problem)
        else:
            events.DISPATCHER_SUBSCRIPTIONS_RESTORED.log(live, wanted, self.destination)

    def _tell_subscriptions(self, problem: str = "") -> None:
        """Tell the observers how the number of subscriptions changed."""
        with self._telling:
            change = self.subscriptions[0] - self._told
            self._told += change
            if change and self._observers is not None:
                self._observers.subscriptions_changed(change, problem if change < 0 else "")

    def _on_refused(self, message: Message, reason: str) -> None:
        """Answer a request that was not read, as it is above the limit: the broker makes it a dead letter."""
        self._committer.tally.add("too large")
        events.REQUEST_UNREAD.log(message.correlation_id, reason)
        if self._observers is not None:
            self._observers.received(message, redelivered=bool(message.redelivered)).end(Outcome.DEAD_LETTER)
        response = self._worker.unread(message, f"the request was not read: {reason}")[1]
        if response is not None:
            self._connection.send(response, timeout=DEFAULT_TIMEOUT).add_done_callback(_note_unsent)

    def __repr__(self) -> str:
        live, wanted = self.subscriptions
        at_work = f"{live} of {wanted} subscriptions, {self.under_way} under way"
        return f"<soapjms.Dispatcher of {self.destination}, {at_work}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _on_delivery(self, subscription: Subscription, delivery: Delivery) -> None:
        """Run one request, on the thread that delivers it."""
        if not self._under_way.begin(subscription):
            return  # the consumer is about to close, and releases the delivery
        try:
            finished = self._worker.work_on(delivery)
        except BaseException:
            self._under_way.end([subscription])
            raise
        if finished is None:  # the request was waiting when the dispatcher closed: the broker delivers it again
            self._under_way.end([subscription])
            return
        finished.subscription = subscription
        self._committer.put(finished)


def store_to_use(store: object) -> Store | None:
    """Return the store, or None.

    Raises:
        UsageError: `store` is neither.
    """
    if store is None or isinstance(store, Store):
        return store
    raise UsageError(f"store must be a soapjms.SqliteStore, the path of its file, or None, got {store!r}")


def dead_letter_queue(name: str | None, requests: Destination) -> Destination | None:
    """Return the queue for dead letters; None for the broker's own.

    Raises:
        UsageError: `name` is not a name, such as a URI, or names the queue that the requests come from.
    """
    if name is None:
        return None
    if not isinstance(name, str) or not name or name == requests.name:
        raise UsageError(f"dead_letters must be the name of a queue other than the served one, got {name!r}")
    return queue(require_carried("dead_letters", destination_name("dead_letters", name)))


def _note_unsent(sending: Future[SendResult]) -> None:
    error = sending.exception()
    if error is not None:
        events.ANSWER_UNREAD_FAILED.log(error)
