"""Limits what zeep may load while it reads a WSDL: local WSDL and schema files, limited in number and size, no DTDs.

zeep asks its transport for every document. Each is checked here first, including the size of its schemas' groups once
they are expanded: zeep copies a group wherever it is referred to. A few lines in which each group refers twice to the
next would exceed the memory of any machine, and a group that refers to itself would never end.

Spec: XML Schema 1.0 Part 1 3.6.6, 3.7.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from lxml import etree
from zeep.loader import absolute_location

from brokers.redaction import without_login
from soapjms.protocol import xml
from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.wsdl import documents
from soapjms.protocol.wsdl.documents import MAX_CHILDREN, MAX_IMPORTS, SCHEMA, WSDL11, WSDL20
from soapjms.protocol.xml import XSD
from soapjms.wsdl import Folders, folders_given, local_path, read_file, real_path
from soapjms.zeep.declarations import Declarations

KINDS: Final[Mapping[str, str]] = {f"{{{XSD}}}group": "group", f"{{{XSD}}}attributeGroup": "attributeGroup"}
LEAVES: Final = frozenset(f"{{{XSD}}}{each}" for each in ("element", "attribute", "any", "anyAttribute"))
"""The members of groups. The type of an element is not part of the group; it may even refer to the same group."""

MAX_MEMBERS: Final = 1_000_000
"""Maximum number of elements and attributes in all groups of a WSDL, counted at every reference."""

MAX_REFERENCES: Final = 100_000


class Name(NamedTuple):
    """The name of a group or an attribute group."""

    kind: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{self.kind} {{{self.namespace}}}{self.local}"


class _Reference(NamedTuple):
    name: Name
    to_own: bool  # to the target namespace of its schema


class _Members(NamedTuple):
    own: int
    groups: tuple[_Reference, ...]


class Groups:
    """The groups in the documents of a WSDL that have been loaded so far."""

    def __init__(self) -> None:
        self._defined: dict[Name, set[_Members]] = {}  # a document may be loaded from several addresses
        self._used: dict[str, Counter[_Reference]] = {}
        self._references = 0

    def add(self, root: etree._Element, name: str) -> None:
        """Add a document, and check its groups together with those of all documents before it.

        Raises:
            InvalidWsdlError: a group refers to itself, or the groups are larger than in any real WSDL.
        """
        used = self._used[name] = Counter()
        for schema in root.iter(SCHEMA):
            target = schema.get("targetNamespace", "")
            inside = set()
            for each in schema.iterchildren(*KINDS):
                found = list(_within(each))
                groups = [inner for inner in found if inner.tag in KINDS]
                inside.update(groups)
                own = sum(inner.tag in LEAVES for inner in found)
                members = _Members(own, tuple(_reference(inner, target) for inner in groups))
                name_of_it = Name(KINDS[str(each.tag)], target, each.get("name", ""))
                self._defined.setdefault(name_of_it, set()).add(members)
                self._references += len(groups)
            others = (each for each in schema.iter(*KINDS) if each.get("ref") and each not in inside)
            used.update(_reference(each, target) for each in others)
        self._references += used.total()
        if self._references > MAX_REFERENCES:
            raise InvalidWsdlError(f"{name}: the schemas have more than {MAX_REFERENCES:,} references to groups")
        if used or self._defined:
            self._check(name)

    def _check(self, name: str) -> None:
        sizes: dict[Name, int] = {}
        graph = {
            each: [self._found(inner) for one in members for inner in one.groups]
            for each, members in self._defined.items()
        }
        try:
            for each in TopologicalSorter(graph).static_order():
                own = sum(one.own for one in self._defined.get(each, ()))
                sizes[each] = min(MAX_MEMBERS + 1, own + sum(sizes[one] for one in graph.get(each, ())))
        except CycleError as error:
            way = " in ".join(str(each) for each in error.args[1][:5])
            raise InvalidWsdlError(f"{name}: a group contains itself: {way}") from None
        total = sum(sizes.values())
        for used in self._used.values():
            total += sum(sizes.get(self._found(each), 0) * count for each, count in used.items())
        if total > MAX_MEMBERS:
            raise InvalidWsdlError(
                f"{name}: the groups of the schemas have more than {MAX_MEMBERS:,} elements and attributes, counted at "
                "every reference"
            )

    def _found(self, reference: _Reference) -> Name:
        """Return the group of a reference; a schema without a namespace may be included in one that has one."""
        name, to_own = reference
        return name._replace(namespace="") if to_own and name not in self._defined else name


def _within(element: etree._Element) -> Iterator[etree._Element]:
    """Yield the contents of a definition, but not those of the types of its elements."""
    waiting = list(element)
    while waiting:
        each = waiting.pop()
        yield each
        if each.tag not in LEAVES:
            waiting.extend(each)


def _reference(element: etree._Element, target: str) -> _Reference:
    prefix, colon, local = element.get("ref", "").strip().rpartition(":")
    namespace = element.nsmap.get(prefix if colon else None, target) or ""
    return _Reference(Name(KINDS[str(element.tag)], namespace, local), namespace == target)


MAX_DOCUMENTS_OCTETS: Final = 64 << 20
"""Maximum size of a WSDL with all its imports and schemas."""

ROOTS: Final = (f"{{{WSDL11}}}definitions", f"{{{XSD}}}schema")
_COUNTED: Final = tuple(f"{{{WSDL11}}}{each}" for each in ("binding", "service"))


class Loader(Protocol):
    """Fetches documents that are not local files; a `zeep.Transport` is one."""

    def load(self, url: str) -> bytes:
        """Return the octets of a document."""


class DocumentLoader:
    """Loads the documents of one WSDL for zeep, which uses it as a transport while it reads.

    Args:
        binding_classes: the binding classes for zeep.
        loader: fetches documents that are not local files; without a loader they are refused.
        allow: folders that imports may be read from, in addition to the WSDL's folder.
        folders: the folders allowed for a document that another imports; None if the first document is the WSDL.
        declarations: what schemas declare, which those of the documents are added to; None for new ones.
    """

    def __init__(
        self,
        binding_classes: Sequence[type],
        loader: Loader | None,
        allow: Iterable[str | Path] = (),
        folders: Folders | None = None,
        declarations: Declarations | None = None,
    ) -> None:
        self.binding_classes = binding_classes
        self.folders = folders
        self.declarations = Declarations() if declarations is None else declarations
        self._allow = folders_given(allow)
        self._loader = loader
        self._documents = 0
        self._octets = 0
        self._groups = Groups()

    def load(self, url: str) -> bytes:
        """Return a document.

        Raises:
            InvalidWsdlError: the document cannot be read, is not a WSDL 1.1 or schema, or has a document type, or the
                WSDL exceeds a limit.
        """
        self._documents += 1
        if self._documents > MAX_IMPORTS:
            raise InvalidWsdlError(
                f"{without_login(url)}: the WSDL has more than {MAX_IMPORTS} imports in all its documents"
            )
        return self.checked(self._read(url), without_login(url))

    def begin(self, path: str | Path | None) -> None:
        """Set the path of the WSDL, whose folder its imports must be in; None if it is not a local file."""
        self.folders = Folders(None if path is None else real_path(Path(path)), self._allow)

    def _read(self, url: str) -> bytes:
        try:
            is_local = urlsplit(url).scheme in ("", "file")
        except ValueError:  # its text may repeat a password before the host
            raise InvalidWsdlError(f"{without_login(url)} is not a URL: check its host") from None
        path = Path(local_path(url) if url.startswith("file:") else url) if is_local else None
        if self.folders is None:
            self.begin(path)
        elif path is not None:
            self.folders.check(url, real_path(path))
        if path is not None:
            return read_file(path)
        if self._loader is None:
            raise InvalidWsdlError(
                f"{without_login(url)} is refused: nothing is fetched over a network; save it beside the WSDL and "
                "write its name as the location, or give loader=zeep.Transport()"
            )
        return self._loader.load(url)

    def checked(self, octets: bytes, name: str) -> bytes:
        """Check the octets of a document, and return them.

        Raises:
            InvalidWsdlError: see `load`.
        """
        self._octets += len(octets)
        for size, limit, what in (
            (len(octets), documents.MAX_DOCUMENTS_OCTETS, "the document"),
            (self._octets, MAX_DOCUMENTS_OCTETS, "the WSDL with all its imports"),
        ):
            if size > limit:
                raise InvalidWsdlError(f"{name}: {what} has more than {limit >> 20} MiB")
        try:
            root = xml.parse(octets)
        except ValueError as error:
            raise InvalidWsdlError(f"{name}: {error}") from None
        _check_root(root, name)
        self._groups.add(root, name)
        self.declarations.add(root)
        return octets


def imports_of(octets: bytes, url: str) -> Iterator[str]:
    """Yield the addresses under which zeep will load the imports of a document that was loaded from `url`."""
    for element in xml.parse(octets).iter(etree.Element):
        for name in ("location", "schemaLocation"):
            if (location := element.get(name)) is not None:
                yield absolute_location(location, url)


def _check_root(root: etree._Element, name: str) -> None:
    if root.tag not in ROOTS:
        hint = ""
        if etree.QName(root).namespace == WSDL20:
            hint = "; zeep does not read WSDL 2.0, call its endpoints with soapjms.Client.from_wsdl"
        raise InvalidWsdlError(f"{name}: the root element must be {' or '.join(ROOTS)}, got {root.tag!s}{hint}")
    for tag in _COUNTED:
        count = sum(1 for _ in root.iterchildren(tag))
        if count > MAX_CHILDREN:
            raise InvalidWsdlError(
                f"{name}: an element has {count} children {etree.QName(tag).localname}; accepted are {MAX_CHILDREN}"
            )


def octets_of(file: BinaryIO | Any) -> bytes:
    """Read an open file, up to one octet more than the maximum size of a document.

    Raises:
        InvalidWsdlError: the file was opened in text mode.
    """
    octets = file.read(documents.MAX_DOCUMENTS_OCTETS + 1)
    if not isinstance(octets, bytes):
        raise InvalidWsdlError("the WSDL must be a file opened in binary mode ('rb'), got one in text mode")
    return octets
