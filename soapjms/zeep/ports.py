"""Makes a `Port` from the parts of a WSDL that zeep keeps: the elements of port, service and binding, by precedence.

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
from soapjms.protocol.wsdl.documents import WSDL11, Document
from soapjms.protocol.wsdl.reader import read_services
from soapjms.protocol.wsdl.wsdl11 import read_bindings, read_ports, soap_element

PORT: Final = "jms_port"
"""The binding option that holds a port's element, in addition to zeep's own `address`."""

CREATED: Final = "(create_service)"
"""The name of a port that is not in a WSDL."""


@dataclass(frozen=True, slots=True)
class BindingPlace:
    """The place of a binding in a WSDL.

    Attributes:
        file: the name of its document.
        element: the wsdl:binding element.
    """

    file: str
    element: etree._Element

    @property
    def is_jms(self) -> bool:
        """Whether its transport is SOAP over JMS."""
        return transport_of(self.element) in EDITION_OF_NAMESPACE

    def described(self) -> Binding:
        """Read the binding with its soapjms elements."""
        document = Document(self.file, self.element.getroottree().getroot())
        name = document.name_of(self.element)
        return next(binding for binding, _ in read_bindings([document]) if binding.name == name)


def transport_of(binding: etree._Element) -> str:
    """Return the transport of a wsdl:binding, empty if it has none."""
    soap, _ = soap_element(binding, "binding")
    return "" if soap is None else soap.get("transport", "").strip()


def address_of(port: etree._Element) -> str | None:
    """Return the address of a wsdl:port, or None."""
    address, _ = soap_element(port, "address")
    location = None if address is None else address.get("location")
    return None if location is None else location.strip()


def place_of(standing: BindingPlace, options: Mapping[str, Any]) -> str | Port:
    """Return where a call goes: a port of the WSDL, or the caller's address with the properties of the binding.

    Args:
        standing: the place of the binding.
        options: zeep's binding options: the address, which overrides that of the port, and the port, if there is one.

    Raises:
        InvalidUriError: the caller's address is not a `jms:` URI.
    """
    address, element = options.get("address"), options.get(PORT)
    if element is not None:
        return replace(_port_of(standing, element), address=address)
    if not isinstance(address, str):
        raise InvalidUriError(f"address must be a jms: URI as text, got {address!r}")
    checked(address)
    if not standing.is_jms:  # a binding of another transport has no properties for JMS
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
    for _, element, described in read_services([document], WSDL11):
        if element is service:
            yield from read_ports(document, element, described, bindings)
