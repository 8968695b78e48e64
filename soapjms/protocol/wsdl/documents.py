"""The documents of a WSDL: the first one, and those it imports or includes, each parsed once.

The caller's `load` decides what is loaded from where; this file limits the number and depth of imports, refuses loops,
and limits the content of one element, as the work on a port grows with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from lxml import etree

from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.uri.redact import without_user_info
from soapjms.protocol.wsdl.findings import Place
from soapjms.protocol.xml import XSD

WSDL11: Final = "http://schemas.xmlsoap.org/wsdl/"
WSDL20: Final = "http://www.w3.org/ns/wsdl"
ROOTS: Final = (f"{{{WSDL11}}}definitions", f"{{{WSDL20}}}description")
SCHEMA: Final = f"{{{XSD}}}schema"

MAX_DEPTH: Final = 100
"""Longest chain of imports, in documents, including the first and the last."""
MAX_DOCUMENTS: Final = 100
MAX_IMPORTS: Final = 1000
MAX_DOCUMENTS_OCTETS: Final = 16 << 20
MAX_CHILDREN: Final = 1000
MAX_PREFIXES: Final = 500
MAX_PORTS: Final = 500
SHOWN_OF_A_LOOP: Final = 5


class Loaded(NamedTuple):
    """An imported document: its name, the same for the same document by any path, and its octets."""

    name: str
    octets: bytes


Load: TypeAlias = Callable[[str, str], Loaded]
"""Loads an imported document; called with the location as written, and the name of the importing document."""


def load_nothing(location: str, base: str) -> Loaded:
    """Refuse to load anything."""
    raise InvalidWsdlError(
        f"{base} imports {without_user_info(location)!r}, and nothing is loaded here; read the WSDL from its file"
    )


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Attributes:
        file: its name.
        root: its root element, that of a WSDL or of a schema.
    """

    file: str
    root: etree._Element

    @property
    def namespace(self) -> str:
        """The target namespace of its components; empty if there is none."""
        return self.root.get("targetNamespace", "")

    def place(self, element: etree._Element) -> Place:
        """Return the place of an element."""
        return Place(self.file, element.sourceline or 0)

    def name_of(self, element: etree._Element) -> str:
        """Return the name of a component in Clark notation."""
        return f"{{{self.namespace}}}{element.get('name', '')}"

    def children(self, element: etree._Element, *tags: str) -> list[etree._Element]:
        """Return the child elements with these tags.

        Raises:
            InvalidWsdlError: there are more than `MAX_CHILDREN`.
        """
        found = list(element.iterchildren(*tags))
        if len(found) > MAX_CHILDREN:
            local = etree.QName(tags[0]).localname
            raise InvalidWsdlError(
                f"{self.place(element)}: {len(found)} elements such as {local} in one; accepted are {MAX_CHILDREN}"
            )
        return found

    def qname(self, element: etree._Element, attribute: str) -> str:
        """Return the QName in an attribute in Clark notation; as it is written if its prefix is not declared.

        Raises:
            InvalidWsdlError: more than `MAX_PREFIXES` prefixes are in scope.
        """
        return self._resolve(element, element.get(attribute, "").strip())

    def qnames(self, element: etree._Element, attribute: str) -> tuple[str, ...]:
        """Return the QNames in an attribute that lists them; see `qname`."""
        return tuple(self._resolve(element, each) for each in element.get(attribute, "").split()[:MAX_CHILDREN])

    def _resolve(self, element: etree._Element, text: str) -> str:
        scope = element.nsmap
        if len(scope) > MAX_PREFIXES:
            raise InvalidWsdlError(f"{self.place(element)}: {len(scope)} namespaces; accepted are {MAX_PREFIXES}")
        prefix, colon, local = text.rpartition(":")
        space = scope.get(prefix if colon else None)
        return text if space is None or not text else f"{{{space}}}{local}"


