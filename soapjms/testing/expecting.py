"""What a stub expects, and how it answers: no broker, no thread in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from math import inf
from typing import Final, Self, TypeAlias

from lxml import etree

from soapjms.answers import Answer, Reply
from soapjms.protocol.envelope import build_fault
from soapjms.protocol.errors import SoapFaultError, UsageError
from soapjms.protocol.names import Profile, Subcode
from soapjms.protocol.xml import parse
from soapjms.request import Request
from soapjms.service import Service

Where: TypeAlias = Callable[[Request], object]
Function: TypeAlias = Callable[[Request], Answer]


class Expectation:
    """Requests that a stub expects, and its answer to them: made by `StubService.expect`.

    Unless told otherwise it expects one request, and answers at once with an empty SOAP body. Say all before the
    request comes.

    Attributes:
        name: of the element in the SOAP body, in Clark notation.
        came: how many requests it took.
    """

    def __init__(self, name: str, where: Where | None, profile: Profile, sequence: Sequence | None = None) -> None:
        Service().operation(name)  # which raises for what is no name
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

    # What to answer

    def respond(self, content: Answer | Function | str | bytes = None) -> Self:
        """Answer with an element for the SOAP body.

        Args:
            content: an lxml element, or one written as XML; a whole envelope; a `soapjms.Reply` with attachments or
                headers; a `soapjms.SoapFaultError`; None for an empty body; or a function that gets the
                `soapjms.Request` and returns any of these but text. What the function raises, but for a SoapFaultError,
                fails the test.

        Raises:
            UsageError: it is something else, or no XML.
        """
        if isinstance(content, str | bytes):
            content = _parsed(content)
        if iscoroutinefunction(content):
            raise UsageError(f"respond got {content!r}; a stub takes a function that is not async")
        if callable(content):
            self._function = content
            return self
        if content is not None and not isinstance(content, etree._Element | SoapFaultError | Reply):
            raise UsageError(
                f"respond got {content!r}; it takes an element or its XML, a Reply, a SoapFaultError, None, "
                "or a function"
            )
        answer = content
        self._function = lambda request: answer
        return self

    def fault(self, subcode: Subcode | str, reason: str = "the stub was told to answer so") -> Self:
        """Answer with a fault of the binding, such as `missingContentType`, in the shape of the stub's profile.

        A fault of the application is a `soapjms.SoapFaultError` for `respond`.

        Raises:
            UsageError: the profile has no such subcode.

        Spec: SOAP/JMS 2.8.
        """
        if subcode not in self._profile.subcodes:
            known = ", ".join(sorted(self._profile.subcodes))
            raise UsageError(
                f"{self._profile.name} has no fault {str(subcode)!r}; it has: {known}. "
                "A fault of the application is respond(soapjms.SoapFaultError(…))"
            )
        wanted = Subcode(subcode)
        self._function = lambda request: build_fault(
            request.envelope.version, reason, profile=self._profile, subcode=wanted
        )
        return self

    def delay(self, seconds: float) -> Self:
        """Answer so many seconds late. The end of the test does not wait for it.

        A stub with one worker, as it has by default, looks at no other request meanwhile.

        Raises:
            UsageError: it is no finite number of seconds, at least 0.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < inf:
            raise UsageError(f"delay is {seconds!r}; it is a number of seconds, at least 0")
        self._seconds = seconds
        return self

    # How often

    def times(self, number: int) -> Self:
        """Expect exactly so many requests; 0 for none, which only shows its name if one comes.

        Raises:
            UsageError: it is no integer of at least 0.
        """
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise UsageError(f"times is {number!r}; it is an integer, at least 0")
        self._least, self._most = number, number
        return self

    def any_times(self) -> Self:
        """Take as many requests as come, also none."""
        self._least, self._most = 0, inf
        return self

    # For the stub

    @property
    def is_met(self) -> bool:
        """Whether all that has to come came."""
        return self.came >= self._least

    def refusal(self, request: Request) -> str | None:
        """Say why this does not take a request of its name, None if it does."""
        if self._is_over:
            return f"{self} is over, as what follows it in the sequence came"
        if self.came >= self._most:
            return f"{self} is complete"
        if self._where is not None and not self._where(request):
            return f"{self} does not want this one: its `where` says no"
        waiting = None if self._sequence is None else self._sequence.before(self)
        return None if waiting is None else f"{self} comes in a sequence after {waiting}"

    def take(self) -> None:
        """Count a request, and close what comes before this in its sequence."""
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
    """Expectations that are to be met one after the other."""

    steps: list[Expectation] = field(default_factory=list)

    def before(self, step: Expectation) -> Expectation | None:
        """Return the first that has to be met before `step`, None if it is its turn."""
        return next((each for each in self.steps[: self.steps.index(step)] if not each.is_met), None)


class Expectations:
    """All that one stub expects. Not thread-safe."""

    def __init__(self) -> None:
        self.all: list[Expectation] = []

    def take(self, request: Request) -> Expectation | str:
        """Return the first that takes a request, or why none does."""
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
        """Return those that are not met yet."""
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
        raise UsageError(f"respond got text that is no element: {error}") from None
