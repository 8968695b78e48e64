"""The WSDL of a service over JMS for HTTP clients: one port, over HTTP, at the address of the bridge.

Documents that it imports from files are published with it, by number: a client never names a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from lxml import etree

from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidWsdlError, UsageError
from soapjms.protocol.names import EDITION_OF_NAMESPACE, Mep
from soapjms.protocol.text import shown
from soapjms.protocol.wsdl import Description, Port
from soapjms.protocol.wsdl.documents import MAX_DOCUMENTS, MAX_DOCUMENTS_OCTETS, WSDL11, WSDL20, Document
from soapjms.protocol.wsdl.wsdl11 import soap_element
from soapjms.protocol.wsdl.wsdl20 import WSOAP
from soapjms.protocol.xml import XSD
from soapjms.wsdl import Files, folders_given, read_wsdl

REFERENCES: Final[Mapping[str, str]] = {
    f"{{{WSDL11}}}import": "location",
    f"{{{WSDL20}}}import": "location",
    f"{{{WSDL20}}}include": "location",
    **{f"{{{XSD}}}{each}": "schemaLocation" for each in ("import", "include", "redefine", "override")},
}
"""Elements that refer to another document, and the attribute with its location."""

TRANSPORTS: Final[Mapping[str, str]] = {
    f"{{{WSDL11}}}binding": "http://schemas.xmlsoap.org/soap/http",
    f"{{{WSDL20}}}binding": "http://www.w3.org/2003/05/soap/bindings/HTTP/",
}
PORTS: Final = (f"{{{WSDL11}}}port", f"{{{WSDL20}}}endpoint")
HERE: Final = "http://here.soapjms.invalid/"
"""Placeholder for the address of the bridge, which is known only from a request."""


@dataclass(frozen=True, slots=True)
class PublishedWsdl:
    """A WSDL with its imports, ready to be published.

    Attributes:
        documents: the WSDL first, then the documents that it imports; `HERE` stands for the address.
        one_way: the actions and elements of one-way operations that no other operation shares.
        answered: those of request-response operations, likewise.
    """

    documents: Sequence[bytes]
    one_way: frozenset[str]
    answered: frozenset[str]

    def is_one_way(self, names: Set[str | None]) -> bool:
        """Return whether a message with this action and element, either of which may be None, gets no answer.

        If they are of different operations, of which one has an answer, the service answers with a fault.
        """
        return not self.one_way.isdisjoint(names) and self.answered.isdisjoint(names)

    def document(self, number: int, address: str) -> bytes:
        """Return a document with the address of the bridge filled in.

        Raises:
            IndexError: there is no document with that number.
        """
        if number < 0:
            raise IndexError(number)
        return self.documents[number].replace(HERE.encode(), escape(address, {'"': "&quot;"}).encode())


def port_of(described: Description, name: str | None) -> Port:
    """Return the port called `name`; without a name, the only port over JMS or the only port at all.

    Raises:
        UsageError: there is no such port, or more than one.
    """
    if name is None and len(described.ports) == 1:
        return described.ports[0]
    return described.port(name)


def published(
    path: str | Path, name: str | None = None, allow: Iterable[str | Path] = ()
) -> tuple[Port, PublishedWsdl]:
    """Read a WSDL for HTTP clients.

    JMS bindings become HTTP bindings and lose their soapjms elements; other ports and services are left out.

    Args:
        path: path of the file. Its imports are read from files in or below its folder, or in allowed ones; references
            to other locations stay as they are.
        name: the name of the port; None if there is only one.
        allow: other folders that imports may be read from.

    Returns:
        The port as in the file, over JMS or another transport, and the WSDL to publish.

    Raises:
        InvalidWsdlError: the WSDL cannot be read.
        UsageError: there is no such port, or more than one.
    """
    allow = folders_given(allow)
    port = port_of(read_wsdl(path, allow=allow), name)
    if port.soap_version is None:
        raise UsageError(f"{path}: the port {port.name!r} is not a SOAP port, so no SOAP client can call it")
    documents = _Documents(Files(Path(path), allow)).read(str(path))
    one_way, answered = (frozenset(_names(port, documents, each)) for each in (Mep.ONE_WAY, Mep.REQUEST_RESPONSE))
    return port, PublishedWsdl([_over_http(each, port) for each in documents], one_way, answered)


# The documents


class _Documents:
    """A WSDL and the documents that it imports, each once, with references by number."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._found: list[Document] = []
        self._numbers: dict[str, int] = {}
        self._octets = 0

    def read(self, name: str) -> list[Document]:
        self._add(name, self._files.first())
        for document in self._found:  # the list grows meanwhile
            for element in document.root.iter(*REFERENCES):
                self._number(document, element)
        return self._found

    def _add(self, name: str, octets: bytes) -> int:
        self._octets += len(octets)
        if len(self._found) == MAX_DOCUMENTS or self._octets > MAX_DOCUMENTS_OCTETS:
            raise InvalidWsdlError(
                f"{name}: the WSDL has more than {MAX_DOCUMENTS} documents, or {MAX_DOCUMENTS_OCTETS >> 20} MiB "
                "with its imports"
            )
        try:
            self._found.append(Document(name, xml.parse(octets)))
        except ValueError as error:
            raise InvalidWsdlError(f"{name}: {error}") from None
        self._numbers[name] = len(self._found) - 1
        return self._numbers[name]

    def _number(self, document: Document, element: etree._Element) -> None:
        attribute = REFERENCES[str(element.tag)]
        location = element.get(attribute, "").strip()
        if not location or not _is_local(location):
            return
        loaded = self._files.load(location, document.file)
        known = self._numbers.get(loaded.name)
        number = self._add(loaded.name, loaded.octets) if known is None else known
        element.set(attribute, f"{HERE}?doc={number}")


