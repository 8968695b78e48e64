"""A service: which function answers which request, and what a function gets and may return.

No broker in here: a `Dispatcher` runs a service over a connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from lxml import etree

from brokers.message import Message, Properties
from soapjms.answers import Answer, Prepared, fault_of, prepared, service_failed
from soapjms.coroutines import Loop, refuse_in_a_loop
from soapjms.idempotency import NO_STORE, Claim, Unstored
from soapjms.policy import DEFAULT, Policy
from soapjms.protocol.assertions import Verdict
from soapjms.protocol.attachments import Attachments
from soapjms.protocol.envelope import Blame, Envelope, build_fault
from soapjms.protocol.errors import InvalidAttachmentError, SoapFaultError, UsageError
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.responding import RequestAccepted
from soapjms.protocol.showing import named
from soapjms.protocol.understanding import must_understand_fault, not_understood
from soapjms.protocol.wsdl import Port
from soapjms.routing import Route, Routes, element_name

if TYPE_CHECKING:
    from soapjms.typed import TypedService

log = logging.getLogger("soapjms.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as a function of a service gets it: the element in the SOAP body, and what came with it.

    Attributes:
        element: the first element of the SOAP body; the Body itself if it is empty.
        envelope: the SOAP envelope.
        message: the JMS message.
        soap_action: SOAPJMS_soapAction, None if it did not come.
        target_service: SOAPJMS_targetService, None if it did not come.
        one_way: nobody waits for a response; what the function returns is dropped.
        delivery_count: 1 for the first delivery; where the broker does not tell, how often the store saw the request
            begun; None without a store.
        redelivered: the request may have been worked on before.
        deadline: JMSExpiration in epoch milliseconds: after it nobody waits; None if the request never expires.
        attachments: the parts that came along.
        tolerated: the rules that the request breaks, and was let pass; each verdict names its assertion.
        accepted: what the node made of it, which `notes` comes from.
        claim: the right to work on it, which `transaction` comes from.
    """

    element: etree._Element
    envelope: Envelope
    message: Message
    soap_action: str | None
    target_service: str | None
    one_way: bool
    delivery_count: int | None
    redelivered: bool
    deadline: int | None
    attachments: Attachments
    tolerated: tuple[Verdict, ...]
    accepted: RequestAccepted = field(repr=False, compare=False)
    claim: Claim = field(repr=False, compare=False)

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """The habits of other stacks that the request shows, which break nothing: each a code and a text.

        Looked for when asked, and anew each time.
        """
        return self.accepted.notes

    @property
    def transaction(self) -> Any:
        """The transaction of the store's own database that is committed together with the request: happens once.

        With a `SqliteStore` it is a `sqlite3.Connection` to the store's file, for tables of the service's own. What is
        written is kept if the function returns, a fault too, and undone if it raises. From the first use until the
        function returns nobody else writes to the file: use it late, and call no other service after that.

        Raises:
            UsageError: there is no store, nothing tells this request from its redelivery, or the function is `async`.
            StoreError: the store cannot be written now.
        """
        refuse_in_a_loop("request.transaction")
        return self.claim.transaction

    @property
    def name(self) -> str:
        """The element's name in Clark notation: `{namespace}local`."""
        return str(self.element.tag)

    @property
    def properties(self) -> Properties:
        """The properties of the JMS message."""
        return self.message.properties

    def find(self, path: str) -> etree._Element | None:
        """Find an element below the request's; see lxml."""
        return self.element.find(path)

    def findtext(self, path: str, default: str | None = None) -> str | None:
        """Return the text of an element below the request's; see lxml."""
        return self.element.findtext(path, default)


Operation: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]
F = TypeVar("F", bound=Callable[[Any], Any])


