"""An operation of a generated service class: its method gets dataclasses, and returns one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable, signature
from typing import Any

from soapjms.codegen.codec import element_name, from_element, to_element
from soapjms.codegen.contract import DeclaredFaultError, OperationContract, PortContract
from soapjms.protocol.envelope import Envelope
from soapjms.protocol.errors import SoapFaultError, UsageError
from soapjms.reply import Reply
from soapjms.service.request import Request
from soapjms.service.typed.signature import REQUEST
from soapjms.service.typed.values import (
    checked_envelope,
    declared_headers,
    empty_reply,
    header_names,
    unfit_answer,
    unfit_request,
    without_soap_attributes,
)
from soapjms.zeep.description import PortDescription, element_of, refuse_unserved


class ContractOperation:
    """Runs a method of a generated service class for requests.

    Args:
        described: the port.
        operation: zeep's operation.
        contract: the operation as the generated package states it.
        method: the method.

    Raises:
        UsageError: the operation cannot be served.
    """

    def __init__(
        self, described: PortDescription, operation: Any, contract: OperationContract, method: Callable[..., Any]
    ) -> None:
        refuse_unserved(operation)
        self._described, self._operation, self._contract, self._method = described, operation, contract, method
        self._headers = {element_name(kind): (name, kind) for name, kind in contract.headers.items()}
        self._takes_request = REQUEST in signature(method).parameters

    @property
    def understands(self) -> frozenset[str]:
        """The header blocks that the method gets."""
        names = header_names(self._operation.input)
        return names if self._takes_request else names & self._headers.keys()

    def __call__(self, request: Request) -> Reply | Awaitable[Reply]:
        """Answer a request.

        Raises:
            SoapFaultError: the request does not fit the WSDL, or the method raised it.
            InvalidAttachmentError: a part that the request includes cannot be read.
            UsageError: the result of the method does not fit the WSDL.
        """
        envelope, _ = checked_envelope(request, self._described, self._operation.input)
        arguments, named = self._arguments(envelope)
        if self._takes_request:
            named[REQUEST] = request
        try:
            result = self._method(*arguments, **named)
        except DeclaredFaultError as error:
            raise self._fault(error) from error
        return self._awaited(result) if isawaitable(result) else self._replied(result)

    async def _awaited(self, result: Awaitable[Any]) -> Reply:
        try:
            return self._replied(await result)
        except DeclaredFaultError as error:
            raise self._fault(error) from error

    def _arguments(self, envelope: Envelope) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of the method."""
        kind, content = self._contract.request, envelope.content
        named: dict[str, Any] = dict.fromkeys(self._contract.headers)
        try:
            arguments = [] if kind is None or content is None else [from_element(content, kind)]
            for block in declared_headers(envelope, self._operation.input):
                name, of = self._headers[str(block.tag)]
                named[name] = from_element(without_soap_attributes(block), of)
        except ValueError as error:
            raise unfit_request(str(error)) from error
        return arguments, named

    def _replied(self, result: Any) -> Reply:
        if isinstance(result, SoapFaultError):
            raise self._fault(result) if isinstance(result, DeclaredFaultError) else result
        reply, kind = result if isinstance(result, Reply) else Reply(result), self._contract.response
        if kind is None:
            return empty_reply(reply, self._operation)
        try:
            element = to_element(reply.content, kind)
        except ValueError as error:
            raise unfit_answer(self._operation, str(error), kind.__name__) from error
        problem = self._described.content_misfit(element, self._operation.output)
        if problem is not None:
            raise unfit_answer(self._operation, problem, kind.__name__)
        return Reply(element, reply.attachments, reply.headers, reply.properties)

    def _fault(self, error: DeclaredFaultError[Any]) -> SoapFaultError:
        """Return a declared fault with its detail as an element."""
        what = f"the detail of {type(error).__name__}, raised for {self._operation.name},"
        try:
            detail = to_element(error.detail, error.detail_type)
        except ValueError as unfit:
            raise UsageError(f"{what} does not fit the WSDL: {unfit}") from unfit
        problem = self._described.misfit(detail)
        if problem is not None:
            raise UsageError(f"{what} does not fit the WSDL: {problem}")
        return SoapFaultError(error.reason, blame=error.blame, detail=detail, subcodes=error.subcodes)


def check_contract(contract: PortContract, described: PortDescription) -> None:
    """Check that a WSDL has the operations and messages that a package was generated for.

    Raises:
        UsageError: the WSDL was changed since; the message says where.
    """
    for name in dict.fromkeys([*contract.operations, *described.operations]):
        known, there = contract.operations.get(name), described.operations.get(name)
        if known is None or there is None:
            what = f"the operation {name} is only in {'the generated package' if there is None else 'the WSDL'}"
        elif known.one_way != (there.output is None) or _element(known.request) != element_of(there.input):
            what = f"the operation {name} has other messages"
        else:
            continue
        raise UsageError(f"{described.path} is not what the package was generated from: {what}; generate it again")


def _element(kind: type[Any] | None) -> str:
    return "" if kind is None else element_name(kind)
