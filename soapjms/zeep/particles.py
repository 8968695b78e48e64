"""Complex types and groups of elements that write all values they are given, or refuse them, and read what is valid.

zeep writes the first of several values of an element that occurs once, and drops members that a choice or a dict in a
list has no use for. It sends a required choice without any of its alternatives, and refuses an optional sequence that
is left out. The checks stand where values are written, so they hold for requests, answers, SOAP headers and faults.

zeep cannot read an optional or repeated sequence that another element follows, nor a choice of sequences within a
sequence, and takes some empty ones for two thousand million. `repairs.py` puts these classes in the place of zeep's.

Spec: XML Schema 1.0 Part 1 3.8, 3.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any as AnyValue
from typing import Final

import zeep.exceptions
from lxml import etree
from zeep.xsd import All, Any, Choice, ComplexType, CompoundValue, Element, Group, Sequence
from zeep.xsd.const import Nil, NotSet, SkipValue
from zeep.xsd.elements.indicators import Indicator, OrderIndicator
from zeep.xsd.utils import max_occurs_iter
from zeep.xsd.valueobjects import ArrayValue

from soapjms.protocol.envelope import is_nil
from soapjms.protocol.text import shown
from soapjms.zeep.errors import ArgumentsError
from soapjms.zeep.simple_types import place_of

CONTENT: Final = "_value_1"
"""zeep's name for the text of an element with attributes, and for its first wildcard or repeated group."""


# Types


def member_names(type_: AnyValue) -> list[str]:
    """Return the names of the elements and attributes of a complex type."""
    return [name for name, _ in (*type_.elements, *type_.attributes) if name]


def has_content(type_: AnyValue) -> bool:
    """Say whether a single value can stand for a complex type: it has a text, or its first element is a wildcard."""
    first = next(iter(type_.elements), None)
    return first is not None and first[0] == CONTENT and not isinstance(first[1], Indicator)


class WholeType(ComplexType):
    """A mixin for complex types: an element has one value, all of whose members the type knows."""

    def parse_xmlelement(
        self,
        xmlelement: etree._Element,
        schema: AnyValue = None,
        allow_none: bool = True,
        context: AnyValue = None,
        schema_type: AnyValue = None,
    ) -> AnyValue:
        """Return the object of an element: of an empty one too, but None for one with xsi:nil and nothing else."""
        if is_nil(xmlelement) and len(xmlelement.attrib) == 1:
            return None
        if not self.attributes and not self.elements:
            return None if getattr(self._element, "_consume_other", False) else self()  # None for a SOAP header
        return super().parse_xmlelement(xmlelement, schema, False, context, schema_type)

    def _create_object(self, value: AnyValue, name: str) -> AnyValue:
        """Return the object of a value; a value that cannot be one is returned as it is, and `render` refuses it."""
        is_known = value is None or value is SkipValue or isinstance(value, dict | list | CompoundValue)
        if is_known or self._array_type or has_content(self):
            return super()._create_object(value, name)
        return value

    def render(
        self, node: etree._Element, value: AnyValue, xsd_type: AnyValue = None, render_path: AnyValue = None
    ) -> None:
        """Write a value into an element; a dict gets the defaults of the type.

        Raises:
            ArgumentsError: the value is none of this type.
            TypeError: a dict has a member that the type lacks.
        """
        if isinstance(value, dict) and not self._array_type:
            value = self(**value)
        elif not (value is None or self._array_type or isinstance(value, CompoundValue | ArrayValue)):
            if isinstance(value, list) or not has_content(self):
                raise self._refusal(render_path or [etree.QName(node).localname], value)
            value = self(value)
        super().render(node, value, xsd_type, render_path)

    def _refusal(self, path: list[str], value: AnyValue) -> ArgumentsError:
        if isinstance(value, list):
            return ArgumentsError(f"{place_of(path)} must be one value, got a list of {len(value)}")
        members = ", ".join(member_names(self)) or "no members"
        return ArgumentsError(f"{place_of(path)} must be a dict of {members}, got {shown(value)}")


# Elements


