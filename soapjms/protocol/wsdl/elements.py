"""The soapjms extension elements: their places, the properties that they set, and findings about them.

Spec: SOAP/JMS 2.2, 3.4.4, 3.6; WSDLUsage-3001, WSDLUsage-3004.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lxml import etree

from soapjms.protocol.errors import InvalidPropertyError, InvalidWsdlError
from soapjms.protocol.names import CR_NAMESPACE, REC_NAMESPACE
from soapjms.protocol.properties import (
    BINDING_PROPERTIES,
    Origin,
    Source,
    Treatment,
    check_source,
    read_value,
    row_of,
)
from soapjms.protocol.wsdl.documents import Document
from soapjms.protocol.wsdl.findings import Finding, Place, finding
from soapjms.protocol.xml import WHITE_SPACE

NAMESPACES: Final = (REC_NAMESPACE, CR_NAMESPACE)
ANY: Final = tuple(f"{{{each}}}*" for each in NAMESPACES)
MAX_EXTENSIONS: Final = 100

CONTEXT_PARAMETER: Final = "jndiContextParameter"
ELEMENTS: Final = (
    *(name for name, row in BINDING_PROPERTIES.items() if Source.WSDL in row.sources and name != "jndi-"),
    CONTEXT_PARAMETER,
)
"""The extension elements. jndiContextParameter and topicReplyToName are not in the table of 3.6; 2.2 allows them."""

_SILENT: Final = frozenset({"documentation", "types", "schema"})
"""Elements whose content is ignored."""


@dataclass(frozen=True, slots=True)
class Extension:
    """One soapjms element.

    Attributes:
        element: its local name.
        namespace: its namespace, which shows the edition of the specification.
        name: the property that it sets: its local name, or `jndi-` and the name of a jndiContextParameter.
        value: its value, without white space around it; None for a jndiContextParameter without value.
        inside: the local name of its parent.
        nested: True if it holds elements.
        place: its place.
    """

    element: str
    namespace: str
    name: str
    value: str | None
    inside: str
    nested: bool
    place: Place

    @property
    def called(self) -> str:
        """Its display name: its local name, and the name of the parameter for a jndiContextParameter."""
        return f"{self.element} {self.name[5:]!r}" if self.element == CONTEXT_PARAMETER else self.element

    def problem(self, origin: Origin) -> Finding | None:
        """Return the finding for an element that is not valid at a level, or None.

        Spec: SOAP/JMS 2.2.1 jndiContextParameter, 3.6; WSDLUsage-3004.
        """
        if self.nested:
            return finding("nestedElements", self.place, name=self.element)
        if self.value is None or self.name == "jndi-":
            missing = "value" if self.value is None else "name"
            return finding("badContextParameter", self.place, seen=f"without a {missing}")
        row = row_of(self.name)
        if row is None or self.element.startswith("jndi-"):
            return finding("unknownElement", self.place, name=self.element, known=", ".join(ELEMENTS))
        try:
            check_source(self.name, Source.WSDL, origin)
        except InvalidPropertyError:
            where = {"name": self.element, "inside": self.inside, "write": _elsewhere(self.element)}
            return finding("notDeclarable", self.place, **where)
        try:
            read_value(self.name, self.value, origin)
        except InvalidPropertyError:
            seen = {"name": self.element, "inside": self.inside, "seen": self.value, "accepted": row.type.accepted}
            return finding("badValue", self.place, **seen)
        return None


def _elsewhere(name: str) -> str:
    """Return the remedy for a property that must not be declared by an element."""
    row = BINDING_PROPERTIES[name]
    if row.treatment is Treatment.AS_IS:
        return "take it out: it is part of the address, jms:VARIANT:DESTINATION"
    if Source.URI in row.sources:
        return f"write it into the address: ?{name}=VALUE"
    if Source.OPERATION in row.sources:
        return f"write it as attribute {name} of the SOAP operation"
    return "take it out: the binding itself sets it"


def read_extensions(document: Document, parent: etree._Element) -> tuple[Extension, ...]:
    """Read the soapjms elements of a binding, service or port.

    Raises:
        InvalidWsdlError: there are more than `MAX_EXTENSIONS`.
    """
    found = tuple(_read(document, each) for each in parent.iterchildren(*ANY))
    if len(found) > MAX_EXTENSIONS:
        place = document.place(parent)
        raise InvalidWsdlError(f"{place}: {len(found)} soapjms elements in one; accepted are {MAX_EXTENSIONS}")
    return found


def read_misplaced(document: Document, homes: frozenset[str]) -> Iterator[Extension]:
    """Yield the soapjms elements whose parent is not one of the elements called `homes`."""
    for each in document.root.iter(*ANY):
        parent = each.getparent()
        outside = parent is not None and parent.tag not in homes and etree.QName(parent).namespace not in NAMESPACES
        if outside and not any(etree.QName(above).localname in _SILENT for above in each.iterancestors()):
            yield _read(document, each)


def _read(document: Document, element: etree._Element) -> Extension:
    tag = etree.QName(element)
    parent = element.getparent()
    inside = "nothing" if parent is None else etree.QName(parent).localname
    children = list(element)
    value: str | None = "".join([element.text or "", *(each.tail or "" for each in children)]).strip(WHITE_SPACE)
    name = tag.localname
    if name == CONTEXT_PARAMETER:
        name, value = f"jndi-{element.get('name', '')}", element.get("value")
    nested = any(isinstance(each.tag, str) for each in children)
    return Extension(tag.localname, str(tag.namespace), name, value, inside, nested, document.place(element))
