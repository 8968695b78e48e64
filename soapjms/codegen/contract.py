"""What generated code states about a port of a WSDL: its address, its properties, its operations and their faults.

A generated package has one `PortContract`. Its clients send by it, and `Service.from_wsdl` answers by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from soapjms.protocol.errors import Blame, BlameName, SoapFaultError, UsageError
from soapjms.protocol.names import Mep, SoapVersion
from soapjms.protocol.wsdl import Binding, Operation, Place, Port, Service, WsdlVersion
from soapjms.protocol.wsdl.elements import CONTEXT_PARAMETER, Extension
from soapjms.protocol.wsdl.model import read_uri

Detail = TypeVar("Detail")

CONTRACT: Final = "__soapjms_contract__"
"""The attribute of a generated service class that holds its contract."""


class DeclaredFaultError(SoapFaultError, Generic[Detail]):
    """A fault that the WSDL declares: a generated package has a subclass for each.

    A client raises it for a response that holds the fault; a service raises it to answer with the fault.

    Args:
        detail: the dataclass of the detail.
        reason: the text for people; None for the name of the fault.
        blame, subcode, code, subcodes: see `SoapFaultError`.

    Attributes:
        fault_name: the name of the fault in the WSDL.
        detail_type: the class of the detail.
    """

    fault_name: ClassVar[str]
    detail_type: ClassVar[type[Any]]
    detail: Detail

    def __init__(
        self,
        detail: Detail,
        reason: object = None,
        *,
        blame: Blame | BlameName = "Receiver",
        subcode: str | None = None,
        code: str | None = None,
        subcodes: Iterable[str] = (),
    ) -> None:
        reason = self.fault_name if reason is None else reason
        super().__init__(reason, blame=blame, detail=detail, subcode=subcode, code=code, subcodes=subcodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContract:
    """One operation.

    Attributes:
        method: the name of its method.
        action: its SOAP action, or None.
        request: the class of the request; None if the body of a request is empty.
        response: the class of the response; None if the body of a response is empty, or there is no response.
        one_way: True if there is no response.
        headers: the classes of the header blocks of a request, by the names of their arguments.
        faults: the classes of the faults that the WSDL declares.
        rpc: True if the name of the element in a response is arbitrary, as in the RPC style.
    """

    method: str
    action: str | None
    request: type[Any] | None = None
    response: type[Any] | None = None
    one_way: bool = False
    headers: Mapping[str, type[Any]] = field(default_factory=dict)
    faults: tuple[type[DeclaredFaultError[Any]], ...] = ()
    rpc: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PortContract:
    """A port.

    Attributes:
        wsdl: the name of the WSDL's file.
        service, port: the local names of the service and the port.
        binding: the name of the binding, in Clark notation.
        transport: the transport of the binding.
        soap_version: the SOAP version: "1.1" or "1.2".
        address: the address, or None.
        properties: the values of the soapjms elements that apply to the port, by property.
        operations: the operations, by name.
    """

    wsdl: str
    service: str
    port: str
    binding: str
    transport: str
    soap_version: str
    address: str | None
    properties: Mapping[str, str]
    operations: Mapping[str, OperationContract]

    def target(self, uri: str | None) -> str | Port:
        """Return where calls go: the port, if it is SOAP over JMS, with `uri` in place of its address if one is given.

        Raises:
            InvalidUriError: `uri` is not a `jms:` URI.
            UsageError: neither a `uri` nor a `jms:` address of the port is there.
        """
        if uri is not None:
            read_uri(uri, {})
        place = Place(self.wsdl, 0)
        operations = tuple(
            Operation(name, each.action, Mep.ONE_WAY if each.one_way else Mep.REQUEST_RESPONSE, place)
            for name, each in self.operations.items()
        )
        binding = Binding(
            name=self.binding,
            transport=self.transport,
            soap_version=SoapVersion(self.soap_version),
            interface="",
            extensions=(),
            place=place,
            transport_place=place,
        )
        if binding.profile is None:
            if uri is None:
                raise UsageError(f"uri must be given, as the port {self.port} of {self.wsdl} has no jms: address")
            return uri
        return Port(
            name=self.port,
            service=Service(self.service, (), place),
            binding_name=self.binding,
            binding=binding,
            address=uri or self.address,
            address_version=None,
            extensions=tuple(self._extension(name, value, place) for name, value in self.properties.items()),
            operations=operations,
            wsdl=WsdlVersion.WSDL_11,
            place=place,
            address_place=place,
        )

    def _extension(self, name: str, value: str, place: Place) -> Extension:
        element = CONTEXT_PARAMETER if name.startswith("jndi-") else name
        return Extension(element, self.transport, name, value, "port", False, place)


class ServiceInterface(Protocol):
    """The base class of generated service classes, by which type checkers know what `Service.from_wsdl` accepts."""

    __soapjms_contract__: ClassVar[PortContract]


def port_of(implementation: ServiceInterface | None) -> str | None:
    """Return the port that an implementation is for, as SERVICE/PORT; None for None.

    Raises:
        UsageError: see `contract_of`.
    """
    if implementation is None:
        return None
    contract = contract_of(implementation)
    return f"{contract.service}/{contract.port}"


def contract_of(implementation: object) -> PortContract:
    """Return the contract of an object that implements a generated service class.

    Raises:
        UsageError: the object's class does not inherit from such a class, or lacks methods.
    """
    kind = type(implementation)
    contract = getattr(kind, CONTRACT, None)
    if isinstance(implementation, str):
        raise UsageError(f"implementation must be an object; name a port with port={implementation!r}")
    if isinstance(implementation, type) or not isinstance(contract, PortContract):
        raise UsageError(
            "implementation must be an object whose class inherits from a service class that `soapjms wsdl generate` "
            f"wrote, as in `class Bank(bank_client.BankService)`, got {implementation!r}"
        )
    interface = next(each for each in kind.__mro__ if CONTRACT in vars(each))
    missing = [
        f"{each.method} (operation {name})"
        for name, each in contract.operations.items()
        if getattr(kind, each.method, None) is vars(interface).get(each.method)
        or not callable(getattr(implementation, each.method, None))
    ]
    if missing:
        raise UsageError(f"{kind.__name__} does not implement all of {interface.__name__}; write {', '.join(missing)}")
    return contract
