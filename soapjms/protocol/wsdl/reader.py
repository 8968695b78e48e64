"""Reading a WSDL of either version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType

from lxml import etree

from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.wsdl import wsdl11, wsdl20
from soapjms.protocol.wsdl.documents import MAX_PORTS, WSDL11, WSDL20, Document, Load, load_documents, load_nothing
from soapjms.protocol.wsdl.elements import read_extensions, read_misplaced
from soapjms.protocol.wsdl.lint import read_missing
from soapjms.protocol.wsdl.model import Binding, Description, Port, Service, WsdlVersion
from soapjms.protocol.wsdl.schemas import read_remote_schemas


def read(octets: bytes, file: str = "WSDL", load: Load = load_nothing) -> Description:
    """Read a WSDL 1.1 or 2.0 with all documents that it imports. Mistakes in its ports are left for `lint`.

    Args:
        octets: the document.
        file: the name of the document, for places.
        load: loads imported documents; by default imports are refused.

    Raises:
        InvalidWsdlError: a document is not XML, is not a WSDL, or has a document type; an import is refused; or a limit
            is exceeded that no real WSDL reaches.

    Spec: SOAP/JMS 3.4 to 3.6.
    """
    documents = load_documents(octets, file, load)
    if etree.QName(documents[0].root).namespace == WSDL11:
        return _read_11(documents)
    return _read_20(documents)


def _read_11(documents: Sequence[Document]) -> Description:
    bindings = {each[0].name: each for each in reversed(list(wsdl11.read_bindings(documents)))}
    services: list[Service] = []
    ports: list[Port] = []
    for document, element, service in read_services(documents, WSDL11):
        services.append(service)
        _add(ports, wsdl11.read_ports(document, element, service, bindings))
    found = [binding for binding, _ in reversed(bindings.values())]
    return _description(documents, WsdlVersion.WSDL_11, services, found, ports)


def _read_20(documents: Sequence[Document]) -> Description:
    bindings = {each.binding.name: each for each in reversed(list(wsdl20.read_bindings(documents)))}
    interfaces = wsdl20.Interfaces(documents)
    services: list[Service] = []
    ports: list[Port] = []
    for document, element, service in read_services(documents, WSDL20):
        services.append(service)
        _add(ports, wsdl20.read_endpoints(document, element, service, bindings, interfaces))
    found = [each.binding for each in reversed(bindings.values())]
    return _description(documents, WsdlVersion.WSDL_20, services, found, ports)


def read_services(documents: Sequence[Document], wsdl: str) -> Iterator[tuple[Document, etree._Element, Service]]:
    """Yield the services, each with its document and element; `wsdl` is the namespace of the version."""
    for document in documents:
        for element in document.children(document.root, f"{{{wsdl}}}service"):
            extensions = read_extensions(document, element)
            yield document, element, Service(element.get("name", ""), extensions, document.place(element))


def _add(ports: list[Port], more: Iterable[Port]) -> None:
    for port in more:
        if len(ports) >= MAX_PORTS:
            raise InvalidWsdlError(f"{port.place}: the WSDL has more than {MAX_PORTS} ports")
        ports.append(port)


def _description(
    documents: Sequence[Document],
    version: WsdlVersion,
    services: Iterable[Service],
    bindings: Iterable[Binding],
    ports: Iterable[Port],
) -> Description:
    homes = wsdl11.HOMES if version is WsdlVersion.WSDL_11 else wsdl20.HOMES
    return Description(
        version=version,
        services=tuple(services),
        bindings=MappingProxyType({each.name: each for each in bindings}),
        ports=tuple(ports),
        misplaced=tuple(extension for document in documents for extension in read_misplaced(document, homes)),
        remote_schemas=tuple(each for document in documents for each in read_remote_schemas(document)),
        missing=tuple(read_missing(documents, version)),
    )
