"""The base of every service: operations by the requests they answer, with middleware around them.

`service.py` has the service whose functions take envelopes. No broker in here: a `Dispatcher` runs a service over a
connection.

A request is routed by its action, then by the element in its body. If operations are registered with the action, only
those are candidates, and the element decides among them. So a request is refused if its action and its element belong
to different operations. Without an action, or with an unknown one, the element alone decides. SOAPJMS_targetService
takes precedence over both; see `multiplex.py`.

Spec: SOAP/JMS 2.2.3 soapAction, targetService; WS-I Basic Profile 1.1 R2710.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar

from lxml import etree

from brokers.arguments import items
from soapjms import events
from soapjms.middleware import around, middleware_given
from soapjms.protocol.envelope import (
    Envelope,
    as_envelope,
    build_fault,
    must_understand_fault,
    not_understood,
    read_fault,
)
from soapjms.protocol.errors import (
    Blame,
    InvalidAttachmentError,
    RequestExpiredError,
    SoapFaultError,
    StoreError,
    UsageError,
)
from soapjms.protocol.responding import RequestAccepted
from soapjms.protocol.text import counted, named
from soapjms.protocol.wsa import (
    WSA_2005,
    Addressing,
    AddressingFault,
    mismatch,
    missing,
    read_addressing,
    stated_action,
)
from soapjms.protocol.wsdl import Port
from soapjms.reply import Answer, Prepared, fault_of, prepared, service_failed
from soapjms.security import Verify, VerifyMiddleware
from soapjms.service.request import DEFAULT, Policy, Request

if TYPE_CHECKING:
    from soapjms.service.event_loop import LoopTasks


@dataclass(frozen=True, slots=True)
class OperationRoute:
    """An operation, and the element and action that route to it.

    Attributes:
        name: the display name of the operation.
        element: the name of the element in the body, in Clark notation; empty for an empty body.
        action: the SOAP action, or None.
        function: the function, as it was registered.
        run: runs the function: takes a Request, returns an answer.
        policy: what becomes of a request for which the function fails.
        understands: the header blocks that the function processes, in Clark notation.
        reply_action: the WS-Addressing Action of its answers; None to derive it from the action of the request.
    """

    name: str
    element: str
    action: str | None
    function: Callable[..., Any]
    run: Callable[[Any], Any]
    policy: Policy
    understands: frozenset[str] = field(default=frozenset())
    reply_action: str | None = None


class Routes:
    """The operations of a service. Register them before requests come."""

    def __init__(self) -> None:
        self._by_element: dict[str, list[OperationRoute]] = {}
        self._by_action: dict[str, list[OperationRoute]] = {}

    def __iter__(self) -> Iterator[OperationRoute]:
        for each in self._by_element.values():
            yield from each

    def add(self, route: OperationRoute) -> None:
        """Add an operation.

        Raises:
            UsageError: this element and action are already registered.
        """
        for each in self._by_element.get(route.element, ()):
            if each.action == route.action:
                raise UsageError(f"the operation {route.name} is registered already, as {each.function}")
        self._by_element.setdefault(route.element, []).append(route)
        if route.action:
            self._by_action.setdefault(route.action, []).append(route)

    def knows_action(self, action: str | None) -> bool:
        """Say whether an operation has this action."""
        return action in self._by_action

    def find(self, element: str, action: str | None) -> OperationRoute | str:
        """Return the operation for a request, or a message that says why there is none."""
        by_action = self._by_action.get(action or "")
        candidates = by_action or self._by_element.get(element, [])
        found = [each for each in candidates if each.element == element]
        if len(found) == 1:
            return found[0]
        seen = named(element) or "(none)"
        if found:
            actions = ", ".join(repr(each.action) for each in found)
            return f"the element {seen} is of {len(found)} operations, which soapAction tells apart: {actions}"
        if by_action:
            wanted = ", ".join(each.element or "(none)" for each in by_action)
            return f"the soapAction {named(repr(action))} goes with the element {wanted}, and the body holds {seen}"
        return f"no operation for the element {seen}; there are: {', '.join(sorted(self._names())) or 'none'}"

    def _names(self) -> Iterator[str]:
        for each in self:
            yield each.name if each.name == each.element else f"{each.name} ({each.element or 'an empty body'})"


def element_name(element: etree._Element | None) -> str:
    """Return the name of an element in Clark notation; empty for None."""
    return "" if element is None else str(element.tag)


Required: TypeAlias = Literal["required"]
REQUIRED: Final = "required"

MAX_MATCHES: Final = 1024
"""Most pairs of element and action whose operations are remembered; a client may state any action."""

MAX_ACTION_CHARACTERS: Final = 1024
"""Maximum number of characters of an action that is remembered with its operation."""


class RoutableRequest(Protocol):
    """The parts of a request that decide its operation: a `Request`, or the event of a node that accepted one."""

    @property
    def envelope(self) -> Envelope:
        """The SOAP envelope."""

    @property
    def soap_action(self) -> str | None:
        """SOAPJMS_soapAction."""

    @property
    def target_service(self) -> str | None:
        """SOAPJMS_targetService."""


Middleware: TypeAlias = Callable[[Request, Callable[[Request], Prepared]], Answer]
Operation: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]
F = TypeVar("F", bound=Callable[[Any], Any])


class FunctionOutcome(NamedTuple):
    """The outcome of running a function.

    Attributes:
        prepared: the answer.
        failure: the exception that the function raised, if the answer is not the function's own.
        keeps_effects: True if the function returned, so that its writes are kept.
    """

    prepared: Prepared
    failure: BaseException | None = None
    keeps_effects: bool = False


_new_outcome: Final[Callable[[tuple[Any, ...]], FunctionOutcome]] = partial(tuple.__new__, FunctionOutcome)
"""Make an outcome of its parts, in half the time of `FunctionOutcome`."""


class Match(NamedTuple):
    """The operation of a request, or why there is none.

    Attributes:
        service: the service that has the operation.
        route: the operation, or None.
        problem: why there is no operation.
        blame: whose mistake that is.
    """

    service: Operations
    route: OperationRoute | None
    problem: str = ""
    blame: Blame = Blame.SENDER

    @property
    def policy(self) -> Policy:
        """The policy for the request: that of its operation, or of the service."""
        return self.service._policy if self.route is None else self.route.policy

    @property
    def operation(self) -> str:
        """The name of the operation; empty if there is none."""
        return "" if self.route is None else self.route.name

    @property
    def reply_action(self) -> str | None:
        """The WS-Addressing Action of the answer; None to derive it from the action of the request."""
        return None if self.route is None else self.route.reply_action

    def addressing_of(self, accepted: RequestAccepted) -> Addressing | AddressingFault | None:
        """Return the addressing headers of the request, or a fault for them; None if absent or not read here."""
        service = self.service
        if not service.addressing:
            return None
        found = read_addressing(accepted.envelope, service._roles)
        if found is None:
            return missing(WSA_2005, "Action") if service.addressing == REQUIRED else None
        return found if isinstance(found, AddressingFault) else mismatch(found, accepted.soap_action) or found


class ServiceArguments(TypedDict, total=False):
    """The options of a `Service`, for those that make one; see there."""

    policy: Policy
    understands: Collection[str]
    roles: Collection[str]
    middleware: Iterable[Middleware]
    verify: Verify | None
    addressing: bool | Required


class Operations:
    """The operations of a service and the settings they share; subclasses define how functions are registered.

    Attributes:
        port: the port of the WSDL that the service was made from, or None.
        addressing: whether WS-Addressing headers are read; "required" if a request must have them.
    """

    port: Port | None = None

    def __init__(
        self,
        *,
        policy: Policy = DEFAULT,
        understands: Collection[str] = (),
        roles: Collection[str] = (),
        middleware: Iterable[Middleware] = (),
        verify: Verify | None = None,
        addressing: bool | Required = False,
    ) -> None:
        self._routes = Routes()
        self._matches: dict[tuple[str, str | None], Match] = {}
        self._policy = _policy(policy)
        self._understands, self._roles = frozenset(items(understands, "understands")), frozenset(items(roles, "roles"))
        self.addressing = _addressing(addressing)
        self._middleware = middleware_given(middleware, is_async=False)
        if verify is not None:
            self._middleware = (VerifyMiddleware(verify, self._roles), *self._middleware)
        self._loop: LoopTasks | None = None
        self._loop_lock = Lock()

    def __repr__(self) -> str:
        at = "" if self.port is None else f" at the port {self.port.name}"
        return f"<soapjms.Service{at} with {counted(len(self.operations), 'operation')}>"

    def _registering(self, route: Callable[[Callable[..., Any]], OperationRoute]) -> Callable[[F], F]:
        """Make the decorator."""

        def register(function: F) -> F:
            if not callable(function):
                raise UsageError(f"@service.operation(NAME) must decorate a function, got {function!r}")
            self._routes.add(route(function))
            self._matches.clear()
            return function

        return register

    def _chosen(self, policy: Policy | None) -> Policy:
        return self._policy if policy is None else _policy(policy)

    @property
    def roles(self) -> frozenset[str]:
        """The roles of the service beside the ultimate receiver."""
        return self._roles

    @property
    def operations(self) -> Mapping[str, Callable[..., Any]]:
        """The functions by name; if several have the same name, the last one."""
        return {each.name: each.function for each in self._routes}

    @property
    def missing(self) -> tuple[str, ...]:
        """The operations of the WSDL that have no function; only a service that was made from a WSDL knows them."""
        return ()

    def find(self, asked: RoutableRequest) -> Match:
        """Find the operation that a request is for; see the module docstring for the rules."""
        envelope, action = asked.envelope, asked.soap_action
        if action is None and envelope.header is not None:
            action = stated_action(envelope)
        content = envelope.content
        asked_for = ("" if content is None else str(content.tag), action)
        match = self._matches.get(asked_for)
        if match is None:
            found = self._routes.find(*asked_for)
            if not isinstance(found, OperationRoute):
                return Match(self, None, found)
            match = Match(self, found)
            if len(action or "") <= MAX_ACTION_CHARACTERS:
                if len(self._matches) >= MAX_MATCHES:
                    self._matches.clear()
                self._matches[asked_for] = match
        return match

    def knows_action(self, action: str | None) -> bool:
        """Say whether an operation is registered with this SOAP action."""
        return self._routes.knows_action(action)

    def answer(self, accepted: RequestAccepted) -> Prepared:
        """Run the function for a request that a node accepted, and return the answer; never raises."""
        return self.perform(Request.of(accepted)).prepared

    def perform(self, request: Request, match: Match | None = None) -> FunctionOutcome:
        """Run the function for a request; never raises.

        A SoapFaultError that the function raises or returns becomes a fault; an attachment of the request that it could
        not read becomes a fault of the sender. Any other exception, SystemExit too, is logged and is a failure; the
        answer is a fault of the receiver that does not disclose it.

        Args:
            request: the request to answer.
            match: the result of `find` for the request; None if it was not called yet.
        """
        version = request.envelope.version
        try:
            try:
                if self._middleware:
                    made = self.process(request, match)
                else:
                    made = self._answered(request, match or self.find(request))
            except SoapFaultError as error:
                return FunctionOutcome(Prepared(_told(request, fault_of(version, error))))
            except InvalidAttachmentError as error:
                return FunctionOutcome(Prepared(build_fault(version, str(error))))
            if request.one_way:
                _told(request, made.envelope)
            return _new_outcome((made, None, True))
        except BaseException as error:
            is_cancelled = request.tasks is not None and request.tasks.was_cancelled(error)
            if not is_cancelled and not isinstance(error, StoreError):  # which the dispatcher logs, and runs it again
                _log_failure(request, error)
            return FunctionOutcome(Prepared(service_failed(version)), failure=error)

    def process(self, request: Request, match: Match | None = None) -> Prepared:
        """Answer a request through the middleware; see `perform`.

        Raises:
            SoapFaultError: the fault to answer with.
            Exception: any other error of the function or the middleware.
        """
        if not self._middleware:
            return self._process(request, match)
        last = partial(self._checked, match=match)
        return around(self._middleware, last, partial(_returned, request))(request)

    def _checked(self, request: Request, match: Match | None) -> Prepared:
        if not isinstance(request, Request):
            raise UsageError(f"call_next must be given the request, got {request!r}")
        return self._process(request, match)

    def _process(self, request: Request, match: Match | None) -> Prepared:
        if match is None or not request.is_as_it_came:
            match = self.find(request)
        return self._answered(request, match)

    def _answered(self, request: Request, match: Match) -> Prepared:
        service, route, problem, blame = match
        if service is not self:
            return service.process(request, match)
        envelope = request.envelope
        if envelope.header is not None:
            understands = self._understands | request.understood | (frozenset() if route is None else route.understands)
            if blocks := not_understood(envelope, understands, self._roles):
                return Prepared(must_understand_fault(envelope.version, blocks))
        if route is None:
            told = [] if request.addressing is None else [request.addressing.edition.tag("ActionNotSupported")]
            raise SoapFaultError(problem, blame=blame, subcodes=told if blame is Blame.SENDER else [])
        if request.stored is not None:
            request.stored.is_reached = True
            return request.stored.answer
        result = route.run(request)
        if type(result) is not etree._Element and isawaitable(result):
            result = self._awaited(result, request)
        return prepared(envelope.version, result)

    def _awaited(self, result: Awaitable[Any], request: Request) -> Any:
        """Await the result of an `async` function until the request expires, on the loop of an `AsyncDispatcher` if it
        came to one."""
        left = None if request.deadline is None else max(0.0, request.deadline / 1000 - time.time())
        if request.tasks is not None:
            return request.tasks.run(result, left)
        with self._loop_lock:
            if self._loop is None:
                from soapjms.service.event_loop import OwnLoop

                self._loop = OwnLoop()
        return self._loop.run(result, left)


def _returned(request: Request, answer: Answer) -> Prepared:
    """Return the answer that middleware gives to a request.

    Raises:
        TypeError, ValueError: it is not an answer. None is one for a one-way message only: else the middleware lacks a
            `return`, and the answer of the function would be lost.
    """
    if answer is None and not request.one_way:
        raise TypeError("middleware must return an answer, such as that of call_next; got None")
    return prepared(request.envelope.version, answer)


def _log_failure(request: Request, error: BaseException) -> None:
    """Log that a function failed, or was cancelled as its request expired, and which request it was."""
    message, operation = request.message, named(element_name(request.envelope.content))
    if isinstance(error, RequestExpiredError):
        events.OPERATION_EXPIRED.log(operation, str(message.destination), message.correlation_id)
    else:
        events.OPERATION_FAILED.log(operation, str(message.destination), message.correlation_id)


def _told(request: Request, root: etree._Element) -> etree._Element:
    """Log the fault for a one-way message, which nobody receives; return the answer."""
    if request.one_way and (fault := read_fault(as_envelope(root))) is not None:
        events.OPERATION_ONE_WAY_FAULT.log(fault.reason)
    return root


def action_of(asked: RoutableRequest) -> str | None:
    """Return the action that selects the operation of a request: SOAPJMS_soapAction, else that of WS-Addressing."""
    return asked.soap_action or stated_action(asked.envelope)


def _addressing(given: bool | Required) -> bool | Required:
    if isinstance(given, bool) or given == REQUIRED:
        return given
    raise UsageError(f"addressing must be True, False, or {REQUIRED!r}, got {given!r}")


def _policy(policy: Policy) -> Policy:
    if not isinstance(policy, Policy):
        raise UsageError(f"policy must be a soapjms.Policy, such as Policy(retries=3), got {policy!r}")
    return policy


def service_to_run(service: Operations) -> Operations:
    """Return the service.

    Raises:
        UsageError: `service` is not a service, but for example a function.
    """
    if not isinstance(service, Operations):
        raise UsageError(
            f"service must be a soapjms.Service, whose functions @service.operation(NAME) registers, got {service!r}"
        )
    return service