@dataclass(slots=True)
class _Loader:
    load: Load
    seen: dict[str, Document]
    schemas: dict[str, Document]
    octets: int = 0
    imports: int = 0

    def read(self, octets: bytes, chain: tuple[str, ...]) -> Iterator[Document]:
        """Read a document and those it imports; `chain` names the documents that lead to it, itself last."""
        root = self._parse(octets, chain)
        if root is None:
            return
        document = self.seen[chain[-1]] = Document(chain[-1], root)
        yield document
        space = etree.QName(root).namespace
        found: dict[str, Place] = {}
        for element in document.children(root, f"{{{space}}}import", f"{{{space}}}include"):
            location = element.get("location")
            if location is not None:
                found.setdefault(location.strip(), document.place(element))
        for location, place in found.items():
            yield from self._follow(location, place, chain)

    def _parse(self, octets: bytes, chain: tuple[str, ...]) -> etree._Element | None:
        """Parse a document of the same WSDL version; None for an imported schema, which is kept apart."""
        self.octets += len(octets)
        if self.octets > MAX_DOCUMENTS_OCTETS:
            raise InvalidWsdlError(
                f"{chain[-1]}: the WSDL has more than {MAX_DOCUMENTS_OCTETS >> 20} MiB with its imports"
            )
        try:
            root = xml.parse(octets)
        except ValueError as error:
            raise InvalidWsdlError(f"{chain[-1]}: {error}") from None
        first = next(iter(self.seen.values()), None)
        if first is not None and root.tag == SCHEMA:
            self.schemas[chain[-1]] = Document(chain[-1], root)
            return None
        wanted = ROOTS if first is None else (str(first.root.tag),)
        if root.tag not in wanted:
            raise InvalidWsdlError(f"{chain[-1]}: the root element is {root.tag!s}; accepted is {' or '.join(wanted)}")
        return root

    def _follow(self, location: str, place: Place, chain: tuple[str, ...]) -> Iterator[Document]:
        self.imports += 1
        if self.imports > MAX_IMPORTS:
            raise InvalidWsdlError(f"{place}: the WSDL has more than {MAX_IMPORTS} imports in all its documents")
        try:
            name, octets = self.load(location, chain[-1])
        except InvalidWsdlError as error:
            raise InvalidWsdlError(f"{place}: {error}") from None
        if name in chain:
            loop = _shown((*chain[chain.index(name) :], name))
            raise InvalidWsdlError(f"{place}: the imports run in a loop: {loop}; take one of them out")
        if name in self.seen:
            return
        if len(chain) >= MAX_DEPTH:
            raise InvalidWsdlError(f"{place}: imports go more than {MAX_DEPTH} levels deep; put them into fewer files")
        if len(self.seen) >= MAX_DOCUMENTS:
            raise InvalidWsdlError(f"{place}: the WSDL imports more than {MAX_DOCUMENTS} documents")
        yield from self.read(octets, (*chain, name))


def _shown(loop: tuple[str, ...]) -> str:
    """Describe which document imports which; of a long loop only its beginning and its end."""
    if len(loop) > 2 * SHOWN_OF_A_LOOP:
        left_out = f"({len(loop) - 2 * SHOWN_OF_A_LOOP} more)"
        loop = (*loop[:SHOWN_OF_A_LOOP], left_out, *loop[-SHOWN_OF_A_LOOP:])
    return " imports ".join(loop)


def load_documents(octets: bytes, file: str, load: Load = load_nothing) -> list[Document]:
    """Read a WSDL with all documents that it imports or includes; directly imported schemas come last.

    Args:
        octets: the first document.
        file: the name of the first document.
        load: loads the other documents.

    Raises:
        InvalidWsdlError: a document is not a WSDL of the version of the first, or has a document type; an import is
            refused; or imports form a loop, are too deep, too many or too large.
    """
    loader = _Loader(load, {}, {})
    return [*loader.read(octets, (file,)), *loader.schemas.values()]
