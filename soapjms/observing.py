"""Telling observers what happens to calls, requests and connections: for metrics, traces or anything else.

A `Client` or `Dispatcher` without an `Observer` only asks whether there is one. With some, each is told on the very
thread where it happens, which may be the one that reads the socket: an observer notes it and returns. An observer
that raises harms nobody: that is logged once.

`soapjms.prometheus` and `soapjms.opentelemetry` have the observers to use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Final, Self, TypeVar

from brokers.connection import ConnectionState
from brokers.message import Destination, Message, Properties, PropertyValue, properties
from soapjms.protocol.errors import UsageError
from soapjms.protocol.names import Subcode
from soapjms.protocol.values import uncarried

log = logging.getLogger("soapjms.observing")

T = TypeVar("T")

NOTHING: Final = Properties()
SUBCODES: Final = frozenset(map(str, Subcode))

NO_NAMES: Final = frozenset("NULL TRUE FALSE NOT AND OR BETWEEN LIKE IN IS ESCAPE".split())
"""Identifiers that are no names of properties. Spec: JMS 1.1 3.8.1.1."""


def is_property_name(name: str) -> bool:
    """Say whether an application may call a property so: an identifier, in ASCII, not of JMS itself.

    Spec: JMS 1.1 3.5.1.
    """
    return name.isascii() and name.isidentifier() and name.upper() not in NO_NAMES and not name.startswith("JMS")


class Side(StrEnum):
    """Who tells: a `Client` or a `Dispatcher`."""

    CLIENT = "client"
    SERVICE = "service"


class Outcome(StrEnum):
    """What a call, a one-way message or a request came to.

    A client's call: RESPONSE, FAULT, TIMEOUT, CANCELLED (its future was) or FAILED; its one-way message: SENT or
    FAILED. FAILED also if what was to be sent is no envelope.

    A service's request: RESPONSE or FAULT, once the broker has the answer; DONE, a one-way message was worked on;
    REFUSED, a one-way message breaks a rule; EXPIRED, it was skipped; DEAD_LETTER, whatever its caller was answered;
    UNDELIVERED, the broker would not take the answer; LOST, it was not accepted, and the broker delivers it again.
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
    """Who tells, and where the messages go that it sends or takes."""

    side: Side
    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A call, one-way message or request that begins.

    Attributes:
        place: of whom.
        one_way: nobody waits for an answer.
        message: what a service got; None at a client, which is about to make it.
        correlation_id: JMSCorrelationID, None for none.
        soap_action: of what a client is about to send, None for none.
    """

    place: Place
    one_way: bool
    message: Message | None = None
    correlation_id: str | None = None
    soap_action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How it ended.

    Attributes:
        outcome: what it came to.
        subcode: of a fault of the binding, one of `soapjms.Subcode`, or `other` if a peer made one up; empty for
            another fault, and for none.
        operation: at a service, the name of the operation in Clark notation; empty if there is none of that name, so
            that a peer cannot make up any number of them.
        redelivered: the request was delivered before, as far as broker or store tell.
        response: what a client got, None for nothing.
        error: what a call raises, None if it returns.
    """

    outcome: Outcome
    subcode: str = ""
    operation: str = ""
    redelivered: bool = False
    response: Message | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How a dispatcher is.

    Attributes:
        live: it can still serve; if not, only another process helps.
        ready: it takes requests now.
        problem: why it is not ready, empty if it is.
        under_way: requests that are being worked on, or wait for their commit.
        round_trip: seconds of a message through the broker, None if none came back.
        subscriptions: how many of its workers' subscriptions live at the broker.
        workers: how many there should be.
        stalled: seconds for which nothing was finished, though something is under way.
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
    """One call, one-way message or request, as one observer follows it. What a subclass leaves out does nothing."""

    def properties(self) -> Mapping[str, str]:
        """Return message properties for what is sent: a client's message, or a service's answer.

        The names are identifiers of Java, as JMS has it. One that the binding sets itself is dropped.
        """
        return {}

    def working(self) -> AbstractContextManager[object]:
        """Return what the service's function runs in, on its thread, each time that it is run."""
        return nullcontext()

    def failed(self, error: BaseException) -> None:
        """Take note that the service's function failed; it may be run again."""

    def ended(self, ended: Ended) -> None:
        """Take note of the end, which comes once."""


class Observer:
    """Is told what happens. What a subclass leaves out does nothing. Any number of threads may tell."""

    def started(self, place: Place) -> None:
        """Take note of a client or dispatcher that starts; its connection is usable, or will be."""

    def begun(self, begun: Begun) -> Observation | None:
        """Take note of what begins; return what follows it to its end, None for nobody."""
        return None

    def counted(self, place: Place, what: str, times: int) -> None:
        """Take note of what `Client.counts` or `Dispatcher.counts` counts; the names are few, and ours."""

    def connection_changed(self, place: Place, state: ConnectionState) -> None:
        """Take note that the connection was lost, was made again, or is closed for good."""

    def subscriptions_changed(self, place: Place, change: int, problem: str) -> None:
        """Take note that so many subscriptions more of a dispatcher live at the broker, or fewer, and why."""

    def health_checked(self, place: Place, health: Health) -> None:
        """Take note of what `Dispatcher.health` found; `soapjms serve` asks once a second."""