def _is_local(location: str) -> bool:
    try:
        return urlsplit(location).scheme in ("", "file")
    except ValueError:  # its text may repeat a password before the host
        raise InvalidWsdlError(f"an import must have a URI, got {shown(location)}: check its host") from None


def _over_http(document: Document, port: Port) -> bytes:
    """Write a document for HTTP clients."""
    root = document.root
    for each in [each for space in EDITION_OF_NAMESPACE for each in root.iter(f"{{{space}}}*")]:
        parent = each.getparent()
        if parent is not None:
            parent.remove(each)
    for binding in root.iter(*TRANSPORTS):
        _set_transport(binding)
    for element in list(root.iter(*PORTS)):
        parent = element.getparent()
        assert parent is not None, "a port is in a service"
        if (parent.get("name"), element.get("name")) == (port.service.name, port.name):
            _set_address(element)
            continue
        parent.remove(element)
        whole = parent.getparent()
        if whole is not None and next(parent.iterchildren(*PORTS), None) is None:
            whole.remove(parent)  # clients take the first service, and fail if it has no port
    # unused namespaces stay declared: qualified names in values may need them, the default one too
    return etree.tostring(root, encoding="utf-8", xml_declaration=True)


def _set_transport(binding: etree._Element) -> None:
    wanted, attribute = TRANSPORTS[str(binding.tag)], f"{{{WSOAP}}}protocol"
    soap, _ = soap_element(binding, "binding")
    if soap is not None and soap.get("transport", "").strip() in EDITION_OF_NAMESPACE:
        soap.set("transport", wanted)
    if binding.get(attribute, "").strip() in EDITION_OF_NAMESPACE:
        binding.set(attribute, wanted)


def _set_address(port: etree._Element) -> None:
    for reference in list(port.iterfind("{*}EndpointReference")):  # of WS-Addressing: the address over JMS once more
        port.remove(reference)
    address, _ = soap_element(port, "address")
    if address is not None:
        address.set("location", HERE)
    elif port.tag == f"{{{WSDL20}}}endpoint":
        port.set("address", HERE)


# One-way operations


def _names(port: Port, documents: Sequence[Document], mep: Mep) -> Iterator[str]:
    """Yield the actions and elements that only operations with this message exchange pattern have."""
    elements = dict(_elements(port, documents))
    told: dict[str, set[Mep | None]] = {}
    for operation in port.operations:
        for each in (operation.soap_action, elements.get(operation.name)):
            if each:
                told.setdefault(each, set()).add(operation.mep)
    yield from (each for each, patterns in told.items() if patterns == {mep})


def _elements(port: Port, documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """Yield the names of operations, each with the element in the body of its request; the last overload counts."""
    assert port.binding is not None, "it has a SOAP version"
    interface = port.binding.interface
    in_header = {
        (document.qname(each, "message"), each.get("part"))
        for document in documents
        for each in document.root.iterfind(f".//{{{WSDL11}}}binding/*/*/{{*}}header")
    }
    messages = {
        document.name_of(message): _body_element(document, message, in_header)
        for document in documents
        for message in document.root.iterfind(f"{{{WSDL11}}}message")
    }
    for document in documents:
        for operation in document.root.iterfind(f"{{{WSDL11}}}portType/{{{WSDL11}}}operation"):
            parent, asked = operation.getparent(), operation.find(f"{{{WSDL11}}}input")
            if parent is not None and document.name_of(parent) == interface and asked is not None:
                yield operation.get("name", ""), messages.get(document.qname(asked, "message"), "")
        for operation in document.root.iterfind(f"{{{WSDL20}}}interface/{{{WSDL20}}}operation"):
            parent, asked = operation.getparent(), operation.find(f"{{{WSDL20}}}input")
            if parent is not None and document.name_of(parent) == interface and asked is not None:
                yield operation.get("name", ""), document.qname(asked, "element")
    yield from _rpc_wrappers(port, documents)


def _body_element(document: Document, message: etree._Element, in_header: Set[tuple[str, str | None]]) -> str:
    """Return the element of the first part of a message that is in no header, else of its first part; or nothing."""
    parts = list(message.iterfind(f"{{{WSDL11}}}part"))
    name = document.name_of(message)
    found = [each for each in parts if (name, each.get("name")) not in in_header] or parts
    return document.qname(found[0], "element") if found else ""


def _rpc_wrappers(port: Port, documents: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """Yield operations in RPC style: their element has their name, in the namespace of soap:body."""
    for document in documents:
        for operation in document.root.iterfind(f"{{{WSDL11}}}binding/{{{WSDL11}}}operation"):
            binding = operation.getparent()
            if binding is None or document.name_of(binding) != port.binding_name:
                continue
            (soap, _), (whole, _) = soap_element(operation, "operation"), soap_element(binding, "binding")
            asked = operation.find(f"{{{WSDL11}}}input")
            body = None if asked is None else soap_element(asked, "body")[0]
            styles = [None if each is None else each.get("style") for each in (soap, whole)]
            if body is not None and next((each for each in styles if each), "document") == "rpc":
                name = operation.get("name", "")
                yield name, f"{{{body.get('namespace', '')}}}{name}"
