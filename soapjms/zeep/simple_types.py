"""Simple types: how values are written as text, and whether a text has the form of its type.

zeep writes any value for any type, among them an object as its repr, True for "no", and a number with an exponent for
xs:decimal; it cannot write octets in hexadecimal or lists of names, and 4.2 knows only the time zones of pytz. Values
of a message of a simple type it writes twice. So the types of a WSDL become `WrittenType`, see `repairs.py`. What is
written is checked in `checks.py`.
"""

from __future__ import annotations

import copy
import datetime
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, Final, cast
from uuid import UUID

import zeep.exceptions
from lxml import etree
from zeep.xsd import AnyObject, AnySimpleType, Attribute
from zeep.xsd.types.any import AnyType
from zeep.xsd.types.builtins import (
    IDREFS,
    Base64Binary,
    Decimal,
    Duration,
    Entities,
    HexBinary,
    Integer,
    NmTokens,
    String,
    gDay,
    gMonth,
    gMonthDay,
    gYear,
    gYearMonth,
)
from zeep.xsd.types.collection import ListType, UnionType

from soapjms.protocol.simple_types import FORMS, decimal_text, has_form, items_of, text_of, uncarried_character
from soapjms.protocol.text import shown
from soapjms.zeep.errors import ArgumentsError

_OCTETS: Final = (bytes, bytearray, memoryview)
_NAMES: Final = (NmTokens, IDREFS, Entities)
LISTS: Final = (ListType, *_NAMES)
"""Types whose values may be lists."""

_YEARS: Final = (gYear, gYearMonth)
_GREGORIAN: Final = (gDay, gMonth, gMonthDay, gYear, gYearMonth)
_ONE_DIGIT: Final = re.compile(r"^--(?=\d$)")
_UNNAMED: Final = "_value_"
"""Start of zeep's names for the text of an element with attributes, and for repeated groups."""


# Writing


def _gregorian(value: Any, type_: Any) -> str | None:
    """Write a value such as (2026, 3, None).

    zeep writes months with one digit and years before 1 with three, and 4.2 no time zones of Python.
    """
    try:
        first, *others, zone = value
        sign = "-" if first < 0 and isinstance(type_, _YEARS) else ""
        text = _zeeps(type_, (-first if sign else first, *others, None))
    except (TypeError, ValueError):  # of Python, about the number of values or their types
        return None
    return sign + _ONE_DIGIT.sub("--0", text) + _zone(zone)


def _zone(zone: datetime.tzinfo | None) -> str:
    if zone is None:
        return ""
    offset = zone.utcoffset(None)
    if offset is None:
        raise ValueError(f"the time zone {zone} has no fixed offset")
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "Z"


def _zeeps(type_: Any, value: Any) -> str:
    """Return the text that zeep itself writes."""
    kind: Any = next(each for each in type(type_).__mro__ if not issubclass(each, WrittenType))
    return str(kind.xmlvalue(type_, value))


def _listed(items: Iterable[Any], type_: Any) -> str:
    """Write the items of a list.

    Raises:
        ValueError: an item has no text, or one that would be read as no item, or as several.
    """
    texts = []
    for each in items:
        text = written(each, type_)
        if items_of(text) != [text]:
            raise ValueError(f"an item of a list must be a text without white space, got {shown(each)}")
        texts.append(text)
    return " ".join(texts)


def _of_union(value: Any, type_: Any) -> str | None:
    return text_of(value) if type_.item_class is None else written(value, type_.item_class())


_WRITERS: Final[Sequence[tuple[Any, Any, Callable[[Any, Any], str | None]]]] = (
    (object, (str, type(None)), lambda text, _: text_of(text or "")),
    (UnionType, object, _of_union),
    (Duration, (datetime.timedelta, *Duration.accepted_types), lambda value, type_: _zeeps(type_, value)),
    (_GREGORIAN, tuple, _gregorian),
    (Base64Binary, _OCTETS, lambda octets, _: b64encode(octets).decode("ascii")),
    (HexBinary, _OCTETS, lambda octets, _: octets.hex().upper()),
    ((Base64Binary, HexBinary), object, lambda value, _: None),
    (String, bytes, lambda octets, _: octets.decode("utf-8")),
    (_NAMES, (list, tuple), lambda names, _: _listed(names, String())),
    (ListType, (list, tuple), lambda items, type_: _listed(items, type_.item_type)),
    (String, UUID, lambda identity, _: str(identity)),
    (Integer, object, lambda number, _: text_of(number)),
    (Decimal, Real, lambda number, _: decimal_text(number)),
    (object, object, lambda value, _: text_of(value)),
)
"""XML types, Python types, and how to write such a value; None if it is not written. The first row that fits counts."""


def written(value: Any, type_: Any) -> str:
    """Return the text of a value, which may not have the form of the type.

    Raises:
        ValueError: such a value has no text; the error is empty, or says more than that.
    """
    kind: Any = type(type_)
    value_kind: Any = type(value)
    text = _writer(kind, value_kind)(value, type_)
    if text is None:
        raise ValueError
    if (character := uncarried_character(text)) is not None:
        raise ValueError(f"XML cannot hold the character {character!r}")
    return text