class WholeElement(Element):
    """An element that writes all items of a list."""

    def render(self, parent: etree._Element, value: AnyValue, render_path: list[str] | None = None) -> None:
        """Write the values of an element; None in a list becomes an element with xsi:nil.

        Raises:
            zeep.exceptions.ValidationError: there is no value, or None in a list although the element is not nillable.
        """
        if self.accepts_multiple and isinstance(value, list) and any(each is None for each in value):
            if not self.nillable:
                path = [place_of(render_path or [self.qname.localname])]
                raise zeep.exceptions.ValidationError("None in a list, but the element is not nillable", path=path)
            value = [Nil if each is None else each for each in value]
        super().render(parent, value, render_path)  # type: ignore[no-untyped-call]


# Groups


class WholeGroup(Indicator):
    """A mixin for groups of elements other than choices: one that is optional may be left out as a whole."""

    def parse_kwargs(self, kwargs: AnyValue, name: AnyValue, available_kwargs: set[str]) -> AnyValue:
        """Return the values of a group, and remove their names.

        Raises:
            ArgumentsError: there are more of a repeated group than its maxOccurs allows, which zeep would drop.
        """
        if self.accepts_multiple and name in available_kwargs:
            kwargs = {**kwargs, name: _items(self, kwargs[name])}
            _check_most(self, kwargs[name], [])
        return super().parse_kwargs(kwargs, name, available_kwargs)  # type: ignore[no-untyped-call]

    def render(self, parent: etree._Element, value: AnyValue, render_path: list[str]) -> None:
        """Write the elements of a group.

        Raises:
            ArgumentsError, zeep.exceptions.ValidationError: the values are too many, or one is missing.
        """
        if self.accepts_multiple:
            value = _items(self, value)
            _check_number(self, value, render_path)
        elif self.min_occurs == 0 and not _given_names(self, value):
            return
        super().render(parent, value, render_path)  # type: ignore[misc]


class OrderedGroup(WholeGroup):
    """A mixin for groups whose elements have an order."""

    elements_nested: AnyValue

    def parse_xmlelements(
        self, xmlelements: deque[etree._Element], schema: AnyValue, name: AnyValue = None, context: AnyValue = None
    ) -> dict[str, AnyValue]:
        """Return the values of the group, and remove its elements, as often as it occurs.

        Raises:
            zeep.exceptions.UnexpectedElementError: an element stands where another one must.
        """
        found: list[dict[str, AnyValue]] = []
        for _ in max_occurs_iter(self.max_occurs):
            before = len(xmlelements)
            try:
                item = self._parse_once(xmlelements, schema, context)
            except zeep.exceptions.UnexpectedElementError:
                if len(xmlelements) < before or len(found) < self.min_occurs:
                    raise
                break
            if len(xmlelements) == before:
                break
            found.append(item)
        if not self.accepts_multiple:
            return found[0] if found else {}
        blank: dict[str, AnyValue] = {key: [] if each.accepts_multiple else None for key, each in _elements_of(self)}
        return {name: [blank | each for each in found]}

    def _parse_once(
        self, xmlelements: deque[etree._Element], schema: AnyValue, context: AnyValue
    ) -> dict[str, AnyValue]:
        found: dict[str, AnyValue] = {}
        members = self.elements_nested
        for number, (name, each) in enumerate(members):
            own = _for_wildcard(each, members[number + 1 :], xmlelements) if isinstance(each, Any) else xmlelements
            try:
                value = each.parse_xmlelements(own, schema, name, context=context)
            except zeep.exceptions.UnexpectedElementError:
                if schema.settings.strict:
                    raise
                continue
            found |= value if isinstance(each, Indicator) else {name: value}
        return found


def _for_wildcard(wildcard: AnyValue, others: AnyValue, xmlelements: deque[etree._Element]) -> deque[etree._Element]:
    """Remove the elements that a wildcard takes: none that another member of its group may begin with.

    In a valid schema an element that a wildcard need not take is not one of both.

    Spec: XML Schema 1.0 Part 1 3.8.6, Unique Particle Attribution.
    """
    most = len(xmlelements) if wildcard.max_occurs == "unbounded" else wildcard.max_occurs
    next_ones, taken = _first_names(others)[0], deque[etree._Element]()
    while xmlelements and len(taken) < most:
        if len(taken) >= wildcard.min_occurs and xmlelements[0].tag in next_ones:
            break
        taken.append(xmlelements.popleft())
    return taken


