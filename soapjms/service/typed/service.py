"""A service by its WSDL: functions get and return Python values, in the types of the WSDL.

The WS-Addressing actions of the answers of a WSDL's operations are here too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from lxml import etree

from soapjms.protocol.errors import Blame, BlameName, SoapFaultError, UsageError
from soapjms.protocol.wsdl import Description, Port
from soapjms.protocol.wsdl.write import NewPort
from soapjms.reply import Reply
from soapjms.service.operations import (
    Match,
    OperationRoute,
    Operations,
    RoutableRequest,
    ServiceArguments,
    element_name,
)
from soapjms.service.request import Policy, Request
from soapjms.service.typed.signature import ATTACHMENTS, HEADERS, REQUEST, Signature, signature_of
from soapjms.service.typed.values import element_with, header_names, read_values, reply_with
from soapjms.validation import string_or_none
from soapjms.wsdl import add_jms_port, move_jms_port
from soapjms.zeep.attachments import apart
from soapjms.zeep.description import PortDescription, element_of, refuse_unserved

if TYPE_CHECKING:
    from soapjms.codegen.contract import ServiceInterface
    from soapjms.service.typed.contract_operation import ContractOperation

ACTIONS: Final = (
    "{http://www.w3.org/2007/05/addressing/metadata}Action",
    "{http://www.w3.org/2006/05/addressing/wsdl}Action",
    "{http://www.w3.org/2005/08/addressing}Action",
    "{http://schemas.xmlsoap.org/ws/2004/08/addressing}Action",
)
"""The attributes of an output that state its action."""


def reply_action_of(described: PortDescription, operation: Any) -> str | None:
    """Return the Action of the answer: as the output states it, else made of namespace, port type and output.

    None for an operation without output. A port type in another document is not read.

    Spec: WS-Addressing 1.0 Metadata 4.4.1, 4.4.4.
    """
    if operation.abstract.output_message is None:
        return None
    name = etree.QName(described.binding.port_type.name.text)
    output = _output(described, name.localname, operation.name)
    if output is not None:
        stated = next((output.get(each) for each in ACTIONS if output.get(each)), None)
        if stated:
            return stated
    called = None if output is None else output.get("name")
    space = name.namespace or ""
    mark = ":" if space.lower().startswith("urn:") else "/"
    return mark.join((space.rstrip(mark), name.localname, called or f"{operation.name}Response"))


def _output(described: PortDescription, port_type: str, operation: str) -> etree._Element | None:
    root = described.binding.standing.element.getroottree().getroot()
    for each in root.iterchildren("{*}portType"):
        if each.get("name") == port_type:
            found = [one for one in each.iterchildren("{*}operation") if one.get("name") == operation]
            return found[0].find("{*}output") if found else None
    return None


PROCESSING_HEADERS: Final = frozenset({HEADERS, REQUEST})
"""A function with one of these parameters is assumed to process the header blocks that the WSDL declares."""


class TypedOperation:
    """Runs a function for requests.

    Args:
        described: the port.
        operation: zeep's operation.
        function: the function, as it was registered.
        lazy: do not read attachments in place of values, in requests and answers.

    Raises:
        UsageError: the function does not fit the WSDL, or the operation cannot be served.
    """

    def __init__(self, described: PortDescription, operation: Any, function: Callable[..., Any], *, lazy: bool) -> None:
        refuse_unserved(operation)
        self._described, self._operation, self._function, self._lazy = described, operation, function, lazy
        self._signature: Signature = signature_of(function, operation.name, operation.input)

    @property
    def understands(self) -> frozenset[str]:
        """The header blocks that the function processes."""
        if PROCESSING_HEADERS & self._signature.extras:
            return header_names(self._operation.input)
        return frozenset()

    def __call__(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answer a request.

        Raises:
            SoapFaultError: the request does not fit the WSDL, or the function raised it.
            InvalidAttachmentError: a part that the request includes cannot be read.
            UsageError: the result of the function does not fit the WSDL.
        """
        value, headers = read_values(request, self._described, self._operation.input, lazy=self._lazy)
        extras: Mapping[str, Any] = {
            REQUEST: request,
            HEADERS: headers,
            ATTACHMENTS: apart(request.envelope.root, request.attachments),
        }
        arguments, named = self._signature.arguments(value, extras)
        result = self._function(*arguments, **named)
        return self._awaited(result, request) if isawaitable(result) else self._replied(result, request)

    async def _awaited(self, result: Awaitable[Any], request: Request) -> Reply:
        return self._replied(await result, request)

    def _replied(self, result: Any, request: Request) -> Reply:
        version = request.envelope.version
        return reply_with(result, version, self._described, self._operation, lazy=self._lazy)


