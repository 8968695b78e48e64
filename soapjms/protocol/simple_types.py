"""The simple types of XML Schema: the form that a text of a built-in type has, and the texts of Python's own values.

Facets, such as ranges and patterns, are not here, nor are types whose texts have any form.

Spec: XML Schema 1.0 Part 2 3.2, 3.3.13, 4.3.6.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, Final

from soapjms.protocol.xml import UNCARRIED, WHITE_SPACE

_ZONE: Final = r"(?:Z|[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00))?"
_YEAR: Final = r"-?(?:[1-9]\d{3,}|0\d{3})"
_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_DAY: Final = r"(?:0[1-9]|[12]\d|3[01])"
_TIME: Final = r"(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?|24:00:00(?:\.0+)?)"
_DECIMAL: Final = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_FLOATING: Final = rf"{_DECIMAL}(?:[eE][+-]?\d+)?|-?INF|NaN"

FORMS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(form, re.ASCII)
    for name, form in {
        "boolean": "true|false|1|0",
        "integer": r"[+-]?\d+",
        "decimal": _DECIMAL,
        "float": _FLOATING,
        "double": _FLOATING,
        "duration": r"-?P(?=[\dT])(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?",
        "dateTime": f"{_YEAR}-{_MONTH}-{_DAY}T{_TIME}{_ZONE}",
        "time": f"{_TIME}{_ZONE}",
        "date": f"{_YEAR}-{_MONTH}-{_DAY}{_ZONE}",
        "gYearMonth": f"{_YEAR}-{_MONTH}{_ZONE}",
        "gYear": f"{_YEAR}{_ZONE}",
        "gMonthDay": f"--{_MONTH}-{_DAY}{_ZONE}",
        "gMonth": f"--{_MONTH}{_ZONE}",
        "gDay": f"---{_DAY}{_ZONE}",
        "hexBinary": r"(?:[\da-fA-F]{2})*",
    }.items()
}
"""The form of a text, by the name of the type. Types derived from these by restriction have the same form."""

_ITEM: Final = re.compile(f"[^{WHITE_SPACE}]+")
_IN_XML: Final = re.compile(f"[^{UNCARRIED}]*")  # faster than a search for the others


def has_form(text: str, name: str) -> bool:
    """Say whether a text has the form of a type of `FORMS`."""
    return FORMS[name].fullmatch(text.strip(WHITE_SPACE)) is not None


def items_of(text: str) -> list[str]:
    """Return the items of a list, as texts.

    Spec: XML Schema 1.0 Part 2 2.5.1.2.
    """
    return _ITEM.findall(text)


def uncarried_character(text: str) -> str | None:
    """Return the first character of a text that XML cannot hold, or None.

    Spec: XML 1.0 2.2.
    """
    carried = _IN_XML.match(text)
    assert carried is not None, "it may be empty"
    return text[carried.end() : carried.end() + 1] or None


def decimal_text(value: Any) -> str:
    """Write a number without an exponent, as xs:decimal wants it.

    Raises:
        ArithmeticError: it is no number.
    """
    return f"{Decimal(str(value)):f}"


def _floating_text(value: Any) -> str:
    return str(value) if math.isfinite(value) else _infinite_text(value)


def _infinite_text(value: Any) -> str:
    """Write an infinite number, or one that is none."""
    return {"inf": "INF", "infinity": "INF", "-inf": "-INF", "-infinity": "-INF"}.get(str(value).lower(), "NaN")


def _clock_text(value: datetime | time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise ValueError(f"the time zone {value.tzinfo} has no fixed offset")
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


_WRITERS: Final[Sequence[tuple[type, Callable[[Any], str]]]] = (
    (str, str.__str__),
    (bool, lambda value: str(value).lower()),
    (Integral, lambda value: str(int(value))),
    (Decimal, lambda value: decimal_text(value) if value.is_finite() else _infinite_text(value)),
    (Real, _floating_text),
    (datetime, _clock_text),
    (date, date.isoformat),
    (time, _clock_text),
)
"""The types of Python whose values have a text, and how to write it; the first that fits counts."""


def text_of(value: object) -> str | None:
    """Write a value in the type of XML Schema that its own type corresponds to; None if there is no such type.

    Raises:
        ValueError: it is a time in a time zone whose offset depends on the day.
    """
    kind: Any = type(value)
    write = _writer(kind)
    return None if write is None else write(value)


@lru_cache(maxsize=256)
def _writer(kind: type) -> Callable[[Any], str] | None:
    return next((write for each, write in _WRITERS if issubclass(kind, each)), None)