def _first_names(members: AnyValue, *, is_choice: bool = False) -> tuple[set[str], bool]:
    """Return the names of the elements that a group may begin with, and whether it may hold none.

    Args:
        members: the members of the group by name, in their order.
        is_choice: whether only one of them occurs.
    """
    names, is_emptiable = set[str](), not is_choice
    for _, each in members:
        if isinstance(each, Indicator):
            group: AnyValue = each
            inner = [(None, group.child)] if isinstance(each, Group) else group.elements_nested
            found, may_be_empty = _first_names(inner, is_choice=isinstance(each, Choice))
        else:
            found, may_be_empty = {each.qname.text} if isinstance(each, Element) else set(), False
        names |= found
        may_be_empty |= each.min_occurs == 0
        if is_choice:
            is_emptiable |= may_be_empty
        elif not may_be_empty:
            return names, False
    return names, is_emptiable


class WholeSequence(OrderedGroup, Sequence):
    """A sequence."""


class WholeAll(WholeGroup, All):
    """Elements in any order."""


class WholeReference(OrderedGroup, Group):
    """A reference to a named group."""

    def _parse_once(
        self, xmlelements: deque[etree._Element], schema: AnyValue, context: AnyValue
    ) -> dict[str, AnyValue]:
        found: dict[str, AnyValue] = self.child.parse_xmlelements(xmlelements, schema, context=context)
        return found


class WholeChoice(Choice):
    """A choice that keeps all values but None and an empty list, and has exactly one of its alternatives."""

    def parse_kwargs(self, kwargs: AnyValue, name: AnyValue, available_kwargs: set[str]) -> dict[str, AnyValue]:
        """Return the values of all alternatives, None for those without, and remove their names."""
        if self.accepts_multiple:
            if name not in available_kwargs:
                return {}
            available_kwargs.remove(name)
            return {name: [self._unwrapped(each, name) for each in _items(self, kwargs[name])]}
        elements, given, left = dict(self.elements), dict[str, AnyValue](), set(available_kwargs)
        for each, element in self.elements_nested:
            rest = set(available_kwargs)
            values = element.parse_kwargs(kwargs, each, rest)
            given |= {key: value for key, value in values.items() if _is_given(value, elements.get(key))}
            left &= rest
        available_kwargs.intersection_update(left)
        return dict.fromkeys(elements) | given if given else {}

    def _unwrapped(self, item: AnyValue, name: str) -> AnyValue:
        """Return the values of an item, which zeep also takes within a dict of the name of the choice."""
        return item[name] if _holds(item, name) and name not in dict(self.elements) else item

    def render(self, parent: etree._Element, value: AnyValue, render_path: list[str]) -> None:
        """Write the alternative that has values.

        Raises:
            ArgumentsError: several alternatives have values, or there is a value that no alternative has.
            zeep.exceptions.ValidationError: a required choice has no values.
        """
        items = _items(self, value) if self.accepts_multiple else [value]
        _check_number(self, items, render_path)
        for each in items:
            name, element = self._chosen(each, render_path)
            if element is not None:
                is_within = name is not None and _holds(each, name)
                element.render(parent, each[name] if is_within else each, [*render_path, name] if name else render_path)

    def _chosen(self, item: AnyValue, path: list[str]) -> tuple[str | None, AnyValue]:
        """Return the name and the element of the alternative of an item; None for both if there is none.

        It is that with the most values, if possible one that lacks none.
        """
        if self.accepts_multiple:
            if not isinstance(item, dict | CompoundValue):
                return self._wildcard(item, path)
            self._check_known(item, path)
        found = [(name, each, _names_in(name, each, item)) for name, each in self.elements_nested]
        best = max(found, key=lambda each: (len(each[2]), _is_complete(*each)), default=None)
        if best is None or not best[2]:
            is_needed = self.min_occurs or self.accepts_multiple
            if is_needed and found and not any(_is_complete(name, each, {}) for name, each, _ in found):
                raise zeep.exceptions.ValidationError(f"Missing choice: give {_described(self)}", path=[place_of(path)])
            return None, None
        name, element, used = best
        others = {each: None for _, _, names in found for each in names if each not in used}
        if others:
            both = f"give {' and '.join(used)} or {' and '.join(others)}, not both"
            raise ArgumentsError(f"{place_of(path)}: {both}")
        return name, element

    def _wildcard(self, item: AnyValue, path: list[str]) -> tuple[str | None, AnyValue]:
        """Return the alternative for an item that is no dict."""
        for name, each in self.elements_nested:
            if isinstance(each, Any):
                return name, each
        raise ArgumentsError(f"{place_of(path)} must have dicts with {_described(self)}, got {shown(item)}")

    def _check_known(self, item: AnyValue, path: list[str]) -> None:
        known = dict(self.elements)
        unknown = next((each for each in item if each not in known), None)
        if unknown is not None:
            raise ArgumentsError(f"{place_of(path)}: there is no {unknown!r}; there are: {', '.join(known)}")


