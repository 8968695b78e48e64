"""Dataclasses that xsdata generated, as XML elements: written, and read with every value checked for its type.

xsdata looks up the types that `xsi:type` and wildcards name among all classes of the program. Here only the module of
the expected class counts, as a peer chooses these names. xsdata also writes any object in place of a text, and reads
`1_000` as a thousand and an empty number as a text; here these are errors that name the field.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import date, time
from decimal import Decimal
from enum import Enum, EnumMeta
from functools import lru_cache
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, TypeVar

from lxml import etree

from soapjms.protocol.envelope import is_nil
from soapjms.protocol.simple_types import FORMS, has_form, items_of, text_of, uncarried_character
from soapjms.protocol.text import counted, shown, with_article
from soapjms.protocol.xml import WHITE_SPACE

try:
    from xsdata.exceptions import ConverterError
    from xsdata.formats.converter import Converter, converter
    from xsdata.formats.dataclass.context import XmlContext
    from xsdata.formats.dataclass.models.elements import XmlMeta, XmlVar
    from xsdata.formats.dataclass.parsers import XmlParser
    from xsdata.formats.dataclass.parsers.config import ParserConfig
    from xsdata.formats.dataclass.parsers.handlers import LxmlEventHandler
    from xsdata.formats.dataclass.serializers import TreeSerializer
    from xsdata.models.datatype import XmlDate, XmlDateTime, XmlDuration, XmlTime
    from xsdata.models.enums import DataType, Namespace, QNames
    from xsdata.utils.collections import is_array
except ImportError as _error:
    raise ImportError(f"generated code needs xsdata ({_error}): pip install 'soapjms[codegen]'") from _error

T = TypeVar("T")

_STRICT: Final = ParserConfig(
    fail_on_unknown_properties=True, fail_on_unknown_attributes=False, fail_on_converter_warnings=True
)


class _ModuleContext(XmlContext):
    """The classes of one module, which are looked up once: the module does not change any more."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self._module = module
        super().build_xsi_cache()

    def is_binding_model(self, clazz: type[Any]) -> bool:
        """Say whether a class is one of the module's dataclasses."""
        try:
            return attrgetter(clazz.__qualname__)(self._module) is clazz and super().is_binding_model(clazz)
        except AttributeError:
            return False

    def build_xsi_cache(self) -> None:
        """Do nothing."""


@lru_cache(maxsize=256)
def _module_context(module: ModuleType) -> _ModuleContext:
    return _ModuleContext(module)


def _context(kind: type[Any]) -> _ModuleContext:
    return _module_context(sys.modules[kind.__module__])


# Reading


class _ExactConverter(Converter):
    """Reads a value only of a text that has the form of its type in XML Schema."""

    def __init__(self, name: str, kind: type[Any]) -> None:
        self._name, self._kind = name, kind

    def deserialize(self, value: Any, data_type: Any = None, **given: Any) -> Any:
        """Return the value of a text.

        Raises:
            ConverterError: the text has another form.
        """
        if isinstance(value, str):
            if not has_form(value, self._name):
                raise ConverterError
            value = value.strip(WHITE_SPACE)
        return converter.deserialize(value, [self._kind], **given)

    def serialize(self, value: Any, **given: Any) -> str:
        """Return the text of a value."""
        return str(converter.serialize(value, **given))


def _exact(name: str, kind: type[Any]) -> type[Any]:
    """Return a class that stands for a type while texts are read; errors of xsdata name it."""
    made = type(name, (), {})
    converter.register_converter(made, _ExactConverter(name, kind))
    return made


_EXACT: Final = {
    kind: _exact(name, kind)
    for name, kind in {
        "boolean": bool,
        "integer": int,
        "decimal": Decimal,
        "double": float,
        "date": XmlDate,
        "time": XmlTime,
        "dateTime": XmlDateTime,
        "duration": XmlDuration,
    }.items()
}


