"""Observers of calls, requests and connections: for metrics, traces or anything else.

A `Client` or `Dispatcher` without an `Observer` only checks whether it has one. Observers are called on the thread
where the event happens, which may be the one that reads the socket, so an observer must return quickly. An exception
in an observer is logged once and has no other effect.

`soapjms.prometheus` and `soapjms.opentelemetry` provide ready-made observers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from operator import methodcaller
from threading import Lock, current_thread, main_thread
from typing import Any, Final, Self, TypeVar

from brokers.connection import ConnectionState
from brokers.message import Destination, Message, Properties, PropertyValue, properties
from soapjms import events
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import Subcode
from soapjms.protocol.values import uncarried

T = TypeVar("T")

NOTHING: Final = Properties()
SUBCODES: Final = frozenset(map(str, Subcode))

NO_NAMES: Final = frozenset("NULL TRUE FALSE NOT AND OR BETWEEN LIKE IN IS ESCAPE".split())
"""Identifiers that must not name a property. Spec: JMS 1.1 3.8.1.1."""


def is_property_name(name: str) -> bool:
    """Say whether an application may use this property name: an ASCII identifier that JMS does not reserve.

    Spec: JMS 1.1 3.5.1.
    """
    return name.isascii() and name.isidentifier() and name.upper() not in NO_NAMES and not name.startswith("JMS")


class Side(StrEnum):
    """What is observed: a `Client` or a `Dispatcher`."""

    CLIENT = "client"
    SERVICE = "service"


class Outcome(StrEnum):
    """How a call, a one-way message or a request ended.

    A client's call: RESPONSE, FAULT, TIMEOUT, CANCELLED (its future was cancelled) or FAILED; its one-way message: SENT
    or FAILED. FAILED also covers an argument that is not an envelope.

    A service's request: RESPONSE or FAULT, once the broker has the answer; DONE, a one-way message was processed;
    REFUSED, a one-way message breaks a rule; EXPIRED, the request was skipped; DEAD_LETTER, whatever answer its caller
    got; UNDELIVERED, the broker refused the answer; LOST, the request was not accepted, and the broker delivers it
    again.
    """

    RESPONSE = "response"
    FAULT = "fault"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SENT = "sent"
    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"
    DEAD_LETTER = "dead-letter"
    UNDELIVERED = "undelivered"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Place:
    """The client or dispatcher that is observed: its side, and the destination of the messages it sends or receives."""

    side: Side
    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The beginning of a call, one-way message or request.

    Attributes:
        place: the client or dispatcher.
        one_way: whether no answer is expected.
        message: the message that a service received; None at a client, which is about to make it.
        correlation_id: JMSCorrelationID, or None.
        soap_action: the SOAP action of the message that a client is about to send, or None.
    """

    place: Place
    one_way: bool
    message: Message | None = None
    correlation_id: str | None = None
    soap_action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a call, one-way message or request.

    Attributes:
        outcome: how it ended.
        subcode: the subcode of a fault of the binding: one of `soapjms.Subcode`, or `other` if a peer made one up;
            empty for other faults, and without a fault.
        operation: at a service, the name of the operation in Clark notation; empty for an unknown name, so that a peer
            cannot make up any number of them.
        redelivered: whether the request was delivered before, as far as the broker or the store can tell.
        response: the message that a client received, or None.
        error: the exception that a call raises; None if it returns.
    """

    outcome: Outcome
    subcode: str = ""
    operation: str = ""
    redelivered: bool = False
    response: Message | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a dispatcher.

    Attributes:
        live: whether it can still serve; if not, the process must be restarted.
        ready: whether it takes requests now.
        problem: why it is not ready; empty if it is.
        under_way: number of requests that are being processed, or wait for their commit.
        round_trip: seconds that a message took through the broker; None if it did not come back.
        subscriptions: number of its workers' subscriptions that exist at the broker.
        workers: number of subscriptions that there should be, one for each worker.
        stalled: seconds since a request was last finished, while requests are under way.
    """

    live: bool
    ready: bool
    problem: str
    under_way: int
    round_trip: float | None
    subscriptions: int = 0
    workers: int = 0
    stalled: float = 0.0