@dataclass(frozen=True, slots=True)
class Context:
    """What a request's delivery adds to it; see `Request`."""

    delivery_count: int | None = None
    redelivered: bool = False
    claim: Claim = field(default_factory=lambda: Unstored(NO_STORE).begin())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running a function came to.

    Attributes:
        prepared: the answer.
        failure: what left the function, if the answer is not the function's own.
        keeps_effects: the function returned, so what it wrote stands.
    """

    prepared: Prepared
    failure: BaseException | None = None
    keeps_effects: bool = False


class Match(NamedTuple):
    """What a request is for.

    Attributes:
        service: that has the operation.
        route: the operation; None if there is none.
        problem: why there is none.
    """

    service: Service
    route: Route | None
    problem: str = ""


class Service:
    """Functions by what they answer: SOAP action and element. Register them before a dispatcher runs the service.

    Args:
        policy: what becomes of a request whose function fails, for operations that do not say it themselves.
        understands: SOAP header blocks that the functions process, in Clark notation, `{namespace}*` for all of a
            namespace. Any other that says mustUnderstand is answered with that fault.
        roles: URIs of what the service acts as beside the ultimate receiver; SOAP 1.1 calls them actors.

    Attributes:
        port: the port of the WSDL that it was made from; None for one that was not.

    Raises:
        UsageError: an argument is not as it must be.
    """

    port: Port | None = None

    def __init__(
        self, *, policy: Policy = DEFAULT, understands: Collection[str] = (), roles: Collection[str] = ()
    ) -> None:
        self._routes = Routes()
        self._policy = _policy(policy)
        self._understands, self._roles = _texts("understands", understands), _texts("roles", roles)
        self._loop = Loop()

    @classmethod
    def from_wsdl(
        cls,
        wsdl: str | Path,
        port: str | None = None,
        *,
        policy: Policy = DEFAULT,
        understands: Collection[str] = (),
        roles: Collection[str] = (),
        validate: bool = True,
        loader: Any = None,
    ) -> TypedService:
        """Make a service of a WSDL 1.1, whose functions take Python values and return them.

        Args:
            wsdl: the path of its file.
            port: its name, or SERVICE/PORT; the only SOAP/JMS port where it is None.
            policy, understands, roles: see `Service`.
            validate: hold requests and answers to the WSDL's schemas; False goes by the types alone.
            loader: fetches what is no local file, such as a `zeep.Transport()`; without one that is refused.

        Raises:
            InvalidWsdlError: the WSDL or a schema cannot be read or used.
            UsageError: there is no such port, or more than one; another argument is not as it must be.
            ImportError: zeep is not installed.
        """
        from soapjms.typed import TypedService
        from soapjms.typed.description import described

        found = described(wsdl, port, validate=validate, loader=loader)
        return TypedService(found, policy=policy, understands=understands, roles=roles)

    def operation(self, name: str, *, action: str | None = None, policy: Policy | None = None) -> Callable[[F], F]:
        """Register the decorated function for requests whose body element is called `name`. It may be `async`.

        Args:
            name: in Clark notation, `{namespace}local`.
            action: the SOAP action of such requests. Then one of them with the action of another operation is refused,
                and several operations may have the same element.
            policy: what becomes of a request for which it fails; the service's where it is None.

        Raises:
            UsageError: name and action are taken, or are none; what is decorated is no function.
        """
        if not isinstance(name, str):
            raise UsageError(f"operation takes the name of an element, not {name!r}: @service.operation(NAME)")
        try:
            name = etree.QName(name).text
        except ValueError:
            raise UsageError(f"{name!r} is no name of an element; write it {{namespace}}local") from None
        chosen = self._chosen(policy)
        return self._registering(lambda function: Route(name, name, action, function, function, chosen))

    def _registering(self, route: Callable[[Callable[..., Any]], Route]) -> Callable[[F], F]:
        """Make the decorator."""

        def register(function: F) -> F:
            if not callable(function):
                raise UsageError(f"@service.operation(NAME) decorates a function, not {function!r}")
            self._routes.add(route(function))
            return function

        return register

    def _chosen(self, policy: Policy | None) -> Policy:
        return self._policy if policy is None else _policy(policy)

    @property
    def operations(self) -> Mapping[str, Callable[..., Any]]:
        """The functions by name; of several with one element the last."""
        return {each.name: each.function for each in self._routes}

    def find(self, accepted: RequestAccepted) -> Match:
        """Find the operation that a request is for; see `soapjms.routing`."""
        found = self._routes.find(element_name(accepted.envelope.content), accepted.soap_action)
        return Match(self, found) if isinstance(found, Route) else Match(self, None, found)

    def knows_action(self, action: str | None) -> bool:
        """Say whether an operation is registered with this SOAP action."""
        return self._routes.knows_action(action)

    def policy_for(self, accepted: RequestAccepted) -> Policy:
        """Return what holds for a request."""
        service, route, _ = self.find(accepted)
        return service._policy if route is None else route.policy

    def operation_of(self, accepted: RequestAccepted) -> str:
        """Return the name of the operation that a request is for; empty if there is none."""
        route = self.find(accepted).route
        return "" if route is None else route.name

    def answer(self, accepted: RequestAccepted, context: Context | None = None) -> Prepared:
        """Run the function for a request and return the envelope to answer with and what goes along; never raises."""
        return self.perform(accepted, context or Context()).prepared

    def perform(self, accepted: RequestAccepted, context: Context) -> Outcome:
        """Run the function for a request; never raises.

        A SoapFaultError that the function raises or returns becomes a fault, an attachment of the request that it could
        not read a fault of the sender. Anything else that leaves it, SystemExit too, is logged, and is a failure with
        a fault of the receiver that tells nothing of it.
        """
        version = accepted.envelope.version
        try:
            return self._answer(version, accepted, context)
        except BaseException as error:
            log.exception("the function for %s failed", named(element_name(accepted.envelope.content)))
            return Outcome((service_failed(version), ()), failure=error)

    def _answer(self, version: SoapVersion, accepted: RequestAccepted, context: Context) -> Outcome:
        service, route, problem = self.find(accepted)
        understands = service._understands if route is None else service._understands | route.understands
        blocks = not_understood(accepted.envelope, understands, service._roles)
        if blocks:
            return Outcome((must_understand_fault(version, blocks), ()))
        returned = False
        try:
            if route is None:
                raise SoapFaultError(problem, blame=Blame.SENDER)
            answer = service._run(route, accepted, context)
            returned = True
            return Outcome(prepared(version, answer), keeps_effects=True)
        except SoapFaultError as error:
            if accepted.one_way:
                log.warning("a one-way message is answered with a fault, which goes to nobody: %s", error)
            return Outcome((fault_of(version, error), ()), keeps_effects=returned)
        except InvalidAttachmentError as error:
            return Outcome((build_fault(version, str(error)), ()))

    def _run(self, route: Route, accepted: RequestAccepted, context: Context) -> Answer:
        element = accepted.envelope.content
        request = Request(
            element=accepted.envelope.body if element is None else element,
            envelope=accepted.envelope,
            message=accepted.message,
            soap_action=accepted.soap_action,
            target_service=accepted.target_service,
            one_way=accepted.one_way,
            delivery_count=context.delivery_count,
            redelivered=context.redelivered,
            deadline=accepted.message.expiration or None,
            attachments=accepted.attachments,
            tolerated=accepted.tolerated,
            accepted=accepted,
            claim=context.claim,
        )
        answer: Answer = self._awaited(route.run(request), request)
        return answer

    def _awaited(self, result: Any, request: Request) -> Any:
        """Return a function's result; that of an `async` one is awaited until the request expires."""
        if not isawaitable(result):
            return result
        left = None if request.deadline is None else max(0.0, request.deadline / 1000 - time.time())
        return self._loop.run(result, left)


def _policy(policy: Policy) -> Policy:
    if not isinstance(policy, Policy):
        raise UsageError(f"policy is {policy!r}; it is a soapjms.Policy, as in Policy(retries=3)")
    return policy


def _texts(name: str, given: Collection[str]) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Collection) or not all(isinstance(each, str) for each in given):
        raise UsageError(f"{name} is {given!r}; it is a list of texts")
    return frozenset(given)
