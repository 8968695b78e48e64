"""A service: which function answers which request, and what a function gets and may return.

No broker in here: a `Dispatcher` runs a service over a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

from lxml import etree

from brokers.message import Message, Properties
from soapjms.idempotency import NO_STORE, Claim, Unstored
from soapjms.policy import DEFAULT, Policy
from soapjms.protocol.assertions import Verdict
from soapjms.protocol.attachments import Attachment, Attachments
from soapjms.protocol.envelope import Blame, Envelope, as_envelope, build_fault, wrap
from soapjms.protocol.errors import InvalidAttachmentError, SoapFaultError, UsageError
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.responding import RequestAccepted
from soapjms.protocol.showing import named

log = logging.getLogger("soapjms.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as a function of a service gets it: the element in the SOAP body, and what came with it.

    Attributes:
        element: the first element of the SOAP body.
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
            UsageError: there is no store, or nothing tells this request from its redelivery.
            StoreError: the store cannot be written now.
        """
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


Content: TypeAlias = etree._Element | SoapFaultError | None
"""An element for the SOAP body (or a whole Envelope), a fault, or None for an empty body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with attachments: sent as MTOM if it has an `xop:Include`, else as SwA.

    Attributes:
        content: what a function without attachments would return.
        attachments: what goes along.
    """

    content: Content
    attachments: Sequence[Attachment] = ()


Answer: TypeAlias = Content | Reply
"""What a function may return."""

Prepared: TypeAlias = tuple[etree._Element, Sequence[Attachment]]
"""An envelope, and what goes along with it."""

Operation: TypeAlias = Callable[[Request], Answer]
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