class Observation:
    """One call, one-way message or request, as one observer follows it. Each method does nothing unless overridden."""

    def properties(self) -> Mapping[str, str]:
        """Return properties for the message that is sent: a client's request, or a service's answer.

        The names must be Java identifiers, as JMS demands. A property that the binding sets itself is dropped.
        """
        return {}

    def working(self) -> AbstractContextManager[object]:
        """Return a context manager for the service's function to run in, on its thread; called for each run."""
        return nullcontext()

    def failed(self, error: BaseException) -> None:
        """Note that the service's function failed; it may be run again."""

    def ended(self, ended: Ended) -> None:
        """Note the end; called once."""


class Observer:
    """Base class of observers. Each method does nothing unless overridden, and may be called on any thread."""

    def started(self, place: Place) -> None:
        """Note that a client or dispatcher starts; its connection is usable, or will be."""

    def begun(self, begun: Begun) -> Observation | None:
        """Note a call, one-way message or request that begins; return an observation to follow it, or None."""
        return None

    def counted(self, place: Place, what: str, times: int) -> None:
        """Note an event that `Client.counts` or `Dispatcher.counts` counts; `what` is one of our few names."""

    def connection_changed(self, place: Place, state: ConnectionState) -> None:
        """Note that the connection was lost, was made again, or is closed and stays so."""

    def subscriptions_changed(self, place: Place, change: int, problem: str) -> None:
        """Note by how many the dispatcher's subscriptions at the broker grew or, if negative, shrank, and why."""

    def health_checked(self, place: Place, health: Health) -> None:
        """Note the result of `Dispatcher.health`; `soapjms serve` asks for it once a second."""


def carried(observation: Observation) -> Properties:
    """Return the properties that a message is to carry for an observation.

    Raises:
        ValueError: JMS allows no property of this name, or no property can carry the value.
    """
    return application_properties(observation.properties())


def application_properties(values: Mapping[str, PropertyValue]) -> Properties:
    """Return message properties to send beside those of the binding.

    Raises:
        ValueError, TypeError: JMS allows no property of this name, or no property can carry the value.
    """
    for name, value in values.items():
        if not isinstance(name, str) or not is_property_name(name):
            raise ValueError(
                f"the name of a JMS property must be an identifier that does not begin with JMS, got {name!r}"
            )
        if isinstance(value, str) and (problem := uncarried(value)) is not None:
            raise ValueError(f"the property {name} is {value!r}, which holds {problem}: no message can carry that")
    return properties(values)


def entered(observation: Observation) -> Callable[..., object]:
    """Enter the context that an observation wants a function to run in; return the function that leaves it."""
    context = observation.working()
    leave = context.__exit__
    context.__enter__()
    return leave


class _Guard:
    """Calls observers, and logs their exceptions: once for each class of observer and each method."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()
        self._lock = Lock()

    def tell(self, of: object, method: str, *args: object) -> Any:
        """Call a method of the observer or observation `of`; return its result, or None if it fails."""
        return self.call(of, method, methodcaller(method, *args), of)

    def call(self, of: object, method: str, function: Callable[..., T], *args: object) -> T | None:
        """Call a function that calls a method of `of`; return its result, or None if it fails."""
        try:
            return function(*args)
        except BaseException as error:  # SystemExit too, which must not keep a request from running
            if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
                raise  # the user's
            self._log((type(of).__name__, method))
            return None

    def _log(self, name: tuple[str, str]) -> None:
        with self._lock:
            is_known = name in self._logged
            self._logged.add(name)
        if is_known:
            events.OBSERVER_FAILED_AGAIN.log(*name)
        else:
            events.OBSERVER_FAILED.log(*name)


class Observed:
    """One call, one-way message or request, for all observers. Only `end` is thread-safe.

    Attributes:
        outcome: how it ends unless `end` is given another outcome.
        subcode, operation, redelivered: see `Ended`.
    """

    __slots__ = ("_guard", "_observations", "operation", "outcome", "redelivered", "subcode")

    def __init__(self, guard: _Guard, observations: list[Observation], *, redelivered: bool) -> None:
        self._guard = guard
        self._observations = observations
        self.outcome = Outcome.LOST
        self.subcode = ""
        self.operation = ""
        self.redelivered = redelivered

    def properties(self) -> Properties:
        """Return the properties that its message is to carry for the observers."""
        found = NOTHING
        for each in self._observations:
            found = found.merged(self._guard.call(each, "properties", carried, each) or ())
        return found

    @contextmanager
    def working(self, *, redelivered: bool) -> Iterator[None]:
        """Run the body of the `with` statement in the observers' contexts; they cannot keep it from running."""
        self.redelivered = redelivered
        within = [(each, self._guard.call(each, "working", entered, each)) for each in self._observations]
        try:
            yield
        finally:
            for observation, leave in reversed(within):
                if leave is not None:
                    self._guard.call(observation, "working", leave, None, None, None)

    def fault(self, subcode: str | None) -> None:
        """Note the subcode of a fault; one that the binding does not define becomes `other`: peers may invent any."""
        self.subcode = "" if not subcode else str(subcode) if subcode in SUBCODES else "other"

    def failed(self, error: BaseException) -> None:
        """Tell the observers that the service's function failed."""
        for each in self._observations:
            self._guard.tell(each, "failed", error)

    def end(
        self, outcome: Outcome | None = None, *, response: Message | None = None, error: BaseException | None = None
    ) -> None:
        """Tell the observers of the end. Idempotent."""
        ended = Ended(
            outcome=outcome or self.outcome,
            subcode=self.subcode,
            operation=self.operation,
            redelivered=self.redelivered,
            response=response,
            error=error,
        )
        while self._observations:
            try:
                observation = self._observations.pop(0)
            except IndexError:  # another thread was quicker
                return
            self._guard.tell(observation, "ended", ended)


