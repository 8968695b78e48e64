"""A stub of a service: it answers as a test says, and reports expected requests that did not come and unexpected ones.

Expectations and answers need neither a broker nor a thread; `StubService` has the connection, its threads and the
verification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from math import inf
from threading import Condition, Event
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from lxml import etree

from brokers.arguments import not_negative, plain_answer
from brokers.connection import Connection
from brokers.message import Message
from brokers.naming import Names
from soapjms.capture.recorder import Recorder
from soapjms.observing import Begun, Ended, Observation
from soapjms.protocol.assertions import Setting
from soapjms.protocol.envelope import build_fault
from soapjms.protocol.errors import SoapFaultError, SoapJmsError, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, Auto, Profile, ProfileName, Subcode, SubcodeName
from soapjms.protocol.responding import RequestRefused, RespondingNode
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port
from soapjms.protocol.xml import parse
from soapjms.reply import Answer, Reply
from soapjms.service.dispatcher import Dispatcher
from soapjms.service.operations import FunctionOutcome, Match, Operation, Operations
from soapjms.service.request import Request
from soapjms.service.service import Service
from soapjms.testing.traffic import SETTLE_SECONDS, SettlementObservation, SettlementObserver, Traffic, message_shown

Where: TypeAlias = Callable[[Request], object]
Function: TypeAlias = Callable[[Request], Answer]


class Expectation:
    """Requests that a stub expects, and its answer to them; made by `StubService.expect`.

    By default it expects one request, and answers at once with an empty SOAP body. Configure it before the request
    comes.

    Attributes:
        name: the name of the element in the SOAP body, in Clark notation.
        came: the number of requests that it has taken.
    """

    def __init__(self, name: str, where: Where | None, profile: Profile, sequence: Sequence | None = None) -> None:
        Service().operation(name)  # raises for an invalid name
        self.name = name
        self.came = 0
        self._where = where
        self._profile = profile
        self._sequence = sequence
        self._least, self._most = 1, 1.0
        self._seconds = 0.0
        self._function: Function = _nothing
        self._is_over = False
        if sequence is not None:
            sequence.steps.append(self)

    # Answers

    def respond(self, content: Answer | Function | str | bytes = None) -> Self:
        """Answer with an element for the SOAP body.

        Args:
            content: an lxml element, or its XML as text or octets; a whole envelope; a `soapjms.Reply` with attachments
                or headers; a `soapjms.SoapFaultError`; None for an empty body; or a function that gets the
                `soapjms.Request` and returns any of these but text and octets. If the function raises anything but a
                SoapFaultError, the test fails.

        Raises:
            UsageError: `content` is something else, or is not well-formed XML.
        """
        if isinstance(content, str | bytes):
            content = _parsed(content)
        if iscoroutinefunction(content):
            raise UsageError(f"content must be a plain function, not an async one, got {content!r}")
        if callable(content):
            self._function = content
            return self
        if content is not None and not isinstance(content, etree._Element | SoapFaultError | Reply):
            raise UsageError(
                f"content must be an element or its XML, a Reply, a SoapFaultError, None or a function, got {content!r}"
            )
        answer = content
        self._function = lambda request: answer
        return self

    def fault(self, subcode: Subcode | SubcodeName, reason: str = "the stub was told to answer so") -> Self:
        """Answer with a fault of the binding, such as `missingContentType`, in the shape of the stub's profile.

        For a fault of the application pass a `soapjms.SoapFaultError` to `respond`.

        Raises:
            UsageError: the profile has no such subcode.

        Spec: SOAP/JMS 2.8.
        """
        if subcode not in self._profile.subcodes:
            known = ", ".join(sorted(self._profile.subcodes))
            raise UsageError(
                f"subcode must be one of {self._profile.name}, got {str(subcode)!r}; they are: {known}. "
                "For a fault of the application use respond(soapjms.SoapFaultError(…))"
            )
        wanted = Subcode(subcode)
        self._function = lambda request: build_fault(
            request.envelope.version, reason, profile=self._profile, subcode=wanted
        )
        return self

    def delay(self, seconds: float) -> Self:
        """Delay the answer by `seconds`. The end of the test does not wait for it.

        A stub with one worker, the default, takes no other request meanwhile.

        Raises:
            UsageError: `seconds` is not a finite number of at least 0.
        """
        self._seconds = not_negative(seconds, "seconds")
        return self

    # Number of requests

    def times(self, number: int) -> Self:
        """Expect exactly `number` requests; with 0 a request that comes is reported with this expectation.

        Raises:
            UsageError: `number` is not an integer of at least 0.
        """
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise UsageError(f"number must be an integer of at least 0, got {number!r}")
        self._least, self._most = number, number
        return self

    def any_times(self) -> Self:
        """Accept any number of requests, including none."""
        self._least, self._most = 0, inf
        return self

    # For the stub

    @property
    def is_met(self) -> bool:
        """Whether all required requests have come."""
        return self.came >= self._least

    def refusal(self, request: Request) -> str | None:
        """Return the reason why this does not take a request of its name, or None if it does."""
        if self._is_over:
            return f"{self} is over, as a later one in the sequence came"
        if self.came >= self._most:
            return f"{self} is complete"
        if self._where is not None and not plain_answer(self._where(request), "where"):
            return f"{self} does not take this request: its `where` returned false"
        waiting = None if self._sequence is None else self._sequence.before(self)
        return None if waiting is None else f"{self} must come after {waiting} in a sequence"

    def take(self) -> None:
        """Count a request, and close all earlier expectations of the sequence."""
        self.came += 1
        if self._sequence is not None:
            for step in self._sequence.steps[: self._sequence.steps.index(self)]:
                step._is_over = True

    def answer(self, request: Request, wait: Callable[[float], object]) -> Answer:
        """Make the answer, after the delay."""
        if self._seconds:
            wait(self._seconds)
        return self._function(request)

    def __str__(self) -> str:
        often = "any number of times" if self._most == inf else _times(self._least)
        return f"{self.name} (expected {often}, came {_times(self.came)})"


@dataclass(slots=True)
class Sequence:
    """Expectations that must be met one after the other."""

    steps: list[Expectation] = field(default_factory=list)

    def before(self, step: Expectation) -> Expectation | None:
        """Return the first unmet expectation before `step`, or None if it is the turn of `step`."""
        return next((each for each in self.steps[: self.steps.index(step)] if not each.is_met), None)


class Expectations:
    """All expectations of one stub. Not thread-safe."""

    def __init__(self) -> None:
        self.all: list[Expectation] = []

    def take(self, request: Request) -> Expectation | str:
        """Return the first expectation that takes a request, or the reason why none does."""
        reasons = []
        for each in self.all:
            if each.name == request.name:
                refusal = each.refusal(request)
                if refusal is None:
                    each.take()
                    return each
                reasons.append(refusal)
        if reasons:
            return "; ".join(reasons)
        names = ", ".join(dict.fromkeys(each.name for each in self.all))
        return f"expected are: {names}" if names else "nothing is expected"

    def missing(self) -> list[Expectation]:
        """Return the expectations that are not met yet."""
        return [each for each in self.all if not each.is_met]


WORDS: Final = {0: "never", 1: "once", 2: "twice"}


def _times(number: int) -> str:
    return WORDS.get(number) or f"{number} times"


def _nothing(request: Request) -> None:
    return None


def _parsed(content: str | bytes) -> etree._Element:
    try:
        return parse(content)
    except ValueError as error:
        raise UsageError(f"content must be an element or its XML, got text that is not well-formed: {error}") from None


PROBLEMS_SHOWN: Final = 5


class UnmetExpectationsError(SoapJmsError, AssertionError):
    """A stub did not receive expected requests, or received others; the text lists both, with the messages."""


class RequestProblem(NamedTuple):
    """A request that fails the test, and why."""

    why: str
    message: Message


class StubService:
    """Stands in for a service in tests: `stub.expect("{urn:greeter}greetMe").respond("<…/>")`. Thread-safe.

    It serves from the start. It answers an unexpected request with a fault that says so, and `verify` reports it.
    A `with` statement verifies it at the end, unless an exception was raised, and closes it.

    Args:
        connection: the connection to the broker; the caller closes it.
        uri: the destination of requests: a `jms:` URI or the port of a WSDL.
        profile: the edition of the specification to judge and write by.
        workers: number of requests answered concurrently. With 1 they are answered in the order of arrival.
        strict: whether to refuse requests that a lenient reader accepts.
        names: JNDI names, for the variant jndi.
        recorder: the recorder for all messages.
        patience: seconds that `verify` waits for missing requests.

    Attributes:
        uri: the URI or port that was given.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        *,
        profile: Profile | ProfileName | Auto = DEFAULT_PROFILE,
        workers: int = 1,
        strict: bool = False,
        names: Names | None = None,
        recorder: Recorder | None = None,
        patience: float = SETTLE_SECONDS,
    ) -> None:
        self.uri = uri
        self._patience = patience
        self._expected = Expectations()
        self._sequence: Sequence | None = None
        self._requests: list[Request] = []
        self._problems: list[RequestProblem] = []
        self._changed = Condition()
        self._closing = Event()
        self._under_way = _Watch(self._note)
        self._dispatcher = Dispatcher(
            connection,
            uri,
            _Answers(self._answer, lambda message: self._note("its SOAP body is empty", message)),
            workers=workers,
            profile=profile,
            strict=strict,
            names=names,
            recorder=recorder,
            observer=[self._under_way, *([recorder.under_way] if isinstance(recorder, Traffic) else [])],
        )
        self._under_way.setting = self._dispatcher.setting
        self._pausing = recorder.under_way.pausing if isinstance(recorder, Traffic) else SettlementObserver().pausing
        self._dispatcher.start()

    def expect(self, name: str, where: Where | None = None) -> Expectation:
        """Expect a request, by default once; the returned expectation sets the number and the answer.

        If several expectations have the same name, the first that is not complete takes the request.

        Args:
            name: the name of the element in the SOAP body, in Clark notation: `{namespace}local`.
            where: called with the `soapjms.Request`; returns whether the expectation takes it. It must return quickly.
                If it raises, the test fails.

        Raises:
            UsageError: `name` is not a valid name.
        """
        made = Expectation(name, where, self._dispatcher.setting.profile, self._sequence)
        with self._changed:
            self._expected.all.append(made)
        return made

    @contextmanager
    def in_sequence(self) -> Iterator[Self]:
        """Expect the requests declared inside this `with` statement in that order; others may come in any order.

        A stub with more than one worker may take requests in another order than that of arrival.
        """
        outer, self._sequence = self._sequence, Sequence()
        try:
            yield self
        finally:
            self._sequence = outer

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests received so far, including unexpected ones, except those that break a rule of the binding."""
        with self._changed:
            return tuple(self._requests)

    def verify(self, timeout: float | None = None) -> None:
        """Assert that all expected requests came, and no others. May be called again.

        Args:
            timeout: seconds to wait for missing requests; None for the stub's patience. It does not wait if nothing is
                missing, or if something unexpected came.

        Raises:
            UnmetExpectationsError: a request is missing, or an unexpected one came.
        """
        seconds = self._patience if timeout is None else timeout
        with self._changed:
            self._changed.wait_for(lambda: self._problems or not self._expected.missing(), seconds)
        self._under_way.wait(seconds)
        problem = self.problem()
        if problem:
            raise UnmetExpectationsError(problem)

    def problem(self) -> str:
        """Describe the missing and the unexpected requests at this moment; empty if there are none."""
        with self._changed:
            missing, problems = self._expected.missing(), list(self._problems)
        if not missing and not problems:
            return ""
        lines = [f"the stub at {self._dispatcher.destination} did not receive what was expected"]
        if missing:
            lines += ["missing:", *(f"  {each}" for each in missing)]
        if problems:
            lines.append("unexpected:")
        for each in problems[:PROBLEMS_SHOWN]:
            lines.append(f"  {each.why}\n{message_shown(each.message)}")
        if len(problems) > PROBLEMS_SHOWN:
            lines.append(f"  and {len(problems) - PROBLEMS_SHOWN} more")
        return "\n".join(lines)

    def close(self) -> None:
        """Stop taking requests; delayed answers are sent at once. Idempotent."""
        self._closing.set()
        self._dispatcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.verify()
        finally:
            self.close()

    # Requests

    def _note(self, why: str, message: Message) -> None:
        with self._changed:
            self._problems.append(RequestProblem(why, message))
            self._changed.notify_all()

    def _answer(self, request: Request) -> Answer:
        try:
            found = self._take(request)
        except BaseException as error:
            self._note(f"{request.name}: its `where` failed: {error!r}", request.message)
            raise
        if isinstance(found, str):
            self._note(f"{request.name}: {found}", request.message)
            raise SoapFaultError(f"the stub did not expect {request.name}: {found}")
        try:
            return found.answer(request, self._wait)
        except SoapFaultError:
            raise
        except BaseException as error:  # including a failed assertion of the test
            self._note(f"{request.name}: the function that answers it failed: {error!r}", request.message)
            raise

    def _take(self, request: Request) -> Expectation | str:
        with self._changed:
            self._requests.append(request)
            found = self._expected.take(request)
            self._changed.notify_all()
        return found

    def _wait(self, seconds: float) -> None:
        with self._under_way.pausing(), self._pausing():
            self._closing.wait(seconds)


class _Answers(Operations):
    """A service with an operation for any request, which understands every header block."""

    def __init__(self, answer: Operation, empty: Callable[[Message], None]) -> None:
        super().__init__()
        self._answer_any = answer
        self._note_empty = empty

    def perform(self, request: Request, match: Match | None = None) -> FunctionOutcome:
        """Let the stub answer, by the rules of every service."""
        header = request.envelope.header
        blocks = () if header is None else header.iterchildren(etree.Element)
        service, element = Service(understands=[str(each.tag) for each in blocks]), request.envelope.content
        if element is None:
            self._note_empty(request.message)
        else:
            service.operation(str(element.tag))(self._answer_any)
        return service.perform(request)


class _Watch(SettlementObserver):
    """Notes requests that never reach the stub because they break a rule or have expired."""

    def __init__(self, note: Callable[[str, Message], None]) -> None:
        super().__init__()
        self.note = note
        self.setting = Setting()

    def begun(self, begun: Begun) -> Observation:
        """Follow a request."""
        self.add(1)
        return _Watched(self, begun)


class _Watched(SettlementObservation):
    """One request at a stub."""

    def __init__(self, watch: _Watch, begun: Begun) -> None:
        super().__init__(watch, begun)
        self._watch = watch
        self._arrived = False

    def working(self) -> AbstractContextManager[object]:
        """Note that the request has reached the stub."""
        self._arrived = True
        return super().working()

    def ended(self, ended: Ended) -> None:
        """Note the outcome of the request if it has not reached the stub."""
        message = self.begun.message
        if not self._arrived and message is not None:
            event = RespondingNode(self._watch.setting).receive(message)
            broken = (
                f": {event.subcode or 'no SOAP envelope'}: {event.reason}" if isinstance(event, RequestRefused) else ""
            )
            self._watch.note(f"a message that is not passed to a service ({ended.outcome}){broken}", message)
        super().ended(ended)