class Service:
    """Functions by the name of the element that they answer. Register them before a dispatcher runs the service.

    Args:
        policy: what becomes of a request whose function fails, for operations that do not say it themselves.
    """

    def __init__(self, *, policy: Policy = DEFAULT) -> None:
        self._operations: dict[str, Operation] = {}
        self._policies: dict[str, Policy] = {}
        self._policy = _policy(policy)

    def operation(self, name: str, *, policy: Policy | None = None) -> Callable[[F], F]:
        """Register the decorated function for requests whose body element is called `name`.

        Args:
            name: in Clark notation, `{namespace}local`.
            policy: what becomes of a request for which it fails; the service's where it is None.

        Raises:
            UsageError: the name is taken, or is no name; what is decorated is no function, or an `async` one.
        """
        if not isinstance(name, str):
            raise UsageError(f"operation takes the name of an element, not {name!r}: @service.operation(NAME)")
        try:
            name = etree.QName(name).text
        except ValueError:
            raise UsageError(f"{name!r} is no name of an element; write it {{namespace}}local") from None
        if name in self._operations:
            raise UsageError(f"the operation {name} is registered already, as {self._operations[name]}")
        chosen = self._policy if policy is None else _policy(policy)

        def register(function: F) -> F:
            if not callable(function) or iscoroutinefunction(function):
                raise UsageError(f"the operation {name} is {function!r}; it is a function, and not an async one")
            self._operations[name] = function
            self._policies[name] = chosen
            return function

        return register

    @property
    def operations(self) -> Mapping[str, Operation]:
        """The functions by name."""
        return dict(self._operations)

    def policy_for(self, accepted: RequestAccepted) -> Policy:
        """Return what holds for a request."""
        return self._policies.get(_name_of(accepted.envelope.content), self._policy)

    def operation_of(self, accepted: RequestAccepted) -> str:
        """Return the name of the operation that a request is for; empty if there is none of that name."""
        name = _name_of(accepted.envelope.content)
        return name if name in self._operations else ""

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
            log.exception("the function for %s failed", named(_name_of(accepted.envelope.content)))
            return Outcome((service_failed(version), ()), failure=error)

    def _answer(self, version: SoapVersion, accepted: RequestAccepted, context: Context) -> Outcome:
        returned = False
        try:
            answer = self._run(accepted, context)
            returned = True
            if isinstance(answer, Reply):
                return Outcome((as_envelope_of(version, answer.content), answer.attachments), keeps_effects=True)
            return Outcome((as_envelope_of(version, answer), ()), keeps_effects=True)
        except SoapFaultError as error:
            if accepted.one_way:
                log.warning("a one-way message is answered with a fault, which goes to nobody: %s", error)
            return Outcome((fault_of(version, error), ()), keeps_effects=returned)
        except InvalidAttachmentError as error:
            return Outcome((build_fault(version, str(error)), ()))

    def _run(self, accepted: RequestAccepted, context: Context) -> Answer:
        element = accepted.envelope.content
        operation = self._operations.get(_name_of(element))
        if element is None or operation is None:
            known = ", ".join(sorted(self._operations)) or "none"
            raise SoapFaultError(
                f"no operation for the element {named(_name_of(element)) or '(none)'}; there are: {known}",
                blame=Blame.SENDER,
            )
        return operation(
            Request(
                element=element,
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
        )


def _policy(policy: Policy) -> Policy:
    if not isinstance(policy, Policy):
        raise UsageError(f"policy is {policy!r}; it is a soapjms.Policy, as in Policy(retries=3)")
    return policy


def service_failed(version: SoapVersion) -> etree._Element:
    """Build the fault for a failure of the service itself: nothing of its insides, as the peer may be anybody."""
    return build_fault(version, "the service failed", blame=Blame.RECEIVER)


def _name_of(element: etree._Element | None) -> str:
    return "" if element is None else str(element.tag)


def as_envelope_of(version: SoapVersion, answer: Content) -> etree._Element:
    """Turn what a function returned into an envelope. An element is copied: the function may return it again.

    Raises:
        SoapFaultError: the function returned one.
        TypeError: it returned something else than an element, a fault or None; a comment is no element.
        ValueError: it returned an envelope of the other SOAP version, or one without Body.
    """
    if answer is None:
        return wrap(None, version)
    if isinstance(answer, SoapFaultError):
        raise answer
    if not isinstance(answer, etree._Element) or not isinstance(answer.tag, str):
        seen = type(answer).__name__
        raise TypeError(f"an operation returns an element, a SoapFaultError, None or a Reply, not {seen}")
    if answer.tag not in ENVELOPE_TAGS:
        return wrap(deepcopy(answer), version)
    if as_envelope(answer).version is not version:
        raise ValueError(f"the operation returned an envelope of another version than the request's SOAP {version}")
    return answer


ENVELOPE_TAGS: Final = frozenset(f"{{{version.namespace}}}Envelope" for version in SoapVersion)
DETAIL_TAGS: Final = frozenset({"detail", *(f"{{{version.namespace}}}Detail" for version in SoapVersion)})
SOAP_11_BLAMES: Final[Mapping[str, Blame]] = {"Client": Blame.SENDER, "Server": Blame.RECEIVER}


def fault_of(version: SoapVersion, error: SoapFaultError) -> etree._Element:
    """Build the envelope for a fault that a function raised or returned, perhaps one that it had received itself.

    A `detail` that is no element is logged and left out.
    """
    parts = _details(error.detail)
    blame = SOAP_11_BLAMES.get(error.blame) or Blame(error.blame)
    root = build_fault(version, error.reason, blame=blame, detail=parts[0] if parts else None)
    for earlier, part in pairwise(parts):
        earlier.addnext(part)
    return root


def _details(detail: object) -> list[etree._Element]:
    """Return copies of the elements that go into the fault's detail: of a fault received, those that were in its."""
    if detail is None:
        return []
    if not isinstance(detail, etree._Element):
        log.error("the detail of a fault is an element, not %r; it is left out", detail)
        return []
    found = detail.iterchildren(etree.Element) if detail.tag in DETAIL_TAGS else [detail]
    return [deepcopy(each) for each in found]
