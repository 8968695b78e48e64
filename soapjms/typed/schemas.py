"""The schemas of a WSDL as one schema of libxml2: for the checks that zeep does not make.

zeep resolves names in whatever it has loaded. libxml2 goes by the letter: it reads one document for each namespace, and
a document refers only to namespaces that it imports. So each document is written anew: it imports every namespace of
the WSDL, each as one document that includes all that it consists of, wherever that was included or imported.

Spec: XML Schema 1.0 Part 1 4.2.1, 4.2.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lxml import etree
from zeep.loader import absolute_location

from soapjms.protocol import xml
from soapjms.protocol.wsdl.documents import SCHEMA, WSDL11

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
            root = _schema(namespace)
            for each in locations:
                etree.SubElement(root, f"{{{XS}}}include", schemaLocation=each)
            found[self._location(namespace)] = etree.tostring(root)
        return found

    def main(self, wrappers: Mapping[str, Sequence[tuple[str, Any]]]) -> bytes:
        """Write the document that imports all, and has the wrappers of RPC messages."""
        root = _schema(WRAPPERS)
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


def _schema(namespace: str) -> etree._Element:
    root = etree.Element(f"{{{XS}}}schema", nsmap={"xs": XS})
    if namespace:
        root.set("targetNamespace", namespace)
    return root