F = TypeVar("F", bound=Callable[..., Any])


class TypedService(Operations):
    """A service by its WSDL; see `Service.from_wsdl`, which makes one.

    Attributes:
        port: the port of the WSDL; give it to a Dispatcher as its `uri`.
        types: zeep's schema: `service.types.get_type("{urn:bank}Account")(…)` makes an object of a type.
    """

    def __init__(
        self,
        described: PortDescription,
        implementation: ServiceInterface | None = None,
        **options: Unpack[ServiceArguments],
    ) -> None:
        super().__init__(**options)
        self._described = described
        self.port: Port = described.port
        self.types = described.document.types
        if implementation is not None:
            self._implement(implementation)

    def operation(
        self,
        name: str,
        *,
        action: str | None = None,
        policy: Policy | None = None,
        reply_action: str | None = None,
        lazy: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function for an operation of the WSDL. It may be `async`.

        The function is called as a zeep client calls the operation: with the elements of the request by name, None for
        absent ones; or with one value, if the request is of a simple type. It returns what a zeep client gets: the
        value, if the response consists of one element, else a dict of its elements by name; None, if there is no
        response.

        Args:
            name: the name of the operation.
            action: must be None, as the WSDL gives the action.
            policy: what becomes of a request for which the function fails; None for the policy of the service.
            reply_action: the WS-Addressing Action of the answers; None for the one of the WSDL.
            lazy: pass attachments in place of values (MTOM) as `Part`, a view of the message, instead of bytes, and
                send attachments without reading them. Attachments are not checked against the schema then.

        Raises:
            UsageError: the WSDL has no such operation, it has a function already, or the function does not fit the
                WSDL.
        """
        string_or_none(reply_action, "reply_action")
        if action is not None:
            raise UsageError(f"action must be None, as the WSDL gives the action of {name!r}, got {action!r}")
        found = self._described.operations.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(self._described.operations) or "none"
            why = "".join(f"; the WSDL is incomplete: {each}" for each in self._described.missing[:1])
            raise UsageError(f"the port {self.port.name} has no operation {name!r}; there are: {known}{why}")
        chosen = self._chosen(policy)

        def route(function: Callable[..., Any]) -> OperationRoute:
            run = TypedOperation(self._described, found, function, lazy=lazy)
            said = found.soapaction or found.abstract.wsa_action or None
            return self._route(found, said, run, chosen, reply_action, function)

        return self._registering(route)

    def _implement(self, implementation: ServiceInterface) -> None:
        """Register the methods of an object whose class inherits from a generated service class.

        Raises:
            UsageError: the object's class does not inherit from such a class, or lacks methods; or the WSDL is not the
                one that it was generated from.
        """
        from soapjms.codegen.contract import contract_of
        from soapjms.service.typed.contract_operation import ContractOperation, check_contract

        contract = contract_of(implementation)
        check_contract(contract, self._described)
        for name, each in contract.operations.items():
            found = self._described.operations[name]
            method = getattr(implementation, each.method)
            run = ContractOperation(self._described, found, each, method)
            self._registering(partial(self._route, found, each.action, run, self._chosen(None), None))(method)

    def _route(
        self,
        found: Any,
        action: str | None,
        run: TypedOperation | ContractOperation,
        policy: Policy,
        reply_action: str | None,
        function: Callable[..., Any],
    ) -> OperationRoute:
        """Return the route to an operation, zeep's `found`."""
        answer = reply_action or reply_action_of(self._described, found)
        return OperationRoute(
            found.name, element_of(found.input), action, function, run, policy, run.understands, answer
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """The operations of the port that have no function; a request for one is answered with a receiver fault."""
        return tuple(name for name in self._described.operations if name not in self.operations)

    def find(self, asked: RoutableRequest) -> Match:
        """Find the operation that a request is for; one of the WSDL without a function is the service's mistake."""
        match = super().find(asked)
        if match.route is None:
            element, known = element_name(asked.envelope.content), self._described.operations
            lacking = [each for each in self.missing if known[each].input and element_of(known[each].input) == element]
            if lacking:
                problem = f"the service has no function for the operation {lacking[0]} of its WSDL"
                return match._replace(problem=problem, blame=Blame.RECEIVER)
        return match

    def fault(
        self, name: str, /, *detail: Any, _message: object = None, _blame: Blame | BlameName = "Receiver", **values: Any
    ) -> SoapFaultError:
        """Make a fault that the WSDL declares, to be raised.

        Args:
            name: the name of the fault; `OPERATION/FAULT` if several operations have different faults of that name.
            detail, values: the elements of the detail, in order or by name; or the value of a simple type.
            _message: the reason of the fault; None for the name of the fault.
            _blame: who made the mistake: "Sender" or "Receiver".

        Raises:
            UsageError: the WSDL has no such fault, or the values do not fit it.
        """
        element = self._fault_element(name)
        made = element_with(element, detail, values, self._described, f"the fault {name}")
        return SoapFaultError(name if _message is None else _message, blame=_blame, detail=made)

    def _fault_element(self, name: str) -> Any:
        declared = {
            f"{operation}/{fault}": message
            for operation, each in self._described.operations.items()
            for fault, message in each.abstract.fault_messages.items()
        }
        found = {key: message for key, message in declared.items() if name in (key, key.partition("/")[2])}
        elements = {
            part.element.qname.text: part.element
            for message in found.values()
            for part in message.parts.values()
            if part.element is not None
        }
        if len(elements) == 1:
            return next(iter(elements.values()))
        if elements:
            raise UsageError(f"several operations have a fault {name!r}; choose one of: {', '.join(found)}")
        if found:
            raise UsageError(f"the fault {name!r} has no part with an element in the WSDL, so it has no detail")
        raise UsageError(f"the port {self.port.name} has no fault {name!r}; there are: {', '.join(declared) or 'none'}")

    def write_wsdl(self, path: str | Path, address: str | None = None) -> Description:
        """Write the WSDL with the port and its address, for clients of the service.

        If the port of this service is not SOAP over JMS, a SOAP/JMS port is added to its service.

        Args:
            path: the path of the file, which is replaced; documents that the WSDL imports by relative names must be
                beside it.
            address: a `jms:` URI; None keeps the address of the port.

        Returns:
            The description of the file.

        Raises:
            InvalidUriError: the address is not a `jms:` URI in the strict grammar.
            InvalidWsdlError: the port is in a document that the WSDL imports, or an imported document is missing.
            UsageError: the port has no `jms:` address, and none is given; or `path` is a folder, or in a folder that
                does not exist.
            OSError: the file cannot be written.
        """
        if self.port.profile is not None:
            return move_jms_port(self._described.path, path, self.port, address)
        if address is None:
            raise UsageError(f"address must be given, as the port {self.port.name} has no jms: address")
        new = NewPort(address=address, service=self.port.service.name, soap_version=self.port.soap_version)
        return add_jms_port(self._described.path, path, new)