class _ReadingContext(_ModuleContext):
    """The classes of one module, whose numbers and dates are read exactly."""

    def build(self, clazz: type[Any], *given: Any, **named: Any) -> XmlMeta:
        """Return the description of a class."""
        is_new = clazz not in self.cache
        meta = super().build(clazz, *given, **named)
        for var in meta.get_all_vars() if is_new else ():
            for each in (var, *var.elements.values()):
                each.types = tuple(_EXACT.get(kind, kind) for kind in each.types)
        return meta


@lru_cache(maxsize=256)
def _reading_context(module: ModuleType) -> _ReadingContext:
    return _ReadingContext(module)


_STATING: Final = etree.XPath("descendant-or-self::*[@xsi:type]", namespaces={"xsi": Namespace.XSI.uri})
_FORM_NAMES: Final = {int: "integer", XmlDateTime: "dateTime", XmlDuration: "duration"}


def _check_stated_types(root: etree._Element) -> None:
    """Check the texts of elements whose xsi:type is a built-in type; xsdata reads them as loosely as Python does.

    Raises:
        ValueError: a text has not the form of its type.
    """
    for each in _STATING(root):
        prefix, _, local = each.get(QNames.XSI_TYPE, "").strip().rpartition(":")
        kind = DataType.from_qname(f"{{{each.nsmap.get(prefix or None)}}}{local}")
        name = kind and (kind.code if kind.code in FORMS else _FORM_NAMES.get(kind.type))
        if kind and name and not is_nil(each) and not has_form(each.text or "", name):
            text = shown(each.text or "")
            raise ValueError(f"{etree.QName(each).localname} must be of type {kind.code}, got {text}")


def _flaws(value: Any, context: XmlContext) -> Iterator[str]:
    """Yield what is wrong.

    That is an empty text where the type has no such value, a required choice or list without elements, and lists of
    values that repeat together and differ in length.
    """
    meta = context.build(type(value))
    yield from _uneven(value, meta)
    for var in meta.get_all_vars():
        found = getattr(value, var.name)
        if found == [] and not _is_one_list(var) and _bounds(value, var)[0]:
            yield f"{meta.clazz.__qualname__} lacks {var.name}"
        for each in found if is_array(found) else [found]:
            if isinstance(each, str):
                if not each and not _holds_text(var):
                    yield f"{meta.clazz.__qualname__}.{var.name} must have a value, got ''"
            elif not isinstance(each, _ATOMS) and context.is_binding_model(type(each)):
                yield from _flaws(each, context)


def _bounds(value: Any, var: XmlVar) -> tuple[int, int | None]:
    """Return how often the elements of a field occur at least and at most, as far as the schema says."""
    metadata = type(value).__dataclass_fields__[var.name].metadata
    return metadata.get("min_occurs", 0), metadata.get("max_occurs")


def _is_one_list(var: XmlVar) -> bool:
    """Say whether a field holds one value of a list type, which may be empty."""
    return bool(var.tokens) and not var.list_element


def _uneven(value: Any, meta: XmlMeta) -> Iterator[str]:
    """Yield the lists of a repeated group that differ in length."""
    groups: dict[int, dict[str, int]] = {}
    for var in meta.get_element_vars():
        if var.sequence is not None and is_array(found := getattr(value, var.name)):
            groups.setdefault(var.sequence, {})[var.name] = len(found)
    for lengths in groups.values():
        if len(set(lengths.values())) > 1:
            named = ", ".join(f"{name} {number}" for name, number in lengths.items())
            yield f"{meta.clazz.__qualname__} must have as many values of each of a repeated group, got of {named}"


_ATOMS: Final = (int, float, Decimal, bytes, type(None))
"""Values that are no dataclasses, as is seen fast."""


def _holds_text(var: XmlVar) -> bool:
    kinds = [kind for each in var.elements.values() or [var] for kind in each.types]
    enums: list[Any] = [kind for kind in kinds if isinstance(kind, EnumMeta)]
    return str in kinds or object in kinds or any(member.value == "" for kind in enums for member in kind)


# Writing


