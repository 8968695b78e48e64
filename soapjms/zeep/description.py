"""The description of a port of a WSDL: zeep's operations and types for it, and the schema to check against.

libxml2 makes the checks that zeep does not make, with all schemas of the WSDL as one schema. zeep resolves names in
every document it has loaded. libxml2 is strict: it reads one document for each namespace, and a document may only refer
to namespaces that it imports. So each document is rewritten to import every namespace of the WSDL, and for each
namespace one document includes all documents of that namespace, wherever they were included or imported.

Spec: XML Schema 1.0 Part 1 4.2.1, 4.2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from soapjms.protocol.xml import XSD, Misfit, Schema
from soapjms.wsdl import folders_given, read_wsdl
from soapjms.zeep.bindings import BINDING_CLASSES
from soapjms.zeep.client import read_document
from soapjms.zeep.loader import DocumentLoader, Loader

WRAPPERS: Final = "urn:soapjms:wrappers"
"""The namespace that the wrapper elements of RPC messages have while they are checked."""

_MAIN: Final = "main"
_INLINE: Final = f"{{{WSDL11}}}types/{SCHEMA}"


def compiled(documents: Mapping[str, bytes], wrappers: Mapping[str, Sequence[tuple[str, Any]]]) -> xml.Schema:
    """Make a schema.

    Args:
        documents: a WSDL and all documents that it imports, by the address that zeep loaded each from.
        wrappers: the parts of each RPC message, as name and zeep's part, by the name of the message.

    Raises:
        ValueError: libxml2 finds a mistake, which the error describes.
    """
    schemas = SchemaDocuments(documents)
    return xml.Schema(schemas.written() | {_MAIN: schemas.main(wrappers)}, _MAIN)


class SchemaDocuments:
    """The schema documents of a WSDL: those inside of it, and those that they refer to.

    Args:
        documents: the WSDL and all documents that it imports, by the address that zeep loaded each from.
    """

    def __init__(self, documents: Mapping[str, bytes]) -> None:
        self._documents = documents
        self._copies: dict[str, tuple[etree._Element, str]] = {}  # by our location: the copy and its namespace
        self._roots: dict[str, list[str]] = {}  # by namespace: the locations of its documents
        self._known: set[tuple[str, str]] = set()  # address and namespace of each reference
        for address, octets in documents.items():
            for schema in xml.parse(octets).iterfind(_INLINE):
                self._add(schema, address)

    def __iter__(self) -> Iterator[tuple[etree._Element, str]]:
        """Yield each schema, without its imports and includes, and its namespace."""
        yield from self._copies.values()

    def _add(self, schema: etree._Element, address: str) -> None:
        """Add a schema inside a WSDL, and the documents that it refers to."""
        self._add_root(schema, address, schema.get("targetNamespace", ""))

    def _add_root(self, schema: etree._Element, address: str, namespace: str) -> None:
        location = f"schema:{len(self._copies)}"
        self._roots.setdefault(namespace, []).append(location)
        copy = xml.parse(etree.tostring(schema, with_tail=False))  # with the prefixes that the WSDL declares
        self._copies[location] = copy, namespace
        for each in copy.findall(f"{{{XSD}}}import"):
            self._refer(each, address, each.get("namespace", ""))
            copy.remove(each)
        for each in copy.findall(f"{{{XSD}}}include"):
            self._refer(each, address, namespace)
            copy.remove(each)

    def _refer(self, element: etree._Element, address: str, namespace: str) -> None:
        """Add the document that an import or include refers to, if zeep loaded it, in the given namespace."""
        target = absolute_location(element.get("schemaLocation", ""), address)
        if target in self._documents and (target, namespace) not in self._known:
            self._known.add((target, namespace))
            self._add_root(xml.parse(self._documents[target]), target, namespace)

    def written(self) -> dict[str, bytes]:
        """Return all documents, and one for each namespace, by location."""
        found = {}
        for location, (copy, namespace) in self._copies.items():
            for number, each in enumerate(each for each in self._roots if each != namespace):
                copy.insert(number, self._import(each))
            found[location] = etree.tostring(copy)
        for namespace, locations in self._roots.items():
            root = schema_root(namespace)
            for each in locations:
                etree.SubElement(root, f"{{{XSD}}}include", schemaLocation=each)
            found[self._location(namespace)] = etree.tostring(root)
        return found

    def main(self, wrappers: Mapping[str, Sequence[tuple[str, Any]]]) -> bytes:
        """Return the document that imports all namespaces and has the wrappers of RPC messages."""
        root = schema_root(WRAPPERS)
        root.extend(self._import(each) for each in self._roots)
        for name, parts in wrappers.items():
            add_wrapper(root, name, parts)
        return etree.tostring(root)

    def _import(self, namespace: str) -> etree._Element:
        element = etree.Element(f"{{{XSD}}}import", schemaLocation=self._location(namespace))
        if namespace:
            element.set("namespace", namespace)
        return element

    def _location(self, namespace: str) -> str:
        return f"namespace:{list(self._roots).index(namespace)}"


def add_wrapper(schema: etree._Element, name: str, parts: Sequence[tuple[str, Any]]) -> None:
    """Add the element to a schema that wraps the parts of an RPC message: name and zeep's part for each."""
    wrapper = etree.SubElement(schema, f"{{{XSD}}}element", name=name)
    sequence = etree.SubElement(etree.SubElement(wrapper, f"{{{XSD}}}complexType"), f"{{{XSD}}}sequence")
    for part_name, part in parts:
        attributes = {"name": part_name} if part.element is None else {}
        qname = part.type.qname if part.element is None else part.element.qname
        nsmap = {"part": qname.namespace} if qname.namespace else None
        element = etree.SubElement(sequence, f"{{{XSD}}}element", attributes, nsmap=nsmap)
        element.set("type" if attributes else "ref", f"part:{qname.localname}" if nsmap else qname.localname)


