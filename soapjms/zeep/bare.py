"""Messages whose body is a single element of a simple type.

zeep converts their value to text twice, which fails for most types, and cannot read texts of one character, or before
4.2.1 numbers and dates. It writes March as `--3`, and cannot write octets in hexadecimal or lists of names; zeep 4.2
knows only the time zones of pytz.
"""

from __future__ import annotations

import copy
import datetime
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final

from lxml import etree
from zeep.wsdl.messages import DocumentMessage
from zeep.xsd import AnySimpleType, Nil
from zeep.xsd.context import XmlParserContext
from zeep.xsd.types.builtins import (
    IDREFS,
    Base64Binary,
    DateTime,
    Entities,
    HexBinary,
    NmTokens,
    Time,
    gDay,
    gMonth,
    gMonthDay,
    gYear,
    gYearMonth,
)
from zeep.xsd.types.collection import ListType, UnionType

from soapjms.protocol.envelope import as_envelope

_NIL: Final = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_OCTETS: Final = (bytes, bytearray, memoryview)
_NAMES: Final = (NmTokens, IDREFS, Entities)
LISTS: Final = (ListType, *_NAMES)
"""Types whose values may be lists."""

_GREGORIAN: Final = (gDay, gMonth, gMonthDay, gYear, gYearMonth)
_ONE_DIGIT: Final = re.compile(r"^--(?=\d$)")


def _gregorian(value: Any, type_: Any) -> str:
    """Write a value such as (2026, 3, None); zeep writes months with one digit, and 4.2 no time zones of Python."""
    *numbers, zone = value
    return _ONE_DIGIT.sub("--0", type_.xmlvalue((*numbers, None))) + _zone(zone)


def _zone(zone: datetime.tzinfo | None) -> str:
    if zone is None:
        return ""
    offset = zone.utcoffset(None)
    if offset is None:
        raise ValueError(f"the time zone {zone} has no fixed offset")
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "Z"


_WRITERS: Final[Sequence[tuple[Any, Any, Callable[[Any, Any], str]]]] = (
    ((*_GREGORIAN, ListType), str, lambda text, _: text),
    (_GREGORIAN, object, _gregorian),
    ((DateTime, Time), (datetime.datetime, datetime.time), lambda time, _: time.isoformat().replace("+00:00", "Z")),
    (Base64Binary, _OCTETS, lambda octets, _: b64encode(octets).decode("ascii")),
    (HexBinary, _OCTETS, lambda octets, _: octets.hex().upper()),
    (_NAMES, (list, tuple), lambda names, _: " ".join(names)),
    (ListType, object, lambda items, type_: " ".join(written(each, type_.item_type) for each in items)),
)
"""XML types, Python types, and how to write such a value that zeep writes wrongly or not at all."""


def is_bare(message: Any) -> bool:
    """Say whether the body of a WSDL message is a single element of a simple type, without SOAP headers."""
    if message is None or message.body is None or message.header.type._element or message._is_body_wrapped:
        return False
    return isinstance(message.body.type, AnySimpleType) and isinstance(message, DocumentMessage)


def written(value: Any, type_: Any) -> str:
    """Return the text of a value of a simple type, which is of a Python type that zeep reads, or text already."""
    if value is None and (isinstance(type_, UnionType) or type(type_) is AnySimpleType):
        return ""  # zeep would write the word None
    if isinstance(type_, UnionType) and type_.item_class is not None:
        type_ = type_.item_class()
    for types, kinds, write in _WRITERS:
        if isinstance(type_, types) and isinstance(value, kinds):
            return write(value, type_)
    made = type_.xmlvalue(value)
    if isinstance(made, bool):  # its type is xs:anySimpleType
        return str(made).lower()
    return made.decode("ascii") if isinstance(made, bytes) else str(made)


class _Text(str):
    """A value that has been converted to text."""

    __slots__ = ()


class Value(AnySimpleType):
    """A simple type whose value becomes text once, however often zeep asks. zeep shows the class name in errors."""

    def __init__(self, type_: Any) -> None:
        super().__init__(type_.qname, type_.is_global)  # type: ignore[no-untyped-call]
        self._type = type_

    def xmlvalue(self, value: Any) -> Any:
        """Return the text of a value; zeep's Nil and texts returned before stay as they are."""
        return value if value is Nil or isinstance(value, _Text) else _Text(written(value, self._type))


def once(element: Any) -> Any:
    """Return an element that can be written: zeep's own, unless its type is simple."""
    if not isinstance(element.type, AnySimpleType):
        return element
    made = copy.copy(element)
    made.type = Value(element.type)
    return made


def sendable(message: Any) -> Any:
    """Return a message that can be written: zeep's own, unless its body is an element of a simple type."""
    if message is None or message.body is None or not isinstance(message.body.type, AnySimpleType):
        return message
    made = copy.copy(message)
    made.body = once(message.body)
    return made


def value_in(root: etree._Element, message: Any) -> Any:
    """Return the value in the body of an envelope, or None if the body is empty."""
    content = as_envelope(root).content
    return None if content is None else value_of(content, message, XmlParserContext(settings=message.wsdl.settings))


def value_of(content: etree._Element, message: Any, context: XmlParserContext) -> Any:
    """Return the value of the element of a message; an empty element is None, or an empty list if its type is a list.

    zeep returns the word None for an empty union, and None for an empty list.
    """
    if isinstance(message.body.type, ListType | UnionType) and content.text is None:
        return [] if isinstance(message.body.type, ListType) and _NIL not in content.attrib else None
    return message.body.parse(content, message.wsdl.types, context=context)