class _Nil:
    """The class of NIL."""

    def __repr__(self) -> str:
        return "NIL"


NIL: Final[Any] = _Nil()
"""The value of a field whose element is sent with `xsi:nil`, where None would leave an optional element out."""


class _Serializer(TreeSerializer):
    """Writes dataclasses; errors about values name the field."""

    @classmethod
    def next_value(cls, obj: Any, meta: XmlMeta) -> Iterator[tuple[XmlVar, Any]]:
        """Yield the fields that are written, with their values; None in an optional field is not.

        Raises:
            ValueError: a field that is not nillable has the value NIL, or one has fewer or more values than allowed.
        """
        fields = obj.__dataclass_fields__
        for var, value in super().next_value(obj, meta):
            if value is NIL:
                if not var.nillable and var.find_nillable_choice(is_tokens=False) is None:
                    raise ValueError(f"{var.name} must not be NIL: its element is not nillable")
                yield var, None
            elif var.is_element and _is_one_list(var) and value == [] and not var.nillable and _bounds(obj, var)[0]:
                yield var, [value]  # or the element would be left out
            elif value is not None or fields[var.name].default is not None:
                _check_number(obj, var, value)
                yield var, value

    @classmethod
    def next_attribute(cls, obj: Any, meta: XmlMeta, *given: Any, **named: Any) -> Iterator[tuple[str, Any]]:
        """Yield the attributes that are written, with their texts.

        An empty list is written if the attribute is required, or would have its default if it were left out.
        """
        yield from super().next_attribute(obj, meta, *given, **named)
        for var in meta.get_attribute_vars():
            if var.tokens and getattr(obj, var.name) == [] and (_bounds(obj, var)[0] or not var.is_optional([])):
                yield var.qname, ""

    def convert_elements(self, value: Any, var: XmlVar, namespace: str | None) -> Iterator[Any]:
        """Yield what is written of the values of a choice, or of its one value, which may be of a list type."""
        is_one = not is_array(value) or (value and not var.list_element)
        for each in [value] if is_one else value:
            yield from self.convert_choice(each, var, namespace)

    def convert_choice(self, value: Any, var: XmlVar, namespace: str | None) -> Iterator[Any]:
        """Yield what is written of a value of a choice: of the alternative of its type, or else of one that it fits."""
        same = _alternative_of_type(value, var)
        yield from (
            super().convert_choice(value, var, namespace)
            if same is None
            else self.convert_value(value, same, namespace)
        )

    def convert_list(self, values: Iterable[Any], var: XmlVar, namespace: str | None) -> Iterator[Any]:
        """Yield what is written of the items of a list.

        Raises:
            ValueError: an item is None, which would be written as an empty text, and its element is not nillable.
        """
        if not var.nillable and any(each is None for each in values):
            raise ValueError(f"{var.name} must not hold None: its element is not nillable")
        yield from super().convert_list(values, var, namespace)

    def convert_tokens(self, value: Any, var: XmlVar, namespace: str | None) -> Iterator[Any]:
        """Yield what is written of a value of a list type.

        Raises:
            ValueError: it is neither a list nor a text.
        """
        if value is not None and not is_array(value) and not isinstance(value, str):
            raise ValueError(f"{var.name} must be a list, got {shown(value)}")
        yield from super().convert_tokens(value, var, namespace)

    @classmethod
    def encode_primitive(cls, value: Any, var: XmlVar | None) -> Any:
        """Return the text of a value, or what xsdata makes one of.

        Raises:
            ValueError: the value is not of a type that has texts.
        """
        if var is None or value is None:
            return value
        try:
            return cls._encoded(value, var)
        except ValueError as error:
            why = "" if isinstance(error, ConverterError) or not str(error) else f": {error}"
            kinds = " or ".join(each.__name__ for each in var.types)
            raise ValueError(f"{var.name} must be of type {kinds}, got {shown(value)}{why}") from error

    @classmethod
    def _encoded(cls, given: Any, var: XmlVar) -> Any:
        value = given.value if isinstance(given, Enum) else given
        if is_array(value):
            if value is given and not var.tokens:
                raise ValueError
            return [cls._item(each, var) for each in value]
        if type(value) is object or (bytes in var.types and not isinstance(value, bytes | str)):
            raise ValueError
        if isinstance(value, date | time):
            return text_of(value)
        if isinstance(value, str) and (character := uncarried_character(value)) is not None:
            raise ValueError(f"XML cannot hold the character {character!r}")
        if isinstance(value, float):  # or of a subclass, whose repr may be another
            value = Decimal(str(value)) if Decimal in var.types else float(value)
        return super().encode_primitive(value, var)

    @classmethod
    def _item(cls, value: Any, var: XmlVar) -> Any:
        text = "" if value is None else cls._encoded(value, var)
        if isinstance(text, str) and items_of(text) != [text]:
            raise ValueError(f"an item of a list must be a text without white space, got {shown(value)}")
        return text


