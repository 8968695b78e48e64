"""One operation of a typed service: calls its function with Python values, and sends what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Final

from zeep.wsdl.messages import RpcMessage

from soapjms.answers import Reply
from soapjms.protocol.errors import UsageError
from soapjms.request import Request
from soapjms.typed.description import Described
from soapjms.typed.reading import header_names, read_values
from soapjms.typed.signature import ATTACHMENTS, HEADERS, REQUEST, Signature, signature_of
from soapjms.typed.writing import reply_with
from soapjms.zeep.enclosed import apart

PROCESSING_HEADERS: Final = frozenset({HEADERS, REQUEST})
"""A function with one of these parameters is taken to process the header blocks that the WSDL declares."""


class TypedOperation:
    """Runs a function for requests.

    Args:
        described: the port.
        operation: zeep's operation.
        function: as it was registered.
        lazy: attachments in the place of values are not read, in and out.

    Raises:
        UsageError: the function cannot be called with what the WSDL says, or that is something that is not served.
    """

    def __init__(self, described: Described, operation: Any, function: Callable[..., Any], *, lazy: bool) -> None:
        _refuse_unserved(operation)
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
            InvalidAttachmentError: what the request includes cannot be had.
            UsageError: what the function returned does not fit the WSDL.
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


def element_of(message: Any) -> str:
    """Return the name of the element that a message has in its body, in Clark notation; empty for an empty body."""
    if message.body is None:
        return ""
    if message._is_body_wrapped:
        return str(message.body.type.elements[0][1].qname.text)
    return str(message.body.qname.text)


def _refuse_unserved(operation: Any) -> None:
    """Refuse what no request is made for, and what WS-I has ruled out.

    Spec: WS-I Basic Profile 1.1 R2204, R2303, R2706.
    """
    if operation.input is None:
        raise UsageError(f"the operation {operation.name} has no input in the WSDL, so there are no requests for it")
    binding = operation.binding.standing.element
    element = next(each for each in binding.iterfind("{*}operation") if each.get("name") == operation.name)
    for body in element.iter("{*}body", "{*}header"):
        if body.get("use", "literal") != "literal":
            raise UsageError(
                f"the operation {operation.name} has use={body.get('use')!r} in the WSDL; served is 'literal'"
            )
    for message in (operation.input, operation.output):
        if message is None or message.body is None or isinstance(message, RpcMessage):
            continue
        for name, part in message.abstract.parts.items():
            if part.element is None:
                raise UsageError(
                    f"the part {name!r} of the operation {operation.name} has a type in the WSDL; in the document "
                    'style it is an element (WS-I Basic Profile R2204), else write style="rpc"'
                )
