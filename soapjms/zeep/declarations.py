"""What the schemas of a WSDL declare and zeep does not keep: the bases of simple types, the fixed values of elements,
and which elements of choices are optional.

zeep's types and elements are looked up here by name. Several may have the same, as local elements do; what is declared
for it in two ways is unknown.
"""

from __future__ import annotations

from typing import Final

from lxml import etree

from soapjms.protocol.wsdl.documents import SCHEMA
from soapjms.protocol.xml import XSD

_CHOICE: Final = f"{{{XSD}}}choice"
_ELEMENT: Final = f"{{{XSD}}}element"
_SIMPLE_TYPE: Final = f"{{{XSD}}}simpleType"


class Declarations:
    """What the schemas that were added declare. Names are in Clark notation."""

    def __init__(self) -> None:
        self._bases: dict[str, set[str]] = {}  # by the name of the type
        self._fixed: dict[str, set[str | None]] = {}  # by the name of the element
        self._left_out: set[str] = set()  # names of elements

    def add(self, root: etree._Element) -> None:
        """Add the schemas in a document."""
        for schema in root.iter(SCHEMA):
            target = schema.get("targetNamespace")
            for each in schema.iter(_SIMPLE_TYPE):
                self._add_base(each, target)
            for each in schema.iter(_ELEMENT):
                name = _element_name(each, schema)
                if "ref" not in each.attrib:
                    self._fixed.setdefault(name, set()).add(each.get("fixed"))
                parent = each.getparent()
                if parent is not None and parent.tag == _CHOICE and each.get("minOccurs", "1").strip() == "0":
                    self._left_out.add(name)

    def _add_base(self, type_: etree._Element, target: str | None) -> None:
        restriction = type_.find(f"{{{XSD}}}restriction")
        holder = type_ if "name" in type_.attrib else type_.getparent()
        if restriction is not None and holder is not None and (base := restriction.get("base", "").strip()):
            prefix, _, local = base.rpartition(":")
            name = _clark(target, holder.get("name", ""))
            self._bases.setdefault(name, set()).add(_clark(restriction.nsmap.get(prefix or None), local))

    def base_of(self, name: str) -> str | None:
        """Return the name of the type that a simple type restricts; its own is that of its element if it has none."""
        return _only(self._bases.get(name))

    def fixed_value(self, name: str) -> str | None:
        """Return the fixed value of the elements of a name."""
        return _only(self._fixed.get(name))

    def may_be_left_out(self, name: str) -> bool:
        """Say whether an element of a name is optional in a choice, so that the choice may be empty."""
        return name in self._left_out


def _element_name(element: etree._Element, schema: etree._Element) -> str:
    """Return the name of an element that a schema declares or refers to."""
    prefix, _, local = element.get("ref", "").strip().rpartition(":")
    if local:
        return _clark(element.nsmap.get(prefix or None), local)
    form = element.get("form", schema.get("elementFormDefault"))
    is_qualified = element.getparent() is schema or form == "qualified"
    return _clark(schema.get("targetNamespace") if is_qualified else None, element.get("name", ""))


def _clark(namespace: str | None, local: str) -> str:
    return f"{{{namespace}}}{local}" if namespace else local


def _only(found: set[str] | set[str | None] | None) -> str | None:
    return next(iter(found)) if found is not None and len(found) == 1 else None
