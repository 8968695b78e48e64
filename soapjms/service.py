"""A service: which function answers which request, and what a function gets and may return.

No broker in here: a `Dispatcher` runs a service over a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from inspect import iscoroutinefunction
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

from lxml import etree

from brokers.message import Message, Properties
from soapjms.protocol.assertions import Verdict
from soapjms.protocol.attachments import Attachment, Attachments
from soapjms.protocol.envelope import Blame, Envelope, as_envelope, build_fault, wrap
from soapjms.protocol.errors import InvalidAttachmentError, SoapFaultError, UsageError
from soapjms.protocol.names import SoapVersion
from soapjms.protocol.responding import RequestAccepted

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
        delivery_count: 1 for the first delivery; None where the broker does not tell.
        deadline: JMSExpiration in epoch milliseconds: after it nobody waits; None if the request never expires.
        attachments: the parts that came along.
        tolerated: the rules that the request breaks, and was let pass; each verdict names its assertion.
    """

    element: etree._Element
    envelope: Envelope
    message: Message
    soap_action: str | None
    target_service: str | None
    one_way: bool
    delivery_count: int | None
    deadline: int | None
    attachments: Attachments
    tolerated: tuple[Verdict, ...] = ()

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


class Service:
    """Functions by the name of the element that they answer. Register them before a dispatcher runs the service."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}

    def operation(self, name: str) -> Callable[[F], F]:
        """Register the decorated function for requests whose body element is called `name`.

        Args:
            name: in Clark notation, `{namespace}local`.

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

        def register(function: F) -> F:
            if not callable(function) or iscoroutinefunction(function):
                raise UsageError(f"the operation {name} is {function!r}; it is a function, and not an async one")
            self._operations[name] = function
            return function

        return register

    @property
    def operations(self) -> Mapping[str, Operation]:
        """The functions by name."""
        return dict(self._operations)

    def answer(self, accepted: RequestAccepted, delivery_count: int | None = None) -> Prepared:
        """Run the function for a request and return the envelope to answer with and what goes along; never raises.

        A SoapFaultError that the function raises or returns becomes a fault, an attachment of the request that it could
        not read a fault of the sender. Anything else that leaves it, SystemExit too, is logged and becomes a fault of
        the receiver that tells nothing of it: the message would come again.
        """
        version = accepted.envelope.version
        try:
            return self._answer(version, accepted, delivery_count)
        except BaseException:
            log.exception("the function for %s failed", _name_of(accepted.envelope.content))
            return service_failed(version), ()

    def _answer(self, version: SoapVersion, accepted: RequestAccepted, delivery_count: int | None) -> Prepared:
        try:
            answer = self._run(accepted, delivery_count)
            if isinstance(answer, Reply):
                return as_envelope_of(version, answer.content), answer.attachments
            return as_envelope_of(version, answer), ()
        except SoapFaultError as error:
            if accepted.one_way:
                log.warning("a one-way message is answered with a fault, which goes to nobody: %s", error)
            return fault_of(version, error), ()
        except InvalidAttachmentError as error:
            return build_fault(version, str(error)), ()

    def _run(self, accepted: RequestAccepted, delivery_count: int | None) -> Answer:
        element = accepted.envelope.content
        operation = self._operations.get(_name_of(element))
        if element is None or operation is None:
            known = ", ".join(sorted(self._operations)) or "none"
            raise SoapFaultError(
                f"no operation for the element {_name_of(element) or '(none)'}; there are: {known}", blame=Blame.SENDER
            )
        return operation(
            Request(
                element=element,
                envelope=accepted.envelope,
                message=accepted.message,
                soap_action=accepted.soap_action,
                target_service=accepted.target_service,
                one_way=accepted.one_way,
                delivery_count=delivery_count,
                deadline=accepted.message.expiration or None,
                attachments=accepted.attachments,
                tolerated=accepted.tolerated,
            )
        )


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