def schema_root(namespace: str) -> etree._Element:
    """Make an empty schema for a namespace."""
    root = etree.Element(f"{{{XSD}}}schema", nsmap={"xs": XSD})
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
        path: the path of the WSDL.
        port: the port, as soapjms reads the WSDL.
        document: the WSDL, as zeep reads it.
        documents: the WSDL and all documents that it imports, by the address that zeep loaded each from.
        binding: zeep's binding of the port.
        schema: the schema to validate against; None to skip validation.
        missing: findings for references in the WSDL that lead nowhere; `operations` lacks the parts that need them.
    """

    path: Path
    port: Port
    document: Document
    documents: Mapping[str, bytes]
    binding: Any
    schema: Schema | None
    missing: Sequence[Finding]

    @property
    def operations(self) -> Mapping[str, Any]:
        """zeep's operations, by name."""
        found: Mapping[str, Any] = self.binding.all()
        return found

    def misfit(self, element: etree._Element) -> str | None:
        """Say where and why an element does not fit the schema; None if it fits, or there is no schema."""
        return None if self.schema is None else _said(self.schema.misfit(element))

    def content_misfit(self, element: etree._Element, message: Any) -> str | None:
        """Say the same of an element in the body of a message.

        The wrapper of an RPC message is not in any schema by its own name, so the element is renamed for the check.
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
    """Return the name that the wrapper of an RPC message has while it is checked."""
    return f"{message.operation.name}.{message.type}"


def described(
    path: str | Path, port: str | None, *, validate: bool, loader: Loader | None, allow: Iterable[str | Path] = ()
) -> PortDescription:
    """Read a WSDL.

    Args:
        path: the path of the file.
        port: the name of the port, or SERVICE/PORT; None for the only SOAP/JMS port.
        validate: make a schema that requests and answers are validated against.
        loader: fetches imports that are not local files; None refuses them.
        allow: folders that imports may be read from, beside that of the WSDL.

    Raises:
        InvalidWsdlError: the WSDL or a schema cannot be read or used.
        UsageError: there is no such port, or more than one.
    """
    allow = folders_given(allow)
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
    return PortDescription(Path(path), chosen, document, kept.documents, binding, schema, said.missing)


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
            f"{path}: its schemas are not valid XML Schema: {error}; correct them, or use validate=False to check the "
            "types only"
        ) from None


def is_rpc(message: Any) -> bool:
    """Say whether a message is in the RPC style."""
    return isinstance(message, RpcMessage)


def element_of(message: Any) -> str:
    """Return the name of the element that a message has in its body, in Clark notation; empty for an empty body."""
    if message.body is None:
        return ""
    if message._is_body_wrapped:
        return str(message.body.type.elements[0][1].qname.text)
    return str(message.body.qname.text)


def _binding_element(operation: Any) -> etree._Element:
    """Return the element of an operation in its binding."""
    binding: etree._Element = operation.binding.standing.element
    return next(each for each in binding.iterfind("{*}operation") if each.get("name") == operation.name)


def empty_content(operation: Any) -> etree._Element | None:
    """Return what the body of a response without values holds: the wrapper in the RPC style, else None for nothing.

    Spec: WS-I Basic Profile 1.1 R2729.
    """
    if not is_rpc(operation.output):
        return None
    output = _binding_element(operation).find("{*}output")
    body = None if output is None else next(output.iter("{*}body"), None)
    namespace = None if body is None else body.get("namespace")
    return etree.Element(etree.QName(namespace, f"{operation.name}Response"))


def refuse_unserved(operation: Any) -> None:
    """Refuse an operation without requests, and one that WS-I has ruled out.

    Raises:
        UsageError: the message says what the WSDL must have.

    Spec: WS-I Basic Profile 1.1 R2204, R2303, R2304, R2706.
    """
    operation.binding.refuse_overload(operation.name)
    if operation.input is None:
        raise UsageError(f"the operation {operation.name} has no input in the WSDL, so there are no requests for it")
    for body in _binding_element(operation).iter("{*}body", "{*}header"):
        if body.get("use", "literal") != "literal":
            raise UsageError(
                f"the operation {operation.name} must have use='literal' in the WSDL, got {body.get('use')!r}"
            )
    for message in (operation.input, operation.output):
        if message is None or message.body is None or isinstance(message, RpcMessage):
            continue
        for name, part in message.abstract.parts.items():
            if part.element is None:
                raise UsageError(
                    f"the part {name!r} of the operation {operation.name} has a type in the WSDL; in document style "
                    'it must have an element (WS-I Basic Profile R2204), or else use style="rpc"'
                )
