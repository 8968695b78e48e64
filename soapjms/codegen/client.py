"""The base classes of generated clients, which send dataclasses and return dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar, Unpack

from lxml import etree

from brokers.connection import Connection
from soapjms.client.async_client import AsyncClient, AsyncClientArguments
from soapjms.client.call import Expiry, Response
from soapjms.client.client import Client, ClientArguments, PlainClientArguments
from soapjms.codegen.codec import element_name, from_element, to_element
from soapjms.codegen.contract import OperationContract, PortContract
from soapjms.protocol.envelope import header_of, wrap
from soapjms.protocol.errors import CallFailedError, InvalidAttachmentError, SoapFaultError, UsageError
from soapjms.protocol.names import DEFAULT_PROFILE, FailureReason, SoapVersion
from soapjms.protocol.wsdl import Port

R = TypeVar("R")


class _ContractClient:
    """What both kinds of client have: the messages of the operations."""

    contract: ClassVar[PortContract]

    _is_port = False

    def __repr__(self) -> str:
        kind = type(self)
        return f"<{kind.__module__.partition('.')[0]}.{kind.__name__} through {vars(self)['client']!r}>"

    def _target(self, uri: str | None, options: ClientArguments) -> str | Port:
        """Return what the client is for: the port, or its address in another place; add its profile to the options."""
        target = self.contract.target(uri)
        if isinstance(target, Port):
            self._is_port = True
            options.setdefault("profile", target.profile or DEFAULT_PROFILE)
        return target

    def _message(self, name: str, request: object, headers: Mapping[str, object | None]) -> dict[str, Any]:
        """Return the arguments that send a request.

        Raises:
            UsageError: the request or a header block does not fit its class.
        """
        operation = self.contract.operations[name]
        root = wrap(_written(f"the request of {name}", request, operation.request), self._version)
        for argument, block in headers.items():
            if block is not None:
                header_of(root).append(_written(f"{argument} of {name}", block, operation.headers[argument]))
        return {"envelope": root, "soap_action": operation.action, "operation": name if self._is_port else None}

    @property
    def _version(self) -> SoapVersion:
        return SoapVersion(self.contract.soap_version)

    def _result(self, name: str, response: Response, kind: type[R]) -> R:
        """Return the dataclass of a response; None for the class `NoneType`.

        Raises:
            SoapFaultError: the response holds a fault; a `DeclaredFaultError` if the WSDL declares it.
            CallFailedError: the response does not fit the WSDL.
        """
        operation = self.contract.operations[name]
        if response.fault is not None:
            _raise_fault(response, operation)
        if kind is NoneType:
            return kind()
        try:
            return _read(response, kind, operation)
        except (ValueError, InvalidAttachmentError) as error:
            raise CallFailedError(
                f"the service answered, so it worked on the request, but its response does not fit the WSDL: {error}",
                FailureReason.RECEPTION_FAILURE,
            ) from error


def _written(what: str, value: object, kind: type[Any] | None) -> Any:
    if kind is None:
        return None
    try:
        return to_element(value, kind)
    except ValueError as error:
        raise UsageError(f"{what} does not fit the WSDL: {error}") from error


def _read(response: Response, kind: type[R], operation: OperationContract) -> R:
    element = response.element
    wanted = element_name(kind)
    if element is None or (element.tag != wanted and not operation.rpc):
        seen = "nothing" if element is None else str(element.tag)
        raise ValueError(f"its body holds {seen}; the WSDL says {wanted}")
    if response.attachments:
        element = response.attachments.expand(deepcopy(element))
    return from_element(element, kind)


def _raise_fault(response: Response, operation: OperationContract) -> None:
    """Raise the fault of a response: as the declared one, if its detail is that of one."""
    try:
        response.raise_for_fault()
    except SoapFaultError as error:
        detail = error.detail
        children = [] if detail is None else list(detail.iterchildren(etree.Element))
        for kind in operation.faults:
            for each in children:
                if each.tag != element_name(kind.detail_type):
                    continue
                try:
                    found = from_element(each, kind.detail_type)
                except ValueError as unfit:
                    error.add_note(f"its detail does not fit the fault {kind.fault_name} of the WSDL: {unfit}")
                    break
                raise kind(
                    found,
                    error.reason,
                    blame=error.blame,
                    subcode=error.subcode,
                    code=error.code,
                    subcodes=error.subcodes,
                ) from None
        raise


class ContractClient(_ContractClient):
    """The base class of generated clients. Thread-safe. Usable in a `with` statement.

    Args:
        connection: the connection to the broker; the caller closes it.
        uri: a `jms:` URI in place of the address in the WSDL; the other properties of the port apply to it too.
        options: see `soapjms.Client`.

    Attributes:
        contract: what the WSDL states about the port.
        client: the `soapjms.Client` that sends.

    Raises:
        InvalidUriError, InvalidWsdlError, InvalidPropertyError, UsageError: an argument is not valid.
    """

    def __init__(self, connection: Connection, uri: str | None = None, **options: Unpack[PlainClientArguments]) -> None:
        self.client = Client(connection, self._target(uri, options), **options)

    def _call(
        self,
        name: str,
        request: object,
        response: type[R],
        headers: Mapping[str, Any],
        timeout: float | None,
        expires: Expiry = "timeout",
    ) -> R:
        """Call an operation by its name, and return its response; None for the class `NoneType`.

        Raises:
            UsageError: `request` or a header block does not fit its class.
            SoapFaultError: the response holds a fault; a `DeclaredFaultError` if the WSDL declares it.
            CallTimeoutError: no response came in time.
            CallFailedError: the call failed, or the response does not fit the WSDL: see `outcome`.
        """
        answer = self.client.call(**self._message(name, request, headers), timeout=timeout, expires=expires)
        return self._result(name, answer, response)

    def _send(self, name: str, request: object, headers: Mapping[str, Any], timeout: float | None) -> None:
        """Send a one-way message, and return when the broker has it; see `_call`."""
        self.client.send(**self._message(name, request, headers), timeout=timeout)

    def close(self) -> None:
        """Stop listening for responses; calls under way fail. The connection stays open."""
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class AsyncContractClient(_ContractClient):
    """The base class of generated clients for asyncio: `ContractClient` with methods to await.

    `async with` closes it. A cancelled call leaves nothing behind. `client` is a `soapjms.AsyncClient`, and `options`
    are its options.
    """

    def __init__(self, connection: Connection, uri: str | None = None, **options: Unpack[AsyncClientArguments]) -> None:
        self.client = AsyncClient(connection, self._target(uri, options), **options)

    async def _call(
        self,
        name: str,
        request: object,
        response: type[R],
        headers: Mapping[str, Any],
        timeout: float | None,
        expires: Expiry = "timeout",
    ) -> R:
        """Call an operation by its name, and return its response; see `ContractClient._call`."""
        answer = await self.client.call(**self._message(name, request, headers), timeout=timeout, expires=expires)
        return self._result(name, answer, response)

    async def _send(self, name: str, request: object, headers: Mapping[str, Any], timeout: float | None) -> None:
        """Send a one-way message, and return when the broker has it; see `ContractClient._call`."""
        await self.client.send(**self._message(name, request, headers), timeout=timeout)

    async def aclose(self) -> None:
        """Stop listening for responses; calls under way fail. The connection stays open."""
        await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.aclose()
