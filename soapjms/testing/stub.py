"""A service that answers as a test says, and knows what was to come and did not, and what came instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Condition, Event
from types import TracebackType
from typing import Final, NamedTuple, Self

from lxml import etree

from brokers.connection import Connection
from brokers.message import Message
from brokers.naming import Names
from soapjms.answers import Answer
from soapjms.dispatcher import Dispatcher
from soapjms.observing import Begun, Ended, Observation
from soapjms.operations import Operation, Operations, Outcome
from soapjms.protocol.assertions import Setting
from soapjms.protocol.errors import SoapFaultError
from soapjms.protocol.names import DEFAULT_PROFILE, Profile
from soapjms.protocol.responding import RequestAccepted, RequestRefused, RespondingNode
from soapjms.protocol.uri import JmsUri
from soapjms.protocol.wsdl import Port
from soapjms.recorder import Recorder
from soapjms.request import Context, Request
from soapjms.service import Service
from soapjms.testing.expecting import Expectation, Expectations, Sequence, Where
from soapjms.testing.showing import message_shown
from soapjms.testing.traffic import PATIENCE, Followed, Traffic, UnderWay

PROBLEMS_SHOWN: Final = 5


class UnmetExpectationsError(AssertionError):
    """A stub did not get what it expected, or got something else; the text lists both, with the messages."""


class Problem(NamedTuple):
    """A request that fails the test, and why."""

    why: str
    message: Message


class StubService:
    """Stands in for a service in tests: `stub.expect("{urn:greeter}greetMe").respond("<…/>")`. Thread-safe.

    It serves from the start. What it does not expect it answers with a fault that says so; `verify` tells the test.
    In a `with` statement it is verified at the end, unless something was raised, and closed.

    Args:
        connection: to the broker; stays the caller's to close.
        uri: where requests come to: a `jms:` URI or the port of a WSDL.
        profile: the edition of the specification to judge and to write by.
        workers: requests answered at a time. With 1 they are taken in the order in which they came.
        strict: refuse what a liberal reader lets pass.
        names: JNDI names, for the variant jndi.
        recorder: writes every message that passes.
        patience: seconds that `verify` waits for what did not come yet.

    Attributes:
        uri: as it was given.
    """

    def __init__(
        self,
        connection: Connection,
        uri: str | JmsUri | Port,
        *,
        profile: Profile | str = DEFAULT_PROFILE,
        workers: int = 1,
        strict: bool = False,
        names: Names | None = None,
        recorder: Recorder | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.uri = uri
        self._patience = patience
        self._expected = Expectations()
        self._sequence: Sequence | None = None
        self._requests: list[Request] = []
        self._problems: list[Problem] = []
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
        self._pausing = recorder.under_way.pausing if isinstance(recorder, Traffic) else UnderWay().pausing
        self._dispatcher.start()

    def expect(self, name: str, where: Where | None = None) -> Expectation:
        """Expect a request, once unless the expectation says otherwise; see there for its answer.

        Of several for one name, the first that is not complete takes a request.

        Args:
            name: of the element in its SOAP body, in Clark notation: `{namespace}local`.
            where: called with the `soapjms.Request`: whether it is meant. It returns quickly. What it raises fails the
                test.

        Raises:
            UsageError: it is no name.
        """
        made = Expectation(name, where, self._dispatcher.setting.profile, self._sequence)
        with self._changed:
            self._expected.all.append(made)
        return made

    @contextmanager
    def in_sequence(self) -> Iterator[Self]:
        """Expect what is said within this `with` statement in its order, and the rest in any.

        A stub with more than one worker may take requests in another order than they came.
        """
        outer, self._sequence = self._sequence, Sequence()
        try:
            yield self
        finally:
            self._sequence = outer

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests that came so far, also unexpected ones, but for those that break a rule of the binding."""
        with self._changed:
            return tuple(self._requests)

    def verify(self, timeout: float | None = None) -> None:
        """Assert that all came that was expected, and nothing else. May be called again.

        Args:
            timeout: seconds to wait for what did not come yet; None for the stub's patience. With everything there, or
                something unexpected, it does not wait.

        Raises:
            UnmetExpectationsError: it is not so.
        """
        seconds = self._patience if timeout is None else timeout
        with self._changed:
            self._changed.wait_for(lambda: self._problems or not self._expected.missing(), seconds)
        self._under_way.wait(seconds)
        problem = self.problem()
        if problem:
            raise UnmetExpectationsError(problem)

    def problem(self) -> str:
        """Say what is not as expected at this moment; empty if all is."""
        with self._changed:
            missing, problems = self._expected.missing(), list(self._problems)
        if not missing and not problems:
            return ""
        lines = [f"the stub at {self._dispatcher.destination} did not get what was expected"]
        if missing:
            lines += ["never came:", *(f"  {each}" for each in missing)]
        if problems:
            lines.append("came, and was not to:")
        for each in problems[:PROBLEMS_SHOWN]:
            lines.append(f"  {each.why}\n{message_shown(each.message)}")
        if len(problems) > PROBLEMS_SHOWN:
            lines.append(f"  and {len(problems) - PROBLEMS_SHOWN} more")
        return "\n".join(lines)

    def close(self) -> None:
        """Take no more requests; what is delayed is answered at once. Idempotent."""
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
            self._problems.append(Problem(why, message))
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
        except BaseException as error:  # an assertion of the test's that does not hold, too
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
    """A service with an operation for whatever comes, which understands every header block."""

    def __init__(self, answer: Operation, empty: Callable[[Message], None]) -> None:
        super().__init__()
        self._answer_any = answer
        self._note_empty = empty

    def perform(self, accepted: RequestAccepted, context: Context) -> Outcome:
        """Have the stub answer, by the rules that hold for every service."""
        _, _, header, _ = accepted.envelope
        blocks = () if header is None else header.iterchildren(etree.Element)
        service, element = Service(understands=[str(each.tag) for each in blocks]), accepted.envelope.content
        if element is None:
            self._note_empty(accepted.message)
        else:
            service.operation(str(element.tag))(self._answer_any)
        return service.perform(accepted, context)


class _Watch(UnderWay):
    """Notes requests that end without having reached the stub, as they break a rule, or are expired."""

    def __init__(self, note: Callable[[str, Message], None]) -> None:
        super().__init__()
        self.note = note
        self.setting = Setting()

    def begun(self, begun: Begun) -> Observation:
        """Follow a request."""
        self.add(1)
        return _Watched(self, begun)


class _Watched(Followed):
    """One request at a stub."""

    def __init__(self, watch: _Watch, begun: Begun) -> None:
        super().__init__(watch, begun)
        self._watch = watch
        self._arrived = False

    def working(self) -> AbstractContextManager[object]:
        """Note that it reaches the stub."""
        self._arrived = True
        return super().working()

    def ended(self, ended: Ended) -> None:
        """Note what became of it, if it did not."""
        message = self.begun.message
        if not self._arrived and message is not None:
            event = RespondingNode(self._watch.setting).receive(message)
            broken = (
                f": {event.subcode or 'no SOAP envelope'}: {event.reason}" if isinstance(event, RequestRefused) else ""
            )
            self._watch.note(f"a message that no service is given ({ended.outcome}){broken}", message)
        super().ended(ended)
