"""Choices of a schema that are required: xsdata makes their fields optional, here they must have a value.

xsdata forgets which elements of a choice are optional before it makes the field of a choice. So these are noted first.
"""

from __future__ import annotations

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
    noted = _Noted(classes) if any_is_required else _Noted(())
    for step, processors in container.processors.items():
        container.processors[step] = [
            _CompoundFields(container, noted) if isinstance(each, CreateCompoundFields) else each for each in processors
        ]
    container.extend(list(classes))
    container.process()
    return list(container)


class _Noted:
    """What the schemas say of choices.

    Attributes:
        choices: the identities of all choices.
        optional: the innermost group and the name of each optional element.
    """

    def __init__(self, classes: Iterable[Class]) -> None:
        attrs = [each for class_ in _with_inner(classes) for each in class_.attrs if each.restrictions.path]
        self.choices = {index for each in attrs for kind, index, _, _ in each.restrictions.path if kind == _CHOICE}
        self.optional = {
            (each.restrictions.path[-1][1], each.local_name) for each in attrs if not each.restrictions.min_occurs
        }


def _with_inner(classes: Iterable[Class]) -> Iterator[Class]:
    for each in classes:
        yield each
        yield from _with_inner(each.inner)


class _CompoundFields(CreateCompoundFields):
    """Makes the field of a choice."""

    __slots__ = ("_noted",)

    def __init__(self, container: ClassContainer, noted: _Noted) -> None:
        super().__init__(container)
        self._noted = noted

    def group_fields(self, target: Class, attrs: list[Attr]) -> None:
        """Make one field of several, which must have a value if the choice is required."""
        position, is_required = target.attrs.index(attrs[0]), self._is_required(attrs)
        super().group_fields(target, attrs)
        target.attrs[position].restrictions.min_occurs = int(is_required)

    def _is_required(self, attrs: Sequence[Attr]) -> bool:
        """Say whether a choice must have a value; with `xsi:nil` that is None, so then it is not asked for."""
        choice = attrs[0].restrictions.choice
        if choice not in self._noted.choices or any(each.restrictions.nillable for each in attrs):
            return False
        members = []
        for each in attrs:
            path = each.restrictions.path
            at = next((number for number, group in enumerate(path, 1) if group[1] == choice), 0)
            if at == 0 or any(group[2] == 0 for group in path[:at]):
                return False
            members.append((path[at:], self._is_optional(each)))
        return not _is_emptiable(_CHOICE, members)

    def _is_optional(self, attr: Attr) -> bool:
        return (attr.restrictions.path[-1][1], attr.local_name) in self._noted.optional


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
