"""Schema types in which zeep takes an empty text, 0 or False as missing: choices and unions, repaired in place.

zeep drops these values of elements in an `xs:choice` when it writes and when it reads: a price of 0 is lost. An empty
element whose type is a union becomes None, or the word None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lxml import etree
from zeep.xsd import AnySimpleType, ComplexType, Element, Group
from zeep.xsd.elements.indicators import Choice, Indicator
from zeep.xsd.types.collection import UnionType


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


def repair(schema: Any) -> None:
    """Repair all choices and unions in the types of a WSDL, which zeep has resolved. Idempotent."""
    seen: set[int] = set()
    waiting = [*schema.types, *(type_ for each in schema.elements for type_ in _types_in(each))]
    while waiting:
        type_ = waiting.pop()
        if id(type_) in seen:
            continue
        seen.add(id(type_))
        if type(type_) is UnionType:
            type_.__class__ = WholeUnion
        elif isinstance(type_, ComplexType) and not isinstance(type_, AnySimpleType):
            waiting.extend(each for _, member in type_.elements_nested for each in _types_in(member))


def _types_in(member: Any) -> Iterator[Any]:
    """Yield the types of the elements in a member of a type, and repair the choices in it."""
    if isinstance(member, Element):
        yield member.type
    elif isinstance(member, Indicator):
        if type(member) is Choice:
            member.__class__ = WholeChoice
        inner: Any = [member.child] if isinstance(member, Group) else member
        for each in inner:
            yield from _types_in(each)