WHOLE: Final[Mapping[type, type]] = {
    Element: WholeElement,
    Choice: WholeChoice,
    Sequence: WholeSequence,
    All: WholeAll,
    Group: WholeReference,
}
"""The class in the place of each of zeep's."""


# Values


def _items(group: AnyValue, value: AnyValue) -> list[AnyValue]:
    """Return the items of a repeated group; one may stand alone, and zeep's own default is none."""
    if isinstance(value, list | tuple):
        return list(value)
    is_default = isinstance(value, dict) and value == group.default_value
    return [] if value is None or value is NotSet or is_default else [value]


def _holds(value: AnyValue, name: str) -> bool:
    return isinstance(value, dict | CompoundValue) and name in value


def _is_given(value: AnyValue, element: AnyValue) -> bool:
    if value is None or value is NotSet or (isinstance(value, list) and not value):
        return False
    return bool(_items(element, value)) if isinstance(element, Indicator) else True


def _names_in(name: str | None, element: AnyValue, value: AnyValue) -> dict[str, None]:
    """Return the names of the values that are given for a member of a group, in order; without a name it is a group."""
    if name is None:
        return _given_names(element, value)
    return {name: None} if _holds(value, name) and _is_given(value[name], element) else {}


def _given_names(group: AnyValue, value: AnyValue) -> dict[str, None]:
    members = [(None, group.child)] if isinstance(group, Group) else group.elements_nested
    return {key: None for name, element in members for key in _names_in(name, element, value)}


def _is_complete(name: str | None, particle: AnyValue, given: Mapping[str, None]) -> bool:
    """Say whether an element or group lacks no value if those of some names are given."""
    if name in given or getattr(particle, "may_be_left_out", particle.min_occurs == 0):
        return True
    if isinstance(particle, Group):
        return _is_complete(None, particle.child, given)
    if not isinstance(particle, OrderIndicator):
        return False
    members = [_is_complete(inner, each, given) for inner, each in particle.elements_nested]
    return any(members) if isinstance(particle, Choice) and members else all(members)


def _elements_of(group: AnyValue) -> list[tuple[str, AnyValue]]:
    """Return the elements of a group by name."""
    return list(group.child.elements if isinstance(group, Group) else group.elements)


def _names_of(group: AnyValue) -> list[str]:
    """Return the names of the elements of a group."""
    return list(dict(_elements_of(group)))


def _described(group: AnyValue) -> str:
    """Return the elements of a group for people."""
    if not isinstance(group, Choice):
        return ", ".join(_names_of(group))
    members = group.elements_nested
    alternatives = [_names_of(each) if isinstance(each, Indicator) else [name] for name, each in members]
    return " or ".join(each[0] if len(each) == 1 else f"({', '.join(each)})" for each in alternatives)


def _check_number(group: AnyValue, items: list[AnyValue], path: list[str]) -> None:
    """Check how often a group occurs.

    Raises:
        ArgumentsError: too often.
        zeep.exceptions.ValidationError: too rarely.
    """
    _check_most(group, items, path)
    if len(items) < group.min_occurs and not _is_complete(None, group, {}):
        said = f"{_described(group)} must occur at least {group.min_occurs} times, got {len(items)}"
        raise zeep.exceptions.ValidationError(said, path=[place_of(path)])


def _check_most(group: AnyValue, items: list[AnyValue], path: list[str]) -> None:
    if group.accepts_multiple and group.max_occurs != "unbounded" and len(items) > group.max_occurs:
        place = f"{place_of(path)}: " if path else ""
        raise ArgumentsError(f"{place}{_described(group)} may occur {group.max_occurs} times, got {len(items)}")
