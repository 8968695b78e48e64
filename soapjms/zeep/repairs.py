"""Schema types with which zeep changes or loses values, repaired in place.

An empty element whose type is a union becomes None, or the word None, and an empty list becomes None. A restricted list
loses the type of its items, and elements their fixed values. For the simple types see `simple_types.py`, for complex
types and groups of elements `particles.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import zeep.exceptions
from lxml import etree
from zeep.xsd import AnySimpleType, Attribute, ComplexType, Element, Group
from zeep.xsd.elements.indicators import Choice, Indicator
from zeep.xsd.types.builtins import String
from zeep.xsd.types.collection import ListType, UnionType

from soapjms.protocol.envelope import is_nil
from soapjms.protocol.simple_types import items_of
from soapjms.zeep.declarations import Declarations
from soapjms.zeep.particles import WHOLE, WholeType
from soapjms.zeep.simple_types import WrittenAttribute, with_mixin, written_type


class WholeList(ListType):
    """A list whose items are what XML Schema takes for them."""

    def parse_xmlelement(self, xmlelement: etree._Element, *context: Any, **options: Any) -> Any:
        """Return the values of an element: no items for an empty one, None for one with xsi:nil."""
        return None if is_nil(xmlelement) else self.pythonvalue(xmlelement.text or "")

    def pythonvalue(self, value: str, schema: Any = None) -> Any:
        """Return the values of the items of a text."""
        return [self.item_type.pythonvalue(each) for each in items_of(value)]


class WholeUnion(UnionType):
    """A union that keeps its text."""

    def parse_xmlelement(self, xmlelement: etree._Element, *context: Any, **options: Any) -> Any:
        """Return the value of an element; None without text, which `soapjms.zeep.checks.keep_empty` may have set."""
        if xmlelement.text is None or self.item_class is None:
            return xmlelement.text
        return super().parse_xmlelement(xmlelement, *context, **options)


def repair(schema: Any, messages: Iterable[Any] = (), declarations: Declarations | None = None) -> None:
    """Repair all types of a WSDL, which zeep has resolved. Idempotent.

    Args:
        schema: zeep's schema of the WSDL.
        messages: the inputs and outputs of operations; zeep makes elements of their own for them.
        declarations: what the schemas declare.
    """
    own = (element for each in messages if each is not None for element in (each.body, each.header))
    elements = [*schema.elements, *(each for each in own if each is not None)]
    _Repair(schema, declarations or Declarations()).apply(elements)


class _Repair:
    """Repairs the types of a schema."""

    def __init__(self, schema: Any, declarations: Declarations) -> None:
        self._schema = schema
        self._declarations = declarations

    def apply(self, elements: Iterable[Any]) -> None:
        """Repair the types of the schema, and those of elements."""
        seen: set[int] = set()
        waiting = [*self._schema.types, *(type_ for each in elements for type_ in self._types_in(each))]
        while waiting:
            type_ = waiting.pop()
            if id(type_) in seen:
                continue
            seen.add(id(type_))
            self._make_whole(type_)
            if isinstance(type_, ComplexType) and not isinstance(type_, AnySimpleType):
                _become(type_, WholeType)
                self._repair_attributes(type_)
                waiting.extend(each for _, member in type_.elements_nested for each in self._types_in(member))

    def _make_whole(self, type_: Any) -> None:
        """Repair a list or union, and those within it."""
        if isinstance(type_, ListType):
            if isinstance(type_.item_type, etree.QName):
                name, type_.item_type = type_.item_type.text, String()
                type_.item_type = self._item_type(name)
            _become(type_, WholeList)
            self._make_whole(type_.item_type)
        elif isinstance(type_, UnionType):
            if type_.item_class is not None and issubclass(type_.item_class, ListType):
                type_.item_class = None
            _become(type_, WholeUnion)
            for each in type_.item_types:
                self._make_whole(each)

    def _item_type(self, name: str) -> Any:
        """Return the type of the items of a restricted list, in whose place zeep keeps the name of the list.

        It is that of its base. If the base is unknown, the items are texts.
        """
        base = self._declarations.base_of(name)
        try:
            found = base and self._schema.get_type(base)
        except zeep.exceptions.Error:  # a schema without a namespace, which another includes
            found = None
        if not isinstance(found, ListType):
            return String()
        self._make_whole(found)
        return found.item_type

    def _repair_attributes(self, type_: ComplexType) -> None:
        for _, each in type_.attributes:
            if type(each) is Attribute:
                self._make_whole(each.type)
                each.__class__, each.type = WrittenAttribute, written_type(each.type)

    def _repair_element(self, element: Any) -> None:
        self._make_whole(element.type)
        element.__class__ = WHOLE.get(type(element), type(element))
        element.type = written_type(element.type)
        element.fixed = self._declarations.fixed_value(element.qname.text)

    def _repair_alternative(self, element: Any) -> None:
        """Note whether an element of a choice is optional; zeep takes all of them for that."""
        element.may_be_left_out = self._declarations.may_be_left_out(element.qname.text)

    def _types_in(self, member: Any) -> Iterator[Any]:
        """Yield the types of the elements in a member of a type, and repair the groups and simple types in it."""
        if isinstance(member, Element):
            self._repair_element(member)
            yield member.type
        elif isinstance(member, Indicator):
            member.__class__ = WHOLE.get(type(member), type(member))
            inner: Any = [member.child] if isinstance(member, Group) else member
            for each in inner:
                if isinstance(member, Choice) and isinstance(each, Element):
                    self._repair_alternative(each)
                yield from self._types_in(each)


def _become(type_: Any, whole: type) -> None:
    kind: Any = type(type_)
    if not issubclass(kind, whole):
        type_.__class__ = with_mixin(whole, kind)
