"""Choices and repeated groups of a schema, where xsdata makes dataclasses that lose something.

xsdata makes the fields of required choices optional; here they must have a value. Of a repeated group of elements it
makes a list for each element, which does not say which values belong together if one may be missing. Such a group
becomes one list here, like a repeated choice. If each element occurs once in each repetition, there are lists of equal
length, and the elements are written in turn.

xsdata forgets how often the elements of a group occur before it makes the fields. So that is noted first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from lxml import etree
from xsdata.codegen.container import ClassContainer
from xsdata.codegen.handlers import CreateCompoundFields
from xsdata.codegen.models import Attr, Class
from xsdata.models.config import GeneratorConfig

from soapjms.protocol.xml import XSD

_CHOICE: Final = "c"
_EMPTY: Final = etree.XPath(
    "boolean(//xs:choice/descendant::*[self::xs:sequence or self::xs:choice][not(xs:*[not(self::xs:annotation)])]"
    " | //xs:group/*[not(self::xs:annotation)][not(xs:*[not(self::xs:annotation)])][not(../@ref)])",
    namespaces={"xs": XSD},
)

_Path: TypeAlias = Sequence[tuple[str, int, int, int]]
"""The groups around an element, the outermost first: kind, identity, minOccurs, maxOccurs."""


def has_empty_groups(schema: etree._Element) -> bool:
    """Say whether groups without elements may be alternatives, of which xsdata keeps no trace."""
    return bool(_EMPTY(schema))


def analyzed(classes: Sequence[Class], config: GeneratorConfig, *, any_is_required: bool) -> list[Class]:
    """Return the classes that xsdata writes.

    Args:
        classes: what it read of the schemas.
        config: its options.
        any_is_required: if False, no choice is taken for required.
    """
    container = ClassContainer(config)
    noted = _Noted(classes, any_is_required=any_is_required)
    for step, processors in container.processors.items():
        container.processors[step] = [
            _CompoundFields(container, noted) if isinstance(each, CreateCompoundFields) else each for each in processors
        ]
    container.extend(list(classes))
    container.process()
    return list(container)


class _Noted:
    """What the schemas say of groups.

    Attributes:
        kinds: the kind of each group, by its identity; empty if no choice is taken for required.
        optional: the innermost group and the name of each optional element.
        single: likewise of each element that occurs exactly once in its group.
    """

    def __init__(self, classes: Iterable[Class], *, any_is_required: bool) -> None:
        attrs = [each for class_ in _with_inner(classes) for each in class_.attrs if each.restrictions.path]
        paths = [each.restrictions.path for each in attrs] if any_is_required else []
        self.kinds = {index: kind for path in paths for kind, index, _, _ in path}
        self.optional = {_spot(each) for each in attrs if not each.restrictions.min_occurs}
        spots = Counter(_spot(each) for each in attrs)
        self.single = {
            _spot(each)
            for each in attrs
            if each.restrictions.min_occurs == each.restrictions.max_occurs == spots[_spot(each)] == 1
        }


def _spot(attr: Attr) -> tuple[int, str]:
    """Return the identity of the innermost group of an element, and its name."""
    return attr.restrictions.path[-1][1], attr.local_name


def _with_inner(classes: Iterable[Class]) -> Iterator[Class]:
    for each in classes:
        yield each
        yield from _with_inner(each.inner)


class _CompoundFields(CreateCompoundFields):
    """Makes the fields of choices and of repeated groups."""

    __slots__ = ("_noted",)

    def __init__(self, container: ClassContainer, noted: _Noted) -> None:
        super().__init__(container)
        self._noted = noted

    def process(self, target: Class) -> None:
        """Make the fields of a class."""
        repeated: dict[int, list[Attr]] = {}
        for each in target.attrs:
            group = next((one for one in each.restrictions.path if one[0] == _CHOICE or one[3] > 1), None)
            if group is not None and group[0] != _CHOICE:
                repeated.setdefault(group[1], []).append(each)
        for index, attrs in repeated.items():
            for each in attrs if len(attrs) > 1 else ():
                if self._is_regular(attrs):
                    each.restrictions.sequence = index
                else:
                    each.restrictions.choice = index
        super().process(target)

    def _is_regular(self, attrs: Sequence[Attr]) -> bool:
        """Say whether each element of a repeated group occurs once in each repetition."""
        first, *others = (each.restrictions.path for each in attrs)
        is_repeated_at = next(number for number, group in enumerate(first) if group[3] > 1)
        return (
            all(path == first for path in others)
            and all(group[2:] == (1, 1) for group in first[is_repeated_at + 1 :])
            and all(each.restrictions.choice is None and _spot(each) in self._noted.single for each in attrs)
        )

    def group_fields(self, target: Class, attrs: list[Attr]) -> None:
        """Make one field of several, which must have a value if the choice is required."""
        position, is_required = target.attrs.index(attrs[0]), self._is_required(attrs)
        super().group_fields(target, attrs)
        target.attrs[position].restrictions.min_occurs = int(is_required)

    def _is_required(self, attrs: Sequence[Attr]) -> bool:
        """Say whether a group must have a value; with `xsi:nil` that is None, so then it is not asked for."""
        choice = attrs[0].restrictions.choice
        kind = self._noted.kinds.get(choice or 0)
        if kind is None or any(each.restrictions.nillable for each in attrs):
            return False
        members = []
        for each in attrs:
            path = each.restrictions.path
            at = next((number for number, group in enumerate(path, 1) if group[1] == choice), 0)
            if at == 0 or any(group[2] == 0 for group in path[:at]):
                return False
            members.append((path[at:], _spot(each) in self._noted.optional))
        return not _is_emptiable(kind, members)


def _is_emptiable(kind: str, members: Sequence[tuple[_Path, bool]]) -> bool:
    """Say whether a group may hold no element.

    Args:
        kind: the kind of the group.
        members: for each element in it the groups around the element within this one, and whether it is optional.
    """
    found = [is_optional for path, is_optional in members if not path]
    inner: dict[tuple[str, int, int, int], list[tuple[_Path, bool]]] = {}
    for path, is_optional in members:
        if path:
            inner.setdefault(path[0], []).append((path[1:], is_optional))
    found += [group[2] == 0 or _is_emptiable(group[0], within) for group, within in inner.items()]
    return any(found) if kind == _CHOICE else all(found)
