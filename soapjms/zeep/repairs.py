"""Schema types with which zeep changes or loses values, repaired in place.

zeep takes an empty text, 0 or False in an `xs:choice` as missing when it writes and when it reads: a price of 0 is
lost. An empty element whose type is a union becomes None, or the word None. For the simple types see
`simple_types.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lxml import etree
from zeep.xsd import AnySimpleType, Attribute, ComplexType, Element, Group
from zeep.xsd.elements.indicators import Choice, Indicator
from zeep.xsd.types.collection import UnionType

from soapjms.zeep.simple_types import WrittenAttribute, written_type


class WholeChoice(Choice):
    """A choice that keeps all values but None and an empty list."""

    def parse_kwargs(self, kwargs: Any, name: Any, available_kwargs: set[str]) -> dict[str, Any]:
        """Return the values of the first alternative that has any, None for the others, and remove their names."""
        if self.accepts_multiple:
            found: dict[str, Any] = super().parse_kwargs(kwargs, name, available_kwargs)  # type: ignore[no-untyped-call]
            return found
        chosen, values = False, dict[str, Any]()
        for each, element in self.elements_nested:
            left = set(available_kwargs)
            given = element.parse_kwargs(kwargs, each, left)
            said = any(_is_said(value, element) for value in given.values())
            if said and chosen:
                continue
            chosen = chosen or said
            available_kwargs.intersection_update(left)
            values.update(given)
        return {each: None for each, _ in self.elements} | values if chosen else {}

    def accept(self, values: Any) -> int:
        """Return the number of values of the best alternative, 0 if none fits."""
        items = values if self.accepts_multiple else [values]
        return max((_score(element, name, items, values) for name, element in self.elements_nested), default=0)


def _score(element: Any, name: str, items: Any, values: Any) -> int:
    if not isinstance(element, Element):
        return int(element.accept(values))
    return int(all(name in each and _is_said(each[name], element) for each in items))


def _is_said(value: Any, element: Any) -> bool:
    """Say whether a value was given; `{}` is a value of an element, but zeep's default for a group."""
    return value is not None and value != [] and (value != {} or isinstance(element, Element))


class WholeUnion(UnionType):
    """A union that keeps its text."""

    def parse_xmlelement(self, xmlelement: etree._Element, *context: Any, **options: Any) -> Any:
        """Return the value of an element; None without text, which `soapjms.zeep.checks.keep_empty` may have set."""
        if xmlelement.text is None or self.item_class is None:
            return xmlelement.text
        return super().parse_xmlelement(xmlelement, *context, **options)


def repair(schema: Any, messages: Iterable[Any] = ()) -> None:
    """Repair all types of a WSDL, which zeep has resolved. Idempotent.

    Args:
        schema: zeep's schema of the WSDL.
        messages: the inputs and outputs of operations; zeep makes elements of their own for them.
    """
    seen: set[int] = set()
    own = (element for each in messages if each is not None for element in (each.body, each.header))
    elements = [*schema.elements, *(each for each in own if each is not None)]
    waiting = [*schema.types, *(type_ for each in elements for type_ in _types_in(each))]
    while waiting:
        type_ = waiting.pop()
        if id(type_) in seen:
            continue
        seen.add(id(type_))
        _make_whole(type_)
        if isinstance(type_, ComplexType) and not isinstance(type_, AnySimpleType):
            _repair_attributes(type_)
            waiting.extend(each for _, member in type_.elements_nested for each in _types_in(member))


def _make_whole(type_: Any) -> None:
    if type(type_) is UnionType:
        type_.__class__ = WholeUnion


def _repair_attributes(type_: ComplexType) -> None:
    for _, each in type_.attributes:
        if type(each) is Attribute:
            each.__class__, each.type = WrittenAttribute, written_type(each.type)


def _types_in(member: Any) -> Iterator[Any]:
    """Yield the types of the elements in a member of a type, and repair the choices and simple types in it."""
    if isinstance(member, Element):
        _make_whole(member.type)
        member.type = written_type(member.type)
        yield member.type
    elif isinstance(member, Indicator):
        if type(member) is Choice:
            member.__class__ = WholeChoice
        inner: Any = [member.child] if isinstance(member, Group) else member
        for each in inner:
            yield from _types_in(each)
