"""What a typed service goes by: a port of a WSDL, zeep's types for it, and the schema to check against.

libxml2 makes the checks that zeep does not make, with the schemas of the WSDL as one schema. zeep resolves names in
whatever it has loaded. libxml2 goes by the letter: it reads one document for each namespace, and a document refers
only to namespaces that it imports. So each document is written anew: it imports every namespace of the WSDL, each as
one document that includes all that it consists of, wherever that was included or imported.

Spec: XML Schema 1.0 Part 1 4.2.1, 4.2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import zeep
import zeep.exceptions
from lxml import etree
from zeep.loader import absolute_location
from zeep.wsdl import Document
from zeep.wsdl.messages import RpcMessage

from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidWsdlError, UsageError
from soapjms.protocol.wsdl import Finding, Port
from soapjms.protocol.wsdl.documents import SCHEMA, WSDL11
from soapjms.protocol.xml import Misfit, Schema
from soapjms.wsdl import read_wsdl
from soapjms.zeep.bindings import BINDING_CLASSES
from soapjms.zeep.client import read_document
from soapjms.zeep.loader import DocumentLoader, Loader

XS: Final = "http://www.w3.org/2001/XMLSchema"
WRAPPERS: Final = "urn:soapjms:wrappers"
"""The namespace of the elements that wrap the parts of RPC messages, as they are called while they are checked."""

_MAIN: Final = "main"
_INLINE: Final = f"{{{WSDL11}}}types/{SCHEMA}"


def compiled(documents: Mapping[str, bytes], wrappers: Mapping[str, Sequence[tuple[str, Any]]]) -> xml.Schema:
    """Make a schema.

    Args:
        documents: of a WSDL with all that it imports, by the address that zeep loaded each from.
        wrappers: the parts of RPC messages, each with its name and zeep's part, by the name of the message.

    Raises:
        ValueError: libxml2 finds a mistake; the text says which.
    """
    gathered = _Gathered(documents)
    for address, octets in documents.items():
        for schema in xml.parse(octets).iterfind(_INLINE):
            gathered.add(schema, address)
    return xml.Schema(gathered.written() | {_MAIN: gathered.main(wrappers)}, _MAIN)


class _Gathered:
    """The schema documents of a WSDL, as far as they were reached."""

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self._documents = documents
        self._copies: dict[str, tuple[etree._Element, str]] = {}  # by our location: with the namespace that it makes
        self._roots: dict[str, list[str]] = {}  # by namespace: the documents that it consists of
        self._known: set[tuple[str, str]] = set()  # address and namespace of what was referred to

    def add(self, schema: etree._Element, address: str) -> None:
        """Add a schema that stands in a WSDL, and what it refers to."""
        self._add_root(schema, address, schema.get("targetNamespace", ""))

    def _add_root(self, schema: etree._Element, address: str, namespace: str) -> None:
        location = f"schema:{len(self._copies)}"
        self._roots.setdefault(namespace, []).append(location)
        copy = xml.parse(etree.tostring(schema, with_tail=False))  # with the prefixes that the WSDL declares
        self._copies[location] = copy, namespace
        for each in copy.findall(f"{{{XS}}}import"):
            self._refer(each, address, each.get("namespace", ""))
            copy.remove(each)
        for each in copy.findall(f"{{{XS}}}include"):
            self._refer(each, address, namespace)
            copy.remove(each)

    def _refer(self, element: etree._Element, address: str, namespace: str) -> None:
        """Add what an import or include refers to, if zeep loaded it: in the namespace of whoever includes it."""
        target = absolute_location(element.get("schemaLocation", ""), address)
        if target in self._documents and (target, namespace) not in self._known:
            self._known.add((target, namespace))
            self._add_root(xml.parse(self._documents[target]), target, namespace)

    def written(self) -> dict[str, bytes]:
        """Write all documents, and one for each namespace."""
        found = {}
        for location, (copy, namespace) in self._copies.items():
            for number, each in enumerate(each for each in self._roots if each != namespace):
                copy.insert(number, self._import(each))
            found[location] = etree.tostring(copy)
        for namespace, locations in self._roots.items():
            root = _schema_root(namespace)
            for each in locations:
                etree.SubElement(root, f"{{{XS}}}include", schemaLocation=each)
            found[self._location(namespace)] = etree.tostring(root)
        return found

    def main(self, wrappers: Mapping[str, Sequence[tuple[str, Any]]]) -> bytes:
        """Write the document that imports all, and has the wrappers of RPC messages."""
        root = _schema_root(WRAPPERS)
        root.extend(self._import(each) for each in self._roots)
        for name, parts in wrappers.items():
            wrapper = etree.SubElement(root, f"{{{XS}}}element", name=name)
            sequence = etree.SubElement(etree.SubElement(wrapper, f"{{{XS}}}complexType"), f"{{{XS}}}sequence")
            for part_name, part in parts:
                attributes = {"name": part_name} if part.element is None else {}
                qname = part.type.qname if part.element is None else part.element.qname
                nsmap = {"part": qname.namespace} if qname.namespace else None
                element = etree.SubElement(sequence, f"{{{XS}}}element", attributes, nsmap=nsmap)
                element.set("type" if attributes else "ref", f"part:{qname.localname}" if nsmap else qname.localname)
        return etree.tostring(root)

    def _import(self, namespace: str) -> etree._Element:
        element = etree.Element(f"{{{XS}}}import", schemaLocation=self._location(namespace))
        if namespace:
            element.set("namespace", namespace)
        return element

    def _location(self, namespace: str) -> str:
        return f"namespace:{list(self._roots).index(namespace)}"


def _schema_root(namespace: str) -> etree._Element:
    root = etree.Element(f"{{{XS}}}schema", nsmap={"xs": XS})
    if namespace:
        root.set("targetNamespace", namespace)
    return root


class _Kept(DocumentLoader):
    """Keeps the documents that it loads."""

    def __init__(self, loader: Loader | None, allow: Iterable[str | Path]) -> None:
        super().__init__(BINDING_CLASSES, loader, allow)
        self.documents: dict[str, bytes] = {}

    def load(self, url: str) -> bytes:
        octets = self.documents[url] = super().load(url)
        return octets


@dataclass(frozen=True, slots=True)
class PortDescription:
    """A port of a WSDL.

    Attributes:
        path: of the WSDL.
        port: what the WSDL says of the port.
        document: what zeep made of the WSDL.
        binding: zeep's binding of the port.
        schema: None where nothing is held to it.
        missing: what the WSDL refers to and does not have; what depends on it is not in `operations`.
    """

    path: Path
    port: Port
    document: Document
    binding: Any
    schema: Schema | None
    missing: Sequence[Finding]

    @property
    def operations(self) -> Mapping[str, Any]:
        """zeep's operations, by name."""
        found: Mapping[str, Any] = self.binding.all()
        return found

    def misfit(self, element: etree._Element) -> str | None:
        """Say where and why an element does not fit the schema, None if it does, or there is no schema."""
        return None if self.schema is None else _said(self.schema.misfit(element))

    def content_misfit(self, element: etree._Element, message: Any) -> str | None:
        """Say the same of an element in the body of a message.

        The wrapper of an RPC message is in no schema by its name; the element is the caller's own copy.
        """
        if self.schema is None or not isinstance(message, RpcMessage):
            return self.misfit(element)
        tag, element.tag = element.tag, f"{{{WRAPPERS}}}{wrapper_name(message)}"
        found = self.schema.misfit(element)
        element.tag = tag
        return _said(found and found._replace(path=(etree.QName(element).localname, *found.path[1:])))


