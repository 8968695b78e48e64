"""What the schemas of a WSDL declare and zeep does not keep: the bases of simple types, and fixed values of elements.

zeep's types and elements are looked up here by name. Several may have the same, as local elements do; what is declared
for it in two ways is unknown.
"""

from __future__ import annotations

from typing import Final

from lxml import etree

from soapjms.protocol.wsdl.documents import SCHEMA
from soapjms.protocol.xml import XSD

_ELEMENT: Final = f"{{{XSD}}}element"
_SIMPLE_TYPE: Final = f"{{{XSD}}}simpleType"


class Declarations:
    """What the schemas that were added declare. Names are in Clark notation."""

    def __init__(self) -> None:
        self._bases: dict[str, set[str]] = {}  # by the name of the type
        self._fixed: dict[str, set[str | None]] = {}  # by the name of the element

    def add(self, root: etree._Element) -> None:
        """Add the schemas in a document."""
        for schema in root.iter(SCHEMA):
            target = schema.get("targetNamespace")
            for each in schema.iter(_SIMPLE_TYPE):
                self._add_base(each, target)
            for each in schema.iter(_ELEMENT):
                if name := each.get("name"):
                    form = each.get("form", schema.get("elementFormDefault"))
                    namespace = target if each.getparent() is schema or form == "qualified" else None
                    self._fixed.setdefault(_clark(namespace, name), set()).add(each.get("fixed"))

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


def _clark(namespace: str | None, local: str) -> str:
    return f"{{{namespace}}}{local}" if namespace else local


def _only(found: set[str] | set[str | None] | None) -> str | None:
    return next(iter(found)) if found is not None and len(found) == 1 else None
