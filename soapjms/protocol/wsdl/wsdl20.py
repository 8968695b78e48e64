"""Reading WSDL 2.0 with its SOAP binding.

Spec: WSDL 2.0 2; WSDL 2.0 Adjuncts 5; SOAP/JMS 3.5, 3.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lxml import etree

from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.names import Mep, SoapVersion
from soapjms.protocol.wsdl.documents import MAX_CHILDREN, WSDL20, Document
from soapjms.protocol.wsdl.elements import read_extensions
from soapjms.protocol.wsdl.findings import Finding, Place, finding
from soapjms.protocol.wsdl.model import Binding, Operation, Port, Service, WsdlVersion

WSOAP: Final = "http://www.w3.org/ns/wsdl/soap"
_WSDL: Final = f"{{{WSDL20}}}"
_SOAP: Final = f"{{{WSOAP}}}"
HOMES: Final = frozenset({f"{_WSDL}binding", f"{_WSDL}service", f"{_WSDL}endpoint"})
"""The elements in which soapjms elements have an effect."""

_VERSIONS: Final[Mapping[str, SoapVersion]] = {str(each): each for each in SoapVersion}
_PATTERNS: Final[Mapping[str, Mep]] = {
    "http://www.w3.org/ns/wsdl/in-out": Mep.REQUEST_RESPONSE,
    "http://www.w3.org/ns/wsdl/in-only": Mep.ONE_WAY,
}
MAX_INTERFACES: Final = 100
_DEFAULT_PATTERN: Final = "http://www.w3.org/ns/wsdl/in-out"


@dataclass(frozen=True, slots=True)
class _Interface:
    """An interface: the interfaces that it extends, and the pattern and place of each operation by name."""

    extends: tuple[str, ...]
    operations: Mapping[str, tuple[Mep | None, Place]]


@dataclass(frozen=True, slots=True)
class SoapBinding:
    """A binding with the SOAP action and the SOAP MEP of its operations, by the operation's name."""

    binding: Binding
    actions: Mapping[str, str]
    patterns: Mapping[str, str]
    default_pattern: str | None


class Interfaces:
    """The interfaces of a WSDL, each with all its own and inherited operations."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._found = {
            document.name_of(element): _read_interface(document, element)
            for document in documents
            for element in document.children(document.root, f"{_WSDL}interface")
        }
        self._all: dict[str, Mapping[str, tuple[Mep | None, Place]]] = {}

    def operations(self, name: str) -> Mapping[str, tuple[Mep | None, Place]]:
        """Return the operations of an interface, its own first; empty for a missing interface.

        Raises:
            InvalidWsdlError: the interface has too many operations, or inherits too many interfaces.
        """
        if name not in self._all:
            gathered: dict[str, tuple[Mep | None, Place]] = {}
            waiting, seen = [name], {name}
            while waiting:
                interface = self._found.get(waiting.pop(0))
                if interface is not None:
                    gathered = gathered | {
                        key: value for key, value in interface.operations.items() if key not in gathered
                    }
                    waiting += [each for each in interface.extends if each not in seen]
                    seen.update(interface.extends)
                if len(gathered) > MAX_CHILDREN or len(seen) > MAX_INTERFACES:
                    raise InvalidWsdlError(
                        f"the interface {name} has more than {MAX_CHILDREN} operations, or inherits more than "
                        f"{MAX_INTERFACES} interfaces"
                    )
            self._all[name] = gathered
        return self._all[name]


def _read_interface(document: Document, element: etree._Element) -> _Interface:
    operations = {
        each.get("name", ""): (_PATTERNS.get(each.get("pattern", _DEFAULT_PATTERN).strip()), document.place(each))
        for each in document.children(element, f"{_WSDL}operation")
    }
    return _Interface(document.qnames(element, "extends"), operations)


def read_bindings(documents: Sequence[Document]) -> Iterator[SoapBinding]:
    """Yield the bindings."""
    for document in documents:
        for element in document.children(document.root, f"{_WSDL}binding"):
            operations = document.children(element, f"{_WSDL}operation")
            names = [(each, document.qname(each, "ref").rpartition("}")[2]) for each in operations]
            yield SoapBinding(
                _read_binding(document, element),
                {name: action for each, name in names if (action := each.get(f"{_SOAP}action")) is not None},
                {name: pattern for each, name in names if (pattern := each.get(f"{_SOAP}mep")) is not None},
                element.get(f"{_SOAP}mepDefault"),
            )


def _read_binding(document: Document, element: etree._Element) -> Binding:
    place = document.place(element)
    protocol = element.get(f"{_SOAP}protocol")
    is_soap = protocol is not None or element.get("type", "").strip() == WSOAP
    return Binding(
        name=document.name_of(element),
        transport=None if protocol is None else protocol.strip(),
        soap_version=_VERSIONS.get(element.get(f"{_SOAP}version", "1.2").strip()) if is_soap else None,
        interface=document.qname(element, "interface"),
        extensions=read_extensions(document, element),
        place=place,
        transport_place=place,
        problems=tuple(_binding_problems(element, place)) if is_soap else (),
    )


def _binding_problems(element: etree._Element, place: Place) -> Iterator[Finding]:
    kind, version = element.get("type", "").strip(), element.get(f"{_SOAP}version", "1.2").strip()
    if kind != WSOAP:
        yield finding("bindingType", place, seen=kind)
    if version not in _VERSIONS:
        yield finding("soapVersion", place, seen=version)


def read_endpoints(
    document: Document,
    element: etree._Element,
    service: Service,
    bindings: Mapping[str, SoapBinding],
    interfaces: Interfaces,
) -> Iterator[Port]:
    """Yield the endpoints of a service. A binding without interface has the interface of the service."""
    for endpoint in document.children(element, f"{_WSDL}endpoint"):
        name = document.qname(endpoint, "binding")
        found = bindings.get(name)
        address = endpoint.get("address")
        interface = (found.binding.interface if found else "") or document.qname(element, "interface")
        place = document.place(endpoint)
        yield Port(
            name=endpoint.get("name", ""),
            service=service,
            binding_name=name,
            binding=found.binding if found else None,
            address=None if address is None else address.strip(),
            address_version=None,
            extensions=read_extensions(document, endpoint),
            operations=tuple(_operations(interfaces.operations(interface), found)),
            wsdl=WsdlVersion.WSDL_20,
            place=place,
            address_place=place,
        )


def _operations(operations: Mapping[str, tuple[Mep | None, Place]], binding: SoapBinding | None) -> Iterator[Operation]:
    for name, (mep, place) in operations.items():
        stated = None if binding is None else binding.patterns.get(name, binding.default_pattern)
        if stated is not None and stated.strip() not in tuple(Mep):
            mep = None
        yield Operation(name, None if binding is None else binding.actions.get(name), mep, place)
