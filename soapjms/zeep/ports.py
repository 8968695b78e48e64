"""What zeep keeps of a WSDL, as a `Port` of ours: with the elements of port, service and binding, and their precedence.

Spec: SOAP/JMS 3.4; WSDLUsage-3001 to 3003.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lxml import etree

from soapjms.protocol.errors import InvalidUriError
from soapjms.protocol.names import EDITION_OF_NAMESPACE
from soapjms.protocol.uri import checked
from soapjms.protocol.wsdl import Binding, Port, Service, WsdlVersion
from soapjms.protocol.wsdl.documents import Document
from soapjms.protocol.wsdl.wsdl11 import read_bindings, read_ports, read_services, soap_element

PORT: Final = "jms_port"
"""The binding option that holds a port's element, beside zeep's own `address`."""

CREATED: Final = "(create_service)"
"""What a port is called that no WSDL has."""


@dataclass(frozen=True, slots=True)
class BindingPlace:
    """Where a binding stands in a WSDL.

    Attributes:
        file: the name of its document.
        element: the wsdl:binding.
    """

    file: str
    element: etree._Element

    @property
    def is_jms(self) -> bool:
        """Its transport is SOAP over JMS."""
        return transport_of(self.element) in EDITION_OF_NAMESPACE

    def described(self) -> Binding:
        """Read it, with its soapjms elements."""
        document = Document(self.file, self.element.getroottree().getroot())
        name = document.name_of(self.element)
        return next(binding for binding, _ in read_bindings([document]) if binding.name == name)


def transport_of(binding: etree._Element) -> str:
    """Return the transport that a wsdl:binding names, empty if it names none."""
    soap, _ = soap_element(binding, "binding")
    return "" if soap is None else soap.get("transport", "").strip()


def address_of(port: etree._Element) -> str | None:
    """Return the address in a wsdl:port, None if it has none."""
    address, _ = soap_element(port, "address")
    location = None if address is None else address.get("location")
    return None if location is None else location.strip()


def place_of(standing: BindingPlace, options: Mapping[str, Any]) -> str | Port:
    """Return what a call goes to: a port of the WSDL, or an address of the caller's with the properties of the binding.

    Args:
        standing: of the binding that is called.
        options: zeep's binding options: the address, which wins over that of the port, and the port, if there is one.

    Raises:
        InvalidUriError: the address of the caller's is no `jms:` URI.
    """
    address, element = options.get("address"), options.get(PORT)
    if element is not None:
        return replace(_port_of(standing, element), address=address)
    if not isinstance(address, str):
        raise InvalidUriError(f"the address is {address!r}; it is a jms: URI as text")
    checked(address)
    if not standing.is_jms:  # what a binding of another transport says is about that one
        return address
    binding = standing.described()
    return Port(
        name=CREATED,
        service=Service(CREATED, (), binding.place),
        binding_name=binding.name,
        binding=binding,
        address=address,
        address_version=None,
        extensions=(),
        operations=(),
        wsdl=WsdlVersion.WSDL_11,
        place=binding.place,
        address_place=binding.place,
    )


def _port_of(standing: BindingPlace, element: etree._Element) -> Port:
    document = Document(standing.file, element.getroottree().getroot())
    binding = standing.described()
    bindings = {document.qname(element, "binding"): (binding, ())}
    return next(
        port for port in _ports(document, element.getparent(), bindings) if port.name == element.get("name", "")
    )


def _ports(document: Document, service: etree._Element | None, bindings: Mapping[str, Any]) -> Iterator[Port]:
    for _, element, described in read_services([document]):
        if element is service:
            yield from read_ports(document, element, described, bindings)