def observers_given(observer: Observer | Iterable[Observer] | None) -> tuple[Observer, ...]:
    """Return the observers that a caller gave: None, one, or several.

    Raises:
        UsageError: an item is not an Observer.
    """
    given = () if observer is None else (observer,) if isinstance(observer, Observer) else observer
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if not isinstance(each, Observer):
            raise UsageError(
                f"observer must be one or several Observers such as soapjms.prometheus.Metrics(), got {each!r}"
            )
    return found


class Observers:
    """The observers of one client or dispatcher."""

    def __init__(self, observers: tuple[Observer, ...], place: Place) -> None:
        self._observers = observers
        self._place = place
        self._guard = _Guard()

    @classmethod
    def of(cls, observer: Observer | Iterable[Observer] | None, place: Place) -> Self | None:
        """Make one from the caller's argument; return None if there are no observers.

        Raises:
            UsageError: an item is not an Observer.
        """
        found = observers_given(observer)
        return cls(found, place) if found else None

    def started(self) -> None:
        """Tell the observers that the client or dispatcher starts."""
        for each in self._observers:
            self._guard.tell(each, "started", self._place)

    def sending(self, *, one_way: bool, correlation_id: str | None, soap_action: str | None) -> Observed:
        """Tell the observers that a client is about to send."""
        return self._begin(
            Begun(place=self._place, one_way=one_way, correlation_id=correlation_id, soap_action=soap_action), False
        )

    def received(self, message: Message, *, redelivered: bool) -> Observed:
        """Tell the observers that a service received a message."""
        return self._begin(
            Begun(
                place=self._place,
                one_way=message.reply_to is None,
                message=message,
                correlation_id=message.correlation_id,
            ),
            redelivered,
        )

    def counted(self, what: str, times: int) -> None:
        """Tell the observers what was counted."""
        for each in self._observers:
            self._guard.tell(each, "counted", self._place, what, times)

    def connection_changed(self, state: ConnectionState) -> None:
        """Tell the observers the state of the connection."""
        for each in self._observers:
            self._guard.tell(each, "connection_changed", self._place, state)

    def subscriptions_changed(self, change: int, problem: str) -> None:
        """Tell the observers by how many the subscriptions at the broker changed."""
        for each in self._observers:
            self._guard.tell(each, "subscriptions_changed", self._place, change, problem)

    def health_checked(self, health: Health) -> None:
        """Tell the observers the health of the dispatcher."""
        for each in self._observers:
            self._guard.tell(each, "health_checked", self._place, health)

    def _begin(self, begun: Begun, redelivered: bool) -> Observed:
        found = [self._guard.tell(each, "begun", begun) for each in self._observers]
        return Observed(self._guard, [each for each in found if each is not None], redelivered=redelivered)