def _alternative_of_type(value: Any, var: XmlVar) -> XmlVar | None:
    """Return the first alternative of a choice that has values of this very type; xsdata takes `"1"` for an int."""
    is_tokens = is_array(value)
    kind = type(next(iter(value), None) if is_tokens else value)
    return next((each for each in var.elements.values() if kind in each.types and each.tokens == is_tokens), None)


def _check_number(obj: Any, var: XmlVar, value: Any) -> None:
    """Check the number of values of a repeated element; that of choices and repeated groups is known to the service.

    Raises:
        ValueError: there are fewer or more than the schema allows.
    """
    if not (var.is_element and var.list_element and is_array(value)) or var.tokens or var.sequence is not None:
        return
    least, most = _bounds(obj, var)
    if 0 < len(value) < least:  # that there are none is told elsewhere
        raise ValueError(f"{var.name} must have at least {counted(least, 'value')}, got {len(value)}")
    if most is not None and len(value) > most:
        raise ValueError(f"{var.name} must have at most {counted(most, 'value')}, got {len(value)}")


def element_name(kind: type[Any]) -> str:
    """Return the name of the element of a dataclass, in Clark notation."""
    return str(_context(kind).build(kind).qname)


def to_element(value: Any, kind: type[Any]) -> etree._Element:
    """Write a dataclass as an element.

    Args:
        value: the dataclass.
        kind: the class that it must be of.

    Raises:
        ValueError: the value is of another class, or holds what its fields do not allow.
    """
    if not isinstance(value, kind):
        raise ValueError(f"it must be {with_article(kind)}, got {value!r}")
    try:
        root = _Serializer(context=_context(kind)).render(value).getroot()
    except Exception as error:  # xsdata's converters raise any Python error for a value of another type
        raise ValueError(_said(error)) from error
    from_element(root, kind)
    return root


def from_element(element: etree._Element, kind: type[T]) -> T:
    """Read an element, which is not changed, as a dataclass.

    Raises:
        ValueError: the element does not fit the class: it holds unknown elements or values of other types, or lacks
            elements. Facets, such as patterns, and unknown attributes are not checked.
    """
    copy = deepcopy(element)  # the parser clears what it has read
    etree.strip_tags(copy, etree.Comment, etree.ProcessingInstruction)
    _check_stated_types(copy)
    context = _reading_context(sys.modules[kind.__module__])
    parser = XmlParser(config=_STRICT, context=context, handler=LxmlEventHandler)
    try:
        found = parser.parse(copy, kind)
    except Exception as error:  # the constructor of a dataclass raises TypeError for a missing element
        raise ValueError(_said(error)) from error
    if not isinstance(found, kind):  # by xsi:type
        raise ValueError(f"it must be {with_article(kind)}, got {type(found).__name__}")
    if (flaw := next(_flaws(found, context), None)) is not None:
        raise ValueError(flaw)
    return found


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, TypeError) and "__init__() missing" in text:
        kind, _, rest = text.partition(".__init__() missing ")
        return f"{kind} lacks {rest.partition(': ')[2] or rest}"
    return text or type(error).__name__
