"""Reading WSDL 1.1 with its SOAP 1.1 and SOAP 1.2 bindings.

Spec: WSDL 1.1 2, 3; WSDL 1.1 Binding Extension for SOAP 1.2; SOAP/JMS 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lxml import etree

from soapjms.protocol.names import Mep, SoapVersion
from soapjms.protocol.wsdl.documents import WSDL11, Document
from soapjms.protocol.wsdl.elements import read_extensions
from soapjms.protocol.wsdl.model import Binding, Operation, Port, Service, WsdlVersion

SOAP_BINDINGS: Final[Mapping[SoapVersion, str]] = {
    SoapVersion.SOAP_11: "http://schemas.xmlsoap.org/wsdl/soap/",
    SoapVersion.SOAP_12: "http://schemas.xmlsoap.org/wsdl/soap12/",
}
_VERSIONS: Final = {space: version for version, space in SOAP_BINDINGS.items()}
_WSDL: Final = f"{{{WSDL11}}}"
HOMES: Final = frozenset({f"{_WSDL}binding", f"{_WSDL}service", f"{_WSDL}port"})
"""The elements in which soapjms elements have an effect."""

_PATTERNS: Final[Mapping[tuple[str, ...], Mep]] = {
    ("input", "output"): Mep.REQUEST_RESPONSE,
    ("input",): Mep.ONE_WAY,
}
_Key = tuple[str | None, str | None, str | None]
"""Tells overloaded operations apart: the names of operation, input and output."""


def soap_element(parent: etree._Element, local: str) -> tuple[etree._Element | None, SoapVersion | None]:
    """Return the SOAP extension element called `local`, and its SOAP version."""
    for child in parent.iterchildren(*(f"{{{space}}}{local}" for space in _VERSIONS)):
        return child, _VERSIONS[str(etree.QName(child).namespace)]
    return None, None


def read_bindings(documents: Sequence[Document]) -> Iterator[tuple[Binding, tuple[Operation, ...]]]:
    """Yield the bindings, each with its operations."""
    patterns = _read_patterns(documents)
    for document in documents:
        for element in document.children(document.root, f"{_WSDL}binding"):
            yield _read_binding(document, element), tuple(_read_operations(document, element, patterns))


def _read_binding(document: Document, element: etree._Element) -> Binding:
    soap, version = soap_element(element, "binding")
    transport = None if soap is None else soap.get("transport", "").strip()
    return Binding(
        name=document.name_of(element),
        transport=transport,
        soap_version=version,
        interface=document.qname(element, "type"),
        extensions=read_extensions(document, element),
        place=document.place(element),
        transport_place=document.place(element if soap is None else soap),
    )


def _read_operations(
    document: Document, binding: etree._Element, patterns: Mapping[str, Mapping[_Key, Mep | None]]
) -> Iterator[Operation]:
    interface = patterns.get(document.qname(binding, "type"), {})
    for element in document.children(binding, f"{_WSDL}operation"):
        soap, _ = soap_element(element, "operation")
        name, _, _ = key = _key(element)
        # names of input and output are needed only if the operation is overloaded
        mep = interface.get(key, interface.get((name, None, None), _pattern(element)))
        action = None if soap is None else soap.get("soapAction")
        yield Operation(str(name), action, mep, document.place(element))


def _read_patterns(documents: Sequence[Document]) -> dict[str, dict[_Key, Mep | None]]:
    """Return the patterns of the operations of each port type; the first of each name also by its name alone."""
    found: dict[str, dict[_Key, Mep | None]] = {}
    for document in documents:
        for element in document.children(document.root, f"{_WSDL}portType"):
            operations = found.setdefault(document.name_of(element), {})
            for operation in document.children(element, f"{_WSDL}operation"):
                key = _key(operation)
                operations.setdefault((key[0], None, None), _pattern(operation))
                operations.setdefault(key, _pattern(operation))
    return found


def _key(operation: etree._Element) -> _Key:
    names = (operation.find(f"{_WSDL}{each}") for each in ("input", "output"))
    first, second = (None if each is None else each.get("name") for each in names)
    return operation.get("name", ""), first, second


def _pattern(operation: etree._Element) -> Mep | None:
    parts = operation.iterchildren(f"{_WSDL}input", f"{_WSDL}output")
    return _PATTERNS.get(tuple(etree.QName(each).localname for each in parts))


def read_ports(
    document: Document,
    element: etree._Element,
    service: Service,
    bindings: Mapping[str, tuple[Binding, tuple[Operation, ...]]],
) -> Iterator[Port]:
    """Yield the ports of a service."""
    for port in document.children(element, f"{_WSDL}port"):
        name = document.qname(port, "binding")
        binding, operations = bindings.get(name, (None, ()))
        address, version = soap_element(port, "address")
        location = None if address is None else address.get("location")
        yield Port(
            name=port.get("name", ""),
            service=service,
            binding_name=name,
            binding=binding,
            address=None if location is None else location.strip(),
            address_version=version,
            extensions=read_extensions(document, port),
            operations=operations,
            wsdl=WsdlVersion.WSDL_11,
            place=document.place(port),
            address_place=document.place(port if address is None else address),
        )