def carried(observation: Observation) -> Properties:
    """Return what a message is to carry for an observation.

    Raises:
        ValueError: JMS has no property of such a name, or no property carries the value.
    """
    return application_properties(observation.properties())


def application_properties(values: Mapping[str, PropertyValue]) -> Properties:
    """Return properties for a message beside those of the binding.

    Raises:
        ValueError, TypeError: JMS has no property of such a name, or no property carries the value.
    """
    for name, value in values.items():
        if not isinstance(name, str) or not is_property_name(name):
            raise ValueError(f"{name!r} is no name of a JMS property: an identifier that does not begin with JMS")
        if isinstance(value, str) and (problem := uncarried(value)) is not None:
            raise ValueError(f"the property {name} is {value!r}, which holds {problem}: no message carries that")
    return properties(values)


def entered(observation: Observation) -> AbstractContextManager[object]:
    """Enter what an observation wants a function to run in."""
    context = observation.working()
    context.__enter__()
    return context


class _Guard:
    """Calls observers, each of which may fail: that is logged once for each kind of them and each method."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()
        self._lock = Lock()

    def call(self, of: object, what: Callable[..., T], *args: object) -> T | None:
        """Call what is of an observer; return what it returns, None if it fails."""
        try:
            return what(*args)
        except Exception:
            self._log((type(of).__name__, what.__name__.strip("_")))
            return None

    def _log(self, name: tuple[str, str]) -> None:
        with self._lock:
            is_known = name in self._logged
            self._logged.add(name)
        if is_known:
            log.debug("the observer %s failed again in %s", *name, exc_info=True)
        else:
            log.exception("the observer %s failed in %s, and nothing else; again is logged as DEBUG only", *name)


class Observed:
    """One call, one-way message or request, for all observers. For one thread at a time, but for `end`.

    Attributes:
        outcome: what it comes to unless `end` says another.
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
        """Return what its message is to carry for the observers."""
        found = NOTHING
        for each in self._observations:
            found = found.merged(self._guard.call(each, carried, each) or ())
        return found

    @contextmanager
    def working(self, *, redelivered: bool) -> Iterator[None]:
        """Run what is within as the observers want it, who cannot keep it from running."""
        self.redelivered = redelivered
        within = [(each, self._guard.call(each, entered, each)) for each in self._observations]
        try:
            yield
        finally:
            for observation, context in reversed(within):
                if context is not None:
                    self._guard.call(observation, context.__exit__, None, None, None)

    def fault(self, subcode: str | None) -> None:
        """Note the subcode of a fault; a peer may make up any, so what the binding does not have becomes `other`."""
        self.subcode = "" if not subcode else str(subcode) if subcode in SUBCODES else "other"

    def failed(self, error: BaseException) -> None:
        """Tell that the service's function failed."""
        for each in self._observations:
            self._guard.call(each, each.failed, error)

    def end(
        self, outcome: Outcome | None = None, *, response: Message | None = None, error: BaseException | None = None
    ) -> None:
        """Tell the end; a second time does nothing."""
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
            self._guard.call(observation, observation.ended, ended)


def observers_given(observer: Observer | Iterable[Observer] | None) -> tuple[Observer, ...]:
    """Return what a caller gave as observers: none, one, or several.

    Raises:
        UsageError: it is something else.
    """
    given = () if observer is None else (observer,) if isinstance(observer, Observer) else observer
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if not isinstance(each, Observer):
            raise UsageError(
                f"observer is {each!r}; it is an Observer such as soapjms.prometheus.Metrics(), or several"
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
        """Make one of what the caller gave; None if nobody observes.

        Raises:
            UsageError: it is something else.
        """
        found = observers_given(observer)
        return cls(found, place) if found else None

    def started(self) -> None:
        """Tell that the client or dispatcher starts."""
        for each in self._observers:
            self._guard.call(each, each.started, self._place)

    def sending(self, *, one_way: bool, correlation_id: str | None, soap_action: str | None) -> Observed:
        """Tell that a client is about to send."""
        return self._begin(
            Begun(place=self._place, one_way=one_way, correlation_id=correlation_id, soap_action=soap_action), False
        )

    def received(self, message: Message, *, redelivered: bool) -> Observed:
        """Tell that a service got a message."""
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
        """Tell what was counted."""
        for each in self._observers:
            self._guard.call(each, each.counted, self._place, what, times)

    def connection_changed(self, state: ConnectionState) -> None:
        """Tell the state of the connection."""
        for each in self._observers:
            self._guard.call(each, each.connection_changed, self._place, state)

    def subscriptions_changed(self, change: int, problem: str) -> None:
        """Tell how many subscriptions more live."""
        for each in self._observers:
            self._guard.call(each, each.subscriptions_changed, self._place, change, problem)

    def health_checked(self, health: Health) -> None:
        """Tell how the dispatcher is."""
        for each in self._observers:
            self._guard.call(each, each.health_checked, self._place, health)

    def _begin(self, begun: Begun, redelivered: bool) -> Observed:
        found = [self._guard.call(each, each.begun, begun) for each in self._observers]
        return Observed(self._guard, [each for each in found if each is not None], redelivered=redelivered)