@lru_cache(maxsize=1024)
def _writer(kind: type, value_kind: type) -> Callable[[Any, Any], str | None]:
    return next(
        write for kinds, values, write in _WRITERS if issubclass(kind, kinds) and issubclass(value_kind, values)
    )


class WrittenType(AnyType):
    """A mixin for zeep's types: it writes values as `written` does, once, and names the element in errors."""

    def __call__(self, value: Any = None) -> Any:
        """Return the value, which `render` writes."""
        return value

    def xmlvalue(self, value: Any) -> str:
        """Return the text of a value."""
        return written(value, self)

    def render(self, node: etree._Element, value: Any, xsd_type: Any = None, render_path: Any = None) -> None:
        """Write a value into an element.

        Raises:
            ArgumentsError: the value cannot be one of this type.
        """
        if isinstance(value, AnyObject):
            value = AnyObject(written_type(value.xsd_type), value.value)
        try:
            super().render(node, value, xsd_type, render_path)
        except (ArgumentsError, zeep.exceptions.Error):  # of an element within this one
            raise
        except Exception as error:  # values of other types raise any error of Python
            raise _refusal(render_path or [etree.QName(node).localname], self, value, error) from error


class WrittenAttribute(Attribute):
    """An attribute that is named in errors about its value, and whose default is a value of its type."""

    @property
    def default_value(self) -> Any:
        """Return the default, which zeep leaves as a text."""
        return None if self.default is None else self.parse(self.default)  # type: ignore[no-untyped-call]

    def render(self, parent: etree._Element, value: Any, render_path: Any = None) -> None:
        """Write a value into an attribute.

        Raises:
            ArgumentsError: the value cannot be one of its type.
        """
        try:
            super().render(parent, value, render_path)  # type: ignore[no-untyped-call]
        except zeep.exceptions.Error:
            raise
        except Exception as error:  # values of other types raise any error of Python
            raise _refusal(render_path or [self.name], self.type, value, error) from error


def place_of(path: Sequence[str]) -> str:
    """Return the path of a value for people, without the names that zeep makes up."""
    return ".".join(each for each in path if not each.startswith(_UNNAMED))


def _refusal(path: Sequence[str], type_: Any, value: Any, error: Exception) -> ArgumentsError:
    why = f": {error}" if isinstance(error, ValueError) and str(error) else ""
    return ArgumentsError(f"{place_of(path)} must be of type {name_of(type_)}, got {shown(value)}{why}")


def written_type(type_: Any) -> Any:
    """Return a type that writes its values well: a copy of a simple type or xs:anyType; others are returned as is."""
    if isinstance(type_, WrittenType) or not (isinstance(type_, AnySimpleType) or type(type_) is AnyType):
        return type_
    made = copy.copy(type_)
    made.__class__ = with_mixin(WrittenType, cast(Any, type(type_)))
    return made


@lru_cache(maxsize=256)
def with_mixin(mixin: Any, kind: Any) -> Any:
    """Return a class of zeep's with another before it."""
    return type(kind.__name__, (mixin, kind), {"__module__": kind.__module__})


# Texts

_BASE64: Final = "base64Binary"
_FORMED: Final = frozenset({_BASE64, *FORMS})
_OF_CALENDAR: Final = frozenset({"date", "dateTime", "duration", "time"})
"""Types in which a text may have the form, and no value in Python."""
_READABLE_CHARACTERS: Final = 640
"""Length of the longest number that Python always reads; `sys.set_int_max_str_digits` takes no lower limit."""


def has_form_of(text: str, type_: Any) -> bool:
    """Say whether a text is one of a simple type, and can be read; facets do not count."""
    if isinstance(type_, ListType):
        return all(has_form_of(each, type_.item_type) for each in items_of(text))
    if isinstance(type_, UnionType):
        return any(has_form_of(text, each) for each in type_.item_types)
    name = _form_name(cast(Any, type(type_)))
    if name is None:
        return True
    if name == _BASE64:
        return _is_base64(text)
    if not has_form(text, name):
        return False
    return _is_readable(text, type_) if name in _OF_CALENDAR or len(text) > _READABLE_CHARACTERS else True


def _is_base64(text: str) -> bool:
    try:
        b64decode("".join(items_of(text)), validate=True)  # zeep would drop invalid characters
    except ValueError:
        return False
    return True


def _is_readable(text: str, type_: Any) -> bool:
    try:
        return type_.pythonvalue(text) is not None
    except Exception:  # zeep's types raise any error of Python for what is in no calendar
        return False


@lru_cache(maxsize=256)
def _form_name(kind: Any) -> str | None:
    """Return the name of the built-in type with a form that a type of zeep is derived from, or None."""
    names = (getattr(each, "_default_qname", None) for each in kind.__mro__)
    return next((each.localname for each in names if each is not None and each.localname in _FORMED), None)


def name_of(type_: Any) -> str:
    """Return the name of a type for people."""
    if isinstance(type_, ListType):
        return f"list of {name_of(type_.item_type)}"
    if isinstance(type_, UnionType):
        return " or ".join(dict.fromkeys(map(name_of, type_.item_types)))
    return str(type_.name or type_._default_qname.localname)