def _said(found: Misfit | None) -> str | None:
    return None if found is None else f"{'.'.join(found.path)}: {found.text}"


def wrapper_name(message: Any) -> str:
    """Return how the wrapper of an RPC message is called while it is checked."""
    return f"{message.operation.name}.{message.type}"


def described(
    path: str | Path, port: str | None, *, validate: bool, loader: Loader | None, allow: Iterable[str | Path] = ()
) -> PortDescription:
    """Read a WSDL.

    Args:
        path: of the file.
        port: its name, or SERVICE/PORT; the only SOAP/JMS port where it is None.
        validate: make a schema that requests and answers are held to.
        loader: fetches what is no local file; without one that is refused.
        allow: folders that imports may be read from, beside that of the WSDL.

    Raises:
        InvalidWsdlError: the WSDL or a schema cannot be read or used.
        UsageError: there is no such port, or more than one.
    """
    allow = tuple(allow)
    said = read_wsdl(path, allow=allow)
    chosen = said.port(port)
    kept = _Kept(loader, allow)
    try:
        document = read_document(Path(path), kept, zeep.Settings())
    except (zeep.exceptions.Error, InvalidWsdlError) as error:
        if isinstance(error, InvalidWsdlError) and not said.missing:
            raise
        why = said.missing[0] if said.missing else error
        raise InvalidWsdlError(f"{path} cannot be used: {why}") from error
    try:
        binding = document.services[chosen.service.name].ports[chosen.name].binding
    except KeyError:
        raise UsageError(
            f"the port {chosen.name!r} has no SOAP binding that can be served; {_hint(document)}"
        ) from None
    schema = _schema_of(path, kept.documents, binding) if validate else None
    return PortDescription(Path(path), chosen, document, binding, schema, said.missing)


def _hint(document: Document) -> str:
    there = [f"{name}/{port}" for name, service in document.services.items() for port in service.ports]
    return f"there are: {', '.join(there) or 'none'}"


def _schema_of(path: str | Path, documents: Mapping[str, bytes], binding: Any) -> Schema:
    messages: list[Any] = [
        message
        for operation in binding.all().values()
        for message in (operation.input, operation.output)
        if isinstance(message, RpcMessage) and message.body is not None
    ]
    wrappers = {wrapper_name(each): list(each.abstract.parts.items()) for each in messages}
    try:
        return compiled(documents, wrappers)
    except ValueError as error:
        raise InvalidWsdlError(
            f"{path}: its schemas are not as XML Schema has them: {error}; mend them, or give validate=False to go by "
            "the types alone"
        ) from None
