"""How much the groups of schemas come to once they stand wherever they are referred to.

zeep writes them out. A few lines in which each group refers twice to the next are more than any machine holds, and a
group that refers to itself is without end, so this is looked at before zeep sees a document.

Spec: XML Schema 1.0 Part 1 3.6.6, 3.7.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from lxml import etree

from soapjms.protocol.errors import InvalidWsdlError
from soapjms.protocol.wsdl.documents import SCHEMA

XS: Final = "http://www.w3.org/2001/XMLSchema"
KINDS: Final[Mapping[str, str]] = {f"{{{XS}}}group": "group", f"{{{XS}}}attributeGroup": "attributeGroup"}
LEAVES: Final = frozenset(f"{{{XS}}}{each}" for each in ("element", "attribute", "any", "anyAttribute"))
"""What groups consist of. The type of an element is another place, where its own group may be referred to."""

MAX_MEMBERS: Final = 1_000_000
"""Elements and attributes of all groups of a WSDL together, counted wherever they are referred to."""

MAX_REFERENCES: Final = 100_000


class Name(NamedTuple):
    """A group, and which of the two kinds it is of."""

    kind: str
    namespace: str
    local: str

    def __str__(self) -> str:
        return f"{self.kind} {{{self.namespace}}}{self.local}"


class _Reference(NamedTuple):
    name: Name
    to_own: bool  # in the namespace of the schema that it stands in


class _Members(NamedTuple):
    own: int
    groups: tuple[_Reference, ...]


class Groups:
    """The groups of a WSDL, as far as its documents were seen."""

    def __init__(self) -> None:
        self._defined: dict[Name, set[_Members]] = {}  # a document may be there under several addresses
        self._used: dict[str, Counter[_Reference]] = {}
        self._references = 0

    def add(self, root: etree._Element, name: str) -> None:
        """Look at a document and at all before it.

        Raises:
            InvalidWsdlError: a group refers to itself, or there is more in all of them than in any real WSDL.
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
            raise InvalidWsdlError(f"{name}: a group consists of itself: {way}") from None
        total = sum(sizes.values())
        for used in self._used.values():
            total += sum(sizes.get(self._found(each), 0) * count for each, count in used.items())
        if total > MAX_MEMBERS:
            raise InvalidWsdlError(
                f"{name}: the groups of the schemas come to more than {MAX_MEMBERS:,} elements and attributes, counted "
                "wherever they are referred to"
            )

    def _found(self, reference: _Reference) -> Name:
        """Return what a reference leads to: a schema without namespace may be included in one that has it."""
        name, to_own = reference
        return name._replace(namespace="") if to_own and name not in self._defined else name


def _within(element: etree._Element) -> Iterator[etree._Element]:
    """Yield what is in a definition, but not what is in the types of its elements."""
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
